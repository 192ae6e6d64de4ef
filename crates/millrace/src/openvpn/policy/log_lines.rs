//! The lines of the log that scripts, GUIs and tests look for, word for word as stock writes them,
//! with the `verb` from which on they are written.
//!
//! Other lines are Millrace's own and are made by [`Line::info`] and its kin.

use std::net::SocketAddr;

use super::management::LogFlag;
use super::names;

/// A line of the log, without time and prefix.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Line {
    /// Written from this `verb` on.
    pub(crate) verb: u8,
    /// Lines of one kind in a row count for `mute`; 0 is never muted.
    pub(crate) kind: u8,
    /// How bad it is.
    pub(crate) flag: LogFlag,
    /// What it says.
    pub(crate) text: String,
}

/// `verb`, kind for `mute`, and how bad: the classes that stock sorts its lines into.
type Class = (u8, u8, LogFlag);

const ALWAYS: Class = (0, 0, LogFlag::Info);
const FATAL: Class = (0, 0, LogFlag::Fatal);
const INFO: Class = (1, 0, LogFlag::Info);
const WARNING: Class = (0, 0, LogFlag::Warning);
const TLS_ERRORS: Class = (1, 3, LogFlag::NonFatal);
const STREAM_ERRORS: Class = (1, 7, LogFlag::NonFatal);
const HANDSHAKE: Class = (2, 20, LogFlag::Detail);
const TLS_LOW: Class = (3, 20, LogFlag::Detail);
const RESTART: Class = (3, 33, LogFlag::Detail);
const PUSH: Class = (3, 34, LogFlag::Detail);
const SERVER: Class = (3, 38, LogFlag::Detail);
const EXIT: Class = (3, 41, LogFlag::Detail);

fn line((verb, kind, flag): Class, text: impl Into<String>) -> Line {
    Line {
        verb,
        kind,
        flag,
        text: text.into(),
    }
}

impl Line {
    /// What is said at `verb 1`.
    pub(crate) fn info(text: impl Into<String>) -> Self {
        line(INFO, text)
    }

    /// What is said whatever `verb` is.
    pub(crate) fn warning(text: impl Into<String>) -> Self {
        line(WARNING, text)
    }

    /// What went wrong, whatever `verb` is, and the daemon goes on.
    pub(crate) fn fault(text: impl Into<String>) -> Self {
        line((0, 0, LogFlag::NonFatal), text)
    }

    /// What the daemon ends with.
    pub(crate) fn fatal(text: impl Into<String>) -> Self {
        line(FATAL, text)
    }

    /// What is said at a `verb` of 2 or more.
    pub(crate) fn detail(verb: u8, text: impl Into<String>) -> Self {
        let flag = if verb > 5 {
            LogFlag::Debug
        } else {
            LogFlag::Detail
        };
        line((verb, 0, flag), text)
    }

    /// The number that `machine-readable-output` puts in front.
    pub(crate) const fn bits(&self) -> u32 {
        let flag = match self.flag {
            LogFlag::Info | LogFlag::Detail => 0,
            LogFlag::Fatal => 1 << 4,
            LogFlag::NonFatal => 1 << 5,
            LogFlag::Warning => 1 << 6,
            LogFlag::Debug => 1 << 7,
        };
        (self.verb & 15) as u32 | flag | (self.kind as u32) << 24
    }
}

/// An outer address: `[AF_INET]192.0.2.1:1194`, `[AF_INET6]2001:db8::1:1194`.
pub(crate) fn outer(addr: SocketAddr) -> String {
    let family = if addr.is_ipv4() {
        "AF_INET"
    } else {
        "AF_INET6"
    };
    format!("[{family}]{}:{}", addr.ip(), addr.port())
}

/// What stands before lines about one client of a server: `name/192.0.2.1:1194`, or the address
/// alone before the name is known.
pub(crate) fn instance(common_name: Option<&str>, real_address: &str) -> String {
    match common_name {
        Some(name) => format!("{}/{real_address}", names::name(name)),
        None => real_address.to_owned(),
    }
}

fn bracketed(common_name: Option<&str>) -> String {
    let name = common_name.filter(|name| !name.is_empty());
    name.map(|name| format!("[{}] ", names::name(name)))
        .unwrap_or_default()
}

