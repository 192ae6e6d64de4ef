//! The queue in front of a line, with senders that behave like TCP.

use super::*;
use crate::inner::Kind;

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

fn inner(flow: u32, length: usize, ecn: Ecn) -> Inner {
    Inner {
        flow,
        length,
        dscp: 0,
        ecn,
        kind: Kind::Other,
    }
}

/// A greedy sender with a window: halved at most once a round trip by a loss or a mark, else grown by one packet a
/// round trip.
struct Sender {
    window: f64,
    in_flight: usize,
    halved_at: Option<Instant>,
}

impl Sender {
    fn congestion(&mut self, now: Instant) {
        if self.halved_at.is_none_or(|at| now >= at + MS * 40) {
            self.window = (self.window / 2.0).max(2.0);
            self.halved_at = Some(now);
        }
    }
}

/// The results of 8 bulk flows and a sparse one in ten seconds of a line of 20 Mbit/s.
struct Bottleneck {
    longest_sparse: Duration,
    /// Bits sent in a second, headers included.
    rate: f64,
    /// Packets of each bulk flow.
    shares: Vec<usize>,
    counters: Counters,
    waiting_max: (usize, usize),
}

fn bottleneck(settings: Settings, ecn: Ecn) -> Bottleneck {
    const SPARSE: u32 = 1000;
    let start = Instant::now();
    let mut queue: Queue<(u32, Instant)> = Queue::new(settings);
    let mut senders: Vec<Sender> = (0..8)
        .map(|_| Sender {
            window: 4.0,
            in_flight: 0,
            halved_at: None,
        })
        .collect();
    let mut result = Bottleneck {
        longest_sparse: Duration::ZERO,
        rate: 0.0,
        shares: vec![0; 8],
        counters: Counters::default(),
        waiting_max: (0, 0),
    };
    // Acknowledgements in transit, which takes 40 ms.
    let mut acknowledgements = std::collections::VecDeque::new();
    let mut bytes = 0;
    for step in 0..100_000_u32 {
        let now = start + US * 100 * step;
        if step.is_multiple_of(200) {
            queue.push((SPARSE, now), &inner(SPARSE, 200, Ecn::NotEct), now);
        }
        for (flow, sender) in senders.iter_mut().enumerate() {
            while sender.in_flight < sender.window as usize {
                sender.in_flight += 1;
                queue.push((flow as u32, now), &inner(flow as u32, 1400, ecn), now);
            }
        }
        let (packets, waiting) = queue.waiting();
        let most = &mut result.waiting_max;
        *most = (most.0.max(packets), most.1.max(waiting));
        while let Some(popped) = queue.pop(now) {
            let (flow, sent) = popped.packet;
            bytes += settings.overhead;
            if flow == SPARSE {
                bytes += 200;
                result.longest_sparse = result.longest_sparse.max(now - sent);
            } else {
                bytes += 1400;
                result.shares[flow as usize] += 1;
                acknowledgements.push_back((now + MS * 40, flow as usize, popped.mark));
            }
        }
        while let Some((_, flow, mark)) = acknowledgements
            .front()
            .copied()
            .filter(|(at, ..): &(Instant, usize, bool)| *at <= now)
        {
            acknowledgements.pop_front();
            let sender = &mut senders[flow];
            sender.in_flight -= 1;
            sender.window += 1.0 / sender.window;
            if mark {
                sender.congestion(now);
            }
        }
        // A sender detects a loss by a missing acknowledgement.
        let mut in_flight = vec![0; senders.len()];
        for (_, flow, _) in &acknowledgements {
            in_flight[*flow] += 1;
        }
        queue.count_of(&mut in_flight);
        for (sender, in_flight) in senders.iter_mut().zip(in_flight) {
            if in_flight < sender.in_flight {
                sender.in_flight = in_flight;
                sender.congestion(now);
            }
        }
    }
    result.rate = bytes as f64 * 8.0 / 10.0;
    result.counters = queue.counters();
    result
}

impl Queue<(u32, Instant)> {
    /// Adds the number of waiting packets of each flow.
    fn count_of(&self, counts: &mut [usize]) {
        self.flows.for_each(|(flow, _)| {
            if let Some(count) = counts.get_mut(*flow as usize) {
                *count += 1;
            }
        });
    }
}

