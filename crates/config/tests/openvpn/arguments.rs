//! Options on OpenVPN's command line.

use std::path::Path;

use config::openvpn::{Action, KeyKind, parse_arguments};
use zeroize::Zeroizing;

use super::{CLIENT, SCRIPTS, no_files};

#[test]
fn the_command_line_and_its_files() {
    let arguments = [
        "--cd",
        "/etc/vpn",
        "--config",
        "a.conf",
        "--verb",
        "5",
        "--daemon",
        "vpn",
        "--setenv",
        "opt",
        "new-thing",
        "--auth-user-pass",
        "/dev/stdin",
    ];
    let arguments = arguments.map(str::to_owned);
    let mut asked = Vec::new();
    let mut read = |path: &Path| {
        asked.push(path.to_owned());
        Ok(Zeroizing::new(CLIENT.as_bytes().to_vec()))
    };
    let import = parse_arguments(&arguments, &mut read, SCRIPTS).unwrap();
    assert_eq!(asked, [Path::new("/etc/vpn/a.conf")]);
    let (model, report) = import.into_model().unwrap();
    assert_eq!(report.file, "[CMD-LINE]");
    assert_eq!(model.service.syslog_name.as_deref(), Some("vpn"));
    assert_eq!(model.directory.as_deref(), Some(Path::new("/etc/vpn")));

    let wrong = [
        "--client",
        "--dev",
        "tun",
        "--remote",
        "a",
        "--ca",
        "c",
        "--auth-user-pass",
        "--verb",
        "much",
    ];
    let wrong = wrong.map(str::to_owned);
    let error = parse_arguments(&wrong, &mut no_files, SCRIPTS)
        .unwrap()
        .into_model()
        .unwrap_err();
    assert!(
        error.to_string().starts_with("argument 9: verb: `much`"),
        "{error}"
    );

    let missing = ["nowhere.ovpn".to_owned()];
    let error = parse_arguments(&missing, &mut no_files, SCRIPTS).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("nowhere.ovpn: cannot be read")
    );
}

#[test]
fn other_actions_need_no_tunnel() {
    type Check = fn(Action) -> bool;
    let cases: [(&str, Check); 3] = [
        ("--version", |action| matches!(action, Action::Version)),
        (
            "--genkey tls-crypt-v2-client c.key AAAA --tls-crypt-v2 s.key",
            |action| {
                matches!(action, Action::GenKey(key)
                if key.kind == KeyKind::TlsCryptV2Client && key.metadata.is_some())
            },
        ),
        ("--mktun --dev tun7", |action| {
            matches!(action, Action::MakeTun)
        }),
    ];
    for (line, check) in cases {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let import = parse_arguments(&arguments, &mut no_files, SCRIPTS).unwrap();
        assert!(import.report.is_clean(), "{line}");
        assert!(check(import.action.unwrap()), "{line}");
    }
}
