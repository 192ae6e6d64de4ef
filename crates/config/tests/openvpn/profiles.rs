//! The profiles of providers and routers.

use config::error::ImportError;
use config::kind::Kind;
use config::openvpn::{
    Cipher, Digest, Family, Framing, KeyDirection, ManagementAddress, MssFix, NameRule, OpenVpn,
    PingTimeout, SharedWrap, Source, TlsVersion, parse_bytes, read,
};
use config::report::Verdict;
use std::path::Path;

use super::{CLIENT, PROFILES, SCRIPTS, built, no_files, path, profile, with};

fn model(name: &str) -> OpenVpn {
    profile(name).into_model().unwrap().0
}

#[test]
fn profiles_give_models_and_every_line_a_verdict() {
    for name in PROFILES {
        let text = std::fs::read_to_string(path(&format!("{name}.ovpn"))).unwrap();
        let import = profile(name);
        let mut inside: Option<String> = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            match &inside {
                Some(end) if line == end => inside = None,
                Some(_) => continue,
                None if line.is_empty() || line.starts_with('#') || line.starts_with("</") => {}
                None => {
                    let told = import
                        .report
                        .entries
                        .iter()
                        .any(|entry| entry.line == index + 1);
                    assert!(told, "{name}:{}: nothing is said of `{line}`", index + 1);
                    if line.starts_with('<') {
                        inside = Some(line.replace('<', "</"));
                    }
                }
            }
        }
        let refused: Vec<_> = import.report.with(Verdict::Refused).collect();
        // Scripts are refused unless permitted, but the profile still yields a model.
        assert!(
            refused
                .iter()
                .all(|entry| ["up", "down"].contains(&entry.key.as_str())),
            "{name}"
        );
        assert!(import.is_usable(), "{name}");
    }
}

#[test]
fn profiles_mean_what_they_mean_to_stock() {
    let nord = model("nordvpn");
    let connection = &nord.connections[0];
    assert_eq!(connection.mtu.mssfix, Some(MssFix::Link(1450)));
    assert!(!connection.local.bind && connection.local.port == 0);
    assert!(matches!(
        connection.wrap.shared,
        SharedWrap::TlsAuth {
            key: Source::Inline(_),
            direction: KeyDirection::Inverse
        }
    ));
    assert_eq!(nord.timers.ping_timeout, PingTimeout::Off);
    assert_eq!(nord.timers.renegotiation.seconds, 0);
    assert_eq!(
        (nord.data.framing, nord.data.auth),
        (Framing::Lzo, Digest::Sha512)
    );
    assert_eq!(nord.data.fallback, Some(Cipher::Aes256Cbc));
    assert!(matches!(nord.tls.rules.name, Some(NameRule::Name(_))));

    let proton = model("protonvpn");
    assert_eq!(proton.connections.len(), 4);
    assert!(proton.client().unwrap().remote_random);
    assert_eq!(proton.connections[3].remote.as_ref().unwrap().port, 4569);
    assert_eq!(proton.connections[0].connect_timeout, 20);
    assert_eq!(proton.connections[0].mtu.mssfix, Some(MssFix::Off));
    assert!(proton.scripts.up.is_none(), "not permitted");
    assert!(matches!(
        proton.connections[0].wrap.shared,
        SharedWrap::TlsCrypt { .. }
    ));

    let express = model("expressvpn");
    assert_eq!(express.connections[0].mtu.fragment.unwrap().bytes, 1300);
    assert!(express.tls.rules.netscape_type.is_some());
    assert_eq!(express.sockets.send_buffer, Some(524_288));
    assert_eq!(express.network.route_delay, Some(2));

    let air = model("airvpn");
    assert_eq!(air.data.ciphers.len(), 7);
    assert_eq!(air.connections[0].exit_notify, 5);
    assert!(air.client().unwrap().push_peer_info);
    assert_eq!(
        air.scripts.environment,
        [("UV_IPV6".to_owned(), "yes".to_owned())]
    );

    let pia = model("pia");
    assert!(pia.tls.crl.is_some());
    assert_eq!(
        (pia.data.auth, pia.data.framing),
        (Digest::Sha1, Framing::Swap)
    );

    let opnsense = model("opnsense");
    let local = &opnsense.connections[0].local;
    assert!(
        local.bind && local.port == 0,
        "`lport 0` binds, to any port"
    );
    assert!(
        opnsense
            .client()
            .unwrap()
            .static_challenge
            .as_ref()
            .unwrap()
            .echo
    );
    assert!(opnsense.connections[0].wrap.tls_crypt_v2.is_some());
    assert_eq!(opnsense.data.framing, Framing::V2);

    let installer = model("installer");
    assert_eq!(installer.tls.rules.peer_fingerprints.len(), 1);
    assert!(installer.tls.ca.is_none());
    assert_eq!(installer.tls.version_min, TlsVersion::V1_2);

    assert_eq!(model("pfsense").connections[0].protocol.family, Family::V4);
    assert_eq!(
        model("merlin").timers.ping_timeout,
        PingTimeout::Restart(60)
    );
    assert_eq!(model("synology").data.ciphers, [Cipher::Aes256Cbc]);
    assert!(model("torguard").network.routes.is_empty());
}

