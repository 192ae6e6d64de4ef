//! What the commands do: on, again, off, and a look.

use std::collections::BTreeSet;
use std::fs;

use config::guard::{Guard, Part};
use host::dnsmasq::Restarts;
use netio::netlink::Rule;

use crate::asked::{self, Asked};
use crate::facts::{FAMILIES, Facts};
use crate::plan::Plan;
use crate::report::{Report, State};
use crate::system::System;
use crate::way::Way;
use crate::{GuardError, apply, flows};

/// For each table the interfaces that packets of IPv4 and of IPv6 go through; none where they are held.
pub(crate) type Ways = Vec<(u32, [Option<u32>; 2])>;

/// What was done.
#[derive(Debug)]
pub struct Done {
    /// How the guard stands now.
    pub report: Report,
    /// What could not be done. The rest was.
    pub errors: Vec<GuardError>,
    /// Anything of the two layers was missing, and was set.
    pub closed: bool,
    /// Connections that were forgotten, as they had another way.
    pub forgotten: usize,
    pub(crate) ways: Ways,
}

/// Sets the guard by these settings, which are in force from now on.
///
/// # Errors
/// [`GuardError::Settings`], or when the host cannot be looked at. What could not be set or recorded is among
/// [`Done::errors`].
pub fn on(guard: &Guard) -> Result<Done, GuardError> {
    if let Some(fault) = guard.fault() {
        return Err(GuardError::Settings(fault));
    }
    // What holds is set, whatever becomes of the record.
    let mut errors = Vec::new();
    let record = or_note(Asked::lock(), &mut errors);
    let before = record.as_ref().and_then(Asked::read);
    if let Some(record) = &record {
        or_note(record.write(guard), &mut errors);
    }
    let earlier = before.as_ref().map(|it| it.table);
    let asked = errors.is_empty() || before.is_some();
    let mut done = set(guard, asked, earlier, None, &mut Restarts::at_once())?;
    errors.append(&mut done.errors);
    done.errors = errors;
    Ok(done)
}

/// The value, or its error among others.
fn or_note<T>(result: Result<T, GuardError>, errors: &mut Vec<GuardError>) -> Option<T> {
    result.map_err(|error| errors.push(error)).ok()
}

/// Sets again what another program has taken away, if the guard is on; `None` if it is not.
///
/// # Errors
/// As [`on`], or [`GuardError::Record`].
pub fn refresh() -> Result<Option<Done>, GuardError> {
    refresh_since(None, &mut Restarts::at_once())
}

/// The same, for one that knows which ways there were before.
pub(crate) fn refresh_since(
    before: Option<Ways>,
    restarts: &mut Restarts,
) -> Result<Option<Done>, GuardError> {
    let record = Asked::lock()?;
    record
        .read()
        .map(|guard| set(&guard, true, None, before, restarts))
        .transpose()
}

/// Takes the guard away: everything leaves by the way that the host has for it, until it is asked for again. Returns what
/// could not be taken away.
///
/// # Errors
/// When the host cannot be looked at.
pub fn off(guard: Option<&Guard>) -> Result<Vec<GuardError>, GuardError> {
    lift(guard, Asked::let_go)
}

/// The same where settings ask for nothing any more: what they ask for later is set again.
///
/// # Errors
/// As [`off`].
pub fn end() -> Result<Vec<GuardError>, GuardError> {
    lift(None, Asked::remove)
}

/// The settings in force, if the guard is on.
#[must_use]
pub fn in_force() -> Option<Guard> {
    asked::peek()
}

/// Whether it is off since [`off`], and nothing has asked for it since.
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
    let applied = apply::lift(&Plan::lift(&facts), &mut system);
    flows::forget(&guard, &guard.guarded(), &facts, &mut system);
    errors.extend(applied.errors);
    Ok(errors)
}

/// How the guard stands, by the settings in force, or by those given where none are. Changes nothing.
///
/// # Errors
/// When the host cannot be looked at.
pub fn status(guard: Option<&Guard>) -> Result<Report, GuardError> {
    let asked = asked::peek();
    let settings = asked.as_ref().or(guard);
    let mut system = System::open()?;
    let facts = Facts::gather(&settings.cloned().unwrap_or_default(), None, &mut system)?;
    Ok(report(settings, asked.is_some(), &facts, &system))
}

/// Sets it; `asked` where the record says so, `earlier` is the table of the settings before, `before` the ways of then.
fn set(
    guard: &Guard,
    asked: bool,
    earlier: Option<u32>,
    before: Option<Ways>,
    restarts: &mut Restarts,
) -> Result<Done, GuardError> {
    let mut system = System::open()?;
    let mut facts = Facts::gather(guard, earlier, &mut system)?;
    let before = before.unwrap_or_else(|| ways(guard, &facts));
    let plan = Plan::set(guard, &facts);
    let applied = apply::set(guard, &plan, &mut system, restarts);
    if !plan.is_empty() {
        facts = Facts::gather(guard, None, &mut system)?;
    }
    let now = ways(guard, &facts);
    // A tunnel that comes or goes is no matter of those who have another.
    let devices: Vec<&str> = match applied.closed {
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
        false => flows::forget(guard, &devices, &facts, &mut system),
    };
    Ok(Done {
        report: report(Some(guard), asked, &facts, &system),
        errors: applied.errors,
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

/// Whether the kernel drops what comes by an interface that it would not send the answer by, which is so for all tunnels
/// of the guard: the main table does not lead there. The larger of two values counts, and 2 is the loose mode.
fn is_filter_strict(device: &str) -> bool {
    let value = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        text.ok().and_then(|text| text.trim().parse::<u8>().ok())
    };
    value("all").max(value(device)) == Some(1)
}

/// The rules that these settings ask for on this host, in the order in which they are added. Changes nothing.
///
/// # Errors
/// When the host cannot be looked at.
pub fn wanted_rules(guard: &Guard) -> Result<Vec<Rule>, GuardError> {
    let facts = Facts::gather(guard, None, &mut System::open()?)?;
    let mut none = facts.clone();
    for rules in none.rules.iter_mut().flatten() {
        rules.clear();
    }
    Ok(Plan::set(guard, &none).rules.add)
}
