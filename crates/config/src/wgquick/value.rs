//! Keys of a `wg-quick` file, and the grammar of their values.

use std::net::IpAddr;

use zeroize::Zeroizing;

use super::{Verdicted, shown};
use crate::tunnel::{Interface, Peer, Scripts, Table};
use crate::types::{AllowedIp, Endpoint, Host, InterfaceAddr, Key32, decimal};

/// Keys of `[Interface]`.
pub(super) const INTERFACE_KEYS: [&str; 12] = [
    "PrivateKey",
    "ListenPort",
    "FwMark",
    "Address",
    "DNS",
    "MTU",
    "Table",
    "SaveConfig",
    "PreUp",
    "PostUp",
    "PreDown",
    "PostDown",
];

/// Keys of `[Peer]`.
pub(super) const PEER_KEYS: [&str; 5] = [
    "PublicKey",
    "PresharedKey",
    "AllowedIPs",
    "Endpoint",
    "PersistentKeepalive",
];

/// Keys whose values are shell commands.
pub(super) const SCRIPT_KEYS: [&str; 4] = ["PreUp", "PostUp", "PreDown", "PostDown"];

/// Keys that can be left out without a change of the tunnel's destination, peers or keys.
pub(super) const DISPENSABLE_KEYS: [&str; 5] = [
    "ListenPort",
    "MTU",
    "DNS",
    "SaveConfig",
    "PersistentKeepalive",
];

/// Keys that `wg-quick` accepts with an empty value, as some programs write them. Such a line counts as missing.
pub(super) const MAY_BE_EMPTY: [&str; 8] = [
    "Address", "DNS", "MTU", "Table", "PreUp", "PostUp", "PreDown", "PostDown",
];

/// Keys whose lines add up; later lines of all other keys replace earlier ones.
pub(super) const LIST_KEYS: [&str; 3] = ["Address", "DNS", "AllowedIPs"];

/// The usual spelling of a key that is written in any case.
pub(super) fn canonical(key: &str) -> Option<&'static str> {
    let mut known = INTERFACE_KEYS.iter().chain(&PEER_KEYS);
    known.find(|name| name.eq_ignore_ascii_case(key)).copied()
}

/// Why another program's key can be ignored without harm; `None` for all other keys.
pub(super) fn harmless(key: &str) -> Option<&'static str> {
    ["IncludedApplications", "ExcludedApplications"]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(key))
        .then_some("chooses apps on Android; there are none here")
}

/// True for keys with which AmneziaWG disguises its packets.
pub(super) fn is_amnezia(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let numbered = |letters: &str| {
        let digit = key.strip_prefix(|c| letters.contains(c));
        digit.is_some_and(|rest| rest.len() == 1 && decimal(rest).is_some())
    };
    matches!(key.as_str(), "jc" | "jmin" | "jmax" | "itime") || numbered("shij")
}

/// Sets a key of `[Interface]`, except the script keys.
pub(super) fn interface(interface: &mut Interface, name: &str, value: &str) -> Verdicted {
    let mut remark = String::new();
    match name {
        "PrivateKey" => {
            let key = key(value)?;
            if key.is_zero() {
                return Err("an all-zero key is none; `wg genkey` makes one".to_owned());
            }
            interface.private_key = Some(key);
        }
        "ListenPort" => {
            let port = small(&compact(value), u16::MAX.into());
            let port = port.ok_or("must be a number from 0 to 65535; 0 lets the kernel choose")?;
            interface.listen_port = u16::try_from(port).ok();
        }
        "FwMark" => {
            let mark = off_or(&compact(value), |text| number(text, u32::MAX.into()));
            let mark = mark.ok_or("must be `off` or a number up to 0xffffffff")?;
            interface.fwmark = u32::try_from(mark).ok();
        }
        "Address" => {
            for text in words(value) {
                let address: InterfaceAddr = parsed(text)?;
                if !interface.addresses.contains(&address) {
                    interface.addresses.push(address);
                }
            }
        }
        "DNS" => {
            for text in words(value) {
                dns(interface, text)?;
            }
        }
        "MTU" => {
            let mtu = small(value, 65535).filter(|&mtu| mtu >= 68);
            let mtu = mtu.ok_or("must be a number of bytes from 68 to 65535")?;
            if mtu < 1280 {
                remark = "below 1280 bytes there is no IPv6 inside the tunnel".to_owned();
            }
            interface.mtu = u32::try_from(mtu).ok();
        }
        "Table" => interface.table = table(value)?,
        "SaveConfig" => {
            interface.save_config = match value {
                _ if value.eq_ignore_ascii_case("true") => true,
                _ if value.eq_ignore_ascii_case("false") => false,
                _ => return Err("must be `true` or `false`".to_owned()),
            };
        }
        _ => return Err("not a key of [Interface]".to_owned()),
    }
    Ok(remark)
}

/// Handles a key of [`MAY_BE_EMPTY`] without a value: unsets an earlier line's value, except for keys whose lines add
/// up.
pub(super) fn clear(interface: &mut Interface, name: &str) {
    match name {
        "MTU" => interface.mtu = None,
        "Table" => interface.table = Table::Auto,
        _ => {}
    }
}

