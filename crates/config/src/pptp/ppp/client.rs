//! Client: a pppd file whose `pty` is pptp-linux.

use std::path::Path;

use zeroize::Zeroizing;

use super::collected::{Given, collect};
use super::options::ASKS_SERVER;
use super::secrets;
use super::words::words;
use super::{Common, Read, SECRETS, read_secrets};
use crate::lines::Lines;
use crate::pptp::{Client, Password, Pptp, Role, values};
use crate::report::{Report, Verdict};

const NO_HOST: &str = "write pty \"pptp SERVER --nolaunchpppd\"";

/// A client's options.
#[derive(Default)]
struct Wanted {
    host: Option<(String, u16)>,
    name: Option<String>,
    user: Option<String>,
    remote: Option<String>,
    password: Option<Zeroizing<String>>,
    default_route: bool,
    dns: bool,
}

/// Builds the model of a client's file. `None` if a required setting is missing.
pub(super) fn model(text: &str, path: &Path, read: &Read<'_>, report: &mut Report) -> Option<Pptp> {
    let given = collect(text, read, report);
    let mut common = Common::default();
    let mut wanted = Wanted::default();
    for option in &given {
        if !common.take(option, report) {
            take(option, &mut wanted, report);
        }
    }
    let (mppe, auth) = common.protection(report);
    let interface = common.interface(path, report);
    if wanted.host.is_none() {
        report.push(0, "pty", Verdict::Refused, NO_HOST);
    }
    let username = wanted.user.or(wanted.name);
    if username.is_none() {
        report.push(0, "name", Verdict::Refused, "write the name to log in by");
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

fn take(option: &Given, wanted: &mut Wanted, report: &mut Report) {
    let text = || option.value.to_string();
    let mut reason = "";
    let mut verdict = Verdict::Honoured;
    match option.name {
        "pty" => match host_of(&option.value) {
            Ok((host, ignored)) => {
                wanted.host = Some(host);
                if !ignored.is_empty() {
                    reason = "options of pptp's that are not read do nothing here";
                }
            }
            Err(fault) => return option.judge(report, Verdict::Refused, &fault),
        },
        "pptp_server" => match values::server(&option.value) {
            Ok(host) => wanted.host = Some(host),
            Err(fault) => return option.judge(report, Verdict::Refused, &fault),
        },
        "plugin" if matches!(option.value.rsplit('/').next(), Some("pptp.so")) => {}
        "plugin" => {
            verdict = Verdict::Refused;
            reason = "it is another program's: leave it out, or stay with pppd";
        }
        "name" => wanted.name = Some(text()),
        "user" => wanted.user = Some(text()),
        "remotename" => wanted.remote = Some(text()),
        "password" => wanted.password = Some(option.value.clone()),
        "defaultroute" | "replacedefaultroute" => wanted.default_route = true,
        "nodefaultroute" => wanted.default_route = false,
        "usepeerdns" => wanted.dns = true,
        "noauth" => {
            reason = "with MS-CHAPv2 the server proves that it knows the password all the same";
        }
        "auth" | "require-pap" | "require-chap" | "require-mschap" | "require-mschap-v2"
        | "require-eap" => {
            verdict = Verdict::Refused;
            reason = ASKS_SERVER;
        }
        _ => {
            verdict = Verdict::Refused;
            reason = "it is a server's";
        }
    }
    option.judge(report, verdict, reason);
}

/// The server in a call of pptp-linux, and the options without effect here.
fn host_of(command: &str) -> Result<((String, u16), Vec<String>), String> {
    // The words are split as a shell does; words that only a shell understands are refused.
    if command.contains(|c: char| "$`;|&<>()".contains(c)) {
        return Err("it is a shell's command: write pty \"pptp SERVER --nolaunchpppd\"".to_owned());
    }
    let words = words(command).map_err(|fault| fault.describe().1.to_owned())?;
    let mut words = words.into_iter().map(|word| word.text.to_string());
    let program = words.next().unwrap_or_default();
    if program.rsplit('/').next() != Some("pptp") {
        return Err(NO_HOST.to_owned());
    }
    let (mut host, mut ignored) = (None, Vec::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--nolaunchpppd" => {}
            // Options with a value.
            "--timeout" | "--localbind" | "--phone" | "--quirks" | "--logstring" | "--loglevel"
            | "--test-type" | "--test-rate" | "--idle-wait" | "--max-echo-wait" | "--rtmark"
            | "--missing-window" => {
                ignored.push(word);
                words.next();
            }
            option if option.starts_with("--") => ignored.push(word),
            _ if host.is_none() => host = Some(values::server(&word)?),
            // pptp would pass other options on to pppd.
            _ => return Err("pppd's options stand in the file itself".to_owned()),
        }
    }
    host.map(|host| (host, ignored))
        .ok_or_else(|| NO_HOST.to_owned())
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
