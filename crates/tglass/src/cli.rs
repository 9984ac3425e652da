//! The command line: one definition for help, man pages and completions.

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;
use threadglass::RemoteAddr;
use threadglass::model::filter::ThreadFilter;
use threadglass::model::{SignalSet, SyncKind, ThreadState};

/// See inside a running multithreaded process, or its core file: its threads, what they wait for, their
/// data.
///
/// Looking never stops, signals or changes the process. Exit status: 0 looked, 1 threads hang for ever
/// (`why`), 2 could not look.
#[derive(Debug, Parser)]
#[command(name = "tglass", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "First time here? Try `tglass demo`. Something not permitted? Ask `tglass doctor PID`.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say why a process hangs: the deadlock, or the longest chain of waits and its root
    ///
    /// Exit status: 1 when threads hang for ever, for certain; 0 otherwise; 2 could not look.
    Why(TargetArgs),
    /// Show locks and other objects that threads wait for or hold, with holders and waiters
    Locks(LocksArgs),
    /// Show which locks threads waited for, how long, and who made them wait
    ///
    /// Of a process, for a time or until Ctrl-C; or of a command that is started here, until it ends. A process that was
    /// not started by `tglass run` gets the agent put into it: one of its threads is stopped for a moment (the time
    /// is printed), and in the end all is put back but the agent's code, which stays mapped; see docs/track.md. Only POSIX and C11 objects are counted: other locks, such as those of Rust's standard library, do
    /// not pass through the C library.
    Contend(ContendArgs),
    /// Take the agent's hands off a process, whoever put it there
    ///
    /// All slots that were patched are restored. That happens by itself when the command that wanted the agent ends, in
    /// whatever way; this is for when one still runs that nobody can find.
    Detach(DetachArgs),
    /// Run a program with the agent in it that counts what it does with its locks
    ///
    /// `tglass locks PID` then shows the numbers. The program takes the place of this command: input, output, signals
    /// and exit status are its own. Every acquisition is counted and every wait is timed; how long a lock is held is
    /// timed one time in 64. Programs that it starts are tracked too. Only POSIX and C11 objects are: other locks, such
    /// as those of Rust's standard library, do not pass through the C library.
    Run(RunArgs),
    /// Show the threads of a process or core: state, what each waits in, where it started
    Threads(ThreadsArgs),
    /// Show thread-specific data: keys, destructors, values of each thread
    Tsd(TargetArgs),
    /// Show how many threads run, want to run and sleep on average, and what each does with its time
    ///
    /// In the manner of `prstat -mL`: CPU is the time on a CPU, RUNQ that waiting for one, LCK that waiting for a
    /// lock (mutex, rwlock, semaphore, once), SLP all other sleep, each in per cent of the interval. CPU and
    /// RUNQ are the kernel's own counts; LCK is inferred from samples of where the thread sleeps.
    Stats(StatsArgs),
    /// Show where a process, or a command, spends its CPU time: functions, ranges of code, stacks
    ///
    /// Nothing is put into the process, and nothing in it is stopped: the kernel's clock ticks for its threads,
    /// those born later too. With --wait: where its threads wait, for which lock, and who holds it. See
    /// docs/profil.md.
    ///
    /// Exit status: that of CMD, if one was given; otherwise 0 recorded, 2 could not record.
    Profil(ProfilArgs),
    /// Hold one thread of a process suspended while this command runs
    ///
    /// The other threads go on. The thread resumes when this command ends, in whatever way it ends.
    /// This acts on the process: a thread that is suspended while it holds a lock stops the others
    /// that want it.
    Suspend(SuspendArgs),
    /// Change the state of a lock by force, and wake its waiters: a dry run unless --yes is given
    ///
    /// VALUE: of a mutex 0 unlocks it, 1 locks it; of a semaphore it is the count; of a rwlock 0 unlocks it, N
    /// makes it read-locked by N, -1 write-locks it. This acts on the process, whose data may be damaged by it:
    /// without --yes it only shows what would be written, who would wake and what may break. A journal is kept,
    /// with which --undo writes the old bytes back as long as nobody has used the new ones. See docs/set.md.
    ///
    /// Exit status: 0 done or shown, 2 refused.
    Set(SetArgs),
    /// Tell what can and cannot be seen from here, and the exact fix
    Doctor(DoctorArgs),
    /// Start a small program of our own that deadlocks, and explain it
    Demo(DemoArgs),
    /// Print a man page (`man tglass`, `man threads` ..) or completions for a shell
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// The program that `demo` looks at
    #[command(hide = true)]
    DemoChild,
}

