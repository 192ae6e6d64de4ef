//! Reports how the policy stands.

use config::policy::{Down, Policy, Way, Who};
use host::tunnel_devices::instead;
use netio::netlink::{Family, Link};

use crate::policy::facts::{FAMILIES, Facts, TableFact};
use crate::policy::leases::crowd;
use crate::policy::others::{Other, guarded_devices, others};
use crate::policy::plan::Plan;
use crate::policy::second::gaps;
use crate::policy::ways::Ways;
use crate::policy::{dnsmasq, routes, rules};

/// The state of a part.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Part {
    /// The part is complete.
    Whole,
    /// The part is missing, wholly or partly.
    Missing,
    /// No setting needs this part.
    NotNeeded,
    /// The part cannot be read, for this reason.
    Unseen(String),
}

impl Part {
    /// The state in words.
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::Whole => "in place",
            Self::Missing => "missing",
            Self::NotNeeded => "not needed",
            Self::Unseen(why) => why,
        }
    }

    fn is_well(&self) -> bool {
        matches!(self, Self::Whole | Self::NotNeeded)
    }
}

/// An entry, and the present way of its packets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EntryReport {
    /// Its name.
    pub name: String,
    /// The sender of the packets.
    pub who: String,
    /// The destination of the packets.
    pub to: String,
    /// The ways of IPv4 and of IPv6.
    pub ways: [String; 2],
    /// The name servers that replace all others for port 53; empty if the device may choose.
    pub dns: String,
    /// A sentence about packets that only the packet filter holds; empty if there are none, or the policy is off.
    pub gap: String,
    /// Names in `who` that have no lease, so that the entry ignores them.
    pub unknown: Vec<String>,
}

/// The state of the policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// Whether the kernel has any part of the policy.
    pub on: bool,
    /// Whether the record has the policy on.
    pub asked: bool,
    /// The entries; empty if no settings are known.
    pub entries: Vec<EntryReport>,
    /// The table of the packet filter.
    pub table: Part,
    /// The routing rules and routes.
    pub rules: Part,
    /// The settings of `dnsmasq`.
    pub dnsmasq: Part,
    /// Packets that the table has refused since it was made.
    pub refused: Option<u64>,
    /// Other programs that route packets.
    pub others: Vec<Other>,
    /// Other notes for the user, one sentence each.
    pub notes: Vec<String>,
}

impl Report {
    /// Builds the report from facts.
    #[must_use]
    pub(crate) fn new(
        policy: Option<&Policy>,
        asked: bool,
        facts: &Facts,
        table: &TableFact,
    ) -> Self {
        let mut rules_there = facts.rules.iter().flatten().flatten();
        let on = matches!(table, TableFact::There { .. }) || rules_there.any(rules::is_ours);
        let default = Policy::default();
        let settings = policy.unwrap_or(&default);
        let plan = Plan::set(settings, facts, table);
        let is_led = plan.rules.is_empty() && plan.set.is_empty() && plan.remove.is_empty();
        let mut report = Self {
            on,
            asked,
            entries: policy.map(|it| entries(it, facts, on)).unwrap_or_default(),
            table: match table {
                TableFact::There { whole: true, .. } => Part::Whole,
                TableFact::Unseen(why) => Part::Unseen(why.clone()),
                _ => Part::Missing,
            },
            rules: match &facts.rules {
                [None, _] => Part::Unseen("the kernel has no policy routing".to_owned()),
                [_, None] if facts.ipv6 => {
                    Part::Unseen("the kernel has no policy routing for IPv6".to_owned())
                }
                _ if is_led => Part::Whole,
                _ => Part::Missing,
            },
            dnsmasq: match settings.domains().is_empty() {
                true => Part::NotNeeded,
                false if dnsmasq::is_set(settings) => Part::Whole,
                false => Part::Missing,
            },
            refused: match table {
                TableFact::There { refused, .. } => Some(*refused),
                _ => None,
            },
            others: policy.map(|it| others(it, facts)).unwrap_or_default(),
            notes: Vec::new(),
        };
        report.add_notes(settings, facts);
        report
    }

