//! Turns samples into alerts, for programs and web addresses that the owner names.

use std::collections::BTreeMap;

use config::alerts::Kind;
use serde::Deserialize;
use serde_json::json;
use service::status::Status;

use crate::events::{called, few, find_changes};
use crate::health::many;
use crate::sample::Sample;

/// Maximum length of an alert's text, in characters. The JSON stays below 4 KiB, which a pipe takes at once.
const TEXT_MAX: usize = 512;

/// Maximum length of an alert's name, in characters.
const NAME_MAX: usize = 128;

/// Seconds between two alerts about refused packets.
const REFUSED_PAUSE: u64 = 600;

/// Days before an end at which an alert tells it.
const DAYS: [u64; 4] = [30, 7, 1, 0];

/// Seconds of a day.
const DAY: u64 = 24 * 3600;

/// Maximum number of ends that are remembered although no tunnel has them now.
const ENDS_MAX: usize = 4096;

/// Seconds for which a tunnel that cannot be read, as on a busy machine, counts as running.
const UNREAD_MAX: u64 = 60;

/// Protocol of a forward, its tunnel, its device and the port there.
type Place = (String, String, String, Option<u16>);

/// A forwarded port, as `/run/millrace/forward.json` describes it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Port {
    /// The tunnel.
    pub through: String,
    /// The device that gets the packets.
    pub to: String,
    /// `udp`, `tcp` or both.
    pub protocols: Vec<String>,
    /// `open`, `asking` or `refused`.
    pub state: String,
    /// The public port, while it is open.
    pub port: Option<u16>,
    /// The port at the device, while it is open.
    pub device_port: Option<u16>,
    /// The end of the provider's promise, in seconds since 1970.
    pub until_unix: Option<u64>,
}

/// An alert.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Alert {
    /// The kind.
    pub kind: Kind,
    /// The tunnel; empty for none.
    pub tunnel: String,
    /// The uplink, peers or device; empty for none.
    pub name: String,
    /// The event, in words.
    pub text: String,
    /// Seconds since 1970.
    pub time: u64,
    /// The forwarded port.
    pub port: Option<u16>,
}

impl Alert {
    /// An alert of this kind. Other programs' and strangers' names in it lose control characters, and are cut.
    #[must_use]
    pub fn new(kind: Kind, tunnel: &str, name: &str, text: &str, time: u64) -> Self {
        let plain = |text: &str, most| -> String {
            let printable = |it: char| if it.is_control() { ' ' } else { it };
            text.chars().take(most).map(printable).collect()
        };
        Self {
            kind,
            tunnel: plain(tunnel, NAME_MAX),
            name: plain(name, NAME_MAX),
            text: plain(text, TEXT_MAX),
            time,
            port: None,
        }
    }

    /// The alert as one line of JSON, without a line end. `host` is this host's name.
    #[must_use]
    pub fn to_json(&self, host: &str) -> String {
        let mut document = json!({
            "event": self.kind.name(),
            "tunnel": self.tunnel,
            "name": self.name,
            "text": self.text,
            "time": self.time,
            "host": host,
        });
        if let Some(port) = self.port {
            document["port"] = port.into();
        }
        document.to_string()
    }
}

/// Finds alerts by comparing each sample with the one before.
#[derive(Debug, Default)]
pub struct Watcher {
    before: Option<Sample>,
    /// For each tunnel, peer and end: the number of [`DAYS`] that were told, and the time of the last sample with it.
    ends: BTreeMap<(String, String, u64), (usize, u64)>,
    /// Tunnels that cannot be read, and since when.
    unread: BTreeMap<String, u64>,
    /// Refused packets that guard and policy have counted.
    refused: [Option<u64>; 2],
    /// Refused packets that were not told yet, and the time of the last alert about them.
    untold: (u64, Option<u64>),
    ports: BTreeMap<Place, u16>,
}

