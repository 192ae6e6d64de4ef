//! Plans of typical files on typical hosts, without a kernel.

use config::permissions::Permissions;
use config::wgquick;
use host::{EndpointWay, Facts, LineMtu, Plan, PlanError, Resolver, Step};

use super::*;

fn tunnel(lines: &str) -> Tunnel {
    let text =
        format!("[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n{lines}");
    let import = wgquick::parse(&text, "wg0.conf", Permissions::NONE);
    import.into_tunnel().unwrap().0
}

const PEER: &str = "\n[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n";

fn facts() -> Facts {
    Facts {
        endpoints: vec![EndpointWay {
            addr: "192.0.2.1".parse().unwrap(),
            via: Some("198.51.100.1".parse().unwrap()),
            dev: Some(2),
            local: false,
            mtu: Some(LineMtu::of("eth0", 1500)),
        }],
        default_line: Some(LineMtu::of("ppp0", 1492)),
        ipv6: true,
        suppress_prefixlength: true,
        strict_rp_filter: false,
        src_valid_mark: Some("0".to_owned()),
        used_tables: [51820].into(),
        first_rule: 32766,
        resolver: Some(Resolver::Resolvectl),
        ..Facts::default()
    }
}

fn try_plan(lines: &str, facts: &Facts, no_dns: bool) -> Result<Plan, PlanError> {
    Plan::new(&want(&tunnel(lines), &[], no_dns), facts)
}

fn plan(lines: &str, facts: &Facts) -> Plan {
    try_plan(lines, facts, false).unwrap()
}

fn route(network: &str, table: u32) -> Step {
    let range: AllowedIp = network.parse().unwrap();
    Step::Route {
        dst: range.addr(),
        prefix: range.prefix(),
        via: None,
        metric: None,
        table,
        optional: false,
        first: false,
    }
}

fn address(text: &str) -> Step {
    let InterfaceAddr { addr, prefix } = text.parse().unwrap();
    Step::Address {
        addr,
        prefix,
        peer: None,
    }
}

fn host_route() -> Step {
    let dst = "192.0.2.1".parse().unwrap();
    Step::OuterRoute {
        dst,
        prefix: 32,
        via: Some("198.51.100.1".parse().unwrap()),
        dev: 2,
        metric: 1,
        towards: Some(dst),
    }
}

#[test]
fn a_split_tunnel_gets_plain_routes_the_most_specific_first() {
    let lines = format!(
        "Address = 10.0.0.2/24, fd00::2/128{PEER}AllowedIPs = 10.0.0.0/24, 10.0.0.7/32, \
         192.168.0.0/16, 10.9.8.7/32, fd00::/64"
    );
    let expected = [
        Step::Mtu { mtu: 1420 },
        address("10.0.0.2/24"),
        address("fd00::2/128"),
        Step::Up,
        route("fd00::/64", MAIN),
        route("10.9.8.7/32", MAIN),
        route("192.168.0.0/16", MAIN),
    ];
    let plan = plan(&lines, &facts());
    assert_eq!(plan.steps, expected);
    assert_eq!((plan.fwmark, plan.mtu), (0, 1420));
    assert!(plan.warnings.is_empty());
}

#[test]
fn a_host_address_brings_no_route_of_its_own_in_ipv4() {
    let lines = format!("Address = 10.0.0.2/32{PEER}AllowedIPs = 10.0.0.2/32");
    assert!(
        plan(&lines, &facts())
            .steps
            .contains(&route("10.0.0.2/32", MAIN))
    );
}

#[test]
fn a_full_tunnel_gets_a_table_with_rules_of_both_families() {
    let lines = format!("{PEER}AllowedIPs = 0.0.0.0/0, ::/0");
    let plan = plan(&lines, &facts());
    // `facts` says that table 51820 is in use.
    let table = 51821;
    let rules = |v6| {
        let unmarked = Step::UnmarkedRule {
            v6,
            mark: table,
            table,
            priority: 32765,
            passes: None,
        };
        let priority = 32764;
        let main = Step::MainRule {
            v6,
            priority,
            passes: 0,
        };
        [unmarked, main]
    };
    let [v4_unmarked, v4_main] = rules(false);
    let [v6_unmarked, v6_main] = rules(true);
    let sysctl = Step::Sysctl {
        key: "net/ipv4/conf/all/src_valid_mark".to_owned(),
        value: "1".to_owned(),
        before: "0".to_owned(),
    };
    let expected = [
        route("0.0.0.0/0", table),
        v4_unmarked,
        v4_main,
        sysctl,
        route("::/0", table),
        v6_unmarked,
        v6_main,
    ];
    assert_eq!(plan.steps[2..], expected);
    assert_eq!(plan.fwmark, table);
}

#[test]
fn the_files_mark_names_the_table() {
    let lines = format!("FwMark = 0x42{PEER}AllowedIPs = 0.0.0.0/0");
    let plan = plan(&lines, &facts());
    assert_eq!(plan.fwmark, 0x42);
    assert!(plan.steps.contains(&route("0.0.0.0/0", 0x42)));
}

