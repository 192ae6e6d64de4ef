//! The guard: devices of the LAN reach the Internet through a tunnel, or not at all.
//!
//! Two layers block IPv4 and IPv6 packets that no tunnel carries, and each is enough when the other has been removed:
//!
//! | layer | where | what it says |
//! |---|---|---|
//! | `chain` | table `inet millrace` | packets from a guarded device, or its networks, leave only to the LAN or a tunnel |
//! | `rules` | routing rules 900 to 981 | main table for the LAN's networks; else the guard's table; else nowhere |
//!
//! The chains are above all in the `forward` hook; "LAN" in the first row is any device of the LAN.
//!
//! The layers belong to the kernel and to no process, so they stay when a tunnel ends, is killed or never starts. A
//! tunnel only adds the default route in the guard's table; where it adds none, the guard does when it sees the device.
//!
//! The last rule is a *rule* and not a route: IPv6 ties an "unreachable" route to `lo`, and loses it with `lo`. The
//! first rules name networks instead of using the whole main table but its default route. That table also has routes
//! from DHCP (option 121) and the WAN's own network.
//!
//! Where settings request it, the router's own `dnsmasq` queries name servers behind the tunnel, and only through the
//! tunnel's device. The LAN's queries to other servers are then redirected to the router, and DNS over TLS or QUIC
//! (port 853) is refused.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use config::guard::{Guard, tables};
use host::dnsmasq::Restarts;

use crate::facts::{FAMILIES, Facts};
use crate::filter::Chains;
use crate::flows::{Leaving, forget};
use crate::networks::Known;
use crate::record::{self, Claim, Record};
use crate::settings::{self, Settings};
use crate::system::System;
use crate::watch;
use crate::{SteerError, Ways, or_note};

mod chain;
mod dns;
mod plan;
mod report;
pub(crate) mod rules;

pub use chain::{CHAIN, TABLE};
pub use report::{PartReport, Report, State};
pub use rules::PRIORITIES;

/// The result of an action.
pub type Done = crate::Done<Report>;

/// The name of the lock of a process that watches.
const WATCH: &str = "guard-watch";

/// The record's text after `off`.
const LET_GO: &str = "# off\n";

/// Settings from the record.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    guard: Guard,
    /// Networks, ports and indices that devices of the LAN had.
    known: Known,
}

impl Settings for Asked {
    const NAME: &str = "guard";
    const TABLE: &str = TABLE;
    const SLOW: Duration = Duration::from_secs(30);
    const PACE: Duration = Duration::from_millis(20);
    const CLOSED: log::Level = log::Level::Warn;
    type Report = Report;
    type News = ();

    fn of(text: &str) -> Option<Self> {
        if text == LET_GO {
            return None;
        }
        let guard = Guard::from_kept(text, Path::new(record::DIRECTORY));
        Some(Self {
            guard: guard.map_err(|error| log::warn!("{error}")).ok()?,
            known: Known::of_text(text),
        })
    }

    fn in_text(&self) -> String {
        self.known.text() + &self.guard.to_kept()
    }

    fn set(
        mut self,
        before: Option<&Self>,
        record: Option<&Record>,
        ways: Option<&Ways>,
        restarts: &mut Restarts,
    ) -> Result<Done, SteerError> {
        let mut system = System::open()?;
        let earlier = before.map(|it| it.guard.table);
        let (guard, mut facts) = gather(&self.guard, &self.known, earlier, &mut system)?;
        let mut errors = Vec::new();
        // The record is written before the layers are set, so that a later process knows every network and port that
        // they cover.
        if facts.known != self.known {
            self.known = facts.known.clone();
            or_note(
                record.map_or(Ok(()), |it| it.write(&self.in_text())),
                &mut errors,
            );
        }
        let ways = ways.cloned().unwrap_or_else(|| ways_now(&guard, &facts));
        let plan = plan::set(&guard, &facts);
        let mut applied = plan.apply(rules::holds, &mut system);
        // Last, as restarting dnsmasq may take a second.
        or_note(dns::tell(&plan, &system, restarts), &mut applied.errors);
        if !plan.is_empty() {
            (_, facts) = gather(&guard, &facts.known, None, &mut system)?;
            applied.settle(&plan::set(&guard, &facts));
        }
        let now = ways_now(&guard, &facts);
        let is_new = before.is_none_or(|it| it.guard != self.guard);
        // When a tunnel or its address comes or goes, only connections of its own devices are forgotten.
        let devices: Vec<&str> = match applied.closed || is_new && !plan.scripts.is_empty() {
            true => guard.guarded(),
            false => guard
                .parts()
                .into_iter()
                .zip(&now)
                .filter(|(_, way)| !ways.contains(way))
                .flat_map(|(part, _)| part.lan)
                .collect(),
        };
        let forgotten = match devices.is_empty() {
            true => 0,
            false => forget_leaving(&guard, &devices, &facts, &mut system),
        };
        errors.extend(applied.errors);
        Ok(Done {
            report: Report::new(
                Some(&guard),
                record.is_some(),
                &facts,
                system.dnsmasq.as_ref(),
            ),
            errors,
            closed: applied.closed,
            forgotten,
            ways: now,
        })
    }

