//! Performs a client's effects and reports events.

mod background;
mod host;
mod login;
mod monitored;
mod sockets;

use self::host::{Lacking, Planning};
use super::effect::{Effect, Told};
use super::event::{Event, Realm};
use super::machine::Machine;
use super::order::Order;
use crate::inbox::Inbox;
use crate::openvpn::channel::Plane;
use crate::openvpn::connect::DialError;
use crate::openvpn::context::Context;
use crate::openvpn::device::{self, DeviceError, Link, Peers, SocketPlane};
use crate::openvpn::monitoring::{Monitored as _, ProcessRequest};
use crate::openvpn::network::Inside;
use crate::openvpn::revocation::RevocationFile;
use crate::openvpn::{Ended, INBOX, terms};
use ::host::privileges;
use ::lines::control::{self, UsageFile};
use ::lines::names;
use ::plane::StreamId;
use background::Background;
use config::openvpn::{AuthRetry, Connection};
use monitored::View;
use netio::poll::Poller;
use openvpn::data::wire::OpenVpn as Packets;
use openvpn::tls::TlsSettings;
use plane::Now;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

const ARRIVALS: u64 = 0;
const SIGNAL: u64 = 1;
const NEWS: u64 = 2;
const MANAGEMENT: u64 = 3;
const BACKGROUND: u64 = 4;
const CLOCK: u64 = 5;

/// Most control packets, and messages from data packets, per turn of the loop.
const ARRIVALS_AT_ONCE: usize = 256;
const MESSAGES_AT_ONCE: usize = crate::inbox::MESSAGES;

type Failure = Box<dyn std::error::Error>;

/// A socket's remote address and stream number; `None` for UDP.
type Dialled = (SocketAddr, Option<StreamId>);

/// Executor of a client's effects.
pub(super) struct Executor<'a> {
    context: &'a Context,
    tls: Arc<TlsSettings>,
    crl: RevocationFile,
    poller: Poller,
    inbox: Arc<Inbox>,
    background: Background,
    /// The interface, while there is one.
    device: Option<(Rc<SocketPlane>, Link)>,
    /// The number of the last stream.
    streams: u64,
    /// The interface's network settings: being planned, planned, and set.
    planning: Option<Planning>,
    planned: Option<Inside>,
    inside: Option<Inside>,
    /// The login that a management client was asked for.
    asked: Option<Realm>,
    auth_retry: AuthRetry,
    lacking: Lacking,
    unprivileged: bool,
    /// File of the lines' byte counts.
    usage: Option<UsageFile>,
    /// Effects to perform.
    order: Order,
    /// Results of effects; the machine gets them before all other events.
    results: VecDeque<Event>,
    events: VecDeque<Event>,
}

impl<'a> Executor<'a> {
    /// # Errors
    /// Too many open descriptors.
    pub(super) fn new(
        context: &'a Context,
        tls: Arc<TlsSettings>,
        crl: RevocationFile,
    ) -> Result<Self, Failure> {
        let poller = Poller::new()?;
        let inbox = Arc::new(Inbox::new(INBOX)?);
        let background = Background::new(&context.config)?;
        poller.add(&*inbox, ARRIVALS)?;
        poller.add(&*context.signals, SIGNAL)?;
        poller.add(background.waker(), BACKGROUND)?;
        let lacking = Lacking::new(context.config.sockets.mark.unwrap_or(0))?;
        poller.add(&lacking.clock, CLOCK)?;
        context.watch(&poller, NEWS, MANAGEMENT)?;
        Ok(Self {
            context,
            tls,
            crl,
            poller,
            inbox,
            background,
            device: None,
            streams: 0,
            planning: None,
            planned: None,
            inside: None,
            asked: None,
            auth_retry: context.auth_retry.get(),
            lacking,
            unprivileged: false,
            usage: None,
            order: Order::default(),
            results: VecDeque::new(),
            events: VecDeque::from([Event::Begin]),
        })
    }

    /// Runs a client until it ends.
    pub(super) fn run(&mut self, machine: &mut Machine<'a>) -> Ended {
        self.restore_lines(machine);
        let ended = self.serve(machine);
        self.end_lines(machine);
        ended
    }

    fn serve(&mut self, machine: &mut Machine<'a>) -> Ended {
        loop {
            while let Some(event) = self.results.pop_front().or_else(|| self.events.pop_front()) {
                if matches!(event, Event::ScriptFinished(..)) {
                    self.order.script_ended();
                    if let Some(ended) = self.perform_all(machine) {
                        return ended;
                    }
                }
                let effects = machine.handle(event, Now::read(), self.plane());
                self.order.add(effects);
                if let Some(ended) = self.perform_all(machine) {
                    return ended;
                }
            }
            if let Err(error) = self.wait(machine) {
                self.context.fatal(&*error);
                return Ended::Exit(1);
            }
        }
    }

    /// The data plane, as the machine calls it.
    fn plane(&self) -> Option<Rc<Plane>> {
        let (plane, _) = self.device.as_ref()?;
        Some(plane.clone())
    }

