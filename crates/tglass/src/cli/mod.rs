//! The command line: one definition for help, man pages and completions.

pub mod values;

use crate::cmd::complete;
use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use threadglass::RemoteAddr;
use threadglass::model::filter::ThreadFilter;
use threadglass::model::{SignalSet, SyncKind};
use values::{
    StateChoice, address, duration, id, interval, kinds, listen_at, lock_word, number, percent, scale, size, states,
    target_word,
};

/// See inside a running multithreaded process or a core file
///
/// tglass shows the threads of a process, what each one waits for, who holds each lock, and where the time goes.
/// Looking never stops, signals or changes the process. The commands that act on the process (contend, detach, set,
/// suspend, locks with --track, threads and why with --stop) say so.
///
/// A target is a process ID (digits), the path of a core file or snapshot, or the name of a process: as `ps` shows it, or the file
/// name of its program. A name that several processes have is refused, and the processes are listed.
///
/// A TIME is a number of seconds (`1`, `0.5`), or numbers with units: `300ms`, `1.5s`, `1m30s`.
///
/// Exit status: 0 if the command could look, 1 if threads certainly hang for ever (`why`), 2 if the command could not
/// look, 3 if threads likely hang for ever (`why --fail-on likely`).
#[derive(Debug, Parser)]
#[command(name = "tglass", version, max_term_width = 100, propagate_version = true, disable_help_subcommand = true)]
#[command(
    after_help = "New here? Run `tglass demo`. Permission denied? Run `tglass doctor PID`, or read `tglass help permissions`."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Explain why a process hangs: the deadlock, or what its threads wait for and do
    ///
    /// The answer begins with the verdict, the first of these that applies:
    ///
    /// DEADLOCK, SELF-DEADLOCK, DEADLOCK BY READING TWICE: threads wait for each other in a circle, or for themselves.
    ///
    /// OWNER GONE, LOCKED BEFORE THE FORK, NOBODY LEFT TO WAKE THEM: threads wait for something that no thread is left to
    /// do.
    ///
    /// STOPPED: threads are stopped, by a signal, a debugger or `tglass suspend`.
    ///
    /// WAITS BEHIND A THREAD: threads wait for one that waits for something else, or is busy.
    ///
    /// BUSY: threads run. Samples of the CPUs tell where, without a stop.
    ///
    /// IDLE: no thread runs, and none waits for another one.
    ///
    /// NOT KNOWN: something could not be read, and the line says what.
    ///
    /// A hang is certain if the locks and the kernel record all of it and nothing moves, likely if a part is inferred,
    /// possible if it may end by itself. Where nothing is certain at once, looks are repeated for a moment (-d), and
    /// what only one of them shows is not reported.
    ///
    /// Exit status: 1 if threads certainly hang for ever, 0 if not, 2 if a target could not be looked at; --fail-on
    /// changes that. Of several targets: 1, then 3, then 2, then 0, whichever applies first.
    Why(WhyArgs),
    /// Watch a process on the whole terminal: hangs, threads, waits, locks, tasks
    ///
    /// What is wrong is at the top as soon as it is confirmed. Below are the threads with what each does with its time, as `stats`
    /// measures it, what it waits for and who holds that; the locks; the tasks (goroutines) of programs that have any; and the
    /// waits of the selected thread. `?` lists the keys.
    ///
    /// Without a target: the processes that `why` without a target finds; Enter goes into one. A core file or a snapshot is shown as it
    /// is.
    ///
    /// Nothing acts on the process. Where output is not a terminal, use `threads` and `why`.
    Top(TopArgs),
    /// Look at processes at intervals: say when one hangs, keep the evidence, run a command, go on
    ///
    /// Nothing stops the processes. What is cheap is read at every look: how often each thread has run, and what it is in. Only where
    /// threads do not move are locks read, and what is wrong is told when it is confirmed, in one line; and again when it has
    /// dissolved. New processes and those that are started anew are followed.
    ///
    /// These are told apart, since to start a process anew helps only some of them: DEADLOCKED, NOBODY LEFT to wake threads, WORKERS
    /// STARVE (a restart helps); BEHIND A LOCK for --stuck (perhaps); STARVED OF CPU, STOPPED, TRACED, FROZEN, IN D STATE, WAITS FOR
    /// ANOTHER SERVICE (the cause is elsewhere). Who is merely idle is not told of.
    ///
    /// Exit status with --once: 0 if nothing is wrong, 1 if threads hang so that a restart helps, 3 if something else is wrong, 2 if
    /// the command could not look. Otherwise 0 at Ctrl-C or SIGTERM, or when all processes that were named by their IDs have ended.
    Watch(WatchArgs),
    /// Write one HTML file: the answer of `why`, a graph of the waits, threads, stacks, locks
    ///
    /// The file needs nothing but a browser: it loads nothing, and can be sent and opened years later. The data is in it, too, as
    /// `tglass why --json` prints it.
    ///
    /// Nothing acts on the process, unless --contend is given: that measures as `tglass contend` does, for which the agent is
    /// injected. The look comes first, then the profile, then the measurement of locks.
    Report(ReportArgs),
    /// Keep all that a process shows in a small file, to be opened later
    ///
    /// The file has the answers of `why`, `report`, `threads`, `locks` and `tsd`, with stacks, names and source lines. It needs
    /// neither the process nor its files any more: `tglass why FILE` answers as `tglass why PID` did. It has no copy of the
    /// memory, so it is small. Nothing acts on the process, and nothing stops it. See docs/snapshots.md.
    Snap(SnapArgs),
    /// Compare two snapshots of a process: which threads have not moved, and for how long
    ///
    /// Either may also be the process itself, which is looked at then. A thread stands if the kernel has counted no CPU time
    /// and no turn of it from before the first snapshot until after the second.
    Diff(DiffArgs),
    /// Show the locks that threads hold or wait for, with holders and waiters
    ///
    /// A lock is anything that threads wait for in user space: mutexes, rwlocks, condition variables, semaphores,
    /// barriers, locks of Rust and bare futexes.
    Locks(LocksArgs),
    /// Measure which locks threads wait for, how long, and who makes them wait
    ///
    /// Measures a process for a time or until Ctrl-C, or runs COMMAND and measures it to its end.
    ///
    /// This acts on the process: unless the process was started by `tglass run`, the agent is injected. One thread is
    /// stopped for a moment (the time is printed). At the end the agent's hooks are removed; only the agent's code and
    /// its counters stay mapped. See docs/track.md.
    ///
    /// Every use of POSIX and C11 locks is counted. Locks that do not go through the C library, such as those of
    /// Rust's standard library, are sampled.
    ///
    /// Exit status: that of COMMAND if one was given and has ended; otherwise 0, or 2 if nothing could be measured.
    Contend(ContendArgs),
    /// Remove the agent's hooks from a process, whoever injected it
    ///
    /// The hooks go away by themselves when the command that injected the agent ends, however it ends. Use `detach` if
    /// that command still runs and cannot be found. This acts on the process.
    Detach(DetachArgs),
    /// Run a program with the agent, which counts every use of its locks
    ///
    /// While the program runs, `tglass locks PID` and `tglass contend PID` show the numbers. The program replaces this
    /// command: it keeps its input, output, signals and exit status. Programs that it starts are tracked too.
    ///
    /// Every acquisition is counted and every wait is timed; one hold in 64 is timed, or every hold with --exact. Only
    /// POSIX and C11 locks are counted: others, such as those of Rust's standard library, do not go through the C
    /// library.
    Run(RunArgs),
    /// Show all threads: state, priority, CPU time, what each waits for, where it started
    ///
    /// States: `active` has a CPU, or was not seen to lack one. `run` could run, but was seen not to get a CPU. `sleep` is
    /// asleep in any system call. `stopped` and `stopped_asleep` are stopped by a signal or suspended by tglass, while
    /// running and while asleep; with a debugger's stop a thread keeps the state that it was stopped in. `zombie` has
    /// exited and was not joined.
    Threads(ThreadsArgs),
    /// Show thread-specific data: keys, destructors, and the values of each thread
    #[command(override_usage = "tglass tsd [OPTIONS] <PID|CORE|NAME>\n       tglass tsd [OPTIONS] -p <PID>")]
    Tsd(TargetArgs),
    /// Show what threads do with their time: run, wait for a CPU, wait for a lock, sleep
    ///
    /// The columns are like those of `prstat -mL`, in percent of the interval: CPU is time on a CPU, RUNQ time waiting
    /// for a CPU, LCK time waiting for a lock (mutex, rwlock, once), SLP all other sleep. CPU and RUNQ are
    /// counted by the kernel; LCK is inferred from samples of where the thread sleeps.
    ///
    /// "Concurrency asked for" is what the program gave to pthread_setconcurrency, 0 if nothing: a hint that Linux does
    /// not need.
    Stats(StatsArgs),
    /// Profile a process or a command: where it spends its CPU time, or where it waits
    ///
    /// The kernel samples all threads, also those that start later. Nothing is injected and no thread is stopped. With
    /// --wait: where threads wait, for which lock, and who holds the lock. See docs/profil.md.
    ///
    /// Exit status: that of CMD if one was given; otherwise 0, or 2 if nothing could be recorded.
    Profil(ProfilArgs),
    /// Suspend one thread of a process while this command runs
    ///
    /// The other threads go on. The thread resumes when this command ends, however it ends.
    ///
    /// This acts on the process: if the suspended thread holds a lock, threads that want the lock wait.
    Suspend(SuspendArgs),
    /// Force a lock into another state and wake its waiters; a dry run unless --yes is given
    ///
    /// VALUE is the new state. Mutex: 0 unlocks it, 1 locks it. Semaphore: the new count. Rwlock: 0 unlocks it, N makes
    /// it read-locked by N readers, -1 write-locks it.
    ///
    /// This acts on the process and may damage the data that the lock protects. Without --yes the command only shows
    /// what it would write, which threads would wake and what may break. It keeps a journal, so that --undo can restore
    /// the old state as long as no thread has used the new one. See docs/set.md.
    ///
    /// Exit status: 0 if done or shown, 2 if refused.
    Set(SetArgs),
    /// Check what can be seen from here, and say how to fix what cannot
    Doctor(DoctorArgs),
    /// Start a small program that hangs, and explain it
    ///
    /// Each scene is a program of tglass itself with something wrong, and the command that tells what. The program ends when the
    /// command ends.
    Demo(DemoArgs),
    /// Print the help of a command, or about a subject: permissions, containers, cores
    Help(HelpArgs),
    /// Print the JSON Schema of what `--json` prints
    Schema(SchemaArgs),
    /// Print a man page (`man tglass`, `man threads` ..) or completions for a shell
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// A program that `demo` looks at
    #[command(name = "_scene", hide = true)]
    DemoChild(DemoChildArgs),
}