#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Process id, or path of a core file (`./123` for one whose name is a number)
    #[arg(value_name = "PID|CORE", value_parser = OsStringValueParser::new().try_map(which_target))]
    pub target: WhichTarget,
    /// Of a core: the program, if it is not where it was
    #[arg(long, value_name = "FILE")]
    pub exe: Option<PathBuf>,
    /// Of a core: directory below which the libraries are, in place of /
    #[arg(long, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
    /// Print JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichTarget {
    /// A process.
    Process(i32),
    /// A core file.
    Core(PathBuf),
}

#[derive(Debug, Args)]
pub struct ThreadsArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show the stack of every thread that stands still; equal stacks once
    #[arg(long)]
    pub stacks: bool,
    /// With --stacks: stop each thread that runs for the microseconds that its stack takes to copy
    #[arg(long, requires = "stacks")]
    pub stop: bool,
    /// Only threads in this state
    #[arg(long, value_name = "STATE")]
    pub state: Option<StateArg>,
    /// Only threads with at least this priority (0 for time-sharing threads, 1 to 99 for real-time)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub min_priority: Option<i32>,
    /// Only threads that block exactly these signals: `SIGUSR1,SIGTERM`, `0x200`, or `none`
    #[arg(long, value_name = "SET")]
    pub sigmask: Option<SignalSet>,
    /// Only threads with exactly these creation flags: `0x40` detached, `0` joinable
    #[arg(long, value_name = "FLAGS", value_parser = number)]
    pub flags: Option<u32>,
}

impl ThreadsArgs {
    /// The filter that the options describe.
    pub fn filter(&self) -> ThreadFilter {
        ThreadFilter {
            state: self.state.and_then(StateArg::state),
            min_priority: self.min_priority,
            signal_mask: self.sigmask,
            user_flags: self.flags,
        }
    }
}

#[derive(Debug, Args)]
pub struct LocksArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Only those that are held
    #[arg(long)]
    pub held: bool,
    /// Only those that threads wait for
    #[arg(long)]
    pub waited: bool,
    /// Idle ones too, as far as variables name them
    #[arg(long, conflicts_with_all = ["held", "waited"])]
    pub all: bool,
    /// Only those of this kind
    #[arg(long, value_name = "KIND")]
    pub kind: Option<KindArg>,
    /// Only the one at this address, whatever its state
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with_all = ["held", "waited", "all"])]
    pub address: Option<RemoteAddr>,
    /// Count for this long first what is done with them, by an agent that is put into the process
    #[arg(long, value_name = "TIME", value_parser = duration, num_args = 0..=1, default_missing_value = "1s")]
    pub track: Option<Duration>,
    /// With --track: put the agent also into a process with seccomp filters, or with locked memory
    #[arg(long, requires = "track")]
    pub force: bool,
}

/// A kind to choose by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindArg(pub SyncKind);

impl ValueEnum for KindArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [KindArg; 10] = {
            let all = SyncKind::ALL;
            [
                KindArg(all[0]),
                KindArg(all[1]),
                KindArg(all[2]),
                KindArg(all[3]),
                KindArg(all[4]),
                KindArg(all[5]),
                KindArg(all[6]),
                KindArg(all[7]),
                KindArg(all[8]),
                KindArg(all[9]),
            ]
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.0.word()))
    }
}

/// A state to choose by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateArg(Option<ThreadState>);

impl StateArg {
    const VARIANTS: [Self; 8] = {
        let all = ThreadState::ALL;
        [
            Self(None),
            Self(Some(all[0])),
            Self(Some(all[1])),
            Self(Some(all[2])),
            Self(Some(all[3])),
            Self(Some(all[4])),
            Self(Some(all[5])),
            Self(Some(all[6])),
        ]
    };

    fn state(self) -> Option<ThreadState> {
        self.0
    }
}

impl ValueEnum for StateArg {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::VARIANTS
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        let word = self.0.map_or("any", ThreadState::word);
        Some(clap::builder::PossibleValue::new(word))
    }
}

