//! Settings of one client: from files of `client-config-dir`, and from `client-connect` scripts.

use std::net::Ipv4Addr;

use super::build::server::pushable;
use super::build::value::{
    Remark, at, ipv4, ipv4_network, ipv6, ipv6_network, ipv6_network_or_host, number, seconds,
};
use super::build::{Judged, UNRECOGNIZED, conceal, timers};
use super::directive::{Budget, COMMENT, Directive, Source, parse_text};
use super::report::report;
use super::table::{self, Support};
use super::{ClientSettings, Ifconfig, IfconfigV6Push, PushChange};
use crate::report::{Report, Verdict};

/// Most lines of one kind.
const LINES_MAX: usize = 10_000;

/// Parses a file of `client-config-dir`, or a `client-connect` script's output; `file` only names it in the report.
/// Without `quotes` the report gives line numbers and quotes no line: the server's file may name any directory of the
/// machine. Refused lines are left out of the settings; the caller decides what to do with such a client.
#[must_use]
pub fn parse_client_settings(text: &str, file: &str, quotes: bool) -> (ClientSettings, Report) {
    let mut settings = ClientSettings::default();
    let mut misread = Vec::new();
    let mut judged = Vec::new();
    let source = Source {
        file: file.into(),
        included: !quotes,
    };
    for directive in parse_text(text, &source, &mut misread, &mut Budget::default()) {
        if directive.name == COMMENT {
            continue;
        }
        let (verdict, reason) = match apply(&mut settings, &directive) {
            Ok(Remark::Plain) => (Verdict::Honoured, String::new()),
            Ok(Remark::Note(note)) => (Verdict::Honoured, note),
            Ok(Remark::Ignored(reason)) => (Verdict::Ignored, reason),
            Ok(Remark::Denied(reason)) | Err(reason) => (Verdict::Refused, reason),
        };
        judged.push(Judged {
            origin: directive.origin,
            name: table::nameable(&directive.name),
            verdict,
            reason,
            fatal: verdict == Verdict::Refused,
        });
    }
    judged.extend(misread.into_iter().map(|fault| Judged {
        origin: fault.origin,
        name: fault.name,
        verdict: Verdict::Refused,
        reason: fault.reason,
        fatal: true,
    }));
    conceal(&mut judged);
    (settings, report(&judged, file))
}

fn apply(settings: &mut ClientSettings, directive: &Directive) -> Result<Remark, String> {
    let entry = table::find(&directive.name).ok_or(UNRECOGNIZED)?;
    if directive.inline.is_some() {
        return Err("may not be an inline block here".to_owned());
    }
    match entry.support {
        Support::Refused(reason) => return Err(reason.to_owned()),
        Support::Ignored(reason) if entry.client => return Ok(Remark::Ignored(reason.to_owned())),
        _ if !entry.client => {
            return Err("does not belong in the settings of one client".to_owned());
        }
        _ => {}
    }
    let count = directive.count();
    if count < entry.min || count > entry.max {
        return Err(UNRECOGNIZED.to_owned());
    }
    let value = at(directive, 0);
    match entry.name {
        "disable" => settings.disable = true,
        "push-reset" => {
            settings.push_reset = true;
            // `push-reset` also drops earlier `push` lines of this file, as in stock.
            settings.push.clear();
        }
        "push" => {
            pushable(value)?;
            room(settings.push.len())?;
            settings.push.push(PushChange::Add(value.to_owned()));
        }
        "push-remove" => {
            pushable(value)?;
            room(settings.push.len())?;
            settings.push.push(PushChange::Remove(value.to_owned()));
        }
        "ifconfig-push" => {
            let (local, second) = (ipv4(value)?, ipv4(at(directive, 1))?);
            settings.ifconfig_push = Some(Ifconfig { local, second });
            settings.ifconfig_push_alias = directive.get(2).map(ipv4).transpose()?;
        }
        "ifconfig-ipv6-push" => {
            let (local, bits) = match value.contains('/') {
                true => ipv6_network(value)?,
                false => (ipv6(value)?, 64),
            };
            let remote = directive.get(1).map(ipv6).transpose()?;
            settings.ifconfig_v6_push = Some(IfconfigV6Push {
                local,
                bits,
                remote,
            });
        }
        "iroute" => {
            room(settings.iroutes.len())?;
            let network: (Ipv4Addr, u8) = ipv4_network(value, directive.get(1))?;
            settings.iroutes.push(network);
        }
        "iroute-ipv6" => {
            room(settings.iroutes_v6.len())?;
            settings.iroutes_v6.push(ipv6_network_or_host(value)?);
        }
        "inactive" => settings.inactive = Some(timers::inactive(directive)?),
        "session-timeout" => settings.session_timeout = Some(seconds(value)?),
        "max-routes-per-client" => settings.max_routes = Some(number(value, 1..=1 << 20)?),
        "echo" | "parameter" => {
            return Ok(Remark::Ignored("a text for the log of a client".to_owned()));
        }
        "socket-flags" => {
            return Ok(Remark::Ignored("TCP_NODELAY is always set".to_owned()));
        }
        _ => {
            return Err(
                "is the same for all clients here; set it in the server's own file, or \
                push it"
                    .to_owned(),
            );
        }
    }
    Ok(Remark::Plain)
}