/// A target as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetWord {
    /// A process, by its ID.
    Pid(i32),
    /// A file, or a process by its name.
    Other(OsString),
}

/// A lock as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockWord {
    Address(RemoteAddr),
    /// The name of a variable; an address only if no variable has the name.
    Name {
        name: String,
        address: Option<RemoteAddr>,
    },
}

/// Where HTTP is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAt {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A process, by the argument or by -p.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct ProcessArgs {
    /// Process: its ID or its name
    #[arg(value_name = "PID|NAME", add = ArgValueCompleter::new(complete::processes), value_parser = OsStringValueParser::new().try_map(target_word))]
    process: Option<TargetWord>,
    /// Process ID, in place of the argument
    #[arg(short, long, value_name = "PID", add = ArgValueCompleter::new(complete::pids), value_parser = id)]
    pid: Option<i32>,
}

impl ProcessArgs {
    /// The process, however it was named.
    pub fn word(&self) -> Option<TargetWord> {
        self.process.clone().or(self.pid.map(TargetWord::Pid))
    }
}

/// A process or a core file, and how it is shown.
#[derive(Debug, Args)]
pub struct TargetArgs {
    #[command(flatten)]
    pub which: WhichArgs,
    #[command(flatten)]
    pub files: CoreFileArgs,
    /// Print JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// A process or a core file, by the argument or by -p.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct WhichArgs {
    /// Process ID, path of a core file or snapshot (`./123` if the file name is a number), or name of a process
    #[arg(value_name = "PID|CORE|NAME", add = ArgValueCompleter::new(complete::targets), value_parser = OsStringValueParser::new().try_map(target_word))]
    target: Option<TargetWord>,
    /// Process ID, in place of the argument
    #[arg(short, long, value_name = "PID", add = ArgValueCompleter::new(complete::pids), value_parser = id)]
    pid: Option<i32>,
}

