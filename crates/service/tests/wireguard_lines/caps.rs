//! Lines with a monthly data cap.

use crate::world::{A, PACKET, World};
use config::lines::{Line, LineMode, Lines};
use plane::PeerId;
use service::wireguard::{CapReport, LineUsage, Machine};
use std::time::{Duration, SystemTime};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Bytes of one second's data, both ways.
const EACH_SECOND: u64 = 2 * 50 * PACKET;

/// About noon of 2027-01-15, in any time zone on that or a neighbouring day.
fn january() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_014_400)
}

/// The preferred line has this cap, in months that begin on the 20th.
fn lines(mode: LineMode, cap: u64) -> Lines {
    let line = |name: &str, priority| Line {
        name: name.to_owned(),
        interface: Some(name.to_owned()),
        priority,
        ..Line::default()
    };
    let capped = Line {
        cap: Some(cap),
        cap_day: 20,
        ..line("lte", 1)
    };
    Lines {
        mode,
        hold: SECOND * 5,
        lines: vec![capped, line("dsl", 2)],
        ..Lines::default()
    }
}

fn world(mode: LineMode, cap: u64) -> World {
    World::with_settings([10, 20], &lines(mode, cap), &[], january())
}

fn report(world: &World) -> CapReport {
    let reports = world.hosts[A].machine.line_reports(PeerId(0));
    assert_eq!(reports[1].cap, None);
    reports[0].cap.clone().unwrap()
}

/// Ends the program, and returns the usage it saved last.
fn ends(world: &mut World) -> Vec<LineUsage> {
    world.with(A, Machine::end);
    world.hosts[A].outside.usage.last().unwrap().clone()
}

#[test]
fn a_line_that_has_carried_what_it_may_is_left_and_gone_back_to_when_a_month_begins() {
    let cap = 20 * EACH_SECOND;
    let mut world = world(LineMode::Failover, cap);
    world.run(SECOND * 14, true);
    assert_eq!(world.used(A), Some(0));
    assert_eq!(world.said("%"), 0);
    let before = report(&world);
    assert!(
        before.used.abs_diff(14 * EACH_SECOND) < 2 * EACH_SECOND,
        "{before:?}"
    );
    assert_eq!(before.renews.as_deref(), Some("2027-01-20"));
    world.run(SECOND * 5, true);
    assert_eq!(
        world.said("uplink lte has carried 80 % of the 2 MB that it may in a month"),
        1
    );
    world.run(SECOND * 5, true);
    assert_eq!(world.used(A), Some(1), "{:?}", world.log());
    let words =
        "uplink lte has carried the 2 MB that it may in a month, which begins anew on 2027-01-20";
    assert_eq!(world.said(words), 1, "{:?}", world.log());
    assert_eq!(
        world.said("dsl is used now: the uplink in use has carried what it may"),
        1
    );
    world.run(SECOND, false);
    assert_eq!(world.sent, world.taken, "no packet was lost");

    // The line is probed as rarely as one that costs money.
    let used = report(&world).used;
    world.run(HOUR, true);
    assert_eq!(world.used(A), Some(1));
    let asked = report(&world).used - used;
    assert!(asked <= 60 * 5 * PACKET, "{asked}");
    assert_eq!(world.said("lte has carried"), 2, "{:?}", world.log());

    world.wall += DAY * 5;
    world.run(SECOND * 8, true);
    assert_eq!(world.used(A), Some(0), "{:?}", world.log());
    assert_eq!(
        world.said("uplink lte: a month has begun, in which it may carry 2 MB again"),
        1
    );
    let anew = report(&world);
    assert!(anew.used < 10 * EACH_SECOND, "{anew:?}");
    assert_eq!(anew.renews.as_deref(), Some("2027-02-20"));
}

#[test]
fn a_line_that_has_carried_what_it_may_is_used_where_no_other_works() {
    for mode in [
        LineMode::Failover,
        LineMode::Duplicate,
        LineMode::BalancePackets,
    ] {
        let mut world = world(mode, EACH_SECOND);
        world.run(SECOND * 20, true);
        let used = report(&world).used;
        world.run(SECOND * 10, true);
        let more = report(&world).used - used;
        assert!(more < EACH_SECOND, "{mode:?}: {more}");
        world.cut[1] = true;
        world.run(SECOND * 10, true);
        assert_eq!(world.used(A), Some(0), "{mode:?}: {:?}", world.log());
        assert!(world.now - world.answered < SECOND, "{mode:?}");
        world.cut[1] = false;
        world.run(SECOND * 30, true);
        let used = report(&world).used;
        world.run(SECOND * 10, true);
        let more = report(&world).used - used;
        assert!(more < EACH_SECOND, "{mode:?}, back: {more}");
    }
}

