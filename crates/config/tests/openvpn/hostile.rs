//! Malicious and meaningless configuration texts.

use std::path::Path;

use config::openvpn::{BYTES_MAX, DIRECTIVES_MAX, parse_arguments, parse_bytes};
use config::report::Verdict;
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::{CLIENT, SCRIPTS, SERVER, no_files, parse, with};

#[test]
fn hostile_files_end_soon() {
    let deep = "<connection>\n".repeat(10_000);
    assert!(!parse(&deep).is_usable());
    assert!(parse(&"\\x\n".repeat(100_000)).report.entries.len() < 2000);
    assert!(parse(&"foo\n".repeat(100_000)).report.entries.len() < 2000);
    let mut itself = |_: &Path| Ok(Zeroizing::new(b"config a\nconfig a\nconfig a\n".repeat(50)));
    let import = parse_bytes(b"config a\n", Path::new("a"), &mut itself, SCRIPTS).unwrap();
    assert!(!import.is_usable());
}

/// Size limits cover all files of a configuration together, and directives inside blocks count too.
#[test]
fn a_file_that_names_itself_is_not_read_again_and_again() {
    let mut read = 0;
    let text = "config a\nconfig a\n".to_owned() + &"#\n".repeat(BYTES_MAX / 4);
    let mut itself = |_: &Path| {
        read += text.len();
        Ok(Zeroizing::new(text.clone().into_bytes()))
    };
    let import = parse_bytes(text.as_bytes(), Path::new("a"), &mut itself, SCRIPTS).unwrap();
    assert!(import.faults().iter().any(|fault| fault.contains("bytes")));
    assert!(read <= 2 * BYTES_MAX, "{read}");

    let lines = "verb 3\n".repeat(DIRECTIVES_MAX * 2);
    for text in [
        lines.clone(),
        format!("<connection>\n{lines}</connection>\n"),
    ] {
        let import = with(CLIENT, &text);
        let many = |fault: &String| fault.contains("directives");
        assert!(import.faults().iter().any(many));
        assert!(import.report.entries.len() <= DIRECTIVES_MAX + 10);
    }
}

fn any_line() -> impl Strategy<Value = String> {
    let names = proptest::sample::select(vec![
        "client",
        "server",
        "dev",
        "remote",
        "proto",
        "port",
        "cipher",
        "data-ciphers",
        "auth",
        "route",
        "route-ipv6",
        "dns",
        "dhcp-option",
        "push",
        "keepalive",
        "ifconfig",
        "mssfix",
        "fragment",
        "tls-auth",
        "tls-crypt",
        "peer-fingerprint",
        "verify-hash",
        "http-proxy",
        "socks-proxy",
        "management",
        "setenv",
        "up",
        "ifconfig-pool",
        "server-ipv6",
        "tun-mtu",
        "reneg-sec",
        "connect-freq",
        "redirect-gateway",
        "compress",
        "static-challenge",
        "<connection>",
        "</connection>",
        "<ca>",
        "</ca>",
        "ca",
        "cert",
        "key",
        "auth-user-pass",
        "genkey",
        "config",
        "cd",
        "ignore-unknown-option",
        "x509-username-field",
    ]);
    let values = proptest::sample::select(vec![
        "tun",
        "tap",
        "udp",
        "tcp",
        "0",
        "1",
        "2",
        "1194",
        "4294967296",
        "-1",
        "10.8.0.0",
        "255.255.255.0",
        "255.255.255.248",
        "fd00::/64",
        "a.example",
        "none",
        "BF-CBC",
        "server",
        "address",
        "\"a b\"",
        "'",
        "\\",
        "x",
        "::",
        "DEFAULT",
        "opt",
        "é",
        "AB:CD",
    ]);
    (names, proptest::collection::vec(values, 0..5))
        .prop_map(|(name, values)| format!("{name} {}", values.join(" ")))
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\PC|\n|<|>|/){0,400}") {
        let _ = parse(&text).into_model();
    }

    #[test]
    fn no_mixture_of_lines_panics(lines in proptest::collection::vec(any_line(), 0..40)) {
        let text = lines.join("\n");
        for base in ["", CLIENT, SERVER] {
            let import = with(base, &text);
            let usable = import.is_usable();
            let refused = import.report.with(Verdict::Refused).any(|e| e.key != "up");
            prop_assert_eq!(import.into_model().is_ok(), usable);
            prop_assert!(!(usable && refused));
        }
    }

    #[test]
    fn no_arguments_panic(arguments in proptest::collection::vec("(--)?\\PC{0,12}", 0..12)) {
        let _ = parse_arguments(&arguments, &mut no_files, SCRIPTS);
    }
}