impl WhichArgs {
    /// The target, however it was named.
    pub fn word(&self) -> Option<TargetWord> {
        self.target.clone().or(self.pid.map(TargetWord::Pid))
    }
}

/// Where the files of a core's process are.
#[derive(Debug, Args)]
pub struct CoreFileArgs {
    /// Core files: path of the executable, if it has moved
    #[arg(long, value_name = "FILE")]
    pub exe: Option<PathBuf>,
    /// Core files: directory that holds the libraries, in place of /
    #[arg(long, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "tglass why [OPTIONS] <PID|CORE|NAME>...\n       tglass why [OPTIONS] -p <PID>...\n       tglass why [--all] [--user <USER>] [--cgroup <PATH>] [--container <ID>]",
    group = ArgGroup::new(NAMED).args(["targets", "pids"]).multiple(true)
)]
pub struct WhyArgs {
    /// Process IDs, paths of core files or snapshots (`./123` if the file name is a number), or names of processes; all processes of the
    /// machine if none is given
    #[arg(value_name = "PID|CORE|NAME", add = ArgValueCompleter::new(complete::targets), value_parser = OsStringValueParser::new().try_map(target_word))]
    pub targets: Vec<TargetWord>,
    /// Process ID, in place of or beside the arguments
    #[arg(short = 'p', long = "pid", value_name = "PID", add = ArgValueCompleter::new(complete::pids), value_parser = id)]
    pub pids: Vec<i32>,
    /// Repeat looks for this long where nothing is certain at once [default: 300ms]; 0 means one look
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Also read the stacks of running threads that could not be sampled; each is stopped for the microseconds that
    /// copying its stack takes
    #[arg(long)]
    pub stop: bool,
    /// Which hangs change the exit status: `certain` ones (to 1), also `likely` ones (to 3), or `never` any
    #[arg(long, value_name = "WHEN", default_value = "certain")]
    pub fail_on: FailOn,
    /// Print whole lines, whatever the width of the terminal
    #[arg(long)]
    pub wide: bool,
    #[command(flatten)]
    pub machine: MachineArgs,
    #[command(flatten)]
    pub files: CoreFileArgs,
    /// Print JSON (schema threadglass/1, see docs/json.md); of several targets, one document per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "tglass top [OPTIONS] <PID|CORE|NAME>\n       tglass top [OPTIONS] -p <PID>\n       tglass top [OPTIONS] [--user <USER>] [--cgroup <PATH>] [--container <ID>]",
    group = ArgGroup::new(NAMED).args(["target", "pid"]).multiple(true)
)]
pub struct TopArgs {
    #[command(flatten)]
    pub which: WhichArgs,
    /// Time between two looks (`1s`, `500ms`; from 10ms to 1 day); looks that take long are made less often
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    #[command(flatten)]
    pub among: AmongArgs,
    #[command(flatten)]
    pub files: CoreFileArgs,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "tglass watch [OPTIONS] <PID|NAME>...\n       tglass watch [OPTIONS] -p <PID>...\n       tglass watch [OPTIONS] [--all] [--user <USER>] [--cgroup <PATH>] [--container <ID>]",
    group = ArgGroup::new(NAMED).args(["targets", "pids"]).multiple(true),
    group = ArgGroup::new("chosen").args(["targets", "pids", "all", "user", "cgroup", "container"]).multiple(true).required(true)
)]
pub struct WatchArgs {
    /// Process IDs, or names: all processes that have the name are watched, also those that come later
    #[arg(value_name = "PID|NAME", value_parser = OsStringValueParser::new().try_map(target_word))]
    pub targets: Vec<TargetWord>,
    /// Process ID, in place of or beside the arguments
    #[arg(short = 'p', long = "pid", value_name = "PID", value_parser = id)]
    pub pids: Vec<i32>,
    /// Watch all processes that can be seen
    #[arg(long, conflicts_with = NAMED)]
    pub all: bool,
    #[command(flatten)]
    pub among: AmongArgs,
    /// Time between two looks (`1s`, `500ms`; from 10ms to 1 day)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    pub every: Duration,
    /// Tell of a thread that has stood this long behind a lock, in D state, for another service or without a CPU
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub stuck: Duration,
    /// Part of one CPU that looks may take, in percent: where they take more, they are made less often
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    pub most_cpu: f64,
    /// Look until it is known whether something is wrong (two looks, or more within --stuck), and end
    #[arg(long)]
    pub once: bool,
    /// Keep a snapshot of each finding in this directory, as `snap` does
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// With --keep: maximum number of snapshots; the oldest go first
    #[arg(long, value_name = "N", default_value_t = 20, requires = "keep", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub keep_files: u64,
    /// With --keep: maximum number of bytes of all snapshots (`64M`, `1G`)
    #[arg(long, value_name = "SIZE", default_value = "256M", requires = "keep", value_parser = size)]
    pub keep_bytes: u64,
    /// With --keep: keep nothing from the memory of processes but the words of locks, as `snap --redact`
    #[arg(long, requires = "keep")]
    pub redact: bool,
    /// Run this command of the shell for each event, with the event as JSON on its input; it is ended after 60 seconds
    #[arg(long, value_name = "COMMAND")]
    pub exec: Option<OsString>,
    /// Answer HTTP at this address: `127.0.0.1:9911`, `[::1]:9911`, or `unix:/run/tglass.sock`; `/` lists what there is. Whoever can
    /// connect sees what tglass sees
    #[arg(long, value_name = "ADDRESS", value_parser = listen_at)]
    pub listen: Vec<ListenAt>,
    /// With --listen: allow addresses that other machines can reach
    #[arg(long, requires = "listen")]
    pub allow: bool,
    /// Print each event as a line of JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "tglass report [OPTIONS] -o <FILE> <PID|CORE|NAME>\n       tglass report [OPTIONS] -o <FILE> -p <PID>"
)]
pub struct ReportArgs {
    #[command(flatten)]
    pub which: WhichArgs,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Repeat looks for this long where nothing is certain at once [default: 300ms]; 0 means one look
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Also measure for this long which locks threads wait for, as `contend` does; this acts on the process (see docs/track.md)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub contend: Option<Duration>,
    /// Also profile the process for this long, as `profil` does, and show a flame graph; nothing is stopped
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub profile: Option<Duration>,
    #[command(flatten)]
    pub files: CoreFileArgs,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "tglass snap [OPTIONS] -o <FILE> <PID|CORE|NAME>\n       tglass snap [OPTIONS] -o <FILE> -p <PID>"
)]
pub struct SnapArgs {
    #[command(flatten)]
    pub which: WhichArgs,
    /// The file to write, by custom `NAME.tgsnap`; it appears when it is whole
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Keep nothing from the memory of the process but the words of locks: no thread-specific data, no labels of tasks, no paths
    /// that calls were given
    #[arg(long)]
    pub redact: bool,
    /// Repeat looks for this long where nothing is certain at once [default: 300ms]; 0 means one look
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub files: CoreFileArgs,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// A snapshot, or a process
    #[arg(value_name = "BEFORE", add = ArgValueCompleter::new(complete::targets), value_parser = OsStringValueParser::new().try_map(target_word))]
    pub before: TargetWord,
    /// Another one
    #[arg(value_name = "AFTER", add = ArgValueCompleter::new(complete::targets), value_parser = OsStringValueParser::new().try_map(target_word))]
    pub after: TargetWord,
    /// List all threads and locks
    #[arg(long)]
    pub all: bool,
    /// Print whole lines, whatever the width of the terminal
    #[arg(long)]
    pub wide: bool,
    /// Print JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// What stands for a target, however it is named: the arguments that are for the whole machine exclude that.
const NAMED: &str = "named";

/// Which processes `why` looks at where no target is given, and which of them it lists.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// Without a target: also list processes that are idle or wait for another one
    #[arg(long, conflicts_with = NAMED)]
    pub all: bool,
    #[command(flatten)]
    pub among: AmongArgs,
}

