//! Rule `sync-only`: atomics, locks and threads come from `crates/sync` only.
//!
//! Code that takes others works on the std back end and is invisible to the model checkers.

use super::Finding;
use super::file::{Area, File};
use crate::scan::{Kind, Source};

const ROOTS: [&str; 3] = ["std", "core", "alloc"];
const MODULES: [&str; 3] = ["sync", "thread", "thread_local"];
const BACK_ENDS: [&str; 3] = ["parking_lot", "loom", "shuttle"];

/// Names that are not from `inflight_sync`, in the source and tests of the library crates.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let Some((source, _)) = &file.rust else {
        return Vec::new();
    };
    let exempt = file.package.as_deref() == Some("sync") || file.area == Area::Other;
    if !file.is_library() || exempt {
        return Vec::new();
    }
    let count = source.tokens.len();
    let names = (0..count).filter_map(|i| foreign(source, i).map(|name| (i, name)));
    let findings = names.map(|(i, name)| {
        let message = format!("{name} is not from inflight_sync");
        file.finding(source.line(i), "sync-only", message)
    });
    findings.collect()
}

fn foreign(source: &Source, i: usize) -> Option<String> {
    let root = source.text(i);
    if source.tokens[i].kind != Kind::Ident || !starts_path(source, i) {
        return None;
    }
    let path = source.matches(i + 1, &[":", ":"]);
    if ROOTS.contains(&root) && path {
        let module = MODULES.iter().find(|m| names(source, i + 3, m))?;
        return Some(format!("{root}::{module}"));
    }
    let imported =
        i > 0 && matches!(source.text(i - 1), "use" | "crate") && source.text(i + 1) != ":";
    if BACK_ENDS.contains(&root) && (path || imported) {
        return Some(root.to_owned());
    }
    // std's macro is in every prelude; ours has to be asked for.
    if source.matches(i, &["thread_local", "!"]) && !imports_thread_local(source) {
        return Some("the prelude's thread_local!".to_owned());
    }
    None
}

/// Whether the path goes on with `module`, alone or first in a part of a `{…}` list.
fn names(source: &Source, at: usize, module: &str) -> bool {
    if !source.opens(at, '{') {
        return source.text(at) == module;
    }
    let mut i = at + 1;
    let mut first = true;
    while i < source.tokens[at].mate {
        if first && source.text(i) == module {
            return true;
        }
        first = source.text(i) == ",";
        i = source.tokens[i].mate.max(i) + 1;
    }
    false
}

fn starts_path(source: &Source, i: usize) -> bool {
    let continued = i >= 3
        && source.matches(i - 2, &[":", ":"])
        && (source.tokens[i - 3].kind == Kind::Ident || ends_generics(source, i - 3));
    let keyword = i >= 3 && matches!(source.text(i - 3), "use" | "return" | "in");
    !continued || keyword
}

/// Whether token `i` is the `>` of a generic type, not of an arrow.
fn ends_generics(source: &Source, i: usize) -> bool {
    source.text(i) == ">" && i > 0 && !matches!(source.text(i - 1), "-" | "=")
}

fn imports_thread_local(source: &Source) -> bool {
    (0..source.tokens.len())
        .filter(|&i| source.matches(i, &["inflight_sync", ":", ":"]))
        .any(|i| names(source, i + 3, "thread_local"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{lines, said};
    use super::check;

    const LIB: &str = "crates/tags/src/lib.rs";

    #[test]
    fn fires_on_every_other_way() {
        for text in [
            "use std::sync::Arc;",
            "use ::std::sync::Arc;",
            "use std::{fmt, sync::{Arc, Mutex}};",
            "use core::sync::atomic::AtomicU8;",
            "fn f() { std::thread::yield_now() }",
            "fn f() -> ::core::sync::atomic::AtomicBool { g() }",
            "use parking_lot::Mutex;",
            "use loom;",
            "extern crate shuttle;",
            "fn f() { loom::model(|| ()) }",
            "macro_rules! m { () => { std::sync::Arc::new(1) } }",
            "std::thread_local! { static A: u8 = 1; }",
            "thread_local! { static A: u8 = 1; }",
        ] {
            assert_eq!(lines(check, LIB, text), [1], "{text}");
            assert_eq!(
                lines(check, "crates/tags/tests/loom_x.rs", text),
                [1],
                "{text}"
            );
        }
    }

    #[test]
    fn says_what_it_saw() {
        let said = said(check, LIB, "\nuse std::{fmt, thread};");
        assert_eq!(said, ["2: std::thread is not from inflight_sync"]);
    }

    #[test]
    fn lets_good_code_pass() {
        let good = "
            //! Like std::sync::Mutex.
            /// ```
            /// use std::sync::Arc;
            /// ```
            #[cfg(loom)]
            use inflight_sync::thread::{self, spawn};
            use std::{fmt, time::Duration};
            use crate::loom::x;
            use inflight_sync::{thread_local, Arc}; // not parking_lot::Mutex
            thread_local! { static A: u8 = 1; }
            fn f() { let s = \"std::sync\"; inflight_sync::thread::spawn(g); }
        ";
        assert!(
            said(check, LIB, good).is_empty(),
            "{:?}",
            said(check, LIB, good)
        );
    }

    #[test]
    fn leaves_sync_itself_and_users_alone() {
        for path in [
            "crates/sync/src/lib.rs",
            "crates/xtask/src/main.rs",
            "examples/e/src/main.rs",
            "benches/benches/a.rs",
            "crates/tags/examples/a.rs",
        ] {
            assert!(
                lines(check, path, "use std::sync::Arc;").is_empty(),
                "{path}"
            );
        }
    }
}
