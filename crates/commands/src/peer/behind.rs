//! Networks behind branches, which no two of them, nor the office, may share.

use super::{PeerError, openvpn, place, wireguard};
use config::free::overlap;
use config::home::NETWORKS_MAX;
use config::kind::Kind;
use config::types::{AllowedIp, family_bits};
use netio::netlink::{Netlink, NetlinkError, RouteKind, TABLE_MAIN};
use service::running;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The owner of a network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Owner {
    /// A client, by its name.
    Branch(String),
    /// The office's own network.
    Lan,
    /// The tunnel: clients have its addresses.
    Tunnel,
    /// An interface of this host, by its name.
    Interface(String),
    /// The gateway of the default route through this interface.
    Gateway(String),
    /// A route of this host leads to it, through this interface.
    Route(String),
    /// A client's host: the client of this name connects from this address.
    Outer(String),
}

impl Owner {
    /// The owner, and what to do, in words. `server` is the server's file.
    fn words(&self, server: &Path) -> String {
        match self {
            Self::Branch(name) => format!(
                "behind {name}; choose another network, or take that one away first: millrace peer set {name} --behind \
                 none{}",
                place::option(server)
            ),
            Self::Lan => "the office's own network (LAN)".to_owned(),
            Self::Tunnel => "the tunnel's own addresses".to_owned(),
            Self::Interface(name) => {
                format!("the office's own network at {name}; choose another network")
            }
            Self::Gateway(name) => {
                format!("the office's gateway at {name}; choose a network without it")
            }
            Self::Route(name) => format!(
                "to which this host has a route through {name}; choose another network, or remove the route"
            ),
            Self::Outer(name) => {
                format!("the address from which {name} connects; choose a network without it")
            }
        }
    }
}

/// Refuses networks behind clients that must stay outside the tunnel. Each client has some in `wanted`.
pub(super) fn check_outside(server: &Path, wanted: &[&[AllowedIp]]) -> Result<(), PeerError> {
    if wanted.iter().all(|it| it.is_empty()) {
        return Ok(());
    }
    let outside = outside(server)?;
    let faults = wanted.iter().map(|it| check(server, it, &outside).err());
    let faults = faults.enumerate();
    let faults: Vec<_> = faults.filter_map(|(at, it)| Some((at, it?))).collect();
    match faults.is_empty() {
        true => Ok(()),
        false => Err(PeerError::Several(faults)),
    }
}

/// Networks and addresses that must stay outside the tunnel: those of this host's other interfaces and routes, its
/// gateways, and the addresses from which clients connect now.
fn outside(server: &Path) -> Result<Vec<(Owner, AllowedIp)>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    // A server that is not up has no clients and no routes.
    let live = super::live(server, false).ok();
    let own = live.as_ref().map(|it| it.interface.clone());
    let own = own.unwrap_or_else(|| running::name_of(server));
    let links = netlink.links()?;
    let links = links.iter().filter(|it| it.name != own);
    let name = |index| Some(links.clone().find(|it| it.index == index)?.name.clone());
    let single = |addr: IpAddr| AllowedIp::new(addr, family_bits(addr)).ok();
    let mut outside = Vec::new();
    for it in netlink.addresses(None)? {
        let network = AllowedIp::new(it.ip, it.prefix).ok();
        outside.extend(name(it.index).map(Owner::Interface).zip(network));
    }
    for it in netlink.routes(None)? {
        if it.kind != RouteKind::Unicast {
            continue;
        }
        if it.prefix == 0 {
            let gateway = it.via.and_then(single);
            outside.extend(it.dev.and_then(name).map(Owner::Gateway).zip(gateway));
        } else if it.table == TABLE_MAIN {
            let owner = match it.dev {
                Some(dev) => name(dev),
                None => Some("several interfaces".to_owned()),
            };
            let network = AllowedIp::new(it.dst, it.prefix).ok();
            outside.extend(owner.map(Owner::Route).zip(network));
        }
    }
    for peer in live.map(|it| it.peers).unwrap_or_default() {
        let endpoint = peer.endpoint.and_then(|it| it.parse().ok());
        let addr = endpoint.map(|it: SocketAddr| it.ip());
        let owner = Owner::Outer(peer.name.unwrap_or(peer.public_key));
        outside.extend(addr.and_then(single).map(|it| (owner, it)));
    }
    outside.retain(|(_, it)| !is_special(*it));
    Ok(outside)
}

