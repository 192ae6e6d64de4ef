//! The decisions of one interface: events and the time go in; it calls its data plane and its host.

#[cfg(feature = "amnezia")]
use super::diagnosis::Diagnosis;
use super::event::Event;
use super::host::Host;
use super::peers::{Heard, PeerEntry};
use super::probing::Probing;
use super::recall::Keeping;
use crate::status::Refusals;
use ::lines::control::{Lines, TheirLines};
use ::lines::floor::Floor;
use ::lines::names::Name;
use config::types::{AllowedIp, Key32};
use config::uapi::{DeviceState, PeerState};
use crypto::x25519::PublicKey;
use plane::Now;
use plane::{DataPlane, Endpoint, Notice, PeerId, RouteChange, Whole};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};
use wireguard::{Device, Dropped, WireGuard};

/// How often to look at an interface that was moved to another network namespace, from which no news come.
const MOVED_CHECK: Duration = Duration::from_secs(1);

/// How long routes may settle after a change before they are read: changes come in bursts, and a routing daemon's can
/// go on for long.
const SETTLE: Duration = Duration::from_millis(200);

/// How often at most the kernel is asked for path MTUs to the peers, and only at deadlines that exist anyway. It
/// forgets them after 10 minutes.
const PATH_LOOK: Duration = Duration::from_secs(30);

/// How long a peer may be quiet while its handshakes stay unanswered. A peer that still sends has only lost a packet of a
/// handshake, and its session goes on. The same time as for the first handshake after packets without an answer.
const SILENT_AFTER: Duration = Duration::from_secs(15);

/// An endpoint that is a name.
#[derive(Clone, Debug)]
pub struct Named {
    /// Public key of the peer.
    pub public_key: Key32,
    /// The name and the port.
    pub endpoint: config::types::Endpoint,
    /// Whether a look-up has ended, well or not.
    pub is_tried: bool,
    /// Addresses found; empty until a look-up succeeds.
    pub addresses: Vec<SocketAddr>,
}

/// A WireGuard interface: its configuration, its peers and the protocol, without I/O, clocks or threads.
///
/// Its owner passes it events with a [`Cx`], and [`Event::Deadline`] no later than at [`Machine::next_deadline`].
#[derive(Debug)]
pub struct Machine {
    pub(super) device: Device,
    pub(super) peers: BTreeMap<PeerId, PeerEntry>,
    /// Endpoint names of the peers that have one.
    pub(super) names: BTreeMap<PeerId, Name>,
    /// Number of look-ups that are running.
    pub(super) lookups: usize,
    /// The peer that owns each range. Invariant: the range is also in the owner's list.
    pub(super) owners: BTreeMap<AllowedIp, PeerId>,
    pub(super) private_key: Option<Key32>,
    /// Handshake messages that were refused.
    refusals: Refusals,
    pub(super) port: u16,
    pub(super) mark: u32,
    /// The interface's lines, if it has any.
    pub(super) lines: Option<Box<Lines>>,
    /// Lines of the peers, told apart by the addresses from which they send.
    pub(super) theirs: TheirLines,
    /// The port of the sockets, if they are open.
    pub(super) bound: Option<u16>,
    /// When sockets that could not be opened are tried again.
    pub(super) reopen: Option<Instant>,
    /// The link was up at the last news.
    pub(super) link_up: bool,
    /// The link's MTU in bytes, at the last news.
    pub(super) mtu: u32,
    /// When the paths to the peers may be looked at again.
    path_look: Option<Instant>,
    /// When to look at an interface that was moved.
    moved: Option<Instant>,
    /// When to read the routes again.
    recheck: Option<Instant>,
    /// The floor: the latest timestamp that may be sent.
    floor: Floor,
    /// Probes of how long packets to the peers may be.
    pub(super) probing: Probing,
    /// When to write the peers' addresses to the file.
    pub(super) keeping: Keeping,
    #[cfg(feature = "amnezia")]
    pub(super) diagnosis: Diagnosis,
    /// The interface's addresses, once an exchange of post-quantum keys needs them.
    #[cfg(feature = "postquantum")]
    pub(super) own: Option<super::OwnAddresses>,
    /// Silent peers were told already: a pool calls one server after the other, again and again.
    pub(super) is_told: bool,
}

/// The data plane of an interface.
pub type Plane = dyn DataPlane<Protocol = WireGuard>;

