//! Names for objects: the variable, the member of a type, or at least the place and who waits there.

use super::look::idle;
use crate::look::Look;
use crate::model::{Evidence, Libc, Snapshot, SyncKind, SyncObject};
use crate::runtimes::{self, Class, Nature};
use crate::symbols::{DataNames, LockVariable, library_by_name};
use crate::table::is_in_agent;
use crate::target::{LwpFacts, Target};
use crate::unwind::Sites;
use crate::{InnerTid, Lwp, RemoteAddr};
use std::collections::{BTreeMap, HashMap};

/// Objects outside of variables for whose names stacks are read.
const MAX_BY_STACK: usize = 256;

pub(crate) struct LockNamer<'a> {
    look: &'a Look<'a>,
    data: DataNames<'a>,
}

impl<'a> LockNamer<'a> {
    pub(super) fn new(look: &'a Look<'a>) -> Self {
        Self { look, data: look.data_names() }
    }

    /// The locks that variables of the target are, those of which only a symbol's size speaks only if their
    /// contents do as well.
    pub(super) fn variables(&self, is_thread: &dyn Fn(InnerTid) -> bool) -> Vec<(Class, String)> {
        let found = self.look.lock_variables().iter();
        let libc = self.look.libc();
        found.filter_map(|it| Some((classify(self.look.target, libc, it, is_thread)?, it.name.clone()))).collect()
    }

    /// Names those of the snapshot's objects that are `wanted` and have no name yet.
    pub(super) fn name(
        &mut self,
        snapshot: &mut Snapshot,
        facts: &BTreeMap<Lwp, LwpFacts>,
        wanted: &dyn Fn(&SyncObject) -> bool,
    ) {
        let threads: HashMap<Lwp, String> = snapshot
            .threads
            .iter()
            .filter_map(|thread| Some((thread.lwp?, format!("{} ({})", thread.name.as_deref()?, thread.lwp?))))
            .collect();
        let mut by_stack = Vec::new();
        for (index, object) in snapshot.objects.iter_mut().enumerate().filter(|(_, object)| wanted(object)) {
            // What a language knows by no name is no variable either.
            let is_plain = runtimes::nature(object.kind, object.family) == Nature::Plain;
            let is_of_language = object.noun().is_some() || !is_plain;
            if object.name.is_some() || is_of_language {
                continue;
            }
            object.name = match object.kind {
                SyncKind::Join => object.holders.first().and_then(|holder| threads.get(&holder.lwp?).cloned()),
                _ => self.name_of(object),
            };
            if object.name.is_none() && object.kind != SyncKind::Join {
                by_stack.push(index);
            }
        }
        by_stack.truncate(MAX_BY_STACK);
        self.name_by_stacks(snapshot, facts, &by_stack);
    }

    /// The name of a lock by where it is. Variables of the C library are known to few.
    fn name_of(&mut self, object: &SyncObject) -> Option<String> {
        let runtime = runtimes::of(object.family);
        let own = runtime.own_name(object, None, self.look.target);
        match own.is_none() && !runtime.is_inside_libc(object.family) {
            true => self.data.variable_at(object.address),
            false => own,
        }
    }