#[derive(Debug, Args)]
pub struct ContendArgs {
    /// Process id
    #[arg(value_name = "PID", value_parser = id, required_unless_present = "command", conflicts_with = "command")]
    pub pid: Option<i32>,
    /// Look for this long (`10s`, `500ms`); until Ctrl-C or the end of the program otherwise
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Show so many locks
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub inject: InjectArgs,
    /// A program to start, and its arguments
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<OsString>,
}

/// How the agent is put into a process that does not have it.
#[derive(Debug, Args)]
pub struct InjectArgs {
    /// Time every hold
    #[arg(long)]
    pub exact: bool,
    /// Room for so many objects [default: a million]; memory is taken as they are used
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1024..=134_217_728))]
    pub size: Option<u64>,
    /// Put the agent also into a process with seccomp filters, which may kill it for that, or with locked memory
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct DetachArgs {
    /// Process id
    #[arg(value_name = "PID", value_parser = id)]
    pub pid: i32,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Time every hold
    #[arg(long)]
    pub exact: bool,
    /// Load the agent, but do not count until `tglass contend` or a debugger asks for it
    #[arg(long, conflicts_with = "exact")]
    pub off: bool,
    /// Room for so many objects [default: a million]; memory is taken as they are used
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1024..=134_217_728))]
    pub size: Option<u64>,
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Process id
    #[arg(value_name = "PID", value_parser = OsStringValueParser::new().try_map(which_target))]
    pub target: WhichTarget,
    /// Length of an interval (`1s`, `250ms`, `1m`; from 10ms to 1 day)
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// How many intervals, each with a screen of its own; 0 goes on until Ctrl-C
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    pub count: u64,
    /// Show all threads; otherwise a terminal gets as many as fit
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON (schema threadglass/1, see docs/json.md): all threads; one line each unless -n is 1
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ProfilArgs {
    /// Process id
    #[arg(value_name = "PID", value_parser = OsStringValueParser::new().try_map(which_target))]
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    pub target: Option<WhichTarget>,
    /// Command to start, and to profile to its end; the profile goes to standard error
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
    /// How long (`300ms`, `2s`, `0.5s`); Ctrl-C ends it earlier [default: 10s; a command to its end]
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Ticks per second of CPU time, up to 10000 [default: 997]; with --wait looks per second [default: 20]
    #[arg(short = 'F', long, value_name = "RATE")]
    pub rate: Option<u32>,
    /// Where threads wait, in place of where they run
    #[arg(long, conflicts_with_all = ["command", "children", "scale", "offset", "function", "module", "histogram", "gmon"])]
    pub wait: bool,
    /// Follow processes that are forked too, and programs that they execute
    #[arg(long)]
    pub children: bool,
    /// Record whole stacks (the stack files below need them and ask for them)
    #[arg(short = 'g', long)]
    pub stacks: bool,
    /// Only code from this address on, to the end of what is mapped there
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with_all = ["function", "module"])]
    pub offset: Option<RemoteAddr>,
    /// Only this function
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Only this object (with --function: where it is)
    #[arg(long, value_name = "FILE")]
    pub module: Option<String>,
    /// Fineness as profil(2) has it: a cell stands for 131072 / SCALE bytes of code (0x4000: 8)
    #[arg(long, value_name = "SCALE", value_parser = scale, default_value = "0x4000")]
    pub scale: u32,
    /// Write the cells of profil(2): 16-bit numbers, little-endian, of the program or the region
    #[arg(long, value_name = "FILE")]
    pub histogram: Option<PathBuf>,
    /// Write a file that gprof reads
    #[arg(long, value_name = "FILE")]
    pub gmon: Option<PathBuf>,
    /// Write stacks, one a line, with their counts
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Write a flame graph for the browser
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write a file that pprof reads (`.pb.gz`)
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Write the text, or the JSON, there
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SuspendArgs {
    /// Process id
    #[arg(value_name = "PID", value_parser = id)]
    pub pid: i32,
    /// Thread to suspend: its LWP as `tglass threads` shows it
    #[arg(value_name = "LWP", value_parser = id)]
    pub lwp: i32,
    /// Resume after this long (`300ms`, `2s`, `0.5s`); until Ctrl-C otherwise
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub limit: Option<Duration>,
    /// Suspend the thread even if its seccomp filters may kill it when it resumes
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// Process id (with --undo also the path of a journal)
    #[arg(value_name = "PID", value_parser = OsStringValueParser::new().try_map(which_target))]
    pub target: WhichTarget,
    /// Address of the object, as `tglass locks` shows it
    #[arg(value_name = "ADDRESS", value_parser = address, required_unless_present = "undo")]
    pub address: Option<RemoteAddr>,
    /// The state it shall have
    #[arg(value_name = "VALUE", allow_negative_numbers = true, required_unless_present = "undo")]
    pub value: Option<i32>,
    /// What the object is, if nothing else tells
    #[arg(long, value_name = "KIND", conflicts_with = "undo")]
    pub kind: Option<KindArg>,
    /// Do it; without this it is only shown
    #[arg(long)]
    pub yes: bool,
    /// Only if the picture still is the one that was shown with this code
    #[arg(long, value_name = "CODE", conflicts_with = "undo")]
    pub seen: Option<String>,
    /// Write back what an earlier change overwrote: the last one of the process, or that of the journal
    #[arg(long, conflicts_with_all = ["address", "value"])]
    pub undo: bool,
    /// Print JSON (described in docs/set.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Process to check as well
    #[arg(value_name = "PID", value_parser = id)]
    pub pid: Option<i32>,
    /// Print JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Print JSON instead of the screen
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to print
    #[command(subcommand)]
    pub what: Generate,
}

