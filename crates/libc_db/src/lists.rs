//! What an iteration goes through.
//!
//! A client may leave its callback by longjmp. Then nothing is ever dropped that the call owned, so while foreign code runs a
//! call owns no memory: its list belongs to the session, and the call knows its number. The lists of calls that were left
//! go when others come, and all go with the session.

use crate::abi::{Td, TdErr};
use crate::session::{Session, lock};
use crate::sessions::Place;
use std::any::Any;
use std::marker::PhantomData;

/// Lists that are kept although their calls seem to have been left. A client with several stacks on one thread may come
/// back to a call that looks so.
const LEFT: usize = 8;
/// Lists of a session in all, also of threads that have ended.
const MOST: usize = 256;

/// The lists of a session.
#[derive(Default)]
pub(crate) struct Lists {
    last: u64,
    /// The oldest first.
    open: Vec<List>,
    ended: bool,
}

struct List {
    number: u64,
    place: Place,
    items: Box<dyn Any + Send>,
}

impl Lists {
    fn begin(&mut self, place: Place, items: Box<dyn Any + Send>) -> u64 {
        let mut left = self.open.iter().filter(|list| list.place.is_left_for(place)).count();
        self.open.retain(|list| {
            let drops = left > LEFT && list.place.is_left_for(place);
            left -= usize::from(drops);
            !drops
        });
        if self.open.len() >= MOST {
            self.open.remove(0);
        }
        self.last += 1;
        self.open.push(List { number: self.last, place, items });
        self.last
    }

    /// Frees them, but for those that a call around this one goes through: it goes on to their end. Another thread that still
    /// goes through one is told that the session has ended.
    pub(crate) fn end(&mut self, now: Place) {
        self.open.retain(|list| list.place.is_around(now));
        self.ended = true;
    }
}

/// One pass through a list of the session's.
pub(crate) struct Pass<'a, T> {
    session: &'a Session,
    number: u64,
    next: usize,
    items: PhantomData<T>,
}

impl<'a, T: Clone + Send + 'static> Pass<'a, T> {
    /// Gives a list to the session, and begins with its first item.
    pub(crate) fn new(session: &'a Session, place: Place, items: Vec<T>) -> Self {
        let number = lock(&session.lists).begin(place, Box::new(items));
        Self { session, number, next: 0, items: PhantomData }
    }

    /// The next item; an error if the list is gone.
    pub(crate) fn next(&mut self) -> Td<Option<T>> {
        let lists = lock(&self.session.lists);
        let list = lists.open.iter().find(|list| list.number == self.number);
        let Some(items) = list.and_then(|list| list.items.downcast_ref::<Vec<T>>()) else {
            return Err(if lists.ended { TdErr::BadPh } else { TdErr::Err });
        };
        let item = items.get(self.next).cloned();
        self.next += 1;
        Ok(item)
    }
}

impl<T> Drop for Pass<'_, T> {
    // Also runs when the client's exception passes through.
    fn drop(&mut self) {
        lock(&self.session.lists).open.retain(|list| list.number != self.number);
    }
}
