//! Actions of the commands: on, refresh, off, status.

use std::fs;
use std::path::Path;

use crate::guard::networks::Known;
use crate::guard::record::Record;
use crate::guard::system::System;
use config::policy::Policy;
use host::dnsmasq::Restarts;
use netio::netlink::Rule;

use crate::policy::apply::in_words;
use crate::policy::facts::{FAMILIES, Facts, TableFact, look};
use crate::policy::flows::{Changed, forget};
use crate::policy::leases::{Names, names};
use crate::policy::plan::Plan;
use crate::policy::record::{self, Asked};
use crate::policy::report::{Report, ways_now};
use crate::policy::resolved::resolved;
use crate::policy::second::{Near, devices};
use crate::policy::table::{Refusal, WantedTable};
use crate::policy::ways::Ways;
use crate::policy::{PolicyError, apply, dnsmasq, leases, rules};

/// For each mark, the interfaces that its IPv4 and IPv6 packets go through.
pub(crate) type WaysNow = Vec<(u32, [Option<u32>; 2])>;

/// The result of an action.
#[derive(Debug)]
pub struct Done {
    /// How the policy stands now.
    pub report: Report,
    /// Errors of the steps that failed. All others were done.
    pub errors: Vec<PolicyError>,
    /// Whether a part was missing and is set again.
    pub closed: bool,
    /// Number of connections that were forgotten because their way has changed.
    pub forgotten: usize,
    pub(crate) ways: WaysNow,
}

/// Sets the policy by these settings, which are in force from now on; `text` is their source. `kept` is the file in
/// which names of leases outlive a boot.
///
/// # Errors
/// [`PolicyError::Settings`], or when the host cannot be inspected. Steps that failed are in [`Done::errors`].
pub fn on(policy: &Policy, text: &str, kept: &Path) -> Result<Done, PolicyError> {
    if let Some(fault) = policy.fault() {
        return Err(PolicyError::Settings(fault));
    }
    let mut errors = Vec::new();
    let record = or_note(record::lock(), &mut errors);
    let before = record.as_ref().and_then(record::read);
    let known = before
        .as_ref()
        .map(|it| it.names.clone())
        .unwrap_or_else(|| leases::kept(kept));
    let asked = Asked {
        policy: policy.clone(),
        text: text.to_owned(),
        names: names(policy, &known),
        near: before
            .as_ref()
            .map(|it| it.near.clone())
            .unwrap_or_default(),
        known: before
            .as_ref()
            .map(|it| it.known.clone())
            .unwrap_or_default(),
        kept: Some(kept.to_owned()),
    };
    keep(&asked);
    if let Some(record) = &record {
        or_note(record::write(record, &asked), &mut errors);
    }
    let is_recorded = errors.is_empty() || before.is_some();
    let mut done = set(
        asked,
        before.as_ref(),
        record.as_ref().filter(|_| is_recorded),
        None,
        &mut Restarts::at_once(),
    )?;
    errors.append(&mut done.errors);
    done.errors = errors;
    Ok(done)
}

/// Writes the names of leases to their file. If that fails, they still hold until the next boot.
fn keep(asked: &Asked) {
    if let Some(path) = &asked.kept
        && let Err(error) = leases::keep(&asked.names, path)
    {
        log::debug!("{}: {error}", path.display());
    }
}

/// The value; an error is added to `errors`.
fn or_note<T>(
    result: Result<T, crate::guard::GuardError>,
    errors: &mut Vec<PolicyError>,
) -> Option<T> {
    result.map_err(|error| errors.push(error.into())).ok()
}

/// Restores any part that another program has removed, and looks for leases, if the policy is on; `None` if it is off.
///
/// # Errors
/// The errors of [`on`], and an error when there is no place for the record.
pub fn refresh() -> Result<Option<Done>, PolicyError> {
    refresh_since(None, &mut Restarts::at_once())
}

