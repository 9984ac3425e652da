//! A list with columns: which rows are shown in which order, and drawing those that are on the screen.

use super::{BOLD_STYLE, DIM_STYLE, Look, fit};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// A column.
pub struct Column {
    pub title: &'static str,
    /// Columns of the terminal that it takes; the last one takes all that is left.
    pub width: u16,
    /// Whether it is of numbers.
    pub right: bool,
    /// It is shown only where the terminal has so many columns.
    pub from: u16,
}

impl Column {
    pub const fn text(title: &'static str, width: u16) -> Self {
        Self { title, width, right: false, from: 0 }
    }

    pub const fn number(title: &'static str, width: u16) -> Self {
        Self { title, width, right: true, from: 0 }
    }

    pub const fn from(self, from: u16) -> Self {
        Self { from, ..self }
    }
}

/// A text in a style. Texts are safe to be shown.
pub type Cell = (String, Look);

/// What a list shows.
pub trait Rows {
    fn columns(&self) -> &'static [Column];
    fn len(&self) -> usize;
    /// By what a row is known in the next look.
    fn key(&self, row: usize) -> u64;
    fn cell(&self, row: usize, column: usize) -> Cell;
    fn compare(&self, column: usize, a: usize, b: usize) -> Ordering;
    /// The order where no column was chosen.
    fn usual(&self, a: usize, b: usize) -> Ordering;
    /// What a filter looks at.
    fn text(&self, row: usize) -> String;
    /// Lines below the row where it is expanded.
    fn more(&self, row: usize) -> Vec<Cell>;
    /// What is said where there is nothing.
    fn nothing(&self) -> &'static str;
}

/// Where the user is in a list.
#[derive(Default)]
pub struct List {
    /// The row that is selected, by its key.
    pub selected: Option<u64>,
    /// Whether the user has selected it. Else it is the first one, whichever that is.
    is_chosen: bool,
    pub sort: Option<usize>,
    pub reverse: bool,
    pub filter: String,
    pub expanded: BTreeSet<u64>,
    /// Rows in their order, and the lines that they take.
    order: Vec<(usize, u64)>,
    /// Where the selected row is in that order.
    at: usize,
    /// The first row on the screen.
    first: usize,
}

/// What is at a line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    Heading(usize),
    Row(usize),
}

impl List {
    /// Puts the rows in order. The selected one stays selected, and on the screen of `height` lines.
    pub fn arrange(&mut self, rows: &dyn Rows, height: usize) {
        let wanted = self.filter.to_lowercase();
        let is_wanted = |row: &usize| wanted.is_empty() || rows.text(*row).to_lowercase().contains(&wanted);
        let mut order: Vec<usize> = (0..rows.len()).filter(is_wanted).collect();
        order.sort_by(|a, b| {
            let chosen = self.sort.map_or(Ordering::Equal, |column| rows.compare(column, *a, *b));
            let order = chosen.then_with(|| rows.usual(*a, *b));
            if self.reverse { order.reverse() } else { order }
        });
        self.order = order.into_iter().map(|row| (row, rows.key(row))).collect();
        let found = self
            .selected
            .filter(|_| self.is_chosen)
            .and_then(|key| self.order.iter().position(|(_, known)| *known == key));
        let near = if self.is_chosen { self.at.min(self.order.len().saturating_sub(1)) } else { 0 };
        self.at = found.unwrap_or(near);
        self.selected = self.order.get(self.at).map(|(_, key)| *key);
        self.keep_in_sight(rows, height);
    }

    fn keep_in_sight(&mut self, rows: &dyn Rows, height: usize) {
        self.first = self.first.min(self.at);
        // Expanded rows take more lines than one.
        let lines = |place: usize| {
            let (row, key) = self.order[place];
            if self.expanded.contains(&key) { 1 + rows.more(row).len() } else { 1 }
        };
        let body = height.saturating_sub(1).max(1);
        let mut room = body;
        let mut first = self.at;
        let own = if self.order.is_empty() { 0 } else { lines(self.at).min(body) };
        room = room.saturating_sub(own);
        while first > self.first && room > 0 {
            let above = lines(first - 1);
            if above > room {
                break;
            }
            room -= above;
            first -= 1;
        }
        self.first = self.first.max(first);
        // No empty lines below the last row while there are rows above the first one.
        let mut below = 0;
        let mut place = self.first;
        while place < self.order.len() && below < body {
            below += lines(place);
            place += 1;
        }
        while self.first > 0 && below + lines(self.first - 1) <= body {
            self.first -= 1;
            below += lines(self.first);
        }
    }

    /// Goes up or down; the rows are to be arranged afterwards.
    pub fn step(&mut self, by: isize) {
        self.go(self.at.saturating_add_signed(by));
    }

    pub fn go(&mut self, to: usize) {
        self.is_chosen = true;
        self.at = to.min(self.order.len().saturating_sub(1));
        self.selected = self.order.get(self.at).map(|(_, key)| *key);
    }

