//! The screen of `tglass top`. State is plain data; the views only draw it.

mod graph;
mod help;
pub mod list;
mod locks;
mod processes;
pub mod state;
mod tasks;
mod threads;

use super::why::{heading, headword};
use super::{fit, safe};
use list::put;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use state::{MachineState, Page, ProcessState, PromptKind, State, Tab};
use threadglass::model::Certainty;

/// How something looks. Without colours the same is told by weight, and by words beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Plain,
    Dim,
    Bold,
    Good,
    Fair,
    Bad,
    Selected,
    /// A hang at the top of the screen.
    Alarm,
    /// The line of tabs.
    Bar,
}

const BOLD_STYLE: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM_STYLE: Style = Style::new().add_modifier(Modifier::DIM);

impl Look {
    fn style(self, colour: bool) -> Style {
        let plain = Style::new();
        let painted = |colour_of, style: Style| if colour { style.fg(colour_of) } else { style };
        match self {
            Self::Plain => plain,
            Self::Dim => DIM_STYLE,
            Self::Bold => BOLD_STYLE,
            Self::Good => painted(Color::Green, plain),
            Self::Fair => painted(Color::Yellow, plain),
            Self::Bad => painted(Color::Red, BOLD_STYLE),
            Self::Selected => plain.add_modifier(Modifier::REVERSED),
            Self::Alarm => painted(Color::Red, BOLD_STYLE.add_modifier(Modifier::REVERSED)),
            Self::Bar => plain.add_modifier(Modifier::REVERSED),
        }
    }
}

impl From<anstyle::Style> for Look {
    fn from(style: anstyle::Style) -> Self {
        match style {
            it if it == super::GOOD => Self::Good,
            it if it == super::FAIR => Self::Fair,
            it if it == super::BAD => Self::Bad,
            it if it == super::DIM => Self::Dim,
            _ => Self::Plain,
        }
    }
}

/// Where the parts of the screen are.
#[derive(Clone, Copy, Debug)]
pub struct Areas {
    pub head: Rect,
    pub banner: Rect,
    pub tabs: Rect,
    pub list: Rect,
    pub graph: Rect,
    pub foot: Rect,
}

/// Hangs that are told at the top at one time.
const MOST_HANGS: usize = 3;
/// Lines for what is said of the selected row, at least and at most.
const GRAPH_LINES: (u16, u16) = (5, 14);
/// With fewer lines there is none.
const GRAPH_FROM: u16 = 16;

/// Where everything is on a screen of this size.
pub fn areas(size: Rect, state: &State) -> Areas {
    let (head, banner, graph) = match &state.process {
        None => (1, 0, 0),
        Some(process) => {
            let graph = process.graph && size.height >= GRAPH_FROM;
            let hangs = u16::try_from(process.hangs().len().min(MOST_HANGS)).unwrap_or(0);
            (2, hangs.max(1), if graph { (size.height / 3).clamp(GRAPH_LINES.0, GRAPH_LINES.1) } else { 0 })
        }
    };
    let mut y = size.y;
    let mut take = |height: u16| {
        let height = height.min(size.bottom().saturating_sub(y));
        let area = Rect::new(size.x, y, size.width, height);
        y += height;
        area
    };
    let (head, banner, tabs) = (take(head), take(banner), take(1));
    let list = take(size.height.saturating_sub(head.height + banner.height + tabs.height + graph + 1).max(1));
    Areas { head, banner, tabs, list, graph: take(graph), foot: take(1) }
}

/// Draws all of it.
pub fn draw(state: &mut State, buffer: &mut Buffer) {
    let size = buffer.area;
    let areas = areas(size, state);
    let colour = state.colour;
    match (state.page, &state.process) {
        (Some(Page::Why), Some(process)) => return help::why(size, buffer, process),
        (Some(Page::Gaps), Some(process)) => return help::gaps(size, buffer, &process.gaps()),
        (Some(_), process) => return help::keys(size, buffer, process.is_some()),
        (None, _) => {}
    }
    {
        let (rows, list) = state.list();
        list.draw(&*rows, areas.list, buffer, colour);
    }
    match &state.process {
        None => machine_head(&state.machine, areas, buffer, state.frozen),
        Some(process) => {
            process_head(process, areas, buffer, (colour, state.frozen));
            tabs(process, areas, buffer);
            let lines = graph::lines(process);
            for (line, y) in lines.iter().zip(areas.graph.y..areas.graph.bottom()) {
                put(buffer, (areas.graph.x, y), areas.graph.width, &line.0, line.1.style(colour));
            }
        }
    }
    foot(state, areas.foot, buffer);
}

