//! A sender, some lines and a window, and the packets that came out.

use super::emulator::{Fate, Link};
use crate::reorder::{Arrival, Counters, Repairs, Verdict, Window};
use plane::LineId;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub(super) const PACKET: usize = 1000;

/// The time until the sender hears of a missing number, and sends it again over the first line.
const REQUEST: Duration = Duration::from_millis(10);

/// A packet that came out of the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) number: u64,
    pub(super) verdict: Verdict,
    /// When its first copy arrived, since the start.
    pub(super) arrived: Duration,
    /// Time since the packet was sent, and since its first copy arrived.
    pub(super) delay: Duration,
    pub(super) added: Duration,
}

/// A packet to be sent: its time after the start, its number, its flow, its lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) at: Duration,
    pub(super) number: u64,
    pub(super) flow: Option<u32>,
    pub(super) lines: u16,
}

pub(super) struct Outcome {
    pub(super) deliveries: Vec<Delivery>,
    pub(super) counters: Counters,
    pub(super) repairs: Repairs,
    /// The number of copies that arrived.
    pub(super) copies: u64,
    /// For each packet, whether a copy arrived.
    pub(super) arrived: Vec<bool>,
    pub(super) waiting_max: (usize, usize),
}

const fn arriving(fate: Fate) -> u64 {
    match fate {
        Fate::Arrives => 1,
        Fate::ArrivesTwice => 2,
        Fate::QueueFull | Fate::Lost => 0,
    }
}

/// Sends all packets and lets everything arrive. Calls `event` before each sending, with its index.
pub(super) fn run(
    sendings: &[Sending],
    mut links: Vec<Link<u64>>,
    mut window: Window<u64>,
    mut event: impl FnMut(usize, &mut [Link<u64>]),
) -> Outcome {
    let start = Instant::now();
    let first = sendings[0].number;
    let index = |number: u64| (number - first) as usize;
    let mut arrived_at: Vec<Option<Instant>> = vec![None; sendings.len()];
    let mut deliveries = Vec::with_capacity(sendings.len());
    let mut copies = 0;
    let mut waiting_max = (0, 0);
    let mut next = 0;
    let mut requests: VecDeque<(Instant, u64)> = VecDeque::new();
    loop {
        let sending = sendings.get(next).map(|sending| start + sending.at);
        let arrival = links.iter().filter_map(Link::next_arrival).min();
        let deadline = window.next_deadline();
        let request = requests.front().map(|(at, _)| *at);
        let Some(now) = [sending, arrival, deadline, request]
            .into_iter()
            .flatten()
            .min()
        else {
            break;
        };
        let mut delivered = |number: u64, verdict, arrived_at: &[Option<Instant>]| {
            let arrived = arrived_at[index(number)].unwrap();
            let sent = start + sendings[index(number)].at;
            deliveries.push(Delivery {
                number,
                verdict,
                arrived: arrived - start,
                delay: now - sent,
                added: now - arrived,
            });
        };
        if sending == Some(now) {
            event(next, &mut links);
            let sending = sendings[next];
            for (line, link) in links.iter_mut().enumerate() {
                if sending.lines & (1 << line) != 0 {
                    copies += arriving(link.send(sending.number, PACKET, now));
                }
            }
            next += 1;
        }
        while let Some((_, number)) = requests.front().copied().filter(|(at, _)| *at <= now) {
            requests.pop_front();
            copies += arriving(links[0].send(number, PACKET, now));
        }
        for (line, link) in links.iter_mut().enumerate() {
            while let Some(number) = link.receive(now) {
                arrived_at[index(number)].get_or_insert(now);
                let arrival = Arrival {
                    flow: sendings[index(number)].flow,
                    ..Arrival::new(number, LineId(line as u8), PACKET)
                };
                let verdict = window.arrived(&arrival, now, || number);
                if verdict.deliver() {
                    delivered(number, verdict, &arrived_at);
                }
                while let Some(number) = window.due(now) {
                    delivered(number, Verdict::Held, &arrived_at);
                }
                let (packets, bytes) = window.waiting();
                waiting_max = (waiting_max.0.max(packets), waiting_max.1.max(bytes));
            }
        }
        while let Some(number) = window.due(now) {
            delivered(number, Verdict::Held, &arrived_at);
        }
        while let Some(number) = window.missing(now) {
            requests.push_back((now + REQUEST, number));
        }
    }
    Outcome {
        deliveries,
        counters: window.counters(),
        repairs: window.repairs(),
        copies,
        arrived: arrived_at.iter().map(Option::is_some).collect(),
        waiting_max,
    }
}
