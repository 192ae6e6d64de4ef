//! The document for the page: everything that has changed since the document before.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use service::status::{Level, LineStatus, PeerStatus, Status};

use crate::events::{Event, called};
use crate::health::{State, active, health, peers};
use crate::overview::{Overview, Rates};
use crate::sample::GuardView;
use crate::strips::Strips;

/// Maximum number of lines of a tunnel in the document: a server may have a thousand clients with several each.
pub(crate) const LINES: usize = 32;

/// Maximum number of tunnels in the document that have a file but are not up.
const KNOWN: usize = 64;

/// Content of the answer to a poll of the page.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    /// The host's name.
    pub host: &'a str,
    /// The program's version.
    pub version: &'static str,
    /// Whether the browser has logged in, and can log out.
    pub session: bool,
    /// Whether the document is complete, and replaces all earlier ones.
    first: bool,
    /// Seconds since 1970.
    time: u64,
    /// Seconds since the front's start; the next document has the changes since this moment.
    moment: u64,
    tunnels: Vec<Tunnel<'a>>,
    guard: Option<&'a GuardView>,
    /// The paths of devices; `None` if unchanged since the last document.
    steering: Option<&'a Value>,
    limits: &'a [String],
    cores: &'a [u8],
    figures: Vec<(String, String)>,
    events: Vec<&'a Event>,
    rates: BTreeMap<&'a str, Vec<Rates>>,
    error: Option<&'a str>,
}

#[derive(Debug, Default, Serialize)]
struct Tunnel<'a> {
    name: &'a str,
    kind: String,
    state: &'static str,
    words: String,
    peers: usize,
    active: usize,
    drops: u64,
    cipher: &'a str,
    /// Whether packets to the Internet can leave through the tunnel, so that a rule may name it.
    leads: bool,
    lines: Vec<Line<'a>>,
    /// The tunnel's status; `None` if it is not up.
    status: Option<Details>,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    peer: String,
    /// The states of the seconds since the document before, a letter each.
    strip: String,
    status: &'a LineStatus,
}

/// Fields of one level of the status.
pub type Details = BTreeMap<&'static str, Value>;

/// Fields that the details leave out: a server has many clients, and these have many networks.
const LONG: [&str; 3] = ["peers", "lines", "allowed_ips"];

/// The fields of a level, without those that may be long.
pub fn details<T: Level>(level: &T) -> Details {
    let short = T::FIELDS.iter().filter(|it| !LONG.contains(&it.name));
    short.map(|it| (it.name, it.value(level))).collect()
}

impl<'a> Document<'a> {
    /// The document of changes since the moment `since` and the event `event`.
    #[must_use]
    pub fn new(
        overview: &'a Overview,
        host: &'a str,
        session: bool,
        since: u64,
        event: u64,
    ) -> Self {
        let moment = overview.latest();
        // The page's moment comes from an earlier start of this program.
        let first = since == 0 || since > moment;
        let (since, event) = if first { (0, 0) } else { (since, event) };
        let running = |it| running(it, &overview.strips, since);
        let mut tunnels: Vec<Tunnel<'a>> = overview.sample.tunnels.iter().map(running).collect();
        tunnels.extend(ended(overview));
        tunnels.extend(known(overview));
        Self {
            host,
            version: env!("CARGO_PKG_VERSION"),
            session,
            first,
            time: overview.time,
            moment,
            tunnels,
            guard: overview.sample.guard.as_ref(),
            steering: overview.steering_since(since),
            limits: &overview.limits,
            cores: &overview.loads,
            figures: figures(overview),
            events: overview.events.since(event).collect(),
            rates: overview.rates_since(since),
            error: overview.sample.trouble.as_deref(),
        }
    }
}

fn running<'a>(status: &'a Status, strips: &Strips, since: u64) -> Tunnel<'a> {
    let (state, words) = health(status);
    let plane = &status.dataplane;
    let cipher = match plane.cipher.is_empty() {
        // With a single peer, the tunnel's cipher is the peer's.
        true => match &status.peers[..] {
            [peer] => peer.cipher.as_deref().unwrap_or_default(),
            _ => "",
        },
        false => &plane.cipher,
    };
    let pairs = |peer: &'a PeerStatus| peer.lines.iter().map(move |line| (peer, line));
    let lines = status.peers.iter().flat_map(pairs).take(LINES);
    let line = |(peer, it): (&'a PeerStatus, &'a LineStatus)| {
        let key = (status.interface.clone(), called(peer), it.name.clone());
        Line {
            strip: strips.since(since, &key),
            peer: key.1,
            status: it,
        }
    };
    Tunnel {
        name: &status.interface,
        kind: kind(status),
        state: state.name(),
        words,
        peers: peers(status).count(),
        active: active(status),
        drops: plane
            .drops
            .values()
            .fold(0, |sum, it| sum.saturating_add(*it)),
        cipher,
        leads: leads(status),
        lines: lines.map(line).collect(),
        status: Some(details(status)),
    }
}

/// Whether packets to the Internet can leave through a tunnel. Those to a server's clients cannot.
fn leads(status: &Status) -> bool {
    let is_wide = |it: &String| it.ends_with("/0") || it.ends_with("/1");
    match status.protocol.as_str() {
        "wireguard" => {
            let mut networks = status.peers.iter().flat_map(|it| &it.allowed_ips);
            networks.any(is_wide)
        }
        _ => status.role.as_deref() != Some("server"),
    }
}

