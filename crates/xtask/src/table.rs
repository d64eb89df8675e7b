//! Tables in plain text.

/// Rows under a heading; columns are as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of numbers stand to the right.
    right: Vec<usize>,
}

impl Table {
    /// An empty table; the columns in `right` are aligned to the right.
    pub(crate) fn new(heading: &[&str], right: &[usize]) -> Self {
        let heading = heading.iter().map(|h| (*h).to_owned()).collect();
        Self {
            rows: vec![heading],
            right: right.to_vec(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(c));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let width = widths[c];
                line += &if self.right.contains(&c) {
                    format!("{cell:>width$}  ")
                } else {
                    format!("{cell:<width$}  ")
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", "n", "what"], &[1]);
        table.row(vec!["a".into(), "1".into(), "x".into()]);
        table.row(vec!["longer".into(), "200".into(), String::new()]);
        assert_eq!(
            table.to_string(),
            "name      n  what\na         1  x\nlonger  200\n"
        );
    }
}
