//! Rule `link`: relative links in documents lead somewhere, also to a section of a page.

use std::path::Path;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Finding;
use super::file::File;

/// Relative links and images whose file, or whose section in it, does not exist.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    if file.path.extension().is_none_or(|e| e != "md") {
        return Vec::new();
    }
    let folder = file.root.join(&file.path);
    let folder = folder.parent().unwrap_or(&file.root);
    let mut findings = Vec::new();
    for (event, span) in Parser::new_ext(&file.text, Options::ENABLE_TABLES).into_offset_iter() {
        let (Event::Start(Tag::Link { dest_url, .. }) | Event::Start(Tag::Image { dest_url, .. })) =
            event
        else {
            continue;
        };
        if !leads_somewhere(file, folder, &dest_url) {
            let line = file.text[..span.start].matches('\n').count() + 1;
            let message = format!("{dest_url} leads nowhere");
            findings.push(file.finding(line, "link", message));
        }
    }
    findings
}

fn leads_somewhere(file: &File, folder: &Path, target: &str) -> bool {
    let section = target.split_once('#').map(|(_, section)| section);
    if target.starts_with('#') {
        return section.is_some_and(|s| sections(&file.text).iter().any(|name| name == s));
    }
    let Some(path) = local(target).map(|path| folder.join(path)) else {
        return true;
    };
    match section.filter(|_| path.extension().is_some_and(|e| e == "md")) {
        None => path.exists(),
        Some(section) => std::fs::read_to_string(path)
            .is_ok_and(|text| sections(&text).iter().any(|name| name == section)),
    }
}

/// What the sections of a page are called in links: small letters, hyphens for spaces, no
/// punctuation.
fn sections(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    *heading += &part;
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let said = heading.take().unwrap_or_default().to_lowercase();
                let kept = said.chars().filter_map(|c| match c {
                    ' ' => Some('-'),
                    c => (c.is_alphanumeric() || c == '-' || c == '_').then_some(c),
                });
                let name: String = kept.collect();
                let before = names.iter().filter(|n| **n == name).count();
                names.push(match before {
                    0 => name,
                    n => format!("{name}-{n}"),
                });
            }
            _ => {}
        }
    }
    names
}

/// The path in a link to a file of the project; other links have none.
fn local(target: &str) -> Option<&str> {
    let path = target.split(['#', '?']).next().unwrap_or("");
    // `a::b` is a name for rustdoc, `scheme:` an address, and rustdoc pages exist only once built.
    let elsewhere = path.contains(':') || path.starts_with('/') || path.ends_with(".html");
    (!path.is_empty() && !elsewhere).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file::File;
    use super::check;

    #[test]
    fn links_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("docs")).unwrap();
        std::fs::write(dir.path().join("docs/b.md"), "").unwrap();
        std::fs::write(dir.path().join("README.md"), "").unwrap();
        let said = |text: &str| -> Vec<usize> {
            let file = File::new(
                dir.path(),
                Path::new("docs/a.md").into(),
                text.into(),
                vec![],
            )
            .unwrap();
            check(&file).iter().map(|f| f.line).collect()
        };
        assert_eq!(
            said("a\n[b](c.md) [d]\n\n[d]: ../no.md\n![i](i.png)"),
            [2, 2, 5]
        );
        assert_eq!(said("| a |\n|---|\n| [b](c.md#x) |\n"), [3]);
        assert_eq!(said("[b](b.md#part)\n[h](#here)\n# Not here"), [1, 2]);
        let sections = "# A `part`, of it!\n# The same\n# The same\n";
        std::fs::write(dir.path().join("docs/s.md"), sections).unwrap();
        assert!(said("[a](s.md#a-part-of-it) [b](s.md#the-same-1)\n\n# B_1\n[b](#b_1)").is_empty());
        let good = "[b](b.md) [r](../README.md) [d](../docs)\n\
                    [u](https://docs.rs) [t](crate::Tag) `[x](y.md)` [m](mailto:a@b)\n\n\
                    ```\n[x](y.md)\n```\n";
        assert!(said(good).is_empty(), "{:?}", said(good));
    }
}
