//! Deletes connection tracking entries of connections whose route has changed. Otherwise they would keep the address
//! and the mark of the old route, and flow offload, which bypasses the kernel's chains, would continue them.

use std::net::IpAddr;

use host::covers;
use netio::netlink::{Flow, NetlinkError};

use crate::facts::Facts;
use crate::networks::Network;
use crate::system::System;

/// Connections per batch: each is about 100 bytes.
const BATCH: usize = 4096;

/// Maximum number of batches: a router tracks some tens of thousands of connections.
const BATCHES: usize = 64;

/// Which connections leave the LAN.
pub(crate) struct Leaving {
    /// Networks of the senders.
    from: Vec<Network>,
    /// Destinations that do not count as leaving.
    within: Vec<Network>,
    own: Vec<IpAddr>,
}

impl Leaving {
    pub(crate) fn new(from: Vec<Network>, within: Vec<Network>, facts: &Facts) -> Self {
        let own = facts.addresses.iter().map(|it| it.ip).collect();
        Self { from, within, own }
    }

    pub(crate) fn has(&self, flow: &Flow) -> bool {
        self.either_leaves((flow.src, flow.dst), flow.reply)
    }

    /// Both directions count: a connection that began elsewhere, such as a port forward from the WAN, leaves with its
    /// answers.
    fn either_leaves(&self, first: (IpAddr, IpAddr), reply: Option<(IpAddr, IpAddr)>) -> bool {
        let mut ways = [Some(first), reply].into_iter().flatten();
        ways.any(|(src, dst)| self.leaves(src, dst))
    }

    pub(crate) fn leaves(&self, src: IpAddr, dst: IpAddr) -> bool {
        let is_in = |list: &[Network], ip| list.iter().any(|it| covers(it.0, it.1, ip));
        // Packets to the router itself, or from it, are not blocked.
        is_in(&self.from, src)
            && !is_in(&self.within, dst)
            && !self.own.contains(&dst)
            && !self.own.contains(&src)
            && !dst.is_multicast()
    }
}

/// Forgets the connections that `is_meant` selects, and returns how many.
pub(crate) fn forget(system: &mut System, is_meant: impl Fn(&Flow) -> bool) -> usize {
    let mut forgotten = 0;
    for _ in 0..BATCHES {
        match forget_some(&is_meant, system) {
            Ok(0) => break,
            Ok(count) => forgotten += count,
            Err(error) => {
                // Without connection tracking there is nothing to delete.
                log::debug!("cannot forget connections, which keep their old routes: {error}");
                break;
            }
        }
    }
    forgotten
}

fn forget_some(
    is_meant: &impl Fn(&Flow) -> bool,
    system: &mut System,
) -> Result<usize, NetlinkError> {
    let Some(netfilter) = &mut system.netfilter else {
        return Ok(0);
    };
    let flows = netfilter.flows(BATCH, is_meant)?;
    let mut count = 0;
    for flow in &flows {
        match netfilter.forget_flow(flow) {
            Ok(()) => count += 1,
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{facts, guard, ip};

    fn leaving() -> Leaving {
        let (guard, facts) = (guard(), facts());
        let from = facts.networks(&guard.guarded());
        Leaving::new(from, facts.networks(&guard.within()), &facts)
    }

    #[test]
    fn only_what_leaves_the_lan_is_forgotten() {
        let leaving = leaving();
        for (src, dst, wanted) in [
            ("192.168.1.9", "203.0.113.9", true),
            ("2001:db8:1:1::9", "2001:db8:f::9", true),
            // Within the LAN, to the router, from the router, of other hosts, and to a multicast group.
            ("192.168.1.9", "192.168.2.9", false),
            ("192.168.1.9", "198.51.100.7", false),
            ("192.168.1.1", "203.0.113.9", false),
            ("198.51.100.7", "203.0.113.9", false),
            ("192.168.1.9", "239.1.2.3", false),
        ] {
            assert_eq!(leaving.leaves(ip(src), ip(dst)), wanted, "{src} to {dst}");
        }
    }

    #[test]
    fn what_began_elsewhere_is_forgotten_by_its_answers() {
        let leaving = leaving();
        let leaves = |src, dst, from, to| {
            leaving.either_leaves((ip(src), ip(dst)), Some((ip(from), ip(to))))
        };
        // A port forward from the WAN to a guarded device.
        let far = "203.0.113.9";
        assert!(leaves(far, "198.51.100.7", "192.168.1.9", far));
        // The router itself asks a device; a device of the LAN comes back in by the port forward.
        let (own, pc) = ("192.168.1.1", "192.168.1.9");
        assert!(!leaves(own, pc, pc, own));
        assert!(!leaves(pc, "198.51.100.7", "192.168.2.9", own));
        // A connection from the WAN to the router.
        assert!(!leaves(far, "198.51.100.7", "198.51.100.7", far));
    }
}
