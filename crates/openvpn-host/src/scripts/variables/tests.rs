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
    dns.servers.insert(
        -3,
        DnsServer {
            addresses: vec![
                "10.8.0.1:0".parse().unwrap(),
                "[fd00::1]:853".parse().unwrap(),
            ],
            transport: DnsTransport::Tls,
            dnssec: Dnssec::Optional,
            ..DnsServer::default()
        },
    );
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
