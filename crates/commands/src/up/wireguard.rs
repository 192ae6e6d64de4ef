//! `millrace up` for a `wg-quick` file.
//!
//! The interface is made at once; routes and name servers follow when the tunnel can be used. A full tunnel, or one
//! with its own name servers, first waits for its endpoints' addresses. Their look-up could not use a tunnel that is
//! not up yet.

use super::pool::{Servers, Turn};
use super::{BOUND, REFUSED, tell, tell_lines, warn_of_readers};
use crate::arguments::text;
use clap::ArgMatches;
use config::lines::{Lines, SharedLines};
use config::permissions::Permissions;
use config::settings::Settings;
use config::tunnel::{Peer, Table, Tunnel};
use config::types::Key32;
use config::uapi::{SetDevice, SetPeer};
use config::wgquick;
use host::{Applied, Facts, MtuFollower, Plan, PlanError, Want};
use host::{background, logging, notify, privileges, tunnel_devices};
use netio::netlink::Netlink;
use service::tun_probe::TunProbe;
use service::wireguard::{Daemon, DaemonOptions, Heard, Interface, Named, Owner};
use std::collections::HashSet;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Longest time between two looks for a peer's first answer; each event of the tunnel is a look, too.
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// Switches of the command line, for reading the file and for the host.
#[derive(Clone, Copy, Debug)]
struct Switches {
    allow_scripts: bool,
    permissions: Permissions,
    ignore_refused: bool,
    no_dns: bool,
    daemon: bool,
    /// The longest time that `--daemon` waits for the answer of a peer.
    wait: Duration,
}

impl From<&ArgMatches> for Switches {
    fn from(matches: &ArgMatches) -> Self {
        Self {
            allow_scripts: matches.get_flag("allow-scripts"),
            permissions: crate::check::permitted(matches),
            ignore_refused: matches.get_flag("ignore-refused"),
            no_dns: matches.get_flag("no-dns"),
            daemon: matches.get_flag("daemon"),
            wait: super::wait_at_most(matches).unwrap_or_default(),
        }
    }
}

/// Checks whether a running tunnel could apply its file.
pub(super) fn judge(path: &Path, matches: &ArgMatches) -> Outcome<()> {
    read(path, Switches::from(matches)).map(|_| ())
}

/// Brings up a file's tunnel and serves it until it ends.
pub(super) fn up(path: &Path, matches: &ArgMatches, settings: Settings) -> Outcome<ExitCode> {
    let switches = Switches::from(matches);
    let ifname = wgquick::interface_name(path)?;
    warn_of_readers(path);
    let mut tunnel = read(path, switches)?;
    let bind_device = text(matches, "bind-device").map(str::to_owned);
    if bind_device.is_some() && !tunnel.lines.lines.is_empty() {
        return Err(BOUND.into());
    }
    let (settings, shared) = (settings.dataplane, settings.lines);
    let mut given = tunnel.lines_with(shared.as_ref());
    if let Some(shared) = shared.as_ref().filter(|_| bind_device.is_some())
        && !given.lines.lines.is_empty()
    {
        given = shared.refuse("--bind-device sets one device for all packets");
    }
    tell_lines(given.origin.as_deref(), &given.warnings);
    #[cfg(feature = "amnezia")]
    crate::check::amnezia(&tunnel).for_each(host::terminal::note);
    if tunnel.home.is_some() {
        host::terminal::note(format_args!("[Server]: {}", config::home::ROUTES));
    }
    if host::recover(&ifname)? {
        log::info!("{ifname}: undid what an earlier run left behind");
    }
    let mark = (bind_device.is_none() && given.lines.lines.is_empty())
        .then(|| tunnel.interface.fwmark.unwrap_or(0));
    let servers = Servers::new(&mut tunnel, &ifname, mark);
    let mut up = Up {
        path,
        switches,
        ifname,
        tunnel,
        servers,
        shared,
        lines: given.lines,
        facts: Facts::default(),
        plan: Plan::default(),
        mtu: MtuFollower::default(),
        applied: None,
        waiting_for: None,
        called: None,
        let_go: false,
    };
    up.scripts(&up.tunnel.interface.scripts.pre_up)?;
    let tun_verdict = TunProbe::start(&settings).verdict();
    let sets_dns = !up.tunnel.interface.dns.is_empty() && !switches.no_dns;
    let runs_programs = switches.allow_scripts || sets_dns;
    if !runs_programs {
        privileges::drop_privileges();
    }
    let mut daemon = Daemon::start(&DaemonOptions {
        ifname: up.ifname.clone(),
        settings,
        bind_device,
        lines: up.lines.clone(),
        tun_verdict,
        #[cfg(feature = "null-cipher")]
        null_cipher: false,
    })?;
    privileges::confine_other_threads();
    begin(&daemon, &up.tunnel, &up.ifname)?;
    tell_names(&daemon, &mut up.tunnel);
    daemon.with(|interface| up.servers.tell(interface));
    let result = daemon.run(&mut up);
    notify::stopping();
    if let Ok(ended) = &result {
        log::info!("{}: ended: {}", up.ifname, ended.words());
    }
    // All changes to the host are undone, whatever the outcome.
    let ifname = up.ifname.clone();
    for fault in up.take_down(daemon) {
        log::error!("{ifname}: while shutting down: {fault}");
    }
    result.map(|_| ExitCode::SUCCESS)
}

