//! `tglass top`: keeps the state of the screen up to date, and obeys keys.
//!
//! One thread draws. Others read keys, wait for signals and look at the process, and send what they have: none of them waits for
//! another, so the screen stays quick however long a look takes.

mod keys;
mod save;
mod screen;
mod updates;
mod watch;

use super::machine::{self, Among};
use super::target::{Opened, WhichTarget};
use crate::cli::{CoreFileArgs, TopArgs};
use crate::render::top::state::{LookState, ProcessState, State, Tab, Times};
use crate::{remedy, render};
use anyhow::{Result, bail};
use keys::Action;
use nix::sys::signal::Signal;
use ratatui_core::layout::Rect;
use screen::Screen;
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use threadglass::look::{self, TaskScope};
use threadglass::model::Snapshot;
use threadglass::snap::Part;
use threadglass::{Lwp, Pid};
use updates::{Seen, Update};
use watch::{Session, Wanted};

/// From one look at all processes to the next, at least; and the part of that time that a look may take.
const BETWEEN_MACHINES: Duration = Duration::from_secs(5);
const SHARE_OF_MACHINE: u32 = 25;

pub fn run(args: &TopArgs) -> Result<ExitCode> {
    check_terminal()?;
    // What cannot be looked at at all is said before the screen is taken.
    let shown = match args.which.word() {
        Some(word) => Shown::open(WhichTarget::of(Some(word))?, &args.files)?,
        None => Shown::Machine(Among::new(&args.among)?),
    };
    let (sender, receiver) = channel();
    updates::watch_signals(sender.clone())?;
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut top = Top {
        state: State::new(colour, true),
        screen: Screen::take(true)?,
        interval: args.interval,
        sender,
        session: None,
        sessions: 0,
        has_machine: false,
    };
    updates::watch_input(top.sender.clone())?;
    match shown {
        Shown::Process(pid) => top.watch(pid)?,
        Shown::Still(snapshot) => top.state.process = Some(ProcessState::still(*snapshot)),
        Shown::Machine(among) => top.watch_machine(among)?,
    }
    top.run(&receiver)
}

/// What is shown first.
enum Shown {
    Process(Pid),
    /// What a core file or a snapshot tells.
    Still(Box<Snapshot>),
    /// These processes.
    Machine(Among),
}

impl Shown {
    fn open(which: WhichTarget, files: &CoreFileArgs) -> Result<Self> {
        let mut snapshot = match (which.open(files)?, which) {
            (_, WhichTarget::Process(pid)) => return Ok(Self::Process(pid)),
            (Opened::Target(core), _) => {
                let _look = core.limits().begin();
                look::explain_whole(&*core, Duration::ZERO)?
            }
            (Opened::Snapshot(snap), _) => snap.answer(Part::Report)?,
        };
        remedy::of_gaps(&mut snapshot.gaps);
        Ok(Self::Still(Box::new(snapshot)))
    }
}

/// Whether the screen can be drawn at all.
fn check_terminal() -> Result<()> {
    let instead = "use `tglass threads PID` or `tglass why PID`, which print lines";
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("top needs a terminal for its input and output ({instead})");
    }
    match std::env::var("TERM").as_deref() {
        Ok("dumb" | "") | Err(_) => {
            bail!("top cannot draw on this terminal, whose TERM is `dumb` or not set ({instead})")
        }
        Ok(_) => Ok(()),
    }
}

struct Top {
    state: State,
    screen: Screen,
    interval: Duration,
    sender: Sender<Update>,
    session: Option<Session>,
    sessions: u64,
    /// Whether all processes are looked at, so that there is a way back to them.
    has_machine: bool,
}

impl Top {
    fn run(&mut self, updates: &Receiver<Update>) -> Result<ExitCode> {
        loop {
            self.draw()?;
            let mut update = updates.recv()?;
            loop {
                match update {
                    Update::Input(event) => {
                        if self.obey(event)? {
                            return Ok(ExitCode::SUCCESS);
                        }
                    }
                    // The terminal is gone, and with it whoever looked at it.
                    Update::InputEnded => return Ok(ExitCode::SUCCESS),
                    Update::Signal(signal) => self.signal(signal)?,
                    update => self.take(update),
                }
                // Several that came at once are drawn once.
                match updates.try_recv() {
                    Ok(next) => update = next,
                    Err(_) => break,
                }
            }
        }
    }

    fn draw(&mut self) -> Result<()> {
        let size = self.screen.terminal.size()?;
        self.state.size = Rect::new(0, 0, size.width, size.height);
        self.state.arrange();
        let state = &mut self.state;
        self.screen.terminal.draw(|frame| render::top::draw(state, frame.buffer_mut()))?;
        if let (Some(session), Some(process)) = (&self.session, &self.state.process) {
            session.want(wanted(process, &self.state));
        }
        Ok(())
    }

    /// Does what a signal does to any program, but with the terminal given back.
    fn signal(&mut self, signal: Signal) -> Result<()> {
        Ok(self.screen.obey(signal)?)
    }

    /// Takes what was seen into the state.
    fn take(&mut self, update: Update) {
        match update {
            Update::Process(number, seen) if self.session.as_ref().is_some_and(|it| it.number == number) => {
                self.take_seen(seen);
            }
            Update::Machine(machine) if !self.state.frozen => self.state.machine.seen = Some(*machine),
            Update::Saved(result) => {
                self.state.message = Some(match result {
                    Ok((path, threads)) => (format!("saved {threads} threads to {}", path.display()), false),
                    Err(why) => (why, true),
                });
            }
            // Of a process that is not watched any more; or of a screen that stands still.
            _ => {}
        }
    }

