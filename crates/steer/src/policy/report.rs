//! Reports how the policy stands.

use config::policy::{Down, Way as Meant, Who};
use host::tunnel_devices::instead;
use netio::netlink::Family;

use crate::Ways;
use crate::facts::{FAMILIES, Facts};
use crate::picture::Allowed;
use crate::plan::Plan;
use crate::policy::families::{bypass, can_leave, missed};
use crate::policy::leases::crowd;
use crate::policy::others::{Other, guarded_devices, others};
use crate::policy::resolved::Resolved;
use crate::policy::second::gaps;
use crate::policy::table::{FORWARD, HELD, Held};
use crate::policy::{WATCH, dnsmasq, routes, rules};
use crate::record;
use crate::report::{Part, asked_notes, few, idle, strict, to_watch};
use crate::way::{Way, Why};

/// An entry, and the current route of its packets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EntryReport {
    /// Name of the entry.
    pub name: String,
    /// The sender of the packets.
    pub who: String,
    /// The destination of the packets.
    pub to: String,
    /// Routes of IPv4 and of IPv6.
    pub ways: [String; 2],
    /// What the entry does with packets of IPv4 and of IPv6.
    pub allowed: [Allowed; 2],
    /// The name servers that replace all others for port 53; empty if the device may choose.
    pub dns: String,
    /// Sentences about packets that bypass the entry, and those that only the packet filter holds; empty if there are
    /// none, or the policy is off.
    pub gap: String,
    /// Whether packets that the entry should hold bypass it.
    pub bypassed: bool,
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
    /// Whether a `watch` process follows tunnels, leases and uplinks, and restores missing rules.
    pub watched: bool,
    /// Packets that the policy has refused since its table was made, by the packet filter or by routing.
    pub refused: Option<u64>,
    /// Other programs that route packets.
    pub others: Vec<Other>,
    /// Devices of `lan` through which no packet can come in now: a sentence for each.
    pub idle: Vec<String>,
    /// Other notes for the user, one sentence each.
    pub notes: Vec<String>,
}

impl Report {
    /// Builds the report from facts, and from the plan that they make necessary; `is_known` where there are settings.
    pub(super) fn new(
        resolved: &Resolved,
        is_known: bool,
        asked: bool,
        facts: &Facts,
        plan: &Plan,
    ) -> Self {
        let on = !facts.chains.found.is_empty() || facts.rules().any(rules::is_ours);
        let mut rules = plan.rules_part(facts).into_iter();
        let led = match plan.set.is_empty() && plan.remove.is_empty() {
            true => Part::Whole,
            false => Part::Missing,
        };
        let policy = &resolved.policy;
        let mut report = Self {
            on,
            asked,
            entries: entries(resolved, facts, on),
            table: match &facts.chains.unseen {
                Some(why) => Part::Unseen(why.clone()),
                None if plan.scripts.is_empty() => Part::Whole,
                None => Part::Missing,
            },
            rules: rules.find(|it| !it.is_well()).unwrap_or(led),
            dnsmasq: match policy.domains().is_empty() {
                true => Part::NotNeeded,
                false if dnsmasq::is_set(policy) => Part::Whole,
                false => Part::Missing,
            },
            watched: record::is_taken(WATCH),
            refused: facts.chains.counted(&[FORWARD, HELD]),
            others: match is_known {
                true => others(resolved, facts),
                false => Vec::new(),
            },
            idle: match on || asked {
                true => idle(&policy.lan, facts),
                false => Vec::new(),
            },
            notes: Vec::new(),
        };
        report.add_notes(resolved, facts);
        report
    }

