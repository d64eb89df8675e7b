//! Reading Rust source exactly: tokens with their places, comments, statements, functions and cfgs.
//!
//! Everything works on tokens, not on a syntax tree, so that the bodies of macros are seen too. A
//! rule that matches tokens cannot be fooled by comments, strings or doc examples.

mod cfg;
mod orderings;
mod source;
mod structure;
mod tree;

pub(crate) use cfg::{Known, Predicate};
pub(crate) use orderings::{Kind as SiteKind, sites};
pub(crate) use source::{Kind, Source};
pub(crate) use structure::{Shape, Structure};
pub(crate) use tree::module_cfgs;
