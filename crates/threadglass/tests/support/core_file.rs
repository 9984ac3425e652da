//! Small core files made of bytes: two threads of a program without symbols.

/// Thread descriptors, one page each.
pub const FIRST: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 0x1000;

/// A note.
pub fn note(kind: u32, owner: &[u8], record: &[u8]) -> Vec<u8> {
    let mut note = Vec::new();
    for word in [owner.len() as u32, record.len() as u32, kind] {
        note.extend(word.to_le_bytes());
    }
    for part in [owner, record] {
        note.extend(part);
        note.resize(note.len().next_multiple_of(4), 0);
    }
    note
}

/// `NT_PRSTATUS` of a thread asleep in a futex.
pub fn thread(lwp: u32, thread_pointer: u64) -> Vec<u8> {
    let mut record = vec![0; 336];
    record[12] = 6;
    record[32..36].copy_from_slice(&lwp.to_le_bytes());
    let mut register = |index: usize, value: u64| {
        record[112 + index * 8..][..8].copy_from_slice(&value.to_le_bytes());
    };
    register(10, -512i64 as u64);
    register(15, 202);
    register(16, 0x40_1000);
    register(19, thread_pointer - 64);
    register(21, thread_pointer);
    note(1, b"CORE\0", &record)
}

/// `NT_PRPSINFO`.
pub fn process(pid: u32) -> Vec<u8> {
    let mut record = vec![0; 136];
    record[24..28].copy_from_slice(&pid.to_le_bytes());
    record[40..44].copy_from_slice(b"prog");
    note(3, b"CORE\0", &record)
}

/// `NT_FILE` with one file of two mappings.
pub fn files(start: u64) -> Vec<u8> {
    let mut record = Vec::new();
    for word in [2, PAGE, start, start + PAGE, 0, start + PAGE, start + 2 * PAGE, 1] {
        record.extend(word.to_le_bytes());
    }
    record.extend(b"/nowhere/prog\0/nowhere/prog\0");
    note(0x4649_4c45, b"CORE\0", &record)
}

/// A descriptor as glibc 2.36 has it, alone on its list.
pub fn descriptor(base: u64, tid: u32) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    let mut word = |at: usize, value: u64| page[at..at + 8].copy_from_slice(&value.to_le_bytes());
    word(0, base);
    word(16, base);
    word(704, base + 704);
    word(712, base + 704);
    word(720, tid.into());
    word(744, -32i64 as u64);
    word(1296, base + 784);
    word(1592, 0x40_1000);
    page
}

/// A program header.
pub fn header(kind: u32, flags: u32, offset: u64, vaddr: u64, file_size: u64, memory_size: u64) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(kind.to_le_bytes());
    header.extend(flags.to_le_bytes());
    for word in [offset, vaddr, 0, file_size, memory_size, 1] {
        header.extend(word.to_le_bytes());
    }
    header
}

/// Puts a core together from notes and segments (address, bytes, size in memory).
pub fn assemble(notes: &[u8], segments: &[(u64, Vec<u8>, u64)]) -> Vec<u8> {
    let count = segments.len() + 1;
    let mut file = vec![0; 64];
    file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    (file[16], file[18], file[32], file[52], file[54]) = (4, 62, 64, 64, 56);
    file[56..58].copy_from_slice(&(count as u16).to_le_bytes());
    let notes_at = 64 + 56 * count as u64;
    let mut at = notes_at + notes.len() as u64;
    file.extend(header(4, 0, notes_at, 0, notes.len() as u64, 0));
    for (addr, bytes, size) in segments {
        file.extend(header(1, 6, at, *addr, bytes.len() as u64, *size));
        at += bytes.len() as u64;
    }
    file.extend(notes);
    segments.iter().for_each(|(_, bytes, _)| file.extend(bytes));
    file
}

/// A whole core of a process with `threads` threads, numbered from 1000 on.
pub fn core(threads: u32) -> Vec<u8> {
    let base = |index: u32| FIRST + 2 * PAGE * u64::from(index);
    let mut notes = Vec::new();
    for index in 0..threads {
        notes.extend(thread(1000 + index, base(index)));
        if index == 0 {
            notes.extend(process(1000));
            notes.extend(files(0x40_0000));
        }
    }
    let segments: Vec<_> =
        (0..threads).map(|index| (base(index), descriptor(base(index), 1000 + index), PAGE)).collect();
    assemble(&notes, &segments)
}
