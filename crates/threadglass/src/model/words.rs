//! Enums whose values have words.

/// Defines an enum, with a word for each of its values.
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$about])*
        pub enum $name {
            $($(#[$doc])* $value,)*
        }

        impl $name {
            /// All of them, in the order of the definition.
            pub const ALL: [Self; [$(Self::$value),*].len()] = [$(Self::$value),*];

            /// The word used on the command line and on screens.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }
        }
    };
}

pub(super) use words;

/// A word of this program. A type of its own name, since what serde derives would borrow a reference from what it reads.
pub type Word = &'static str;

#[cfg(feature = "serde")]
pub(super) use kept::{known, maybe_known};

/// Words that come from a file.
#[cfg(feature = "serde")]
mod kept {
    use super::Word;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer};
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};

    /// There are a few dozen of them, all short. They are kept for ever, so a file that makes more of them up is refused.
    const MOST: usize = 512;
    const LONGEST: usize = 200;

    static WORDS: Mutex<BTreeSet<Word>> = Mutex::new(BTreeSet::new());

    fn keep(text: &str) -> Option<Word> {
        let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(word) = words.get(text) {
            return Some(word);
        }
        if words.len() >= MOST || text.len() > LONGEST {
            return None;
        }
        let word: Word = Box::leak(text.into());
        words.insert(word);
        Some(word)
    }

    pub(in crate::model) fn known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
        keep(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("a word that no snapshot has"))
    }

    pub(in crate::model) fn maybe_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Word>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        keep(&text).map(Some).ok_or_else(|| D::Error::custom("a word that no snapshot has"))
    }
}
