use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A name, and the time at which it is due.
fn name(endpoint: &str) -> (Name, Instant) {
    let now = Instant::now();
    let name = Name::of(&endpoint.parse().unwrap(), now).unwrap();
    assert_eq!(name.due(), Some(now));
    (name, now)
}

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 51820))
}

/// Looks the name up as soon as it is due, and returns the outcome.
fn look_up(
    name: &mut Name,
    found: &[u8],
    current: Option<SocketAddr>,
    now: Instant,
) -> Result<Option<SocketAddr>, Option<String>> {
    let lookup = name.begin_due(Whose::Target, 7, now).unwrap();
    assert_eq!((lookup.host.as_str(), lookup.mark), ("vpn.example", 7));
    // One look-up at a time.
    assert_eq!(name.begin_due(Whose::Target, 7, now), None);
    name.looked_up(Ok(found.iter().copied().map(at).collect()), current, now)
}

#[test]
fn only_names_are_looked_up() {
    let now = Instant::now();
    let of = |endpoint: &str| Name::of(&endpoint.parse().unwrap(), now);
    assert!(of("192.0.2.1:51820").is_none() && of("[2001:db8::1]:51820").is_none());
    assert!(of("[fe80::1%1]:51820").is_none());
    // The interface may come later.
    let later = of("[fe80::1%no-such-device]:51820").unwrap();
    assert_eq!(later.host, "fe80::1%no-such-device");
}

#[test]
fn a_name_that_is_not_found_is_asked_for_less_and_less_often_and_logged_once() {
    let (mut name, mut now) = name("vpn.example:51820");
    let mut pauses = Vec::new();
    for turn in 0..7 {
        let words = look_up(&mut name, &[], None, now).unwrap_err();
        assert_eq!(words.is_some(), turn == 0, "{words:?}");
        if let Some(words) = words {
            let expected = "endpoint vpn.example:51820: the name has no address; trying again until it is resolved";
            assert_eq!(words, expected);
        }
        assert!(name.is_tried() && name.begin_due(Whose::Target, 7, now).is_none());
        let due = name.due().unwrap();
        pauses.push((due - now).as_secs());
        now = due;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    // Another fault is logged.
    name.begin(Whose::Target, 7);
    let refused = name.looked_up(Err("no answer".to_owned()), None, now);
    assert!(refused.unwrap_err().unwrap().contains("no answer"));
    // An uplink has come.
    let soon = now + SECOND;
    name.hurry(soon);
    assert_eq!(name.due(), Some(soon));
    assert_eq!(look_up(&mut name, &[1], None, soon), Ok(Some(at(1))));
    assert_eq!((name.due(), name.addresses()), (None, &[at(1)][..]));
    // Nothing is left to hurry.
    name.hurry(soon);
    assert_eq!(name.due(), None);
}

/// An uplink comes while a look-up runs that began without it: it fails, and is repeated soon.
#[test]
fn a_look_up_that_began_too_early_is_repeated_soon() {
    let (mut name, mut now) = name("vpn.example:51820");
    for _ in 0..5 {
        look_up(&mut name, &[], None, now).unwrap_err();
        now = name.due().unwrap();
    }
    name.begin(Whose::Target, 7);
    name.hurry(now);
    assert_eq!(name.due(), None, "one at a time");
    let _ = name.looked_up(Err("no answer".to_owned()), None, now);
    assert_eq!(name.due(), Some(now + SECOND));
}

#[test]
fn all_addresses_are_tried_before_the_name_is_looked_up_anew() {
    let (mut name, now) = name("vpn.example:51820");
    assert_eq!(look_up(&mut name, &[1, 2, 3], None, now), Ok(Some(at(1))));
    assert_eq!(name.unanswered(now), Some(at(2)));
    assert_eq!(name.unanswered(now), Some(at(3)));
    assert_eq!(name.due(), None);
    assert_eq!(name.unanswered(now), Some(at(1)));
    // Not sooner than a second after the last look-up.
    let again = now + SECOND;
    assert_eq!(name.due(), Some(again));
    // The address in use stays if the name still has it.
    assert_eq!(look_up(&mut name, &[4, 1], Some(at(1)), again), Ok(None));
    assert_eq!(name.unanswered(again), Some(at(4)));
    // No server answers: the addresses of before are tried on.
    name.begin(Whose::Target, 7);
    let words = name.looked_up(Err("no answer".to_owned()), Some(at(4)), again);
    let words = words.unwrap_err().unwrap();
    assert!(
        words.ends_with("no answer; trying its earlier addresses"),
        "{words}"
    );
    assert_eq!(name.unanswered(again), Some(at(1)));
}

#[test]
fn an_answer_ends_the_search() {
    let (mut name, now) = name("vpn.example:51820");
    look_up(&mut name, &[1], None, now).unwrap();
    name.unanswered(now);
    assert!(name.due().is_some());
    name.answered(Some(at(1)), now);
    assert_eq!(name.due(), None);
    // The next silence is met at once again.
    name.unanswered(now + 60 * SECOND);
    assert_eq!(name.due(), Some(now + 60 * SECOND));
}

#[test]
fn an_address_is_kept_only_if_the_peer_answered_there_and_not_over_and_over() {
    let (mut name, now) = name("vpn.example:51820");
    look_up(&mut name, &[1, 2], None, now).unwrap();
    let kept = |last| Some(("vpn.example".to_owned(), at(last).ip()));
    assert_eq!(name.answered(None, now), None);
    assert_eq!(name.answered(Some(at(9)), now), None, "it has moved away");
    assert_eq!(name.answered(Some(at(1)), now), kept(1));
    assert_eq!(name.answered(Some(at(1)), now + SECOND), None);
    assert_eq!(name.answered(Some(at(2)), now + SECOND), kept(2));
    assert_eq!(name.answered(Some(at(2)), now + SECOND + TOLD), kept(2));
}
