//! Actions of the commands: on, refresh, off, status.

use std::collections::BTreeSet;
use std::fs;

use config::guard::{Guard, Part};
use host::dnsmasq::Restarts;
use netio::netlink::Family;

use crate::guard::asked::{self, Asked};
use crate::guard::chain::{Refusal, WantedChain};
use crate::guard::facts::{FAMILIES, Facts};
use crate::guard::networks::{Known, Surroundings};
use crate::guard::plan::Plan;
use crate::guard::report::{Report, State};
use crate::guard::system::System;
use crate::guard::way::{Way, servers};
use crate::guard::{GuardError, apply, flows};

/// For each table, the interfaces that IPv4 and IPv6 packets go through; `None` where packets are held.
pub(crate) type Ways = Vec<(u32, [Option<u32>; 2])>;

/// The result of an action.
#[derive(Debug)]
pub struct Done {
    /// How the guard stands now.
    pub report: Report,
    /// Errors of the steps that failed. All others were done.
    pub errors: Vec<GuardError>,
    /// Whether a part of the two layers was missing and is set again.
    pub closed: bool,
    /// Number of connections that were forgotten because their way has changed.
    pub forgotten: usize,
    pub(crate) ways: Ways,
}

/// Sets the guard by these settings, which are in force from now on.
///
/// # Errors
/// [`GuardError::Settings`], or when the host cannot be inspected. Steps that failed are in [`Done::errors`].
pub fn on(guard: &Guard) -> Result<Done, GuardError> {
    if let Some(fault) = guard.fault() {
        return Err(GuardError::Settings(fault));
    }
    // The guard is set even where the record fails.
    let mut errors = Vec::new();
    let record = or_note(Asked::lock(), &mut errors);
    let before = record.as_ref().and_then(Asked::read);
    // A device that is no longer guarded loses all known networks: the record does not tell which device had which.
    let lets_go = before.as_ref().is_some_and(|before| {
        let guarded = guard.guarded();
        let mut devices = before.guarded().into_iter();
        before.servers && !guard.servers || devices.any(|it| !guarded.contains(&it))
    });
    let known = record.as_ref().filter(|_| !lets_go).map(Asked::known);
    let known = known.unwrap_or_default();
    if let Some(record) = &record {
        or_note(record.write(guard, &known), &mut errors);
    }
    let wanted = Wanted {
        guard,
        record: record.as_ref(),
        asked: errors.is_empty() || before.is_some(),
        is_new: before.as_ref() != Some(guard),
        earlier: before.as_ref().map(|it| it.table),
    };
    let mut done = set(&wanted, None, &mut Restarts::at_once())?;
    errors.append(&mut done.errors);
    done.errors = errors;
    Ok(done)
}

/// The value; an error is added to `errors`.
fn or_note<T>(result: Result<T, GuardError>, errors: &mut Vec<GuardError>) -> Option<T> {
    result.map_err(|error| errors.push(error)).ok()
}

/// Restores any part that another program has removed, if the guard is on; `None` if it is off.
///
/// # Errors
/// The errors of [`on`], or [`GuardError::Record`].
pub fn refresh() -> Result<Option<Done>, GuardError> {
    refresh_since(None, &mut Restarts::at_once())
}

/// Restores the guard for a caller that knows the ways before.
pub(crate) fn refresh_since(
    before: Option<Ways>,
    restarts: &mut Restarts,
) -> Result<Option<Done>, GuardError> {
    let record = Asked::lock()?;
    let Some(guard) = record.read() else {
        return Ok(None);
    };
    let wanted = Wanted {
        guard: &guard,
        record: Some(&record),
        asked: true,
        is_new: false,
        earlier: None,
    };
    set(&wanted, before, restarts).map(Some)
}

/// Removes the guard: packets leave by the host's own routes until the guard is switched on again. Returns the steps
/// that failed.
///
/// # Errors
/// When the host cannot be inspected.
pub fn off(guard: Option<&Guard>) -> Result<Vec<GuardError>, GuardError> {
    lift(guard, Asked::let_go)
}

