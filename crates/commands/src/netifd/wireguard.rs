//! WireGuard tunnels under netifd.

use super::given::{At, Given, Kind};
use super::manager::Netifd;
use super::telling::Telling;
use super::{Ended, Outcome};
use crate::up::pool::{Servers, Turn};
use crate::up::wireguard::{self, begin, change, endpoints, has_much, leads_much, mark_server};
use config::settings::Settings;
use config::tunnel::{Peer, Tunnel};
use config::types::Key32;
use host::{Managed, Manager as _, Want, background, logging, privileges};
use service::tun_probe::TunProbe;
use service::wireguard::{Daemon, DaemonOptions, Heard, Named, Owner};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often to see whether the peers answer. One that is silent at two looks in turn has not answered for ten seconds.
const LOOK: Duration = Duration::from_secs(5);

/// Maximum number of silent peers that are named.
const NAMED_MAX: usize = 4;

/// Runs the tunnel until a signal or the loss of its device ends it.
pub(super) fn run(
    at: &At,
    mut given: Given,
    settings: Settings,
    netifd: &Arc<Netifd>,
    telling: &Telling,
) -> Outcome<Ended> {
    let lines = given.lines(at, settings.lines, telling)?;
    let Kind::WireGuard(wireguard) = &mut given.kind else {
        return Ok(Ended::Again);
    };
    let lines = wireguard.tunnel.lines_with(lines.as_ref());
    for warning in &lines.warnings {
        log::warn!("{}: {warning}", at.interface);
    }
    let mark = lines.lines.lines.is_empty();
    let mark = mark.then(|| wireguard.tunnel.interface.fwmark.unwrap_or(0));
    let servers = Servers::new(&mut wireguard.tunnel, netifd.device(), mark);
    given.must_use(!lines.lines.lines.is_empty())?;
    if let Some(origin) = &lines.origin {
        log::info!("{}: uplinks: {origin}", at.interface);
    }
    let tun_verdict = TunProbe::start(&settings.dataplane).verdict();
    privileges::drop_privileges();
    let mut daemon = Daemon::start(&DaemonOptions {
        ifname: netifd.device().to_owned(),
        settings: settings.dataplane,
        bind_device: None,
        lines: lines.lines,
        tun_verdict,
        #[cfg(feature = "null-cipher")]
        null_cipher: false,
    })?;
    privileges::confine_other_threads();
    let mut owned = Owned {
        at,
        telling,
        netifd,
        managed: Managed::new(netifd.shared(), netifd.device()),
        given,
        servers,
        up: false,
        waits: false,
        look_at: Instant::now() + LOOK,
        silent: Vec::new(),
        told: None,
    };
    begin(&daemon, &owned.tunnel(), netifd.device())?;
    owned.tell_names(&daemon);
    daemon.with(|interface| owned.servers.tell(interface));
    let ended = daemon.run(&mut owned);
    if netifd.is_succeeded() {
        return Ok(Ended::Exit);
    }
    let ended = ended?;
    log::info!("{}: ended: {}", at.interface, ended.words());
    Ok(Ended::Exit)
}

/// A running tunnel.
struct Owned<'a> {
    at: &'a At,
    telling: &'a Telling,
    netifd: &'a Netifd,
    managed: Managed,
    given: Given,
    servers: Servers,
    up: bool,
    /// Whether the log already says what the tunnel waits for.
    waits: bool,
    /// When to see whether the peers answer.
    look_at: Instant,
    /// Peers that were silent at the last look.
    silent: Vec<Key32>,
    /// netifd was told that peers do not answer, in these words.
    told: Option<String>,
}

