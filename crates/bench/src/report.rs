//! Results as tables for people and as data.

use crate::machine::Machine;
use crate::stats::Runs;
use serde::Serialize;
use std::fmt::Write;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    pub machine: Machine,
    pub sections: Vec<Section>,
}

/// One benchmark.
#[derive(Debug, Serialize)]
pub struct Section {
    pub name: &'static str,
    pub title: String,
    pub groups: Vec<Group>,
    pub budgets: Vec<Budget>,
    pub notes: Vec<String>,
}

/// Commands that were measured against each other on the same target.
#[derive(Debug, Serialize)]
pub struct Group {
    pub title: String,
    /// Headings of the two ratio columns.
    pub ratios: [&'static str; 2],
    pub rows: Vec<Row>,
}

/// One command.
#[derive(Debug, Serialize)]
pub struct Row {
    pub command: &'static str,
    pub rounds: usize,
    pub median_ms: Option<f64>,
    pub min_ms: Option<f64>,
    pub cpu_ms: Option<f64>,
    pub rss_mib: Option<f64>,
    pub ratios: [Option<f64>; 2],
    /// Why there are no figures.
    pub missing: Option<String>,
}

impl Row {
    /// A row of `runs`; `missing` says why there are none.
    pub fn new(command: &'static str, runs: &Runs, ratios: [Option<f64>; 2], missing: Option<String>) -> Self {
        Self {
            command,
            rounds: runs.0.len(),
            median_ms: runs.median_ms(),
            min_ms: runs.min_ms(),
            cpu_ms: runs.cpu_ms(),
            rss_mib: runs.rss_mib(),
            ratios,
            missing,
        }
    }
}

/// A figure that was promised, beside the one that was measured.
#[derive(Debug, Serialize)]
pub struct Budget {
    pub what: String,
    pub budget: String,
    pub measured: Option<String>,
    pub within: Option<bool>,
}

impl Budget {
    /// A figure that must not exceed `most`.
    pub fn at_most(what: &str, most: f64, unit: &str, measured: Option<f64>) -> Self {
        Self::new(what, format!("<= {most}{unit}"), unit, measured, |value| value <= most)
    }

    /// A figure that must reach `least`.
    pub fn at_least(what: &str, least: f64, unit: &str, measured: Option<f64>) -> Self {
        Self::new(what, format!(">= {least}{unit}"), unit, measured, |value| value >= least)
    }

    fn new(what: &str, budget: String, unit: &str, measured: Option<f64>, is_within: impl Fn(f64) -> bool) -> Self {
        Self {
            what: what.to_owned(),
            budget,
            measured: measured.map(|value| format!("{}{unit}", short(value))),
            within: measured.map(is_within),
        }
    }
}

impl Report {
    pub fn new(machine: Machine) -> Self {
        Self { machine, sections: Vec::new() }
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        let Machine { cpu, cpus, kernel, libc, gdb, load } = &self.machine;
        let mut out = format!("{cpus} x {cpu}, Linux {kernel}, load {load} at the start");
        for version in [libc, gdb].into_iter().flatten() {
            out += &format!(", {version}");
        }
        out.push('\n');
        for section in &self.sections {
            section.write(&mut out);
        }
        out
    }
}

impl Section {
    fn write(&self, out: &mut String) {
        *out += &format!("\n{}\n", self.title);
        for group in &self.groups {
            group.write(out);
        }
        if !self.budgets.is_empty() {
            let mut lines = vec![["budget", "promised", "measured", ""].map(str::to_owned)];
            lines.extend(self.budgets.iter().map(|budget| {
                let verdict = match budget.within {
                    Some(true) => "ok",
                    Some(false) => "over",
                    None => "not measured",
                };
                let measured = budget.measured.clone().unwrap_or_else(|| "-".to_owned());
                [budget.what.clone(), budget.budget.clone(), measured, verdict.to_owned()]
            }));
            out.push('\n');
            write_table(out, &lines, 1);
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        for note in &self.notes {
            *out += &format!("  {note}\n");
        }
    }
}

impl Group {
    fn write(&self, out: &mut String) {
        let [first, second] = self.ratios;
        let headings = [self.title.as_str(), "rounds", "median ms", "min ms", "cpu ms", "rss MiB", first, second];
        let mut lines = vec![headings.map(str::to_owned)];
        let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
        for row in &self.rows {
            lines.push([
                match &row.missing {
                    Some(why) => format!("{} ({why})", row.command),
                    None => row.command.to_owned(),
                },
                row.rounds.to_string(),
                figure(row.median_ms),
                figure(row.min_ms),
                figure(row.cpu_ms),
                figure(row.rss_mib),
                figure(row.ratios[0]),
                figure(row.ratios[1]),
            ]);
        }
        out.push('\n');
        write_table(out, &lines, 1);
    }
}

/// Lines in columns; from column `numbers` on they are set to the right.
fn write_table<const N: usize>(out: &mut String, lines: &[[String; N]], numbers: usize) {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for line in lines {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = if column < numbers { write!(out, "  {cell:width$}") } else { write!(out, "  {cell:>width$}") };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
}

/// Three digits that matter.
fn short(value: f64) -> String {
    match value {
        value if value == 0.0 || value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_say_ok_over_or_not_measured() {
        let within = |measured| Budget::at_most("x", 1.3, "x", measured).within;
        assert_eq!((within(Some(1.3)), within(Some(1.31)), within(None)), (Some(true), Some(false), None));
        let gdb = Budget::at_least("y", 25.0, "x", Some(24.0));
        assert_eq!((gdb.within, gdb.measured.as_deref()), (Some(false), Some("24.0x")));
    }

    #[test]
    fn columns_line_up() {
        let mut out = String::new();
        write_table(&mut out, &[["a".to_owned(), "100".to_owned()], ["bcd".to_owned(), "1".to_owned()]], 1);
        assert_eq!(out, "  a    100\n  bcd    1\n");
    }
}
