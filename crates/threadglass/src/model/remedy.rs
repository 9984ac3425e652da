//! What could be done about something that cannot be seen or done.

use super::SyncKind;
use crate::Pid;

/// What could be done. A face says how, by its own commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum Remedy {
    /// Look at the process that a thread belongs to.
    LookAtProcess {
        /// That process.
        pid: Pid,
    },
    /// See which threads a process has.
    ListThreads {
        /// The process.
        pid: Pid,
    },
    /// See where synchronization objects are.
    ListObjects,
    /// See which addresses are known to be those of objects.
    ListAddresses,
    /// See which objects are known, or say of which kind this one is.
    ListOrNameKind,
    /// Say of which kind an object is.
    NameKind,
    /// Say that an object is of the kind it seems to be of.
    ConfirmKind {
        /// That kind.
        of: SyncKind,
    },
    /// Give the executable that the process had.
    GiveExecutable,
    /// Give the library that the process had.
    GiveLibrary,
    /// Give the C library that the process had.
    GiveLibc,
    /// Give the executable, or all files that the process had.
    GiveFiles,
    /// Name a part of the code.
    NameRegion,
    /// Say in which object, or where, a function is.
    ChooseFunction,
    /// Choose larger cells, or a smaller part of the code.
    Coarser,
    /// Stop the thread for a moment.
    StopThread,
    /// Look again, or stop the thread for a moment.
    RetryOrStop,
    /// Let the checks of this machine and user say what is missing.
    CheckAccess,
    /// Use the version of the tool that started the program.
    UseOtherVersion,
    /// Start the program with a larger table.
    LargerTable,
    /// Do it although it costs.
    Force,
    /// Do it although there is one thread.
    ForceSingle,
    /// Try it although it may fail.
    ForceAtRisk,
    /// Detach the debugger.
    DetachDebugger,
}
