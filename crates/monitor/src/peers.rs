//! The peers of a tunnel, one page at a time.

use std::cmp::Reverse;

use config::types::short_key;
use serde::Serialize;
use service::status::{PeerStatus, Status};

use crate::document::{Details, details};
use crate::events::called;
use crate::http::Head;

/// Peers per page.
const COUNT: usize = 50;

/// Maximum number of ranges of a peer that are shown.
const RANGES: usize = 8;

/// The selection of peers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Wanted {
    /// The tunnel's name.
    pub tunnel: String,
    /// Number of peers to skip.
    pub from: usize,
    /// Text in a name, key or address to search for; empty matches all.
    pub find: String,
    /// The order: `heard`, `rx`, `tx`; anything else means by name.
    pub sort: String,
}

impl Wanted {
    /// Reads the selection from a request.
    #[must_use]
    pub fn new(head: &Head) -> Self {
        let text = |name| head.query(name).unwrap_or_default();
        Self {
            tunnel: text("tunnel"),
            from: text("from").parse().unwrap_or(0),
            find: text("find").to_lowercase(),
            sort: text("sort"),
        }
    }
}

/// One page of peers.
#[derive(Debug, Serialize)]
pub struct Page {
    /// Number of all peers of the tunnel.
    total: usize,
    /// Number of peers that match.
    found: usize,
    peers: Vec<Peer>,
}

#[derive(Debug, Serialize)]
struct Peer {
    /// The peer's ID within its tunnel.
    id: String,
    /// With WireGuard, the start of the key follows a name.
    name: String,
    ranges: String,
    status: Details,
}

impl Page {
    /// Selects peers of a tunnel.
    #[must_use]
    pub fn new(status: &Status, wanted: &Wanted) -> Self {
        let found = status.peers.iter().map(|it| (called(it), it));
        let mut found: Vec<(String, &PeerStatus)> = found
            .filter(|(name, it)| is_found(name, it, &wanted.find))
            .collect();
        match wanted.sort.as_str() {
            "heard" => found.sort_by_key(|(_, it)| it.last_heard_age.unwrap_or(u64::MAX)),
            "rx" => found.sort_by_key(|(_, it)| Reverse(it.rx_rate)),
            "tx" => found.sort_by_key(|(_, it)| Reverse(it.tx_rate)),
            _ => found.sort_by(|a, b| a.0.cmp(&b.0)),
        }
        Self {
            total: status.peers.len(),
            found: found.len(),
            peers: found
                .into_iter()
                .skip(wanted.from)
                .take(COUNT)
                .map(peer)
                .collect(),
        }
    }
}

fn is_found(name: &str, peer: &PeerStatus, find: &str) -> bool {
    let within = |text: &str| text.to_lowercase().contains(find);
    find.is_empty()
        || within(name)
        || within(&peer.public_key)
        || peer.endpoint.as_deref().is_some_and(within)
        || peer.allowed_ips.iter().any(|it| within(it))
}

fn peer((name, it): (String, &PeerStatus)) -> Peer {
    let mut ranges = it
        .allowed_ips
        .iter()
        .take(RANGES)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if it.allowed_ips.len() > RANGES {
        ranges += ", \u{2026}";
    }
    Peer {
        id: match it.client_id {
            Some(id) => format!("{id} {}", it.connected_unix.unwrap_or(0)),
            None if it.public_key.is_empty() => name.clone(),
            None => it.public_key.clone(),
        },
        name: match it.public_key.is_empty() || it.public_key == name {
            true => name,
            false => format!("{name} ({})", short_key(&it.public_key)),
        },
        ranges,
        status: details(it),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_at_a_time_in_the_order_that_is_wanted() {
        let peer = |number: u64| PeerStatus {
            public_key: format!("key{number:04}"),
            allowed_ips: vec![format!("10.0.{}.{}/32", number / 256, number % 256)],
            rx_rate: Some(number),
            ..PeerStatus::default()
        };
        let status = Status {
            peers: (0..1000).map(peer).collect(),
            ..Status::default()
        };
        let page = |from, find: &str, sort: &str| {
            let wanted = Wanted {
                from,
                find: find.to_owned(),
                sort: sort.to_owned(),
                ..Wanted::default()
            };
            Page::new(&status, &wanted)
        };
        let first = page(0, "", "name");
        assert_eq!(
            (first.total, first.found, first.peers.len()),
            (1000, 1000, COUNT)
        );
        assert_eq!(first.peers[0].name, "key0000");
        assert_eq!(page(990, "", "").peers.len(), 10);
        assert_eq!(page(usize::MAX, "", "").peers.len(), 0);
        assert_eq!(page(0, "", "rx").peers[0].name, "key0999");
        let found = page(0, "10.0.1.7/", "");
        assert_eq!((found.found, found.peers[0].name.as_str()), (1, "key0263"));
        assert_eq!(page(0, "key001", "").found, 10);
    }

    #[test]
    fn a_named_peer_has_its_short_key_beside_the_name_and_is_found_by_both() {
        let peer = |key: &str, name: Option<&str>| PeerStatus {
            public_key: key.to_owned(),
            name: name.map(str::to_owned),
            ..PeerStatus::default()
        };
        let status = Status {
            peers: vec![
                peer("abcdefghijk=", Some("store-7")),
                peer("bcdefghijkl=", Some("store-7")),
                peer("cdefghijklm=", None),
                peer("", Some("store-8")),
            ],
            ..Status::default()
        };
        let page = |find: &str| {
            let wanted = Wanted {
                find: find.to_owned(),
                ..Wanted::default()
            };
            let peers = Page::new(&status, &wanted).peers.into_iter();
            peers.map(|it| (it.id, it.name)).collect::<Vec<_>>()
        };
        let row = |id: &str, name: &str| (id.to_owned(), name.to_owned());
        let named = [
            row("abcdefghijk=", "store-7 (abcdefgh\u{2026})"),
            row("bcdefghijkl=", "store-7 (bcdefghi\u{2026})"),
        ];
        assert_eq!(page("store-7"), named);
        assert_eq!(page("bcdefghijk"), named);
        assert_eq!(page("abcd"), named[..1]);
        assert_eq!(page("lm="), [row("cdefghijklm=", "cdefghijklm=")]);
        assert_eq!(page("store-8"), [row("store-8", "store-8")]);
    }

    #[test]
    fn a_peer_says_when_its_last_packet_came_whatever_the_age_of_its_keys() {
        let peer = |key: &str, heard, renewed| PeerStatus {
            public_key: key.to_owned(),
            last_heard_age: heard,
            latest_handshake_age: renewed,
            ..PeerStatus::default()
        };
        let status = Status {
            peers: vec![
                peer("a", Some(9), Some(9)),
                peer("b", Some(1), Some(3000)),
                peer("c", None, None),
            ],
            ..Status::default()
        };
        let wanted = Wanted {
            sort: "heard".to_owned(),
            ..Wanted::default()
        };
        let peers = Page::new(&status, &wanted).peers;
        let age = |it: &Peer| it.status["last_heard_age"].as_u64();
        let told: Vec<_> = peers.iter().map(|it| (it.name.as_str(), age(it))).collect();
        assert_eq!(told, [("b", Some(1)), ("a", Some(9)), ("c", None)]);
    }
}
