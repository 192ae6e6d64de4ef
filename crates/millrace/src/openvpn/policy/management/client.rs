//! What a server tells of its clients to whoever decides on them (`management-client-auth`).

use super::super::environment::{Environment, peer_info};
use config::openvpn::ScriptSecurity;

/// Something that happened to a client. `client` is counted by the server, `key` by the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ClientEvent<'a> {
    /// It wants to come in.
    Connect { client: u64, key: u32 },
    /// It renegotiates and must be judged again.
    Reauth { client: u64, key: u32 },
    /// It answers a challenge.
    ChallengeResponse {
        client: u64,
        key: u32,
        response: &'a str,
    },
    /// It is in.
    Established { client: u64 },
    /// It has gone.
    Disconnect { client: u64 },
    /// An address was found at it; `primary` for its own.
    Address {
        client: u64,
        address: &'a str,
        primary: bool,
    },
}

/// What somebody has decided on a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum ClientOutcome {
    /// It may come in, with these lines of a client configuration file.
    Auth { settings: Vec<String> },
    /// It may not: the reason for the log, and that for the client.
    Deny {
        reason: String,
        client_reason: Option<String>,
    },
    /// It is to do one thing more, within so many seconds.
    Pending { extra: String, timeout: u32 },
}

/// Variables that are shown when `env-filter` is 1 (these and every `X509_`) or 2 (these).
const SHOWN: [&str; 17] = [
    "username",
    "password",
    "X509_0_CN",
    "tls_serial_",
    "untrusted_ip",
    "ifconfig_local",
    "ifconfig_netmask",
    "daemon_start_time",
    "daemon_pid",
    "dev",
    "ifconfig_pool_remote_ip",
    "ifconfig_pool_netmask",
    "time_duration",
    "bytes_sent",
    "bytes_received",
    "session_id",
    "session_state",
];

fn is_shown(name: &str, level: u8) -> bool {
    let listed = || {
        SHOWN
            .iter()
            .any(|shown| name == *shown || shown.ends_with('_') && name.starts_with(shown))
    };
    match level {
        0 => true,
        1 => name.starts_with("X509_") || listed(),
        2 => listed(),
        _ => false,
    }
}

/// The lines of a notification. `clients` is how many there are, `information` what the client
/// told of itself.
pub(super) fn lines(
    event: ClientEvent<'_>,
    environment: &Environment,
    information: &str,
    clients: usize,
    filter: u8,
) -> Vec<String> {
    let (head, count, told) = match event {
        ClientEvent::Connect { client, key } => (format!("CONNECT,{client},{key}"), true, true),
        ClientEvent::Reauth { client, key } => (format!("REAUTH,{client},{key}"), true, true),
        ClientEvent::ChallengeResponse {
            client,
            key,
            response,
        } => (format!("CR_RESPONSE,{client},{key},{response}"), true, true),
        ClientEvent::Established { client } => (format!("ESTABLISHED,{client}"), true, false),
        ClientEvent::Disconnect { client } => (format!("DISCONNECT,{client}"), false, false),
        ClientEvent::Address {
            client,
            address,
            primary,
        } => {
            let primary = u8::from(primary);
            return vec![format!(">CLIENT:ADDRESS,{client},{address},{primary}")];
        }
    };
    let mut lines = vec![format!(">CLIENT:{head}")];
    let mut variable = |name: &str, value: &str| {
        lines.push(format!(">CLIENT:ENV,{name}={value}"));
    };
    if count && is_shown("n_clients", filter) {
        variable("n_clients", &clients.to_string());
    }
    // With no filter this is among the variables already.
    if told && filter > 0 {
        for (name, value) in information.lines().filter_map(peer_info) {
            variable(name, &value);
        }
    }
    // Whoever decides on clients needs their passwords.
    for (name, value) in environment.visible(ScriptSecurity::Passwords) {
        if is_shown(name, filter) {
            variable(name, value);
        }
    }
    lines.push(">CLIENT:ENV,END".to_owned());
    lines
}