    fn words(report: &Report) -> String {
        report.words()
    }
}

/// Applies these guard settings.
///
/// # Errors
/// [`SteerError::Settings`], or when the host cannot be inspected. Steps that failed are in [`Done`].
pub fn on(guard: &Guard) -> Result<Done, SteerError> {
    if let Some(fault) = guard.fault() {
        return Err(SteerError::Settings(fault));
    }
    settings::put(|before: Option<&Asked>| {
        // A device that is no longer guarded loses all known networks: the record does not tell which device had which.
        let keeps = |before: &&Asked| {
            let guarded = guard.guarded();
            let mut devices = before.guard.guarded().into_iter();
            (guard.servers || !before.guard.servers) && devices.all(|it| guarded.contains(&it))
        };
        let known = before.filter(keeps).map(|it| it.known.clone());
        Asked {
            guard: guard.clone(),
            known: known.unwrap_or_default(),
        }
    })
}

/// Restores any part that another program has removed, if the guard is on; `None` if it is off.
///
/// # Errors
/// The errors of [`on`], or [`SteerError::Record`].
pub fn refresh() -> Result<Option<Done>, SteerError> {
    settings::restore::<Asked>(None, &mut (), &mut Restarts::at_once())
}

/// Removes the guard: packets leave through the host's own routes until the guard is switched on again. Returns the
/// steps that failed.
///
/// # Errors
/// When the host cannot be inspected.
pub fn off(guard: Option<&Guard>) -> Result<Vec<SteerError>, SteerError> {
    lift(guard, |record| record.write(LET_GO))
}

/// Ends the guard when no settings request it any more; later settings can set it again.
///
/// # Errors
/// The errors of [`off`].
pub fn end() -> Result<Vec<SteerError>, SteerError> {
    lift(None, Record::remove)
}

/// The settings in force, if the guard is on.
#[must_use]
pub fn in_force() -> Option<Guard> {
    Asked::peek().map(|it| it.guard)
}

/// Whether [`off`] has switched the guard off, and nobody has switched it on since.
#[must_use]
pub fn is_let_go() -> bool {
    record::peek(Asked::NAME).is_some_and(|text| text == LET_GO)
}

fn lift(
    guard: Option<&Guard>,
    say: fn(&Record) -> Result<(), SteerError>,
) -> Result<Vec<SteerError>, SteerError> {
    let mut errors = Vec::new();
    let (asked, _lock) = settings::withdraw::<Asked>(say, &mut errors);
    let earlier = guard.map(|it| it.table);
    let asked = asked.map(|it| it.guard);
    let guard = asked.or_else(|| guard.cloned()).unwrap_or_default();
    let mut system = System::open()?;
    let (guard, facts) = gather(&guard, &Known::default(), earlier, &mut system)?;
    let plan = plan::lift(&facts);
    let mut applied = plan.apply(rules::holds, &mut system);
    applied.settle(&plan);
    errors.extend(applied.errors);
    if !plan.scripts.is_empty() {
        plan::tidy();
    }
    let told = dns::tell(&plan, &system, &mut Restarts::at_once());
    or_note(told, &mut errors);
    forget_leaving(&guard, &guard.guarded(), &facts, &mut system);
    Ok(errors)
}

/// Forgets the connections of these guarded devices that leave the LAN, and returns how many.
fn forget_leaving(guard: &Guard, devices: &[&str], facts: &Facts, system: &mut System) -> usize {
    let within = facts.networks(&guard.within());
    let leaving = Leaving::new(facts.networks(devices), within, facts);
    forget(system, |flow| leaving.has(flow))
}

/// Reports how the guard stands, by the settings in force, or else by the given ones. Changes nothing.
///
/// # Errors
/// When the host cannot be inspected.
pub fn status(guard: Option<&Guard>) -> Result<Report, SteerError> {
    let _settled = record::settle(Asked::NAME);
    let asked = Asked::peek();
    let is_asked = asked.is_some();
    let (settings, known) = match asked {
        Some(asked) => (Some(asked.guard), asked.known),
        None => (guard.cloned(), Known::default()),
    };
    let mut system = System::open()?;
    let guard = settings.clone().unwrap_or_default();
    let (guard, facts) = gather(&guard, &known, None, &mut system)?;
    let settings = settings.map(|_| guard);
    let dnsmasq = system.dnsmasq.as_ref();
    Ok(Report::new(settings.as_ref(), is_asked, &facts, dnsmasq))
}

