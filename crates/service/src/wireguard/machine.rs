//! The decisions of one interface: events and the time go in, effects come out.

use super::configuration::{Configuration, Job};
use super::effect::{Effect, Ended, PlaneRequest};
use super::event::Event;
use super::names::Name;
use super::peers::PeerEntry;
use super::port::{Bind, REOPEN};
use super::probing::Probing;
use super::recall::Keeping;
use crate::floor::Floor;
use crate::lines::{Lines, TheirLines};
use crate::now::Now;
use crate::status::Refusals;
use config::types::{AllowedIp, Key32};
use config::uapi::{DeviceState, PeerState};
use plane::{Endpoint, LineId, PeerId, RouteChange};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};
use wireguard::{Device, Dropped};

/// How often to look at an interface that was moved to another network namespace, from which no news come.
const MOVED_CHECK: Duration = Duration::from_secs(1);

/// How long routes may settle after a change before they are read: changes come in bursts, and a routing daemon's can
/// go on for long.
const SETTLE: Duration = Duration::from_millis(200);

/// How often at most the kernel is asked for path MTUs to the peers, and only at deadlines that exist anyway. It
/// forgets them after 10 minutes.
const PATH_LOOK: Duration = Duration::from_secs(30);

/// An endpoint that is a name.
#[derive(Clone, Debug)]
pub struct Named {
    /// The peer's key.
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
/// Its owner carries out the effects of [`Machine::handle`] in order, and passes it [`Event::Deadline`] no later than
/// at [`Machine::next_deadline`].
#[derive(Debug)]
pub struct Machine {
    pub(super) device: Device,
    pub(super) peers: BTreeMap<PeerId, PeerEntry>,
    /// Endpoint names of the peers that have one.
    pub(super) names: BTreeMap<PeerId, Name>,
    /// The names of lines' relays.
    pub(super) relays: BTreeMap<LineId, Name>,
    /// Number of look-ups that are running.
    pub(super) lookups: usize,
    /// The peer that owns each range. Invariant: the range is also in the owner's list.
    pub(super) owners: BTreeMap<AllowedIp, PeerId>,
    pub(super) private_key: Option<Key32>,
    /// Handshake messages that were refused.
    refusals: Refusals,
    /// The configuration that is being applied, and those that follow it.
    pub(super) job: Option<Job>,
    pub(super) waiting: VecDeque<Configuration>,
    /// The configured port.
    pub(super) port: u16,
    pub(super) mark: u32,
    /// The interface's lines, if it has any.
    pub(super) lines: Option<Box<Lines>>,
    /// Lines of the peers, told apart by the addresses from which they call.
    pub(super) theirs: TheirLines,
    /// The port of the sockets, if they are open.
    pub(super) bound: Option<u16>,
    /// Sockets that were asked for, in the order in which answers will come.
    pub(super) binds: VecDeque<Bind>,
    /// When sockets that could not be opened are tried again.
    pub(super) reopen: Option<Instant>,
    /// The link was up at the last news.
    pub(super) link_up: bool,
    /// The link's MTU in bytes, at the last news.
    mtu: u32,
    /// When the paths to the peers may be looked at again.
    path_look: Option<Instant>,
    /// When to look at an interface that was moved.
    moved: Option<Instant>,
    /// When to read the routes again.
    recheck: Option<Instant>,
    /// The latest time that stamps may have.
    floor: Floor,
    /// Probes of how long packets to the peers may be.
    pub(super) probing: Probing,
    /// When to write the peers' addresses to the file.
    pub(super) keeping: Keeping,
}

/// Reads a peer's state from the data plane ([`DataPlane::peer`](plane::DataPlane::peer)).
pub type View<'a> = dyn Fn(PeerId) -> Option<plane::PeerState> + 'a;

/// Inputs and outputs of handling one event.
pub(super) struct Turn<'a> {
    pub(super) now: Now,
    pub(super) view: &'a View<'a>,
    pub(super) effects: &'a mut Vec<Effect>,
    /// Changes of routes that take effect together.
    pub(super) routes: Vec<RouteChange>,
}

