//! Ways in which a file may harm who reads it.

use super::{ObjectPatch, dwarf, packed_zeros};

/// One way.
#[derive(Clone, Copy)]
pub struct Case {
    /// What the file claims.
    pub name: &'static str,
    /// Makes a file claim it.
    pub patch: fn(ObjectPatch) -> ObjectPatch,
    /// What must be among the gaps of a look that needs the file's symbols and debug information; nothing where a claim
    /// costs nothing, or says nothing that anybody asks for.
    pub gap: Option<&'static str>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const GIB: u64 = 1 << 30;
/// What is repeated in packed sections.
const PIECE: usize = 1 << 20;

/// Debug information of our own: entries, their abbreviations, and nothing else.
fn described(patch: ObjectPatch, entries: Vec<u8>, abbreviations: Vec<u8>) -> ObjectPatch {
    let others = [".debug_aranges", ".debug_rnglists", ".debug_loclists", ".debug_line_str", ".debug_str"];
    let patch = others.into_iter().fold(patch, ObjectPatch::without);
    patch.set_packed(".debug_info", &entries).set(".debug_abbrev", abbreviations).set(".debug_line", Vec::new())
}

/// All of them.
pub const CASES: &[Case] = &[
    Case {
        name: "a packed section that is to be of 2^62 bytes",
        patch: |patch| patch.set_packed_as(".debug_info", 1 << 62, vec![0; 64]),
        gap: Some("debug information (.debug_info)"),
    },
    Case {
        name: "a packed section of 4 GiB",
        patch: |patch| patch.set_packed_as(".debug_info", 4 * GIB, packed_zeros(4096)),
        gap: Some("debug information (.debug_info)"),
    },
    Case {
        name: "packed strings of 4 GiB",
        patch: |patch| patch.set_packed_as(".debug_str", 4 * GIB, packed_zeros(4096)),
        gap: Some("debug information (.debug_str)"),
    },
    Case {
        name: "packed line programs of 4 GiB",
        patch: |patch| patch.set_packed_as(".debug_line", 4 * GIB, packed_zeros(4096)),
        gap: Some("debug information (.debug_line)"),
    },
    Case {
        name: "a symbol table of 6 GiB",
        patch: |patch| patch.set_hole(".symtab", 6 * GIB),
        gap: Some("symbols of"),
    },
    Case {
        name: "names of symbols of 6 GiB",
        patch: |patch| patch.set_hole(".strtab", 6 * GIB),
        // Names are read one by one, as they are wanted.
        gap: None,
    },
    Case {
        name: "debug information of 6 GiB",
        patch: |patch| patch.set_hole(".debug_info", 6 * GIB),
        gap: Some("debug information (.debug_info)"),
    },
    Case { name: "2^26 sections", patch: |patch| patch.claim_sections(1 << 26), gap: Some("sections of") },
    Case { name: "names of sections of 6 GiB", patch: |patch| patch.claim_section_names(6 * GIB), gap: None },
    Case {
        name: "notes of 6 GiB",
        patch: |patch| patch.set_hole(".note.gnu.build-id", 6 * GIB).set_hole(".note.ABI-tag", 6 * GIB),
        gap: None,
    },
    Case {
        name: "a link to debug information of 6 GiB",
        patch: |patch| patch.without(".debug_info").set_hole(".gnu_debuglink", 6 * GIB),
        gap: None,
    },
    Case {
        name: "a table of eight million abbreviations",
        patch: |patch| {
            let mut table = dwarf::abbreviations();
            table.pop();
            table.extend(dwarf::many_abbreviations(8 << 20));
            described(patch, dwarf::unit(0, &dwarf::NAMESPACE), table)
        },
        gap: Some("abbreviations is too large"),
    },
    Case {
        name: "twenty thousand units, each with a table of abbreviations of its own",
        patch: |patch| {
            let mut table = dwarf::many_abbreviations(100_000);
            let unit = |index: u32| dwarf::unit(index * 6, &[]);
            let units = (0..20_000).flat_map(unit).collect();
            table.push(0);
            described(patch, units, table)
        },
        gap: None,
    },
    Case {
        name: "functions in four thousand pieces",
        patch: |patch| {
            described(patch, dwarf::functions_in_pieces(200_000), dwarf::abbreviations())
                .set(".debug_ranges", dwarf::pieces(5000))
        },
        gap: Some("parts of the debug information"),
    },
    Case {
        name: "a hundred million namespaces",
        patch: |patch| {
            let (front, back) = dwarf::around(200 * PIECE);
            described(patch, Vec::new(), dwarf::abbreviations()).set_repeated(
                ".debug_info",
                &front,
                &dwarf::NAMESPACE.repeat(PIECE / 2),
                200,
                &back,
            )
        },
        gap: Some("parts of the debug information"),
    },
    Case {
        name: "functions whose name has no end",
        patch: |patch| {
            described(patch, dwarf::functions_with_names(100_000), dwarf::abbreviations()).set_repeated(
                ".debug_str",
                &[],
                &[b'x'; PIECE],
                64,
                &[],
            )
        },
        gap: None,
    },
    Case {
        name: "variables that are arrays of locks",
        patch: |patch| described(patch, dwarf::arrays_of_locks(200_000), dwarf::abbreviations()),
        gap: Some("locks in variables"),
    },
    Case {
        name: "two hundred million lines",
        patch: |patch| {
            let (front, back) = dwarf::around_rows(200 * PIECE);
            described(patch, dwarf::functions_with_names(1), dwarf::abbreviations())
                .set(".debug_str", b"f\0".to_vec())
                .set_repeated(".debug_line", &front, &[dwarf::ROW; PIECE], 200, &back)
        },
        gap: None,
    },
    Case {
        name: "forty million files",
        patch: |patch| {
            let (front, back) = dwarf::around_files(40 * PIECE);
            described(patch, dwarf::functions_with_names(1), dwarf::abbreviations())
                .set(".debug_str", b"f\0".to_vec())
                .set_repeated(".debug_line", &front, &[0; PIECE], 40, &back)
        },
        gap: None,
    },
];
