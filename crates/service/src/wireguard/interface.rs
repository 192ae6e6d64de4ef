//! A running interface: its machine, its data plane and its host.

#[cfg(feature = "postquantum")]
use super::computer::Computer;
use super::event::Event;
use super::host::{Ended, Host};
use super::machine::{Cx, Machine, Named};
use super::peers::Heard;
use super::pool::Rotation;
use super::probing::ProbePlan;
use super::recall;
use super::sockets::SocketPlan;
use crate::inbox::Inbox;
use ::wireguard::WireGuard;
#[cfg(feature = "amnezia")]
use ::wireguard::amnezia::Profile;
use config::lines::Lines;
use config::pool::Server;
use config::settings::MtuProbe;
use config::tunnel::Tunnel;
use config::types::Key32;
use config::uapi::{DeviceState, PeerState, SetDevice};
#[cfg(feature = "amnezia")]
use host::Mtu;
use host::{TunnelMtu, Want};
use lines::control::{self, LineFacts, LineUsage, UsageFile};
use lines::floor::FloorFile;
use lines::names::{self, LookUp, Resolver};
use netio::netlink::Netlink;
use netio::udp::SocketError;
use plane::Now;
use plane::{Endpoint, Line, LineId};
use std::net::IpAddr;
use std::path::PathBuf;
#[cfg(any(feature = "amnezia", feature = "postquantum"))]
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Maximum number of handshake messages served before everything else gets a turn: signals, timers and
/// configuration must get through even during a flood.
const MESSAGES_AT_ONCE: usize = 64;

/// Data plane that moves the interface's packets. The control thread calls it a few times a second.
pub(super) type Plane = userspace::Plane<WireGuard>;

/// A running interface.
pub struct Interface {
    pub(super) machine: Machine,
    pub(super) plane: Box<Plane>,
    pub(super) outside: Outside,
    /// MTU that the owner wants, and why.
    pub(super) wanted_mtu: Option<TunnelMtu>,
    /// Warnings of the owner for the user.
    pub(super) warnings: Vec<String>,
    /// The part of the configuration that the last reload refused, for the status.
    pub(super) refused: Option<String>,
    /// The thing that the tunnel waits for, for the status.
    pub(super) waiting_for: Option<String>,
    /// The latest failures of servers of the tunnel's pool, for the status.
    pub(super) failures: Vec<(String, Instant)>,
    /// MTU probe setting.
    pub(super) mtu_probe: MtuProbe,
    /// Another program has handed the device over, with the routes through it.
    #[cfg(feature = "handover")]
    pub(super) is_inherited: bool,
}

/// The host's side of an interface: sockets, files, look-ups, and the owner's tasks.
pub(super) struct Outside {
    /// Packet format of the data plane.
    pub(super) protocol: WireGuard,
    pub(super) sockets: SocketPlan,
    lines: Lines,
    /// File of the bytes that the lines have carried.
    usage: Option<UsageFile>,
    /// File of the floor, the latest timestamp that may be sent.
    floor: Option<FloorFile>,
    /// File of the addresses where the peers are.
    peers: Option<PathBuf>,
    resolver: Resolver,
    #[cfg(feature = "postquantum")]
    computer: Computer,
    /// The last error of opening sockets.
    unbound: Option<SocketError>,
    news: News,
}

/// Tasks for the daemon.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Tell the owner of a change.
    pub(super) changed: bool,
    /// Have the owner look at the paths to the peers.
    pub(super) path: bool,
    /// Have the owner read its configuration again.
    pub(super) reload: bool,
    /// The interface has ended, for this reason.
    pub(super) ended: Option<Ended>,
}

/// An interface's host, for the time of an event.
struct Here<'a> {
    plane: &'a Plane,
    outside: &'a mut Outside,
}

