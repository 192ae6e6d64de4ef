//! One peer: what control has said of it, and what of that the kernel knows.

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
    /// The networks that are its own, in the order in which they were given to it.
    pub(crate) networks: Vec<(IpAddr, u8)>,
    /// Networks of these that routes lead to, and by which address.
    pub(crate) routed: Vec<((IpAddr, u8), IpAddr)>,
    /// Networks that no route leads to, which the log has.
    pub(crate) unrouted: Vec<(IpAddr, u8)>,
    /// The kernel's number for it, once it is there.
    pub(crate) kernel: Option<u32>,
    /// The addresses inside that it has there.
    pub(crate) told: Inside,
    pub(crate) slots: Slots,
    /// Keys that came before the address that the kernel needs to make the peer, the oldest first.
    pub(crate) waiting: Vec<(u32, Material)>,
    /// The session among those that is to seal.
    pub(crate) seals: Option<u32>,
    pub(crate) timers: Option<Timers>,
    /// When the kernel was found to have them, if they are to be said again.
    pub(crate) timed: Option<Instant>,
    /// The kernel has let it go.
    pub(crate) silent: bool,
    /// Data packets when the kernel was asked last. Those received are not known to be authentic.
    pub(crate) figures: OvpnFigures,
    /// Figures of packets inside, which are those that were opened without pings.
    pub(crate) inside_figures: OvpnFigures,
    /// When those were asked for.
    pub(crate) read: Option<Instant>,
    /// When it was found that more had been opened.
    pub(crate) heard: Option<Instant>,
    /// The figures when the keys came that seal, and those that open besides.
    counted: [(u32, OvpnFigures); 2],
}

/// Addresses that a peer has inside.
pub(crate) type Inside = (Option<Ipv4Addr>, Option<Ipv6Addr>);

/// The longest time that the kernel takes, in seconds (`OVPN_A_PEER_KEEPALIVE_TIMEOUT`, Documentation/netlink/specs/ovpn.yaml). It
/// stands for "never" too: the kernel looks after one of the two times only where it looks after both.
pub(crate) const LONGEST: u32 = 86_400;

/// After how long times that are shorter than they should be are said again, from which on the kernel counts anew.
const AGAIN: Duration = Duration::from_secs(6 * 3600);

/// The times for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timers {
    /// Seconds without a packet to the peer until a ping.
    pub(crate) ping: u32,
    /// Seconds without a packet from the peer until it is let go of.
    pub(crate) silence: u32,
    /// A silence of any length is to be borne, or of more than the kernel takes.
    bears_silence: bool,
}

/// Bytes of a data packet beside those inside: opcode and peer-id, packet id, tag.
const AROUND: u64 = 4 + 4 + 16;

impl Peer {
    /// Its own addresses: the first of each family.
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

    /// The networks behind it, and the address that leads there.
    pub(crate) fn behind(&self) -> Vec<((IpAddr, u8), IpAddr)> {
        let ways = self.ways();
        ways.filter_map(|(network, via)| Some((network, via?)))
            .collect()
    }

    /// The networks behind it that nothing leads to: it has no address of their family, or they are everything, which is more than
    /// the host's own table is to lead to a peer.
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

    /// The times that the kernel has to be told again, lest it lets go of a peer whose silence is borne.
    pub(crate) fn due_again(&mut self, now: Instant) -> Option<Timers> {
        let timers = self.timers.filter(|it| it.bears_silence)?;
        let since = *self.timed.get_or_insert(now);
        let due = now.saturating_duration_since(since) >= AGAIN;
        due.then(|| {
            self.timed = Some(now);
            timers
        })
    }

    /// The kernel counts from 0, for a peer that is new to it.
    pub(crate) fn count_anew(&mut self) {
        self.read = None;
        self.figures = OvpnFigures::default();
        self.inside_figures = OvpnFigures::default();
        self.counted = Default::default();
    }

    /// Bytes of data packets that were opened, with what is around what is inside.
    pub(crate) fn opened_bytes(&self) -> u64 {
        let inside = self.inside_figures;
        inside.rx_bytes + inside.rx_packets * AROUND
    }

    /// Bytes of data packets that were sent, pings left out: by them it is found that a session is not used (`inactive`).
    pub(crate) fn sealed_bytes(&self) -> u64 {
        let inside = self.inside_figures;
        inside.tx_bytes + inside.tx_packets * AROUND
    }

    /// Keys of a session begin to count.
    pub(crate) fn count_from_now(&mut self, session: u32) {
        self.counted[1] = self.counted[0];
        self.counted[0] = (session, self.figures);
    }

    /// How much the keys of a session were used, at most: packets of others that came since are among them.
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
    /// The timers of a peer that is pinged, or whose silence has an end.
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