/// Sets a key of `[Peer]` that does not depend on other peers.
pub(super) fn peer(peer: &mut Peer, name: &str, value: &str) -> Verdicted {
    let mut remark = String::new();
    match name {
        "PresharedKey" => peer.preshared_key = Some(key(value)?),
        "Endpoint" => {
            let text = compact(value);
            let endpoint = Endpoint::from_wg(&text);
            let endpoint = endpoint.map_err(|why| format!("`{}`: {why}", shown(&text)))?;
            if matches!(endpoint.host, Host::Ip(IpAddr::V6(_)) | Host::Scoped(..))
                && !text.starts_with('[')
            {
                remark = format!("taken as {endpoint}, as `wg` does");
            }
            if matches!(endpoint.host, Host::Name(_)) {
                remark = "the name is looked up when the tunnel comes up".to_owned();
            }
            peer.endpoint = Some(endpoint);
        }
        "PersistentKeepalive" => {
            let seconds = off_or(&compact(value), |text| small(text, u16::MAX.into()));
            let seconds = seconds.ok_or("must be `off` or a number of seconds up to 65535")?;
            peer.persistent_keepalive = u16::try_from(seconds).ok();
        }
        _ => return Err("not a key of [Peer]".to_owned()),
    }
    Ok(remark)
}

/// Adds a shell command.
pub(super) fn script(scripts: &mut Scripts, name: &str, value: &str) {
    let list = match name {
        "PreUp" => &mut scripts.pre_up,
        "PostUp" => &mut scripts.post_up,
        "PreDown" => &mut scripts.pre_down,
        _ => &mut scripts.post_down,
    };
    list.push(value.to_owned());
}

/// Parses a key in base64. `wg` accepts white space anywhere in it.
pub(crate) fn key(value: &str) -> Result<Key32, String> {
    Key32::from_base64(&compact(value)).map_err(|why| why.to_string())
}

/// Parses the ranges of an `AllowedIPs` line, each with a remark if it was changed.
pub(super) fn ranges(
    value: &str,
) -> impl Iterator<Item = Result<(AllowedIp, Option<String>), String>> + '_ {
    value.split(',').map(|text| {
        let text = compact(text);
        if text.is_empty() {
            return Err("an empty entry between commas; remove a comma".to_owned());
        }
        if text.starts_with(['+', '-']) {
            return Err(format!(
                "`{}`: `+` and `-` change a running interface; a file holds plain ranges",
                shown(&text)
            ));
        }
        let range: AllowedIp = parsed(&text)?;
        let given: InterfaceAddr = parsed(&text)?;
        let masked = given.addr != range.addr();
        let remark = masked.then(|| format!("{given} is taken as the network {range}"));
        Ok((range, remark))
    })
}

fn dns(interface: &mut Interface, text: &str) -> Result<(), String> {
    let is_address = text.contains(':') || text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is_address {
        let server: IpAddr = text
            .parse()
            .map_err(|_| format!("`{}` is no address of a name server", shown(text)))?;
        if !interface.dns.contains(&server) {
            interface.dns.push(server);
        }
        return Ok(());
    }
    // The word goes into the resolver's configuration: only a domain may pass.
    let domain = text.strip_prefix('~').unwrap_or(text);
    let fits = (1..=253).contains(&domain.len())
        // A leading dash would make it an option of the resolver's program.
        && !domain.starts_with('-')
        && domain
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !fits {
        return Err(format!(
            "`{}` is neither an address nor a search domain",
            shown(text)
        ));
    }
    if !interface.dns_search.iter().any(|known| known == text) {
        interface.dns_search.push(text.to_owned());
    }
    Ok(())
}

fn table(value: &str) -> Result<Table, String> {
    Ok(match value.to_ascii_lowercase().as_str() {
        "auto" => Table::Auto,
        "off" => Table::Off,
        // Table names that every kernel knows; others depend on /etc/iproute2.
        "local" => Table::Id(255),
        "main" => Table::Id(254),
        "default" => Table::Id(253),
        text => number(text, u32::MAX.into())
            .filter(|&id| id != 0)
            .and_then(|id| u32::try_from(id).ok())
            .map(Table::Id)
            .ok_or("must be `auto`, `off` or the number of a routing table")?,
    })
}

/// The value without white space, as `wg` reads it. It may be a key.
pub(crate) fn compact(value: &str) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(value.len()));
    text.extend(value.chars().filter(|c| !c.is_whitespace()));
    text
}

/// Entries of a list, separated by commas or white space.
fn words(value: &str) -> impl Iterator<Item = &str> {
    let separator = |c: char| c == ',' || c.is_whitespace();
    value.split(separator).filter(|word| !word.is_empty())
}

pub(crate) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    text: &str,
) -> Result<T, String> {
    text.parse()
        .map_err(|why| format!("`{}`: {why}", shown(text)))
}

fn small(text: &str, max: u64) -> Option<u64> {
    decimal(text).filter(|&n| n <= max)
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn number(text: &str, max: u64) -> Option<u64> {
    let value = match text.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()?
        }
        Some(_) => return None,
        None => decimal(text)?,
    };
    (value <= max).then_some(value)
}

fn off_or(text: &str, number: impl FnOnce(&str) -> Option<u64>) -> Option<u64> {
    if text.eq_ignore_ascii_case("off") {
        return Some(0);
    }
    number(text)
}
