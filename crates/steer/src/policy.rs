//! The policy: packets of the LAN go through a tunnel, around it, or are blocked, by sender and destination.
//!
//! | part | where | what it does |
//! |---|---|---|
//! | `table` | `nft` table `inet millrace_policy` | marks connections by their first packet, and blocks wrong routes |
//! | `rules` | four kinds of routing rules, v4 and v6 | route by mark: into a tunnel, nowhere, or around tunnels |
//! | `second` | rules next to those, by addresses | route or block known devices while the packet filter is flushed |
//! | `routes` | a routing table for each tunnel, and one for packets around tunnels | the default routes |
//! | `dnsmasq` | a file in the directory that `dnsmasq` reads | has addresses of names put into sets of the table |
//!
//! A mark is a number in a few bits of a packet's and a connection's mark; the policy writes only these bits. A
//! connection keeps its mark, so all its packets go the same way. Answers to a connection that came in through a tunnel
//! leave through that tunnel.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::policy::{Mac, Policy, TUNNELS_MAX};
use host::dnsmasq::Restarts;
use netio::netlink::{ChainsWatch, Family, Flow, Netfilter, NetlinkError};

use crate::facts::Facts;
use crate::filter::{Chains, Script};
use crate::flows::{Leaving, forget};
use crate::networks::{KNOWN, Known, Network};
use crate::plan::Plan;
use crate::record::{self, Claim, Record};
use crate::settings::{self, Settings};
use crate::system::{System, listed};
use crate::watch;
use crate::{SteerError, Ways, or_note};
use addresses::{Addresses, Heard, file_beside, hour};
use report::ways_now;
use table::TABLE;

mod addresses;
mod dnsmasq;
mod families;
mod leases;
mod others;
mod report;
mod resolved;
mod routes;
pub(crate) mod rules;
mod second;
pub(crate) mod table;

pub use families::one_family;
pub(crate) use leases::{Lease, Names, lease_of};
pub use others::Other;
pub use report::{EntryReport, Report};
pub(crate) use resolved::{Entry, Resolved, Senders};
use second::{Decided, Near};

/// The result of an action.
pub type Done = crate::Done<Report>;

/// The name of the lock of a process that watches.
const WATCH: &str = "policy-watch";

/// Begins a line of the record with a name and its hardware addresses, which is a comment in TOML.
const LEASE: &str = "#lease ";

/// Begins a line with a hardware address and one of its IP addresses.
const NEAR: &str = "#near ";

/// Begins a line with a name and its addresses.
const SET: &str = "#set ";

/// Begins the line with the handle of the table whose sets were filled.
const FILLED: &str = "#filled ";

/// Begins the line with the path of the file that outlives a boot.
const KEPT: &str = "#kept ";

/// Settings from the record.
#[derive(Clone, Debug, Default, PartialEq)]
struct Asked {
    policy: Policy,
    /// The text that the settings were read from.
    text: String,
    names: Names,
    /// IP addresses that devices had.
    near: Near,
    /// Addresses of the entries' names.
    addresses: Addresses,
    /// Whether a set lacks one of these. The record does not have it.
    lacks: bool,
    /// The handle of the table whose sets were filled, or which `dnsmasq` was told to fill.
    filled: Option<u64>,
    /// Networks, ports and indices that devices of the LAN had.
    known: Known,
    /// The file in which names outlive a boot.
    kept: Option<PathBuf>,
}

impl Settings for Asked {
    const NAME: &str = "policy";
    const TABLE: &str = TABLE;
    // A new lease brings no event.
    const SLOW: Duration = Duration::from_secs(15);
    const PACE: Duration = Duration::from_millis(50);
    const CLOSED: log::Level = log::Level::Info;
    type Report = Report;
    type News = Heard;

