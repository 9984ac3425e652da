//! `tglass help`: that of a command, and pages about what stands in the way of a first look.

use crate::cli::{Cli, HelpArgs};
use anyhow::{Result, bail};
use clap::CommandFactory;
use clap_complete::CompletionCandidate;
use std::process::ExitCode;

/// What is told besides the commands.
const SUBJECTS: [(&str, &str); 3] = [
    ("permissions", include_str!("../help/permissions.txt")),
    ("containers", include_str!("../help/containers.txt")),
    ("cores", include_str!("../help/cores.txt")),
];

pub fn run(args: &HelpArgs) -> Result<ExitCode> {
    let mut tool = Cli::command();
    // What a command shows of the whole is part of it only then.
    tool.build();
    let Some(about) = args.about.as_deref() else { return super::print(&help_of(&mut tool)) };
    // The singular is as good.
    let is_it = |subject: &str| subject == about || subject.strip_suffix('s') == Some(about);
    if let Some((_, text)) = SUBJECTS.iter().find(|(subject, _)| is_it(subject)) {
        return super::print(text);
    }
    match tool.find_subcommand_mut(about) {
        Some(command) => {
            let text = help_of(command);
            super::print(&text)
        }
        None => {
            let subjects = SUBJECTS.map(|(subject, _)| subject).join(", ");
            bail!("there is no help about `{about}` (`tglass --help` lists the commands; the subjects are {subjects})")
        }
    }
}

/// All that help can be about, for the completion of a shell.
pub fn about() -> Vec<CompletionCandidate> {
    let subjects = SUBJECTS.iter().map(|(subject, text)| (*subject, text.lines().next().map(ToOwned::to_owned)));
    let tool = Cli::command();
    let commands = tool.get_subcommands().filter(|command| !command.is_hide_set());
    let commands = commands.map(|command| (command.get_name(), command.get_about().map(ToString::to_string)));
    let candidate = |(name, help): (&str, Option<String>)| CompletionCandidate::new(name).help(help.map(Into::into));
    commands.chain(subjects).map(candidate).collect()
}

fn help_of(command: &mut clap::Command) -> String {
    command.render_long_help().ansi().to_string() + "\n"
}
