//! Steps that several tunnels share, and steps that dead tunnels left.

use super::*;

/// Ends a tunnel as a killed process does: the kernel closes its files.
fn kill(mut applied: Applied) {
    applied.journal = None;
}

fn to_endpoint(netlink: &mut Netlink) -> Vec<Option<u32>> {
    let routes = netlink.routes(Some(MAIN)).unwrap();
    let found = routes.iter().filter(|r| r.dst == ip("192.0.2.1"));
    found.map(|route| route.metric).collect()
}

fn host_route(netlink: &mut Netlink) -> Step {
    let dst = ip("192.0.2.1");
    Step::OuterRoute {
        dst,
        prefix: 32,
        via: Some(ip("198.51.100.1")),
        dev: netlink.index_of("wan").unwrap(),
        metric: FIRST_METRIC,
        towards: Some(dst),
    }
}

#[test]
fn a_route_to_the_endpoint_of_two_tunnels_goes_with_the_last_of_them() {
    in_host("shared", |netlink, directory| {
        let before = state(netlink);
        let plan = steps([host_route(netlink)]);
        let apply = |ifname: &str, netlink: &mut Netlink| {
            Applied::apply_in(directory, OPEN, &plan, ifname, netlink).unwrap()
        };
        for second_ends_first in [false, true] {
            let first = apply("wg0", netlink);
            let second = apply("wg0-far", netlink);
            let (one, other) = match second_ends_first {
                true => (second, first),
                false => (first, second),
            };
            one.undo().unwrap();
            assert_eq!(to_endpoint(netlink).len(), 1);
            other.undo().unwrap();
            assert_eq!(state(netlink), before);
        }
        // The first was killed: its route also belongs to the second and to the successor of the first.
        kill(apply("wg0", netlink));
        let second = apply("wg0-far", netlink);
        let successor = apply("wg0", netlink);
        second.undo().unwrap();
        assert_eq!(to_endpoint(netlink).len(), 1);
        successor.undo().unwrap();
        assert_eq!(state(netlink), before);
        // The host's own route must stay.
        let own = host_route(netlink).route(None).unwrap();
        netlink.add_route(&own).unwrap();
        let with_own = state(netlink);
        let (first, second) = (apply("wg0", netlink), apply("wg0-far", netlink));
        first.undo().unwrap();
        second.undo().unwrap();
        assert_eq!(state(netlink), with_own);
    });
}

#[test]
fn a_route_of_another_kind_of_tunnel_is_not_counted_on() {
    in_host("kinds", |netlink, directory| {
        let before = state(netlink);
        let outer = def1(netlink, "198.51.100.1");
        let first = Applied::apply_in(directory, OPEN, &outer, "wg0", netlink).unwrap();
        let plan = steps([host_route(netlink)]);
        let second = Applied::apply_in(directory, OPEN, &plan, "wg0-far", netlink).unwrap();
        first.undo().unwrap();
        assert_eq!(to_endpoint(netlink).len(), 1);
        second.undo().unwrap();
        assert_eq!(state(netlink), before);
    });
}

#[test]
fn a_setting_goes_back_with_the_last_tunnel_whether_or_not_the_first_was_killed() {
    in_host("setting", |netlink, directory| {
        let setting = |before: &str| Step::Sysctl {
            key: SRC_VALID_MARK.to_owned(),
            value: "1".to_owned(),
            before: before.to_owned(),
        };
        set_sysctl(netlink, SRC_VALID_MARK, "0").unwrap();
        let apply = |ifname: &str, before: &str, netlink: &mut Netlink| {
            let plan = steps([setting(before)]);
            Applied::apply_in(directory, OPEN, &plan, ifname, netlink).unwrap()
        };
        let now = || Netlink::open().unwrap().sysctl(SRC_VALID_MARK).unwrap();
        for killed in [false, true] {
            let first = apply("wg0", "0", netlink);
            let second = apply("wg0-far", "1", netlink);
            match killed {
                true => kill(first),
                false => first.undo().unwrap(),
            }
            assert_eq!(now(), "1");
            second.undo().unwrap();
            assert_eq!(now(), "0");
            let (journal, _) = recovered(&lock(directory), "wg0", netlink).unwrap();
            journal.remove().unwrap();
            assert_eq!(now(), "0");
        }
    });
}

#[test]
fn an_interface_that_now_is_anothers_keeps_its_addresses() {
    in_host("anothers", |netlink, directory| {
        let address = Step::Address {
            addr: ip("10.7.0.2"),
            prefix: 24,
            peer: None,
        };
        let mut applied =
            Applied::apply_in(directory, OPEN, &steps([address]), "wg0", netlink).unwrap();
        let journal = applied.journal.as_mut().unwrap();
        // The journal describes a former interface of this name.
        journal.clear().unwrap();
        journal.set_interface(4000);
        for step in &applied.done {
            applied.journal.as_mut().unwrap().record(step).unwrap();
        }
        kill(applied);
        let (journal, any) = recovered(&lock(directory), "wg0", netlink).unwrap();
        assert!(!any);
        let wg0 = netlink.index_of("wg0").unwrap();
        let addresses = netlink.addresses(Some(wg0)).unwrap();
        assert!(addresses.iter().any(|it| it.ip == ip("10.7.0.2")));
        journal.remove().unwrap();
    });
}