    /// Whether all parts are in place, and no packets bypass the entries that should hold them.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_in_place() && self.bypassed().next().is_none()
    }

    /// Whether the policy is whole, and packets can come in through every device of `lan`.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.is_whole() && self.idle.is_empty()
    }

    /// Whether all parts are in place.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.table.is_well() && self.rules.is_well() && self.dnsmasq.is_well()
    }

    /// Names of the entries that packets bypass.
    fn bypassed(&self) -> impl Iterator<Item = &str> {
        let entries = self.entries.iter().filter(|it| it.bypassed);
        entries.map(|it| it.name.as_str())
    }

    /// Missing parts, a missing watch and entries that do not hold all their packets, in words; `None` if the policy is
    /// off or nothing is missing.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        let names = self.bypassed().filter(|_| self.on);
        let uncovered = names.map(|it| format!("packets bypass entry {it}"));
        let all: Vec<String> = self.missing().into_iter().chain(uncovered).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Missing parts, and a missing watch, in words; `None` if the policy is off or nothing is missing.
    pub(crate) fn missing(&self) -> Option<String> {
        let parts = [
            ("packet filter", &self.table),
            ("rules and routes", &self.rules),
            ("dnsmasq", &self.dnsmasq),
        ];
        let missing = parts.into_iter().filter(|it| !it.1.is_well());
        let of = |(name, part): (&str, &Part)| match part {
            Part::Unseen(why) => format!("{name}: {why}"),
            _ => format!("{name} missing"),
        };
        let mut words: Vec<String> = missing.map(of).collect();
        if self.is_unwatched() {
            words.push("nothing watches".to_owned());
        }
        (self.on && !words.is_empty()).then(|| words.join("; "))
    }

    /// Whether no process restores what goes missing, as when a tunnel restarts.
    #[must_use]
    pub const fn is_unwatched(&self) -> bool {
        self.on && self.asked && !self.watched
    }

    /// The remedy for the missing parts that [`Self::lacks`] names.
    #[must_use]
    pub fn remedy(&self) -> String {
        match (self.is_unwatched(), self.is_in_place()) {
            (true, _) => to_watch("policy"),
            (false, false) => "run `millrace policy refresh`".to_owned(),
            (false, true) => "change the entry as `millrace policy status` says".to_owned(),
        }
    }

    /// Whether the packet filter or the rules are in place, so that no blocked packet leaks.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.table.is_well() || self.rules.is_well()
    }

    /// Conflicts with other programs: the program's name, and a sentence.
    pub fn conflicts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = self.others.iter();
        all.flat_map(|other| other.conflicts.iter().map(|it| (other.name, it.as_str())))
    }

    /// Routes of the entries, in one line.
    pub(super) fn words(&self) -> String {
        let entries = self.entries.iter().map(|entry| match &entry.ways {
            [v4, v6] if v4 == v6 => format!("{} {v4}", entry.name),
            [v4, v6] => format!("{} IPv4 {v4}, IPv6 {v6}", entry.name),
        });
        entries.collect::<Vec<_>>().join("; ")
    }

    fn add_notes(&mut self, resolved: &Resolved, facts: &Facts) {
        let Some(notes) = asked_notes("policy", self.on, self.asked) else {
            return;
        };
        let policy = &resolved.policy;
        self.notes.extend(notes);
        for entry in &self.entries {
            for name in &entry.unknown {
                self.notes.push(format!(
                    "entry {}: {name} has no lease, so the entry does not match it yet; use a hardware address or a \
                     fixed lease, which is always known",
                    entry.name
                ));
            }
        }
        let leases = policy.entries.iter().flat_map(|it| &it.who);
        let mut crowds: Vec<String> = leases
            .filter_map(|who| match who {
                Who::Lease(name) => crowd(name, &resolved.names),
                _ => None,
            })
            .collect();
        crowds.dedup();
        self.notes.extend(crowds);
        let devices = policy.devices();
        if devices.iter().any(|it| facts.named(it).is_none()) {
            let other = instead(facts.up(), |name| policy.is_tunnel(name));
            self.notes.extend(other);
        }
        let guarded = guarded_devices(policy, facts);
        let mut entries = policy.entries.iter();
        if !guarded.is_empty() && entries.any(|it| it.way == Meant::Around) {
            self.notes.push(format!(
                "the guard blocks {}: its packets cannot go around a tunnel meanwhile",
                guarded.join(", ")
            ));
        }
        if Held::new(resolved, facts).may_call() {
            self.notes.push(
                "blocked devices cannot reach the VPN servers on this router, because a server would forward their \
                 packets"
                    .to_owned(),
            );
        }
        self.notes.extend(strict(devices));
        if facts.links.iter().any(|it| policy.lan.contains(&it.name))
            && !policy.domains().is_empty()
        {
            // The status says it, not only the documentation.
            self.notes.push(
                "domains are matched by queries to dnsmasq: a device that asks another server, or uses DNS over \
                 HTTPS, bypasses the entries for domains"
                    .to_owned(),
            );
        }
    }
}

