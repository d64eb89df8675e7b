//! Texts of users in lines that people and programs read.

use std::fmt::{self, Write as _};

/// How many characters of a text are printed.
const LIMIT: usize = 256;

/// Prints a name or a description that a user has given: on one line, without control characters,
/// and not without end. The dumps, reports and error texts of these crates use it.
///
/// ```
/// assert_eq!(inflight_sync::Printed("part 1\nqueue").to_string(), "part 1\\nqueue");
/// ```
#[doc(hidden)]
#[derive(Debug)]
pub struct Printed<'a>(pub &'a str);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        for c in chars.by_ref().take(LIMIT) {
            if c.is_control() {
                write!(f, "{}", c.escape_debug())?;
            } else {
                f.write_char(c)?;
            }
        }
        if chars.next().is_some() {
            f.write_str("...")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_text_has_one_line_no_control_characters_and_an_end() {
        let printed = |text: &str| Printed(text).to_string();
        assert_eq!(printed("a<b>::c \"ä\" \\ '"), "a<b>::c \"ä\" \\ '");
        assert_eq!(printed("a\nb\r\t\u{1b}[31m"), "a\\nb\\r\\t\\u{1b}[31m");
        assert_eq!(printed(&"ä".repeat(LIMIT)), "ä".repeat(LIMIT));
        let cut = "ä".repeat(LIMIT) + "...";
        assert_eq!(printed(&"ä".repeat(LIMIT + 1)), cut);
    }
}
