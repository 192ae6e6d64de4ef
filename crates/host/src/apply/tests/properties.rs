//! Checks that a plan that is applied and undone leaves no difference, for all wishes, refusals and interruptions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use netio::netlink::NetlinkError;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::dns::{NameServers, Resolver};
use crate::system::memory::{Fault, Memory, default_by};
use crate::want::{EndpointRoutes, Forwarding};

/// Fails: a host in memory cannot be opened again, so dropping a plan does not undo it.
fn never() -> Result<Box<dyn System>, NetlinkError> {
    Err(NetlinkError::Name("memory".to_owned()))
}

fn apply(
    directory: &Path,
    plan: &Plan,
    ifname: &str,
    host: &mut Memory,
) -> Result<Applied, ApplyError> {
    Applied::apply_in(directory, never, plan, ifname, host)
}

/// Makes one plan for these wishes, and applies it.
fn bring_up(directory: &Path, want: &Want, ifname: &str, host: &mut Memory) -> Option<Applied> {
    let facts = Facts::gather(want, ifname, host).unwrap();
    let plan = Plan::new(want, &facts).ok()?;
    apply(directory, &plan, ifname, host).ok()
}

fn files(directory: &Path) -> usize {
    crate::journal::journals(Some(directory)).len()
}

fn addresses() -> impl Strategy<Value = Vec<WantedAddress>> {
    let address = |addr: &str, prefix, peer: Option<&str>| WantedAddress {
        addr: ip(addr),
        prefix,
        peer: peer.map(ip),
    };
    let all = vec![
        address("10.8.0.2", 24, None),
        address("10.7.0.6", 32, Some("10.7.0.5")),
        address("10.9.0.1", 32, None),
        address("fd00::2", 64, None),
    ];
    subsequence(all, 0..=4)
}

fn route() -> impl Strategy<Value = WantedRoute> {
    let networks = [
        "10.8.0.0",
        "10.20.0.0",
        "192.0.2.0",
        "198.51.100.0",
        "203.0.113.0",
        "fd00::",
        "2001:db8::",
    ];
    let to = prop_oneof![
        8 => select(networks.to_vec()).prop_map(|network| Destination::Network(ip(network))),
        1 => any::<bool>().prop_map(|v6| Destination::DefaultGateway { v6 }),
    ];
    let gateway = prop_oneof![
        4 => Just(Gateway::Tunnel(None)),
        2 => Just(Gateway::Tunnel(Some(ip("10.8.0.1")))),
        1 => Just(Gateway::Default),
        1 => Just(Gateway::Router(ip("198.51.100.9"))),
        1 => Just(Gateway::Router(ip("192.0.2.77"))),
    ];
    let metric = proptest::option::of(0_u32..4);
    let rest = (
        select(vec![16_u8, 24, 32, 64]),
        metric,
        any::<bool>(),
        any::<bool>(),
    );
    (to, gateway, rest).prop_map(|(to, gateway, rest)| {
        let (prefix, metric, optional, own_table) = rest;
        WantedRoute {
            name: "route".to_owned(),
            to,
            prefix: if to.is_v6() { prefix } else { prefix.min(32) },
            gateway,
            metric,
            table: if own_table { 7 } else { MAIN },
            optional,
            pushed: optional,
        }
    })
}

fn endpoint_routes() -> impl Strategy<Value = EndpointRoutes> {
    let follow = |(always_v4, not_on_link)| EndpointRoutes::Follow {
        always_v4,
        not_on_link,
    };
    prop_oneof![
        Just(EndpointRoutes::ForDefault),
        any::<(bool, bool)>().prop_map(follow),
        Just(EndpointRoutes::Off),
    ]
}