fn entries(resolved: &Resolved, facts: &Facts, on: bool) -> Vec<EntryReport> {
    let gaps = gaps(resolved, facts).into_iter();
    let mut places = resolved.entries.iter().zip(gaps);
    let mut one = |entry: &config::policy::Entry| {
        fn words<T: ToString>(list: &[T], all: &str) -> String {
            let words: Vec<String> = list.iter().map(ToString::to_string).collect();
            match words.is_empty() {
                true => all.to_owned(),
                false => few(&words),
            }
        }
        let unknown = entry.who.iter().filter_map(|who| match who {
            Who::Lease(name) if !resolved.names.contains_key(&name.to_ascii_lowercase()) => {
                Some(name.clone())
            }
            _ => None,
        });
        let mut ways = FAMILIES.map(|family| way(&entry.way, resolved, facts, family));
        let (mut told, mut bypassed) = (Vec::new(), false);
        if let Some((own, gap)) = places.next() {
            let mut who = own.who.iter();
            let is_by_address = who.all(|it| it.macs.is_empty() && it.devices.is_empty());
            for ((family, way), other) in FAMILIES.into_iter().zip(&mut ways).zip([6, 4]) {
                let missed = missed(own, family, resolved, facts);
                if missed.is_empty() {
                    continue;
                }
                if is_by_address {
                    let words = format!("not covered: the entry names IPv{other} addresses");
                    *way = (Allowed::Clear, words);
                }
                if on && own.holds && can_leave(family, resolved, facts) {
                    bypassed = true;
                    told.push(bypass(&missed, &resolved.policy, facts));
                }
            }
            told.push(gap);
        }
        told.retain(|it| on && !it.is_empty());
        EntryReport {
            name: entry.name.clone(),
            who: words(&entry.who, "all of the LAN"),
            to: words(&entry.to, "everywhere"),
            dns: words(&entry.dns, ""),
            allowed: ways.each_ref().map(|it| it.0),
            ways: ways.map(|it| it.1),
            gap: told.join("; "),
            bypassed,
            unknown: unknown.collect(),
        }
    };
    resolved.policy.entries.iter().map(&mut one).collect()
}

/// Current route of a family's packets, also in words.
fn way(way: &Meant, resolved: &Resolved, facts: &Facts, family: Family) -> (Allowed, String) {
    let (device, down) = match way {
        Meant::Around => return (Allowed::Clear, "around tunnels".to_owned()),
        Meant::Block => return (Allowed::Blocked, "blocked".to_owned()),
        Meant::Through { device, down } => (device, *down),
    };
    let why = match through(device, resolved, facts, family) {
        Way::Through { device, .. } => {
            return match down {
                Down::Hold => (Allowed::Through, format!("through {device}")),
                Down::Around => (
                    Allowed::Loose,
                    format!("through {device} while it is up, then the router's routes"),
                ),
            };
        }
        // Another tunnel may be up.
        Way::Held(Why::NoDevice { tunnels }) => format!("there is no device {tunnels}"),
        Way::Held(why) => why.to_string(),
    };
    match down {
        Down::Hold => (Allowed::Held, format!("held: {why}")),
        Down::Around => (
            Allowed::Clear,
            format!("ignored now; packets take the router's routes: {why}"),
        ),
    }
}

/// Where the table of a tunnel leads.
fn through(device: &str, resolved: &Resolved, facts: &Facts, family: Family) -> Way {
    let tunnels: Vec<_> = facts.named(device).into_iter().collect();
    let lead = resolved.leads.iter().find(|it| it.device == device);
    let table = lead.map_or(0, |it| it.table);
    Way::of(device, &tunnels, table, facts, family)
}

/// For each lead, the interfaces of its IPv4 and IPv6 packets.
pub(super) fn ways_now(resolved: &Resolved, facts: &Facts) -> Ways {
    let now = |device: &str| {
        FAMILIES.map(|it| facts.exit(through(device, resolved, facts, it).index(), it))
    };
    let leads = resolved.leads.iter();
    // Packets that go around tunnels go through an uplink.
    let line = |family| {
        let defaults = facts.defaults(resolved.policy.table, family).into_iter();
        let mut ours = defaults.filter(|it| it.metric == Some(routes::METRIC));
        facts.exit(ours.next().and_then(|it| it.dev), family)
    };
    let around = (resolved.around, FAMILIES.map(line));
    leads
        .map(|it| (it.mark, now(&it.device)))
        .chain([around])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{facts, link, policy, resolved, route, tunnel};
    use config::policy::Policy;

    /// The report without known names.
    fn report(policy: &Policy, is_known: bool, facts: &Facts) -> Report {
        let resolved = Resolved::new(policy, &Default::default(), Vec::new());
        let plan = crate::policy::plan(&resolved, facts, String::new);
        Report::new(&resolved, is_known, is_known, facts, &plan)
    }

    #[test]
    fn entries_say_which_way_packets_go_and_why() {
        let mut facts = facts();
        let ways = |facts: &Facts| {
            let entries = report(&policy(), true, facts).entries.into_iter();
            entries.map(|it| it.ways).collect::<Vec<_>>()
        };
        assert_eq!(ways(&facts)[0][0], "held: there is no device mr-us");
        assert_eq!(
            ways(&facts)[1][1],
            "ignored now; packets take the router's routes: there is no device mr-nl"
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
        assert_eq!(ways_now(&resolved(), &facts)[0].1, [Some((7, true)), None]);
    }

    #[test]
    fn names_without_leases_are_told() {
        let report = |policy: &Policy, is_known| report(policy, is_known, &facts());
        let off = report(&Policy::default(), false);
        assert!(off.notes.is_empty() && off.entries.is_empty());
        let report = report(&policy(), true);
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
    }
}