#[test]
fn what_was_carried_is_known_after_a_restart() {
    let cap = 20 * EACH_SECOND;
    let settings = lines(LineMode::Failover, cap);
    let mut before = world(LineMode::Failover, cap);
    before.run(SECOND * 10, true);
    let kept = ends(&mut before);
    let used = report(&before).used;
    let wanted = LineUsage {
        name: "lte".to_owned(),
        month: Some("2026-12".parse().unwrap()),
        used,
        doubt: None,
    };
    assert_eq!(kept, [wanted]);
    let mut after = World::with_settings([10, 20], &settings, &kept, january());
    after.run(SECOND * 5, true);
    assert!(report(&after).used > used);
    after.run(SECOND * 20, true);
    assert_eq!(after.used(A), Some(1), "{:?}", after.log());
    // The cap is already used up at the start.
    let kept = ends(&mut after);
    let mut after = World::with_settings([10, 20], &settings, &kept, january());
    after.run(SECOND * 20, true);
    assert_eq!(after.used(A), Some(1), "{:?}", after.log());
    // The saved usage is from an earlier month.
    let mut after = World::with_settings([10, 20], &settings, &kept, january() + DAY * 30);
    after.run(SECOND * 5, true);
    assert_eq!(after.used(A), Some(0), "{:?}", after.log());
    assert!(report(&after).used <= 6 * EACH_SECOND);
    // Saved usage of lines that no longer exist is ignored.
    let other = LineUsage {
        name: "sat".to_owned(),
        ..kept[0].clone()
    };
    let after = World::with_settings([10, 20], &settings, &[other], january());
    assert!(report(&after).used < EACH_SECOND);
}

#[test]
fn until_the_clock_is_set_no_month_begins() {
    let cap = 20 * EACH_SECOND;
    let settings = lines(LineMode::Failover, cap);
    let mut first = world(LineMode::Failover, cap);
    first.run(SECOND * 10, true);
    let kept = ends(&mut first);
    for usage in [&kept[..], &[]] {
        let mut world =
            World::with_settings([10, 20], &settings, usage, SystemTime::UNIX_EPOCH + HOUR);
        world.run(SECOND * 5, true);
        let used = report(&world).used;
        assert!(used >= usage.iter().map(|it| it.used).sum::<u64>() + 3 * EACH_SECOND);
        let renews = usage.first().map(|_| "2027-01-20");
        assert_eq!(report(&world).renews.as_deref(), renews);
        world.wall = january();
        world.run(SECOND * 5, true);
        let anew = report(&world);
        assert!(anew.used > used, "{anew:?}");
        assert_eq!(anew.renews.as_deref(), Some("2027-01-20"));
    }
}

/// Routers without a battery-backed clock show an old date until they learn the time.
#[test]
fn a_clock_that_shows_an_old_date_is_not_believed_soon() {
    let cap = 20 * EACH_SECOND;
    let settings = lines(LineMode::Failover, cap);
    let mut first = world(LineMode::Failover, cap);
    first.run(SECOND * 10, true);
    let kept = ends(&mut first);
    let old = january() - DAY * 365;
    let mut world = World::with_settings([10, 20], &settings, &kept, old);
    world.run(SECOND * 100, false);
    let used = report(&world).used;
    assert!(used > kept[0].used);
    world.wall = january();
    world.run(SECOND * 5, true);
    assert!(report(&world).used > used, "the month goes on");
    assert_eq!(report(&world).renews.as_deref(), Some("2027-01-20"));
}

#[test]
fn little_is_written() {
    let mut busy = world(LineMode::Failover, 200 * EACH_SECOND);
    busy.run(SECOND * 59, true);
    assert_eq!(busy.hosts[A].outside.usage.len(), 0);
    busy.run(SECOND * 61, true);
    assert!(
        (1..=2).contains(&busy.hosts[A].outside.usage.len()),
        "{}",
        busy.hosts[A].outside.usage.len()
    );
    // Half an hour's traffic exceeds a hundredth of the cap, and even the whole cap.
    busy.run(HOUR, true);
    let before = busy.hosts[A].outside.usage.len();
    busy.run(HOUR * 2, false);
    let idle = busy.hosts[A].outside.usage.len() - before;
    assert!(idle <= 13, "{idle}");
    let mut large = world(LineMode::Failover, 1_000_000 * EACH_SECOND);
    large.run(HOUR, true);
    assert_eq!(
        large.hosts[A].outside.usage.len(),
        6,
        "which month it is, and each ten minutes"
    );
}

#[test]
fn lines_without_caps_are_not_counted() {
    let mut settings = lines(LineMode::Failover, 1);
    settings.lines[0].cap = None;
    let mut world = World::with_settings([10, 20], &settings, &[], january());
    world.run(SECOND * 100, true);
    world.with(A, Machine::end);
    assert!(world.hosts[A].outside.usage.is_empty());
    let reports = world.hosts[A].machine.line_reports(PeerId(0));
    assert!(reports.iter().all(|it| it.cap.is_none()));
}
