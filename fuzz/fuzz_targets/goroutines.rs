//! A Go program whose tables of functions, lists of goroutines, stacks and queues may lie: reading them ends, makes nothing up,
//! and finds what is there if nothing lies.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use threadglass::RemoteAddr;
use threadglass::internals::fuzzed::goroutines;
use threadglass::target::Bytes;
use threadglass_fuzz::object::Claim;

const TEXT: u64 = 0x40_0000;
const TABLE: u64 = 0x50_0000;
const MODULE: u64 = 0x51_0000;
const NAMES: u64 = 0x52_0000;
/// Names end where the next table begins.
const UNITS: u64 = NAMES + 512;
const FILES: u64 = 0x54_0000;
const VALUES: u64 = 0x55_0000;
const FUNCTIONS: u64 = 0x56_0000;
const INDEX: u64 = 0x57_0000;
const TREES: u64 = 0x58_0000;
const VARIABLES: u64 = 0x60_0000;
const LIST: u64 = 0x61_0000;
const GOROUTINES: u64 = 0x62_0000;
const STACKS: u64 = 0x70_0000;
const QUEUES: u64 = 0x80_0000;
const SEMAPHORES: u64 = 0x90_0000;
const REASONS: u64 = 0xa0_0000;
const TEXTS: u64 = 0xb0_0000;

/// Bytes of code of a function, and of its frame with the return address.
const CODE: u64 = 0x100;
const FRAME: u64 = 0x40;
/// Functions: the last one is under all others.
const NUMBER: u64 = 4;
/// Bytes of a goroutine, of a stack, of an entry of a queue, of a description of a function.
const GOROUTINE: u64 = 512;
const STACK: u64 = 1024;
const ENTRY: u64 = 96;
const DESCRIPTION: u64 = 64;

/// Lies: which word of a part, and what is there.
type Lies = Vec<(u16, Claim)>;

#[derive(Arbitrary, Debug)]
struct Input {
    release: Option<u8>,
    /// Whether only the list of goroutines has symbols: the rest is found by the code of functions.
    is_stripped: bool,
    goroutines: u8,
    reason: u8,
    module: Lies,
    index: Lies,
    functions: Lies,
    values: Lies,
    trees: Lies,
    names: Lies,
    code: Lies,
    variables: Lies,
    list: Lies,
    g: Lies,
    stacks: Lies,
    queues: Lies,
    semaphores: Lies,
    reasons: Lies,
}

impl Input {
    fn lies(&self) -> bool {
        let all = [
            &self.module,
            &self.index,
            &self.functions,
            &self.values,
            &self.trees,
            &self.names,
            &self.code,
            &self.variables,
            &self.list,
            &self.g,
            &self.stacks,
            &self.queues,
            &self.semaphores,
            &self.reasons,
        ];
        all.iter().any(|lies| !lies.is_empty())
    }
}

/// Bytes that are written word by word.
struct Part(Vec<u8>);

