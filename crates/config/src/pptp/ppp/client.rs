//! Client: a pppd file whose `pty` is pptp-linux.

use std::path::Path;

use zeroize::Zeroizing;

use super::collected::collect;
use super::secrets;
use super::wanted::{Common, NO_HOST, OfClient};
use super::{Read, SECRETS, read_secrets};
use crate::lines::Lines;
use crate::pptp::{Client, Password, Pptp, Role};
use crate::report::{Report, Verdict};

/// Builds the model of a client's file. `None` if a required setting is missing.
pub(super) fn model(text: &str, path: &Path, read: &Read<'_>, report: &mut Report) -> Option<Pptp> {
    let mut common = Common::default();
    let mut wanted = OfClient::default();
    for option in collect(text, read, report) {
        option.of_client(&mut common, &mut wanted, report);
    }
    let (mppe, auth) = common.protection(report);
    let interface = common.interface(path, report);
    if wanted.host.is_none() {
        report.push(0, "pty", Verdict::Refused, NO_HOST);
    }
    let username = wanted.user.or(wanted.name);
    if username.is_none() {
        report.push(
            0,
            "name",
            Verdict::Refused,
            "is missing; name the user to log in as",
        );
    }
    let username = username?;
    let password = match wanted.password {
        Some(password) => Some(password),
        None => of_secrets(&username, wanted.remote.as_deref(), read, report),
    };
    let (host, port) = wanted.host?;
    Some(Pptp {
        interface: interface?,
        role: Role::Client(Client {
            host,
            port,
            username,
            password: Password::Given(password?),
            routes: Vec::new(),
            default_route: wanted.default_route,
            dns: wanted.dns,
            block_ipv6: false,
        }),
        mppe: mppe?,
        auth,
        mtu: common.mtu,
        reorder: None,
        lines: Lines::default(),
    })
}

fn of_secrets(
    client: &str,
    server: Option<&str>,
    read: &Read<'_>,
    report: &mut Report,
) -> Option<Zeroizing<String>> {
    let found = read_secrets(read).and_then(|secrets| secrets::password(&secrets, client, server));
    match found {
        Ok(password) => Some(password),
        Err(error) => {
            let reason = format!("is not in the file, and {SECRETS}: {error}");
            report.push(0, "password", Verdict::Refused, reason);
            None
        }
    }
}