impl Owned<'_> {
    /// The file's tunnel; with a pool, its peers are the servers in use.
    fn tunnel(&self) -> Tunnel {
        let mut tunnel = match &self.given.kind {
            Kind::WireGuard(wireguard) => wireguard.tunnel.clone(),
            _ => Tunnel::default(),
        };
        self.servers.put_into(&mut tunnel);
        tunnel
    }

    /// Moves the names of peers from the tunnel to the interface.
    fn tell_names(&mut self, daemon: &Daemon) {
        if let Kind::WireGuard(given) = &mut self.given.kind {
            wireguard::tell_names(daemon, &mut given.tunnel);
        }
    }

    fn unrouted(&self) -> &[Key32] {
        match &self.given.kind {
            Kind::WireGuard(wireguard) => &wireguard.unrouted,
            _ => &[],
        }
    }

    /// The first unresolved name of a peer whose ranges could cover the name servers: a tunnel for everything would
    /// block its own look-up. Names of other peers do not hold up the tunnel.
    fn missing<'n>(&self, names: &'n [Named]) -> Option<&'n Named> {
        let routed = self.routed();
        if !leads_much(&routed) || !self.given.keeps_endpoints() {
            return None;
        }
        let all: Vec<&Key32> = routed
            .peers
            .iter()
            .filter(|peer| has_much(peer))
            .map(|it| &it.public_key)
            .collect();
        let mut missing = names.iter();
        missing.find(|name| name.addresses.is_empty() && all.contains(&&name.public_key))
    }

    /// The tunnel with only those ranges that get routes.
    fn routed(&self) -> Tunnel {
        let mut tunnel = self.tunnel();
        let unrouted = self.unrouted();
        for peer in &mut tunnel.peers {
            if unrouted.contains(&peer.public_key) {
                peer.allowed_ips.clear();
            }
        }
        tunnel
    }

    fn want(&self, daemon: &Daemon, names: &[Named]) -> Want {
        let mut tunnel = self.routed();
        let endpoints = endpoints(&tunnel, names, daemon);
        tunnel.interface.mtu = self.given.network.mtu.or(tunnel.interface.mtu);
        let mut want = service::wireguard::want(&tunnel, &endpoints, false);
        daemon.with(|interface| interface.complete(&mut want));
        want
    }

    fn tell_mtu(&self, daemon: &Daemon) {
        let tunnel = self.tunnel();
        let warnings = self.managed.warnings().map(str::to_owned).collect();
        daemon.with(|interface| {
            interface.tell_mtu(self.managed.tunnel_mtu(), &tunnel);
            interface.tell_warnings(warnings);
        });
    }

    /// Whether the tunnel calls peers, rather than being called by all of them.
    fn calls(&self) -> bool {
        let calls = |tunnel: &Tunnel| tunnel.peers.iter().any(|it| it.endpoint.is_some());
        self.servers.is_pool()
            || matches!(&self.given.kind, Kind::WireGuard(it) if calls(&it.tunnel))
    }

    /// Tells netifd which of the called peers do not answer.
    fn look_for_answers(&mut self, daemon: &Daemon) {
        self.look_at = Instant::now() + LOOK;
        let silent = daemon
            .with(|interface| interface.silent())
            .unwrap_or_default();
        let before = std::mem::replace(&mut self.silent, silent);
        let tunnel = self.tunnel();
        let still = |it: &&Peer| {
            [&before, &self.silent]
                .iter()
                .all(|all| all.contains(&it.public_key))
        };
        let unresolved = daemon.with(|interface| interface.names());
        let mut unresolved = unresolved.unwrap_or_default();
        unresolved.retain(|it| it.addresses.is_empty());
        let is_unresolved = |it: &&Peer| {
            let mut all = unresolved.iter();
            all.any(|name| name.public_key == it.public_key)
        };
        let unnamed = tunnel.peers.iter().filter(still).find(is_unresolved);
        let unnamed = unnamed.and_then(|it| it.endpoint.as_ref());
        let named = |it: &Peer| {
            let endpoint = it.endpoint.as_ref()?;
            Some(match &it.name {
                Some(name) => format!("{name} ({endpoint})"),
                None => endpoint.to_string(),
            })
        };
        let silent = tunnel.peers.iter().filter(still);
        #[cfg(feature = "amnezia")]
        let differs: Option<(String, String)> = silent.clone().find_map(|it| {
            let words = daemon.with(|interface| interface.difference(&it.public_key));
            Some((named(it)?, words.flatten()?))
        });
        #[cfg(not(feature = "amnezia"))]
        let differs: Option<(String, String)> = None;
        let mut silent = silent.filter(|it| !is_unresolved(it)).filter_map(named);
        let names: Vec<String> = silent.by_ref().take(NAMED_MAX).collect();
        let why = match self.servers.is_pool() {
            true => self.servers.are_silent().then(|| {
                "no server of the pool answers; still trying all in turn".to_owned()
            }),
            false if names.is_empty() => unnamed.map(|endpoint| {
                format!(
                    "{endpoint}: the name has no address; check the name, and the router's name servers; still trying"
                )
            }),
            false if let Some((name, words)) = differs => {
                Some(format!("no answer from {name}: {words}; still trying"))
            }
            false => Some({
                let others = if silent.next().is_some() { " and others" } else { "" };
                format!(
                    "no answer from {}{others}: it may be down, the port or a key may be wrong, or a firewall may drop \
                     UDP; still trying",
                    names.join(", ")
                )
            }),
        };
        if self.told != why {
            self.netifd.silent(why.as_deref());
            self.told = why;
        }
    }

    fn log_once(&mut self, what: &str) {
        if !std::mem::replace(&mut self.waits, true) {
            log::warn!("{}: not up yet: waiting for {what}", self.at.interface);
        }
    }
}

