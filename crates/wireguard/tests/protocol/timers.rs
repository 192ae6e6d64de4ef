//! The five timers and the lifetime of keys, to the millisecond, between two devices.

use std::time::Duration;

use crate::sim::{Event, FORMS, LATENCY, Sim, assert_retransmissions, millis, secs};
use wireguard::message::{REJECT_AFTER_MESSAGES, REKEY_AFTER_MESSAGES};

/// A pair of which host 0 sent a first packet and began a handshake at time zero.
fn established() -> (Sim, plane::PeerId, plane::PeerId) {
    established_in("")
}

fn established_in(form: &'static str) -> (Sim, plane::PeerId, plane::PeerId) {
    let (mut sim, b, a) = Sim::pair_in(form);
    sim.send(0, b, b"first");
    sim.run_for(secs(1));
    assert_eq!(sim.hosts[1].received(), [b"first"]);
    (sim, b, a)
}

/// The time when host 0 of [`established`] got its keys.
const KEYS_0: Duration = Duration::from_millis(20);

#[test]
fn a_handshake_takes_one_round_trip_and_carries_what_is_staged() {
    let (mut sim, b, _) = Sim::pair();
    for text in [b"1", b"2", b"3"] {
        sim.send(0, b, text);
    }
    sim.run_for(secs(5));
    assert_eq!(sim.hosts[1].received(), [b"1", b"2", b"3"]);
    assert_eq!(sim.hosts[0].times(&Event::Complete), [LATENCY * 2]);
    assert_eq!(sim.hosts[1].times(&Event::Complete), [LATENCY * 3]);
    assert_eq!(sim.hosts[0].count(&Event::Initiation), 1);
    assert_eq!(sim.hosts[0].count(&Event::Keepalive), 0);
    assert_eq!(
        sim.sent
            .iter()
            .map(|flight| flight.bytes.len())
            .take(2)
            .collect::<Vec<_>>(),
        [148, 92]
    );
}

#[test]
fn an_initiator_with_nothing_to_say_confirms_with_a_keepalive() {
    let (mut sim, b, _) = Sim::pair();
    let now = sim.now;
    sim.with(0, |device, out| device.need_session(b, now, out));
    sim.run_for(secs(1));
    assert_eq!(sim.hosts[0].count(&Event::Keepalive), 1);
    assert_eq!(sim.hosts[1].times(&Event::Complete), [LATENCY * 3]);
}

#[test]
fn a_probe_is_answered_and_changes_no_keys_unless_it_is_to_renew_them() {
    let (mut sim, b, _) = established();
    for renew in [false, true] {
        let now = sim.now;
        let complete = sim.hosts[0].count(&Event::Complete);
        let keepalives = sim.hosts[0].count(&Event::Keepalive);
        sim.with(0, |device, out| device.probe(b, renew, now, out));
        sim.run_for(secs(1));
        let renewed = sim.hosts[0].count(&Event::Complete) - complete;
        assert_eq!(renewed, usize::from(renew));
        assert_eq!(sim.hosts[0].count(&Event::Keepalive), keepalives + 1);
        sim.send(0, b, b"data");
        sim.run_for(secs(1));
        assert_eq!(sim.hosts[1].received().pop().as_deref(), Some(&b"data"[..]));
    }
    // A data packet without keys starts a handshake.
    let (mut sim, b, _) = Sim::pair();
    let now = sim.now;
    sim.with(0, |device, out| device.probe(b, false, now, out));
    sim.run_for(secs(1));
    assert_eq!(sim.hosts[0].count(&Event::Complete), 1);
}

#[test]
fn data_without_an_answer_gets_a_keepalive_after_ten_seconds_and_a_keepalive_gets_none() {
    let (mut sim, _, _) = established();
    sim.run_until(secs(100));
    // "first" arrived after three one-way delays.
    assert_eq!(
        sim.hosts[1].times(&Event::Keepalive),
        [LATENCY * 3 + secs(10)]
    );
    assert_eq!(
        sim.hosts[0].times(&Event::KeepaliveReceived),
        [LATENCY * 4 + secs(10)]
    );
    assert_eq!(sim.hosts[0].count(&Event::Keepalive), 0);
    assert_eq!(sim.hosts[0].count(&Event::Initiation), 1);
    // No more events are due, so no device polls.
    for host in &sim.hosts {
        assert_eq!(host.events.last().unwrap().1, Event::Disarmed);
    }
}

