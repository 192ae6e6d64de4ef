//! The peers that take part: their exchanges, and what the last look at the interface has shown of them.

use super::interface::{self, Device};
use super::stall::Stall;
use super::table::Table;
use config::postquantum::{PORT, PostQuantum};
use config::types::{AllowedIp, Key32, family_bits};
use crypto::Key;
use postquantum::{Effect, Exchange, Job, KeyId, Session, Settings, Task};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lifetime of a session. After it, a peer sends nothing but the start of a handshake.
const SESSION: Duration = Duration::from_secs(180);

/// Time in which handshakes lead to no session, after which another key takes its turn: at the end with the greater
/// public key, and at the other. The ends never change keys in step, and so meet.
const STALL: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(20)];

/// Time after a key was set in which a session may begin under the key before: whoever answers a handshake chooses the
/// key first, and the caller may wait this long for the answer.
const SETTLING: Duration = Duration::from_secs(5);

/// Encapsulations a second for all peers.
const ENCAPSULATIONS: u32 = 100;

/// A peer that takes part, by the file.
#[derive(Clone, Debug)]
pub struct Member {
    /// The peer's public key.
    pub public_key: Key32,
    /// `PresharedKey` in the file, all zero for none: the base key.
    pub preshared_key: Key32,
    /// The peer's settings.
    pub settings: PostQuantum,
}

/// An action for the companion.
#[derive(Debug)]
pub(super) enum Action {
    Send(SocketAddr, Vec<u8>),
    /// Set a peer's preshared key.
    Use(Key32, Key32),
}

/// One peer.
struct Peer {
    exchange: Exchange,
    public_key: Key32,
    target: SocketAddr,
    /// The name of the key that the interface holds.
    held: KeyId,
    /// From when on sessions are surely under that key, since 1970.
    counts: Duration,
    last_handshake: Duration,
    stall: Stall,
    /// How long handshakes may fail before another key takes its turn.
    turn: Duration,
    /// Handshakes have failed: the next key that is set takes its turn.
    is_turn: bool,
    /// The last state in the log: whether the session is protected.
    told: Option<bool>,
}

/// All peers of the interface that take part.
pub(super) struct Peers {
    ifname: String,
    /// Bytes of the longest UDP payload.
    room: usize,
    members: Vec<Member>,
    peers: HashMap<Key32, Peer>,
    /// Public keys of all peers of the interface, in the order of the table's places, with their ranges.
    order: Vec<(Key32, Vec<AllowedIp>)>,
    table: Table,
    /// The second in which encapsulations were counted last, and their count.
    encapsulated: (Instant, u32),
}

impl Peers {
    pub(super) fn new(ifname: &str, room: usize, members: Vec<Member>) -> Self {
        Self {
            ifname: ifname.to_owned(),
            room,
            members,
            peers: HashMap::new(),
            order: Vec::new(),
            table: Table::default(),
            encapsulated: (Instant::now(), 0),
        }
    }

