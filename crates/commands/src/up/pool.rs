//! The pool of a running WireGuard tunnel: when no server answers, the tunnel calls the next one.

use super::wireguard::{DAY, call_peers};
use config::pool::Server;
use config::tunnel::{Peer, Tunnel};
use config::types::Key32;
use service::wireguard::{Heard, Interface, Rotation};
use std::time::Instant;

/// The servers of a tunnel; without a pool it has none.
pub(crate) struct Servers {
    rotation: Option<Rotation>,
    /// The tunnel's interface.
    device: String,
    /// Whether no server has answered since they were called.
    calling: bool,
    /// The mark of the tunnel's datagrams; `None` if the main routing table does not lead them.
    mark: Option<u32>,
}

/// A change of the servers in use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    /// Call other servers.
    Next,
    /// One server has answered; drop the others.
    Found,
}

impl Servers {
    /// Takes the servers of the tunnel `device`, whose peer becomes the first of them. `mark` is the mark of the tunnel's
    /// datagrams, if the main routing table leads them.
    pub(crate) fn new(tunnel: &mut Tunnel, device: &str, mark: Option<u32>) -> Self {
        let mut servers = Self {
            rotation: None,
            device: device.to_owned(),
            calling: true,
            mark,
        };
        servers.reload(tunnel);
        servers
    }

    /// Takes the pool of a changed file. The server in use stays, if the pool still has it.
    pub(crate) fn reload(&mut self, tunnel: &mut Tunnel) {
        let mut seed = [0; 8];
        crypto::random(&mut seed);
        let seed = u64::from_ne_bytes(seed);
        self.rotation = Rotation::new(tunnel, seed, self.rotation.as_ref(), Instant::now());
        // A thousand servers are kept once.
        tunnel.pool = None;
        self.calling = true;
        self.begin();
        self.put_into(tunnel);
    }

    /// Whether a reload has replaced the servers in use, the peers of `old`, by those of `new`. They may have the same keys.
    pub(crate) fn are_others(&self, old: &Tunnel, new: &Tunnel) -> bool {
        let servers = |it: &Tunnel| -> Vec<_> {
            let server = |it: &Peer| (it.public_key.clone(), it.endpoint.clone());
            it.peers.iter().map(server).collect()
        };
        self.rotation.is_some() && servers(old) != servers(new)
    }

    /// Replaces the tunnel's peer by the servers in use.
    pub(crate) fn put_into(&self, tunnel: &mut Tunnel) {
        if let Some(rotation) = &self.rotation {
            tunnel.peers = rotation.peers();
        }
    }

    /// Sets the mark that the tunnel's datagrams have now.
    pub(crate) const fn set_mark(&mut self, mark: u32) {
        if let Some(known) = &mut self.mark {
            *known = mark;
        }
    }

    /// When to look at the servers again, without events; `None` without a pool.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        let now = Instant::now();
        let due = self.rotation.as_ref()?.due().filter(|at| *at > now);
        // Always in the future: a time that has passed would keep the daemon's loop awake.
        Some(due.unwrap_or(now + DAY))
    }

    /// Chooses again among the servers to which routes lead now, until some are called. Returns whether the servers in use changed.
    pub(crate) fn begin(&mut self) -> bool {
        let (mark, device) = (self.mark, &self.device);
        let rotation = self.rotation.as_mut();
        rotation.is_some_and(|it| it.begin(|server| has_route(server, device, mark)))
    }

    /// Says what follows from the peers' answers or silence.
    pub(crate) fn turn(&mut self, heard: &Heard, ifname: &str) -> Option<Turn> {
        let (mark, device) = (self.mark, &self.device);
        let rotation = self.rotation.as_mut()?;
        if heard.silent {
            let (before, rounds) = (words(rotation), rotation.rounds());
            if !rotation.silent(Instant::now(), |server| has_route(server, device, mark)) {
                return None;
            }
            self.calling = true;
            // The first round is of interest; the others would fill the log.
            let level = match rounds {
                0 => log::Level::Info,
                _ => log::Level::Debug,
            };
            let next = words(rotation);
            match next == before {
                true => log::log!(level, "{ifname}: calling {next} again"),
                false => log::log!(level, "{ifname}: no answer from {before}; calling {next}"),
            }
            if rounds == 0 && rotation.rounds() == 1 {
                log::warn!("{ifname}: no server of the pool answers; still trying all in turn");
            }
            return Some(Turn::Next);
        }
        let first = heard.first.as_ref().filter(|_| self.calling)?;
        rotation.answered(first);
        self.calling = false;
        log::info!("{ifname}: {} answers", words(rotation));
        Some(Turn::Found)
    }

    /// Whether the tunnel calls one server after the other. Then single ones need not be asked for answers.
    #[cfg(feature = "openwrt")]
    pub(crate) fn is_pool(&self) -> bool {
        self.rotation.is_some()
    }

    /// Whether all servers of a pool were called in vain since the last answer.
    #[cfg(feature = "openwrt")]
    pub(crate) fn are_silent(&self) -> bool {
        self.rotation.as_ref().is_some_and(|it| it.rounds() > 0)
    }

    /// The servers in use, in words for the log; `None` without a pool.
    pub(crate) fn words(&self) -> Option<String> {
        self.rotation.as_ref().map(words)
    }

    /// Gives the interface the peers of `tunnel`, which are the servers in use after this turn, and tells its status.
    /// `calls` begins handshakes.
    pub(crate) fn apply(
        &self,
        turn: Turn,
        interface: &mut Interface,
        tunnel: &Tunnel,
        calls: bool,
    ) {
        let Some(rotation) = &self.rotation else {
            return;
        };
        let (_, running) = interface.get();
        let running: Vec<Key32> = running.into_iter().map(|it| it.public_key).collect();
        let set = rotation.changes(&running, turn == Turn::Next);
        if let Err((_, words)) = interface.set(&set) {
            log::error!("the next server cannot be called: {words}");
        }
        if turn == Turn::Next {
            call_peers(interface, &tunnel.peers);
        }
        match turn == Turn::Next && calls {
            true => self.call(interface, tunnel),
            false => self.tell(interface),
        }
    }

    /// Begins handshakes with the servers in use, if the tunnel has a pool, and tells the status.
    pub(crate) fn call(&self, interface: &mut Interface, tunnel: &Tunnel) {
        if self.rotation.is_some() {
            interface.call(tunnel.peers.iter().map(|it| it.public_key.clone()));
            self.tell(interface);
        }
    }

    /// Tells the interface's status the servers in use.
    pub(crate) fn tell(&self, interface: &mut Interface) {
        if let Some(rotation) = &self.rotation {
            interface.tell_pool(rotation);
        }
    }
}

/// Whether packets to a server have a route past the tunnel's `device`. A name's address is not known here, so it counts
/// as reachable.
fn has_route(server: &Server, device: &str, mark: Option<u32>) -> bool {
    let Some((address, mark)) = server.endpoint.socket_addr().zip(mark) else {
        return true;
    };
    host::has_way_past(device, address.ip(), mark)
}

fn words(rotation: &Rotation) -> String {
    let mut called = rotation.called();
    match (called.next(), called.count()) {
        (Some(one), 0) if one.name == one.endpoint.to_string() => one.name.clone(),
        (Some(one), 0) => format!("{} ({})", one.name, one.endpoint),
        (_, others) => format!("the fastest of {} servers", others + 1),
    }
}
