//! Compares the script environment with stock's.

use super::*;
use config::openvpn::{DnsServer, ScriptSecurity};
use std::time::Duration;

fn all(environment: &Environment) -> Vec<String> {
    environment
        .visible(ScriptSecurity::Passwords)
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

/// Stock 2.6 sets these variables for the same options.
#[test]
fn the_configuration_is_told_as_stock_tells_it() {
    let arguments = "--client --dev tun --remote 192.0.2.1 1195 udp --remote vpn.test 443 tcp \
                     --nobind --ca ca --cert cert --key key --verb 4 --setenv UV_FOO bar";
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let mut read = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
    let options = config::openvpn::Options::default();
    let import = config::openvpn::parse_arguments(&arguments, &mut read, options).unwrap();
    let (model, _) = import.into_model().unwrap();
    let mut environment = Environment::default();
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
    environment.set_configuration(&model, None, 42, start);
    assert_eq!(
        all(&environment),
        [
            "UV_FOO=bar",
            "daemon=0",
            "daemon_log_redirect=0",
            "daemon_pid=42",
            "daemon_start_time=7",
            "proto_1=udp",
            "proto_2=tcp-client",
            "remote_1=192.0.2.1",
            "remote_2=vpn.test",
            "remote_port_1=1195",
            "remote_port_2=443",
            "verb=4",
        ]
    );
}

#[test]
fn a_peer_has_an_address_of_one_family() {
    let mut environment = Environment::default();
    environment.set_peer("trusted", "[2001:db8::1]:1194".parse().unwrap());
    assert_eq!(
        all(&environment),
        ["trusted_ip6=2001:db8::1", "trusted_port=1194"]
    );
    environment.set_peer("trusted", "[::ffff:192.0.2.1]:1".parse().unwrap());
    assert_eq!(
        all(&environment),
        ["trusted_ip=192.0.2.1", "trusted_port=1"]
    );
}

#[test]
fn addresses_follow_the_topology() {
    let mut environment = Environment::default();
    let ifconfig = Some(Ifconfig {
        local: [10, 8, 0, 2].into(),
        second: [255, 255, 255, 0].into(),
    });
    environment.set_addresses(Topology::Net30, ifconfig, None);
    environment.set_addresses(Topology::Subnet, ifconfig, None);
    assert_eq!(
        all(&environment),
        ["ifconfig_local=10.8.0.2", "ifconfig_netmask=255.255.255.0"]
    );
}

#[test]
fn routes_are_counted_by_family() {
    let mut environment = Environment::default();
    environment.set("route_net_gateway", "192.0.2.1");
    let route = |network: &str, bits, gateway: Option<&str>, metric| RouteFacts {
        network: network.parse().unwrap(),
        bits,
        gateway: gateway.map(|g| g.parse().unwrap()),
        metric,
    };
    environment.set_routes(&[
        route("192.168.3.0", 24, Some("10.8.0.1"), None),
        route("fd01::", 48, None, Some(7)),
        route("0.0.0.0", 0, None, Some(5)),
    ]);
    assert_eq!(
        all(&environment),
        [
            "route_gateway_1=10.8.0.1",
            "route_ipv6_metric_1=7",
            "route_ipv6_network_1=fd01::/48",
            "route_metric_2=5",
            "route_net_gateway=192.0.2.1",
            "route_netmask_1=255.255.255.0",
            "route_netmask_2=0.0.0.0",
            "route_network_1=192.168.3.0",
            "route_network_2=0.0.0.0",
        ]
    );
    environment.set_routes(&[]);
    assert_eq!(all(&environment), ["route_net_gateway=192.0.2.1"]);
    environment.set_redirect(true, false, true);
    assert_eq!(environment.value("redirect_gateway"), Some("1"));
    assert_eq!(environment.value("route_redirect_gateway_ipv4"), Some("2"));
    assert_eq!(environment.value("route_redirect_gateway_ipv6"), None);
}

#[test]
fn options_for_others_are_handed_on() {
    let mut environment = Environment::default();
    let lines = [
        "DNS 10.8.0.1",
        "DOMAIN lan",
        "NTP 10.8.0.9",
        "DOMAIN-SEARCH old.lan",
    ];
    let lines = lines.map(str::to_owned);
    environment.set_foreign_options(&lines, &DnsOptions::default());
    assert_eq!(
        all(&environment),
        [
            "foreign_option_1=dhcp-option DNS 10.8.0.1",
            "foreign_option_2=dhcp-option DOMAIN lan",
            "foreign_option_3=dhcp-option NTP 10.8.0.9",
            "foreign_option_4=dhcp-option DOMAIN-SEARCH old.lan",
        ]
    );
    let mut dns = DnsOptions::default();
    dns.search_domains.push("lan".to_owned());
    *dns.server(-3) = DnsServer {
        addresses: vec![
            "10.8.0.1:0".parse().unwrap(),
            "[fd00::1]:853".parse().unwrap(),
        ],
        transport: DnsTransport::Tls,
        dnssec: Dnssec::Optional,
        ..DnsServer::default()
    };
    environment.set_dns(&dns);
    environment.set_foreign_options(&lines, &dns);
    assert_eq!(
        all(&environment),
        [
            "dns_search_domain_1=lan",
            "dns_server_1_address_1=10.8.0.1",
            "dns_server_1_address_2=fd00::1",
            "dns_server_1_dnssec=optional",
            "dns_server_1_port_2=853",
            "dns_server_1_transport=DoT",
            // Servers and domains of `dns` replace those of `dhcp-option`.
            "foreign_option_1=dhcp-option DOMAIN lan",
            "foreign_option_2=dhcp-option NTP 10.8.0.9",
            "foreign_option_3=dhcp-option DNS 10.8.0.1",
            "foreign_option_4=dhcp-option DNS6 fd00::1",
            "foreign_option_5=dhcp-option DOMAIN-SEARCH lan",
        ]
    );
}

#[test]
fn protocols_are_spelt_as_in_files() {
    let name = |transport, family| protocol_name(Protocol { transport, family });
    assert_eq!(name(Transport::Udp, Family::Any), "udp");
    assert_eq!(name(Transport::TcpClient, Family::V6), "tcp6-client");
}

#[cfg(feature = "server")]
#[test]
fn addresses_of_a_client_follow_the_topology() {
    let ifconfig = Some(Ifconfig {
        local: [10, 8, 0, 6].into(),
        second: [10, 8, 0, 5].into(),
    });
    let ifconfig_v6 = Some(IfconfigV6 {
        local: "fd00::2".parse().unwrap(),
        bits: 64,
        remote: Some("fd00::1".parse().unwrap()),
    });
    let mut environment = Environment::default();
    environment.set_pool(Topology::Net30, ifconfig, ifconfig_v6);
    let all: Vec<String> = environment
        .visible(ScriptSecurity::Passwords)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        all,
        [
            "ifconfig_pool_ip6_netbits=64",
            "ifconfig_pool_local_ip=10.8.0.5",
            "ifconfig_pool_local_ip6=fd00::1",
            "ifconfig_pool_remote_ip=10.8.0.6",
            "ifconfig_pool_remote_ip6=fd00::2",
        ]
    );
}

