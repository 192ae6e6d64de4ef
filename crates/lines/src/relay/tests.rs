use super::*;
use proptest::prelude::*;

fn key(number: u8) -> Key {
    Key::new(&[number; 32])
}

/// The hello of a client with this stamp.
fn hello(number: u8, stamp: u8) -> [u8; HELLO_LEN] {
    key(number).hello(Tai64n([stamp; 12]))
}

fn client(number: u8) -> Client {
    Client {
        name: format!("client {number}"),
        key: key(number),
        rates: Rates::of(8_000_000, 1_000),
    }
}

fn at(port: u16) -> Endpoint {
    Endpoint::new(([192, 0, 2, 1], port).into())
}

fn two() -> (Table, Instant) {
    let now = Instant::now();
    (Table::new(vec![client(0), client(1)], now), now)
}

const MINUTE: Duration = HEARD_FOR;
const MOMENT: Duration = Duration::from_nanos(1);

#[test]
fn a_stranger_gets_nothing_through_and_changes_nothing() {
    let (mut table, now) = two();
    assert_eq!(table.outbound(at(1).addr, 3, 100, now), None);
    assert_eq!(table.back(0, 2, 100, now), None);
    let mut forged = hello(0, 9);
    forged[43] ^= 1;
    for (bytes, why) in [
        (&hello(7, 9)[..], Refused::UnknownKey),
        (&forged, Refused::WrongMac),
        (&hello(0, 9)[..43], Refused::Malformed),
        (&[], Refused::Malformed),
    ] {
        assert_eq!(table.hello(bytes, at(1), now), Err(why));
    }
    assert_eq!(table.outbound(at(1).addr, 1, 100, now), None);
    let dropped = table.dropped();
    assert_eq!((dropped.strangers, dropped.silent), (4, 2));
    assert_eq!(dropped.hellos(Refused::Malformed), 2);
    assert_eq!(dropped.hellos(Refused::WrongMac), 1);
    assert_eq!(table.next_deadline(), None);
    // A forged stamp does not keep the client out.
    assert_eq!(
        table.hello(&hello(0, 1), at(1), now),
        Ok((0, Change::First))
    );
}

#[test]
fn a_client_is_where_its_last_hello_came_from() {
    let (mut table, now) = two();
    let first = hello(0, 1);
    assert_eq!(table.hello(&first, at(1), now), Ok((0, Change::First)));
    assert_eq!(table.hello(&first, at(2), now), Err(Refused::OldStamp));
    assert_eq!(table.outbound(at(2).addr, 1, 100, now), None);
    assert_eq!(table.back(0, 1, 100, now), Some((at(1), 1)));
    assert_eq!(table.hello(&hello(0, 2), at(1), now), Ok((0, Change::None)));
    let moved = Change::Moved(at(1).addr);
    assert_eq!(table.hello(&hello(0, 3), at(3), now), Ok((0, moved)));
    assert_eq!(table.outbound(at(1).addr, 1, 100, now), None);
    assert_eq!(table.outbound(at(3).addr, 1, 100, now), Some((0, 1)));
    assert_eq!(table.back(0, 1, 100, now), Some((at(3), 1)));
    assert_eq!(table.back(1, 1, 100, now), None);
}

#[test]
fn one_address_is_of_the_client_that_was_heard_there_last() {
    let (mut table, now) = two();
    table.hello(&hello(0, 1), at(1), now).unwrap();
    table.hello(&hello(1, 1), at(1), now).unwrap();
    assert_eq!(table.outbound(at(1).addr, 1, 100, now), Some((1, 1)));
    assert_eq!(table.back(0, 1, 100, now), None);
    // The first client moves on, and keeps no part of the shared address.
    assert_eq!(
        table.hello(&hello(0, 2), at(2), now),
        Ok((0, Change::Again))
    );
    assert_eq!(table.outbound(at(1).addr, 1, 100, now), Some((1, 1)));
    assert_eq!(table.outbound(at(2).addr, 1, 100, now), Some((0, 1)));
}

#[test]
fn a_client_that_is_silent_is_nowhere() {
    let (mut table, now) = two();
    table.hello(&hello(0, 1), at(1), now).unwrap();
    let last = now + MINUTE - MOMENT;
    assert_eq!(table.outbound(at(1).addr, 1, 100, last), Some((0, 1)));
    let over = now + MINUTE;
    assert_eq!(table.next_deadline(), Some(over));
    assert_eq!(table.outbound(at(1).addr, 1, 100, over), None);
    assert_eq!(table.back(0, 1, 100, over), None);
    let mut silent = Vec::new();
    table.expire(last, |name, from| silent.push((name.to_owned(), from)));
    assert_eq!(silent, []);
    table.expire(over, |name, from| silent.push((name.to_owned(), from)));
    assert_eq!(silent, [("client 0".to_owned(), at(1).addr)]);
    assert_eq!(table.next_deadline(), None);
    assert_eq!(
        table.hello(&hello(0, 1), at(1), over),
        Err(Refused::OldStamp)
    );
    assert_eq!(
        table.hello(&hello(0, 2), at(1), over),
        Ok((0, Change::Again))
    );
}