    /// The selected row.
    pub fn row(&self) -> Option<usize> {
        self.order.get(self.at).map(|(row, _)| *row)
    }

    /// Rows that pass the filter.
    pub fn number(&self) -> usize {
        self.order.len()
    }

    /// Opens the selected row, or closes it.
    pub fn toggle(&mut self) {
        self.is_chosen = true;
        if let Some(key) = self.selected
            && !self.expanded.remove(&key)
        {
            self.expanded.insert(key);
        }
    }

    /// Sorts by the next column to the right or left.
    pub fn next_sort(&mut self, rows: &dyn Rows, by: isize) {
        let columns = rows.columns().len();
        let now = self.sort.map_or(0, |column| column + 1);
        let next = (now as isize + by).rem_euclid(columns as isize + 1) as usize;
        (self.sort, self.reverse) = (next.checked_sub(1), false);
    }

    /// Sorts by a column; the other way round if it was sorted by that.
    pub fn sort_by(&mut self, column: usize) {
        self.reverse = self.sort == Some(column) && !self.reverse;
        self.sort = Some(column);
    }

    /// The rows on the screen, by their keys and numbers.
    pub fn visible(&self, height: usize) -> impl Iterator<Item = (usize, u64)> {
        self.order.iter().skip(self.first).take(height).copied()
    }

    /// What is at a place of the screen.
    pub fn hit(&self, rows: &dyn Rows, area: Rect, x: u16, y: u16) -> Option<Hit> {
        if y == area.y {
            let mut places = places(rows.columns(), area);
            return places.find(|(_, from, width)| (*from..from + width + 1).contains(&x)).map(|it| Hit::Heading(it.0));
        }
        let mut line = area.y + 1;
        for place in self.first..self.order.len() {
            let (row, key) = self.order[place];
            let lines = if self.expanded.contains(&key) { 1 + rows.more(row).len() } else { 1 };
            let end = line.saturating_add(u16::try_from(lines).unwrap_or(u16::MAX));
            if (line..end).contains(&y) {
                return Some(Hit::Row(place));
            }
            line = end;
            if line >= area.bottom() {
                break;
            }
        }
        None
    }

    /// Draws the rows that fit.
    pub fn draw(&self, rows: &dyn Rows, area: Rect, buffer: &mut Buffer, colour: bool) {
        if area.height == 0 {
            return;
        }
        let columns = rows.columns();
        for (column, x, width) in places(columns, area) {
            let mark = match (self.sort == Some(column), self.reverse) {
                (true, false) => "*",
                (true, true) => "^",
                (false, _) => "",
            };
            let title = format!("{mark}{}", columns[column].title);
            put(buffer, (x, area.y), width, &aligned(&title, width, columns[column].right), BOLD_STYLE);
        }
        let mut y = area.y + 1;
        if self.order.is_empty() && y < area.bottom() {
            let text = if self.filter.is_empty() || rows.len() == 0 {
                rows.nothing()
            } else {
                "nothing passes the filter (Esc clears it)"
            };
            put(buffer, (area.x + 1, y), area.width.saturating_sub(1), text, DIM_STYLE);
        }
        for (place, (row, key)) in self.order.iter().enumerate().skip(self.first) {
            if y >= area.bottom() {
                break;
            }
            for (column, x, width) in places(columns, area) {
                let (text, look) = rows.cell(*row, column);
                put(buffer, (x, y), width, &aligned(&text, width, columns[column].right), look.style(colour));
            }
            if place == self.at {
                buffer.set_style(Rect::new(area.x, y, area.width, 1), Look::Selected.style(colour));
            }
            y += 1;
            if self.expanded.contains(key) {
                for (text, look) in rows.more(*row) {
                    if y >= area.bottom() {
                        break;
                    }
                    put(buffer, (area.x + 4, y), area.width.saturating_sub(4), &text, look.style(colour));
                    y += 1;
                }
            }
        }
    }
}

/// The columns that are shown: number, left end, width.
fn places(columns: &'static [Column], area: Rect) -> impl Iterator<Item = (usize, u16, u16)> {
    let mut x = area.x;
    let last = columns.len() - 1;
    let shown = columns.iter().enumerate().filter(move |(_, column)| column.from <= area.width);
    shown.map_while(move |(number, column)| {
        let width = if number == last { area.right().saturating_sub(x) } else { column.width };
        let place = (number, x, width.min(area.right().saturating_sub(x)));
        x = x.saturating_add(width + 1);
        (place.2 > 0).then_some(place)
    })
}

fn aligned(text: &str, width: u16, right: bool) -> String {
    let cut = fit::cut(text, width.into());
    match right {
        true => " ".repeat(usize::from(width).saturating_sub(fit::columns(&cut))) + &cut,
        false => cut,
    }
}

/// Writes a line that is cut where it does not fit.
pub fn put(buffer: &mut Buffer, (x, y): (u16, u16), width: u16, text: &str, style: Style) {
    if width > 0 && buffer.area.contains((x, y).into()) {
        buffer.set_stringn(x, y, fit::cut(text, width.into()), width.into(), style);
    }
}
