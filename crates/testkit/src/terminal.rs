//! A terminal of its own that a shell runs in, by tmux: keys go in, a screen comes out.

use crate::holds_within;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A terminal, until this is dropped.
pub struct Terminal {
    dir: tempfile::TempDir,
}

/// What the shell says when it waits for a command.
pub const PROMPT: &str = "ready$";

impl Terminal {
    /// A terminal of this size. What runs in it has the environment of a person, with `env` besides.
    pub fn new(columns: u16, lines: u16, env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let terminal = Self { dir };
        let size = [format!("-x{columns}"), format!("-y{lines}")];
        let mut command = terminal.command(&["-f", "/dev/null", "new-session", "-d", &size[0], &size[1]]);
        command.env_remove("NO_COLOR").env_remove("TMUX").env("LC_ALL", "C.UTF-8");
        command.arg("env").arg(format!("PS1={PROMPT} "));
        command.args(env.iter().map(|(name, value)| format!("{name}={value}")));
        command.args(["sh", "-i"]);
        let output = command.output().expect("tmux runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        terminal.shows("the shell is ready", |screen| screen.contains(PROMPT));
        terminal
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("tmux")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.socket()).args(args).stdin(Stdio::null());
        command
    }

    fn ask(&self, args: &[&str]) -> String {
        let output = self.command(args).output().expect("tmux runs");
        assert!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types a command for the shell, with what begins the line.
    pub fn start(&self, line: &str) {
        self.text(line);
        self.keys(&["Enter"]);
    }

    /// Has the shell clear the screen.
    pub fn clear(&self) {
        self.start("printf '\\033[2J\\033[H'");
        self.shows("an empty screen", |screen| screen.trim() == PROMPT);
    }

    /// Presses keys, by the names that tmux has for them.
    pub fn keys(&self, keys: &[&str]) {
        self.ask(&[&["send-keys"], keys].concat());
    }

    /// Types a text, letter by letter. A terminal sends what the mouse does as such a text, too.
    pub fn text(&self, text: &str) {
        self.ask(&["send-keys", "-l", text]);
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, lines: u16) {
        self.ask(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]);
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.ask(&["capture-pane", "-p"])
    }

    /// The same with the sequences that make colours.
    pub fn coloured(&self) -> String {
        self.ask(&["capture-pane", "-p", "-e"])
    }

    /// What tmux knows of the terminal: `#{alternate_on}`.
    pub fn state(&self, format: &str) -> String {
        self.ask(&["display-message", "-p", format]).trim().to_owned()
    }

    /// Waits until the screen is as wanted; the screen.
    pub fn shows(&self, what: &str, mut is_wanted: impl FnMut(&str) -> bool) -> String {
        let mut last = String::new();
        let holds = holds_within(Duration::from_secs(60), || {
            last = self.screen();
            is_wanted(&last)
        });
        assert!(holds, "{what}: not seen in a minute. The screen:\n{last}");
        last
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}
