//! Properties that hold for a window with any numbers, times and lines.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A step: a number relative to the greatest so far, a line, a flow, microseconds since the last packet.
type Step = (u8, u64, u8, u8, u64);

fn number(kind: u8, offset: u64, greatest: u64) -> u64 {
    match kind {
        0..120 => greatest.saturating_add(1 + offset % 3),
        120..200 => greatest.saturating_sub(offset % 30),
        200..225 => greatest.saturating_add(offset % (3 * WINDOW)),
        225..245 => greatest.saturating_sub(offset % (REMEMBERED + 100)),
        245..252 => offset % 100,
        _ => offset,
    }
}

fn settings(bits: u8, packets_max: usize) -> Settings {
    Settings {
        packets_max,
        bytes_max: 100 * (packets_max / 2 + 1),
        late: if bits & 1 == 0 {
            Late::Drop
        } else {
            Late::Deliver
        },
        order: if bits & 2 == 0 {
            Order::Strict
        } else {
            Order::ByFlow
        },
        jump: if bits & 4 == 0 {
            Jump::Trusted
        } else {
            Jump::Agreed
        },
        line_rule: bits & 8 == 0,
        ..Settings::default()
    }
}

/// Runs the steps; `fetch` says whether due packets are fetched after each.
fn run(steps: &[Step], settings: Settings, fetch: bool) -> Result<(), TestCaseError> {
    let mut now = Instant::now();
    let mut window = Window::new(settings);
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    let mut greatest = 1000;
    let trusted = settings.jump == Jump::Trusted;
    for (at, (kind, offset, line, flow, micros)) in steps.iter().enumerate() {
        now += Duration::from_micros(micros * micros / 16);
        let number = number(*kind, *offset, greatest).min(u64::MAX - 5000);
        let arrival = Arrival {
            flow: (*flow > 0).then(|| u32::from(*flow % 4)),
            ..Arrival::new(number, LineId(line % 3), 100)
        };
        let verdict = window.arrived(&arrival, now, || number);
        match verdict {
            Verdict::Duplicate => prop_assert!(!trusted || seen.contains(&number)),
            Verdict::Ancient | Verdict::Ignored => {}
            _ => prop_assert!(seen.insert(number) || !trusted, "{number} twice"),
        }
        if !matches!(verdict, Verdict::Ancient | Verdict::Ignored)
            && (trusted || verdict != Verdict::Duplicate)
        {
            greatest = greatest.max(number);
        }
        if verdict.deliver() {
            out.push(number);
        }
        while let Some(number) = window.due(now).filter(|_| fetch) {
            out.push(number);
        }
        let (packets, bytes) = window.waiting();
        prop_assert!(packets <= settings.packets_max);
        prop_assert!(bytes <= settings.bytes_max);
        let counters = window.counters();
        prop_assert_eq!(counters.copies.received(), at as u64 + 1);
        prop_assert_eq!(
            counters.copies.accepted + counters.given_up,
            counters.decided + counters.waiting
        );
        // A packet that waits has a deadline, within the cap.
        let deadline = window.next_deadline();
        prop_assert!(packets == 0 || !fetch || deadline.is_some());
        prop_assert!(deadline.is_none_or(|deadline| deadline <= now + settings.cap_max));
    }
    now += Duration::from_secs(10);
    while let Some(number) = window.due(now) {
        out.push(number);
    }
    prop_assert_eq!(window.waiting(), (0, 0));
    prop_assert_eq!(window.next_deadline(), None);
    if fetch && trusted {
        let first = window.counters().copies.accepted
            + if settings.late == Late::Deliver {
                window.counters().copies.late
            } else {
                0
            };
        prop_assert_eq!(out.len() as u64, first);
        if settings.order == Order::Strict && settings.late == Late::Drop {
            prop_assert!(out.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
    Ok(())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        any::<u8>(),
        any::<u64>(),
        any::<u8>(),
        any::<u8>(),
        0..3000_u64,
    );
    prop::collection::vec(step, 1..300)
}

proptest! {
    #[test]
    fn whatever_comes_is_counted_bounded_and_delivered_once(
        steps in steps(),
        bits in any::<u8>(),
        packets_max in prop::sample::select(vec![1_usize, 2, 7, 40, 2048]),
    ) {
        run(&steps, settings(bits, packets_max), true)?;
    }

    #[test]
    fn a_caller_that_fetches_one_packet_at_a_time_gets_bounds_too(steps in steps(), bits in any::<u8>()) {
        run(&steps, settings(bits, 7), false)?;
    }
}

proptest! {
    #[test]
    fn a_number_near_the_greatest_is_found_again(greatest in any::<u64>(), ahead in -(1_i64 << 31)..(1 << 31)) {
        let mut extender = Extender::new();
        extender.taken(greatest);
        if let Some(number) = greatest.checked_add_signed(ahead) {
            prop_assert_eq!(extender.extend(number as u32), Some(number));
        }
    }

    #[test]
    fn a_walk_of_any_steps_is_followed(start in any::<u32>(), steps in prop::collection::vec(-5000_i64..0x4000_0000, 1..200)) {
        let mut extender = Extender::new();
        let mut number = u64::from(start);
        extender.taken(number);
        for step in steps {
            let Some(next) = number.checked_add_signed(step) else { continue };
            prop_assert_eq!(extender.extend(next as u32), Some(next));
            extender.taken(next);
            number = number.max(next);
        }
    }
}
