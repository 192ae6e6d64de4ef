//! Describes events, which it finds by comparing two samples.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use service::status::{PeerStatus, Status};

use crate::health::{State, health, many};
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
        let mut say = |tone, text| self.push(time, tone, text);
        for status in &now.tunnels {
            let name = &status.interface;
            match find(before, name) {
                // Counters start at zero when the process restarts.
                Some(earlier) if earlier.uptime_ms <= status.uptime_ms => {
                    compare(earlier, status, &mut say);
                }
                Some(_) => say(Tone::Note, format!("{name} was started anew")),
                None => begun(status, &mut say),
            }
        }
        for gone in before
            .tunnels
            .iter()
            .filter(|it| find(now, &it.interface).is_none())
        {
            say(Tone::Bad, format!("{} has ended", gone.interface));
        }
        guard(before, now, &mut say);
        if now.trouble != before.trouble
            && let Some(trouble) = &now.trouble
        {
            say(Tone::Bad, trouble.clone());
        }
    }
}

fn find<'a>(sample: &'a Sample, name: &str) -> Option<&'a Status> {
    sample.tunnels.iter().find(|it| it.interface == name)
}

fn begun(status: &Status, say: &mut impl FnMut(Tone, String)) {
    let (state, words) = health(status);
    let name = &status.interface;
    match state {
        State::Up => say(Tone::Good, format!("{name} is up")),
        State::Silent | State::NoCarrier => {
            say(Tone::Bad, format!("{name} is started: {words}"));
        }
        _ => say(Tone::Note, format!("{name} is started: {words}")),
    }
}

fn compare(before: &Status, now: &Status, say: &mut impl FnMut(Tone, String)) {
    let name = &now.interface;
    let ((was, _), (is, words)) = (health(before), health(now));
    if was != is {
        match (is, was) {
            (State::Up, State::Idle) => {}
            (State::Up, _) => say(Tone::Good, format!("{name} is up")),
            (State::Silent, _) => say(Tone::Bad, format!("{name} is silent: {words}")),
            (State::NoCarrier, _) => say(Tone::Bad, format!("{name} has no carrier: {words}")),
            (State::Connecting | State::Waiting, _) => say(Tone::Bad, format!("{name}: {words}")),
            (_, State::Silent | State::NoCarrier | State::Connecting | State::Waiting) => {
                say(Tone::Note, format!("{name}: {words}"));
            }
            _ => {}
        }
    }
    if now.role.as_deref() == Some("server") {
        let (earlier, later) = (clients(before), clients(now));
        told(name, "came in", &later, &earlier, say);
        told(name, "left", &earlier, &later, say);
    }
    lines(before, now, say);
}

/// The clients of a server, by the IDs that tell them apart.
fn clients(status: &Status) -> BTreeMap<(Option<u64>, Option<u64>), &PeerStatus> {
    let peers = status.peers.iter();
    peers
        .map(|it| ((it.client_id, it.connected_unix), it))
        .collect()
}

type Clients<'a> = BTreeMap<(Option<u64>, Option<u64>), &'a PeerStatus>;

/// Names the clients in `some` that are not in `others`.
fn told(
    name: &str,
    did: &str,
    some: &Clients<'_>,
    others: &Clients<'_>,
    say: &mut impl FnMut(Tone, String),
) {
    let different = some.iter().filter(|(key, _)| !others.contains_key(*key));
    let names: Vec<String> = different.map(|(_, peer)| called(peer)).collect();
    match names.len() {
        0 => {}
        1..=NAMED => say(Tone::Note, format!("{name}: {} {did}", names.join(", "))),
        count => say(
            Tone::Note,
            format!("{name}: {} {did}", many(count, "client")),
        ),
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

fn lines(before: &Status, now: &Status, say: &mut impl FnMut(Tone, String)) {
    for (was, is) in before.peers.iter().zip(&now.peers) {
        if (&was.public_key, was.client_id) != (&is.public_key, is.client_id) {
            continue;
        }
        for line in is.lines.iter().take(LINES) {
            let earlier = was.lines.iter().find(|it| it.name == line.name);
            let Some(earlier) = earlier.filter(|it| it.state != line.state) else {
                continue;
            };
            let tone = match (line.state.as_str(), earlier.state.as_str()) {
                ("down" | "degraded", _) => Tone::Bad,
                ("up", "unknown") | ("unknown", _) => Tone::Note,
                _ => Tone::Good,
            };
            let why = if line.reason.is_empty() {
                String::new()
            } else {
                format!(": {}", line.reason)
            };
            say(
                tone,
                format!(
                    "{}: {} {} is {}{why}",
                    now.interface,
                    line.noun(),
                    line.name,
                    line.state
                ),
            );
        }
    }
}

fn guard(before: &Sample, now: &Sample, say: &mut impl FnMut(Tone, String)) {
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
    match is.as_str() {
        "held" => say(
            Tone::Bad,
            format!("the guard holds what leaves the LAN{why}"),
        ),
        "through" => say(
            Tone::Good,
            "the guard lets the LAN through a tunnel".to_owned(),
        ),
        _ => say(
            Tone::Note,
            "the guard is off: the LAN leaves in clear".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::GuardView;
    use service::status::LineStatus;

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
                ..Status::default()
            }],
            ..Sample::default()
        }
    }

    #[test]
    fn a_tunnel_fails_comes_back_and_ends() {
        let (up, calling, none) = (client("connected"), client("connecting"), Sample::default());
        assert_eq!(said(&none, &up), ["Good: office is up"]);
        assert_eq!(said(&up, &calling), ["Bad: office: calling its server"]);
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
        assert_eq!(said(&up, &up), [""; 0]);
        let mut anew = up.clone();
        let mut old = up;
        old.tunnels[0].uptime_ms = 9;
        anew.tunnels[0].uptime_ms = 1;
        assert_eq!(said(&old, &anew), ["Note: office was started anew"]);
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
            ["Note: home: c1, c2 came in"]
        );
        assert_eq!(
            said(&server(0..1000), &server(0..1)),
            ["Note: home: 999 clients left"]
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
                "Bad: the guard holds what leaves the LAN: no tunnel"
            ]
        );
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