/// Which of all processes.
#[derive(Clone, Debug, Args)]
pub struct AmongArgs {
    /// Without a target: only processes of this user (a name or a number)
    #[arg(long, value_name = "USER", conflicts_with = NAMED)]
    pub user: Option<String>,
    /// Without a target: only processes in this control group or below (`/system.slice/nginx.service`)
    #[arg(long, value_name = "PATH", conflicts_with = NAMED)]
    pub cgroup: Option<String>,
    /// Without a target: only processes of this container (a part of its ID, as in the path of its control group)
    #[arg(long, value_name = "ID", conflicts_with = NAMED)]
    pub container: Option<String>,
}

impl WhyArgs {
    /// The targets, however they were named.
    pub fn words(&self) -> Vec<TargetWord> {
        self.targets.iter().cloned().chain(self.pids.iter().copied().map(TargetWord::Pid)).collect()
    }
}

/// Which hangs change the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    Certain,
    Likely,
    Never,
}

#[derive(Debug, Args)]
#[command(override_usage = "tglass threads [OPTIONS] <PID|CORE|NAME>\n       tglass threads [OPTIONS] -p <PID>")]
pub struct ThreadsArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show the stack of every blocked thread; equal stacks are shown once
    #[arg(long)]
    pub stacks: bool,
    /// Show the threads that carry tasks (goroutines) instead of the tasks
    #[arg(long)]
    pub lwps: bool,
    /// With --stacks: also show running threads; each is stopped for the microseconds that copying its stack takes
    #[arg(long, requires = "stacks")]
    pub stop: bool,
    /// Show only threads in this state
    #[arg(long, value_name = "STATE", value_parser = states())]
    pub state: Option<StateChoice>,
    /// Show only threads of at least this priority (0: time-sharing, 1 to 99: real-time)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub min_priority: Option<i32>,
    /// Show only threads that block exactly these signals: `SIGUSR1,SIGTERM`, `0x200`, or `none`
    #[arg(long, value_name = "SET")]
    pub sigmask: Option<SignalSet>,
    /// Show only threads with exactly these creation flags: `0x40` detached, `0` joinable
    #[arg(long, value_name = "FLAGS", value_parser = number)]
    pub flags: Option<u32>,
    /// Print whole lines, whatever the width of the terminal
    #[arg(long)]
    pub wide: bool,
}

