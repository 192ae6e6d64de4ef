//! Directives of servers only, and of one client of a server.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use super::foreign;
use super::value::{
    OK, Outcome, ignored, ipv4, ipv4_network, ipv6, ipv6_network, ipv6_network_or_host,
    netmask_bits, note, number, on, put, seconds, set, some, time, word,
};
use super::{End, Entry, KERNEL, LIST, SECRET, WEAKENING, file, flag, no, one, path, skip, yes};
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::{Draft, ServerHelper};
use crate::openvpn::{
    AuthToken, ClientCertificate, ClientSettings, Ifconfig, IfconfigV6, Pool, PoolPersist, PoolV6,
    PushChange, Rate,
};

/// Largest pool, as the prefix length of its network, as in stock.
const POOL_BITS_MIN: u8 = 16;

/// Maximum number of options of a push list, and of lines of one kind in the settings of one client.
const LINES_MAX: usize = 10_000;

pub(super) const ROWS: &[Entry] = &[
    yes("server", 2, 3, |d, it| {
        some(&mut d.server_helper, server_helper(it))
    }),
    one("server-ipv6", |d, v| {
        some(&mut d.server_v6_helper, pool_network(v))
    }),
    yes("ifconfig-pool", 2, 3, |d, it| {
        some(&mut d.server.pool, pool(it))
    })
    .end(End::Server),
    yes("ifconfig-pool-persist", 1, 2, |d, it| {
        let seconds = it.get(1).map_or(Ok(600), seconds)?;
        let path = PathBuf::from(it.at(0));
        put(&mut d.server.pool_persist, PoolPersist { path, seconds })
    })
    .end(End::Server)
    .foreign(foreign::written),
    skip(
        "ifconfig-pool-linear",
        "removed from OpenVPN 2.5; `topology p2p` says the same",
    ),
    one("ifconfig-ipv6-pool", |d, v| {
        let (base, bits) = pool_network(v)?;
        put(&mut d.server.pool_v6, PoolV6 { base, bits })
    })
    .end(End::Server),
    one("push", |d, v| {
        let list = &mut d.server.push;
        pushable(v)?;
        if list.len() == LINES_MAX {
            return Err(format!("more than {LINES_MAX} pushed options"));
        }
        list.push(v.to_owned());
        OK
    })
    .is(LIST)
    .end(End::IdleInClient)
    .client(|settings, it| change(settings, it, PushChange::Add)),
    of_client("push-reset", 0, 0, |settings, _| {
        settings.push_reset = true;
        // `push-reset` also drops earlier `push` lines of this file, as in stock.
        settings.push.clear();
        OK
    }),
    of_client("push-remove", 1, 1, |settings, it| {
        change(settings, it, PushChange::Remove)
    }),
    of_client("iroute", 1, 2, |settings, it| {
        add(&mut settings.iroutes, || ipv4_network(it.at(0), it.get(1)))
    }),
    of_client("iroute-ipv6", 1, 1, |settings, it| {
        add(&mut settings.iroutes_v6, || ipv6_network_or_host(it.at(0)))
    }),
    of_client("ifconfig-push", 2, 3, |settings, it| {
        let (local, second) = (ipv4(it.at(0))?, ipv4(it.at(1))?);
        settings.ifconfig_push = Some(Ifconfig { local, second });
        let alias = it.get(2).map(ipv4).transpose();
        set(&mut settings.ifconfig_push_alias, alias)
    }),
    of_client("ifconfig-ipv6-push", 1, 2, |settings, it| {
        let (local, bits) = match it.at(0).contains('/') {
            true => ipv6_network(it.at(0))?,
            false => (ipv6(it.at(0))?, 64),
        };
        let remote = it.get(1).map(ipv6).transpose()?;
        let push = IfconfigV6 {
            local,
            bits,
            remote,
        };
        put(&mut settings.ifconfig_v6_push, push)
    }),
    yes("ifconfig-push-constraint", 2, 2, |d, it| {
        let (network, netmask) = (ipv4(it.at(0))?, ipv4(it.at(1))?);
        netmask_bits(netmask)?;
        put(&mut d.server.ifconfig_push_constraint, (network, netmask))
    })
    .end(End::Server),
    of_client("disable", 0, 0, |settings, _| on(&mut settings.disable)),
    path("client-config-dir", |d| &mut d.server.client_config_dir).end(End::Server),
    flag("ccd-exclusive", |d| &mut d.server.ccd_exclusive).end(End::Server),
    flag("client-to-client", |d| &mut d.server.client_to_client).end(End::Server),
    flag("duplicate-cn", |d| &mut d.server.duplicate_cn)
        .end(End::Server)
        .is(WEAKENING),
    // Peer ids have 24 bits, and the highest one is reserved.
    one("max-clients", |d, v| {
        set(&mut d.server.max_clients, number(v, 1..=0xff_fffe))
    })
    .end(End::IdleInClient),
    one("max-routes-per-client", |d, v| {
        set(&mut d.server.max_routes_per_client, routes(v))
    })
    .end(End::IdleInClient)
    .client(|settings, it| some(&mut settings.max_routes, routes(it.at(0)))),
    yes("verify-client-cert", 0, 1, |d, it| {
        d.tls.client_certificate = match it.get(0) {
            None => ClientCertificate::Require,
            Some("optional") => ClientCertificate::Optional,
            Some("none") => ClientCertificate::None,
            // Hints do not name values that weaken security.
            Some(other) => word(other, &[("require", ClientCertificate::Require)])?,
        };
        OK
    })
    .end(End::Server),
    yes("client-cert-not-required", 0, 0, |d, _| {
        d.tls.client_certificate = ClientCertificate::None;
        note("the old name of `verify-client-cert none`")
    })
    .end(End::Server)
    .is(WEAKENING),
    flag("username-as-common-name", |d| {
        &mut d.server.username_as_common_name
    })
    .end(End::Server),
    no(
        "override-username",
        "a client's name cannot be overridden; remove the line, or let the verify script set common names",
    ),
    flag("auth-user-pass-optional", |d| {
        &mut d.server.auth_user_pass_optional
    })
    .end(End::Server)
    .is(WEAKENING),
    path("auth-user-pass-file", |d| &mut d.server.password_file)
        .end(End::Server)
        .is(SECRET),
    yes("auth-gen-token", 0, 3, auth_token).end(End::Server),
    file("auth-gen-token-secret", |d| &mut token(d).secret)
        .end(End::IdleInClient)
        .is(SECRET),
    yes("connect-freq", 2, 2, |d, it| {
        set(&mut d.server.connect_freq, rate(it))
    })
    .end(End::Server),
    yes("connect-freq-initial", 2, 2, |d, it| {
        let (count, seconds) = (u32::MAX, 1);
        let most = Rate { count, seconds };
        d.server.connect_freq_initial = rate(it)?.unwrap_or(most);
        OK
    })
    .end(End::IdleInClient),
    yes("stale-routes-check", 1, 2, |_, it| {
        for text in &it.values {
            number(text, 1..=i32::MAX.unsigned_abs())?;
        }
        ignored("not needed: addresses are not learnt from packets")
    })
    .end(End::Server),
    yes("opt-verify", 0, 0, |_, _| {
        ignored("ciphers and framing are negotiated; options that still differ are only logged")
    })
    .end(End::Server),
    skip(
        "tcp-queue-limit",
        "the queue to a client is limited by its socket's buffer; set `sndbuf`",
    ),
    skip("bcast-buffers", KERNEL),
    skip("hash-size", KERNEL),
    no(
        "port-share",
        "sharing a port with a web server is not supported; use sslh or HAProxy in front, or another port",
    ),
];

