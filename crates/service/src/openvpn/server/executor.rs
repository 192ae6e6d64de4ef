//! Performs a server's effects and reports events: all of a server's I/O, clocks and threads.

mod apply;
mod handshakes;
mod listeners;
mod monitored;
mod network;
mod plane;
mod start;
mod work;

use super::machine::{Event, JobId, Machine, Now};
use crate::inbox::{Inbox, MESSAGES};
use crate::openvpn::device::Link;
use crate::openvpn::hooks::Hooks;
use crate::openvpn::plane_call::Plane;
use crate::openvpn::policy::background::Background;
use crate::openvpn::revocation::RevocationFile;
use crate::openvpn::signals::Signal;
use crate::openvpn::{Context, Ended};
use ::plane::SourceNetwork;
use config::openvpn::Topology;
use handshakes::Handshakes;
use listeners::Listeners;
use netio::poll::{Poller, Waker};
use openvpn::server::ClientId;
use openvpn::tls::TlsSettings;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use work::{Files, Finished};

const INBOX: u64 = 0;
const SIGNAL: u64 = 1;
const DONE: u64 = 2;
const NEWS: u64 = 3;
const SERVICE: u64 = 4;
/// Poller number of the first TCP listener; the others follow.
const LISTENERS: u64 = 16;

/// Most control packets per turn of the loop.
const ARRIVALS_AT_ONCE: usize = 256;

type Failure = Box<dyn std::error::Error>;

/// A server's executor.
struct Executor<'a> {
    context: &'a Context,
    machine: Machine<'a>,
    hooks: Hooks<'a>,
    inbox: Arc<Inbox>,
    plane: Box<Plane>,
    link: Link,
    mtu: u16,
    topology: Topology,
    tls: Arc<TlsSettings>,
    /// The revocation list as it was last read.
    crl: RevocationFile,
    listeners: Listeners,
    /// Background jobs, each queued under its client's source, or `None` for the server's own.
    background: Background<Option<SourceNetwork>, (JobId, Finished)>,
    handshakes: Handshakes,
    /// Unfinished jobs, and their numbers in `background`.
    jobs: HashMap<JobId, u64>,
    /// Files of scripts that answer later.
    files: HashMap<JobId, Files>,
    done: Arc<Waker>,
    set: Option<network::Set>,
    ended: Option<Ended>,
}

/// Runs a server until it is told to stop.
pub(super) fn run(context: &Context) -> Ended {
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
            if let Some(ended) = self.ended {
                return Ok(ended);
            }
            let now = Instant::now();
            self.listeners.watch(&poller, LISTENERS, now)?;
            let timeout = if busy {
                Some(Duration::ZERO)
            } else {
                let at = [self.machine.next_deadline(), self.listeners.next_deadline()];
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
                                host::notify::stopping();
                            }
                            self.tell(Event::Signal(signal));
                        }
                    }
                    NEWS if self.context.network_changed() => self.follow(),
                    LISTENERS.. => self.accept(),
                    _ => {}
                }
            }
            if self.ended.is_some() {
                continue;
            }
            busy = self.hear();
            let now = Instant::now();
            if self.machine.next_deadline().is_some_and(|at| at <= now) {
                self.tell(Event::DeadlinePassed);
            }
            let context = self.context;
            context.serve(self);
            context.pulse(|| self.plane.pulse());
        }
    }

    /// Accepts waiting connections.
    fn accept(&mut self) {
        for (id, from) in self.listeners.accept(Instant::now()) {
            self.tell(Event::StreamAccepted(id, from));
        }
    }

    /// Handles the events that other threads left. Returns whether more wait.
    fn hear(&mut self) -> bool {
        for (_, (job, finished)) in self.background.take_done() {
            // A job that was cancelled while it ran is already out of `jobs`.
            self.jobs.remove(&job);
            if let Some(files) = finished.files {
                self.files.insert(job, files);
            }
            self.tell(Event::JobDone(job, finished.done));
        }
        for handshaken in self.handshakes.take_done() {
            self.tell(handshaken);
        }
        let inbox = Arc::clone(&self.inbox);
        for stream in inbox.take_closed() {
            self.tell(Event::StreamClosed(stream));
        }
        for _ in 0..MESSAGES {
            let Some((peer, message)) = inbox.next_message() else {
                break;
            };
            self.tell(Event::Message(ClientId(peer.0), message));
        }
        for (peer, notice) in inbox.take_notices() {
            self.tell(Event::Notice(ClientId(peer.0), notice));
        }
        if inbox.device_is_gone() {
            self.fail("the interface was deleted by somebody else".to_owned());
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

    /// Tells the machine about an event and performs its effects, whose answers are further events.
    fn tell(&mut self, event: Event<'a>) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.machine.handle(event, Now::read()) {
                events.extend(self.apply(effect));
            }
        }
    }
}
