//! Keys, addresses and peers as options, named as in OpenWrt's WireGuard protocol.

use super::options::Options;
use super::{Fault, Source};
use crate::uci::{Package, Section};
use config::clients::is_name;
use config::tunnel::{Interface, Peer, Table, Tunnel};
use config::types::{AllowedIp, Endpoint, InterfaceAddr, Key32};

/// WireGuard's default port.
const PORT: u32 = 51820;

/// Maximum number of peers of one interface.
const PEERS_MAX: usize = 4096;

/// Options of a peer.
const PEER: [&str; 10] = [
    "description",
    "disabled",
    "public_key",
    "private_key",
    "preshared_key",
    "allowed_ips",
    "endpoint_host",
    "endpoint_port",
    "persistent_keepalive",
    "route_allowed_ips",
];

/// Reads the options of an interface, and the sections of its peers.
pub(super) fn read(
    package: &Package,
    interface: &str,
    options: &mut Options<'_>,
) -> Option<Source> {
    if options.text("private_key").is_none() {
        let words = "is missing; set it, or config_file";
        options.refuse("private_key", words);
    }
    let private_key = options.parsed("private_key", key);
    let listen_port = options.number("listen_port", 0..=65535);
    let fwmark = options.parsed("fwmark", mark);
    let mut addresses = Vec::new();
    for text in options.values("addresses") {
        match text.parse::<InterfaceAddr>() {
            Ok(address) => addresses.push(address),
            Err(error) => options.refuse("addresses", &error.to_string()),
        }
    }
    let mut tunnel = Tunnel {
        interface: Interface {
            private_key,
            listen_port: listen_port.map(|it| it as u16),
            fwmark,
            addresses,
            table: Table::Auto,
            ..Interface::default()
        },
        ..Tunnel::default()
    };
    #[cfg(feature = "amnezia")]
    super::amnezia::read(&mut tunnel.interface, options);
    let mut unrouted = Vec::new();
    let kind = format!("millrace_{interface}");
    for (index, section) in package.of_kind(&kind).enumerate() {
        let name = format!("@{kind}[{index}]");
        let name = section.name.as_ref().unwrap_or(&name);
        if tunnel.peers.len() == PEERS_MAX {
            let words = format!("peers after the first {PEERS_MAX} are ignored");
            options.warnings.push(Fault {
                line: section.line,
                section: name.clone(),
                option: None,
                words,
            });
            break;
        }
        let mut own = Options::new(section, name);
        own.warn_of_others(&PEER);
        if own.flag("disabled", false) {
            continue;
        }
        let peer = peer(section, &mut own);
        let peer = peer.filter(|peer| {
            let mut others = tunnel.peers.iter();
            let twice = others.any(|it| it.public_key == peer.public_key);
            if twice {
                own.refuse(
                    "public_key",
                    "is also another peer's; each peer needs its own key",
                );
            }
            !twice
        });
        let routed = own.flag("route_allowed_ips", false);
        // A faulty peer does not affect the others.
        options.warnings.append(&mut own.warnings);
        if !own.faults.is_empty() {
            options.warnings.append(&mut own.faults);
            continue;
        }
        if let Some(peer) = peer {
            if !routed {
                unrouted.push(peer.public_key.clone());
            }
            tunnel.peers.push(peer);
        }
    }
    Some(Source::Options {
        tunnel: Box::new(tunnel),
        unrouted,
    })
}

fn peer(section: &Section, options: &mut Options<'_>) -> Option<Peer> {
    if section.setting("public_key").is_none() {
        options.refuse("public_key", "is missing");
    }
    let public_key = options.parsed("public_key", key);
    let preshared_key = options.parsed("preshared_key", key);
    let mut allowed_ips = Vec::new();
    for text in options.values("allowed_ips") {
        match text.parse::<AllowedIp>() {
            Ok(range) if allowed_ips.contains(&range) => {}
            Ok(range) => allowed_ips.push(range),
            Err(error) => options.refuse("allowed_ips", &error.to_string()),
        }
    }
    let port = options.number("endpoint_port", 1..=65535).unwrap_or(PORT);
    let endpoint = options.parsed("endpoint_host", |host| endpoint(host, port));
    let keepalive = options.text("persistent_keepalive").map(|text| {
        let seconds = config::keepalive(text);
        if seconds.is_none() {
            let words = "must be seconds up to 65535, or a range such as `22-30`";
            options.warn("persistent_keepalive", words);
        }
        seconds
    });
    let name = options.text("description");
    Some(Peer {
        name: name.filter(|it| is_name(it)).map(Into::into),
        public_key: public_key?,
        preshared_key: preshared_key.filter(|it| !it.is_zero()),
        allowed_ips,
        endpoint,
        persistent_keepalive: keepalive.flatten(),
        ..Peer::default()
    })
}

fn endpoint(host: &str, port: u32) -> Result<Endpoint, String> {
    let text = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    text.parse().map_err(|error| format!("{error}"))
}

fn key(text: &str) -> Result<Key32, String> {
    Key32::from_base64(text.trim()).map_err(|error| error.to_string())
}

fn mark(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "must be a 32-bit number".to_owned())
}
