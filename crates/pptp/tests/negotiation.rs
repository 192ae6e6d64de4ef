//! PPP configuration requests and their acceptance, packet by packet.

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use pptp::ppp::{
    Auth, Ccp, Failure, Ipcp, IpcpSettings, Layer, Lcp, LcpSettings, MppeBits, Negotiation, Signal,
    State, Timing,
};

fn lcp(require: &[Auth], accept: &[Auth]) -> Negotiation<Lcp> {
    let settings = LcpSettings {
        mru: 1400,
        require: require.to_vec(),
        accept: accept.to_vec(),
        seed: 1,
    };
    Negotiation::new(Lcp::new(settings), Timing::default())
}

fn ccp(stateful: bool) -> Negotiation<Ccp> {
    let bits = MppeBits::KEY_128.and(MppeBits::STATELESS);
    Negotiation::new(Ccp::new(bits, stateful), Timing::default())
}

fn open<L: Layer>(layer: &mut Negotiation<L>, now: Instant) -> Vec<u8> {
    let mut out = Vec::new();
    layer.open(now, &mut out);
    match &out[..] {
        [Signal::Send(request)] => request.clone(),
        other => panic!("{other:?}"),
    }
}

/// Passes a layer a packet with these options, and returns its replies.
fn hear<L: Layer>(
    layer: &mut Negotiation<L>,
    code: u8,
    id: u8,
    options: &[u8],
    now: Instant,
) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let packet = packet(code, id, options);
    assert_eq!(layer.receive(&packet, now, &mut out), None);
    let sent = out.into_iter().filter_map(|signal| match signal {
        Signal::Send(packet) => Some(packet),
        _ => None,
    });
    sent.collect()
}

fn packet(code: u8, id: u8, data: &[u8]) -> Vec<u8> {
    [&[code, id, 0, data.len() as u8 + 4], data].concat()
}

#[test]
fn ms_chap_version_1_is_refused_in_favour_of_version_2() {
    let now = Instant::now();
    let mut client = lcp(&[], &[Auth::MsChapV2]);
    open(&mut client, now);
    let sent = hear(&mut client, 1, 9, &[3, 5, 0xc2, 0x23, 0x80], now);
    assert_eq!(sent, [packet(3, 9, &[3, 5, 0xc2, 0x23, 0x81])]);
    // A peer that insists on an option gets a reject.
    for id in 10..14 {
        hear(&mut client, 1, id, &[3, 5, 0xc2, 0x23, 0x80], now);
    }
    let sent = hear(&mut client, 1, 14, &[3, 5, 0xc2, 0x23, 0x80], now);
    assert_eq!(sent, [packet(4, 14, &[3, 5, 0xc2, 0x23, 0x80])]);
}

#[test]
fn options_that_nobody_needs_are_rejected_together() {
    let now = Instant::now();
    let mut server = lcp(&[Auth::MsChapV2], &[]);
    open(&mut server, now);
    // Callback, multilink and endpoint options, and an acceptable MRU.
    let odd = [13, 3, 6, 17, 4, 6, 64, 19, 3, 0];
    let sent = hear(
        &mut server,
        1,
        1,
        &[&[1, 4, 5, 0x78], &odd[..]].concat(),
        now,
    );
    assert_eq!(sent, [packet(4, 1, &odd)]);
    let sent = hear(&mut server, 1, 2, &[1, 4, 5, 0x78], now);
    assert_eq!(sent, [packet(2, 2, &[1, 4, 5, 0x78])]);
    assert_eq!(server.layer().peer().mru, 1400);
}

#[test]
fn a_peer_without_accm_is_no_problem() {
    let now = Instant::now();
    let mut client = lcp(&[], &[Auth::MsChapV2]);
    let request = open(&mut client, now);
    assert!(
        request
            .windows(6)
            .any(|option| option == [2, 6, 0, 0, 0, 0])
    );
    let sent = hear(&mut client, 4, request[1], &[2, 6, 0, 0, 0, 0], now);
    assert_eq!(sent.len(), 1);
    assert_ne!(
        sent[0][1], request[1],
        "a request that is another has another identifier"
    );
    assert!(
        !sent[0]
            .windows(6)
            .any(|option| option == [2, 6, 0, 0, 0, 0])
    );
}

#[test]
fn our_own_magic_number_is_a_loop() {
    let now = Instant::now();
    let mut layer = lcp(&[], &[]);
    open(&mut layer, now);
    let magic = layer.layer().ours().magic.to_be_bytes();
    let sent = hear(&mut layer, 1, 1, &[&[5, 6], &magic[..]].concat(), now);
    assert_eq!((sent[0][0], &sent[0][4..6]), (3, &[5, 6][..]));
    assert_ne!(sent[0][6..], magic);
}

