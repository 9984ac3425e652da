//! Two processes and their pipes: one writes all that it has before it reads anything, the other answers as it reads. Both
//! pipes are full then, and both processes wait in write(2).

use std::io::{self, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// More than a pipe takes, both ways.
const MUCH: usize = 1 << 20;

/// Gives the filter all that there is.
#[inline(never)]
fn send_all(filter: &mut ChildStdin) -> io::Result<()> {
    filter.write_all(&vec![b'x'; MUCH])
}

/// Reads what the filter has made of it.
#[inline(never)]
fn read_answer(filter: &mut ChildStdout) -> io::Result<()> {
    filter.read_to_end(&mut Vec::new()).map(drop)
}

/// Starts `filter`, which is [`filter`] in a process of its own, and uses it in the wrong way.
pub fn pipes(parent: u32, mut filter: Command) -> io::Result<()> {
    crate::posix::end_with_parent(parent);
    crate::posix::name_thread(c"orders");
    let mut child = filter.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut to, mut from) = (child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?, child.stdout.take());
    crate::say_ready()?;
    send_all(&mut to)?;
    drop(to);
    from.as_mut().map_or(Ok(()), read_answer)?;
    child.wait().map(drop)
}

/// Gives back each line that it reads, at once.
pub fn filter(parent: u32) -> io::Result<()> {
    crate::posix::end_with_parent(parent);
    crate::posix::name_thread(c"filter");
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    let mut piece = [0; 4096];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            got => to.write_all(&piece[..got]).and_then(|()| to.flush())?,
        }
    }
}
