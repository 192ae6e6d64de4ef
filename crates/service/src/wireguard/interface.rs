//! A running interface: carries out the effects of its machine.

use super::dataplane::perform;
use super::effect::{Effect, Ended, Refused};
use super::event::Event;
use super::machine::{Machine, Named};
use super::probing::ProbePlan;
use super::recall;
use super::resolver::{Answer, Resolver};
use super::sockets::SocketPlan;
use crate::floor::FloorFile;
use crate::inbox::Inbox;
use crate::lines::{self, UsageFile};
use crate::names;
use crate::now::Now;
use crate::strangers;
use ::wireguard::WireGuard;
use config::lines::Lines;
use config::settings::MtuProbe;
use config::tunnel::Tunnel;
use config::types::Key32;
use config::uapi::{DeviceState, PeerState, SetDevice};
use host::{ProbedPath, TunnelMtu};
use netio::netlink::Netlink;
use netio::udp::SocketError;
use plane::{Line, LineId, PeerId};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Most handshake messages served before everything else gets a turn: signals, timers and
/// configuration must get through even during a flood.
const MESSAGES_AT_ONCE: usize = 64;

/// The UAPI's `errno` for invalid settings.
const EINVAL: i32 = 22;

/// Data plane that moves the interface's packets. The control thread calls it a few times a second.
pub(super) type Plane = userspace::Plane<WireGuard>;

/// A running interface.
pub struct Interface {
    pub(super) machine: Machine,
    pub(super) plane: Box<Plane>,
    /// Packet format of the data plane.
    pub(super) protocol: WireGuard,
    pub(super) sockets: SocketPlan,
    lines: Lines,
    /// File of the bytes that the lines have carried.
    usage: Option<UsageFile>,
    /// File of the latest time that stamps may have.
    floor: Option<FloorFile>,
    /// File of the addresses where the peers are.
    peers: Option<PathBuf>,
    resolver: Resolver,
    effects: Vec<Effect>,
    /// Result of the last configuration.
    answer: Option<Result<(), Refused>>,
    /// The last error of opening sockets.
    unbound: Option<SocketError>,
    /// MTU that the owner wants, and why.
    pub(super) wanted_mtu: Option<TunnelMtu>,
    /// Warnings of the owner for the user.
    pub(super) warnings: Vec<String>,
    /// For the status, like the warnings: the part of the configuration that the last reload refused.
    pub(super) refused: Option<String>,
    /// For the status, like the warnings: what the tunnel waits for.
    pub(super) waiting_for: Option<String>,
    /// MTU probe setting.
    pub(super) mtu_probe: MtuProbe,
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

impl Interface {
    pub(super) fn new(
        machine: Machine,
        (plane, protocol): (Box<Plane>, WireGuard),
        (sockets, lines): (SocketPlan, Lines),
        resolver: Resolver,
    ) -> Self {
        Self {
            machine,
            plane,
            protocol,
            sockets,
            lines,
            usage: None,
            floor: None,
            peers: None,
            resolver,
            effects: Vec::new(),
            answer: None,
            unbound: None,
            wanted_mtu: None,
            warnings: Vec::new(),
            refused: None,
            waiting_for: None,
            mtu_probe: MtuProbe::Off,
            news: News::default(),
        }
    }

    /// Continues each uplink's monthly count from the file of the last run.
    pub(super) fn restore_lines(&mut self, name: &str) {
        if self.lines.lines.iter().any(|line| line.cap.is_some()) {
            let (file, usage) = UsageFile::of(name, None);
            self.machine.restore_lines(&usage);
            self.usage = file;
        }
    }

    /// Makes stamps later than those of earlier runs, whatever the clock shows.
    pub(super) fn restore_floor(&mut self) {
        let (file, floor) = FloorFile::open();
        self.machine.restore_floor(floor);
        self.floor = file;
    }

    /// Writes the files for the last time and ends the interface, without telling the owner.
    pub(super) fn end(&mut self) {
        let view = |id| self.plane.peer(id);
        let peers = self.machine.recalled(Instant::now(), &view);
        self.perform(Effect::KeepPeers(peers), Now::read());
        let carried = self.plane.carried().to_vec();
        self.handle(Event::LinesCounted(carried));
        self.handle(Event::LinesEnd);
        if let Some(floor) = &mut self.floor {
            floor.end(self.machine.latest_stamp());
        }
    }

