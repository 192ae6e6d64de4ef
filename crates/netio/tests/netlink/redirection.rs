//! Redirections of one interface's packets to another.

use super::{in_namespace, ip};
use netio::netlink::{Netlink, Redirection, VethEnd};
use std::net::UdpSocket;
use std::process::Command;

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
        let first = netlink
            .add_clsact(a)
            .and_then(|made| netlink.redirect(a, c, Redirection::Leaving).map(|()| made));
        if let Ok(made) = first {
            assert!(made && !netlink.add_clsact(a).unwrap());
        } else if let Err(error) = first {
            // A kernel without the modules.
            assert!(!lab::require_that(false, &error.to_string()));
            return;
        }
        assert_eq!(through(&mut netlink), [false, true]);
        // A second one is the first one.
        netlink.redirect(a, c, Redirection::Leaving).unwrap();
        netlink.redirect(a, c, Redirection::Entering).unwrap();
        assert_eq!(["Egress", "Ingress"].map(filters), [1, 1]);
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
        assert_eq!(["Egress", "Ingress"].map(filters), [1, 0]);
        netlink.remove_clsact(a).unwrap();
        assert_eq!(through(&mut netlink), [true, false]);
        assert!(netlink.remove_clsact(a).is_err());
    });
}

/// Counts the filters of the interface `a` that redirect in this direction: `Egress` or `Ingress`. At one place, u32
/// shows those of both.
fn filters(direction: &str) -> usize {
    let shown = tc(&["filter", "show", "dev", "a", "egress"]);
    shown.matches(&format!("{direction} Redirect")).count()
}

fn tc(words: &[&str]) -> String {
    let output = Command::new("tc").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn filters_of_other_programs_stay() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        netlink
            .create_veth(VethEnd::new("a"), VethEnd::new("b"))
            .unwrap();
        let [a, b] = ["a", "b"].map(|end| netlink.index_of(end).unwrap());
        if let Err(error) = netlink.add_clsact(a) {
            assert!(!lab::require_that(false, &error.to_string()));
            return;
        }
        let theirs = "filter add dev a egress protocol all prio 7 u32 match u32 0 0 flowid 1:77";
        tc(&theirs.split(' ').collect::<Vec<_>>());
        let count = || {
            tc(&["filter", "show", "dev", "a", "egress"])
                .matches("flowid 1:77")
                .count()
        };
        assert_eq!((count(), filters("Egress")), (1, 0));
        for _ in 0..2 {
            netlink.redirect(a, b, Redirection::Leaving).unwrap();
            netlink.redirect(a, b, Redirection::Leaving).unwrap();
            assert_eq!((count(), filters("Egress")), (1, 1));
            netlink.end_redirection(a, Redirection::Leaving).unwrap();
            assert_eq!((count(), filters("Egress")), (1, 0));
        }
        // SQM's queueing discipline has no place for filters of packets that leave.
        tc(&["qdisc", "add", "dev", "b", "ingress"]);
        assert!(netlink.add_clsact(b).is_err());
    });
}
