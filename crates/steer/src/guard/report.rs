//! Reports how the guard stands.

use config::guard::{Guard, Part};
use netio::netlink::{Family, RouteKind, Rule};

use crate::guard::chain::{
    FOREIGN_CHAIN, PRIORITY, ROUTER_CHAIN, SOURCE_CHAIN, WantedChain, dns_chain, refused,
    tunnels_marks,
};
use crate::guard::dns;
use crate::guard::facts::{ChainFact, DnsmasqFact, FAMILIES, Facts};
use crate::guard::networks::Surroundings;
use crate::guard::rules::{INTO_TABLE, PRIORITIES, changes, is_policys, wanted};
use crate::guard::way::Way;

/// The three states.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// No packets are held. Only the user switches the guard off.
    Off,
    /// No packet of guarded devices leaves; or, for a group, none of its devices.
    Held,
    /// Packets of every guarded device leave through a tunnel, in at least one family.
    Through,
}

impl State {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Held => "held",
            Self::Through => "through",
        }
    }
}

/// The state of a layer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Layer {
    /// The layer is complete.
    Whole,
    /// The layer is missing, wholly or in part.
    Missing,
    /// The kernel lacks this family, so no such packet leaves.
    NotNeeded,
    /// The layer cannot be read, for this reason.
    Unseen(String),
}

impl Layer {
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

    fn holds(&self) -> bool {
        matches!(self, Self::Whole | Self::NotNeeded)
    }
}

/// The state of devices that share the same tunnels.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartReport {
    /// The devices.
    pub lan: Vec<String>,
    /// Their tunnels, the preferred first.
    pub tunnels: Vec<String>,
    /// The routing table that leads into one of them.
    pub table: u32,
    /// The way of IPv4 and of IPv6.
    pub ways: [Way; 2],
}

impl PartReport {
    fn new(part: &Part<'_>, facts: &Facts) -> Self {
        Self {
            lan: part.lan.iter().map(|it| (*it).to_owned()).collect(),
            tunnels: part.tunnels.iter().map(ToString::to_string).collect(),
            table: part.table,
            ways: FAMILIES.map(|family| Way::of(part, facts, family)),
        }
    }

    /// Whether at least one family has a way.
    #[must_use]
    pub fn is_through(&self) -> bool {
        self.ways.iter().any(|way| way.index().is_some())
    }

    /// The ways in words, in one line.
    #[must_use]
    pub fn words(&self) -> String {
        let of = |way: &Way| match way {
            Way::Through { device, .. } => format!("through {device}"),
            Way::Held(why) => format!("held: {why}"),
        };
        let [v4, v6] = self.ways.each_ref().map(of);
        match self.ways[0].index() == self.ways[1].index() {
            true => v4,
            false => format!("IPv4 {v4}; IPv6 {v6}"),
        }
    }
}

/// The state of the guard.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The state.
    pub state: State,
    /// The settings, if known.
    pub guard: Option<Guard>,
    /// Whether the record has the guard on.
    pub asked: bool,
    /// Groups of devices, each with tunnels of its own: at least one. The file's own group is first if it guards a
    /// device.
    pub parts: Vec<PartReport>,
    /// The chains that hold packets.
    pub chain: Layer,
    /// The rules of IPv4 and of IPv6.
    pub rules: [Layer; 2],
    /// The chain that redirects queries to the router; `None` where settings do not ask for it.
    pub redirect: Option<Layer>,
    /// The masquerading chain; `None` where settings do not ask for it.
    pub masquerade: Option<Layer>,
    /// The chain for the router's own packets; `None` where settings do not ask for it.
    pub router: Option<Layer>,
    /// Marks of tunnels' own packets, which the router's chain lets through.
    pub marks: Vec<u32>,
    /// The state of `dnsmasq`'s settings; `None` where settings do not ask for them.
    pub dnsmasq: Option<Layer>,
    /// Whether a `watch` process follows tunnels and networks, and restores what other programs remove.
    pub watched: bool,
    /// Packets that the chain has refused since it was made; `None` if that cannot be read.
    pub refused: Option<u64>,
    /// Devices of the LAN by which no packet can come in now, so that none is held: a sentence for each.
    pub idle: Vec<String>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