    /// Whether all parts are in place.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.table.is_well() && self.rules.is_well() && self.dnsmasq.is_well()
    }

    /// Whether the packet filter or the rules are in place, so that no held packet leaks.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.table.is_well() || self.rules.is_well()
    }

    /// Conflicts with other programs: the program's name, and a sentence.
    pub fn conflicts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = self.others.iter();
        all.flat_map(|other| other.conflicts.iter().map(|it| (other.name, it.as_str())))
    }

    fn add_notes(&mut self, policy: &Policy, facts: &Facts) {
        match (self.on, self.asked) {
            (false, false) => return,
            (false, true) => self.notes.push(
                "it was asked for, and nothing of it is there: run `millrace policy refresh`".to_owned(),
            ),
            (true, false) => self.notes.push(
                "nothing sets it again when another program takes it away: run `millrace policy on`"
                    .to_owned(),
            ),
            (true, true) => {}
        }
        for name in &policy.lan {
            match facts.links.iter().find(|it| it.name == *name) {
                None => self
                    .notes
                    .push(format!("there is no device {name}: nothing comes in by it")),
                Some(link) => {
                    let bridge = link.master.and_then(|it| facts.link(it));
                    if let Some(bridge) = bridge {
                        self.notes.push(format!(
                            "{name} is a part of {}: packets come in by that, name it in `lan`",
                            bridge.name
                        ));
                    }
                }
            }
        }
        for entry in &self.entries {
            for name in &entry.unknown {
                self.notes.push(format!(
                    "entry {}: {name} has no lease, so that nothing is done about it yet; a hardware address or a fixed \
                     lease is known at all times",
                    entry.name
                ));
            }
        }
        let leases = policy.entries.iter().flat_map(|it| &it.who);
        let mut crowds: Vec<String> = leases
            .filter_map(|who| match who {
                Who::Lease(name) => crowd(name, &facts.names),
                _ => None,
            })
            .collect();
        crowds.dedup();
        self.notes.extend(crowds);
        let devices = policy.devices();
        let is_there = |name: &&str| facts.links.iter().any(|it| it.name == *name);
        if !devices.iter().all(is_there) {
            let up = facts.links.iter().filter(|it| it.up);
            let up = up.map(|it| it.name.as_str());
            let other = instead(up, |name| policy.is_tunnel(name));
            self.notes.extend(other);
        }
        let guarded = guarded_devices(policy, facts);
        let is_around = |it: &config::policy::Entry| it.way == Way::Around;
        if !guarded.is_empty() && policy.entries.iter().any(is_around) {
            self.notes.push(format!(
                "the guard holds {}: nothing of that goes around a tunnel while it does",
                guarded.join(", ")
            ));
        }
        let around = facts.surroundings(policy);
        let holds =
            !(around.macs.is_empty() && around.held.is_empty() && around.devices.is_empty());
        if holds && !around.servers.is_empty() {
            self.notes.push(
                "devices that are held cannot call servers on this router: they would leave by them"
                    .to_owned(),
            );
        }
        for device in policy.devices() {
            if is_filter_strict(device) {
                self.notes.push(format!(
                    "answers that come by {device} are dropped, as net.ipv4.conf.{device}.rp_filter (or all) is 1: set it to 2"
                ));
            }
        }
        if facts.links.iter().any(|it| policy.lan.contains(&it.name))
            && !policy.domains().is_empty()
        {
            // The status says it, not only the documentation.
            self.notes.push(
                "names are known by what dnsmasq is asked: a device that asks another server, or by DNS over HTTPS, goes past \
                 the entries for names"
                    .to_owned(),
            );
        }
    }
}

/// Whether the kernel's strict `rp_filter` drops packets whose answer would leave by another interface. The larger of
/// two values counts; 2 is the loose mode.
fn is_filter_strict(device: &str) -> bool {
    let value = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        text.ok().and_then(|text| text.trim().parse::<u8>().ok())
    };
    let own = value(device);
    own.is_some() && value("all").max(own) == Some(1)
}

/// Lists the first words, and the number of further ones.
pub(crate) fn few(words: &[String]) -> String {
    match words.len() {
        0..=4 => words.join(", "),
        count => format!("{} and {} more", words[..3].join(", "), count - 3),
    }
}

fn entries(policy: &Policy, facts: &Facts, on: bool) -> Vec<EntryReport> {
    let ways = Ways::new(policy);
    let mut gaps = gaps(policy, facts).into_iter().filter(|_| on);
    let one = |entry: &config::policy::Entry| {
        let words = |words: Vec<String>, all: &str| match words.is_empty() {
            true => all.to_owned(),
            false => few(&words),
        };
        let unknown = entry.who.iter().filter_map(|who| match who {
            Who::Lease(name) if !facts.names.contains_key(&name.to_ascii_lowercase()) => {
                Some(name.clone())
            }
            _ => None,
        });
        EntryReport {
            name: entry.name.clone(),
            who: words(
                entry.who.iter().map(ToString::to_string).collect(),
                "all of the LAN",
            ),
            to: words(
                entry.to.iter().map(ToString::to_string).collect(),
                "everywhere",
            ),
            dns: words(entry.dns.iter().map(ToString::to_string).collect(), ""),
            ways: FAMILIES.map(|family| way(&entry.way, &ways, facts, family)),
            gap: gaps.next().unwrap_or_default(),
            unknown: unknown.collect(),
        }
    };
    policy.entries.iter().map(one).collect()
}