#[test]
fn the_keepalive_counts_from_the_first_packet_after_ours() {
    let (mut sim, b, a) = established();
    sim.run_until(secs(5));
    sim.send(1, a, b"answer");
    sim.run_until(secs(7));
    sim.send(0, b, b"second");
    sim.run_until(secs(8));
    sim.send(0, b, b"third");
    sim.run_until(secs(40));
    assert_eq!(sim.hosts[1].times(&Event::Keepalive), [secs(17) + LATENCY]);
    // Data at 7 s replied to the answer of 5 s, and no packet came after it, so host 0 owes no keepalive.
    assert_eq!(sim.hosts[0].count(&Event::Keepalive), 0);
}

#[test]
fn a_stream_one_way_gets_a_keepalive_every_ten_seconds() {
    let (mut sim, b, _) = established();
    for _ in 0..60 {
        sim.send(0, b, b"stream");
        sim.run_for(secs(1));
    }
    let keepalives = sim.hosts[1].times(&Event::Keepalive);
    assert!((5..=6).contains(&keepalives.len()), "{keepalives:?}");
    assert!(
        keepalives
            .windows(2)
            .all(|pair| (secs(10)..=secs(11)).contains(&(pair[1] - pair[0])))
    );
    assert_eq!(sim.hosts[0].count(&Event::Initiation), 1);
}

#[test]
fn the_initiator_rekeys_with_the_first_packet_after_120_seconds() {
    for form in FORMS {
        let (mut sim, b, a) = established_in(form);
        // The responder sends all the time and never begins a handshake.
        for tick in 1..1199 {
            sim.run_until(millis(tick * 100));
            sim.send(1, a, b"from the responder");
            sim.send(0, b, b"from the initiator");
        }
        assert_eq!(sim.hosts[0].count(&Event::Initiation), 1);
        let due = KEYS_0 + secs(120);
        sim.run_until(due - Duration::from_nanos(1));
        sim.send(0, b, b"a moment before");
        assert_eq!(sim.hosts[0].count(&Event::Initiation), 1);
        sim.run_until(due);
        sim.send(0, b, b"in time");
        assert_eq!(sim.hosts[0].times(&Event::Initiation).last(), Some(&due));
        sim.run_for(secs(1));
        assert_eq!(sim.hosts[0].count(&Event::Complete), 2);
        assert_eq!(sim.hosts[1].count(&Event::Complete), 2);
        assert_eq!(sim.hosts[1].count(&Event::Initiation), 0);
        let sent = sim.hosts[0].count(&Event::Data);
        assert_eq!(sim.hosts[1].received().len(), sent);
        // Receive keys: the previous and the current one.
        assert_eq!([0, 1].map(|host| sim.hosts[host].receive_keys()), [2, 2]);
    }
}

#[test]
fn an_initiator_that_only_receives_rekeys_after_165_seconds() {
    for form in FORMS {
        let (mut sim, _, a) = established_in(form);
        // The responder is silent: a packet would cause a keepalive by the initiator between 120 s and 165 s.
        sim.run_until(secs(164));
        sim.send(1, a, b"too early");
        sim.run_until(secs(165));
        assert_eq!(sim.hosts[0].count(&Event::Initiation), 1);
        sim.run_until(KEYS_0 + secs(165));
        sim.send(1, a, b"late");
        sim.run_for(secs(1));
        assert_eq!(
            sim.hosts[0].times(&Event::Initiation).last(),
            Some(&(KEYS_0 + secs(165) + LATENCY))
        );
        assert_eq!(sim.hosts[0].count(&Event::Complete), 2);
    }
}

#[test]
fn keys_are_dead_after_180_seconds_and_forgotten_after_540() {
    let (mut sim, b, _) = established();
    sim.run_until(KEYS_0 + secs(540) - Duration::from_nanos(1));
    assert!(sim.hosts[0].can_send(b));
    sim.run_until(secs(600));
    assert_eq!(sim.hosts[0].times(&Event::Cleared), [KEYS_0 + secs(540)]);
    // The responder made its keys half a round trip before.
    assert_eq!(sim.hosts[1].times(&Event::Cleared), [LATENCY + secs(540)]);
    for host in &sim.hosts {
        assert_eq!(
            (host.receive_keys(), host.device.next_deadline()),
            (0, None)
        );
    }
}

#[test]
fn data_after_180_seconds_waits_for_new_keys() {
    let (mut sim, b, _) = established();
    sim.run_until(secs(200));
    sim.send(0, b, b"after a while");
    assert_eq!(sim.hosts[0].count(&Event::Data), 1);
    sim.run_for(secs(1));
    assert_eq!(sim.hosts[0].count(&Event::Complete), 2);
    assert_eq!(sim.hosts[1].received().last().unwrap(), b"after a while");
}