impl Report {
    /// Builds the report from facts.
    #[must_use]
    pub fn new(guard: Option<&Guard>, asked: bool, facts: &Facts) -> Self {
        let settings = guard.cloned().unwrap_or_default();
        let around = Surroundings::new(&settings, facts);
        let further = |name| {
            let wanted = WantedChain::further(name, &settings, &around);
            wanted.map(|it| layer(facts.further(name), &it))
        };
        let chain = match layer(&facts.chain, &WantedChain::new(&settings, &around)) {
            Layer::Whole => further(FOREIGN_CHAIN).unwrap_or(Layer::Whole),
            other => other,
        };
        let dnsmasq = (!settings.dns.is_empty()).then(|| dnsmasq(&settings, facts));
        let rules = [0, 1].map(|place| {
            let family = FAMILIES[place];
            match &facts.rules[place] {
                Some(rules) => match changes(rules, &wanted(&settings, facts, family)) {
                    changes if changes.is_empty() => Layer::Whole,
                    _ => Layer::Missing,
                },
                None if family == Family::V6 && !facts.ipv6 => Layer::NotNeeded,
                None => Layer::Unseen("the kernel has no policy routing".to_owned()),
            }
        });
        let mut parts = settings.parts();
        parts.retain(|part| !part.lan.is_empty());
        if parts.is_empty() {
            parts.push(settings.own());
        }
        let parts: Vec<PartReport> = parts.iter().map(|it| PartReport::new(it, facts)).collect();
        let mut report = Self {
            state: match facts.is_any_there() {
                false => State::Off,
                true if parts.iter().all(PartReport::is_through) => State::Through,
                true => State::Held,
            },
            guard: guard.cloned(),
            asked,
            parts,
            chain,
            rules,
            redirect: further(dns_chain()),
            masquerade: further(SOURCE_CHAIN),
            router: further(ROUTER_CHAIN),
            marks: tunnels_marks(&around),
            dnsmasq,
            watched: true,
            refused: match &facts.chain {
                ChainFact::There(chain) => refused(chain),
                _ => None,
            },
            idle: Vec::new(),
            notes: Vec::new(),
        };
        if report.state != State::Off || asked {
            report.idle = idle(&settings, facts);
            report.notes.extend(one_armed(&settings, facts));
        }
        report.add_notes(facts);
        report
    }

    /// Groups whose packets are held, while the guard is on.
    pub fn held(&self) -> impl Iterator<Item = &PartReport> {
        let on = self.state != State::Off;
        self.parts.iter().filter(move |it| on && !it.is_through())
    }

    /// Whether both layers are in place.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let further = self.redirect.iter().chain(&self.dnsmasq);
        let mut further = further.chain(&self.masquerade).chain(&self.router);
        self.chain.holds() && self.rules.iter().all(Layer::holds) && further.all(Layer::holds)
    }

    /// Whether at least one layer is in place, so that no packet leaks.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.chain.holds() || self.rules.iter().all(Layer::holds)
    }

    /// Whether both layers are in place, and every device of the LAN can receive packets.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.is_whole() && self.idle.is_empty()
    }

    fn add_notes(&mut self, facts: &Facts) {
        let notes = &mut self.notes;
        match (self.state, self.asked) {
            (State::Off, false) => return,
            (State::Off, true) => {
                notes.push(
                    "it was asked for, and nothing of it is there: packets leave in clear; run \
                     `millrace guard refresh`"
                        .to_owned(),
                );
            }
            (_, false) => notes.push(
                "nothing sets it again when another program takes it away: run `millrace guard on`"
                    .to_owned(),
            ),
            (_, true) => {}
        }
        let rules = facts.rules.iter().flatten().flatten();
        // A full tunnel's mark equals its table's number.
        let is_marked = |rule: &Rule| rule.invert && rule.fwmark == Some(rule.table);
        let is_tunnels = |rule: &&Rule| {
            let mut others = rules.clone();
            is_marked(rule) || others.any(|next| is_marked(next) && rule.goes_before(next))
        };
        let is_other = |it: &u32| (1..INTO_TABLE).contains(it) && !PRIORITIES.contains(it);
        let earlier = rules
            .clone()
            .filter(|rule| !is_policys(rule) && !is_tunnels(rule))
            .filter_map(|rule| rule.priority.filter(is_other));
        let mut earlier: Vec<u32> = earlier.collect();
        earlier.sort_unstable();
        earlier.dedup();
        for priority in earlier {
            notes.push(format!(
                "another program's rule {priority} comes before the guard's; what it leads elsewhere the chain \
                 (priority {PRIORITY}) refuses"
            ));
        }
        for index in self
            .parts
            .iter()
            .flat_map(|part| &part.ways)
            .filter_map(Way::index)
            .collect::<std::collections::BTreeSet<_>>()
        {
            if let Some(link) = facts.link(index).filter(|link| link.mac.len() == 6) {
                notes.push(format!(
                    "{} is called a tunnel and is a network card: is it?",
                    link.name
                ));
            }
        }
    }
}

