//! Describes events, which it finds by comparing two samples.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use config::alerts::Kind;
use serde::Serialize;
use service::status::{LineStatus, PeerStatus, Status};

use crate::health::{State, carries};
use crate::sample::Sample;

/// Number of events that are kept.
const KEPT: usize = 200;

/// Maximum number of clients that an event names when they come or go together; further ones are counted.
const NAMED: usize = 3;

/// Maximum number of lines of one tunnel that are watched.
const LINES: usize = 64;

/// Whether an event is good or bad.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// A tunnel, line or client works again.
    Good,
    /// A tunnel, line or client has failed.
    Bad,
    /// Neither good nor bad.
    Note,
}

/// An event on this host.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Event {
    /// The event's number; each is one higher than the one before.
    pub number: u64,
    /// Seconds since 1970.
    pub time: u64,
    /// Whether the event is good or bad.
    pub tone: Tone,
    /// The event, in words.
    pub text: String,
}

/// A change between two samples.
pub(crate) struct Found {
    tone: Tone,
    /// The change, in words.
    pub(crate) text: String,
    /// The alert that the change is; `None` if it is not one.
    pub(crate) kind: Option<Kind>,
    /// The tunnel; empty if the change is of no tunnel.
    pub(crate) tunnel: String,
    /// The uplink, or the peers, separated by commas; empty if there is none, or there are too many peers to name.
    pub(crate) name: String,
}

impl Found {
    /// A finding of no tunnel.
    fn new(tone: Tone, kind: Option<Kind>, text: String) -> Self {
        Self {
            tone,
            text,
            kind,
            tunnel: String::new(),
            name: String::new(),
        }
    }

    /// The finding, of this tunnel.
    fn of(self, tunnel: &str) -> Self {
        Self {
            tunnel: tunnel.to_owned(),
            ..self
        }
    }

    /// The finding, with the name of an uplink or peers.
    fn named(self, name: String) -> Self {
        Self { name, ..self }
    }
}

/// Ring of the latest events.
#[derive(Debug, Default)]
pub struct Events {
    kept: VecDeque<Event>,
    last: u64,
}

impl Events {
    /// Adds an event.
    pub fn push(&mut self, time: u64, tone: Tone, text: String) {
        self.last += 1;
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Event {
            number: self.last,
            time,
            tone,
            text,
        });
    }

    /// Events after a number.
    pub fn since(&self, number: u64) -> impl Iterator<Item = &Event> {
        self.kept.iter().filter(move |it| it.number > number)
    }

    /// Compares two samples.
    pub fn observe(&mut self, before: &Sample, now: &Sample, time: u64) {
        find_changes(before, now, &mut |it| self.push(time, it.tone, it.text));
    }
}

/// Compares two samples.
pub(crate) fn find_changes(before: &Sample, now: &Sample, say: &mut impl FnMut(Found)) {
    for status in &now.tunnels {
        let name = &status.interface;
        match find(before, name) {
            // Counters start at zero when the process restarts.
            Some(earlier) if earlier.uptime_ms <= status.uptime_ms => {
                compare(earlier, status, say);
            }
            Some(_) => {
                let kind = match carries(status).0.is_good() {
                    true => Kind::TunnelUp,
                    false => Kind::TunnelDown,
                };
                let text = format!("{name} was restarted");
                say(Found::new(Tone::Note, Some(kind), text).of(name));
            }
            None => begun(status, say),
        }
    }
    for gone in before
        .tunnels
        .iter()
        .filter(|it| find(now, &it.interface).is_none())
    {
        let name = &gone.interface;
        let text = match now.unread.contains(name) {
            true => format!("{name} does not answer"),
            false => format!("{name} has ended"),
        };
        say(Found::new(Tone::Bad, Some(Kind::TunnelDown), text).of(name));
    }
    guard(before, now, say);
    if now.trouble != before.trouble
        && let Some(trouble) = &now.trouble
    {
        say(Found::new(Tone::Bad, None, trouble.clone()));
    }
}

fn find<'a>(sample: &'a Sample, name: &str) -> Option<&'a Status> {
    sample.tunnels.iter().find(|it| it.interface == name)
}