/// The context of a machine while it handles an event: its data plane and its host, at one moment.
pub struct Cx<'a> {
    pub(super) now: Now,
    pub(super) plane: &'a Plane,
    pub(super) host: &'a mut dyn Host,
    /// Changes of routes that take effect together.
    pub(super) routes: Vec<RouteChange>,
    /// Activity that raised no notice, as the data plane was being disarmed.
    active: Vec<(PeerId, Notice)>,
    /// Probes that this host refuses because of their length: the peer, and the probe's number.
    too_long: Vec<(PeerId, u64)>,
}

impl<'a> Cx<'a> {
    /// Makes the context of events at `now`.
    pub fn new(now: Now, plane: &'a Plane, host: &'a mut dyn Host) -> Self {
        Self {
            now,
            plane,
            host,
            routes: Vec::new(),
            active: Vec::new(),
            too_long: Vec::new(),
        }
    }

    /// Puts the collected changes of routes into force, all at once.
    pub(super) fn commit_routes(&mut self) {
        if !self.routes.is_empty() {
            self.plane.change_routes(&std::mem::take(&mut self.routes));
        }
    }

    /// Disarms the notice of a peer's activity. Activity since the last look is handled after the event.
    pub(super) fn disarm(&mut self, id: PeerId) {
        self.plane.disarm(id);
        let times = self.peer(id).times;
        let active = times.unanswered_since.is_some() || times.unacked_since.is_some();
        if active && self.plane.arm(id) {
            self.active.push((id, Notice::Active));
        }
    }

    /// Sends a probe. If this host refuses its length, that is handled after the event.
    pub(super) fn probe(&mut self, id: PeerId, number: u64, packet: &[u8]) {
        if self.plane.send_whole(id, packet) == Whole::TooLong {
            self.too_long.push((id, number));
        }
    }

    /// Returns the data plane's state of a peer, or the default for a missing peer.
    pub(super) fn peer(&self, id: PeerId) -> plane::PeerState {
        self.plane.peer(id).unwrap_or_default()
    }

    /// The endpoint of a peer, as last heard or configured.
    pub(super) fn endpoint(&self, id: PeerId) -> Option<Endpoint> {
        Some(self.peer(id).line?.endpoint)
    }

    /// Stores the address of a name that works, if one is given.
    pub(super) fn keep_address(&mut self, good: Option<(String, IpAddr)>) {
        if let Some((name, address)) = good {
            self.host.keep_address(&name, address);
        }
    }

    pub(super) fn log(&mut self, level: log::Level, words: &str) {
        self.host.log(level, words);
    }
}

impl Machine {
    /// Makes an interface without key, peers and sockets. `seed` is any number that differs between machines: it
    /// spreads the repetitions of handshakes.
    #[must_use]
    pub fn new(now: Now, seed: u64) -> Self {
        Self {
            device: Device::new(now.monotonic, now.wall, seed),
            peers: BTreeMap::new(),
            names: BTreeMap::new(),
            lookups: 0,
            owners: BTreeMap::new(),
            private_key: None,
            refusals: Refusals::new(Dropped::ALL.map(Dropped::name)),
            port: 0,
            mark: 0,
            lines: None,
            theirs: TheirLines::default(),
            bound: None,
            reopen: None,
            link_up: false,
            mtu: 0,
            path_look: None,
            moved: None,
            recheck: None,
            floor: Floor::default(),
            probing: Probing::default(),
            keeping: Keeping::default(),
            #[cfg(feature = "amnezia")]
            diagnosis: Diagnosis::default(),
            #[cfg(feature = "postquantum")]
            own: None,
            is_told: false,
        }
    }

    /// Makes all later timestamps exceed `floor`, the latest that an earlier run of this interface may have sent.
    /// Call it after [`Machine::set_lines`].
    pub fn restore_floor(&mut self, floor: SystemTime) {
        self.device.set_timestamp_floor(floor);
        if let Some(lines) = &mut self.lines {
            lines.set_stamp_floor(floor);
        }
    }

    /// The latest stamp that was sent; 1970 before the first.
    #[must_use]
    pub fn latest_stamp(&self) -> SystemTime {
        let lines = self.lines.as_ref().map(|lines| lines.latest_stamp());
        let latest = self.device.latest_timestamp();
        lines.map_or(latest, |lines| lines.max(latest))
    }

    /// Under load, IPv4 sources are counted by this many leading bits: see [`Device::set_ipv4_source_prefix`].
    pub fn set_ipv4_source_prefix(&mut self, bits: u8) {
        self.device.set_ipv4_source_prefix(bits);
    }

    /// Handles an event.
    pub fn handle(&mut self, event: Event, cx: &mut Cx<'_>) {
        self.turn(cx, |machine, cx| machine.take(event, cx));
    }

