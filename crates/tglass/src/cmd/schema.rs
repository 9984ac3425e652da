//! `tglass schema`: what `--json` prints, for programs that check or generate code.

use crate::cli::SchemaArgs;
use anyhow::Result;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use std::process::ExitCode;
use threadglass::model::{
    ContentionReport, Doctor, Machine, Profile, SCHEMA, SetReport, Snapshot, SnapshotDiff, Stats, TsdSnapshot,
    UndoReport, WatchEvent,
};

/// The commands that have `--json`.
pub const COMMANDS: [&str; 11] =
    ["why", "threads", "locks", "contend", "tsd", "stats", "profil", "set", "diff", "doctor", "watch"];

/// Prints the schema of one document, or of all.
pub fn run(args: &SchemaArgs) -> Result<ExitCode> {
    super::print_json(&schema(args.command.as_deref()))
}

fn schema(command: Option<&str>) -> Schema {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let documents: Vec<Schema> = match command {
        Some(command) => of_command(command, &mut generator),
        None => ["why", "contend", "tsd", "stats", "profil", "set", "diff", "doctor", "watch"]
            .iter()
            .flat_map(|command| of_command(command, &mut generator))
            .collect(),
    };
    let mut whole = schemars::json_schema!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "anyOf": documents,
    });
    whole.insert("$defs".to_owned(), generator.take_definitions(true).into());
    whole
}

fn of_command(command: &str, generator: &mut SchemaGenerator) -> Vec<Schema> {
    match command {
        "contend" => vec![document::<ContentionReport>(generator)],
        "tsd" => vec![document::<TsdSnapshot>(generator)],
        "stats" => vec![document::<Stats>(generator)],
        "profil" => vec![document::<Profile>(generator)],
        "set" => vec![document::<SetReport>(generator), document::<UndoReport>(generator)],
        "diff" => vec![document::<SnapshotDiff>(generator)],
        "doctor" => vec![document::<Doctor>(generator)],
        "watch" => vec![document::<WatchEvent>(generator)],
        "why" => vec![document::<Snapshot>(generator), document::<Machine>(generator)],
        _ => vec![document::<Snapshot>(generator)],
    }
}

fn document<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
