//! A client's recording host and data plane.

use super::data_plane::{DataPlane, Says};
use super::server::PASSWORD;
use super::world::{Flying, World, secs};
use crate::openvpn::Ended;
use crate::openvpn::channel::Plane;
use crate::openvpn::client::event::{Event, Planned, Realm};
use crate::openvpn::client::host::{Done, Host, SERVER, Told};
use config::lines::Line;
use config::openvpn::{Connection, Prompted};
use lines::control::{LineFacts, LineUsage};
use log::Level;
use openvpn::data::inband::OCC_REQUEST;
use openvpn::data::protocol::session;
use openvpn::data::wire::OpenVpn as Packets;
use openvpn::push::PushReply;
use openvpn::server::Remote;
use openvpn_host::connect::{Name, ProxyLogin, ResolveError, Target};
use openvpn_host::management::State;
use openvpn_host::network::{HostFacts, TunnelNetwork};
use openvpn_host::scripts::{Hook, Invocation};
use openvpn_host::secrets::Login;
use openvpn_host::status_file::ClientStatus;
use plane::fake::{Call, FakeDataPlane};
use plane::{DataPlane as _, Endpoint, LineId, LineMode, Moving, Sender, StreamId, Times};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// Settings of the host, as the client's steps left them.
#[derive(Default)]
pub(super) struct Settings {
    pub(super) planned: Option<TunnelNetwork>,
    pub(super) set: Option<TunnelNetwork>,
    pub(super) routes: bool,
}

/// Address of the simulated relay.
pub(super) const RELAY: ([u8; 4], u16) = ([192, 0, 2, 77], 51821);

impl World {
    pub(super) fn is_relay(&self, address: SocketAddr) -> bool {
        address == SocketAddr::from(RELAY)
    }

    fn has_relay(&self) -> bool {
        let mut lines = self.config.lines.lines.iter();
        lines.any(|line| line.relay.is_some())
    }

    fn script_result(&mut self) -> Result<(), String> {
        match self.random.percent(self.faults.scripts) {
            true => Err("the script failed".to_owned()),
            false => Ok(()),
        }
    }

    fn script_ends(&mut self, event: Event) {
        match self.script_time {
            Some(time) => self.throw(time, Flying::Event(event)),
            None => self.later(1, 3_000, event),
        }
    }

    /// The line that a socket is bound to; the first line without configured lines.
    fn line_of(&self, target: &Target) -> LineId {
        let lines = &self.config.lines.lines;
        let bound = |line: &Line| line.interface.as_deref() == target.device();
        LineId(lines.iter().position(bound).unwrap_or_default() as u8)
    }

    fn answers(&self, remote: SocketAddr) -> bool {
        let mut servers = self.servers.iter();
        servers.any(|it| it.address == remote && it.answers)
    }

    fn dial_by(&mut self, number: u64, remote: SocketAddr, line: Option<LineId>, pause: Duration) {
        let stream = line.is_some();
        assert!(self.interface, "an interface comes first");
        if let Some((last, _)) = self.dials.last()
            && !std::mem::take(&mut self.was_up)
        {
            assert!(
                self.now - *last >= pause,
                "a pause between attempts: {:?}",
                self.log
            );
        }
        self.dials.push((self.now, remote));
        if let Some(line) = line
            && !(self.carries[line.index()] && self.devices[line.index()])
        {
            let failed = Event::DialFailed(number, "it does not answer".to_owned(), true);
            return self.throw(secs(4), Flying::Event(failed));
        }
        let refused = stream && !(self.answers(remote) && self.line);
        if refused || self.random.percent(self.faults.dials) {
            let why = "connection refused".to_owned();
            return self.later(1, 10_000, Event::DialFailed(number, why, false));
        }
        self.used = line.unwrap_or(self.used);
        let stream = stream.then(|| {
            self.streams += 1;
            StreamId(self.streams)
        });
        self.peer = Some((remote, stream));
        let connected = Event::Connected {
            number,
            remote,
            stream,
        };
        self.later(1, 500, connected);
    }

