//! Files that a foreign profile must not touch under `millrace up`.

use std::path::Path;

use config::openvpn::{Import, Options, Prompted, Proxy, parse_bytes, read_bytes};
use config::report::Verdict;

use super::{CLIENT, SCRIPTS, SERVER, no_files};
use config::permissions::Permissions;

fn read(base: &str, lines: &str, options: Options) -> Import {
    let text = format!("{base}{lines}\n");
    parse_bytes(text.as_bytes(), Path::new("a.ovpn"), &mut no_files, options).unwrap()
}

/// The verdict on the last line.
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
            permissions: Permissions::FILES,
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
    for password in ["a.management", "stdin"] {
        let text = format!("{CLIENT}management 127.0.0.1 7505 {password}\n");
        let path = Path::new("/nonexistent/a.ovpn");
        let import = read_bytes(text.as_bytes(), path, Options::default()).unwrap();
        assert!(import.report.is_clean(), "{:?}", import.report);
    }
    for line in [
        "management 127.0.0.1 7505",
        // The password file's first line is public, or could leak although only its owner can read the file.
        "management 127.0.0.1 7505 /etc/passwd",
        "management 127.0.0.1 7505 /etc/ssh/ssh_host_ed25519_key",
        "management 127.0.0.1 7505 office.management",
        "management 127.0.0.1 7505 a.pw",
        "management localhost 7505",
        "management 0.0.0.0 7505",
        "management office.example 443",
        "management /etc/passwd unix",
        "management 127.0.0.1 7505 a.management\nmanagement-client",
    ] {
        let (said, reason) = verdict(&read(CLIENT, line, Options::default()));
        assert_eq!(said, Verdict::Refused, "{line}");
        assert!(reason.contains("--allow-files"), "{line}: {reason}");
        // A hint that suggests a port also names the password file that the port needs.
        let hint = reason.replace("127.0.0.1 PORT NAME.management", "");
        assert!(!hint.contains("PORT"), "{line}: {reason}");
        let options = Options {
            permissions: Permissions::FILES,
            ..Options::default()
        };
        let permitted = verdict(&read(CLIENT, line, options));
        assert_eq!(permitted.0, Verdict::Honoured, "{line}");
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
        // `--ignore-refused` leaves the decision to the user.
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

/// Refusing a script that decides about logins makes the file unusable, even with `--ignore-refused`: otherwise a
/// certificate alone would let clients in.
#[test]
fn a_file_is_not_used_without_the_script_that_decides() {
    for name in config::openvpn::deciding() {
        let method = if name == "auth-user-pass-verify" {
            " via-file"
        } else {
            ""
        };
        let line = format!("{name} /x{method}");
        let import = read(CLIENT, &line, Options::default());
        let report = import.report.clone();
        let refused = report.with(Verdict::Refused).find(|it| it.key == name);
        let reason = &refused.unwrap().reason;
        assert!(reason.contains("not used without it"), "{reason}");
        assert!(!import.is_usable(), "{line}");
        assert!(import.into_model().is_err(), "{line}");
    }
    for line in ["plugin /x.so", "management-client-auth"] {
        let import = read(SERVER, &format!("setenv opt {line}"), Options::default());
        assert!(!import.is_usable(), "{line}");
    }
    let import = read(CLIENT, "up /x", Options::default());
    assert!(import.is_usable() && !import.report.is_clean());
}

/// Tests each directive that names a file with each permission. Every new directive must be added to one of these
/// lists.
#[test]
fn nothing_beside_the_tunnel_is_touched_without_a_permission() {
    // The profile's own keys need no permission.
    let read_only = [
        "ca",
        "cert",
        "key",
        "pkcs12",
        "crl-verify",
        "askpass",
        "tls-auth",
        "tls-crypt",
        "tls-crypt-v2",
    ];
    for name in read_only {
        let import = read(CLIENT, &format!("{name} /etc/shadow"), Options::default());
        let denied = import.report.with(Verdict::Refused);
        let mut denied = denied.filter(|it| it.reason.contains("--allow-files"));
        assert_eq!(denied.next(), None, "{name}");
    }
    let touching = [
        "log /x",
        "log-append /x",
        "status /x",
        "writepid /x",
        "auth-user-pass /x",
        "extra-certs /x",
        "config /x",
        "management /x unix",
        "management 0.0.0.0 7506",
        "http-proxy a 1 /x",
        "socks-proxy a 1 /x",
        "up /x",
        "down /x",
        "route-up /x",
        "ipchange /x",
        "tls-verify /x",
        "route-pre-down /x",
        "plugin /x",
        "iproute /x",
        "tls-export-cert /x",
        "replay-persist /x",
    ];
    for line in touching {
        let import = read(CLIENT, line, Options::default());
        let (said, reason) = verdict(&import);
        assert_ne!(said, Verdict::Honoured, "{line}: {reason}");
    }
}

/// Reads a profile that contains `line`, which names a file with this content.
fn including(line: &str, content: &str, permissions: Permissions) -> Import {
    let text = format!("{CLIENT}{line}\n");
    let mut read = |_: &Path| Ok(zeroize::Zeroizing::new(content.as_bytes().to_vec()));
    let options = Options {
        permissions,
        ..Options::default()
    };
    parse_bytes(text.as_bytes(), Path::new("a.ovpn"), &mut read, options).unwrap()
}

#[test]
fn no_file_is_read_as_configuration_that_a_profile_chose() {
    let mut never = |path: &Path| -> std::io::Result<_> { panic!("{path:?} was read") };
    let text = format!("{CLIENT}config /etc/shadow\nsetenv opt config /etc/shadow\n");
    let import = parse_bytes(
        text.as_bytes(),
        Path::new("a.ovpn"),
        &mut never,
        Options::default(),
    )
    .unwrap();
    let refused: Vec<_> = import.report.with(Verdict::Refused).collect();
    assert_eq!(refused.len(), 2);
    assert!(
        refused
            .iter()
            .all(|it| it.key == "config" && it.reason.contains("--allow-files"))
    );
    assert!(
        !import.is_usable(),
        "it may hold `tls-verify` or `verify-x509-name`"
    );
    let import = including("config common", "mssfix 1300\n", Permissions::FILES);
    assert_eq!(import.report.with(Verdict::Refused).count(), 0);
    assert!(import.report.entries.iter().any(|it| it.key == "mssfix"));
}

/// Includes files with various contents, each with a different fault: reports and errors never quote the content.
#[test]
fn an_included_files_words_are_in_no_report_and_in_no_error() {
    let long = "x".repeat(300);
    let secrets = [
        "root:$6$saltsalt$hash9:19000:0:99999:7:::",
        "hunter9",
        "correcthorse battery9 staple",
        "verb topsecret9",
        "cipher topsecret9",
        "remote topsecret9:99",
        "remote a topsecret9",
        "proto topsecret9",
        "dev \"topsecret9",
        "<topsecret9>\nx\n",
        "<topsecret9>\nx\n</topsecret9>",
        "<connection>\nremote a topsecret9\ntopsecret9\n</connection>",
        "<ca>\nx\n</ca>topsecret9",
        "route topsecret9",
        "keepalive topsecret9 1",
        "ping topsecret9",
        "script-security topsecret9",
        "management topsecret9 topsecret9",
        "--topsecret9 9",
        "verify-x509-name a topsecret9",
        "#! [Uplink]\n#! topsecret9 = 9",
        "dhcp-option DNS topsecret9",
        "compress topsecret9",
        "topsecret9=9",
        "ca /nowhere/topsecret9/ca.crt",
        "status /nowhere/topsecret9/status",
        "tls-auth topsecret9/ta.key 2",
        "management /nowhere/topsecret9 unix",
        "management topsecret9 1",
        long.as_str(),
    ];
    for secret in secrets {
        let content = format!("{secret}\n");
        for permissions in [Permissions::FILES, Permissions::ALL] {
            let mut import = including("config /etc/shadow", &content, permissions);
            import.check_files();
            let (report, warnings) = (&import.report, &import.warnings);
            let mut said = format!("{report:?} {warnings:?} {:?}", import.faults());
            if let Err(error) = import.into_model() {
                said += &error.to_string();
            }
            for word in [
                "secret9", "hash9", "$6$", "hunter9", "horse", "battery9", "xxxxxxxx",
            ] {
                assert!(!said.contains(word), "{secret}: {said}");
            }
        }
    }
}

/// Errors never quote a key or password file that was given on the command line as the configuration.
#[test]
fn a_file_that_is_no_configuration_is_not_quoted() {
    for text in [
        "root:$6$salt$hash9:1:2\n",
        "hunter9\n",
        "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n",
    ] {
        let import = read("", text, Options::default());
        let wg = config::wgquick::parse(text, "wg0.conf", Default::default());
        let said = format!("{:?} {:?} {:?}", import.report, import.faults(), wg.report);
        for word in ["hash9", "hunter9", "yAnz"] {
            assert!(!said.contains(word), "{text}: {said}");
        }
    }
}

/// Only the file with the profile's name may be sent to the server.
#[test]
fn a_profile_has_a_password_file_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("office.ovpn");
    let refused = |named: &str| {
        std::fs::write(&path, format!("{CLIENT}auth-user-pass {named}\n")).unwrap();
        let import = config::openvpn::read(&path, Options::default()).unwrap();
        import.report.with(Verdict::Refused).count()
    };
    let whole = directory
        .path()
        .join("office.password")
        .display()
        .to_string();
    for named in ["office.password", "office.pw", &whole] {
        assert_eq!(refused(named), 0, "{named}");
    }
    for named in [
        "other.password",
        "office.ovpn",
        "office.conf",
        "/etc/shadow",
        "../office.password",
    ] {
        assert_eq!(refused(named), 1, "{named}");
    }
    std::os::unix::fs::symlink("/etc/shadow", directory.path().join("office.password")).unwrap();
    assert_eq!(refused("office.password"), 1);
}

/// FIFOs would block the reader, and `/dev/kmsg` never ends.
#[test]
fn files_that_are_no_files_are_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    let mode = nix::sys::stat::Mode::S_IRUSR;
    nix::unistd::mkfifo(&fifo, mode).unwrap();
    let fifo = fifo.display();
    for line in [
        format!("ca {fifo}"),
        format!("askpass {fifo}"),
        format!("crl-verify {fifo}"),
        format!("tls-auth {fifo} 1"),
        "pkcs12 /dev/zero".to_owned(),
        format!("auth-user-pass {fifo}"),
        format!("config {fifo}"),
        format!("tmp-dir {fifo}"),
    ] {
        let path = directory.path().join("a.ovpn");
        std::fs::write(&path, format!("{CLIENT}{line}\n")).unwrap();
        let mut import = config::openvpn::read(&path, SCRIPTS).unwrap();
        import.check_files();
        let refused = import.report.with(Verdict::Refused);
        let mut said = refused.filter(|it| it.reason.contains("not a regular file"));
        assert!(said.next().is_some(), "{line}: {:?}", import.report);
    }
}
