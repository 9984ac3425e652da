//! Which Qt a target has loaded: releases keep what their locks lead to in different places.

use crate::RemoteAddr;
use crate::elf::Image;
use crate::target::Target;

/// A layout of what the locks of Qt lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// 5.15.
    Five,
    /// 6.4 to 6.6.
    Six,
    /// 6.7 to 6.11.
    SixSeven,
}

/// How the files of its library begin.
const FIVE: &str = "libQt5Core";
const SIX: &str = "libQt6Core";
/// What the library exports since 6.7.
const SIX_SEVEN_TAG: &str = "qt_version_tag_6_7";

impl Release {
    /// That of `target`.
    pub(crate) fn of(target: &dyn Target) -> Option<Self> {
        let named = |name: &str| target.modules().iter().find(|module| module.file_name().starts_with(name));
        if let Some(six) = named(SIX) {
            let image = Image::load(target, six.base).ok()?;
            let is_later = image.find_export(target, SIX_SEVEN_TAG).is_some();
            return Some(if is_later { Self::SixSeven } else { Self::Six });
        }
        named(FIVE).map(|_| Self::Five)
    }
}

/// Whether `addr` is in the library.
pub(super) fn is_inside(target: &dyn Target, addr: RemoteAddr) -> bool {
    target.module_at(addr).is_some_and(|module| {
        let name = module.file_name();
        name.starts_with(FIVE) || name.starts_with(SIX)
    })
}