    /// Names objects that are in no variable, by the stack of a thread that has to do with each.
    fn name_by_stacks(&mut self, snapshot: &mut Snapshot, facts: &BTreeMap<Lwp, LwpFacts>, indices: &[usize]) {
        let rest = |lwp: Lwp| {
            let (sp, pc) = facts.get(&lwp)?.syscall.as_ref()?.registers()?;
            Some((lwp, sp, pc))
        };
        let user = |object: &SyncObject| {
            let waiters = object.waiters.iter().filter(|waiter| waiter.pid.is_none()).map(|waiter| waiter.lwp);
            waiters.chain(object.holders.iter().filter_map(|holder| holder.lwp)).find_map(rest)
        };
        let users: Vec<Option<(Lwp, RemoteAddr, RemoteAddr)>> =
            indices.iter().map(|index| user(&snapshot.objects[*index])).collect();
        let known: Vec<_> = users.iter().flatten().copied().collect();
        let mut sites = Sites::deep(self.look.target, &self.look.space).find(&known).into_iter();
        let functions = self.look.symbolizer();
        for (index, user) in indices.iter().zip(&users) {
            let object = &mut snapshot.objects[*index];
            let site = user.and_then(|_| sites.next());
            let (mut member, mut function) = (None, None);
            let runtime = runtimes::of(object.family);
            let entry = site.as_ref().and_then(|site| site.call.as_ref()).map(|call| call.function.as_str());
            if runtime.is_inside_libc(object.family)
                && let Some(name) = runtime.own_name(object, entry, self.look.target)
            {
                object.name = Some(name);
                continue;
            }
            if let Some(site) = site {
                let frames: Vec<RemoteAddr> = site.places.iter().map(|place| place.lookup()).collect();
                member = self.data.member_of(object.address, object.kind, &frames, &site.words);
                let target = self.look.target;
                let outside = frames.iter().filter(|pc| !target.is_in_libc(**pc) && !is_in_agent(target, **pc));
                let mut names = outside.filter_map(|pc| functions.enclosing_function(*pc)).peekable();
                let first = names.peek().cloned();
                // The program's own function says more than one of a library that it contains.
                function = names.find(|name| library_by_name(name).is_none()).or(first);
            }
            object.name = member.or_else(|| {
                let place = self.data.place_of(object.address)?;
                Some(match function {
                    Some(function) => format!("{place} (used in {})", without_arguments(&function)),
                    None => place,
                })
            });
        }
    }
}

/// Names those objects that are `wanted` and have no name yet, for the threads that wait for them or hold them, too.
pub(crate) fn name_objects(look: &Look<'_>, snapshot: &mut Snapshot, wanted: &dyn Fn(&SyncObject) -> bool) {
    LockNamer::new(look).name(snapshot, &look.facts(), wanted);
    let names = snapshot.objects.iter().filter(|object| wanted(object));
    let names: HashMap<RemoteAddr, &String> =
        names.filter_map(|object| Some((object.address, object.name.as_ref()?))).collect();
    let name = |known: &mut Option<String>, address: RemoteAddr| {
        if known.is_none() {
            *known = names.get(&address).map(|name| (*name).clone());
        }
    };
    for thread in &mut snapshot.threads {
        thread.waits_for.iter_mut().for_each(|waits| name(&mut waits.name, waits.address));
        thread.holds.iter_mut().for_each(|held| name(&mut held.name, held.address));
    }
}

/// The name of a function without the types of its arguments: `Pool::take` of `Pool::take(int, char const*) const`.
fn without_arguments(function: &str) -> &str {
    let Some(before) = function.trim_end_matches(" const").strip_suffix(')') else { return function };
    let mut open = 1;
    let begin = before.char_indices().rev().find(|(_, letter)| {
        open += i32::from(*letter == ')') - i32::from(*letter == '(');
        open == 0
    });
    match begin {
        Some((begin, _)) if begin > 0 => &function[..begin],
        _ => function,
    }
}

/// What a variable is, if its contents do not contradict.
fn classify(
    target: &dyn Target,
    libc: &Libc,
    variable: &LockVariable,
    is_thread: &dyn Fn(InnerTid) -> bool,
) -> Option<Class> {
    let family = runtimes::own_family(variable.family, libc);
    let class = |kind| idle(kind, family, variable.address, variable.evidence);
    if variable.evidence <= Evidence::Derived {
        return Some(class(variable.kind));
    }
    let runtime = runtimes::of(family);
    let mut bytes = vec![0; runtime.bytes_of(variable.kind, family)];
    target.read_exact(variable.address, &mut bytes).ok()?;
    runtime.in_use(variable.kind, &bytes, is_thread).map(class)
}

#[cfg(test)]
mod tests {
    use super::without_arguments;

    #[test]
    fn functions_without_arguments() {
        for (name, short) in [
            ("take", "take"),
            ("Pool::take(int, char const*) const", "Pool::take"),
            ("main::{lambda()#1}::operator()() const", "main::{lambda()#1}::operator()"),
            ("std::sync::Mutex<T>::lock", "std::sync::Mutex<T>::lock"),
            ("(anonymous namespace)::go(void (*)())", "(anonymous namespace)::go"),
            (")", ")"),
        ] {
            assert_eq!(without_arguments(name), short);
        }
    }
}
