//! A whole push reply: put together from its parts, filtered, and read.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use zeroize::Zeroizing;

use super::option::{
    Compression, Ifconfig, IfconfigV6, PushedDns, Redirect, Refusal, Route, Topology, address,
    bounded, number, prefixed, route4, route6, seconds, words,
};
use crate::push::{FilterAction, PullFilter, loggable};

/// Maximum number of options of one reply, all of its parts together.
pub const MAX_OPTIONS: usize = 4096;

/// The largest reply in bytes, all of its parts together.
const MAX_BYTES: usize = 256 * 1024;

/// Why a reply cannot be used at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// A `pull-filter reject` matched.
    #[error("'{0}' is rejected by a pull-filter")]
    Rejected(String),
    /// The server requires a protocol feature that we lack, so the keys would not match.
    #[error(
        "'{0}' is not known here; the server is newer than this program, or was not told the truth about it"
    )]
    Protocol(String),
    /// The reply is too large, or never ends.
    #[error("the reply has more than {MAX_OPTIONS} options or {MAX_BYTES} bytes")]
    TooLarge,
}

/// The server's options, read and within bounds.
///
/// Options that the server did not push are `None` or empty lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushReply {
    /// The interface's address, and the other end's address (net30, p2p) or the netmask (subnet).
    pub ifconfig: Option<Ifconfig>,
    /// The interface's IPv6 address.
    pub ifconfig_ipv6: Option<IfconfigV6>,
    /// The meaning of the second address of `ifconfig`.
    pub topology: Option<Topology>,
    /// IPv4 routes.
    pub routes: Vec<Route>,
    /// IPv6 routes.
    pub routes_ipv6: Vec<Route>,
    /// The gateway of routes that name no gateway.
    pub route_gateway: Option<Ipv4Addr>,
    /// The gateway of IPv6 routes.
    pub route_ipv6_gateway: Option<Ipv6Addr>,
    /// The metric of routes that name no metric.
    pub route_metric: Option<u32>,
    /// How long to wait before routes are set.
    pub route_delay: Option<Duration>,
    /// All traffic goes through the tunnel.
    pub redirect_gateway: Option<Redirect>,
    /// IPv6 packets are answered as unreachable.
    pub block_ipv6: bool,
    /// Name servers and domains.
    pub dns: PushedDns,
    /// The interface's MTU, 576 to 65,535 bytes.
    pub tun_mtu: Option<u32>,
    /// Our number in data packets, 24 bits.
    pub peer_id: Option<u32>,
    /// The cipher's name, not yet compared with what is allowed.
    pub cipher: Option<String>,
    /// Data keys come from the TLS exporter.
    pub tls_ekm: bool,
    /// Leave by `EXIT` in the control channel.
    pub cc_exit: bool,
    /// Wrap renegotiations by a key from the exporter.
    pub dyn_tls_crypt: bool,
    /// Data packets in the epoch format.
    pub aead_epoch: bool,
    /// Show this instead of the password from now on.
    pub auth_token: Option<Zeroizing<String>>,
    /// The name that belongs to the token, where it is not the one that we sent.
    pub auth_token_user: Option<String>,
    /// Ping after this long without sending.
    pub ping: Option<Duration>,
    /// Connect again after this long without receiving.
    pub ping_restart: Option<Duration>,
    /// End after this long without receiving.
    pub ping_exit: Option<Duration>,
    /// `ping-exit` and `ping-restart` wait for a first packet.
    pub ping_timer_rem: bool,
    /// End after this long with less than this many bytes.
    pub inactive: Option<(Duration, u64)>,
    /// End after this long.
    pub session_timeout: Option<Duration>,
    /// How many exit notices to send when we leave.
    pub explicit_exit_notify: Option<u32>,
    /// The framing of data packets.
    pub compression: Option<Compression>,
    /// Bytes of the socket's send buffer.
    pub sndbuf: Option<u32>,
    /// Bytes of the socket's receive buffer.
    pub rcvbuf: Option<u32>,
    /// Bytes a second that we send at most, 100 to 100,000,000.
    pub shaper: Option<u32>,
    /// `setenv-safe`: for scripts, with `OPENVPN_` in front of the name.
    pub setenv_safe: Vec<(String, String)>,
    /// `echo` and `parameter`: for graphical programs.
    pub echo: Vec<String>,
    /// The refused options, and why. Without secrets.
    pub refused: Vec<(String, Refusal)>,
}

