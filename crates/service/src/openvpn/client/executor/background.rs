//! Threads for slow work: name look-ups, connections and scripts.

use crate::openvpn::client::event::Event;
use config::openvpn::OpenVpn;
use lines::names;
use netio::poll::Waker;
use openvpn_host::connect::{
    self, DialError, Name, ProxyLogin, ResolveError, Socket, Stop, Target,
};
use openvpn_host::network::{RouteNames, route_names};
use openvpn_host::scripts::{Hook, Invocation};
use plane::LineId;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::thread;

/// Bytes of a thread's stack.
const STACK: usize = 256 << 10;

/// Result of a request.
pub(super) enum Outcome {
    /// An event for the machine.
    Event(Event),
    /// A socket, for the dial of this number; `None` if the dial was cancelled.
    Dialled(u64, Box<Target>, Result<Option<Socket>, DialError>),
    /// The addresses of the names in routes, for the request of this number.
    RouteNames(u64, RouteNames),
}

/// Results that nobody has taken yet. Readable when there are some.
struct Results {
    waker: Waker,
    found: Mutex<Vec<Outcome>>,
}

/// Running requests, and their results.
pub(super) struct Background {
    names: names::Background,
    /// Firewall mark of the tunnel's own packets.
    mark: u32,
    results: Arc<Results>,
    /// The current dial's number, and the waker that stops it, if it has begun.
    dialling: Option<(u64, Option<Arc<Waker>>)>,
    /// Stops the look-up of names in routes.
    naming: Option<Arc<Waker>>,
    /// `tls-verify` is running.
    judges: bool,
    /// The request to run `tls-verify` after the current run; a newer request replaces it.
    question: Option<(u64, Vec<Invocation>)>,
}

impl Background {
    /// # Errors
    /// Too many open descriptors.
    pub(super) fn new(config: &OpenVpn) -> io::Result<Self> {
        let device = config.sockets.device.as_deref();
        Ok(Self {
            names: names::Background::new(&config.lines, device),
            mark: config.sockets.mark.unwrap_or(0),
            results: Arc::new(Results {
                waker: Waker::new()?,
                found: Mutex::default(),
            }),
            dialling: None,
            naming: None,
            judges: false,
            question: None,
        })
    }

