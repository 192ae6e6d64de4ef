//! Entries with their names replaced by hardware addresses, and their routes by marks and routing tables.

use std::net::IpAddr;

use config::policy::{Domain, Down, Mac, Policy, Target, Way, Who};
use netio::netlink::Family;

use crate::networks::{Network, widest};
use crate::policy::addresses::Addresses;
use crate::policy::leases::Names;
use crate::policy::second::{Decided, Near};

/// The settings in the form that packets are compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) policy: Policy,
    /// Hardware addresses, by the names of leases.
    pub(crate) names: Names,
    /// IP addresses of the hardware addresses that entries name.
    pub(crate) near: Near,
    /// Known addresses of the names that entries name.
    pub(crate) addresses: Addresses,
    /// The marks that lead into tunnels.
    pub(crate) leads: Vec<Lead>,
    /// The mark of packets that go around tunnels.
    pub(crate) around: u32,
    /// The mark of blocked packets.
    pub(crate) block: u32,
    /// The mark of answers to connections that came in by neither the LAN nor an entry's tunnel; they take the router's
    /// own routes.
    pub(crate) answers: u32,
    /// The entries, in the order of the settings.
    pub(crate) entries: Vec<Entry>,
    /// Packets to block without a mark. Empty it with each change of `near` or `addresses`.
    pub(crate) decided: Decided,
}

/// Route into a tunnel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Lead {
    pub(crate) mark: u32,
    pub(crate) device: String,
    pub(crate) table: u32,
    pub(crate) down: Down,
    /// Whether connections that come in through the tunnel get this mark, so that answers leave through it. Only one of
    /// a tunnel's marks is for answers.
    pub(crate) is_for_answers: bool,
}

/// An entry with what it resolves to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    /// Firewall mark of the entry.
    pub(crate) mark: u32,
    /// Whether the entry blocks its packets.
    pub(crate) blocks: bool,
    /// Whether the entry blocks its packets, always or while its tunnel is down.
    pub(crate) holds: bool,
    /// The table of the entry's tunnel.
    pub(crate) table: Option<u32>,
    /// The sender of the packets; `None` for all of the LAN.
    pub(crate) who: Option<Senders>,
    /// Destination networks of both families; none is within another.
    pub(crate) networks: Vec<Network>,
    /// Destination names.
    pub(crate) domains: Vec<Domain>,
    /// The name servers that replace all others.
    pub(crate) dns: Vec<IpAddr>,
}

/// Senders of packets; a packet matches if any part does.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Senders {
    pub(crate) macs: Vec<Mac>,
    pub(crate) networks: Vec<Network>,
    pub(crate) devices: Vec<String>,
}

impl Entry {
    /// Whether the entry applies to every destination.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.networks.is_empty() && self.domains.is_empty()
    }

    /// Whether the entry applies to destinations of a family.
    pub(crate) fn aims(&self, family: Family) -> bool {
        let mut networks = self.networks.iter();
        self.is_everywhere()
            || !self.domains.is_empty()
            || networks.any(|it| Family::of(it.0) == family)
    }
}

impl Resolved {
    /// Resolves settings with the known hardware addresses of names of leases, and known addresses of these. Domain
    /// names have no known addresses.
    pub(crate) fn new(policy: &Policy, names: &Names, near: Near) -> Self {
        let shift = policy.mask.trailing_zeros();
        let last = policy.mask >> shift;
        let mut resolved = Self {
            policy: policy.clone(),
            names: names.clone(),
            near,
            addresses: Addresses::default(),
            leads: Vec::new(),
            around: (last - 1) << shift,
            block: last << shift,
            answers: (last - 2) << shift,
            entries: Vec::new(),
            decided: Decided::default(),
        };
        for (place, device) in (0..).zip(policy.devices()) {
            let mut is_for_answers = true;
            for (number, down) in [(2 * place + 1, Down::Hold), (2 * place + 2, Down::Around)] {
                let (device, table) = (device.to_owned(), policy.table + 1 + place);
                let way = Way::Through {
                    device: device.clone(),
                    down,
                };
                if policy.entries.iter().any(|it| it.way == way) {
                    resolved.leads.push(Lead {
                        mark: number << shift,
                        device,
                        table,
                        down,
                        is_for_answers: std::mem::take(&mut is_for_answers),
                    });
                }
            }
        }
        let entries = policy.entries.iter();
        resolved.entries = entries.map(|it| resolved.entry(it)).collect();
        resolved
    }