prop_compose! {
    fn wants()(
        addresses in addresses(),
        mtu in prop_oneof![Just(Mtu::Path { overhead: 80 }), (1200_u32..1500).prop_map(Mtu::Exact)],
        routes in proptest::collection::vec(route(), 0..6),
        (default_v4, default_v6) in (
            proptest::option::of(select(vec![DefaultV4::Rules, DefaultV4::Halves, DefaultV4::Replace])),
            proptest::option::of(select(vec![DefaultV6::Rules, DefaultV6::Global])),
        ),
        endpoint_routes in endpoint_routes(),
        endpoints in subsequence(vec![ip("192.0.2.1"), ip("198.51.100.20"), ip("2001:db8::1")], 0..=3),
        flags in any::<[bool; 5]>(),
        fwmark in select(vec![0_u32, 42]),
        forwarding in proptest::option::of(any::<bool>()),
    ) -> Want {
        let [leaves_interface, has_dns, block_ipv6, block_local, bypass_name_servers] = flags;
        let servers = NameServers {
            servers: vec![ip("10.8.0.1")],
            search: Vec::new(),
            only: vec!["corp.example".to_owned()],
        };
        Want {
            addresses,
            pushed_addresses: false,
            mtu,
            // The kernel accepts routes only for an interface that is up.
            probed: None,
            leaves_interface: leaves_interface && routes.is_empty(),
            name_servers: has_dns.then_some(servers),
            gateway: Some(ip("10.8.0.1")),
            routes,
            default_v4,
            default_v6,
            block_ipv6,
            no_ipv6: false,
            block_local,
            bypass_name_servers,
            endpoints,
            endpoint_routes,
            fwmark,
            forwarding: forwarding.map(|masquerade| Forwarding { masquerade, except: Vec::new() }),
            warnings: Vec::new(),
        }
    }
}

prop_compose! {
    fn hosts()(
        suppresses in any::<bool>(),
        strict in any::<bool>(),
        marked in any::<bool>(),
        split in any::<bool>(),
        defaults in 0_usize..3,
    ) -> Memory {
        let value = |on: bool| if on { "1" } else { "0" };
        let host = Memory::new().with_sysctl("net/ipv4/conf/wan/rp_filter", value(strict));
        let mut host = host.with_sysctl(SRC_VALID_MARK, value(marked));
        host.suppresses = suppresses;
        if !split {
            host.resolver = Some(Resolver::Resolvconf { prefix: String::new() });
        }
        if defaults == 0 {
            host.delete_route(&default_by(ip("198.51.100.1"))).unwrap();
        }
        if defaults == 2 {
            let second = Route { metric: Some(100), ..default_by(ip("198.51.100.3")) };
            host.add_route(&second).unwrap();
        }
        host.changes = 0;
        host
    }
}

#[test]
fn a_table_stays_known_where_the_kernel_refuses_the_next() {
    let table = |source: &str| {
        steps([Step::Masquerade {
            interface: "tun0".to_owned(),
            sources: vec![(ip(source), 24)],
            except: Vec::new(),
        }])
    };
    let (first, second, none) = (table("10.8.0.0"), table("10.9.0.0"), steps([]));
    for exchange in [true, false] {
        let mut host = Memory::new();
        let empty = host.state();
        let scratch = tempfile::tempdir().unwrap();
        let mut applied = apply(scratch.path(), &first, "tun0", &mut host).unwrap();
        let go = |applied: &mut Applied, host: &mut Memory, old: &Plan, new: &Plan| {
            if exchange {
                applied.exchange(old, new, host).unwrap();
            } else {
                assert!(applied.change(old, new, host).is_empty());
            }
        };
        host.fault = Some((host.changes, Fault::Refused));
        go(&mut applied, &mut host, &first, &second);
        assert_eq!(applied.refused().count(), 1);
        assert_eq!(applied.done, first.steps);
        // A plan without a table, and another one.
        go(&mut applied, &mut host, &second, &none);
        assert_eq!(host.state(), empty);
        go(&mut applied, &mut host, &none, &first);
        host.fault = Some((host.changes, Fault::Refused));
        go(&mut applied, &mut host, &first, &second);
        go(&mut applied, &mut host, &second, &table("10.7.0.0"));
        assert_eq!(applied.done, table("10.7.0.0").steps);
        host.fault = Some((host.changes, Fault::Refused));
        go(&mut applied, &mut host, &table("10.7.0.0"), &second);
        assert!(applied.take_back(&mut host).is_empty());
        assert_eq!(host.state(), empty);
    }
}

