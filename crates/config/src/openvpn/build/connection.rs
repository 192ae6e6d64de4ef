//! Remotes, and directives that `<connection>` may hold.

use super::Builder;
use super::proxy::{HttpOptions, http_option, http_override, http_proxy, socks_proxy};
use super::sizes::sizes;
use super::value::{
    OK, Outcome, Remark, at, capped, host, number, one_of, port, prompted, seconds, source,
};
use crate::openvpn::directive::{Directive, Origin};
use crate::openvpn::{Family, HttpProxy, KeyDirection, Mtu, PORT, Proxy, ResolvRetry, Source};

/// The transport of `proto`; plain `tcp` gets its side later.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum RawTransport {
    #[default]
    Udp,
    Tcp,
    TcpClient,
    TcpServer,
}

/// A `remote` outside `<connection>`.
pub(crate) struct RemoteLine {
    pub host: String,
    pub port: Option<u16>,
    pub protocol: Option<(RawTransport, Family)>,
}

/// A `local` line: a further address of a server, or the one that a client calls from.
#[derive(Clone)]
pub(crate) struct LocalLine {
    /// The address; `None` for all addresses.
    pub host: Option<String>,
    pub port: Option<u16>,
    pub protocol: Option<(RawTransport, Family)>,
}

/// A connection under construction; the one outside blocks is the template of all.
#[derive(Clone)]
pub(crate) struct Draft {
    pub host: Option<String>,
    pub remote_port: u16,
    pub transport: RawTransport,
    pub family: Family,
    pub locals: Vec<LocalLine>,
    pub local_port: u16,
    /// Whether `lport` was given, which implies `bind`.
    pub local_port_defined: bool,
    pub bind: bool,
    pub nobind: bool,
    pub ipv6_only: bool,
    pub float: bool,
    pub retry: u32,
    pub retry_max: u32,
    pub timeout: u32,
    pub http: Option<HttpProxy>,
    pub http_options: HttpOptions,
    pub socks: Option<Proxy>,
    pub mtu: Mtu,
    /// Whether `link-mtu` was given.
    pub link_mtu: bool,
    pub exit_notify: u8,
    pub tls_auth: Option<Source>,
    pub tls_crypt: Option<Source>,
    pub tls_crypt_v2: Option<Source>,
    pub key_direction: Option<KeyDirection>,
    pub force_cookie: Option<bool>,
    pub origin: Option<Origin>,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            host: None,
            remote_port: PORT,
            transport: RawTransport::Udp,
            family: Family::Any,
            locals: Vec::new(),
            local_port: PORT,
            local_port_defined: false,
            bind: false,
            nobind: false,
            ipv6_only: false,
            float: false,
            retry: 1,
            retry_max: 300,
            timeout: 120,
            http: None,
            http_options: HttpOptions::default(),
            socks: None,
            mtu: Mtu::default(),
            link_mtu: false,
            exit_notify: 0,
            tls_auth: None,
            tls_crypt: None,
            tls_crypt_v2: None,
            key_direction: None,
            force_cookie: None,
            origin: None,
        }
    }
}

/// Applies a directive of this group at the top level.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    Some(match directive.name.as_str() {
        "connection" => connection(builder, directive),
        "remote" => remote(directive).map(|line| {
            builder.remotes.push(line);
            Remark::Plain
        }),
        "remote-random" => {
            builder.client.remote_random = true;
            OK
        }
        "remote-random-hostname" => {
            builder.client.remote_random_hostname = true;
            OK
        }
        "resolv-retry" => resolv_retry(at(directive, 0)).map(|retry| {
            builder.client.resolv_retry = retry;
            Remark::Plain
        }),
        "connect-retry-max" => {
            match at(directive, 0) {
                "unlimited" | "0" => builder.client.connect_retry_max = None,
                text => match seconds(text) {
                    Ok(times) => builder.client.connect_retry_max = Some(times),
                    Err(reason) => return Some(Err(reason)),
                },
            }
            OK
        }
        "proto-force" => match at(directive, 0) {
            "udp" => {
                builder.proto_tcp_forced = Some(false);
                OK
            }
            "tcp" | "tcp-client" => {
                builder.proto_tcp_forced = Some(true);
                OK
            }
            other => Err(one_of(other, &["udp", "tcp"])),
        },
        "http-proxy-user-pass" => {
            builder.http_user_pass = Some(prompted(directive));
            OK
        }
        "http-proxy-override" => http_override(directive).map(|proxy| {
            builder.http_override = Some(proxy);
            Remark::Plain
        }),
        _ => return apply_to(&mut builder.draft, directive, false),
    })
}