/// Marks the device of a server, and gives the interface its keys and peers. This comes before the routes: none must
/// lead packets to an interface without peers.
pub(crate) fn begin(daemon: &Daemon, tunnel: &Tunnel, ifname: &str) -> Outcome<()> {
    mark_server(ifname, tunnel);
    let begin = |interface: &mut Interface| {
        interface.set(&device_of(tunnel))?;
        call_peers(interface, &tunnel.peers);
        interface.recall(ifname);
        Ok(())
    };
    let begun = daemon.with(begin).ok_or("the interface was removed")?;
    Ok(begun.map_err(|(_, words): (i32, String)| words)?)
}

/// Moves the names of peers from the tunnel to the interface, so that memory has each name once.
pub(crate) fn tell_names(daemon: &Daemon, tunnel: &mut Tunnel) {
    let peers = tunnel.peers.iter_mut();
    let names = peers.map(|it| (it.public_key.clone(), it.name.take()));
    daemon.with(|interface| interface.tell_names(names));
}

/// All possible addresses of the tunnel's peers and relays: from its file, and of these names.
pub(crate) fn endpoints(tunnel: &Tunnel, names: &[Named], daemon: &Daemon) -> Vec<SocketAddr> {
    let mut endpoints = Vec::new();
    for peer in &tunnel.peers {
        endpoints.extend(peer.endpoint.as_ref().and_then(|it| it.socket_addr()));
        let name = names.iter().find(|it| it.public_key == peer.public_key);
        endpoints.extend(name.into_iter().flat_map(|it| &it.addresses));
    }
    endpoints.extend(daemon.with(|it| it.relays()).unwrap_or_default());
    endpoints
}

/// Reads a file and shows its lines that are not honoured.
fn read(path: &Path, switches: Switches) -> Outcome<Tunnel> {
    let options = switches.permissions;
    let (tunnel, report) = wgquick::read(path, options)?.into_tunnel()?;
    tell(&report);
    if !report.is_clean() && !switches.ignore_refused {
        return Err(REFUSED.into());
    }
    Ok(tunnel)
}

/// The interface and its peers from the file, without endpoints.
pub(crate) fn device_of(tunnel: &Tunnel) -> SetDevice {
    let mut set = tunnel.to_set_device();
    for peer in &mut set.peers {
        peer.endpoint = None;
    }
    set
}

/// A range with a shorter prefix covers much of the Internet, as when a default route is split.
const LONGEST_OF_MUCH: u8 = 8;

/// Whether a range of a peer may contain the host's name servers, as a default route does.
pub(crate) fn has_much(peer: &Peer) -> bool {
    let mut ranges = peer.allowed_ips.iter();
    ranges.any(|range| range.prefix() < LONGEST_OF_MUCH)
}

/// Whether the endpoints' names must be looked up before the tunnel's routes are set.
pub(crate) fn leads_much(tunnel: &Tunnel) -> bool {
    tunnel.interface.table != Table::Off && tunnel.peers.iter().any(has_much)
}

/// Sets the endpoints of peers.
pub(crate) fn call_peers<'a>(interface: &mut Interface, peers: impl IntoIterator<Item = &'a Peer>) {
    for peer in peers {
        if let Some(endpoint) = &peer.endpoint {
            interface.set_endpoint(&peer.public_key, endpoint);
        }
    }
}