#[test]
fn a_strict_reverse_path_filter_needs_host_routes() {
    let lines = format!("{PEER}AllowedIPs = 0.0.0.0/0");
    let strict = Facts {
        strict_rp_filter: true,
        ..facts()
    };
    assert!(plan(&lines, &strict).steps.contains(&host_route()));
    assert!(!plan(&lines, &facts()).steps.contains(&host_route()));
}

#[test]
fn an_old_kernel_gets_halves_and_a_route_to_the_endpoint_before_them() {
    let lines = format!("{PEER}AllowedIPs = 0.0.0.0/0, ::/0");
    let mut old = facts();
    old.suppress_prefixlength = false;
    let plan = plan(&lines, &old);
    // These routes are preferred to another tunnel's, like the default route that they replace.
    let half = |network| match route(network, MAIN) {
        Step::Route {
            dst, prefix, table, ..
        } => Step::Route {
            dst,
            prefix,
            via: None,
            metric: None,
            table,
            optional: false,
            first: true,
        },
        step => step,
    };
    let expected = [
        host_route(),
        half("0.0.0.0/1"),
        half("128.0.0.0/1"),
        half("::/1"),
        half("8000::/1"),
    ];
    assert_eq!(plan.steps[2..], expected);
    assert_eq!((plan.fwmark, plan.warnings.len()), (0, 1));
    old.endpoints[0].dev = None;
    let error = try_plan(&lines, &old, false).unwrap_err();
    assert_eq!(
        error,
        PlanError::NoWayToEndpoint("192.0.2.1".parse().unwrap())
    );
}

#[test]
fn the_table_of_the_file_gets_everything_or_nothing() {
    let lines = format!("Table = 7{PEER}AllowedIPs = 0.0.0.0/0, 10.0.0.0/8");
    let steps = plan(&lines, &facts()).steps;
    assert_eq!(steps[2..], [route("10.0.0.0/8", 7), route("0.0.0.0/0", 7)]);
    let lines = format!("Table = off{PEER}AllowedIPs = 0.0.0.0/0");
    assert_eq!(plan(&lines, &facts()).steps.len(), 2);
}

#[test]
fn the_mtu_follows_the_way_to_the_endpoints() {
    let lines = format!("{PEER}AllowedIPs = 10.0.0.0/8");
    let mut facts = facts();
    facts.endpoints[0].mtu = Some(LineMtu::of("eth0", 9000));
    assert_eq!(plan(&lines, &facts).mtu, 8920);
    facts.endpoints.clear();
    assert_eq!(plan(&lines, &facts).mtu, 1412);
    facts.default_line = None;
    assert_eq!(plan(&lines, &facts).mtu, 1420);
    facts.default_line = Some(LineMtu::of("lo", 65536));
    assert_eq!(plan(&lines, &facts).mtu, 65456);
    assert_eq!(plan(&format!("MTU = 1300\n{lines}"), &facts).mtu, 1300);
}

#[test]
fn without_ipv6_its_part_is_left_out_with_a_warning() {
    let lines = format!("Address = 10.0.0.1/24, fd00::1/64{PEER}AllowedIPs = ::/0");
    let off = Facts {
        ipv6: false,
        ..facts()
    };
    let plan_without = plan(&lines, &off);
    assert_eq!(plan_without.steps.len(), 3);
    assert_eq!(plan_without.warnings.len(), 1);
    // Packets intended for the tunnel do not leave through the uplink.
    let short = plan(&format!("MTU = 1200\n{lines}"), &facts());
    let blocks = |step: &&Step| matches!(step, Step::Unreachable { .. });
    assert_eq!(short.steps.iter().filter(blocks).count(), 5);
    assert_eq!((short.steps.len(), short.warnings.len()), (8, 1));
}

fn unreachable(network: &str) -> Step {
    let range: AllowedIp = network.parse().unwrap();
    Step::Unreachable {
        dst: range.addr(),
        prefix: range.prefix(),
        metric: 1,
    }
}

#[test]
fn ipv6_that_the_interface_cannot_have_is_blocked() {
    let off = Facts {
        ipv6_off: true,
        ..facts()
    };
    let none = Facts {
        ipv6: false,
        ..facts()
    };
    let all = ["::/3", "2000::/4", "3000::/4", "fc00::/7"];
    for (ranges, blocked) in [
        ("::/0", &all[..]),
        ("2000::/3", &["2000::/3"]),
        ("::/1", &["::/1"]),
        ("::/1, 8000::/1", &["::/1", "8000::/1"]),
        ("fd20::/64, 10.0.0.0/8", &["fd20::/64"]),
    ] {
        let lines = format!("{PEER}AllowedIPs = {ranges}");
        let short = format!("MTU = 1279\n{lines}");
        let expected: Vec<Step> = blocked.iter().copied().map(unreachable).collect();
        for (lines, facts) in [(&short, &facts()), (&lines, &off)] {
            let steps = plan(lines, facts).steps;
            let found = steps
                .iter()
                .filter(|it| matches!(it, Step::Unreachable { .. }));
            assert!(found.eq(&expected), "{ranges}: {steps:?}");
        }
        let blocks = |step: &Step| matches!(step, Step::Unreachable { .. });
        assert!(!plan(&lines, &none).steps.iter().any(blocks), "{ranges}");
    }
}

