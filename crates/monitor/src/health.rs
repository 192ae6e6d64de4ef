//! The state of a tunnel, in a word and a sentence.

use service::status::{LineStatus, NO_CARRIER, PeerStatus, SILENT, Status, WAITING};

/// Seconds within which an active WireGuard peer makes a new handshake (REJECT_AFTER_TIME).
pub const LATELY: u64 = 180;

/// The number of a tunnel's warnings that the page shows.
const WARNINGS: usize = 3;

/// The state of a tunnel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// The tunnel carries packets.
    Up,
    /// The tunnel waits for packets or for peers.
    Idle,
    /// The tunnel is connecting.
    Connecting,
    /// The tunnel waits for something that it needs to come up.
    Waiting,
    /// The other end does not answer.
    Silent,
    /// No uplink leads to the other end.
    NoCarrier,
    /// The tunnel was up, and has ended.
    Ended,
    /// The tunnel has a file and is not up.
    Down,
}

impl State {
    /// The states of a running tunnel.
    pub const ALL: [Self; 6] = [
        Self::Up,
        Self::Idle,
        Self::Connecting,
        Self::Waiting,
        Self::Silent,
        Self::NoCarrier,
    ];

    /// Name of the state in the document.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Waiting => WAITING,
            Self::Silent => SILENT,
            Self::NoCarrier => NO_CARRIER,
            Self::Ended => "ended",
            Self::Down => "down",
        }
    }

    /// Whether packets pass, or would pass.
    #[must_use]
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Up | Self::Idle)
    }
}

/// The tunnel's state, and the reason. Settings that the file requested and the host does not have come first.
#[must_use]
pub fn health(status: &Status) -> (State, String) {
    let (state, words) = carries(status);
    let warnings = status.warnings.iter().take(WARNINGS).cloned();
    let all: Vec<String> = warnings
        .chain(Some(words))
        .filter(|it| !it.is_empty())
        .collect();
    (state, all.join("; "))
}

/// Returns the tunnel's state and its reason, without lasting warnings.
pub(crate) fn carries(status: &Status) -> (State, String) {
    match status.state.as_deref() {
        Some("connecting") => return (State::Connecting, "connecting to its server".to_owned()),
        Some(WAITING) => {
            let what = status.waiting_for.as_deref().unwrap_or("its requirements");
            return (State::Waiting, format!("not up yet: waiting for {what}"));
        }
        Some(SILENT) => return (State::Silent, reason(&status.peers)),
        Some(NO_CARRIER) => return (State::NoCarrier, reason(&status.peers)),
        Some("connected") => return (State::Up, lines(&status.peers).unwrap_or_default()),
        _ => {}
    }
    let count = peers(status).count();
    let lately = active(status);
    if status.role.as_deref() == Some("server") {
        let state = if count > 0 { State::Up } else { State::Idle };
        return (state, many(count, "client"));
    }
    match (peers(status).next(), count) {
        (None, _) => (State::Idle, "it has no peers".to_owned()),
        (Some(peer), 1) => of_peer(peer),
        _ if lately == 0 => (
            State::Idle,
            format!("none of {count} peers was heard from lately"),
        ),
        _ => (
            State::Up,
            format!("{lately} of {count} peers heard from lately"),
        ),
    }
}

/// Why the first peer cannot be reached; it stands for all of them.
fn reason(peers: &[PeerStatus]) -> String {
    let reason = peers.first().and_then(|it| it.reason.as_deref());
    let reason = reason.unwrap_or("no packet arrives");
    match peers.len() {
        0 | 1 => reason.to_owned(),
        count => format!("none of {count} peers answers: {reason}"),
    }
}

/// Peers, without the keys of new files that their clients do not use yet: the old key stands for the client until then.
pub(crate) fn peers(status: &Status) -> impl Iterator<Item = &PeerStatus> {
    let is_pending = |it: &PeerStatus| it.replaces.is_some() && it.latest_handshake_age.is_none();
    status.peers.iter().filter(move |it| !is_pending(it))
}

/// Counts peers that were heard from lately; with OpenVPN and PPTP, connected peers that are not silent.
#[must_use]
pub fn active(status: &Status) -> usize {
    let is_wireguard = status.protocol == "wireguard";
    let peers = status.peers.iter();
    let lately = |it: &&PeerStatus| {
        let heard = !is_wireguard || it.latest_handshake_age.is_some_and(|age| age <= LATELY);
        heard && it.state.is_none()
    };
    peers.filter(lately).count()
}

