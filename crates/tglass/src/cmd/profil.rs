//! `tglass profil`

use super::output::Output;
use super::target;
use crate::cli::{ProfilArgs, TargetWord};
use crate::{remedy, render};
use anyhow::{Context, Result, bail};
use perf::histogram::Layout;
use std::io::{IsTerminal, Write};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use threadglass::Interrupt;
use threadglass::measure::profile;
use threadglass::measure::profile::{DEFAULT_LOOKS, DEFAULT_RATE, Launched, Options, Progress, Region, Source};
use threadglass::model::{Gap, Profile};

/// How long a process is watched when nothing else is said.
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
/// How often a terminal is told how far we are.
const TELL: Duration = Duration::from_millis(200);

pub fn run(args: &ProfilArgs) -> Result<ExitCode> {
    if !args.command.is_empty() {
        return run_command(args, Files::open(args)?);
    }
    let pid = target::process(args.process.clone().or(args.pid.map(TargetWord::Pid)), "profil")?;
    let files = Files::open(args)?;
    let interrupt = Interrupt::watch().context("cannot watch for signals")?;
    let options = options(args, Some(args.duration.unwrap_or(DEFAULT_DURATION)));
    let mut meter = Meter::new(options.duration, args.wait);
    let mut wait = |time: Duration, progress: &Progress| {
        meter.tell(progress);
        interrupt.wait(time).is_some()
    };
    let profile = if args.wait {
        profile::record_waits(pid, &options, &mut wait)
    } else {
        profile::record(Source::Process(pid), &options, &mut wait)
    };
    meter.end();
    files.write(args, profile?, false)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a command to its end. Its exit status is ours.
fn run_command(args: &ProfilArgs, files: Files) -> Result<ExitCode> {
    let [program, rest @ ..] = args.command.as_slice() else { bail!("no command was given") };
    let mut command = Command::new(program);
    command.args(rest);
    let options = options(args, args.duration);
    let mut launched = Launched::start(command, &options)?;
    // Only now: the command is not to inherit it.
    let interrupt = Interrupt::watch().context("cannot watch for signals")?;
    let pid = launched.child.id();
    let mut wait = |time: Duration, _: &Progress| {
        if let Some(asked) = interrupt.wait(time) {
            Launched::pass_on(pid, asked);
        }
        false
    };
    let profile = profile::record(Source::Command(&mut launched), &options, &mut wait);
    let status = loop {
        match launched.child.try_wait().context("cannot wait for the command")? {
            Some(status) => break status,
            None => wait(Duration::from_millis(20), &Progress { elapsed: Duration::ZERO, samples: 0 }),
        };
    };
    // The command has done its work: what we could not do is said, and is not its failure.
    if let Err(error) = profile.map_err(anyhow::Error::from).and_then(|profile| files.write(args, profile, true)) {
        super::print_error(&error);
    }
    Ok(super::exit_code(status))
}

fn options(args: &ProfilArgs, duration: Option<Duration>) -> Options {
    let region = match (&args.function, &args.module, args.offset) {
        (Some(name), module, _) => Some(Region::Function { name: name.clone(), module: module.clone() }),
        (None, Some(module), _) => Some(Region::Module(module.clone())),
        (None, None, Some(offset)) => Some(Region::From(offset)),
        (None, None, None) => None,
    };
    let rate = args.rate.unwrap_or(if args.wait { DEFAULT_LOOKS } else { DEFAULT_RATE });
    Options {
        stacks: args.stacks || args.folded.is_some() || args.svg.is_some() || args.pprof.is_some(),
        children: args.children,
        kernel: args.kernel,
        region,
        scale: args.scale,
        histogram: args.histogram.is_some() || args.gmon.is_some(),
        ..Options::new(rate, duration)
    }
}

/// The files that are asked for.
struct Files {
    histogram: Option<Output>,
    gmon: Option<Output>,
    folded: Option<Output>,
    svg: Option<Output>,
    pprof: Option<Output>,
    text: Option<Output>,
}

impl Files {
    fn open(args: &ProfilArgs) -> Result<Self> {
        Ok(Self {
            histogram: Output::open_wanted(args.histogram.as_ref())?,
            gmon: Output::open_wanted(args.gmon.as_ref())?,
            folded: Output::open_wanted(args.folded.as_ref())?,
            svg: Output::open_wanted(args.svg.as_ref())?,
            pprof: Output::open_wanted(args.pprof.as_ref())?,
            text: Output::open_wanted(args.output.as_ref())?,
        })
    }

    /// Writes them, and the text where it belongs: to standard error where standard output is a command's.
    fn write(self, args: &ProfilArgs, mut profile: Profile, is_command: bool) -> Result<()> {
        if profile.histogram.is_none() {
            let wanted = [&self.histogram, &self.gmon].into_iter().flatten();
            let why = "it was not written, because there is no code to write a histogram of";
            profile.gaps.extend(wanted.map(|file| Gap::whole(file.name(), why)));
        }
        remedy::of_gaps(&mut profile.gaps);
        let profile = &profile;
        if let Some(file) = self.folded {
            file.write(render::flame::folded(profile).as_bytes())?;
        }
        if let Some(file) = self.svg {
            file.write(render::flame::svg(profile).as_bytes())?;
        }
        if let Some(file) = self.pprof {
            file.write(&render::pprof::encode(profile)?)?;
        }
        if let Some(histogram) = &profile.histogram {
            if let Some(file) = self.histogram {
                let bytes: Vec<u8> = histogram.cells.iter().flat_map(|cell| cell.to_le_bytes()).collect();
                file.write(&bytes)?;
            }
            if let Some(file) = self.gmon {
                let mut bytes = Vec::new();
                let cells = histogram.cells.len() as u64;
                let layout = Layout { offset: histogram.start, scale: histogram.scale, cells };
                perf::gmon::write(&mut bytes, &layout, &histogram.counts, profile.rate, histogram.bias)
                    .context("cannot make a file for gprof of this profile")?;
                file.write(&bytes)?;
            }
        }
        match (self.text, args.json) {
            (Some(file), true) => file.write(&json(profile)?)?,
            (Some(file), false) => {
                file.write(anstream::adapter::strip_str(&render::profil::text(profile)).to_string().as_bytes())?;
            }
            (None, true) if is_command => {
                std::io::stderr().write_all(&json(profile)?)?;
            }
            (None, true) => {
                super::print_json(profile)?;
            }
            (None, false) if is_command => write!(anstream::stderr(), "{}", render::profil::text(profile))?,
            (None, false) => {
                super::print(&render::profil::text(profile))?;
            }
        }
        Ok(())
    }
}

fn json(profile: &Profile) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    render::json::pretty(&mut text, profile)?;
    text.push(b'\n');
    Ok(text)
}

/// Tells a terminal how far we are, and nobody else.
struct Meter {
    is_terminal: bool,
    total: Option<Duration>,
    unit: &'static str,
    told: Option<Instant>,
}

impl Meter {
    fn new(total: Option<Duration>, waits: bool) -> Self {
        let unit = if waits { "waits" } else { "samples" };
        Self { is_terminal: std::io::stderr().is_terminal(), total, unit, told: None }
    }

    fn tell(&mut self, progress: &Progress) {
        if !self.is_terminal || self.told.is_some_and(|told| told.elapsed() < TELL) {
            return;
        }
        self.told = Some(Instant::now());
        let of = self.total.map_or_else(String::new, |total| format!(" of {:.1}", total.as_secs_f64()));
        let mut out = std::io::stderr();
        let _ = write!(
            out,
            "\r\x1b[K{:.1}{of} s, {} {} (Ctrl-C ends the recording)",
            progress.elapsed.as_secs_f64(),
            progress.samples,
            self.unit
        );
        let _ = out.flush();
    }

    fn end(&self) {
        if self.told.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
