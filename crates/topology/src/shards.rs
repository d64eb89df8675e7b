//! How a large last-level cache is cut into shards.

/// The size a shard should come closest to.
const CORES_PER_SHARD: usize = 8;

/// The sizes, in cores, of the shards of a cache with `cores` cores.
///
/// As many shards as bring their size closest to [`CORES_PER_SHARD`] (halves up, at least one);
/// sizes differ by at most one and the larger shards come first.
pub(crate) fn sizes(cores: usize) -> impl Iterator<Item = usize> {
    let shards = ((cores + CORES_PER_SHARD / 2) / CORES_PER_SHARD).max(1);
    let (base, larger) = (cores / shards, cores % shards);
    (0..shards).map(move |shard| base + usize::from(shard < larger))
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn sizes_come_closest_to_eight_cores() {
        let table: &[(usize, &[usize])] = &[
            (12, &[6, 6]),
            (13, &[7, 6]),
            (16, &[8, 8]),
            (20, &[7, 7, 6]),
            (24, &[8, 8, 8]),
            (32, &[8, 8, 8, 8]),
            (36, &[8, 7, 7, 7, 7]),
            (59, &[9, 9, 9, 8, 8, 8, 8]),
            (60, &[8, 8, 8, 8, 7, 7, 7, 7]),
            (72, &[8; 9]),
            (96, &[8; 12]),
        ];
        for cores in 1..=11 {
            assert_eq!(sizes(cores).collect::<Vec<_>>(), [cores], "{cores} cores");
        }
        for (cores, expected) in table {
            assert_eq!(
                sizes(*cores).collect::<Vec<_>>(),
                *expected,
                "{cores} cores"
            );
        }
    }

    #[test]
    fn sizes_add_up_and_differ_by_at_most_one() {
        for cores in 1..=1024 {
            let sizes: Vec<usize> = sizes(cores).collect();
            assert_eq!(sizes.iter().sum::<usize>(), cores);
            assert!(
                sizes[0] - sizes[sizes.len() - 1] <= 1,
                "{cores} cores: {sizes:?}"
            );
        }
    }
}
