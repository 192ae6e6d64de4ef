//! Facts that a server at home needs about its host.

use crate::doctor::gather::listeners;
use config::types::AllowedIp;
use netio::netlink::{Netlink, NetlinkError, RouteKind, TABLE_LOCAL};
use std::fs;
use std::net::IpAddr;

/// Addresses on the Internet, for looking up the route; no packet is sent to them.
const OUTSIDE: [&str; 2] = ["1.1.1.1", "2606:4700:4700::1111"];

/// Port of DNS.
const DNS: u16 = 53;

/// Maximum number of name servers in a client's file.
const NAME_SERVERS_MAX: usize = 3;

/// Name prefixes of interfaces that lead to no network at home: tunnels and container networks.
const NOT_AT_HOME: [&str; 13] = [
    "lo", "wg", "tun", "tap", "ppp", "mr-", "mrk", "docker", "podman", "cni", "virbr", "veth",
    "lxc",
];

/// The host's networks and addresses.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Networks of the host's addresses and routes.
    pub(super) taken: Vec<AllowedIp>,
    /// Whether the kernel has IPv6.
    pub(super) has_ipv6: bool,
    /// The address of the uplink, which has the default route.
    pub(super) line: Option<IpAddr>,
    /// The networks at home.
    pub(super) lan: Vec<AllowedIp>,
    /// Name servers that clients can ask.
    pub(super) dns: Vec<IpAddr>,
}

impl Host {
    /// Inspects this host.
    pub(super) fn look() -> Result<Self, NetlinkError> {
        let mut netlink = Netlink::open()?;
        let addresses = netlink.addresses(None)?;
        let links = netlink.links()?;
        let routes = netlink.routes(None)?;
        let of_addresses = addresses.iter().map(|it| (it.ip, it.prefix));
        let of_routes = routes
            .iter()
            .filter(|it| it.kind == RouteKind::Unicast && it.table != TABLE_LOCAL)
            .map(|it| (it.dst, it.prefix));
        let taken = of_addresses.chain(of_routes);
        let taken = taken.filter_map(|(addr, prefix)| AllowedIp::new(addr, prefix).ok());
        let mut ways = OUTSIDE.iter().filter_map(|outside| {
            let way = netlink.route_get(outside.parse().ok()?, 0).ok()?;
            Some((way.dev, way.src?))
        });
        let way = ways.next();
        let inside: Vec<Inside> = addresses
            .iter()
            .filter_map(|address| {
                let link = links.iter().find(|it| it.index == address.index)?;
                Some(Inside {
                    ifname: link.name.clone(),
                    on_line: way.is_some_and(|(dev, _)| dev == address.index),
                    addr: address.ip,
                    prefix: address.prefix,
                })
            })
            .collect();
        let home = at_home(&inside);
        let mut lan = Vec::new();
        for it in &home {
            let network = AllowedIp::new(it.addr, it.prefix).ok();
            lan.extend(network.filter(|it| !lan.contains(it)));
        }
        let listening = ["/proc/net/udp", "/proc/net/udp6"].map(|path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            is_asked(&text)
        });
        let own = home.iter().map(|it| it.addr).find(IpAddr::is_ipv4);
        let resolv_conf = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        Ok(Self {
            taken: taken.collect(),
            has_ipv6: std::path::Path::new("/proc/net/if_inet6").exists(),
            line: way.map(|(_, src)| src),
            lan,
            dns: match own.filter(|_| listening.contains(&true)) {
                Some(own) => vec![own],
                None => name_servers(&resolv_conf),
            },
        })
    }
}

/// An address and its interface.
#[derive(Debug)]
struct Inside {
    ifname: String,
    /// Whether the default route leaves through this interface.
    on_line: bool,
    addr: IpAddr,
    prefix: u8,
}