/// The tunnel's own packets must not be refused as unreachable.
#[test]
fn an_endpoint_of_ipv6_keeps_its_way_where_ipv6_is_blocked() {
    let lines = format!("MTU = 1200\n{PEER}AllowedIPs = 0.0.0.0/0, ::/0");
    let mut six = facts();
    six.endpoints[0].addr = "2001:db8::1".parse().unwrap();
    six.endpoints[0].via = Some("fe80::1".parse().unwrap());
    let dst = "2001:db8::1".parse().unwrap();
    let kept = Step::OuterRoute {
        dst,
        prefix: 128,
        via: Some("fe80::1".parse().unwrap()),
        dev: 2,
        metric: 1,
        towards: Some(dst),
    };
    assert!(plan(&lines, &six).steps.contains(&kept));
    six.endpoints[0].dev = None;
    assert!(plan(&lines, &six).fwmark != 0);
}

#[test]
fn ranges_in_one_table_have_a_rule_for_each_length() {
    let lines = format!("{PEER}AllowedIPs = 0.0.0.0/0, 192.0.2.0/24, 192.0.0.0/8");
    let rules = plan(&lines, &facts()).steps.into_iter();
    let rules = rules.filter_map(|step| match step {
        Step::UnmarkedRule {
            priority, passes, ..
        } => Some((priority, passes, false)),
        Step::MainRule {
            priority, passes, ..
        } => Some((priority, Some(passes), true)),
        _ => None,
    });
    let expected = [
        (32765, None, false),
        (32764, Some(0), true),
        (32763, Some(0), false),
        (32762, Some(8), true),
        (32761, Some(8), false),
        (32760, Some(24), true),
    ];
    assert!(rules.eq(expected));
}

#[test]
fn ranges_that_hold_the_endpoint_go_where_the_tunnels_own_packets_do_not_look() {
    let rules = |plan: &Plan| {
        let main = plan.steps.iter().find_map(|step| match step {
            Step::MainRule { passes, .. } => Some(*passes),
            _ => None,
        });
        (plan.fwmark, main)
    };
    let table = 51821;
    for (ranges, held, passes) in [
        ("0.0.0.0/1, 128.0.0.0/1", "128.0.0.0/1", 1),
        ("192.0.2.0/24, 10.0.0.0/8", "192.0.2.0/24", 24),
        ("192.0.2.1/32", "192.0.2.1/32", 32),
        ("192.0.0.0/8, 192.0.2.0/24", "192.0.0.0/8", 8),
    ] {
        let with = plan(&format!("{PEER}AllowedIPs = {ranges}"), &facts());
        assert_eq!(rules(&with), (table, Some(passes)), "{ranges}");
        assert!(with.steps.contains(&route(held, table)), "{ranges}");
        // A range that does not contain the endpoint stays in the main table.
        assert!(!with.steps.contains(&route(held, MAIN)), "{ranges}");
        let mut old = facts();
        old.suppress_prefixlength = false;
        let with = plan(&format!("{PEER}AllowedIPs = {ranges}"), &old);
        assert!(with.steps.contains(&host_route()), "{ranges}");
    }
    let apart = plan(&format!("{PEER}AllowedIPs = 10.0.0.0/8"), &facts());
    assert_eq!(rules(&apart), (0, None));
    let own = plan(
        &format!("Address = 192.0.2.9/24{PEER}AllowedIPs = 10.0.0.0/8"),
        &facts(),
    );
    assert!(own.steps.contains(&host_route()));
}

#[test]
fn name_servers_are_set_before_any_route_or_the_user_hears_why_not() {
    let lines = format!("DNS = 10.0.0.1, corp.example{PEER}AllowedIPs = 10.0.0.0/8");
    let dns = Step::Dns {
        resolver: Resolver::Resolvectl,
        wanted: NameServers {
            servers: vec!["10.0.0.1".parse().unwrap()],
            search: vec!["corp.example".to_owned()],
            only: Vec::new(),
        },
    };
    assert_eq!(plan(&lines, &facts()).steps[2], dns);
    let none = Facts {
        resolver: None,
        ..facts()
    };
    let plan = plan(&lines, &none);
    assert!(!plan.steps.contains(&dns) && plan.warnings[0].starts_with("DNS cannot"));
    for (ranges, effect) in [
        ("10.0.0.0/8", "still looked up outside the tunnel"),
        ("0.0.0.0/0", "still asked: through the tunnel"),
    ] {
        let plan = self::plan(&lines.replace("10.0.0.0/8", ranges), &none);
        assert!(plan.warnings[0].contains(effect), "{:?}", plan.warnings);
    }
    let plan = try_plan(&lines, &facts(), true).unwrap();
    assert!(!plan.steps.contains(&dns) && plan.warnings.len() == 1);
}
