//! What keys and the mouse do.

use crate::cmd::target::SNAPSHOT;
use crate::render::top::list::Hit;
use crate::render::top::state::{Page, Prompt, PromptKind, State, Tab};
use crate::render::top::{areas, tab_places};
use ratatui_crossterm::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use threadglass::Pid;

/// What is to be done beside what has changed in the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    None,
    Quit,
    /// As Ctrl-Z does.
    Stop,
    /// The mouse is to be taken, or given back.
    Mouse,
    /// All is to be drawn anew.
    Redraw,
    /// Back to all processes.
    Back,
    Open(Pid),
    Save(String),
}

/// Lines that the wheel goes on.
const WHEEL: isize = 3;
/// No line that is typed is longer.
const LONGEST: usize = 400;

/// What `event` changes in the state, and what it asks for.
pub fn action(state: &mut State, event: &Event) -> Action {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => {
            state.message = None;
            // Esc and a key that come at once look like that key with Alt.
            if key.modifiers.contains(KeyModifiers::ALT) {
                let escaped = key_pressed(state, &KeyEvent::from(KeyCode::Esc));
                if escaped != Action::None {
                    return escaped;
                }
            }
            key_pressed(state, &KeyEvent { modifiers: key.modifiers - KeyModifiers::ALT, ..*key })
        }
        Event::Mouse(mouse) => mouse_used(state, mouse),
        _ => Action::None,
    }
}

fn key_pressed(state: &mut State, key: &KeyEvent) -> Action {
    // Enter that was typed before the terminal was ours comes as the end of a line.
    let is_line_end = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('j');
    let key = if is_line_end { &KeyEvent::from(KeyCode::Enter) } else { key };
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        match key.code {
            KeyCode::Char('c') => return Action::Quit,
            KeyCode::Char('z') => return Action::Stop,
            KeyCode::Char('l') => return Action::Redraw,
            _ => {}
        }
    }
    if state.page.take().is_some() {
        return Action::None;
    }
    match state.prompt.take() {
        Some(prompt) => typed(state, prompt, key),
        None => command(state, key),
    }
}

/// A key of a line that is typed.
fn typed(state: &mut State, mut prompt: Prompt, key: &KeyEvent) -> Action {
    match key.code {
        KeyCode::Esc => {
            if prompt.kind == PromptKind::Filter {
                state.list().1.filter.clear();
            }
            return Action::None;
        }
        KeyCode::Enter => return finished(prompt, state),
        KeyCode::Backspace => drop(prompt.text.pop()),
        KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => prompt.text.clear(),
        KeyCode::Char(letter) if prompt.text.len() < LONGEST && !key.modifiers.contains(KeyModifiers::CONTROL) => {
            prompt.text.push(letter);
        }
        _ => {}
    }
    if prompt.kind == PromptKind::Filter {
        // At once, so that it is seen what it leaves.
        state.list().1.filter.clone_from(&prompt.text);
    }
    state.prompt = Some(prompt);
    Action::None
}

fn finished(prompt: Prompt, state: &mut State) -> Action {
    match prompt.kind {
        PromptKind::Filter => Action::None,
        PromptKind::Save if prompt.text.is_empty() => Action::None,
        PromptKind::Save => Action::Save(prompt.text),
        PromptKind::Process => match prompt.text.trim().parse::<i32>() {
            Ok(pid) if pid > 0 => Action::Open(Pid(pid)),
            _ => {
                state.message = Some((format!("`{}` is not a process ID", prompt.text), true));
                Action::None
            }
        },
    }
}

