//! Rule `link`: relative links in documents lead somewhere.

use pulldown_cmark::{Event, Options, Parser, Tag};

use super::Finding;
use super::file::File;

/// Relative links and images whose file does not exist.
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
        let Some(path) = local(&dest_url) else {
            continue;
        };
        if !folder.join(path).exists() {
            let line = file.text[..span.start].matches('\n').count() + 1;
            let message = format!("{dest_url} leads nowhere");
            findings.push(file.finding(line, "link", message));
        }
    }
    findings
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
        let good = "[b](b.md) [b](b.md#part) [r](../README.md) [d](../docs) [h](#here)\n\
                    [u](https://docs.rs) [t](crate::Tag) `[x](y.md)` [m](mailto:a@b)\n\n\
                    ```\n[x](y.md)\n```\n";
        assert!(said(good).is_empty(), "{:?}", said(good));
    }
}
