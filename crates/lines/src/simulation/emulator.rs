//! Links in virtual time: delay, jitter with and without reordering, loss at random and in bursts, duplication, a rate
//! with a queue. Deterministic by seed, the same on every machine.
//!
//! A [`Link`] is one direction, and a queue of events only: its caller says what time it is and carries the packets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// How the delay of packets varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Jitter {
    /// The delay does not vary.
    #[default]
    None,
    /// Evenly distributed, by up to this much in each direction.
    Even(Duration),
    /// Normally distributed, with this deviation, by up to six of them.
    Normal(Duration),
}

/// Which packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Loss {
    /// No packet is lost.
    #[default]
    None,
    /// Each packet is lost with this probability.
    Random(f64),
    /// Packets are lost in bursts only (Gilbert's model). Both fields are probabilities for each packet: that a burst
    /// begins, and that it ends.
    Bursts {
        /// A burst begins with this packet.
        begin: f64,
        /// The burst has ended before this packet.
        end: f64,
    },
}

/// The settings of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LinkSettings {
    /// The delay of a packet, without waiting in the queue.
    pub(super) delay: Duration,
    /// The variation of the delay.
    pub(super) jitter: Jitter,
    /// Whether packets keep their order: one that would overtake another arrives with it.
    pub(super) keeps_order: bool,
    /// Loss of packets after the queue.
    pub(super) loss: Loss,
    /// The probability that a packet arrives twice, with delays of their own.
    pub(super) duplication: f64,
    /// The rate in bits a second; `None` means no limit.
    pub(super) rate: Option<u64>,
    /// Maximum bytes that wait for the link. A packet that does not fit is lost.
    pub(super) queue: usize,
}

/// The fate of a packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Delivered once.
    Arrives,
    /// Delivered twice.
    ArrivesTwice,
    /// The queue was full.
    QueueFull,
    /// Lost at random, by a full queue or by a cut link.
    Lost,
}

#[derive(Clone, Debug)]
struct Event<T> {
    at: Instant,
    /// Orders events of the same time: the first goes first.
    sequence: u64,
    packet: T,
}

impl<T> PartialEq for Event<T> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl<T> Eq for Event<T> {}

impl<T> PartialOrd for Event<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Event<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// One direction of a link, with packets of type `T` in transit.
#[derive(Clone, Debug)]
pub(super) struct Link<T> {
    settings: LinkSettings,
    random: Random,
    events: BinaryHeap<Reverse<Event<T>>>,
    sequence: u64,
    /// When the link has sent everything that waits.
    idle_at: Option<Instant>,
    last_arrival: Option<Instant>,
    in_burst: bool,
    cut: bool,
}

impl<T: Clone> Link<T> {
    /// Makes an idle link. Two links with the same seed and settings treat the same packets the same way.
    pub(super) const fn new(settings: LinkSettings, seed: u64) -> Self {
        Self {
            settings,
            random: Random::new(seed),
            events: BinaryHeap::new(),
            sequence: 0,
            idle_at: None,
            last_arrival: None,
            in_burst: false,
            cut: false,
        }
    }

    /// Cuts or restores the link: packets sent from now on are lost, or not. Packets in transit still arrive.
    pub(super) const fn cut(&mut self, cut: bool) {
        self.cut = cut;
    }

    /// Sends a packet of this size.
    pub(super) fn send(&mut self, packet: T, bytes: usize, now: Instant) -> Fate {
        let Some(sent) = self.transmit(bytes, now) else {
            return Fate::QueueFull;
        };
        if self.lost() || self.cut {
            return Fate::Lost;
        }
        let twice = self.random.chance(self.settings.duplication);
        if twice {
            self.put(packet.clone(), sent);
        }
        self.put(packet, sent);
        if twice {
            Fate::ArrivesTwice
        } else {
            Fate::Arrives
        }
    }

    /// When the next packet arrives.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.events.peek().map(|Reverse(event)| event.at)
    }

    /// Takes the next packet that has arrived by `now`.
    pub(super) fn receive(&mut self, now: Instant) -> Option<T> {
        if self.next_arrival()? > now {
            return None;
        }
        self.events.pop().map(|Reverse(event)| event.packet)
    }

    /// How long a packet that is sent now would wait for the link.
    pub(super) fn backlog(&self, now: Instant) -> Duration {
        self.idle_at
            .map_or(Duration::ZERO, |idle| idle.saturating_duration_since(now))
    }

    /// When the link has sent the packet; `None` if the queue is full.
    fn transmit(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let Some(rate) = self.settings.rate.filter(|rate| *rate > 0) else {
            return Some(now);
        };
        let backlog = self.backlog(now);
        let waiting = backlog.as_nanos() * u128::from(rate) / 8_000_000_000;
        if waiting + bytes as u128 > (self.settings.queue as u128).max(bytes as u128) {
            return None;
        }
        let nanos = (bytes as u64).saturating_mul(8_000_000_000) / rate;
        let sent = now + backlog + Duration::from_nanos(nanos);
        self.idle_at = Some(sent);
        Some(sent)
    }

    fn lost(&mut self) -> bool {
        match self.settings.loss {
            Loss::None => false,
            Loss::Random(probability) => self.random.chance(probability),
            Loss::Bursts { begin, end } => {
                let change = if self.in_burst { end } else { begin };
                self.in_burst ^= self.random.chance(change);
                self.in_burst
            }
        }
    }

    fn put(&mut self, packet: T, sent: Instant) {
        let (scale, by) = match self.settings.jitter {
            Jitter::None => (0.0, Duration::ZERO),
            Jitter::Even(by) => (self.random.unit() * 2.0 - 1.0, by),
            Jitter::Normal(by) => (self.random.normal(), by),
        };
        let delay = self.settings.delay.as_secs_f64() + scale * by.as_secs_f64();
        let mut at = sent + Duration::from_secs_f64(delay.max(0.0));
        if self.settings.keeps_order
            && let Some(last) = self.last_arrival
        {
            at = at.max(last);
        }
        self.last_arrival = Some(at);
        self.sequence += 1;
        self.events.push(Reverse(Event {
            at,
            sequence: self.sequence,
            packet,
        }));
    }
}

