//! Settings of one client: from files of `client-config-dir`, and from `client-connect` scripts.

use super::ClientSettings;
use super::builder::UNRECOGNIZED;
use super::collector::{Budget, COMMENT, Source, parse_text};
use super::directive::Directive;
use super::report::{Judged, conceal, report};
use super::table::value::{Outcome, Remark};
use super::table::{self, Support};
use crate::report::{Report, Verdict};

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

fn apply(settings: &mut ClientSettings, directive: &Directive) -> Outcome {
    let entry = table::find(&directive.name).ok_or(UNRECOGNIZED)?;
    if directive.inline.is_some() {
        return Err("may not be an inline block here".to_owned());
    }
    match (entry.support, entry.client) {
        (Support::Refused(reason), _) => Err(reason.to_owned()),
        (_, None) => Err(
            "does not belong in the settings of one client; set it in the server's file".to_owned(),
        ),
        (Support::Ignored(reason), _) => Ok(Remark::Ignored(reason.to_owned())),
        _ if directive.count() < entry.min || directive.count() > entry.max => {
            Err(UNRECOGNIZED.to_owned())
        }
        (_, Some(apply)) => apply(settings, directive),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::openvpn::PushChange;

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
