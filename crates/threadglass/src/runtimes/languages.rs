//! Languages with threads, tasks or locks of their own: how each is known in a process, what of it is not seen from
//! outside, and the tool that sees it. This is the one table of them.

use super::go::is_go;
use crate::RemoteAddr;
use crate::elf::Image;
use crate::model::{Family, LanguageRuntime};
use crate::target::{Language, Target};
use std::ops::Range;

/// What is known of one language.
struct Row {
    language: Language,
    name: &'static str,
    /// Whose objects it is that are told of it.
    families: &'static [Family],
    /// A symbol that its library exports, or a program that contains it. Go has a section instead.
    symbol: Option<&'static str>,
    unseen: &'static str,
    /// The command for a process; `PID` stands for its number.
    tool: Option<&'static str>,
    /// What that command does to the process.
    effect: Option<&'static str>,
    /// The command for a core file; `CORE` and `EXE` stand for the files.
    core_tool: Option<&'static str>,
}

static ROWS: [Row; 8] = [
    Row {
        language: Language::Python,
        name: "CPython",
        families: &[Family::Python, Family::Gil],
        symbol: Some("_PyRuntime"),
        unseen: "Python functions, and who holds a threading.Lock (Python does not record that)",
        tool: Some("py-spy dump --pid PID"),
        effect: Some("pauses the process for a moment"),
        core_tool: Some("pystack core CORE EXE"),
    },
    Row {
        language: Language::Java,
        name: "Java (HotSpot)",
        families: &[Family::Java],
        symbol: Some("gHotSpotVMStructs"),
        unseen: "Java methods, and who holds a lock of java.util.concurrent",
        tool: Some("jstack PID"),
        effect: Some("pauses Java threads for a moment"),
        core_tool: Some("jhsdb jstack --exe EXE --core CORE"),
    },
    Row {
        language: Language::Node,
        name: "Node.js (V8)",
        families: &[Family::JavaScript],
        symbol: Some("node_module_register"),
        unseen: "JavaScript functions, and what promises wait for",
        tool: Some("node inspect -p PID"),
        effect: Some("acts on the process: it starts the debugger in there, as kill -USR1 does"),
        core_tool: None,
    },
    Row {
        language: Language::Go,
        name: "Go",
        families: &[Family::Go],
        symbol: None,
        unseen: "stacks of running goroutines",
        tool: Some("dlv attach PID"),
        effect: Some("stops the process until the debugger is left"),
        core_tool: Some("dlv core EXE CORE"),
    },
    Row {
        language: Language::DotNet,
        name: ".NET",
        families: &[],
        symbol: Some("coreclr_initialize"),
        unseen: "managed threads' methods and monitors, and tasks",
        tool: Some("dotnet-stack report -p PID"),
        effect: Some("pauses the process for a moment"),
        core_tool: Some("dotnet-dump analyze CORE"),
    },
    Row {
        language: Language::Ruby,
        name: "Ruby",
        families: &[],
        symbol: Some("rb_thread_call_without_gvl"),
        unseen: "Ruby methods, who has the global VM lock, and Ruby's mutexes and queues",
        tool: Some("rbspy dump --pid PID"),
        effect: Some("pauses the process for a moment"),
        core_tool: None,
    },
    Row {
        language: Language::Erlang,
        name: "Erlang (BEAM)",
        families: &[],
        symbol: Some("enif_make_resource"),
        unseen: "Erlang processes, and what they wait for",
        tool: Some("erl -sname glass -remsh NODE"),
        effect: Some("runs a shell in the Erlang node"),
        core_tool: None,
    },
    Row {
        language: Language::Guile,
        name: "Guile",
        families: &[],
        symbol: Some("scm_boot_guile"),
        unseen: "Scheme procedures, mutexes and fibers",
        tool: None,
        effect: None,
        core_tool: None,
    },
];

/// A language that a process has loaded.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(super) language: Language,
    /// Where the object is that has its code.
    pub(super) module: Range<RemoteAddr>,
    /// What the symbol that it is known by stands for.
    pub(super) symbol: RemoteAddr,
    pub(super) symbol_size: u64,
}

/// The languages of `target`: by the names of its libraries, and by what the program exports. A name alone proves nothing.
pub(crate) fn loaded(target: &dyn Target) -> Vec<Loaded> {
    let mut found: Vec<Loaded> = Vec::new();
    for module in target.modules() {
        let is_program = target.is_program(module);
        let by_name = Language::of(&module.file_name());
        let rows = ROWS.iter().filter(|row| is_program || by_name == Some(row.language));
        let rows: Vec<&Row> = rows.filter(|row| found.iter().all(|it| it.language != row.language)).collect();
        let Some(image) = rows.first().and_then(|_| Image::load(target, module.base).ok()) else { continue };
        for row in rows {
            let (symbol, symbol_size) = match row.symbol.map(|name| image.find_export(target, name)) {
                Some(Some(symbol)) => (symbol.addr, symbol.size),
                None if is_go(target, module) => (module.base, 0),
                _ => continue,
            };
            let module = module.base..module.end;
            found.push(Loaded { language: row.language, module, symbol, symbol_size });
        }
    }
    found
}

/// The languages of `target`, for people.
pub(crate) fn described(target: &dyn Target) -> Vec<LanguageRuntime> {
    let identity = target.identity();
    let describe = |row: &Row| {
        let tool = match &identity.core {
            None => row.tool.map(|tool| tool.replace("PID", &target.pid().to_string())),
            Some(core) => {
                let exe = identity.exe.as_deref().unwrap_or("EXE");
                row.core_tool.map(|tool| tool.replace("EXE", exe).replace("CORE", &core.path))
            }
        };
        LanguageRuntime {
            name: row.name.to_owned(),
            unseen: row.unseen.to_owned(),
            effect: row.effect.filter(|_| identity.core.is_none()).map(str::to_owned),
            tool,
            is_read: !row.families.is_empty(),
        }
    };
    let loaded = loaded(target);
    ROWS.iter().filter(|row| loaded.iter().any(|it| it.language == row.language)).map(describe).collect()
}

/// The name of the language whose objects are of `family`.
pub(crate) fn name_of(family: Family) -> Option<&'static str> {
    ROWS.iter().find(|row| row.families.contains(&family)).map(|row| row.name)
}