fn begun(status: &Status, say: &mut impl FnMut(Found)) {
    let (state, words) = carries(status);
    let name = &status.interface;
    let (tone, kind, text) = match state {
        State::Up => (Tone::Good, Some(Kind::TunnelUp), format!("{name} is up")),
        State::Silent | State::NoCarrier => (
            Tone::Bad,
            Some(Kind::TunnelDown),
            format!("{name} has started: {words}"),
        ),
        _ => (Tone::Note, None, format!("{name} has started: {words}")),
    };
    say(Found::new(tone, kind, text).of(name));
}

fn compare(before: &Status, now: &Status, say: &mut impl FnMut(Found)) {
    let name = &now.interface;
    let ((was, _), (is, words)) = (carries(before), carries(now));
    if was != is
        && let Some((tone, kind, text)) = match (is, was) {
            (State::Up, State::Idle) => None,
            (State::Up, _) => Some((Tone::Good, Kind::TunnelUp, format!("{name} is up"))),
            (State::Silent, _) => Some((
                Tone::Bad,
                Kind::TunnelDown,
                format!("{name} is silent: {words}"),
            )),
            (State::NoCarrier, _) => Some((
                Tone::Bad,
                Kind::TunnelDown,
                format!("{name} has no carrier: {words}"),
            )),
            (State::Connecting | State::Waiting, _) => {
                Some((Tone::Bad, Kind::TunnelDown, format!("{name}: {words}")))
            }
            (_, State::Silent | State::NoCarrier | State::Connecting | State::Waiting) => {
                Some((Tone::Note, Kind::TunnelUp, format!("{name}: {words}")))
            }
            _ => None,
        }
    {
        say(Found::new(tone, Some(kind), text).of(name));
    }
    if now.role.as_deref() == Some("server") {
        let (earlier, later) = (clients(before), clients(now));
        // A client that has reconnected is told last as connected.
        let left = (Kind::PeerDown, "disconnected");
        told(name, left, &earlier, &later, say);
        told(name, (Kind::PeerUp, "connected"), &later, &earlier, say);
    } else if now.peers.len() > 1 {
        // The state of a single peer is the tunnel's.
        let (earlier, later) = (faulty(before, now), faulty(now, before));
        let went = (Kind::PeerDown, "went silent");
        told(name, went, &later, &earlier, say);
        told(name, (Kind::PeerUp, "came back"), &earlier, &later, say);
    }
    lines(before, now, say);
}

/// Peers with a known fault, of those that both documents have. A peer is known by its name, which a new key keeps.
fn faulty<'a>(status: &'a Status, other: &'a Status) -> BTreeMap<&'a str, &'a PeerStatus> {
    let id = |it: &'a PeerStatus| it.name.as_deref().unwrap_or(&it.public_key);
    let known: BTreeSet<&str> = other.peers.iter().map(id).collect();
    let peers = status.peers.iter().filter(|it| it.state.is_some());
    peers
        .map(|it| (id(it), it))
        .filter(|(key, _)| known.contains(key))
        .collect()
}

type Clients<'a> = BTreeMap<(Option<u64>, Option<u64>), &'a PeerStatus>;

/// The clients of a server, by the IDs that tell them apart.
fn clients(status: &Status) -> Clients<'_> {
    let peers = status.peers.iter();
    peers
        .map(|it| ((it.client_id, it.connected_unix), it))
        .collect()
}

/// Names the peers in `some` that are not in `others`. The kind of the event comes with a verb.
fn told<K: Ord>(
    tunnel: &str,
    (kind, did): (Kind, &str),
    some: &BTreeMap<K, &PeerStatus>,
    others: &BTreeMap<K, &PeerStatus>,
    say: &mut impl FnMut(Found),
) {
    let different = some.iter().filter(|(key, _)| !others.contains_key(*key));
    let names: Vec<String> = different.map(|(_, peer)| called(peer)).collect();
    let named = few(&names);
    let text = match names.len() {
        0 => return,
        1..=NAMED => format!("{tunnel}: {named} {did}"),
        count => format!(
            "{tunnel}: {} and {} more {did}",
            names[..NAMED].join(", "),
            count - NAMED
        ),
    };
    let found = Found::new(Tone::Note, Some(kind), text);
    say(found.of(tunnel).named(named));
}