/// Another uplink replaces the default route while a tunnel follows a change before that, or makes other routes.
#[test]
fn a_gateway_that_changes_between_two_looks_is_followed() {
    let step = |last: u8, via: &str| Step::OuterRoute {
        dst: ip(&format!("192.0.2.{last}")),
        prefix: 32,
        via: Some(ip(via)),
        dev: 2,
        metric: 1,
        towards: Some(ip(&format!("192.0.2.{last}"))),
    };
    let halves = [into_tunnel("0.0.0.0", 1), into_tunnel("128.0.0.0", 1)];
    let first = [&[Step::Up, step(1, "198.51.100.1")][..], &halves].concat();
    let both = [&first[..], &[step(2, "198.51.100.1")]].concat();
    let (first, both) = (steps(first), steps(both));
    let renews = |host: &mut Memory| {
        host.delete_route(&default_by(ip("198.51.100.1"))).unwrap();
        host.add_route(&default_by(ip("198.51.100.5"))).unwrap();
    };
    type Act = fn(&mut Applied, &mut Memory, &Plan, &Plan);
    let acts: [(&str, Act); 4] = [
        ("follow", |it, host, _, _| {
            it.follow(host).unwrap();
        }),
        ("keep outside", |it, host, _, _| {
            assert!(it.keep_outside(ip("192.0.2.2"), host).unwrap());
        }),
        ("change", |it, host, before, after| {
            assert!(it.change(before, after, host).is_empty());
        }),
        ("add", |it, host, before, after| {
            let more = &after.steps[before.steps.len()..];
            it.add(&steps(more), host).unwrap();
        }),
    ];
    for (name, act) in acts {
        for moment in 0.. {
            let scratch = tempfile::tempdir().unwrap();
            let mut host = Memory::new();
            let mut applied = apply(scratch.path(), &first, "tun0", &mut host).unwrap();
            host.meanwhile = Some((moment, renews));
            act(&mut applied, &mut host, &first, &both);
            let changed = host.meanwhile.take().is_none();
            applied.follow(&mut host).unwrap();
            let way = host.route_get(ip("192.0.2.1"), 0).unwrap();
            let gateway = if changed {
                "198.51.100.5"
            } else {
                "198.51.100.1"
            };
            assert_eq!(way.via, Some(ip(gateway)), "{name}, listing {moment}");
            assert!(applied.take_back(&mut host).is_empty());
            if !changed {
                assert!(moment > 0, "{name} lists routes");
                break;
            }
        }
    }
}