#[test]
fn a_handshake_without_an_answer_ends_after_90_seconds() {
    let (mut sim, b, _) = Sim::pair();
    sim.hosts[1].up = false;
    sim.send(0, b, b"anybody?");
    sim.run_until(secs(1000));
    let initiations = sim.hosts[0].times(&Event::Initiation);
    assert!((17..=18).contains(&initiations.len()), "{initiations:?}");
    assert_retransmissions(&initiations);
    assert_eq!(sim.hosts[0].times(&Event::DropStaged), [secs(90)]);
    assert_eq!(sim.hosts[0].device.next_deadline(), None);

    sim.hosts[1].up = true;
    sim.send(0, b, b"again");
    sim.run_for(secs(1));
    assert_eq!(sim.hosts[1].received(), [b"again"]);
}

#[test]
fn data_that_wants_out_extends_the_attempt() {
    let (mut sim, b, _) = Sim::pair();
    sim.hosts[1].up = false;
    for _ in 0..200 {
        sim.send(0, b, b"still there");
        sim.run_for(secs(1));
    }
    assert_eq!(sim.hosts[0].count(&Event::DropStaged), 0);
    assert_retransmissions(&sim.hosts[0].times(&Event::Initiation));
    sim.run_until(secs(400));
    assert_eq!(sim.hosts[0].times(&Event::DropStaged), [secs(199 + 90)]);
}

#[test]
fn a_peer_that_falls_silent_is_asked_for_a_handshake_after_15_seconds() {
    let (mut sim, b, a) = established();
    sim.send(1, a, b"last words");
    sim.run_until(secs(20));
    sim.hosts[1].up = false;
    sim.send(0, b, b"one");
    sim.run_until(secs(26));
    sim.send(0, b, b"two");
    sim.run_until(secs(60));
    let initiations = sim.hosts[0].times(&Event::Initiation);
    let delay = initiations[1] - secs(20);
    assert!(
        (secs(15)..=millis(15333)).contains(&delay),
        "{initiations:?}"
    );
    assert_retransmissions(&initiations[1..]);
    // Host 0 gives up, because it sent no more data.
    sim.run_until(secs(500));
    assert_eq!(
        sim.hosts[0].times(&Event::DropStaged),
        [initiations[1] + secs(90)]
    );
}

#[test]
fn persistent_keepalives_come_after_silence_only() {
    let (mut sim, b, _) = established();
    let now = sim.now;
    sim.with(0, |device, out| {
        device.set_persistent_keepalive(b, 25, now, out);
    });
    // The keepalive is enabled at 1 s: it is sent at once and every 25 s; the other end's keepalive postponed it.
    sim.run_until(secs(60));
    let answered = LATENCY * 4 + secs(10);
    assert_eq!(
        sim.hosts[0].times(&Event::Keepalive),
        [secs(1), answered + secs(25)]
    );
    sim.send(0, b, b"data");
    sim.run_until(secs(100));
    // The other end's keepalive in reply to the data also counts.
    let answered = secs(70) + LATENCY * 2;
    assert_eq!(
        sim.hosts[0].times(&Event::Keepalive)[2..],
        [answered + secs(25)]
    );
    let now = sim.now;
    sim.with(0, |device, out| {
        device.set_persistent_keepalive(b, 0, now, out);
    });
    sim.run_until(secs(600));
    assert_eq!(sim.hosts[0].count(&Event::Keepalive), 3);
}

#[test]
fn a_persistent_keepalive_makes_a_session_and_keeps_trying() {
    let (mut sim, b, _) = Sim::pair();
    sim.hosts[1].up = false;
    let now = sim.now;
    sim.with(0, |device, out| {
        device.set_persistent_keepalive(b, 25, now, out);
    });
    sim.run_until(secs(300));
    let gave_up = sim.hosts[0].times(&Event::DropStaged);
    assert!(gave_up.len() >= 2 && gave_up[0] == secs(90), "{gave_up:?}");
    // After giving up, the device begins again 25 s after the last initiation.
    let initiations = sim.hosts[0].times(&Event::Initiation);
    let first_after = initiations.iter().position(|at| *at > secs(90)).unwrap();
    assert_eq!(
        initiations[first_after] - initiations[first_after - 1],
        secs(25)
    );
    sim.hosts[1].up = true;
    sim.run_for(secs(30));
    assert!(sim.hosts[0].can_send(b));
    // From then on it rekeys by itself.
    sim.run_for(secs(600));
    let now = sim.elapsed();
    assert!(now - *sim.hosts[0].times(&Event::Complete).last().unwrap() < secs(150));
}

