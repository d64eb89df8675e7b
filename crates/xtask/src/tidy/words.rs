//! Rule `word`: what speaks of one machine or one network instead of the project.
//!
//! The words are put together from halves, so that this file passes its own rule.

use super::Finding;
use super::file::File;

/// Folders of build machines; they are meant as absolute paths only.
const FOLDERS: [&str; 6] = [
    concat!("/wo", "rk"),
    concat!("/ho", "me"),
    concat!("/ro", "ot"),
    concat!("/fa", "rm"),
    concat!("/Us", "ers"),
    concat!("/tmp/", "inflight"),
];

/// Parts of the names of registry hosts, in addresses.
const HOSTS: [&str; 7] = [
    concat!("cra", "tes.io"),
    concat!("py", "pi"),
    concat!("python", "hosted"),
    concat!("deb", "ian"),
    concat!("npm", "js"),
    concat!("proxy.", "golang"),
    concat!("static.rust", "-lang"),
];

/// Machine paths and registry hosts, in every text file but the lock files.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    if file.path.extension().is_some_and(|e| e == "lock") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let mut say = |message| findings.push(file.finding(number + 1, "word", message));
        if let Some(folder) = FOLDERS.iter().find(|f| has_folder(line, f)) {
            say(format!("{folder} is a folder of one machine"));
        }
        if let Some(host) = HOSTS.iter().find(|h| has_host(line, h)) {
            say(format!(
                "an address at {host}: the project does not name registries"
            ));
        }
    }
    findings
}

fn has_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + folder.len()..].chars().next();
        let joins =
            |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '~' | '}' | '/' | '*');
        !before.is_some_and(joins)
            && !after.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
    })
}

fn has_host(line: &str, part: &str) -> bool {
    line.match_indices("://").any(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        let host = rest
            .split(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-')))
            .next();
        host.is_some_and(|h| h.contains(part))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::{FOLDERS, HOSTS, check};

    #[test]
    fn machine_folders() {
        for folder in FOLDERS {
            for text in [
                format!("x\nsee {folder}/a"),
                format!("a\n`{folder}`"),
                format!("\n\"{folder}/x\""),
            ] {
                assert_eq!(lines(check, "docs/a.md", &text), [2], "{text}");
            }
            for text in [
                format!("a{folder}/b"),
                format!("..{folder}"),
                format!("{folder}er"),
                format!("${{a}}{folder}"),
            ] {
                assert!(lines(check, "docs/a.md", &text).is_empty(), "{text}");
            }
        }
    }

    #[test]
    fn registry_hosts() {
        for host in HOSTS {
            assert_eq!(
                lines(check, "ci/a.sh", &format!("curl https://index.{host}/x")),
                [1]
            );
            assert!(lines(check, "Cargo.lock", &format!("https://index.{host}/x")).is_empty());
            assert!(lines(check, "a.md", &format!("published on {host}")).is_empty());
        }
        assert!(lines(check, "a.md", "https://docs.rs/inflight").is_empty());
    }
}
