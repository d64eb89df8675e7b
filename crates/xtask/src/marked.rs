//! Parts of a page that a program writes: what stands between `<!-- KIND: NAME -->` and
//! `<!-- end -->`.

use anyhow::{Context as _, Result};

const END: &str = "<!-- end -->";

/// The page with each of its parts of that kind made anew.
pub(crate) fn filled(
    page: &str,
    kind: &str,
    part: &mut dyn FnMut(&str) -> Result<String>,
) -> Result<String> {
    // At the beginning of a line: a page may speak of it.
    let begin = format!("\n<!-- {kind}: ");
    let mut parts = page.split(&begin);
    let mut new = parts.next().unwrap_or_default().to_owned();
    for old in parts {
        let (name, rest) = old.split_once(" -->").context("a mark does not end")?;
        let (_, behind) = rest.split_once(END).context("a table does not end")?;
        new += &format!("{begin}{name} -->\n\n{}\n{END}{behind}", part(name)?);
    }
    Ok(new)
}

/// The line over a table's rows, and the one below it.
pub(crate) fn head(columns: &[&str]) -> String {
    row(columns) + &row(&vec!["---"; columns.len()])
}

/// A row of a table.
pub(crate) fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_the_marks_is_replaced() {
        let page = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n\
             <!-- generated: y --><!-- end -->\n\
             <!-- other: z -->\nold\n<!-- end -->\n";
        let mut asked = Vec::new();
        let new = filled(page, "generated", &mut |name| {
            asked.push(name.to_owned());
            Ok(format!("new {name}\n"))
        });
        let new = new.unwrap();
        assert_eq!(
            new,
            "a\n<!-- generated: x -->\n\nnew x\n\n<!-- end -->\nb\n\
             <!-- generated: y -->\n\nnew y\n\n<!-- end -->\n\
             <!-- other: z -->\nold\n<!-- end -->\n"
        );
        assert_eq!(asked, ["x", "y"]);
        let again = filled(&new, "generated", &mut |name| Ok(format!("new {name}\n"))).unwrap();
        assert_eq!(again, new);
        let none = &mut |_: &str| -> Result<String> { unreachable!() };
        assert!(filled("\n<!-- generated: x\nold", "generated", none).is_err());
        let any = &mut |_: &str| Ok(String::new());
        assert!(filled("\n<!-- generated: x -->\nold", "generated", any).is_err());
        let about = "write `<!-- generated: x -->`\n";
        assert_eq!(filled(about, "generated", none).unwrap(), about);
    }
}
