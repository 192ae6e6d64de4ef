//! The host on which a machine acts: sockets, the interface, and the host's network.

use super::control::Control;
use super::lines::Sockets;
use super::{RunError, RunOptions, STREAMS, Uplink};
use crate::pptp::awaited;
use crate::pptp::machine::{Host, ONLY, Silent, StreamId, Way};
use crate::pptp::network::{self, Network};
use crate::uplink::Leaving;
use ::config::pptp::{GRE_RULE, Pptp, Role};
use ::lines::names::Resolver;
use ::pptp::session::Up;
use engine::interface::Writer;
use host::strangers;
use host::{background, notify};
use lines::names;
use log::Level;
use netio::poll::Poller;
use netio::tcp::{Connecting, TcpOptions};
use netio::tun::Tun;
use plane::LineId;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

/// Everything of an executor that its machine acts on.
pub(super) struct Outside<'m> {
    pub(super) model: &'m Pptp,
    pub(super) options: RunOptions,
    pub(super) tun: Tun,
    pub(super) writer: Writer,
    pub(super) gre: Sockets,
    pub(super) streams: BTreeMap<StreamId, Control>,
    pub(super) resolver: Resolver<()>,
    pub(super) poller: Poller,
    pub(super) network: Network,
    /// The uplink of a client without lines, whose calls have one source address.
    pub(super) uplink: Option<Uplink>,
    pub(super) ended: Option<Result<(), RunError>>,
    /// The user was told that the tunnel is up, or the parent process has stopped waiting.
    pub(super) told: bool,
    /// When the parent process stops waiting.
    pub(super) wait_until: Option<Instant>,
    /// When a client called the server, while it is not up.
    pub(super) called: Option<Instant>,
    /// When the log explains what the server's silence may mean.
    pub(super) explain_at: Option<Instant>,
}

impl Outside<'_> {
    /// Reports once that the tunnel is up.
    pub(super) fn is_up(&mut self) {
        notify::ready("up");
        (self.wait_until, self.explain_at) = (None, None);
        if let Some(called) = self.called.take() {
            let name = &self.model.interface;
            let seconds = config::seconds(called.elapsed());
            let summary = self.network.summary();
            log::info!("{name}: connected in {seconds} s: {summary}");
        }
        if !self.told {
            background::start_is_over();
        }
        if self.options.manager.is_some() {
            self.told = true;
        } else if self.options.daemon {
            self.let_go(background::ready);
        } else if !std::mem::replace(&mut self.told, true) {
            host::terminal::is_up(&self.model.interface);
        }
    }

    /// Goes into the background if `--daemon` is given.
    pub(super) fn let_go(&mut self, tell: fn() -> io::Result<()>) {
        if self.options.daemon && !std::mem::replace(&mut self.told, true) {
            awaited::leave(&self.model.interface, tell);
        }
    }

    /// Ends the executor with the first result that it is given.
    fn end_with(&mut self, result: Result<(), RunError>) {
        self.ended.get_or_insert(result);
    }

    /// Looks at the uplink if that is due. Returns whether to call the server at once.
    pub(super) fn has_moved(&mut self, now: Instant) -> bool {
        let (in_call, leaving) = (
            self.streams.contains_key(&ONLY),
            leaving(&self.options, &self.tun),
        );
        let uplink = self.uplink.as_mut();
        uplink.is_some_and(|it| it.has_moved(now, in_call, leaving))
    }

    /// Closes a control connection.
    pub(super) fn close(&mut self, id: StreamId) {
        let removed = match self.streams.remove(&id) {
            Some(Control::Connecting(connecting)) => self.poller.remove(&connecting),
            Some(Control::Open { stream, .. }) => self.poller.remove(&stream),
            None => Ok(()),
        };
        if let Err(error) = removed {
            log::debug!("control connection {id}: {error}");
        }
    }
}

pub(super) fn leaving<'a>(options: &'a RunOptions, tun: &'a Tun) -> Leaving<'a> {
    Leaving {
        device: options.bind_device.as_deref(),
        mark: 0,
        tunnel: tun.name(),
    }
}