/// The line of `area` in one style, from end to end.
fn bar(buffer: &mut Buffer, area: Rect, text: &str, look: Look, colour: bool) {
    put(buffer, (area.x, area.y), area.width, text, look.style(colour));
    buffer.set_style(Rect { height: 1, ..area }, look.style(colour));
}

fn machine_head(machine: &MachineState, areas: Areas, buffer: &mut Buffer, frozen: bool) {
    let frozen = if frozen { "  FROZEN" } else { "" };
    let text = match &machine.seen {
        None => "looking at all processes ..".to_owned(),
        Some(seen) if seen.processes == 0 && machine.nothing.is_some() => {
            machine.nothing.unwrap_or_default().to_owned()
        }
        Some(seen) => {
            let not_seen = match seen.not_seen {
                0 => String::new(),
                number => format!("; {number} processes may not be looked into"),
            };
            format!("{} processes, {} threads{not_seen}{frozen}", seen.processes, seen.threads)
        }
    };
    put(buffer, (areas.head.x, areas.head.y), areas.head.width, &text, BOLD_STYLE);
    let list = &machine.list;
    let filter = if list.filter.is_empty() { String::new() } else { format!("  filter: {}", safe(&list.filter)) };
    let text = format!(" Processes {}{filter}", list.number());
    bar(buffer, areas.tabs, &text, Look::Bar, false);
}

fn process_head(process: &ProcessState, areas: Areas, buffer: &mut Buffer, (colour, frozen): (bool, bool)) {
    let Areas { head, banner, .. } = areas;
    let name = match &process.look {
        Some(look) => super::target::name(&look.snapshot.target),
        None => format!("process {}", process.pid),
    };
    let name = anstream::adapter::strip_str(&name).to_string();
    let state = match (&process.ended, &process.look) {
        (Some(_), _) => "  ENDED".to_owned(),
        (None, None) => "  looking ..".to_owned(),
        (None, Some(_)) if process.still.is_some() => format!("  {}", process.still.as_deref().unwrap_or_default()),
        (None, Some(_)) if frozen => "  FROZEN (space goes on)".to_owned(),
        (None, Some(look)) => {
            format!("  every {:.1} s, {:.0} ms of CPU time", look.every.as_secs_f64(), look.took.as_secs_f64() * 1e3)
        }
    };
    put(buffer, (head.x, head.y), head.width, &format!("{name}{state}"), BOLD_STYLE);
    put(buffer, (head.x, head.y + 1), head.width, &second_line(process), Style::new());
    let hangs = process.hangs();
    if let Some(why) = &process.ended {
        return bar(buffer, banner, &format!(" {}", safe(why)), Look::Alarm, colour);
    }
    for (finding, y) in hangs.iter().take(MOST_HANGS).zip(banner.y..banner.bottom()) {
        let certainty = finding.certainty.word();
        let text = format!(" {} ({certainty})  {}", heading(finding.kind), safe(&finding.text));
        let look = if finding.certainty == Certainty::Possible { Look::Bar } else { Look::Alarm };
        bar(buffer, Rect::new(banner.x, y, banner.width, 1), &text, look, colour);
    }
    if !hangs.is_empty() {
        return;
    }
    let (text, look) = match process.verdict() {
        Some(verdict) => {
            let (word, style) = headword(verdict.kind);
            let certainty = match verdict.certainty {
                Certainty::Certain => String::new(),
                certainty => format!(" ({})", certainty.word()),
            };
            (format!(" {word}{certainty}  {}", safe(&verdict.text)), Look::from(style))
        }
        _ => (String::new(), Look::Plain),
    };
    put(buffer, (banner.x, banner.y), banner.width, &text, look.style(colour));
}

