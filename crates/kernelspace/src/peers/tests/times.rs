//! The timers set in the kernel.

use super::*;

#[test]
fn one_time_without_the_other_is_one_that_the_kernel_takes() {
    let second = Duration::from_secs(1);
    let day = 86_400 * second;
    let cases = [
        ((None, Some(120 * second)), (86_400, 120)),
        ((Some(10 * second), None), (10, 86_400)),
        ((Some(second / 2), Some(day)), (1, 86_400)),
        ((Some(7 * day), Some(Duration::MAX)), (86_400, 86_400)),
    ];
    for ((ping, silence), told) in cases {
        let mut peers = peers(false);
        peers.add(PEER);
        peers.set_line(PEER, line(1)).unwrap();
        peers.keep_alive(PEER, ping, silence).unwrap();
        give(&mut peers, 0);
        assert_eq!(known(&peers).timers, Some(told), "{ping:?} {silence:?}");
        peers.keep_alive(PEER, None, None).unwrap();
        assert_eq!(known(&peers).timers, Some((0, 0)));
        peers.keep_alive(PEER, ping, silence).unwrap();
        assert_eq!(known(&peers).timers, Some(told), "{ping:?} {silence:?}");
    }
}

#[test]
fn a_silence_that_is_borne_lasts_longer_than_the_kernel_counts() {
    let second = Duration::from_secs(1);
    let hour = 3600 * second;
    for (silence, said_again) in [
        (None, true),
        (Some(48 * hour), true),
        (Some(24 * hour), false),
        (Some(60 * second), false),
    ] {
        let mut peers = one_with_keys();
        peers.keep_alive(PEER, Some(10 * second), silence).unwrap();
        peers.kernel.asked.clear();
        let start = Instant::now();
        for hours in 0..48 {
            peers.look(PEER, start + hours * hour).unwrap();
        }
        let times = peers.kernel.asked.len();
        // Each repetition comes well within a day.
        assert_eq!(times > 3, said_again, "{silence:?}: {times} times");
        assert!(
            peers
                .kernel
                .asked
                .iter()
                .all(|it| it == "timers 3 10 86400")
        );
    }
}

#[test]
fn what_was_read_a_moment_ago_is_not_asked_for_again() {
    let mut peers = one_with_keys();
    let start = Instant::now();
    assert!(peers.glance(PEER, start).is_some());
    assert_eq!(peers.kernel.looks, 1);
    counted(&mut peers).figures.tx_packets = 10;
    let read = peers.look(PEER, start).unwrap().0.usage(SESSION);
    assert_eq!(read.sealed, 10);
    assert_eq!(peers.glance(PEER, start).unwrap().0.usage(SESSION), read);
    assert_eq!(peers.kernel.looks, 2);
    let later = start + Duration::from_secs(1);
    assert!(peers.glance(PEER, later).is_some());
    assert_eq!(peers.kernel.looks, 3);
    // A peer that is added again starts with zero counters.
    peers.remove(PEER);
    assert!(peers.glance(PEER, later).is_none());
    peers.add(PEER);
    peers.set_line(PEER, line(1)).unwrap();
    give(&mut peers, 1);
    assert!(peers.glance(PEER, later).is_some());
    assert_eq!(peers.kernel.looks, 4);
}
