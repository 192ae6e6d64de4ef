//! OpenVPN configurations as found in the field.

#![allow(clippy::unwrap_used)]

use std::io;
use std::path::{Path, PathBuf};

use config::openvpn::{Import, OpenVpn, Options, parse_bytes, read};
use config::permissions::Permissions;
use zeroize::Zeroizing;

mod arguments;
mod conflicts;
mod foreign;
mod hostile;
mod model;
mod profiles;

const PROFILES: [&str; 14] = [
    "airvpn",
    "expressvpn",
    "installer",
    "ipvanish",
    "merlin",
    "nordvpn",
    "opnsense",
    "pfsense",
    "pia",
    "protonvpn",
    "surfshark",
    "synology",
    "torguard",
    "windscribe",
];

const SCRIPTS: Options = Options {
    allow_insecure_ciphers: false,
    permissions: Permissions::ALL,
};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/openvpn")
        .join(name)
}

fn profile(name: &str) -> Import {
    read(&path(&format!("{name}.ovpn")), Options::default()).unwrap()
}

fn no_files(_: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    Err(io::ErrorKind::NotFound.into())
}

fn parse(text: &str) -> Import {
    parse_bytes(text.as_bytes(), Path::new("a.ovpn"), &mut no_files, SCRIPTS).unwrap()
}

/// A complete client.
const CLIENT: &str = "client\ndev tun\nremote vpn.example.net\nca ca.crt\nauth-user-pass\n\
    remote-cert-tls server\n";

/// A complete server.
const SERVER: &str = "dev tun\nserver 10.8.0.0 255.255.255.0\nca ca.crt\ncert s.crt\nkey s.key\n";

fn with(base: &str, lines: &str) -> Import {
    parse(&format!("{base}{lines}\n"))
}

fn built(base: &str, lines: &str) -> OpenVpn {
    match with(base, lines).into_model() {
        Ok((model, _)) => model,
        Err(error) => panic!("{lines}: {error}"),
    }
}
