//! The mappings of the process, as far as a core tells them.

use super::header::{PF_R, PF_W, PF_X};
use super::records::{FileMapping, MAX_NAME};
use super::segments::{Segment, Segments};
use crate::RemoteAddr;
use crate::elf::Image;
use crate::proc::MapEntry;
use std::collections::HashMap;

/// Bytes of the names of all mappings together. A long name may stand for very many of them.
const MAX_NAMES: usize = 64 << 20;
/// Objects whose headers are read.
const MAX_OBJECTS: usize = 4096;

/// Puts the core's segments and the files that were mapped together, in address order. A debugger
/// leaves out segments that a file has wholly: of those, the object's own headers tell the permissions. Also
/// gives whether there was no room for some names.
pub(super) fn build(segments: &Segments, files: &[FileMapping], vdso: Option<RemoteAddr>) -> (Vec<MapEntry>, bool) {
    let mut inodes: HashMap<&[u8], u64> = HashMap::new();
    let inodes: Vec<u64> = files
        .iter()
        .map(|file| {
            let next = inodes.len() as u64 + 1;
            *inodes.entry(&file.name).or_insert(next)
        })
        .collect();
    let file_at = |addr: u64| {
        let index = files.partition_point(|file| file.start <= addr).checked_sub(1)?;
        (addr < files[index].end).then(|| (&files[index], inodes[index]))
    };
    let mut names = MAX_NAMES;
    let mut maps: Vec<_> =
        segments.table.iter().map(|segment| entry(segment, file_at(segment.start), vdso, &mut names)).collect();
    let mut objects = ObjectHeaders { memory: segments, seen: HashMap::new(), left: MAX_OBJECTS };
    for (file, inode) in files.iter().zip(&inodes) {
        if file.offset == 0 {
            objects.seen.insert(&file.name, (file.start, None));
        }
        // Kernel segments are whole mappings, so an uncovered start means an uncovered mapping.
        let index = segments.table.partition_point(|segment| segment.start <= file.start);
        let covered = index.checked_sub(1).is_some_and(|index| file.start < segments.table[index].end);
        if covered {
            continue;
        }
        let end = segments.table.get(index).map_or(file.end, |next| next.start.min(file.end));
        let flags = objects.flags(&file.name, file.start);
        let bare = Segment::absent(file.start, end, flags.unwrap_or(PF_R));
        maps.push(entry(&bare, Some((file, *inode)), vdso, &mut names));
    }
    // Which memory was shared is not recorded. That of an object was not; what else has a file and can be written may have
    // been.
    for map in maps.iter_mut().filter(|map| map.write && map.is_file()) {
        map.shared = objects.flags(&map.name, map.start.0).is_none();
    }
    maps.sort_by_key(|map| map.start);
    // What does not fit is not taken, so less than one of the longest names is left.
    (maps, names < MAX_NAME)
}

/// `names`: bytes that names may still take.
fn entry(
    segment: &Segment,
    file: Option<(&FileMapping, u64)>,
    vdso: Option<RemoteAddr>,
    names: &mut usize,
) -> MapEntry {
    // A mapping whose name has no room is one without a file.
    let file = file.filter(|(file, _)| file.name.len() <= *names);
    *names -= file.map_or(0, |(file, _)| file.name.len());
    let name = match file {
        Some((file, _)) => file.name.clone(),
        None if vdso == Some(RemoteAddr(segment.start)) => b"[vdso]".to_vec(),
        None => Vec::new(),
    };
    MapEntry {
        start: RemoteAddr(segment.start),
        end: RemoteAddr(segment.end),
        read: segment.flags & PF_R != 0,
        write: segment.flags & PF_W != 0,
        exec: segment.flags & PF_X != 0,
        shared: false,
        offset: file.map_or(0, |(file, _)| file.offset.saturating_add(segment.start - file.start)),
        // A number of ours, the same for the same name.
        inode: file.map_or(0, |(_, inode)| inode),
        name,
        deleted: file.is_some_and(|(file, _)| file.deleted),
    }
}

/// The program headers of mapped objects, as the core has them.
struct ObjectHeaders<'a> {
    memory: &'a Segments,
    /// By name: where it begins, and its headers once they were asked for.
    seen: HashMap<&'a [u8], (u64, Option<Option<Image>>)>,
    /// Objects whose headers may still be read.
    left: usize,
}

impl ObjectHeaders<'_> {
    /// Permissions of the mapping of object `name` that starts at `addr`.
    fn flags(&mut self, name: &[u8], addr: u64) -> Option<u32> {
        let (base, image) = self.seen.get_mut(name)?;
        if image.is_none() {
            self.left = self.left.checked_sub(1)?;
        }
        let load = || Image::load(self.memory, RemoteAddr(*base)).ok();
        image.get_or_insert_with(load).as_ref()?.flags_at(RemoteAddr(addr))
    }
}