#[test]
fn two_initiations_that_cross_lead_to_one_session_in_one_round_trip() {
    for form in FORMS {
        let (mut sim, b, a) = Sim::pair_in(form);
        sim.send(0, b, b"from a");
        sim.send(1, a, b"from b");
        sim.run_for(LATENCY * 4);
        assert_eq!(sim.hosts[1].received(), [b"from a"]);
        assert_eq!(sim.hosts[0].received(), [b"from b"]);
        assert_eq!(
            [0, 1].map(|host| sim.hosts[host].count(&Event::Initiation)),
            [1, 1]
        );
        assert_eq!([0, 1].map(|host| sim.hosts[host].receive_keys()), [1, 1]);
        let crossed = Event::Dropped(wireguard::Dropped::Crossed);
        assert_eq!(
            sim.hosts[0].count(&crossed) + sim.hosts[1].count(&crossed),
            1
        );
        // The same pattern holds for an hour of traffic both ways.
        for tick in 0..3600 {
            sim.send(0, b, &[b'a', tick as u8]);
            sim.send(1, a, &[b'b', tick as u8]);
            sim.run_for(secs(1));
        }
        assert_eq!(
            [0, 1].map(|host| sim.hosts[host].received().len()),
            [3601, 3601]
        );
        let handshakes =
            sim.hosts[0].count(&Event::Initiation) + sim.hosts[1].count(&Event::Initiation);
        assert!((30..=32).contains(&handshakes), "{handshakes}");
    }
}

#[test]
fn one_that_crosses_a_lost_one_is_answered_the_second_time() {
    for form in FORMS {
        for lost in [0, 1] {
            let (mut sim, b, a) = Sim::pair_in(form);
            let address = sim.hosts[lost].address;
            let mut first = true;
            sim.link = Box::new(move |flight| {
                let lose = flight.from == address && std::mem::take(&mut first);
                if lose { vec![] } else { vec![LATENCY] }
            });
            sim.send(0, b, b"from a");
            sim.send(1, a, b"from b");
            sim.run_until(secs(6));
            assert_eq!(
                (sim.hosts[1].received(), sim.hosts[0].received()),
                (vec![b"from a".to_vec()], vec![b"from b".to_vec()])
            );
        }
    }
}

#[test]
fn one_that_comes_from_elsewhere_is_answered_though_it_crosses() {
    for form in FORMS {
        for _ in 0..4 {
            let (mut sim, b, a) = Sim::pair_in(form);
            // Host 1 has moved, and host 0 sends to its old address.
            sim.hosts[1].address = "192.0.2.7:7".parse().unwrap();
            sim.send(0, b, b"from a");
            sim.send(1, a, b"from b");
            sim.run_until(secs(1));
            assert_eq!(
                (sim.hosts[1].received(), sim.hosts[0].received()),
                (vec![b"from a".to_vec()], vec![b"from b".to_vec()])
            );
        }
    }
}

#[test]
fn an_answer_may_take_its_time() {
    let (mut sim, b, _) = Sim::pair();
    sim.link = Box::new(|_| vec![millis(2400)]);
    sim.send(0, b, b"far away");
    sim.run_until(secs(8));
    assert_eq!(sim.hosts[0].times(&Event::Complete), [millis(4800)]);
    assert_eq!(sim.hosts[1].received(), [b"far away"]);
}

#[test]
fn counters_ask_for_new_keys_and_never_pass_their_end() {
    let (mut sim, b, _) = established();
    sim.set_counter(0, b, REKEY_AFTER_MESSAGES);
    sim.send(0, b, b"rekey");
    sim.run_for(secs(9));
    assert_eq!(sim.hosts[0].count(&Event::Complete), 2);

    sim.set_counter(0, b, REJECT_AFTER_MESSAGES - 1);
    sim.send(0, b, b"the last");
    sim.send(0, b, b"the first");
    sim.run_for(secs(9));
    assert_eq!(sim.hosts[0].count(&Event::Complete), 3);
    let received = sim.hosts[1].received();
    assert_eq!(received[1..], [&b"rekey"[..], b"the last", b"the first"]);
}

#[test]
fn a_machine_that_slept_runs_what_is_due_once() {
    let (mut sim, b, _) = established();
    let now = sim.now;
    sim.with(0, |device, out| {
        device.set_persistent_keepalive(b, 1, now, out);
    });
    let before = sim.hosts[0].count(&Event::Initiation);
    // Ten thousand seconds in one step: host 0 learns the time only afterwards.
    sim.now += secs(10_000);
    sim.run_for(secs(2));
    assert_eq!(sim.hosts[0].count(&Event::Initiation), before + 1);
    assert!(sim.hosts[0].can_send(b));
}
