//! Remotes, proxies, packet sizes, and all other directives that `<connection>` may hold.

use super::foreign;
use super::value::{
    OK, Outcome, capped, credentials, host, ignored, note, number, on, one_of, port, prompted, put,
    seconds, set, some, word,
};
use super::{End, Entry, INLINE, LIST, SECRET, Support, flag, here, no, one, skip, yes};
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::{ConnectionDraft, HttpOptions, LocalLine, RawTransport, RemoteLine};
use crate::openvpn::{
    Family, FragmentSize, HttpAuth, HttpProxy, MssFix, Prompted, Proxy, ResolvRetry,
};
use crate::settings::MtuDiscovery;

/// Maximum number of `local` addresses of one server.
const LOCALS_MAX: usize = 64;

/// Maximum number of `http-proxy-option CUSTOM-HEADER`, as in stock.
const HEADERS_MAX: usize = 10;

pub(super) const ROWS: &[Entry] = &[
    Entry::new("connection", 1, 1, Support::Block).is(INLINE | LIST),
    yes("remote", 1, 3, |d, it| {
        d.remotes.push(remote(it)?);
        OK
    })
    .is(LIST)
    .connection(|d, it| {
        d.call(remote(it)?);
        OK
    }),
    flag("remote-random", |d| &mut d.client.remote_random).end(End::IdleInServer),
    flag("remote-random-hostname", |d| {
        &mut d.client.remote_random_hostname
    })
    .end(End::IdleInServer),
    one("resolv-retry", |d, v| {
        d.client.resolv_retry = match v {
            "infinite" => ResolvRetry::Infinite,
            text => ResolvRetry::Seconds(seconds(text)?),
        };
        OK
    })
    .end(End::IdleInServer),
    here("connect-retry", 1, 2, |d, it| {
        d.retry = capped(it.at(0), 0..=0xffff_u32)?;
        if let Some(text) = it.get(1) {
            d.retry_max = capped(text, 0..=86_400)?;
        }
        d.retry_max = d.retry_max.max(d.retry);
        OK
    })
    .end(End::IdleInServer),
    one("connect-retry-max", |d, v| {
        d.client.connect_retry_max = match v {
            "unlimited" | "0" => None,
            text => Some(seconds(text)?),
        };
        OK
    })
    .end(End::IdleInServer)
    // The limit counts rounds over all servers, so that a single server cannot have one.
    .connection(|_, _| {
        ignored(
            "within <connection> it has no effect, in the stock program either; move it out of \
             the block",
        )
    }),
    here("connect-timeout", 1, 1, timeout).end(End::IdleInServer),
    here("server-poll-timeout", 1, 1, timeout).end(End::IdleInServer),
    here("proto", 1, 1, |d, it| {
        (d.transport, d.family) = protocol(it.at(0))?;
        OK
    }),
    one("proto-force", |d, v| {
        d.proto_tcp_forced = match v {
            "tcp-client" => Some(true),
            other => Some(word(other, &[("udp", false), ("tcp", true)])?),
        };
        OK
    }),
    here("local", 1, 3, local).is(LIST),
    here("port", 1, 1, |d, it| {
        let port = port(it.at(0))?;
        (d.local_port, d.remote_port) = (port, port);
        OK
    }),
    here("lport", 1, 1, |d, it| {
        d.local_port = number(it.at(0), 0..=u16::MAX)?;
        on(&mut d.local_port_defined)
    }),
    here("rport", 1, 1, |d, it| {
        set(&mut d.remote_port, port(it.at(0)))
    }),
    here("bind", 0, 1, |d, it| {
        d.bind = true;
        match it.get(0) {
            None => OK,
            Some(text) => set(&mut d.ipv6_only, word(text, &[("ipv6only", true)])),
        }
    }),
    here("nobind", 0, 0, |d, _| on(&mut d.nobind)),
    here("float", 0, 0, |d, _| on(&mut d.float)),
    here("http-proxy", 2, 4, |d, it| {
        some(&mut d.http, http_proxy(it))
    })
    .is(SECRET)
    .foreign(foreign::http_proxy),
    here("http-proxy-option", 1, 3, |d, it| {
        http_option(&mut d.http_options, it)
    })
    .is(LIST),
    yes("http-proxy-user-pass", 1, 1, |d, it| {
        put(&mut d.http_user_pass, prompted(it))
    })
    .is(INLINE)
    .foreign(foreign::proxy_credentials),
    yes("http-proxy-override", 2, 3, |d, it| {
        let auth = match it.get(2) {
            Some("nct") => HttpAuth::AutoNoClearText,
            _ => HttpAuth::Auto,
        };
        let proxy = http(it, auth, Some(Prompted::Ask));
        some(&mut d.http_override, proxy)
    })
    .end(End::IdleInServer),
    skip("http-proxy-retry", "a connection is always tried again"),
    skip("socks-proxy-retry", "a connection is always tried again"),
    skip(
        "http-proxy-timeout",
        "`connect-timeout` holds for proxies too",
    ),
    here("socks-proxy", 1, 3, |d, it| {
        let proxy = Proxy::Socks {
            host: host(it.at(0))?,
            port: it.get(1).map_or(Ok(1080), port)?,
            credentials: it.get(2).map(credentials),
        };
        put(&mut d.socks, proxy)
    })
    .is(SECRET)
    .foreign(foreign::socks_proxy),
    here("tun-mtu", 1, 2, |d, it| {
        // 100 is stock's TUN_MTU_MIN; the kernel itself takes 68.
        let size = |text: &str| number(text, 100..=u16::MAX);
        d.mtu.tun = Some(size(it.at(0))?);
        set(&mut d.mtu.occ, it.get(1).map(size).transpose())
    }),
    here("tun-mtu-max", 1, 2, |d, it| {
        some(&mut d.mtu.tun_max, number(it.at(0), 68..=u16::MAX))
    })
    .end(End::IdleInServer),
    skip("tun-mtu-extra", "no buffer of Millrace depends on it"),
    here("link-mtu", 1, 1, link_mtu),
    here("udp-mtu", 1, 1, link_mtu),
    here("mssfix", 0, 2, |d, it| set(&mut d.mtu.mssfix, mssfix(it))),
    here("fragment", 1, 2, |d, it| {
        let words = it.get(1);
        let of_outer_packet = words.map_or(Ok(false), |it| word(it, &[("mtu", true)]))?;
        d.mtu.fragment = match number(it.at(0), 0..=u16::MAX)? {
            0 => None,
            bytes @ 68.. => Some(FragmentSize {
                bytes,
                of_outer_packet,
            }),
            _ => return Err("needs to be at least 68".to_owned()),
        };
        OK
    }),
    here("max-packet-size", 1, 1, |d, it| {
        let size = number(it.at(0), 0..=u16::MAX)?;
        let held = size.clamp(154, 2048);
        d.mtu.control = Some(held);
        d.mtu.mssfix = Some(MssFix::Mtu(size));
        match held == size {
            true => OK,
            false => note(&format!("{held} is used: the limits are 154 and 2048")),
        }
    }),
    here("mtu-disc", 1, 1, |d, it| {
        some(&mut d.mtu.discovery, word(it.at(0), &MtuDiscovery::NAMES))
    }),
    no("mtu-dynamic", "removed from OpenVPN; write `fragment`"),
    skip(
        "mtu-test",
        "nothing is measured; `mssfix` is enough for TCP",
    ),
    here("explicit-exit-notify", 0, 1, |d, it| {
        let times = it.get(0).map_or(Ok(1), |text| number(text, 0..=u8::MAX));
        set(&mut d.exit_notify, times)
    }),
];

