//! Reports how the guard stands.

use std::collections::BTreeSet;

use config::guard::{Guard, Part as Devices};
use host::Dnsmasq;
use host::tunnel_devices::instead;
use netio::netlink::{Family, RouteKind, Rule, TABLE_MAIN};

use crate::facts::{FAMILIES, Facts};
use crate::guard::chain::{CHAIN, DNS, HELD, PRIORITY, ROUTER, SOURCE, marks, table};
use crate::guard::rules::{INTO_TABLE, PRIORITIES, is_ours, is_policys};
use crate::guard::{WATCH, known, plan};
use crate::record;
use crate::report::{Part, asked_notes, idle, strict};
use crate::way::Way;

/// State of the guard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// No packets are blocked. Only the user switches the guard off.
    Off,
    /// No packet of guarded devices leaves; or, for a group, none of its devices.
    Held,
    /// Packets of every guarded device leave through a tunnel, in at least one family.
    Through,
}

impl State {
    /// Name of the state in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Held => "held",
            Self::Through => "through",
        }
    }
}

/// The state of devices that share the same tunnels.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartReport {
    /// Guarded devices of the LAN.
    pub lan: Vec<String>,
    /// Tunnels of these devices, the preferred first.
    pub tunnels: Vec<String>,
    /// The routing table whose default route leads into one of these tunnels.
    pub table: u32,
    /// Route of IPv4 and of IPv6.
    pub ways: [Way; 2],
}

impl PartReport {
    fn new(part: &Devices<'_>, facts: &Facts) -> Self {
        Self {
            lan: part.lan.iter().map(|it| (*it).to_owned()).collect(),
            tunnels: part.tunnels.iter().map(ToString::to_string).collect(),
            table: part.table,
            ways: FAMILIES.map(|family| plan::way(part, facts, family)),
        }
    }

    /// Whether at least one family has a route.
    #[must_use]
    pub fn is_through(&self) -> bool {
        self.ways.iter().any(|way| way.index().is_some())
    }

    /// Routes in words, in one line.
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
    /// State of the guard.
    pub state: State,
    /// The settings, if known.
    pub guard: Option<Guard>,
    /// Whether the record has the guard on.
    pub asked: bool,
    /// Groups of devices, each with tunnels of its own: at least one. The file's own group is first if it guards a
    /// device.
    pub parts: Vec<PartReport>,
    /// The chains that hold packets.
    pub chain: Part,
    /// The rules of IPv4 and of IPv6.
    pub rules: [Part; 2],
    /// The chain that redirects queries to the router; `None` where settings do not request it.
    pub redirect: Option<Part>,
    /// The masquerading chain; `None` where settings do not request it.
    pub masquerade: Option<Part>,
    /// The chain for the router's own packets; `None` where settings do not request it.
    pub router: Option<Part>,
    /// Marks of tunnels' own packets, which the router's chain lets through.
    pub marks: Vec<u32>,
    /// The state of `dnsmasq`'s settings; `None` where settings do not request them.
    pub dnsmasq: Option<Part>,
    /// Whether a `watch` process follows tunnels and networks, and restores what other programs remove.
    pub watched: bool,
    /// Packets that the chain and the rules have refused since the chain was made; `None` if that cannot be read.
    pub refused: Option<u64>,
    /// Devices of the LAN through which no packet can come in now, so that none is guarded: a sentence for each.
    pub idle: Vec<String>,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

impl Report {
    /// Builds the report from facts.
    pub(crate) fn new(
        guard: Option<&Guard>,
        asked: bool,
        facts: &Facts,
        dnsmasq: Option<&Dnsmasq>,
    ) -> Self {
        let settings = guard.cloned().unwrap_or_default();
        let plan = plan::set(&settings, facts);
        let marks = marks(facts);
        let chains = table(&settings, &known(&settings, facts), &marks).chains;
        let further = |name| {
            let place = chains.iter().position(|it| it.name == name)?;
            Some(facts.chains.part(&chains[place..=place]))
        };
        let mut parts = settings.parts();
        parts.retain(|part| !part.lan.is_empty());
        if parts.is_empty() {
            parts.push(settings.own());
        }
        let parts: Vec<PartReport> = parts.iter().map(|it| PartReport::new(it, facts)).collect();
        let is_on = facts.chains.found.contains_key(CHAIN) || facts.rules().any(is_ours);
        let state = match is_on {
            false => State::Off,
            true if parts.iter().all(PartReport::is_through) => State::Through,
            true => State::Held,
        };
        let is_meant = is_on || asked;
        let mut report = Self {
            state,
            guard: guard.cloned(),
            asked,
            parts,
            // The chain that holds, and that for foreign sources.
            chain: facts.chains.part(&chains[..2]),
            rules: plan.rules_part(facts),
            redirect: further(DNS),
            masquerade: further(SOURCE),
            router: further(ROUTER),
            marks,
            dnsmasq: (!settings.dns.is_empty()).then(|| match (&facts.dnsmasq, &plan.dns) {
                (None, _) => Part::Unseen(format!(
                    "/etc/init.d/dnsmasq starts no dnsmasq on this host, so {}",
                    match settings.dns_redirect {
                        true => "the LAN's queries are refused, unless another program answers at port 53",
                        false => "names are looked up as before",
                    }
                )),
                (_, None) => Part::Whole,
                (_, Some(_)) => Part::Missing,
            }),
            watched: record::is_taken(WATCH),
            refused: facts.chains.counted(&[CHAIN, HELD]),
            idle: match is_meant {
                true => idle(&settings.guarded(), facts),
                false => Vec::new(),
            },
            notes: Vec::new(),
        };
        if is_meant {
            report.notes.extend(one_armed(&settings, facts));
        }
        report.add_notes(&settings, facts, dnsmasq);
        report
    }