/// Reads the values of `--behind`. The word `none` stands for no networks.
pub(super) fn read(values: &[String]) -> Result<Vec<AllowedIp>, PeerError> {
    if values == ["none"] {
        return Ok(Vec::new());
    }
    let mut networks = Vec::new();
    for value in values {
        let wrong = |why: String| PeerError::Behind {
            value: value.clone(),
            why,
        };
        let network: AllowedIp = value.parse().map_err(|it| wrong(format!("{it}")))?;
        // In a table, "192.168.7.0 255.255.255.0" is two words.
        if !value.contains('/') {
            let length = if network.addr().is_ipv4() { 24 } else { 64 };
            let why = format!(
                "the prefix length is missing; write it as in {value}/{length}, or {network} for one address"
            );
            return Err(wrong(why));
        }
        if network.prefix() <= 1 {
            let why = "all addresses cannot be behind a branch; its own traffic comes here by a full tunnel anyway";
            return Err(wrong(why.to_owned()));
        }
        if is_special(network) {
            let why = "loopback, multicast and link-local addresses cannot be behind a branch";
            return Err(wrong(why.to_owned()));
        }
        if networks.contains(&network) {
            continue;
        }
        if let Some(other) = networks.iter().find(|it| overlap(**it, network)) {
            return Err(wrong(format!("overlaps {other}, which is given too")));
        }
        if networks.len() == NETWORKS_MAX {
            let why = format!("more than {NETWORKS_MAX} networks behind one branch");
            return Err(wrong(why));
        }
        let addr = value.split('/').next().and_then(|it| it.parse().ok());
        if addr != Some(network.addr()) {
            host::terminal::note(format_args!("{value} is taken as {network}"));
        }
        networks.push(network);
    }
    Ok(networks)
}

/// Refuses networks of the office that share addresses with the tunnel or with a network behind a client.
pub(crate) fn check_lan(server: &Path, lan: &[AllowedIp]) -> Result<(), PeerError> {
    check(server, lan, &inside(server)?)
}

/// The networks of a server's tunnel, and those behind its clients.
pub(crate) fn tunnel_networks(server: &Path) -> Result<Vec<AllowedIp>, PeerError> {
    Ok(inside(server)?.into_iter().map(|(_, it)| it).collect())
}

fn inside(server: &Path) -> Result<Vec<(Owner, AllowedIp)>, PeerError> {
    let mut inside = match Kind::at(server) {
        Kind::OpenVpn => openvpn::taken(server),
        _ => wireguard::taken(server),
    }?;
    inside.retain(|(owner, _)| *owner != Owner::Lan);
    Ok(inside)
}

/// Whether the network is of loopback, multicast or link-local addresses, which no router forwards.
fn is_special(network: AllowedIp) -> bool {
    let bits = network.prefix();
    match network.addr() {
        IpAddr::V4(addr) => {
            (addr.is_loopback() && bits >= 8)
                || (addr.is_multicast() && bits >= 4)
                || (addr.is_link_local() && bits >= 16)
        }
        IpAddr::V6(addr) => {
            (addr.is_loopback() && bits == 128)
                || (addr.is_multicast() && bits >= 8)
                || (addr.is_unicast_link_local() && bits >= 10)
        }
    }
}