fn remote(directive: &Directive) -> Result<RemoteLine, String> {
    Ok(RemoteLine {
        host: host(directive.at(0))?,
        port: directive.get(1).map(port).transpose()?,
        protocol: directive.get(2).map(protocol).transpose()?,
    })
}

const PROTOCOLS: [(&str, (RawTransport, Family)); 12] = [
    ("udp", (RawTransport::Udp, Family::Any)),
    ("udp4", (RawTransport::Udp, Family::V4)),
    ("udp6", (RawTransport::Udp, Family::V6)),
    ("tcp", (RawTransport::Tcp, Family::Any)),
    ("tcp4", (RawTransport::Tcp, Family::V4)),
    ("tcp6", (RawTransport::Tcp, Family::V6)),
    ("tcp-client", (RawTransport::TcpClient, Family::Any)),
    ("tcp4-client", (RawTransport::TcpClient, Family::V4)),
    ("tcp6-client", (RawTransport::TcpClient, Family::V6)),
    ("tcp-server", (RawTransport::TcpServer, Family::Any)),
    ("tcp4-server", (RawTransport::TcpServer, Family::V4)),
    ("tcp6-server", (RawTransport::TcpServer, Family::V6)),
];

fn protocol(name: &str) -> Result<(RawTransport, Family), String> {
    word(name, &PROTOCOLS)
}

