//! Rule `safety-comment`: every unsafe block and unsafe impl answers for itself.

use super::Finding;
use super::file::File;

/// `unsafe {` and `unsafe impl` without `// SAFETY:` above.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let Some((source, _)) = &file.rust else {
        return Vec::new();
    };
    let obliged = |&i: &usize| {
        source.text(i) == "unsafe" && (source.opens(i + 1, '{') || source.text(i + 1) == "impl")
    };
    let silent = (0..source.tokens.len())
        .filter(obliged)
        .filter(|&i| !file.is_tagged(i, "SAFETY:"));
    let findings = silent.map(|i| {
        let what = if source.text(i + 1) == "impl" {
            "unsafe impl"
        } else {
            "unsafe block"
        };
        let message = format!("{what} without a `SAFETY:` comment directly above");
        file.finding(source.line(i), "safety-comment", message)
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines;
    use super::check;

    #[test]
    fn fires() {
        for text in [
            "fn f() {\n unsafe { g() }\n}",
            "// safe because\nfn f() { let a = unsafe { g() }; }",
            "\nunsafe impl Send for A {}",
            "/// SAFETY: in the docs\nunsafe impl Send for A {}",
            "fn f() {\n a(|| unsafe { g() })\n}",
        ] {
            assert_eq!(lines(check, "benches/a.rs", text), [2], "{text}");
        }
    }

    #[test]
    fn passes() {
        let good = "
            // SAFETY: no thread owns it.
            #[cfg(x)]
            unsafe impl Send for A {}
            /// Docs.
            // SAFETY: as above.
            unsafe impl Sync for A {}
            unsafe fn f() {
                // SAFETY: one,
                // and two.
                let a = h(
                    |p| unsafe { *p },
                );
                // SAFETY: three.
                unsafe { g() };
                let s = \"unsafe { }\"; // unsafe { }
            }
        ";
        assert!(lines(check, "crates/tags/src/a.rs", good).is_empty());
    }
}