/// Refuses networks that share addresses with one that is taken, at the server of this file. A range that stands for all
/// addresses takes none.
pub(super) fn check(
    server: &Path,
    wanted: &[AllowedIp],
    taken: &[(Owner, AllowedIp)],
) -> Result<(), PeerError> {
    for &wanted in wanted {
        let mut taken = taken.iter().filter(|(_, it)| it.prefix() > 1);
        if let Some((owner, other)) = taken.find(|(_, it)| overlap(*it, wanted)) {
            return Err(PeerError::Behind {
                value: wanted.to_string(),
                why: format!("overlaps {other}, {}", owner.words(server)),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(values: &[&str]) -> Result<Vec<AllowedIp>, PeerError> {
        read(&values.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn values_are_read_as_networks() {
        let two = networks(&["192.168.7.1/24", "fd00:7::/64", "192.168.7.0/24"]).unwrap();
        let two: Vec<String> = two.iter().map(ToString::to_string).collect();
        assert_eq!(two, ["192.168.7.0/24", "fd00:7::/64"]);
        assert_eq!(networks(&["192.168.7.1/32"]).unwrap()[0].prefix(), 32);
        assert_eq!(networks(&["none"]).unwrap(), []);
        let many: Vec<String> = (0..17).map(|it| format!("10.0.{it}.0/24")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(networks(&many[1..]).is_ok());
        for (values, words) in [
            (&["x"][..], "--behind x: "),
            (&["192.168.7.0/24", "none"], "--behind none: "),
            (&["192.168.7.0/33"], "32"),
            (
                &["192.168.7.0", "255.255.255.0"],
                "prefix length is missing; write it as in 192.168.7.0/24, or 192.168.7.0/32",
            ),
            (&["fd00:7::"], "fd00:7::/64, or fd00:7::/128"),
            (&["0.0.0.0/0"], "all addresses"),
            (&["8000::/1"], "all addresses"),
            (&["127.0.0.0/8"], "loopback"),
            (&["224.0.0.0/4"], "multicast"),
            (&["169.254.7.0/24"], "link-local"),
            (&["::1/128"], "loopback"),
            (&["ff02::/16"], "multicast"),
            (&["fe80::/10"], "link-local"),
            (
                &["10.7.0.0/16", "10.7.1.0/24"],
                "overlaps 10.7.0.0/16, which is given too",
            ),
            (&many, "more than 16"),
        ] {
            let error = networks(values).unwrap_err().to_string();
            assert!(error.contains(words), "{values:?}: {error}");
        }
    }

    #[test]
    fn a_network_that_is_taken_is_refused_with_its_owner() {
        let store = || Owner::Branch("store-3".to_owned());
        let taken = [
            (Owner::Tunnel, "10.7.0.0/24"),
            (Owner::Tunnel, "fd00:7::/64"),
            (Owner::Lan, "192.168.1.0/24"),
            (store(), "192.168.7.128/25"),
            (store(), "fd00:3::/56"),
            (store(), "0.0.0.0/0"),
        ];
        let taken = taken.map(|(owner, it)| (owner, it.parse().unwrap()));
        for (wanted, other) in [
            ("192.168.7.0/24", Some("192.168.7.128/25, behind store-3")),
            ("192.168.7.128/25", Some("192.168.7.128/25, behind store-3")),
            ("192.168.7.200/32", Some("192.168.7.128/25, behind store-3")),
            ("192.168.7.0/25", None),
            ("192.168.0.0/16", Some("192.168.1.0/24, the office's own")),
            ("192.168.1.9/32", Some("192.168.1.0/24, the office's own")),
            ("192.168.2.0/24", None),
            ("10.7.0.9/32", Some("10.7.0.0/24, the tunnel's own")),
            ("10.0.0.0/8", Some("10.7.0.0/24, the tunnel's own")),
            ("fd00:3:0:1::/64", Some("fd00:3::/56, behind store-3")),
            ("fd00:7::1/128", Some("fd00:7::/64, the tunnel's own")),
            ("fd00:4::/64", None),
            // The first 32 bits are those of 192.168.7.128.
            ("c0a8:780::/32", None),
        ] {
            let refused = check(
                Path::new("/x/office.conf"),
                &[wanted.parse().unwrap()],
                &taken,
            );
            let refused = refused.err().map(|it| it.to_string());
            match (&refused, other) {
                (Some(words), Some(other)) => {
                    let wanted = format!("--behind {wanted}: overlaps {other}");
                    assert!(words.starts_with(&wanted), "{words}");
                }
                _ => assert_eq!(refused.as_deref(), other, "{wanted}"),
            }
            let has_branch = other.is_some_and(|it| it.contains("behind store-3"));
            let command = "peer set store-3 --behind none --server /x/office.conf";
            assert_eq!(refused.is_some_and(|it| it.ends_with(command)), has_branch);
        }
    }
}