    fn of(whole: &str) -> Option<Self> {
        let is_head = |it: &&str| {
            [KEPT, LEASE, NEAR, SET, FILLED, KNOWN]
                .iter()
                .any(|word| it.starts_with(word))
        };
        let head = whole.split_inclusive('\n').take_while(is_head);
        let (head, text) = whole.split_at(head.map(str::len).sum());
        let lines = |word| head.lines().filter_map(move |it| it.strip_prefix(word));
        let near = lines(NEAR).filter_map(|it| it.split_once(' '));
        let policy = Policy::from_toml(text, Path::new(record::DIRECTORY));
        Some(Self {
            policy: policy.map_err(|error| log::warn!("{error}")).ok()?,
            text: text.to_owned(),
            names: leases::of_lines(lines(LEASE)),
            near: near
                .filter_map(|(mac, ip)| Some((Mac::new(mac)?, ip.parse().ok()?)))
                .collect(),
            addresses: Addresses::of_lines(lines(SET), |it| it),
            lacks: false,
            filled: lines(FILLED).next().and_then(|it| it.parse().ok()),
            known: Known::of_text(head),
            kept: lines(KEPT).next().map(PathBuf::from),
        })
    }

    fn in_text(&self) -> String {
        let kept = self.kept.iter().filter_map(|it| it.to_str());
        let mut text: String = kept
            .filter(|it| !it.contains('\n'))
            .map(|it| format!("{KEPT}{it}\n"))
            .collect();
        for line in leases::lines(&self.names) {
            text += &format!("{LEASE}{line}\n");
        }
        for (mac, ip) in &self.near {
            text += &format!("{NEAR}{mac} {ip}\n");
        }
        for line in self.addresses.lines(0) {
            text += &format!("{SET}{line}\n");
        }
        if let Some(handle) = self.filled {
            text += &format!("{FILLED}{handle}\n");
        }
        text + &self.known.text() + &self.text
    }

    fn hear(chains: &mut ChainsWatch, news: &mut Heard) -> Result<(), NetlinkError> {
        if !chains.added(&mut news.added)? {
            news.read = None;
        }
        Ok(())
    }

    fn renewed(&self, news: &mut Heard) -> Self {
        let mut asked = Self {
            names: leases::names(&self.policy, &self.names),
            ..self.clone()
        };
        let hour = hour();
        asked.addresses.hear(&self.policy, &news.added, hour);
        if news.read != Some(hour)
            && let Ok(mut netfilter) = Netfilter::open()
        {
            asked.lacks = asked.addresses.read(&self.policy, &mut netfilter, hour);
        }
        *news = Heard {
            added: Vec::new(),
            read: Some(hour),
        };
        asked.addresses.trim(&self.policy, hour);
        asked.keep();
        asked
    }

