//! Forgets connections whose way has changed since they began. Otherwise they would keep their mark, and the address of
//! the old way.

use std::net::IpAddr;

use crate::guard::flows::forget_those;
use crate::guard::networks::{Network, covers, of_devices};
use crate::guard::system::System;
use netio::netlink::{Flow, Neighbour};

use crate::policy::facts::Facts;
use crate::policy::resolved::{Resolved, Those};

/// The connections to forget.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Changed {
    /// Connections with one of these marks.
    pub(crate) marks: Vec<u32>,
    /// All connections of the LAN.
    pub(crate) all: bool,
    /// Connections of these senders.
    pub(crate) those: Those,
}

impl Changed {
    /// Selects the connections of entries that changed or moved.
    pub(crate) fn between(before: &[Resolved], now: &[Resolved]) -> Self {
        let same = |(a, b): &(&Resolved, &Resolved)| a == b;
        let begin = before.iter().zip(now).take_while(same).count();
        let (before, now) = (&before[begin..], &now[begin..]);
        let end = before
            .iter()
            .rev()
            .zip(now.iter().rev())
            .take_while(same)
            .count();
        let mut changed = Self::default();
        for entry in before[..before.len() - end]
            .iter()
            .chain(&now[..now.len() - end])
        {
            changed.add(entry);
        }
        changed
    }

    fn add(&mut self, entry: &Resolved) {
        match &entry.who {
            None => self.all = true,
            Some(who) => {
                self.those.macs.extend(&who.macs);
                self.those.networks.extend(&who.networks);
                self.those.devices.extend(who.devices.iter().cloned());
            }
        }
    }

    /// Connections of all entries.
    pub(crate) fn of_all(entries: &[Resolved]) -> Self {
        Self::between(&[], entries)
    }

    fn is_nothing(&self) -> bool {
        self.marks.is_empty() && !self.all && self.those.is_nobody()
    }
}

/// Decides whether a connection is among those to forget.
struct Meant<'c> {
    changed: &'c Changed,
    mask: u32,
    lan: Vec<Network>,
    networks: Vec<Network>,
    addresses: Vec<IpAddr>,
    own: Vec<IpAddr>,
}

impl<'c> Meant<'c> {
    fn new(
        changed: &'c Changed,
        mask: u32,
        lan: &[String],
        facts: &Facts,
        near: &[Neighbour],
    ) -> Self {
        let of = |names: &[String]| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            of_devices(&facts.links, &facts.addresses, &facts.main, &names)
        };
        let mut networks = of(&changed.those.devices);
        networks.extend(&changed.those.networks);
        let is_meant = |it: &&Neighbour| changed.those.macs.iter().any(|mac| mac.0[..] == it.mac);
        Self {
            changed,
            mask,
            lan: of(lan),
            networks,
            addresses: near.iter().filter(is_meant).map(|it| it.ip).collect(),
            own: facts.addresses.iter().map(|it| it.ip).collect(),
        }
    }

    fn has(&self, flow: &Flow) -> bool {
        // The mark decides, whatever the connection's addresses.
        if self.changed.marks.contains(&(flow.mark & self.mask)) {
            return true;
        }
        let answers = flow.reply;
        let mut ways = [Some((flow.src, flow.dst)), answers].into_iter().flatten();
        ways.any(|(src, dst)| self.leaves(src, dst))
    }

    fn leaves(&self, src: IpAddr, dst: IpAddr) -> bool {
        let within = |list: &[Network], ip| list.iter().any(|it| covers(*it, ip));
        let is_theirs = match self.changed.all {
            true => within(&self.lan, src),
            false => within(&self.networks, src) || self.addresses.contains(&src),
        };
        is_theirs && !self.own.contains(&dst) && !self.own.contains(&src) && !dst.is_multicast()
    }
}

/// Forgets connections, and returns how many.
pub(crate) fn forget(
    changed: &Changed,
    mask: u32,
    lan: &[String],
    facts: &Facts,
    system: &mut System,
) -> usize {
    if changed.is_nothing() {
        return 0;
    }
    // Without neighbours, connections of hardware addresses stay; a kernel that lists none tracks no such devices.
    let near = system.netlink.neighbours().unwrap_or_default();
    let meant = Meant::new(changed, mask, lan, facts, &near);
    forget_those(system, |flow| meant.has(flow))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixture::{facts, ip, names, policy};
    use crate::policy::resolved::resolved;

    #[test]
    fn only_entries_that_changed_are_meant() {
        let before = resolved(&policy(), &names());
        assert!(Changed::between(&before, &before).is_nothing());
        let mut now = before.clone();
        now[1].domains.pop();
        let changed = Changed::between(&before, &now);
        assert!(!changed.all && changed.those.macs.iter().all(|mac| mac.0[5] == 3));
        // The third entry is about all of the LAN.
        now.swap(1, 2);
        assert!(Changed::between(&before, &now).all);
        now.clear();
        assert!(Changed::between(&before, &now).all);
    }

    #[test]
    fn connections_of_changed_devices_that_leave_are_meant() {
        let mut changed = Changed::default();
        changed.those.macs = names()["phone"].clone();
        changed.those.devices = vec!["br-guest".to_owned()];
        let facts = facts();
        let near = [Neighbour {
            index: 2,
            ip: ip("2001:db8:1:1::77"),
            mac: changed.those.macs[0].0.to_vec(),
            idle: std::time::Duration::ZERO,
        }];
        let lan = ["br-lan".to_owned(), "br-guest".to_owned()];
        let meant = Meant::new(&changed, 0xff00_0000, &lan, &facts, &near);
        for (src, dst, wanted) in [
            ("2001:db8:1:1::77", "2001:db8:f::9", true),
            ("192.168.2.9", "203.0.113.9", true),
            ("192.168.1.9", "203.0.113.9", false),
            ("192.168.2.9", "192.168.2.1", false),
            ("192.168.2.1", "203.0.113.9", false),
        ] {
            assert_eq!(meant.leaves(ip(src), ip(dst)), wanted, "{src} to {dst}");
        }
        changed.all = true;
        let meant = Meant::new(&changed, 0xff00_0000, &lan, &facts, &near);
        assert!(meant.leaves(ip("192.168.1.9"), ip("203.0.113.9")));
    }
}