    /// Groups whose packets are blocked, while the guard is on.
    pub fn held(&self) -> impl Iterator<Item = &PartReport> {
        let on = self.state != State::Off;
        self.parts.iter().filter(move |it| on && !it.is_through())
    }

    /// Whether both layers are in place.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let further = self.redirect.iter().chain(&self.dnsmasq);
        let mut further = further.chain(&self.masquerade).chain(&self.router);
        self.chain.is_well() && self.rules.iter().all(Part::is_well) && further.all(Part::is_well)
    }

    /// Whether at least one layer is in place, so that no packet leaks.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.chain.is_well() || self.rules.iter().all(Part::is_well)
    }

    /// Whether both layers are in place, and every device of the LAN can receive packets.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.is_whole() && self.idle.is_empty()
    }

    /// The state in a line.
    pub(super) fn words(&self) -> String {
        let words = self.parts.iter().map(|part| match self.parts.len() {
            1 => part.words(),
            _ => format!("{} {}", part.lan.join(", "), part.words()),
        });
        words.collect::<Vec<_>>().join("; ")
    }

    fn add_notes(&mut self, guard: &Guard, facts: &Facts, dnsmasq: Option<&Dnsmasq>) {
        let Some(notes) = asked_notes("guard", self.state != State::Off, self.asked) else {
            return;
        };
        self.notes.extend(notes);
        let rules = facts.rules();
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
        let earlier: BTreeSet<u32> = earlier.collect();
        self.notes.extend(earlier.into_iter().map(|priority| {
            format!(
                "rule {priority} of another program comes before the guard's; the chain (priority {PRIORITY}) refuses \
                 the packets that it routes elsewhere"
            )
        }));
        let through = self.parts.iter().flat_map(|part| &part.ways);
        let through: BTreeSet<&str> = through.filter_map(Way::device).collect();
        let cards = through.iter().filter(|name| {
            let link = facts.named(name);
            link.is_some_and(|it| it.mac.len() == 6)
        });
        let cards = cards.map(|name| {
            format!("{name} is listed as a tunnel, but is a network card; check `tunnels`")
        });
        self.notes.extend(cards);
        if let Some(dnsmasq) = dnsmasq.filter(|_| !guard.dns.is_empty() && self.state != State::Off)
        {
            let others = dnsmasq.other_servers(&guard.dns_names).into_iter().take(4);
            self.notes.extend(others.map(|server| {
                format!(
                    "dnsmasq also asks {server}, even while no tunnel is up; remove that server from its configuration"
                )
            }));
        }
        let asks = dnsmasq.is_some() && guard.dns.is_empty() && self.state != State::Off;
        let is_full = facts.rules().any(is_marked) || router_is_through(guard, facts);
        if asks && !is_full {
            let note = "names that the LAN looks up at this router leave outside the tunnel, in clear; set `dns` in \
                        guard.toml (docs/dns.md)";
            self.notes.push(note.to_owned());
        }
        let mut links = facts.links.iter();
        if self.state == State::Held
            && !guard.lan.is_empty()
            && !links.any(|it| guard.rank(&it.name).is_some())
        {
            self.notes.extend(instead(facts.up(), |_| false));
        }
        let through = self.parts.iter().filter_map(|it| it.ways[0].device());
        let through: BTreeSet<&str> = through.collect();
        self.notes.extend(strict(through));
    }
}

