use super::*;

fn scan(text: &str) -> (Source, Structure) {
    let source = Source::parse(text.to_owned()).unwrap();
    let structure = Structure::of(&source);
    (source, structure)
}

/// The text of the first tokens of the segment around the token `needle`.
fn begins(text: &str, needle: &str) -> String {
    let (source, structure) = scan(text);
    let at = (0..source.tokens.len())
        .find(|&i| source.text(i) == needle)
        .unwrap();
    let segment = structure.segment(at).unwrap();
    let from = source.tokens[segment.tokens.start].span.start;
    let to = source.tokens[segment.tokens.end - 1].span.end;
    source.text[from..to].to_owned()
}

fn function(text: &str, needle: &str) -> Option<String> {
    let (source, structure) = scan(text);
    let at = (0..source.tokens.len())
        .find(|&i| source.text(i) == needle)
        .unwrap();
    structure.function(at).map(|f| f.name.clone())
}

fn off(text: &str, needle: &str, known: Known<'_>) -> bool {
    let (source, structure) = scan(text);
    let at = (0..source.tokens.len())
        .find(|&i| source.text(i) == needle)
        .unwrap();
    structure.is_off(at, known)
}

#[test]
fn statements_end_where_they_should() {
    let body = "fn f() {
        let a = if c { one(1) } else { 2 };
        if x { y } else { z }
        match q { _ => {} }
        'l: loop { w }
        two(|| { inner(); other });
        let s = S { a: 1, b: deep };
        while let Some(v) = m.next() { v }
        mac! { x }
        if a == b && { c } { d }
        unsafe { u }.then();
        tail
    }";
    assert_eq!(begins(body, "c"), "let a = if c { one(1) } else { 2 };");
    assert_eq!(begins(body, "one"), "one(1)");
    assert_eq!(begins(body, "q"), "match q { _ => {} }");
    assert_eq!(begins(body, "loop"), "'l: loop { w }");
    assert_eq!(begins(body, "two"), "two(|| { inner(); other });");
    assert_eq!(begins(body, "other"), "other");
    assert_eq!(begins(body, "deep"), "b: deep");
    assert_eq!(begins(body, "m"), "while let Some(v) = m.next() { v }");
    assert_eq!(begins(body, "mac"), "mac! { x }");
    assert_eq!(begins(body, "unsafe"), "unsafe { u }.then();");
    assert_eq!(begins(body, "tail"), "tail");
}

#[test]
fn arms_are_segments_of_their_own() {
    let body = "fn f() { match x {
        A => one(), B if c => { two() } C | D => E { v: 1 }.f(), _ => three
    } }";
    assert_eq!(begins(body, "one"), "A => one(),");
    assert_eq!(begins(body, "c"), "B if c => { two() }");
    assert_eq!(begins(body, "C"), "C | D => E { v: 1 }.f(),");
    assert_eq!(begins(body, "three"), "_ => three");
}

#[test]
fn functions_carry_their_type() {
    let text = "
        impl<T: Fn() -> u8> fmt::Debug for Guard<'_, T> where T: Send { fn fmt(&self) { one } }
        unsafe impl<T> Send for Other<T> {}
        impl Plain { pub(crate) const unsafe fn get() -> [u8; 3] { fn nested() { two } three } }
        trait Tr { fn with_default(&self) { four } fn without(&self); }
        macro_rules! make { ($name:ident) => { five; fn $name() { six } } }
        pub extern \"C\" fn c(f: fn(u8) -> u8) { seven(|| { eight }) }
        const NINE: usize = 9;
        fn returns() -> impl Fn() { move || ten }
    ";
    assert_eq!(function(text, "one").unwrap(), "Guard::fmt");
    assert_eq!(function(text, "two").unwrap(), "nested");
    assert_eq!(function(text, "three").unwrap(), "Plain::get");
    assert_eq!(function(text, "four").unwrap(), "Tr::with_default");
    assert_eq!(function(text, "five").unwrap(), "make!");
    assert_eq!(function(text, "six").unwrap(), "$name");
    assert_eq!(function(text, "eight").unwrap(), "c");
    assert_eq!(function(text, "NINE"), None);
    assert_eq!(function(text, "ten").unwrap(), "returns");
}

#[test]
fn cfgs_cover_exactly_their_item() {
    let text = "
        #[cfg(test)] use a::{b};
        struct S { #[cfg(loom)] field: Vec<u8>, next: u8 }
        #[cfg(all(test, not(loom)))] mod tests { fn t() { one } }
        fn f() {
            #[cfg(loom)] { two }
            #[cfg(not(loom))] three();
            #[cfg(loom)] let x = if c { four } else { five };
            g(#[cfg(loom)] 1, six);
            match m { #[cfg(loom)] A => seven, B => eight }
        }
        enum E { #[cfg(loom)] Nine(u8), Ten }
    ";
    let shipped: Known<'_> = &[("test", false), ("loom", false)];
    for name in ["b", "field", "one", "two", "four", "five", "seven", "Nine"] {
        assert!(off(text, name, shipped), "{name}");
    }
    for name in ["next", "f", "three", "six", "eight", "Ten"] {
        assert!(!off(text, name, shipped), "{name}");
    }
    assert!(off(text, "three", &[("loom", true)]));
}

#[test]
fn inner_cfg_covers_the_file() {
    assert!(off(
        "#![cfg(loom)]\nfn f() { one }",
        "one",
        &[("loom", false)]
    ));
    assert!(off(
        "fn f() {} mod m { #![cfg(test)] fn g() { one } }",
        "one",
        &[("test", false)]
    ));
    assert!(!off(
        "fn f() {} mod m { #![cfg(test)] fn g() { one } }",
        "f",
        &[("test", false)]
    ));
}

#[test]
fn outlines_know_their_place() {
    let (_, s) = scan("mod a; mod b { #[path = \"x.rs\"] mod c; } pub mod d { }");
    let found: Vec<_> = s
        .outlines
        .iter()
        .map(|o| (o.path.join("::"), o.file.clone()))
        .collect();
    assert_eq!(
        found,
        [("a".into(), None), ("b::c".into(), Some("x.rs".into()))]
    );
}

#[test]
fn test_functions_are_tests() {
    let (source, s) = scan("#[test] fn t() { one } fn u() { two }");
    let at = |n: &str| {
        (0..source.tokens.len())
            .find(|&i| source.text(i) == n)
            .unwrap()
    };
    assert!(s.is_test(at("one")));
    assert!(!s.is_test(at("two")));
}
