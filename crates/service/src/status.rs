//! The report of a running tunnel about itself: one JSON document for each connection to its status socket.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

mod fields;
mod limits;
pub(crate) mod lines;
mod reach;

pub use fields::{
    CapStatus, DataplaneStatus, Field, Level, LineStatus, MeasuredStatus, Note, OrderStatus,
    PeerStatus, PipelineStatus, Status, dataplane,
};
pub(crate) use reach::expected_within;
pub use reach::{NO_CARRIER, SILENT, WAITING};

/// Directory of the status sockets, one `IFNAME.sock` for each running interface.
pub const SOCKET_DIR: &str = "/var/run/millrace";

/// The status socket of an interface.
#[must_use]
pub fn socket_path(ifname: &str) -> PathBuf {
    Path::new(SOCKET_DIR).join(format!("{ifname}.sock"))
}

impl LineStatus {
    /// The word before the name of a line in reports: the path of a peer that connects to this host is named by that
    /// peer's address.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self.name.parse::<std::net::IpAddr>() {
            Ok(_) => "path",
            Err(_) => "uplink",
        }
    }
}

/// The remedy for [`Status::scarce_caps`].
#[cfg(feature = "server")]
pub const CAP_REMEDY: &str = "raise its Cap if you may use more, or let devices use another uplink";

#[cfg(feature = "server")]
impl Status {
    /// The protocol as people write it, with the generation of AmneziaWG.
    #[must_use]
    pub fn protocol_name(&self) -> String {
        #[cfg(feature = "amnezia")]
        if let Some(generation) = &self.amnezia {
            return format!("AmneziaWG {generation}");
        }
        match self.protocol.as_str() {
            "wireguard" => "WireGuard",
            "openvpn" => "OpenVPN",
            "pptp" => "PPTP",
            other => other,
        }
        .to_owned()
    }

    /// Uplinks that have used 80 % of their allowance for the month, one sentence each.
    #[must_use]
    pub fn scarce_caps(&self) -> Vec<String> {
        let mut found = Vec::new();
        for line in self.peers.iter().flat_map(|peer| &peer.lines) {
            let Some(cap) = line
                .cap
                .as_ref()
                .filter(|it| it.left_bytes <= it.cap_bytes / 5)
            else {
                continue;
            };
            let [left, all] = [cap.left_bytes, cap.cap_bytes]
                .map(|bytes| config::decimal(bytes, 1_000_000_000, 2));
            let until = cap.renews.as_ref().map(|day| format!(" until {day}"));
            let until = until.unwrap_or_default();
            let name = &line.name;
            let words = format!("uplink {name} has {left} GB of its {all} GB left{until}");
            // Several peers are called by one uplink.
            if !found.contains(&words) {
                found.push(words);
            }
        }
        found
    }
}

impl PeerStatus {
    /// The fields that identify a peer in two documents.
    fn identity(&self) -> (&str, Option<u64>, Option<u64>) {
        (&self.public_key, self.client_id, self.connected_unix)
    }
}

/// Counts of refused messages, by reason.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Vec<(&'static str, u64)>);

impl Refusals {
    /// Starts all counters at zero, so that the status shows them before they count.
    pub fn new(reasons: impl IntoIterator<Item = &'static str>) -> Self {
        let mut refusals = Self::default();
        for reason in reasons {
            refusals.add(reason, 0);
        }
        refusals
    }

    /// Counts one more refusal.
    pub fn count(&mut self, reason: &'static str) {
        self.add(reason, 1);
    }

    fn add(&mut self, reason: &'static str, more: u64) {
        match self.0.iter_mut().find(|(of, _)| *of == reason) {
            Some((_, count)) => *count += more,
            None => self.0.push((reason, more)),
        }
    }

    /// The counts, for the status document.
    pub fn to_map(&self) -> BTreeMap<String, u64> {
        let pairs = self.0.iter();
        pairs.map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }
}

