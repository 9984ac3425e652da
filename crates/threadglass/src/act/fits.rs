//! Whether a program can have the agent in it at all.

use crate::arch::ELF_MACHINE;
use crate::elf::ObjectFile;
use crate::limits::Limits;
use crate::sys::file::has_capabilities;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The file that a shell would run under this name.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Whether a program that we start gets rights that we do not have: its loader then ignores what is to be preloaded.
fn has_other_rights(path: &Path, about: &std::fs::Metadata) -> bool {
    const SET_UID: u32 = 0o4000;
    const SET_GID: u32 = 0o2010;
    let mode = about.mode();
    about.is_file()
        && (mode & SET_UID != 0 && about.uid() != nix::unistd::geteuid().as_raw()
            || mode & SET_GID == SET_GID && about.gid() != nix::unistd::getegid().as_raw()
            || has_capabilities(path) && !nix::unistd::geteuid().is_root())
}

/// Why `program` cannot be tracked, with what to do instead; `None` if nothing speaks against it. What is no program
/// but a script is judged when its interpreter runs.
pub fn misfit(program: &OsStr) -> Option<String> {
    let path = find(program)?;
    let name = Path::new(program).display();
    if let Ok(about) = path.metadata()
        && has_other_rights(&path, &about)
    {
        return Some(format!(
            "{name} runs with the rights of another user or group: its loader accepts no other \
                             library"
        ));
    }
    misfit_file(&path, &name.to_string())
}

/// The same of a file that is a program already, under the name that it is known by.
pub(super) fn misfit_file(path: &Path, name: &str) -> Option<String> {
    let file = File::open(path).ok()?;
    let other = || format!("{name} is not a 64-bit x86 program: the agent cannot be loaded into it");
    let Some(object) = ObjectFile::open(&file, &Limits::default()) else {
        // A program for another class of machine begins with the same four bytes.
        let mut magic = [0; 4];
        file.read_exact_at(&mut magic, 0).ok()?;
        return (magic == *b"\x7fELF").then(other);
    };
    if object.machine() != Some(ELF_MACHINE) {
        return Some(other());
    }
    let Some(path) = object.interpreter() else {
        return Some(format!("{name} is linked statically: nothing can be loaded into it (look at it from outside)"));
    };
    if path.windows(4).any(|window| window == b"musl") {
        return Some(format!("{name} uses musl: the agent needs glibc 2.31 or later"));
    }
    // It would refuse to come behind the agent, or crash.
    let library = object.needed_libraries().into_iter().find(|library| is_sanitizer(library))?;
    Some(format!(
        "{name} is built with a sanitizer, whose {library} must come before the agent: link that into the program \
         (-static-libasan, -static-libtsan)"
    ))
}

/// Whether a library is that of a sanitizer which takes over memory and threads, gcc's or clang's.
pub(super) fn is_sanitizer(library: &str) -> bool {
    let name = library.strip_prefix("libclang_rt.").or_else(|| library.strip_prefix("lib")).unwrap_or_default();
    ["asan", "tsan", "msan", "hwasan"].iter().any(|it| name.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Build, Variant, has_static_libc};

    #[test]
    fn only_what_cannot_have_the_agent_is_refused() {
        assert_eq!(misfit(OsStr::new("sh")), None);
        assert_eq!(misfit(OsStr::new("/nonexistent/program")), None);
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(misfit(script.as_os_str()), None);
        let mut bytes = std::fs::read("/bin/sh").unwrap();
        bytes[18] = 40; // another machine
        let other = dir.path().join("other");
        std::fs::write(&other, &bytes).unwrap();
        assert!(misfit(other.as_os_str()).unwrap().contains("64-bit x86"));
        bytes[4] = 1; // another class
        std::fs::write(&other, &bytes).unwrap();
        assert!(misfit(other.as_os_str()).unwrap().contains("64-bit x86"));
        if nix::unistd::geteuid().is_root() {
            use std::os::unix::fs::{PermissionsExt, chown};
            let program = dir.path().join("other_rights");
            std::fs::copy("/bin/sh", &program).unwrap();
            let set = |mode| std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
            set(0o4755);
            assert_eq!(misfit(program.as_os_str()), None, "our own rights");
            chown(&program, Some(12345), Some(12345)).unwrap();
            set(0o755);
            assert_eq!(misfit(program.as_os_str()), None);
            for mode in [0o4755, 0o2755] {
                set(mode);
                assert!(misfit(program.as_os_str()).unwrap().contains("rights"));
            }
        }
        assert!(is_sanitizer("libtsan.so.2") && is_sanitizer("libclang_rt.asan-x86_64.so"));
        assert!(!is_sanitizer("libclang_rt.ubsan_standalone-x86_64.so") && !is_sanitizer("libc.so.6"));
        // A program that asks for a library of that name.
        let library =
            Build::new("inject_plugin.c").variant(Variant::Library).flags(&["-Wl,-soname,libtsan.so.2"]).path();
        let needs = ["-Wl,--no-as-needed", library.to_str().unwrap()];
        let program = Build::new("many.c").variant(Variant::Default).flags(&needs).path();
        assert!(misfit(program.as_os_str()).unwrap().contains("libtsan.so.2 must come before"));
        if has_static_libc(testkit::part("a static program")) {
            let program = Build::new("many.c").variant(Variant::Static).path();
            assert!(misfit(program.as_os_str()).unwrap().contains("statically"));
        }
    }
}
