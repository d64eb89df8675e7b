//! Printing results.

use std::fmt;
use std::io::{self, Write};

/// Prints to standard output. Whoever reads may stop reading (`| head`); that is no error.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    let _ = io::stdout().write_fmt(text);
}

/// `println!` without the panic when nobody reads.
macro_rules! say {
    ($($text:tt)*) => {
        crate::output::print(format_args!("{}\n", format_args!($($text)*)))
    };
}

pub(crate) use say;