/// Ends the guard when no settings ask for it any more; later settings can set it again.
///
/// # Errors
/// The errors of [`off`].
pub fn end() -> Result<Vec<GuardError>, GuardError> {
    lift(None, Asked::remove)
}

/// The settings in force, if the guard is on.
#[must_use]
pub fn in_force() -> Option<Guard> {
    asked::peek()
}

/// Whether [`off`] has switched the guard off, and nobody has switched it on since.
#[must_use]
pub fn is_let_go() -> bool {
    asked::is_let_go()
}

fn lift(
    guard: Option<&Guard>,
    say: fn(&Asked) -> Result<(), GuardError>,
) -> Result<Vec<GuardError>, GuardError> {
    let mut errors = Vec::new();
    let record = or_note(Asked::lock(), &mut errors);
    let asked = record.as_ref().and_then(Asked::read);
    if let Some(record) = &record {
        or_note(say(record), &mut errors);
    }
    let earlier = guard.map(|it| it.table);
    let guard = asked.or_else(|| guard.cloned()).unwrap_or_default();
    let mut system = System::open()?;
    let facts = Facts::gather(&guard, earlier, &mut system)?;
    let guard = with_servers(&guard, &facts);
    let applied = apply::lift(&Plan::lift(&facts), &mut system);
    flows::forget(&guard, &guard.guarded(), &facts, &mut system);
    errors.extend(applied.errors);
    Ok(errors)
}

/// Reports how the guard stands, by the settings in force, or else by the given ones. Changes nothing.
///
/// # Errors
/// When the host cannot be inspected.
pub fn status(guard: Option<&Guard>) -> Result<Report, GuardError> {
    let _settled = asked::settle();
    let asked = asked::peek();
    let settings = asked.as_ref().or(guard);
    let mut system = System::open()?;
    let mut facts = Facts::gather(&settings.cloned().unwrap_or_default(), None, &mut system)?;
    facts.known = asked::peek_known();
    let settings = settings.map(|it| with_servers(it, &facts));
    Ok(report(settings.as_ref(), asked.is_some(), &facts, &system))
}

/// The settings plus the devices of VPN servers on this host. Their clients are held like the LAN, as a LAN device may
/// be one.
fn with_servers(guard: &Guard, facts: &Facts) -> Guard {
    let mut guard = guard.clone();
    if guard.servers && !guard.is_empty() {
        guard.lan.extend(servers(&guard, &facts.links));
        guard.merge_doubles();
    }
    guard
}

/// The guard's wanted state.
struct Wanted<'a> {
    guard: &'a Guard,
    record: Option<&'a Asked>,
    /// Whether the record has the guard on.
    asked: bool,
    /// Whether these settings differ from the earlier ones.
    is_new: bool,
    /// The table of the file's devices in the earlier settings.
    earlier: Option<u32>,
}

/// Gathers facts about the host, with the parts of the LAN that the record knows.
fn gather(
    guard: &Guard,
    known: &Known,
    earlier: Option<u32>,
    system: &mut System,
) -> Result<(Guard, Facts), GuardError> {
    let mut facts = Facts::gather(guard, earlier, system)?;
    let guard = with_servers(guard, &facts);
    facts.known = known.with(
        &guard.guarded(),
        &facts.links,
        &facts.addresses,
        &facts.main,
    );
    Ok((guard, facts))
}

