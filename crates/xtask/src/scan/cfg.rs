//! `cfg(…)` predicates and what can be said of them when some flags are known.

use super::source::{Kind, Source};

/// A cfg predicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Predicate {
    /// A bare name, such as `loom`.
    Flag(String),
    /// `not(…)`.
    Not(Box<Predicate>),
    /// `all(…)`.
    All(Vec<Predicate>),
    /// `any(…)`.
    Any(Vec<Predicate>),
    /// Anything else, such as `feature = "serde"`.
    Other,
}

/// The flags whose value is known; all others may be on or off.
pub(crate) type Known<'a> = &'a [(&'a str, bool)];

impl Predicate {
    /// Reads the predicate in the tokens `from..to`.
    pub(crate) fn parse(source: &Source, from: usize, to: usize) -> Self {
        let name = source.text(from);
        if to == from + 1 && source.tokens[from].kind == Kind::Ident {
            return Self::Flag(name.to_owned());
        }
        if !source.opens(from + 1, '(') || source.tokens[from + 1].mate + 1 != to {
            return Self::Other;
        }
        let mut parts = Vec::new();
        let mut start = from + 2;
        let mut at = start;
        while at < to {
            let end = at + 1 == to || source.text(at) == ",";
            if end && start < at {
                parts.push(Self::parse(source, start, at));
            }
            if end {
                start = at + 1;
            }
            at = source.tokens[at].mate.max(at) + 1;
        }
        match name {
            "all" => Self::All(parts),
            "any" => Self::Any(parts),
            "not" if parts.len() == 1 => Self::Not(Box::new(parts.remove(0))),
            _ => Self::Other,
        }
    }

    /// Whether the predicate holds, if that follows from the flags in `known`.
    pub(crate) fn holds(&self, known: Known<'_>) -> Option<bool> {
        match self {
            Self::Flag(name) => known.iter().find(|(n, _)| n == name).map(|&(_, on)| on),
            Self::Not(inner) => inner.holds(known).map(|on| !on),
            Self::All(parts) => decide(parts, known, false),
            Self::Any(parts) => decide(parts, known, true),
            Self::Other => None,
        }
    }
}

/// One part with the value `decisive` settles it; all parts known settles it the other way.
fn decide(parts: &[Predicate], known: Known<'_>, decisive: bool) -> Option<bool> {
    let values: Vec<_> = parts.iter().map(|p| p.holds(known)).collect();
    if values.contains(&Some(decisive)) {
        Some(decisive)
    } else if values.contains(&None) {
        None
    } else {
        Some(!decisive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str, known: Known<'_>) -> Option<bool> {
        let source = Source::parse(text.to_owned()).unwrap();
        Predicate::parse(&source, 0, source.tokens.len()).holds(known)
    }

    #[test]
    fn known_flags_decide() {
        let shipped: Known<'_> = &[("test", false), ("loom", false)];
        assert_eq!(holds("test", shipped), Some(false));
        assert_eq!(holds("not(loom)", shipped), Some(true));
        assert_eq!(holds("any(loom, shuttle)", shipped), None);
        assert_eq!(
            holds("all(test, not(any(loom, shuttle)))", shipped),
            Some(false)
        );
        assert_eq!(
            holds("all(target_os = \"linux\", not(miri))", shipped),
            None
        );
        assert_eq!(
            holds("all(target_os = \"linux\", not(loom),)", &[("loom", true)]),
            Some(false)
        );
        assert_eq!(
            holds("any(feature = \"a\", loom)", &[("loom", true)]),
            Some(true)
        );
    }
}