impl ThreadsArgs {
    /// The filter that the options describe.
    pub fn filter(&self) -> ThreadFilter {
        ThreadFilter {
            state: self.state.and_then(|state| state.0),
            min_priority: self.min_priority,
            signal_mask: self.sigmask,
            user_flags: self.flags,
        }
    }
}

#[derive(Debug, Args)]
#[command(override_usage = "tglass locks [OPTIONS] <PID|CORE|NAME>\n       tglass locks [OPTIONS] -p <PID>")]
pub struct LocksArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Show only locks that are held
    #[arg(long)]
    pub held: bool,
    /// Show only locks that threads wait for
    #[arg(long)]
    pub waited: bool,
    /// Show idle locks too, as far as a variable of the program names them
    #[arg(long, conflicts_with_all = ["held", "waited"])]
    pub all: bool,
    /// Show only locks of this kind
    #[arg(long, value_name = "KIND", value_parser = kinds())]
    pub kind: Option<SyncKind>,
    /// Show only the lock at this address, or in the variable of this name (`log_lock`, `Session::lock`), whatever its
    /// state
    #[arg(long, value_name = "ADDRESS|NAME", value_parser = lock_word, conflicts_with_all = ["held", "waited", "all"])]
    pub address: Option<LockWord>,
    /// Inject the agent and count the uses of the locks for this long first [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = duration, num_args = 0..=1, default_missing_value = "1s")]
    pub track: Option<Duration>,
    /// With --track: inject the agent even if seccomp filters may kill the process, or its memory is locked
    #[arg(long, requires = "track")]
    pub force: bool,
    /// With --track: inject the agent into a program with one thread too, which then has a second thread
    #[arg(long, requires = "track")]
    pub force_single: bool,
    /// Print whole lines, whatever the width of the terminal
    #[arg(long)]
    pub wide: bool,
}