fn layer(fact: &ChainFact, wanted: &WantedChain) -> Layer {
    match fact {
        ChainFact::There(chain) if wanted.is(chain) => Layer::Whole,
        ChainFact::There(_) | ChainFact::Absent => Layer::Missing,
        ChainFact::Unseen(why) => Layer::Unseen(why.clone()),
    }
}

fn dnsmasq(guard: &Guard, facts: &Facts) -> Layer {
    match (&facts.dnsmasq, dns::change(guard, facts)) {
        (DnsmasqFact::None, _) => Layer::Unseen(
            "this host has no dnsmasq that is started by /etc/init.d/dnsmasq: names are asked as before"
                .to_owned(),
        ),
        (_, None) => Layer::Whole,
        (_, Some(_)) => Layer::Missing,
    }
}

/// Faults of devices of the LAN. Packets of a bridge's port come in by the bridge, not by the port.
fn idle(guard: &Guard, facts: &Facts) -> Vec<String> {
    let of = |name: &str| {
        let Some(link) = facts.links.iter().find(|link| link.name == name) else {
            return Some(format!(
                "there is no device {name}: what comes in by another is not held"
            ));
        };
        let master = facts.link(link.master?);
        let master = master.map_or("another device", |it| it.name.as_str());
        Some(format!(
            "{name} is a part of {master}, by which its packets come in: they are not held; guard that instead"
        ))
    };
    guard.guarded().into_iter().filter_map(of).collect()
}