/// Whether the router's own packets leave through a tunnel of the guard.
fn router_is_through(guard: &Guard, facts: &Facts) -> bool {
    let own = facts.defaults(TABLE_MAIN, Family::V4).into_iter().next();
    let link = own.and_then(|it| facts.link(it.dev?));
    let is_tunnel = |name: &str| guard.parts().iter().any(|it| it.rank(name).is_some());
    link.is_some_and(|it| is_tunnel(&it.name))
}

/// Warns where the host's default route leaves through a device of the LAN: both layers distinguish routes only by
/// device.
fn one_armed(guard: &Guard, facts: &Facts) -> Option<String> {
    let mut out = facts.main.iter().filter(|route| {
        route.kind == RouteKind::Unicast && route.prefix == 0 && route.dev.is_some()
    });
    let name = out.find_map(|route| {
        let link = facts.link(route.dev?)?;
        guard.within().into_iter().find(|name| *name == link.name)
    })?;
    Some(format!(
        "the router's own default route uses {name}, which the LAN may reach: the packet filter accepts packets to \
         it, and while another program flushes the rules, packets leave unencrypted"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{facts, guard, link, route};
    use std::path::PathBuf;

    /// The facts of a guard that is on.
    fn on() -> Facts {
        let mut facts = facts();
        let plan = plan::set(&guard(), &facts);
        for (family, rules) in FAMILIES.into_iter().zip(&mut facts.rules) {
            let add = plan.add.iter().filter(|it| it.family == family);
            rules.as_mut().unwrap().extend(add);
        }
        facts
    }

    /// A blocked group is reported as blocked, even if another one is not.
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
        let report = Report::new(Some(&listed), true, &facts, None);
        assert_eq!(report.state, State::Held);
        let held: Vec<_> = report.held().flat_map(|it| &it.lan).collect();
        assert_eq!(held, ["br-tv"]);
    }

    #[test]
    fn there_are_three_states() {
        let state = |facts: &Facts| Report::new(Some(&guard()), true, facts, None).state;
        assert_eq!(state(&facts()), State::Off);
        let mut facts = on();
        assert_eq!(state(&facts), State::Held);
        facts.links.push(link(7, "mr-office", true));
        facts.tables.push(route("0.0.0.0", 0, 7, 77));
        let report = Report::new(Some(&guard()), true, &facts, None);
        assert_eq!(report.state, State::Through);
        assert!(matches!(report.parts[0].ways[1], Way::Held(_)));
        assert_eq!(report.held().count(), 0);
        assert_eq!(report.rules, [Part::Whole, Part::Whole]);
        // The chain is missing.
        assert!(!report.is_whole());
    }

    #[test]
    fn what_was_asked_for_and_is_gone_is_said() {
        let report = Report::new(Some(&guard()), true, &facts(), None);
        assert!(report.notes[0].contains("packets leave unencrypted"));
        let report = Report::new(Some(&guard()), false, &facts(), None);
        assert!(report.notes.is_empty() && report.state == State::Off);
    }

    #[test]
    fn names_are_a_part_of_it_where_that_is_wanted() {
        let mut guard = guard();
        let report = |guard: &Guard, facts: &Facts| Report::new(Some(guard), true, facts, None);
        let mut facts = on();
        assert_eq!(
            (
                report(&guard, &facts).dnsmasq,
                report(&guard, &facts).redirect
            ),
            (None, None)
        );
        guard.dns = vec![crate::fixture::ip("10.8.0.1")];
        guard.dns_redirect = true;
        assert!(matches!(
            report(&guard, &facts).dnsmasq,
            Some(Part::Unseen(_))
        ));
        facts.dnsmasq = Some(None);
        assert_eq!(report(&guard, &facts).dnsmasq, Some(Part::Missing));
        assert_eq!(report(&guard, &facts).redirect, Some(Part::Missing));
        facts.dnsmasq = Some(crate::guard::dns::change(&guard, &facts));
        assert_eq!(report(&guard, &facts).dnsmasq, Some(Part::Whole));
    }

    #[test]
    fn devices_that_nothing_comes_in_by_are_named() {
        let mut facts = on();
        let idle = |facts: &Facts| Report::new(Some(&guard()), true, facts, None).idle;
        // A further device that the LAN may reach need not exist.
        assert!(idle(&facts).is_empty());
        facts.links[2].master = Some(2);
        assert!(idle(&facts)[0].contains("br-guest is a port of br-lan"));
        facts.links.remove(2);
        assert!(idle(&facts)[0].contains("no device br-guest"));
        let report = Report::new(Some(&guard()), true, &facts, None);
        assert!(!report.is_good());
        // No fault is reported while the guard is off.
        facts.rules = crate::fixture::facts().rules;
        assert!(
            Report::new(Some(&guard()), false, &facts, None)
                .idle
                .is_empty()
        );
    }

    #[test]
    fn a_way_out_by_a_device_of_the_lan_is_told() {
        let mut facts = on();
        let notes = |facts: &Facts| Report::new(Some(&guard()), true, facts, None).notes;
        assert!(notes(&facts).is_empty());
        facts.main.push(route("::", 0, 4, 254));
        assert!(notes(&facts)[0].contains("uses br-guest"));
    }

    #[test]
    fn the_lan_s_names_outside_the_tunnel_are_told_with_the_remedy() {
        let dnsmasq = Dnsmasq::at(PathBuf::from("/none"));
        let notes = |guard: &Guard, facts: &Facts| {
            let report = Report::new(Some(guard), true, facts, Some(&dnsmasq));
            let mut notes = report.notes.into_iter();
            notes.any(|it| it.contains("set `dns` in guard.toml"))
        };
        let (mut guard, mut facts) = (guard(), on());
        assert!(notes(&guard, &facts));
        assert!(!notes(&guard, &crate::fixture::facts()), "the guard is off");
        // The router's own packets take the tunnel, too: by a route, or by the rule of a tunnel for all traffic.
        facts.links.push(link(7, "mr-office", true));
        facts.main.push(route("0.0.0.0", 1, 7, 254));
        assert!(!notes(&guard, &facts));
        facts.main.pop();
        assert!(notes(&guard, &facts));
        let rule = Rule::not_marked(Family::V4, 51820, 51820);
        facts.rules[0].as_mut().unwrap().push(rule);
        assert!(!notes(&guard, &facts));
        facts.rules[0].as_mut().unwrap().pop();
        guard.dns = vec![crate::fixture::ip("10.8.0.1")];
        assert!(!notes(&guard, &facts));
    }

    #[test]
    fn rules_of_others_that_come_first_are_named() {
        let mut facts = on();
        let rule = Rule {
            priority: Some(100),
            ..Rule::new(Family::V4, 78)
        };
        facts.rules[0].as_mut().unwrap().push(rule);
        let report = Report::new(Some(&guard()), true, &facts, None);
        assert!(report.notes[0].contains("rule 100"), "{:?}", report.notes);
        assert_eq!(report.rules[0], Part::Whole);
    }
}
