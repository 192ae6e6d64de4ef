//! Tunnels of one account. A server distinguishes clients only by their key, certificate or login.

use super::wireguard::has_much;
use config::kind::Kind;
use config::openvpn::{Options, Prompted, Role};
use config::permissions::Permissions;
use config::{openvpn, wgquick};
use service::running::{self, Running};
use std::fs;
use std::path::Path;
use zeroize::Zeroizing;

/// The effect of one account in several tunnels.
pub(crate) const STOP: &str =
    "a server answers only the one that called last, so they may stop each other";

/// The account of a client of one server, for some networks only.
const KEYS: &str = "PrivateKey and PublicKey";

/// Warns if other tunnels that are up use the account of this file.
///
/// # Errors
/// A tunnel with the same keys is up, for some networks only: both would have the same routes, and the handshake of a
/// start that fails at them would take the session of the other.
pub(super) fn warn_of_others(path: &Path, permissions: Permissions) -> Result<(), String> {
    let Some(own) = account(path, permissions) else {
        return Ok(());
    };
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut others = running::all().unwrap_or_default();
    others.retain(|it| it.path != whole && account(&it.path, permissions).as_ref() == Some(&own));
    let others: Vec<String> = others.into_iter().map(|it| it.name).collect();
    match others.is_empty() {
        true => Ok(()),
        false if own.0 == KEYS => Err(words(path, &others, own.0)),
        false => {
            log::warn!("{}", words(path, &others, own.0));
            Ok(())
        }
    }
}

/// Groups of tunnels that are up with one account, each with the account's kind.
pub(crate) fn shared() -> Vec<(&'static str, Vec<Running>)> {
    groups(running::all().unwrap_or_default())
}

fn groups(running: Vec<Running>) -> Vec<(&'static str, Vec<Running>)> {
    let mut groups: Vec<(_, Vec<Running>)> = Vec::new();
    for tunnel in running {
        let Some(own) = account(&tunnel.path, Permissions::default()) else {
            continue;
        };
        match groups.iter_mut().find(|it| it.0 == own) {
            Some((_, tunnels)) => tunnels.push(tunnel),
            None => groups.push((own, vec![tunnel])),
        }
    }
    groups.retain(|it| it.1.len() > 1);
    groups
        .into_iter()
        .map(|((what, _), tunnels)| (what, tunnels))
        .collect()
}

fn words(path: &Path, others: &[String], what: &str) -> String {
    let (tunnels, are) = match others.len() {
        1 => ("tunnel", "is"),
        _ => ("tunnels", "are"),
    };
    format!(
        "{}: the {tunnels} {} {are} up with the same {what}; {STOP}: run `millrace down {}`, or get another {what}",
        path.display(),
        others.join(" and "),
        others.join("` and `millrace down "),
    )
}

/// The key, certificate or login of a client, with its name; for a WireGuard client that does not lead all packets, with
/// the key of its server. `None` for other files.
fn account(path: &Path, permissions: Permissions) -> Option<(&'static str, Zeroizing<Vec<u8>>)> {
    match Kind::at(path) {
        Kind::WireGuard => {
            let (tunnel, _) = wgquick::read(path, permissions).ok()?.into_tunnel().ok()?;
            let key = tunnel.interface.private_key.as_ref()?.as_bytes();
            if tunnel.peers.iter().any(has_much) {
                return Some(("PrivateKey", Zeroizing::new(key.to_vec())));
            }
            let [server] = &tunnel.peers[..] else {
                return None;
            };
            server.endpoint.as_ref()?;
            let keys = [&key[..], server.public_key.as_bytes()].concat();
            Some((KEYS, Zeroizing::new(keys)))
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
                 PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nAllowedIPs = {ranges}\n\
                 Endpoint = 192.0.2.1:51820\n"
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
        let branch = |key| wireguard(key, "10.0.0.0/8").unwrap();
        assert_eq!((branch(one).0, branch(one)), (KEYS, branch(one)));
        assert_ne!(branch(one), branch(other));
        let server = "[Interface]\nListenPort = 51820\n[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n";
        assert_eq!(account("a.conf", server), None);
        // A tunnel for rules of the policy.
        assert_eq!(
            wireguard(one, "0.0.0.0/0"),
            wireguard(&format!("{one}\nTable = off"), "0.0.0.0/0")
        );
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

    #[test]
    fn all_tunnels_of_one_account_are_named() {
        let place = tempfile::tempdir().unwrap();
        let key = [
            "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=",
            "gN65BkIKy1eCE9pP1wdc8ROUtkHLF2PfAqYdyYBz6EA=",
        ];
        let running = |(name, key, rest): (&str, &str, &str)| {
            let path = place.path().join(format!("{name}.conf"));
            let text = format!(
                "[Interface]\nPrivateKey = {key}\n{rest}[Peer]\n\
                 PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nAllowedIPs = 0.0.0.0/0\n"
            );
            fs::write(&path, text).unwrap();
            Running {
                pid: 1,
                name: name.to_owned(),
                path,
                started: None,
            }
        };
        let all = [
            ("us", key[0], ""),
            ("home", key[1], ""),
            ("nl", key[0], "Table = off\n"),
            ("se", key[0], "Table = off\n"),
        ];
        let groups = groups(all.map(running).to_vec());
        let [(what, tunnels)] = &groups[..] else {
            panic!("{groups:?}");
        };
        let names: Vec<String> = tunnels.iter().map(|it| it.name.clone()).collect();
        assert_eq!(
            (*what, names.join(" ")),
            ("PrivateKey", "us nl se".to_owned())
        );
        let told = words(Path::new("se.conf"), &names[..2], what);
        assert!(
            told.contains("us and nl are up")
                && told.contains("`millrace down us` and `millrace down nl`"),
            "{told}"
        );
    }
}
