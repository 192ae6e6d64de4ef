//! Redirections of one interface's packets to another.

use super::{in_namespace, ip};
use netio::netlink::{Netlink, Redirection, VethEnd};
use std::net::UdpSocket;

/// Packets sent at a time. The interfaces' own, such as neighbour discovery, are fewer.
const MANY: u64 = 200;

/// Packets that have come through a cable.
fn came(netlink: &mut Netlink, end: &str) -> u64 {
    netlink.link(end).unwrap().counters.rx_packets
}

#[test]
fn packets_leave_through_the_other_interface_while_they_are_redirected() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        for (one, other) in [("a", "b"), ("c", "d")] {
            netlink
                .create_veth(VethEnd::new(one), VethEnd::new(other))
                .unwrap();
            for end in [one, other] {
                let index = netlink.index_of(end).unwrap();
                netlink.set_up(index).unwrap();
            }
        }
        let (a, c) = (
            netlink.index_of("a").unwrap(),
            netlink.index_of("c").unwrap(),
        );
        netlink.add_address(a, ip("10.9.0.1"), 24, None).unwrap();
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        socket.set_broadcast(true).unwrap();
        let through = |netlink: &mut Netlink| {
            let before = ["b", "d"].map(|end| came(netlink, end));
            for _ in 0..MANY {
                socket.send_to(b"x", "10.9.0.255:9").unwrap();
            }
            let after = ["b", "d"].map(|end| came(netlink, end));
            [0, 1].map(|end| after[end] - before[end] >= MANY)
        };
        assert_eq!(through(&mut netlink), [true, false]);
        let first = netlink.redirect(a, c, Redirection::Leaving);
        if let Err(error) = first {
            // A kernel without the modules.
            assert!(!lab::require_that(false, &error.to_string()));
            return;
        }
        assert_eq!(through(&mut netlink), [false, true]);
        // A second one is the first one.
        netlink.redirect(a, c, Redirection::Leaving).unwrap();
        netlink.redirect(a, c, Redirection::Entering).unwrap();
        for _ in 0..3 {
            netlink.end_redirection(a, Redirection::Leaving).unwrap();
            assert_eq!(through(&mut netlink), [true, false]);
            let error = netlink
                .end_redirection(a, Redirection::Leaving)
                .unwrap_err();
            assert!(error.is_not_found(), "{error}");
            netlink.redirect(a, c, Redirection::Leaving).unwrap();
            assert_eq!(through(&mut netlink), [false, true]);
        }
        netlink.end_redirection(a, Redirection::Entering).unwrap();
    });
}