    /// The data plane for the next event, with the effects of the packets so far.
    pub(super) fn data_plane(&self) -> Option<Rc<Plane>> {
        let fake = self.fake.clone()?;
        let sent = self.plane.times.last_sent;
        fake.change_peer(SERVER, |state| {
            state.times = Times {
                last_received: self.plane.times.last_received,
                last_sent: sent,
                last_data_sent: sent.filter(|_| self.data),
                ..Times::default()
            };
            if let Some(at) = self.heard_at {
                state.line = Some(plane::Line::udp(Endpoint::new(at)));
            }
        });
        let before = fake.carried();
        for (line, (carried, before)) in (0..).map(LineId).zip(self.carried.iter().zip(before)) {
            fake.carry(line, carried - before);
        }
        Some(fake)
    }

    /// Performs the client's calls to its data plane.
    pub(super) fn called(&mut self) {
        let Some(fake) = self.fake.clone() else {
            return;
        };
        for call in fake.take_calls() {
            self.call(call, &fake);
        }
        let astray = fake.astray();
        // The executor opens lines and streams.
        let opened = |call: &Call| matches!(call, Call::CloseLine(_) | Call::RemoveStream(_));
        assert!(astray.iter().all(opened), "{astray:?}");
    }

    fn call(&mut self, call: Call, fake: &FakeDataPlane<Packets>) {
        match call {
            Call::AddPeer(SERVER, moving) => {
                assert!(self.plane.keys.is_empty());
                self.plane = DataPlane::default();
                if self.peer.is_none_or(|(_, stream)| stream.is_none()) {
                    self.used = LineId::FIRST;
                }
                self.mode = LineMode::Single;
                self.float = moving == Moving::Tell;
            }
            Call::SetLine(SERVER, line) => {
                let known = self.peer.map(|(address, _)| address);
                let at = line.endpoint.addr;
                assert!(
                    self.is_relay(at) || known == Some(at),
                    "where it was dialled"
                );
                self.relayed[line.id.index()] = self.is_relay(at).then_some(at);
            }
            Call::Send(line, hello) => {
                assert!(self.is_relay(line.endpoint.addr) && hello.starts_with(b"\xffmrelay"));
                self.told |= self.carries(line.id);
                self.hellos += 1;
            }
            Call::UseLine(SERVER, line) => self.used = line,
            Call::SetLineMode(SERVER, mode) => {
                assert!(self.plane.sealing.is_some(), "once the server follows");
                self.mode = mode;
            }
            Call::SendToPeer(SERVER, to, packet) => {
                let server = self.peer.map(|(address, _)| address);
                assert!(to == server || to.is_none() && self.has_relay());
                self.send(&packet);
            }
            Call::AddKeys { session, .. } => {
                let keys = fake.with_keys(SERVER, session, |it| (*it.material.keys).clone());
                keys.into_iter().for_each(|keys| self.plane.install(keys));
            }
            Call::SendWith(SERVER, of) => self.plane.seal_with(key_id(of)),
            Call::RemoveKeys(SERVER, of) => self.plane.remove(key_id(of)),
            Call::Inject(SERVER, _) => {
                if let Some(packet) = self.plane.seal(Says::Nothing, self.now) {
                    self.send(&packet);
                }
            }
            Call::InjectBy(SERVER, line, payload) => {
                assert_eq!(payload, OCC_REQUEST);
                if let Some(packet) = self.plane.seal(Says::Request, self.now) {
                    self.send_by(line, packet);
                }
            }
            Call::SetSender(SERVER, Sender::Address(to), _) if self.is_relay(to) => {}
            Call::SetSender(SERVER, Sender::Address(to), first) => {
                assert_eq!(first, session(SERVER, 0));
                self.peer = Some((to, None));
            }
            Call::RemovePeer(SERVER) => self.plane = DataPlane::default(),
            Call::RemoveStream(stream) => {
                if let Some((server, _)) = self.peer.take_if(|(_, it)| *it == Some(stream)) {
                    let from = Remote::tcp(self.address, stream);
                    let now = self.now();
                    let found = self.servers.iter_mut().find(|it| it.address == server);
                    let sent = found.map(|it| it.disconnected(from, now));
                    self.fly(server, sent.unwrap_or_default());
                }
            }
            Call::CloseLine(line) if !self.open.is_empty() => {
                self.open.remove(&line);
            }
            Call::CloseLine(_) => self.peer = None,
            Call::SetSender(SERVER, Sender::Stream(_), _)
            | Call::ClearSender(SERVER, _)
            | Call::ChangeRoutes(_)
            | Call::SetMtu(_)
            // The machine keeps these times itself.
            | Call::KeepAlive(SERVER, ..) => {}
            Call::SetReorder(SERVER, Some(_)) => self.plane.reorders = true,
            Call::SetRate(rate) => self.plane.rate = rate,
            Call::SetLineRates(rates) => self.plane.rates.push([rates[0], rates[1]]),
            other => panic!("a client must not call {other:?}"),
        }
    }

