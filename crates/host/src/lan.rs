//! LAN devices whose packets would leave through a tunnel with their own addresses, to which no answer comes back.

use std::net::{IpAddr, Ipv4Addr};
use std::{fs, io};

use netio::netlink::{Forwarded, Netfilter, Netlink, NetlinkError, RouteKind};

/// A documentation address (RFC 5737): the route to it is the route to the Internet.
pub(crate) const INTERNET: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The kernel's list of loaded `iptables-legacy` tables, whose rules nftables does not show.
const LEGACY_TABLES: &str = "/proc/thread-self/net/ip_tables_names";

/// The devices with a LAN whose packets no rule of the packet filter masquerades when they leave through `tunnel`, each
/// with its network. Empty if this host forwards nothing, or if its rules cannot be read.
#[must_use]
pub fn unmasqueraded(tunnel: &str) -> Vec<String> {
    let forwards = fs::read_to_string("/proc/sys/net/ipv4/ip_forward");
    let legacy = match fs::read_to_string(LEGACY_TABLES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Ok(names) => names,
        // Only root may read the list.
        Err(_) => return Vec::new(),
    };
    if !forwards.is_ok_and(|it| it.trim() == "1") || legacy.lines().any(|it| it == "nat") {
        return Vec::new();
    }
    look(tunnel).unwrap_or_default()
}

fn look(tunnel: &str) -> Result<Vec<String>, NetlinkError> {
    let (mut netlink, mut netfilter) = (Netlink::open()?, Netfilter::open()?);
    let to = (netlink.index_of(tunnel)?, tunnel);
    let mut routes = netlink.routes(None)?;
    routes.retain(|it| it.kind == RouteKind::Unicast);
    let has_default = routes
        .iter()
        .any(|it| it.prefix == 0 && it.dev != Some(to.0));
    // With several uplinks, some of the default routes are in tables of their own.
    let mut uplinks = Vec::new();
    for route in routes {
        // While a tunnel has the default route, a host route through a gateway leads to its other end. A private address
        // is rather one of the LAN.
        let may_be_endpoint = |dst: Ipv4Addr| !has_default || !dst.is_private();
        let is_endpoint = route.prefix == 32
            && route.via.is_some()
            && matches!(route.dst, IpAddr::V4(dst) if may_be_endpoint(dst));
        if route.prefix == 0 || is_endpoint {
            match route.dev {
                Some(dev) => uplinks.push(dev),
                // The uplinks of a route with several next hops are not known.
                None => return Ok(Vec::new()),
            }
        }
    }
    let mut rules = netfilter.source_nat()?;
    let addresses = netlink.addresses(None)?;
    let mut found = Vec::new();
    for link in netlink.links()? {
        // Tunnels have no hardware address.
        if !link.running || link.mac.is_empty() || uplinks.contains(&link.index) {
            continue;
        }
        let own = addresses.iter().filter(|it| it.index == link.index);
        for address in own {
            let IpAddr::V4(source) = address.ip else {
                continue;
            };
            let is_network = address.prefix < 31 && !source.is_link_local();
            if !is_network || source.is_loopback() || link.index == to.0 {
                continue;
            }
            let packet = Forwarded {
                from: (link.index, &link.name),
                to,
                source,
            };
            if !netfilter.translates(&mut rules, &packet)? {
                let network = crate::masked(address.ip, address.prefix);
                found.push(format!("{} ({network}/{})", link.name, address.prefix));
            }
        }
    }
    Ok(found)
}

/// The fault and its remedy, about LANs that [`unmasqueraded`] has found.
#[must_use]
pub fn words_about(lans: &[String], tunnel: &str) -> [String; 2] {
    let lans = lans.join(", ");
    [
        format!(
            "devices of {lans} get no answers through {tunnel}: no firewall rule masquerades their packets"
        ),
        format!(
            "masquerade them (nftables: oifname \"{tunnel}\" masquerade), or turn on the guard, which does \
             (docs/guard.md); nothing is needed if the other end has routes back to them"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use lab::{Host, Link, LinkOptions, Router};

    use super::*;

    #[test]
    fn lans_without_masquerading_are_found() {
        let Some(host) = lab::require(Host::new("router")) else {
            return;
        };
        let router = Router::of(host).unwrap();
        let other = Host::new("others").unwrap();
        for (number, name) in (1..).zip(["wan", "br-lan", "br-guest", "tunnel"]) {
            let link = LinkOptions::numbered(number);
            Link::new(&router, name, &other, name, &link).unwrap();
            if name == "wan" {
                router.add_default_route(link.b4()).unwrap();
            }
        }
        let found = || router.run(|| unmasqueraded("tunnel")).unwrap();
        let lan = "br-lan (192.168.2.0/24)";
        let guest = "br-guest (192.168.3.0/24)";
        // Without a rule, and with those of a home router and of Docker, which do not concern these packets.
        assert_eq!(found(), [lan, guest]);
        router.masquerade("wan").unwrap();
        assert_eq!(found(), [lan, guest]);
        let rule = |rule: &str| router.nft(&format!("add rule inet lab postrouting {rule}\n"));
        rule("ip saddr 172.17.0.0/16 oifname != \"docker0\" masquerade").unwrap();
        assert_eq!(found(), [lan, guest]);
        rule("ip saddr 192.168.2.0/24 oifname { \"tunnel\", \"wan\" } masquerade").unwrap();
        assert_eq!(found(), [guest]);
        // A host of the LAN behind another.
        let within = LinkOptions::numbered(2).b4().to_string();
        router
            .output("ip", ["route", "add", "192.168.9.9", "via", &within])
            .unwrap();
        assert_eq!(found(), [guest]);
        router.nft("flush chain inet lab postrouting\n").unwrap();
        assert_eq!(found(), [lan, guest]);
        router
            .output("ip", ["route", "del", "192.168.9.9"])
            .unwrap();
        rule("ip saddr 192.168.2.0/24 oifname { \"tunnel\", \"wan\" } masquerade").unwrap();
        // Routing rules of another program use this default route; other packets have two uplinks.
        let add = |route: &[&str]| {
            let command = [&["route", "replace"], route].concat();
            router.output("ip", command).unwrap();
        };
        add(&["default", "dev", "br-guest", "table", "100"]);
        assert!(found().is_empty());
        router.nft("flush chain inet lab postrouting\n").unwrap();
        assert_eq!(found(), [lan]);
        add(&["unreachable", "default", "table", "100"]);
        assert_eq!(found(), [lan, guest]);
        add(&[
            "default", "nexthop", "dev", "wan", "nexthop", "dev", "br-guest",
        ]);
        assert!(found().is_empty());
        add(&["default", "dev", "wan"]);
        assert_eq!(found(), [lan, guest]);
        // A tunnel takes the default route.
        let via = LinkOptions::numbered(1).b4().to_string();
        add(&["192.0.2.9", "via", &via, "dev", "wan"]);
        add(&["default", "dev", "tunnel"]);
        assert_eq!(found(), [lan, guest]);
        router.set_up("br-guest", false).unwrap();
        assert_eq!(found(), [lan]);
        router.set_up("br-guest", true).unwrap();
        router.nft("flush ruleset\n").unwrap();
        router.sysctl("net/ipv4/ip_forward", "0").unwrap();
        assert!(found().is_empty());
    }
}