#[test]
fn a_server_goes_through_its_logins_and_then_gives_up() {
    let now = Instant::now();
    let mut server = lcp(&[Auth::MsChapV2, Auth::ChapMd5], &[]);
    let request = open(&mut server, now);
    let sent = hear(&mut server, 3, request[1], &[3, 4, 0xc0, 0x23], now);
    assert!(
        sent[0]
            .windows(5)
            .any(|option| option == [3, 5, 0xc2, 0x23, 5]),
        "PAP is not allowed"
    );
    let id = sent[0][1];
    let mut out = Vec::new();
    server.receive(&packet(4, id, &[3, 5, 0xc2, 0x23, 5]), now, &mut out);
    assert_eq!(server.failure(), Some(&Failure::Option(3)));
    assert!(matches!(&out[..], [Signal::Send(terminate)] if terminate[0] == 5));
}

#[test]
fn compression_is_refused_and_the_strongest_key_chosen() {
    let now = Instant::now();
    for (asked, answer) in [
        // All bits that Windows supports.
        ([1, 0, 0, 0xe1], packet(3, 1, &[18, 6, 1, 0, 0, 0x40])),
        // Compression only.
        ([0, 0, 0, 0x01], packet(3, 1, &[18, 6, 1, 0, 0, 0x40])),
        // 40-bit encryption.
        ([1, 0, 0, 0x20], packet(3, 1, &[18, 6, 1, 0, 0, 0x40])),
        ([1, 0, 0, 0x40], packet(2, 1, &[18, 6, 1, 0, 0, 0x40])),
    ] {
        let mut layer = ccp(false);
        open(&mut layer, now);
        let sent = hear(&mut layer, 1, 1, &[&[18, 6], &asked[..]].concat(), now);
        assert_eq!(sent, [answer], "{asked:02x?}");
    }
    let mut layer = ccp(false);
    open(&mut layer, now);
    // Deflate and BSD compression.
    let others = [26, 4, 0x78, 0, 21, 3, 0x2f];
    assert_eq!(
        hear(&mut layer, 1, 1, &others, now),
        [packet(4, 1, &others)]
    );
}

#[test]
fn a_stream_is_accepted_when_the_peer_insists_and_it_is_allowed() {
    let now = Instant::now();
    let stream = [18, 6, 0, 0, 0, 0x40];
    let mut layer = ccp(true);
    let request = open(&mut layer, now);
    assert_eq!(
        request[4..],
        [18, 6, 1, 0, 0, 0x40],
        "a key for each packet is asked for first"
    );
    assert_eq!(
        hear(&mut layer, 1, 1, &stream, now),
        [packet(3, 1, &[18, 6, 1, 0, 0, 0x40])]
    );
    assert_eq!(
        hear(&mut layer, 1, 2, &stream, now),
        [packet(2, 2, &stream)]
    );
    let mut strict = ccp(false);
    open(&mut strict, now);
    for id in 0..10 {
        assert_eq!(hear(&mut strict, 1, id, &stream, now)[0][0], 3);
    }
    for id in 10..20 {
        hear(&mut strict, 1, id, &stream, now);
    }
    assert_eq!(
        strict.failure(),
        Some(&Failure::NoAgreement),
        "it does not go on for ever"
    );
}

#[test]
fn a_peer_that_naks_for_ever_is_given_up() {
    let now = Instant::now();
    let mut layer = ccp(true);
    let mut id = open(&mut layer, now)[1];
    for _ in 0..20 {
        let sent = hear(&mut layer, 3, id, &[18, 6, 1, 0, 0, 0x40], now);
        let Some(request) = sent.first().filter(|request| request[0] == 1) else {
            break;
        };
        id = request[1];
    }
    assert_eq!(layer.failure(), Some(&Failure::NoAgreement));
}

#[test]
fn a_client_takes_the_address_and_name_servers_that_it_is_given() {
    let now = Instant::now();
    let settings = IpcpSettings {
        ask_dns: true,
        ..IpcpSettings::default()
    };
    let mut client = Negotiation::new(Ipcp::new(settings), Timing::default());
    let request = open(&mut client, now);
    assert_eq!(
        request[4..],
        [3, 6, 0, 0, 0, 0, 129, 6, 0, 0, 0, 0, 131, 6, 0, 0, 0, 0]
    );
    let sent = hear(&mut client, 4, request[1], &[131, 6, 0, 0, 0, 0], now);
    let given = [3, 6, 10, 0, 0, 9, 129, 6, 10, 0, 0, 1];
    let sent = hear(&mut client, 3, sent[0][1], &given, now);
    assert_eq!(sent[0][4..], given);
    // Header compression is rejected, and the peer's address accepted.
    let both = [2, 6, 0, 0x2d, 15, 1, 3, 6, 10, 0, 0, 1];
    assert_eq!(
        hear(&mut client, 1, 1, &both, now),
        [packet(4, 1, &both[..6])]
    );
    hear(&mut client, 1, 2, &both[6..], now);
    hear(&mut client, 2, sent[0][1], &given, now);
    assert!(client.is_open());
    let layer = client.layer();
    assert_eq!(layer.address(), Ipv4Addr::new(10, 0, 0, 9));
    assert_eq!(layer.peer(), Some(Ipv4Addr::new(10, 0, 0, 1)));
    assert_eq!(layer.dns(), [Some(Ipv4Addr::new(10, 0, 0, 1)), None]);
}