impl Host for Here<'_> {
    fn open_sockets(&mut self, line: LineId, port: u16, mark: u32) -> Result<u16, String> {
        let opened = self.outside.open(self.plane, line, port, mark);
        opened.map_err(|error| {
            let words = error.to_string();
            if self.outside.lines.lines.is_empty() {
                self.outside.unbound = Some(error);
            }
            words
        })
    }

    fn set_mark(&mut self, mark: u32) -> Result<(), String> {
        let settings = &self.outside.lines.lines;
        let own = |line: LineId| {
            let settings = settings.get(line.index());
            settings.is_some_and(|line| line.mark.is_some())
        };
        let lines = (0..settings.len().max(1) as u8).map(LineId);
        let mut lines = lines.filter(|line| !own(*line));
        let marked = lines.try_for_each(|line| self.plane.set_mark(line, mark));
        marked.map_err(|e| e.to_string())
    }

    fn line_facts(&mut self) -> Vec<Option<LineFacts>> {
        control::read(&self.outside.lines)
    }

    fn keep_usage(&mut self, usage: &[LineUsage]) {
        if let Some(file) = &mut self.outside.usage {
            file.write(usage);
        }
    }

    fn keep_floor(&mut self, floor: SystemTime) {
        if let Some(file) = &mut self.outside.floor {
            file.raise(floor);
        }
    }

    #[cfg(feature = "amnezia")]
    fn set_profile(&mut self, profile: Option<Arc<Profile>>) {
        self.outside.protocol.set_profile(profile);
    }

    #[cfg(feature = "amnezia")]
    fn sample(&mut self, count: u32) {
        self.outside.protocol.sample(count);
    }

    #[cfg(feature = "amnezia")]
    fn take_bare_keepalive(&mut self) -> Option<u32> {
        self.outside.protocol.take_bare_keepalive()
    }

    fn keep_address(&mut self, name: &str, address: IpAddr) {
        names::keep(name, address);
    }

    fn keep_peers(&mut self, peers: &[(Key32, Endpoint)]) {
        if let Some(path) = &self.outside.peers {
            recall::keep(path, peers);
        }
    }

    fn look_up(&mut self, lookup: LookUp) {
        self.outside.resolver.look_up(lookup);
    }

    fn interfaces_to(&mut self, mark: u32, ways: &[(IpAddr, IpAddr)]) -> Vec<Option<u32>> {
        let netlink = Netlink::open().inspect_err(|e| log::warn!("{e}"));
        let Ok(mut netlink) = netlink else {
            return Vec::new();
        };
        let mut dev = |(to, from): &(IpAddr, IpAddr)| {
            let way = netlink.route_from(*to, Some(*from), mark);
            Some(way.ok()?.dev)
        };
        ways.iter().map(&mut dev).collect()
    }

    fn check_link(&mut self) {
        if self.plane.interface().is_err() {
            self.outside.news.ended.get_or_insert(Ended::LinkDeleted);
        }
    }

    #[cfg(feature = "postquantum")]
    fn own_addresses(&mut self) -> super::OwnAddresses {
        let name = self.plane.interface().unwrap_or_default();
        let read = Netlink::open().and_then(|mut netlink| {
            let index = netlink.index_of(&name)?;
            netlink.addresses(Some(index))
        });
        let read = read.inspect_err(|e| log::warn!("{e}")).unwrap_or_default();
        let read = read.into_iter().filter(|it| !it.tentative);
        read.map(|it| (it.ip, it.prefix)).collect()
    }

    #[cfg(feature = "postquantum")]
    fn compute(&mut self, peer: plane::PeerId, job: postquantum::Job) {
        self.outside.computer.begin(peer, job);
    }

    fn watch_echoes(&mut self, token: u64) {
        self.outside.protocol.echoes().watch(token);
    }

    fn changed(&mut self) {
        self.outside.news.changed = true;
    }

    fn look_at_path(&mut self) {
        self.outside.news.path = true;
    }

    fn log(&mut self, level: log::Level, words: &str) {
        log::log!(level, "{words}");
    }
}

impl Outside {
    /// Replaces the open sockets of a line. Returns the port.
    fn open(&self, plane: &Plane, line: LineId, port: u16, mark: u32) -> Result<u16, SocketError> {
        let mut plan = self.sockets.clone();
        (plan.port, plan.fwmark) = (port, mark);
        if let Some(settings) = self.lines.lines.get(line.index()) {
            plan.device.clone_from(&settings.interface);
            plan.address = settings.source;
        }
        let sockets = match plan.open() {
            // A line without a device cannot share a port with a line that has one.
            Err(SocketError::PortInUse(_)) if line != LineId::FIRST => {
                plan.port = 0;
                plan.open()?
            }
            opened => opened?,
        };
        let opened = plane.open_line(line, sockets);
        let what = "adding";
        opened.map_err(|source| SocketError::Option { what, source })?;
        Ok(plane.port(line).unwrap_or(port))
    }
}

impl Interface {
    pub(super) fn new(
        machine: Machine,
        (plane, protocol): (Box<Plane>, WireGuard),
        (sockets, lines): (SocketPlan, Lines),
        resolver: Resolver,
    ) -> Self {
        let outside = Outside {
            protocol,
            sockets,
            lines,
            usage: None,
            floor: None,
            peers: None,
            #[cfg(feature = "postquantum")]
            computer: Computer::new(Arc::clone(&resolver.wake)),
            resolver,
            unbound: None,
            news: News::default(),
        };
        Self {
            machine,
            plane,
            outside,
            wanted_mtu: None,
            warnings: Vec::new(),
            refused: None,
            waiting_for: None,
            failures: Vec::new(),
            mtu_probe: MtuProbe::Off,
            #[cfg(feature = "handover")]
            is_inherited: false,
        }
    }

