//! Look-ups of one tunnel, each on a thread of its own: who asks waits.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::thread;

use config::lines::{Line, Lines};

use super::{Asker, servers};

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 64;

/// Bytes of a look-up's stack: the C library's resolver needs more than its own buffers.
const STACK: usize = 256 << 10;

/// Looks the names of a tunnel's endpoints up without anything waiting for it.
#[derive(Debug)]
pub(crate) struct Background {
    /// The host's name servers, as they were when nothing led them into the tunnel.
    servers: Vec<IpAddr>,
    /// By what the tunnel's packets leave.
    lines: Lines,
}

impl Background {
    /// For a tunnel that is not up: the name servers are those of now. A tunnel without lines may be bound to a `device`,
    /// which is its only one then.
    pub(crate) fn new(lines: &Lines, device: Option<&str>) -> Self {
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

    /// Begins a look-up, which ends with a call of `done` on its thread, with each address once. `mark` is that of the
    /// tunnel's own datagrams, 0 for none. `inside`: the host's questions may go into the tunnel, and its name servers
    /// may be the tunnel's.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn begin(
        &mut self,
        (host, port): (String, u16),
        mark: u32,
        inside: bool,
        done: impl FnOnce(io::Result<Vec<SocketAddr>>) + Send + 'static,
    ) -> io::Result<()> {
        self.follow(inside, servers::of_host);
        // Here, as the thread has no right to mark a socket.
        let asker = Asker::new(&self.servers, mark, &self.lines);
        let thread = thread::Builder::new().name("resolve".to_owned());
        thread.stack_size(STACK).spawn(move || {
            // It reads what name servers send.
            host::privileges::confine_this_thread();
            done(look_up(&host, port, &asker));
        })?;
        Ok(())
    }

    /// Takes the host's name servers of now where they are not the tunnel's.
    fn follow(&mut self, inside: bool, of_host: impl FnOnce() -> Vec<IpAddr>) {
        if !inside || self.servers.is_empty() {
            self.servers = of_host();
        }
    }
}

/// The addresses of a name, each once.
fn look_up(host: &str, port: u16, asker: &Asker) -> io::Result<Vec<SocketAddr>> {
    let mut found: Vec<SocketAddr> = Vec::new();
    let all: Vec<SocketAddr> = match host.contains('%') {
        // A zone is a part of the address.
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

    #[test]
    fn while_a_tunnel_is_up_the_servers_of_before_are_asked() {
        let ip = |last| IpAddr::from([192, 0, 2, last]);
        let mut background = Background::new(&Lines::default(), Some("wan"));
        background.servers = Vec::new();
        for (inside, of_host, asked) in [
            (false, 1, 1),
            // The host's servers are the tunnel's from here on.
            (true, 53, 1),
            (true, 54, 1),
            // Another network, without a tunnel.
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
}
