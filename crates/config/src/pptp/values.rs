//! Parses single values.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use super::{Auth, Mppe, MppeMode, POOL_MAX, PORT};
use crate::types::{AllowedIp, is_ifname};

/// Accepts a text that is not empty.
pub(super) fn filled(text: &str) -> Result<&str, String> {
    match text {
        "" => Err("is empty".to_owned()),
        _ => Ok(text),
    }
}

pub(super) fn interface(text: &str) -> Result<String, String> {
    match is_ifname(text) {
        true => Ok(text.to_owned()),
        false => Err("an interface name has 1 to 15 letters, digits and _=+.-".to_owned()),
    }
}

/// MPPE with keys of 128 bits, a new one for each packet.
pub(super) fn strongest() -> Mppe {
    Mppe::Required {
        bits: vec![128],
        mode: MppeMode::Stateless,
    }
}

/// Parses words separated by commas: `required`, key lengths, `stateless`, `stateful`; or `none`.
pub(super) fn mppe(text: &str) -> Result<Mppe, String> {
    let (mut bits, mut stateless, mut stateful) = (Vec::new(), false, false);
    let mut without = Vec::new();
    let words = text.split(',').map(str::trim);
    if text.trim() == "none" {
        return Ok(Mppe::None);
    }
    for word in words {
        match word {
            "required" => {}
            "128" => bits.push(128),
            "56" => bits.push(56),
            "40" => bits.push(40),
            // Spellings of pppd and OpenWrt.
            "no128" => without.push(128),
            "no56" => without.push(56),
            "no40" => without.push(40),
            "stateless" => stateless = true,
            "stateful" => stateful = true,
            "optional" => {
                return Err(
                    "\"optional\" is not supported, as an attacker could switch encryption off; write \"128,stateless\""
                        .to_owned(),
                );
            }
            _ => return Err("write \"128,stateless\"".to_owned()),
        }
    }
    if bits.is_empty() {
        // Use the longest permitted key.
        let longest = [128, 56, 40].into_iter().find(|it| !without.contains(it));
        bits.extend(longest);
    }
    bits.retain(|it| !without.contains(it));
    if bits.is_empty() {
        return Err("no key length is left; remove no128".to_owned());
    }
    let mode = match (stateless, stateful) {
        (_, false) => MppeMode::Stateless,
        (true, true) => MppeMode::Either,
        (false, true) => MppeMode::Stateful,
    };
    Ok(Mppe::Required { bits, mode })
}

/// Parses words separated by commas: `mschapv2`, `chap`, `pap`.
pub(super) fn auth(text: &str, mppe: &Mppe) -> Result<Vec<Auth>, String> {
    let mut found = Vec::new();
    for word in text.split(',').map(str::trim) {
        let auth = match word {
            "mschapv2" => Auth::MsChapV2,
            "chap" => Auth::Chap,
            "pap" => Auth::Pap,
            _ => {
                return Err("write mschapv2; separate several words with commas".to_owned());
            }
        };
        if auth != Auth::MsChapV2 && *mppe != Mppe::None {
            return Err(format!(
                "encryption needs mschapv2, as {word} makes no keys; write only mschapv2"
            ));
        }
        if !found.contains(&auth) {
            found.push(auth);
        }
    }
    Ok(found)
}

/// Parses `HOST` or `HOST:PORT`.
pub(super) fn server(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.rsplit_once(':') {
        None => (text, PORT),
        Some((host, port)) => {
            let port = port.parse().ok().filter(|&port| port != 0);
            let port = port.ok_or("write HOST or HOST:PORT; PPTP has no IPv6")?;
            (host, port)
        }
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == ':') {
        return Err("write HOST or HOST:PORT; PPTP has no IPv6".to_owned());
    }
    Ok((host.to_owned(), port))
}

