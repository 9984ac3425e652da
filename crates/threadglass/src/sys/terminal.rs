//! Size of a terminal.

use std::os::fd::{AsFd, AsRawFd};

/// Lines of the terminal that `file` is, if it is one and says so.
pub fn lines(file: &impl AsFd) -> Option<usize> {
    size(file).map(|size| usize::from(size.ws_row)).filter(|lines| *lines > 0)
}

/// Columns of the terminal that `file` is, if it is one and says so.
pub fn columns(file: &impl AsFd) -> Option<usize> {
    size(file).map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

fn size(file: &impl AsFd) -> Option<libc::winsize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: a descriptor that is open, and room for what the call writes.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (result == 0).then_some(size)
}
