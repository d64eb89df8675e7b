//! The values of options as they are typed, and what to say about those that make no sense.

use std::num::IntErrorKind;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// About 30 years. Longer times are typing errors.
const MAX_RUNTIME: f64 = 1e9;

/// A whole number that is not negative.
pub(crate) fn parse_number(text: &str) -> Result<u64> {
    let negative = text
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    ensure!(!negative, "must not be negative");
    text.parse().map_err(|error: std::num::ParseIntError| {
        anyhow::anyhow!(match error.kind() {
            IntErrorKind::PosOverflow => "too large",
            _ => "not a whole number",
        })
    })
}

/// `MIN..MAX`, whole numbers of bytes.
pub(crate) fn parse_range(text: &str) -> Result<(usize, usize)> {
    let range = text.split_once("..").and_then(|(least, most)| {
        let range = (least.parse().ok()?, most.parse().ok()?);
        (range.0 <= range.1 && range.1 <= 1 << 20).then_some(range)
    });
    range.context("not MIN..MAX, up to 1048576 bytes")
}

/// The same for what is counted in memory.
pub(crate) fn parse_count(text: &str) -> Result<usize> {
    usize::try_from(parse_number(text)?).context("too large")
}

/// A share of 100.
pub(crate) fn parse_percent(text: &str) -> Result<u8> {
    let percent = parse_number(text)?;
    ensure!(percent <= 100, "more than 100");
    Ok(percent as u8)
}

/// A number with an optional suffix k, m, g or t (also kb, kib and so on), in powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = parse_number(digits)?;
    let shift = match lower[digits.len()..]
        .trim_end_matches("ib")
        .trim_end_matches('b')
    {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        other => bail!("unknown suffix '{other}': use k, m, g or t"),
    };
    number
        .checked_mul(1 << shift)
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .context("too large")
}

/// Seconds, with a fraction if need be; the suffixes ms, s, m and h are other units.
pub(crate) fn parse_runtime(text: &str) -> Result<Duration> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let with_unit = |(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, unit));
    let (number, unit) = units.into_iter().find_map(with_unit).unwrap_or((text, 1.0));
    let number: f64 = number.parse().context("not a number of seconds")?;
    let seconds = number * unit;
    ensure!(!seconds.is_sign_negative(), "must not be negative");
    let runtime = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    ensure!(
        !runtime.is_zero() && seconds <= MAX_RUNTIME,
        "not within 0.000000001 to {MAX_RUNTIME} seconds"
    );
    Ok(runtime)
}

/// A switch that may be given without a value.
pub(crate) fn parse_switch(text: &str) -> Result<bool> {
    match text {
        "0" | "false" => Ok(false),
        "1" | "true" => Ok(true),
        _ => bail!("must be 0 or 1"),
    }
}

/// What clap has to say, without the lines of usage: what is wrong, what would be right, and what
/// was probably meant.
pub(crate) fn one_line(error: &clap::Error) -> String {
    if let Some((option, advice)) = not_here(error) {
        return format!("{option} is not supported: {advice}");
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let mut line = line.strip_prefix("error: ").unwrap_or(line).to_owned();
    for (kind, value) in error.context() {
        match (kind, value) {
            (ContextKind::ValidValue, ContextValue::Strings(valid)) if !valid.is_empty() => {
                line += &format!("; one of {}", valid.join(", "));
            }
            (
                ContextKind::SuggestedValue | ContextKind::SuggestedArg,
                ContextValue::String(meant),
            ) => line += &format!("; did you mean '{meant}'?"),
            _ => {}
        }
    }
    line
}

/// An option of fio that is not supported, and what to use.
fn not_here(error: &clap::Error) -> Option<(&str, &'static str)> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    let advice = crate::fio::advice(option).filter(|_| is_unknown)?;
    Some((option, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            ("4KiB", 4096),
            ("3m", 3 << 20),
            ("2G", 2 << 30),
            ("1t", 1 << 40),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for (text, why) in [
            ("", "not a whole number"),
            ("k", "not a whole number"),
            ("4x", "unknown suffix 'x'"),
            ("-1", "negative"),
            ("-1k", "negative"),
            ("1.5k", "not a whole number"),
            ("4 4", "not a whole number"),
            ("99999999t", "too large"),
            ("9223372036854775808", "too large"),
            ("18446744073709551616", "too large"),
        ] {
            let refusal = parse_size(text).expect_err(text).to_string();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }

    #[test]
    fn runtimes() {
        for (text, millis) in [
            ("1", 1000),
            ("0.5", 500),
            ("2s", 2000),
            ("30ms", 30),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1e9", 1_000_000_000_000),
        ] {
            let expected = Duration::from_millis(millis);
            assert_eq!(parse_runtime(text).unwrap(), expected, "{text}");
        }
        for (text, why) in [
            ("soon", "not a number of seconds"),
            ("2sm", "not a number of seconds"),
            ("s", "not a number of seconds"),
            ("-1", "negative"),
            ("0", "not within 0.000000001 to 1000000000 seconds"),
            ("1e-10", "not within"),
            ("1e30", "not within"),
            ("inf", "not within"),
            ("nan", "not within"),
        ] {
            let refusal = parse_runtime(text).expect_err(text).to_string();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }
}
