//! Look-ups of one tunnel, each on its own thread, as a look-up blocks.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::thread;

use config::lines::{Line, Lines};

use super::{Asker, servers};

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 64;

/// Bytes of a look-up's stack: the C library's resolver needs more than its own buffers.
const STACK: usize = 256 << 10;

/// Looks up the names of a tunnel's endpoints in the background.
#[derive(Debug)]
pub struct Background {
    /// The host's name servers from before the tunnel was up.
    servers: Vec<IpAddr>,
    /// The lines by which the tunnel's packets leave.
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
}