/// Applies a directive that may stand inside `<connection>` as well as outside.
pub(super) fn apply_to(draft: &mut Draft, directive: &Directive, block: bool) -> Option<Outcome> {
    let outcome = match directive.name.as_str() {
        "remote" => remote(directive).map(|line| {
            draft.host = Some(line.host);
            draft.remote_port = line.port.unwrap_or(draft.remote_port);
            (draft.transport, draft.family) =
                line.protocol.unwrap_or((draft.transport, draft.family));
            Remark::Plain
        }),
        "proto" => protocol(at(directive, 0)).map(|(transport, family)| {
            (draft.transport, draft.family) = (transport, family);
            Remark::Plain
        }),
        "local" => local(draft, directive),
        "port" => port(at(directive, 0)).map(|port| {
            (draft.local_port, draft.remote_port) = (port, port);
            Remark::Plain
        }),
        "lport" => number(at(directive, 0), 0..=u16::MAX).map(|port| {
            draft.local_port = port;
            draft.local_port_defined = true;
            Remark::Plain
        }),
        "rport" => port(at(directive, 0)).map(|port| {
            draft.remote_port = port;
            Remark::Plain
        }),
        "bind" => {
            draft.bind = true;
            match directive.get(0) {
                None => OK,
                Some("ipv6only") => {
                    draft.ipv6_only = true;
                    OK
                }
                Some(other) => Err(one_of(other, &["ipv6only"])),
            }
        }
        "nobind" => {
            draft.nobind = true;
            OK
        }
        "float" => {
            draft.float = true;
            OK
        }
        "connect-retry" => retry(draft, directive),
        // The limit counts rounds over all servers, so that a single server cannot have one.
        "connect-retry-max" => Ok(Remark::Ignored(
            "within <connection> it has no effect, in the stock program either; move it out of \
             the block"
                .to_owned(),
        )),
        "connect-timeout" | "server-poll-timeout" => {
            capped(at(directive, 0), 1..=86_400).map(|seconds| {
                draft.timeout = seconds;
                Remark::Plain
            })
        }
        "http-proxy" => http_proxy(directive).map(|proxy| {
            draft.http = Some(proxy);
            Remark::Plain
        }),
        "http-proxy-option" => http_option(&mut draft.http_options, directive),
        "socks-proxy" => socks_proxy(directive).map(|proxy| {
            draft.socks = Some(proxy);
            Remark::Plain
        }),
        "explicit-exit-notify" => {
            let times = directive
                .get(0)
                .map_or(Ok(1), |text| number(text, 0..=u8::MAX));
            times.map(|times| {
                draft.exit_notify = times;
                Remark::Plain
            })
        }
        "tls-auth" => tls_auth(draft, directive, block),
        "key-direction" => direction(at(directive, 0)).map(|direction| {
            draft.key_direction = Some(direction);
            Remark::Plain
        }),
        "tls-crypt" => {
            draft.tls_crypt = Some(source(directive));
            match directive.get(1) {
                Some(_) => Ok(Remark::Note("a tls-crypt key has no direction".to_owned())),
                None => OK,
            }
        }
        "tls-crypt-v2" => tls_crypt_v2(draft, directive),
        _ => return sizes(draft, directive),
    };
    Some(outcome)
}

