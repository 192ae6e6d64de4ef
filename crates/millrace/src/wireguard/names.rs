//! Endpoints that a file gives by name: looked up until they are found, every address tried in turn, and looked up anew
//! when none of them answers.

use super::query::{self, Asker};
use config::types::{Endpoint, Host};
use netio::poll::Waker;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Pause after the first look-up that failed, or that brought nothing new. It doubles.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause: a line may come up at any moment, and a query costs little.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 64;

/// Look-ups at a time: a resolver that does not answer takes its time with each.
const THREADS: usize = 4;

/// Bytes of a look-up's stack: the C library's resolver needs more than its own buffers.
const STACK: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookup {
    /// None is needed.
    Rests,
    /// To begin at that moment.
    Due(Instant),
    /// A thread does it.
    Runs,
}

/// The name of one peer's endpoint.
#[derive(Debug)]
pub(super) struct Name {
    endpoint: Endpoint,
    host: String,
    addresses: Vec<SocketAddr>,
    /// The address that is in use, or was when the peer was last heard of.
    at: usize,
    lookup: Lookup,
    pause: Duration,
    /// Before this no look-up begins.
    not_before: Instant,
    /// Whether a look-up has ended.
    tried: bool,
    /// Why the last one failed, as it was told.
    told: Option<String>,
}

impl Name {
    /// The name in an endpoint, if it is one, to be looked up at once.
    pub(super) fn of(endpoint: &Endpoint, now: Instant) -> Option<Self> {
        let host = match &endpoint.host {
            Host::Name(name) => name.clone(),
            // A zone that is no number: the interface may come later, as an answer may.
            Host::Scoped(addr, zone) if endpoint.socket_addr().is_none() => {
                format!("{addr}%{zone}")
            }
            _ => return None,
        };
        Some(Self {
            endpoint: endpoint.clone(),
            host,
            addresses: Vec::new(),
            at: 0,
            lookup: Lookup::Due(now),
            pause: PAUSE_MIN,
            not_before: now,
            tried: false,
            told: None,
        })
    }

    /// The endpoint that the name is of.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// All its addresses, as last found.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether a look-up has ended, well or not.
    pub(super) fn is_tried(&self) -> bool {
        self.tried
    }

    /// When it is to be looked up.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.lookup {
            Lookup::Due(at) => Some(at),
            _ => None,
        }
    }

    /// The network has changed: what failed for the want of a line is tried again at once.
    pub(super) fn hurry(&mut self, now: Instant) {
        if self.addresses.is_empty() && matches!(self.lookup, Lookup::Due(_)) {
            self.pause = PAUSE_MIN;
            self.lookup = Lookup::Due(now);
        }
    }

    /// Another handshake message goes to a peer that has not answered the one before. Returns where to send it.
    pub(super) fn unanswered(&mut self, now: Instant) -> Option<SocketAddr> {
        self.at += 1;
        if self.at >= self.addresses.len() {
            self.at = 0;
            if self.lookup == Lookup::Rests {
                self.lookup = Lookup::Due(self.not_before.max(now));
            }
        }
        self.addresses.get(self.at).copied()
    }

    /// The peer has answered.
    pub(super) fn answered(&mut self) {
        self.pause = PAUSE_MIN;
        // What is due is due because of a silence that is over.
        if !self.addresses.is_empty() && self.lookup != Lookup::Runs {
            self.lookup = Lookup::Rests;
        }
    }

    /// Takes the end of a look-up. Returns the address to go on with, if it is not `current`.
    fn looked_up(
        &mut self,
        found: io::Result<Vec<SocketAddr>>,
        current: Option<SocketAddr>,
        now: Instant,
    ) -> Option<SocketAddr> {
        self.tried = true;
        self.lookup = Lookup::Rests;
        self.not_before = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let found = found.and_then(|found| match found.is_empty() {
            true => Err(io::Error::other("the name has no address")),
            false => Ok(found),
        });
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.fail(&error);
                return None;
            }
        };
        self.told = None;
        let known = current.and_then(|current| found.iter().position(|addr| *addr == current));
        self.addresses = found;
        self.at = known.unwrap_or(0);
        let first = self.addresses.first().copied();
        first.filter(|_| known.is_none())
    }

    fn fail(&mut self, error: &io::Error) {
        let why = error.to_string();
        if self.told.as_ref() != Some(&why) {
            let then = match self.addresses.is_empty() {
                true => "trying again until it is found",
                false => "its addresses of before are tried",
            };
            log::warn!("endpoint {}: {why}; {then}", self.endpoint);
        }
        self.told = Some(why);
        if self.addresses.is_empty() {
            self.lookup = Lookup::Due(self.not_before);
        }
    }
}