fn command(state: &mut State, key: &KeyEvent) -> Action {
    let size = state.size;
    let page = isize::try_from(areas(size, state).list.height.saturating_sub(2).max(1)).unwrap_or(1);
    let in_process = state.process.is_some();
    match key.code {
        KeyCode::Char('q') => return Action::Quit,
        KeyCode::Char('?' | 'h') => state.page = Some(Page::Help),
        KeyCode::Char('/') => {
            let text = state.list().1.filter.clone();
            state.prompt = Some(Prompt { kind: PromptKind::Filter, text });
        }
        KeyCode::Char('m') => {
            state.mouse = !state.mouse;
            return Action::Mouse;
        }
        KeyCode::Char(' ' | 'f') => state.frozen = !state.frozen,
        KeyCode::Char('<' | '>') => {
            let by = if key.code == KeyCode::Char('>') { 1 } else { -1 };
            let (rows, list) = state.list();
            list.next_sort(&*rows, by);
        }
        KeyCode::Char('r') => {
            let list = state.list().1;
            list.reverse = !list.reverse;
        }
        KeyCode::Up | KeyCode::Char('k') => state.list().1.step(-1),
        KeyCode::Down | KeyCode::Char('j') => state.list().1.step(1),
        KeyCode::PageUp => state.list().1.step(-page),
        KeyCode::PageDown => state.list().1.step(page),
        KeyCode::Home => state.list().1.go(0),
        KeyCode::End => state.list().1.go(usize::MAX),
        KeyCode::Esc if !state.list().1.filter.is_empty() => state.list().1.filter.clear(),
        KeyCode::Esc | KeyCode::Backspace if in_process => return Action::Back,
        KeyCode::Char('x') => state.list().1.toggle(),
        KeyCode::Enter if in_process => state.list().1.toggle(),
        KeyCode::Enter => {
            let pid = state.list().1.selected.and_then(|key| i32::try_from(key).ok());
            return pid.map_or(Action::None, |pid| Action::Open(Pid(pid)));
        }
        KeyCode::Char('p') if !in_process => {
            state.prompt = Some(Prompt { kind: PromptKind::Process, text: String::new() });
        }
        _ if in_process => return process_command(state, key.code),
        _ => {}
    }
    Action::None
}

/// Keys that only the screen of a process has.
fn process_command(state: &mut State, code: KeyCode) -> Action {
    let Some(process) = &mut state.process else { return Action::None };
    let places = tab_places(process);
    let shown: Vec<Tab> = places.iter().map(|(tab, ..)| *tab).collect();
    let at = shown.iter().position(|tab| *tab == process.tab).unwrap_or(0);
    match code {
        KeyCode::Tab => process.tab = shown[(at + 1) % shown.len()],
        KeyCode::BackTab => process.tab = shown[(at + shown.len() - 1) % shown.len()],
        KeyCode::Char(digit @ '1'..='3') => {
            let wanted = Tab::ALL[usize::from(digit as u8 - b'1')];
            if shown.contains(&wanted) {
                process.tab = wanted;
            }
        }
        KeyCode::Char('t') => process.tab = Tab::Threads,
        KeyCode::Char('l') => process.tab = Tab::Locks,
        KeyCode::Char('v') => state.page = Some(Page::Why),
        KeyCode::Char('g') => state.page = Some(Page::Gaps),
        KeyCode::Char('w') => process.graph = !process.graph,
        KeyCode::Char('s') => {
            // What stands on the screen is one look, and not all that a snapshot has.
            let stands = state.frozen || process.stands();
            let text = format!("tglass-{}.{}", process.pid, if stands { "json" } else { SNAPSHOT });
            state.prompt = Some(Prompt { kind: PromptKind::Save, text });
        }
        _ => {}
    }
    Action::None
}

fn mouse_used(state: &mut State, mouse: &MouseEvent) -> Action {
    let areas = areas(state.size, state);
    match mouse.kind {
        MouseEventKind::ScrollUp => state.list().1.step(-WHEEL),
        MouseEventKind::ScrollDown => state.list().1.step(WHEEL),
        MouseEventKind::Down(MouseButton::Left) if state.page.is_some() => state.page = None,
        MouseEventKind::Down(MouseButton::Left) if mouse.row == areas.tabs.y => {
            if let Some(process) = &mut state.process {
                let places = tab_places(process);
                let hit = places.iter().rev().find(|(_, from, _)| mouse.column >= *from);
                if let Some((tab, from, text)) = hit
                    && usize::from(mouse.column - from) < text.len()
                {
                    process.tab = *tab;
                }
            }
        }
        MouseEventKind::Down(MouseButton::Left) if areas.list.contains((mouse.column, mouse.row).into()) => {
            let (rows, list) = state.list();
            match list.hit(&*rows, areas.list, mouse.column, mouse.row) {
                Some(Hit::Heading(column)) => list.sort_by(column),
                Some(Hit::Row(place)) => list.go(place),
                None => {}
            }
        }
        _ => {}
    }
    Action::None
}
