//! How a lock's word is changed by code that takes or releases it.

/// Bytes that an instruction changes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordSize {
    Any,
    Exactly(u8),
    AtLeast(u8),
}

/// What the word of a lock says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockWord {
    pub(crate) size: WordSize,
    /// How much a word says that it is held.
    pub(crate) held: fn(u64) -> u64,
    /// How much more it is held after a number was added to it.
    pub(crate) added: fn(i64) -> i64,
    /// Whether programs take it by calling a function with a name. Then only who wants it changes its word without
    /// taking or releasing it; others do such things after a release, too.
    pub(crate) is_called: bool,
}

impl Default for LockWord {
    fn default() -> Self {
        Self { size: WordSize::Any, held: |word| u64::from(word != 0), added: |by| by, is_called: false }
    }
}

impl LockWord {
    /// Whether an instruction that changes so many bytes changes the word.
    pub(crate) fn has_size(&self, size: u8) -> bool {
        match self.size {
            WordSize::Any => true,
            WordSize::Exactly(bytes) => size == bytes,
            WordSize::AtLeast(bytes) => size >= bytes,
        }
    }
}