/// Sets the guard; `before` are the earlier ways.
fn set(
    wanted: &Wanted<'_>,
    before: Option<Ways>,
    restarts: &mut Restarts,
) -> Result<Done, GuardError> {
    let mut system = System::open()?;
    let known = wanted.record.map(Asked::known).unwrap_or_default();
    let (guard, mut facts) = gather(wanted.guard, &known, wanted.earlier, &mut system)?;
    let mut errors = Vec::new();
    // The record is written before the layers are set, so that a later process holds at least as much.
    if let Some(record) = wanted.record.filter(|_| facts.known != known) {
        or_note(record.write(wanted.guard, &facts.known), &mut errors);
    }
    let before = before.unwrap_or_else(|| ways(&guard, &facts));
    let plan = Plan::set(&guard, &facts);
    let mut applied = apply::set(&guard, &facts, &plan, &mut system, restarts);
    if !plan.is_empty() {
        let known = facts.known;
        facts = Facts::gather(&guard, None, &mut system)?;
        facts.known = known;
        applied.settle(&Plan::set(&guard, &facts));
    }
    let now = ways(&guard, &facts);
    let closed = applied.closed || wanted.is_new && plan.chain;
    // When a tunnel comes or goes, only connections of its own devices are forgotten.
    let devices: Vec<&str> = match closed {
        true => guard.guarded(),
        false => guard
            .parts()
            .into_iter()
            .zip(&now)
            .filter(|(_, way)| !before.contains(way))
            .flat_map(|(part, _)| part.lan)
            .collect(),
    };
    let forgotten = match devices.is_empty() {
        true => 0,
        false => flows::forget(&guard, &devices, &facts, &mut system),
    };
    errors.extend(applied.errors);
    Ok(Done {
        report: report(Some(&guard), wanted.asked, &facts, &system),
        errors,
        closed: applied.closed,
        forgotten,
        ways: now,
    })
}

fn ways(guard: &Guard, facts: &Facts) -> Ways {
    let of = |part: &Part<'_>| FAMILIES.map(|family| Way::of(part, facts, family).index());
    let parts = guard.parts();
    parts.iter().map(|part| (part.table, of(part))).collect()
}

fn report(guard: Option<&Guard>, asked: bool, facts: &Facts, system: &System) -> Report {
    let mut report = Report::new(guard, asked, facts);
    report.watched = crate::guard::watch::runs();
    if let Some(dnsmasq) = &system.dnsmasq
        && guard.is_some_and(|it| !it.dns.is_empty())
        && report.state != State::Off
    {
        let names = guard.map_or(&[][..], |it| &it.dns_names);
        report.notes.extend(dnsmasq.other_servers(names).into_iter().take(4).map(|server| {
            format!(
                "dnsmasq asks {server} besides, also while no tunnel is up: take that out of its configuration"
            )
        }));
    }
    if report.state == State::Held
        && let Some(guard) = guard.filter(|it| !it.lan.is_empty())
        && !facts
            .links
            .iter()
            .any(|it| guard.tunnels.iter().any(|tunnel| tunnel.matches(&it.name)))
    {
        let up = facts
            .links
            .iter()
            .filter(|it| it.up)
            .map(|it| it.name.as_str());
        report
            .notes
            .extend(host::tunnel_devices::instead(up, |_| false));
    }
    let through: BTreeSet<&str> = report
        .parts
        .iter()
        .filter_map(|part| part.ways[0].device())
        .collect();
    let strict: Vec<String> = through
        .into_iter()
        .filter(|device| is_filter_strict(device))
        .map(|device| {
            format!(
                "answers that come by {device} are dropped, as net.ipv4.conf.{device}.rp_filter (or all) is 1: set it to 2"
            )
        })
        .collect();
    report.notes.extend(strict);
    report
}

/// Whether the kernel's strict `rp_filter` drops answers from a tunnel, as the main table has no route into it. The
/// larger of two values counts; 2 is the loose mode.
fn is_filter_strict(device: &str) -> bool {
    let value = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        text.ok().and_then(|text| text.trim().parse::<u8>().ok())
    };
    value("all").max(value(device)) == Some(1)
}

/// Returns the `nft` scripts and the rules that these settings would set on this host. Changes nothing.
///
/// # Errors
/// When the host cannot be inspected.
pub fn shown(guard: &Guard) -> Result<String, GuardError> {
    let (guard, facts) = gather(guard, &Known::default(), None, &mut System::open()?)?;
    let mut text = String::new();
    for chain in WantedChain::all(&guard, &Surroundings::new(&guard, &facts)) {
        text += &chain.script(Refusal::Reject);
    }
    for family in FAMILIES {
        let number = if family == Family::V4 { 4 } else { 6 };
        for rule in crate::guard::rules::wanted(&guard, &facts, family) {
            let priority = rule.priority.unwrap_or(0);
            text += &format!("# IPv{number} rule {priority} {rule}\n");
        }
    }
    Ok(text)
}