impl PushReply {
    /// Reads options that were already split at the commas.
    ///
    /// # Errors
    /// [`PushError`] if the whole reply is unusable. Single options that are wrong are listed in
    /// [`refused`](Self::refused) instead, and the rest is taken.
    pub fn parse<'a>(
        options: impl IntoIterator<Item = &'a str>,
        filter: &PullFilter,
    ) -> Result<Self, PushError> {
        let mut reply = Self::default();
        for (count, option) in options.into_iter().enumerate() {
            if count >= MAX_OPTIONS {
                return Err(PushError::TooLarge);
            }
            let option = option.trim();
            let Some(words) = words(option) else {
                let why = Refusal::Malformed("quotes that are closed");
                reply.refused.push((loggable(option), why));
                continue;
            };
            // Filters judge the parsed words, so that quotes and blanks cannot get an option past a filter.
            let plain = Zeroizing::new(words.join(" "));
            let outcome = match filter.decide(&plain) {
                FilterAction::Accept => reply.take(&words, filter.no_routes)?,
                FilterAction::Ignore => Err(Refusal::Filtered),
                FilterAction::Reject => return Err(PushError::Rejected(loggable(&plain))),
            };
            if let Err(why) = outcome {
                reply.refused.push((loggable(&plain), why));
            }
        }
        Ok(reply)
    }

    /// Takes one option. The outer error ends the connection, the inner one only this option.
    fn take(
        &mut self,
        words: &[String],
        no_routes: bool,
    ) -> Result<Result<(), Refusal>, PushError> {
        let Some((name, values)) = words.split_first() else {
            return Ok(Ok(()));
        };
        let protocol = || Err(PushError::Protocol(loggable(&words.join(" "))));
        match (&**name, values) {
            ("protocol-flags", flags) => {
                for flag in flags {
                    match &**flag {
                        "cc-exit" => self.cc_exit = true,
                        "tls-ekm" => self.tls_ekm = true,
                        "dyn-tls-crypt" => self.dyn_tls_crypt = true,
                        "aead-epoch" => self.aead_epoch = true,
                        _ => return protocol(),
                    }
                }
                Ok(Ok(()))
            }
            ("key-derivation", [kind]) if kind == "tls-ekm" => {
                self.tls_ekm = true;
                Ok(Ok(()))
            }
            ("key-derivation", _) => protocol(),
            (name, _) if no_routes && is_route(name) => Ok(Err(Refusal::NoPull)),
            (name, values) => Ok(self.set(name, values)),
        }
    }

    fn set(&mut self, name: &str, values: &[String]) -> Result<(), Refusal> {
        let first = values.first();
        match (name, values) {
            ("ifconfig", [local, other]) => {
                self.ifconfig = Some(Ifconfig {
                    local: address(local)?,
                    second: address(other)?,
                });
            }
            ("ifconfig-ipv6", [local, rest @ ..]) => {
                let (local, bits) = prefixed(local)?;
                let remote = rest.first().map(|it| address(it)).transpose()?;
                self.ifconfig_ipv6 = Some(IfconfigV6 {
                    local,
                    bits,
                    remote,
                });
            }
            ("topology", [word]) => {
                let topology = Topology::ALL.into_iter().find(|it| it.as_str() == word);
                self.topology = Some(topology.ok_or(Refusal::Malformed("net30, p2p or subnet"))?);
            }
            ("route", words) => bounded(&mut self.routes, route4(words)?, MAX_OPTIONS)?,
            ("route-ipv6", words) => bounded(&mut self.routes_ipv6, route6(words)?, MAX_OPTIONS)?,
            ("route-gateway", [word]) if word == "dhcp" => return Err(Refusal::NoEffect),
            ("route-gateway", [word]) => self.route_gateway = Some(address(word)?),
            ("route-ipv6-gateway", [word]) => self.route_ipv6_gateway = Some(address(word)?),
            ("route-metric", _) => self.route_metric = Some(number(first, 0, i32::MAX as u32)?),
            ("route-delay", _) => {
                let delay = first.map_or(Ok(0), |_| number(first, 0, 3600))?;
                self.route_delay = Some(Duration::from_secs(delay.into()));
            }
            ("redirect-gateway" | "redirect-private", flags) => {
                let redirect = Redirect::parse(flags, name == "redirect-gateway");
                self.redirect_gateway = Some(redirect.ok_or(Refusal::Malformed("known flags"))?);
            }
            ("block-ipv6", []) => self.block_ipv6 = true,
            ("dhcp-option", words) => self.dns.dhcp(words)?,
            ("dns", words) => self.dns.dns(words)?,
            ("tun-mtu", _) => self.tun_mtu = Some(number(first, 576, 65_535)?),
            ("shaper", _) => self.shaper = Some(number(first, 100, 100_000_000)?),
            ("peer-id", _) => self.peer_id = Some(number(first, 0, 0x00ff_ffff)?),
            ("cipher", [name]) => self.cipher = Some(name.clone()),
            ("auth-token", [token]) => self.auth_token = Some(Zeroizing::new(token.clone())),
            ("auth-token-user", [user]) => self.auth_token_user = Some(user_of(user)?),
            ("ping", _) => self.ping = Some(seconds(first)?),
            ("ping-restart", _) => self.ping_restart = Some(seconds(first)?),
            ("ping-exit", _) => self.ping_exit = Some(seconds(first)?),
            ("ping-timer-rem", []) => self.ping_timer_rem = true,
            ("inactive", [_, rest @ ..]) => {
                let time = number(first, 0, i32::MAX as u32)?;
                let bytes = rest.first().map_or(Ok(0), |it| it.parse());
                let bytes = bytes.map_err(|_| Refusal::Malformed("seconds and bytes"))?;
                self.inactive = Some((Duration::from_secs(time.into()), bytes));
            }
            ("session-timeout", _) => {
                let time = number(first, 0, i32::MAX as u32)?;
                self.session_timeout = Some(Duration::from_secs(time.into()));
            }
            ("explicit-exit-notify", _) => {
                self.explicit_exit_notify = Some(first.map_or(Ok(1), |_| number(first, 0, 100))?);
            }
            ("comp-lzo", [] | [_]) => self.compression = Some(Compression::CompLzo(first.cloned())),
            ("compress", [] | [_]) => {
                self.compression = Some(Compression::Compress(first.cloned()));
            }
            ("sndbuf", _) => self.sndbuf = Some(number(first, 0, 100_000_000)?),
            ("rcvbuf", _) => self.rcvbuf = Some(number(first, 0, 100_000_000)?),
            ("setenv-safe", [name, rest @ ..]) => {
                let fits = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
                if name.is_empty() || !name.bytes().all(fits) {
                    return Err(Refusal::Malformed(
                        "a name of letters, digits and underscores",
                    ));
                }
                let value = rest.first().cloned().unwrap_or_default();
                bounded(&mut self.setenv_safe, (name.clone(), value), 64)?;
            }
            ("echo" | "parameter", words) => bounded(&mut self.echo, words.join(" "), 64)?,
            // Options that stock takes and that change nothing here.
            (
                "socket-flags" | "max-routes" | "persist-tun" | "persist-key" | "persist-local-ip"
                | "persist-remote-ip" | "verb" | "mute" | "route-method" | "client-nat"
                | "register-dns" | "block-outside-dns" | "ip-win32" | "dhcp-renew" | "dhcp-release"
                | "dhcp-pre-release" | "win-sys" | "tun-ipv6" | "push-continuation" | "tap-sleep",
                _,
            ) => return Err(Refusal::NoEffect),
            (
                "ifconfig" | "ifconfig-ipv6" | "topology" | "route-gateway" | "route-ipv6-gateway"
                | "block-ipv6" | "cipher" | "auth-token" | "auth-token-user" | "ping-timer-rem"
                | "inactive" | "comp-lzo" | "compress" | "setenv-safe",
                _,
            ) => return Err(Refusal::Malformed("other words behind it")),
            _ => return Err(Refusal::NotPullable),
        }
        Ok(())
    }
}