fn room(count: usize) -> Result<(), String> {
    if count >= LINES_MAX {
        return Err(format!("more than {LINES_MAX} lines of this kind"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_branch() {
        let text = "# branch 7\npush-reset\npush \"route 10.1.0.0 255.255.0.0\"\n\
            push-remove \"route-ipv6\"\niroute 192.168.7.0 255.255.255.0\niroute-ipv6 fd07::/48\n\
            ifconfig-push 10.8.0.7 255.255.255.0\nifconfig-ipv6-push fd00::7/64 fd00::1\n\
            session-timeout 3600\n";
        let (settings, report) = parse_client_settings(text, "ccd/branch7", true);
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.entries.len(), 8);
        assert!(settings.push_reset && !settings.disable);
        assert_eq!(settings.push.len(), 2);
        assert_eq!(settings.iroutes, [("192.168.7.0".parse().unwrap(), 24)]);
        assert_eq!(settings.iroutes_v6[0].1, 48);
        assert_eq!(
            settings.ifconfig_push.unwrap().second.to_string(),
            "255.255.255.0"
        );
        assert_eq!(settings.ifconfig_v6_push.unwrap().bits, 64);
        assert_eq!(settings.session_timeout, Some(3600));
    }

    #[test]
    fn a_reset_takes_back_what_stands_above() {
        let (settings, _) = parse_client_settings("push a\npush-reset\npush b\n", "x", true);
        assert_eq!(settings.push, [PushChange::Add("b".to_owned())]);
    }

    #[test]
    fn what_a_client_may_not_have() {
        for line in [
            "up /bin/sh",
            "plugin x.so",
            "config /etc/passwd",
            "remote a",
            "iroute 10.0.0.1 255.0.0.0",
            "ifconfig-push x y",
            "nonsense",
            "push \"a,b\"",
            "<push>\nx\n</push>",
            "disable now",
            "cipher AES-256-GCM",
            "push \"unclosed",
        ] {
            let (settings, report) = parse_client_settings(line, "x", true);
            assert!(!report.is_clean(), "{line}");
            assert_eq!(settings, ClientSettings::default(), "{line}");
        }
    }

    #[test]
    fn a_file_of_a_directory_that_the_server_names_is_not_quoted() {
        let text = "correcthorse\nifconfig-push batterystaple 10.8.0.1\npush \"secret";
        for quotes in [true, false] {
            let (_, report) = parse_client_settings(text, "ccd/x", quotes);
            let entries = report.entries.iter().map(|it| report.describe(it));
            let words = entries.collect::<Vec<_>>().join("\n");
            for word in ["correcthorse", "batterystaple"] {
                assert_eq!(words.contains(word), quotes, "{words}");
            }
            assert!(words.contains("ccd/x:2: ifconfig-push"), "{words}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\PC|\n){0,200}") {
            let _ = parse_client_settings(&text, "x", true);
        }
    }
}