/// The tunnel is up; `errors` where routes or addresses could not be set.
pub(crate) fn initialized(errors: bool) -> Line {
    let with = if errors { " With Errors" } else { "" };
    line(INFO, format!("Initialization Sequence Completed{with}"))
}

/// The peer is authenticated.
pub(crate) fn peer_connected(common_name: Option<&str>, peer: SocketAddr) -> Line {
    let name = bracketed(common_name);
    let text = format!("{name}Peer Connection Initiated with {}", outer(peer));
    line(INFO, text)
}

/// A session begins, by the peer's session number.
pub(crate) fn initial_packet(peer: SocketAddr, session: [u8; 8]) -> Line {
    let [a, b, c, d, e, f, g, h] = session;
    let first = u32::from_be_bytes([a, b, c, d]);
    let second = u32::from_be_bytes([e, f, g, h]);
    let peer = outer(peer);
    line(
        TLS_LOW,
        format!("TLS: Initial packet from {peer}, sid={first:08x} {second:08x}"),
    )
}

/// A certificate of the peer's chain is good.
pub(crate) fn verify_ok(depth: usize, subject: &str) -> Line {
    let subject = names::name(subject);
    line(HANDSHAKE, format!("VERIFY OK: depth={depth}, {subject}"))
}

/// A certificate of the peer's chain is not good.
pub(crate) fn verify_error(depth: usize, error: &str, subject: &str, serial: &str) -> Line {
    let subject = names::name(subject);
    let text = format!("VERIFY ERROR: depth={depth}, error={error}: {subject}, serial={serial}");
    line(TLS_ERRORS, text)
}

/// A script has judged a certificate.
pub(crate) fn verify_script(good: bool, depth: usize, subject: &str) -> Line {
    let verdict = if good { "OK" } else { "ERROR" };
    let subject = names::name(subject);
    let text = format!("VERIFY SCRIPT {verdict}: depth={depth}, {subject}");
    line(HANDSHAKE, text)
}

/// A rule of the configuration was kept: `KU`, `EKU`, `X509NAME`.
pub(crate) fn verify_rule_ok(rule: &str) -> Line {
    line(HANDSHAKE, format!("VERIFY {rule} OK"))
}

/// What the control channel has agreed on, as `TLSv1.3, cipher …`.
pub(crate) fn control_channel(agreed: &str) -> Line {
    line(HANDSHAKE, format!("Control Channel: {agreed}"))
}

/// What the data channel has agreed on. `auth` is told for ciphers that do not authenticate by
/// themselves.
pub(crate) fn data_channel(cipher: &str, auth: Option<&str>, peer_id: Option<u32>) -> Line {
    let auth = auth.map(|auth| format!(", auth '{auth}'"));
    let peer_id = peer_id.map(|id| format!(", peer-id: {id}"));
    let (auth, peer_id) = (auth.unwrap_or_default(), peer_id.unwrap_or_default());
    let text = format!("Data Channel: cipher '{cipher}'{auth}{peer_id}");
    line(HANDSHAKE, text)
}

/// The peer did not get through the handshake in time.
pub(crate) fn negotiation_failed(seconds: u64) -> Line {
    let text = format!(
        "TLS Error: TLS key negotiation failed to occur within {seconds} seconds (check your network connectivity)"
    );
    line(TLS_ERRORS, text)
}

/// The handshake has failed, after a line that says why.
pub(crate) fn handshake_failed() -> Line {
    line(TLS_ERRORS, "TLS Error: TLS handshake failed")
}

/// Nothing came from the peer for too long; the client connects again.
pub(crate) fn ping_restart(common_name: Option<&str>) -> Line {
    let name = bracketed(common_name);
    let text = format!("{name}Inactivity timeout (--ping-restart), restarting");
    line(INFO, text)
}

/// Nothing came from the peer for too long; the client ends.
pub(crate) fn ping_exit(common_name: Option<&str>) -> Line {
    let name = bracketed(common_name);
    let text = format!("{name}Inactivity timeout (--ping-exit), exiting");
    line(INFO, text)
}

/// Nothing went through the tunnel for too long.
pub(crate) fn inactive() -> Line {
    line(INFO, "Inactivity timeout (--inactive), exiting")
}

/// The server refuses the client: its message from `AUTH_FAILED` on.
pub(crate) fn auth_failed(message: &str) -> Line {
    let message = names::name(message);
    line(ALWAYS, format!("AUTH: Received control message: {message}"))
}

