//! Configurations and files for the tests of this crate.

use config::openvpn::{OpenVpn, Options, parse_bytes};
use config::permissions::Permissions;
use std::fs;
use std::path::{Path, PathBuf};

/// Parses a configuration; it may name files and scripts.
pub(crate) fn config(text: &str) -> OpenVpn {
    let mut none = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let options = Options {
        permissions: Permissions::ALL,
        ..Options::default()
    };
    let import = parse_bytes(text.as_bytes(), Path::new("a.ovpn"), &mut none, options);
    import.unwrap().into_model().unwrap().0
}

/// A client's configuration with `more` lines.
pub(crate) fn client(more: &str) -> OpenVpn {
    let ca = certificate("p256/ca.crt");
    let ca = ca.display();
    config(&format!(
        "client\ndev tun\nremote vpn.example\nca {ca}\nremote-cert-tls server\n{more}\n"
    ))
}

/// A server's configuration with `more` lines.
#[cfg(feature = "server")]
pub(crate) fn server(more: &str) -> OpenVpn {
    let file = |name| certificate(name).display().to_string();
    let [ca, cert, key] = ["p256/ca.crt", "p256/server.crt", "p256/server.key"].map(file);
    config(&format!(
        "dev tun\ntopology subnet\nserver 10.8.0.0 255.255.255.0\ndh none\n\
         ca {ca}\ncert {cert}\nkey {key}\n{more}\n"
    ))
}

/// A file of the certificates that the protocol's own tests use.
pub(crate) fn certificate(name: &str) -> PathBuf {
    protocol().join("certs").join(name)
}

/// A block with a key file of the protocol's own tests in it.
pub(crate) fn key_block(directive: &str, name: &str) -> String {
    let text = fs::read_to_string(protocol().join("data").join(name)).unwrap();
    format!("<{directive}>\n{text}</{directive}>\n")
}

fn protocol() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../openvpn/tests")
}