fn connection(builder: &mut Builder, directive: &Directive) -> Outcome {
    if directive.inline.is_none() {
        return Err("is a block: <connection> … </connection>".to_owned());
    }
    // Directives before the block apply inside it; those after it do not.
    let mut draft = builder.draft.clone();
    draft.host = None;
    // Keys are an exception: a block has its own keys, or else the shared ones.
    (draft.tls_auth, draft.tls_crypt, draft.tls_crypt_v2) = (None, None, None);
    draft.key_direction = None;
    draft.origin = Some(directive.origin.clone());
    for inner in &directive.block {
        builder.hear_in(&mut draft, inner);
    }
    if draft.host.is_none() {
        return Err("each <connection> must contain exactly one `remote`".to_owned());
    }
    if builder.blocks.len() == CONNECTIONS_MAX {
        return Err(format!("more than {CONNECTIONS_MAX} connections"));
    }
    builder.blocks.push(draft);
    OK
}

/// Most `local` addresses of one server.
const LOCALS_MAX: usize = 64;

/// Most remotes of one client.
pub(crate) const CONNECTIONS_MAX: usize = 4096;

fn remote(directive: &Directive) -> Result<RemoteLine, String> {
    Ok(RemoteLine {
        host: host(at(directive, 0))?,
        port: directive.get(1).map(port).transpose()?,
        protocol: directive.get(2).map(protocol).transpose()?,
    })
}

const PROTOCOLS: [&str; 12] = [
    "udp",
    "udp4",
    "udp6",
    "tcp",
    "tcp4",
    "tcp6",
    "tcp-client",
    "tcp4-client",
    "tcp6-client",
    "tcp-server",
    "tcp4-server",
    "tcp6-server",
];

fn protocol(name: &str) -> Result<(RawTransport, Family), String> {
    if !PROTOCOLS.contains(&name) {
        return Err(one_of(name, &PROTOCOLS));
    }
    let family = match name.as_bytes().get(3) {
        Some(b'4') => Family::V4,
        Some(b'6') => Family::V6,
        _ => Family::Any,
    };
    let transport = match name {
        _ if name.starts_with("udp") => RawTransport::Udp,
        _ if name.ends_with("-client") => RawTransport::TcpClient,
        _ if name.ends_with("-server") => RawTransport::TcpServer,
        _ => RawTransport::Tcp,
    };
    Ok((transport, family))
}

fn local(draft: &mut Draft, directive: &Directive) -> Outcome {
    let host = match at(directive, 0) {
        "*" => None,
        text => Some(host(text)?),
    };
    if draft.locals.len() == LOCALS_MAX {
        return Err(format!("more than {LOCALS_MAX} addresses"));
    }
    draft.locals.push(LocalLine {
        host,
        port: directive.get(1).map(port).transpose()?,
        protocol: directive.get(2).map(protocol).transpose()?,
    });
    OK
}

fn resolv_retry(text: &str) -> Result<ResolvRetry, String> {
    match text {
        "infinite" => Ok(ResolvRetry::Infinite),
        _ => Ok(ResolvRetry::Seconds(seconds(text)?)),
    }
}

fn retry(draft: &mut Draft, directive: &Directive) -> Outcome {
    let seconds = capped(at(directive, 0), 0..=0xffff_u32)?;
    draft.retry = seconds;
    if let Some(text) = directive.get(1) {
        draft.retry_max = capped(text, 0..=86_400)?;
    }
    draft.retry_max = draft.retry_max.max(seconds);
    OK
}

/// Parses `0` or `1`.
fn direction(text: &str) -> Result<KeyDirection, String> {
    match text {
        "0" => Ok(KeyDirection::Normal),
        "1" => Ok(KeyDirection::Inverse),
        other => Err(one_of(other, &["0", "1"])),
    }
}

fn tls_auth(draft: &mut Draft, directive: &Directive, block: bool) -> Outcome {
    let given = directive.get(1).map(direction).transpose()?;
    draft.tls_auth = Some(source(directive));
    if block {
        // A block's own key does not inherit another key's direction.
        draft.key_direction = given;
    } else if given.is_some() {
        draft.key_direction = given;
    }
    OK
}

fn tls_crypt_v2(draft: &mut Draft, directive: &Directive) -> Outcome {
    draft.force_cookie = match directive.get(1) {
        None => draft.force_cookie,
        Some("force-cookie") => Some(true),
        Some("allow-noncookie") => Some(false),
        Some(other) => return Err(one_of(other, &["force-cookie", "allow-noncookie"])),
    };
    draft.tls_crypt_v2 = Some(source(directive));
    OK
}