impl Watcher {
    /// The alerts of a new sample. `refused` counts packets that the policy has refused, and `ports` are the forwarded
    /// ports. The first sample makes no alerts but those of ports and ends.
    pub fn look(
        &mut self,
        mut now: Sample,
        refused: Option<u64>,
        ports: &[Port],
        time: u64,
    ) -> Vec<Alert> {
        let mut alerts = Vec::new();
        if let Some(before) = self.before.take() {
            self.keep_unread(&before.tunnels, &mut now, time);
            find_changes(&before, &now, &mut |it| {
                let alert = |kind| Alert::new(kind, &it.tunnel, &it.name, &it.text, time);
                alerts.extend(it.kind.map(alert));
            });
        }
        for tunnel in &now.tunnels {
            self.look_at_ends(tunnel, time, &mut alerts);
        }
        if self.ends.len() > ENDS_MAX {
            self.ends.retain(|_, (_, seen)| *seen == time);
        }
        let guard = now.guard.as_ref().and_then(|it| it.refused);
        alerts.extend(self.look_at_refused([guard, refused], time));
        self.look_at_ports(ports, time, &mut alerts);
        self.before = Some(now);
        alerts
    }

    /// Adds tunnels of before that cannot be read now, for [`UNREAD_MAX`] seconds.
    fn keep_unread(&mut self, before: &[Status], now: &mut Sample, time: u64) {
        let Sample {
            tunnels,
            trouble,
            unread,
            ..
        } = now;
        let all = trouble.is_some() && unread.is_empty();
        self.unread.retain(|name, _| all || unread.contains(name));
        for tunnel in before {
            let name = &tunnel.interface;
            let is_read = tunnels.iter().any(|it| it.interface == *name);
            if is_read || !all && !unread.contains(name) {
                continue;
            }
            let since = *self.unread.entry(name.clone()).or_insert(time);
            // The clock may be set back.
            if time.abs_diff(since) < UNREAD_MAX {
                tunnels.push(tunnel.clone());
            }
        }
    }

    /// Tells certificates and lists that end soon.
    fn look_at_ends(&mut self, status: &Status, time: u64, alerts: &mut Vec<Alert>) {
        let tunnel = &status.interface;
        if let Some(left) = self.is_news(tunnel, "", status.expires_unix, time) {
            let text = format!(
                "{tunnel}: a certificate or a revocation list {left}; `millrace status {tunnel}` shows the remedy"
            );
            alerts.push(Alert::new(Kind::EndsSoon, tunnel, "", &text, time));
        }
        let mut names = Vec::new();
        let mut last = String::new();
        for peer in &status.peers {
            let name = called(peer);
            if let Some(left) = self.is_news(tunnel, &name, peer.expires_unix, time) {
                names.push(name);
                last = left;
            }
        }
        let named = few(&names);
        let text = match names.len() {
            0 => return,
            1 => format!("{tunnel}: the certificate of {named} {last}"),
            count => format!(
                "{tunnel}: {count} clients' certificates end soon; `millrace status {tunnel}` names them"
            ),
        };
        alerts.push(Alert::new(Kind::EndsSoon, tunnel, &named, &text, time));
    }

    /// The time that is left until an end, in words, if it must be told now.
    fn is_news(&mut self, tunnel: &str, peer: &str, end: Option<u64>, time: u64) -> Option<String> {
        let end = end?;
        let left = end.saturating_sub(time);
        let passed = DAYS.iter().filter(|days| left <= **days * DAY).count();
        if passed == 0 {
            return None;
        }
        // Clients may share a name.
        let key = (tunnel.to_owned(), peer.to_owned(), end);
        let (told, seen) = self.ends.entry(key).or_default();
        *seen = time;
        if *told >= passed {
            return None;
        }
        *told = passed;
        Some(match left / DAY {
            _ if left == 0 => "has ended".to_owned(),
            0 => "ends in less than a day".to_owned(),
            days => format!("ends in {}", many(days as usize, "day")),
        })
    }

    /// Tells newly refused packets, at most once in [`REFUSED_PAUSE`].
    fn look_at_refused(&mut self, refused: [Option<u64>; 2], time: u64) -> Option<Alert> {
        for (before, now) in self.refused.iter_mut().zip(refused) {
            let Some(now) = now else { continue };
            if let Some(before) = before.replace(now) {
                // A counter that is smaller than before was made anew.
                self.untold.0 += now.checked_sub(before).unwrap_or(now);
            }
        }
        let (count, last) = self.untold;
        // The clock may be set back.
        let is_soon = last.is_some_and(|last| time.abs_diff(last) < REFUSED_PAUSE);
        if count == 0 || is_soon {
            return None;
        }
        self.untold = (0, Some(time));
        let text = format!(
            "guard and policy refused {} of the LAN",
            many(count as usize, "packet")
        );
        Some(Alert::new(Kind::LeakRefused, "", "", &text, time))
    }

