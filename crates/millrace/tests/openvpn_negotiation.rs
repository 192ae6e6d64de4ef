//! Cipher negotiation between ends with different directives: releases before 2.6 name ciphers with other directives,
//! and may have negotiation disabled.
//!
//! `MILLRACE_OPENVPN=/path/to/openvpn` uses another stock program, 2.4 or later.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::openvpn::{Ends, Pair, credentials, ready};
use lab::acceptance::{Net, pings, tcp_both_ways, udp_both_ways, until};
use lab::openvpn::{ConfigFile, KeyKind, OpenVpn as _, RunningOpenVpn, Setup, StockOpenVpn};

type Release = (u16, u16);

/// Releases before 2.6, in which negotiation can be disabled.
const UNTIL_2_5: [Release; 2] = [(2, 4), (2, 5)];
/// All releases.
const ALL: [Release; 2] = [(2, 4), (2, 99)];

/// A procedure by which two ends agree on a cipher.
struct Case {
    pair: Pair,
    /// The stock releases that know these directives.
    releases: [Release; 2],
    stock: &'static str,
    ours: &'static str,
    cipher: &'static str,
}

const CASES: [Case; 10] = [
    Case {
        pair: Pair::Server,
        releases: ALL,
        stock: "",
        ours: "",
        cipher: "AES-256-GCM",
    },
    Case {
        pair: Pair::Client,
        releases: ALL,
        stock: "",
        ours: "",
        cipher: "AES-256-GCM",
    },
    // Profiles from before 2.5, with newer programs.
    Case {
        pair: Pair::Server,
        releases: ALL,
        stock: "cipher AES-256-CBC\nauth SHA256",
        ours: "data-ciphers AES-256-GCM:AES-256-CBC\nauth SHA256",
        cipher: "AES-256-GCM",
    },
    Case {
        pair: Pair::Client,
        releases: ALL,
        stock: "cipher AES-256-CBC\nauth SHA256",
        // A client tells a 2.4 server that it negotiates only if it accepts both GCM ciphers.
        ours: "data-ciphers AES-256-GCM:AES-128-GCM:AES-256-CBC\nauth SHA256",
        cipher: "AES-256-GCM",
    },
    Case {
        pair: Pair::Server,
        releases: ALL,
        stock: "",
        ours: "data-ciphers AES-128-GCM",
        cipher: "AES-128-GCM",
    },
    // Without negotiation, the cipher in the peer's options string decides.
    Case {
        pair: Pair::Server,
        releases: UNTIL_2_5,
        stock: "ncp-disable\ncipher AES-256-CBC\nauth SHA256",
        ours: "data-ciphers AES-256-GCM:AES-256-CBC\nauth SHA256",
        cipher: "AES-256-CBC",
    },
    Case {
        pair: Pair::Client,
        releases: UNTIL_2_5,
        stock: "ncp-disable\ncipher AES-256-CBC\nauth SHA256",
        ours: "data-ciphers AES-256-GCM:AES-256-CBC\nauth SHA256",
        cipher: "AES-256-CBC",
    },
    Case {
        pair: Pair::Client,
        releases: ALL,
        stock: "cipher AES-128-GCM",
        ours: "data-ciphers-fallback AES-192-CBC",
        cipher: "AES-256-GCM",
    },
    // A client that accepts only CBC can tell a 2.5 server so, but has no message that 2.4 understands.
    Case {
        pair: Pair::Client,
        releases: UNTIL_2_5,
        stock: "cipher AES-256-CBC",
        ours: "data-ciphers AES-256-CBC",
        cipher: "AES-256-CBC",
    },
    Case {
        pair: Pair::Server,
        releases: UNTIL_2_5,
        stock: "cipher AES-256-CBC",
        ours: "data-ciphers AES-256-CBC:AES-128-CBC",
        cipher: "AES-256-CBC",
    },
];

fn has(release: Release, [first, last]: [Release; 2]) -> bool {
    (first..=last).contains(&release)
}

/// Starts both ends with the case's cipher lines in place of their own.
fn start<'h>(net: &'h Net, case: &Case) -> [RunningOpenVpn<'h>; 2] {
    let setup = Setup::default();
    let [at_server, at_client] = case.pair.programs(false);
    let (server, client) = match case.pair {
        Pair::Client => (case.stock, case.ours),
        Pair::Server | Pair::Both => (case.ours, case.stock),
    };
    let keys = credentials(KeyKind::Ecdsa);
    let own = |mut file: ConfigFile, lines| {
        for name in ["cipher", "data-ciphers", "ncp-ciphers", "auth"] {
            file.remove(name);
        }
        file.append(&ConfigFile::parse(lines));
        file
    };
    let outer = net.link.b4();
    let file = setup.server_file(at_server.as_ref(), keys, outer).unwrap();
    let server = at_server.start(&net.b, &own(file, server)).unwrap();
    let file = setup.client_file(at_client.as_ref(), keys, outer).unwrap();
    let client = at_client.start(&net.a, &own(file, client)).unwrap();
    [server, client]
}

#[test]
fn a_cipher_is_found() {
    if !ready() {
        return;
    }
    let release = StockOpenVpn.release();
    for case in CASES.iter().filter(|case| has(release, case.releases)) {
        let net = Net::new();
        let [server, client] = start(&net, case);
        let target = Setup::default().inner4(1).to_string();
        pings(&net.a, &target, 3);
        tcp_both_ways(&net.a, &net.b, &target, 300_000);
        let ours = match case.pair {
            Pair::Client => &client,
            Pair::Server | Pair::Both => &server,
        };
        let line = format!("Data Channel: cipher '{}'", case.cipher);
        assert_eq!(
            ours.said(&line),
            1,
            "{:?} {:?} {:?}",
            case.pair,
            case.stock,
            case.ours
        );
    }
}

/// User name and password, and the server's token that replaces them, stay valid across renewals of the keys.
#[test]
fn tokens_are_renewed_with_the_keys() {
    if !ready() {
        return;
    }
    for pair in [Pair::Client, Pair::Server] {
        let net = Net::new();
        let mut setup = Setup::default();
        setup.server.line("script-security 2");
        setup
            .server
            .line("auth-user-pass-verify /bin/true via-file");
        setup.server.line("auth-gen-token 60");
        setup
            .client
            .line("auth-user-pass login")
            .line("auth-nocache");
        setup.client.line("reneg-sec 2");
        setup.client.file("login", "somebody\nsecret\n");
        let ends = Ends::new(&net, &setup, pair.programs(false));
        until("three changes of keys", || {
            udp_both_ways(&net.a, &net.b, &ends.server4, 500, 1300);
            ends.client.said("Control Channel: TLSv1") >= 4
        });
        assert_eq!(ends.client.said(lab::openvpn::READY_LINE), 1, "{pair:?}");
    }
}