impl Status {
    /// Fills in the rates from an `earlier` document of the same daemon. New peers have none, and neither has
    /// anything after a restart of the daemon.
    pub fn fill_rates(&mut self, earlier: &Self) {
        let elapsed = self.uptime_ms.saturating_sub(earlier.uptime_ms);
        if elapsed == 0 {
            return;
        }
        let before: HashMap<_, &PeerStatus> = earlier
            .peers
            .iter()
            .map(|peer| (peer.identity(), peer))
            .collect();
        for peer in &mut self.peers {
            let before = before.get(&peer.identity()).copied();
            if let Some(before) = before {
                peer.rx_rate = rate(before.rx_bytes, peer.rx_bytes, elapsed);
                peer.tx_rate = rate(before.tx_bytes, peer.tx_bytes, elapsed);
            }
        }
        let (now, before) = (&mut self.dataplane, &earlier.dataplane);
        for (now, before) in [
            (&mut now.outbound, &before.outbound),
            (&mut now.inbound, &before.inbound),
        ] {
            now.packet_rate = rate(before.packets, now.packets, elapsed).map(|bits| bits / 8);
            now.bit_rate = rate(before.bytes, now.bytes, elapsed);
        }
        now.limits = limits::limits(now, before, elapsed);
    }
}

/// Bits a second; none when the counter went back, which happens when a peer is recreated.
fn rate(before: u64, now: u64, elapsed_ms: u64) -> Option<u64> {
    Some(now.checked_sub(before)?.checked_mul(8 * 1000)? / elapsed_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(uptime_ms: u64, rx_bytes: u64) -> Status {
        let peer = PeerStatus {
            public_key: "k".to_owned(),
            rx_bytes,
            ..PeerStatus::default()
        };
        Status {
            uptime_ms,
            peers: vec![peer],
            ..Status::default()
        }
    }

    #[test]
    fn rates_are_bits_a_second_of_the_daemons_clock() {
        let mut now = status(3500, 2_000_000);
        now.fill_rates(&status(3000, 1_000_000));
        assert_eq!(now.peers[0].rx_rate, Some(16_000_000));
        assert_eq!(now.peers[0].tx_rate, Some(0));
    }

    #[test]
    fn there_is_no_rate_across_a_restart() {
        let mut now = status(100, 5);
        now.fill_rates(&status(3000, 0));
        assert_eq!(now.peers[0].rx_rate, None);
        let mut now = status(3100, 5);
        now.fill_rates(&status(3000, 10));
        assert_eq!(now.peers[0].rx_rate, None);
    }

    #[cfg(feature = "server")]
    #[test]
    fn an_allowance_is_scarce_from_four_fifths_on() {
        let line = |used: u64| LineStatus {
            name: "lte".to_owned(),
            cap: Some(CapStatus {
                cap_bytes: 20_000_000_000,
                used_bytes: used,
                left_bytes: 20_000_000_000 - used,
                renews: Some("2026-12-14".to_owned()),
            }),
            ..LineStatus::default()
        };
        let of = |used| {
            let lines = vec![line(used), LineStatus::default()];
            let peer = PeerStatus {
                lines,
                ..PeerStatus::default()
            };
            let peers = vec![peer.clone(), peer];
            let status = Status {
                peers,
                ..Status::default()
            };
            status.scarce_caps()
        };
        assert!(of(15_999_999_999).is_empty());
        let words = "uplink lte has 3.90 GB of its 20.00 GB left until 2026-12-14";
        assert_eq!(of(16_100_000_000), [words]);
    }

    #[test]
    fn clients_of_one_name_have_rates_of_their_own() {
        let client = |id, since, rx_bytes| PeerStatus {
            name: Some("branch".to_owned()),
            client_id: Some(id),
            connected_unix: Some(since),
            rx_bytes,
            ..PeerStatus::default()
        };
        let before = Status {
            peers: vec![client(0, 5, 1000), client(1, 6, 50)],
            ..Status::default()
        };
        let mut now = Status {
            uptime_ms: 1000,
            // The second client has reconnected meanwhile.
            peers: vec![client(1, 7, 60), client(0, 5, 2000)],
            ..Status::default()
        };
        now.fill_rates(&before);
        assert_eq!(now.peers[0].rx_rate, None);
        assert_eq!(now.peers[1].rx_rate, Some(8000));
    }

    /// The page's word for the type of a field, from [`Note::kind`].
    fn kind(of: &str) -> String {
        let of = of.replace(' ', "");
        let (ty, serde) = of.split_once(';').unwrap_or((&of, ""));
        let word = |ty: &str| match ty {
            "String" => "text",
            "bool" => "boolean",
            "u8" | "u16" | "u32" | "u64" | "usize" | "f64" => "number",
            _ => "object",
        };
        let inner = |outer: &str| ty.strip_prefix(outer)?.strip_suffix('>');
        let (word, mark) = match (inner("Vec<"), inner("Option<")) {
            (Some(item), _) => (format!("{}s", word(item)), ""),
            (_, Some(value)) => (word(value).to_owned(), "?"),
            _ => (word(ty).to_owned(), ""),
        };
        word + if serde.is_empty() { mark } else { "-" }
    }

    /// The rows of a level's fields.
    fn rows<T: Level>(title: &str) -> String {
        let row = |(field, it): (&Field<T>, &Note)| {
            let metric = match it.metric {
                "" => String::new(),
                name => format!("`{name}`"),
            };
            format!(
                "| `{}` {} | {} | {metric} |\n",
                field.name,
                kind(it.kind),
                it.what
            )
        };
        let rows: String = T::FIELDS.iter().zip(T::NOTES).map(row).collect();
        format!("\n{title}\n\n| field, type | what | metric |\n|---|---|---|\n{rows}")
    }

    /// The tables of docs/status.md are those of the fields. `MILLRACE_WRITE=1 cargo test -p millrace-service
    /// status_page` writes them again.
    #[test]
    fn the_status_page_has_every_field() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/status.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (begin, end) = (
            "<!-- begin of the fields -->\n",
            "\n<!-- end of the fields -->",
        );
        let (head, rest) = page.split_once(begin).unwrap();
        let (_, tail) = rest.split_once(end).unwrap();
        let tables = [
            rows::<Status>("The tunnel:"),
            rows::<PeerStatus>("Each of `peers`:"),
            rows::<LineStatus>(
                "Each of a peer's `lines`, its uplinks; a packet that came is `accepted`, `late`, `duplicated` or `ancient`:",
            ),
            rows::<CapStatus>(
                "`cap` of an uplink, in bytes of both directions, with the headers of UDP and IP:",
            ),
            rows::<OrderStatus>("`order` of a peer, over all uplinks:"),
            rows::<DataplaneStatus>("`dataplane`:"),
            rows::<PipelineStatus>("`outbound` and `inbound` of the data plane, since the start:"),
            rows::<MeasuredStatus>("Each of the data plane's `measured`:"),
        ];
        let made = format!("{head}{begin}{}{end}{tail}", tables.concat());
        if std::env::var_os("MILLRACE_WRITE").is_some() {
            std::fs::write(path, made).unwrap();
        } else {
            assert!(
                page == made,
                "docs/status.md: MILLRACE_WRITE=1 rewrites its tables"
            );
        }
    }

    #[test]
    fn every_counter_is_documented() {
        let page = include_str!("../../../docs/status.md");
        let drops = engine::Drops::default();
        let counters = drops
            .iter()
            .map(|(name, _)| name)
            .chain(wireguard::Dropped::ALL.map(wireguard::Dropped::name))
            .chain(openvpn::session::Dropped::REASONS)
            .chain(openvpn::session::CloseReason::REFUSALS);
        #[cfg(feature = "kernel")]
        let counters = counters.chain(kernelspace::DROPS);
        let missing: Vec<_> = counters
            .filter(|name| !page.contains(&format!("`{name}`")))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn documents_of_other_versions_are_read() {
        let status: Status = serde_json::from_str(r#"{"interface":"wg0","future":1}"#).unwrap();
        assert_eq!(status.interface, "wg0");
    }
}