/// These names as one, if they are few; otherwise nothing.
pub(crate) fn few(names: &[String]) -> String {
    match names.len() <= NAMED {
        true => names.join(", "),
        false => String::new(),
    }
}

/// A peer's name for people.
#[must_use]
pub fn called(peer: &PeerStatus) -> String {
    let name = peer.name.as_ref().or(peer.username.as_ref());
    let name = name.map(String::as_str).filter(|it| !it.is_empty());
    let name = name.or_else(|| Some(peer.public_key.as_str()).filter(|it| !it.is_empty()));
    name.or(peer.endpoint.as_deref())
        .unwrap_or("a client")
        .to_owned()
}

/// Tells changes of uplinks, each once for all peers: an uplink is down if it is down for each of them.
fn lines(before: &Status, now: &Status, say: &mut impl FnMut(Found)) {
    if now.peers.iter().all(|it| it.lines.is_empty()) {
        return;
    }
    fn key(it: &PeerStatus) -> (&str, Option<u64>) {
        (&it.public_key, it.client_id)
    }
    let earlier: BTreeMap<_, _> = before.peers.iter().map(|it| (key(it), it)).collect();
    // By name: the best states before and now, and the news about the allowance.
    let mut found: BTreeMap<&str, (&LineStatus, &LineStatus, Option<Change>)> = BTreeMap::new();
    for is in &now.peers {
        let Some(was) = earlier.get(&key(is)) else {
            continue;
        };
        for line in is.lines.iter().take(LINES) {
            let Some(earlier) = was.lines.iter().find(|it| it.name == line.name) else {
                continue;
            };
            let entry = found.entry(&line.name).or_insert((earlier, line, None));
            if rank(earlier) > rank(entry.0) {
                entry.0 = earlier;
            }
            if rank(line) > rank(entry.1) {
                entry.1 = line;
            }
            if entry.2.is_none() {
                entry.2 = allowance(earlier, line);
            }
        }
    }
    for (name, (earlier, line, allowance)) in found {
        for (tone, kind, words) in [state(earlier, line), allowance].into_iter().flatten() {
            let text = format!("{}: {} {name} {words}", now.interface, line.noun());
            let found = Found::new(tone, kind, text).of(&now.interface);
            say(found.named(name.to_owned()));
        }
    }
}

/// A higher number for a better state of an uplink.
fn rank(line: &LineStatus) -> u8 {
    match line.state.as_str() {
        "up" => 3,
        "degraded" => 2,
        "down" => 1,
        _ => 0,
    }
}

type Change = (Tone, Option<Kind>, String);

/// The change of an uplink's state.
fn state(before: &LineStatus, now: &LineStatus) -> Option<Change> {
    if before.state == now.state {
        return None;
    }
    let (tone, kind) = match (now.state.as_str(), before.state.as_str()) {
        ("down" | "degraded", _) => (Tone::Bad, Some(Kind::UplinkDown)),
        ("up", "unknown") | ("unknown", _) => (Tone::Note, None),
        _ => (Tone::Good, Some(Kind::UplinkUp)),
    };
    let why = match now.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    Some((tone, kind, format!("is {}{why}", now.state)))
}

/// The news about an uplink's monthly allowance: it is used up, or a tenth of it is left.
fn allowance(before: &LineStatus, now: &LineStatus) -> Option<Change> {
    let (was, is) = (before.cap.as_ref()?, now.cap.as_ref()?);
    let renews = is.renews.as_deref();
    let renews = renews.map_or_else(String::new, |day| format!("; it renews on {day}"));
    let tenth = is.cap_bytes / 10;
    if was.left_bytes > 0 && is.left_bytes == 0 {
        let text = format!("has used up its allowance{renews}");
        return Some((Tone::Bad, Some(Kind::CapReached), text));
    }
    (was.left_bytes >= tenth && is.left_bytes < tenth).then(|| {
        let text = format!("has less than a tenth of its allowance left{renews}");
        (Tone::Note, Some(Kind::CapNearing), text)
    })
}

