//! How long packets to the peers may be: when to probe, which address to ask, and what the answers change.
//!
//! A peer is probed only while packets go both ways, and without traffic no timer runs.

use super::machine::{Cx, Machine, Plane};
use config::types::Key32;
use crypto::x25519::PublicKey;
use host::ProbedPath;
use plane::{LineId, PeerId};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wireguard::echo::{self, Answer};
use wireguard::path_probe::{Knowledge, PathProbe, ProbeEffect};

/// How often at most to look for traffic; looks happen only when another deadline is due.
const LOOK: Duration = Duration::from_secs(5);

/// Time from the start of a session, or of traffic, to a look with a deadline of its own.
const STIR: Duration = Duration::from_secs(1);

/// Bytes since the last look that count as traffic. Keepalives and handshakes are fewer.
const BUSY: u64 = 1000;

/// Bytes around an inner packet over IPv4 and IPv6: outer headers, WireGuard's header and tag.
const OVERHEAD: [u32; 2] = [60, 80];

/// Addresses of a peer that may answer, each after the address of ours that asks; the likeliest first.
type Targets = Arc<[(IpAddr, IpAddr)]>;

/// Packet sizes and addresses to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// Shortest packet length to probe, in bytes.
    pub least: u16,
    /// Longest packet length to probe, in bytes.
    pub most: u16,
    /// The peers, each with the addresses that may answer.
    pub peers: Vec<(Key32, Targets)>,
    /// Bytes in front of each data packet, beyond those of plain WireGuard.
    pub prefix: u32,
}

/// The probes of an interface.
#[derive(Debug, Default)]
pub(super) struct Probing {
    plan: Option<Box<ProbePlan>>,
    /// Token of the awaited ping answers; 0 while no probe runs.
    token: u64,
    looked: Option<Instant>,
    /// When to look for traffic with a deadline of its own.
    stirred: Option<Instant>,
}

/// The path to a peer.
#[derive(Debug)]
pub(super) struct Path {
    /// Addresses that may answer, and the index of the one being asked.
    targets: Targets,
    target: usize,
    probe: PathProbe,
    /// The line and the address over which the peer is reached.
    way: (LineId, SocketAddr),
    /// Bytes in both directions at the last look; `None` if probes are among them.
    counted: Option<u64>,
    /// The longest packet that passes, in bytes, if it is shorter than the plan's longest.
    carries: Option<u16>,
}

impl Probing {
    /// Plans a look, as there is traffic or soon will be.
    pub(super) fn stir(&mut self, now: Instant) {
        if self.plan.is_some() {
            self.stirred.get_or_insert(now + STIR);
        }
    }
}

impl Machine {
    /// The paths that are known, of peers that had traffic since the plan was made.
    fn paths(&self) -> impl Iterator<Item = (PeerId, &Path)> {
        let planned = self.probing.plan.iter();
        let peers = planned.flat_map(|_| &self.peers);
        peers.filter_map(|(id, peer)| Some((*id, peer.path.as_deref()?)))
    }

    fn path(&self, id: PeerId) -> Option<&Path> {
        self.peers.get(&id)?.path.as_deref()
    }

    fn path_mut(&mut self, id: PeerId) -> Option<&mut Path> {
        self.peers.get_mut(&id)?.path.as_deref_mut()
    }

    pub(super) fn probes_due(&self) -> Option<Instant> {
        let rounds = self.paths().map(|(_, path)| path.probe.next_deadline());
        rounds.chain([self.probing.stirred]).flatten().min()
    }

    pub(super) fn probe_paths(&mut self, plan: Option<Box<ProbePlan>>, cx: &mut Cx<'_>) {
        if self.probing.plan == plan {
            return;
        }
        let narrowed = self.paths().any(|(_, path)| path.carries.is_some());
        self.probing.plan = plan;
        for peer in self.peers.values_mut() {
            peer.path = None;
        }
        if narrowed {
            cx.host.look_at_path();
        }
        self.probing.stir(cx.now.monotonic);
        self.watch(cx);
    }

