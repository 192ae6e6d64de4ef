//! OpenVPN tunnels in all variants, with the stock program and with ourselves, in both roles. The cases cover every
//! pair of choices, and the test compares the content they carry.
//!
//! `MILLRACE_TEST_BYTES=100000000` sends 100 MB each way in each case; the usual few megabytes find faults in the first
//! packets.
//! `MILLRACE_OPENVPN=/path/to/openvpn` uses another stock program, 2.4 or later, and skips the features it lacks.
//! `MILLRACE_TEST_STOCK=1` puts the stock program in our place, here and in the other OpenVPN tests, to prove that each
//! requirement can be met.

use lab::acceptance::Net;
use lab::acceptance::openvpn::{Ends, Pair, amount, ready, stock};
use lab::acceptance::pairwise::{Choice, pairwise};
use lab::openvpn::{
    Cipher, Digest, Framing, KeyKind, OpenVpn as _, RARE_DIGESTS, Setup, StockOpenVpn, Transport,
    Wrap,
};

const TRANSPORTS: [Transport; 2] = [Transport::Udp, Transport::Tcp];
const WRAPS: [Wrap; 4] = [Wrap::Plain, Wrap::TlsAuth, Wrap::TlsCrypt, Wrap::TlsCryptV2];
const DIGESTS: [Digest; 5] = [
    Digest::Sha1,
    Digest::Sha256,
    Digest::Sha384,
    Digest::Sha512,
    Digest::None,
];
const FRAMINGS: [Framing; 4] = [
    Framing::None,
    Framing::CompLzoNo,
    Framing::Compress,
    Framing::StubV2,
];
const FRAGMENTS: [Option<u16>; 2] = [None, Some(1300)];

/// Indices of a case's parameters.
const PAIR: usize = 0;
const TRANSPORT: usize = 1;
const WRAP: usize = 2;
const AUTH: usize = 3;
const FRAGMENT: usize = 4;
const PRF: usize = 5;

#[derive(Debug)]
struct Case {
    pair: Pair,
    /// Keys from the TLS 1.0 PRF, as before 2.6, instead of the TLS exporter.
    prf: bool,
    v6: bool,
    kind: KeyKind,
    setup: Setup,
}

fn cases() -> Vec<Case> {
    let sizes = [
        Pair::ALL.len(),
        TRANSPORTS.len(),
        WRAPS.len(),
        DIGESTS.len(),
        FRAGMENTS.len(),
        2,
        2,
        KeyKind::ALL.len(),
        Cipher::ALL.len(),
        FRAMINGS.len(),
        2,
    ];
    let forbidden = |a: (usize, usize), b: (usize, usize)| match (a, b) {
        // Two Millrace ends always use the exporter.
        ((PAIR, pair), (PRF, prf)) => Pair::ALL[pair] == Pair::Both && prf == 1,
        // TCP needs no fragmentation into datagrams.
        ((TRANSPORT, transport), (FRAGMENT, fragment)) => {
            TRANSPORTS[transport] == Transport::Tcp && FRAGMENTS[fragment].is_some()
        }
        // Without a digest there is no HMAC.
        ((WRAP, wrap), (AUTH, auth)) => {
            WRAPS[wrap] == Wrap::TlsAuth && DIGESTS[auth] == Digest::None
        }
        _ => false,
    };
    let case = |values: Vec<usize>| Case {
        pair: Pair::ALL[values[PAIR]],
        prf: values[PRF] == 1,
        v6: values[6] == 1,
        kind: KeyKind::ALL[values[7]],
        setup: Setup {
            transport: TRANSPORTS[values[TRANSPORT]],
            wrap: WRAPS[values[WRAP]],
            auth: DIGESTS[values[AUTH]],
            fragment: FRAGMENTS[values[FRAGMENT]],
            cipher: Cipher::ALL[values[8]],
            framing: FRAMINGS[values[9]],
            tls12: values[10] == 1,
            ..Setup::default()
        },
    };
    pairwise(&sizes, forbidden).into_iter().map(case).collect()
}

/// Runs every case of one pair of programs, and lists those that failed.
fn interoperates(pair: Pair) {
    if !ready() {
        return;
    }
    let mut failed = Vec::new();
    let cases: Vec<Case> = cases()
        .into_iter()
        .filter(|case| case.pair == pair && case.setup.is_of(StockOpenVpn.release()))
        .collect();
    for case in &cases {
        let run = || {
            let net = Net::new();
            let programs = pair.programs(case.prf);
            Ends::with(&net, &case.setup, programs, case.kind, case.v6).carries(amount());
        };
        // One failure must not hide the others: together they show a common cause.
        if std::panic::catch_unwind(run).is_err() {
            failed.push(case);
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} cases failed: {failed:#?}",
        failed.len(),
        cases.len()
    );
}

#[test]
fn millrace_at_both_ends() {
    interoperates(Pair::Both);
}

#[test]
fn millrace_calls_the_stock_server() {
    interoperates(Pair::Client);
}

#[test]
fn stock_client_calls_millrace() {
    interoperates(Pair::Server);
}

/// The rarer digests, for control packets and data. A session that comes up proves nothing about the data digest.
#[test]
fn every_digest_carries_packets_and_not_only_the_handshake() {
    if !ready() {
        return;
    }
    for (number, auth) in RARE_DIGESTS.into_iter().enumerate() {
        let pair = [Pair::Client, Pair::Server][number % 2];
        let net = Net::new();
        let setup = Setup {
            wrap: Wrap::TlsAuth,
            cipher: Cipher::Aes256Cbc,
            auth,
            ..Setup::default()
        };
        println!("{} {pair:?}", auth.name());
        Ends::new(&net, &setup, pair.programs(false)).carries(100_000);
    }
}

/// The stock program passes the test that Millrace has to pass.
#[test]
fn stock_at_both_ends() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let setup = Setup {
        wrap: Wrap::TlsCryptV2,
        cipher: Cipher::Aes256Cbc,
        auth: Digest::Sha256,
        framing: Framing::StubV2,
        fragment: Some(1300),
        ..Setup::default()
    };
    Ends::new(&net, &setup, stock(false)).carries(amount());
}

/// Checks that the cases cover all allowed pairs and contain no forbidden one.
#[test]
fn every_pair_occurs_and_no_forbidden_one() {
    let sizes = [3, 2, 4, 5, 2];
    let forbidden = |a: Choice, b: Choice| a == (0, 0) && b == (1, 1);
    let cases = pairwise(&sizes, forbidden);
    for (one, &values) in sizes.iter().enumerate() {
        for (two, &others) in sizes.iter().enumerate().skip(one + 1) {
            for (v, w) in (0..values).flat_map(|v| (0..others).map(move |w| (v, w))) {
                let occurs = cases.iter().any(|case| case[one] == v && case[two] == w);
                assert_eq!(
                    occurs,
                    !forbidden((one, v), (two, w)),
                    "{one}:{v} {two}:{w}"
                );
            }
        }
    }
    assert!(cases.len() < 30, "{}", cases.len());
}
