//! What an entry stands for, in one word.

/// Kinds of objects, as keys have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// `pthread_mutex_t`, `mtx_t`.
    Mutex = 1,
    /// `pthread_cond_t`, `cnd_t`.
    Cond = 2,
    /// `pthread_rwlock_t`.
    Rwlock = 3,
    /// `sem_t`.
    Sema = 4,
    /// `pthread_barrier_t`.
    Barrier = 5,
    /// `pthread_spinlock_t`.
    Spin = 6,
}

impl Kind {
    /// Units of 64 bytes that its entry takes.
    pub const fn units(self) -> u32 {
        match self {
            Self::Rwlock => 2,
            _ => 1,
        }
    }

    const fn of(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Mutex,
            2 => Self::Cond,
            3 => Self::Rwlock,
            4 => Self::Sema,
            5 => Self::Barrier,
            6 => Self::Spin,
            _ => return None,
        })
    }
}

/// Address (bits 0 to 47), kind (48 to 51), whether the entry has two units (52), generation (53 to 62). A kind of 0 is
/// an object that has ended, 15 the second unit of an entry; a key of 0 an entry that was never used. Address and kind
/// are at the low end, so that one shift compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u64);

const ADDRESS: u64 = (1 << 48) - 1;
const KIND_SHIFT: u32 = 48;
const KIND: u64 = 0xf << KIND_SHIFT;
const WIDE: u64 = 1 << 52;
const GENERATION_SHIFT: u32 = 53;
const GENERATION: u64 = 0x3ff << GENERATION_SHIFT;

impl Key {
    /// Begins the second unit of an entry.
    pub const CONTINUED: Self = Self(15 << KIND_SHIFT);

    /// The key of a new object.
    pub const fn new(address: u64, kind: Kind) -> Self {
        let wide = if kind.units() == 2 { WIDE } else { 0 };
        Self(address & ADDRESS | wide | (kind as u64) << KIND_SHIFT)
    }

    /// Whether addresses like this one can be in a key.
    pub const fn fits(address: u64) -> bool {
        address & !ADDRESS == 0 && address != 0
    }

    /// Where the object is.
    pub const fn address(self) -> u64 {
        self.0 & ADDRESS
    }

    /// What it is; `None` for what has ended, and for what is no entry.
    pub const fn kind(self) -> Option<Kind> {
        Kind::of((self.0 & KIND) >> KIND_SHIFT)
    }

    /// How many objects the entry stood for before, modulo 1024.
    pub const fn generation(self) -> u64 {
        (self.0 & GENERATION) >> GENERATION_SHIFT
    }

    /// Whether the entry has two units.
    pub const fn is_wide(self) -> bool {
        self.0 & WIDE != 0
    }

    /// Whether it is the address and kind of `other`, whatever the generation and width.
    #[inline(always)]
    pub const fn is_same(self, other: Self) -> bool {
        (self.0 ^ other.0) << (64 - WIDE.trailing_zeros()) == 0
    }

    /// The same object after its end.
    pub const fn ended(self) -> Self {
        let next = (self.0 & GENERATION).wrapping_add(1 << GENERATION_SHIFT) & GENERATION;
        Self(self.0 & (ADDRESS | WIDE) | next)
    }

    /// An ended object's successor.
    pub const fn reborn(self, kind: Kind) -> Self {
        Self(self.0 & (ADDRESS | WIDE | GENERATION) | (kind as u64) << KIND_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_parts_apart() {
        let key = Key::new(0x7fff_ffff_fff0, Kind::Rwlock);
        assert_eq!((key.address(), key.kind(), key.generation()), (0x7fff_ffff_fff0, Some(Kind::Rwlock), 0));
        assert!(key.is_wide());
        let ended = key.ended();
        assert_eq!((ended.address(), ended.kind(), ended.generation()), (0x7fff_ffff_fff0, None, 1));
        let mutex = ended.reborn(Kind::Mutex);
        assert_eq!((mutex.kind(), mutex.generation(), mutex.is_wide()), (Some(Kind::Mutex), 1, true));
        assert!(mutex.is_same(Key::new(0x7fff_ffff_fff0, Kind::Mutex)));
        assert!(!mutex.is_same(Key::new(0x7fff_ffff_fff0, Kind::Cond)));
        assert!(!mutex.is_same(Key::new(0x7fff_ffff_ff00, Kind::Mutex)));
        let mut key = Key::new(8, Kind::Sema);
        for _ in 0..1024 {
            key = key.ended().reborn(Kind::Sema);
        }
        assert_eq!(key, Key::new(8, Kind::Sema));
        assert_eq!(Key::CONTINUED.kind(), None);
        assert!(!Key::fits(0) && !Key::fits(1 << 48) && Key::fits(1));
    }
}