/// A tunnel from a file.
struct Up<'a> {
    path: &'a Path,
    switches: Switches,
    ifname: String,
    /// The file's tunnel; with a pool, its peers are the servers in use.
    tunnel: Tunnel,
    servers: Servers,
    /// The lines of the settings file, and the lines in use: the file's own, or else these.
    shared: Option<SharedLines>,
    lines: Lines,
    /// Facts about the host before the plan.
    facts: Facts,
    /// The plan that is in force once it is applied.
    plan: Plan,
    mtu: MtuFollower,
    applied: Option<Applied>,
    /// The last message about a missing condition.
    waiting_for: Option<String>,
    /// When the first handshakes were sent, while no peer has answered.
    called: Option<Instant>,
    /// Whether processes that waited for the tunnel were released.
    let_go: bool,
}

impl Owner for Up<'_> {
    fn changed(&mut self, daemon: &Daemon) -> Outcome<()> {
        if self.applied.is_some() {
            self.follow(daemon);
            return Ok(());
        }
        let names = daemon.with(|interface| interface.names());
        let names = names.unwrap_or_default();
        let all_tried = names.iter().all(|name| name.is_tried);
        match self.missing(&names) {
            Some(name) => {
                let what = format!("an address of {}", name.endpoint);
                daemon.with(|interface| interface.tell_waiting(Some(what.clone())));
                match all_tried {
                    true => self.wait(&what),
                    false => Ok(()),
                }
            }
            None if all_tried => self.bring_up(daemon),
            None => Ok(()),
        }
    }

    fn look_at_path(&mut self, daemon: &Daemon) -> Outcome<()> {
        if self.applied.is_some() {
            self.follow(daemon);
        }
        Ok(())
    }

    fn waits_until(&self) -> Option<Instant> {
        let answer = self.called.map(|called| match self.waits_for_parent() {
            true => called + self.switches.wait,
            // Always in the future: a time that has passed would keep the daemon's loop awake.
            false => Instant::now() + DAY,
        });
        answer.into_iter().chain(self.servers.waits_until()).min()
    }

    fn waits(&mut self, daemon: &Daemon, heard: &Heard) -> Outcome<()> {
        if let Some(turn) = self.servers.turn(heard, &self.ifname) {
            self.change_servers(turn, daemon)?;
        }
        let Some(called) = self.called else {
            return Ok(());
        };
        let ifname = &self.ifname;
        if heard.first.is_some() {
            let seconds = config::seconds(called.elapsed());
            let summary = self.want(daemon).summary(ifname, self.applied.as_ref());
            log::info!("{ifname}: connected in {seconds} s: {summary}");
            self.called = None;
            return self.let_go(background::ready);
        }
        if self.waits_for_parent() && called.elapsed() >= self.switches.wait {
            let traffic = match self.applied.is_some() && leads_much(&self.tunnel) {
                true => {
                    "Until its peer answers, this host has no Internet: all packets go into the tunnel"
                }
                false if self.applied.is_some() => {
                    "Until its peer answers, packets into the tunnel get no answers"
                }
                false => background::OUTSIDE,
            };
            let note = background::still_trying(ifname, self.switches.wait, traffic);
            host::terminal::note(note);
            return self.let_go(background::not_yet);
        }
        Ok(())
    }

    fn reload(&mut self, daemon: &Daemon) -> Outcome<()> {
        notify::reloading();
        let outcome = self.read_again(daemon);
        notify::ready(match &self.waiting_for {
            Some(_) => "not up yet",
            None => "up",
        });
        outcome
    }
}

impl Up<'_> {
    /// Applies a changed file.
    fn read_again(&mut self, daemon: &Daemon) -> Outcome<()> {
        logging::reopen();
        let mut tunnel = match read(self.path, self.switches) {
            Ok(tunnel) => tunnel,
            Err(error) => {
                log::error!(
                    "{}: {error}; the old configuration stays in use",
                    self.path.display()
                );
                return Ok(());
            }
        };
        self.servers.reload(&mut tunnel);
        let old = std::mem::replace(&mut self.tunnel, tunnel);
        let other = old.lines != self.tunnel.lines;
        if other && self.tunnel.lines_with(self.shared.as_ref()).lines != self.lines {
            log::warn!(
                "{}: changed uplinks take effect at the next start",
                self.ifname
            );
        }
        mark_server(&self.ifname, &self.tunnel);
        let (others, is_up) = (
            self.servers.are_others(&old, &self.tunnel),
            self.applied.is_some(),
        );
        if others && is_up {
            // The routes past the tunnel come before handshakes with another server.
            self.follow(daemon);
        }
        if others {
            // `apply` adds the other servers: two additions would begin two handshakes, of which a server answers the
            // first, and this interface awaits the answer to the second.
            self.tunnel.peers.clear();
        }
        // The plan may use another mark than the file.
        daemon.with(|interface| change(interface, &old, &self.tunnel, None, &self.ifname));
        self.servers.put_into(&mut self.tunnel);
        tell_names(daemon, &mut self.tunnel);
        daemon.with(|interface| match others {
            true => {
                let turn = Turn::Next;
                self.servers.apply(turn, interface, &self.tunnel, is_up);
            }
            false => self.servers.tell(interface),
        });
        log::info!("{}: {} was read again", self.ifname, self.path.display());
        self.changed(daemon)
    }
}

