use super::*;
use crate::system::memory::Memory;
use crate::want::DefaultV4;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn full() -> Want {
    Want {
        default_v4: Some(DefaultV4::Rules),
        endpoints: vec![ip("192.0.2.1"), ip("198.51.100.2")],
        ..Want::default()
    }
}

#[test]
fn name_servers_are_other_machines() {
    let text = "# x\nnameserver 192.0.2.53\nsearch a\nnameserver 127.0.0.53\nnameserver ::1\n\
        nameserver 2001:db8::53 # y\nnameserver x\nnameserver\n";
    assert_eq!(name_servers(text), [ip("192.0.2.53"), ip("2001:db8::53")]);
}

#[test]
fn ways_lead_by_the_gateway_and_to_the_host_itself() {
    let mut host = Memory::new();
    let facts = Facts::gather(&full(), "tun0", &mut host).unwrap();
    let [far, own] = &facts.endpoints[..] else {
        panic!("{facts:?}")
    };
    assert_eq!((far.via, far.dev), (Some(ip("198.51.100.1")), Some(2)));
    let wan = Some(LineMtu::of("wan", 1500));
    assert_eq!((&far.mtu, &facts.default_line), (&wan, &wan));
    assert!(own.local && own.outer_route().is_none());
    assert_eq!(facts.first_rule, MAIN_RULE);
}

#[test]
fn networks_are_looked_at_where_the_other_end_chose_the_addresses() {
    let mut host = Memory::new();
    host.set_up(2).unwrap();
    host.add_address(2, ip("192.168.1.1"), 24, None).unwrap();
    for pushed_addresses in [false, true] {
        let want = Want {
            pushed_addresses,
            ..full()
        };
        let facts = Facts::gather(&want, "tun0", &mut host).unwrap();
        let found = facts
            .connected
            .iter()
            .any(|it| it.network == ip("192.168.1.0"));
        assert_eq!(found, pushed_addresses, "{:?}", facts.connected);
    }
}

#[test]
fn the_manager_of_name_servers_is_looked_for_once_some_are_wanted() {
    let mut host = Memory::new();
    let mut want = full();
    let mut facts = Facts::gather(&want, "tun0", &mut host).unwrap();
    assert_eq!(facts.resolver, None);
    host.set_up(3).unwrap();
    want.name_servers = Some(crate::dns::NameServers::default());
    facts.look_again(&want, "tun0", &mut host).unwrap();
    assert_eq!(facts.resolver, host.resolver);
    let gathered = Facts::gather(&want, "tun0", &mut host).unwrap();
    assert_eq!(gathered.resolver, facts.resolver);
}

#[test]
fn a_tunnel_that_leads_everything_later_takes_no_table_of_another() {
    let mut host = Memory::new();
    let mut want = Want {
        default_v4: None,
        ..full()
    };
    let mut facts = Facts::gather(&want, "tun0", &mut host).unwrap();
    host.set_up(2).unwrap();
    let other = Route::default_of(Family::V4).dev(2).table(51820);
    host.add_route(&other).unwrap();
    want.default_v4 = Some(DefaultV4::Rules);
    host.set_up(3).unwrap();
    facts.look_again(&want, "tun0", &mut host).unwrap();
    let plan = crate::plan::Plan::new(&want, &facts).unwrap();
    assert_eq!(plan.fwmark, 51821);
}

#[test]
fn the_probe_of_a_rule_leaves_nothing_and_knows_old_kernels() {
    for suppresses in [true, false] {
        let mut host = Memory::new();
        host.suppresses = suppresses;
        let before = host.state();
        let facts = Facts::gather(&full(), "tun0", &mut host).unwrap();
        assert_eq!(facts.suppress_prefixlength, suppresses);
        assert_eq!(host.state(), before);
    }
}

#[test]
fn a_tunnels_rules_are_behind_those_that_lead_devices() {
    let mut host = Memory::new();
    let rule = |priority, table| Rule {
        priority: Some(priority),
        ..Rule::new(Family::V4, table)
    };
    for priority in [900, 901, 999] {
        host.add_rule(&rule(priority, 77)).unwrap();
    }
    // The policy's rules, beside a `wg-quick` that came later.
    for priority in [830, 892, 893] {
        let marked = Rule {
            fwmark: Some(0x100_0000),
            mask: Some(0xff00_0000),
            ..rule(priority, 7701)
        };
        host.add_rule(&marked).unwrap();
    }
    assert_eq!(first_rule(&mut host), MAIN_RULE);
    host.add_rule(&rule(1001, 78)).unwrap();
    assert_eq!(first_rule(&mut host), 1001);
    host.add_rule(&rule(899, 79)).unwrap();
    assert_eq!(first_rule(&mut host), 899);
}

#[test]
fn the_filter_is_strict_where_any_interface_is_and_not_all_are_loose() {
    let strict = |all: &str, wan: &str| {
        let host = Memory::new().with_sysctl("net/ipv4/conf/all/rp_filter", all);
        let mut host = host.with_sysctl("net/ipv4/conf/wan/rp_filter", wan);
        is_rp_filter_strict(&mut host)
    };
    assert!(strict("0", "1") && strict("1", "0"));
    assert!(!strict("2", "1") && !strict("0", "0") && !strict("0", "2"));
}

#[test]
fn a_known_way_stays_and_a_new_one_is_not_through_the_tunnel() {
    let mut host = Memory::new();
    let mut want = full();
    let mut facts = Facts::gather(&want, "tun0", &mut host).unwrap();
    let known = facts.endpoints.clone();
    host.set_up(3).unwrap();
    for half in ["0.0.0.0", "128.0.0.0"] {
        host.add_route(&Route::new(ip(half), 1).dev(3)).unwrap();
    }
    want.endpoints.push(ip("203.0.113.9"));
    facts.look_again(&want, "tun0", &mut host).unwrap();
    assert_eq!(facts.endpoints[..2], known);
    let new = &facts.endpoints[2];
    assert_eq!((new.via, new.dev), (Some(ip("198.51.100.1")), Some(2)));
    let gathered = Facts::gather(&want, "tun0", &mut host).unwrap();
    assert_eq!(gathered.endpoints, facts.endpoints);
}