    /// Performs the effects that need not wait. Returns how the client ended, if it did.
    fn perform_all(&mut self, machine: &Machine<'_>) -> Option<Ended> {
        while let Some(effect) = self.order.next() {
            if let Effect::End(ended) = effect {
                return Some(ended);
            }
            if let Err(error) = self.perform(effect, machine) {
                if error.downcast_ref().is_some_and(DeviceError::lasts) {
                    self.context.fatal(&*error);
                    return Some(Ended::Exit(1));
                }
                self.order.failed();
                self.results.push_back(Event::Failed(error.to_string()));
            }
        }
        None
    }

    /// Large callees are `#[inline(never)]`: inlined, they would give this function 9 KB of stack, and each access far
    /// from the stack's end takes twice the code.
    fn perform(&mut self, effect: Effect, machine: &Machine<'_>) -> Result<(), Failure> {
        let context = self.context;
        match effect {
            Effect::Log(level, text) => {
                log::log!(level, "{text}");
                if level == log::Level::Error && !machine.is_connected() {
                    context.waits(&text);
                }
            }
            Effect::Say(level, text) => context.say(level, &text),
            Effect::Fatal(text) => context.fatal(&*Failure::from(text)),
            Effect::Tell(told) => self.tell(told),
            Effect::LogStatus => {
                let status = View(machine, self).status();
                context.monitoring.borrow().log_status(&status);
            }
            Effect::LookUp(number, name) => {
                let event = move |found| Event::LookedUp(number, found);
                self.background.look_up(name, self.inside.is_some(), event);
            }
            Effect::LookUpRelay(line, name) => {
                let inside = self.inside.is_some();
                self.background.look_up(name, inside, move |found| {
                    Event::RelayLookedUp(line, found.map_err(|error| error.to_string()))
                });
            }
            Effect::Dial(number, target, login) => {
                // Discards leftovers of the last connection.
                while self.inbox.next_arrival().is_some() || self.inbox.next_message().is_some() {}
                self.inbox.take_notices();
                self.inbox.take_closed();
                if target.connection.protocol.transport.is_tcp() {
                    self.background.dial(number, *target, login);
                } else {
                    let opened = target.open(login.as_ref(), &context.stop());
                    let dialled = opened
                        .map_err(Failure::from)
                        .and_then(|socket| self.open_socket(&target, socket));
                    self.dialled(number, dialled, false);
                }
            }
            Effect::Try(line, target) => self.background.try_line(line, *target),
            Effect::Cancel => self.background.cancel(),
            Effect::AskLogin => {
                self.ask_login();
                // The time for typing does not count as waiting for the server.
                context.begin_waiting();
            }
            Effect::AskProxyLogin(prompted) => self.ask_proxy_login(&prompted),
            Effect::OpenInterface(connection) => self.open_interface(&connection)?,
            Effect::CloseInterface => self.device = None,
            Effect::ReadLines => {
                let facts = control::read(&context.config.lines);
                self.results.push_back(Event::LinesRead(facts));
            }
            Effect::OpenLine(line, port, mark) => {
                let opened = self.open_line(line, port, mark);
                let opened = opened.map_err(|error| error.to_string());
                self.results.push_back(Event::LineOpened(line, opened));
            }
            Effect::KeepUsage(usage) => {
                if let Some(file) = &mut self.usage {
                    file.write(&usage);
                }
            }
            Effect::KeepAddress(name, address) => names::keep(&name, address),
            Effect::Host(step) => self.host_step(step)?,
            Effect::RunScript(hook, program) => {
                log::info!("{}", program.line());
                self.background.run_script(hook, *program);
            }
            Effect::Judge(number, programs) => self.background.judge(number, programs),
            Effect::RefreshRevocations => self.crl.refresh(&context.config, &self.tls),
            Effect::DropPrivileges => {
                self.unprivileged = true;
                context.drop_privileges()?;
            }
            Effect::Hold => {
                if context.monitoring.borrow_mut().hold() {
                    log::info!("Need hold release from management interface, waiting...");
                } else {
                    self.results.push_back(Event::Released);
                }
            }
            Effect::Up => {
                context.is_up();
                log::info!("Initialization Sequence Completed");
            }
            Effect::Lost => context.is_lost(),
            // `perform_all` handles it.
            Effect::End(_) => {}
        }
        Ok(())
    }

    #[inline(never)]
    fn tell(&self, told: Told) {
        let mut monitoring = self.context.monitoring.borrow_mut();
        match told {
            Told::State(state, detail, addresses) => monitoring.state(state, &detail, addresses),
            Told::AuthToken(token) => monitoring.auth_token(&token),
            Told::Echo(text) => monitoring.echoed(&text),
            Told::VerificationFailed(reason) => {
                if let Some(manager) = &self.context.manager {
                    manager.refused(reason.as_deref().unwrap_or("AUTH_FAILED"));
                }
                monitoring.verification_failed("Auth", reason.as_deref());
            }
            Told::UpDown(up, environment) => monitoring.up_down(up, &environment),
            Told::Closed => monitoring.closed(),
        }
    }

