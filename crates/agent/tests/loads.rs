//! What the agent asks of the C library it is loaded with.

use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, elf};

type Header = elf::FileHeader64<Endianness>;

/// The oldest C library it is to work with.
const OLDEST: (u32, u32) = (2, 31);

/// What stands between a program and its C library.
#[rustfmt::skip]
const FUNCTIONS: &[&str] = &[
    "pthread_mutex_init", "pthread_mutex_destroy", "pthread_mutex_lock", "pthread_mutex_trylock",
    "pthread_mutex_timedlock", "pthread_mutex_clocklock", "pthread_mutex_unlock", "pthread_mutex_consistent",
    "pthread_cond_init", "pthread_cond_destroy", "pthread_cond_wait", "pthread_cond_timedwait",
    "pthread_cond_clockwait", "pthread_cond_signal", "pthread_cond_broadcast",
    "pthread_rwlock_init", "pthread_rwlock_destroy", "pthread_rwlock_rdlock", "pthread_rwlock_wrlock",
    "pthread_rwlock_tryrdlock", "pthread_rwlock_trywrlock", "pthread_rwlock_timedrdlock",
    "pthread_rwlock_timedwrlock", "pthread_rwlock_clockrdlock", "pthread_rwlock_clockwrlock", "pthread_rwlock_unlock",
    "sem_init", "sem_destroy", "sem_wait", "sem_trywait", "sem_timedwait", "sem_clockwait", "sem_post",
    "pthread_barrier_init", "pthread_barrier_destroy", "pthread_barrier_wait",
    "pthread_spin_init", "pthread_spin_destroy", "pthread_spin_lock", "pthread_spin_trylock", "pthread_spin_unlock",
    "mtx_init", "mtx_destroy", "mtx_lock", "mtx_trylock", "mtx_timedlock", "mtx_unlock",
    "cnd_init", "cnd_destroy", "cnd_wait", "cnd_timedwait", "cnd_signal", "cnd_broadcast",
    "pthread_create", "dlopen", "dlsym", "dlvsym",
];

/// What it exports for tools and debuggers.
const OWN: &[&str] = &["threadglass_agent", "threadglass_attach", "threadglass_control", "threadglass_track"];

fn version(name: &str) -> (u32, u32) {
    let digits = name.strip_prefix("GLIBC_").unwrap_or_else(|| panic!("{name} is no version of glibc"));
    let mut parts = digits.split('.').map(|part| part.parse::<u32>().unwrap());
    (parts.next().unwrap(), parts.next().unwrap())
}

#[test]
fn old_libraries_have_what_it_needs() {
    let header = Header::parse(agent::AGENT).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, agent::AGENT).unwrap();
    let mut needs = 0;
    if let Some((mut entries, link)) = sections.gnu_verneed(endian, agent::AGENT).unwrap() {
        let strings = sections.strings(endian, agent::AGENT, link).unwrap();
        while let Some((need, mut versions)) = entries.next().unwrap() {
            let _ = need.file(endian, strings).unwrap();
            while let Some(aux) = versions.next().unwrap() {
                let name = std::str::from_utf8(aux.name(endian, strings).unwrap()).unwrap();
                assert!(version(name) <= OLDEST, "{name} is newer than glibc 2.31");
                needs += 1;
            }
        }
    }
    assert!(needs > 0, "it needs the loader's list of objects, at least");
}

#[test]
fn it_needs_the_loader_alone() {
    let header = Header::parse(agent::AGENT).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, agent::AGENT).unwrap();
    let symbols = sections.symbols(endian, agent::AGENT, elf::SHT_DYNSYM).unwrap();
    let names = |undefined: bool| -> Vec<&str> {
        let chosen = symbols.iter().filter(|symbol| symbol.st_name.get(endian) != 0);
        let chosen = chosen.filter(|symbol| (symbol.st_shndx.get(endian) == elf::SHN_UNDEF) == undefined);
        chosen.map(|symbol| std::str::from_utf8(symbols.symbol_name(endian, symbol).unwrap()).unwrap()).collect()
    };
    // The weak ones are the linker's start files'; the two functions are what the compiler makes of loops.
    let mine = ["_r_debug", "strlen", "memset", "memcpy", "bcmp", "memcmp"];
    let weak = ["_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__cxa_finalize", "__gmon_start__"];
    for name in names(true) {
        assert!(mine.contains(&name) || weak.contains(&name), "it needs {name}");
    }
    let exported = names(false);
    assert!(OWN.iter().all(|name| exported.contains(name)), "{exported:?}");
    for name in &exported {
        let is_ours = OWN.contains(name)
            || ["pthread_", "sem_", "mtx_", "cnd_", "dl"].iter().any(|prefix| name.starts_with(prefix));
        assert!(is_ours, "it exports {name}");
    }
    for name in FUNCTIONS {
        assert!(exported.contains(name), "{name} is not interposed");
    }
    assert_eq!(exported.len(), FUNCTIONS.len() + OWN.len(), "{exported:?}");
    let list = sections.iter().find(|section| sections.section_name(endian, section) == Ok(b".init_array"));
    assert!(list.is_some_and(|list| list.sh_size(endian) > 0), "it has no constructor");
}
