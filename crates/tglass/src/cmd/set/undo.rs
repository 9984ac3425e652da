//! `tglass set --undo`

use super::journal::{Journal, unhex};
use crate::cli::SetArgs;
use crate::cmd::target::WhichTarget;
use crate::render::set as screen;
use anyhow::{Context, Error, Result, anyhow, ensure};
use std::path::Path;
use std::process::ExitCode;
use threadglass::act::LiveWriter;
use threadglass::act::set_state::{Concerned, Kicked, SetError, apply, carry_out, find_sharers, undo_plan};
use threadglass::look::{Names, Scope};
use threadglass::memory::Memory;
use threadglass::model::{Holder, SCHEMA, SetPlan, SyncKind, UndoDone, UndoReport};
use threadglass::target::Live;
use threadglass::{Lwp, Pid, RemoteAddr, look};

pub fn run(args: &SetArgs) -> Result<ExitCode> {
    ensure!(args.pid.is_none() || args.process.is_none(), "give the process once: by its PID, by its name or with -p");
    let (word, _) = args.words().map_err(Error::msg)?;
    let (path, journal, live) = match WhichTarget::of(Some(word))? {
        WhichTarget::Process(pid) => {
            let live = super::open(pid)?;
            let (path, journal) = Journal::newest(&live)?;
            (path, journal, live)
        }
        WhichTarget::File(path) => {
            let journal = Journal::read(&path)?;
            let live = super::open(Pid(journal.pid))?;
            ensure!(
                journal.is_of(&live),
                "process {} is not the one in {}: that process has ended",
                journal.pid,
                path.display()
            );
            (path, journal, live)
        }
    };
    let (plan, holders) = plan(&journal, &live)?;
    if !args.yes {
        return tell(args, &plan, &path, None);
    }
    let elsewhere = find_sharers(&live, plan.address, plan.before.len() as u64).waiters;
    let concerned = Concerned::by(&plan, live.pid(), &holders, &elsewhere);
    concerned.check_untraced()?;
    let (_, kicked) = carry_out(&concerned, |refused| {
        super::check_all_wake(&live, refused)?;
        apply(&LiveWriter(&live), &plan)
    })?;
    journal.undone().rewrite(&path)?;
    tell(args, &plan, &path, Some(&kicked))
}

fn tell(args: &SetArgs, plan: &SetPlan, path: &Path, kicked: Option<&Kicked>) -> Result<ExitCode> {
    if !args.json {
        return crate::cmd::print(&screen::undo(plan, path, kicked));
    }
    crate::cmd::print_json(&UndoReport {
        schema: SCHEMA,
        dry_run: kicked.is_none(),
        plan: plan.clone(),
        journal: path.to_owned(),
        done: kicked.map(|kicked| UndoDone { pause_us: screen::micros(kicked.total) }),
    })
}

/// What it takes to undo the change, and who holds the object now.
fn plan(journal: &Journal, live: &Live) -> Result<(SetPlan, Vec<Holder>)> {
    let bad = || format!("the journal of process {} is damaged", journal.pid);
    ensure!(journal.undone_at_ms.is_none(), "this change is already undone");
    let address = journal.address.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let address = RemoteAddr(address.with_context(bad)?);
    let kind = SyncKind::ALL.into_iter().find(|kind| kind.word() == journal.kind).with_context(bad)?;
    let family = journal.family().with_context(bad)?;
    let (old, new) = (unhex(&journal.old).with_context(bad)?, unhex(&journal.new).with_context(bad)?);
    ensure!(!old.is_empty() && old.len() <= 64 && old.len() == new.len(), bad());
    let mut now = vec![0; old.len()];
    live.read_exact(address, &mut now)?;
    ensure!(journal.done || now != old, "nothing to undo: the lock is as it was before the change");
    let snapshot = look::look(live, Scope::Waited, Names::Findings)?;
    let object = snapshot.objects.into_iter().find(|object| object.address == address);
    let (waiters, holders) = object.map(|object| (object.waiters, object.holders)).unwrap_or_default();
    let waiters: Vec<Lwp> = waiters.iter().map(|waiter| waiter.lwp).collect();
    let plan = undo_plan((address, kind, family), &old, &new, &now, !journal.done, waiters).map_err(|error| match error {
        SetError::Changed(_) => anyhow!(
            "the {} at {address} has been used since the change, so the old state would be wrong (nothing was written)",
            journal.kind
        ),
        error => error.into(),
    })?;
    // Equal bytes do not mean that nothing happened: who was woken has had the lock, and may have given it back.
    let gone_on: Vec<String> =
        journal.woken.iter().filter(|lwp| !plan.kick.contains(&Lwp(**lwp))).map(i32::to_string).collect();
    ensure!(
        gone_on.is_empty() || !journal.done,
        "cannot be undone: thread {} was woken by the change and has gone on since (nothing was written)",
        gone_on.join(", ")
    );
    Ok((plan, holders))
}