fn local(draft: &mut ConnectionDraft, directive: &Directive) -> Outcome {
    let host = match directive.at(0) {
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

fn timeout(draft: &mut ConnectionDraft, directive: &Directive) -> Outcome {
    set(&mut draft.timeout, capped(directive.at(0), 1..=86_400))
}

fn link_mtu(draft: &mut ConnectionDraft, directive: &Directive) -> Outcome {
    number(directive.at(0), 150..=u16::MAX)?;
    draft.link_mtu = true;
    ignored("the tunnel's MTU is not derived from it; write `tun-mtu`, or `mssfix` for TCP")
}

fn mssfix(directive: &Directive) -> Result<Option<MssFix>, String> {
    let Some(size) = directive.get(0) else {
        return Ok(None);
    };
    let size = number(size, 0..=u16::MAX)?;
    let kinds = [("mtu", MssFix::Mtu(size)), ("fixed", MssFix::Fixed(size))];
    Ok(Some(match (size, directive.get(1)) {
        (0, _) => MssFix::Off,
        (_, None) => MssFix::Link(size),
        (_, Some(kind)) => word(kind, &kinds)?,
    }))
}

/// The HTTP proxy of a directive's first two values.
fn http(
    directive: &Directive,
    auth: HttpAuth,
    credentials: Option<Prompted>,
) -> Result<HttpProxy, String> {
    Ok(HttpProxy {
        host: host(directive.at(0))?,
        port: port(directive.at(1))?,
        auth,
        credentials,
        version: "1.0".to_owned(),
        user_agent: None,
        headers: Vec::new(),
    })
}

fn http_proxy(directive: &Directive) -> Result<HttpProxy, String> {
    let (auth, asked) = match directive.get(2) {
        None => return http(directive, HttpAuth::None, None),
        Some("auto") => (HttpAuth::Auto, Prompted::Ask),
        Some("auto-nct") => (HttpAuth::AutoNoClearText, Prompted::Ask),
        Some(file) => (HttpAuth::Basic, credentials(file)),
    };
    let mut proxy = http(directive, auth, Some(asked))?;
    match directive.get(3) {
        None | Some("basic") => {}
        Some("none") => (proxy.auth, proxy.credentials) = (HttpAuth::None, None),
        Some("digest") => proxy.auth = HttpAuth::Auto,
        Some("ntlm" | "ntlm2") => {
            return Err(
                "NTLM rests on broken ciphers; use `basic` or `auto`, or another proxy".to_owned(),
            );
        }
        Some(other) => return Err(one_of(other, &["none", "basic", "digest"])),
    }
    Ok(proxy)
}

fn http_option(options: &mut HttpOptions, directive: &Directive) -> Outcome {
    let value = |text: &str| -> Result<String, String> {
        if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err("has an empty value or control characters".to_owned());
        }
        Ok(text.to_owned())
    };
    match (directive.at(0), directive.values.len()) {
        ("VERSION", 2) => match directive.at(1) {
            version @ ("1.0" | "1.1") => options.version = Some(version.to_owned()),
            other => return Err(one_of(other, &["1.0", "1.1"])),
        },
        ("AGENT", 2) => options.user_agent = Some(value(directive.at(1))?),
        ("CUSTOM-HEADER" | "EXT1" | "EXT2", 2 | 3) => {
            if options.headers.len() == HEADERS_MAX {
                return Err(format!("more than {HEADERS_MAX} headers"));
            }
            let content = directive.get(2).map(value).transpose()?;
            options.headers.push((value(directive.at(1))?, content));
        }
        (other, _) => {
            let known = ["VERSION v", "AGENT name", "CUSTOM-HEADER name value"];
            return Err(one_of(other, &known));
        }
    }
    OK
}