    /// Does something, and then what follows from it.
    pub(super) fn turn<T>(
        &mut self,
        cx: &mut Cx<'_>,
        first: impl FnOnce(&mut Self, &mut Cx<'_>) -> T,
    ) -> T {
        // Any step below may begin a handshake, and the wall clock may have been set since.
        self.device.set_wall_clock(cx.now.monotonic, cx.now.wall);
        let result = first(self, cx);
        self.begin_lookups(cx);
        while !cx.active.is_empty() || !cx.too_long.is_empty() {
            let active = std::mem::take(&mut cx.active);
            if !active.is_empty() {
                self.notices(active, cx);
                self.probe(cx);
            }
            for (id, number) in std::mem::take(&mut cx.too_long) {
                self.probe_too_long(id, number, cx);
            }
        }
        result
    }

    /// Writes the floor for a stamp that is about to be sent.
    pub(super) fn keep_floor(&mut self, stamp: SystemTime, cx: &mut Cx<'_>) {
        if let Some(floor) = self.floor.use_up(stamp, cx.now.wall) {
            cx.host.keep_floor(floor);
        }
    }

    /// Writes the files for the last time, as the interface ends.
    pub fn end(&mut self, cx: &mut Cx<'_>) {
        cx.host
            .keep_peers(&self.recalled(cx.now.monotonic, cx.plane));
        self.with_lines(cx, |lines, now, out| lines.keep(now, out));
    }

    fn take(&mut self, event: Event, cx: &mut Cx<'_>) {
        match event {
            Event::Handshake {
                from,
                bytes,
                waiting,
            } => self.handshake(from, &bytes, waiting, cx),
            Event::Start => {
                #[cfg(feature = "amnezia")]
                cx.host.sample(wireguard::amnezia::TRIALS_MAX);
                self.open(cx);
            }
            Event::Notices(notices) => {
                self.notices(notices, cx);
                self.probe(cx);
            }
            Event::SetEndpoint {
                public_key,
                endpoint,
            } => self.set_endpoint(&public_key, &endpoint, cx),
            Event::Recall(peers) => self.recall(peers, cx),
            #[cfg(feature = "handover")]
            Event::RecallNamed(peers) => self.recall_named(&peers, cx),
            Event::Call(peers) => self.call(peers, cx),
            Event::LookedUp { lookup, found } => self.looked_up(&lookup, found, cx),
            Event::ProbePaths(plan) => self.probe_paths(plan, cx),
            Event::Message(id, bytes) => {
                #[cfg(feature = "postquantum")]
                if self.exchange_message(id, &bytes, cx) {
                    return;
                }
                self.probe_answered(id, &bytes, cx);
            }
            #[cfg(feature = "postquantum")]
            Event::Computed(id, outcome) => self.computed(id, outcome, cx),
            Event::NetworkChanged => self.network_changed(cx.now.monotonic),
            Event::LinksChanged => self.read_lines(cx),
            Event::Link { up, mtu } => {
                cx.plane.set_mtu(mtu as usize);
                if std::mem::replace(&mut self.mtu, mtu) != mtu {
                    // Another program may have set the MTU.
                    cx.host.look_at_path();
                    #[cfg(feature = "postquantum")]
                    self.follow_all_post_quantum(cx);
                }
                self.link(up, cx);
            }
            Event::LinkMoved => {
                self.moved = Some(cx.now.monotonic + MOVED_CHECK);
                // The kernel has taken the link down for the move, and sends no news here when it comes up again in
                // the other namespace.
                self.link(true, cx);
            }
            Event::Deadline => self.deadline(cx),
        }
    }

    /// Plans to read the routes again.
    pub(super) fn network_changed(&mut self, now: Instant) {
        #[cfg(feature = "postquantum")]
        {
            self.own = None;
        }
        self.recheck.get_or_insert(now + SETTLE);
    }

    /// When the machine next has something to do, if no event comes until then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let own = [
            self.recheck,
            self.reopen,
            self.moved,
            self.names_due(),
            self.lines_due(),
            self.probes_due(),
            self.keeping.due,
            #[cfg(feature = "amnezia")]
            self.diagnosis.due,
        ];
        let own = own.into_iter().flatten();
        own.chain(self.device.next_deadline()).min()
    }

    fn deadline(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        if self.recheck.take_if(|at| *at <= now).is_some() {
            self.read_routes(cx);
            cx.host.changed();
        }
        if self.path_look.is_none_or(|at| at <= now) {
            self.path_look = Some(now + PATH_LOOK);
            cx.host.look_at_path();
        }
        self.reopen(cx);
        if let Some(at) = self.moved.as_mut().filter(|at| **at <= now) {
            *at = now + MOVED_CHECK;
            cx.host.check_link();
        }
        self.expire(cx);
        self.lines_expire(cx);
        self.probe(cx);
        self.keep_peers(cx);
        #[cfg(feature = "amnezia")]
        self.ask_for_rejected(cx);
    }

    /// Handles a change of the routing tables. For peers now reached through another interface than their packets
    /// come in on, the kernel chooses our address until they are heard again. (The kernel module looks at every
    /// packet; here one look for each change must do.)
    fn read_routes(&mut self, cx: &mut Cx<'_>) {
        self.hurry_names(cx.now.monotonic);
        if self.lines.is_some() {
            // Each line has a route of its own.
            return;
        }
        let sourced = |id: &PeerId| {
            let state = cx.peer(*id);
            let endpoint = state.line?.endpoint;
            // Without a key only handshakes are sent; a repetition forgets the source.
            let source = endpoint.source.filter(|_| state.sealed.is_some())?;
            Some((*id, (endpoint.addr.ip(), source.ip), source.ifindex))
        };
        let peers: Vec<_> = self.peers.keys().filter_map(sourced).collect();
        if peers.is_empty() {
            return;
        }
        // A host with two uplinks may have a rule by which the source decides.
        let ways: Vec<_> = peers.iter().map(|(_, way, _)| *way).collect();
        let reached = cx.host.interfaces_to(self.mark, &ways);
        for ((id, _, from), by) in peers.into_iter().zip(reached) {
            if by != Some(from) {
                cx.plane.forget_source(id);
            }
        }
    }

    /// Answers of the peers until `now`.
    #[must_use]
    pub fn heard(&self, now: Instant, plane: &Plane) -> Heard {
        let answered = self.peers.values();
        let answered = answered.filter_map(|peer| Some((peer.last_handshake?.1, peer)));
        let first = answered.min_by_key(|(at, _)| *at);
        let is_silent = |(id, peer)| self.is_silent(id, peer, now, plane);
        Heard {
            first: first.map(|(_, peer)| peer.public_key.clone()),
            silent: !self.peers.is_empty() && self.peers.iter().all(is_silent),
        }
    }

    /// Whether a peer leaves handshakes unanswered and has sent nothing for a while, or has no address.
    pub(super) fn is_silent(
        &self,
        id: &PeerId,
        peer: &PeerEntry,
        now: Instant,
        plane: &Plane,
    ) -> bool {
        let name = self.names.get(id);
        let unknown = name.is_some_and(|it| it.is_tried() && it.addresses().is_empty());
        let received = || peer.silence.heard(plane.peer(*id)?.times.last_received);
        let is_heard = || received().is_some_and(|at| now < at + SILENT_AFTER);
        unknown || (peer.silence.is_unanswered() && !is_heard())
    }

    /// The peers that are called and do not answer, by their public keys.
    #[must_use]
    pub fn silent(&self, now: Instant, plane: &Plane) -> Vec<Key32> {
        let silent = |it: &(&PeerId, &PeerEntry)| self.is_silent(it.0, it.1, now, plane);
        let silent = self.peers.iter().filter(silent);
        silent.map(|(_, peer)| peer.public_key.clone()).collect()
    }

    /// Peers whose endpoints are names, with the addresses found.
    #[must_use]
    pub fn names(&self) -> Vec<Named> {
        let named = self.names.iter().filter_map(|(id, name)| {
            Some(Named {
                public_key: self.peers.get(id)?.public_key.clone(),
                endpoint: name.endpoint().clone(),
                is_tried: name.is_tried(),
                addresses: name.addresses().to_vec(),
            })
        });
        named.collect()
    }

    /// The configuration and the counters, for `wg show`.
    #[must_use]
    pub fn state(&self, plane: &Plane) -> (DeviceState, Vec<PeerState>) {
        let device = DeviceState {
            private_key: self.private_key.clone(),
            listen_port: self.bound.unwrap_or(self.port),
            fwmark: self.mark,
            #[cfg(feature = "amnezia")]
            amnezia: self.device.settings(),
        };
        let peers = self.peers.iter().map(|(id, entry)| {
            let moved = plane.peer(*id).unwrap_or_default();
            PeerState {
                endpoint: moved.line.map(|line| line.endpoint.addr.into()),
                rx_bytes: moved.rx_bytes,
                tx_bytes: moved.tx_bytes,
                ..entry.state()
            }
        });
        (device, peers.collect())
    }

    /// Refused handshake messages, counted by reason.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(super) fn count(&mut self, why: Dropped) {
        self.refusals.count(why.name());
    }

    /// Writes to the log about a peer.
    pub(super) fn log_peer(&self, id: PeerId, words: &str, cx: &mut Cx<'_>) {
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let at = cx.endpoint(id).map(|it| it.addr.to_string());
        let (name, more) = match &peer.name {
            Some(name) => (name.to_string(), Some(peer.public_key.short())),
            None => (peer.public_key.to_base64().to_string(), None),
        };
        let more: Vec<String> = more.into_iter().chain(at).collect();
        let more = match more.is_empty() {
            true => String::new(),
            false => format!(" ({})", more.join("; ")),
        };
        cx.log(log::Level::Info, &format!("peer {name}{more} {words}"));
    }

    /// Names the peers of these keys, for the status and the log.
    pub fn name_peers(&mut self, names: impl IntoIterator<Item = (Key32, Option<Box<str>>)>) {
        for (key, name) in names {
            let public = PublicKey::from(*key.as_bytes());
            let id = self.device.peer_by_public_key(&public);
            if let Some(peer) = id.and_then(|id| self.peers.get_mut(&id)) {
                peer.name = name;
            }
        }
    }

    /// The public key of the peer with this number, if there is one.
    #[must_use]
    pub fn public_key_of(&self, peer: PeerId) -> Option<&Key32> {
        Some(&self.peers.get(&peer)?.public_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wireguard::fixture::FakeHost;
    use config::uapi::{SetDevice, SetPeer};
    use plane::fake::FakeDataPlane;
    use std::sync::Arc;

    #[test]
    fn the_log_names_peers_as_the_file_does() {
        let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
        let mut host = FakeHost::new(plane.clone());
        let mut machine = Machine::new(Now::read(), 1);
        let [key, other] = [7, 8].map(|byte| Key32::new([byte; 32]));
        let mut cx = Cx::new(Now::read(), &*plane, &mut host);
        let set = |key: &Key32, remove| SetDevice {
            peers: vec![SetPeer {
                public_key: key.clone(),
                remove,
                ..SetPeer::default()
            }],
            ..SetDevice::default()
        };
        machine.configure(&set(&key, false), &mut cx).unwrap();
        let name = |name: &str| Some(Box::from(name));
        for name in [None, name("store-7"), name("store-8"), None] {
            machine.name_peers([(other.clone(), name.clone()), (key.clone(), name)]);
            let id = *machine.peers.keys().next().unwrap();
            machine.log_peer(id, "is connected", &mut cx);
        }
        machine.name_peers([(key.clone(), name("store-7"))]);
        // The next peer of this key is another one.
        machine.configure(&set(&key, true), &mut cx).unwrap();
        machine.configure(&set(&key, false), &mut cx).unwrap();
        let id = *machine.peers.keys().next().unwrap();
        machine.log_peer(id, "is connected", &mut cx);
        let whole = format!("peer {} is connected", *key.to_base64());
        let named = |name: &str| format!("peer {name} (BwcHBwcH\u{2026}) is connected");
        let removed =
            named("store-7").replace("is connected", "is removed: its key is refused from now on");
        let said = [
            &whole,
            &named("store-7"),
            &named("store-8"),
            &whole,
            &removed,
            &whole,
        ];
        let said = said.into_iter();
        let said = said.filter(|it| cfg!(feature = "server") || !it.contains("is removed"));
        assert!(host.said.iter().eq(said), "{:?}", host.said);
    }

    /// The kernel is asked at most twice a minute, however often events come.
    #[test]
    fn paths_are_looked_at_seldom_and_when_the_mtu_is_another() {
        let start = Now::read();
        let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
        let mut host = FakeHost::new(plane.clone());
        let mut machine = Machine::new(start, 1);
        for second in 0..300 {
            let now = Now {
                monotonic: start.monotonic + Duration::from_secs(second),
                ..start
            };
            machine.handle(Event::Deadline, &mut Cx::new(now, &*plane, &mut host));
        }
        assert_eq!(host.path_looks, 10);
        for (mtu, looks) in [(1420, 11), (1420, 11), (1300, 12), (1300, 12)] {
            let up = Event::Link { up: true, mtu };
            machine.handle(up, &mut Cx::new(start, &*plane, &mut host));
            assert_eq!(host.path_looks, looks);
        }
    }
}