#[derive(Debug, Subcommand)]
pub enum Generate {
    /// A man page in roff: `tglass`, or one of the commands
    Man {
        /// Command, or `tglass` for the tool itself
        #[arg(default_value = "tglass")]
        page: String,
    },
    /// All man pages, into a directory
    ManPages {
        /// Directory
        dir: PathBuf,
    },
    /// The path of the agent, written where only this user can change it, for `locks track on` in gdb
    Agent,
    /// Completions
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

/// A number is a pid, whatever else may be called so; anything else is the path of a core file.
fn which_target(text: OsString) -> Result<WhichTarget, String> {
    let bytes = text.as_bytes();
    match text.to_str() {
        Some(number) if !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit) => {
            id(number).map(WhichTarget::Process)
        }
        Some("") => Err("neither a pid nor the path of a core file".to_owned()),
        _ => Ok(WhichTarget::Core(text.into())),
    }
}

fn id(text: &str) -> Result<i32, String> {
    text.parse().ok().filter(|id| *id > 0).ok_or_else(|| "not a number that ps could show".to_owned())
}

fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is not a number such as 64 or 0x40"))
}

/// A scale that turns profiling on.
fn scale(text: &str) -> Result<u32, String> {
    match number(text)? {
        0 | 1 => Err("0 and 1 mean that profiling is off: 2 to 0x10000 are usual".to_owned()),
        scale => Ok(scale),
    }
}

/// An address: hexadecimal, with or without `0x`.
fn address(text: &str) -> Result<RemoteAddr, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let bad = || format!("`{text}` is not an address such as 0x7f12a0b4c5d0");
    u64::from_str_radix(digits, 16).map(RemoteAddr).map_err(|_| bad())
}

/// A duration as users write it: a number and `ns`, `us`, `ms`, `s` or `m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time such as 300ms, 2s or 0.5s");
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let (digits, unit) = text.split_at(unit_at);
    let scale = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err(bad()),
    };
    let count: f64 = digits.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(count * scale).map_err(|_| bad())
}

/// A duration over which averages mean something, and which somebody may wait for.
fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(10)..=Duration::from_secs(86_400);
    let time = duration(text)?;
    if range.contains(&time) { Ok(time) } else { Err(format!("`{text}` is not between 10ms and 1 day (1440m)")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_read_as_documented() {
        assert_eq!(duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("0.5s"), Ok(Duration::from_millis(500)));
        for bad in ["", "5", "s", "-1s", "1h2", "nans", "infs"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn intervals_are_neither_nothing_nor_for_ever() {
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["0s", "1ms", "2000m", "1", "-1s"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_pids_and_the_rest_are_files() {
        assert_eq!(which_target("4711".into()), Ok(WhichTarget::Process(4711)));
        for path in ["core", "core.4711", "./4711", "-4711", "0x10"] {
            assert_eq!(which_target(path.into()), Ok(WhichTarget::Core(path.into())));
        }
        for bad in ["", "0", "99999999999999999999"] {
            assert!(which_target(bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_are_decimal_or_hexadecimal() {
        assert_eq!(number("0x40"), Ok(0x40));
        assert_eq!(number("64"), Ok(64));
        assert!(number("forty").is_err());
    }
}
