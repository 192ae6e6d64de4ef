//! Refused directives and the reasons given for refusing them.

use config::report::Verdict;

use super::{CLIENT, SERVER, parse, with};

#[test]
fn faults_in_a_block_are_found_on_their_line() {
    let import = with(
        CLIENT,
        "<connection>\nremote a\nverb 3\nproto x\n</connection>",
    );
    let lines: Vec<_> = import
        .report
        .with(Verdict::Refused)
        .map(|e| (e.line, &*e.key))
        .collect();
    assert_eq!(lines, [(9, "verb"), (10, "proto")]);
}

/// Lines added to a valid client or server, the directive that is refused, and part of the reason.
const CONFLICTS: [(&str, &str, &str, &str); 62] = [
    (CLIENT, "secret static.key", "secret", "peer-fingerprint"),
    (CLIENT, "dev tap", "dev", "dev tun"),
    (CLIENT, "dev-type tap", "dev-type", "dev tun"),
    (CLIENT, "dev vpn0", "dev", "dev-type tun"),
    (
        CLIENT,
        "server 10.8.0.0 255.255.255.0",
        "client",
        "lines for a server",
    ),
    (CLIENT, "tls-server", "client", "lines for a server"),
    (
        CLIENT,
        "tls-auth a 1\ntls-crypt b",
        "tls-crypt",
        "exclude each other",
    ),
    (
        CLIENT,
        "tls-auth a 1\ntls-crypt-v2 b",
        "tls-crypt-v2",
        "one of",
    ),
    (CLIENT, "tls-auth a 1\nauth none", "auth", "digest"),
    (
        CLIENT,
        "data-ciphers AES-256-GCM:AES-256-CBC\nauth none",
        "auth",
        "AES-256-CBC with `auth none` needs --allow-insecure-ciphers",
    ),
    (
        CLIENT,
        "data-ciphers-fallback AES-128-CBC\nauth MD5",
        "auth",
        "auth SHA256",
    ),
    (CLIENT, "cert c.crt", "cert", "no `key`"),
    (CLIENT, "key c.key", "key", "no `cert`"),
    (CLIENT, "pkcs12 p\ncert c\nkey d", "cert", "pkcs12"),
    (
        CLIENT,
        "data-ciphers BF-CBC",
        "data-ciphers",
        "--allow-insecure-ciphers",
    ),
    (
        CLIENT,
        "data-ciphers-fallback DES-CBC",
        "data-ciphers-fallback",
        "--allow-insecure-ciphers",
    ),
    (
        CLIENT,
        "data-ciphers-fallback AES-256-CFB",
        "data-ciphers-fallback",
        "not supported",
    ),
    (CLIENT, "data-ciphers :", "data-ciphers", "name a cipher"),
    (CLIENT, "auth WHIRLPOOL", "auth", "SHA256"),
    (CLIENT, "fragment 1300\nproto tcp", "fragment", "udp"),
    (
        CLIENT,
        "http-proxy 127.0.0.1 8080",
        "http-proxy",
        "tcp-client",
    ),
    (
        CLIENT,
        "socks-proxy 127.0.0.1 1080",
        "socks-proxy",
        "tcp-client",
    ),
    (
        CLIENT,
        "proto tcp\nhttp-proxy a 1 f ntlm",
        "http-proxy",
        "NTLM",
    ),
    (
        CLIENT,
        "http-proxy-option VERSION 1.1",
        "http-proxy-option",
        "http-proxy HOST",
    ),
    (CLIENT, "nobind\nlport 1194", "lport", "opposite"),
    (CLIENT, "nobind\nlocal 127.0.0.1", "local", "opposite"),
    (CLIENT, "local 127.0.0.1\nlocal ::1", "local", "one address"),
    (CLIENT, "tun-mtu 1400\nlink-mtu 1500", "link-mtu", "tun-mtu"),
    (CLIENT, "keepalive 10 60\nping 5", "ping", "keepalive"),
    (CLIENT, "keepalive 40 60", "keepalive", "twice"),
    (CLIENT, "up /bin/true", "up", "script-security 2"),
    (CLIENT, "client-to-client", "client-to-client", "servers"),
    (
        CLIENT,
        "management-hold",
        "management-hold",
        "management ADDRESS",
    ),
    (
        CLIENT,
        "tls-version-min 1.3\ntls-version-max 1.2",
        "tls-version-min",
        "above",
    ),
    (CLIENT, "tls-version-max 1.1", "tls-version-max", "TLS 1.2"),
    (
        CLIENT,
        "tls-cert-profile insecure",
        "tls-cert-profile",
        "forged",
    ),
    (CLIENT, "plugin auth-pam.so", "plugin", "script"),
    (CLIENT, "no-replay", "no-replay", "remove"),
    (CLIENT, "shaper 99", "shaper", "100"),
    (SERVER, "shaper 1000", "shaper", "tc qdisc"),
    (CLIENT, "dns server 1 dnssec yes", "dns", "no address"),
    (CLIENT, "setenv GENERIC_CONFIG", "setenv", "template"),
    (CLIENT, "key-method 1", "key-method", "method 2"),
    (CLIENT, "config other.ovpn", "config", "cannot be read"),
    (CLIENT, "remote a 70000", "remote", "70000"),
    (
        CLIENT,
        "route 10.0.0.1 255.0.0.0",
        "route",
        "10.0.0.0 255.0.0.0",
    ),
    (CLIENT, "topology star", "topology", "subnet"),
    (CLIENT, "chroot /srv/jail", "chroot", "service file"),
    (CLIENT, "dev-node /dev/tun1", "dev-node", "/dev/net/tun"),
    (
        CLIENT,
        "management tunnel 7505",
        "management",
        "Unix socket",
    ),
    (
        CLIENT,
        "management a 1\nmanagement-query-remote",
        "management-query-remote",
        "`remote`",
    ),
    (
        CLIENT,
        "keying-material-exporter EXPORTER-a 32",
        "keying-material-exporter",
        "remove",
    ),
    (
        SERVER,
        "management a 1\nmanagement-client-auth",
        "management-client-auth",
        "auth-user-pass-verify",
    ),
    (SERVER, "mtu-disc never", "mtu-disc", "maybe"),
    (SERVER, "stale-routes-check 0", "stale-routes-check", "`0`"),
    (SERVER, "nobind", "nobind", "listens"),
    (SERVER, "remote a", "remote", "no remote"),
    (SERVER, "port-share 127.0.0.1 443", "port-share", "sslh"),
    (
        SERVER,
        "verify-client-cert none",
        "verify-client-cert",
        "auth-user-pass-file",
    ),
    (SERVER, "redirect-gateway def1", "redirect-gateway", "push"),
    (
        SERVER,
        "ifconfig-pool 10.8.0.9 10.8.0.20",
        "ifconfig-pool",
        "nopool",
    ),
    (SERVER, "push \"a,b\"", "push", "comma"),
];

