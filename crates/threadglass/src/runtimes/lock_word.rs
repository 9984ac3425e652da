//! How a lock's word is changed by code that takes or releases it.

/// What the word of a lock says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockWord {
    /// Where in the lock the word is.
    pub(crate) at: u64,
    /// Bytes that an instruction can change at once that changes the word.
    pub(crate) sizes: &'static [u8],
    /// How much a word says that it is held.
    pub(crate) held: fn(u64) -> u64,
    /// How much more it is held after a number was added to it.
    pub(crate) added: fn(i64) -> i64,
    /// Whether programs take it by calling a function with a name. Then only who wants it changes its word without
    /// taking or releasing it; others do such things after a release, too.
    pub(crate) is_called: bool,
    /// Whether programs may contain these functions, where only symbols that nobody loads name them.
    pub(crate) may_be_inside: bool,
    /// Whether those who wait stand in a queue elsewhere, with a lock of its own, which functions for one lock take.
    pub(crate) has_queue: bool,
}

impl Default for LockWord {
    fn default() -> Self {
        Self {
            at: 0,
            sizes: &[1, 2, 4, 8],
            held: |word| u64::from(word != 0),
            added: |by| by,
            is_called: false,
            may_be_inside: false,
            has_queue: false,
        }
    }
}
