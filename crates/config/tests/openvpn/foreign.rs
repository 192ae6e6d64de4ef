//! What a profile from elsewhere must not reach under `millrace up`.

use std::path::Path;

use config::openvpn::{Import, Options, Prompted, Proxy, parse_bytes};
use config::report::Verdict;

use super::{CLIENT, SCRIPTS, SERVER, no_files};

fn read(base: &str, lines: &str, options: Options) -> Import {
    let text = format!("{base}{lines}\n");
    parse_bytes(text.as_bytes(), Path::new("a.ovpn"), &mut no_files, options).unwrap()
}

/// What is said of the last line.
fn verdict(import: &Import) -> (Verdict, String) {
    let entry = import.report.entries.last().unwrap();
    (entry.verdict, entry.reason.clone())
}

#[test]
fn files_to_be_written_are_passed_over_unless_they_are_permitted() {
    for line in [
        "log /etc/passwd",
        "log-append /etc/passwd",
        "writepid /etc/passwd",
        "status /etc/passwd 1",
    ] {
        let import = read(CLIENT, line, Options::default());
        let (said, reason) = verdict(&import);
        assert_eq!(said, Verdict::Ignored, "{line}");
        assert!(reason.contains("--allow-files"), "{line}: {reason}");
        let service = import.into_model().unwrap().0.service;
        assert_eq!(
            (&service.log, &service.pid_file, &service.status),
            (&None, &None, &None),
            "{line}"
        );
        let permitted = Options {
            allow_files: true,
            ..Options::default()
        };
        for options in [permitted, SCRIPTS] {
            assert_eq!(verdict(&read(CLIENT, line, options)).0, Verdict::Honoured);
        }
    }
    let line = "ifconfig-pool-persist /etc/passwd";
    let import = read(SERVER, line, Options::default());
    let model = import.into_model().unwrap().0;
    assert_eq!(model.server().unwrap().pool_persist, None);
}

#[test]
fn a_management_socket_is_refused_and_its_companions_are_not_blamed() {
    let lines = "management-hold\nmanagement /etc/passwd unix";
    let import = read(CLIENT, lines, Options::default());
    assert!(!import.report.is_clean());
    assert_eq!(import.report.with(Verdict::Refused).count(), 1);
    assert_eq!(import.into_model().unwrap().0.service.management, None);
    let tcp = read(CLIENT, "management 127.0.0.1 7505", Options::default());
    assert!(tcp.report.is_clean());
    for line in [
        "management 0.0.0.0 7505",
        "management office.example 443",
        "management 127.0.0.1 7505\nmanagement-client",
    ] {
        let (said, reason) = verdict(&read(CLIENT, line, Options::default()));
        assert_eq!(said, Verdict::Refused, "{line}");
        assert!(reason.contains("--allow-files"), "{line}: {reason}");
    }
}

#[test]
fn no_lines_of_a_file_are_sent_that_a_profile_chose() {
    let base = "client\ndev tun\nremote a\nproto tcp\nca ca.crt\nremote-cert-tls server\n\
        auth-user-pass\n";
    for line in [
        "auth-user-pass /etc/shadow",
        "http-proxy a 1 /etc/shadow",
        "http-proxy a 1 /etc/shadow digest",
        "socks-proxy a 1 /etc/shadow",
        "<connection>\nremote b\nsocks-proxy a 1 /etc/shadow\n</connection>",
        "http-proxy a 1 auto\nhttp-proxy-user-pass /etc/shadow",
    ] {
        let import = read(base, line, Options::default());
        let refused: Vec<_> = import.report.with(Verdict::Refused).collect();
        assert_eq!(refused.len(), 1, "{line}");
        assert!(refused[0].reason.contains("--allow-files"), "{line}");
        // With `--ignore-refused` the user is asked.
        let model = import.into_model().unwrap().0;
        let client = model.client().unwrap();
        assert_eq!(client.auth_user_pass, Some(Prompted::Ask), "{line}");
        for connection in &model.connections {
            let asked = match &connection.proxy {
                None => continue,
                Some(Proxy::Http(http)) => http.credentials.as_ref(),
                Some(Proxy::Socks { credentials, .. }) => credentials.as_ref(),
            };
            assert_eq!(asked, Some(&Prompted::Ask), "{line}");
        }
        assert!(read(base, line, SCRIPTS).report.is_clean(), "{line}");
    }
    let inline = "<auth-user-pass>\na\nb\n</auth-user-pass>";
    assert!(read(base, inline, Options::default()).report.is_clean());
}