/// A count with its noun, in the plural if need be.
pub(crate) fn many(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn of_peer(peer: &PeerStatus) -> (State, String) {
    let down = |it: &LineStatus| it.state == "down";
    if !peer.lines.is_empty() && peer.lines.iter().all(down) {
        return (State::Silent, "no uplink reaches the peer".to_owned());
    }
    // `tx_bytes` includes handshakes: a peer with sent bytes and no handshake never answered.
    let calls = peer.keepalive.is_some() || peer.tx_bytes > 0;
    match peer.latest_handshake_age {
        Some(age) if age <= LATELY => (
            State::Up,
            lines(std::slice::from_ref(peer)).unwrap_or_default(),
        ),
        Some(age) if peer.keepalive.is_some() => (
            State::Silent,
            format!("no answer from the peer for {} min", age / 60),
        ),
        Some(_) => (State::Idle, "no traffic".to_owned()),
        None if calls => {
            let words = match (&peer.reason, peer.last_heard_age) {
                (Some(reason), _) => reason.clone(),
                (None, Some(age)) => format!("no packet from it for {age} s"),
                (None, None) => "the peer has not answered yet".to_owned(),
            };
            (State::Silent, words)
        }
        None => (State::Idle, "no traffic yet".to_owned()),
    }
}

/// Faults of a single peer's lines.
fn lines(peers: &[PeerStatus]) -> Option<String> {
    let [peer] = peers else { return None };
    let bad: Vec<String> = peer
        .lines
        .iter()
        .filter(|it| matches!(it.state.as_str(), "down" | "degraded"))
        .map(|it| format!("{} {} is {}", it.noun(), it.name, it.state))
        .collect();
    (!bad.is_empty()).then(|| bad.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(age: Option<u64>) -> PeerStatus {
        PeerStatus {
            latest_handshake_age: age,
            ..PeerStatus::default()
        }
    }

    fn wireguard(peers: Vec<PeerStatus>) -> (State, String) {
        health(&Status {
            protocol: "wireguard".to_owned(),
            peers,
            ..Status::default()
        })
    }

    #[test]
    fn peers_of_wireguard_are_judged_by_their_handshakes() {
        let calling = |age| PeerStatus {
            keepalive: Some(25),
            ..peer(age)
        };
        for (peer, wanted) in [
            (peer(None), State::Idle),
            (calling(None), State::Silent),
            (calling(Some(10)), State::Up),
            (calling(Some(181)), State::Silent),
            (peer(Some(181)), State::Idle),
        ] {
            assert_eq!(wireguard(vec![peer.clone()]).0, wanted, "{peer:?}");
        }
        let silent = PeerStatus {
            last_heard_age: Some(200),
            ..calling(None)
        };
        assert_eq!(wireguard(vec![silent]).1, "no packet from it for 200 s");
        assert_eq!(wireguard(vec![]).0, State::Idle);
        let (state, words) = wireguard(vec![peer(Some(5)), peer(None), peer(Some(999))]);
        assert_eq!(
            (state, words.as_str()),
            (State::Up, "1 of 3 peers heard from lately")
        );
        // A new file that its client does not use yet is no second peer.
        let new_file = |age| PeerStatus {
            replaces: Some("old".to_owned()),
            ..peer(age)
        };
        let all = |last| wireguard(vec![peer(Some(5)), peer(Some(5)), last]).1;
        assert_eq!(all(new_file(None)), "2 of 2 peers heard from lately");
        assert_eq!(all(new_file(Some(5))), "3 of 3 peers heard from lately");
        let single = wireguard(vec![calling(None), new_file(None)]);
        assert_eq!(single, wireguard(vec![calling(None)]));
    }

    #[test]
    fn clients_say_it_themselves_and_servers_count() {
        let of = |role: &str, state: Option<&str>, peers: usize| {
            health(&Status {
                protocol: "openvpn".to_owned(),
                role: Some(role.to_owned()),
                state: state.map(str::to_owned),
                peers: vec![peer(None); peers],
                ..Status::default()
            })
        };
        assert_eq!(of("client", Some("connecting"), 0).0, State::Connecting);
        assert_eq!(of("client", Some(WAITING), 1).0, State::Waiting);
        assert_eq!(of("client", Some("connected"), 1).0, State::Up);
        assert_eq!(of("server", None, 0), (State::Idle, "0 clients".to_owned()));
        assert_eq!(of("server", None, 1), (State::Up, "1 client".to_owned()));
    }

    #[test]
    fn a_tunnel_that_cannot_be_heard_is_not_up() {
        for (state, wanted, good) in [
            (SILENT, State::Silent, false),
            (NO_CARRIER, State::NoCarrier, false),
            ("connected", State::Up, true),
        ] {
            let client = Status {
                protocol: "openvpn".to_owned(),
                role: Some("client".to_owned()),
                state: Some(state.to_owned()),
                peers: vec![PeerStatus {
                    state: (!good).then(|| state.to_owned()),
                    reason: (!good).then(|| "wan has no carrier".to_owned()),
                    ..peer(Some(5))
                }],
                ..Status::default()
            };
            let (found, words) = health(&client);
            assert_eq!((found, found.is_good()), (wanted, good));
            assert_eq!(words == "wan has no carrier", !good, "{words}");
            assert_eq!(active(&client), usize::from(good));
        }
        let silent = PeerStatus {
            state: Some(SILENT.to_owned()),
            ..peer(Some(5))
        };
        let (state, words) = wireguard(vec![silent, peer(Some(5))]);
        assert_eq!(
            (state, words.as_str()),
            (State::Up, "1 of 2 peers heard from lately")
        );
    }

    #[test]
    fn what_a_tunnel_does_not_have_is_told_first() {
        let (state, words) = health(&Status {
            protocol: "wireguard".to_owned(),
            warnings: vec!["no route".to_owned(), "no DNS".to_owned()],
            ..Status::default()
        });
        assert_eq!(
            (state, words.as_str()),
            (State::Idle, "no route; no DNS; it has no peers")
        );
    }

    #[test]
    fn a_peer_that_no_line_reaches_is_silent_at_once() {
        let line = |name: &str, state: &str| LineStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            ..LineStatus::default()
        };
        let by = |lines| PeerStatus {
            lines,
            ..peer(Some(5))
        };
        let both = wireguard(vec![by(vec![line("dsl", "down"), line("lte", "down")])]);
        assert_eq!(both.0, State::Silent);
        let one = wireguard(vec![by(vec![line("dsl", "down"), line("lte", "up")])]);
        assert_eq!(one, (State::Up, "uplink dsl is down".to_owned()));
    }
}
