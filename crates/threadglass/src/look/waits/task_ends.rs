//! What is at the descriptors that tasks wait at, and who has the other end.

use super::calls::Awaited;
use super::net::Net;
use super::partners::at_descriptor;
use super::tell::Teller;
use crate::host::Host;
use crate::model::{Direction, Gap, OutsideKind, OutsideWait, Snapshot};
use crate::target::Target;
use std::collections::HashMap;
use std::rc::Rc;

/// Descriptors that are asked about. A server may have very many.
const MOST: usize = 512;

/// Says of each task that waits at a descriptor what is there, and which processes have the other end.
pub(super) fn add_task_ends(target: &dyn Target, snapshot: &mut Snapshot) {
    // The processes of this machine are not those of a core: it may be of another time and place.
    let is_asked = snapshot.tasks.iter().any(|task| task.wait.as_ref().is_some_and(|wait| wait.descriptor.is_some()));
    if !is_asked || snapshot.target.core.is_some() || target.denial().is_some() {
        return;
    }
    let net = Net::new(&Rc::new(Host::new(target.limits())));
    let teller = Teller::brief(&net);
    let mut known: HashMap<(u32, Option<Direction>), Option<Box<OutsideWait>>> = HashMap::new();
    let mut left_out = 0;
    for wait in snapshot.tasks.iter_mut().filter_map(|task| task.wait.as_mut()) {
        let Some(number) = wait.descriptor else { continue };
        let key = (number, wait.direction);
        if !known.contains_key(&key) && (known.len() >= MOST || target.limits().is_over()) {
            left_out += 1;
            continue;
        }
        let end = known.entry(key).or_insert_with(|| end(target, &net, &teller, number, wait.direction).map(Box::new));
        wait.outside.clone_from(end);
    }
    if left_out > 0 {
        let why = format!("tasks wait at more than {MOST} descriptors; of {left_out} that was not asked");
        snapshot.gaps.push(Gap::whole("who is at the other end", why));
    }
}

fn end(
    target: &dyn Target,
    net: &Net,
    teller: &Teller<'_>,
    number: u32,
    direction: Option<Direction>,
) -> Option<OutsideWait> {
    let number = i32::try_from(number).ok()?;
    let partners = direction.and_then(|direction| at_descriptor(&net.host, target, Awaited { number, direction }));
    if let Some(one) = partners {
        return Some(OutsideWait { direction, ..teller.end(&one) });
    }
    // Whoever connects to a socket that listens ends the wait.
    let socket = net.host.socket(target.pid(), &target.descriptor_file(number)?)?;
    let what = Some(socket.what.clone());
    Some(OutsideWait { direction, what, ..OutsideWait::new(OutsideKind::Socket, socket.what) })
}