#[test]
fn a_server_gives_the_address_that_it_has_chosen_and_no_other() {
    let now = Instant::now();
    let settings = IpcpSettings {
        address: Some(Ipv4Addr::new(10, 0, 0, 1)),
        peer: Some(Ipv4Addr::new(10, 0, 0, 9)),
        ..IpcpSettings::default()
    };
    let mut server = Negotiation::new(Ipcp::new(settings), Timing::default());
    open(&mut server, now);
    let given = [3, 6, 10, 0, 0, 9];
    for (id, asked) in [[3, 6, 0, 0, 0, 0], [3, 6, 10, 0, 0, 1]].iter().enumerate() {
        let id = id as u8;
        assert_eq!(
            hear(&mut server, 1, id, asked, now),
            [packet(3, id, &given)]
        );
    }
    assert_eq!(hear(&mut server, 1, 7, &[], now), [packet(3, 7, &given)]);
    assert_eq!(hear(&mut server, 1, 8, &given, now), [packet(2, 8, &given)]);
    let servers = [129, 6, 0, 0, 0, 0];
    assert_eq!(
        hear(&mut server, 1, 9, &servers, now),
        [packet(4, 9, &servers)],
        "there are none"
    );
}

#[test]
fn requests_are_repeated_ten_times_and_then_given_up() {
    let now = Instant::now();
    let mut layer = lcp(&[], &[]);
    let first = open(&mut layer, now);
    let mut sent = 1;
    let mut out = Vec::new();
    while let Some(due) = layer.deadline() {
        layer.expire(due - Duration::from_millis(1), &mut out);
        assert_eq!(out, [], "too early");
        layer.expire(due, &mut out);
        match out.pop() {
            Some(Signal::Send(request)) => {
                assert_eq!(request, first, "a repetition is the same packet");
                sent += 1;
            }
            Some(Signal::Finished(failure)) => assert_eq!(failure, Failure::NoAnswer),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((sent, layer.state()), (10, State::Stopped));
}

#[test]
fn a_copy_of_an_answer_or_of_a_request_changes_nothing() {
    let now = Instant::now();
    let mut layer = lcp(&[], &[]);
    let request = open(&mut layer, now);
    hear(&mut layer, 1, 5, &[1, 4, 5, 0x78], now);
    hear(&mut layer, 2, request[1], &request[4..], now);
    assert!(layer.is_open());
    assert_eq!(
        hear(&mut layer, 2, request[1], &request[4..], now),
        Vec::<Vec<u8>>::new()
    );
    assert_eq!(
        hear(&mut layer, 1, 5, &[1, 4, 5, 0x78], now),
        [packet(2, 5, &[1, 4, 5, 0x78])]
    );
    assert!(layer.is_open());
    // An answer to no request, and one that differs from the request.
    assert_eq!(hear(&mut layer, 2, 99, &[], now), Vec::<Vec<u8>>::new());
    assert!(layer.is_open());
    // Another request restarts the negotiation (RFC 1661, section 4.3).
    assert_eq!(hear(&mut layer, 1, 6, &[], now).len(), 2);
    assert!(!layer.is_open());
}

#[test]
fn an_unknown_code_is_rejected_with_what_it_was() {
    let now = Instant::now();
    let mut layer = lcp(&[], &[]);
    open(&mut layer, now);
    let sent = hear(&mut layer, 99, 3, &[1, 2, 3], now);
    assert_eq!(
        (sent[0][0], &sent[0][4..]),
        (7, &packet(99, 3, &[1, 2, 3])[..])
    );
}

#[test]
fn the_peers_reason_is_told_without_what_could_upset_a_terminal() {
    let now = Instant::now();
    let mut layer = lcp(&[], &[]);
    let request = open(&mut layer, now);
    hear(&mut layer, 1, 5, &[], now);
    hear(&mut layer, 2, request[1], &request[4..], now);
    hear(&mut layer, 5, 1, b"go\x1b away", now);
    let failure = layer.failure().unwrap();
    assert_eq!(failure.to_string(), "closed by the peer: go away");
    assert_eq!(layer.state(), State::Stopping);
}
