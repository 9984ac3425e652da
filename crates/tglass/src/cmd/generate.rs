//! `tglass generate`: man pages and completions from the one definition of the command line.

use super::complete;
use crate::cli::{Cli, Generate, GenerateArgs};
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::fs::File;
use std::process::ExitCode;

pub fn run(args: GenerateArgs) -> Result<ExitCode> {
    let mut tool = Cli::command();
    let mut out = Vec::new();
    match args.what {
        Generate::Agent => {
            let path = threadglass::act::place()?;
            out = format!("{}\n", path.to_str().context("the path of the agent is not UTF-8")?).into_bytes();
        }
        Generate::Completions { shell } => {
            let shells = clap_complete::env::Shells::builtins();
            let shell = shells.completer(&shell).context("no completions for this shell (bash, zsh, fish)")?;
            shell.write_registration(complete::VARIABLE, "tglass", "tglass", "tglass", &mut out)?;
        }
        Generate::ManPages { dir } => {
            tool.build();
            let write = |name: &str, man: clap_mangen::Man| -> Result<()> {
                let path = dir.join(format!("{name}.1"));
                let mut file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
                Ok(man.render(&mut file)?)
            };
            write("tglass", clap_mangen::Man::new(tool.clone()))?;
            for command in
                tool.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
            {
                let name = format!("tglass-{}", command.get_name());
                write(&name, clap_mangen::Man::new(command.clone()).title(name.clone()))?;
            }
        }
        Generate::Man { page } if page == "tglass" => clap_mangen::Man::new(tool).render(&mut out)?,
        Generate::Man { page } => {
            tool.build();
            let command =
                tool.find_subcommand(&page).with_context(|| format!("no command `{page}` (see tglass --help)"))?;
            clap_mangen::Man::new(command.clone()).title(format!("tglass-{page}")).render(&mut out)?;
        }
    }
    super::print(&String::from_utf8_lossy(&out))
}