/// The server judged a name and a password.
pub(crate) fn auth_verdict(accepted: bool, username: &str) -> Line {
    if !accepted {
        let text = "TLS Auth Error: Auth Username/Password verification failed for peer";
        return line(TLS_ERRORS, text);
    }
    let username = names::name(username);
    let text =
        format!("TLS: Username/Password authentication succeeded for username '{username}' ");
    line(HANDSHAKE, text)
}

/// The server's options have come. Tokens are not for the log.
pub(crate) fn push_received(message: &str) -> Line {
    let message = without_tokens(message);
    line(PUSH, format!("PUSH: Received control message: '{message}'"))
}

/// A message went to the peer. Tokens are not for the log.
pub(crate) fn control_sent(common_name: Option<&str>, message: &str, sent: bool) -> Line {
    let name = names::name(common_name.unwrap_or("UNDEF"));
    let message = without_tokens(message);
    let status = u8::from(sent);
    let text = format!("SENT CONTROL [{name}]: '{message}' (status={status})");
    line(PUSH, text)
}

fn without_tokens(message: &str) -> String {
    const TOKEN: &str = "auth-token ";
    let options = names::name(message);
    let options = options.split(',').map(|option| {
        if option.starts_with(TOKEN) {
            "auth-token [hidden]"
        } else {
            option
        }
    });
    options.collect::<Vec<_>>().join(",")
}

/// A client waits before it connects again.
pub(crate) fn restart_pause(seconds: u64) -> Line {
    line(RESTART, format!("Restart pause, {seconds} second(s)"))
}

/// The TCP connection was closed by the other end.
pub(crate) fn connection_reset() -> Line {
    line(STREAM_ERRORS, "Connection reset, restarting [0]")
}

/// A client of a server said that it goes.
pub(crate) fn exit_received(seconds: u64) -> [Line; 2] {
    [
        line(STREAM_ERRORS, "CC-EEN exit message received by peer"),
        line(EXIT, format!("Delayed exit in {seconds} seconds")),
    ]
}

/// An address in the tunnel is at a client, by its [`instance`].
pub(crate) fn learned(address: &str, instance: &str, success: bool) -> Line {
    let failed = if success { "" } else { " FAILED" };
    let text = format!("MULTI: Learn{failed}: {address} -> {instance}");
    line(SERVER, text)
}

/// A client's own address.
pub(crate) fn primary_address(address: std::net::IpAddr, instance: &str) -> Line {
    let family = if address.is_ipv4() { "IP" } else { "IPv6" };
    let text = format!("MULTI: primary virtual {family} for {instance}: {address}");
    line(SERVER, text)
}

/// No address is left for a client.
pub(crate) fn pool_exhausted() -> Line {
    let text = "MULTI: no free --ifconfig-pool addresses are available";
    line((1, 9, LogFlag::NonFatal), text)
}

/// `ccd-exclusive` keeps a client out.
pub(crate) fn no_client_file(common_name: &str, file: &str) -> Line {
    let name = names::name(common_name);
    let text = format!(
        "TLS Auth Error: --client-config-dir authentication failed for common name '{name}' file='{file}'"
    );
    line(TLS_ERRORS, text)
}

/// A client's settings are read.
pub(crate) fn client_file(file: &str) -> Line {
    let text = format!("OPTIONS IMPORT: reading client specific options from: {file}");
    line(PUSH, text)
}

/// Who has raised a signal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Raised<'a> {
    /// The kernel, or the management port.
    Hard,
    /// The daemon itself, for this reason: `ping-restart`, `exit-with-notification`, …
    Soft(&'a str),
    /// The daemon itself, because it could not connect, for this reason.
    ConnectionFailed(&'a str),
}

impl Raised<'_> {
    const fn texts(&self) -> (&'static str, &str) {
        match self {
            Self::Hard => ("hard", ""),
            Self::Soft(why) => ("soft", why),
            Self::ConnectionFailed(why) => ("connection failed(soft)", why),
        }
    }
}

/// The process ends (`SIGTERM`, `SIGINT`) or begins anew (`SIGHUP`, `SIGUSR1`).
pub(crate) fn process_signal(signal: &str, raised: Raised<'_>) -> Line {
    line(INFO, signal_text(signal, raised, "process"))
}

/// A server's session with a client ends (`SIGTERM`) or begins anew (`SIGUSR1`).
pub(crate) fn client_signal(signal: &str, raised: Raised<'_>) -> Line {
    line(SERVER, signal_text(signal, raised, "client-instance"))
}

