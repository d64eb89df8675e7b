//! The machine code of the restartable sections, as it stands in this very program.
//!
//! The order of two loads decides whether drained ids come back to life, and no test can provoke
//! the window. So the instructions are read.

#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#![cfg(not(any(loom, shuttle, miri)))]

use inflight_sync::percpu::{Backend, Stacks};
use std::process::Command;

/// Instructions between the announcement of a section and its end, at most.
const WINDOW: usize = 24;

/// Calls what is looked for, so that it is in the program.
#[inline(never)]
fn use_sections(stacks: &Stacks) -> Option<u32> {
    let kept = stacks.push(3);
    let got = stacks.pop();
    assert_eq!(kept, got.is_some(), "closed stacks refuse both");
    got
}

/// `lea x,[rip+…]; mov QWORD PTR fs:[r+0x8],x` announces a section.
fn announces(lines: &[&str]) -> bool {
    let [address, line] = lines else { return false };
    address.contains("lea ")
        && address.contains(",[rip+")
        && line.contains("QWORD PTR fs:[")
        && line.contains("+0x8],")
}

fn is_store(line: &str, size: &str) -> bool {
    line.contains("mov ") && line.contains(&format!("mov    {size} PTR ["))
}

/// A store of four bytes to a bare register: of the length. An id goes to a place above it.
fn is_store_of_length(line: &str) -> bool {
    let place = line
        .split_once("mov    DWORD PTR [")
        .and_then(|(_, place)| place.split_once(']'));
    place.is_some_and(|(place, _)| !place.contains(['+', '-']))
}

/// Where a counter's section has its only store, if it is one.
fn adds(section: &[&str]) -> Option<usize> {
    let add = section
        .iter()
        .position(|l| l.contains("add    QWORD PTR ["))?;
    let stores = |l: &&str| is_store(l, "DWORD") || is_store(l, "QWORD");
    let first = section.iter().position(stores);
    // What is behind the end is the frame of a function without optimisation.
    let on_stack = first.is_none_or(|at| section[at].contains("[rsp"));
    (on_stack && first.is_none_or(|at| add < at)).then_some(add)
}

/// A load of (or comparison with) four bytes at `offset` from a bare register.
fn reads(line: &str, offset: &str) -> bool {
    let Some((_, place)) = line.split_once("DWORD PTR [") else {
        return false;
    };
    let Some((place, rest)) = place.split_once(']') else {
        return false;
    };
    // A store names the place first.
    let comparison = line.contains("cmp ");
    (comparison || rest.is_empty())
        && place
            .strip_prefix('r')
            .is_some_and(|place| match place.split_once('+') {
                Some((_, at)) => at == offset,
                None => offset == "0x0",
            })
}

fn address(line: &str) -> &str {
    line.trim_start().split(':').next().unwrap_or_default()
}

/// `mov r,0xffffffff; jmp END`: nothing was done.
fn is_refusal(lines: &[&str], target: &str, end: &str) -> bool {
    let place = lines.windows(2).find(|pair| address(pair[0]) == target);
    place.is_some_and(|pair| {
        pair[0].ends_with(",0xffffffff")
            && pair[1].contains("jmp ")
            && pair[1].split_whitespace().any(|word| word == end)
    })
}

#[test]
fn every_section_reads_the_limit_first_and_ends_with_its_only_store_of_the_length() {
    use_sections(&Stacks::new(Backend::best(), 1));
    let program = std::env::current_exe().unwrap();
    let listing = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "-M", "intel"])
        .arg(program)
        .output();
    let Ok(listing) = listing else {
        println!("skipped: no objdump on this machine");
        return;
    };
    let listing = String::from_utf8_lossy(&listing.stdout);
    let lines: Vec<&str> = listing.lines().map(str::trim_end).collect();
    let mut sections = 0;
    for (start, _) in lines.windows(2).enumerate().filter(|(_, l)| announces(l)) {
        let section = &lines[start + 2..lines.len().min(start + WINDOW)];
        let at = |what: &dyn Fn(&str) -> bool| section.iter().position(|l| what(l));
        let text = section.join("\n");
        if let Some(add) = adds(section) {
            let open = at(&|l| l.contains("cmp ") && reads(l, "0x8"));
            assert!(open.is_some_and(|open| open < add), "order:\n{text}");
            assert!(!section[..add].iter().any(|l| l.contains("call ")));
            continue;
        }
        let limit = at(&|l| reads(l, "0x4")).unwrap_or_else(|| panic!("no limit:\n{text}"));
        let inside = at(&|l| reads(l, "0x0")).unwrap_or_else(|| panic!("no length:\n{text}"));
        let commit = at(&is_store_of_length).unwrap_or_else(|| panic!("no end:\n{text}"));
        assert!(limit < inside && inside < commit, "order:\n{text}");
        // No call, and no other way out than past the commit, at once or by way of a refusal.
        for line in &section[..commit] {
            assert!(!line.contains("call "), "a call inside:\n{text}");
            if let Some((_, target)) = line.split_once(" j") {
                let target = target.split_whitespace().nth(1).unwrap();
                let end = address(section[commit + 1]);
                let refused = target == end || is_refusal(&lines, target, end);
                assert!(refused, "way out:\n{text}");
            }
        }
        sections += 1;
    }
    // Under a sanitizer there is none, and nothing to say.
    if Stacks::new(Backend::Rseq, 1).backend() == Backend::Rseq {
        assert!(sections >= 2, "a pop and a push were expected");
    }
    println!("{sections} sections read");
}