/// Protocol and role, as people write them.
fn kind(status: &Status) -> String {
    let protocol = status.protocol_name();
    match &status.role {
        Some(role) => format!("{protocol} {role}"),
        None => protocol,
    }
}

fn ended(overview: &Overview) -> impl Iterator<Item = Tunnel<'_>> {
    overview.ended().iter().map(|(name, ended)| Tunnel {
        name,
        state: State::Ended.name(),
        words: format!("ended {} s ago", overview.time.saturating_sub(*ended)),
        ..Tunnel::default()
    })
}

fn known(overview: &Overview) -> impl Iterator<Item = Tunnel<'_>> {
    let is_told = |name: &str| {
        overview.ended().contains_key(name)
            || overview
                .sample
                .tunnels
                .iter()
                .any(|it| it.interface == name)
    };
    let others = overview
        .sample
        .known
        .iter()
        .filter(move |it| !is_told(&it.name));
    others.take(KNOWN).map(|it| Tunnel {
        name: &it.name,
        kind: it.protocol.clone(),
        state: State::Down.name(),
        words: "not up".to_owned(),
        ..Tunnel::default()
    })
}

/// The box's figures, in words.
fn figures(overview: &Overview) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if let Some((now, most)) = overview.figures.clock {
        rows.push((
            "Clock".to_owned(),
            format!("{} of {} MHz", now / 1000, most / 1000),
        ));
    }
    for (number, (name, celsius)) in (1..).zip(&overview.figures.temperatures) {
        // Two sensors with one name would become one row.
        let others = overview
            .figures
            .temperatures
            .iter()
            .filter(|it| it.0 == *name);
        let name = match others.count() {
            1 => format!("Temperature {name}"),
            _ => format!("Temperature {number}: {name}"),
        };
        rows.push((name, format!("{celsius:.0} \u{b0}C")));
    }
    if let Some((free, all)) = overview.figures.memory {
        rows.push((
            "Memory".to_owned(),
            format!("{} of {} MiB free", free >> 20, all >> 20),
        ));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::day::Day;
    use crate::figures::Figures;
    use crate::sample::{Known, Sample};
    use serde_json::json;
    use std::time::{Duration, Instant};

    /// A rule may name only tunnels that lead to the Internet.
    #[test]
    fn servers_and_tunnels_to_an_office_lead_nowhere() {
        for (protocol, role, networks, is) in [
            ("wireguard", None, vec!["10.0.0.0/8"], false),
            ("wireguard", None, vec!["10.8.0.2/32", "fd00::/8"], false),
            ("wireguard", None, vec!["0.0.0.0/0", "::/0"], true),
            ("wireguard", None, vec!["0.0.0.0/1", "128.0.0.0/1"], true),
            ("openvpn", Some("client"), vec![], true),
            ("openvpn", Some("server"), vec![], false),
            ("pptp", Some("server"), vec![], false),
        ] {
            let peer = PeerStatus {
                allowed_ips: networks.into_iter().map(str::to_owned).collect(),
                ..PeerStatus::default()
            };
            let status = Status {
                protocol: protocol.to_owned(),
                role: role.map(str::to_owned),
                peers: vec![peer],
                ..Status::default()
            };
            assert_eq!(leads(&status), is, "{status:?}");
        }
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let begin = Instant::now();
        let mut overview = Overview::new(begin, Day::default());
        for second in 1..=3 {
            let mut status = Status {
                interface: "wg0".to_owned(),
                protocol: "wireguard".to_owned(),
                uptime_ms: second * 1000,
                ..Status::default()
            };
            status.peers = (0..1000).map(|_| PeerStatus::default()).collect();
            let known = |name: &str| Known {
                name: name.to_owned(),
                protocol: "OpenVPN".to_owned(),
            };
            let sample = Sample {
                tunnels: vec![status],
                known: vec![known("wg0"), known("office")],
                steering: json!({"warnings": []}),
                ..Sample::default()
            };
            overview.observe(
                sample,
                Figures::default(),
                begin + Duration::from_secs(second),
                1000 + second,
            );
        }
        let tell = |since| {
            serde_json::to_value(Document::new(&overview, "router", false, since, 0)).unwrap()
        };
        let first = tell(0);
        assert_eq!(first["first"], true);
        assert_eq!(first["rates"]["wg0"].as_array().unwrap().len(), 3);
        assert_eq!(first["moment"], 3);
        assert_eq!(first["tunnels"][0]["peers"], 1000);
        assert_eq!(first["tunnels"][1]["name"], "office");
        assert_eq!(first["tunnels"].as_array().unwrap().len(), 2);
        // The document does not list a thousand peers.
        assert!(first.to_string().len() < 2000, "{first}");
        let second = tell(2);
        assert_eq!(second["rates"]["wg0"], serde_json::json!([[3, 0, 0]]));
        assert_eq!(second["first"], false);
        assert!(first["steering"].is_object() && second["steering"].is_null());
        // The page knew an earlier start of the program.
        assert_eq!(tell(500)["first"], true);
    }
}
