//! The hangs that fixtures have: each is the argument that the program takes.

/// Scenes of `hangs.c`.
pub const SCENES: [&str; 24] = [
    "behind_read",
    "behind_sleep",
    "behind_compute",
    "behind_cond",
    "several_roots",
    "only_join",
    "deep_chain",
    "pool_alone",
    "sem_alone",
    "barrier_alone",
    "word_alone",
    "idle_epoll",
    "idle_accept",
    "single_read",
    "child",
    "busy",
    "handed_over",
    "rw_readers",
    "rw_circle",
    "in_handler",
    "mapped_twice",
    "shared_word",
    "own_pipe",
    "sem_circle",
];

/// Scenes of `hangs_cxx.cc`.
pub const OF_CXX: [&str; 8] = [
    "behind_read",
    "pool_alone",
    "future_alone",
    "atomic_alone",
    "latch_alone",
    "sem_alone",
    "rw_circle",
    "behind_static",
];

/// Scenes of `hangs_rust.rs`.
pub const OF_RUST: [&str; 6] =
    ["behind_read", "pool_alone", "park_alone", "channel_alone", "barrier_alone", "rw_circle"];

/// Scenarios of `deadlocks.c`, but for a thread that was about to run, and a thousand.
pub const DEADLOCKS: [&str; 21] = [
    "abba",
    "abba_heap",
    "two_cycles",
    "joins",
    "owner_died",
    "chain_read",
    "chain_nanosleep",
    "cond_alone",
    "heir_self",
    "heir_abba",
    "philosophers",
    "writers",
    "readers",
    "recursive_read",
    "reader_behind_writer",
    "self",
    "join_mutex",
    "owner_exited",
    "chain_cond",
    "semaphores",
    "timed",
];