fn guard(before: &Sample, now: &Sample, say: &mut impl FnMut(Found)) {
    let state = |it: &Sample| {
        it.guard
            .as_ref()
            .map_or_else(|| "off".to_owned(), |it| it.state.clone())
    };
    let (was, is) = (state(before), state(now));
    if was == is {
        return;
    }
    let why = now
        .guard
        .as_ref()
        .map(|it| it.why.as_str())
        .filter(|it| !it.is_empty());
    let why = why.map(|it| format!(": {it}")).unwrap_or_default();
    let (tone, kind, text) = match is.as_str() {
        "held" => (
            Tone::Bad,
            Kind::GuardHeld,
            format!("the guard blocks the LAN's traffic{why}"),
        ),
        "through" => (
            Tone::Good,
            Kind::GuardThrough,
            "the guard lets the LAN's traffic through a tunnel".to_owned(),
        ),
        _ => (
            Tone::Note,
            Kind::GuardOff,
            "the guard is off: the LAN's traffic may leave unencrypted".to_owned(),
        ),
    };
    say(Found::new(tone, Some(kind), text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::GuardView;
    use service::status::CapStatus;

    fn said(before: &Sample, now: &Sample) -> Vec<String> {
        let mut events = Events::default();
        events.observe(before, now, 5);
        events
            .since(0)
            .map(|it| format!("{:?}: {}", it.tone, it.text))
            .collect()
    }

    fn client(state: &str) -> Sample {
        Sample {
            tunnels: vec![Status {
                interface: "office".to_owned(),
                role: Some("client".to_owned()),
                state: Some(state.to_owned()),
                // Warnings that last are no cause of a change.
                warnings: vec!["DNS cannot be applied".to_owned()],
                ..Status::default()
            }],
            ..Sample::default()
        }
    }

    #[test]
    fn a_tunnel_fails_comes_back_and_ends() {
        let (up, calling, none) = (client("connected"), client("connecting"), Sample::default());
        assert_eq!(said(&none, &up), ["Good: office is up"]);
        assert_eq!(
            said(&up, &calling),
            ["Bad: office: connecting to its server"]
        );
        assert_eq!(said(&calling, &up), ["Good: office is up"]);
        let (mut cut, mut silent) = (client("no carrier"), client("silent"));
        for (sample, reason) in [
            (&mut cut, "wan has no carrier"),
            (&mut silent, "no packet from it for 14 s"),
        ] {
            sample.tunnels[0].peers = vec![PeerStatus {
                reason: Some(reason.to_owned()),
                ..PeerStatus::default()
            }];
        }
        assert_eq!(
            said(&up, &cut),
            ["Bad: office has no carrier: wan has no carrier"]
        );
        assert_eq!(
            said(&up, &silent),
            ["Bad: office is silent: no packet from it for 14 s"]
        );
        assert_eq!(said(&silent, &up), ["Good: office is up"]);
        assert_eq!(said(&up, &none), ["Bad: office has ended"]);
        let hangs = Sample {
            unread: vec!["office".to_owned()],
            ..Sample::default()
        };
        assert_eq!(said(&up, &hangs), ["Bad: office does not answer"]);
        assert_eq!(said(&up, &up), [""; 0]);
        let mut anew = up.clone();
        let mut old = up;
        old.tunnels[0].uptime_ms = 9;
        anew.tunnels[0].uptime_ms = 1;
        assert_eq!(said(&old, &anew), ["Note: office was restarted"]);
    }

    #[test]
    fn clients_that_come_in_numbers_are_counted() {
        let server = |clients: std::ops::Range<u64>| Sample {
            tunnels: vec![Status {
                interface: "home".to_owned(),
                role: Some("server".to_owned()),
                peers: clients
                    .map(|id| PeerStatus {
                        name: Some(format!("c{id}")),
                        client_id: Some(id),
                        ..PeerStatus::default()
                    })
                    .collect(),
                ..Status::default()
            }],
            ..Sample::default()
        };
        assert_eq!(
            said(&server(0..1), &server(0..3)),
            ["Note: home: c1, c2 connected"]
        );
        assert_eq!(
            said(&server(0..1000), &server(0..1)),
            ["Note: home: c1, c2, c3 and 996 more disconnected"]
        );
        // The first client has reconnected.
        assert_eq!(
            said(&server(0..1), &server(1..2)),
            ["Note: home: c0 disconnected", "Note: home: c1 connected"]
        );
    }

    #[test]
    fn lines_and_the_guard_say_why() {
        let with = |state: &str| {
            let mut sample = client("connected");
            sample.tunnels[0].peers = vec![PeerStatus {
                lines: vec![LineStatus {
                    name: "dsl".to_owned(),
                    state: state.to_owned(),
                    reason: "no answer".to_owned(),
                    ..LineStatus::default()
                }],
                ..PeerStatus::default()
            }];
            sample.guard = (state == "down").then(|| GuardView {
                state: "held".to_owned(),
                why: "no tunnel".to_owned(),
                ..GuardView::default()
            });
            sample
        };
        assert_eq!(
            said(&with("up"), &with("down")),
            [
                "Bad: office: uplink dsl is down: no answer",
                "Bad: the guard blocks the LAN's traffic: no tunnel"
            ]
        );
    }

    #[test]
    fn an_uplink_of_many_peers_is_told_once_and_is_down_only_for_all() {
        let hub = |states: &[(u32, &str)]| {
            let mut sample = client("connected");
            let peer = |(key, state): &(u32, &str)| PeerStatus {
                public_key: key.to_string(),
                lines: ["dsl", "lte"]
                    .map(|name| LineStatus {
                        name: name.to_owned(),
                        state: if name == "lte" { "up" } else { state }.to_owned(),
                        cap: Some(CapStatus {
                            cap_bytes: 100,
                            left_bytes: if *state == "down" { 0 } else { 50 },
                            ..CapStatus::default()
                        }),
                        ..LineStatus::default()
                    })
                    .to_vec(),
                ..PeerStatus::default()
            };
            sample.tunnels[0].peers = states.iter().map(peer).collect();
            sample
        };
        let used = |name| format!("Bad: office: uplink {name} has used up its allowance");
        let dsl = |tone, state| format!("{tone}: office: uplink dsl is {state}");
        let all = |state: &'static str| -> Vec<_> { (0..300).map(|key| (key, state)).collect() };
        let up = hub(&all("up"));
        assert_eq!(
            said(&up, &hub(&all("down"))),
            [dsl("Bad", "down"), used("dsl"), used("lte")]
        );
        assert_eq!(said(&hub(&all("down")), &up), [dsl("Good", "up")]);
        // A branch that is off is no fault of the uplink.
        let mut one = all("up");
        one[7].1 = "down";
        assert_eq!(said(&up, &hub(&one)), [used("dsl"), used("lte")]);
        assert_eq!(said(&hub(&one), &up), [""; 0]);
        // Peers in another order are the same peers, and a new one is not compared.
        one.reverse();
        one.insert(0, (1000, "down"));
        assert_eq!(said(&up, &hub(&one)), [used("dsl"), used("lte")]);
        assert_eq!(
            said(
                &hub(&[(1, "down"), (2, "up")]),
                &hub(&[(2, "down"), (1, "down")])
            ),
            [dsl("Bad", "down"), used("dsl"), used("lte")]
        );
        assert_eq!(
            said(
                &hub(&[(1, "down"), (2, "up")]),
                &hub(&[(2, "degraded"), (1, "down")])
            ),
            [dsl("Bad", "degraded")]
        );
    }

    /// The alerts of a change: kind, tunnel, name and text.
    fn alerts(before: &Sample, now: &Sample) -> Vec<String> {
        let mut alerts = Vec::new();
        find_changes(before, now, &mut |it| {
            let words =
                |kind: Kind| format!("{} {:?} {:?} {}", kind.name(), it.tunnel, it.name, it.text);
            alerts.extend(it.kind.map(words));
        });
        alerts
    }

    #[test]
    fn changes_are_alerts_with_their_tunnel_and_name() {
        let with = |state: &str, change: &dyn Fn(&mut Sample)| {
            let mut sample = client(state);
            sample.tunnels[0].peers = ["a", "b"]
                .map(|key| PeerStatus {
                    public_key: key.to_owned(),
                    name: Some(format!("store-{key}")),
                    lines: vec![LineStatus {
                        name: "lte".to_owned(),
                        state: "up".to_owned(),
                        cap: Some(CapStatus {
                            cap_bytes: 1000,
                            left_bytes: 500,
                            renews: Some("2026-12-14".to_owned()),
                            ..CapStatus::default()
                        }),
                        ..LineStatus::default()
                    }],
                    ..PeerStatus::default()
                })
                .to_vec();
            change(&mut sample);
            sample
        };
        let line = |sample: &mut Sample, state: &str, left: u64| {
            for peer in &mut sample.tunnels[0].peers {
                let line = &mut peer.lines[0];
                line.state = state.to_owned();
                line.cap.as_mut().unwrap().left_bytes = left;
            }
        };
        let up = with("connected", &|_| {});
        let guarded = |state: &str| {
            let mut sample = up.clone();
            sample.guard = Some(GuardView {
                state: state.to_owned(),
                ..GuardView::default()
            });
            sample
        };
        for (now, wanted, back) in [
            (
                with("connecting", &|_| {}),
                "tunnel-down \"office\" \"\" office: connecting to its server",
                "tunnel-up \"office\" \"\" office is up",
            ),
            (
                with("connected", &|it| line(it, "down", 500)),
                "uplink-down \"office\" \"lte\" office: uplink lte is down",
                "uplink-up \"office\" \"lte\" office: uplink lte is up",
            ),
            (with("connected", &|it| line(it, "unknown", 500)), "", ""),
            (
                with("connected", &|it| line(it, "up", 99)),
                "cap-nearing \"office\" \"lte\" office: uplink lte has less than a tenth of its allowance left; it \
                 renews on 2026-12-14",
                "",
            ),
            (
                with("connected", &|it| line(it, "up", 0)),
                "cap-reached \"office\" \"lte\" office: uplink lte has used up its allowance; it renews on \
                 2026-12-14",
                "",
            ),
            (
                with("connected", &|it| {
                    it.tunnels[0].peers[1].state = Some("silent".to_owned());
                }),
                "peer-down \"office\" \"store-b\" office: store-b went silent",
                "peer-up \"office\" \"store-b\" office: store-b came back",
            ),
            // A peer that is new, or removed, neither failed nor came back.
            (
                with("connected", &|it| {
                    it.tunnels[0].peers[1].state = Some("silent".to_owned());
                    it.tunnels[0].peers[1].name = Some("store-c".to_owned());
                }),
                "",
                "",
            ),
            // A peer that comes back with a new key is the same.
            (
                with("connected", &|it| {
                    it.tunnels[0].peers[1].state = Some("silent".to_owned());
                    it.tunnels[0].peers[1].public_key = "c".to_owned();
                }),
                "peer-down \"office\" \"store-b\" office: store-b went silent",
                "peer-up \"office\" \"store-b\" office: store-b came back",
            ),
            (
                guarded("held"),
                "guard-held \"\" \"\" the guard blocks the LAN's traffic",
                "guard-off \"\" \"\" the guard is off: the LAN's traffic may leave unencrypted",
            ),
            (
                guarded("through"),
                "guard-through \"\" \"\" the guard lets the LAN's traffic through a tunnel",
                "guard-off \"\" \"\" the guard is off: the LAN's traffic may leave unencrypted",
            ),
            (
                Sample::default(),
                "tunnel-down \"office\" \"\" office has ended",
                "tunnel-up \"office\" \"\" office is up",
            ),
            (
                with("connected", &|it| it.trouble = Some("no right".to_owned())),
                "",
                "",
            ),
        ] {
            let one = |text: &str| match text {
                "" => Vec::new(),
                text => vec![text.to_owned()],
            };
            assert_eq!(alerts(&up, &now), one(wanted));
            assert_eq!(alerts(&now, &up), one(back), "back from {wanted}");
        }
    }

    #[test]
    fn old_events_go() {
        let mut events = Events::default();
        for time in 0..1000 {
            events.push(time, Tone::Note, String::new());
        }
        assert_eq!(events.since(0).count(), KEPT);
        assert_eq!(
            events.since(999).map(|it| it.time).collect::<Vec<_>>(),
            [999]
        );
    }
}