/// Marks the device of a server, or removes the mark.
pub(crate) fn mark_server(ifname: &str, tunnel: &Tunnel) {
    match tunnel.is_server() {
        true => tunnel_devices::mark_server(ifname, tunnel.interface.listen_port),
        false => tunnel_devices::unmark_server(ifname),
    }
}

/// Changes the interface from one file to another without disturbing peers that both have. Peers come first: if another
/// program has the port, they change all the same, and the next reload tries the port again.
pub(crate) fn change(
    interface: &mut Interface,
    old: &Tunnel,
    new: &Tunnel,
    fwmark: Option<u32>,
    ifname: &str,
) {
    let (device, running) = interface.get();
    let running: Vec<Key32> = running.into_iter().map(|it| it.public_key).collect();
    let mut set = difference(old, new, &running);
    set.fwmark = fwmark;
    let wanted = new.interface.listen_port.filter(|port| *port != 0);
    let other = wanted.filter(|port| *port != device.listen_port);
    let port = set.listen_port.take().or(other);
    let peers = interface.set(&set);
    // The interface knows better than the file where a peer has moved.
    let moved = new.peers.iter().filter(|peer| {
        let same = |it: &&Peer| it.public_key == peer.public_key;
        old.peers.iter().find(same).map(|it| &it.endpoint) != Some(&peer.endpoint)
    });
    call_peers(interface, moved);
    let port = port.map_or(Ok(()), |port| {
        interface.set(&SetDevice {
            listen_port: Some(port),
            ..SetDevice::default()
        })
    });
    let refused = match (peers, port) {
        (Err((_, words)), _) => Some(format!("the changed file is not applied: {words}")),
        (_, Err((_, words))) => Some(format!("the changed ListenPort is not applied: {words}")),
        _ => None,
    };
    if let Some(words) = &refused {
        log::error!("{ifname}: {words}");
    }
    interface.tell_refused(refused);
}

/// The changes from one file to another that do not disturb peers that both have.
pub(crate) fn difference(old: &Tunnel, new: &Tunnel, running: &[Key32]) -> SetDevice {
    let mut set = device_of(new);
    set.replace_peers = false;
    set.fwmark = None;
    // A port that the kernel chose stays, unless the new file sets one.
    if old.interface.listen_port == new.interface.listen_port {
        set.listen_port = None;
    }
    let kept: HashSet<&Key32> = new.peers.iter().map(|peer| &peer.public_key).collect();
    for peer in &mut set.peers {
        peer.preshared_key.get_or_insert_default();
        peer.persistent_keepalive.get_or_insert(0);
    }
    let gone = running.iter().filter(|key| !kept.contains(key));
    let gone = gone.map(|key| SetPeer {
        public_key: key.clone(),
        remove: true,
        ..SetPeer::default()
    });
    set.peers.splice(0..0, gone);
    set
}