/// The options that `route-nopull` keeps away. The gateway and its delay stay, for routes of the client's own.
fn is_route(name: &str) -> bool {
    matches!(
        name,
        "route"
            | "route-ipv6"
            | "route-metric"
            | "redirect-gateway"
            | "redirect-private"
            | "block-ipv6"
            | "dhcp-option"
            | "dns"
            | "client-nat"
    )
}

/// The name behind `auth-token-user`, which is in base64.
fn user_of(word: &str) -> Result<String, Refusal> {
    use base64::Engine as _;
    const SHAPE: Refusal = Refusal::Malformed("a user name in base64");
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(word)
        .map_err(|_| SHAPE)?;
    let user = String::from_utf8(bytes).map_err(|_| SHAPE)?;
    if user.chars().any(char::is_control) || user.len() > 128 {
        return Err(SHAPE);
    }
    Ok(user)
}

/// Collects the parts of a reply that is spread over several messages.
#[derive(Debug, Default)]
pub struct Assembler {
    text: Zeroizing<String>,
    options: usize,
}

impl Assembler {
    /// Takes the text behind `PUSH_REPLY,` of one message. Returns all options, separated by commas, once the last
    /// part is there.
    ///
    /// # Errors
    /// [`PushError::TooLarge`] if the parts together are too large.
    pub fn add(&mut self, part: &str) -> Result<Option<Zeroizing<String>>, PushError> {
        let mut more = false;
        for option in part.split(',').filter(|it| !it.is_empty()) {
            match option.trim().strip_prefix("push-continuation ") {
                Some(word) => more = word.trim() == "2",
                None => {
                    self.options += 1;
                    self.text.push_str(option);
                    self.text.push(',');
                }
            }
        }
        if self.text.len() > MAX_BYTES || self.options > MAX_OPTIONS {
            *self = Self::default();
            return Err(PushError::TooLarge);
        }
        if more {
            return Ok(None);
        }
        let mut whole = core::mem::take(self).text;
        whole.pop();
        Ok(Some(whole))
    }
}

#[cfg(test)]
mod tests;