/// Restores the policy for a caller that knows the ways before.
pub(crate) fn refresh_since(
    ways: Option<&WaysNow>,
    restarts: &mut Restarts,
) -> Result<Option<Done>, PolicyError> {
    let record = record::lock()?;
    let Some(before) = record::read(&record) else {
        return Ok(None);
    };
    let mut asked = before.clone();
    asked.names = names(&asked.policy, &before.names);
    if asked.names != before.names {
        record::write(&record, &asked)?;
    }
    keep(&asked);
    set(asked, Some(&before), Some(&record), ways, restarts).map(Some)
}

/// Removes the policy. Also removes the files in which names of leases outlive a boot: `kept`, and the one in the
/// record. Returns the steps that failed.
///
/// # Errors
/// When the host cannot be inspected.
pub fn off(policy: Option<&Policy>, kept: &Path) -> Result<Vec<PolicyError>, PolicyError> {
    let mut errors = Vec::new();
    let record = or_note(record::lock(), &mut errors);
    let asked = record.as_ref().and_then(record::read);
    if let Some(record) = &record {
        or_note(record.remove(), &mut errors);
    }
    let earlier = policy.map(|it| it.table);
    let recorded = asked.as_ref().and_then(|it| it.kept.as_deref());
    for path in recorded.into_iter().chain([kept]) {
        let _ = fs::remove_file(path);
    }
    let (policy, known) = match asked {
        Some(asked) => (asked.policy, asked.names),
        None => (policy.cloned().unwrap_or_default(), Names::new()),
    };
    let mut system = System::open()?;
    let facts = Facts::gather(&policy, known, earlier, &mut system)?;
    // First, as `dnsmasq` would go on filling sets.
    if let Err(error) = dnsmasq::unset(&policy, &mut Restarts::at_once()) {
        errors.push(error);
    }
    let table = look(&wanted(&policy, &facts), &mut system);
    let applied = apply::lift(&Plan::lift(&facts, &table), &mut system);
    errors.extend(applied.errors);
    let all = everything(&policy, &facts);
    forget(&all, policy.mask, &policy.lan, &facts, &mut system);
    Ok(errors)
}

/// Reports how the policy stands, by the settings in force, or else by the given ones. Changes nothing.
///
/// # Errors
/// When the host cannot be inspected.
pub fn status(policy: Option<&Policy>) -> Result<Report, PolicyError> {
    let _settled = record::settle();
    let asked = record::peek();
    let is_asked = asked.is_some();
    let (settings, names_known, near, known) = match asked {
        Some(asked) => (Some(asked.policy), asked.names, asked.near, asked.known),
        None => (policy.cloned(), Names::new(), Near::new(), Known::default()),
    };
    let mut system = System::open()?;
    let default = Policy::default();
    let policy = settings.as_ref().unwrap_or(&default);
    let mut facts = Facts::gather(policy, names(policy, &names_known), None, &mut system)?;
    // The report shows the addresses in force, without those that the next look would add.
    (facts.near, facts.known) = (near, known);
    let table = look(&wanted(policy, &facts), &mut system);
    Ok(Report::new(settings.as_ref(), is_asked, &facts, &table))
}

/// Returns the texts for `nft` and `dnsmasq` and the rules that these settings would set on this host. Changes nothing.
///
/// # Errors
/// When the host cannot be inspected.
pub fn shown(policy: &Policy) -> Result<String, PolicyError> {
    let known = names(policy, &Names::new());
    let mut system = System::open()?;
    let mut facts = Facts::gather(policy, known, None, &mut system)?;
    let entries = resolved(policy, &facts.names);
    let before = (&Near::new(), &Known::default());
    facts.learn(policy, &entries, before, &mut system);
    let mut text = wanted(policy, &facts).script(Refusal::Reject, &[], &[]);
    let ways = Ways::new(policy);
    let place = rules::Place::among(&facts.rules);
    for family in FAMILIES {
        let all: Vec<Rule> = rules::wanted(policy, &ways, &facts, place, family);
        for rule in &all {
            text += &format!("# {}\n", in_words(rule));
        }
    }
    for line in dnsmasq::lines(policy)
        .iter()
        .flat_map(|it| it.lines().skip(1))
    {
        text += &format!("# dnsmasq: {line}\n");
    }
    Ok(text)
}

