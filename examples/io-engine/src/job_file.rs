//! Job files of fio: the common subset, as the command line it stands for.
//!
//! A file has a section for what all jobs share, `[global]`, and one for the job. Each line
//! is `option=value` or `option`; lines that begin with `#` or `;` say nothing.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

/// The longest job file, in bytes: so that a device in its place does not fill the memory.
const MAX_LEN: u64 = 1 << 20;

/// Options that say how several jobs follow one another, or say nothing.
const WITHOUT_EFFECT: [&str; 4] = ["stonewall", "wait_for_previous", "new_group", "description"];

/// The arguments that the job file at `path` stands for.
///
/// # Errors
/// It cannot be read, or a line cannot be understood.
pub(crate) fn arguments(path: &Path) -> Result<Vec<String>> {
    let arguments = read(path).and_then(|text| parse(&text));
    arguments.with_context(|| format!("job file {}", path.display()))
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let mut file = File::open(path)?.take(MAX_LEN + 1);
    ensure!(
        file.read_to_string(&mut text)? as u64 <= MAX_LEN,
        "it is longer than {MAX_LEN} bytes"
    );
    Ok(text)
}

fn parse(text: &str) -> Result<Vec<String>> {
    let mut arguments = Vec::new();
    let mut job = None;
    let mut in_section = false;
    // A byte order mark says nothing.
    let text = text.trim_start_matches('\u{feff}');
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
        if WITHOUT_EFFECT.contains(&option) {
            continue;
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
        let text = "\u{feff}; a comment\n[global]\nbs=4k # of a page\ndescription=all\ndirect\n\n\
             [random reads]\nrw = randread\nstonewall\n";
        let expected = [
            "--bs=4k",
            "--direct",
            "--rw=randread",
            "--name=random reads",
        ];
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn a_device_is_no_job_file() {
        let refusal = arguments(Path::new("/dev/zero")).expect_err("it has no end");
        let refusal = format!("{refusal:#}");
        assert!(
            refusal.contains("/dev/zero: it is longer than"),
            "{refusal}"
        );
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