/// What the threads do: how many are in which state, and how many ran on average.
fn second_line(process: &ProcessState) -> String {
    let Some(look) = &process.look else { return String::new() };
    let threads = &look.snapshot.threads;
    let states = threadglass::model::ThreadState::ALL.into_iter().filter_map(|state| {
        let number = threads.iter().filter(|thread| thread.state == state).count();
        (number > 0).then(|| format!("{number} {}", state.word().replace('_', " ")))
    });
    let states: Vec<String> = states.collect();
    let averages = process.times.stats.as_ref().map_or_else(String::new, |stats| {
        let all = &stats.process;
        format!("  CPUs {:.2}  runnable {:.2}  idle {:.2}", all.a_concurrency, all.nrunnable, all.nidle)
    });
    format!("{} threads: {}{averages}", threads.len(), states.join(", "))
}

/// Where each tab is in its line: from, to, and what it says.
pub fn tab_places(process: &ProcessState) -> Vec<(Tab, u16, String)> {
    let mut x = 0;
    let shown = |tab: &Tab| *tab != Tab::Tasks || process.number(Tab::Tasks).unwrap_or(0) > 0;
    let mut places = Vec::new();
    for tab in Tab::ALL.into_iter().filter(shown) {
        let number = process.number(tab).map(|number| format!(" {number}")).unwrap_or_default();
        let (open, close) = if tab == process.tab { ('[', ']') } else { (' ', ' ') };
        let text = format!("{open}{} {}{number}{close} ", tab as usize + 1, tab.title());
        let width = u16::try_from(text.len()).unwrap_or(u16::MAX);
        places.push((tab, x, text));
        x += width;
    }
    places
}

fn tabs(process: &ProcessState, areas: Areas, buffer: &mut Buffer) {
    let mut text: String = tab_places(process).into_iter().map(|(.., text)| text).collect();
    let list = process.place();
    if !list.filter.is_empty() {
        let all = process.number(process.tab).unwrap_or(0);
        text += &format!(" {} of {all} pass: {} ", list.number(), safe(&list.filter));
    }
    match process.gaps().len() {
        0 => {}
        number => text += &format!(" {number} not seen (g)"),
    }
    bar(buffer, areas.tabs, &text, Look::Bar, false);
}

fn foot(state: &State, area: Rect, buffer: &mut Buffer) {
    let (text, look) = match (&state.prompt, &state.message) {
        (Some(prompt), _) => {
            let what = match prompt.kind {
                PromptKind::Filter => "filter",
                PromptKind::Save => "save the snapshot to",
                PromptKind::Process => "PID",
            };
            // The end of a long line is what is typed now.
            let line = format!("{what}: {}_", safe(&prompt.text));
            let over = fit::columns(&line).saturating_sub(area.width.into());
            (line.chars().skip(over).collect(), Look::Bold)
        }
        (None, Some((message, is_error))) => (safe(message), if *is_error { Look::Bad } else { Look::Good }),
        (None, None) if state.process.is_some() => {
            ("q quit  ? help  / filter  <> sort  Enter stack  Tab lists  space freeze  s save".to_owned(), Look::Dim)
        }
        (None, None) => {
            ("q quit  ? help  / filter  <> sort  Enter look at it  p PID  space freeze".to_owned(), Look::Dim)
        }
    };
    put(buffer, (area.x, area.y), area.width, &text, look.style(state.colour));
}

/// The threads that the graph of a thread's waits leads to.
pub fn waited_for(look: &state::LookState, row: usize) -> std::collections::BTreeSet<threadglass::Lwp> {
    let mut met = std::collections::BTreeSet::new();
    let first = look.snapshot.threads.get(row).and_then(|thread| thread.lwp);
    let mut open: Vec<threadglass::Lwp> = first.into_iter().collect();
    while let Some(lwp) = open.pop() {
        if met.len() >= 32 || !met.insert(lwp) {
            continue;
        }
        let waits = look.thread(lwp).and_then(|thread| thread.waits_for.as_ref());
        open.extend(waits.into_iter().flat_map(|waits| waits.held_by.iter().copied()));
    }
    met
}
