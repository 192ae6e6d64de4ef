//! Directives of servers only.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::value::{
    Outcome, Remark, at, ipv4, ipv6_network, netmask_bits, number, one_of, seconds, source,
};
use super::{Builder, ServerHelper};
use crate::openvpn::directive::Directive;
use crate::openvpn::{AuthToken, Pool, PoolPersist, PoolV6, Rate};

/// Largest pool, as the prefix length of its network, as in stock.
const POOL_BITS_MIN: u8 = 16;

/// Most options of a push list.
const PUSH_MAX: usize = 10_000;

/// Applies a directive of this group.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    let value = at(directive, 0);
    let server = &mut builder.server;
    let result = match directive.name.as_str() {
        "server" => server_helper(directive).map(|helper| builder.server_helper = Some(helper)),
        "server-ipv6" => pool_network(value).map(|net| builder.server_v6_helper = Some(net)),
        "ifconfig-pool" => pool(directive).map(|pool| server.pool = Some(pool)),
        "ifconfig-ipv6-pool" => {
            pool_network(value).map(|(base, bits)| server.pool_v6 = Some(PoolV6 { base, bits }))
        }
        "ifconfig-pool-persist" => directive.get(1).map_or(Ok(600), seconds).map(|seconds| {
            server.pool_persist = Some(PoolPersist {
                path: PathBuf::from(value),
                seconds,
            });
        }),
        "ifconfig-push-constraint" => constraint(directive)
            .map(|constraint| server.ifconfig_push_constraint = Some(constraint)),
        "push" => push(&mut server.push, value),
        "client-config-dir" => {
            server.client_config_dir = Some(PathBuf::from(value));
            Ok(())
        }
        "ccd-exclusive" => {
            server.ccd_exclusive = true;
            Ok(())
        }
        "client-to-client" => {
            server.client_to_client = true;
            Ok(())
        }
        "duplicate-cn" => {
            server.duplicate_cn = true;
            Ok(())
        }
        // Peer ids have 24 bits, and the highest one is reserved.
        "max-clients" => number(value, 1..=0xff_fffe).map(|most| server.max_clients = most),
        "max-routes-per-client" => {
            number(value, 1..=1 << 20).map(|most| server.max_routes_per_client = most)
        }
        "username-as-common-name" => {
            server.username_as_common_name = true;
            Ok(())
        }
        "auth-user-pass-optional" => {
            server.auth_user_pass_optional = true;
            Ok(())
        }
        "auth-user-pass-file" => {
            server.password_file = Some(PathBuf::from(value));
            Ok(())
        }
        "auth-gen-token" => auth_token(builder, directive),
        "auth-gen-token-secret" => {
            let secret = Some(source(directive));
            token(builder).secret = secret;
            Ok(())
        }
        "connect-freq" => rate(directive).map(|rate| server.connect_freq = rate),
        "connect-freq-initial" => rate(directive).map(|rate| {
            let most = Rate {
                count: u32::MAX,
                seconds: 1,
            };
            server.connect_freq_initial = rate.unwrap_or(most);
        }),
        "stale-routes-check" => return Some(stale(directive)),
        "opt-verify" => {
            return Some(Ok(Remark::Ignored(
                "ciphers and framing are negotiated; options that still differ are only logged"
                    .to_owned(),
            )));
        }
        "push-reset" | "push-remove" | "iroute" | "iroute-ipv6" | "ifconfig-push"
        | "ifconfig-ipv6-push" | "disable" => Err(
            "belongs in a file of `client-config-dir` or the output of `client-connect`".to_owned(),
        ),
        _ => return None,
    };
    Some(result.map(|()| Remark::Plain))
}

fn server_helper(directive: &Directive) -> Result<ServerHelper, String> {
    let network = ipv4(at(directive, 0))?;
    let netmask = ipv4(at(directive, 1))?;
    let bits = netmask_bits(netmask)?;
    let cleared = Ipv4Addr::from_bits(network.to_bits() & netmask.to_bits());
    if cleared != network {
        return Err(format!(
            "{network} is not the first address of a network with netmask {netmask}; \
             write {cleared} {netmask}"
        ));
    }
    if !(POOL_BITS_MIN..=29).contains(&bits) {
        return Err("the netmask must be from 255.255.0.0 to 255.255.255.248".to_owned());
    }
    let pool = match directive.get(2) {
        None => true,
        Some("nopool") => false,
        Some(other) => return Err(one_of(other, &["nopool"])),
    };
    Ok(ServerHelper {
        network,
        netmask,
        bits,
        pool,
    })
}

fn pool_network(text: &str) -> Result<(std::net::Ipv6Addr, u8), String> {
    let (network, bits) = ipv6_network(text)?;
    if !(64..=124).contains(&bits) {
        return Err(format!(
            "the network must be between /64 and /124 (not /{bits})"
        ));
    }
    Ok((network, bits))
}

fn pool(directive: &Directive) -> Result<Pool, String> {
    let (start, end) = (ipv4(at(directive, 0))?, ipv4(at(directive, 1))?);
    if start > end {
        return Err(format!(
            "{start} is after {end}; write the smaller address first"
        ));
    }
    if end.to_bits() - start.to_bits() >= 1 << (32 - POOL_BITS_MIN) {
        return Err("more than 65536 addresses; take a smaller range".to_owned());
    }
    Ok(Pool {
        start,
        end,
        netmask: directive.get(2).map(ipv4).transpose()?,
    })
}

fn constraint(directive: &Directive) -> Result<(Ipv4Addr, Ipv4Addr), String> {
    let (network, netmask) = (ipv4(at(directive, 0))?, ipv4(at(directive, 1))?);
    netmask_bits(netmask)?;
    Ok((network, netmask))
}

/// Checks an option for a push list, which is sent separated by commas.
pub(crate) fn pushable(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("pushes nothing".to_owned());
    }
    if text.contains(',') || text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("a pushed option holds no comma and no control character".to_owned());
    }
    Ok(())
}

fn push(list: &mut Vec<String>, text: &str) -> Result<(), String> {
    pushable(text)?;
    if list.len() == PUSH_MAX {
        return Err(format!("more than {PUSH_MAX} pushed options"));
    }
    list.push(text.to_owned());
    Ok(())
}

fn token(builder: &mut Builder) -> &mut AuthToken {
    builder.server.auth_token.get_or_insert(AuthToken {
        lifetime: 0,
        renewal: 0,
        external_auth: false,
        secret: None,
    })
}

fn auth_token(builder: &mut Builder, directive: &Directive) -> Result<(), String> {
    let lifetime = directive.get(0).map_or(Ok(0), seconds)?;
    let token = token(builder);
    token.lifetime = lifetime;
    for (index, text) in directive.values.iter().enumerate().skip(1) {
        match (index, text.as_str()) {
            (_, "external-auth") => token.external_auth = true,
            (1, text) => token.renewal = seconds(text)?,
            (_, other) => return Err(one_of(other, &["external-auth"])),
        }
    }
    Ok(())
}

/// Parses a rate; `None` for no limit, which stock writes as 0.
fn rate(directive: &Directive) -> Result<Option<Rate>, String> {
    let rate = Rate {
        count: seconds(at(directive, 0))?,
        seconds: seconds(at(directive, 1))?,
    };
    Ok((rate.count > 0 && rate.seconds > 0).then_some(rate))
}

fn stale(directive: &Directive) -> Outcome {
    for text in &directive.values {
        number(text, 1..=i32::MAX.unsigned_abs())?;
    }
    Ok(Remark::Ignored(
        "addresses are not learnt from packets, so none gets stale".to_owned(),
    ))
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