/// Steele, Lea and Flood's SplitMix64 (OOPSLA 2014): one state of 64 bits, which any seed fits.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// The sequence of this seed.
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// 64 random bits.
    pub(super) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0. The bias is below `bound / 2^64`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 up to 1.
    pub(super) const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub(super) const fn chance(&mut self, probability: f64) -> bool {
        // Draws nothing for a probability of 0, so that such a setting leaves the rest of the sequence as it was.
        probability > 0.0 && self.unit() < probability
    }

    /// A number from nearly the normal distribution, of mean 0 and deviation 1, within 6: the sum of twelve uniform
    /// ones. Logarithms and cosines are avoided because they differ between machines in their last bits.
    pub(super) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sends 10,000 packets of 1000 bytes, one each millisecond; returns those that arrive, each with its delay.
    fn run(settings: LinkSettings, seed: u64) -> Vec<(u32, Duration)> {
        let start = Instant::now();
        let mut link = Link::new(settings, seed);
        for number in 0..10_000_u32 {
            link.send(number, 1000, start + MS * number);
        }
        let mut arrivals = Vec::new();
        while let Some(at) = link.next_arrival() {
            let number = link.receive(at).unwrap();
            arrivals.push((number, at - (start + MS * number)));
        }
        arrivals
    }

    #[test]
    fn a_seed_says_all() {
        let settings = LinkSettings {
            delay: MS * 3,
            jitter: Jitter::Normal(MS),
            loss: Loss::Bursts {
                begin: 0.01,
                end: 0.2,
            },
            duplication: 0.01,
            ..LinkSettings::default()
        };
        assert_eq!(run(settings, 7), run(settings, 7));
        assert_ne!(run(settings, 7), run(settings, 8));
    }

    #[test]
    fn loss_and_duplication_are_as_often_as_set() {
        let settings = LinkSettings {
            loss: Loss::Random(0.02),
            duplication: 0.05,
            ..LinkSettings::default()
        };
        let arrivals = run(settings, 1).len();
        assert!((10_180..10_400).contains(&arrivals), "{arrivals}");
    }

    #[test]
    fn bursts_have_their_length() {
        let loss = Loss::Bursts {
            begin: 0.01,
            end: 0.25,
        };
        let settings = LinkSettings {
            loss,
            ..LinkSettings::default()
        };
        let arrivals = run(settings, 1);
        let lost = 10_000 - arrivals.len();
        let bursts = arrivals
            .windows(2)
            .filter(|pair| pair[1].0 > pair[0].0 + 1)
            .count();
        assert!((250..550).contains(&lost), "{lost}");
        let length = lost as f64 / bursts as f64;
        assert!((3.0..5.0).contains(&length), "{length}");
    }

    #[test]
    fn jitter_reorders_unless_order_is_kept() {
        let mut settings = LinkSettings {
            delay: MS * 3,
            jitter: Jitter::Even(MS),
            ..LinkSettings::default()
        };
        let reordered =
            |arrivals: &[(u32, Duration)]| arrivals.windows(2).any(|pair| pair[1].0 < pair[0].0);
        let raw = run(settings, 1);
        assert!(reordered(&raw));
        assert!(
            raw.iter()
                .all(|(_, delay)| (MS * 2..=MS * 4).contains(delay))
        );
        settings.keeps_order = true;
        assert!(!reordered(&run(settings, 1)));
    }

    #[test]
    fn a_rate_fills_its_queue_and_no_more() {
        // 8 Mbit/s arrive, 4 Mbit/s leave: the queue of 50,000 bytes is 100 ms.
        let settings = LinkSettings {
            rate: Some(4_000_000),
            queue: 50_000,
            ..LinkSettings::default()
        };
        let arrivals = run(settings, 1);
        assert!((5000..5100).contains(&arrivals.len()));
        let longest = arrivals.iter().map(|(_, delay)| *delay).max().unwrap();
        assert!((MS * 98..=MS * 100).contains(&longest), "{longest:?}");
    }

    #[test]
    fn nothing_goes_through_a_link_that_is_cut() {
        let now = Instant::now();
        let mut link = Link::new(LinkSettings::default(), 1);
        assert_eq!(link.send(1, 100, now), Fate::Arrives);
        link.cut(true);
        assert_eq!(link.send(2, 100, now), Fate::Lost);
        link.cut(false);
        assert_eq!(link.send(3, 100, now), Fate::Arrives);
        assert_eq!(link.receive(now), Some(1), "it was on its way");
        assert_eq!(link.receive(now), Some(3));
        assert_eq!(link.receive(now), None);
    }

    #[test]
    fn the_sequence_of_a_seed_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1() {
        let mut random = Random::new(1);
        let numbers: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 20_000.0;
        let square = numbers.iter().map(|number| number * number).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((square - 1.0).abs() < 0.05, "{square}");
    }
}
