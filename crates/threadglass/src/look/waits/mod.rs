//! Who waits for what, who holds it, and what is wrong with that.
//!
//! **What you give:** a target ([`explain`]). **What you get:** its threads with `waits_for` and `holds`, the
//! objects that are waited for or held, and the findings: circles, owners that are gone, the longest chain.
//! **What it will not do:** stop the target. A thread that is asleep cannot let go of anything; so a circle
//! of threads that were all seen not to move, around the time at which the objects were read, is one.

mod abroad;
mod assemble;
mod confirm;
mod explain;
mod findings;
mod graph;
mod held;
mod kinds;
mod look;
mod look_at;
mod names;
mod owners;
mod place;
mod reread;
mod survey;
mod suspects;
mod words;

pub(crate) use assemble::collect;
pub use explain::explain;
pub(crate) use look::has_not_moved;
pub use look_at::look_at;
pub use place::{NoPlace, around, check_place};
pub use reread::{Reread, by_content, reread};
pub use survey::{Sleeper, Survey};