    /// Gives up probes without an answer, and begins probes that are due where there is traffic.
    pub(super) fn probe(&mut self, cx: &mut Cx<'_>) {
        if self.probing.plan.is_none() {
            return;
        }
        let now = cx.now.monotonic;
        let due = |path: &Path| path.probe.next_deadline().is_some_and(|at| at <= now);
        let paths = self.paths().filter(|(_, path)| due(path));
        let expired: Vec<PeerId> = paths.map(|(id, _)| id).collect();
        for id in expired {
            self.with_path(id, cx, |path, out| path.probe.expire(now, out));
        }
        let stirred = self.probing.stirred.take_if(|at| *at <= now).is_some();
        if stirred || self.probing.looked.is_none_or(|at| at + LOOK <= now) {
            self.probing.looked = Some(now);
            self.look_for_traffic(cx);
        }
        self.watch(cx);
    }

    fn look_for_traffic(&mut self, cx: &mut Cx<'_>) {
        let Some(plan) = &self.probing.plan else {
            return;
        };
        let (least, most) = (plan.least, plan.most);
        let peers = plan.peers.iter().filter(|(_, targets)| !targets.is_empty());
        let known =
            peers.filter_map(|(key, targets)| Some((self.peer_of(key)?, Arc::clone(targets))));
        for (id, targets) in known.collect::<Vec<_>>() {
            let state = cx.peer(id);
            let (Some(line), true) = (state.line, state.sealed.is_some()) else {
                continue;
            };
            let way = (line.id, line.endpoint.addr);
            let bytes = state.rx_bytes + state.tx_bytes;
            let Some(peer) = self.peers.get_mut(&id) else {
                continue;
            };
            if peer.path.as_ref().is_none_or(|path| path.way != way) {
                let new = Path {
                    targets,
                    target: 0,
                    probe: PathProbe::new(least, most, random() >> 1),
                    way,
                    counted: Some(0),
                    carries: None,
                };
                let before = peer.path.replace(Box::new(new));
                if before.is_some_and(|path| path.carries.is_some()) {
                    cx.host.look_at_path();
                }
            }
            let now = cx.now.monotonic;
            self.with_path(id, cx, |path, out| {
                if path.probe.next_deadline().is_some() {
                    return path.counted = None;
                }
                let before = path.counted.replace(bytes);
                if before.is_some_and(|before| bytes.saturating_sub(before) >= BUSY) {
                    path.probe.traffic(now, out);
                }
            });
        }
    }

    pub(super) fn probe_answered(&mut self, id: PeerId, bytes: &[u8], cx: &mut Cx<'_>) {
        let Some(answer) = Answer::parse(bytes) else {
            return;
        };
        let (now, from) = (cx.now.monotonic, self.target(id).map(|(_, to)| to));
        if from == Some(answer.from) && answer.token == self.probing.token {
            self.with_path(id, cx, |path, out| {
                path.probe.answered(answer.number, now, out);
            });
            self.watch(cx);
        }
    }

    pub(super) fn probe_too_long(&mut self, id: PeerId, number: u64, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        self.with_path(id, cx, |path, out| path.probe.refused(number, now, out));
        self.watch(cx);
    }

    /// Our address that asks, and the peer's address that is asked.
    fn target(&self, id: PeerId) -> Option<(IpAddr, IpAddr)> {
        let path = self.path(id)?;
        path.targets.get(path.target).copied()
    }

    pub(super) fn peer_of(&self, key: &Key32) -> Option<PeerId> {
        let public = PublicKey::from(*key.as_bytes());
        self.device.peer_by_public_key(&public)
    }

    /// Changes the path to a peer, and applies the consequences.
    fn with_path(
        &mut self,
        id: PeerId,
        cx: &mut Cx<'_>,
        change: impl FnOnce(&mut Path, &mut Vec<ProbeEffect>),
    ) {
        let Some(path) = self.path_mut(id) else {
            return;
        };
        let (mut out, doubted) = (Vec::new(), path.probe.doubts());
        change(path, &mut out);
        if path.probe.next_deadline().is_some() {
            path.counted = None;
        }
        if path.probe.doubts() && !doubted {
            cx.host.look_at_path();
        }
        self.next_target(id);
        for effect in out {
            match effect {
                ProbeEffect::Use(bytes) => self.carries(id, bytes, cx),
                ProbeEffect::Send { number, len } => self.ask(id, (number, len), cx),
            }
        }
    }