impl Host for Outside<'_> {
    fn look_up(&mut self, host: String) {
        self.resolver.begin((), (host, 0), 0, self.network.is_set());
    }

    fn connect(&mut self, server: SocketAddrV4, line: Option<LineId>) -> Result<(), String> {
        self.close(ONLY);
        self.network.keep_outside(*server.ip());
        if let Some(uplink) = &mut self.uplink {
            let leaving = leaving(&self.options, &self.tun);
            uplink.calls((*server.ip()).into(), leaving);
        }
        let options = match line {
            Some(line) => self.gre.tcp_by(line),
            None => TcpOptions {
                device: self.options.bind_device.clone(),
                ..TcpOptions::default()
            },
        };
        let words = |error: io::Error| error.to_string();
        // Set before the call request is sent: GRE may arrive before the reply.
        let called = self.gre.call(*server.ip(), &self.poller);
        called.map_err(words)?;
        let connecting =
            Connecting::new(server.into(), &options).map_err(|error| error.to_string())?;
        let token = STREAMS + ONLY;
        self.poller.add(&connecting, token).map_err(words)?;
        self.poller
            .modify(&connecting, token, true)
            .map_err(words)?;
        self.streams.insert(ONLY, Control::Connecting(connecting));
        Ok(())
    }

    fn send(&mut self, way: Way, packet: &[u8]) {
        self.gre.push(way, packet);
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.writer.push(&self.tun, packet);
    }

    fn line_facts(&mut self) -> Vec<Option<lines::control::LineFacts>> {
        lines::control::read(&self.model.lines)
    }

    fn open_line(&mut self, line: LineId, mark: u32) -> Result<(), String> {
        let opened = self.gre.open_line(line, mark, &self.poller);
        opened.map_err(|error| error.to_string())
    }

    fn close_line(&mut self, line: LineId) {
        self.gre.close_line(line, &self.poller);
    }

    fn knock(&mut self, line: LineId, server: SocketAddrV4) {
        self.gre.knock(line, server, &self.poller);
    }

    fn up(&mut self, up: &Up, server: Ipv4Addr) {
        if let Role::Client(client) = &self.model.role {
            // The server has proved its identity at this address.
            names::keep(&client.host, server.into());
            let no_dns = self.options.no_dns;
            let want = network::of_client(self.model, client, up, server, no_dns);
            match self.network.set(want) {
                Ok(()) => self.is_up(),
                Err(error) => self.end_with(Err(error.into())),
            }
        }
    }

    fn silent(&mut self, why: Option<Silent>) {
        let (Some(manager), Role::Client(client)) = (&self.options.manager, &self.model.role)
        else {
            return;
        };
        let (host, port) = (&client.host, client.port);
        let words = why.map(|why| match why {
            Silent::Server => format!(
                "{host} does not answer: it may be down, or a firewall may drop TCP port {port}"
            ),
            Silent::Gre => format!(
                "{host} answers, but no GRE (IP protocol 47) arrives: this router's firewall or a NAT drops it; allow \
                 it with: {GRE_RULE}"
            ),
        });
        if let Some(words) = &words {
            log::warn!("{}: {words}", self.model.interface);
        }
        manager.silent(words.as_deref());
    }

    fn refused(&mut self, why: &str) {
        if let Some(manager) = &self.options.manager {
            manager.refused(why);
        }
    }

    fn log(&mut self, level: Level, words: String) {
        log::log!(level, "{}: {words}", self.model.interface);
        // Signals the service manager that the start is over: it should not wait while the server is away.
        if level <= Level::Warn {
            notify::ready(&words);
        }
    }

    fn log_stranger(&mut self, level: Level, words: String) {
        strangers::log(level, format_args!("{}: {words}", self.model.interface));
    }

    fn end(&mut self, result: Result<(), String>) {
        self.end_with(result.map_err(RunError::Ended));
    }
}