impl Up<'_> {
    /// Runs a list of commands, if that is allowed.
    fn scripts(&self, commands: &[String]) -> Outcome<()> {
        if self.switches.allow_scripts {
            host::run_scripts(commands, &self.ifname)?;
        }
        Ok(())
    }

    /// The first unresolved name that the tunnel must wait for.
    fn missing<'n>(&self, names: &'n [Named]) -> Option<&'n Named> {
        let full = leads_much(&self.tunnel);
        let dns = !self.tunnel.interface.dns.is_empty() && !self.switches.no_dns;
        if !full && !dns {
            return None;
        }
        let needed = |name: &&Named| {
            let mut peers = self.tunnel.peers.iter();
            let peer = peers.find(|peer| peer.public_key == name.public_key);
            name.addresses.is_empty() && (!full || peer.is_some_and(has_much))
        };
        names.iter().find(needed)
    }

    /// Logs what the tunnel waits for, and releases processes that wait for the tunnel.
    fn wait(&mut self, what: &str) -> Outcome<()> {
        if self.waiting_for.as_deref() == Some(what) {
            return Ok(());
        }
        self.waiting_for = Some(what.to_owned());
        log::warn!("{}: not up yet: waiting for {what}", self.ifname);
        notify::ready(&format!("not up yet: waiting for {what}"));
        self.let_go(background::not_yet)
    }

    /// Whether a parent process waits for the tunnel.
    const fn waits_for_parent(&self) -> bool {
        self.switches.daemon && !self.let_go
    }

    /// Goes into the background if `--daemon` is given.
    fn let_go(&mut self, tell: fn() -> std::io::Result<()>) -> Outcome<()> {
        if self.switches.daemon && !std::mem::replace(&mut self.let_go, true) {
            logging::leave_terminal(&self.ifname);
            tell()?;
        }
        Ok(())
    }

    fn want(&self, daemon: &Daemon) -> Want {
        let names = daemon.with(|interface| interface.names());
        let endpoints = endpoints(&self.tunnel, &names.unwrap_or_default(), daemon);
        let mut want = service::wireguard::want(&self.tunnel, &endpoints, self.switches.no_dns);
        daemon.with(|interface| interface.complete(&mut want));
        want
    }

    /// Sets what the file asks of the host: routes, addresses, name servers.
    fn bring_up(&mut self, daemon: &Daemon) -> Outcome<()> {
        if self.servers.begin() {
            self.put_servers(Turn::Next, daemon);
        }
        let mut netlink = Netlink::open()?;
        let want = self.want(daemon);
        let facts = Facts::gather(&want, &self.ifname, &mut netlink)?;
        let plan = match Plan::new(&want, &facts) {
            Err(error @ PlanError::NoWayToEndpoint(_)) => {
                log::warn!("{}: {error}", self.ifname);
                let what = "a route to the endpoint";
                daemon.with(|interface| interface.tell_waiting(Some(what.to_owned())));
                return self.wait(what);
            }
            plan => plan?,
        };
        for warning in &plan.warnings {
            log::warn!("{warning}");
        }
        mark(daemon, plan.fwmark)?;
        self.applied = Some(Applied::apply(&plan, &self.ifname, &mut netlink)?);
        self.mtu.begin(&want, &facts);
        daemon.with(|interface| {
            interface.tell_mtu(self.mtu.wanted(), &self.tunnel);
            interface.tell_waiting(None);
        });
        (self.plan, self.facts) = (plan, facts);
        self.servers.set_mark(self.plan.fwmark);
        self.tell_warnings(daemon);
        self.scripts(&self.tunnel.interface.scripts.post_up)?;
        if self.waiting_for.take().is_some() {
            log::info!("{} is up", self.ifname);
        }
        if !self.switches.daemon {
            host::terminal::is_up(&self.ifname);
        }
        background::start_is_over();
        notify::ready("up");
        self.call(daemon)
    }

    /// Starts handshakes with the peers that have endpoints. Waiting processes are released by the first answer; at
    /// once if no peer has an endpoint.
    fn call(&mut self, daemon: &Daemon) -> Outcome<()> {
        let peers = self.tunnel.peers.iter();
        let called = peers.filter_map(|it| Some((it.public_key.clone(), it.endpoint.as_ref()?)));
        let (keys, endpoints): (Vec<Key32>, Vec<String>) =
            called.map(|(key, at)| (key, at.to_string())).unzip();
        if keys.is_empty() {
            return self.let_go(background::ready);
        }
        let names = daemon.with(|interface| interface.names());
        let first = self::endpoints(&self.tunnel, &names.unwrap_or_default(), daemon);
        let device = first
            .first()
            .and_then(|it| host::device_to(it.ip(), self.plan.fwmark));
        let over = device.map_or_else(String::new, |it| format!(" over {it}"));
        let called = self.servers.words();
        let called = called.unwrap_or_else(|| endpoints.join(", "));
        log::info!("{}: connecting to {called}{over}", self.ifname);
        daemon.with(|interface| interface.call(keys));
        self.called = Some(Instant::now());
        Ok(())
    }

    /// Uses other servers of the pool.
    fn change_servers(&mut self, turn: Turn, daemon: &Daemon) -> Outcome<()> {
        let is_up = self.applied.is_some();
        self.put_servers(turn, daemon);
        match turn {
            Turn::Next if is_up => Ok(()),
            _ => self.changed(daemon),
        }
    }

    /// Makes the servers in use the interface's peers. The routes come first: the tunnel must not take in the handshakes
    /// with a new server.
    fn put_servers(&mut self, turn: Turn, daemon: &Daemon) {
        self.servers.put_into(&mut self.tunnel);
        let is_up = self.applied.is_some();
        if is_up && turn == Turn::Next {
            self.follow(daemon);
        }
        let set = |interface: &mut Interface| {
            self.servers.apply(turn, interface, &self.tunnel, is_up);
        };
        daemon.with(set);
    }

    /// Shows in the status the file's settings that the host lacks.
    fn tell_warnings(&self, daemon: &Daemon) {
        let refused = self.applied.iter().flat_map(Applied::refused);
        let plan = self.plan.warnings.iter().map(String::as_str);
        let warnings = plan.chain(refused).map(str::to_owned).collect();
        daemon.with(|interface| interface.tell_warnings(warnings));
    }

    /// Updates the host for a changed file or changed endpoints.
    fn follow(&mut self, daemon: &Daemon) {
        if let Err(error) = self.try_follow(daemon) {
            log::warn!("{}: {error}", self.ifname);
        }
    }

    fn try_follow(&mut self, daemon: &Daemon) -> Outcome<()> {
        let mut netlink = Netlink::open()?;
        let want = self.want(daemon);
        let mut facts = self.facts.clone();
        facts.look_again(&want, &self.ifname, &mut netlink)?;
        // The look-up uses the mark of the tunnel's own packets, which the plan may have chosen.
        facts.look_at_mtu(&want, self.plan.fwmark, &mut netlink)?;
        if let Err(error) = self.mtu.follow(&want, &facts, &mut netlink) {
            log::warn!("{}: {error}", self.ifname);
        }
        daemon.with(|interface| interface.tell_mtu(self.mtu.wanted(), &self.tunnel));
        let plan = Plan::new(&want, &facts)?;
        #[cfg(feature = "server")]
        let plan = {
            let mut plan = plan;
            if self.tunnel.home.is_some() {
                plan.close_behind(&self.plan, &self.ifname, &mut netlink)?;
            }
            plan
        };
        self.facts = facts;
        let Some(applied) = &mut self.applied else {
            return Ok(());
        };
        if plan == self.plan {
            applied.follow(&mut netlink)?;
            self.tell_warnings(daemon);
            return Ok(());
        }
        for warning in &plan.warnings {
            if !self.plan.warnings.contains(warning) {
                log::warn!("{warning}");
            }
        }
        // The mark is set before its rules, and cleared after them.
        if plan.fwmark != 0 {
            mark(daemon, plan.fwmark)?;
        }
        // Refused steps are logged, and stay in the status.
        let _ = applied.change(&self.plan, &plan, &mut netlink);
        if plan.fwmark == 0 && self.plan.fwmark != 0 {
            mark(daemon, 0)?;
        }
        self.plan = plan;
        self.servers.set_mark(self.plan.fwmark);
        self.tell_warnings(daemon);
        Ok(())
    }

    /// Undoes all changes to the host. Returns the failures.
    fn take_down(mut self, daemon: Daemon) -> Vec<String> {
        let mut faults = Vec::new();
        let scripts = &self.tunnel.interface.scripts;
        if self.applied.is_some() {
            faults.extend(self.scripts(&scripts.pre_down).err().map(|e| e.to_string()));
        }
        if self.tunnel.interface.save_config
            && let Some((device, peers)) = daemon.with(|interface| interface.get())
        {
            let merged = service::wireguard::merge(&self.tunnel, &device, &peers, self.plan.fwmark);
            let saved = service::wireguard::save(self.path, &merged);
            faults.extend(saved.err().map(|e| e.to_string()));
        }
        if let Some(Err(errors)) = self.applied.take().map(Applied::undo) {
            faults.extend(errors.iter().map(ToString::to_string));
        }
        drop(daemon);
        let scripts = &self.tunnel.interface.scripts;
        faults.extend(
            self.scripts(&scripts.post_down)
                .err()
                .map(|e| e.to_string()),
        );
        faults
    }
}

/// Marks the tunnel's own datagrams.
fn mark(daemon: &Daemon, fwmark: u32) -> Outcome<()> {
    let set = SetDevice {
        fwmark: Some(fwmark),
        ..SetDevice::default()
    };
    let outcome = daemon.with(|interface| interface.set(&set));
    outcome
        .ok_or("the interface was removed")?
        .map_err(|(_, words)| words.into())
}
