//! Small types for numbers that are easily swapped.

use std::fmt;

/// An address in the inspected process. Never a pointer of ours.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(schemars::JsonSchema))]
pub struct RemoteAddr(#[cfg_attr(feature = "serde", schemars(with = "String"))] pub u64);

impl RemoteAddr {
    /// The null address.
    pub const NULL: Self = Self(0);

    /// Whether this is the null address.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// `self + offset`, or `None` when that leaves the address space: targets may lie.
    pub fn checked_add(self, offset: u64) -> Option<Self> {
        self.0.checked_add(offset).map(Self)
    }

    /// `self - offset`, or `None` below zero.
    pub fn checked_sub(self, offset: u64) -> Option<Self> {
        self.0.checked_sub(offset).map(Self)
    }

    /// `self + offset` modulo 2^64. For offsets that were checked before, or whose wrapped result
    /// simply fails to be readable.
    pub fn offset(self, offset: u64) -> Self {
        Self(self.0.wrapping_add(offset))
    }
}

impl fmt::Display for RemoteAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for RemoteAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for RemoteAddr {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for RemoteAddr {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let number = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.map(Self).ok_or_else(|| serde::de::Error::custom("not an address"))
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// What `pthread_self()` returns in that thread: the address of glibc's thread descriptor.
    PthreadId(RemoteAddr);
    /// A process id in *our* pid namespace.
    Pid(i32);
    /// A kernel thread id (light-weight process) in *our* pid namespace.
    Lwp(i32);
    /// A kernel thread id as the target itself sees it. Differs from [`Lwp`] when the target lives
    /// in a pid namespace of its own (a container); lock words and descriptors hold this one.
    InnerTid(i32);
}

impl Pid {
    /// The calling process.
    pub fn me() -> Self {
        Self(std::process::id() as i32)
    }

    /// The LWP that is the process's thread group leader.
    pub fn leader(self) -> Lwp {
        Lwp(self.0)
    }
}
