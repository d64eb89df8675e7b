//! Rounds of all contenders in turn, and the middle of what they gave.

/// Calls `sample(contender)` for each of `contenders`, `rounds` times over, beginning with another
/// one each time, so that a slow moment of the machine meets all. The samples of each contender.
pub fn rotate<T>(
    contenders: usize,
    rounds: usize,
    mut sample: impl FnMut(usize) -> T,
) -> Vec<Vec<T>> {
    let mut samples: Vec<Vec<T>> = (0..contenders).map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..contenders {
            let contender = (round + turn) % contenders;
            samples[contender].push(sample(contender));
        }
    }
    samples
}

/// The middle value, the upper one of two.
///
/// # Panics
///
/// If there are no values or one is not a number.
pub fn median<T: PartialOrd + Copy>(values: impl IntoIterator<Item = T>) -> T {
    quantile(values, 0.5)
}

/// The value below which this part of the values lies.
///
/// # Panics
///
/// If there are no values or one is not a number.
pub fn quantile<T: PartialOrd + Copy>(values: impl IntoIterator<Item = T>, part: f64) -> T {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    let last = values.len().checked_sub(1).expect("at least one value");
    let position = (values.len() as f64 * part) as usize;
    values[position.min(last)]
}