    pub(super) fn set_members(&mut self, members: Vec<Member>) {
        self.members = members;
        // The next look takes over what has changed.
        self.order.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Whether handshakes of a peer seem to fail.
    pub(super) fn may_stall(&self) -> bool {
        self.peers.values().any(|it| it.stall.is_likely())
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let peers = self.peers.values();
        peers.filter_map(|it| it.exchange.next_deadline()).min()
    }

    /// Takes a look at the interface, at this time by both clocks.
    pub(super) fn look(&mut self, device: &Device, now: (Instant, SystemTime)) -> Vec<Action> {
        let ranges = |it: &interface::Peer| (it.public_key.clone(), it.allowed_ips.clone());
        let order: Vec<_> = device.peers.iter().map(ranges).collect();
        if order != self.order {
            self.table = Table::new(device);
            self.order = order;
            self.change(device);
        }
        let mut actions = Vec::new();
        for seen in &device.peers {
            let Some(peer) = self.peers.get_mut(&seen.public_key) else {
                continue;
            };
            let mut effects = Vec::new();
            peer.look(seen, now, &self.ifname, &mut effects);
            self.carry_out(&seen.public_key, effects, now.0, &mut actions);
        }
        actions
    }

    /// Takes over peers that came, changed or went.
    fn change(&mut self, device: &Device) {
        let Some(own) = &device.public_key else {
            self.peers.clear();
            return;
        };
        let members: HashMap<&Key32, &Member> =
            (self.members.iter().map(|it| (&it.public_key, it))).collect();
        let mut before = std::mem::take(&mut self.peers);
        for seen in &device.peers {
            let Some(member) = members.get(&seen.public_key) else {
                continue;
            };
            let target = member.settings.target;
            let Some(target) = target.or_else(|| target_in(&seen.allowed_ips)) else {
                log::warn!(
                    "{}: peer {}: AllowedIPs has no single address; write PostQuantumAddress into the file",
                    self.ifname,
                    seen.public_key.short()
                );
                continue;
            };
            let mut peer = (before.remove(&seen.public_key))
                .unwrap_or_else(|| Peer::new(own, seen, &member.preshared_key, target, self.room));
            peer.target = target;
            self.peers.insert(seen.public_key.clone(), peer);
        }
    }

    /// A datagram from this inner address, which the interface has authenticated.
    pub(super) fn received(
        &mut self,
        source: IpAddr,
        datagram: &[u8],
        now: Instant,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let owner = self.table.owner(source);
        let Some((key, _)) = owner.and_then(|at| self.order.get(at)) else {
            return actions;
        };
        let key = key.clone();
        if let Some(peer) = self.peers.get_mut(&key) {
            let mut effects = Vec::new();
            peer.exchange.received(datagram, now, &mut effects);
            self.carry_out(&key, effects, now, &mut actions);
        }
        actions
    }

    /// Handles deadlines.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        let due = |it: &Peer| it.exchange.next_deadline().is_some_and(|at| at <= now);
        let peers = self.peers.iter().filter(|(_, it)| due(it));
        let due: Vec<Key32> = peers.map(|(key, _)| key.clone()).collect();
        for key in due {
            let mut effects = Vec::new();
            if let Some(peer) = self.peers.get_mut(&key) {
                peer.exchange.expired(now, &mut effects);
            }
            self.carry_out(&key, effects, now, &mut actions);
        }
        actions
    }

    /// Carries out effects: runs jobs at once, and returns the other actions.
    fn carry_out(
        &mut self,
        key: &Key32,
        mut effects: Vec<Effect>,
        now: Instant,
        actions: &mut Vec<Action>,
    ) {
        while !effects.is_empty() {
            let mut more = Vec::new();
            for effect in effects {
                let may_run = match &effect {
                    Effect::Compute(job) => self.may_run(job, now),
                    _ => true,
                };
                let Some(peer) = self.peers.get_mut(key) else {
                    return;
                };
                match effect {
                    Effect::Send(datagram) => actions.push(Action::Send(peer.target, datagram)),
                    Effect::Use(new) => {
                        peer.take(KeyId::of(&new));
                        actions.push(Action::Use(key.clone(), Key32::new(*new.as_bytes())));
                    }
                    Effect::Compute(job) => {
                        let outcome = match may_run {
                            true => job.run(),
                            false => job.refuse(),
                        };
                        peer.exchange.computed(outcome, now, &mut more);
                    }
                    // Nothing makes an interface begin a handshake.
                    Effect::Handshake => {}
                }
            }
            effects = more;
        }
    }

    /// Whether a job may run now: peers ask for encapsulations.
    fn may_run(&mut self, job: &Job, now: Instant) -> bool {
        if !matches!(job.task, Task::Encapsulate(_)) {
            return true;
        }
        let (since, count) = &mut self.encapsulated;
        if now >= *since + Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count <= ENCAPSULATIONS
    }
}

