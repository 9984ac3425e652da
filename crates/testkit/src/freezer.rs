//! Control groups that are frozen.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A control group that can be frozen; it is thawed and goes when this is dropped.
pub struct Freezer {
    /// Its directory.
    pub dir: PathBuf,
    /// Of version 2.
    pub is_v2: bool,
}

impl Freezer {
    /// One of each version that this machine has.
    pub fn all() -> Vec<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("tg-frozen-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let places = [("/sys/fs/cgroup/freezer", false), ("/sys/fs/cgroup/unified", true), ("/sys/fs/cgroup", true)];
        let made = places.into_iter().filter_map(|(place, is_v2)| {
            let dir = Path::new(place).join(&name);
            std::fs::create_dir(&dir).ok()?;
            let freezer = Self { dir, is_v2 };
            let file = freezer.dir.join(if is_v2 { "cgroup.freeze" } else { "freezer.state" });
            file.exists().then_some(freezer)
        });
        made.collect()
    }

    /// Freezes or thaws it, and waits until it is so.
    pub fn set(&self, is_frozen: bool) {
        let (file, word) = match (self.is_v2, is_frozen) {
            (true, true) => ("cgroup.freeze", "1"),
            (true, false) => ("cgroup.freeze", "0"),
            (false, true) => ("freezer.state", "FROZEN"),
            (false, false) => ("freezer.state", "THAWED"),
        };
        std::fs::write(self.dir.join(file), word).expect("its state can be set");
        crate::eventually("the group should follow", || {
            let read = |name: &str| std::fs::read_to_string(self.dir.join(name)).unwrap_or_default();
            match self.is_v2 {
                true => read("cgroup.events").contains(if is_frozen { "frozen 1" } else { "frozen 0" }),
                false => read("freezer.state").trim() == word,
            }
        });
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.set(false);
        }
        crate::holds_within(Duration::from_secs(5), || std::fs::remove_dir(&self.dir).is_ok());
    }
}