    fn take_seen(&mut self, seen: Seen) {
        let frozen = self.state.frozen;
        let Some(process) = &mut self.state.process else { return };
        match seen {
            Seen::Details(details) => {
                if let Some(look) = &mut process.look {
                    look.details.extend(details);
                }
            }
            Seen::Ended(why) => process.ended = Some(why),
            _ if frozen => {}
            Seen::Look(looked) => {
                let hangs = process.hangs().len();
                process.look = Some(LookState::new(looked.snapshot, looked.details, looked.took, looked.every));
                if process.hangs().len() != hangs
                    && let Some(session) = &self.session
                {
                    session.explain();
                }
            }
            Seen::Times(stats) => process.times = Times::new(*stats),
            Seen::Explained(snapshot) => process.explained = Some(*snapshot),
        }
    }

    /// Begins to watch a process.
    fn watch(&mut self, pid: Pid) -> Result<()> {
        self.sessions += 1;
        self.session = Some(Session::begin(self.sessions, pid, self.interval, &self.sender)?);
        self.state.process = Some(ProcessState::new(pid));
        self.state.frozen = false;
        Ok(())
    }

    /// Begins to look at all processes.
    fn watch_machine(&mut self, among: Among) -> Result<()> {
        self.has_machine = true;
        self.state.machine.nothing = among.is_narrow().then_some(machine::NO_MATCH);
        let sender = self.sender.clone();
        thread::Builder::new().name("tg-machine".to_owned()).spawn(move || {
            loop {
                let begun = Instant::now();
                let machine = machine::look_for_any(&among, true);
                let took = Duration::from_micros(machine.survey_us + machine.locks_us);
                if sender.send(Update::Machine(Box::new(machine))).is_err() {
                    return;
                }
                thread::sleep((took * SHARE_OF_MACHINE).max(BETWEEN_MACHINES).saturating_sub(begun.elapsed()));
            }
        })?;
        Ok(())
    }

    /// Does what a key or the mouse asks for. Whether that is the end.
    fn obey(&mut self, event: ratatui_crossterm::crossterm::event::Event) -> Result<bool> {
        // Keys that were typed ahead are meant for what those before them have made of the list.
        self.state.arrange();
        match keys::action(&mut self.state, &event) {
            Action::None => {}
            Action::Quit => return Ok(true),
            Action::Stop => self.signal(Signal::SIGTSTP)?,
            Action::Mouse => self.screen.set_mouse(self.state.mouse)?,
            Action::Redraw => self.screen.redraw()?,
            Action::Open(pid) => match threadglass::target::Live::open(pid) {
                Ok(_) => self.watch(pid)?,
                Err(error) => self.state.message = Some((remedy::of_error(&error.into()), true)),
            },
            Action::Back if self.has_machine => {
                self.session = None;
                self.state.process = None;
                self.state.frozen = false;
            }
            Action::Back => {
                self.state.message =
                    Some(("q quits (without a PID, `tglass top` shows all processes)".to_owned(), false));
            }
            Action::Save(path) => {
                let Some(process) = &self.state.process else { return Ok(false) };
                // What stands still on the screen is what is meant; else how it is now, with everything.
                let stands = self.state.frozen || process.stands();
                let shown = process.look.as_ref().filter(|_| stands);
                let shown: Option<Snapshot> = shown.map(|look| look.snapshot.clone());
                self.state.message = Some((format!("saving to {path} .."), false));
                save::begin(process.pid, shown, path.into(), self.sender.clone())?;
            }
        }
        Ok(false)
    }
}

/// What the screen shows of a process.
fn wanted(process: &ProcessState, state: &State) -> Wanted {
    let height = usize::from(render::top::areas(state.size, state).list.height);
    let list = process.place();
    let (mut visible, mut stacks) = (BTreeSet::new(), BTreeSet::new());
    let mut tasks_expanded = false;
    match process.tab {
        Tab::Threads => {
            for (_, key) in list.visible(height) {
                let lwp = Lwp(i32::try_from(key).unwrap_or(0));
                visible.insert(lwp);
                if list.expanded.contains(&key) {
                    stacks.insert(lwp);
                }
            }
            // Locks of the threads in the graph have names, too.
            if let (true, Some(look)) = (process.graph, &process.look) {
                visible.extend(list.row().into_iter().flat_map(|row| render::top::waited_for(look, row)));
            }
        }
        Tab::Locks => {
            let objects = process
                .look
                .iter()
                .flat_map(|look| list.visible(height).filter_map(|(row, _)| look.snapshot.objects.get(row)));
            for object in objects {
                visible.extend(object.waiters.first().map(|waiter| waiter.lwp));
                visible.extend(object.holders.first().and_then(|holder| holder.lwp));
            }
        }
        Tab::Tasks => tasks_expanded = list.visible(height).any(|(_, key)| list.expanded.contains(&key)),
    }
    Wanted {
        visible,
        stacks,
        locks: process.tab == Tab::Locks,
        tasks: match process.tab {
            Tab::Tasks if tasks_expanded => Some(TaskScope::Stacks),
            Tab::Tasks => Some(TaskScope::Waits),
            Tab::Threads | Tab::Locks => None,
        },
        pause: state.frozen || process.stands(),
    }
}