    /// Opens the sockets for the first time.
    ///
    /// # Errors
    /// Opening the sockets failed.
    pub(super) fn start(&mut self) -> Result<(), SocketError> {
        self.handle(Event::Start);
        self.unbound.take().map_or(Ok(()), Err)
    }

    /// Has the machine handle an event, and carries out its effects until none are left.
    pub(super) fn handle(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        let mut effects = std::mem::take(&mut self.effects);
        while let Some(event) = events.pop_front() {
            let now = Now::read();
            let view = |id| self.plane.peer(id);
            self.machine.handle(event, now, &view, &mut effects);
            for effect in effects.drain(..) {
                events.extend(self.perform(effect, now));
            }
        }
        self.effects = effects;
    }

    /// Carries out one effect. Returns the resulting event, if the machine has to know.
    fn perform(&mut self, effect: Effect, now: Now) -> Option<Event> {
        match effect {
            Effect::Plane(request) => return perform(&*self.plane, request, now.monotonic),
            Effect::Bind { port, mark } => {
                let bound = self.bind(port, mark);
                let result = bound
                    .as_ref()
                    .map_or_else(|e| Err(e.to_string()), |&it| Ok(it));
                self.unbound = bound.err();
                return Some(Event::Bound(result));
            }
            Effect::Unbind => self.plane.close_line(LineId::FIRST),
            Effect::Mark(mark) => {
                let marked = self.mark(mark);
                return Some(Event::Marked(marked.map_err(|e| e.to_string())));
            }
            Effect::ReadLines => return Some(Event::LinesRead(lines::read(&self.lines))),
            Effect::OpenLine { line, port, mark } => {
                let opened = self.open_line(line, port, mark);
                return Some(Event::LineOpened(line, opened.map_err(|e| e.to_string())));
            }
            Effect::CountLines => return Some(Event::LinesCounted(self.plane.carried().to_vec())),
            Effect::KeepUsage(usage) => {
                if let Some(file) = &mut self.usage {
                    file.write(&usage);
                }
            }
            Effect::KeepFloor(floor) => {
                if let Some(file) = &mut self.floor {
                    file.raise(floor);
                }
            }
            Effect::KeepAddress(name, address) => names::keep(&name, address),
            Effect::KeepPeers(peers) => {
                if let Some(path) = &self.peers {
                    recall::keep(path, &peers);
                }
            }
            Effect::CloseLine(line) => self.plane.close_line(line),
            Effect::LookUp(lookup) => return self.resolver.begin(lookup).map(looked_up),
            Effect::ReadRoutes { mark, peers } => return read_routes(mark, peers),
            Effect::CheckLink => return self.is_gone().then_some(Event::LinkGone),
            Effect::Answer { result, .. } => self.answer = Some(result),
            Effect::Changed => self.news.changed = true,
            Effect::LookAtPath => self.news.path = true,
            Effect::WatchEchoes(token) => self.protocol.echoes().watch(token),
            Effect::Reload => self.news.reload = true,
            Effect::End(ended) => {
                self.news.ended.get_or_insert(ended);
            }
            Effect::Log(level, words) => log::log!(level, "{words}"),
            Effect::LogPeer(peer, words) => log::info!("{} {words}", self.whom(peer)),
            // Only at debug level: any sender that can reach the port can cause this line.
            Effect::LogDropped(from, why) => strangers::log(
                log::Level::Debug,
                format_args!("handshake message from {from}: {why}"),
            ),
        }
        None
    }

    /// Replaces the open sockets. Returns the new port.
    fn bind(&self, port: u16, mark: u32) -> Result<u16, SocketError> {
        let mut plan = self.sockets.clone();
        (plan.port, plan.fwmark) = (port, mark);
        let opened = self.plane.open_line(LineId::FIRST, plan.open()?);
        let what = "adding";
        opened.map_err(|source| SocketError::Option { what, source })?;
        Ok(self.plane.port(LineId::FIRST).unwrap_or(port))
    }

    /// Opens the sockets of a line. Returns the port.
    fn open_line(&self, line: LineId, port: u16, mark: u32) -> Result<u16, SocketError> {
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
        let opened = self.plane.open_line(line, sockets);
        let what = "adding";
        opened.map_err(|source| SocketError::Option { what, source })?;
        Ok(self.plane.port(line).unwrap_or(port))
    }

