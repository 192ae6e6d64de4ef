//! A server's loop: reports events to its machine.

mod background;
mod handshakes;
mod host;
mod jobs;
mod listeners;
mod network;
mod start;

use super::machine::{Cx, Event, Machine};
use crate::inbox::Inbox;
use crate::openvpn::monitoring::Documented;
use crate::openvpn::{Context, Ended, statusdoc};
use crate::status::Status as Document;
use host::ThisHost;
use netio::poll::{Poller, Waker};
use openvpn::server::ClientId;
use openvpn_host::management::Victim;
use openvpn_host::monitored::{Monitored, Status};
use openvpn_host::signals::Signal;
use plane::LineId;
use plane::Now;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const INBOX: u64 = 0;
const SIGNAL: u64 = 1;
const DONE: u64 = 2;
const NEWS: u64 = 3;
const SERVICE: u64 = 4;
/// Poller number of the first TCP listener; the others follow.
const LISTENERS: u64 = 16;

/// Maximum number of control packets per turn of the loop.
const ARRIVALS_AT_ONCE: usize = 256;

type Failure = Box<dyn std::error::Error>;

/// A server's state machine, and the system that runs it.
struct Executor<'a> {
    context: &'a Context,
    machine: Machine<'a>,
    inbox: Arc<Inbox>,
    host: ThisHost<'a>,
    /// Wakes the loop when a job or a handshake is done.
    done: Arc<Waker>,
}

/// Runs a server until it is told to stop.
pub(in crate::openvpn) fn run(context: &Context) -> Ended {
    let mut executor = match Executor::start(context) {
        Ok(executor) => executor,
        Err(error) => {
            context.fatal(&*error);
            return Ended::Exit(1);
        }
    };
    match executor.serve() {
        Ok(ended) => ended,
        Err(error) => {
            executor.fail(error.to_string());
            Ended::Exit(1)
        }
    }
}

impl<'a> Executor<'a> {
    /// Serves control packets, signals, scripts and timers until the machine ends.
    fn serve(&mut self) -> Result<Ended, Failure> {
        let poller = Poller::new()?;
        poller.add(&*self.inbox, INBOX)?;
        poller.add(&*self.context.signals, SIGNAL)?;
        poller.add(&*self.done, DONE)?;
        self.context.watch(&poller, NEWS, SERVICE)?;
        self.tell(Event::InterfaceUp);
        let mut busy = false;
        loop {
            if let Some(ended) = self.host.ended {
                return Ok(ended);
            }
            let now = Instant::now();
            self.host.listeners.watch(&poller, LISTENERS, now)?;
            let timeout = if busy {
                Some(Duration::ZERO)
            } else {
                let at = [
                    self.machine.next_deadline(now),
                    self.host.listeners.next_deadline(),
                ];
                let at = self.context.deadline(at.into_iter().flatten().min());
                at.map(|at| at.saturating_duration_since(now))
            };
            for token in poller.wait(timeout)?.iter() {
                match token {
                    INBOX => self.inbox.waker.clear(),
                    DONE => self.done.clear(),
                    SIGNAL => {
                        if let Some(signal) = self.context.signals.take() {
                            if let Signal::Exit(_) = signal {
                                ::host::notify::stopping();
                            }
                            self.tell(Event::Signal(signal));
                        }
                    }
                    NEWS if self.context.network_changed() => self.host.follow(),
                    LISTENERS.. => self.accept(),
                    _ => {}
                }
            }
            if self.host.ended.is_some() {
                continue;
            }
            busy = self.hear();
            let now = Instant::now();
            if self.machine.next_deadline(now).is_some_and(|at| at <= now) {
                self.tell(Event::DeadlinePassed);
            }
            let context = self.context;
            context.serve(self);
            context.pulse(|| self.host.plane.pulse());
        }
    }

    /// Accepts waiting connections.
    fn accept(&mut self) {
        for (id, from) in self.host.listeners.accept(Instant::now()) {
            self.tell(Event::StreamAccepted(id, from));
        }
    }

    /// Handles the events that other threads left. Returns whether more wait.
    fn hear(&mut self) -> bool {
        for (job, finished) in self.host.background.take_done() {
            if let Some(files) = finished.files {
                self.host.files.insert(job, files);
            }
            self.tell(Event::JobDone(job, finished.done));
        }
        for handshaken in self.host.handshakes.take_done() {
            self.tell(handshaken);
        }
        let inbox = Arc::clone(&self.inbox);
        for stream in inbox.take_closed() {
            self.tell(Event::StreamClosed(stream));
        }
        for (peer, message) in inbox.take_messages() {
            self.tell(Event::Message(ClientId(peer.0), message));
        }
        for (peer, notice) in inbox.take_notices() {
            self.tell(Event::Notice(ClientId(peer.0), notice));
        }
        if inbox.device_is_gone() {
            self.fail("another program deleted the interface".to_owned());
            return false;
        }
        for _ in 0..ARRIVALS_AT_ONCE {
            match inbox.next_arrival() {
                Some((arrival, _)) => self.tell(Event::Packet(arrival)),
                None => return false,
            }
        }
        true
    }

    /// Ends the server with an error.
    fn fail(&mut self, why: String) {
        if let Some(manager) = &self.context.manager {
            manager.failed(&why);
        }
        self.tell(Event::Failed(why));
    }

    /// Passes the machine an event, and those that follow from it at once.
    fn tell(&mut self, event: Event<'a>) {
        let plane = Rc::clone(&self.host.plane);
        self.host.events.push_back(event);
        while let Some(event) = self.host.events.pop_front() {
            let mut cx = Cx {
                now: Now::read(),
                plane: &*plane,
                host: &mut self.host,
            };
            self.machine.handle(event, &mut cx);
        }
    }
}

impl Monitored for Executor<'_> {
    fn status(&self) -> Status {
        let status = self.machine.status(&*self.host.plane, Now::read());
        self.host.status(status)
    }

    fn kill(&mut self, victim: &Victim) -> usize {
        let count = self.machine.matching(victim).len();
        self.tell(Event::Kill(victim.clone()));
        count
    }

    fn kill_client(&mut self, number: u64) -> bool {
        let found = self.machine.has_client(number);
        self.tell(Event::KillClient(number));
        found
    }
}

impl Documented for Executor<'_> {
    fn document(&self) -> Document {
        let config = self.machine.config();
        let network = &config.network;
        let v4 = network.ifconfig.map(|i| i.local.to_string());
        let v6 = network.ifconfig_v6.map(|i| i.local.to_string());
        let (plane, inside) = (&*self.host.plane, self.host.set.as_ref());
        let mut refused = self.machine.refused();
        let connections =
            self.machine.connections().turned_away() + self.host.listeners.turned_away();
        refused.insert("connection_limit".to_owned(), connections);
        Document {
            role: Some("server".to_owned()),
            listen_port: plane.port(LineId::FIRST).unwrap_or(0),
            listen_tcp: self.host.listeners.ports(),
            addresses: v4.into_iter().chain(v6).collect(),
            peers: self.machine.peers(plane),
            refused,
            ..statusdoc::document(
                self.context,
                Some(plane),
                inside.map(|set| &set.inside),
                self.context.expiry(&self.host.tls),
            )
        }
    }
}