    /// Goes on to the peer's next address, if probing of this one has ended without an answer to long packets.
    fn next_target(&mut self, id: PeerId) {
        let Some(plan) = &self.probing.plan else {
            return;
        };
        let (least, most) = (plan.least, plan.most);
        let Some(path) = self.path_mut(id) else {
            return;
        };
        let knows = path.probe.knowledge();
        if matches!(knows, Knowledge::Silent | Knowledge::OnlyShort)
            && path.probe.next_deadline().is_none()
            && path.target + 1 < path.targets.len()
        {
            path.target += 1;
            path.probe = PathProbe::new(least, most, random() >> 1);
        }
    }

    fn carries(&mut self, id: PeerId, bytes: u16, cx: &mut Cx<'_>) {
        let most = self.probing.plan.as_ref().map_or(0, |plan| plan.most);
        if let Some(path) = self.path_mut(id) {
            let carries = Some(bytes).filter(|bytes| *bytes < most);
            if std::mem::replace(&mut path.carries, carries) != carries {
                cx.host.look_at_path();
            }
        }
    }

    fn ask(&mut self, id: PeerId, (number, len): (u64, u16), cx: &mut Cx<'_>) {
        if self.probing.token == 0 {
            self.probing.token = random().max(1);
            cx.host.watch_echoes(self.probing.token);
        }
        let request = self
            .target(id)
            .and_then(|addresses| echo::request(addresses, (self.probing.token, number), len));
        if let Some(request) = request {
            cx.probe(id, number, &request);
        }
    }

    /// Waits for ping answers as long as a probe is open.
    fn watch(&mut self, cx: &mut Cx<'_>) {
        let asks = |path: &Path| path.probe.next_deadline().is_some();
        if self.probing.token != 0 && !self.paths().any(|(_, path)| asks(path)) {
            self.probing.token = 0;
            cx.host.watch_echoes(0);
        }
    }

    /// Returns the narrowest path, if one carries less than the plan's longest packet.
    pub(super) fn probed_path(&self, plane: &Plane) -> Option<ProbedPath> {
        let narrow = self
            .paths()
            .filter_map(|(id, path)| Some((path.carries?, id, path.way.1.ip())));
        let (bytes, id, to) = narrow.min()?;
        let prefix = self.probing.plan.as_ref().map_or(0, |plan| plan.prefix);
        let line = plane.peer(id).and_then(|state| state.line);
        let to = line.map_or(to, |line| line.endpoint.addr.ip());
        Some(ProbedPath {
            to,
            bytes: bytes.into(),
            overhead: OVERHEAD[usize::from(to.is_ipv6())] + prefix,
        })
    }

    /// Describes the paths in words; `None` without a probe plan.
    pub(super) fn probe_report(&self) -> Option<String> {
        let plan = self.probing.plan.as_ref()?;
        let describe = |(key, targets): &(Key32, Targets)| {
            let of = self.peer_of(key).and_then(|id| self.path(id));
            let target = targets.get(of.map_or(0, |path| path.target));
            let Some((_, target)) = target else {
                return "no address of the peer is known to ping; set one with dataplane.mtu-probe"
                    .to_owned();
            };
            match of.map_or(Knowledge::Unknown, |path| path.probe.knowledge()) {
                Knowledge::Unknown => format!("{target} has not been pinged yet"),
                Knowledge::Searching => format!("{target} is being pinged"),
                Knowledge::Found(bytes) => format!("{target} answers up to {bytes} bytes"),
                Knowledge::OnlyShort => format!("{target} answers short pings only"),
                Knowledge::Silent => format!("{target} answers no pings"),
            }
        };
        let mut words: Vec<String> = Vec::new();
        for peer in &plan.peers {
            let new = describe(peer);
            if words.last() != Some(&new) {
                words.push(new);
            }
            if words.len() == REPORTED {
                break;
            }
        }
        Some(words.join("; "))
    }
}

/// Maximum number of peers that the report names.
const REPORTED: usize = 8;

fn random() -> u64 {
    let mut bytes = [0; 8];
    crypto::random(&mut bytes);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests;
