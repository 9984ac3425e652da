//! The file of pprof: one protobuf message, compressed.
//!
//! Written by hand: eight kinds of fields, which have not changed since 2016, are no reason for a code generator.
//! Names and numbers are those of `profile.proto`.

use super::safe;
use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::HashMap;
use std::io::Write;
use threadglass::model::{Frame, Profile, ProfileKind as Kind};

/// A message that is put together.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn packed(&mut self, field: u64, values: &[u64]) {
        let mut inner = Self::default();
        for value in values {
            inner.varint(*value);
        }
        self.message(field, &inner);
    }
}

/// Strings by number; the first is empty. pprof prints them as they are.
struct Strings {
    numbers: HashMap<String, u64>,
    all: Vec<String>,
}

impl Strings {
    fn number(&mut self, text: &str) -> u64 {
        let text = &safe(text);
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len() as u64;
        self.all.push(text.clone());
        self.numbers.insert(text.clone(), number);
        number
    }
}

/// What the two numbers of a sample are called: how often, and how long. Go's own profiles have no time for some.
#[derive(Clone, Copy)]
pub struct SampleNames {
    pub count: &'static str,
    pub time: Option<&'static str>,
}

struct Encoder<'a> {
    profile: &'a Profile,
    names: SampleNames,
    out: Message,
    strings: Strings,
    functions: HashMap<(u64, u64), u64>,
    locations: HashMap<(u64, Vec<(u64, u64)>), u64>,
}

/// The whole file.
pub fn encode(profile: &Profile) -> Result<Vec<u8>> {
    let (count, time) = match profile.kind {
        Kind::Cpu => ("samples", "cpu"),
        Kind::Wait => ("waits", "delay"),
    };
    encode_as(profile, SampleNames { count, time: Some(time) })
}

/// The same with other names for what was counted.
pub fn encode_as(profile: &Profile, names: SampleNames) -> Result<Vec<u8>> {
    let mut encoder = Encoder {
        profile,
        names,
        out: Message::default(),
        strings: Strings { numbers: HashMap::from([(String::new(), 0)]), all: vec![String::new()] },
        functions: HashMap::new(),
        locations: HashMap::new(),
    };
    encoder.run();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&encoder.out.0)?;
    Ok(gzip.finish()?)
}

impl Encoder<'_> {
    fn run(&mut self) {
        let profile = self.profile;
        let SampleNames { count, time } = self.names;
        let period = match profile.kind {
            Kind::Cpu => 1_000_000_000 / u64::from(profile.rate.max(1)),
            // The time between two looks that really were.
            Kind::Wait => profile.duration_ms.saturating_mul(1_000_000) / profile.looks.unwrap_or(1).max(1),
        };
        for (kind, unit) in std::iter::once((count, "count")).chain(time.map(|time| (time, "nanoseconds"))) {
            let kind = self.value_type(kind, unit);
            self.out.message(1, &kind);
        }
        for stack in &profile.stacks {
            let mut ids: Vec<u64> = stack.waits_for.iter().rev().map(|word| self.words(word)).collect();
            // Inlined functions stand before the function they are in, and share its location.
            ids.extend(
                stack.frames.chunk_by(|frame, _| frame.inlined).map(|frames| self.location(frames)).collect::<Vec<_>>(),
            );
            let mut sample = Message::default();
            sample.packed(1, &ids);
            let values = [stack.samples, stack.samples.saturating_mul(period)];
            sample.packed(2, if time.is_some() { &values } else { &values[..1] });
            self.out.message(2, &sample);
        }
        for (index, mapped) in profile.mapped.iter().enumerate() {
            let mut mapping = Message::default();
            mapping.number(1, index as u64 + 1);
            mapping.number(2, mapped.base.0);
            mapping.number(3, mapped.end.0);
            mapping.number(5, self.strings.number(&mapped.path));
            // Functions, files and lines are here: nobody need look for them.
            for flag in 7..=10 {
                mapping.number(flag, 1);
            }
            self.out.message(3, &mapping);
        }
        self.out.number(10, profile.duration_ms.saturating_mul(1_000_000));
        let (kind, period) = match time {
            Some(time) => (self.value_type(time, "nanoseconds"), period),
            None => (self.value_type(count, "count"), 1),
        };
        self.out.message(11, &kind);
        self.out.number(12, period);
        // In the end, when all are known.
        for text in std::mem::take(&mut self.strings.all) {
            self.out.bytes(6, text.as_bytes());
        }
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.strings.number(kind));
        message.number(2, self.strings.number(unit));
        message
    }

    /// The number of the location that these frames are at.
    fn location(&mut self, frames: &[Frame]) -> u64 {
        let lines: Vec<(u64, u64)> = frames
            .iter()
            .map(|frame| {
                let name = match (&frame.function, &frame.module) {
                    (Some(function), _) => function.clone(),
                    (None, Some(module)) => format!("[{}]", module.trim_matches(['[', ']'])),
                    (None, None) => "[unknown]".to_owned(),
                };
                let file = frame.file.as_deref().unwrap_or_default();
                (self.function(&name, file), u64::from(frame.line.unwrap_or(0)))
            })
            .collect();
        let address = frames.last().map_or(0, |frame| frame.pc.0);
        self.place(address, lines)
    }

    /// Words in place of a location. pprof takes what is in parentheses for parameters, and hides it.
    fn words(&mut self, text: &str) -> u64 {
        let text = text.replace(" (", ", ").replace(['(', ')'], "");
        let function = self.function(&format!("[{text}]"), "");
        self.place(0, vec![(function, 0)])
    }

    fn place(&mut self, address: u64, lines: Vec<(u64, u64)>) -> u64 {
        let next = self.locations.len() as u64 + 1;
        let key = (address, lines);
        if let Some(id) = self.locations.get(&key) {
            return *id;
        }
        let mut location = Message::default();
        location.number(1, next);
        let mapped = self.profile.mapped.iter().position(|module| (module.base.0..module.end.0).contains(&address));
        location.number(2, mapped.map_or(0, |index| index as u64 + 1));
        location.number(3, address);
        for (function, number) in &key.1 {
            let mut line = Message::default();
            line.number(1, *function);
            line.number(2, *number);
            location.message(4, &line);
        }
        self.out.message(4, &location);
        self.locations.insert(key, next);
        next
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (self.strings.number(name), self.strings.number(file));
        let next = self.functions.len() as u64 + 1;
        if let Some(id) = self.functions.get(&key) {
            return *id;
        }
        let mut function = Message::default();
        function.number(1, next);
        function.number(2, key.0);
        function.number(3, key.0);
        function.number(4, key.1);
        self.out.message(5, &function);
        self.functions.insert(key, next);
        next
    }
}
