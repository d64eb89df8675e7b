//! One Rust file as a flat list of tokens and a list of comments.

use std::ops::Range;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// What a token is. Its text is in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or keyword.
    Ident,
    /// One character of punctuation.
    Punct(char),
    /// A string, character or number.
    Literal,
    /// `(`, `[` or `{`.
    Open(char),
    /// `)`, `]` or `}`.
    Close(char),
}

/// A token and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// The bytes of the file it covers.
    pub(crate) span: Range<usize>,
    /// For an opening token its closing one and the other way round; otherwise itself.
    pub(crate) mate: usize,
}

/// A comment and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Comment {
    pub(crate) span: Range<usize>,
    /// `///`, `//!`, `/**` or `/*!`.
    pub(crate) doc: bool,
}

/// A file split into tokens.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
    pub(crate) comments: Vec<Comment>,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl Source {
    /// Splits `text`; fails where the compiler's tokenizer would.
    pub(crate) fn parse(text: String) -> Result<Self> {
        let stream: TokenStream = text
            .parse()
            .map_err(|e: proc_macro2::LexError| anyhow!("does not tokenize: {e}"))?;
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(i, _)| i + 1))
            .collect();
        let mut source = Self {
            text,
            tokens: Vec::new(),
            comments: Vec::new(),
            lines,
        };
        source.flatten(stream);
        source.find_comments();
        proc_macro2::extra::invalidate_current_thread_spans();
        Ok(source)
    }

    fn flatten(&mut self, stream: TokenStream) {
        let mut documented_until = None;
        for tree in stream {
            let span = tree.span().byte_range();
            // A doc comment arrives as an attribute all of whose tokens cover the whole comment.
            if documented_until == Some(span.end) {
                continue;
            }
            if matches!(&tree, TokenTree::Punct(p) if p.as_char() == '#')
                && self.text[span.clone()].starts_with('/')
            {
                documented_until = Some(span.end);
                self.comments.push(Comment { span, doc: true });
                continue;
            }
            match tree {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ('(', ')'),
                        Delimiter::Brace => ('{', '}'),
                        Delimiter::Bracket => ('[', ']'),
                        Delimiter::None => {
                            self.flatten(group.stream());
                            continue;
                        }
                    };
                    let at = self.push(Kind::Open(open), group.span_open().byte_range());
                    self.flatten(group.stream());
                    let end = self.push(Kind::Close(close), group.span_close().byte_range());
                    self.tokens[at].mate = end;
                    self.tokens[end].mate = at;
                }
                TokenTree::Ident(_) => drop(self.push(Kind::Ident, span)),
                TokenTree::Punct(p) => drop(self.push(Kind::Punct(p.as_char()), span)),
                TokenTree::Literal(_) => drop(self.push(Kind::Literal, span)),
            }
        }
    }

    fn push(&mut self, kind: Kind, span: Range<usize>) -> usize {
        let mate = self.tokens.len();
        self.tokens.push(Token { kind, span, mate });
        mate
    }

    /// What is neither token nor doc comment is white space or a comment.
    fn find_comments(&mut self) {
        let mut covered: Vec<Range<usize>> = self.tokens.iter().map(|t| t.span.clone()).collect();
        covered.extend(self.comments.iter().map(|c| c.span.clone()));
        covered.sort_by_key(|r| r.start);
        covered.push(self.text.len()..self.text.len());
        let mut at = 0;
        for range in covered {
            let gap = at..range.start.max(at);
            at = at.max(range.end);
            self.comments_in(gap);
        }
        self.comments.sort_by_key(|c| c.span.start);
    }

    fn comments_in(&mut self, gap: Range<usize>) {
        let mut at = gap.start;
        while let Some(found) = self.text[at..gap.end].find('/') {
            let start = at + found;
            let rest = &self.text[start..gap.end];
            let length = match rest.as_bytes().get(1) {
                Some(b'/') => rest.find('\n').unwrap_or(rest.len()),
                Some(b'*') => block_comment(rest),
                _ => 1,
            };
            if length > 1 {
                self.comments.push(Comment {
                    span: start..start + length,
                    doc: false,
                });
            }
            at = start + length;
        }
    }

    /// The text of token `i`, or an empty string past the end.
    pub(crate) fn text(&self, i: usize) -> &str {
        self.tokens
            .get(i)
            .map_or("", |t| &self.text[t.span.clone()])
    }

    /// Whether the tokens from `i` on read like `pattern`.
    pub(crate) fn matches(&self, i: usize, pattern: &[&str]) -> bool {
        pattern
            .iter()
            .enumerate()
            .all(|(k, p)| self.text(i + k) == *p)
    }

    /// Whether token `i` opens a `which` group.
    pub(crate) fn opens(&self, i: usize, which: char) -> bool {
        self.tokens
            .get(i)
            .is_some_and(|t| t.kind == Kind::Open(which))
    }

    /// The line of a byte, counted from 1.
    pub(crate) fn line_at(&self, byte: usize) -> usize {
        self.lines.partition_point(|&start| start <= byte)
    }

    /// The line token `i` begins on.
    pub(crate) fn line(&self, i: usize) -> usize {
        self.tokens
            .get(i)
            .map_or(self.lines.len(), |t| self.line_at(t.span.start))
    }

    /// The lines on which the tokens of `range` stand, in order, each once: the lines of code.
    pub(crate) fn code_lines(&self, range: Range<usize>) -> Vec<usize> {
        let mut lines = Vec::new();
        for token in &self.tokens[range] {
            lines.extend(self.line_at(token.span.start)..=self.line_at(token.span.end - 1));
        }
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// The text of a comment.
    pub(crate) fn comment(&self, comment: &Comment) -> &str {
        &self.text[comment.span.clone()]
    }

    /// Whether a comment that starts with `// <tag>` stands on `line` or in the block of
    /// comments that ends on the line above it.
    pub(crate) fn has_comment(&self, line: usize, tag: &str) -> bool {
        let mut line = line;
        let found = |line| {
            self.comments_on(line).any(|c| {
                !c.doc
                    && self
                        .comment(c)
                        .trim_start_matches(['/', '*'])
                        .trim()
                        .starts_with(tag)
            })
        };
        if found(line) {
            return true;
        }
        while line > 1 && self.only_comment(line - 1) {
            line -= 1;
            if found(line) {
                return true;
            }
        }
        false
    }

    fn comments_on(&self, line: usize) -> impl Iterator<Item = &Comment> {
        self.comments
            .iter()
            .filter(move |c| self.line_at(c.span.start) == line)
    }

    fn only_comment(&self, line: usize) -> bool {
        let start = self.lines[line - 1];
        let text = self.text[start..].lines().next().unwrap_or("").trim_start();
        text.starts_with("//") && self.comments_on(line).any(|c| !c.doc)
    }
}

