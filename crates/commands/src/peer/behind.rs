//! Networks behind branches, which no two of them, nor the office, may share.

use super::{PeerError, place};
use config::free::overlap;
use config::home::NETWORKS_MAX;
use config::types::AllowedIp;
use std::net::IpAddr;
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
        }
    }
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
