use config::openvpn::{Options, parse_arguments};
use openvpn::message::AuthFailed;

use super::*;

fn attempts(more: &str) -> Attempts {
    let text = format!("--client --dev tun --ca ca --auth-user-pass login {more}");
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let mut read = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
    let import = parse_arguments(&words, &mut read, Options::default()).unwrap();
    let (config, _) = import.into_model().unwrap();
    Attempts::new(&config)
}

fn remote(next: Next) -> String {
    match next {
        Next::Target(target) => target.remote.to_string(),
        other => panic!("{other:?}"),
    }
}

fn late() -> ResolveError {
    ResolveError::Late {
        host: "vpn.invalid".to_owned(),
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn remotes_come_in_their_order_and_with_their_ports() {
    let mut attempts = attempts(
        "--connect-retry 0 --remote 192.0.2.1 1 --remote ::1 2 --remote 192.0.2.3 3 \
             --connect-retry-max 1",
    );
    let now = Instant::now();
    let order: Vec<String> = (0..3).map(|_| remote(attempts.next(now))).collect();
    assert_eq!(order, ["192.0.2.1:1", "[::1]:2", "192.0.2.3:3"]);
    let over = attempts.next(now);
    assert!(matches!(over, Next::GiveUp(GiveUp::Tried(1))), "{over:?}");
}

#[test]
fn a_pause_that_is_broken_off_goes_on() {
    let mut attempts = attempts("--connect-retry 300 --remote 192.0.2.1 1");
    let now = Instant::now();
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
    let pause = Duration::from_secs(300);
    let end = now + pause;
    assert!(
        matches!(attempts.next(now), Next::Wait(until, Some(it)) if until == end && it == pause)
    );
    let later = now + Duration::from_secs(299);
    assert!(matches!(attempts.next(later), Next::Wait(until, None) if until == end));
    assert_eq!(remote(attempts.next(end)), "192.0.2.1:1");
}

#[test]
fn an_attempt_that_ends_without_the_servers_fault_is_not_counted() {
    let mut attempts = attempts("--connect-retry 300 --remote 192.0.2.1 1 --connect-retry-max 1");
    let now = Instant::now();
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
    attempts.same();
    attempts.at_once();
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
    // The server failed this time.
    let waits = attempts.next(now);
    assert!(matches!(waits, Next::Wait(..)), "{waits:?}");
    let over = attempts.next(now + Duration::from_secs(300));
    assert!(matches!(over, Next::GiveUp(GiveUp::Tried(1))), "{over:?}");
}

#[test]
fn what_the_server_said_holds() {
    let mut attempts = attempts("--connect-retry 0 --remote 192.0.2.1 1 --remote 192.0.2.2 2");
    let now = Instant::now();
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
    attempts.succeeded();
    attempts.after_restart(&Restart::default());
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
    attempts.after_restart(&Restart {
        next_remote: true,
        ..Restart::default()
    });
    assert_eq!(remote(attempts.next(now)), "192.0.2.2:2");
    assert!(!attempts.after_auth_failed(&AuthFailed::because("no")));
    assert_eq!(remote(attempts.next(now)), "192.0.2.2:2");
    assert!(attempts.after_auth_failed(&AuthFailed {
        kind: AuthFailedKind::Temporary {
            backoff: None,
            advance: Advance::Remote,
        },
        reason: String::new(),
    }));
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
}

#[test]
fn the_proxy_is_reached_in_the_servers_place() {
    let mut attempts =
        attempts("--proto tcp-client --remote vpn.invalid 1 --http-proxy 192.0.2.80 3128");
    assert_eq!(remote(attempts.next(Instant::now())), "192.0.2.80:3128");
}

#[test]
fn a_look_up_that_was_broken_off_is_asked_for_again() {
    let mut attempts = attempts("--remote vpn.invalid 1");
    let now = Instant::now();
    for _ in 0..2 {
        let next = attempts.next(now);
        assert!(
            matches!(&next, Next::LookUp(name) if name.host == "vpn.invalid"),
            "{next:?}"
        );
    }
    assert_eq!(
        attempts.looked_up(Ok(vec![address("192.0.2.1:1")]), now),
        None
    );
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
    // A late or repeated answer is ignored.
    assert_eq!(attempts.looked_up(Err(late()), now), None);
}

#[test]
fn a_pause_is_over_when_what_was_lacking_may_be_there() {
    let mut attempts = attempts("--connect-retry 60 --remote vpn.invalid 1");
    let now = Instant::now();
    attempts.next(now);
    assert!(attempts.looked_up(Err(late()), now).is_some());
    let wait = attempts.next(now);
    assert!(matches!(wait, Next::Wait(..)), "{wait:?}");
    attempts.hurry();
    assert!(matches!(attempts.next(now), Next::LookUp(_)));
    // The next failure causes a pause as usual.
    assert!(attempts.looked_up(Err(late()), now).is_some());
    assert!(matches!(attempts.next(now), Next::Wait(..)));
}

#[test]
fn a_name_that_is_not_found_any_more_is_tried_where_it_was() {
    let mut attempts = attempts("--connect-retry 0 --remote vpn.invalid 1");
    let now = Instant::now();
    attempts.next(now);
    attempts.looked_up(Ok(vec![address("192.0.2.1:1")]), now);
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
    attempts.forget_addresses();
    assert!(matches!(attempts.next(now), Next::LookUp(_)));
    let told = attempts.looked_up(Err(late()), now);
    assert!(matches!(told, Some((Level::Warn, _))), "{told:?}");
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
}

#[test]
fn names_without_an_address_are_given_up_when_resolv_retry_is_over() {
    let mut attempts = attempts("--resolv-retry 60 --remote a.invalid 1 --remote b.invalid 1");
    let begin = Instant::now();
    let mut now = begin;
    loop {
        match attempts.next(now) {
            Next::LookUp(_) => {
                let told = attempts.looked_up(Err(late()), now);
                assert!(matches!(told, Some((Level::Error, _))), "{told:?}");
            }
            Next::Wait(until, _) => {
                assert!(until > now && until <= now + Duration::from_secs(300));
                now = until;
            }
            Next::GiveUp(why) => {
                assert!(matches!(why, GiveUp::Names(_)), "{why}");
                break;
            }
            Next::Target(target) => panic!("{}", target.remote),
        }
    }
    let passed = now - begin;
    assert!(passed >= Duration::from_secs(60), "{passed:?}");
}

#[test]
fn an_address_of_the_wrong_family_is_no_busy_loop() {
    let mut attempts = attempts("--proto udp6 --connect-retry 0 --remote 192.0.2.1 1");
    let now = Instant::now();
    let next = attempts.next(now);
    assert!(matches!(next, Next::LookUp(_)), "{next:?}");
    let told = attempts.looked_up(Err(late()), now);
    assert!(matches!(told, Some((Level::Error, _))), "{told:?}");
    assert!(matches!(attempts.next(now), Next::Wait(until, _) if until > now));
}

#[test]
fn a_look_up_is_no_reason_for_a_second_pause() {
    let mut attempts = attempts("--connect-retry 7 --remote a.invalid 1 --remote b.invalid 1");
    let mut now = Instant::now();
    let found = || Ok(vec![address("192.0.2.1:1")]);
    assert!(matches!(attempts.next(now), Next::LookUp(_)));
    attempts.looked_up(found(), now);
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
    assert!(matches!(attempts.next(now), Next::Wait(..)));
    now += Duration::from_secs(7);
    let next = attempts.next(now);
    assert!(
        matches!(&next, Next::LookUp(name) if name.host == "b.invalid"),
        "{next:?}"
    );
    attempts.looked_up(found(), now);
    assert_eq!(remote(attempts.next(now)), "192.0.2.1:1");
}

#[test]
fn a_shuffle_loses_nothing() {
    let mut list: Vec<u32> = (0..50).collect();
    shuffle(&mut list);
    // The list stays sorted with a probability of 1 in 50!.
    assert!(!list.is_sorted());
    list.sort_unstable();
    assert_eq!(list, (0..50).collect::<Vec<_>>());
}