impl Part {
    fn new(size: u64) -> Self {
        Self(vec![0; size as usize])
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.0[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, at: u64, word: u64) {
        self.put(at, &word.to_le_bytes());
    }

    fn half(&mut self, at: u64, half: u32) {
        self.put(at, &half.to_le_bytes());
    }

    /// The bytes, where `lies` say something else than the truth.
    fn told(mut self, lies: &Lies) -> Vec<u8> {
        let words = (self.0.len() / 8).max(1);
        for (place, claim) in lies {
            let at = usize::from(*place) % words * 8;
            if let Some(bytes) = self.0.get_mut(at..at + 8) {
                let right = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                bytes.copy_from_slice(&claim.or(right).to_le_bytes());
            }
        }
        self.0
    }
}

/// A program of the oldest release that is known.
fn program(input: &Input, number: u64) -> Bytes {
    let mut memory = Bytes::default();
    let mut map = |at: u64, part: Part, lies: &Lies| memory.map(RemoteAddr(at), part.told(lies));
    let mut table = Part::new(8);
    table.put(0, &[0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8]);
    map(TABLE, table, &Vec::new());

    let mut module = Part::new(52 * 8);
    let words = [
        (0, TABLE),
        (1, NAMES),
        (4, UNITS),
        (7, FILES),
        (10, VALUES),
        (13, FUNCTIONS),
        (14, 0x1000),
        (16, INDEX),
        (17, NUMBER + 1),
        (20, TEXT),
        (21, TEXT + NUMBER * CODE),
        (22, TEXT),
        (23, TEXT + NUMBER * CODE),
        (38, TREES),
    ];
    words.iter().for_each(|(at, word)| module.word(at * 8, *word));
    map(MODULE, module, &input.module);

    let (mut index, mut functions, mut names) = (Part::new(64), Part::new(0x1000), Part::new(512));
    for function in 0..=NUMBER {
        index.half(function * 8, (function * CODE) as u32);
        index.half(function * 8 + 4, (function * DESCRIPTION) as u32);
        let at = function * DESCRIPTION;
        functions.half(at, (function * CODE) as u32);
        functions.half(at + 4, (function * 32 + 1) as u32);
        functions.half(at + 16, 8);
        functions.half(at + 24, 8);
        // Whether nothing called it.
        functions.put(at + 37, &[u8::from(function + 1 == NUMBER)]);
        let name: &[u8] = match function {
            0 => b"sync.(*Mutex).lockSlow",
            1 => b"sync.(*Cond).Wait",
            2 => b"runtime.semrelease1",
            3 => b"runtime.waitReason.String",
            _ => b"main.f",
        };
        names.put(function * 32 + 1, name);
    }
    let mut code = Part::new(NUMBER * CODE);
    for (function, variable) in [(2, SEMAPHORES), (3, REASONS)] {
        let at = function * CODE;
        // lea rax, [rip + ..]
        code.put(at, &[0x48, 0x8d, 0x05]);
        code.half(at + 3, (variable - (TEXT + at + 7)) as u32);
    }
    map(TEXT, code, &input.code);
    map(INDEX, index, &input.index);
    map(FUNCTIONS, functions, &input.functions);
    map(NAMES, names, &input.names);
    let mut values = Part::new(64);
    // The frame's bytes without the return address, for all of a function's code.
    values.put(8, &[((FRAME - 8 + 1) * 2) as u8, 0x80, 0x02, 0]);
    map(VALUES, values, &input.values);
    map(TREES, Part::new(256), &input.trees);

    let mut variables = Part::new(16);
    variables.word(0, LIST);
    variables.word(8, number);
    map(VARIABLES, variables, &input.variables);
    let (mut list, mut all) = (Part::new(number * 8), Part::new(number * GOROUTINE));
    let (mut stacks, mut queues) = (Part::new(number * STACK), Part::new(number * ENTRY));
    for goroutine in 0..number {
        let (at, address) = (goroutine * GOROUTINE, GOROUTINES + goroutine * GOROUTINE);
        list.word(goroutine * 8, address);
        let low = STACKS + goroutine * STACK;
        let sp = low + 256;
        let words = [
            (0, low),
            (8, low + STACK),
            (56, sp),
            (64, TEXT + 0x10),
            (152, goroutine + 1),
            (296, TEXT + 0x120),
            (312, TEXT + 0x200),
            (328, QUEUES + goroutine * ENTRY),
        ];
        words.iter().for_each(|(offset, word)| all.word(at + offset, *word));
        all.half(at + 144, 4);
        all.put(at + 176, &[input.reason]);
        // Each function was called by the next one.
        for frame in 1..NUMBER {
            stacks.word(goroutine * STACK + 256 + frame * FRAME - 8, TEXT + frame * CODE + 0x20);
        }
        stacks.word(goroutine * STACK + 256, QUEUES);
        let at = goroutine * ENTRY;
        queues.word(at, address);
        queues.word(at + 24, QUEUES);
        queues.word(at + 80, QUEUES);
    }
    map(LIST, list, &input.list);
    map(GOROUTINES, all, &input.g);
    map(STACKS, stacks, &input.stacks);
    map(QUEUES, queues, &input.queues);
    let mut semaphores = Part::new(251 * 64);
    semaphores.word(8, QUEUES);
    map(SEMAPHORES, semaphores, &input.semaphores);
    let (mut reasons, mut texts) = (Part::new(32 * 16), Part::new(64));
    texts.put(0, b"sync.Cond.WaitIO waitchan receivesync.Mutex.Lock");
    for reason in 0..32 {
        let (from, length) = [(0, 14), (14, 7), (21, 12), (33, 15)][reason as usize % 4];
        reasons.word(reason * 16, TEXTS + from);
        reasons.word(reason * 16 + 8, length);
    }
    map(REASONS, reasons, &input.reasons);
    map(TEXTS, texts, &Vec::new());
    memory
}

fuzz_target!(|input: Input| {
    let number = u64::from(input.goroutines % 8) + 1;
    let memory = program(&input, number);
    let variables = [
        ("runtime.allgptr", RemoteAddr(VARIABLES)),
        ("runtime.allglen", RemoteAddr(VARIABLES + 8)),
        ("runtime.semtable", RemoteAddr(SEMAPHORES)),
        ("runtime.waitReasonStrings", RemoteAddr(REASONS)),
    ];
    let variables = &variables[..if input.is_stripped { 2 } else { 4 }];
    let release = input.release.map(u32::from);
    let found = goroutines(&memory, RemoteAddr(TABLE), RemoteAddr(MODULE), variables, release);
    if !input.lies() && release.is_none_or(|release| release == 19) {
        let stack: Vec<u64> =
            (0..NUMBER).map(|frame| TEXT + frame * CODE + if frame == 0 { 0x10 } else { 0x20 }).collect();
        let expected: Vec<_> = (1..=number).map(|id| (id, Some(stack.clone()))).collect();
        assert_eq!(found, Some(expected));
        return;
    }
    // Nobody is there who is in no list, and a frame is where code is.
    for (_, stack) in found.unwrap_or_default() {
        assert!(stack.is_none_or(|stack| !stack.is_empty() && stack.len() <= 1024), "made up");
    }
});
