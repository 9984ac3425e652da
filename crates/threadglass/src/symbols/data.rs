//! Names for synchronization objects: the variable, the member of a type, or the place.

use super::object_names::MemberFit;
use super::objects::{MappedObject, Objects};
use crate::RemoteAddr;
use crate::model::{Evidence, Family, SyncKind};
use crate::proc::map_at;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of frames of a stack that are searched for pointers to a lock.
const MAX_FRAMES: usize = 64;

/// A lock in a global or static variable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LockVariable {
    /// Where it begins.
    pub address: RemoteAddr,
    /// What it is. By the size of a symbol alone, a barrier looks like a semaphore.
    pub kind: SyncKind,
    /// Whose it is.
    pub family: Family,
    /// The variable, with the member: `registry.shards[3].mu`.
    pub name: String,
    /// `Derived` from the type in debug information, or `Inferred` from the size of a symbol.
    pub evidence: Evidence,
}

/// Names data of one process.
pub struct DataNames<'a> {
    objects: Arc<Objects<'a>>,
    /// Whether the function at an address belongs to a runtime inside the program. A search of all symbols is slow,
    /// and many threads are at few addresses.
    locking: HashMap<RemoteAddr, bool>,
}

impl<'a> DataNames<'a> {
    /// Prepares to name the data of `objects`; reads nothing yet.
    pub fn new(objects: &Arc<Objects<'a>>) -> Self {
        Self { objects: objects.clone(), locking: HashMap::new() }
    }

    /// The global or static variable at `addr`. With debug information this is the innermost member there:
    /// `registry.shards[3].mu`, `ns::lock_a`, `app::STATE`; otherwise the symbol, demangled: `symbol` or
    /// `symbol+0x40`. `None` when no variable of a loaded object is known to be there.
    pub fn variable_at(&mut self, addr: RemoteAddr) -> Option<String> {
        let _look = self.objects.target.limits().begin();
        let object = self.objects.around(addr)?;
        object.names()?.variable_at(addr.0.wrapping_sub(object.image()?.bias()))
    }

    /// Where `addr` lies: [`Self::offset_of`] it, or else `heap`, `stack` (that of the main thread) or `[anon]`,
    /// where other things lie too. `None` where nothing is mapped.
    pub fn place_of(&mut self, addr: RemoteAddr) -> Option<String> {
        self.offset_of(addr).or_else(|| {
            let map = map_at(self.objects.target.maps(), addr)?;
            Some(match String::from_utf8_lossy(&map.name).as_ref() {
                "" => "[anon]".to_owned(),
                "[heap]" => "heap".to_owned(),
                "[stack]" => "stack".to_owned(),
                other => other.to_owned(),
            })
        })
    }

    /// The place of `addr` in a loaded object, `libfoo.so+0x4012`, or in another mapped file.
    pub fn offset_of(&mut self, addr: RemoteAddr) -> Option<String> {
        if let Some(object) = self.objects.around(addr).filter(|object| object.image().is_some()) {
            return Some(format!("{}+{:#x}", object.module.name(), addr.0 - object.module.base.0));
        }
        let map = map_at(self.objects.target.maps(), addr).filter(|map| map.is_file())?;
        let name = String::from_utf8_lossy(&map.name);
        let file = match name.as_ref() {
            // What the kernel calls memory that is shared and has no file.
            "/dev/zero" if map.shared => "shared memory",
            name if name.starts_with("/SYSV") && map.shared => "shared memory",
            name => name.rsplit('/').next().unwrap_or_default(),
        };
        Some(format!("{file}+{:#x}", (addr.0 - map.start.0).saturating_add(map.offset)))
    }

    /// The member of a type that the lock of `kind` at `addr`, which is in no variable, is:
    /// `Session::lock_`, `struct session::lock`, `app::Session::ledger`.
    ///
    /// It is found by way of a thread that uses it: `frames` are addresses in the instructions that its stack
    /// is at, from the innermost outwards, and `words` what is on that stack and in its registers. A function
    /// there that has a pointer to a type with such a lock in it knows the name, if the pointer, as far as the
    /// lock's address tells it, is among the words. That makes it `inferred`; `None` when several names fit.
    pub fn member_of(
        &mut self,
        addr: RemoteAddr,
        kind: SyncKind,
        frames: &[RemoteAddr],
        words: &[u64],
    ) -> Option<String> {
        let _look = self.objects.target.limits().begin();
        let mut words = words.to_vec();
        words.sort_unstable();
        let (mut near, mut far): (Vec<MemberFit>, Vec<MemberFit>) = (Vec::new(), Vec::new());
        // A pointer to a structure that begins with the lock looks like a pointer to the lock, and that is on the
        // stack in any case. So only the function that called the lock's function is believed.
        let mut is_caller = true;
        for pc in frames.iter().take(MAX_FRAMES) {
            // Unknown code ends the search: a structure of its own may look like one of its callers'.
            let objects = self.objects.clone();
            let Some(object) = objects.around(*pc) else { break };
            // A runtime passes on the locks of the program.
            if object.module.library().is_runtime() {
                continue;
            }
            let Some(image) = object.image() else { break };
            let offset = pc.0.wrapping_sub(image.bias());
            let fits = object.names().and_then(|names| names.fits(offset, addr.0, kind, &words));
            match fits {
                Some(fits) => {
                    let has_bare = fits.has_bare;
                    let is_believed = |fit: &MemberFit| !fit.is_first || (is_caller && (!has_bare || fit.is_alone));
                    let found = if is_caller { &mut near } else { &mut far };
                    found.extend(fits.fits.into_iter().filter(is_believed));
                    is_caller &= !fits.is_own;
                }
                None if self.is_locking(object, *pc) => {}
                None => break,
            }
        }
        if near.is_empty() {
            return widest(far.iter()).cloned();
        }
        // The function that called the lock's function knows best. Its callers only add the structures around.
        let name = widest(near.iter())?;
        let around = near.iter().chain(&far).filter(|fit| fit.names.contains(name));
        widest(around).or(Some(name)).cloned()
    }

    /// All global and static variables, those of functions too, that are or contain a lock. Those of libc
    /// itself are left out.
    pub fn lock_variables(&mut self) -> Vec<LockVariable> {
        let limits = self.objects.target.limits();
        let _look = limits.begin();
        let mut found = Vec::new();
        for object in self.objects.all().iter().filter(|object| !object.module.library().is_runtime()) {
            if limits.is_over() {
                break;
            }
            let (Some(image), Some(names)) = (object.image(), object.names()) else { continue };
            let at_run_time = |lock: LockVariable| LockVariable { address: lock.address.offset(image.bias()), ..lock };
            found.extend(names.lock_variables().into_iter().map(at_run_time));
        }
        found
    }

    /// Whether the function at `pc`, of which debug information says nothing, is one of a runtime that is linked into
    /// the program.
    fn is_locking(&mut self, object: &MappedObject<'_>, pc: RemoteAddr) -> bool {
        let is_locking = || object.function_at(pc).is_some_and(|symbol| object.lock_types.is_function(&symbol.name));
        *self.locking.entry(pc).or_insert_with(is_locking)
    }
}

/// The name in the widest structure, if all of `fits` agree that the others lie in it.
fn widest<'f>(fits: impl Iterator<Item = &'f MemberFit> + Clone) -> Option<&'f String> {
    let mut all = fits.clone();
    let holds_all =
        |fit: &&MemberFit| fits.clone().all(|other| other.names.first().is_some_and(|name| fit.names.contains(name)));
    all.find(holds_all)?.names.first()
}
