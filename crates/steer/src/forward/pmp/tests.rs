//! The client against a made-up clock and made-up gateways.

use proptest::prelude::*;

use super::*;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
const NONCE: [u8; 12] = *b"abcdefghijkl";
const BOTH: [Protocol; 2] = [Protocol::Udp, Protocol::Tcp];

/// The start of all tests, an hour after the earliest time of the clock.
fn start() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn client(port: Option<u16>, protocols: &[Protocol], now: Instant) -> Client {
    Client::new(port, protocols, OWN, NONCE, now)
}

/// A gateway's answer to a NAT-PMP request.
fn answer(request: &[u8], result: u16, epoch: u32, public: u16, lifetime: u32) -> Vec<u8> {
    let mut data = vec![0, request[1] | 0x80];
    data.extend(result.to_be_bytes());
    data.extend(epoch.to_be_bytes());
    data.extend(&request[4..6]);
    data.extend(public.to_be_bytes());
    data.extend(lifetime.to_be_bytes());
    data
}

/// The only request that is due.
fn one(client: &mut Client, now: Instant) -> Vec<u8> {
    let mut requests = client.tick(now);
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.remove(0)
}

fn open(client: &Client) -> Vec<(Protocol, u16)> {
    let states = client.states();
    states
        .filter_map(|(protocol, state)| match state {
            State::Open { port, .. } => Some((protocol, *port)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_port_is_asked_for_renewed_and_ended() {
    let now = start();
    let mut client = client(Some(5000), &[Protocol::Tcp], now);
    assert_eq!(client.due(), Some(now));
    let request = one(&mut client, now);
    assert_eq!(request, [0, 2, 0, 0, 0x13, 0x88, 0x13, 0x88, 0, 0, 0, 60]);
    assert!(client.heard(&answer(&request, 0, 9, 40123, 60), now));
    assert_eq!(open(&client), [(Protocol::Tcp, 40123)]);
    // The renewal suggests the granted port.
    let later = now + Duration::from_secs(30);
    assert_eq!(client.due(), Some(later));
    assert!(client.tick(later - FIRST).is_empty());
    let request = one(&mut client, later);
    assert_eq!(request[6..8], 40123_u16.to_be_bytes());
    assert!(client.heard(&answer(&request, 0, 39, 40123, 2), later));
    // A tiny lifetime makes no storm of requests, and ends before its renewal.
    let end = later + Duration::from_secs(2);
    assert_eq!(client.due(), Some(end));
    assert_eq!(client.end(), [[0, 2, 0, 0, 0x13, 0x88, 0, 0, 0, 0, 0, 0]]);
    assert!(client.tick(end).is_empty());
    assert!(open(&client).is_empty());
    assert_eq!(client.due(), Some(later + RENEWAL_MIN));
    assert!(client.end().is_empty());
}

#[test]
fn a_long_lifetime_delays_no_renewal() {
    for (lifetime, wanted) in [
        (2, 5),
        (20, 10),
        (60, 30),
        (62, 30),
        (86_400, 30),
        (u32::MAX, 30),
    ] {
        let now = start();
        let mut client = client(Some(5000), &[Protocol::Tcp], now);
        let request = one(&mut client, now);
        client.heard(&answer(&request, 0, 9, 40123, lifetime), now);
        let mapping = &client.mappings[0];
        assert_eq!(mapping.due, now + Duration::from_secs(wanted), "{lifetime}");
    }
}

#[test]
fn requests_are_repeated_in_growing_steps_and_then_pause() {
    let now = start();
    let mut client = client(Some(5000), &[Protocol::Udp], now);
    let mut at = Vec::new();
    let mut time = now;
    while time < now + Duration::from_secs(60) {
        let requests = client.tick(time);
        if !requests.is_empty() {
            at.push((time - now).as_millis());
        }
        time = client.due().unwrap();
    }
    let begin = [0, 250, 750, 1750, 3750, 7750];
    assert_eq!(at[..6], begin);
    let second: Vec<u128> = begin.iter().map(|it| it + 15_750 + 30_000).collect();
    assert_eq!(at[6..], second);
    assert_eq!(client.states().next().unwrap().1, &State::Asking(true));
}

#[test]
fn an_open_port_survives_lost_answers_as_long_as_it_lives() {
    let now = start();
    let mut client = client(Some(5000), &[Protocol::Udp], now);
    let request = one(&mut client, now);
    client.heard(&answer(&request, 0, 1, 40123, 60), now);
    let mut asked = 0;
    let mut time = now;
    while time < now + Duration::from_secs(60) {
        assert_eq!(open(&client).len(), 1);
        asked += client.tick(time).len();
        time = client.due().unwrap();
    }
    assert!(asked >= 10, "{asked} requests");
    client.tick(now + Duration::from_secs(60));
    assert!(open(&client).is_empty());
}

#[test]
fn a_refusal_is_told_and_asked_again_after_a_pause() {
    for (result, public, lifetime, words) in [
        (2, 0, 0, "does not permit"),
        (3, 0, 0, "no connection"),
        (4, 0, 0, "no port left"),
        (5, 0, 0, "does not forward ports"),
        (99, 0, 0, "code 99"),
        (0, 40123, 0, "ended"),
        (0, 0, 60, "ended"),
    ] {
        let now = start();
        let mut client = client(Some(5000), &[Protocol::Udp], now);
        let request = one(&mut client, now);
        let mut data = answer(&request, result, 1, public, lifetime);
        if result == 2 {
            // Some gateways cut a refusal.
            data.truncate(8);
        }
        assert!(client.heard(&data, now));
        let (_, state) = client.states().next().unwrap();
        assert!(
            matches!(state, State::Refused(why) if why.contains(words)),
            "{state:?}"
        );
        assert_eq!(client.due(), Some(now + PAUSE));
        let request = one(&mut client, now + PAUSE);
        assert!(client.heard(&answer(&request, 0, 1, 40123, 60), now + PAUSE));
    }
}

#[test]
fn only_answers_to_the_own_request_count() {
    let now = start();
    let mut client = client(Some(5000), &[Protocol::Udp], now);
    let early = answer(&[0, 1, 0, 0, 0x13, 0x88], 0, 1, 40123, 60);
    assert!(!client.heard(&early, now), "nothing was asked yet");
    let request = one(&mut client, now);
    let right = answer(&request, 0, 1, 40123, 60);
    let changed = |place: usize, byte: u8| {
        let mut data = right.clone();
        data[place] = byte;
        data
    };
    for wrong in [
        vec![],
        right[..15].to_vec(),
        changed(0, 1),
        changed(1, 0x80),
        changed(1, 0x82),
        changed(1, 1),
        changed(9, 0),
        request.clone(),
    ] {
        assert!(!client.heard(&wrong, now), "{wrong:?}");
    }
    assert!(client.heard(&right, now));
    assert!(!client.heard(&right, now), "it was heard already");
}

#[test]
fn a_gateway_that_has_restarted_is_asked_for_the_other_port_at_once() {
    for (epoch, restarted) in [
        (5, true),
        (980, true),
        (1024, false),
        (1030, false),
        (1100, false),
    ] {
        let now = start();
        let mut client = client(Some(5000), &BOTH, now);
        for request in client.tick(now) {
            client.heard(&answer(&request, 0, 1000, 40123, 60), now);
        }
        // Both renewals are due; only the first is answered.
        let later = now + Duration::from_secs(30);
        let requests = client.tick(later);
        assert_eq!(requests.len(), 2);
        client.heard(&answer(&requests[0], 0, epoch, 40123, 60), later);
        let again = client.tick(later);
        assert_eq!(again.len(), usize::from(restarted), "{epoch}");
        assert!(again.iter().all(|it| it[1] == 2));
    }
}

#[test]
fn a_port_of_the_gateways_choice_is_the_same_for_both_protocols() {
    let now = start();
    let mut client = client(None, &BOTH, now);
    let request = one(&mut client, now);
    assert_eq!(request, [0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 60]);
    client.heard(&answer(&request, 0, 1, 40123, 60), now);
    let request = one(&mut client, now);
    assert_eq!(request[..8], [0, 2, 0, 0, 0, 0, 0x9c, 0xbb]);
    client.heard(&answer(&request, 0, 1, 40124, 60), now);
    assert_eq!(
        open(&client),
        [(Protocol::Udp, 40123), (Protocol::Tcp, 40124)]
    );
    // A gateway that refuses the suggestion is asked for any port again.
    let later = now + Duration::from_secs(30);
    let requests = client.tick(later);
    assert_eq!(requests[0][6..8], 40123_u16.to_be_bytes());
    client.heard(&answer(&requests[0], 2, 1, 0, 0), later);
    let requests = client.tick(later + PAUSE);
    assert_eq!(requests[0][6..8], [0, 1]);
}

/// A PCP gateway's answer to a request.
fn pcp_answer(request: &[u8], result: u8, public: u16, lifetime: u32) -> Vec<u8> {
    let mut data = request.to_vec();
    data[1] |= 0x80;
    data[3] = result;
    data[4..8].copy_from_slice(&lifetime.to_be_bytes());
    data[8..24].fill(0);
    data[42..44].copy_from_slice(&public.to_be_bytes());
    data
}

#[test]
fn a_gateway_that_wants_pcp_gets_it() {
    for says in [
        &[0, 0x81, 0, 1, 0, 0, 0, 9][..],
        &[2, 0x81, 0, 1],
        &[2, 0x80],
    ] {
        let now = start();
        let mut client = client(Some(5000), &[Protocol::Udp], now);
        one(&mut client, now);
        assert!(client.heard(says, now));
        let request = one(&mut client, now);
        assert_eq!(request.len(), PCP_LEN);
        assert_eq!(request[..8], [2, 1, 0, 0, 0, 0, 0, 60]);
        assert_eq!(request[8..24], OWN.to_ipv6_mapped().octets());
        assert_eq!(request[24..36], NONCE);
        assert_eq!(request[36..44], [17, 0, 0, 0, 0x13, 0x88, 0x13, 0x88]);
        let right = pcp_answer(&request, 0, 40123, 60);
        for (place, byte) in [(0, 0), (1, 0x82), (24, 0), (36, 6), (41, 0)] {
            let mut wrong = right.clone();
            wrong[place] = byte;
            assert!(!client.heard(&wrong, now), "byte {place}");
        }
        assert!(!client.heard(&right[..PCP_LEN - 1], now));
        assert!(client.heard(&right, now));
        assert_eq!(open(&client), [(Protocol::Udp, 40123)]);
        let end = client.end();
        assert_eq!(end[0][4..8], [0; 4]);
        let later = now + PAUSE;
        let request = one(&mut client, later);
        assert_eq!(request[24..36], NONCE, "the nonce stays");
        assert!(client.heard(&pcp_answer(&request, 8, 0, 0), later));
        assert!(open(&client).is_empty());
    }
}

#[test]
fn a_pcp_gateway_is_never_asked_for_any_port() {
    let now = start();
    let mut client = client(None, &BOTH, now);
    let mut time = now;
    while time < now + Duration::from_secs(300) {
        for request in client.tick(time) {
            assert_eq!(request[0], NAT_PMP);
            client.heard(&[2, 0x81, 0, 1], time);
        }
        time = client.due().unwrap();
    }
    assert!(
        client
            .states()
            .all(|(_, it)| matches!(it, State::Refused(why) if why.contains("PCP")))
    );
}

proptest! {
    /// A gateway is not asked again at once, whatever clock, port and lifetime it tells.
    #[test]
    fn answers_make_no_storm_of_requests(
        port in proptest::option::of(1_u16..),
        answers in proptest::collection::vec(
            // An answer with VERSION changes the protocol, and is asked again once.
            (prop_oneof![4 => Just(0_u16), 1 => 2_u16..7], 0_u32..40, 0_u16..3, 0_u32..200),
            0..60,
        ),
    ) {
        let mut time = start();
        let mut client = client(port, &BOTH, time);
        let mut answered = [None; 2];
        let mut answers = answers.into_iter();
        let mut epoch = u32::MAX;
        while answers.len() > 0 {
            for request in client.tick(time) {
                let place = usize::from(request[1] == opcode(Protocol::Tcp));
                if let Some(then) = answered[place] {
                    prop_assert!(time - then >= RENEWAL_MIN, "{:?}", time - then);
                }
                let Some((result, back, public, lifetime)) = answers.next() else {
                    break;
                };
                epoch -= back;
                client.heard(&answer(&request, result, epoch, public, lifetime), time);
                answered[place] = Some(time);
            }
            time = client.due().unwrap().max(time);
        }
    }

    /// Requests have one of two forms, and time goes on, whatever a gateway sends.
    #[test]
    fn answers_of_any_bytes_do_no_harm(
        port in proptest::option::of(1_u16..),
        answers in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..70), 0..20),
    ) {
        let mut time = start();
        let mut client = client(port, &BOTH, time);
        for data in answers {
            for request in client.tick(time) {
                prop_assert!(matches!((request[0], request.len()), (NAT_PMP, 12) | (PCP, PCP_LEN)));
                prop_assert!(request[0] == NAT_PMP || request[40..42] != [0, 0]);
            }
            client.heard(&data, time);
            time = client.due().unwrap().max(time);
        }
    }
}
