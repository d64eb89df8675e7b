//! Statements, functions, cfg regions and module declarations of a token list.
//!
//! Not a parser: it knows just enough of the grammar to say where the statement, match arm or field
//! around a token begins, which function it is in and which cfgs guard it.

use std::ops::Range;

use super::cfg::{Known, Predicate};
use super::source::{Kind, Source};

/// What a segment is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A statement or item.
    Block,
    /// A match arm or a rule of a macro.
    Arms,
    /// A field of a struct expression or declaration.
    Fields,
}

/// A statement, item, match arm or field, with its attributes.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) tokens: Range<usize>,
    pub(crate) shape: Shape,
    /// The segment around it.
    pub(crate) parent: Option<usize>,
    /// The first token behind attributes and visibility.
    pub(crate) head: usize,
}

/// A function, or a `macro_rules!` definition, which stands for the functions it makes.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    /// `Type::name`, `name`, or `name!` for a macro.
    pub(crate) name: String,
    /// From the keyword to the closing brace.
    pub(crate) tokens: Range<usize>,
    /// Has an attribute that ends in `test`.
    pub(crate) test: bool,
}

/// Tokens that exist only under a cfg.
#[derive(Clone, Debug)]
pub(crate) struct Guarded {
    pub(crate) tokens: Range<usize>,
    pub(crate) predicate: Predicate,
}

/// `mod name;`: the module's text is in another file.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    /// The inline modules around it, outermost first, and its own name.
    pub(crate) path: Vec<String>,
    /// `#[path = "…"]`.
    pub(crate) file: Option<String>,
    /// The `mod` keyword.
    pub(crate) token: usize,
}

/// The structure of one file.
#[derive(Debug, Default)]
pub(crate) struct Structure {
    pub(crate) segments: Vec<Segment>,
    pub(crate) functions: Vec<Function>,
    pub(crate) guarded: Vec<Guarded>,
    pub(crate) outlines: Vec<Outline>,
    /// For each token the innermost segment and function.
    segment_of: Vec<Option<usize>>,
    function_of: Vec<Option<usize>>,
}

impl Structure {
    /// Finds the structure of `source`.
    pub(crate) fn of(source: &Source) -> Self {
        let count = source.tokens.len();
        let mut walk = Walk {
            source,
            out: Self::default(),
        };
        walk.out.segment_of = vec![None; count];
        walk.out.function_of = vec![None; count];
        walk.block(0..count, &Context::default());
        walk.out
    }

    /// The innermost statement, arm or field around token `i`.
    pub(crate) fn segment(&self, i: usize) -> Option<&Segment> {
        self.segment_of[i].map(|s| &self.segments[s])
    }

    /// The innermost function or macro around token `i`.
    pub(crate) fn function(&self, i: usize) -> Option<&Function> {
        self.function_of[i].map(|f| &self.functions[f])
    }

    /// Whether a cfg around token `i` is certainly off when `known` holds.
    pub(crate) fn is_off(&self, i: usize, known: Known<'_>) -> bool {
        let mut around = self.guarded.iter().filter(|g| g.tokens.contains(&i));
        around.any(|g| g.predicate.holds(known) == Some(false))
    }

    /// Whether token `i` is test code: guarded by `cfg(test)` or inside a `#[test]` function.
    pub(crate) fn is_test(&self, i: usize) -> bool {
        self.is_off(i, &[("test", false)])
            || self
                .functions
                .iter()
                .any(|f| f.test && f.tokens.contains(&i))
    }
}

/// Where the walk stands.
#[derive(Clone, Debug, Default)]
struct Context {
    function: Option<usize>,
    segment: Option<usize>,
    /// The type of the `impl` or the name of the trait around.
    owner: Option<String>,
    modules: Vec<String>,
}

/// What the attributes of a segment say.
#[derive(Default)]
struct Attributes {
    predicates: Vec<Predicate>,
    path: Option<String>,
    test: bool,
}

struct Walk<'s> {
    source: &'s Source,
    out: Structure,
}