    /// Opens the interface and its data plane.
    #[inline(never)]
    fn open_interface(&mut self, connection: &Connection) -> Result<(), Failure> {
        let context = self.context;
        if self.inbox.device_is_gone() {
            // Drops the inbox of the previous interface.
            self.inbox = Arc::new(Inbox::new(INBOX)?);
            self.poller.add(&*self.inbox, ARRIVALS)?;
        }
        let (plane, link) = device::start(
            Packets::Client {
                recursive: context.config.network.allow_recursive_routing,
            },
            &context.config.device,
            &context.rungs,
            &context.dataplane,
            context.kernel.then_some(Peers::One),
            terms::tun_mtu(connection),
            connection.mtu.fragment.is_some(),
            &self.inbox,
            connection.protocol.transport.is_tcp(),
        )?;
        if self.unprivileged {
            // The first interface's threads are confined when privileges are dropped.
            privileges::confine_other_threads();
        }
        if link.index != 0 {
            log::info!("TUN/TAP device {} opened", link.name);
        }
        context.monitoring.borrow_mut().publish(&link);
        self.results.push_back(Event::Opened(link.name.clone()));
        self.device = Some((Rc::from(plane), link));
        Ok(())
    }

    /// Waits for the next events and handles them.
    fn wait(&mut self, machine: &Machine<'_>) -> Result<(), Failure> {
        let context = self.context;
        let deadline = context.deadline(machine.next_deadline());
        let now = Now::read().monotonic;
        let timeout = deadline.map(|at| at.saturating_duration_since(now));
        for token in self.poller.wait(timeout)?.iter() {
            match token {
                ARRIVALS => self.inbox.waker.clear(),
                SIGNAL => {
                    let signal = context.signals.take();
                    let signal =
                        signal.filter(|signal| context.minds(*signal) && context.obeys(*signal));
                    self.events.extend(signal.map(Event::Signal));
                }
                NEWS if context.network_changed() => {
                    self.events.push_back(Event::NetworkChanged);
                    if self.lacking.is_routed_again() {
                        self.events.push_back(Event::Hurry);
                    }
                }
                BACKGROUND => self.take_background(),
                CLOCK if self.lacking.clock.take() => self.events.push_back(Event::Hurry),
                _ => {}
            }
        }
        self.take_inbox();
        let leaves = context.leaves_now();
        self.events.extend(leaves.map(Event::Signal));
        let now = Now::read().monotonic;
        if machine.next_deadline().is_some_and(|at| at <= now) {
            self.events.push_back(Event::Deadline);
        }
        let mut monitoring = context.monitoring.borrow_mut();
        let requests = monitoring.serve(&mut View(machine, self));
        drop(monitoring);
        for request in requests {
            self.requested(request);
        }
        context.pulse(|| self.device.as_ref().is_none_or(|(plane, _)| plane.pulse()));
        if context.forget.take() {
            self.events.push_back(Event::Forget);
        }
        let how = context.auth_retry.get();
        if std::mem::replace(&mut self.auth_retry, how) != how {
            self.events.push_back(Event::AuthRetry(how));
        }
        Ok(())
    }

    /// Handles a management client's request.
    fn requested(&mut self, request: ProcessRequest) {
        match request {
            ProcessRequest::Begin => self.events.push_back(Event::Released),
            ProcessRequest::Answer(answer) => self.answered(answer),
            other => self.context.note(&other),
        }
    }

    fn take_background(&mut self) {
        for result in self.background.take() {
            match result {
                background::Outcome::Event(event) => self.events.push_back(event),
                background::Outcome::Dialled(number, target, socket) => {
                    let of_line = socket.as_ref().is_err_and(DialError::is_of_line);
                    let dialled = socket
                        .map_err(Failure::from)
                        .and_then(|socket| self.open_socket(&target, socket));
                    self.dialled(number, dialled, of_line);
                }
                background::Outcome::RouteNames(number, names) => self.plan(number, &names),
            }
        }
    }

    /// Turns the workers' inbox into events.
    fn take_inbox(&mut self) {
        let inbox = &self.inbox;
        let arrivals = inbox.next_arrivals(ARRIVALS_AT_ONCE).into_iter();
        self.events.extend(arrivals.map(Event::Control));
        for _ in 0..MESSAGES_AT_ONCE {
            let Some((_, message)) = inbox.next_message() else {
                break;
            };
            self.events.push_back(Event::Message(message));
        }
        let notices = inbox.take_notices().into_iter();
        self.events
            .extend(notices.map(|(_, notice)| Event::Notice(notice)));
        let closed = inbox.take_closed().into_iter();
        self.events.extend(closed.map(Event::StreamClosed));
        if inbox.device_is_gone() && self.device.is_some() {
            self.events.push_back(Event::InterfaceGone);
        }
    }
}
