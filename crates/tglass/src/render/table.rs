//! Columns that line up.
//!
//! Written by hand: with 10,000 rows the general table crates took longer than the look itself.

use super::{DIM, fit, paint};
use anstyle::Style;
use unicode_width::UnicodeWidthStr;

/// One cell: text and its style.
#[derive(Clone)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell in a style.
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// Columns with headings; numbers are set to the right.
#[derive(Clone)]
pub struct Table {
    headings: Vec<(&'static str, bool)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these headings; one that begins with `>` is of numbers.
    pub fn new(headings: &[&'static str]) -> Self {
        let headings = headings
            .iter()
            .map(|heading| heading.strip_prefix('>').map_or((*heading, false), |number| (number, true)))
            .collect();
        Self { headings, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The same in lines of at most `width` columns, if there is one.
    pub fn render_within(mut self, width: Option<usize>) -> String {
        let Some(width) = width else { return self.render() };
        let whole = self.render();
        if whole.lines().all(|line| fit::columns(line) <= width) {
            return whole;
        }
        for cell in self.rows.iter_mut().flatten() {
            cell.text = fit::without_template_arguments(&cell.text).into_owned();
        }
        self.render().lines().map(|line| fit::cut_to(line.to_owned(), Some(width)) + "\n").collect()
    }

    /// The table as lines, each ended by a newline.
    pub fn render(&self) -> String {
        let mut widths: Vec<_> = self.headings.iter().map(|(heading, _)| heading.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(width_of(&cell.text));
            }
        }
        let mut out = String::new();
        let heading: Vec<Cell> = self.headings.iter().map(|(text, _)| Cell::styled(*text, DIM)).collect();
        for row in std::iter::once(&heading).chain(&self.rows) {
            let line = out.len();
            for ((cell, width), (_, right)) in row.iter().zip(&widths).zip(&self.headings) {
                let pad = width - width_of(&cell.text);
                let plain = cell.style == Style::new();
                let padding = std::iter::repeat_n(' ', pad);
                out += "  ";
                if *right {
                    out.extend(padding.clone());
                }
                if plain {
                    out += &cell.text;
                } else {
                    out += &paint(cell.style, &cell.text);
                }
                if !*right {
                    out.extend(padding);
                }
            }
            out.truncate(line + out[line..].trim_end().len());
            out.push('\n');
        }
        out
    }
}

/// Columns that `text` takes. Nearly all of it is ASCII.
fn width_of(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_width_not_by_bytes() {
        let mut table = Table::new(&[">N", "NAME", "END"]);
        table.row(vec!["1".into(), "名".into(), "x".into()]);
        table.row(vec!["10".into(), "ab".into(), "y".into()]);
        let plain = anstream::adapter::strip_str(&table.render()).to_string();
        assert_eq!(plain, "   N  NAME  END\n   1  名    x\n  10  ab    y\n");
    }
    #[test]
    fn rows_keep_to_a_width_and_in_line() {
        let mut table = Table::new(&["LOCK", "END"]);
        table.row(vec!["Shard<std::string, int>::lock".into(), "first".into()]);
        table.row(vec!["short".into(), Cell::styled("much longer than that", DIM)]);
        let lines = |width| anstream::adapter::strip_str(&table.clone().render_within(width)).to_string();
        assert_eq!(lines(None), anstream::adapter::strip_str(&table.render()).to_string());
        let narrow = "  LOCK             END\n  Shard<..>::lock  first\n  short            much l..\n";
        assert_eq!(lines(Some(27)), narrow);
    }
}