    /// Fails with the probability that the host's faults define.
    fn may_fail(&mut self) -> Done {
        match self.random.percent(self.faults.host) {
            true => Err("the host does not want it".into()),
            false => Ok(None),
        }
    }
}

impl Host for World {
    fn log(&mut self, _: Level, text: &str, _: bool) {
        self.was_up |= text.contains("Peer Connection Initiated");
        self.log.push(text.to_owned());
    }

    fn say(&mut self, _: Level, text: &str) {
        self.said.push(text.to_owned());
    }

    fn fatal(&mut self, why: String) {
        self.log.push(why);
    }

    fn tell(&mut self, told: Told) {
        if let Told::State(state, ..) = told {
            if state == State::Connected {
                assert!(self.host.routes, "told when the routes are set");
            }
            self.states.push(state);
        }
    }

    fn log_status(&mut self, _: ClientStatus) {}

    fn look_up(&mut self, number: u64, name: Name) {
        if self.random.percent(self.faults.names / 2) {
            // The answer comes only after the client has stopped waiting for it.
            return self.later(41_000, 90_000, Event::LookedUp(number, Ok(Vec::new())));
        }
        let found = match self.random.percent(self.faults.names) || !self.line {
            true => Err(ResolveError::Late { host: name.host }),
            false => Ok(self.servers.iter().map(|it| it.address).collect()),
        };
        self.later(1, 5_000, Event::LookedUp(number, found));
    }

    fn look_up_relay(&mut self, line: LineId, name: Name) {
        assert_eq!(name.host, "relay.example");
        let found = Ok(vec![RELAY.into()]);
        self.later(10, 5_000, Event::RelayLookedUp(line, found));
    }

    fn dial(&mut self, number: u64, target: Box<Target>, login: Option<ProxyLogin>) -> Done {
        self.called();
        self.proxy_user = login.map(|login| login.name);
        let stream = target.connection.protocol.transport.is_tcp();
        let pause = secs(target.connection.retry.into());
        let line = self.line_of(&target);
        self.dial_by(number, target.remote, stream.then_some(line), pause);
        Ok(None)
    }

    fn try_line(&mut self, line: LineId, target: Target) {
        assert_eq!(self.line_of(&target), line);
        self.tries.push((self.now, line));
        let works = self.carries[line.index()] && self.devices[line.index()];
        match works && self.answers(target.remote) {
            true => self.later(5, 500, Event::LineTried(line, Ok(()))),
            false => {
                let why = Err("it does not answer".to_owned());
                self.throw(secs(4), Flying::Event(Event::LineTried(line, why)));
            }
        }
    }

    fn cancel(&mut self) {}

    fn ask_login(&mut self) -> Done {
        self.asked += 1;
        let wrong = self.random.percent(self.faults.passwords);
        let login = Login {
            name: "user".to_owned(),
            password: Zeroizing::new(if wrong { "wrong" } else { PASSWORD }.to_owned()),
        };
        self.later(10, 60_000, Event::Login(Realm::Server, Ok(login)));
        Ok(None)
    }

    fn ask_proxy_login(&mut self, _: &Prompted) -> Done {
        let login = match self.random.percent(self.faults.passwords) {
            true => Err("there is no terminal to ask".to_owned()),
            false => Ok(Login {
                name: "proxy user".to_owned(),
                password: Zeroizing::new("secret".to_owned()),
            }),
        };
        Ok(Some(Event::Login(Realm::Proxy, login)))
    }

    fn open_interface(&mut self, _: &Connection) -> Done {
        let before = std::mem::replace(&mut self.interface, true);
        assert!(!before, "one interface");
        let packets = Packets::Client { recursive: false };
        self.fake = Some(Rc::new(FakeDataPlane::new(packets, "tun0", 1500)));
        Ok(Some(Event::Opened("tun0".to_owned())))
    }