    fn look_at_ports(&mut self, ports: &[Port], time: u64, alerts: &mut Vec<Alert>) {
        let mut open = BTreeMap::new();
        for port in ports {
            let is_open = port.state == "open" && port.until_unix.is_none_or(|it| it > time);
            let Some(number) = port.port.filter(|_| is_open) else {
                continue;
            };
            for protocol in &port.protocols {
                let (through, to) = (port.through.clone(), port.to.clone());
                open.insert((protocol.clone(), through, to, port.device_port), number);
            }
        }
        let before = std::mem::replace(&mut self.ports, open.clone());
        let lost = before.iter().filter(|(place, _)| !open.contains_key(place));
        let new = open
            .iter()
            .filter(|(place, it)| before.get(place) != Some(it));
        tell_ports(
            Kind::PortLost,
            "is no longer forwarded to",
            lost,
            time,
            alerts,
        );
        tell_ports(Kind::PortForwarded, "is forwarded to", new, time, alerts);
    }
}

/// Tells changes of ports; the protocols of one port and device together.
fn tell_ports<'a>(
    kind: Kind,
    words: &str,
    changed: impl Iterator<Item = (&'a Place, &'a u16)>,
    time: u64,
    alerts: &mut Vec<Alert>,
) {
    let mut grouped: BTreeMap<(&str, &str, u16), Vec<&str>> = BTreeMap::new();
    for ((protocol, through, to, _), port) in changed {
        grouped
            .entry((through, to, *port))
            .or_default()
            .push(protocol);
    }
    for ((through, to, port), protocols) in grouped {
        let protocols = protocols.join(", ");
        let text = format!("{through}: port {port} ({protocols}) {words} {to}");
        let alert = Alert::new(kind, through, to, &text, time);
        alerts.push(Alert {
            port: Some(port),
            ..alert
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::GuardView;
    use service::status::PeerStatus;

    const NOW: u64 = 1_900_000_000;

    fn office() -> Sample {
        Sample {
            tunnels: vec![Status {
                interface: "office".to_owned(),
                role: Some("client".to_owned()),
                state: Some("connected".to_owned()),
                ..Status::default()
            }],
            ..Sample::default()
        }
    }

    fn words(alerts: &[Alert]) -> Vec<String> {
        let words = alerts
            .iter()
            .map(|it| format!("{} {}", it.kind.name(), it.text));
        words.collect()
    }

    #[test]
    fn the_first_sample_is_only_compared_with_later_ones() {
        let mut watcher = Watcher::default();
        let mut look = |sample: Sample| words(&watcher.look(sample, None, &[], NOW));
        assert_eq!(look(office()), [""; 0]);
        let mut unread = Sample {
            trouble: Some("office does not answer".to_owned()),
            ..Sample::default()
        };
        assert_eq!(look(unread.clone()), [""; 0]);
        unread.trouble = None;
        assert_eq!(look(unread), ["tunnel-down office has ended"]);
        assert_eq!(look(office()), ["tunnel-up office is up"]);
    }

    #[test]
    fn a_tunnel_that_hangs_hides_no_other_and_is_told_after_a_minute() {
        let of = |names: &[&str], unread: &[&str], trouble: bool| Sample {
            tunnels: names
                .iter()
                .map(|name| Status {
                    interface: (*name).to_owned(),
                    ..office().tunnels.remove(0)
                })
                .collect(),
            unread: unread.iter().map(|&it| it.to_owned()).collect(),
            trouble: trouble.then(|| "no answer".to_owned()),
            ..Sample::default()
        };
        let mut watcher = Watcher::default();
        for (sample, time, wanted) in [
            (of(&["a", "b", "c"], &[], false), 0, vec![]),
            (of(&["b", "c"], &["a"], true), 5, vec![]),
            (
                of(&["c"], &["a"], true),
                10,
                vec!["tunnel-down b has ended"],
            ),
            (of(&["c"], &["a"], true), 64, vec![]),
            (
                of(&["c"], &["a"], true),
                65,
                vec!["tunnel-down a does not answer"],
            ),
            (of(&["c"], &["a"], true), 70, vec![]),
            (of(&["a", "c"], &[], false), 75, vec!["tunnel-up a is up"]),
            // Each time counts anew. Without names no tunnel can be read.
            (of(&[], &[], true), 80, vec![]),
            (of(&["a", "c"], &[], false), 85, vec![]),
            (of(&[], &[], true), 90, vec![]),
            (of(&[], &[], true), 149, vec![]),
            (
                of(&[], &[], true),
                150,
                vec!["tunnel-down a has ended", "tunnel-down c has ended"],
            ),
        ] {
            assert_eq!(
                words(&watcher.look(sample, None, &[], time)),
                wanted,
                "{time}"
            );
        }
    }

    #[test]
    fn each_end_of_clients_that_share_a_name_is_told_once() {
        let mut watcher = Watcher::default();
        let mut look = |ends: &[u64], time: u64| {
            let mut sample = office();
            let peers = ends.iter().map(|end| PeerStatus {
                name: Some("store".to_owned()),
                expires_unix: Some(*end),
                ..PeerStatus::default()
            });
            sample.tunnels[0].peers = peers.collect();
            watcher.look(sample, None, &[], time).len()
        };
        let ends = [NOW + DAY, NOW + 2 * DAY];
        assert_eq!(look(&ends, NOW), 1);
        assert_eq!(look(&ends, NOW + 1), 0);
        // A client that comes back is not told again.
        assert_eq!(look(&ends[1..], NOW + 2), 0);
        assert_eq!(look(&ends, NOW + 3), 0);
        // More ends than are remembered are not told again and again either.
        let many: Vec<u64> = (0..2 * ENDS_MAX as u64)
            .map(|it| NOW + 2 * DAY + it)
            .collect();
        assert_eq!(look(&many, NOW + 4), 1);
        assert_eq!(look(&many, NOW + 5), 0);
    }

    #[test]
    fn ends_are_told_thirty_seven_and_one_days_ahead() {
        let mut watcher = Watcher::default();
        let mut look = |end: u64, time: u64, peers: usize| {
            let mut sample = office();
            sample.tunnels[0].expires_unix = (peers == 0).then_some(end);
            let peers = (0..peers).map(|number| PeerStatus {
                name: Some(format!("store-{number}")),
                expires_unix: Some(end),
                ..PeerStatus::default()
            });
            sample.tunnels[0].peers = peers.collect();
            words(&watcher.look(sample, None, &[], time))
        };
        let of = |left: &str| {
            format!(
                "ends-soon office: a certificate or a revocation list {left}; `millrace status office` shows the \
                 remedy"
            )
        };
        let end = NOW + 40 * DAY;
        for (left, wanted) in [
            (31 * DAY, None),
            (30 * DAY, Some("ends in 30 days")),
            (29 * DAY, None),
            (7 * DAY, Some("ends in 7 days")),
            (7 * DAY - 1, None),
            (DAY, Some("ends in 1 day")),
            (DAY - 1, None),
            (0, Some("has ended")),
        ] {
            let wanted: Vec<String> = wanted.map(of).into_iter().collect();
            assert_eq!(look(end, end - left, 0), wanted, "{left}");
        }
        // A renewed certificate has a new end, which is told in its time.
        let renewed = end + 40 * DAY;
        assert_eq!(look(renewed, end, 0), [""; 0]);
        assert_eq!(
            look(renewed, renewed - 20 * DAY, 0),
            [of("ends in 20 days")]
        );
        assert_eq!(
            look(end, end - DAY / 2, 1),
            ["ends-soon office: the certificate of store-0 ends in less than a day"]
        );
        assert_eq!(
            look(end, end - 1, 5),
            [
                "ends-soon office: 4 clients' certificates end soon; `millrace status office` names them"
            ]
        );
    }

    #[test]
    fn refused_packets_are_told_once_in_a_while_with_their_number() {
        let mut watcher = Watcher::default();
        for (guard, policy, time, wanted) in [
            (None, None, 0, None),
            (None, Some(5), 1, None),
            (None, Some(5), 2, None),
            (None, Some(6), 3, Some("1 packet")),
            (None, Some(9), 4, None),
            (None, Some(9), 602, None),
            (None, Some(10), 603, Some("4 packets")),
            (None, None, 700, None),
            // The table was made anew.
            (None, Some(2), 2000, Some("2 packets")),
            // The clock was set back.
            (None, Some(3), 1, Some("1 packet")),
            // The guard's count has no part in the policy's.
            (Some(1000), Some(3), 1000, None),
            (Some(1000), Some(5), 2000, Some("2 packets")),
            (Some(1000), Some(1), 3000, Some("1 packet")),
            (Some(3), Some(2), 4000, Some("4 packets")),
            (None, Some(2), 5000, None),
            (Some(4), Some(2), 6000, Some("1 packet")),
        ] {
            let mut sample = office();
            sample.guard = Some(GuardView {
                refused: guard,
                ..GuardView::default()
            });
            let found = watcher.look(sample, policy, &[], time);
            let found: Vec<&str> = found.iter().map(|it| it.text.as_str()).collect();
            match wanted {
                None => assert_eq!(found, [""; 0], "{time}"),
                Some(count) => assert!(
                    found[0].starts_with(&format!("guard and policy refused {count} of")),
                    "{found:?}"
                ),
            }
        }
    }

    #[test]
    fn ports_are_told_when_they_open_move_and_close() {
        let port = |state: &str, number: u16, protocols: &[&str]| Port {
            through: "mr-us".to_owned(),
            to: "192.168.1.20".to_owned(),
            protocols: protocols.iter().map(|&it| it.to_owned()).collect(),
            state: state.to_owned(),
            port: Some(number),
            device_port: None,
            until_unix: Some(NOW + 60),
        };
        let mut watcher = Watcher::default();
        for (ports, time, wanted) in [
            (vec![port("asking", 1, &["udp"])], NOW, vec![]),
            (
                vec![port("open", 40, &["udp", "tcp"])],
                NOW,
                vec!["port-forwarded mr-us: port 40 (tcp, udp) is forwarded to 192.168.1.20"],
            ),
            (vec![port("open", 40, &["udp", "tcp"])], NOW + 59, vec![]),
            (
                vec![port("open", 40, &["udp"]), port("open", 41, &["tcp"])],
                NOW,
                vec!["port-forwarded mr-us: port 41 (tcp) is forwarded to 192.168.1.20"],
            ),
            (
                vec![port("open", 40, &["udp"]), port("refused", 41, &["tcp"])],
                NOW,
                vec!["port-lost mr-us: port 41 (tcp) is no longer forwarded to 192.168.1.20"],
            ),
            // The process that renews it has died.
            (
                vec![port("open", 40, &["udp"])],
                NOW + 60,
                vec!["port-lost mr-us: port 40 (udp) is no longer forwarded to 192.168.1.20"],
            ),
        ] {
            let found = watcher.look(office(), None, &ports, time);
            assert_eq!(words(&found), wanted);
            assert!(found.iter().all(|it| it.port.is_some()));
        }
    }

    #[test]
    fn each_port_of_a_device_is_told() {
        let port = |number: u16, state: &str| Port {
            through: "mr-us".to_owned(),
            to: "console".to_owned(),
            protocols: vec!["udp".to_owned()],
            state: state.to_owned(),
            port: Some(number),
            device_port: Some(number.min(4002)),
            until_unix: None,
        };
        let all = |states: [&str; 3]| -> Vec<Port> {
            (4000..)
                .zip(states)
                .map(|(it, state)| port(it, state))
                .collect()
        };
        let mut watcher = Watcher::default();
        let moved = vec![port(4000, "open"), port(4001, "open"), port(5002, "open")];
        for (ports, told) in [
            (
                all(["open", "asking", "asking"]),
                &["port-forwarded 4000"][..],
            ),
            (
                all(["open"; 3]),
                &["port-forwarded 4001", "port-forwarded 4002"],
            ),
            // The gateway gives the third one another number.
            (moved, &["port-forwarded 5002"]),
            (all(["open"; 3]), &["port-forwarded 4002"]),
            (all(["open", "asking", "open"]), &["port-lost 4001"]),
            (Vec::new(), &["port-lost 4000", "port-lost 4002"]),
        ] {
            let found = watcher.look(office(), None, &ports, NOW);
            let found = found
                .iter()
                .filter_map(|it| Some((it.kind.name(), it.port?)));
            let found: Vec<String> = found.map(|it| format!("{} {}", it.0, it.1)).collect();
            assert_eq!(found, told);
        }
    }

    #[test]
    fn names_of_strangers_are_text_of_a_bounded_size() {
        let long = "\u{1f600}\n".repeat(5000);
        let alert = Alert::new(Kind::PeerUp, &long, &long, &long, u64::MAX);
        let line = alert.to_json("router");
        assert!(line.len() < 4096, "{}", line.len());
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["event"], "peer-up");
        assert!(!line.contains("\\n"));
    }
}