#[test]
fn a_router_as_server() {
    let import = read(&path("server.conf"), SCRIPTS).unwrap();
    let (model, report) = import.into_model().unwrap();
    assert!(report.is_clean());
    let server = model.server().unwrap();
    let push = [
        "route 192.168.1.0 255.255.255.0 vpn_gateway 500",
        "dhcp-option DNS 192.168.1.1",
        "tun-ipv6",
        "route-gateway 10.8.0.1",
        "topology subnet",
        "ping 15",
        "ping-restart 60",
    ];
    assert_eq!(server.push, push);
    let pool = server.pool.unwrap();
    assert_eq!(
        (pool.start.to_string(), pool.end.to_string()),
        ("10.8.0.2".into(), "10.8.0.254".into())
    );
    assert_eq!(server.pool_v6.unwrap().base.to_string(), "fd00:8::1000");
    assert_eq!(
        model.network.ifconfig.unwrap().local.to_string(),
        "10.8.0.1"
    );
    assert_eq!(
        model
            .network
            .ifconfig_v6
            .unwrap()
            .remote
            .unwrap()
            .to_string(),
        "fd00:8::2"
    );
    assert_eq!(model.timers.ping_timeout, PingTimeout::Restart(120));
    assert!(model.tls.force_cookie);
    let wrap = &model.connections[0].wrap;
    assert!(wrap.tls_crypt_v2.is_some());
    assert!(matches!(
        wrap.shared,
        SharedWrap::TlsAuth {
            direction: KeyDirection::Normal,
            ..
        }
    ));
    let management = model.service.management.as_ref().unwrap();
    assert_eq!(
        management.address,
        ManagementAddress::Unix("/run/openvpn.sock".into())
    );
    assert_eq!(server.auth_token.as_ref().unwrap().lifetime, 43_200);
    let verify = model.scripts.auth_user_pass_verify.as_ref().unwrap();
    assert_eq!(verify.words, ["/etc/openvpn/check-password", "--strict"]);
}

#[test]
fn secrets_are_not_shown() {
    for name in PROFILES {
        let import = profile(name);
        let shown = format!("{import:?}");
        assert!(!shown.contains("BEGIN"), "{name}");
        let key = std::fs::read_to_string(path("keys/client.key")).unwrap();
        assert!(!shown.contains(key.lines().nth(1).unwrap()), "{name}");
    }
    let shown = format!(
        "{:?}",
        with(
            CLIENT,
            "auth-token SESS_ID_abc\n<auth-user-pass>\nme\nsesame\n</auth-user-pass>"
        )
    );
    assert!(!shown.contains("SESS_ID_abc") && !shown.contains("sesame"));
}

/// Old editors save such files: one byte that is not UTF-8 spoils only the value that contains it, not the whole file.
#[test]
fn bytes_that_are_no_utf8_harm_only_the_value_that_they_stand_in() {
    let parse =
        |bytes: &[u8]| parse_bytes(bytes, Path::new("a.ovpn"), &mut no_files, SCRIPTS).unwrap();
    let client = CLIENT.as_bytes();
    let harmless = [
        &b"# R\xe9seau\nverb 3 # \xe9\n"[..],
        b"<cert>\nSubject: O=Soci\xe9t\xe9\n-----BEGIN\n</cert>\nkey k\n",
        b"<connection>\nremote a # \xe9\n</connection>\n",
    ];
    for lines in harmless {
        let import = parse(&[client, lines].concat());
        assert!(import.is_usable(), "{:?}", import.faults());
    }
    let harmful = [
        (
            &b"\nverify-x509-name Caf\xe9 name\n"[..],
            "a.ovpn:8: verify-x509-name",
        ),
        (
            b"<auth-user-pass>\nme\ns\xe9same\n</auth-user-pass>\n",
            "a.ovpn:7: auth-user-pass",
        ),
        (
            b"<connection>\nremote a\xe9\n</connection>\n",
            "a.ovpn:8: remote",
        ),
        (b"verb\xff 3\n", "a.ovpn:7: verb"),
    ];
    for (lines, wanted) in harmful {
        let import = parse(&[client, lines].concat());
        let fault = import.faults().join("\n");
        assert!(
            fault.contains(wanted) && fault.contains("not UTF-8"),
            "{fault}"
        );
    }
    let other = parse_bytes(b"\x7fELF\xff\0", Path::new("a"), &mut no_files, SCRIPTS);
    assert!(matches!(other, Err(ImportError::NotText { line: 1, .. })));
}

#[test]
fn what_a_file_is_its_content_says() {
    let directory = tempfile::tempdir().unwrap();
    let conf = "[Interface]\nPrivateKey = x\n[Peer]\nEndpoint = a:1\n";
    let cases = [
        ("client.conf.example", "# a sample\nclient\ndev tun\n", true),
        ("server.conf", "tls-server\n", true),
        ("office", "--port 1194\n", true),
        ("inline.conf", "<ca>\n[x]\n</ca>\n", true),
        ("wg0.conf", conf, false),
        ("wg0.ovpn", conf, false),
        ("lower", "[interface]\nport = 1\n", false),
        ("empty.ovpn", "", true),
        ("empty.conf", "", false),
    ];
    for (name, text, wanted) in cases {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        assert_eq!(Kind::at(&path) == Kind::OpenVpn, wanted, "{name}");
    }
    let missing = directory.path().join("missing");
    assert_eq!(Kind::at(&missing), Kind::WireGuard);
}

/// The directive is accepted inside a block without effect there, as in the stock program.
#[test]
fn rounds_are_counted_over_all_connections() {
    let block = "<connection>\nremote a\nconnect-retry-max 1\n</connection>";
    let import = with(CLIENT, block);
    let entry = import
        .report
        .entries
        .iter()
        .find(|it| it.key == "connect-retry-max");
    assert_eq!(entry.unwrap().verdict, Verdict::Ignored);
    let model = built(CLIENT, block);
    assert_eq!(model.client().unwrap().connect_retry_max, None);
    let model = built(CLIENT, &format!("connect-retry-max 7\n{block}"));
    assert_eq!(model.client().unwrap().connect_retry_max, Some(7));
}
