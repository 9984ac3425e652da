//! Where things may be named: rules of ARCHITECTURE.md that the compiler does not know.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of the crate, from bottom to top: each uses those before it and none behind it.
const ROOMS: [&str; 21] = [
    "ids",
    "by_number",
    "model",
    "memory",
    "arch",
    "proc",
    "sys",
    "own_dir",
    "limits",
    "elf",
    "target",
    "symbols",
    "unwind",
    "runtimes",
    "host",
    "table",
    "perf",
    "look",
    "snap",
    "act",
    "measure",
];

/// The crate's source files, with the room that each belongs to.
fn sources() -> Vec<(String, PathBuf)> {
    fn gather(dir: &Path, room: Option<&str>, found: &mut Vec<(String, PathBuf)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let room = room.unwrap_or(&stem);
            if path.is_dir() {
                gather(&path, Some(room), found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((room.to_owned(), path));
            }
        }
    }
    let mut found = Vec::new();
    gather(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, &mut found);
    assert!(found.len() > 100, "{} files", found.len());
    found
}

/// The code of a file without its comments and its tests: those may use anything. What it names by going up to the
/// crate's root is written as from there.
fn code(file: &Path) -> String {
    let inside = file.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let depth = inside.components().count() - usize::from(inside.ends_with("mod.rs"));
    let text = fs::read_to_string(file).unwrap().replace(&"super::".repeat(depth), "crate::");
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The rooms that code names: `crate::room`, and each in `crate::{room::x, other::y}`.
fn rooms_used(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        match rest.strip_prefix('{') {
            None => used.push(name(rest)),
            Some(list) => {
                let (mut depth, mut part) = (0, String::new());
                for c in list.chars() {
                    match c {
                        '}' if depth == 0 => break,
                        ',' if depth == 0 => used.push(name(std::mem::take(&mut part).trim())),
                        _ => {
                            depth += i32::from(c == '{') - i32::from(c == '}');
                            part.push(c);
                        }
                    }
                }
                used.push(name(part.trim()));
            }
        }
    }
    used
}

/// The rooms of the names that the crate's root gives on: `pub use sys::interrupt::{Asked, Interrupt};`.
fn names_at_root(root: &str) -> HashMap<&str, &str> {
    let mut rooms = HashMap::new();
    for path in root.lines().filter_map(|line| line.strip_prefix("pub use ")?.strip_suffix(';')) {
        let room = path.split("::").next().unwrap_or_default();
        let list = path.rsplit("::").next().unwrap_or_default().trim_matches(['{', '}']);
        let names = list.split(',').filter_map(|name| name.rsplit(" as ").next());
        rooms.extend(names.map(|name| (name.trim(), room)));
    }
    rooms
}

#[test]
fn a_room_uses_only_rooms_below_it() {
    assert_eq!(rooms_used("use crate::{Lwp, act::{a, b}, look::X};"), ["Lwp", "act", "look"]);
    assert_eq!(rooms_used("let x = crate::sys::vm::read(); use crate::model;"), ["sys", "model"]);
    let root = "pub use ids::{Lwp, Pid};\npub use sys::terminal::{columns as terminal_columns};\npub use arch::name;\n";
    let named = [("Lwp", "ids"), ("Pid", "ids"), ("terminal_columns", "sys"), ("name", "arch")];
    assert_eq!(names_at_root(root), HashMap::from(named));
    let root = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let names = names_at_root(&root);
    assert_eq!(names.get("Limits"), Some(&"limits"));
    let level = |name: &str| {
        let room = names.get(name).copied().unwrap_or(name);
        ROOMS.iter().position(|known| *known == room)
    };
    let mut wrong = Vec::new();
    for (room, file) in sources().into_iter().filter(|(room, _)| room != "lib") {
        let own = level(&room).unwrap_or_else(|| panic!("{room} is in no row of ROOMS"));
        let code = code(&file);
        let above = rooms_used(&code).into_iter().filter(|used| level(used).is_some_and(|used| used > own));
        wrong.extend(above.map(|used| format!("{}: {room} uses {used}", file.display())));
    }
    assert!(wrong.is_empty(), "against the order of the rooms:\n{}", wrong.join("\n"));
}

/// A family of locks is a folder in `runtimes`: who looks asks it through the contract.
#[test]
fn nothing_that_looks_names_a_family() {
    let rooms = ["symbols", "unwind", "look", "act", "measure"];
    for (_, file) in sources().into_iter().filter(|(room, _)| rooms.contains(&room.as_str())) {
        let code = code(&file);
        assert!(!code.contains("Family::"), "{} names a family of locks", file.display());
        assert!(!code.contains("glibc::locks"), "{} names locks of glibc", file.display());
    }
}

/// Whether `word` is a register of x86-64, in any case, or a system call by its C name, or the number of futex.
fn is_of_the_processor(word: &str) -> bool {
    const REGISTERS: [&str; 20] = [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
        "r15", "orig_rax", "orig_ax", "eflags",
    ];
    const CAPABILITY: &str = "SYS_PTRACE";
    REGISTERS.iter().any(|register| word.eq_ignore_ascii_case(register))
        || ["SYS_", "__NR_"].iter().any(|prefix| word.starts_with(prefix)) && word != CAPABILITY
        || matches!(word, "202" | "202_i64" | "202i64" | "202_u64" | "202u64")
}

/// The first word of a line of code that only `src/arch` may say; comments may say all.
fn named(line: &str) -> Option<&str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').find(|word| is_of_the_processor(word))
}

#[test]
fn nothing_outside_arch_names_a_register() {
    for line in
        ["regs.0[at::RAX] = 0;", "libc::syscall(libc::SYS_bpf, 1)", "202 if true => {}", "b\"202 0x1\"", "mem.rip"]
    {
        assert!(named(line).is_some(), "{line}");
    }
    assert_eq!(named("let strip = 2024; // rax"), None);
    let mut wrong = Vec::new();
    for (_, file) in sources().into_iter().filter(|(room, _)| room != "arch") {
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            wrong.extend(named(line).map(|word| format!("{}:{}: {word}", file.display(), number + 1)));
        }
    }
    assert!(wrong.is_empty(), "only src/arch may name these:\n{}", wrong.join("\n"));
}
