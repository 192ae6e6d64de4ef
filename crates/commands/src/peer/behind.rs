//! Networks behind branches, which no two of them, nor the office, may share.

use super::issue::New;
use super::{PeerError, elsewhere, openvpn, place, wireguard};
use config::free::overlap;
use config::home::NETWORKS_MAX;
use config::kind::Kind;
use config::types::{AllowedIp, family_bits};
use netio::netlink::{Netlink, NetlinkError, RouteKind, TABLE_MAIN};
use service::running;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The owner of a network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Owner {
    /// A client, by its name.
    Branch(String),
    /// A client that the same command adds, by its name.
    New(String),
    /// Another server of this host, by its name, and perhaps the client of it.
    Server(String, Option<String>),
    /// A name server of the office.
    NameServer,
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
    /// The owner, and what to do, in words. `server` is the server's file; `rest` has the owner's networks that may stay.
    fn words(&self, server: &Path, rest: &BTreeSet<AllowedIp>) -> String {
        let rest: Vec<String> = rest.iter().map(ToString::to_string).collect();
        let rest = match rest.is_empty() {
            true => "none".to_owned(),
            false => rest.join(" --behind "),
        };
        match self {
            Self::Branch(name) => format!(
                "behind {name}; choose another network, or take that one away first: millrace peer set {name} --behind \
                 {rest}{}",
                place::option(server)
            ),
            Self::New(name) => {
                format!("behind {name}, which is new too; choose another network")
            }
            Self::Server(server, Some(name)) => {
                format!("behind {name} of the server {server}; choose another network")
            }
            Self::Server(server, None) => {
                format!("the tunnel's addresses of the server {server}; choose another network")
            }
            Self::NameServer => {
                "a name server of the office (/etc/resolv.conf, or DNS in the server's file); choose a network without it"
                    .to_owned()
            }
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
    // A running server's networks are routes, too: its name and its branch's come first.
    let mut taken = elsewhere::taken(server);
    taken.extend(outside(server)?);
    let faults = wanted.iter().map(|it| check(server, it, &taken).err());
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
        if network.prefix() <= 1 {
            let why = "all addresses cannot be behind a branch; its own traffic comes here by a full tunnel anyway";
            return Err(wrong(why.to_owned()));
        }
        if is_special(network) {
            let why =
                "loopback, multicast, link-local and reserved addresses cannot be behind a branch";
            return Err(wrong(why.to_owned()));
        }
        // In a table, "192.168.7.0 255.255.255.0" is two words.
        if !value.contains('/') {
            let length = if network.addr().is_ipv4() { 24 } else { 64 };
            let why = format!(
                "the prefix length is missing; write it as in {value}/{length}, or {network} for one address"
            );
            return Err(wrong(why));
        }
        if network.addr().is_ipv6() && network.prefix() < WIDEST_V6 {
            let why = format!("no branch has an IPv6 network wider than /{WIDEST_V6}");
            return Err(wrong(why));
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

/// Refuses name servers behind a client, and addresses of the tunnel that are not the server's own.
pub(crate) fn check_dns(server: &Path, dns: &[IpAddr]) -> Result<(), PeerError> {
    if dns.is_empty() {
        return Ok(());
    }
    let (own, has_lan) = match Kind::at(server) {
        Kind::OpenVpn => openvpn::own(server),
        _ => wireguard::own(server),
    }?;
    let inside = inside(server)?;
    for one in dns.iter().filter(|it| !own.contains(it)) {
        let mut inside = inside.iter().filter(|(_, it)| it.prefix() > 1);
        let Some((owner, network)) = inside.find(|(_, it)| it.contains(*one)) else {
            continue;
        };
        let whose = match owner {
            // A server without networks at home may have a private one in a branch, as in [`elsewhere::name_servers`].
            Owner::Branch(name) if !has_lan && host::is_private(*one) => {
                host::terminal::note(format_args!(
                    "DNS {one} is in {network}, behind {name}: clients find it only while {name} is connected"
                ));
                continue;
            }
            Owner::Branch(name) => {
                format!("behind {name}, where others find it only while {name} is connected")
            }
            _ => "the tunnel's own addresses, of which only the server's may be given".to_owned(),
        };
        return Err(PeerError::Behind {
            value: one.to_string(),
            why: format!("is in {network}, {whose}; choose a name server of the office"),
        });
    }
    Ok(())
}

/// The networks of a server's tunnel, and those behind its clients.
pub(crate) fn tunnel_networks(server: &Path) -> Result<Vec<AllowedIp>, PeerError> {
    Ok(inside(server)?.into_iter().map(|(_, it)| it).collect())
}

/// The faults of networks behind new clients, each with the client's number, for a table that has other faults, too.
pub(super) fn faults(server: &Path, new: &[New<'_>]) -> Result<Vec<(usize, PeerError)>, PeerError> {
    let mut taken = elsewhere::taken(server);
    taken.extend(outside(server)?);
    taken.extend(of_file(server)?);
    let mut faults = Vec::new();
    for (number, new) in new.iter().enumerate() {
        match check(server, new.behind, &taken) {
            Ok(()) => {
                let owner = Owner::New(new.name.to_owned());
                taken.extend(new.behind.iter().map(|it| (owner.clone(), *it)));
            }
            Err(error) => faults.push((number, error)),
        }
    }
    Ok(faults)
}

/// Networks that a server's file names, with their owners.
fn of_file(server: &Path) -> Result<Vec<(Owner, AllowedIp)>, PeerError> {
    match Kind::at(server) {
        Kind::OpenVpn => openvpn::taken(server),
        _ => wireguard::taken(server),
    }
}

pub(super) fn inside(server: &Path) -> Result<Vec<(Owner, AllowedIp)>, PeerError> {
    let mut inside = of_file(server)?;
    inside.retain(|(owner, _)| !matches!(owner, Owner::Lan | Owner::NameServer));
    Ok(inside)
}

/// Ranges of loopback, multicast, link-local and reserved addresses, which no router forwards to a network.
const SPECIAL: [&str; 9] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "240.0.0.0/4",
    // Unspecified, loopback, and IPv4 addresses as IPv6.
    "::/80",
    // NAT64.
    "64:ff9b::/96",
    "fe80::/10",
    "ff00::/8",
];

/// The widest IPv6 network behind a branch, in bits.
const WIDEST_V6: u8 = 16;

/// Whether the network has addresses of a [`SPECIAL`] range.
fn is_special(network: AllowedIp) -> bool {
    let is_in = |it: &str| it.parse().is_ok_and(|it: AllowedIp| overlap(it, network));
    SPECIAL.into_iter().any(is_in)
}

/// Refuses networks that share addresses with one that is taken, at the server of this file. A range that stands for all
/// addresses takes none.
pub(super) fn check(
    server: &Path,
    wanted: &[AllowedIp],
    taken: &[(Owner, AllowedIp)],
) -> Result<(), PeerError> {
    for &one in wanted {
        let mut others = taken.iter().filter(|(_, it)| it.prefix() > 1);
        if let Some((owner, other)) = others.find(|(_, it)| overlap(*it, one)) {
            let is_free = |it: &AllowedIp| !wanted.iter().any(|one| overlap(*it, *one));
            let rest = taken.iter().filter(|(it, _)| it == owner);
            let rest = rest.map(|(_, it)| *it).filter(is_free).collect();
            return Err(PeerError::Behind {
                value: one.to_string(),
                why: format!("overlaps {other}, {}", owner.words(server, &rest)),
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
            (&["255.255.255.255"], "reserved"),
            (&["240.0.0.0/4"], "reserved"),
            (&["0.1.2.0/24"], "reserved"),
            (&["192.0.0.0/2"], "reserved"),
            (&["64:ff9b::/96"], "reserved"),
            (&["64:ff9b::a00:0/104"], "reserved"),
            (&["2000::/3"], "wider than /16"),
            (&["fd00::/8"], "wider than /16"),
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
            (
                Owner::Server("home".to_owned(), Some("br04".to_owned())),
                "192.168.104.0/24",
            ),
            (Owner::Server("home".to_owned(), None), "10.9.0.0/24"),
            (Owner::NameServer, "192.0.2.53/32"),
            (Owner::New("br08".to_owned()), "192.168.108.0/24"),
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
            (
                "192.168.104.9/32",
                Some("192.168.104.0/24, behind br04 of the server home; choose another"),
            ),
            (
                "10.9.0.0/25",
                Some("10.9.0.0/24, the tunnel's addresses of the server home"),
            ),
            (
                "192.0.2.0/24",
                Some("192.0.2.53/32, a name server of the office"),
            ),
            (
                "192.168.108.0/24",
                Some("192.168.108.0/24, behind br08, which is new too"),
            ),
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
            let command = "peer set store-3 --behind ";
            assert_eq!(refused.is_some_and(|it| it.contains(command)), has_branch);
        }
    }

    #[test]
    fn the_remedy_for_an_overlap_keeps_the_branch_s_other_networks() {
        let one = |name: &str, it: &str| (Owner::Branch(name.to_owned()), it.parse().unwrap());
        // A client with a new certificate has its networks twice.
        let taken = [
            one("br05", "192.168.5.0/24"),
            one("br05", "fd00:5::/64"),
            one("br05", "192.168.55.0/24"),
            one("br05", "192.168.55.0/24"),
            one("br06", "192.168.6.0/24"),
        ];
        for (wanted, rest) in [
            (
                &["192.168.5.0/24"][..],
                "192.168.55.0/24 --behind fd00:5::/64",
            ),
            (&["192.168.5.7/32", "192.168.55.0/24"], "fd00:5::/64"),
            (&["192.168.6.0/24"], "none"),
        ] {
            let wanted: Vec<_> = wanted.iter().map(|it| it.parse().unwrap()).collect();
            let refused = check(Path::new("/x/office.conf"), &wanted, &taken).unwrap_err();
            let words = refused.to_string();
            assert!(
                words.ends_with(&format!(" --behind {rest} --server /x/office.conf")),
                "{words}"
            );
        }
    }
}
