//! The screen of `tglass profil`.

use super::table::{Cell, Table};
use super::{BOLD, DIM, FAIR, gaps, paint, safe};
use std::collections::HashMap;
use threadglass::model::{
    FunctionShare, Profile, ProfileClock as Clock, ProfileEnd as End, ProfileKind as Kind, RangeShare, WaitShare,
};

/// Functions and waits that are listed; the rest is added up.
const LISTED: usize = 25;
/// Letters of a name that are shown.
const LONGEST: usize = 72;
/// Ranges that are listed.
const RANGES: usize = 8;
/// Stacks that are listed, and frames of each.
const STACKS: usize = 8;
const FRAMES: usize = 6;
/// Holders of one lock that are listed.
const HOLDERS: usize = 2;
/// A range with less of all ticks is not worth a line.
const LEAST: f64 = 0.5;

/// The whole screen.
pub fn text(profile: &Profile) -> String {
    let mut out = headline(profile);
    match profile.kind {
        Kind::Cpu => out += &cpu(profile),
        Kind::Wait => out += &waits(profile),
    }
    out + &gaps::text(&profile.gaps)
}

fn headline(profile: &Profile) -> String {
    let target = &profile.target;
    let name = paint(BOLD, &format!("{} (pid {})", safe(&target.name), target.pid));
    let seconds = profile.duration_ms as f64 / 1000.0;
    let (did, how) = match profile.kind {
        Kind::Cpu => {
            let whose = if profile.clock == Some(Clock::Cpus) { ", by a clock on each CPU" } else { "" };
            ("ran", format!("{} samples per second of CPU time{whose}", profile.rate))
        }
        Kind::Wait => ("waited", format!("{} looks", profile.looks.unwrap_or(0))),
    };
    let what = if profile.tasks_of.is_empty() { "thread" } else { "task" };
    let of = match profile.tasks_of.as_slice() {
        [] => String::new(),
        runtimes => format!(" of {}", runtimes.join(" and ")),
    };
    let threads = match profile.threads {
        1 => format!("1 {what}{of} {did}"),
        threads => format!("{threads} {what}s{of} {did}"),
    };
    let end = match profile.end {
        End::Time | End::Asked => "",
        End::Exited => ", until it exited",
        End::Execed => ", until it executed another program (run again to profile that)",
    };
    let samples = match profile.kind {
        Kind::Cpu => {
            let outside = match profile.outside {
                0 => String::new(),
                outside => format!(", {outside} of them outside the region"),
            };
            let trouble = [(profile.lost, "lost"), (profile.throttled, "throttled")].map(|(count, what)| match count {
                0 => format!("none {what}"),
                count => paint(FAIR, &format!("{count} {what}")),
            });
            format!("{} samples{outside}; {}{}", profile.samples, trouble.join(", "), kernel_share(profile))
        }
        Kind::Wait => format!("{} waits seen, without a stop", profile.samples),
    };
    format!("{name}  {threads} in {seconds:.1} s{end}\n{}; {samples}\n\n", paint(DIM, &how))
}

/// How much of the CPU time was the kernel's.
fn kernel_share(profile: &Profile) -> String {
    let (Some(all), Some(kernel)) = (profile.cpu_ms, profile.kernel_ms) else { return String::new() };
    if all == 0 && profile.samples == 0 {
        return String::new();
    }
    let share = kernel as f64 * 100.0 / all.max(1) as f64;
    let sampled = match profile.kernel {
        Some(samples) => format!("{samples} samples"),
        None => "not sampled".to_owned(),
    };
    format!("\n{share:.0} % of {:.2} s of CPU time in the kernel, {sampled}", all as f64 / 1000.0)
}

fn cpu(profile: &Profile) -> String {
    if profile.samples == 0 {
        // What is missing says that there was something to see.
        let nothing = match profile.gaps.is_empty() {
            true if profile.kernel.is_some() => "No thread ran. `--wait` shows where threads wait.\n",
            true if profile.kernel_ms > Some(0) => {
                "No thread ran in user mode. `--kernel` samples the kernel's work, `--wait` shows where threads wait.\n"
            }
            true => "No thread ran in user mode. `--wait` shows where threads wait.\n",
            false => "There are no samples.\n",
        };
        return nothing.to_owned() + &histogram(profile);
    }
    if profile.outside == profile.samples {
        return "No sample is in the region.\n".to_owned() + &histogram(profile);
    }
    let mut table = Table::new(&[">SHARE", ">SAMPLES", "FUNCTION", "MODULE"]);
    for share in profile.functions.iter().take(LISTED) {
        let samples = share.samples.to_string();
        table.row(vec![percent(share.percent), samples.into(), function(share), module(share.module.as_deref())]);
    }
    let mut out = table.render();
    if let Some(rest) = profile.functions.get(LISTED..).filter(|rest| !rest.is_empty()) {
        let samples: u64 = rest.iter().map(|share| share.samples).sum();
        out += &format!("  and {} more functions with {samples} samples\n", rest.len());
    }
    out + &ranges(profile) + &stacks(profile) + &histogram(profile)
}

