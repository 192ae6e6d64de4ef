//! The process and system around a client.

use super::background::Background;
use super::{ARRIVALS, BACKGROUND, sockets};
use crate::inbox::Inbox;
use crate::openvpn::channel::Plane;
use crate::openvpn::client::event::{Event, Planned, Realm};
use crate::openvpn::client::host::{Done, Failure, Host, Told};
use crate::openvpn::client::machine::Machine;
use crate::openvpn::context::Context;
use crate::openvpn::device::{self, DeviceError, Link, Peers, SocketPlane};
use crate::openvpn::{Ended, INBOX};
use crate::uplink::Uplink;
use ::host::privileges;
use config::openvpn::{Connection, Prompted};
use lines::control::{self, LineFacts, LineUsage, UsageFile};
use lines::floor::FloorFile;
use lines::names;
use log::Level;
use netio::poll::Poller;
use openvpn::data::wire::OpenVpn as Packets;
use openvpn::push::PushReply;
use openvpn::tls::TlsSettings;
use openvpn_host::connect::{Name, ProxyLogin, Target};
use openvpn_host::monitored::Status;
use openvpn_host::network::{Inside, RouteNames, Surroundings, TunnelNetwork};
use openvpn_host::revocation::RevocationFile;
use openvpn_host::scripts::{Hook, Invocation};
use openvpn_host::status_file::ClientStatus;
use openvpn_host::terms;
use plane::LineId;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Network settings that wait for the addresses of names in routes.
struct Planning {
    number: u64,
    network: TunnelNetwork,
    remote: IpAddr,
}

/// The host that a client runs on.
///
/// Large methods are `#[inline(never)]`: the machine calls the host from deep inside, and must not reserve their stack
/// on every path.
pub(super) struct ThisHost<'a> {
    pub(super) context: &'a Context,
    pub(super) tls: Arc<TlsSettings>,
    crl: RevocationFile,
    pub(super) poller: Poller,
    pub(super) inbox: Arc<Inbox>,
    pub(super) background: Background,
    /// The interface, while there is one.
    pub(super) device: Option<(Rc<SocketPlane>, Link)>,
    /// The number of the last stream.
    pub(super) streams: u64,
    /// The uplink under a TCP connection of a client without lines.
    pub(super) uplink: Uplink,
    /// The interface's network settings: being planned, planned, and set.
    planning: Option<Planning>,
    planned: Option<Inside>,
    pub(super) inside: Option<Inside>,
    /// The login that a management client was asked for.
    pub(super) asked: Option<Realm>,
    unprivileged: bool,
    /// File of the lines' byte counts.
    usage: Option<UsageFile>,
    floor: Option<FloorFile>,
    /// How the client ended.
    pub(super) ended: Option<Ended>,
}

impl<'a> ThisHost<'a> {
    /// Makes a machine's host, and restores the machine's facts about its lines from their files.
    ///
    /// # Errors
    /// Too many open descriptors.
    pub(super) fn new(
        context: &'a Context,
        tls: Arc<TlsSettings>,
        crl: RevocationFile,
        machine: &mut Machine<'_>,
    ) -> Result<Self, Failure> {
        let poller = Poller::new()?;
        let inbox = Arc::new(Inbox::new(INBOX)?);
        let background = Background::new(&context.config)?;
        poller.add(&*inbox, ARRIVALS)?;
        poller.add(background.waker(), BACKGROUND)?;
        // Opened now, because another `user` could not open it later.
        let (floor, time) = FloorFile::open();
        machine.restore_floor(time);
        let mut lines = context.config.lines.lines.iter();
        let counts = lines.any(|line| line.cap.is_some());
        Ok(Self {
            context,
            tls,
            crl,
            poller,
            inbox,
            background,
            device: None,
            streams: 0,
            uplink: Uplink::default(),
            planning: None,
            planned: None,
            inside: None,
            asked: None,
            unprivileged: false,
            usage: counts
                .then(|| sockets::restore_usage(context, machine))
                .flatten(),
            floor,
            ended: None,
        })
    }

    /// The data plane, as the machine calls it.
    pub(super) fn plane(&self) -> Option<Rc<Plane>> {
        let (plane, _) = self.device.as_ref()?;
        Some(plane.clone())
    }