fn rate(rate: u64) -> Settings {
    Settings {
        rate: Some(rate),
        ..Settings::default()
    }
}

#[test]
fn a_sparse_flow_does_not_notice_eight_that_fill_the_line() {
    let found = bottleneck(rate(20_000_000), Ecn::NotEct);
    // One packet of full size takes 0.6 ms.
    assert!(found.longest_sparse < MS * 3, "{:?}", found.longest_sparse);
    assert!(found.rate > 20_000_000.0 * 0.95, "{}", found.rate);
    assert!(found.rate < 20_000_000.0 * 1.01, "{}", found.rate);
    let (least, most) = (found.shares.iter().min(), found.shares.iter().max());
    assert!(
        *least.unwrap() as f64 > *most.unwrap() as f64 * 0.85,
        "{:?}",
        found.shares
    );
    assert!(found.counters.dropped > 0 && found.counters.marked == 0);
    assert_eq!(found.counters.overflowed, 0);
}

#[test]
fn packets_that_can_be_marked_are_not_dropped() {
    let found = bottleneck(rate(20_000_000), Ecn::Ect0);
    assert!(found.counters.marked > 0);
    assert_eq!(found.counters.dropped, 0);
    assert!(found.longest_sparse < MS * 3, "{:?}", found.longest_sparse);
    assert!(found.rate > 20_000_000.0 * 0.95, "{}", found.rate);
}

#[test]
fn a_full_queue_drops_from_the_longest_flow() {
    let settings = Settings {
        packets_max: 100,
        ..rate(1_000_000)
    };
    let now = Instant::now();
    let mut queue = Queue::new(settings);
    for number in 0..50_u32 {
        queue.push((2, number), &inner(2, 100, Ecn::NotEct), now);
    }
    for number in 0..1000_u32 {
        queue.push((1, number), &inner(1, 1400, Ecn::NotEct), now);
        assert!(queue.waiting().0 <= 100);
    }
    let mut later = now;
    let mut out = Vec::new();
    while let Some(at) = queue.next_deadline(later) {
        later = at;
        out.extend(queue.pop(later).map(|popped| popped.packet));
    }
    let sparse = out.iter().filter(|(flow, _)| *flow == 2).count();
    assert!(sparse >= 49, "{sparse}");
    assert!(queue.counters().overflowed > 900);
    let first = out.iter().find(|(flow, _)| *flow == 1).unwrap();
    assert!(first.1 > 900, "the oldest go");
}

#[test]
fn bytes_are_bounded_too() {
    let settings = Settings {
        bytes_max: 10_000,
        ..rate(1_000_000)
    };
    let mut queue = Queue::new(settings);
    for number in 0..100 {
        queue.push((), &inner(number, 1400, Ecn::NotEct), Instant::now());
        assert!(queue.waiting().1 <= 10_000);
    }
    queue.push((), &inner(7, 20_000, Ecn::NotEct), Instant::now());
    assert!(queue.waiting().1 <= 10_000);
}

#[test]
fn without_a_rate_nothing_waits_and_the_queue_can_be_left_out() {
    let now = Instant::now();
    let mut queue = Queue::new(Settings::default());
    assert!(!queue.engaged());
    queue.push(1, &inner(1, 1400, Ecn::NotEct), now);
    assert_eq!(queue.next_deadline(now), Some(now));
    assert_eq!(queue.pop(now).map(|popped| popped.packet), Some(1));
    assert_eq!(queue.next_deadline(now), None);
}

#[test]
fn packets_of_a_flow_keep_their_order() {
    let now = Instant::now();
    let mut queue = Queue::new(Settings::default());
    for number in 0..300_u32 {
        queue.push(
            (number % 3, number),
            &inner(number % 3, 1400, Ecn::NotEct),
            now,
        );
    }
    let mut last = [None; 3];
    while let Some(popped) = queue.pop(now) {
        let (flow, number) = popped.packet;
        assert!(last[flow as usize] < Some(number));
        last[flow as usize] = Some(number);
    }
    assert_eq!(queue.counters().sent, 300);
}