fn signal_text(signal: &str, raised: Raised<'_>, what: &str) -> String {
    let (kind, why) = raised.texts();
    let then = match signal {
        "SIGHUP" | "SIGUSR1" => "restarting",
        _ => "exiting",
    };
    format!("{signal}[{kind},{why}] received, {what} {then}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4() -> SocketAddr {
        "192.0.2.1:1194".parse().unwrap()
    }

    #[test]
    fn lines_are_those_that_scripts_look_for() {
        for (line, text) in [
            (initialized(false), "Initialization Sequence Completed"),
            (
                initialized(true),
                "Initialization Sequence Completed With Errors",
            ),
            (
                peer_connected(Some("server x"), v4()),
                "[server x] Peer Connection Initiated with [AF_INET]192.0.2.1:1194",
            ),
            (
                peer_connected(None, "[2001:db8::1]:5".parse().unwrap()),
                "Peer Connection Initiated with [AF_INET6]2001:db8::1:5",
            ),
            (
                initial_packet(v4(), [0x34, 0x45, 0xad, 0x8b, 0x83, 7, 0x7d, 0x63]),
                "TLS: Initial packet from [AF_INET]192.0.2.1:1194, sid=3445ad8b 83077d63",
            ),
            (verify_ok(1, "CN=Test CA"), "VERIFY OK: depth=1, CN=Test CA"),
            (verify_rule_ok("EKU"), "VERIFY EKU OK"),
            (
                verify_script(false, 0, "CN=x"),
                "VERIFY SCRIPT ERROR: depth=0, CN=x",
            ),
            (
                ping_restart(Some("s")),
                "[s] Inactivity timeout (--ping-restart), restarting",
            ),
            (ping_exit(None), "Inactivity timeout (--ping-exit), exiting"),
            (
                negotiation_failed(60),
                "TLS Error: TLS key negotiation failed to occur within 60 seconds \
                 (check your network connectivity)",
            ),
            (
                auth_failed("AUTH_FAILED,no\n"),
                "AUTH: Received control message: AUTH_FAILED,no_",
            ),
            (
                process_signal("SIGTERM", Raised::Hard),
                "SIGTERM[hard,] received, process exiting",
            ),
            (
                process_signal("SIGUSR1", Raised::Soft("ping-restart")),
                "SIGUSR1[soft,ping-restart] received, process restarting",
            ),
            (
                client_signal("SIGTERM", Raised::Soft("remote-exit")),
                "SIGTERM[soft,remote-exit] received, client-instance exiting",
            ),
            (
                data_channel("AES-256-GCM", None, Some(0)),
                "Data Channel: cipher 'AES-256-GCM', peer-id: 0",
            ),
            (
                data_channel("AES-256-CBC", Some("SHA1"), None),
                "Data Channel: cipher 'AES-256-CBC', auth 'SHA1'",
            ),
            (
                learned("10.8.0.2", &instance(Some("c"), "192.0.2.1:5"), true),
                "MULTI: Learn: 10.8.0.2 -> c/192.0.2.1:5",
            ),
            (
                primary_address([10, 8, 0, 2].into(), "c/192.0.2.1:5"),
                "MULTI: primary virtual IP for c/192.0.2.1:5: 10.8.0.2",
            ),
            (restart_pause(1), "Restart pause, 1 second(s)"),
        ] {
            assert_eq!(line.text, text);
        }
    }

    #[test]
    fn tokens_are_hidden() {
        let message = "PUSH_REPLY,auth-token SESS_ID_x,auth-token-user eA==,ping 10";
        let shown = "PUSH_REPLY,auth-token [hidden],auth-token-user eA==,ping 10";
        assert_eq!(
            push_received(message).text,
            format!("PUSH: Received control message: '{shown}'")
        );
        assert_eq!(
            control_sent(Some("c"), message, true).text,
            format!("SENT CONTROL [c]: '{shown}' (status=1)")
        );
    }

    #[test]
    fn bits_are_those_of_stock() {
        assert_eq!(initialized(false).bits(), 1);
        assert_eq!(handshake_failed().bits(), 0x0300_0021);
        assert_eq!(verify_ok(0, "").bits(), 0x1400_0002);
        assert_eq!(Line::detail(7, "x").bits(), 0x87);
    }
}