#[test]
fn what_is_beyond_the_rate_is_counted_in_each_direction() {
    let (mut table, now) = two();
    table.hello(&hello(0, 1), at(1), now).unwrap();
    let mut passed = 0;
    for _ in 0..20 {
        passed += u64::from(table.outbound(at(1).addr, 10, 1000, now).unwrap().1);
    }
    let (_, counters) = table.of(0).unwrap();
    assert!(
        (90..=110).contains(&passed),
        "a tenth of a second: {passed}"
    );
    let out = Traffic {
        datagrams: passed,
        bytes: passed * 1000,
        over_rate: 200 - passed,
    };
    assert_eq!((counters.out, counters.back), (out, Traffic::default()));
    assert_eq!(table.back(0, 10, 1000, now), Some((at(1), 10)));
}

#[test]
fn clients_whose_keys_stay_are_not_disturbed_by_others() {
    let (mut table, now) = two();
    table.hello(&hello(0, 1), at(1), now).unwrap();
    table.hello(&hello(1, 1), at(2), now).unwrap();
    let numbers = table.replace(vec![client(5), client(1)], now);
    assert_eq!(numbers, [None, Some(1)]);
    assert_eq!(table.outbound(at(1).addr, 1, 100, now), None);
    assert_eq!(table.outbound(at(2).addr, 1, 100, now), Some((1, 1)));
    assert_eq!(
        table.hello(&hello(1, 1), at(3), now),
        Err(Refused::OldStamp)
    );
    assert_eq!(
        table.hello(&hello(0, 2), at(1), now),
        Err(Refused::UnknownKey)
    );
    assert_eq!(
        table.hello(&hello(5, 1), at(1), now),
        Ok((0, Change::First))
    );
    assert_eq!(table.replace(vec![client(1)], now), [Some(1)]);
    assert_eq!(table.outbound(at(2).addr, 1, 100, now), Some((0, 1)));
    assert_eq!((table.len(), table.name(0)), (1, "client 1"));
}

#[derive(Clone, Debug)]
enum Step {
    Hello(u8, u8, u16),
    Outbound(u16),
    Back(usize),
    Wait(u64),
    Expire,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4_u8, any::<u8>(), 0..4_u16)
            .prop_map(|(who, stamp, port)| Step::Hello(who, stamp, port)),
        (0..4_u16).prop_map(Step::Outbound),
        (0..4_usize).prop_map(Step::Back),
        (0..70_u64).prop_map(Step::Wait),
        Just(Step::Expire),
    ]
}

proptest! {
    /// Compares the table with the simplest correct model.
    #[test]
    fn whatever_happens_only_places_of_the_last_minute_count(
        steps in proptest::collection::vec(step(), 0..100),
    ) {
        let mut now = Instant::now();
        let mut table = Table::new((0..3).map(client).collect(), now);
        let mut places: [Option<(u16, Instant)>; 3] = [None; 3];
        let mut stamps = [None; 3];
        let live = |place: Option<(u16, Instant)>, now| place.filter(|it| now < it.1 + HEARD_FOR);
        for step in steps {
            match step {
                Step::Hello(who, stamp, port) => {
                    let number = usize::from(who);
                    let accepted = table.hello(&hello(who, stamp), at(port), now);
                    let newer = number < 3 && stamps[number] < Some(stamp);
                    prop_assert_eq!(accepted.is_ok(), newer);
                    if newer {
                        for place in &mut places {
                            place.take_if(|it| it.0 == port);
                        }
                        stamps[number] = Some(stamp);
                        places[number] = Some((port, now));
                    }
                }
                Step::Outbound(port) => {
                    let whose = places.iter().position(|it| live(*it, now).is_some_and(|it| it.0 == port));
                    prop_assert_eq!(table.outbound(at(port).addr, 1, 1, now).map(|it| it.0), whose);
                }
                Step::Back(number) => {
                    let place = places.get(number).and_then(|it| live(*it, now));
                    let to = table.back(number, 1, 1, now).map(|it| it.0.addr.port());
                    prop_assert_eq!(to, place.map(|it| it.0));
                }
                Step::Wait(seconds) => now += Duration::from_secs(seconds),
                Step::Expire => table.expire(now, |_, _| {}),
            }
        }
    }
}

#[test]
fn a_key_that_comes_back_is_called_by_no_recorded_hello() {
    let (mut table, now) = two();
    table.hello(&hello(0, 5), at(1), now).unwrap();
    table.replace(vec![client(1)], now);
    assert_eq!(table.stamps().next(), Some((key(0).id(), Tai64n([5; 12]))));
    table.replace(vec![client(1), client(0)], now);
    let recorded = table.hello(&hello(0, 5), at(2), now);
    assert_eq!(recorded, Err(Refused::OldStamp));
    assert!(table.hello(&hello(0, 6), at(1), now).is_ok());
    // Stamps are kept over a restart of the relay as well.
    let mut anew = Table::new(Vec::new(), now);
    anew.remember(key(0).id(), Tai64n([6; 12]));
    anew.replace(vec![client(0)], now);
    assert_eq!(anew.hello(&hello(0, 6), at(2), now), Err(Refused::OldStamp));
    // If there are many stamps, the newest are kept.
    let mut many = Table::new((1..=200).map(client).collect(), now);
    for number in 1..=200 {
        many.hello(&hello(number, number), at(1), now).unwrap();
    }
    many.replace(Vec::new(), now);
    let mut kept: Vec<u8> = many.stamps().map(|(_, stamp)| stamp.0[0]).collect();
    kept.sort_unstable();
    assert_eq!(kept, Vec::from_iter(200 - GONE_MAX as u8 + 1..=200));
}