/// Gathers facts about the host as far as these settings need it, with the known parts of the LAN. `earlier` is the
/// table of the file's devices in the earlier settings.
///
/// Also adds the devices of VPN servers on this host to the settings. Their clients are guarded like the LAN, as a LAN
/// device may be one.
fn gather(
    guard: &Guard,
    known: &Known,
    earlier: Option<u32>,
    system: &mut System,
) -> Result<(Guard, Facts), SteerError> {
    let mut facts = Facts::gather(system, |table| {
        let mut groups = guard.groups.iter();
        table == guard.table
            || earlier == Some(table)
            || tables().contains(&table)
            || groups.any(|it| it.table == table)
    })?;
    facts.chains = Chains::read(system, TABLE, chain::NAMES);
    facts.dnsmasq = system.dnsmasq.as_ref().map(|it| it.read(dns::FILE));
    let mut guard = guard.clone();
    let servers = plan::servers(&guard, &facts.links);
    if guard.servers && !guard.is_empty() {
        guard.lan.extend(servers.iter().cloned());
        guard.merge_doubles();
    }
    let within = guard.within().into_iter().map(str::to_owned);
    facts.inner = within.chain(servers).collect();
    facts.known = known.with(&guard.guarded(), &facts);
    Ok((guard, facts))
}

/// Networks, ports and indices of guarded devices, sorted.
fn known(guard: &Guard, facts: &Facts) -> Known {
    facts.known.with(&guard.guarded(), facts).sorted()
}

fn ways_now(guard: &Guard, facts: &Facts) -> Ways {
    let parts = guard.parts().into_iter();
    parts
        .map(|part| {
            (
                part.table,
                FAMILIES.map(|it| facts.exit(plan::way(&part, facts, it).index(), it)),
            )
        })
        .collect()
}

/// Returns the `nft` scripts and the rules that these settings would set on this host. Changes nothing.
///
/// # Errors
/// When the host cannot be inspected.
pub fn shown(guard: &Guard) -> Result<String, SteerError> {
    let (guard, facts) = gather(guard, &Known::default(), None, &mut System::open()?)?;
    let table = chain::table(&guard, &known(&guard, &facts), &chain::marks(&facts));
    let [text, _] = table.scripts("");
    Ok(text + &crate::rules_in_words(|family| rules::wanted(&guard, &facts, family)))
}

/// Keeps the guard in place until the process ends. While the guard is off it only waits.
///
/// # Errors
/// When the kernel provides no events. Later failures are logged, and tried again.
pub fn watch(_place: Claim) -> Result<Infallible, SteerError> {
    watch::watch::<Asked>()
}

/// Claims the watching for this process.
///
/// # Errors
/// Another process watches.
pub fn claim() -> Result<Claim, SteerError> {
    record::claim(WATCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::guard;
    use crate::record::path_of;
    use netio::process::netns_inode;
    use std::fs;

    /// Connections that begin while a tunnel has a route but no address are translated to another address, and forgotten
    /// when the address comes.
    #[test]
    fn a_tunnels_address_changes_the_way() {
        let (guard, mut facts) = (guard(), crate::fixture::facts());
        let ways = |facts: &Facts| ways_now(&guard, facts)[0].1;
        facts.links.push(crate::fixture::link(7, "tun0", true));
        let route = crate::fixture::route("0.0.0.0", 0, 7, guard.table);
        facts.tables.push(route);
        assert_eq!(ways(&facts), [Some((7, false)), None]);
        crate::fixture::tunnel(&mut facts, 7, "10.8.0.2");
        assert_eq!(ways(&facts), [Some((7, true)), None]);
    }

    fn lock_in(directory: &Path) -> Result<Record, SteerError> {
        Record::lock_in(directory, Asked::NAME)
    }

    #[test]
    fn what_was_asked_for_is_known_until_it_is_taken_back() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("millrace");
        let record = lock_in(&directory).unwrap();
        assert_eq!(Asked::read(&record), None);
        let asked = Asked {
            guard: guard(),
            known: Known {
                networks: vec![(crate::fixture::ip("192.168.1.0"), 24)],
                ports: vec!["lan1".to_owned()],
                indices: vec![(5, "br-lan".to_owned())],
            },
        };
        record.write(&asked.in_text()).unwrap();
        assert_eq!(Asked::read(&record), Some(asked));
        // Each network namespace has a record of its own.
        let inode = netns_inode().unwrap();
        assert!(directory.join(format!("guard@{inode}.toml")).exists());
        record.write(LET_GO).unwrap();
        assert_eq!(Asked::read(&record), None);
        for _ in 0..2 {
            record.remove().unwrap();
            assert_eq!(Asked::read(&record), None);
        }
    }

    #[test]
    fn a_record_of_another_boot_is_none() {
        let place = tempfile::tempdir().unwrap();
        let record = lock_in(place.path()).unwrap();
        record.write(&guard().to_kept()).unwrap();
        let path = path_of(place.path(), Asked::NAME, "toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("# boot ", "# boot 0", 1)).unwrap();
        assert_eq!(Asked::read(&record), None);
    }

    #[test]
    fn what_cannot_be_recorded_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let error = lock_in(&file).unwrap_err();
        assert!(matches!(error, SteerError::Record { .. }), "{error}");
    }
}