    /// Readable when [`take`](Self::take) has something.
    pub(super) fn waker(&self) -> BorrowedFd<'_> {
        self.results.waker.as_fd()
    }

    /// Returns the results since the last call.
    pub(super) fn take(&mut self) -> Vec<Outcome> {
        self.results.waker.clear();
        let wanted = self.dialling.as_ref().map(|(number, _)| *number);
        let mut found = std::mem::take(&mut *plane::lock(&self.results.found));
        // Dropping the result of an abandoned dial closes its socket.
        let is_wanted = |it: &Outcome| match it {
            Outcome::Dialled(number, ..) => Some(*number) == wanted,
            _ => true,
        };
        found.retain(is_wanted);
        let judged = |it: &Outcome| matches!(it, Outcome::Event(Event::Judged(..)));
        if found.iter().any(judged) {
            self.judges = false;
            if let Some((number, programs)) = self.question.take() {
                self.judge(number, programs);
            }
        }
        found
    }

    /// Stops the current dial.
    pub(super) fn cancel(&mut self) {
        if let Some((_, Some(stop))) = self.dialling.take() {
            stop.wake();
        }
    }

    fn tell(&self) -> impl FnOnce(Outcome) + Send + 'static {
        let results = Arc::clone(&self.results);
        move |outcome| {
            plane::lock(&results.found).push(outcome);
            results.waker.wake();
        }
    }

    /// Runs `work` on a thread of this name and reports its result, or `failed` if no thread can be started.
    fn spawn(
        &self,
        name: &str,
        work: impl FnOnce() -> Outcome + Send + 'static,
        failed: impl FnOnce(io::Error) -> Outcome,
    ) {
        let tell = self.tell();
        if let Err(error) = start(name, move || tell(work())) {
            self.tell()(failed(error));
        }
    }

    /// Spawns work that ends when the returned waker wakes; `None` if it did not begin. See [`spawn`](Self::spawn).
    fn stoppable(
        &self,
        name: &str,
        work: impl FnOnce(&Stop<'_>) -> Outcome + Send + 'static,
        failed: impl FnOnce(io::Error) -> Outcome,
    ) -> Option<Arc<Waker>> {
        match Waker::new().map(Arc::new) {
            Ok(stop) => {
                let stops = Arc::clone(&stop);
                self.spawn(name, move || work(&Stop::new(&*stops)), failed);
                Some(stop)
            }
            Err(error) => {
                self.tell()(failed(error));
                None
            }
        }
    }

    /// Looks up a name; `event` turns the addresses into an event. `inside`: the host's name servers may be reached
    /// through the tunnel.
    pub(super) fn look_up(
        &mut self,
        name: Name,
        inside: bool,
        event: impl Fn(Result<Vec<SocketAddr>, ResolveError>) -> Event + Copy + Send + 'static,
    ) {
        let tell = self.tell();
        let host = name.host.clone();
        let done = move |found| tell(Outcome::Event(event(found)));
        let begun = connect::look_up(name, &mut self.names, (self.mark, inside), done);
        if let Err(error) = begun {
            let failed = event(Err(ResolveError::Resources { host, error }));
            self.tell()(Outcome::Event(failed));
        }
    }

    /// Opens a connection, through a proxy if there is one.
    pub(super) fn dial(&mut self, number: u64, target: Target, login: Option<ProxyLogin>) {
        self.cancel();
        let dialled = move |target: Target, socket| Outcome::Dialled(number, target.into(), socket);
        let (remote, unopened) = (target.remote, target.clone());
        let work = move |stop: &Stop<'_>| {
            let socket = target.open(login.as_ref(), stop);
            dialled(target, socket)
        };
        let stop = self.stoppable("dial", work, move |error| {
            dialled(unopened, Err(DialError::Resources { remote, error }))
        });
        self.dialling = Some((number, stop));
    }

    /// Tests whether a line reaches the server.
    pub(super) fn try_line(&self, line: LineId, target: Target) {
        let tried = move |result| Outcome::Event(Event::LineTried(line, result));
        let work = move |stop: &Stop<'_>| {
            let touched = target.touch(stop).map(drop);
            tried(touched.map_err(|error| error.to_string()))
        };
        self.stoppable("try", work, move |error| tried(Err(error.to_string())));
    }

    /// Looks up the names in routes; cancels the previous request.
    pub(super) fn route_names(&mut self, number: u64, names: Vec<String>) {
        if let Some(stop) = self.naming.take() {
            stop.wake();
        }
        let work = move |stop: &Stop<'_>| Outcome::RouteNames(number, route_names(&names, stop));
        self.naming = self.stoppable("names", work, move |error| {
            log::warn!("looking up names in routes: {error}");
            Outcome::RouteNames(number, RouteNames::default())
        });
    }

    /// Runs a script.
    pub(super) fn run_script(&self, hook: Hook, program: Invocation) {
        let ended = move |result| Outcome::Event(Event::ScriptFinished(hook, result));
        let work = move || ended(program.run_well().map_err(|error| error.to_string()));
        let failed = move |error| ended(Err(format!("{}: {error}", hook.directive())));
        self.spawn("script", work, failed);
    }

    /// Runs `tls-verify` for each certificate until it refuses one. Waits for a run in progress.
    pub(super) fn judge(&mut self, number: u64, programs: Vec<Invocation>) {
        if self.judges {
            self.question = Some((number, programs));
            return;
        }
        self.judges = true;
        let judged = move |passed, verdict| Outcome::Event(Event::Judged(number, passed, verdict));
        let work = move || {
            let mut passed = 0;
            let verdict = programs.iter().try_for_each(|program| {
                program.run_well().map_err(|error| error.to_string())?;
                passed += 1;
                Ok(())
            });
            judged(passed, verdict)
        };
        let hook = Hook::TlsVerify.directive();
        self.spawn("script", work, |error| {
            judged(0, Err(format!("{hook}: {error}")))
        });
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.stack_size(STACK).spawn(work)?;
    Ok(())
}
