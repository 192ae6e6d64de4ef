//! Tunnels of one account: a server tells its clients apart by their key, certificate or login alone.

use super::wireguard::leads_much;
use config::kind::Kind;
use config::openvpn::{Options, Prompted, Role};
use config::permissions::Permissions;
use config::{openvpn, wgquick};
use service::running;
use std::fs;
use std::path::Path;
use zeroize::Zeroizing;

/// Warns if another tunnel that is up uses the account of this file.
pub(super) fn warn_of_others(path: &Path, permissions: Permissions) {
    let Some(own) = account(path, permissions) else {
        return;
    };
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    for other in running::all().unwrap_or_default() {
        if other.path != whole && account(&other.path, permissions).as_ref() == Some(&own) {
            log::warn!("{}", words(path, &other.name, own.0));
        }
    }
}

fn words(path: &Path, other: &str, what: &str) -> String {
    format!(
        "{}: the tunnel {other} is up with the same {what}; a server answers only the one that called last, so the two may \
         stop each other: run `millrace down {other}`, or get another {what}",
        path.display()
    )
}

/// The key, certificate or login of a client that may lead all packets, with its name. `None` for other files.
fn account(path: &Path, permissions: Permissions) -> Option<(&'static str, Zeroizing<Vec<u8>>)> {
    match Kind::at(path) {
        Kind::WireGuard => {
            let (tunnel, _) = wgquick::read(path, permissions).ok()?.into_tunnel().ok()?;
            let key = tunnel
                .interface
                .private_key
                .as_ref()
                .filter(|_| leads_much(&tunnel))?;
            Some(("PrivateKey", Zeroizing::new(key.as_bytes().to_vec())))
        }
        Kind::OpenVpn => {
            let options = Options {
                allow_insecure_ciphers: true,
                permissions,
            };
            let (model, _) = openvpn::read(path, options).ok()?.into_model().ok()?;
            let Role::Client(client) = &model.role else {
                return None;
            };
            let tls = &model.tls;
            let (what, source) = match (
                tls.cert.as_ref().or(tls.pkcs12.as_ref()),
                &client.auth_user_pass,
            ) {
                (_, Some(Prompted::From(login))) => ("user name", login),
                (Some(cert), None) => ("certificate", cert),
                _ => return None,
            };
            let mut account = source.load(model.directory.as_deref()).ok()?;
            if what == "user name" {
                // The password, and the ends of lines, are not part of it.
                let name = account.split(|it| *it == b'\n').next()?.trim_ascii();
                account = Zeroizing::new(name.to_vec());
            }
            Some((what, account))
        }
        Kind::Pptp | Kind::Relay => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::CA;

    #[test]
    fn files_of_one_account_are_told_from_others() {
        let place = tempfile::tempdir().unwrap();
        let account = |file: &str, text: &str| {
            let path = place.path().join(file);
            fs::write(&path, text).unwrap();
            account(&path, Permissions::default())
        };
        let wireguard = |key: &str, ranges: &str| {
            let text = format!(
                "[Interface]\nPrivateKey = {key}\n[Peer]\n\
                 PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nAllowedIPs = {ranges}\n"
            );
            account("a.conf", &text)
        };
        let one = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
        let other = "gN65BkIKy1eCE9pP1wdc8ROUtkHLF2PfAqYdyYBz6EA=";
        assert_eq!(
            wireguard(one, "0.0.0.0/0"),
            wireguard(one, "0.0.0.0/1, 128.0.0.0/1")
        );
        assert_ne!(wireguard(one, "0.0.0.0/0"), wireguard(other, "0.0.0.0/0"));
        assert_eq!(wireguard(one, "10.0.0.0/8"), None);
        let openvpn = |server: &str, login: &str| {
            let text = format!("client\ndev tun\nremote {server}\n{login}\n{CA}");
            account("a.ovpn", &text)
        };
        let login = |name: &str| format!("<auth-user-pass>\n{name}\nsecret\n</auth-user-pass>");
        let (ann, bob) = (login("ann"), login("bob"));
        assert!(openvpn("192.0.2.1", &ann).is_some());
        assert_eq!(openvpn("192.0.2.1", &ann), openvpn("192.0.2.2", &ann));
        assert_ne!(openvpn("192.0.2.1", &ann), openvpn("192.0.2.1", &bob));
        assert_eq!(openvpn("192.0.2.1", "auth-user-pass"), None);
        let windows = "<auth-user-pass>\r\nann \r\nother\r\n</auth-user-pass>";
        assert_eq!(openvpn("192.0.2.1", windows), openvpn("192.0.2.1", &ann));
    }
}