/// A look-up that has ended.
pub(super) struct Answer {
    peer: wireguard::PeerId,
    endpoint: Endpoint,
    found: io::Result<Vec<SocketAddr>>,
}

/// Looks names up without anything waiting for it.
pub(super) struct Resolver {
    sender: Sender<Answer>,
    answers: Receiver<Answer>,
    running: usize,
    wake: Arc<Waker>,
    /// The host's name servers, as they were when nothing led them into the tunnel.
    servers: Vec<IpAddr>,
}

impl Resolver {
    /// `wake` is rung when an answer is there.
    pub(super) fn new(wake: Arc<Waker>) -> Self {
        let (sender, answers) = mpsc::channel();
        Self {
            sender,
            answers,
            running: 0,
            wake,
            servers: Vec::new(),
        }
    }

    /// Whether another look-up may begin.
    pub(super) fn is_free(&self) -> bool {
        self.running < THREADS
    }

    /// `mark` is that of the tunnel's own datagrams: with one, what others send goes into the tunnel.
    fn begin(&mut self, peer: wireguard::PeerId, name: &mut Name, mark: u32) {
        let past = match mark {
            0 => {
                self.servers = query::servers();
                None
            }
            mark => Some(Asker::new(&self.servers, mark)),
        };
        let (sender, wake) = (self.sender.clone(), Arc::clone(&self.wake));
        let (host, endpoint) = (name.host.clone(), name.endpoint.clone());
        let thread = thread::Builder::new()
            .name("resolve".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                crate::privileges::confine_this_thread();
                let found = look_up(&host, endpoint.port, past.as_ref());
                // The interface may be gone.
                let _ = sender.send(Answer {
                    peer,
                    endpoint,
                    found,
                });
                wake.wake();
            });
        match thread {
            Ok(_) => {
                self.running += 1;
                name.lookup = Lookup::Runs;
            }
            Err(error) => {
                log::warn!("looking up {}: {error}", name.host);
                name.lookup = Lookup::Due(Instant::now() + PAUSE_MAX);
            }
        }
    }

    fn next(&mut self) -> Option<Answer> {
        let answer = self.answers.try_recv().ok()?;
        self.running = self.running.saturating_sub(1);
        Some(answer)
    }
}

/// Asks the host's resolver, and where that does not know, name servers past the tunnel.
fn look_up(host: &str, port: u16, past: Option<&Asker>) -> io::Result<Vec<SocketAddr>> {
    let mut found: Vec<SocketAddr> = Vec::new();
    let all: Vec<SocketAddr> = match ((host, port).to_socket_addrs(), past) {
        (Ok(all), _) => all.collect(),
        (Err(error), None) => return Err(error),
        (Err(error), Some(past)) => {
            let all = past.look_up(host).map_err(|past| {
                log::debug!("{host}: past the tunnel: {past}");
                error
            })?;
            all.into_iter()
                .map(|ip| SocketAddr::new(ip, port))
                .collect()
        }
    };
    for addr in all {
        if !found.contains(&addr) && found.len() < ADDRESSES_MAX {
            found.push(addr);
        }
    }
    Ok(found)
}

impl super::interface::Interface {
    /// When the next name is to be looked up.
    pub(super) fn names_due(&self) -> Option<Instant> {
        self.names.values().filter_map(Name::due).min()
    }

    /// Begins the look-ups that are due and takes what has been found. Returns whether any has ended.
    pub(super) fn look_up(&mut self, resolver: &mut Resolver) -> bool {
        let mut ended = false;
        while let Some(answer) = resolver.next() {
            ended = true;
            self.found(answer);
        }
        let now = Instant::now();
        for (id, name) in &mut self.names {
            if name.due().is_some_and(|at| at <= now) && resolver.is_free() {
                resolver.begin(*id, name, self.sockets.fwmark);
            }
        }
        ended
    }

    fn found(&mut self, answer: Answer) {
        let now = self.now();
        let Some(entry) = self.peers.get(&answer.peer) else {
            return;
        };
        let current = entry.engine.endpoint().map(|endpoint| endpoint.addr);
        // Another name may have taken its place.
        let name = self.names.get_mut(&answer.peer);
        let Some(name) = name.filter(|name| name.endpoint == answer.endpoint) else {
            return;
        };
        if let Some(addr) = name.looked_up(answer.found, current, now) {
            let mut out = Vec::new();
            entry.engine.set_endpoint(netio::udp::Endpoint::new(addr));
            self.device
                .set_endpoint(answer.peer, Some(addr), now, &mut out);
            self.perform(&mut out, now);
        }
    }
}
