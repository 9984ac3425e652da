//! Readers of the files that `tglass profil` writes, on their own, so that tests do not ask the code they test.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

/// Stacks with their counts.
pub fn folded(path: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(path).expect("a file of stacks");
    let line = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').expect("a stack and a count");
        (stack.to_owned(), count.parse().expect("a count"))
    };
    text.lines().map(line).collect()
}

/// What pprof would see.
#[derive(Debug, Default)]
pub struct Pprof {
    /// Types of values with their units.
    pub types: Vec<(String, String)>,
    /// Functions, the innermost first, and values.
    pub samples: Vec<(Vec<String>, Vec<u64>)>,
    /// First address and path of each object.
    pub mappings: Vec<(u64, String)>,
    /// Between two ticks, in ns.
    pub period: u64,
}

/// A field of a message: a number, or bytes.
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than 64 bits");
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (field, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(field.to_vec())
            }
            other => panic!("a field of type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn numbers(message: &[u8]) -> HashMap<u64, u64> {
    let number = |(field, value)| match value {
        Field::Number(number) => Some((field, number)),
        Field::Bytes(_) => None,
    };
    fields(message).into_iter().filter_map(number).collect()
}

fn packed(mut bytes: &[u8]) -> Vec<u64> {
    let mut values = Vec::new();
    while !bytes.is_empty() {
        values.push(varint(&mut bytes));
    }
    values
}

impl Pprof {
    pub fn read(path: &Path) -> Self {
        let mut message = Vec::new();
        let file = std::fs::File::open(path).expect("a file of pprof");
        flate2::read::GzDecoder::new(file).read_to_end(&mut message).expect("a gzip file");
        let mut parts: HashMap<u64, Vec<Vec<u8>>> = HashMap::new();
        for (field, value) in fields(&message) {
            if let Field::Bytes(bytes) = value {
                parts.entry(field).or_default().push(bytes);
            }
        }
        let part = |field: u64| parts.get(&field).map_or(&[][..], Vec::as_slice);
        let strings: Vec<String> =
            part(6).iter().map(|text| String::from_utf8(text.clone()).expect("a string")).collect();
        assert_eq!(strings[0], "");
        let text = |map: &HashMap<u64, u64>, field| strings[map.get(&field).copied().unwrap_or(0) as usize].clone();
        let functions: HashMap<u64, String> =
            part(5).iter().map(|one| numbers(one)).map(|one| (one[&1], text(&one, 2))).collect();
        let mut locations: HashMap<u64, Vec<String>> = HashMap::new();
        for one in part(4) {
            let lines = fields(one).into_iter().filter_map(|(field, value)| match value {
                Field::Bytes(line) if field == 4 => Some(functions[&numbers(&line)[&1]].clone()),
                _ => None,
            });
            assert!(locations.insert(numbers(one)[&1], lines.collect()).is_none(), "one number for two locations");
        }
        let sample = |one: &Vec<u8>| {
            let mut lists = fields(one).into_iter().map(|(field, value)| match value {
                Field::Bytes(list) => (field, packed(&list)),
                Field::Number(_) => panic!("a list was expected"),
            });
            let (ids, values) = (lists.next().expect("locations"), lists.next().expect("values"));
            assert_eq!((ids.0, values.0), (1, 2));
            (ids.1.iter().flat_map(|id| locations[id].clone()).collect(), values.1)
        };
        Self {
            types: part(1).iter().map(|one| numbers(one)).map(|one| (text(&one, 1), text(&one, 2))).collect(),
            samples: part(2).iter().map(sample).collect(),
            mappings: part(3).iter().map(|one| numbers(one)).map(|one| (one[&2], text(&one, 5))).collect(),
            period: numbers(&message)[&12],
        }
    }
}
