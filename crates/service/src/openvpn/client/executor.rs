//! The loop of a client: waits for events and reports them to the machine.

mod background;
mod host;
mod login;
mod monitored;
mod sockets;

use super::event::Event;
use super::host::{Cx, Failure};
use super::machine::Machine;
use super::steps::Steps;
use crate::clock_watch::ClockWatch;
use crate::openvpn::Ended;
use crate::openvpn::context::Context;
use background::Outcome;
use config::openvpn::AuthRetry;
use host::ThisHost;
use netio::netlink::Netlink;
use openvpn::tls::TlsSettings;
use openvpn_host::connect::DialError;
use openvpn_host::monitored::ProcessRequest;
use openvpn_host::revocation::RevocationFile;
use plane::Now;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const ARRIVALS: u64 = 0;
const SIGNAL: u64 = 1;
const NEWS: u64 = 2;
const MANAGEMENT: u64 = 3;
const BACKGROUND: u64 = 4;
const CLOCK: u64 = 5;

/// Maximum number of control packets per turn of the loop.
const ARRIVALS_AT_ONCE: usize = 256;

/// A client's state machine, and the system that runs it.
pub(super) struct Executor<'a> {
    context: &'a Context,
    machine: Machine<'a>,
    host: ThisHost<'a>,
    steps: Steps,
    events: VecDeque<Event>,
    auth_retry: AuthRetry,
    lacking: Lacking,
}

impl<'a> Executor<'a> {
    /// # Errors
    /// Too many open descriptors.
    pub(super) fn new(
        context: &'a Context,
        mut machine: Machine<'a>,
        tls: Arc<TlsSettings>,
        crl: RevocationFile,
    ) -> Result<Self, Failure> {
        let host = ThisHost::new(context, tls, crl, &mut machine)?;
        let lacking = Lacking::new(context.config.sockets.mark.unwrap_or(0))?;
        host.poller.add(&*context.signals, SIGNAL)?;
        host.poller.add(&lacking.clock, CLOCK)?;
        context.watch(&host.poller, NEWS, MANAGEMENT)?;
        Ok(Self {
            context,
            machine,
            host,
            steps: Steps::default(),
            events: VecDeque::from([Event::Begin]),
            auth_retry: context.auth_retry.get(),
            lacking,
        })
    }

    /// Runs a client until it ends.
    pub(super) fn run(&mut self) -> Ended {
        let ended = self.serve();
        self.with_machine(|machine, cx| machine.lines_end(cx));
        ended
    }

    fn serve(&mut self) -> Ended {
        loop {
            while let Some(event) = self.next_event() {
                if matches!(event, Event::ScriptFinished(..)) {
                    self.steps.script_ended(&mut self.host);
                }
                if self.host.ended.is_none() {
                    self.with_machine(|machine, cx| machine.handle(event, cx));
                }
                if let Some(ended) = self.host.ended {
                    return ended;
                }
            }
            if let Err(error) = self.wait() {
                self.context.fatal(&*error);
                return Ended::Exit(1);
            }
        }
    }

    fn next_event(&mut self) -> Option<Event> {
        let result = self.steps.results.pop_front();
        result.or_else(|| self.events.pop_front())
    }

    /// Calls the machine with a fresh time: a step may have waited for the user.
    fn with_machine(&mut self, call: impl FnOnce(&mut Machine<'a>, &mut Cx<'_>)) {
        let mut cx = Cx {
            now: Now::read(),
            plane: self.host.plane(),
            connected: self.machine.is_connected(),
            host: &mut self.host,
            steps: &mut self.steps,
        };
        call(&mut self.machine, &mut cx);
    }

    /// Waits for the next events and handles them.
    fn wait(&mut self) -> Result<(), Failure> {
        let context = self.context;
        let due = [self.machine.next_deadline(), self.host.uplink.look_at];
        let deadline = context.deadline(due.into_iter().flatten().min());
        let now = Now::read().monotonic;
        let timeout = deadline.map(|at| at.saturating_duration_since(now));
        for token in self.host.poller.wait(timeout)?.iter() {
            match token {
                ARRIVALS => self.host.inbox.waker.clear(),
                SIGNAL => {
                    let signal = context.signals.take();
                    let signal =
                        signal.filter(|signal| context.minds(*signal) && context.obeys(*signal));
                    self.events.extend(signal.map(Event::Signal));
                }
                NEWS if context.network_changed() => {
                    self.host.uplink.changed(now);
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
        if self.host.has_moved(now, self.machine.calls_by_stream()) {
            self.events.push_back(Event::Moved);
        }
        if self.machine.next_deadline().is_some_and(|at| at <= now) {
            self.events.push_back(Event::Deadline);
        }
        let mut monitoring = context.monitoring.borrow_mut();
        let requests = monitoring.serve(self);
        drop(monitoring);
        for request in requests {
            self.requested(request);
        }
        context.pulse(|| self.host.plane().is_none_or(|plane| plane.pulse()));
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
            ProcessRequest::Answer(answer) => self.events.extend(self.host.answered(answer)),
            other => self.context.note(&other),
        }
    }

    fn take_background(&mut self) {
        for result in self.host.background.take() {
            let event = match result {
                Outcome::Event(event) => {
                    self.events.push_back(event);
                    continue;
                }
                Outcome::Dialled(number, target, socket) => {
                    let of_line = socket.as_ref().is_err_and(DialError::is_of_line);
                    let opened = socket
                        .map_err(Failure::from)
                        .and_then(|socket| self.host.open_socket(&target, socket));
                    Some(sockets::dialled(number, opened, of_line))
                }
                Outcome::RouteNames(number, names) => self.host.planned(number, &names),
            };
            self.steps.results.extend(event);
        }
    }

    /// Turns the workers' inbox into events.
    fn take_inbox(&mut self) {
        let inbox = &self.host.inbox;
        let arrivals = inbox.next_arrivals(ARRIVALS_AT_ONCE).into_iter();
        self.events.extend(arrivals.map(Event::Control));
        let messages = inbox.take_messages().into_iter();
        self.events
            .extend(messages.map(|(_, message)| Event::Message(message)));
        let notices = inbox.take_notices().into_iter();
        self.events
            .extend(notices.map(|(_, notice)| Event::Notice(notice)));
        let closed = inbox.take_closed().into_iter();
        self.events.extend(closed.map(Event::StreamClosed));
        if inbox.device_is_gone() && self.host.device.is_some() {
            self.events.push_back(Event::InterfaceGone);
        }
    }
}

/// Documentation addresses (RFC 5737, RFC 3849), which only a default route covers.
const ANYWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Watches for what an attempt may have lacked: the right time, and a default route.
struct Lacking {
    /// Reports when the clock is set.
    clock: ClockWatch,
    /// Whether the last check found a default route.
    routed: bool,
    mark: u32,
}

impl Lacking {
    /// `mark` is the firewall mark of the tunnel's own packets.
    ///
    /// # Errors
    /// Too many open descriptors.
    fn new(mark: u32) -> io::Result<Self> {
        Ok(Self {
            clock: ClockWatch::new()?,
            routed: is_routed(mark),
            mark,
        })
    }

    /// Checks the routes after a change. Returns whether a default route has appeared.
    fn is_routed_again(&mut self) -> bool {
        let before = std::mem::replace(&mut self.routed, is_routed(self.mark));
        self.routed && !before
    }
}

fn is_routed(mark: u32) -> bool {
    let Ok(mut netlink) = Netlink::open() else {
        return true;
    };
    ANYWHERE
        .into_iter()
        .any(|to| netlink.route_get(to, mark).is_ok())
}
