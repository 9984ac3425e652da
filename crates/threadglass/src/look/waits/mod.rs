//! Who waits for what, who holds it, and what is wrong with that.
//!
//! Nothing is stopped. A thread that is asleep cannot let go of anything; so a circle of threads that were all seen
//! not to move, around the time at which the objects were read, is one.

mod assemble;
mod calls;
mod confirm;
mod explain;
mod findings;
mod glance;
mod graph;
mod groups;
mod held;
mod history;
mod look;
mod look_at;
mod names;
mod other_processes;
mod outside;
mod owners;
mod place;
mod reread;
#[cfg(feature = "profile")]
mod spin;
mod survey;
mod suspects;
#[cfg(not(feature = "profile"))]
mod unwatched;
mod verdict;
#[cfg(feature = "profile")]
mod watch;
mod words;

#[cfg(not(feature = "profile"))]
use unwatched as watch;

pub(crate) use assemble::collect;
pub(crate) use calls::{add_descriptors, add_descriptors_of, doing};
pub use explain::{USUAL_TIME, explain, explain_for};
pub(crate) use glance::glance;
pub(crate) use look::has_not_moved;
pub use look_at::look_at;
pub(crate) use outside::{Follower, stand_still};
pub use place::{NoPlace, around, check_place};
pub use reread::{Reread, by_content, reread};
pub(crate) use survey::Sleeper;
pub use survey::Survey;
pub(crate) use words::count;
