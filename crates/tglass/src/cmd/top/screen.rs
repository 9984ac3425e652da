//! The terminal while a screen is on it, and how it is given back: in the end, on a panic, and while we are stopped.

use nix::sys::signal::{SigSet, Signal, raise};
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{Result, Stdout, Write, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is ours now, so that it has to be given back.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// The terminal, until this is dropped.
pub struct Screen {
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
    mouse: bool,
}

impl Screen {
    /// Takes the terminal. A panic of any thread gives it back before it is told.
    pub fn take(mouse: bool) -> Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        occupy(mouse)?;
        Ok(Self { terminal: Terminal::new(CrosstermBackend::new(stdout()))?, mouse })
    }

    /// Whether the mouse is ours, too. The terminal's own selection of text needs it not to be.
    pub fn set_mouse(&mut self, mouse: bool) -> Result<()> {
        self.mouse = mouse;
        match mouse {
            true => execute!(stdout(), EnableMouseCapture),
            false => execute!(stdout(), DisableMouseCapture),
        }
    }

    /// Does what `signal` does to a program that knows nothing of it, with the terminal as it was. Where that is a stop, takes
    /// the terminal again afterwards.
    pub fn obey(&mut self, signal: Signal) -> Result<()> {
        give_back();
        // It is blocked in all threads: here it has the effect that it has by itself.
        let only: SigSet = [signal].into_iter().collect();
        let _ = raise(signal);
        only.thread_unblock()?;
        only.thread_block()?;
        occupy(self.mouse)?;
        self.redraw()
    }

    /// Has all be drawn anew. The terminal is asked nothing for it: who reads keys would read the answer.
    pub fn redraw(&mut self) -> Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn occupy(mouse: bool) -> Result<()> {
    IS_OURS.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide)?;
    if mouse {
        execute!(stdout(), EnableMouseCapture)?;
    }
    Ok(())
}

/// Once for each time that it was taken. Where the terminal is gone, nothing is left to be done.
fn give_back() {
    if IS_OURS.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = stdout().flush();
    }
}