impl Peer {
    fn new(
        own: &Key32,
        seen: &interface::Peer,
        base: &Key32,
        target: SocketAddr,
        room: usize,
    ) -> Self {
        let mut exchange = Exchange::new(Settings {
            own: *own.as_bytes(),
            peer: *seen.public_key.as_bytes(),
            base: key(base),
            single_slot: true,
            room,
            pad: false,
        });
        let held = KeyId::of(&key(&seen.preshared_key));
        // An earlier run may have set the key of an exchange after the last session began.
        let counts = match held == exchange.base() {
            true => Duration::ZERO,
            false => since_1970() + SETTLING,
        };
        exchange.resume(key(&seen.preshared_key));
        Self {
            exchange,
            public_key: seen.public_key.clone(),
            target,
            held,
            counts,
            last_handshake: Duration::ZERO,
            stall: Stall::new(seen.bytes, Instant::now()),
            turn: STALL[usize::from(own.as_bytes() < seen.public_key.as_bytes())],
            is_turn: false,
            told: None,
        }
    }

    /// The interface is about to hold this key.
    fn take(&mut self, new: KeyId) {
        self.held = new;
        self.counts = since_1970();
        // Handshakes that failed before succeed under the new key only.
        if !std::mem::take(&mut self.is_turn) {
            self.counts += SETTLING;
        }
    }

    fn look(
        &mut self,
        seen: &interface::Peer,
        (now, wall): (Instant, SystemTime),
        ifname: &str,
        out: &mut Vec<Effect>,
    ) {
        let found = key(&seen.preshared_key);
        let id = KeyId::of(&found);
        if id != self.held {
            return self.replaced(found, id, out);
        }
        let age = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = age.saturating_sub(seen.last_handshake);
        if seen.last_handshake > self.last_handshake {
            self.last_handshake = seen.last_handshake;
            self.stall.ended(seen.bytes, now);
            if age < SESSION && seen.last_handshake >= self.counts {
                let session = Session {
                    initiator: true,
                    under: self.held,
                    began: now.checked_sub(age).unwrap_or(now),
                };
                self.exchange.session(session, now, out);
                self.tell(ifname);
            }
        } else if self.stall.look(seen.bytes, age >= SESSION, self.turn, now) {
            self.exchange.stalled(out);
            self.is_turn = !out.is_empty();
        }
    }

    /// Another program has set a key. The configured one, as by `wg syncconf`, gives way to that of the last exchange;
    /// one that was unknown is the configured one from now on.
    fn replaced(&mut self, found: Key, id: KeyId, out: &mut Vec<Effect>) {
        let is_known = self.exchange.candidates().any(|(known, _)| known == id);
        if !is_known {
            self.exchange.set_base(found.clone());
        }
        self.exchange.resume(found);
        self.held = id;
        if is_known && id == self.exchange.base() {
            self.exchange.stalled(out);
        }
    }

    /// Logs whether the session is protected, if that has changed.
    fn tell(&mut self, ifname: &str) {
        let protected = self.exchange.status().protected;
        if protected == self.told {
            return;
        }
        self.told = protected;
        let words = match protected {
            Some(true) => "the session has a post-quantum key",
            _ => "the session has no post-quantum key yet",
        };
        log::info!("{ifname}: peer {}: {words}", self.public_key.short());
    }
}

/// The wall clock, since 1970.
fn since_1970() -> Duration {
    let age = SystemTime::now().duration_since(UNIX_EPOCH);
    age.unwrap_or_default()
}

fn key(key: &Key32) -> Key {
    Key::from(*key.as_bytes())
}

/// The first single address of these ranges, with the usual port.
fn target_in(ranges: &[AllowedIp]) -> Option<SocketAddr> {
    let single = |it: &&AllowedIp| it.prefix() == family_bits(it.addr());
    let found = ranges.iter().find(single)?;
    Some(SocketAddr::new(found.addr(), PORT))
}