    /// Sets the mark of packets on lines that have no mark of their own.
    fn mark(&self, mark: u32) -> std::io::Result<()> {
        let own = |line: LineId| {
            let settings = self.lines.lines.get(line.index());
            settings.is_some_and(|line| line.mark.is_some())
        };
        let lines = (0..self.lines.lines.len().max(1) as u8).map(LineId);
        lines
            .filter(|line| !own(*line))
            .try_for_each(|line| self.plane.set_mark(line, mark))
    }

    /// The name of a peer in log lines.
    fn whom(&self, peer: PeerId) -> String {
        let key = self.machine.public_key_of(peer).map(Key32::to_base64);
        let key = key.as_ref().map_or("?", |key| key.as_str());
        match self.plane.peer(peer).and_then(|it| it.line) {
            Some(line) => format!("peer {key} ({})", line.endpoint.addr),
            None => format!("peer {key}"),
        }
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
        // The inbox limits how many messages wait.
        while let Some((peer, bytes)) = inbox.next_message() {
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
        while let Some(answer) = self.resolver.next() {
            self.handle(looked_up(answer));
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
        std::mem::take(&mut self.news)
    }

    /// Applies a configuration. After an error, settings applied before it stay, as with the kernel.
    ///
    /// # Errors
    /// An `errno` for the `wg` tool, and words for a log.
    pub fn set(&mut self, set: SetDevice) -> Result<(), (i32, String)> {
        // Configurations run one at a time and wait for nothing, so the last answer belongs to this one.
        self.handle(Event::Configure { client: 0, set });
        let never = || (EINVAL, "no answer".to_owned());
        let answer = self.answer.take().ok_or_else(never)?;
        answer.map_err(|refused| (refused.errno, refused.words))
    }

    /// Sets a peer's endpoint: an address, or a name that is looked up from now on.
    pub fn set_endpoint(&mut self, public_key: &Key32, endpoint: &config::types::Endpoint) {
        self.handle(Event::SetEndpoint {
            public_key: public_key.clone(),
            endpoint: endpoint.clone(),
        });
    }

    /// Calls the peers that had sessions with this interface when it ended a moment ago. Starts to write the peers'
    /// addresses to the file.
    pub fn recall(&mut self, ifname: &str) {
        let path = self.peers.insert(recall::path(ifname));
        let peers = recall::read(path);
        if !peers.is_empty() {
            self.handle(Event::Recall(peers));
        }
    }

    /// Calls the peers with these keys at their endpoints, although no packet waits for them.
    pub fn call(&mut self, peers: impl IntoIterator<Item = Key32>) {
        self.handle(Event::Call(peers.into_iter().collect()));
    }

    /// Whether any peer has had a session.
    pub(super) fn is_answered(&self) -> bool {
        let mut peers = self.machine.peers.values();
        peers.any(|peer| peer.last_handshake.is_some())
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
        self.handle(Event::ProbePaths(plan.map(Box::new)));
    }

    /// Sets the status's warnings, one sentence each: settings of the tunnel that the host does not have.
    pub fn tell_warnings(&mut self, warnings: Vec<String>) {
        self.warnings = warnings;
    }

    /// Sets for the status which part of a reloaded configuration was refused.
    pub fn tell_refused(&mut self, refused: Option<String>) {
        self.refused = refused;
    }

    /// Sets for the status what the tunnel waits for before it comes up.
    pub fn tell_waiting(&mut self, what: Option<String>) {
        self.waiting_for = what;
    }

    /// Returns the narrowest path to a peer, if probes found it narrower than the planned MTU.
    #[must_use]
    pub fn probed_path(&self) -> Option<ProbedPath> {
        self.machine.probed_path(&|id| self.plane.peer(id))
    }

    /// The configuration and the counters, for `wg show`.
    #[must_use]
    pub fn get(&self) -> (DeviceState, Vec<PeerState>) {
        self.machine.state(&|id| self.plane.peer(id))
    }
}

fn looked_up((lookup, found): Answer) -> Event {
    Event::LookedUp { lookup, found }
}

fn read_routes(mark: u32, peers: Vec<(PeerId, IpAddr)>) -> Option<Event> {
    let mut netlink = Netlink::open().inspect_err(|e| log::warn!("{e}")).ok()?;
    let mut dev = |addr| Some(netlink.route_get(addr, mark).ok()?.dev);
    let routes = peers.into_iter().map(|(id, addr)| (id, dev(addr)));
    Some(Event::RoutesRead(routes.collect()))
}