impl Turn<'_> {
    pub(super) fn plane(&mut self, request: PlaneRequest) {
        self.effects.push(Effect::Plane(request));
    }

    /// Puts the collected changes of routes into force, all at once.
    pub(super) fn commit_routes(&mut self) {
        if !self.routes.is_empty() {
            let changes = std::mem::take(&mut self.routes);
            self.plane(PlaneRequest::ChangeRoutes(changes));
        }
    }

    /// Returns the data plane's state of a peer, or the default for a missing peer.
    pub(super) fn peer(&self, id: PeerId) -> plane::PeerState {
        (self.view)(id).unwrap_or_default()
    }

    /// The endpoint of a peer, as last heard or configured.
    pub(super) fn endpoint(&self, id: PeerId) -> Option<Endpoint> {
        Some(self.peer(id).line?.endpoint)
    }

    /// Stores the address of a name that works, if one is given.
    pub(super) fn keep_address(&mut self, good: Option<(String, IpAddr)>) {
        let keep = good.map(|(name, address)| Effect::KeepAddress(name, address));
        self.effects.extend(keep);
    }

    pub(super) fn log(&mut self, level: log::Level, words: String) {
        self.effects.push(Effect::Log(level, words));
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
            relays: BTreeMap::new(),
            lookups: 0,
            owners: BTreeMap::new(),
            private_key: None,
            refusals: Refusals::new(Dropped::ALL.map(Dropped::name)),
            job: None,
            waiting: VecDeque::new(),
            port: 0,
            mark: 0,
            lines: None,
            theirs: TheirLines::default(),
            bound: None,
            binds: VecDeque::new(),
            reopen: None,
            link_up: false,
            mtu: 0,
            path_look: None,
            moved: None,
            recheck: None,
            floor: Floor::default(),
            probing: Probing::default(),
            keeping: Keeping::default(),
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

    /// Handles an event, and puts out the effects in order.
    pub fn handle(&mut self, event: Event, now: Now, view: &View<'_>, effects: &mut Vec<Effect>) {
        let first = effects.len();
        self.take(event, now, view, effects);
        if let Some(floor) = self.floor.use_up(self.latest_stamp(), now.wall) {
            // Goes before the effects that send the stamp.
            effects.insert(first, Effect::KeepFloor(floor));
        }
    }

    fn take(&mut self, event: Event, now: Now, view: &View<'_>, effects: &mut Vec<Effect>) {
        // Sets the clock first: any step below may begin a handshake, and the wall clock may have been set since.
        self.device.set_wall_clock(now.monotonic, now.wall);
        let turn = &mut Turn {
            now,
            view,
            effects,
            routes: Vec::new(),
        };
        match event {
            Event::Handshake {
                from,
                bytes,
                waiting,
            } => return self.handshake(from, &bytes, waiting, turn),
            Event::Start => self.open(turn),
            Event::Notices(notices) => {
                self.notices(notices, turn);
                self.probe(turn);
            }
            Event::Configure { client, set } => self.configure(client, set, turn),
            Event::SetEndpoint {
                public_key,
                endpoint,
            } => self.set_endpoint(&public_key, &endpoint, turn),
            Event::Recall(peers) => self.recall(peers, turn),
            Event::Call(peers) => self.call(peers, turn),
            Event::LookedUp { lookup, found } => self.looked_up(&lookup, found, turn),
            Event::Bound(result) => self.bound(result, turn),
            Event::Marked(result) => self.marked(result, turn),
            Event::ProbePaths(plan) => self.probe_paths(plan, turn),
            Event::Message(id, bytes) => self.probe_answered(id, &bytes, turn),
            Event::ProbeTooLong(id, number) => self.probe_too_long(id, number, turn),
            Event::NetworkChanged => {
                self.recheck.get_or_insert(now.monotonic + SETTLE);
            }
            Event::LinksChanged => self.links_changed(turn),
            Event::LinesRead(facts) => self.lines_read(&facts, turn),
            Event::LineOpened(line, result) => self.line_opened(line, result, turn),
            Event::LinesCounted(carried) => self.lines_counted(&carried, turn),
            Event::LinesEnd => {
                self.with_lines(turn, |lines, _, out| lines.keep(out));
            }
            Event::RoutesRead(routes) => self.routes_read(routes, turn),
            Event::Link { up, mtu } => {
                turn.plane(PlaneRequest::SetMtu(mtu as usize));
                if std::mem::replace(&mut self.mtu, mtu) != mtu {
                    // Another program may have set the MTU.
                    turn.effects.push(Effect::LookAtPath);
                }
                self.link(up, turn);
            }
            Event::LinkMoved => {
                self.moved = Some(now.monotonic + MOVED_CHECK);
                // The kernel has taken the link down for the move, and sends no news here when it comes up again in
                // the other namespace.
                self.link(true, turn);
            }
            Event::LinkGone => turn.effects.push(Effect::End(Ended::LinkDeleted)),
            Event::SocketRemoved => turn.effects.push(Effect::End(Ended::SocketRemoved)),
            Event::Terminate(signal) => turn.effects.push(Effect::End(Ended::Signal(signal))),
            Event::Reload => turn.effects.push(Effect::Reload),
            Event::Deadline => self.deadline(turn),
        }
        self.begin_lookups(turn);
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
            self.probing.next_deadline(),
            self.keeping.due,
        ];
        let own = own.into_iter().flatten();
        own.chain(self.device.next_deadline()).min()
    }

    fn deadline(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        if self.recheck.take_if(|at| *at <= now).is_some() {
            self.read_routes(turn);
            turn.effects.push(Effect::Changed);
        }
        if self.path_look.is_none_or(|at| at <= now) {
            self.path_look = Some(now + PATH_LOOK);
            turn.effects.push(Effect::LookAtPath);
        }
        if self.reopen.take_if(|at| *at <= now).is_some() && self.lacks_sockets() {
            self.reopen = Some(now + REOPEN);
            self.open(turn);
        }
        if let Some(at) = self.moved.as_mut().filter(|at| **at <= now) {
            *at = now + MOVED_CHECK;
            turn.effects.push(Effect::CheckLink);
        }
        self.expire(turn);
        self.lines_expire(turn);
        self.probe(turn);
        self.keep_peers(turn);
    }

    /// Handles a change of the routing tables. For peers now reached through another interface than their packets
    /// come in on, the kernel chooses our address until they are heard again. (The kernel module looks at every
    /// packet; here one look for each change must do.)
    fn read_routes(&mut self, turn: &mut Turn<'_>) {
        self.hurry_names(turn.now.monotonic);
        if self.lines.is_some() {
            // Each line has a route of its own.
            return;
        }
        let sourced = |id: &PeerId| {
            let state = turn.peer(*id);
            let endpoint = state.line?.endpoint;
            // Without a key nothing is sent, and the handshake brings a new source.
            let sends = endpoint.source.is_some() && state.sealed.is_some();
            sends.then(|| (*id, endpoint.addr.ip()))
        };
        let peers: Vec<_> = self.peers.keys().filter_map(sourced).collect();
        if !peers.is_empty() {
            let mark = self.mark;
            turn.effects.push(Effect::ReadRoutes { mark, peers });
        }
    }

    fn routes_read(&self, routes: Vec<(PeerId, Option<u32>)>, turn: &mut Turn<'_>) {
        for (id, dev) in routes {
            let source = turn.endpoint(id).and_then(|endpoint| endpoint.source);
            let elsewhere = source.is_some_and(|source| Some(source.ifindex) != dev);
            if elsewhere && self.peers.contains_key(&id) {
                turn.plane(PlaneRequest::ForgetSource(id));
            }
        }
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
    pub fn state(&self, view: &View<'_>) -> (DeviceState, Vec<PeerState>) {
        let device = DeviceState {
            private_key: self.private_key.clone(),
            listen_port: self.bound.unwrap_or(self.port),
            fwmark: self.mark,
        };
        let peers = self.peers.iter().map(|(id, entry)| {
            let moved = view(*id).unwrap_or_default();
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

    /// The public key of the peer with this number, if there is one.
    #[must_use]
    pub fn public_key_of(&self, peer: PeerId) -> Option<&Key32> {
        Some(&self.peers.get(&peer)?.public_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(machine: &mut Machine, event: Event, now: Now) -> usize {
        let mut effects = Vec::new();
        machine.handle(event, now, &|_| None, &mut effects);
        let is_look = |effect: &&Effect| matches!(effect, Effect::LookAtPath);
        effects.iter().filter(is_look).count()
    }

    /// The kernel is asked at most twice a minute, however often events come.
    #[test]
    fn paths_are_looked_at_seldom_and_when_the_mtu_is_another() {
        let start = Now::read();
        let mut machine = Machine::new(start, 1);
        let mut found = 0;
        for second in 0..300 {
            let now = Now {
                monotonic: start.monotonic + Duration::from_secs(second),
                ..start
            };
            found += looks(&mut machine, Event::Deadline, now);
        }
        assert_eq!(found, 10);
        let up = |mtu| Event::Link { up: true, mtu };
        let found = [1420, 1420, 1300, 1300].map(|mtu| looks(&mut machine, up(mtu), start));
        assert_eq!(found, [1, 0, 1, 0]);
    }
}