/// Networks at home: private ones behind interfaces other than the uplink, as on a router. If there are none, the
/// uplink's own, as on a host within the home network.
fn at_home(inside: &[Inside]) -> Vec<&Inside> {
    let bridge_of_containers = |name: &str| {
        let id = name.strip_prefix("br-").unwrap_or_default();
        id.len() == 12 && id.bytes().all(|it| it.is_ascii_hexdigit())
    };
    let home = |it: &&Inside| {
        let other = NOT_AT_HOME.iter().any(|start| it.ifname.starts_with(start));
        let link_local = match it.addr {
            IpAddr::V4(addr) => addr.is_link_local(),
            IpAddr::V6(addr) => addr.is_unicast_link_local(),
        };
        let whole = it.prefix == config::types::family_bits(it.addr);
        is_private(it.addr) && !(other || bridge_of_containers(&it.ifname) || link_local || whole)
    };
    let (line, behind): (Vec<&Inside>, Vec<&Inside>) =
        inside.iter().filter(home).partition(|it| it.on_line);
    if behind.is_empty() { line } else { behind }
}

/// Whether the Internet has no route to an address: private, behind a provider's NAT (CGNAT), or link-local.
pub(super) fn is_private(addr: IpAddr) -> bool {
    host::is_private(addr)
        || addr.is_loopback()
        || match addr {
            IpAddr::V4(addr) => addr.is_link_local(),
            IpAddr::V6(addr) => addr.is_unicast_link_local(),
        }
}

/// Whether a table in the format of `/proc/net/udp` has a name server, on an address other than loopback.
fn is_asked(table: &str) -> bool {
    let servers = listeners(table).into_iter().map(|it| it.0);
    servers
        .filter(|it| it.port() == DNS)
        .any(|it| !it.ip().is_loopback())
}

/// The name servers in a `resolv.conf` that are other hosts.
fn name_servers(text: &str) -> Vec<IpAddr> {
    host::name_servers_in(text)
        .filter_map(|it| it.parse().ok())
        .filter(|it: &IpAddr| !it.is_loopback() && !it.is_unspecified())
        .take(NAME_SERVERS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(ifname: &str, on_line: bool, addr: &str, prefix: u8) -> Inside {
        Inside {
            ifname: ifname.to_owned(),
            on_line,
            addr: addr.parse().unwrap(),
            prefix,
        }
    }

    #[test]
    fn networks_at_home_are_found_on_routers_and_on_other_hosts() {
        let names = |all: &[Inside]| -> Vec<String> {
            at_home(all).iter().map(|it| it.addr.to_string()).collect()
        };
        let router = [
            inside("lo", false, "127.0.0.1", 8),
            inside("eth0", true, "192.168.0.2", 24),
            inside("br-lan", false, "192.168.1.1", 24),
            inside("br-lan", false, "fd00:1::1", 64),
            inside("br-lan", false, "fe80::1", 64),
            inside("br-lan", false, "2001:db8::1", 64),
            inside("docker0", false, "172.17.0.1", 16),
            inside("br-0123456789ab", false, "172.18.0.1", 16),
            inside("wg0", false, "10.0.0.1", 24),
        ];
        assert_eq!(names(&router), ["192.168.1.1", "fd00:1::1"]);
        let board = [
            inside("eth0", true, "192.168.1.5", 24),
            inside("docker0", false, "172.17.0.1", 16),
        ];
        assert_eq!(names(&board), ["192.168.1.5"]);
        let hosted = [inside("eth0", true, "198.51.100.7", 24)];
        assert_eq!(names(&hosted), [""; 0]);
    }

    #[test]
    fn private_addresses_are_known() {
        for addr in [
            "192.168.1.1",
            "100.64.0.1",
            "100.127.0.1",
            "169.254.0.1",
            "fd00::1",
            "fe80::1",
        ] {
            assert!(is_private(addr.parse().unwrap()), "{addr}");
        }
        for addr in ["100.128.0.1", "198.51.100.1", "2001:db8::1"] {
            assert!(!is_private(addr.parse().unwrap()), "{addr}");
        }
    }

    #[test]
    fn a_name_server_of_this_host_is_found() {
        let table = |addr: &str| {
            let rest = "00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 7 2";
            format!("  sl  local_address rem_address\n  1: {addr} {rest}\n")
        };
        assert!(is_asked(&table("00000000:0035")));
        assert!(is_asked(&table("0101A8C0:0035")));
        assert!(!is_asked(&table("3500007F:0035")));
        assert!(!is_asked(&table("00000000:0036")));
        let found =
            name_servers("nameserver 127.0.0.53\nnameserver 192.168.1.1\n# nameserver 9.9.9.9\n");
        assert_eq!(found, ["192.168.1.1".parse::<IpAddr>().unwrap()]);
    }
}
