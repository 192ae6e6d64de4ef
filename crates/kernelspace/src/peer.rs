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
    /// Those of them that routes lead to, and by which address.
    pub(crate) routed: Vec<((IpAddr, u8), IpAddr)>,
    /// The kernel's number for it, once it is there.
    pub(crate) kernel: Option<u32>,
    /// The addresses inside that it has there.
    pub(crate) told: Inside,
    pub(crate) slots: Slots,
    /// Keys that came before the address that the kernel needs to make the peer, the oldest first.
    pub(crate) waiting: Vec<(u32, Material)>,
    /// The session among those that is to seal.
    pub(crate) seals: Option<u32>,
    /// Seconds until a ping, and until silence is too long; 0 for never.
    pub(crate) timers: Option<(u32, u32)>,
    /// The kernel has let it go.
    pub(crate) silent: bool,
    /// Data packets when the kernel was asked last. Those received are not known to be authentic.
    pub(crate) figures: OvpnFigures,
    /// The same of packets inside, which are those that were opened without pings.
    pub(crate) inside_figures: OvpnFigures,
    /// When it was found that more had been opened.
    pub(crate) heard: Option<Instant>,
    /// The figures when the keys came that seal, and those that open besides.
    counted: [(u32, OvpnFigures); 2],
}

/// Addresses that a peer has inside.
pub(crate) type Inside = (Option<Ipv4Addr>, Option<Ipv6Addr>);

/// Longer than any session is silent, in seconds: the kernel does one of the two only where it does both.
const NEVER: u32 = 7 * 86_400;

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
        let (v4, v6) = self.inside();
        let behind = self.networks.iter().filter_map(|network| {
            let via = match network.0 {
                IpAddr::V4(_) => v4.map(IpAddr::V4),
                IpAddr::V6(_) => v6.map(IpAddr::V6),
            }?;
            let whole = if via.is_ipv4() { 32 } else { 128 };
            (*network != (via, whole)).then_some((*network, via))
        });
        behind.collect()
    }

    /// The kernel counts from 0, for a peer that is new to it.
    pub(crate) fn count_anew(&mut self) {
        self.figures = OvpnFigures::default();
        self.inside_figures = OvpnFigures::default();
        self.counted = Default::default();
    }

    /// Bytes of data packets that were opened, with what is around what is inside.
    pub(crate) fn opened_bytes(&self) -> u64 {
        let inside = self.inside_figures;
        inside.rx_bytes + inside.rx_packets * AROUND
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

/// What the kernel is told of the times.
pub(crate) fn timers(ping: Option<Duration>, silence: Option<Duration>) -> Option<(u32, u32)> {
    let seconds = |time: Option<Duration>| {
        let time = time.map(|it| u32::try_from(it.as_secs()).unwrap_or(NEVER));
        time.map_or(NEVER, |it| it.clamp(1, NEVER))
    };
    (ping.is_some() || silence.is_some()).then(|| (seconds(ping), seconds(silence)))
}
