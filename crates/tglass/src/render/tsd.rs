//! The screen of `tglass tsd`.

use super::table::{Cell, Table};
use super::{DIM, gaps, safe};
use threadglass::model::TsdSnapshot;

/// The whole screen.
pub fn text(snapshot: &TsdSnapshot) -> String {
    let target = &snapshot.target;
    let name = super::target::name(target);
    let (keys, threads) = (snapshot.keys.len(), snapshot.threads.len());
    let mut out = format!(
        "{name}  {keys} {} in use, values in {threads} {}\n{}\n\n",
        if keys == 1 { "key" } else { "keys" },
        if threads == 1 { "thread" } else { "threads" },
        super::target::how(target, (snapshot.pause_us, 0), None),
    );
    if keys > 0 {
        let mut table = Table::new(&[">KEY", "DESTRUCTOR"]);
        for key in &snapshot.keys {
            let destructor = match (&key.destructor_function, key.destructor) {
                (Some(name), Some(addr)) => Cell::from(format!("{}  ({addr})", safe(name))),
                (None, Some(addr)) => Cell::from(addr.to_string()),
                (_, None) => Cell::styled("none", DIM),
            };
            table.row(vec![key.key.to_string().into(), destructor]);
        }
        out += &table.render();
    }
    if threads > 0 {
        out.push('\n');
        let mut table = Table::new(&[">LWP", "ID", "NAME", ">KEY", "VALUE"]);
        for thread in &snapshot.threads {
            for (index, value) in thread.values.iter().enumerate() {
                let first = |text: String| if index == 0 { text } else { String::new() };
                table.row(vec![
                    first(thread.lwp.map_or("-".to_owned(), |lwp| lwp.to_string())).into(),
                    first(thread.id.to_string()).into(),
                    first(thread.name.as_deref().map_or("-".to_owned(), safe)).into(),
                    value.key.to_string().into(),
                    value.value.to_string().into(),
                ]);
            }
        }
        out += &table.render();
    }
    out + &gaps::text(&snapshot.gaps)
}
