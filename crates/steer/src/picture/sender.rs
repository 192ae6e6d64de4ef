//! A sender of packets, and whether an entry's `who` matches it.

use std::net::IpAddr;

use config::policy::Mac;
use netio::netlink::Family;

use crate::facts::Facts;
use crate::networks::Network;
use crate::policy::{Entry, Lease, Present, Senders};

/// A device of the LAN, or all other devices behind an interface of the router.
pub(super) struct Device<'a> {
    /// The device's name; empty if it has none.
    pub(super) name: &'a str,
    /// The hardware address; `None` for all other devices.
    pub(super) mac: Option<Mac>,
    /// The address of the lease, if there is one.
    pub(super) address: Option<IpAddr>,
    /// The router's interface through which the packets come in; empty if unknown.
    pub(super) lan: &'a str,
}

/// Whether a sender's packets match.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Match {
    No,
    /// Some of the packets may match: the sender's address is unknown, or there are several senders.
    Maybe,
    Yes,
}

impl<'a> Device<'a> {
    /// The device of a lease.
    pub(super) fn of_lease(lease: &'a Lease, facts: &'a Facts) -> Self {
        Self {
            name: &lease.name,
            mac: Some(lease.mac),
            address: Some(lease.address),
            lan: lan_of(lease.address, facts),
        }
    }

    /// All devices behind an interface that have no lease.
    pub(super) fn others(lan: &'a str) -> Self {
        Self {
            name: "",
            mac: None,
            address: None,
            lan,
        }
    }

    /// A device that an entry names and that has no lease.
    pub(super) fn without_lease(mac: Mac, present: &'a Present) -> Self {
        let mut names = present.resolved.names.iter();
        let named = names.find(|it| it.1.contains(&mac));
        Self {
            name: named.map_or("", |it| it.0),
            mac: Some(mac),
            address: None,
            lan: "",
        }
    }

    /// The device in a sentence.
    pub(super) fn words(&self) -> String {
        match (self.name, self.mac) {
            (_, None) => format!("devices of {} without a lease", self.lan),
            ("", Some(mac)) => mac.to_string(),
            (name, Some(mac)) => format!("{name} ({mac})"),
        }
    }

    /// Whether packets of a family match an entry of the policy.
    pub(super) fn matches(&self, entry: &Entry, family: Family, present: &Present) -> Match {
        let is_elsewhere = self.lan.is_empty();
        let named = |who: &Senders| self.mac.is_some_and(|it| who.macs.contains(&it));
        match &entry.who {
            None if is_elsewhere => Match::Maybe,
            None => Match::Yes,
            // Packets of a device that is held are dropped wherever they come in.
            Some(who) if named(who) && is_elsewhere && !(entry.is_everywhere() && entry.holds) => {
                Match::Maybe
            }
            Some(who) if named(who) => Match::Yes,
            Some(who) if who.devices.iter().any(|it| it == self.lan) => Match::Yes,
            Some(who) if is_elsewhere && !who.devices.is_empty() => Match::Maybe,
            Some(who) => self.is_within(&who.networks, family, present),
        }
    }

    fn is_within(&self, networks: &[Network], family: Family, present: &Present) -> Match {
        let of_family = |it: &&Network| Family::of(it.0) == family;
        let networks: Vec<Network> = networks.iter().filter(of_family).copied().collect();
        if networks.is_empty() {
            return Match::No;
        }
        if let Some(address) = self.address.filter(|it| Family::of(*it) == family) {
            return match networks.iter().any(|it| within(address, *it)) {
                true => Match::Yes,
                false => Match::No,
            };
        }
        let own = present.facts.networks(&[self.lan]);
        let own: Vec<Network> = own.iter().filter(of_family).copied().collect();
        let is_covered = |own: &Network| networks.iter().any(|it| covers(*it, *own));
        let overlaps = |own: &Network| networks.iter().any(|it| covers(*own, *it));
        match own.is_empty() {
            true => Match::Maybe,
            false if own.iter().all(is_covered) => Match::Yes,
            false if own.iter().any(|it| is_covered(it) || overlaps(it)) => Match::Maybe,
            false => Match::No,
        }
    }
}

/// The interface with the network of an address; empty if there is none.
fn lan_of(address: IpAddr, facts: &Facts) -> &str {
    let mut own = facts.addresses.iter();
    let found = own.find(|it| within(address, (it.ip, it.prefix)));
    let link = found.and_then(|it| facts.link(it.index));
    link.map_or("", |it| it.name.as_str())
}

/// Whether a network has an address.
pub(super) fn within(address: IpAddr, (network, prefix): Network) -> bool {
    let number = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let differ = number(address) ^ number(network);
    Family::of(address) == Family::of(network) && differ.leading_zeros() >= u32::from(prefix)
}

/// Whether a network has all addresses of another.
pub(super) fn covers(wide: Network, narrow: Network) -> bool {
    wide.1 <= narrow.1 && within(narrow.0, wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::ip;

    #[test]
    fn networks_hold_their_addresses_and_no_others() {
        for (address, network, is) in [
            ("192.168.1.7", ("192.168.1.0", 24), true),
            ("192.168.2.7", ("192.168.1.0", 24), false),
            ("192.168.1.7", ("0.0.0.0", 0), true),
            ("192.168.1.7", ("192.168.1.7", 32), true),
            ("::1", ("0.0.0.0", 0), false),
            ("fd00::7", ("fd00::", 64), true),
        ] {
            assert_eq!(
                within(ip(address), (ip(network.0), network.1)),
                is,
                "{address}"
            );
        }
    }
}
