//! The decision about a call whose way changes.

use super::*;

const fn way(dev: u32, last: u8) -> Option<Way> {
    Some((dev, IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))))
}

const WAN: Option<Way> = way(2, 1);
const LTE: Option<Way> = way(3, 2);

/// An uplink at each look after a call by [`WAN`] began: whether the call lasts, the way, whether the call's address is
/// still there, and the decision.
type Look = (bool, Option<Way>, bool, bool);

fn looks(all: &[Look]) {
    let mut uplink = Uplink::default();
    uplink.begins(WAN);
    let now = Instant::now();
    for (at, (in_call, way, works, expected)) in all.iter().enumerate() {
        let moved = uplink.leaves(now, *in_call, *way, |_, _| false, |_| *works);
        assert_eq!(moved, *expected, "look {at} of {all:?}");
    }
}

#[test]
fn a_call_ends_when_another_way_has_replaced_its_own() {
    // The address is gone.
    looks(&[(true, LTE, false, true), (true, LTE, false, false)]);
    // The address is there: the other way must last.
    looks(&[(true, LTE, true, false), (true, LTE, true, true)]);
    looks(&[
        (true, LTE, true, false),
        (true, WAN, true, false),
        (true, LTE, true, false),
        (true, LTE, true, true),
    ]);
    // The uplink returns with the same address.
    looks(&[(true, None, false, false), (true, WAN, true, false)]);
}

#[test]
fn between_calls_every_way_that_appears_is_taken() {
    looks(&[(false, WAN, true, false), (false, LTE, true, true)]);
    looks(&[(false, None, false, false), (false, WAN, true, true)]);
    // The way was lost during the call, which ended since.
    looks(&[(true, None, false, false), (false, WAN, true, true)]);
}

#[test]
fn a_call_by_an_address_of_the_present_device_stays() {
    let mut uplink = Uplink::default();
    uplink.begins(WAN);
    assert!(!uplink.leaves(Instant::now(), true, LTE, |_, _| true, |_| true));
}

/// The host's network changed while the server was being called, and is looked at after that.
#[test]
fn a_change_before_a_call_is_not_forgotten() {
    let (mut uplink, now) = (Uplink::default(), Instant::now());
    uplink.changed(now);
    uplink.begins(WAN);
    assert_eq!(uplink.look_at, Some(now + SETTLE));
    // A doubt about an earlier call says nothing about this one.
    assert!(!uplink.leaves(now, true, LTE, |_, _| false, |_| true));
    uplink.begins(WAN);
    assert!(!uplink.leaves(now, true, LTE, |_, _| false, |_| true));
}
