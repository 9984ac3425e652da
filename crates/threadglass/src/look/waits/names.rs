//! Names for objects: the variable, the member of a type, or at least the place and who waits there.

use super::look::idle;
use crate::look::Look;
use crate::model::{Evidence, Snapshot, SyncKind, SyncObject};
use crate::runtimes::{self, Class};
use crate::symbols::{DataNames, LockVariable};
use crate::table::is_in_agent;
use crate::target::{Library, LwpFacts, Target};
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
        found.filter_map(|it| Some((classify(self.look.target, it, is_thread)?, it.name.clone()))).collect()
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
            if object.name.is_some() {
                continue;
            }
            object.name = match object.kind {
                SyncKind::Join => object.holders.first().and_then(|holder| threads.get(&holder.lwp?).cloned()),
                _ => self.data.variable_at(object.address).map(|name| self.of_loader(object.address, name)),
            };
            if object.name.is_none() && object.kind != SyncKind::Join {
                by_stack.push(index);
            }
        }
        by_stack.truncate(MAX_BY_STACK);
        self.name_by_stacks(snapshot, facts, &by_stack);
    }

    /// The name of a lock, which is `variable`: of the dynamic loader's only few know the variables.
    fn of_loader(&self, address: RemoteAddr, variable: String) -> String {
        let module = self.look.target.module_at(address);
        match module.is_some_and(|module| module.library() == Library::Loader) {
            true => format!("the dynamic loader's lock ({variable})"),
            false => variable,
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
            if let Some(site) = site {
                let frames: Vec<RemoteAddr> = site.places.iter().map(|place| place.lookup()).collect();
                member = self.data.member_of(object.address, object.kind, &frames, &site.words);
                let target = self.look.target;
                let outside = frames.iter().find(|pc| !target.is_in_libc(**pc) && !is_in_agent(target, **pc));
                function = outside.and_then(|pc| functions.enclosing_function(*pc));
            }
            object.name = member.or_else(|| {
                let place = self.data.place_of(object.address)?;
                Some(match function {
                    Some(function) => format!("{place}, used in {function}"),
                    None => place,
                })
            });
        }
    }
}

/// What a variable is, if its contents do not contradict.
fn classify(target: &dyn Target, variable: &LockVariable, is_thread: &dyn Fn(InnerTid) -> bool) -> Option<Class> {
    let class = |kind| idle(kind, variable.family, variable.address, variable.evidence);
    if variable.evidence <= Evidence::Derived {
        return Some(class(variable.kind));
    }
    let runtime = runtimes::of(variable.family);
    let mut bytes = vec![0; runtime.bytes_of(variable.kind, variable.family)];
    target.read_exact(variable.address, &mut bytes).ok()?;
    runtime.in_use(variable.kind, &bytes, is_thread).map(class)
}
