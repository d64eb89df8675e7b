//! Job files of fio: the common subset, as the command line it stands for.
//!
//! A file has a section for what all jobs share, `[global]`, and one for the job. Each line
//! is `option=value` or `option`; lines that begin with `#` or `;` say nothing.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

/// The arguments that the job file at `path` stands for.
///
/// # Errors
/// It cannot be read, or a line cannot be understood.
pub(crate) fn arguments(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("job file {}", path.display()))?;
    parse(&text).with_context(|| format!("job file {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<String>> {
    let mut arguments = Vec::new();
    let mut job = None;
    let mut in_section = false;
    for (number, line) in (1..).zip(text.lines()) {
        // A comment may follow a value; neither sign is in a value of any option here.
        let line = line.split([';', '#']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']');
            let name = name.with_context(|| format!("line {number}: '{line}' lacks its ]"))?;
            in_section = true;
            if name == "global" {
                ensure!(
                    job.is_none(),
                    "line {number}: [global] follows the job [{}] and would not reach it",
                    job.unwrap_or_default()
                );
            } else if let Some(first) = job.replace(name) {
                bail!(
                    "line {number}: [{name}] is a second job after [{first}]: a run is one job, \
                     numjobs times; use one file for each"
                );
            }
            continue;
        }
        ensure!(in_section, "line {number}: '{line}' is in no section");
        let (option, value) = match line.split_once('=') {
            Some((option, value)) => (option.trim(), Some(value.trim())),
            None => (line, None),
        };
        let named = option
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        ensure!(
            named && !option.is_empty(),
            "line {number}: '{line}' is no option"
        );
        if option == "stonewall" {
            continue; // There is one job, so nothing to wait for.
        }
        arguments.push(match value {
            Some(value) => format!("--{option}={value}"),
            None => format!("--{option}"),
        });
    }
    let job = job.context("there is no job: a section [name] is needed")?;
    if !arguments
        .iter()
        .any(|argument| argument.starts_with("--name="))
    {
        arguments.push(format!("--name={job}"));
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_become_one_command_line() {
        let text =
            "; a comment\n[global]\nbs=4k # of a page\ndirect\n\n[random reads]\nrw = randread\n";
        let expected = [
            "--bs=4k",
            "--direct",
            "--rw=randread",
            "--name=random reads",
        ];
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_done_is_told_with_its_line() {
        for (text, why) in [
            ("bs=4k\n", "line 1: 'bs=4k' is in no section"),
            ("[global]\nbs=4k\n", "there is no job"),
            ("[a]\n[b]\n", "line 2: [b] is a second job after [a]"),
            ("[a\n", "line 1: '[a' lacks its ]"),
            ("[a]\n[global]\n", "line 2: [global] follows the job [a]"),
            ("[a]\n=3\n", "line 2: '=3' is no option"),
            ("[a]\n${SIZE}\n", "line 2: '${SIZE}' is no option"),
        ] {
            let refusal = parse(text).expect_err(text).to_string();
            assert!(refusal.contains(why), "{text}: {refusal}");
        }
    }
}
