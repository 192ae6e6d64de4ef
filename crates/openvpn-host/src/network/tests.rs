//! Plans for typical pushes on typical hosts, without a kernel.

use std::net::IpAddr;

use config::openvpn::{Ifconfig, Network, Place, Redirect, Route as ConfigRoute, Topology};
use netio::netlink::{Family, Route};
use openvpn::push::{PullFilter, PushReply};

use super::TunnelNetwork;
use super::merge::NetworkError;
use super::want::Outside;
use host::{
    Connected, EndpointWay, Facts, MAIN, NameServers, Plan, Resolver, SavedRoute, Step, Want,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pushed(options: &str) -> PushReply {
    let reply = PushReply::parse(options.split(','), &PullFilter::default()).unwrap();
    assert_eq!(reply.refused, []);
    reply
}

fn network(options: &str) -> TunnelNetwork {
    TunnelNetwork::merge(&Network::default(), 1500, Some(&pushed(options))).unwrap()
}

/// Push reply of a typical provider: the tunnel has 10.8.0.2/24.
const SUBNET: &str = "topology subnet,ifconfig 10.8.0.2 255.255.255.0,route-gateway 10.8.0.1";

fn way(addr: &str, via: Option<&str>) -> EndpointWay {
    EndpointWay {
        addr: ip(addr),
        via: via.map(ip),
        dev: Some(2),
        local: false,
        mtu: None,
    }
}

fn default_route(metric: Option<u32>) -> Route {
    Route {
        metric,
        protocol: Some(16),
        ..Route::default_of(Family::V4).via(ip("198.51.100.1")).dev(2)
    }
}

fn facts() -> Facts {
    Facts {
        endpoints: vec![way("192.0.2.1", Some("198.51.100.1"))],
        defaults: vec![default_route(None)],
        local_networks: vec![(ip("198.51.100.7"), 24)],
        ways: [(ip("198.51.100.9"), way("198.51.100.9", None))].into(),
        name_servers: vec![ip("203.0.113.53")],
        ipv6: true,
        resolver: Some(Resolver::Resolvectl),
        ..Facts::default()
    }
}

impl TunnelNetwork {
    /// Returns the settings that a host with these facts needs.
    fn want_on(&self, facts: &Facts) -> Want {
        let names = [(
            "intra.example".to_owned(),
            vec![ip("10.5.0.1"), ip("fd05::1")],
        )];
        self.want(Outside {
            remote: facts.endpoints.first().map(|way| way.addr),
            mark: 0,
            names: &names.into(),
        })
    }

    fn interface_plan(&self, facts: &Facts, no_dns: bool) -> Plan {
        let mut want = self.want_on(facts);
        if no_dns {
            want.name_servers = None;
        }
        Plan::of_interface(&want, facts)
    }

    fn route_plan(&self, facts: &Facts) -> Plan {
        Plan::of_routes(&self.want_on(facts), facts).unwrap()
    }
}

fn inside(text: &str, via: Option<&str>) -> Step {
    let (dst, prefix) = text.split_once('/').unwrap();
    let everything = ["::/3", "2000::/4", "3000::/4", "fc00::/7"];
    Step::Route {
        dst: ip(dst),
        prefix: prefix.parse().unwrap(),
        via: via.map(ip),
        metric: None,
        table: MAIN,
        // Without these routes the tunnel does not carry all traffic.
        optional: !(dst == "0.0.0.0" || dst == "128.0.0.0" || everything.contains(&text)),
        first: true,
    }
}

fn past(dst: &str, prefix: u8, via: Option<&str>, towards: Option<&str>) -> Step {
    Step::OuterRoute {
        dst: ip(dst),
        prefix,
        via: via.map(ip),
        dev: 2,
        metric: 1,
        towards: towards.map(ip),
    }
}

fn to_server() -> Step {
    past("192.0.2.1", 32, Some("198.51.100.1"), Some("192.0.2.1"))
}

fn routes(options: &str) -> Plan {
    network(&format!("{SUBNET},{options}")).route_plan(&facts())
}

const GATEWAY: Option<&str> = Some("10.8.0.1");

#[test]
fn a_subnet_client_has_an_address_in_a_network() {
    let network = network(&format!(
        "{SUBNET},ifconfig-ipv6 fd00::2/64 fd00::1,tun-mtu 1400"
    ));
    assert_eq!(network.gateway, Some(ip("10.8.0.1")));
    let plan = network.interface_plan(&facts(), false);
    let expected = [
        Step::Mtu { mtu: 1500 },
        Step::Address {
            addr: ip("10.8.0.2"),
            prefix: 24,
            peer: None,
        },
        Step::Address {
            addr: ip("fd00::2"),
            prefix: 64,
            peer: None,
        },
        Step::Up,
    ];
    assert_eq!((plan.steps, plan.mtu), (expected.to_vec(), 1500));
}

#[test]
fn a_net30_client_has_a_peer_that_is_its_gateway() {
    let network = network("ifconfig 10.8.0.6 10.8.0.5,route 10.8.0.1");
    let address = Step::Address {
        addr: ip("10.8.0.6"),
        prefix: 32,
        peer: Some(ip("10.8.0.5")),
    };
    assert!(
        network
            .interface_plan(&facts(), false)
            .steps
            .contains(&address)
    );
    let plan = network.route_plan(&facts());
    assert_eq!(plan.steps, [inside("10.8.0.1/32", Some("10.8.0.5"))]);
}

#[test]
fn a_netmask_is_known_when_it_is_seen_and_missed_when_it_is_not() {
    let forgot = network("ifconfig 10.8.0.2 255.255.255.0");
    assert_eq!((forgot.addresses[0].prefix, forgot.warnings.len()), (24, 1));
    let wrong = pushed("topology subnet,ifconfig 10.8.0.2 10.8.0.1");
    let error = TunnelNetwork::merge(&Network::default(), 1500, Some(&wrong)).unwrap_err();
    assert!(matches!(error, NetworkError::Netmask { .. }));
}

#[test]
fn def1_is_two_halves_and_a_route_to_the_server_before_them() {
    let plan = routes("redirect-gateway def1 bypass-dhcp");
    let halves = [inside("0.0.0.0/1", GATEWAY), inside("128.0.0.0/1", GATEWAY)];
    assert_eq!(plan.steps, [[to_server()].as_slice(), &halves].concat());
    assert_eq!(plan.warnings, [""; 0]);
}

#[test]
fn without_def1_a_default_route_of_the_same_metric_makes_way() {
    let plan = routes("redirect-gateway");
    let saved = SavedRoute::new(&default_route(None)).unwrap();
    let expected = [
        Step::Displace(saved),
        to_server(),
        inside("0.0.0.0/0", GATEWAY),
    ];
    assert_eq!(plan.steps, expected);
    let mut dear = facts();
    dear.defaults = vec![default_route(Some(100))];
    let plan = network(&format!("{SUBNET},redirect-gateway")).route_plan(&dear);
    assert_eq!(plan.steps, [to_server(), inside("0.0.0.0/0", GATEWAY)]);
    // A default route with several next hops could not be restored.
    dear.defaults = vec![Route::default_of(Family::V4)];
    let plan = network(&format!("{SUBNET},redirect-gateway")).route_plan(&dear);
    assert_eq!(plan.steps.len(), 3);
    assert_eq!(plan.warnings.len(), 1);
}

#[test]
fn the_flags_local_and_autolocal_save_the_route_to_the_server() {
    assert_eq!(routes("redirect-gateway def1 local").steps.len(), 2);
    assert_eq!(routes("redirect-gateway def1 autolocal").steps.len(), 3);
    let mut near = facts();
    near.endpoints = vec![way("198.51.100.20", None)];
    let autolocal = network(&format!("{SUBNET},redirect-gateway def1 autolocal"));
    assert_eq!(autolocal.route_plan(&near).steps.len(), 2);
    let mut recursive = network(&format!("{SUBNET},redirect-gateway def1"));
    recursive.recursive = true;
    assert_eq!(recursive.route_plan(&facts()).steps.len(), 2);
    near.endpoints[0].local = true;
    let plain = network(&format!("{SUBNET},redirect-gateway def1"));
    assert_eq!(plain.route_plan(&near).steps.len(), 2);
}

#[test]
fn any_route_that_covers_the_server_needs_a_route_to_it() {
    assert_eq!(
        routes("route 192.0.2.0 255.255.255.0").steps[0],
        to_server()
    );
    assert_eq!(routes("route 192.0.3.0 255.255.255.0").steps.len(), 1);
    assert_eq!(routes("redirect-private").steps, [to_server()]);
}

#[test]
fn bypass_dns_and_block_local_have_routes_of_their_own() {
    let mut facts = facts();
    let dns = way("203.0.113.53", Some("198.51.100.1"));
    facts.ways.insert(dns.addr, dns);
    let flags = network(&format!(
        "{SUBNET},redirect-gateway def1 bypass-dns block-local"
    ));
    let plan = flags.route_plan(&facts);
    let expected = [
        to_server(),
        past(
            "203.0.113.53",
            32,
            Some("198.51.100.1"),
            Some("203.0.113.53"),
        ),
        past("198.51.100.1", 32, None, None),
        inside("0.0.0.0/1", GATEWAY),
        inside("128.0.0.0/1", GATEWAY),
        inside("198.51.100.0/25", GATEWAY),
        inside("198.51.100.128/25", GATEWAY),
    ];
    assert_eq!(plan.steps, expected);
}

/// A server that captures the LAN, by its addresses or by `block-local`, causes a warning.
#[test]
fn pushes_that_take_the_lan_are_told() {
    let told = |options: &str| {
        let facts = Facts {
            connected: vec![Connected {
                network: ip("192.168.1.0"),
                prefix: 24,
                device: "eth0".to_owned(),
            }],
            ..facts()
        };
        let network = network(options);
        let plan = network.route_plan(&facts);
        [network.warnings, plan.warnings].concat().join("; ")
    };
    for (mask, met) in [
        ("192.168.1.5 255.255.255.0", true),
        ("192.168.1.5 255.255.255.128", true),
        ("192.168.5.5 255.255.0.0", true),
        ("192.168.2.5 255.255.255.0", false),
    ] {
        let told = told(&format!("topology subnet,ifconfig {mask}"));
        let is_told = told.contains("overlaps the local network 192.168.1.0/24 of eth0");
        assert_eq!(is_told, met, "{mask}: {told}");
    }
    let blocked = told(&format!("{SUBNET},redirect-gateway def1 block-local"));
    assert!(blocked.contains("block-local"), "{blocked}");
    assert_eq!(told(&format!("{SUBNET},redirect-gateway def1")), "");
}

#[test]
fn ipv6_is_redirected_or_blocked() {
    const V6: &str = "ifconfig-ipv6 fd00::2/64 fd00::1";
    let plan = routes(&format!("{V6},redirect-gateway ipv6 !ipv4"));
    let global = ["::/3", "2000::/4", "3000::/4", "fc00::/7"];
    let redirected = global.map(|network| inside(network, None));
    // The route to the server is for IPv4 and does no harm.
    assert_eq!(plan.steps[1..], redirected);
    let blocked = global.map(|network| {
        let (dst, prefix) = network.split_once('/').unwrap();
        Step::Unreachable {
            dst: ip(dst),
            prefix: prefix.parse().unwrap(),
            metric: 1,
        }
    });
    assert_eq!(routes("block-ipv6").steps, blocked);
    let both = routes(&format!("{V6},redirect-gateway ipv6 !ipv4,block-ipv6"));
    assert_eq!(both.steps[1..], blocked);
    // IPv6 may be off for new interfaces and still be on for the uplink.
    let mut off = facts();
    off.ipv6_off = true;
    for lines in [
        "block-ipv6",
        "ifconfig-ipv6 fd00::2/128 fd00::1,redirect-gateway ipv6 !ipv4",
    ] {
        let steps = network(&format!("{SUBNET},{lines}")).route_plan(&off).steps;
        assert!(
            blocked.iter().all(|it| steps.contains(it)),
            "{lines}: {steps:?}"
        );
    }
    // A server with an IPv6 address must stay reachable.
    let mut six = facts();
    six.endpoints = vec![way("2001:db8::1", Some("fe80::1"))];
    let plan = network(&format!("{SUBNET},block-ipv6")).route_plan(&six);
    let server = past("2001:db8::1", 128, Some("fe80::1"), Some("2001:db8::1"));
    assert_eq!((plan.steps.len(), &plan.steps[0]), (5, &server));
}

#[test]
fn gateways_are_words_addresses_and_mistakes() {
    let plan = routes(
        "route 10.1.0.0 255.255.0.0 vpn_gateway 7,route 10.2.0.0 255.255.0.0 net_gateway,\
         route remote_host 255.255.255.255 net_gateway,route 10.3.0.0 255.255.0.0 198.51.100.9,\
         route 10.4.0.0 255.255.0.0 192.0.2.77,route 10.6.0.0 255.255.0.0 10.8.0.9",
    );
    let with_metric = Step::Route {
        dst: ip("10.1.0.0"),
        prefix: 16,
        via: Some(ip("10.8.0.1")),
        metric: Some(7),
        table: MAIN,
        optional: true,
        first: true,
    };
    let expected = [
        past("10.2.0.0", 16, Some("198.51.100.1"), Some("0.0.0.0")),
        past("192.0.2.1", 32, Some("198.51.100.1"), Some("0.0.0.0")),
        past("10.3.0.0", 16, Some("198.51.100.9"), None),
        with_metric,
        inside("10.6.0.0/16", Some("10.8.0.9")),
    ];
    assert_eq!(plan.steps, expected);
    // The server itself always has a route past the tunnel.
    let [first, second, third] = &plan.warnings[..] else {
        panic!("{:?}", plan.warnings);
    };
    for (warning, route) in [(first, "route 10.2.0.0"), (second, "route 10.3.0.0")] {
        let told = format!("the server's {route} goes outside the tunnel");
        assert!(warning.starts_with(&told), "{warning}");
    }
    assert!(third.contains("10.4.0.0/16 is skipped"), "{third}");
}

#[test]
fn default_routes_by_route_are_those_of_def1() {
    let halves = [inside("0.0.0.0/1", GATEWAY), inside("128.0.0.0/1", GATEWAY)];
    for option in [
        "route 0.0.0.0 0.0.0.0",
        "route 0.0.0.0 0.0.0.0 vpn_gateway",
        "route 0.0.0.0 0.0.0.0 10.8.0.1",
        // A pushed metric does not keep the default route from being preferred.
        "route 0.0.0.0 0.0.0.0 vpn_gateway 300",
        "route-metric 300,route 0.0.0.0 0.0.0.0",
    ] {
        let steps = routes(option).steps;
        assert_eq!(
            steps,
            [[to_server()].as_slice(), &halves].concat(),
            "{option}"
        );
    }
    let v6 = routes("ifconfig-ipv6 fd00::2/64 fd00::1,route-ipv6 ::/0").steps;
    let global = ["::/3", "2000::/4", "3000::/4", "fc00::/7"];
    assert_eq!(v6, global.map(|network| inside(network, None)));
    // A route in the file itself keeps its metric.
    let config = Network {
        routes: vec![ConfigRoute {
            v6: false,
            network: Place::Address(ip("0.0.0.0")),
            bits: 0,
            gateway: None,
            metric: Some(300),
            pushed: false,
        }],
        ..Network::default()
    };
    let network = TunnelNetwork::merge(&config, 1500, Some(&pushed(SUBNET))).unwrap();
    let steps = network.route_plan(&facts()).steps;
    let own = |step: &Step| {
        matches!(
            step,
            Step::Route {
                prefix: 0,
                metric: Some(300),
                ..
            }
        )
    };
    assert!(steps.len() == 2 && own(&steps[1]), "{steps:?}");
}

#[test]
fn pushed_routes_into_a_local_network_are_told() {
    let mut at_home = facts();
    at_home.connected = vec![Connected {
        network: ip("192.168.1.0"),
        prefix: 24,
        device: "lan0".to_owned(),
    }];
    for (option, told) in [
        ("route 192.168.1.0 255.255.255.0", true),
        ("route 192.168.1.77", true),
        ("route 192.168.0.0 255.255.0.0", false),
        ("route 192.168.2.0 255.255.255.0", false),
    ] {
        let plan = network(&format!("{SUBNET},{option}")).route_plan(&at_home);
        let says = |it: &String| it.contains("192.168.1.0/24 of lan0");
        assert_eq!(plan.warnings.iter().any(says), told, "{option}");
        assert_eq!(plan.warnings.len(), usize::from(told), "{option}");
    }
}

#[test]
fn a_route_to_the_server_alone_is_left_out() {
    let plan = routes("route 192.0.2.1,route 192.0.2.0 255.255.255.0");
    assert_eq!(plan.steps, [to_server(), inside("192.0.2.0/24", GATEWAY)]);
    assert_eq!(plan.warnings.len(), 1);
}

#[test]
fn names_of_the_configuration_are_looked_up_beforehand() {
    let route = |name: &str| ConfigRoute {
        v6: false,
        network: Place::Name(name.to_owned()),
        bits: 32,
        gateway: None,
        metric: None,
        pushed: false,
    };
    let config = Network {
        routes: vec![route("intra.example"), route("gone.example")],
        ..Network::default()
    };
    let network = TunnelNetwork::merge(&config, 1500, Some(&pushed(SUBNET))).unwrap();
    let names: Vec<&str> = network.names().collect();
    assert_eq!(names, ["intra.example", "gone.example"]);
    let plan = network.route_plan(&facts());
    assert_eq!(plan.steps, [inside("10.5.0.1/32", GATEWAY)]);
    assert_eq!(plan.warnings.len(), 1);
}

#[test]
fn host_bits_of_networks_are_cut_off() {
    assert_eq!(
        routes("route 10.1.2.3 255.255.0.0").steps,
        [inside("10.1.0.0/16", GATEWAY)]
    );
}

#[test]
fn a_server_has_its_own_address_and_routes() {
    let config = Network {
        topology: Some(Topology::Net30),
        ifconfig: Some(Ifconfig {
            local: "10.8.0.1".parse().unwrap(),
            second: "10.8.0.2".parse().unwrap(),
        }),
        routes: vec![ConfigRoute {
            v6: false,
            network: Place::Address(ip("10.8.0.0")),
            bits: 24,
            gateway: None,
            metric: None,
            pushed: false,
        }],
        ..Network::default()
    };
    let network = TunnelNetwork::merge(&config, 1500, None).unwrap();
    let mut facts = facts();
    facts.endpoints.clear();
    let plan = network.route_plan(&facts);
    assert_eq!(plan.steps, [inside("10.8.0.0/24", Some("10.8.0.2"))]);
}

#[test]
fn noexec_leaves_it_to_scripts() {
    let config = Network {
        ifconfig_noexec: true,
        route_noexec: true,
        ..Network::default()
    };
    let reply = pushed(&format!(
        "{SUBNET},redirect-gateway def1,dhcp-option DNS 10.8.0.1"
    ));
    let network = TunnelNetwork::merge(&config, 1500, Some(&reply)).unwrap();
    assert_eq!(network.interface_plan(&facts(), false).steps, []);
    assert_eq!(network.route_plan(&facts()).steps, []);
}

#[test]
fn flags_of_both_sides_add_up() {
    let config = Network {
        redirect: Some(Redirect {
            gateway: true,
            ipv4: true,
            def1: true,
            ..Redirect::default()
        }),
        ..Network::default()
    };
    let reply = pushed(&format!("{SUBNET},redirect-private ipv6"));
    let flags = TunnelNetwork::merge(&config, 1500, Some(&reply))
        .unwrap()
        .redirect;
    let flags = flags.unwrap();
    assert!(flags.gateway && flags.def1 && flags.ipv6 && flags.ipv4);
}

fn dns(options: &str) -> (Option<Step>, usize) {
    let network = network(&format!("{SUBNET},{options}"));
    let plan = network.interface_plan(&facts(), false);
    let step = plan
        .steps
        .into_iter()
        .find(|step| matches!(step, Step::Dns { .. }));
    (step, network.warnings.len() + plan.warnings.len())
}

fn dns_step(servers: &[&str], search: &[&str], only: &[&str]) -> Step {
    let strings = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
    Step::Dns {
        resolver: Resolver::Resolvectl,
        wanted: NameServers {
            servers: servers.iter().map(|text| ip(text)).collect(),
            search: strings(search),
            only: strings(only),
        },
    }
}

#[test]
fn name_servers_come_from_the_best_option() {
    let old = "dhcp-option DNS 10.8.0.1,dhcp-option DNS6 fd00::1,dhcp-option DOMAIN a.example,\
        dhcp-option DOMAIN-SEARCH b.example";
    let expected = dns_step(&["10.8.0.1", "fd00::1"], &["a.example", "b.example"], &[]);
    assert_eq!(dns(old), (Some(expected), 0));
    let new = format!(
        "{old},dns server 2 address 10.8.0.2:53,dns server 1 address 10.8.0.3,\
         dns server 1 resolve-domains corp.example"
    );
    let search = ["a.example", "b.example"];
    let expected = dns_step(&["10.8.0.3"], &search, &["corp.example"]);
    assert_eq!(dns(&new), (Some(expected), 0));
    let tls = "dns server 1 address 10.8.0.2,dns server 1 transport DoT,\
        dns server 2 address 10.8.0.3";
    assert_eq!(dns(tls), (Some(dns_step(&["10.8.0.3"], &[], &[])), 1));
    assert_eq!(dns("dhcp-option DOMAIN a.example"), (None, 0));
}

#[test]
fn resolvconf_cannot_split_and_nothing_cannot_set() {
    let split = network("dns server 1 address 10.8.0.3,dns server 1 resolve-domains corp.example");
    let mut facts = facts();
    facts.resolver = Some(Resolver::Resolvconf {
        prefix: String::new(),
    });
    let plan = split.interface_plan(&facts, false);
    assert!(matches!(plan.steps.last(), Some(Step::Dns { wanted, .. }) if wanted.only.is_empty()));
    assert_eq!(plan.warnings.len(), 1);
    assert_eq!(split.interface_plan(&facts, true).steps.len(), 2);
    facts.resolver = None;
    assert_eq!(split.interface_plan(&facts, false).warnings.len(), 1);
}
