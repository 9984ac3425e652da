//! The files that the process had mapped: what a core leaves out is still in them.

use super::CoreOptions;
use super::header::{Headers, MAX_OF_OBJECT, PF_W};
use super::segments::Segments;
use super::source::ByteSource;
use crate::RemoteAddr;
use crate::elf::{Image, ImageError, PT_LOAD, ProgramHeader, build_id_of_file};
use crate::memory::PAGE;
use crate::model::{Gap, Remedy};
use crate::sys::file;
use crate::target::Module;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How many names a gap lists.
const NAMED: usize = 4;

/// What became of the file behind one module.
#[derive(Debug)]
enum ModuleFile {
    /// It is there, and its build id is the one in the core.
    Same(OpenObject),
    /// It is there and fits, but the core has no build id to compare with.
    Unchecked(OpenObject),
    /// It is there, and is not what the process had.
    Different(PathBuf),
    /// It is not there, or not readable.
    Missing,
    /// It is no ELF object (a font, a database ..): nothing here needs it.
    NotAnObject,
}

/// An object's file.
#[derive(Debug)]
struct OpenObject {
    file: File,
    bias: u64,
    /// The parts that a process cannot change without the core having them.
    constant: Vec<ProgramHeader>,
}

/// What is behind each module, in the order of the modules.
#[derive(Debug, Default)]
pub(super) struct ModuleFiles(Vec<ModuleFile>);

impl ModuleFiles {
    /// Finds them. `program` says which module is the executable.
    pub(super) fn find(
        memory: &Segments,
        modules: &[Module],
        program: impl Fn(&Module) -> bool,
        options: &CoreOptions,
    ) -> Self {
        if !options.use_files {
            return Self::default();
        }
        let root = |path: &Path| file::open_dir(path).ok();
        let roots: Vec<_> = options.sysroot.iter().filter_map(|path| root(path)).chain(root(Path::new("/"))).collect();
        let behind = modules.iter().map(|module| {
            let given = options.exe.as_deref().filter(|_| program(module));
            let own = given.and_then(|path| Some((path.to_owned(), super::open_regular(path).ok()?)));
            let in_roots = roots.iter().filter_map(|root| {
                let path = PathBuf::from(OsStr::from_bytes(&module.path));
                Some((path, file::open_regular_below(root, &module.path).ok()?))
            });
            choose(memory, module, own.into_iter().chain(in_roots))
        });
        Self(behind.collect())
    }

    fn object(&self, index: usize) -> Option<&OpenObject> {
        match self.0.get(index)? {
            ModuleFile::Same(object) | ModuleFile::Unchecked(object) => Some(object),
            _ => None,
        }
    }

    /// Reads bytes at `addr` that the file of one of `modules` has; 0 where none has.
    pub(super) fn read(&self, modules: &[Module], addr: u64, buf: &mut [u8]) -> usize {
        let below = modules.partition_point(|module| module.base.0 <= addr).checked_sub(1);
        let index = below.filter(|index| modules[*index].contains(RemoteAddr(addr)));
        let Some(object) = index.and_then(|index| self.object(index)) else { return 0 };
        let at = addr.wrapping_sub(object.bias);
        let Some((part, pages)) =
            object.constant.iter().map(|part| (part, pages(part))).find(|(_, pages)| pages.contains(&at))
        else {
            return 0;
        };
        let len = usize::try_from(pages.end - at).unwrap_or(usize::MAX).min(buf.len());
        let offset = part.offset.checked_add(at).and_then(|offset| offset.checked_sub(part.vaddr));
        offset.map_or(0, |offset| ByteSource::read_at(&object.file, offset, &mut buf[..len]))
    }

    /// Opens the file behind the module with this index.
    pub(super) fn open(&self, index: usize) -> Option<File> {
        let file = &self.object(index)?.file;
        // Opened anew, so that readers do not share a position.
        File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).or_else(|_| file.try_clone()).ok()
    }

    /// What is missing because of files that are not there, or not the right ones.
    pub(super) fn gaps(&self, modules: &[Module], program: impl Fn(&Module) -> bool) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let (mut missing, mut unchecked) = (Vec::new(), Vec::new());
        for (module, behind) in modules.iter().zip(&self.0) {
            match behind {
                ModuleFile::Different(path) => {
                    let remedy = if program(module) { Remedy::GiveExecutable } else { Remedy::GiveLibrary };
                    let why = format!(
                        "{} is not the file that the process had: its build ID differs, so the file is not used",
                        path.display()
                    );
                    gaps.push(Gap::whole(format!("code and names in {}", module.name()), why).with(remedy));
                }
                ModuleFile::Missing => missing.push(module.name()),
                ModuleFile::Unchecked(_) => unchecked.push(module.name()),
                ModuleFile::Same(_) | ModuleFile::NotAnObject => {}
            }
        }
        if !missing.is_empty() {
            let gap = Gap::whole(format!("code and names in {}", listed(&missing)), "not found here");
            gaps.push(gap.with(Remedy::GiveFiles));
        }
        if !unchecked.is_empty() {
            let why = "the core has no build ID to compare; the files found here are used";
            gaps.push(Gap::whole(format!("whether the same {} was mapped", listed(&unchecked)), why));
        }
        gaps
    }
}

/// What is mapped for a part: whole pages, with what the file has before and behind the part.
fn pages(part: &ProgramHeader) -> Range<u64> {
    let (page, end) = (PAGE as u64, part.vaddr.saturating_add(part.file_size));
    part.vaddr / page * page..end.checked_next_multiple_of(page).unwrap_or(end)
}

fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The first of `candidates` that is the module's file.
fn choose(memory: &Segments, module: &Module, candidates: impl Iterator<Item = (PathBuf, File)>) -> ModuleFile {
    let in_core = match Image::load(memory, module.base) {
        Ok(image) => image.build_id(memory),
        Err(ImageError::NotElf) => return ModuleFile::NotAnObject,
        Err(_) => None,
    };
    let mut worst = ModuleFile::Missing;
    for (path, file) in candidates {
        let Some(object) = OpenObject::new(file, module) else {
            if matches!(worst, ModuleFile::Missing) {
                // Without the core's word that it is an object, this is some other mapped file.
                worst = if in_core.is_some() { ModuleFile::Different(path) } else { ModuleFile::NotAnObject };
            }
            continue;
        };
        match (&in_core, build_id_of_file(&object.file)) {
            (Some(core), Some(file)) if *core == file => return ModuleFile::Same(object),
            (Some(_), _) if !matches!(worst, ModuleFile::Different(_)) => worst = ModuleFile::Different(path),
            (Some(_), _) => {}
            (None, _) => return ModuleFile::Unchecked(object),
        }
    }
    worst
}

impl OpenObject {
    fn new(file: File, module: &Module) -> Option<Self> {
        let headers = Headers::read(&file, MAX_OF_OBJECT)?;
        let first = headers.of_kind(PT_LOAD).find(|load| load.offset == 0)?;
        let bias = module.base.0.wrapping_sub(first.vaddr);
        let constant = headers.of_kind(PT_LOAD).filter(|load| load.flags & PF_W == 0).copied().collect();
        // What the object needs in memory must not reach beyond where it was mapped by far more than its
        // zero-initialised end does.
        let end = headers.of_kind(PT_LOAD).map(|load| load.vaddr.saturating_add(load.file_size)).max()?;
        let fits = RemoteAddr(end.wrapping_add(bias).saturating_sub(0x1000)) <= module.end;
        fits.then_some(Self { file, bias, constant })
    }
}