impl Walk<'_> {
    /// Walks the tokens between two braces, or those of the file.
    fn block(&mut self, tokens: Range<usize>, context: &Context) {
        let shape = self.shape(&tokens);
        let mut at = tokens.start;
        while at < tokens.end {
            let start = at;
            let mut attributes = Attributes::default();
            while self.source.text(at) == "#" {
                let inner = self.source.text(at + 1) == "!";
                let open = at + 1 + usize::from(inner);
                if !self.source.opens(open, '[') {
                    break;
                }
                let mut own = Attributes::default();
                self.attribute(open, if inner { &mut own } else { &mut attributes });
                for predicate in own.predicates {
                    self.out.guarded.push(Guarded {
                        tokens: tokens.clone(),
                        predicate,
                    });
                }
                at = self.source.tokens[open].mate + 1;
            }
            let mut head = at;
            if self.source.text(head) == "pub" {
                head += 1;
                if self.source.opens(head, '(') {
                    head = self.source.tokens[head].mate + 1;
                }
            }
            let attributed = at > start;
            at = self
                .segment_end(head, tokens.end, shape, attributed)
                .max(head.min(tokens.end));
            if at > start {
                self.segment(start, head, at, shape, attributes, context);
            }
            at = at.max(start + 1);
        }
    }

    /// Reads the attribute whose bracket opens at `open`.
    fn attribute(&self, open: usize, into: &mut Attributes) {
        let source = self.source;
        let close = source.tokens[open].mate;
        if source.text(open + 1) == "cfg" && source.opens(open + 2, '(') {
            let end = source.tokens[open + 2].mate;
            into.predicates
                .push(Predicate::parse(source, open + 3, end));
        } else if source.matches(open + 1, &["path", "="]) {
            into.path = Some(source.text(open + 3).trim_matches('"').to_owned());
        } else if source.text(close - 1) == "test" {
            into.test = true;
        }
    }

    fn shape(&self, tokens: &Range<usize>) -> Shape {
        let source = self.source;
        let mut at = tokens.start;
        while source.text(at) == "#" && source.opens(at + 1, '[') {
            at = source.tokens[at + 1].mate + 1;
        }
        if source.text(at) == "pub" {
            at += 1 + usize::from(source.opens(at + 1, '('));
            at = if source.text(at) == "(" {
                source.tokens[at].mate + 1
            } else {
                at
            };
        }
        let field = source.tokens.get(at).is_some_and(|t| t.kind == Kind::Ident)
            && source.text(at + 1) == ":"
            && source.text(at + 2) != ":";
        let (mut arms, mut ends) = (false, false);
        let mut i = tokens.start;
        while i < tokens.end {
            arms |= source.matches(i, &["=", ">"]);
            ends |= source.text(i) == ";";
            i = source.tokens[i].mate.max(i) + 1;
        }
        match (arms, field && !ends) {
            (true, _) => Shape::Arms,
            (false, true) => Shape::Fields,
            (false, false) => Shape::Block,
        }
    }

    /// Where the segment whose head is at `head` ends: one past its last token.
    fn segment_end(&self, head: usize, end: usize, shape: Shape, attributed: bool) -> usize {
        let source = self.source;
        let rule = if shape == Shape::Block {
            self.ending(head)
        } else {
            Ending::Semicolon
        };
        let comma = shape != Shape::Block || (attributed && rule == Ending::Semicolon);
        let comma = comma && !matches!(source.text(head), "let" | "use" | "const" | "static");
        let mut arrow = shape != Shape::Arms;
        let mut at = head;
        while at < end {
            let text = source.text(at);
            if text == ";" || (comma && text == ",") {
                return at + 1;
            }
            let after = source.tokens[at].mate.max(at) + 1;
            if shape == Shape::Arms && source.matches(at, &["=", ">"]) {
                arrow = true;
                at += 2;
                if source.opens(at, '{') {
                    let after = source.tokens[at].mate + 1;
                    if !self.continues(after) {
                        return (after + usize::from(source.text(after) == ",")).min(end);
                    }
                }
                continue;
            }
            if source.opens(at, '{') && arrow {
                let ends = match rule {
                    Ending::Item => true,
                    Ending::Braces => !self.continues(after) && !source.opens(after, '{'),
                    Ending::Semicolon => {
                        shape == Shape::Block && at > head && source.text(at - 1) == "!"
                    }
                };
                if ends {
                    return after.min(end);
                }
            }
            at = after;
        }
        end
    }

    fn ending(&self, head: usize) -> Ending {
        let source = self.source;
        match source.text(head) {
            "let" | "static" | "use" | "type" | "return" | "break" => Ending::Semicolon,
            "const" if matches!(source.text(head + 1), "fn" | "unsafe" | "extern" | "async") => {
                Ending::Item
            }
            "const" if !source.opens(head + 1, '{') => Ending::Semicolon,
            "unsafe" | "const" if source.opens(head + 1, '{') => Ending::Braces,
            "fn" | "impl" | "mod" | "trait" | "struct" | "enum" | "unsafe" | "extern" | "async"
            | "macro_rules" => Ending::Item,
            "union"
                if source
                    .tokens
                    .get(head + 1)
                    .is_some_and(|t| t.kind == Kind::Ident) =>
            {
                Ending::Item
            }
            "if" | "match" | "while" | "for" | "loop" | "{" | "'" => Ending::Braces,
            _ => Ending::Semicolon,
        }
    }

    /// Whether what follows a closing brace belongs to the same statement.
    fn continues(&self, i: usize) -> bool {
        matches!(self.source.text(i), "else" | "." | "?")
            || ["&&", "||", "=="]
                .iter()
                .any(|op| self.source.matches(i, &[&op[..1], &op[1..]]))
    }

    fn segment(
        &mut self,
        start: usize,
        head: usize,
        end: usize,
        shape: Shape,
        attributes: Attributes,
        context: &Context,
    ) {
        let number = self.out.segments.len();
        let tokens = start..end;
        self.out.segment_of[tokens.clone()].fill(Some(number));
        let parent = context.segment;
        self.out.segments.push(Segment {
            tokens: tokens.clone(),
            shape,
            parent,
            head,
        });
        for predicate in &attributes.predicates {
            let predicate = predicate.clone();
            self.out.guarded.push(Guarded {
                tokens: tokens.clone(),
                predicate,
            });
        }
        let mut context = context.clone();
        context.segment = Some(number);
        let inside = self.item(head, end, &attributes, &mut context);
        self.groups(head..end, &context, inside.as_ref());
    }

    /// Recognises functions, impls, traits, modules and macros. Returns the context that holds in
    /// the item's body, if the segment is such an item.
    fn item(
        &mut self,
        head: usize,
        end: usize,
        attributes: &Attributes,
        context: &mut Context,
    ) -> Option<Context> {
        let source = self.source;
        let body = (head..end).find(|&i| source.opens(i, '{')).unwrap_or(end);
        let mut inside = context.clone();
        for i in head..body {
            let name = source.text(i + 1);
            match source.text(i) {
                "fn" if source.tokens[i + 1].kind == Kind::Ident || name == "$" => {
                    let name = if name == "$" {
                        format!("${}", source.text(i + 2))
                    } else {
                        name.into()
                    };
                    let name = match &context.owner {
                        Some(owner) => format!("{owner}::{name}"),
                        None => name,
                    };
                    self.enter(name, i..end, attributes.test, &mut inside);
                }
                "macro_rules" if i == head => {
                    let name = format!("{}!", source.text(i + 2));
                    self.enter(name, i..end, false, &mut inside);
                }
                "impl" => inside.owner = Some(self.implementor(i + 1, body)),
                "trait" => inside.owner = Some(name.to_owned()),
                "mod" => {
                    inside.modules.push(name.to_owned());
                    if body == end {
                        let (path, file) = (inside.modules.clone(), attributes.path.clone());
                        self.out.outlines.push(Outline {
                            path,
                            file,
                            token: i,
                        });
                    }
                }
                // Item keywords stand only at the head, behind these.
                "unsafe" | "const" | "async" | "extern" | "default" => continue,
                _ if source.tokens[i].kind == Kind::Literal => continue,
                _ => return None,
            }
            return Some(inside);
        }
        None
    }

    fn enter(&mut self, name: String, tokens: Range<usize>, test: bool, inside: &mut Context) {
        let number = self.out.functions.len();
        self.out.function_of[tokens.clone()].fill(Some(number));
        self.out.functions.push(Function { name, tokens, test });
        inside.function = Some(number);
        inside.owner = None;
    }

    /// The name of the type that the `impl` header in `from..body` is for.
    fn implementor(&self, from: usize, body: usize) -> String {
        let source = self.source;
        let (mut depth, mut name) = (0_usize, "?");
        let mut at = from;
        while at < body {
            let text = source.text(at);
            match text {
                "<" => depth += 1,
                ">" if source.text(at - 1) != "-" => depth = depth.saturating_sub(1),
                "for" if depth == 0 && source.text(at + 1) != "<" => name = "?",
                "where" if depth == 0 => break,
                _ if depth == 0 && source.tokens[at].kind == Kind::Ident => name = text,
                _ => {}
            }
            at += 1;
        }
        name.to_owned()
    }

    /// Walks the groups among `tokens`; the last braces at the top are an item's body.
    fn groups(&mut self, tokens: Range<usize>, context: &Context, body: Option<&Context>) {
        let mut at = tokens.start;
        while at < tokens.end {
            let mate = self.source.tokens[at].mate;
            match self.source.tokens[at].kind {
                Kind::Open('{') => self.block(at + 1..mate, body.unwrap_or(context)),
                Kind::Open(_) => self.groups(at + 1..mate, context, None),
                _ => {}
            }
            at = mate.max(at) + 1;
        }
    }
}

/// What ends a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// A semicolon only.
    Semicolon,
    /// The first braces, or a semicolon.
    Item,
    /// Braces after which nothing continues the expression.
    Braces,
}

#[cfg(test)]
#[path = "structure_tests.rs"]
mod tests;
