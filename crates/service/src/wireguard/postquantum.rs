//! Post-quantum keys: carries the datagrams of exchanges inside the tunnel.

use super::machine::{Cx, Machine};
use super::peers::PeerEntry;
use super::probe_plan::first_host;
use ::postquantum::{Outcome, Peer};
use config::postquantum::{PORT, Policy, PostQuantum};
use config::types::{AllowedIp, family_bits};
use plane::PeerId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use wireguard::inside::{HEADERS_MAX, Inside};
use wireguard::{Output, PostQuantumStatus};

/// The MTU of an interface of which no news has come yet, in bytes: the least of IPv6.
const LEAST_MTU: u32 = 1280;

/// How long the address that a peer's last datagram came from is the only one that is written to.
const LATELY: Duration = Duration::from_secs(30);

/// Prefix lengths of the network around an own address in which a peer is looked for, with IPv4 and IPv6.
const AROUND: [u8; 2] = [24, 64];

/// Addresses of the interface, with the prefix lengths of their networks.
pub type OwnAddresses = Vec<(IpAddr, u8)>;

/// The carriage of the exchange with one peer.
#[derive(Debug)]
pub(super) struct Carried {
    settings: PostQuantum,
    /// Our address and the peer's of the last datagram, and when it came.
    heard: Option<(IpAddr, IpAddr, Instant)>,
    /// The number of the address to write to, and when something was last written.
    turn: usize,
    sent: Option<Instant>,
    told: Told,
}

/// The last log message about the exchange with a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Nothing,
    Protected,
    Silent,
    NoAddress,
}

impl Carried {
    /// The pair of addresses, ours first, for datagrams that leave now. The candidates take turns until the peer is heard.
    fn way(&mut self, candidates: &[(IpAddr, IpAddr)], now: Instant) -> Option<(IpAddr, IpAddr)> {
        if self.sent.replace(now).is_some_and(|at| at != now) {
            self.turn = self.turn.wrapping_add(1);
        }
        match self.heard {
            Some((own, peer, at)) if now < at + LATELY => Some((own, peer)),
            _ => candidates
                .get(self.turn.checked_rem(candidates.len())?)
                .copied(),
        }
    }
}

/// The addresses, each after one of ours, at which a peer may be inside the tunnel; the likeliest first. A Millrace takes
/// datagrams of an exchange to any address; a companion has the one of its interface.
fn candidates(
    target: Option<IpAddr>,
    own: &[(IpAddr, u8)],
    ranges: &BTreeSet<AllowedIp>,
) -> Vec<(IpAddr, IpAddr)> {
    let is_peers = |addr: &IpAddr| ranges.iter().any(|range| range.contains(*addr));
    let hosts = ranges
        .iter()
        .filter(|range| range.prefix() == family_bits(range.addr()));
    let networks = own.iter();
    let networks = networks.filter(|(addr, prefix)| *prefix < family_bits(*addr));
    let networks = networks.map(|(addr, prefix)| first_host(*addr, *prefix));
    let around = own.iter().map(|(addr, _)| {
        let prefix = AROUND[usize::from(addr.is_ipv6())];
        first_host(*addr, prefix)
    });
    let all: Vec<IpAddr> = match target {
        Some(target) => vec![target],
        None => {
            let likely = hosts.map(AllowedIp::addr).chain(networks.filter(is_peers));
            likely.chain(around).collect()
        }
    };
    let mut pairs = Vec::new();
    for to in all {
        let from = own.iter().find(|(own, _)| own.is_ipv4() == to.is_ipv4());
        let pair = from.map(|(own, _)| (*own, to));
        pairs.extend(pair.filter(|pair| pair.0 != pair.1 && !pairs.contains(pair)));
    }
    if pairs.is_empty() && target.is_none() {
        // Our own address is that of the first host: a Millrace at the other end takes the datagram all the same.
        pairs.extend(own.first().map(|(own, _)| (*own, *own)));
    }
    pairs
}

impl Machine {
    /// Applies a peer's policy.
    pub(super) fn set_post_quantum(
        &mut self,
        id: PeerId,
        settings: PostQuantum,
        out: &mut Vec<Output>,
    ) {
        let Some(entry) = self.peers.get_mut(&id) else {
            return;
        };
        match &mut entry.post_quantum {
            _ if settings.policy == Policy::Off => entry.post_quantum = None,
            Some(carried) => carried.settings = settings,
            none => {
                *none = Some(Box::new(Carried {
                    settings,
                    heard: None,
                    turn: 0,
                    sent: None,
                    told: Told::Nothing,
                }));
            }
        }
        self.follow_post_quantum(id, out);
    }

    /// The settings of peers with an exchange, by public key.
    pub(super) fn policies(&self) -> BTreeMap<[u8; 32], PostQuantum> {
        let peers = self.peers.values();
        let set = |it: &PeerEntry| {
            let settings = it.post_quantum.as_ref()?.settings;
            Some((*it.public_key.as_bytes(), settings))
        };
        peers.filter_map(set).collect()
    }

