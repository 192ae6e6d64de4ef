//! One peer: the settings from control, and those of them that the kernel has.

use super::keys::Slots;
use netio::netlink::OvpnFigures;
use openvpn::data::protocol::Material;
use plane::{KeyUsage, Line};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// A peer.
#[derive(Default)]
pub(crate) struct Peer {
    pub(crate) line: Option<Line>,
    /// The peer's own networks, in the order in which it got them.
    pub(crate) networks: Vec<(IpAddr, u8)>,
    /// Networks of the peer that have a route, each with the inner address that it leads to.
    pub(crate) routed: Vec<((IpAddr, u8), IpAddr)>,
    /// Networks without a route, which the log has reported.
    pub(crate) unrouted: Vec<(IpAddr, u8)>,
    /// The kernel's number for the peer, once the kernel has it.
    pub(crate) kernel: Option<u32>,
    /// The inner addresses that the kernel has for the peer.
    pub(crate) told: Inside,
    pub(crate) slots: Slots,
    /// Keys that wait for the inner address that the kernel needs to make the peer, the oldest first.
    pub(crate) waiting: Vec<(u32, Material)>,
    /// The session among the waiting ones that is to seal.
    pub(crate) seals: Option<u32>,
    pub(crate) timers: Option<Timers>,
    /// When the kernel was last told the timers, if they have to be repeated.
    pub(crate) timed: Option<Instant>,
    /// The kernel has removed the peer for its silence.
    pub(crate) silent: bool,
    /// Data packets at the last look. Received ones are not known to be authentic.
    pub(crate) figures: OvpnFigures,
    /// Inner packets at the last look: opened data packets without pings.
    pub(crate) inside_figures: OvpnFigures,
    /// When the figures were read.
    pub(crate) read: Option<Instant>,
    /// When a look found newly opened packets.
    pub(crate) heard: Option<Instant>,
    /// The figures at the arrival of the sealing keys, and of the other keys that open.
    counted: [(u32, OvpnFigures); 2],
}

/// A peer's inner addresses.
pub(crate) type Inside = (Option<Ipv4Addr>, Option<Ipv6Addr>);

/// The longest timeout that the kernel accepts, in seconds (`OVPN_A_PEER_KEEPALIVE_TIMEOUT`,
/// Documentation/netlink/specs/ovpn.yaml). Also stands for "never", as the kernel needs both times to act on either.
pub(crate) const LONGEST: u32 = 86_400;

/// How often timers that are shorter than configured are repeated. The kernel then counts from zero again.
const AGAIN: Duration = Duration::from_secs(6 * 3600);

/// A peer's timers, as the kernel takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timers {
    /// Seconds without a packet to the peer until a ping.
    pub(crate) ping: u32,
    /// Seconds without a packet from the peer until the kernel removes it.
    pub(crate) silence: u32,
    /// The configured silence has no limit, or a longer one than the kernel accepts.
    bears_silence: bool,
}

/// Bytes that a data packet adds to an inner one: opcode and peer-id, packet id, tag.
const AROUND: u64 = 4 + 4 + 16;

impl Peer {
    /// The peer's inner addresses: the first of each family.
    pub(crate) fn inside(&self) -> Inside {
        let v4 = self.networks.iter().find_map(|network| match network {
            (IpAddr::V4(ip), 32) => Some(*ip),
            _ => None,
        });
        let v6 = self.networks.iter().find_map(|network| match network {
            (IpAddr::V6(ip), 128) => Some(*ip),
            _ => None,
        });
        (v4, v6)
    }

    /// The networks behind the peer, each with the inner address to route it to.
    pub(crate) fn behind(&self) -> Vec<((IpAddr, u8), IpAddr)> {
        let ways = self.ways();
        ways.filter_map(|(network, via)| Some((network, via?)))
            .collect()
    }

    /// Networks behind the peer without a route: the peer has no address of their family, or the network is a default
    /// route, too wide for the host's own table.
    pub(crate) fn unled(&self) -> Vec<(IpAddr, u8)> {
        let ways = self.ways();
        ways.filter_map(|(network, via)| via.is_none().then_some(network))
            .collect()
    }

    fn ways(&self) -> impl Iterator<Item = ((IpAddr, u8), Option<IpAddr>)> {
        let (v4, v6) = self.inside();
        self.networks.iter().filter_map(move |network| {
            let (via, whole) = match network.0 {
                IpAddr::V4(_) => (v4.map(IpAddr::V4), 32),
                IpAddr::V6(_) => (v6.map(IpAddr::V6), 128),
            };
            let own = via.map(|via| (via, whole));
            let via = via.filter(|_| network.1 != 0);
            (own != Some(*network)).then_some((*network, via))
        })
    }

    /// Returns timers that must be repeated now, so that the kernel does not remove a peer whose silence is allowed.
    pub(crate) fn due_again(&mut self, now: Instant) -> Option<Timers> {
        let timers = self.timers.filter(|it| it.bears_silence)?;
        let since = *self.timed.get_or_insert(now);
        let due = now.saturating_duration_since(since) >= AGAIN;
        due.then(|| {
            self.timed = Some(now);
            timers
        })
    }

    /// Resets the figures, as the kernel counts from 0 for a peer that it has just made.
    pub(crate) fn count_anew(&mut self) {
        self.read = None;
        self.figures = OvpnFigures::default();
        self.inside_figures = OvpnFigures::default();
        self.counted = Default::default();
    }

    /// Bytes of opened data packets, overhead included, pings excluded.
    pub(crate) fn opened_bytes(&self) -> u64 {
        let inside = self.inside_figures;
        inside.rx_bytes + inside.rx_packets * AROUND
    }

    /// Bytes of sent data packets, pings excluded. They show whether a session is in use (`inactive`).
    pub(crate) fn sealed_bytes(&self) -> u64 {
        let inside = self.inside_figures;
        inside.tx_bytes + inside.tx_packets * AROUND
    }

    /// Starts to count the use of a session's keys.
    pub(crate) fn count_from_now(&mut self, session: u32) {
        self.counted[1] = self.counted[0];
        self.counted[0] = (session, self.figures);
    }

    /// An upper bound for the use of a session's keys: later packets with other keys count too.
    pub(crate) fn usage(&self, session: u32) -> KeyUsage {
        let counted = self.counted.iter().find(|(it, _)| *it == session);
        let Some((_, before)) = counted else {
            return KeyUsage::default();
        };
        KeyUsage {
            sealed: self.figures.tx_packets.saturating_sub(before.tx_packets),
            opened: self.figures.rx_packets.saturating_sub(before.rx_packets),
            ..KeyUsage::default()
        }
    }
}

impl Timers {
    /// Makes the timers of a peer that is pinged, or whose silence is limited.
    pub(crate) fn of(ping: Option<Duration>, silence: Option<Duration>) -> Option<Self> {
        let longest = Duration::from_secs(LONGEST.into());
        let seconds = |time: Option<Duration>| {
            let time = time.filter(|it| *it < longest);
            time.map_or(LONGEST, |it| (it.as_secs() as u32).max(1))
        };
        (ping.is_some() || silence.is_some()).then(|| Self {
            ping: seconds(ping),
            silence: seconds(silence),
            bears_silence: silence.is_none_or(|it| it > longest),
        })
    }
}
