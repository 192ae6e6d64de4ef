//! A cable is pulled and put back while pings go over two lines, 20 a second: health, scheduler and window together.

use super::emulator::{Link, LinkSettings};
use crate::health::{Health, Settings as HealthSettings};
use crate::reorder::{Arrival, Settings, Window};
use crate::scheduler::{FailoverSettings, LineSet, Mode, Scheduler, SwitchReason};
use plane::{LineId, LineMode};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const LINES: [LineId; 2] = [LineId(0), LineId(1)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Ping(u64),
    Probe,
}

struct Result {
    /// Pings that were not answered, by the second in which they were sent.
    lost: Vec<u32>,
    switches: Vec<(u32, SwitchReason)>,
}

/// Cuts the first line in both directions from second 10 to 30.
fn ping(mode: Mode) -> Result {
    let start = Instant::now();
    let link = |delay, seed| {
        let settings = LinkSettings {
            delay: MS * delay,
            ..LinkSettings::default()
        };
        Link::<Message>::new(settings, seed)
    };
    let mut there = [link(10, 1), link(30, 2)];
    let mut back = [link(10, 3), link(30, 4)];
    let mut health = LINES.map(|_| Health::new(HealthSettings::default()));
    let mut scheduler = Scheduler::new(mode, FailoverSettings::default());
    for line in LINES {
        scheduler.add(line, Default::default());
    }
    scheduler.poll(start);
    let mut windows = [(); 2].map(|()| Window::new(Settings::default()));
    let mut answered = vec![false; 80 * 20];
    let mut switches = Vec::new();
    for step in 0..80_000_u32 {
        let now = start + MS * step;
        if step == 10_000 || step == 30_000 {
            for link in [&mut there[0], &mut back[0]] {
                link.cut(step == 10_000);
            }
        }
        if step.is_multiple_of(50) {
            let number = u64::from(step / 50);
            let lines = match scheduler.line_mode() {
                LineMode::Single => scheduler.active().into_iter().collect(),
                mode => mode.lines(),
            };
            for line in lines {
                there[line.index()].send(Message::Ping(number), 100, now);
                health[line.index()].sent(now);
            }
        }
        for line in LINES {
            let at = line.index();
            if health[at].probe_due(now) {
                there[at].send(Message::Probe, 60, now);
            }
            // The server answers on the line of the request, and drops copies.
            while let Some(message) = there[at].receive(now) {
                let answer = match message {
                    Message::Probe => LineSet::of(line),
                    Message::Ping(number) => {
                        let arrival = Arrival::new(number, line, 100);
                        let verdict = windows[0].arrived(&arrival, now, || number);
                        let first = verdict.deliver() || verdict == crate::reorder::Verdict::Held;
                        while windows[0].due(now).is_some() {}
                        match (first, mode) {
                            (false, _) => LineSet::EMPTY,
                            (true, Mode::Duplicate) => LINES.into_iter().collect(),
                            (true, _) => LineSet::of(line),
                        }
                    }
                };
                for line in answer {
                    back[line.index()].send(message, 100, now);
                }
            }
            while let Some(message) = back[at].receive(now) {
                health[at].received(now);
                if let Message::Ping(number) = message {
                    windows[1].arrived(&Arrival::new(number, line, 100), now, || number);
                    answered[number as usize] = true;
                    while windows[1].due(now).is_some() {}
                }
            }
            if let Some(change) = health[at].poll(now) {
                let switch = scheduler.set_state(line, change.to, now);
                switches.extend(switch.map(|switch| (step, switch.reason)));
            }
        }
        let switch = scheduler.poll(now);
        switches.extend(switch.map(|switch| (step, switch.reason)));
    }
    let lost = answered[..79 * 20].chunks(20).map(|second| {
        let lost = second.iter().filter(|answered| !**answered).count();
        lost as u32
    });
    Result {
        lost: lost.collect(),
        switches,
    }
}

#[test]
fn failover_recovers_within_two_seconds_and_goes_back_without_loss() {
    let result = ping(Mode::Failover);
    let lost: u32 = result.lost.iter().sum();
    assert!((1..40).contains(&lost), "{lost} of 20 a second");
    assert_eq!(
        result.lost[12..].iter().sum::<u32>(),
        0,
        "{:?}",
        result.lost
    );
    let reasons: Vec<SwitchReason> = result.switches.iter().map(|(_, reason)| *reason).collect();
    let hold = Duration::from_secs(30);
    let expected = [
        SwitchReason::First,
        SwitchReason::Failed,
        SwitchReason::Preferred(hold),
    ];
    assert_eq!(reasons, expected);
    let back = result.switches[2].0;
    assert!((60_000..64_000).contains(&back), "{back}");
}

#[test]
fn duplicate_loses_nothing() {
    let result = ping(Mode::Duplicate);
    let lost: u32 = result.lost.iter().sum();
    assert!(lost <= 2, "{lost}");
}

#[test]
fn single_loses_what_the_line_does() {
    let lost: u32 = ping(Mode::Single).lost.iter().sum();
    assert!((400..=402).contains(&lost), "{lost}");
}