/// The present way of a family's packets, in words.
fn way(way: &Way, ways: &Ways, facts: &Facts, family: Family) -> String {
    let (device, down) = match way {
        Way::Around => return "around tunnels".to_owned(),
        Way::Block => return "blocked".to_owned(),
        Way::Through { device, down } => (device, *down),
    };
    let Err(why) = through(device, ways, facts, family) else {
        return format!("through {device}");
    };
    match down {
        Down::Hold => format!("held: {why}"),
        Down::Around => format!("as without the entry: {why}"),
    }
}

/// The interface that a tunnel's table leads to, or the reason why it leads nowhere.
fn through(device: &str, ways: &Ways, facts: &Facts, family: Family) -> Result<u32, String> {
    let link = facts.links.iter().find(|it| it.name == device);
    let link: &Link = link.ok_or_else(|| format!("there is no device {device}"))?;
    if !link.up {
        return Err(format!("the device {device} is not up"));
    }
    let lead = ways.leads.iter().find(|it| it.device == device);
    let table = lead.map_or(0, |it| it.table);
    let mut routes = facts.tables.iter();
    let is_there = routes
        .any(|it| it.table == table && it.dev == Some(link.index) && Family::of(it.dst) == family);
    if is_there {
        return Ok(link.index);
    }
    match facts.has_address(link.index, family) {
        true => Err(format!(
            "table {table} has no default route; `millrace policy refresh` makes it, or says why the kernel refuses it"
        )),
        false => Err(format!("{device} has no address of this family")),
    }
}

/// For each lead in the order of [`Ways`], the interfaces of its IPv4 and IPv6 packets.
pub(crate) fn ways_now(policy: &Policy, facts: &Facts) -> Vec<(u32, [Option<u32>; 2])> {
    let ways = Ways::new(policy);
    let now = |device: &str| FAMILIES.map(|family| through(device, &ways, facts, family).ok());
    let mut all: Vec<(u32, [Option<u32>; 2])> = ways
        .leads
        .iter()
        .map(|it| (it.mark, now(&it.device)))
        .collect();
    // Packets that go around tunnels go by an uplink.
    let line = |family| {
        let mut routes = facts.tables.iter();
        let route = routes.find(|it| it.table == ways.table && Family::of(it.dst) == family);
        route.filter(|it| routes::is_ours(it)).and_then(|it| it.dev)
    };
    all.push((ways.around, FAMILIES.map(line)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixture::{facts, link, policy, route, tunnel};

    const ABSENT: TableFact = TableFact::Absent;

    #[test]
    fn entries_say_which_way_packets_go_and_why() {
        let mut facts = facts();
        let ways = |facts: &Facts| {
            let report = Report::new(Some(&policy()), true, facts, &ABSENT);
            report
                .entries
                .into_iter()
                .map(|it| it.ways)
                .collect::<Vec<_>>()
        };
        assert_eq!(ways(&facts)[0][0], "held: there is no device mr-us");
        assert_eq!(
            ways(&facts)[1][1],
            "as without the entry: there is no device mr-nl"
        );
        assert_eq!(
            (ways(&facts)[2][0].as_str(), ways(&facts)[3][0].as_str()),
            ("around tunnels", "blocked")
        );
        facts.links.push(link(7, "mr-us", true));
        tunnel(&mut facts, 7, "10.8.0.2");
        assert!(ways(&facts)[0][0].contains("table 7701 has no default route"));
        facts.tables.push(route("0.0.0.0", 0, 7, 7701));
        assert_eq!(
            ways(&facts)[0],
            ["through mr-us", "held: mr-us has no address of this family"]
        );
        assert_eq!(ways_now(&policy(), &facts)[0].1, [Some(7), None]);
    }

    #[test]
    fn names_without_leases_are_told() {
        let report = Report::new(Some(&policy()), true, &facts(), &ABSENT);
        assert_eq!(report.entries[0].unknown, ["television"]);
        assert!(
            report
                .notes
                .iter()
                .any(|it| it.contains("phone has no lease"))
        );
        assert!(!report.on && !report.is_whole());
        assert_eq!(
            (report.dnsmasq, report.rules),
            (Part::Missing, Part::Missing)
        );
        let off = Report::new(None, false, &facts(), &ABSENT);
        assert!(off.notes.is_empty() && off.entries.is_empty());
    }
}