impl Owner for Owned<'_> {
    fn changed(&mut self, daemon: &Daemon) -> Outcome<()> {
        let names = daemon.with(|interface| interface.names());
        let names = names.unwrap_or_default();
        if !self.up
            && let Some(name) = self.missing(&names)
        {
            let what = format!("an address of {}", name.endpoint);
            self.log_once(&what);
            daemon.with(|interface| interface.tell_waiting(Some(what)));
            return Ok(());
        }
        if !self.up && self.servers.begin() {
            let tunnel = self.tunnel();
            daemon.with(|interface| self.servers.apply(Turn::Next, interface, &tunnel, false));
        }
        let want = self.want(daemon, &names);
        if let Err(error) = self.managed.set(&want) {
            log::warn!("{}: {error}", self.at.interface);
        }
        self.tell_mtu(daemon);
        daemon.with(|interface| interface.tell_waiting(None));
        if !std::mem::replace(&mut self.up, true) {
            log::info!("{} is up", self.at.interface);
            let tunnel = self.tunnel();
            daemon.with(|interface| self.servers.call(interface, &tunnel));
            background::start_is_over();
        }
        Ok(())
    }

    fn look_at_path(&mut self, daemon: &Daemon) -> Outcome<()> {
        if !self.up {
            return Ok(());
        }
        let names = daemon.with(|interface| interface.names());
        let want = self.want(daemon, &names.unwrap_or_default());
        if let Err(error) = self.managed.look_at_path(&want) {
            log::warn!("{}: {error}", self.at.interface);
        }
        self.tell_mtu(daemon);
        Ok(())
    }

    fn waits_until(&self) -> Option<Instant> {
        let pool = self.servers.waits_until();
        let looks = self.calls() || self.told.is_some();
        let answers = looks.then_some(self.look_at);
        pool.into_iter().chain(answers).min()
    }

    fn waits(&mut self, daemon: &Daemon, heard: &Heard) -> Outcome<()> {
        if self.look_at <= Instant::now() {
            self.look_for_answers(daemon);
        }
        let Some(turn) = self.servers.turn(heard, &self.at.interface) else {
            return Ok(());
        };
        // The routes come first: the tunnel must not take in the handshakes with a new server.
        if turn == Turn::Next {
            self.changed(daemon)?;
        }
        let tunnel = self.tunnel();
        daemon.with(|interface| self.servers.apply(turn, interface, &tunnel, self.up));
        self.changed(daemon)
    }

    fn reload(&mut self, daemon: &Daemon) -> Outcome<()> {
        logging::reopen();
        if self.netifd.is_renewed() {
            self.managed.leave();
            return Err("the new program takes over".into());
        }
        let Some(given) = self.netifd.read() else {
            return Ok(());
        };
        if !matches!(given.kind, Kind::WireGuard(_)) {
            // netifd notices this itself only if the section names another file.
            log::warn!(
                "{}: the tunnel's protocol has changed; run `ifup`",
                self.at.interface
            );
            return Ok(());
        }
        given.tell(&self.at.interface, &self.telling.teller());
        let old = self.tunnel();
        self.netifd.change(&given);
        let before = std::mem::replace(&mut self.given, given);
        if let Kind::WireGuard(wireguard) = &mut self.given.kind {
            self.servers.reload(&mut wireguard.tunnel);
        }
        let mut new = self.tunnel();
        if old.lines != new.lines || before.network.needs_new_device(&self.given.network) {
            log::warn!(
                "{}: changed uplinks take effect after `ifup`",
                self.at.interface
            );
        }
        mark_server(self.netifd.device(), &new);
        let mark = (old.interface.fwmark != new.interface.fwmark)
            .then(|| new.interface.fwmark.unwrap_or(0));
        let others = self.servers.are_others(&old, &new);
        if others && self.up {
            // The routes past the tunnel come before handshakes with another server.
            self.changed(daemon)?;
        }
        if others {
            // `apply` adds the other servers: two additions would begin two handshakes, of which a server answers the
            // first, and this interface awaits the answer to the second.
            new.peers.clear();
        }
        daemon.with(|interface| change(interface, &old, &new, mark, &self.at.interface));
        self.servers.put_into(&mut new);
        self.tell_names(daemon);
        daemon.with(|interface| match others {
            true => self.servers.apply(Turn::Next, interface, &new, self.up),
            false => self.servers.tell(interface),
        });
        log::info!("{}: the configuration was read again", self.at.interface);
        self.changed(daemon)
    }
}