fn wanted(policy: &Policy, facts: &Facts) -> WantedTable {
    let entries = resolved(policy, &facts.names);
    WantedTable::new(&Ways::new(policy), &entries, &facts.surroundings(policy))
}

/// All connections of present and past entries.
fn everything(policy: &Policy, facts: &Facts) -> Changed {
    let ways = Ways::new(policy);
    let mut all = Changed::of_all(&resolved(policy, &facts.names));
    all.marks = ways.leads.iter().map(|it| it.mark).collect();
    all.marks.extend([ways.around, ways.block]);
    all
}

/// Sets the policy, with the record where there is one. `before` are the earlier settings, `ways` the earlier ways.
fn set(
    mut asked: Asked,
    before: Option<&Asked>,
    record: Option<&Record>,
    ways: Option<&WaysNow>,
    restarts: &mut Restarts,
) -> Result<Done, PolicyError> {
    let policy = &asked.policy;
    let mut system = System::open()?;
    let earlier = before.map(|it| it.policy.table);
    let mut facts = Facts::gather(policy, asked.names.clone(), earlier, &mut system)?;
    let mut errors = Vec::new();
    let entries = resolved(policy, &facts.names);
    // A device that is no longer held loses all known networks: the record does not tell which device had which.
    let held = devices(policy, &facts);
    let of_before = before.map(|it| devices(&it.policy, &facts));
    if of_before.iter().flatten().any(|it| !held.contains(it)) {
        asked.known = Known::default();
    }
    facts.learn(policy, &entries, (&asked.near, &asked.known), &mut system);
    if (&facts.near, &facts.known) != (&asked.near, &asked.known) {
        (asked.near, asked.known) = (facts.near.clone(), facts.known.clone());
        if let Some(record) = record {
            or_note(record::write(record, &asked), &mut errors);
        }
    }
    let policy = &asked.policy;
    let ways = ways.cloned().unwrap_or_else(|| ways_now(policy, &facts));
    let wanted = wanted(policy, &facts);
    let mut table = look(&wanted, &mut system);
    let is_new = table == TableFact::Absent;
    let plan = Plan::set(policy, &facts, &table);
    let mut applied = apply::set(&wanted, &plan, &mut system);
    // New sets stay empty for names that dnsmasq answers from its cache.
    let again = is_new && before.is_some();
    if let Err(error) = dnsmasq::set(policy, again, restarts) {
        applied.errors.push(error);
    }
    if !plan.is_empty() {
        let (near, known) = (facts.near, facts.known);
        facts = Facts::gather(policy, asked.names.clone(), None, &mut system)?;
        (facts.near, facts.known) = (near, known);
        table = look(&wanted, &mut system);
        applied.settle(&Plan::set(policy, &facts, &table));
    }
    let now = ways_now(policy, &facts);
    let mut changed = match before {
        Some(before) => Changed::between(
            &resolved(&before.policy, &before.names),
            &resolved(policy, &asked.names),
        ),
        None => everything(policy, &facts),
    };
    // A part was missing, so connections may have begun by another way.
    if applied.closed && is_new {
        changed = everything(policy, &facts);
    }
    let moved = now.iter().filter(|it| !ways.contains(it)).map(|it| it.0);
    changed.marks.extend(moved);
    let forgotten = forget(&changed, policy.mask, &policy.lan, &facts, &mut system);
    errors.extend(applied.errors);
    Ok(Done {
        report: Report::new(Some(policy), record.is_some(), &facts, &table),
        errors,
        closed: applied.closed,
        forgotten,
        ways: now,
    })
}