#[test]
fn a_proxy_is_told_by_its_kind() {
    let told = |proxy: &str| {
        let config = crate::tests::client(&format!("auth-user-pass\nproto tcp-client\n{proxy}"));
        let mut environment = Environment::default();
        environment.set_configuration(&config, None, 42, SystemTime::UNIX_EPOCH);
        let all = all(&environment).into_iter();
        all.filter(|it| it.contains("proxy")).collect::<Vec<_>>()
    };
    assert_eq!(
        told("http-proxy web.test 8080"),
        ["http_proxy_port_1=8080", "http_proxy_server_1=web.test"]
    );
    assert_eq!(
        told("socks-proxy socks.test 1081"),
        ["socks_proxy_port_1=1081", "socks_proxy_server_1=socks.test"]
    );
    assert_eq!(told(""), Vec::<String>::new());
}

#[test]
fn scripts_see_the_pushed_routes_and_the_gateways_of_both_networks() {
    use config::openvpn::Network;
    use netio::netlink::{Family as AddressFamily, Route};
    use openvpn::push::{PullFilter, PushReply};

    let described = |options: &str| {
        let reply = PushReply::parse(options.split(','), &PullFilter::default()).unwrap();
        let network = TunnelNetwork::merge(&Network::default(), 1500, Some(&reply)).unwrap();
        let gateway = |family, via: &str| Route::default_of(family).via(via.parse().unwrap());
        let facts = HostFacts {
            defaults: vec![
                gateway(AddressFamily::V4, "198.51.100.1"),
                gateway(AddressFamily::V6, "2001:db8::1"),
                // A worse default route.
                gateway(AddressFamily::V4, "198.51.100.2"),
            ],
            ..HostFacts::default()
        };
        let mut environment = Environment::default();
        describe_routes(&mut environment, &network, &facts);
        all(&environment)
    };
    let address = "topology subnet,ifconfig 10.8.0.2 255.255.255.0,route-gateway 10.8.0.1,\
                   ifconfig-ipv6 fd00::2/64 fd00::1";
    let routes = "route 10.9.0.0 255.255.0.0,route 10.10.0.0 255.255.0.0 10.8.0.9 7,route-ipv6 fd01::/48,\
                  redirect-gateway def1";
    assert_eq!(
        described(&format!("{address},{routes}")),
        [
            "net_gateway_ipv6=2001:db8::1",
            "redirect_gateway=1",
            "route_gateway_1=10.8.0.1",
            "route_gateway_2=10.8.0.9",
            "route_ipv6_gateway_1=fd00::1",
            "route_ipv6_network_1=fd01::/48",
            "route_metric_2=7",
            "route_net_gateway=198.51.100.1",
            "route_netmask_1=255.255.0.0",
            "route_netmask_2=255.255.0.0",
            "route_network_1=10.9.0.0",
            "route_network_2=10.10.0.0",
            "route_redirect_gateway_ipv4=1",
            "route_vpn_gateway=10.8.0.1",
        ]
    );
    // `redirect-gateway` without the default route asks for no more than a route to the server.
    let none = described(&format!("{address},redirect-gateway !ipv4"));
    assert!(none.contains(&"redirect_gateway=0".to_owned()), "{none:?}");
}