    /// Opens the interface and its data plane.
    fn open_device(&mut self, connection: &Connection) -> Done {
        let context = self.context;
        if self.inbox.device_is_gone() {
            // Drops the inbox of the previous interface.
            self.inbox = Arc::new(Inbox::new(INBOX)?);
            self.poller.add(&*self.inbox, ARRIVALS)?;
        }
        let start = |kernel: bool| {
            let (plane, link) = device::start(
                Packets::Client {
                    recursive: context.config.network.allow_recursive_routing,
                },
                &context.config.device,
                &context.rungs,
                &context.dataplane,
                kernel.then_some(Peers::One),
                terms::tun_mtu(connection),
                connection.mtu.fragment.is_some(),
                &self.inbox,
                connection.protocol.transport.is_tcp(),
            )?;
            #[cfg(feature = "kernel")]
            if let Some(wish) = context.mover.wish() {
                let control: Arc<Inbox> = Arc::clone(&self.inbox);
                let confine = privileges::confine_other_threads;
                let plane = kernelspace::movable(plane, link.index, control, wish, confine)?;
                return Ok((plane, link));
            }
            Ok((plane, link))
        };
        let (plane, link) = context.mover.start(start)?;
        if self.unprivileged {
            // The first interface's threads are confined when privileges are dropped.
            privileges::confine_other_threads();
        }
        if link.index != 0 {
            log::info!("TUN/TAP device {} opened", link.name);
        }
        context.monitoring.borrow_mut().publish(&link);
        let opened = Event::Opened(link.name.clone());
        self.device = Some((Rc::from(plane), link));
        Ok(Some(opened))
    }

    /// Plans the interface's settings with the addresses of names in routes. Ignores late results of an earlier request.
    pub(super) fn planned(&mut self, number: u64, names: &RouteNames) -> Option<Event> {
        let planning = self.planning.take_if(|it| it.number == number)?;
        let planned = self.decide(planning, names);
        let planned = planned.map_err(|error| error.to_string());
        Some(Event::Planned(number, planned))
    }

    fn decide(&mut self, planning: Planning, names: &RouteNames) -> Result<Planned, Failure> {
        let Some((_, link)) = &self.device else {
            return Err("no interface".into());
        };
        let around = Surroundings {
            ifname: &link.name,
            remote: Some(planning.remote),
            mark: self.context.config.sockets.mark.unwrap_or(0),
        };
        let mut planned = Inside::of(planning.network, names, around)?;
        if let Some(manager) = &self.context.manager {
            planned = planned.managed_by(manager);
        }
        let alike = self.inside.as_ref().is_some_and(|it| it.is_like(&planned));
        let route_delay = planned.network.route_delay;
        self.planned = Some(planned).filter(|_| !alike);
        Ok(Planned { alike, route_delay })
    }
}