proptest! {
    #[test]
    fn what_is_applied_and_undone_leaves_no_difference(want in wants(), host in hosts()) {
        let scratch = tempfile::tempdir().unwrap();
        let mut host = host;
        let before = host.state();
        if let Some(mut applied) = bring_up(scratch.path(), &want, "tun0", &mut host) {
            let errors = applied.take_back(&mut host);
            prop_assert!(errors.is_empty(), "{errors:?}");
        }
        prop_assert_eq!(host.state(), before);
        prop_assert_eq!(files(scratch.path()), 0);
    }

    #[test]
    fn what_is_refused_on_the_way_leaves_no_difference(
        want in wants(), host in hosts(), at in 0_usize..24,
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let mut host = host;
        let before = host.state();
        let facts = Facts::gather(&want, "tun0", &mut host).unwrap();
        let Ok(plan) = Plan::new(&want, &facts) else { return Ok(()) };
        // Steps undone because of another refusal are not checked here.
        let mut other = host.clone();
        match apply(scratch.path(), &plan, "tun0", &mut other) {
            Ok(mut applied) => prop_assert!(applied.take_back(&mut other).is_empty()),
            Err(_) => return Ok(()),
        }
        host.changes = 0;
        host.fault = Some((at, Fault::Refused));
        let applied = apply(scratch.path(), &plan, "tun0", &mut host);
        host.fault = None;
        if let Ok(mut applied) = applied {
            prop_assert!(applied.take_back(&mut host).is_empty());
        }
        prop_assert_eq!(host.state(), before);
        prop_assert_eq!(files(scratch.path()), 0);
    }

    #[test]
    fn what_a_killed_process_left_is_undone_by_the_next(
        want in wants(), host in hosts(), at in 0_usize..24, persistent in any::<bool>(),
        fault in select(vec![Fault::KilledBefore, Fault::KilledAfter]),
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let mut host = host;
        host.persistent = persistent;
        let before = host.state();
        let facts = Facts::gather(&want, "tun0", &mut host).unwrap();
        let Ok(plan) = Plan::new(&want, &facts) else { return Ok(()) };
        host.changes = 0;
        host.fault = Some((at, fault));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            apply(scratch.path(), &plan, "tun0", &mut host).map(drop)
        }));
        host.fault = None;
        if !persistent {
            host.remove_link("tun0");
        }
        if let Ok(Err(_)) = outcome {
            // The host refused the plan, and its steps are undone already.
        } else {
            let directory = lock(scratch.path());
            prop_assert!(directory.abandoned(None).len() <= 1);
            let (journal, _) = recovered(&directory, "tun0", &mut host).unwrap();
            journal.remove().unwrap();
        }
        prop_assert_eq!(host.state(), before);
        prop_assert_eq!(files(scratch.path()), 0);
    }

    #[test]
    fn a_change_of_plans_is_undone_with_the_rest(
        wants in [wants(), wants(), wants()], host in hosts(), exchange in any::<bool>(),
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let mut host = host;
        let before = host.state();
        let plans = wants.map(|want| {
            let facts = Facts::gather(&want, "tun0", &mut host).unwrap();
            Plan::new(&want, &facts)
        });
        let [Ok(first), Ok(second), Ok(third)] = plans else { return Ok(()) };
        let Ok(mut applied) = apply(scratch.path(), &first, "tun0", &mut host) else {
            return Ok(());
        };
        for (old, new) in [(&first, &second), (&second, &third)] {
            if exchange {
                let _ = applied.exchange(old, new, &mut host);
            } else {
                let _ = applied.change(old, new, &mut host);
            }
        }
        prop_assert!(applied.take_back(&mut host).is_empty());
        prop_assert_eq!(host.state(), before);
    }

    #[test]
    fn two_tunnels_end_in_any_order(
        wants in [wants(), wants()], host in hosts(), first_ends_first in any::<bool>(),
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let mut host = host;
        // The second tunnel would replace the first one's route, which disappears with the first.
        let wants = wants.map(|want| Want {
            default_v4: want.default_v4.filter(|it| *it != DefaultV4::Replace),
            ..want
        });
        let before = host.state();
        let first = bring_up(scratch.path(), &wants[0], "tun0", &mut host);
        let second = bring_up(scratch.path(), &wants[1], "tun1", &mut host);
        let mut applied = [first, second];
        if !first_ends_first {
            applied.reverse();
        }
        for mut applied in applied.into_iter().flatten() {
            prop_assert!(applied.take_back(&mut host).is_empty());
        }
        prop_assert_eq!(host.state(), before);
        prop_assert_eq!(files(scratch.path()), 0);
    }

    #[test]
    fn what_follows_a_gateway_is_undone_too(want in wants(), host in hosts(), kept in any::<bool>()) {
        let scratch = tempfile::tempdir().unwrap();
        let mut host = host;
        let mut want = want;
        want.default_v4 = want.default_v4.filter(|it| *it != DefaultV4::Replace);
        // The new gateway is not inside the tunnel.
        let gateways = [
            Destination::Network(ip("198.51.100.0")),
            Destination::DefaultGateway { v6: false },
        ];
        want.routes.retain(|route| !gateways.contains(&route.to));
        want.block_local = false;
        let (old, new) = (default_by(ip("198.51.100.1")), default_by(ip("198.51.100.5")));
        let mut after = host.clone();
        let Some(mut applied) = bring_up(scratch.path(), &want, "tun0", &mut host) else {
            return Ok(());
        };
        for host in [&mut host, &mut after] {
            if host.delete_route(&old).is_ok() {
                host.add_route(&new).unwrap();
            }
        }
        let _ = applied.follow(&mut host).unwrap();
        prop_assert!(!applied.follow(&mut host).unwrap());
        if kept {
            let _ = applied.keep_outside(ip("192.0.2.99"), &mut host);
        }
        prop_assert!(applied.take_back(&mut host).is_empty());
        prop_assert_eq!(host.state(), after.state());
    }

    #[test]
    fn endpoints_stay_outside_where_a_tunnel_leads_everything(
        want in wants(), host in hosts(),
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let mut host = host;
        let follow = EndpointRoutes::Follow { always_v4: true, not_on_link: false };
        let rules = want.default_v4 == Some(DefaultV4::Rules);
        let want = Want {
            default_v4: want.default_v4.or(Some(DefaultV4::Halves)),
            endpoint_routes: if rules { EndpointRoutes::ForDefault } else { follow },
            routes: Vec::new(),
            ..want
        };
        let facts = Facts::gather(&want, "tun0", &mut host).unwrap();
        let Ok(plan) = Plan::new(&want, &facts) else { return Ok(()) };
        let Ok(mut applied) = apply(scratch.path(), &plan, "tun0", &mut host) else {
            return Ok(());
        };
        for way in facts.endpoints.iter().filter(|way| way.addr.is_ipv4() && way.dev.is_some()) {
            let now = host.route_get(way.addr, plan.fwmark).unwrap();
            prop_assert_eq!((now.dev, now.via), (2, way.via));
        }
        prop_assert!(applied.take_back(&mut host).is_empty());
    }
}