#[derive(Debug, Args)]
pub struct ContendArgs {
    /// Process: its ID or its name
    #[arg(value_name = "PID|NAME", add = ArgValueCompleter::new(complete::processes), value_parser = OsStringValueParser::new().try_map(target_word))]
    #[arg(required_unless_present_any = ["command", "pid"], conflicts_with = "command")]
    pub process: Option<TargetWord>,
    /// Process ID, in place of the argument
    #[arg(short, long, value_name = "PID", add = ArgValueCompleter::new(complete::pids), value_parser = id, conflicts_with_all = ["process", "command"])]
    pub pid: Option<i32>,
    /// How long to measure (`10s`, `500ms`) [default: until Ctrl-C or the end of the program]
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Maximum number of locks to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// Print JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub inject: InjectArgs,
    /// Program to run and measure, with its arguments
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<OsString>,
}

/// How the agent is put into a process that does not have it.
#[derive(Debug, Args)]
pub struct InjectArgs {
    /// Time every hold, not only one in 64
    #[arg(long)]
    pub exact: bool,
    /// Maximum number of locks to count [default: 1048576]; memory is used only for locks that exist
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1024..=134_217_728))]
    pub size: Option<u64>,
    /// Inject the agent even if seccomp filters may kill the process, or its memory is locked
    #[arg(long)]
    pub force: bool,
    /// Inject the agent into a program with one thread too, which then has a second thread
    #[arg(long)]
    pub force_single: bool,
}

