//! Where things may be named: rules of ARCHITECTURE.md that the compiler does not know.

use std::fs;
use std::path::{Path, PathBuf};

/// The crate's source files outside of `src/arch`.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("src/arch") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
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
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 100, "{} files", files.len());
    let mut wrong = Vec::new();
    for file in files {
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            wrong.extend(named(line).map(|word| format!("{}:{}: {word}", file.display(), number + 1)));
        }
    }
    assert!(wrong.is_empty(), "only src/arch may name these:\n{}", wrong.join("\n"));
}
