//! The lock that has a name.

use super::several::Several;
use crate::cli::LockWord;
use crate::render::safe;
use anyhow::{Result, bail};
use threadglass::RemoteAddr;
use threadglass::look::{Look, Names, Scope};
use threadglass::model::Snapshot;
use threadglass::target::Target;

/// Where the lock is that `word` names in `target`.
pub fn find(target: &dyn Target, word: &LockWord) -> Result<RemoteAddr> {
    let (name, address) = match word {
        LockWord::Address(address) => return Ok(*address),
        LockWord::Name { name, address } => (name, address),
    };
    let look = Look::new(target);
    let mut found = matching(look.lock_variables().iter().map(|lock| (lock.address, lock.name.as_str())), name);
    if found.is_empty() {
        // Locks outside of variables have names too, where threads use them.
        let snapshot = look.take(Scope::Held, Names::Findings)?;
        found = matching(named(&snapshot), name);
    }
    the_one(&found, name, *address)
}

/// The locks of a snapshot that have names.
fn named(snapshot: &Snapshot) -> impl Iterator<Item = (RemoteAddr, &str)> {
    snapshot.objects.iter().filter_map(|lock| Some((lock.address, lock.name.as_deref()?)))
}

/// Where the lock is that `word` names among those of a snapshot.
pub fn find_in(snapshot: &Snapshot, word: &LockWord) -> Result<RemoteAddr> {
    match word {
        LockWord::Address(address) => Ok(*address),
        LockWord::Name { name, address } => the_one(&matching(named(snapshot), name), name, *address),
    }
}

/// The only one of the locks that were found by a name; else what the name means as a number.
fn the_one(found: &[(RemoteAddr, String)], name: &str, address: Option<RemoteAddr>) -> Result<RemoteAddr> {
    match (found, address) {
        ([(address, _)], _) => Ok(*address),
        ([], Some(address)) => Ok(address),
        ([], None) => bail!("no lock is called `{}` (`tglass locks --all` lists locks with their names)", safe(name)),
        (several, _) => {
            let what = format!("{} locks are called `{}` (give the address of one)", several.len(), safe(name));
            let line = |(address, name): &(RemoteAddr, String)| format!("{address}  {}", safe(name));
            Err(Several::new(what, several.iter().map(line).collect()).into())
        }
    }
}

/// The locks of this name, else those whose name ends with it, else those that are part of the variable of this name; each address
/// once.
fn matching<'n>(locks: impl Iterator<Item = (RemoteAddr, &'n str)>, name: &str) -> Vec<(RemoteAddr, String)> {
    let (mut whole, mut part, mut inside) = (Vec::new(), Vec::new(), Vec::new());
    for (address, lock) in locks {
        if lock == name {
            whole.push((address, lock.to_owned()));
        } else if is_last_part(lock, name) {
            part.push((address, lock.to_owned()));
        } else if lock.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', '['])) {
            inside.push((address, lock.to_owned()));
        }
    }
    let mut found = [whole, part, inside].into_iter().find(|found| !found.is_empty()).unwrap_or_default();
    found.sort();
    found.dedup_by_key(|(address, _)| *address);
    found
}

/// Whether `part` is what `name` ends with, from a `::` or `.` on.
fn is_last_part(name: &str, part: &str) -> bool {
    let before = name.strip_suffix(part).filter(|_| !part.is_empty());
    before.is_some_and(|before| before.ends_with("::") || before.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Vec<u64> {
        let locks =
            [(1, "ns::lock"), (2, "log_lock"), (3, "a::Session::mu"), (4, "b::Session::mu"), (5, "list[3].guard")];
        let locks = locks.into_iter().chain([(6, "x::face"), (7, "face"), (8, "twice"), (9, "twice"), (9, "twice")]);
        matching(locks.map(|(at, name)| (RemoteAddr(at), name)), name).into_iter().map(|(at, _)| at.0).collect()
    }

    #[test]
    fn names_are_whole_or_last_parts() {
        assert_eq!(found("log_lock"), [2]);
        assert_eq!(found("lock"), [1], "not the end of a word");
        assert_eq!(found("a::Session::mu"), [3]);
        assert_eq!(found("Session::mu"), [3, 4]);
        assert_eq!(found("guard"), [5]);
        assert_eq!(found("list"), [5], "the only lock in it");
        assert_eq!(found("lis"), [0; 0]);
        assert_eq!(found("face"), [7], "the whole name comes first");
        assert_eq!(found("twice"), [8, 9]);
        assert_eq!(found("::lock"), [0; 0]);
        assert_eq!(found(""), [0; 0]);
    }
}