#[derive(Debug, Args)]
pub struct DetachArgs {
    #[command(flatten)]
    pub process: ProcessArgs,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Time every hold, not only one in 64
    #[arg(long)]
    pub exact: bool,
    /// Load the agent, but count only when `tglass contend` or a debugger asks for it
    #[arg(long, conflicts_with = "exact")]
    pub off: bool,
    /// Maximum number of locks to count [default: 1048576]; memory is used only for locks that exist
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1024..=134_217_728))]
    pub size: Option<u64>,
    /// Program to run, with its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct StatsArgs {
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Length of an interval (`1s`, `250ms`, `1m30s`; from 10ms to 1 day)
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Number of intervals, each with its own screen; 0 means until Ctrl-C
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    pub count: u64,
    /// Show all threads [default: as many as fit on the terminal]
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON with all threads (schema threadglass/1, see docs/json.md); one line per interval unless -n is 1
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ProfilArgs {
    /// Process: its ID or its name
    #[arg(value_name = "PID|NAME", add = ArgValueCompleter::new(complete::processes), value_parser = OsStringValueParser::new().try_map(target_word))]
    #[arg(required_unless_present_any = ["command", "pid"], conflicts_with = "command")]
    pub process: Option<TargetWord>,
    /// Process ID, in place of the argument
    #[arg(short, long, value_name = "PID", add = ArgValueCompleter::new(complete::pids), value_parser = id, conflicts_with_all = ["process", "command"])]
    pub pid: Option<i32>,
    /// Command to run and profile to its end; the profile goes to standard error
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
    /// How long to record (`300ms`, `2s`, `0.5s`); Ctrl-C ends the recording earlier [default: 10s; a command to its end]
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Samples per second of CPU time, up to 10000 [default: 997]; with --wait: looks per second [default: 20]
    #[arg(short = 'F', long, value_name = "RATE")]
    pub rate: Option<u32>,
    /// Show where threads wait, not where they run
    #[arg(long, conflicts_with_all = ["command", "children", "kernel", "scale", "offset", "function", "module", "histogram", "gmon"])]
    pub wait: bool,
    /// Also profile child processes and the programs that they execute
    #[arg(long)]
    pub children: bool,
    /// Also sample what the kernel does for the process (needs kernel.perf_event_paranoid=1, CAP_PERFMON or root)
    #[arg(long)]
    pub kernel: bool,
    /// Record whole stacks (implied by --folded, --svg and --pprof)
    #[arg(short = 'g', long)]
    pub stacks: bool,
    /// Profile only the code from this address to the end of its mapping
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with_all = ["function", "module"])]
    pub offset: Option<RemoteAddr>,
    /// Profile only this function
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Profile only this executable or library; with --function: the file that has the function
    #[arg(long, value_name = "FILE")]
    pub module: Option<String>,
    /// Scale as in profil(2): each cell covers 131072 / SCALE bytes of code (0x4000: 8 bytes)
    #[arg(long, value_name = "SCALE", value_parser = scale, default_value = "0x4000")]
    pub scale: u32,
    /// Write the cells of profil(2) for the program or the chosen code: 16-bit little-endian numbers
    #[arg(long, value_name = "FILE")]
    pub histogram: Option<PathBuf>,
    /// Write a profile for gprof
    #[arg(long, value_name = "FILE")]
    pub gmon: Option<PathBuf>,
    /// Write folded stacks: one stack per line with its count
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Write a flame graph to open in a browser
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write a profile for pprof (`.pb.gz`)
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Write the text or the JSON to this file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(override_usage = "tglass suspend [OPTIONS] <PID|NAME> <LWP>\n       tglass suspend [OPTIONS] -p <PID> <LWP>")]
pub struct SuspendArgs {
    /// Process: its ID or its name (left out with -p)
    #[arg(value_name = "PID|NAME", add = ArgValueCompleter::new(complete::processes), required = true)]
    pub process: OsString,
    /// LWP of the thread, as `tglass threads` shows it
    #[arg(value_name = "LWP", required_unless_present = "pid")]
    pub lwp: Option<OsString>,
    /// Process ID, in place of the first argument
    #[arg(short, long, value_name = "PID", add = ArgValueCompleter::new(complete::pids), value_parser = id)]
    pub pid: Option<i32>,
    /// Resume the thread after this time (`300ms`, `2s`, `0.5s`) [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub limit: Option<Duration>,
    /// Suspend the thread even if its seccomp filters may kill it when it resumes
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
#[command(override_usage = "tglass set [OPTIONS] <PID|NAME> <ADDRESS|NAME> <VALUE>\n       \
                            tglass set [OPTIONS] -p <PID> <ADDRESS|NAME> <VALUE>\n       \
                            tglass set [OPTIONS] --undo <PID|NAME|JOURNAL>")]
pub struct SetArgs {
    /// Process: its ID or its name (left out with -p); with --undo also the path of a journal
    #[arg(value_name = "PID|NAME", add = ArgValueCompleter::new(complete::processes), required_unless_present = "pid")]
    pub process: Option<OsString>,
    /// Address of the lock as `tglass locks` shows it, or the name of its variable (`log_lock`, `Session::lock`)
    #[arg(value_name = "ADDRESS|NAME", allow_negative_numbers = true, required_unless_present_any = ["undo", "pid"])]
    pub lock: Option<OsString>,
    /// New state
    #[arg(value_name = "VALUE", allow_negative_numbers = true, required_unless_present_any = ["undo", "pid"])]
    pub value: Option<OsString>,
    /// Process ID, in place of the first argument
    #[arg(short, long, value_name = "PID", add = ArgValueCompleter::new(complete::pids), value_parser = id)]
    pub pid: Option<i32>,
    /// Kind of the lock, if it is not known otherwise
    #[arg(long, value_name = "KIND", value_parser = kinds(), conflicts_with = "undo")]
    pub kind: Option<SyncKind>,
    /// Make the change; without --yes it is only shown
    #[arg(long)]
    pub yes: bool,
    /// Make the change only if nothing has changed since the dry run that printed this code
    #[arg(long, value_name = "CODE", conflicts_with = "undo")]
    pub seen: Option<String>,
    /// Undo an earlier change: the last one of the process, or that of the journal
    #[arg(long, conflicts_with_all = ["lock", "value"])]
    pub undo: bool,
    /// Print JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

impl SuspendArgs {
    /// The process, and the other words.
    pub fn words(&self) -> Result<(TargetWord, Vec<&OsStr>), String> {
        process_first(self.pid, [Some(&self.process), self.lwp.as_ref()])
    }
}

impl SetArgs {
    /// The process, and the other words.
    pub fn words(&self) -> Result<(TargetWord, Vec<&OsStr>), String> {
        process_first(self.pid, [self.process.as_ref(), self.lock.as_ref(), self.value.as_ref()])
    }
}

/// The process and what follows it: with -p all words are what follows.
fn process_first<const N: usize>(
    pid: Option<i32>,
    words: [Option<&OsString>; N],
) -> Result<(TargetWord, Vec<&OsStr>), String> {
    let mut words = words.into_iter().flatten().map(OsString::as_os_str);
    let process = match pid {
        Some(pid) => TargetWord::Pid(pid),
        None => target_word(words.next().unwrap_or_default().to_owned())?,
    };
    Ok((process, words.collect()))
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Process to check as well: its ID or its name
    #[arg(value_name = "PID|NAME", add = ArgValueCompleter::new(complete::processes), value_parser = OsStringValueParser::new().try_map(target_word))]
    pub process: Option<TargetWord>,
    /// Process ID, in place of the argument
    #[arg(short, long, value_name = "PID", add = ArgValueCompleter::new(complete::pids), value_parser = id, conflicts_with = "process")]
    pub pid: Option<i32>,
    /// Print JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// What to show
    #[arg(value_enum, default_value_t)]
    pub scene: Scene,
    /// List the scenes, each with the command that explains it
    #[arg(long, exclusive = true)]
    pub list: bool,
    /// Leave the program running for this long, to try other commands on it; Ctrl-C ends it
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "json")]
    pub stay: Option<Duration>,
    /// Print JSON (schema threadglass/1, see docs/json.md)
    #[arg(long)]
    pub json: bool,
}

/// What `demo` can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Scene {
    /// Two threads with two mutexes, and three that queue behind them
    #[default]
    Deadlock,
    /// Threads that wait for a lock which another one keeps too long
    Contention,
    /// A pool of threads whose workers all wait for tasks that nobody is left to run
    Starvation,
    /// Five philosophers with five locks of Rust
    Philosophers,
    /// Two processes that wait for each other at their pipes
    Pipes,
    /// Goroutines that wait for each other (needs `go` to build the program)
    Go,
}

#[derive(Debug, Args)]
pub struct HelpArgs {
    /// A command, or `permissions`, `containers` or `cores`
    #[arg(value_name = "COMMAND|SUBJECT", add = ArgValueCandidates::new(crate::cmd::help::about))]
    pub about: Option<String>,
}

#[derive(Debug, Args)]
pub struct DemoChildArgs {
    /// Name of the program
    pub name: String,
    /// Whoever started it
    pub parent: u32,
}

#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Command whose document is described [default: all documents]
    #[arg(value_name = "COMMAND", value_parser = PossibleValuesParser::new(crate::cmd::schema::COMMANDS))]
    pub command: Option<String>,
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
        #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]))]
        shell: String,
    },
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