/// Warns where the host's default route leaves by a device of the LAN: both layers tell ways apart only by device.
fn one_armed(guard: &Guard, facts: &Facts) -> Option<String> {
    let mut out = facts.main.iter().filter(|route| {
        route.kind == RouteKind::Unicast && route.prefix == 0 && route.dev.is_some()
    });
    let name = out.find_map(|route| {
        let link = facts.link(route.dev?)?;
        guard.within().into_iter().find(|name| *name == link.name)
    })?;
    Some(format!(
        "the router's own default route leads out of {name}, which the LAN reaches: the packet filter lets through what \
         goes there, and while another program flushes the rules, packets leave in clear"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::fixture::{facts, guard, link, route};
    use netio::netlink::Rule;

    /// The facts of a guard that is on.
    fn on() -> Facts {
        let mut facts = facts();
        let plan = crate::guard::Plan::set(&guard(), &facts);
        for (family, rules) in FAMILIES.into_iter().zip(&mut facts.rules) {
            let add = plan.rules.add.iter().filter(|it| it.family == family);
            rules.as_mut().unwrap().extend(add);
        }
        facts
    }

    /// One group that is held shows as held, even when another one is not.
    #[test]
    fn it_is_held_while_some_devices_are() {
        let list = config::guard::Listed {
            interface: "home".to_owned(),
            device: "mr-home".to_owned(),
            lan: vec!["br-tv".to_owned()],
        };
        let (listed, _) = guard().with_lists(&[list], &[]);
        let mut facts = on();
        facts.links.push(link(7, "mr-office", true));
        facts.tables.push(route("0.0.0.0", 0, 7, 77));
        let report = Report::new(Some(&listed), true, &facts);
        assert_eq!(report.state, State::Held);
        let held: Vec<_> = report.held().flat_map(|it| &it.lan).collect();
        assert_eq!(held, ["br-tv"]);
    }

    #[test]
    fn there_are_three_states() {
        let state = |facts: &Facts| Report::new(Some(&guard()), true, facts).state;
        assert_eq!(state(&facts()), State::Off);
        let mut facts = on();
        assert_eq!(state(&facts), State::Held);
        facts.links.push(link(7, "mr-office", true));
        facts.tables.push(route("0.0.0.0", 0, 7, 77));
        let report = Report::new(Some(&guard()), true, &facts);
        assert_eq!(report.state, State::Through);
        assert!(matches!(report.parts[0].ways[1], Way::Held(_)));
        assert_eq!(report.held().count(), 0);
        assert_eq!(report.rules, [Layer::Whole, Layer::Whole]);
        // The chain is missing.
        assert!(!report.is_whole());
    }

    #[test]
    fn what_was_asked_for_and_is_gone_is_said() {
        let report = Report::new(Some(&guard()), true, &facts());
        assert!(report.notes[0].contains("packets leave in clear"));
        let report = Report::new(Some(&guard()), false, &facts());
        assert!(report.notes.is_empty() && report.state == State::Off);
    }

    #[test]
    fn names_are_a_part_of_it_where_that_is_wanted() {
        let mut guard = guard();
        let report = |guard: &Guard, facts: &Facts| Report::new(Some(guard), true, facts);
        let mut facts = on();
        assert_eq!(
            (
                report(&guard, &facts).dnsmasq,
                report(&guard, &facts).redirect
            ),
            (None, None)
        );
        guard.dns = vec![crate::guard::fixture::ip("10.8.0.1")];
        guard.dns_redirect = true;
        assert!(matches!(
            report(&guard, &facts).dnsmasq,
            Some(Layer::Unseen(_))
        ));
        facts.dnsmasq = DnsmasqFact::File(None);
        assert_eq!(report(&guard, &facts).dnsmasq, Some(Layer::Missing));
        assert_eq!(report(&guard, &facts).redirect, Some(Layer::Missing));
        let Some(dns::DnsChange::Set(text)) = dns::change(&guard, &facts) else {
            panic!("nothing to be told");
        };
        facts.dnsmasq = DnsmasqFact::File(Some(text));
        assert_eq!(report(&guard, &facts).dnsmasq, Some(Layer::Whole));
    }

    #[test]
    fn devices_that_nothing_comes_in_by_are_named() {
        let mut facts = on();
        let idle = |facts: &Facts| Report::new(Some(&guard()), true, facts).idle;
        // A further device that the LAN may reach need not exist.
        assert!(idle(&facts).is_empty());
        facts.links[2].master = Some(2);
        assert!(idle(&facts)[0].contains("br-guest is a part of br-lan"));
        facts.links.remove(2);
        assert!(idle(&facts)[0].contains("no device br-guest"));
        let report = Report::new(Some(&guard()), true, &facts);
        assert!(!report.is_good());
        // No fault is reported while the guard is off.
        facts.rules = crate::guard::fixture::facts().rules;
        assert!(Report::new(Some(&guard()), false, &facts).idle.is_empty());
    }

    #[test]
    fn a_way_out_by_a_device_of_the_lan_is_told() {
        let mut facts = on();
        let notes = |facts: &Facts| Report::new(Some(&guard()), true, facts).notes;
        assert!(notes(&facts).is_empty());
        facts.main.push(route("::", 0, 4, 254));
        assert!(notes(&facts)[0].contains("leads out of br-guest"));
    }

    #[test]
    fn rules_of_others_that_come_first_are_named() {
        let mut facts = on();
        let rule = Rule {
            priority: Some(100),
            ..Rule::new(Family::V4, 78)
        };
        facts.rules[0].as_mut().unwrap().push(rule);
        let report = Report::new(Some(&guard()), true, &facts);
        assert!(report.notes[0].contains("rule 100"), "{:?}", report.notes);
        assert_eq!(report.rules[0], Layer::Whole);
    }
}
