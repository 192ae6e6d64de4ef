//! Entries with their names replaced by hardware addresses.

use std::net::IpAddr;

use crate::guard::networks::{Network, covers};
use config::policy::{Domain, Mac, Policy, Target, Way, Who};

use crate::policy::leases::Names;
use crate::policy::ways::Ways;

/// An entry in the form that packets are compared with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Resolved {
    /// The entry's mark.
    pub(crate) mark: u32,
    /// Whether the entry blocks its packets.
    pub(crate) blocks: bool,
    /// The sender of the packets; `None` for all of the LAN.
    pub(crate) who: Option<Those>,
    /// Destination networks of both families; none is within another.
    pub(crate) networks: Vec<Network>,
    /// Destination names.
    pub(crate) domains: Vec<Domain>,
    /// The name servers that replace all others.
    pub(crate) dns: Vec<IpAddr>,
}

/// Senders of packets; a packet matches if any part does.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Those {
    pub(crate) macs: Vec<Mac>,
    pub(crate) networks: Vec<Network>,
    pub(crate) devices: Vec<String>,
}

impl Those {
    pub(crate) fn is_nobody(&self) -> bool {
        self.macs.is_empty() && self.networks.is_empty() && self.devices.is_empty()
    }
}

impl Resolved {
    /// Whether the entry applies to every destination.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.networks.is_empty() && self.domains.is_empty()
    }
}

/// Resolves the entries of settings, in their order.
pub(crate) fn resolved(policy: &Policy, names: &Names) -> Vec<Resolved> {
    let ways = Ways::new(policy);
    let one = |entry: &config::policy::Entry| {
        let mut who = Those::default();
        for it in &entry.who {
            match it {
                Who::Mac(mac) => who.macs.push(*mac),
                Who::Lease(name) => {
                    let macs = names.get(&name.to_ascii_lowercase());
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
        who.networks = apart(who.networks);
        let (mut networks, mut domains) = (Vec::new(), Vec::new());
        for target in &entry.to {
            match target {
                Target::Network(network) => networks.push((network.addr(), network.prefix())),
                Target::Domain(domain) => domains.push(domain.clone()),
            }
        }
        Resolved {
            mark: ways.mark(&entry.way),
            blocks: entry.way == Way::Block,
            who: (!entry.who.is_empty()).then_some(who),
            networks: apart(networks),
            domains,
            dns: entry.dns.clone(),
        }
    };
    policy.entries.iter().map(one).collect()
}

/// Sorts networks and drops those within others, as `nft` sets allow no overlap.
pub(crate) fn apart(mut networks: Vec<Network>) -> Vec<Network> {
    networks.sort_by_key(|&(ip, prefix)| (ip.is_ipv6(), prefix, ip));
    let mut kept: Vec<Network> = Vec::new();
    for network in networks {
        if !kept.iter().any(|wider| covers(*wider, network.0)) {
            kept.push(network);
        }
    }
    kept.sort_unstable();
    kept
}

/// Networks of one family, as `nft` writes them.
pub(crate) fn of_family(networks: &[Network], is_v6: bool) -> Vec<String> {
    let own = networks.iter().filter(|(ip, _)| ip.is_ipv6() == is_v6);
    own.map(|(ip, prefix): &(IpAddr, u8)| format!("{ip}/{prefix}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixture::{ip, names, policy};

    #[test]
    fn names_become_hardware_addresses_and_who_has_none_is_nobody() {
        let all = resolved(&policy(), &names());
        let television = all[0].who.as_ref().unwrap();
        assert_eq!(television.macs.len(), 2);
        let nobody = resolved(&policy(), &Names::new());
        assert_eq!(nobody[0].who.as_ref().unwrap().macs.len(), 1);
        assert!(nobody[1].who.as_ref().unwrap().is_nobody());
        // An entry without a known device is not an entry for all of the LAN.
        assert!(nobody.iter().any(|it| it.who.is_none()));
    }

    #[test]
    fn networks_within_others_are_left_out() {
        let wide = (ip("10.0.0.0"), 8);
        let all = vec![(ip("10.1.0.0"), 16), wide, (ip("fd00::"), 64), wide];
        assert_eq!(apart(all), [wide, (ip("fd00::"), 64)]);
        assert_eq!(apart(vec![(ip("0.0.0.0"), 0), wide]), [(ip("0.0.0.0"), 0)]);
    }
}