    fn close_interface(&mut self) {
        self.called();
        assert!(self.host.set.is_none(), "undone before the interface goes");
        assert!(self.open.is_empty(), "lines are closed first");
        self.interface = false;
        self.fake = None;
        self.carried = [0; 2];
    }

    fn line_facts(&mut self) -> Vec<Option<LineFacts>> {
        let facts = |up: &bool| LineFacts {
            ifindex: 7,
            running: *up,
            addressed: true,
        };
        self.devices.iter().map(facts).map(Some).collect()
    }

    fn open_line(&mut self, line: LineId, _: u16, _: u32) -> Result<(), String> {
        self.called();
        assert!(self.interface, "an interface comes first");
        self.open.insert(line);
        Ok(())
    }

    fn keep_usage(&mut self, usage: &[LineUsage]) {
        self.usage.push(usage.to_vec());
    }

    fn keep_floor(&mut self, _: SystemTime) {}

    fn keep_address(&mut self, name: &str, address: IpAddr) {
        assert!(self.was_up, "kept when the server has proved itself");
        self.kept.push((name.to_owned(), address));
    }

    fn plan(&mut self, number: u64, reply: &PushReply, mtu: u16, _: IpAddr) -> Done {
        assert!(self.interface, "an interface to set up");
        self.plans += 1;
        if let Err(error) = self.may_fail() {
            return Ok(Some(Event::Planned(number, Err(error.to_string()))));
        }
        let network = TunnelNetwork::merge(&self.config.network, mtu, Some(reply))?;
        let alike = self.host.set.as_ref() == Some(&network);
        let route_delay = network.route_delay;
        let names = network.names().next().is_some();
        self.host.planned = Some(network);
        let planned = Event::Planned(number, Ok(Planned { alike, route_delay }));
        if names {
            self.later(1, 60_000, planned);
            return Ok(None);
        }
        Ok(Some(planned))
    }

    fn set_interface(&mut self, _: bool) -> Done {
        // The old settings are undone, even if this step fails.
        self.undo();
        self.may_fail()?;
        let network = self.host.planned.take().expect("decided first");
        self.host.set = Some(network.clone());
        let set = Box::new((network, HostFacts::default()));
        Ok(Some(Event::InterfaceSet(set)))
    }

    fn set_routes(&mut self) -> Done {
        assert!(self.host.set.is_some(), "addresses first");
        self.may_fail()?;
        self.host.routes = true;
        Ok(Some(Event::RoutesSet))
    }

    fn keep_outside(&mut self, _: IpAddr) -> Done {
        self.may_fail()
    }

    fn keep_relay_outside(&mut self, _: IpAddr) {}

    fn follow(&mut self) -> Done {
        self.may_fail()
    }

    fn undo(&mut self) {
        (self.host.set, self.host.routes) = (None, false);
    }

    fn run_script(&mut self, hook: Hook, _: Invocation) {
        let before = self.running.replace(hook);
        assert!(before.is_none(), "one script at a time");
        let result = self.script_result();
        self.script_ends(Event::ScriptFinished(hook, result));
    }

    fn judge(&mut self, number: u64, programs: Vec<Invocation>) {
        let verdict = self.script_result();
        let passed = match verdict {
            Ok(()) => programs.len(),
            Err(_) => 0,
        };
        self.script_ends(Event::Judged(number, passed, verdict));
    }

    fn refresh_revocations(&mut self) {}

    fn drop_privileges(&mut self) -> Done {
        Ok(None)
    }

    fn hold(&mut self) -> Done {
        match self.holds {
            None => Ok(Some(Event::Released)),
            Some(time) => {
                self.throw(time, Flying::Event(Event::Released));
                Ok(None)
            }
        }
    }

    fn device_to(&mut self, _: IpAddr) -> Option<String> {
        Some("wan".to_owned())
    }

    fn silent(&mut self, why: Option<&str>) {
        self.silent = why.map(str::to_owned);
    }

    fn is_up(&mut self, took: Duration) {
        self.said.push(format!("connected in {took:?}"));
    }

    fn is_lost(&mut self) {}

    fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    fn end(&mut self, ended: Ended) {
        self.called();
        assert!(self.ended.is_none(), "it ends once");
        self.ended = Some(ended);
    }
}

/// Returns the key id of a session with the server.
fn key_id(of: u32) -> u8 {
    (of - session(SERVER, 0)).try_into().unwrap()
}