/// A directive that only the settings of one client have.
const fn of_client(name: &'static str, min: usize, max: usize, client: super::OfClient) -> Entry {
    let wrong = |_: &mut Draft, _: &Directive| {
        Err("belongs in a file of `client-config-dir` or the output of `client-connect`".to_owned())
    };
    yes(name, min, max, wrong).client(client)
}

fn server_helper(directive: &Directive) -> Result<ServerHelper, String> {
    let (network, netmask) = (ipv4(directive.at(0))?, ipv4(directive.at(1))?);
    let (_, bits) = ipv4_network(directive.at(0), directive.get(1))?;
    if !(POOL_BITS_MIN..=29).contains(&bits) {
        return Err("the netmask must be from 255.255.0.0 to 255.255.255.248".to_owned());
    }
    let pool = directive.get(2);
    let pool = pool.map_or(Ok(true), |it| word(it, &[("nopool", false)]))?;
    Ok(ServerHelper {
        network,
        netmask,
        bits,
        pool,
    })
}

fn pool_network(text: &str) -> Result<(Ipv6Addr, u8), String> {
    let (network, bits) = ipv6_network(text)?;
    if !(64..=124).contains(&bits) {
        return Err(format!(
            "the network must be between /64 and /124 (not /{bits})"
        ));
    }
    Ok((network, bits))
}