impl Host for ThisHost<'_> {
    fn log(&mut self, level: Level, text: &str, waits: bool) {
        log::log!(level, "{text}");
        if waits {
            self.context.waits(text);
        }
    }

    fn say(&mut self, level: Level, text: &str) {
        self.context.say(level, text);
    }

    fn fatal(&mut self, why: String) {
        self.context.fatal(&*Failure::from(why));
    }

    #[inline(never)]
    fn tell(&mut self, told: Told) {
        if let Told::VerificationFailed(reason) = &told
            && let Some(manager) = &self.context.manager
        {
            manager.refused(reason.as_deref().unwrap_or("AUTH_FAILED"));
        }
        self.context.monitoring.borrow_mut().tell(&told);
    }

    fn log_status(&mut self, status: ClientStatus) {
        let monitoring = self.context.monitoring.borrow();
        monitoring.log_status(&Status::Client(status));
    }

    fn look_up(&mut self, number: u64, name: Name) {
        let event = move |found| Event::LookedUp(number, found);
        self.background.look_up(name, self.inside.is_some(), event);
    }

    fn look_up_relay(&mut self, line: LineId, name: Name) {
        let inside = self.inside.is_some();
        self.background.look_up(name, inside, move |found| {
            Event::RelayLookedUp(line, found.map_err(|error| error.to_string()))
        });
    }

    #[inline(never)]
    fn dial(&mut self, number: u64, target: Box<Target>, login: Option<ProxyLogin>) -> Done {
        // Discards leftovers of the last connection.
        while self.inbox.next_arrival().is_some() {}
        self.inbox.take_messages();
        self.inbox.take_notices();
        self.inbox.take_closed();
        self.calls(&target);
        if target.connection.protocol.transport.is_tcp() {
            self.background.dial(number, *target, login);
            return Ok(None);
        }
        let opened = target.open(login.as_ref(), &self.context.stop());
        let dialled = opened
            .map_err(Failure::from)
            .and_then(|socket| self.open_socket(&target, socket));
        Ok(Some(sockets::dialled(number, dialled, false)))
    }

    fn try_line(&mut self, line: LineId, target: Target) {
        self.background.try_line(line, target);
    }

    fn cancel(&mut self) {
        self.background.cancel();
    }

    #[inline(never)]
    fn ask_login(&mut self) -> Done {
        let login = self.login_for_server();
        // The time for typing does not count as waiting for the server.
        self.context.begin_waiting();
        Ok(login)
    }

    #[inline(never)]
    fn ask_proxy_login(&mut self, prompted: &Prompted) -> Done {
        Ok(self.login_for_proxy(prompted))
    }

    #[inline(never)]
    fn open_interface(&mut self, connection: &Connection) -> Done {
        let opened = self.open_device(connection);
        if let Err(error) = &opened
            && error.downcast_ref().is_some_and(DeviceError::lasts)
        {
            self.context.fatal(&**error);
            self.ended = Some(Ended::Exit(1));
        }
        opened
    }

    fn close_interface(&mut self) {
        self.device = None;
    }

    fn line_facts(&mut self) -> Vec<Option<LineFacts>> {
        control::read(&self.context.config.lines)
    }

    #[inline(never)]
    fn open_line(&mut self, line: LineId, port: u16, mark: u32) -> Result<(), String> {
        let opened = self.open_sockets(line, port, mark);
        opened.map_err(|error| error.to_string())
    }

    fn keep_usage(&mut self, usage: &[LineUsage]) {
        if let Some(file) = &mut self.usage {
            file.write(usage);
        }
    }

    fn keep_floor(&mut self, floor: SystemTime) {
        if let Some(file) = &mut self.floor {
            file.raise(floor);
        }
    }

    fn keep_address(&mut self, name: &str, address: IpAddr) {
        names::keep(name, address);
    }

    #[inline(never)]
    fn plan(&mut self, number: u64, reply: &PushReply, mtu: u16, remote: IpAddr) -> Done {
        let config = &self.context.config.network;
        let network = TunnelNetwork::merge(config, mtu, Some(reply))?;
        let names: Vec<String> = network.names().map(str::to_owned).collect();
        self.planning = Some(Planning {
            number,
            network,
            remote,
        });
        if names.is_empty() {
            return Ok(self.planned(number, &RouteNames::default()));
        }
        self.background.route_names(number, names);
        Ok(None)
    }

    #[inline(never)]
    fn set_interface(&mut self, no_dns: bool) -> Done {
        let Some(mut inside) = self.planned.take() else {
            return Ok(None);
        };
        if let Some(before) = self.inside.take() {
            inside.take_over(before)?;
        }
        inside.set_interface(no_dns)?;
        let set = (inside.network.clone(), inside.facts.clone());
        self.inside = Some(inside);
        Ok(Some(Event::InterfaceSet(Box::new(set))))
    }

    fn set_routes(&mut self) -> Done {
        if let Some(inside) = &mut self.inside {
            inside.set_routes()?;
        }
        Ok(Some(Event::RoutesSet))
    }

    fn keep_outside(&mut self, address: IpAddr) -> Done {
        if let Some(inside) = &mut self.inside {
            inside.keep_outside(address)?;
        }
        Ok(None)
    }

    fn keep_relay_outside(&mut self, relay: IpAddr) {
        if let Err(error) = self.keep_outside(relay) {
            log::warn!("{error}");
        }
    }

    fn follow(&mut self) -> Done {
        if let Some(inside) = &mut self.inside {
            inside.follow()?;
        }
        Ok(None)
    }

    fn undo(&mut self) {
        if let Some(planned) = &mut self.planned {
            planned.outdate();
        }
        if let Some(mut inside) = self.inside.take() {
            inside.undo();
        }
    }

    fn run_script(&mut self, hook: Hook, program: Invocation) {
        log::info!("{}", program.line());
        self.background.run_script(hook, program);
    }

    fn judge(&mut self, number: u64, programs: Vec<Invocation>) {
        self.background.judge(number, programs);
    }

    fn refresh_revocations(&mut self) {
        self.crl.refresh(&self.context.config, &self.tls);
    }

    fn drop_privileges(&mut self) -> Done {
        self.unprivileged = true;
        self.context.drop_privileges()?;
        Ok(None)
    }

    fn hold(&mut self) -> Done {
        let holds = self.context.monitoring.borrow_mut().hold();
        if holds {
            log::info!("Need hold release from management interface, waiting...");
        }
        Ok((!holds).then_some(Event::Released))
    }

    fn device_to(&mut self, address: IpAddr) -> Option<String> {
        // Each uplink has a device of its own.
        let has_uplinks = !self.context.config.lines.lines.is_empty();
        ::host::device_to(address, 0).filter(|_| !has_uplinks)
    }

    fn silent(&mut self, why: Option<&str>) {
        if let Some(manager) = &self.context.manager {
            manager.silent(why);
        }
    }

    fn is_up(&mut self, took: Duration) {
        if let Some(inside) = &self.inside {
            let summary = inside.summary();
            let text = format!("connected in {} s: {summary}", config::seconds(took));
            self.context.say(Level::Info, &text);
        }
        self.context.is_up();
        log::info!("Initialization Sequence Completed");
    }

    fn is_lost(&mut self) {
        self.context.is_lost();
    }

    fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    fn end(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }
}