#[cfg(feature = "server")]
#[test]
fn a_departed_client_is_told_with_its_times_and_its_traffic() {
    let mut environment = Environment::default();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    environment.set_connected(at, &Clock::system());
    environment.set_traffic(5, 7, Duration::from_millis(61_900));
    let value = |name| environment.value(name);
    assert_eq!(value("time_unix"), Some("1800000000"));
    assert!(value("time_ascii").unwrap().starts_with("2027-01-1"));
    assert_eq!(value("bytes_received"), Some("5"));
    assert_eq!(value("bytes_sent"), Some("7"));
    assert_eq!(value("time_duration"), Some("61"));
}

#[test]
fn dns_options_are_told_server_by_server() {
    let mut dns = DnsOptions::default();
    let server = |dnssec, transport, sni: Option<&str>| DnsServer {
        addresses: vec!["10.8.0.1:0".parse().unwrap()],
        resolve_domains: vec!["office.test".to_owned()],
        dnssec,
        transport,
        sni: sni.map(str::to_owned),
    };
    let https = server(Dnssec::Yes, DnsTransport::Https, Some("dns.test"));
    *dns.server(1) = https;
    let plain = server(Dnssec::No, DnsTransport::Plain, None);
    *dns.server(2) = plain;
    let mut environment = Environment::default();
    environment.set("dns_server_3_address_1", "10.8.0.3");
    environment.set_dns(&dns);
    assert_eq!(
        all(&environment),
        [
            "dns_server_1_address_1=10.8.0.1",
            "dns_server_1_dnssec=yes",
            "dns_server_1_resolve_domain_1=office.test",
            "dns_server_1_sni=dns.test",
            "dns_server_1_transport=DoH",
            "dns_server_2_address_1=10.8.0.1",
            "dns_server_2_dnssec=no",
            "dns_server_2_resolve_domain_1=office.test",
        ]
    );
}