    fn set(
        mut self,
        before: Option<&Self>,
        record: Option<&Record>,
        ways: Option<&Ways>,
        restarts: &mut Restarts,
    ) -> Result<Done, SteerError> {
        let mut resolved = self.resolved();
        let of_before = before.map(Self::resolved);
        let mut system = System::open()?;
        let earlier = before.map(|it| it.policy.table);
        let mut facts = gather(&resolved, earlier, &mut system)?;
        let mut errors = Vec::new();
        // A device that is no longer blocked loses all known networks: the record does not tell which device had which.
        let held = second::devices(&resolved);
        let held_before = of_before.as_ref().map(second::devices);
        if held_before.iter().flatten().any(|it| !held.contains(it)) {
            self.known = Known::default();
        }
        learn(&mut resolved, &mut facts, &self.known, &mut system);
        if (&resolved.near, &facts.known) != (&self.near, &self.known) {
            (self.near, self.known) = (resolved.near.clone(), facts.known.clone());
            or_note(
                record.map_or(Ok(()), |it| it.write(&self.in_text())),
                &mut errors,
            );
        }
        let ways = ways.cloned().unwrap_or_else(|| ways_now(&resolved, &facts));
        look(&resolved, &mut facts, &mut system);
        let listing = || listed(TABLE).unwrap_or_default();
        let mut to_do = plan(&resolved, &facts, listing);
        if self.lacks && to_do.scripts.is_empty() {
            let text = table::wanted(&resolved, &facts).sets_alone();
            to_do.scripts.push(Script::plain(text));
        }
        let mut applied = to_do.apply(|_| true, &mut system);
        // Another program may delete the table at any time, between two reads of its chains too. Only the handle tells
        // for certain that its sets are new.
        let mut netfilter = system.netfilter.as_mut();
        let handle = netfilter.as_mut().map(|it| it.table_handle(TABLE));
        let handle = handle.and_then(Result::ok).flatten();
        let is_other = handle != self.filled;
        let is_new = facts.chains == Chains::default() || is_other && self.filled.is_some();
        // New sets lack the addresses that dnsmasq answers from its cache and that are not kept.
        let is_complete = self.addresses.is_complete(&self.policy);
        let again = handle.is_some() && is_other && !is_complete;
        let told = dnsmasq::set(&self.policy, again, restarts);
        if told.is_ok() && is_other {
            self.filled = handle;
            or_note(
                record.map_or(Ok(()), |it| it.write(&self.in_text())),
                &mut errors,
            );
        }
        or_note(told, &mut applied.errors);
        if !to_do.is_empty() {
            let known = facts.known;
            facts = gather(&resolved, None, &mut system)?;
            facts.known = known;
            look(&resolved, &mut facts, &mut system);
            to_do = plan(&resolved, &facts, String::new);
            applied.settle(&to_do);
        }
        let now = ways_now(&resolved, &facts);
        let moved = now.iter().filter(|it| !ways.contains(it));
        let mut marks: Vec<u32> = moved.map(|it| it.0).collect();
        let entries = match &of_before {
            // If a part was missing, connections may have begun over another route.
            Some(before) if !(applied.closed && is_new) => {
                changed(&before.entries, &resolved.entries)
            }
            _ => {
                marks.extend(all_marks(&resolved));
                resolved.entries.iter().collect()
            }
        };
        let forgotten = forget_changed(&resolved, &marks, &entries, &facts, &mut system);
        let fresh = before.map(|it| self.addresses.since(&it.addresses));
        let forgotten =
            forgotten + forget_old(&resolved, &fresh.unwrap_or_default(), &facts, &mut system);
        errors.extend(applied.errors);
        Ok(Done {
            report: Report::new(&resolved, true, record.is_some(), &facts, &to_do),
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

impl Asked {
    /// Settings of which nothing else is known.
    fn by(policy: Option<&Policy>) -> Self {
        Self {
            policy: policy.cloned().unwrap_or_default(),
            ..Self::default()
        }
    }

    fn resolved(&self) -> Resolved {
        Resolved {
            addresses: self.addresses.clone(),
            ..Resolved::new(&self.policy, &self.names, self.near.clone())
        }
    }

    /// Writes the names of leases, and the addresses of domain names, to their files. If that fails, they still hold
    /// until the next boot.
    fn keep(&self) {
        let Some(leases) = &self.kept else { return };
        let names = file_beside(leases);
        let kept = [
            (leases, leases::keep(&self.names, leases)),
            (&names, self.addresses.keep(&self.policy, &names, hour())),
        ];
        for (path, kept) in kept {
            if let Err(error) = kept {
                log::debug!("{}: {error}", path.display());
            }
        }
    }
}

/// Applies these policy settings; `text` is their source. `kept` is the file in which names of leases outlive a boot.
/// Addresses of domain names are in a file beside it that ends with `names`.
///
/// # Errors
/// [`SteerError::Settings`], or when the host cannot be inspected. Steps that failed are in [`Done`].
pub fn on(policy: &Policy, text: &str, kept: &Path) -> Result<Done, SteerError> {
    if let Some(fault) = policy.fault() {
        return Err(SteerError::Settings(fault));
    }
    settings::put(|before: Option<&Asked>| {
        let known = before.map(|it| it.renewed(&mut Heard::default()));
        let known = known.unwrap_or_else(|| Asked {
            names: leases::kept(kept),
            addresses: Addresses::kept(&file_beside(kept), hour()),
            ..Asked::default()
        });
        let mut asked = Asked {
            policy: policy.clone(),
            text: text.to_owned(),
            names: leases::names(policy, &known.names),
            kept: Some(kept.to_owned()),
            ..known
        };
        asked.addresses.trim(policy, hour());
        asked.keep();
        asked
    })
}

/// Restores any part that another program has removed, and looks for leases, if the policy is on; `None` if it is off.
///
/// # Errors
/// The errors of [`on`], and an error when there is no place for the record.
pub fn refresh() -> Result<Option<Done>, SteerError> {
    settings::restore::<Asked>(None, &mut Heard::default(), &mut Restarts::at_once())
}

/// Removes the policy. Also removes the files in which names of leases and addresses outlive a boot: `kept`, the one in
/// the record, and those beside them. Returns the steps that failed.
///
/// # Errors
/// When the host cannot be inspected.
pub fn off(policy: Option<&Policy>, kept: &Path) -> Result<Vec<SteerError>, SteerError> {
    let mut errors = Vec::new();
    let (asked, _lock) = settings::withdraw::<Asked>(Record::remove, &mut errors);
    let earlier = policy.map(|it| it.table);
    let asked = asked.unwrap_or_else(|| Asked::by(policy));
    for path in asked.kept.as_deref().into_iter().chain([kept]) {
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(file_beside(path));
    }
    let resolved = asked.resolved();
    let mut system = System::open()?;
    let mut facts = gather(&resolved, earlier, &mut system)?;
    look(&resolved, &mut facts, &mut system);
    // First, as `dnsmasq` would continue filling sets.
    let told = dnsmasq::unset(&resolved.policy, &mut Restarts::at_once());
    or_note(told, &mut errors);
    let plan = removal(&facts);
    let mut applied = plan.apply(|_| false, &mut system);
    applied.settle(&plan);
    errors.extend(applied.errors);
    let entries: Vec<&Entry> = resolved.entries.iter().collect();
    let marks = all_marks(&resolved);
    forget_changed(&resolved, &marks, &entries, &facts, &mut system);
    Ok(errors)
}

/// Reports how the policy stands, by the settings in force, or else by the given ones. Changes nothing.
///
/// # Errors
/// When the host cannot be inspected.
pub fn status(policy: Option<&Policy>) -> Result<Report, SteerError> {
    present(policy).map(|it| it.report)
}

/// The settings in force, if the policy is on.
#[must_use]
pub fn in_force() -> Option<Policy> {
    Asked::peek().map(|it| it.policy)
}

/// The policy as it is, and the facts that the report is made of.
pub(crate) struct Present {
    pub(crate) resolved: Resolved,
    pub(crate) facts: Facts,
    pub(crate) report: Report,
    /// The present leases; one more than [`DEVICES_MAX`] if there are more.
    pub(crate) leases: Vec<Lease>,
}

impl Present {
    pub(crate) fn new(
        resolved: Resolved,
        is_known: bool,
        is_asked: bool,
        facts: Facts,
        leases: Vec<Lease>,
    ) -> Self {
        let plan = plan(&resolved, &facts, String::new);
        Self {
            report: Report::new(&resolved, is_known, is_asked, &facts, &plan),
            resolved,
            facts,
            leases,
        }
    }
}

/// Maximum number of devices with leases that a picture shows.
pub(crate) const DEVICES_MAX: usize = 256;

/// Inspects the host. Changes nothing.
pub(crate) fn present(policy: Option<&Policy>) -> Result<Present, SteerError> {
    let _settled = record::settle(Asked::NAME);
    let asked = Asked::peek();
    let (is_asked, is_known) = (asked.is_some(), asked.is_some() || policy.is_some());
    let asked = asked.unwrap_or_else(|| Asked::by(policy));
    let names = leases::names(&asked.policy, &asked.names);
    // The report shows the addresses in force, without those that the next look would add.
    let resolved = Asked {
        names,
        ..asked.clone()
    };
    let resolved = resolved.resolved();
    let mut system = System::open()?;
    let mut facts = gather(&resolved, None, &mut system)?;
    facts.known = asked.known;
    look(&resolved, &mut facts, &mut system);
    let leases = leases::all(&asked.policy, DEVICES_MAX + 1);
    Ok(Present::new(resolved, is_known, is_asked, facts, leases))
}

/// Returns the texts for `nft` and `dnsmasq` and the rules that these settings would set on this host. Changes nothing.
///
/// # Errors
/// When the host cannot be inspected.
pub fn shown(policy: &Policy) -> Result<String, SteerError> {
    let names = leases::names(policy, &Names::new());
    let mut resolved = Resolved::new(policy, &names, Near::new());
    let mut system = System::open()?;
    let mut facts = gather(&resolved, None, &mut system)?;
    learn(&mut resolved, &mut facts, &Known::default(), &mut system);
    let [text, _] = table::wanted(&resolved, &facts).scripts("");
    let rules = crate::rules_in_words(|family| rules::wanted(&resolved, &facts, family));
    let names = dnsmasq::lines(policy).unwrap_or_default();
    let names = names.lines().skip(1).map(|it| format!("# dnsmasq: {it}\n"));
    Ok(text + &rules + &names.collect::<String>())
}

/// Gathers facts about the host as far as these settings need it. `earlier` is the first table of the earlier settings.
fn gather(
    resolved: &Resolved,
    earlier: Option<u32>,
    system: &mut System,
) -> Result<Facts, SteerError> {
    let firsts = [Some(resolved.policy.table), earlier];
    let is_ours = |table| {
        let mut firsts = firsts.iter().flatten();
        firsts.any(|it| (*it..=it.saturating_add(TUNNELS_MAX as u32)).contains(&table))
    };
    Ok(Facts::gather(system, is_ours)?)
}

/// Adds the present addresses of the entries' devices, and the present networks of the LAN, to those known before.
fn learn(resolved: &mut Resolved, facts: &mut Facts, known: &Known, system: &mut System) {
    let devices = second::devices(resolved);
    if !devices.is_empty() {
        facts.known = known.with(&devices, facts);
    }
    let macs = resolved.macs(|_| true);
    if macs.is_empty() {
        return set_near(resolved, Near::new());
    }
    // Leases and senders first: the neighbours' present addresses take precedence, as any device can forge another's.
    let mut used = leases::addresses(&resolved.policy);
    if let Some(netfilter) = &mut system.netfilter {
        let sources = table::SOURCES.map(|it| netfilter.senders(TABLE, it.name));
        let sources = sources.into_iter().filter_map(Result::ok).flatten();
        let sources = sources.map(|(mac, ip)| (Mac(mac), ip));
        let is_free = |it: &(Mac, IpAddr)| used.iter().all(|other| other.1 != it.1);
        let sources: Vec<(Mac, IpAddr)> = sources.filter(is_free).collect();
        used.extend(sources);
    }
    let [now, idle] = second::of_neighbours(&system.netlink.neighbours().unwrap_or_default());
    used.retain(|it| !now.iter().chain(&idle).any(|other| other.1 == it.1));
    used.extend(now);
    let near = second::near(&macs, &resolved.near, &used, &idle);
    set_near(resolved, near);
}

fn set_near(resolved: &mut Resolved, near: Near) {
    if near != resolved.near {
        (resolved.near, resolved.decided) = (near, Decided::default());
    }
}

/// Reads the packet filter's table: the wanted chains, and those on hooks that earlier settings may have made.
fn look(resolved: &Resolved, facts: &mut Facts, system: &mut System) {
    let wanted = table::wanted(resolved, facts);
    let names = wanted.chains.iter().map(|it| it.name.as_str());
    let names: BTreeSet<&str> = names.chain(table::OPTIONAL).collect();
    facts.chains = Chains::read(system, TABLE, names);
}

/// The plan that sets the policy on this host. `listing` has `nft` list the present table.
fn plan(resolved: &Resolved, facts: &Facts, listing: fn() -> String) -> Plan {
    let wanted = table::wanted(resolved, facts);
    let mut plan = Plan::default();
    let is_wanted = |name: &String| wanted.chains.iter().any(|it| it.name == *name);
    let is_whole = facts.chains.part(&wanted.chains) == crate::Part::Whole;
    // A table that cannot be read is written: the error then tells the reason.
    if !is_whole || !facts.chains.found.keys().all(is_wanted) {
        plan.scripts.push(Script {
            texts: wanted.scripts(&listing()),
            closes: true,
        });
    }
    plan.rules(facts, rules::is_ours, |it| {
        rules::wanted(resolved, facts, it)
    });
    plan.routes(facts, routes::METRIC, &routes::wanted(resolved, facts));
    plan
}

/// The plan that removes the policy.
fn removal(facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    if facts.chains != Chains::default() {
        plan.scripts.push(Script::plain(format!(
            "add table inet {TABLE}\ndelete table inet {TABLE}\n"
        )));
    }
    plan.rules(facts, rules::is_ours, |_| Vec::new());
    plan.routes(facts, routes::METRIC, &[]);
    plan
}

/// Marks of all routes.
fn all_marks(resolved: &Resolved) -> Vec<u32> {
    let leads = resolved.leads.iter().map(|it| it.mark);
    leads.chain([resolved.around, resolved.block]).collect()
}

/// Entries that changed or moved, as they were and as they are.
fn changed<'e>(before: &'e [Entry], now: &'e [Entry]) -> Vec<&'e Entry> {
    let same = |(a, b): &(&Entry, &Entry)| a == b;
    let begin = before.iter().zip(now).take_while(same).count();
    let (before, now) = (&before[begin..], &now[begin..]);
    let behind = before.iter().rev().zip(now.iter().rev());
    let end = behind.take_while(same).count();
    let before = before[..before.len() - end].iter();
    before.chain(&now[..now.len() - end]).collect()
}

/// The networks of the senders of these entries, and `near` their hosts, that are in the lists of neighbours.
fn senders(
    resolved: &Resolved,
    entries: &[&Entry],
    facts: &Facts,
    near: &[(Mac, IpAddr)],
) -> Vec<Network> {
    let mut networks = Vec::new();
    for entry in entries {
        let Some(who) = &entry.who else {
            return facts.networks(&resolved.policy.lan);
        };
        networks.extend(facts.networks(&who.devices));
        networks.extend(&who.networks);
        let near = near.iter().filter(|it| who.macs.contains(&it.0));
        networks.extend(near.map(|it| (it.1, Family::of(it.1).bits())));
    }
    networks
}

/// Forgets the connections that have these marks, or that the senders of these entries have beyond the router. Returns
/// how many.
fn forget_changed(
    resolved: &Resolved,
    marks: &[u32],
    entries: &[&Entry],
    facts: &Facts,
    system: &mut System,
) -> usize {
    if marks.is_empty() && entries.is_empty() {
        return 0;
    }
    // A device that gets no answers is not among the neighbours, but may be known.
    let now = second::of_neighbours(&system.netlink.neighbours().unwrap_or_default());
    let near = [now.concat(), resolved.near.clone()].concat();
    let senders = senders(resolved, entries, facts, &near);
    let leaving = Leaving::new(senders, Vec::new(), facts);
    // The mark decides, whatever the connection's addresses.
    let has_mark = |flow: &Flow| marks.contains(&(flow.mark & resolved.policy.mask));
    forget(system, |flow| has_mark(flow) || leaving.has(flow))
}

/// Forgets the connections without a mark to addresses that a blocking entry's name has only now. The rules for packets
/// without a mark would lead them into the tunnel with the address of the uplink. Returns how many.
fn forget_old(
    resolved: &Resolved,
    fresh: &BTreeSet<IpAddr>,
    facts: &Facts,
    system: &mut System,
) -> usize {
    let entries = resolved.entries.iter();
    let entries: Vec<&Entry> = entries
        .filter(|it| it.holds && !it.domains.is_empty())
        .collect();
    if fresh.is_empty() || entries.is_empty() {
        return 0;
    }
    let senders = senders(resolved, &entries, facts, &resolved.near);
    let leaving = Leaving::new(senders, Vec::new(), facts);
    forget(system, |flow| {
        flow.mark & resolved.policy.mask == 0
            && fresh.contains(&flow.dst)
            && leaving.leaves(flow.src, flow.dst)
    })
}

/// Keeps the policy in place until the process ends. While the policy is off it only waits.
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
mod tests;
