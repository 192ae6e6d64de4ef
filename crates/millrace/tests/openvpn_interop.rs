//! OpenVPN tunnels in all their forms, each way round with the stock program and with ourselves: a set of
//! cases in which every two choices occur together, and the content that they carry compared.
//!
//! `MILLRACE_TEST_BYTES=100000000` sends 100 MB each way in each case; the usual few megabytes find what
//! goes wrong with the first packets.
//! `MILLRACE_OPENVPN=/path/to/openvpn` takes another stock program, of 2.4 or later, and leaves out what it
//! does not have.
//! `MILLRACE_TEST_STOCK=1` puts the stock program in our place, here and in the other tests with OpenVPN: what
//! is asked of us must be possible.

use acceptance::Net;
use acceptance::openvpn::{Ends, Pair, amount, ready, stock};
use acceptance::pairwise::{Choice, pairwise};
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

/// Places of the parts of a case.
const PAIR: usize = 0;
const TRANSPORT: usize = 1;
const WRAP: usize = 2;
const AUTH: usize = 3;
const FRAGMENT: usize = 4;
const PRF: usize = 5;

#[derive(Debug)]
struct Case {
    pair: Pair,
    /// Keys from the PRF of TLS 1.0, as before 2.6, and not from TLS's exporter.
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
        // Two of ours always have the exporter.
        ((PAIR, pair), (PRF, prf)) => Pair::ALL[pair] == Pair::Both && prf == 1,
        // A stream is not cut into datagrams.
        ((TRANSPORT, transport), (FRAGMENT, fragment)) => {
            TRANSPORTS[transport] == Transport::Tcp && FRAGMENTS[fragment].is_some()
        }
        // There is no HMAC without a digest.
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

/// Runs every case of one pair of programs, and fails with the list of those that failed.
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
        // One failure must not hide the others: together they show what they have in common.
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

/// The rarer digests, of control packets and of data. That a session comes up says nothing of the latter.
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

/// The set of cases is what it says.
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
