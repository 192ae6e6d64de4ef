//! Directives about the process: its user, its log, its management interface.

use std::path::PathBuf;

use super::foreign;
use super::value::{OK, Outcome, capped, credentials, host, ignored, number, on, put, set, word};
use super::{DECIDING, Entry, LIST, MANY, SECRET, flag, no, one, path, skip, text, yes};
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::Draft;
use crate::openvpn::{LogFile, Management, ManagementAddress, RemapUsr1, StatusFile};

pub(super) const ROWS: &[Entry] = &[
    text("user", |d| &mut d.service.user),
    text("group", |d| &mut d.service.group),
    no(
        "chroot",
        "changing the root directory is not supported; use `user` and `group`, or set the root directory in the \
         service file",
    ),
    no(
        "setcon",
        "changing the SELinux context is not supported; set it in the service file",
    ),
    yes("daemon", 0, 1, |d, it| {
        d.service.syslog_name = it.get(0).map(str::to_owned);
        on(&mut d.service.daemon)
    }),
    yes("syslog", 0, 1, |d, it| {
        d.service.syslog_name = it.get(0).map(str::to_owned);
        on(&mut d.service.syslog)
    }),
    path("writepid", |d| &mut d.service.pid_file).foreign(foreign::written),
    yes("log", 1, 1, |d, it| log(d, it, false)).foreign(foreign::log),
    yes("log-append", 1, 1, |d, it| log(d, it, true)).foreign(foreign::log),
    flag("suppress-timestamps", |d| {
        &mut d.service.suppress_timestamps
    }),
    flag("machine-readable-output", |d| {
        &mut d.service.machine_readable
    }),
    skip("errors-to-stderr", "all messages go to one place"),
    one("verb", |d, v| {
        let level = capped(v, 0..=15_u8);
        set(&mut d.service.verb, level.map(|level| level.min(11)))
    }),
    one("mute", |d, v| {
        set(&mut d.service.mute, capped(v, 0..=u32::MAX))
    }),
    yes("status", 1, 2, |d, it| {
        let seconds = it.get(1).map_or(Ok(60), |text| capped(text, 0..=86_400))?;
        let path = PathBuf::from(it.at(0));
        put(&mut d.service.status, StatusFile { path, seconds })
    })
    .foreign(foreign::written),
    one("status-version", |d, v| {
        set(&mut d.service.status_version, number(v, 1..=3))
    }),
    no("memstats", "use `status`, or `millrace status --json`"),
    one("nice", |d, v| match v.parse::<i32>() {
        Ok(nice @ -20..=19) => put(&mut d.service.nice, nice),
        _ => Err("must be a number from -20 to 19".to_owned()),
    }),
    flag("mlock", |d| &mut d.service.mlock),
    yes("echo", 0, MANY, echo)
        .is(LIST)
        .client(|_, _| ignored(TEXT)),
    yes("parameter", 0, MANY, echo)
        .is(LIST)
        .client(|_, _| ignored(TEXT)),
    one("remap-usr1", |d, v| {
        let signals = [("SIGHUP", RemapUsr1::Hup), ("SIGTERM", RemapUsr1::Term)];
        put(&mut d.service.remap_usr1, word(v, &signals)?)
    }),
    flag("persist-key", |d| &mut d.service.persist_key),
    flag("persist-remote-ip", |d| &mut d.service.persist_remote_ip),
    skip(
        "persist-local-ip",
        "the name is looked up again at each connection; write the address",
    ),
    yes("management", 2, 3, management)
        .is(SECRET)
        .foreign(foreign::management),
    yes("management-client", 0, 0, |d, it| {
        on(&mut beside(d, it).connect)
    })
    .foreign(foreign::calls),
    yes("management-hold", 0, 0, |d, it| on(&mut beside(d, it).hold)),
    yes("management-signal", 0, 0, |d, it| {
        on(&mut beside(d, it).signal)
    }),
    yes("management-forget-disconnect", 0, 0, |d, it| {
        on(&mut beside(d, it).forget_disconnect)
    }),
    yes("management-up-down", 0, 0, |d, it| {
        on(&mut beside(d, it).up_down)
    }),
    yes("management-query-passwords", 0, 0, |d, it| {
        on(&mut beside(d, it).query_passwords)
    }),
    no(
        "management-query-proxy",
        "asking the management client for a proxy is not supported; write `http-proxy` or `socks-proxy`",
    ),
    no(
        "management-query-remote",
        "asking the management client for the server is not supported; write `remote`, or several of them",
    ),
    no(
        "management-client-auth",
        "accepting or refusing clients through the management port is not supported; use `auth-user-pass-verify` or \
         `auth-user-pass-file`",
    )
    .is(DECIDING),
    no(
        "management-client-pf",
        "removed from OpenVPN 2.6; use nftables on the interface",
    ),
    yes("management-log-cache", 1, 1, |d, it| {
        let lines = number(it.at(0), 1..=10_000)?;
        beside(d, it).log_cache = lines;
        OK
    }),
    yes("management-client-user", 1, 1, |d, it| {
        put(&mut beside(d, it).user, it.at(0).to_owned())
    }),
    yes("management-client-group", 1, 1, |d, it| {
        put(&mut beside(d, it).group, it.at(0).to_owned())
    }),
];

const TEXT: &str = "only a text for the client's log";

fn log(draft: &mut Draft, directive: &Directive, append: bool) -> Outcome {
    let path = PathBuf::from(directive.at(0));
    put(&mut draft.service.log, LogFile { path, append })
}

fn echo(draft: &mut Draft, directive: &Directive) -> Outcome {
    draft.service.echo.push(directive.values.join(" "));
    OK
}

/// The settings that a `management-*` directive changes, which may stand before `management`.
fn beside<'d>(draft: &'d mut Draft, directive: &Directive) -> &'d mut Management {
    let name = || directive.name.clone();
    draft.management_companion.get_or_insert_with(name);
    &mut draft.management
}

fn management(draft: &mut Draft, directive: &Directive) -> Outcome {
    let value = directive.at(0);
    draft.management.address = match directive.at(1) {
        "unix" => ManagementAddress::Unix(PathBuf::from(value)),
        _ if value == "tunnel" => {
            return Err(
                "listening on the tunnel's own address is not supported; name an address, or a Unix socket"
                    .to_owned(),
            );
        }
        // Port 0 lets the kernel choose, which test suites use.
        text => ManagementAddress::Tcp(host(value)?, number(text, 0..=u16::MAX)?),
    };
    draft.management.password = directive.get(2).map(credentials);
    draft.has_management = true;
    OK
}