    fn entry(&self, entry: &config::policy::Entry) -> Entry {
        let mut who = Senders::default();
        for it in &entry.who {
            match it {
                Who::Mac(mac) => who.macs.push(*mac),
                Who::Lease(name) => {
                    let macs = self.names.get(&name.to_ascii_lowercase());
                    who.macs.extend(macs.into_iter().flatten());
                }
                Who::Network(network) => who.networks.push((network.addr(), network.prefix())),
                Who::Device(name) => who.devices.push(name.clone()),
            }
        }
        who.macs.sort_unstable();
        who.macs.dedup();
        who.devices.sort_unstable();
        who.devices.dedup();
        // The sets of `nft` allow no overlap.
        who.networks = widest(who.networks);
        let (mut networks, mut domains) = (Vec::new(), Vec::new());
        for target in &entry.to {
            match target {
                Target::Network(network) => networks.push((network.addr(), network.prefix())),
                Target::Domain(domain) => domains.push(domain.clone()),
            }
        }
        let lead = match &entry.way {
            Way::Through { device, down } => {
                let mut leads = self.leads.iter();
                leads.find(|it| it.device == *device && it.down == *down)
            }
            Way::Around | Way::Block => None,
        };
        let mark = match (&entry.way, lead) {
            (Way::Around, _) => self.around,
            (_, Some(lead)) => lead.mark,
            // Every entry with a tunnel has a lead; an entry without one would be blocked.
            (_, None) => self.block,
        };
        Entry {
            mark,
            blocks: mark == self.block,
            holds: mark == self.block || lead.is_some_and(|it| it.down == Down::Hold),
            table: lead.map(|it| it.table),
            who: (!entry.who.is_empty()).then_some(who),
            networks: widest(networks),
            domains,
            dns: entry.dns.clone(),
        }
    }

    /// Whether any entry blocks.
    pub(crate) fn blocks(&self) -> bool {
        self.entries.iter().any(|it| it.blocks)
    }

    /// The leads of tunnels that hold packets while they are down.
    pub(crate) fn holding(&self) -> impl Iterator<Item = &Lead> {
        self.leads.iter().filter(|it| it.down == Down::Hold)
    }

    /// The leads for answers: one for each tunnel.
    pub(crate) fn answering(&self) -> impl Iterator<Item = &Lead> {
        self.leads.iter().filter(|it| it.is_for_answers)
    }

    /// The hardware addresses that blocking entries name, sorted.
    pub(crate) fn held_macs(&self) -> Vec<Mac> {
        self.macs(|it| it.holds)
    }

    /// The hardware addresses that these entries name, sorted.
    pub(crate) fn macs(&self, is_meant: impl Fn(&Entry) -> bool) -> Vec<Mac> {
        let entries = self.entries.iter().filter(|it| is_meant(it));
        let who = entries.filter_map(|it| it.who.as_ref());
        let mut all: Vec<Mac> = who.flat_map(|it| it.macs.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ip, policy, resolved};

    #[test]
    fn names_become_hardware_addresses_and_who_has_none_is_nobody() {
        let all = resolved().entries;
        let television = all[0].who.as_ref().unwrap();
        assert_eq!(television.macs.len(), 2);
        let nobody = Resolved::new(&policy(), &Names::new(), Vec::new()).entries;
        assert_eq!(nobody[0].who.as_ref().unwrap().macs.len(), 1);
        assert_eq!(nobody[1].who, Some(Senders::default()));
        // An entry without a known device is not an entry for all of the LAN.
        assert!(nobody.iter().any(|it| it.who.is_none()));
    }

    #[test]
    fn networks_within_others_are_left_out() {
        let wide = (ip("10.0.0.0"), 8);
        let all = vec![(ip("10.1.0.0"), 16), wide, (ip("fd00::"), 64), wide];
        assert_eq!(widest(all), [wide, (ip("fd00::"), 64)]);
        assert_eq!(widest(vec![(ip("0.0.0.0"), 0), wide]), [(ip("0.0.0.0"), 0)]);
    }

    #[test]
    fn each_way_has_a_mark_of_its_own_within_the_mask() {
        let it = resolved();
        let mask = it.policy.mask;
        let mut marks: Vec<u32> = it.leads.iter().map(|it| it.mark).collect();
        marks.extend([it.around, it.block, it.answers]);
        assert!(marks.iter().all(|it| *it != 0 && it & !mask == 0));
        marks.sort_unstable();
        marks.dedup();
        assert_eq!(marks.len(), it.leads.len() + 3);
        assert!(it.entries.iter().all(|it| marks.contains(&it.mark)));
        assert!(it.leads.iter().all(|lead| lead.table > it.policy.table));
    }
}