    /// Tells the device a peer's policy, and how long datagrams may be.
    fn follow_post_quantum(&mut self, id: PeerId, out: &mut Vec<Output>) {
        let mtu = if self.mtu == 0 { LEAST_MTU } else { self.mtu };
        #[cfg(feature = "amnezia")]
        let pad = !self.device.settings().is_plain();
        #[cfg(not(feature = "amnezia"))]
        let pad = false;
        let carried = self.peers.get(&id).and_then(|it| it.post_quantum.as_ref());
        let settings = carried.map(|it| wireguard::PostQuantum {
            require: it.settings.policy == Policy::Require,
            port: it.settings.target.map_or(PORT, |it| it.port()),
            room: (mtu as usize).saturating_sub(HEADERS_MAX),
            pad,
        });
        self.device.set_post_quantum(id, settings, out);
    }

    /// The interface's MTU, or the form of its packets, has changed.
    pub(super) fn follow_all_post_quantum(&mut self, cx: &mut Cx<'_>) {
        let has = self
            .peers
            .iter()
            .filter(|(_, it)| it.post_quantum.is_some());
        let ids: Vec<PeerId> = has.map(|(id, _)| *id).collect();
        let mut out = Vec::new();
        for id in ids {
            self.follow_post_quantum(id, &mut out);
        }
        self.translate(out, None, cx);
    }

    /// Takes a packet of an exchange; false for other packets.
    pub(super) fn exchange_message(&mut self, id: PeerId, packet: &[u8], cx: &mut Cx<'_>) -> bool {
        let port = self.device.post_quantum(id).map(|it| it.settings.port);
        let Some(inside) = port.and_then(|port| Inside::parse(packet, port)) else {
            return false;
        };
        let now = cx.now.monotonic;
        if let Some(carried) = self.carried(id) {
            carried.heard = Some((inside.to, inside.from, now));
        }
        let mut out = Vec::new();
        self.device
            .exchange_received(id, inside.payload, now, &mut out);
        self.translate(out, None, cx);
        true
    }

    /// A job of ML-KEM has ended.
    pub(super) fn computed(&mut self, id: PeerId, outcome: Outcome, cx: &mut Cx<'_>) {
        let mut out = Vec::new();
        let now = cx.now.monotonic;
        self.device.computed(id, outcome, now, &mut out);
        self.translate(out, None, cx);
    }

    /// Sends a datagram of an exchange, or an empty packet, with the keys of a session.
    pub(super) fn send_inside(
        &mut self,
        id: PeerId,
        session: u32,
        payload: &[u8],
        cx: &mut Cx<'_>,
    ) {
        if payload.is_empty() {
            return cx.plane.send_on(id, session, &[]);
        }
        if self.own.is_none() {
            self.own = Some(cx.host.own_addresses());
        }
        let (Some(status), Some(entry)) = (self.device.post_quantum(id), self.peers.get_mut(&id))
        else {
            return;
        };
        let Some(carried) = &mut entry.post_quantum else {
            return;
        };
        let target = carried.settings.target.map(|it| it.ip());
        let own = self.own.as_deref().unwrap_or_default();
        let candidates = candidates(target, own, &entry.allowed_ips);
        let way = carried.way(&candidates, cx.now.monotonic);
        let packet = way.and_then(|(from, to)| {
            let inside = Inside { from, to, payload };
            inside.emit(status.settings.port)
        });
        match packet {
            Some(packet) => cx.plane.send_on(id, session, &packet),
            None => self.tell(id, Told::NoAddress, cx),
        }
    }

    /// A session with the peer has begun: writes to the log how it is protected, where that is new.
    pub(super) fn tell_protection(&mut self, id: PeerId, cx: &mut Cx<'_>) {
        let status = self.device.post_quantum(id).map(|it| it.exchange);
        match status {
            Some(it) if it.protected == Some(true) => self.tell(id, Told::Protected, cx),
            Some(it) if it.peer == Peer::Silent => self.tell(id, Told::Silent, cx),
            _ => {}
        }
    }

    fn tell(&mut self, id: PeerId, news: Told, cx: &mut Cx<'_>) {
        let Some(carried) = self.carried(id) else {
            return;
        };
        if std::mem::replace(&mut carried.told, news) == news {
            return;
        }
        let requires = carried.settings.policy == Policy::Require;
        let words = match news {
            Told::Nothing => return,
            Told::Protected => "has post-quantum keys (X25519 + ML-KEM-768)",
            Told::Silent if requires => {
                "does not exchange post-quantum keys, so no packet passes; set `PostQuantum` at the peer"
            }
            Told::Silent => "does not exchange post-quantum keys; packets pass under X25519 alone",
            Told::NoAddress => {
                "cannot exchange post-quantum keys: the interface has no address of its family; set `Address`"
            }
        };
        self.log_peer(id, words, cx);
    }

    fn carried(&mut self, id: PeerId) -> Option<&mut Carried> {
        self.peers.get_mut(&id)?.post_quantum.as_deref_mut()
    }

    /// The state of the exchange with a peer, for the status: the key exchange, and whether it is post-quantum.
    pub(super) fn protection(&self, id: PeerId) -> Option<(&'static str, bool)> {
        let PostQuantumStatus { exchange, .. } = self.device.post_quantum(id)?;
        Some(match exchange.protected? {
            true => ("X25519 + ML-KEM-768", true),
            false => ("X25519", false),
        })
    }
}

#[cfg(test)]
mod tests;