#[test]
fn what_does_not_go_together_is_refused_with_a_remedy() {
    for (base, lines, key, reason) in CONFLICTS {
        let import = with(base, lines);
        let found = import
            .report
            .with(Verdict::Refused)
            .any(|entry| entry.key == key && entry.reason.contains(reason) && entry.line > 0);
        assert!(found, "{lines}: {:?}", import.report.entries);
        assert!(!import.is_usable(), "{lines}");
    }
}

#[test]
fn what_has_no_effect_is_said() {
    for (base, lines) in [
        (CLIENT, "link-mtu 1400"),
        (CLIENT, "passtos"),
        (CLIENT, "replay-window 128 30"),
        (CLIENT, "disable-dco"),
        (CLIENT, "dev-node MyTap"),
        (CLIENT, "allow-pull-fqdn"),
        (CLIENT, "ping-timer-rem"),
        (CLIENT, "x509-track CN"),
        (CLIENT, "persist-local-ip"),
        (SERVER, "opt-verify"),
        (SERVER, "stale-routes-check 60"),
        (SERVER, "tcp-queue-limit 256"),
        (SERVER, "tls-exit"),
    ] {
        let import = with(base, lines);
        assert!(import.is_usable(), "{lines}");
        let ignored: Vec<_> = import.report.with(Verdict::Ignored).collect();
        assert_eq!(ignored.len(), 1, "{lines}: {ignored:?}");
        assert!(!ignored[0].reason.is_empty(), "{lines}");
    }
}

