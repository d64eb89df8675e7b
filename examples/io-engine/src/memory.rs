//! Whether the blocks of all lanes fit into memory, asked before any of it is touched.

use anyhow::{Result, ensure};
use indicatif::BinaryBytes;

use crate::buffer::AlignedBuf;
use crate::options::Config;

/// Refuses a run whose blocks need more memory than this machine has left.
///
/// # Errors
/// One line with the options that multiply and what they come to.
pub(crate) fn check(config: &Config) -> Result<()> {
    // A machine that does not say how much it has is asked by the allocations themselves.
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| available(&text))
        .map_or(Ok(()), |available| check_against(config, available))
}

fn check_against(config: &Config, available: u64) -> Result<()> {
    let lanes = config.numjobs as u64 * config.iodepth as u64;
    let block = AlignedBuf::footprint(config.bs, config.max_split) as u64;
    let needed = lanes.saturating_mul(block);
    ensure!(
        needed <= available,
        "--numjobs {} x --iodepth {} x --bs {} needs {} of memory; {} are available",
        config.numjobs,
        config.iodepth,
        config.bs,
        BinaryBytes(needed),
        BinaryBytes(available),
    );
    Ok(())
}

/// The bytes that can be had without swapping, from the text of `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use clap::Parser as _;

    #[test]
    fn the_available_memory_is_read_in_bytes() {
        let text = "MemTotal:        4030596 kB\nMemAvailable:    2000 kB\nBuffers: 1 kB\n";
        assert_eq!(available(text), Some(2000 << 10));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn blocks_that_do_not_fit_are_refused_with_their_product() {
        let args = "io-engine --numjobs 2 --iodepth 8 --bs 1m --max-split 1024";
        let options = Options::try_parse_from(args.split(' ')).unwrap();
        let config = options.check().unwrap();
        assert!(check_against(&config, 17 << 20).is_ok());
        let refusal = check_against(&config, 16 << 20).unwrap_err().to_string();
        let product = "--numjobs 2 x --iodepth 8 x --bs 1048576 needs 16.06 MiB of memory";
        assert!(refusal.contains(product), "{refusal}");
    }
}
