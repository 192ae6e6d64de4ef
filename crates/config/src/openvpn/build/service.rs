//! Directives about the process: its user, its log, its management interface.

use std::path::PathBuf;

use super::Builder;
use super::value::{OK, Outcome, at, capped, credentials, host, number, one_of};
use crate::openvpn::directive::Directive;
use crate::openvpn::{LogFile, Management, ManagementAddress, Prompted, RemapUsr1, StatusFile};

/// `management-*` directives, which may stand before `management`.
#[derive(Default)]
pub(crate) struct ManagementDraft {
    address: Option<(ManagementAddress, Option<Prompted>)>,
    /// Names of the `management-*` directives that were given.
    flags: Vec<String>,
    log_cache: Option<u16>,
    user: Option<String>,
    group: Option<String>,
}

impl ManagementDraft {
    /// The first `management-*` directive, for the message that `management` is missing.
    pub(crate) fn companion(&self) -> Option<&str> {
        self.flags.first().map(String::as_str)
    }

    /// The finished settings, if there is an address.
    pub(crate) fn build(&self) -> Option<Management> {
        let (address, password) = self.address.clone()?;
        let flag = |name: &str| self.flags.iter().any(|flag| flag == name);
        Some(Management {
            address,
            password,
            connect: flag("management-client"),
            hold: flag("management-hold"),
            signal: flag("management-signal"),
            forget_disconnect: flag("management-forget-disconnect"),
            up_down: flag("management-up-down"),
            query_passwords: flag("management-query-passwords"),
            log_cache: self.log_cache.unwrap_or(250),
            user: self.user.clone(),
            group: self.group.clone(),
        })
    }
}

/// Applies a directive of this group.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    let value = at(directive, 0);
    let name = directive.name.as_str();
    if name.starts_with("management") {
        return Some(management(&mut builder.management, directive));
    }
    let service = &mut builder.service;
    match name {
        "user" => service.user = Some(value.to_owned()),
        "group" => service.group = Some(value.to_owned()),
        "daemon" => {
            service.daemon = true;
            service.syslog_name = directive.get(0).map(str::to_owned);
        }
        "syslog" => {
            service.syslog = true;
            service.syslog_name = directive.get(0).map(str::to_owned);
        }
        "writepid" => service.pid_file = Some(PathBuf::from(value)),
        "log" | "log-append" => {
            service.log = Some(LogFile {
                path: PathBuf::from(value),
                append: name == "log-append",
            });
        }
        "suppress-timestamps" => service.suppress_timestamps = true,
        "machine-readable-output" => service.machine_readable = true,
        "verb" => match capped(value, 0..=15_u8) {
            Ok(level) => service.verb = level.min(11),
            Err(reason) => return Some(Err(reason)),
        },
        "mute" => match capped(value, 0..=u32::MAX) {
            Ok(count) => service.mute = count,
            Err(reason) => return Some(Err(reason)),
        },
        "status" => {
            let seconds = match directive
                .get(1)
                .map_or(Ok(60), |text| capped(text, 0..=86_400))
            {
                Ok(seconds) => seconds,
                Err(reason) => return Some(Err(reason)),
            };
            service.status = Some(StatusFile {
                path: PathBuf::from(value),
                seconds,
            });
        }
        "status-version" => match number(value, 1..=3) {
            Ok(version) => service.status_version = version,
            Err(reason) => return Some(Err(reason)),
        },
        "nice" => match value.parse::<i32>() {
            Ok(nice @ -20..=19) => service.nice = Some(nice),
            _ => return Some(Err("is a number from -20 to 19".to_owned())),
        },
        "mlock" => service.mlock = true,
        "echo" | "parameter" => service.echo.push(directive.values.join(" ")),
        "remap-usr1" => match value {
            "SIGHUP" => service.remap_usr1 = Some(RemapUsr1::Hup),
            "SIGTERM" => service.remap_usr1 = Some(RemapUsr1::Term),
            other => return Some(Err(one_of(other, &["SIGHUP", "SIGTERM"]))),
        },
        "persist-key" => service.persist_key = true,
        "persist-remote-ip" => service.persist_remote_ip = true,
        _ => return None,
    }
    Some(OK)
}

fn management(draft: &mut ManagementDraft, directive: &Directive) -> Outcome {
    let value = at(directive, 0);
    match directive.name.as_str() {
        "management" => {
            let address = match at(directive, 1) {
                "unix" => ManagementAddress::Unix(PathBuf::from(value)),
                _ if value == "tunnel" => {
                    return Err(
                        "is not opened on the tunnel's own address; name an address, or a Unix \
                         socket"
                            .to_owned(),
                    );
                }
                // Port 0 lets the kernel choose, which test suites use.
                text => ManagementAddress::Tcp(host(value)?, number(text, 0..=u16::MAX)?),
            };
            let password = directive.get(2).map(credentials);
            draft.address = Some((address, password));
            return OK;
        }
        "management-log-cache" => draft.log_cache = Some(number(value, 1..=10_000)?),
        "management-client-user" => draft.user = Some(value.to_owned()),
        "management-client-group" => draft.group = Some(value.to_owned()),
        _ => {}
    }
    draft.flags.push(directive.name.clone());
    OK
}
