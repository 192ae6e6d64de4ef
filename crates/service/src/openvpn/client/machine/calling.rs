//! Reports about a server that does not answer: its address, and likely reasons for the silence.

use crate::openvpn::client::host::Cx;
use config::openvpn::SharedWrap;
use log::Level;
use openvpn_host::connect::Target;
use std::time::{Duration, Instant};

/// Time without an answer after which the likely reasons are logged.
const UNANSWERED: Duration = Duration::from_secs(5);

/// Time without an answer after which the program that manages the interface is told.
const SILENT: Duration = Duration::from_secs(10);

/// Maximum number of servers named per outage: if all are down, the client tries them again and again.
const NAMED_MAX: u32 = 4;

/// Messages about attempts to connect since a server last answered.
#[derive(Default)]
pub(super) struct Calling {
    named: u32,
    /// When the first server was called.
    since: Option<Instant>,
    /// The server being connected to, in words, and the start of its silence.
    called: Option<(Called, Instant)>,
    explained: bool,
    /// The start of the silence of all servers, and whether it was told.
    silent: Option<(Instant, bool)>,
}

struct Called {
    name: String,
    tcp: bool,
    /// The option whose key must match the server's, if there is one.
    key: Option<&'static str>,
    /// The other servers called since the silence began.
    others: u32,
}

impl Calling {
    /// Records that an attempt to connect to a server begins.
    pub(super) fn begin(&mut self, target: &Target, cx: &mut Cx<'_>) {
        let connection = &target.connection;
        let tcp = connection.protocol.transport.is_tcp();
        let remote = target.remote;
        let host = connection.remote.as_ref().map(|it| it.host.as_str());
        // A proxy has its own address.
        let host = match (&connection.proxy, host) {
            (Some(_), Some(host)) => format!("{host} through the proxy {remote}"),
            (None, Some(host)) if host.parse() != Ok(remote.ip()) => format!("{host} ({remote})"),
            _ => remote.to_string(),
        };
        let name = format!("{host}, {}", if tcp { "TCP" } else { "UDP" });
        self.since.get_or_insert(cx.now.monotonic);
        self.silent.get_or_insert((cx.now.monotonic, false));
        if self.named < NAMED_MAX {
            self.named += 1;
            let device = cx.host.device_to(remote.ip());
            let over = device.map_or_else(String::new, |it| format!(", over {it}"));
            cx.say(Level::Info, format!("connecting to {name}{over}"));
        }
        let key = match (&connection.wrap.tls_crypt_v2, &connection.wrap.shared) {
            (Some(_), _) => Some("tls-crypt-v2"),
            (None, SharedWrap::TlsCrypt { .. }) => Some("tls-crypt"),
            (None, SharedWrap::TlsAuth { .. }) => Some("tls-auth"),
            (None, SharedWrap::None) => None,
        };
        let (others, since) = match self.called.take() {
            Some((called, since)) if called.name == name => (called.others, since),
            Some((called, since)) => (called.others + 1, since),
            None => (0, cx.now.monotonic),
        };
        let called = Called {
            name,
            tcp,
            key,
            others,
        };
        self.called = Some((called, since));
    }

    /// Records that the server of this attempt has answered.
    pub(super) fn answered(&mut self, cx: &mut Cx<'_>) {
        self.called = None;
        if let Some((_, true)) = self.silent.take() {
            cx.later(|host| host.silent(None));
        }
    }

    /// Returns how long the connection took, and resets the messages for the next outage.
    pub(super) fn is_up(&mut self, now: Instant) -> Duration {
        let since = std::mem::take(self).since;
        since.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.explained_at().into_iter().chain(self.told_at()).min()
    }

    fn explained_at(&self) -> Option<Instant> {
        let (_, since) = self.called.as_ref().filter(|_| !self.explained)?;
        Some(*since + UNANSWERED)
    }

    fn told_at(&self) -> Option<Instant> {
        let (since, _) = self.silent.filter(|(_, told)| !told)?;
        self.called.as_ref().map(|_| since + SILENT)
    }

    /// Logs the likely reasons for the silence, and tells the program that manages the interface, once per outage.
    pub(super) fn deadline(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if let (true, Some((called, _))) = (is_due(self.told_at()), &self.called) {
            let words = called.explanation(SILENT);
            self.silent = self.silent.map(|(since, _)| (since, true));
            cx.later(move |host| host.silent(Some(&words)));
        }
        if !is_due(self.explained_at()) {
            return;
        }
        self.explained = true;
        if let Some((called, _)) = &self.called {
            cx.say(Level::Warn, called.explanation(UNANSWERED));
        }
    }
}

impl Called {
    /// The likely reasons for a silence of this length.
    fn explanation(&self, silence: Duration) -> String {
        let Self {
            name,
            tcp,
            key,
            others,
        } = self;
        let seconds = silence.as_secs();
        let before = match others {
            0 => String::new(),
            1 => " and the server before it".to_owned(),
            _ => format!(" and the {others} servers before it"),
        };
        let key = match key {
            Some(option) => format!(", or the key of {option} may differ from the server's"),
            None => String::new(),
        };
        let other = if *tcp { "UDP" } else { "TCP" };
        format!(
            "no answer from {name}{before} for {seconds} s: the server may be down, a firewall may drop the packets, the port \
             or the protocol may be wrong (the server may use {other}){key}; still trying"
        )
    }
}
