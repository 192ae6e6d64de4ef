//! Look-ups of one tunnel, each on its own thread, as a look-up blocks.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex};
use std::thread;

use config::lines::{Line, Lines};
use netio::poll::Waker;

use super::{Asker, LookUp, servers};

/// Maximum number of addresses of one name that are tried.
const ADDRESSES_MAX: usize = 64;

/// Bytes of a look-up's stack: the C library's resolver needs more than its own buffers.
const STACK: usize = 256 << 10;

/// Looks up the names of a tunnel's endpoints in the background.
#[derive(Debug)]
pub struct Background {
    /// The host's name servers from before the tunnel was up.
    servers: Vec<IpAddr>,
    /// The lines over which the tunnel's packets leave.
    lines: Lines,
}

impl Background {
    /// Call it before the tunnel is up: it takes the host's current name servers. A tunnel without lines may be bound
    /// to a `device`, which then counts as its only line.
    pub fn new(lines: &Lines, device: Option<&str>) -> Self {
        let mut lines = lines.clone();
        if let Some(device) = device.filter(|_| lines.lines.is_empty()) {
            lines.lines.push(Line {
                name: device.to_owned(),
                interface: Some(device.to_owned()),
                ..Line::default()
            });
        }
        let servers = servers::of_host();
        Self { servers, lines }
    }

    /// Begins a look-up, which ends with a call of `done` on its thread, with each address once. `mark` is the mark
    /// of the tunnel's own datagrams, 0 for none. `inside` says that DNS queries of the host may go into the tunnel,
    /// so its name servers may be the tunnel's.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(
        &mut self,
        (host, port): (String, u16),
        mark: u32,
        inside: bool,
        done: impl FnOnce(io::Result<Vec<SocketAddr>>) + Send + 'static,
    ) -> io::Result<()> {
        self.follow(inside, servers::of_host);
        // Opened here, as the thread may not mark a socket.
        let asker = Asker::new(&self.servers, mark, &self.lines);
        let thread = thread::Builder::new().name("resolve".to_owned());
        thread.stack_size(STACK).spawn(move || {
            // The thread is confined because it parses data from name servers.
            host::privileges::confine_this_thread();
            done(look_up(&host, port, &asker));
        })?;
        Ok(())
    }

    /// Takes the host's current name servers, unless they may be the tunnel's.
    fn follow(&mut self, inside: bool, of_host: impl FnOnce() -> Vec<IpAddr>) {
        if !inside || self.servers.is_empty() {
            self.servers = of_host();
        }
    }
}

/// The result of a look-up, with the tag that it was begun with.
type Answer<T> = (T, Result<Vec<SocketAddr>, String>);

/// Looks names up for an event loop. Each result is fetched after the waker has fired.
pub struct Resolver<T = LookUp> {
    // A channel would be 5 KB of an ARMv7 program for each type.
    answers: Arc<Mutex<Vec<Answer<T>>>>,
    /// Fires when there is a result.
    pub wake: Arc<Waker>,
    names: Background,
}

impl<T: Clone + Send + 'static> Resolver<T> {
    /// Makes a resolver for a tunnel; see [`Background::new`].
    pub fn new(wake: Arc<Waker>, lines: &Lines, device: Option<&str>) -> Self {
        Self {
            answers: Arc::default(),
            wake,
            names: Background::new(lines, device),
        }
    }

    /// Begins the look-up of a host and port; see [`Background::begin`]. If it cannot begin, the reason is its result.
    pub fn begin(&mut self, tag: T, name: (String, u16), mark: u32, inside: bool) {
        let (answers, wake) = (Arc::clone(&self.answers), Arc::clone(&self.wake));
        let tell = move |tag, found: io::Result<_>| {
            let answer = (tag, found.map_err(|error| error.to_string()));
            plane::lock(&answers).push(answer);
            wake.wake();
        };
        let (again, failed) = (tag.clone(), tell.clone());
        let done = move |found| tell(again, found);
        if let Err(error) = self.names.begin(name, mark, inside, done) {
            failed(tag, Err(error));
        }
    }

    /// The result of a look-up, if one has ended.
    pub fn next(&self) -> Option<Answer<T>> {
        let mut answers = plane::lock(&self.answers);
        (!answers.is_empty()).then(|| answers.remove(0))
    }
}

impl Resolver {
    /// Begins a look-up.
    pub fn look_up(&mut self, lookup: LookUp) {
        let (mark, name) = (lookup.mark, (lookup.host.clone(), lookup.endpoint.port));
        // With a mark, unmarked packets go into the tunnel, and so do queries of the host's resolver.
        self.begin(lookup, name, mark, mark != 0);
    }
}

/// The addresses of a name, each once.
fn look_up(host: &str, port: u16, asker: &Asker) -> io::Result<Vec<SocketAddr>> {
    let mut found: Vec<SocketAddr> = Vec::new();
    let all: Vec<SocketAddr> = match host.contains('%') {
        // The zone is part of the address.
        true => (host, port).to_socket_addrs()?.collect(),
        false => {
            let all = asker.look_up(host)?.into_iter();
            all.map(|ip| SocketAddr::new(ip, port)).collect()
        }
    };
    for addr in all {
        if !found.contains(&addr) && found.len() < ADDRESSES_MAX {
            found.push(addr);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netio::poll::Poller;
    use std::collections::BTreeMap;
    use std::time::Duration;

    #[test]
    fn while_a_tunnel_is_up_the_servers_of_before_are_asked() {
        let ip = |last| IpAddr::from([192, 0, 2, last]);
        let mut background = Background::new(&Lines::default(), Some("wan"));
        background.servers = Vec::new();
        for (inside, of_host, asked) in [
            (false, 1, 1),
            // From here on, the host's name servers are the tunnel's.
            (true, 53, 1),
            (true, 54, 1),
            // The host is on another network, without a tunnel.
            (false, 2, 2),
        ] {
            background.follow(inside, || vec![ip(of_host)]);
            assert_eq!(background.servers, [ip(asked)]);
        }
        let line = &background.lines.lines[0];
        assert_eq!(line.interface.as_deref(), Some("wan"));
    }

    #[test]
    fn addresses_come_once_and_with_their_zone() {
        let asker = Asker::default();
        let found = look_up("192.0.2.7", 5, &asker).unwrap();
        assert_eq!(found, ["192.0.2.7:5".parse().unwrap()]);
        let found = look_up("fe80::1%lo", 5, &asker).unwrap();
        assert!(matches!(found[..], [SocketAddr::V6(it)] if it.scope_id() != 0));
    }

    #[test]
    fn an_answer_comes_with_its_tag_and_wakes_the_loop() {
        let wake = Arc::new(Waker::new().unwrap());
        let poller = Poller::new().unwrap();
        poller.add(&*wake, 0).unwrap();
        let mut resolver = Resolver::new(wake, &Lines::default(), None);
        let name = |host: &str| (host.to_owned(), 51820);
        resolver.begin("good", name("192.0.2.7"), 0, false);
        resolver.begin("bad", name("fe80::1%no-such-device"), 0, false);
        let mut answers = BTreeMap::new();
        while answers.len() < 2 {
            let ready = poller.wait(Some(Duration::from_secs(60))).unwrap();
            assert_eq!(ready.iter().count(), 1, "no answer within a minute");
            resolver.wake.clear();
            answers.extend(std::iter::from_fn(|| resolver.next()));
        }
        let found = ["192.0.2.7:51820".parse().unwrap()];
        assert_eq!(answers["good"].as_deref(), Ok(&found[..]));
        assert!(answers["bad"].is_err());
    }
}
