//! What the user can do, in the words of this tool's commands and flags. The library names none of them.

use threadglass::act::ControlError;
use threadglass::act::inject::InjectError;
use threadglass::act::set_state::FindError;
use threadglass::measure::TrackError;
use threadglass::measure::contend::ContendError;
use threadglass::measure::profile::ProfileError;
use threadglass::model::{Check, Gap, Remedy};
use threadglass::snap::SnapError;
use threadglass::target::TargetError;

/// An error with its causes and what to do about it.
pub fn of_error(error: &anyhow::Error) -> String {
    let remedy = error.chain().find_map(|cause| {
        let target = || cause.downcast_ref().and_then(TargetError::remedy);
        let control = || cause.downcast_ref().and_then(ControlError::remedy);
        let find = || cause.downcast_ref().and_then(FindError::remedy);
        let profile = || cause.downcast_ref().and_then(ProfileError::remedy);
        let track = || cause.downcast_ref().and_then(TrackError::remedy);
        let inject = || cause.downcast_ref().and_then(InjectError::remedy);
        let contend = || cause.downcast_ref().and_then(ContendError::remedy);
        let snap = || cause.downcast_ref().and_then(SnapError::remedy);
        target()
            .or_else(snap)
            .or_else(contend)
            .or_else(control)
            .or_else(find)
            .or_else(profile)
            .or_else(track)
            .or_else(inject)
    });
    said(format!("{error:#}"), remedy) + if is_denial(error) { "; see `tglass help permissions`" } else { "" }
}

/// Whether a process may not be looked into. The library's reasons are parts of sentences, so it is told by their words.
fn is_denial(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    ["CAP_SYS_PTRACE", "kernel.yama.ptrace_scope", "the process is protected"].iter().any(|word| text.contains(word))
}

/// Says in each gap what to do about it.
pub fn of_gaps(gaps: &mut [Gap]) {
    for gap in gaps {
        gap.why = said(std::mem::take(&mut gap.why), gap.remedy);
    }
}

/// Says which command is concerned by what a check has found.
pub fn of_check(check: &mut Check) {
    if check.remedy == Some(Remedy::DetachDebugger) {
        check.detail += ", `tglass suspend` does not";
    }
}

/// The same of a reason and what belongs to it.
pub fn with(why: String, remedy: Option<Remedy>) -> String {
    said(why, remedy)
}

fn said(text: String, remedy: Option<Remedy>) -> String {
    let Some(remedy) = remedy else { return text };
    let words = words(remedy);
    match (remedy, text.strip_suffix(')')) {
        // More than one thing can be done.
        (Remedy::LookAtProcess { .. } | Remedy::CheckAccess, Some(text)) => format!("{text}; {words})"),
        (Remedy::UseOtherVersion, _) => format!("{text}: {words}"),
        _ => format!("{text} ({words})"),
    }
}

fn words(remedy: Remedy) -> String {
    let words = match remedy {
        Remedy::LookAtProcess { pid } => return format!("look at that process: tglass .. {pid}"),
        Remedy::ListThreads { pid } => return format!("`tglass threads {pid}` lists its threads"),
        Remedy::ConfirmKind { of } => return format!("if it is one, add --kind {}", of.word()),
        Remedy::ListObjects => "`tglass locks PID` lists locks with their addresses",
        Remedy::ListAddresses => "`tglass locks` lists the known locks",
        Remedy::ListOrNameKind => "`tglass locks PID` lists the known locks; if you know its kind, add --kind",
        Remedy::NameKind => "add its kind with --kind",
        Remedy::GiveExecutable => "give the right one with --exe FILE",
        Remedy::GiveLibrary => "give the right one with --sysroot DIR",
        Remedy::GiveLibc => "give it with --sysroot DIR",
        Remedy::GiveFiles => "give the executable with --exe FILE, or a copy of its file system with --sysroot DIR",
        Remedy::NameRegion => "choose a part with --module, --function or --offset",
        Remedy::ChooseFunction => "choose one with --module or --offset",
        Remedy::Coarser => "choose a smaller --scale or region",
        Remedy::StopThread => "--stop reads the stack and pauses the thread for microseconds",
        Remedy::RetryOrStop => "look again, or use --stop",
        Remedy::CheckAccess => "run `tglass doctor`",
        Remedy::UseOtherVersion => "use the tglass that started it",
        Remedy::LargerTable => "`tglass run --size N`",
        Remedy::Force => "--force does it anyway",
        Remedy::ForceSingle => "--force-single tracks it with a second thread: see docs/track.md",
        Remedy::ForceAtRisk => "--force tries anyway",
        Remedy::DetachDebugger => "detach the debugger",
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use threadglass::{Lwp, Pid};

    #[test]
    fn errors_end_with_what_to_do() {
        let text = |error: anyhow::Error| of_error(&error);
        let thread = TargetError::IsThread { tid: 8, pid: Pid(7) };
        let whole = "8 is a thread, not a process (it belongs to process 7; look at that process: tglass .. 7)";
        assert_eq!(text(thread.into()), whole);
        let version = InjectError::from(TrackError::Version(3));
        let whole = "the agent in the program is of another version (3): use the tglass that started it";
        assert_eq!(text(version.into()), whole);
        let counted = ContendError::from(InjectError::from(TrackError::Version(3)));
        assert_eq!(text(counted.into()), whole, "one in another");
        let gone = anyhow::Error::from(ControlError::NoThread(Pid(7), Lwp(9))).context("cannot");
        assert_eq!(text(gone), "cannot: process 7 has no thread 9 (`tglass threads 7` lists its threads)");
        assert_eq!(text(anyhow::anyhow!("no")), "no");
        let denied =
            threadglass::target::TargetError::NoLocks { pid: Pid(7), why: "run with CAP_SYS_PTRACE".to_owned() };
        assert!(text(denied.into()).ends_with("CAP_SYS_PTRACE; see `tglass help permissions`"));
    }
}