/// Parses `ADDRESS` or `ADDRESS:PORT`.
pub(super) fn listen(text: &str) -> Result<SocketAddrV4, String> {
    let address = text.parse::<Ipv4Addr>();
    let address = address.map(|address| SocketAddrV4::new(address, PORT));
    address.or_else(|_| text.parse()).map_err(|_| {
        "write an IPv4 address of this host, 0.0.0.0 for all, perhaps with :PORT".to_owned()
    })
}

pub(super) fn ipv4(text: &str) -> Result<Ipv4Addr, String> {
    text.parse().map_err(|_| "write IPv4 addresses".to_owned())
}

pub(super) fn route(text: &str) -> Result<AllowedIp, String> {
    let route: AllowedIp = text
        .parse()
        .map_err(|_| "write IPv4 networks: 10.0.0.0/8".to_owned())?;
    match (route.addr(), route.prefix()) {
        (IpAddr::V6(_), _) => Err("this tunnel carries only IPv4".to_owned()),
        (_, 0) => Err("write default-route = true for all of IPv4".to_owned()),
        _ => Ok(route),
    }
}

/// Parses an address and its prefix length.
pub(super) fn network(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let parts = text.split_once('/');
    let parts = parts.and_then(|(address, bits)| Some((address.parse().ok()?, bits.parse().ok()?)));
    parts
        .filter(|(_, bits)| (8..=30).contains(bits))
        .filter(|network| inside(network.0, *network))
        .ok_or_else(|| "write an address and its network, of 8 to 30 bits: 10.0.0.1/24".to_owned())
}

/// First and last address of a network.
fn ends((address, bits): (Ipv4Addr, u8)) -> (u32, u32) {
    let hosts = u32::MAX >> bits;
    let number = u32::from(address);
    (number & !hosts, number | hosts)
}

/// Whether an address is a usable host address of a network.
fn inside(address: Ipv4Addr, network: (Ipv4Addr, u8)) -> bool {
    let (first, last) = ends(network);
    (first + 1..last).contains(&u32::from(address))
}

/// Prefix length of the smallest network that holds all these addresses; a small network's if there is none.
pub(super) fn common_bits(address: Ipv4Addr, others: &[Ipv4Addr]) -> u8 {
    let holds = |bits: &u8| {
        let mut all = others.iter().chain([&address]);
        all.all(|&one| inside(one, (address, *bits)))
    };
    (8..=30).rev().find(holds).unwrap_or(24)
}

/// The other host addresses of a network, from the lowest on, up to the limit.
pub(super) fn others(network: (Ipv4Addr, u8)) -> Vec<Ipv4Addr> {
    let (first, last) = ends(network);
    let all = (first + 1..last).map(Ipv4Addr::from);
    let all = all.filter(|&address| address != network.0);
    all.take(POOL_MAX).collect()
}

/// Parses `FIRST-LAST`, both in the network.
pub(super) fn pool(text: &str, network: (Ipv4Addr, u8)) -> Result<Vec<Ipv4Addr>, String> {
    let ends = text.split_once('-');
    let ends = ends.and_then(|(first, last)| {
        let first: Ipv4Addr = first.trim().parse().ok()?;
        let last: Ipv4Addr = last.trim().parse().ok()?;
        (first <= last).then_some((first, last))
    });
    let Some((first, last)) = ends else {
        return Err("write the first and the last address: 10.0.0.10-10.0.0.99".to_owned());
    };
    if !inside(first, network) || !inside(last, network) {
        return Err("must be inside the network of `address`".to_owned());
    }
    let all = (u32::from(first)..=u32::from(last)).map(Ipv4Addr::from);
    let all = all.filter(|&address| address != network.0);
    let all: Vec<Ipv4Addr> = all.take(POOL_MAX + 1).collect();
    match all.len() {
        0 => Err("contains only the server's own address".to_owned()),
        1..=POOL_MAX => Ok(all),
        _ => Err(format!("has more than {POOL_MAX} addresses")),
    }
}