#[test]
fn what_compression_risks_is_said_and_that_it_is_undone_unless_forbidden() {
    for lines in [
        "comp-lzo",
        "compress lzo",
        "compress lz4",
        "compress lz4-v2",
    ] {
        let import = with(CLIENT, lines);
        let key = lines.split(' ').next().unwrap();
        let said = import.report.entries.iter().find(|entry| entry.key == key);
        let said = said.unwrap();
        assert_eq!(said.verdict, Verdict::Honoured, "{lines}");
        assert!(said.reason.contains("accepts compressed ones") && said.reason.contains("VORACLE"));
        let (model, _) = import.into_model().unwrap();
        assert!(model.data.unpack);
    }
    let import = with(CLIENT, "comp-lzo\nallow-compression no");
    let (model, _) = import.into_model().unwrap();
    assert!(!model.data.unpack);
}

#[test]
fn what_is_missing_is_said() {
    for (lacking, key) in [
        ("remote vpn.example.net\n", "remote"),
        ("ca ca.crt\n", "ca"),
        ("dev tun\n", "dev"),
        ("auth-user-pass\n", "auth-user-pass"),
        ("client\n", ""),
    ] {
        let import = parse(&CLIENT.replace(lacking, ""));
        let refused: Vec<_> = import.report.with(Verdict::Refused).collect();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert_eq!((refused[0].line, &*refused[0].key), (0, key));
        let error = import.into_model().unwrap_err().to_string();
        assert!(error.starts_with("a.ovpn: "), "{error}");
    }
    let import = parse(&CLIENT.replace("remote-cert-tls server\n", ""));
    assert!(import.is_usable());
    assert!(import.warnings[0].contains("No server certificate verification method"));
}

#[test]
fn point_to_point_is_refused_for_now() {
    for text in [
        CLIENT.replace("client\n", "tls-client\n"),
        SERVER.replace("server 10.8.0.0 255.255.255.0", "tls-server"),
    ] {
        let import = parse(&text);
        assert!(
            import
                .report
                .with(Verdict::Refused)
                .any(|e| e.reason.contains("peer-to-peer tunnels"))
        );
    }
}

#[test]
fn unknown_directives() {
    let import = with(CLIENT, "remte a\nverb\nverb 1 2");
    let reasons: Vec<_> = import
        .report
        .with(Verdict::Refused)
        .map(|e| e.reason.clone())
        .collect();
    assert_eq!(reasons.len(), 3);
    let stock = "Unrecognized option or missing or extra parameter(s)";
    assert!(
        reasons.iter().all(|reason| reason.starts_with(stock)),
        "{reasons:?}"
    );
    assert!(reasons[0].contains("did you mean `remote`?"));
    for lines in [
        "ignore-unknown-option foo --bar\nfoo 1\nbar",
        "setenv opt foo 1",
        "setenv FORWARD_COMPATIBLE 1\nfoo 1",
    ] {
        let import = with(CLIENT, lines);
        assert!(import.report.is_clean(), "{lines}");
        assert!(
            import.report.with(Verdict::Ignored).next().is_some(),
            "{lines}"
        );
    }
    // `setenv opt` marks a directive as optional: an unsupported one does not stop the rest.
    assert!(with(CLIENT, "setenv opt client-nat snat a b c").is_usable());
}

#[test]
fn files_that_cannot_be_used_are_refused_on_their_lines() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["ca.crt", "plain.sh"] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    let lines = format!(
        "cd {}\nscript-security 2\nup ./plain.sh\ndown ./missing.sh\nroute-up env\n\
         status nowhere/status 10\nlog here.log\ntls-auth ta.key 1",
        directory.path().display()
    );
    let mut import = with(CLIENT, &lines);
    assert!(import.is_usable());
    import.check_files();
    let expected = [
        ("tls-auth", 14, "cannot be read"),
        ("status", 12, "make it"),
        ("up", 9, "chmod +x"),
        ("down", 10, "cannot be run"),
    ];
    assert_eq!(import.faults().len(), expected.len());
    for (fault, (name, line, reason)) in import.faults().iter().zip(expected) {
        let place = format!("a.ovpn:{line}: {name}: ");
        assert!(
            fault.starts_with(&place) && fault.contains(reason),
            "{fault}"
        );
        let mut refused = import.report.with(Verdict::Refused);
        assert!(refused.any(|entry| (&*entry.key, entry.line) == (name, line)));
    }
    assert!(!import.is_usable());
}

#[test]
fn messages_find_their_line() {
    let model = super::built(CLIENT, "verb 3\nverb 4");
    let located = model.located("ca: it is empty");
    assert_eq!(located, "a.ovpn:4: ca: it is empty");
    assert_eq!(model.place("verb"), Some("a.ovpn:8"));
    assert_eq!(model.located("nobody is there"), "nobody is there");
}