/// The stacks seen most often, the innermost function first.
fn stacks(profile: &Profile) -> String {
    let mut sums: HashMap<Vec<String>, u64> = HashMap::new();
    for stack in &profile.stacks {
        let mut names: Vec<String> = Vec::new();
        for frame in &stack.frames {
            match &frame.function {
                Some(name) => names.push(short(name)),
                // Several frames without names are shown as one.
                None => {
                    let module = safe(frame.module.as_deref().unwrap_or("?"));
                    let module = format!("[{}]", module.trim_matches(['[', ']']));
                    if names.last() != Some(&module) {
                        names.push(module);
                    }
                }
            }
        }
        *sums.entry(names).or_default() += stack.samples;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    if sums.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[">SHARE", "STACKS"]);
    for (names, samples) in sums.into_iter().take(STACKS) {
        let shown = names[..names.len().min(FRAMES)].join(" < ");
        let more = if names.len() > FRAMES { " < .." } else { "" };
        let share = samples as f64 * 100.0 / profile.samples.max(1) as f64;
        table.row(vec![percent(share), format!("{shown}{more}").into()]);
    }
    format!("\n{}", table.render())
}

fn ranges(profile: &Profile) -> String {
    let hot: Vec<&RangeShare> = profile.ranges.iter().filter(|range| range.percent >= LEAST).take(RANGES).collect();
    if hot.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[">SHARE", "HOTTEST CODE", "AT"]);
    for range in hot {
        let name = match (&range.function, &range.module) {
            (Some(function), _) => short(function),
            (None, Some(module)) => short(module),
            (None, None) => "?".to_owned(),
        };
        let at = match (&range.file, range.line) {
            (Some(file), Some(line)) => format!("{}:{line}", safe(file.rsplit('/').next().unwrap_or(file))),
            _ => range.address.to_string(),
        };
        let piece = format!("{name}+{:#x}..+{:#x}", range.from, range.to);
        table.row(vec![percent(range.percent), piece.into(), Cell::styled(at, DIM)]);
    }
    format!("\n{}", table.render())
}

fn histogram(profile: &Profile) -> String {
    let Some(histogram) = &profile.histogram else { return String::new() };
    let counted: u64 = histogram.cells.iter().map(|cell| u64::from(*cell)).sum();
    let full = match histogram.full {
        true => paint(FAIR, "a cell reached 32767, so counting stopped"),
        false => "no cell is full".to_owned(),
    };
    format!(
        "\nhistogram: {} ({:#x} to {:#x}), {} cells at scale {:#x}, {counted} samples, {full}\n",
        safe(&histogram.what),
        histogram.start,
        histogram.end,
        histogram.cells.len(),
        histogram.scale
    )
}

fn waits(profile: &Profile) -> String {
    if profile.samples == 0 {
        return "No thread was seen to wait.\n".to_owned();
    }
    let mut table = Table::new(&[">SHARE", ">THREADS", "WAITS FOR", "HELD BY", "IN"]);
    for share in profile.waits.iter().take(LISTED) {
        let what = match share.kind {
            Some(kind) => format!("{} {}", kind.word(), safe(&share.name)),
            None => safe(&share.name),
        };
        let or_dash = |text: Option<&str>| text.map_or_else(|| Cell::styled("-", DIM), |text| safe(text).into());
        table.row(vec![
            percent(share.percent),
            format!("{:.1}", share.threads).into(),
            what.into(),
            holders(share),
            or_dash(share.function.as_deref()),
        ]);
    }
    let mut out = table.render();
    if let Some(rest) = profile.waits.get(LISTED..).filter(|rest| !rest.is_empty()) {
        out += &format!("  and {} more\n", rest.len());
    }
    out
}

/// One holder, or the most frequent ones with their shares.
fn holders(share: &WaitShare) -> Cell {
    let Some(first) = share.holders.first() else { return Cell::styled("-", DIM) };
    if share.holders.len() == 1 {
        return safe(&first.name).into();
    }
    let told = share.holders.iter().take(HOLDERS).map(|it| format!("{} {:.0} %", safe(&it.name), it.percent));
    let mut told: Vec<String> = told.collect();
    if let Some(rest) = share.holders.get(HOLDERS..).filter(|rest| !rest.is_empty()) {
        told.push(format!("{} more {:.0} %", rest.len(), rest.iter().map(|it| it.percent).sum::<f64>()));
    }
    told.join(", ").into()
}

fn percent(value: f64) -> Cell {
    format!("{value:.1} %").into()
}

fn function(share: &FunctionShare) -> Cell {
    match &share.name {
        Some(name) => short(name).into(),
        None => Cell::styled("(no symbol)", DIM),
    }
}

fn module(name: Option<&str>) -> Cell {
    Cell::styled(name.map_or_else(|| "-".to_owned(), safe), DIM)
}

/// A name that leaves room for others: files and JSON have it whole.
fn short(name: &str) -> String {
    match name.chars().count() {
        length if length > LONGEST => safe(&name.chars().take(LONGEST - 2).collect::<String>()) + "..",
        _ => safe(name),
    }
}