fn pool(directive: &Directive) -> Result<Pool, String> {
    let (start, end) = (ipv4(directive.at(0))?, ipv4(directive.at(1))?);
    if start > end {
        return Err(format!(
            "{start} is above {end}; write the lower address first"
        ));
    }
    if end.to_bits() - start.to_bits() >= 1 << (32 - POOL_BITS_MIN) {
        return Err("more than 65536 addresses; take a smaller range".to_owned());
    }
    let netmask: Option<Ipv4Addr> = directive.get(2).map(ipv4).transpose()?;
    Ok(Pool {
        start,
        end,
        netmask,
    })
}

fn routes(value: &str) -> Result<u32, String> {
    number(value, 1..=1 << 20)
}

/// Checks an option for a push list, which is sent separated by commas.
fn pushable(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("pushes nothing".to_owned());
    }
    if text.contains(',') || text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("a pushed option must not contain a comma or control character".to_owned());
    }
    Ok(())
}

/// Changes the push list of one client.
fn change(
    settings: &mut ClientSettings,
    directive: &Directive,
    change: fn(String) -> PushChange,
) -> Outcome {
    pushable(directive.at(0))?;
    add(&mut settings.push, || {
        Ok(change(directive.at(0).to_owned()))
    })
}

fn add<T>(list: &mut Vec<T>, line: impl FnOnce() -> Result<T, String>) -> Outcome {
    if list.len() >= LINES_MAX {
        return Err(format!("more than {LINES_MAX} lines of this kind"));
    }
    list.push(line()?);
    OK
}

fn token(draft: &mut Draft) -> &mut AuthToken {
    draft.server.auth_token.get_or_insert_default()
}

fn auth_token(draft: &mut Draft, directive: &Directive) -> Outcome {
    let lifetime = directive.get(0).map_or(Ok(None), time)?;
    let token = token(draft);
    token.lifetime = lifetime;
    for (index, text) in directive.values.iter().enumerate().skip(1) {
        match (index, text.as_str()) {
            (1, text) if text != "external-auth" => token.renewal = time(text)?.unwrap_or_default(),
            (_, text) => token.external_auth = word(text, &[("external-auth", true)])?,
        }
    }
    OK
}

/// Parses a rate; `None` for no limit, which stock writes as 0.
fn rate(directive: &Directive) -> Result<Option<Rate>, String> {
    let (count, seconds) = (seconds(directive.at(0))?, seconds(directive.at(1))?);
    Ok((count > 0 && seconds > 0).then_some(Rate { count, seconds }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushed_options_stay_one_option() {
        assert!(pushable("route 10.0.0.0 255.0.0.0").is_ok());
        assert!(pushable("").is_err() && pushable("a,b").is_err() && pushable("a\nb").is_err());
    }
}