    /// Continues each uplink's monthly count from the file of the last run.
    pub(super) fn restore_lines(&mut self, name: &str) {
        let mut lines = self.outside.lines.lines.iter();
        if lines.any(|line| line.cap.is_some()) {
            let (file, usage) = UsageFile::of(name, None);
            self.machine.restore_lines(&usage);
            self.outside.usage = file;
        }
    }

    /// Makes stamps later than those of earlier runs, whatever the clock shows.
    pub(super) fn restore_floor(&mut self) {
        let (file, floor) = FloorFile::open();
        self.machine.restore_floor(floor);
        self.outside.floor = file;
    }

    /// Writes the files for the last time and ends the interface, without telling the owner.
    pub(super) fn end(&mut self) {
        self.with(|machine, cx| machine.end(cx));
        if let Some(floor) = &mut self.outside.floor {
            floor.end(self.machine.latest_stamp());
        }
    }

    /// Opens the sockets for the first time.
    ///
    /// # Errors
    /// Opening the sockets failed.
    pub(super) fn start(&mut self) -> Result<(), SocketError> {
        self.handle(Event::Start);
        self.outside.unbound.take().map_or(Ok(()), Err)
    }

    /// Calls the machine, with its data plane and its host.
    fn with<T>(&mut self, call: impl FnOnce(&mut Machine, &mut Cx<'_>) -> T) -> T {
        let plane: &Plane = &*self.plane;
        let outside = &mut self.outside;
        let mut host = Here { plane, outside };
        call(
            &mut self.machine,
            &mut Cx::new(Now::read(), plane, &mut host),
        )
    }

    /// Has the machine handle an event.
    pub(super) fn handle(&mut self, event: Event) {
        self.with(|machine, cx| machine.handle(event, cx));
    }

    /// Whether the interface has been deleted.
    pub(super) fn is_gone(&self) -> bool {
        self.plane.interface().is_err()
    }

    /// Serves messages that workers have left in the inbox. Returns whether more wait.
    pub(super) fn serve(&mut self, inbox: &Inbox) -> bool {
        let notices = inbox.take_notices();
        if !notices.is_empty() {
            self.handle(Event::Notices(notices.into_iter().collect()));
        }
        // While these are handled, a peer may send more: they wait for the next call.
        for (peer, bytes) in inbox.take_messages() {
            self.handle(Event::Message(peer, bytes));
        }
        for _ in 0..MESSAGES_AT_ONCE {
            let Some((arrival, waiting)) = inbox.next_arrival() else {
                return false;
            };
            let from = Line {
                id: arrival.line,
                ..Line::udp(arrival.from)
            };
            let bytes = arrival.bytes;
            self.handle(Event::Handshake {
                from,
                bytes,
                waiting,
            });
        }
        true
    }

    /// Takes the results of look-ups, and handles what is due.
    pub(super) fn expire(&mut self) {
        while let Some((lookup, found)) = self.outside.resolver.next() {
            self.handle(Event::LookedUp { lookup, found });
        }
        #[cfg(feature = "postquantum")]
        while let Some((peer, outcome)) = self.outside.computer.next() {
            self.handle(Event::Computed(peer, outcome));
        }
        let deadline = self.machine.next_deadline();
        if deadline.is_some_and(|at| at <= Instant::now()) {
            self.handle(Event::Deadline);
        }
    }

    /// How long the interface has nothing to do.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let deadline = self.machine.next_deadline()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns the daemon's new tasks since the last call.
    pub(super) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.outside.news)
    }

    /// Applies a configuration. After an error, settings applied before it stay, as with the kernel.
    ///
    /// # Errors
    /// An `errno` for the `wg` tool, and words for a log.
    pub fn set(&mut self, set: &SetDevice) -> Result<(), (i32, String)> {
        let set = self.with(|machine, cx| machine.configure(set, cx));
        set.map_err(|refused| (refused.errno, refused.words))
    }

    /// Sets a peer's endpoint: an address, or a name that is looked up from now on.
    pub fn set_endpoint(&mut self, public_key: &Key32, endpoint: &config::types::Endpoint) {
        self.handle(Event::SetEndpoint {
            public_key: public_key.clone(),
            endpoint: endpoint.clone(),
        });
    }

    /// Starts handshakes with the peers that had sessions with this interface when it ended a moment ago. Starts to
    /// write the peers' addresses to the file.
    pub fn recall(&mut self, ifname: &str) {
        let path = self.outside.peers.insert(recall::path(ifname));
        let peers = recall::read(path);
        // A name server may be reached through the tunnel only, which has routes already.
        #[cfg(feature = "handover")]
        if self.is_inherited {
            self.handle(Event::RecallNamed(peers.clone()));
        }
        if !peers.is_empty() {
            self.handle(Event::Recall(peers));
        }
    }

    /// Starts handshakes with the peers of these keys at their endpoints, although no packet waits for them.
    pub fn call(&mut self, peers: impl IntoIterator<Item = Key32>) {
        self.handle(Event::Call(peers.into_iter().collect()));
    }

    /// Peers whose endpoints are names, with the addresses found.
    #[must_use]
    pub fn names(&self) -> Vec<Named> {
        self.machine.names()
    }

    /// The known addresses of the lines' relays.
    #[must_use]
    pub fn relays(&self) -> Vec<std::net::SocketAddr> {
        self.machine.relays()
    }

    /// Sets the interface's wanted MTU and its reason, for the status and for probes of the paths to the peers of
    /// this `tunnel`. The owner sets the MTU itself.
    pub fn tell_mtu(&mut self, wanted: &TunnelMtu, tunnel: &Tunnel) {
        self.wanted_mtu = Some(wanted.clone());
        let plan = wanted
            .range()
            .and_then(|range| ProbePlan::new(self.mtu_probe, range, tunnel));
        #[cfg(feature = "amnezia")]
        let plan = plan.map(|plan| ProbePlan {
            prefix: self.data_prefix(),
            ..plan
        });
        self.handle(Event::ProbePaths(plan.map(Box::new)));
    }

    /// Sets the status's warnings, one sentence each: settings of the tunnel that the host does not have.
    pub fn tell_warnings(&mut self, warnings: Vec<String>) {
        self.warnings = warnings;
    }

    /// Names the peers of these keys, for the status and the log; `None` takes a name away.
    pub fn tell_names(&mut self, names: impl IntoIterator<Item = (Key32, Option<Box<str>>)>) {
        self.machine.name_peers(names);
    }

    /// Sets for the status which part of a reloaded configuration was refused.
    pub fn tell_refused(&mut self, refused: Option<String>) {
        self.refused = refused;
    }

    /// Sets for the status what the tunnel waits for before it comes up.
    pub fn tell_waiting(&mut self, what: Option<String>) {
        self.waiting_for = what;
    }

    /// Names the servers of the tunnel's pool that are in use, for status and log, and tells which failed last.
    pub fn tell_pool(&mut self, rotation: &Rotation) {
        let named = |it: &Server| Some((it.public_key.clone()?, Some(it.name.as_str().into())));
        self.machine.name_peers(rotation.called().filter_map(named));
        self.failures = rotation.failures();
        self.machine.is_told = rotation.rounds() > 0;
    }

    /// Answers of the peers.
    pub(super) fn heard(&self) -> Heard {
        self.machine.heard(Instant::now(), &*self.plane)
    }

    /// The peers that are called and do not answer, by their public keys.
    #[must_use]
    pub fn silent(&self) -> Vec<Key32> {
        self.machine.silent(Instant::now(), &*self.plane)
    }

    /// How the AmneziaWG settings of a peer differ from ours, with the remedy, if its datagrams show it and nothing else
    /// came from it since.
    #[cfg(feature = "amnezia")]
    #[must_use]
    pub fn difference(&self, peer: &Key32) -> Option<String> {
        let mut peers = self.machine.peers.iter();
        let (id, entry) = peers.find(|(_, entry)| entry.public_key == *peer)?;
        let state = self.plane.peer(*id).unwrap_or_default();
        entry.difference(state.times.last_received)
    }

    /// Adds to the needs of a tunnel what the interface knows of its MTU: the narrowest path to a peer, if probes found
    /// it narrower than planned, and the bytes in front of data packets.
    pub fn complete(&self, want: &mut Want) {
        want.probed = self.machine.probed_path(&*self.plane);
        #[cfg(feature = "amnezia")]
        if let Mtu::Path { overhead } = &mut want.mtu {
            *overhead = super::want::OVERHEAD + self.data_prefix();
        }
    }

    /// Bytes in front of each data packet, beyond those of plain WireGuard: `S4`, which `awg` may have changed.
    #[cfg(feature = "amnezia")]
    #[must_use]
    pub fn data_prefix(&self) -> u32 {
        ::plane::Wire::prefix(&self.outside.protocol) as u32
    }

    /// The configuration and the counters, for `wg show`.
    #[must_use]
    pub fn get(&self) -> (DeviceState, Vec<PeerState>) {
        self.machine.state(&*self.plane)
    }
}
