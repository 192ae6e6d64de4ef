//! The files of an OpenVPN server with its own certificate authority.
//!
//! `NAME.ovpn` has all that the server needs, keys included. `NAME.d` is for adding clients: the authority's key, the
//! list of clients, and the directories of revoked certificates and of settings of single clients. The server reads only
//! the two directories.

use super::place::{self, failed};
use super::{InitError, Plan};
use crate::peer::openvpn::Store;
use crate::peer::secret;
use config::types::AllowedIp;
use service::openvpn::authority::{Authority, Purpose, ServerKey};
use std::fs::{self, DirBuilder};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Writes the files. Returns the path of the server's file.
pub(super) fn write(plan: &Plan<'_>) -> Result<PathBuf, InitError> {
    let (authority, own) = Authority::create(&format!("{} authority", plan.name))?;
    let server = authority.issue(&format!("{} server", plan.name), Purpose::Server)?;
    let wrap = ServerKey::generate()?.to_text();
    let directory = plan.directory.canonicalize();
    let directory = directory.map_err(failed(plan.directory))?;
    let path = directory.join(format!("{}.ovpn", plan.name));
    let store = Store::of(&path);
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
        .create(&store.directory)
        .map_err(failed(&store.directory))?;
    let [revoked, ccd] = [store.revoked(), store.ccd()];
    let made = |path: &PathBuf| builder.create(path).map_err(failed(path));
    let written = made(&revoked).and_then(|()| made(&ccd)).and_then(|()| {
        place::write_new(&store.key(), &own.key)?;
        place::write_new(&store.list(), "")?;
        let keys = [&own.certificate, &server.certificate, &*server.key, &*wrap];
        place::write_new(&path, &text(plan, [&revoked, &ccd], keys))
    });
    if let Err(error) = written {
        // The directory is new, and would block another attempt.
        let _ = fs::remove_dir_all(&store.directory);
        return Err(error.into());
    }
    Ok(path)
}

/// The server's file, with the authority's certificate, the server's certificate and key, and the `tls-crypt-v2` key.
fn text(plan: &Plan<'_>, directories: [&Path; 2], keys: [&String; 4]) -> Zeroizing<String> {
    let [revoked, ccd] = directories.map(|it| quoted(&it.display().to_string()));
    let networks: String = plan.networks.iter().map(network).collect();
    let head = format!(
        "# An OpenVPN server with its own certificate authority. Run it with `millrace up {name}`, or with openvpn, which\n\
         # ignores [Server]. Add clients with `millrace peer add`, and revoke them with `millrace peer revoke`.\n\
         dev {name}\n\
         dev-type tun\n\
         proto udp\n\
         port {port}\n\
         topology subnet\n\
         {networks}\
         keepalive 10 60\n\
         explicit-exit-notify 1\n\
         tls-version-min 1.2\n\
         dh none\n\
         data-ciphers AES-256-GCM:CHACHA20-POLY1305:AES-128-GCM\n\
         remote-cert-tls client\n\
         # A file for each revoked certificate, named by its serial number.\n\
         crl-verify \"{revoked}\" dir\n\
         # Settings of single clients, and the networks behind them.\n\
         client-config-dir \"{ccd}\"\n\
         {home}",
        name = plan.name,
        port = plan.port,
        home = plan.home.to_comments(),
    );
    let [authority, certificate, key, wrap] = keys;
    secret(&[
        &head,
        "<ca>\n",
        authority,
        "</ca>\n<cert>\n",
        certificate,
        "</cert>\n<key>\n",
        key,
        "</key>\n<tls-crypt-v2>\n",
        wrap,
        "</tls-crypt-v2>\n",
    ])
}

/// The directive that assigns clients addresses of a network.
fn network(network: &AllowedIp) -> String {
    match network.addr() {
        IpAddr::V4(addr) => format!("server {addr} {}\n", netmask(network.prefix())),
        IpAddr::V6(_) => format!("server-ipv6 {network}\n"),
    }
}

/// A text in quotes, in OpenVPN's syntax.
pub(crate) fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The netmask of a prefix.
pub(crate) fn netmask(prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0))
}
