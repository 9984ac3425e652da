//! Which process a command is about.

use super::{Command, WhichTarget};

impl Command {
    /// The process that the command looks at or acts on, if it is one that runs already.
    pub fn process(&self) -> Option<i32> {
        let target = match self {
            Self::Why(args) | Self::Tsd(args) => Some(&args.target),
            Self::Locks(args) => Some(&args.target.target),
            Self::Threads(args) => Some(&args.target.target),
            Self::Stats(args) => Some(&args.target),
            Self::Profil(args) => args.target.as_ref(),
            Self::Set(args) => Some(&args.target),
            Self::Contend(args) => return args.pid,
            Self::Detach(args) => return Some(args.pid),
            Self::Suspend(args) => return Some(args.pid),
            Self::Doctor(args) => return args.pid,
            _ => None,
        };
        match target? {
            WhichTarget::Process(pid) => Some(*pid),
            WhichTarget::Core(_) => None,
        }
    }
}
