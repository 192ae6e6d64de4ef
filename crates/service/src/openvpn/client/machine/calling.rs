//! A call that nobody has answered yet: whom it goes to, and what the silence may mean.

use super::super::super::connect::Target;
use super::super::effect::{Effect, Effects};
use crate::now::Now;
use config::openvpn::SharedWrap;
use log::Level;
use std::time::{Duration, Instant};

/// Time without an answer after which its possible reasons are told.
const UNANSWERED: Duration = Duration::from_secs(5);

/// Servers that are named in one outage: a client whose servers are all away calls them again and again.
const NAMED_MAX: u32 = 4;

/// The messages about calls since a server was heard.
#[derive(Default)]
pub(super) struct Calling {
    named: u32,
    /// The server that is called, in words, and since when none has answered.
    called: Option<(Called, Instant)>,
    explained: bool,
}

struct Called {
    name: String,
    tcp: bool,
    /// The option whose key the server must share, if there is one.
    key: Option<&'static str>,
}

impl Calling {
    /// A server is called.
    pub(super) fn begin(&mut self, target: &Target, now: Now, out: &mut Effects) {
        let connection = &target.connection;
        let tcp = connection.protocol.transport.is_tcp();
        let remote = target.remote;
        let host = connection.remote.as_ref().map(|it| it.host.as_str());
        // A proxy has an address of its own.
        let host = match (&connection.proxy, host) {
            (Some(_), Some(host)) => format!("{host} by the proxy {remote}"),
            (None, Some(host)) if host.parse() != Ok(remote.ip()) => format!("{host} ({remote})"),
            _ => remote.to_string(),
        };
        let name = format!("{host}, {}", if tcp { "TCP" } else { "UDP" });
        if self.named < NAMED_MAX {
            self.named += 1;
            out.push(Effect::Say(Level::Info, format!("calling {name}")));
        }
        let key = match (&connection.wrap.tls_crypt_v2, &connection.wrap.shared) {
            (Some(_), _) => Some("tls-crypt-v2"),
            (None, SharedWrap::TlsCrypt { .. }) => Some("tls-crypt"),
            (None, SharedWrap::TlsAuth { .. }) => Some("tls-auth"),
            (None, SharedWrap::None) => None,
        };
        let since = self.called.take().map_or(now.monotonic, |it| it.1);
        self.called = Some((Called { name, tcp, key }, since));
    }

    /// The server that was called has said something.
    pub(super) fn answered(&mut self) {
        self.called = None;
    }

    /// The tunnel is up: the next outage is told anew.
    pub(super) fn is_up(&mut self) {
        *self = Self::default();
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let (_, since) = self.called.as_ref().filter(|_| !self.explained)?;
        Some(*since + UNANSWERED)
    }

    /// Tells once in an outage what the silence may mean.
    pub(super) fn deadline(&mut self, now: Now, out: &mut Effects) {
        if self.due().is_none_or(|at| at > now.monotonic) {
            return;
        }
        self.explained = true;
        if let Some((called, _)) = &self.called {
            out.push(Effect::Say(Level::Warn, called.explanation()));
        }
    }
}

impl Called {
    fn explanation(&self) -> String {
        let Self { name, tcp, key } = self;
        let seconds = UNANSWERED.as_secs();
        let key = match key {
            Some(option) => format!(", the key of {option} is another than the server's"),
            None => String::new(),
        };
        let other = if *tcp { "UDP" } else { "TCP" };
        format!(
            "no answer from {name}, for {seconds} s: the server may be down, a firewall may drop the packets, \
             the port or the protocol may be wrong (the server may want {other}){key}; still trying"
        )
    }
}
