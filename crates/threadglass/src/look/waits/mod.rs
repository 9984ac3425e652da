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
mod knot;
mod libc_work;
mod look;
mod look_at;
mod names;
mod net;
mod other_processes;
mod outside;
mod owners;
mod partners;
mod place;
mod pools;
mod relatives;
mod remaining;
mod reread;
#[cfg(feature = "profile")]
mod sampled_spin;
mod shared;
mod spin;
mod strangers;
mod survey;
mod suspects;
mod task_ends;
mod tell;
#[cfg(not(feature = "profile"))]
mod unwatched;
mod unwoken;
mod verdict;
#[cfg(feature = "profile")]
mod watch;
mod words;

#[cfg(not(feature = "profile"))]
use unwatched as watch;

pub(crate) use assemble::collect;
pub(crate) use calls::{add_descriptors, is_timed, rests, waits_for_child, waits_for_others};
pub use explain::{USUAL_TIME, explain, explain_for, explain_whole};
pub(crate) use glance::glance;
pub(crate) use look::has_not_moved;
pub use look_at::look_at;
pub(crate) use names::name_objects;
pub(crate) use net::{Net, Stuck};
pub use outside::add_other_ends;
pub(crate) use outside::{circles_of, waits_of};
pub use place::{NoPlace, around, check_place};
pub use reread::{Reread, by_content, reread};
pub(crate) use survey::Sleeper;
pub use survey::Survey;
pub(crate) use verdict::place_of;
pub(crate) use words::count;