/// The length of the block comment that `text` begins with; block comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(pair) = text.as_bytes().get(at..at + 2) {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Source {
        Source::parse(text.to_owned()).unwrap()
    }

    #[test]
    fn comments_are_found_and_strings_are_not_comments() {
        let s = parse(
            "//! crate\n/// doc\nfn f() { // trailing\n let a = \"// no\"; /* b /* c */ */\n\
             g(4 / 2)\n}\n// end",
        );
        let found: Vec<_> = s.comments.iter().map(|c| (s.comment(c), c.doc)).collect();
        let expected = [
            ("//! crate", true),
            ("/// doc", true),
            ("// trailing", false),
            ("/* b /* c */ */", false),
            ("// end", false),
        ];
        assert_eq!(found, expected);
        assert_eq!(s.text(0), "fn");
        assert_eq!(s.line(0), 3);
    }

    #[test]
    fn mates_join_the_ends_of_groups() {
        let s = parse("a(b[c], {d})");
        let open = (0..s.tokens.len()).find(|&i| s.opens(i, '(')).unwrap();
        assert_eq!(s.tokens[open].mate, s.tokens.len() - 1);
        assert_eq!(s.tokens[s.tokens[open].mate].mate, open);
    }

    #[test]
    fn bytes_are_right_behind_wide_characters() {
        let s = parse("// é…\nlet é = 1;\nlet z = '…';");
        assert_eq!(s.text(1), "é");
        assert_eq!(s.line(5), 3);
        assert_eq!(s.comment(&s.comments[0]), "// é…");
    }

    #[test]
    fn lines_of_code_skip_comments_and_blanks_but_not_long_strings() {
        let s = parse("// a\nfn f() {\n\n    /// doc\n    let x = \"one\ntwo\";\n}\n");
        assert_eq!(s.code_lines(0..s.tokens.len()), [2, 5, 6, 7]);
    }

    #[test]
    fn a_comment_above_counts_only_if_it_touches() {
        let s = parse(
            "// SAFETY: yes\n// more\na;\n\n// SAFETY: far\n\nb;\n\
             /// SAFETY: doc\nc; // SAFETY: x\nd;",
        );
        assert!(s.has_comment(3, "SAFETY:"));
        assert!(!s.has_comment(7, "SAFETY:"));
        assert!(s.has_comment(9, "SAFETY:"));
        assert!(!s.has_comment(10, "SAFETY:"));
    }

    #[test]
    fn broken_source_is_an_error() {
        assert!(Source::parse("fn f( {".to_owned()).is_err());
    }
}
