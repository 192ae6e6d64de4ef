//! Costs of a batch on the CPU and on an accelerator, which decide where packets go.
//!
//! Both costs are nearly linear: a constant for the batch, one for each packet, one for each byte. An accelerator costs
//! much for a batch (threads wake up) and for a packet (a call into the kernel, a transfer), and little for a byte; a
//! CPU is the opposite. The crossover is where the lines cross. While an accelerator works, the CPU can work on the
//! rest of the batch: the batch is split so that both end at the same time.

/// Costs in picoseconds: for a batch, for each packet and for each byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Cost of each batch.
    pub batch: u64,
    /// Cost of each packet.
    pub packet: u64,
    /// Cost of each byte of the packets' texts.
    pub byte: u64,
}

/// A measurement: the time of a batch with this many packets of this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Packets of the batch.
    pub packets: usize,
    /// Bytes of each packet's text.
    pub bytes: usize,
    /// Nanoseconds of the whole batch.
    pub nanoseconds: u64,
}

impl Costs {
    /// Picoseconds for a batch of `packets` packets with `bytes` bytes in total.
    #[must_use]
    pub fn of(&self, packets: usize, bytes: usize) -> u64 {
        let packets = self.packet.saturating_mul(packets as u64);
        let bytes = self.byte.saturating_mul(bytes as u64);
        self.batch.saturating_add(packets).saturating_add(bytes)
    }

    /// Fits lines through samples: least squares of the relative errors, none of the three costs below zero. `None` for
    /// fewer than three samples.
    #[must_use]
    pub fn fit(samples: &[Sample]) -> Option<Self> {
        // The costs to fit: all three, or fewer if the fit with all would put one below zero.
        const CHOICES: [[bool; 3]; 7] = [
            [true, true, true],
            [false, true, true],
            [true, false, true],
            [true, true, false],
            [false, false, true],
            [false, true, false],
            [true, false, false],
        ];
        if samples.len() < 3 {
            return None;
        }
        let error = |[batch, packet, byte]: [f64; 3]| -> f64 {
            let one = |sample: &Sample| {
                let reckoned =
                    batch + sample.packets as f64 * (packet + byte * sample.bytes as f64);
                (reckoned / (sample.nanoseconds.max(1) as f64) - 1.0).powi(2)
            };
            samples.iter().map(one).sum()
        };
        let best = CHOICES
            .iter()
            .filter_map(|&there| least_squares(samples, there))
            .filter(|costs| costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0))
            .min_by(|a, b| error(*a).total_cmp(&error(*b)))?;
        let [batch, packet, byte] = best.map(|nanoseconds| (nanoseconds * 1000.0).round() as u64);
        Some(Self {
            batch,
            packet,
            byte,
        })
    }
}

/// The normal equations, solved by Gaussian elimination. Each sample counts by its relative error, or only the long
/// ones would matter.
fn least_squares(samples: &[Sample], there: [bool; 3]) -> Option<[f64; 3]> {
    let mut rows = [[0.0; 4]; 3];
    for sample in samples {
        let weight = 1.0 / sample.nanoseconds.max(1) as f64;
        let (packets, bytes) = (sample.packets as f64, sample.bytes as f64);
        let terms = [weight, packets * weight, packets * bytes * weight, 1.0];
        for (row, term) in rows.iter_mut().zip(terms) {
            for (cell, other) in row.iter_mut().zip(terms) {
                *cell += term * other;
            }
        }
    }
    for (at, _) in there.iter().enumerate().filter(|(_, there)| !**there) {
        for row in &mut rows {
            row[at] = 0.0;
        }
        rows[at] = [0.0; 4];
        rows[at][at] = 1.0;
    }
    for at in 0..3 {
        let pivot = (at..3).max_by(|&a, &b| rows[a][at].abs().total_cmp(&rows[b][at].abs()))?;
        rows.swap(at, pivot);
        let scale = rows[at][at];
        if scale.abs() < 1e-30 {
            return None;
        }
        rows[at].iter_mut().for_each(|cell| *cell /= scale);
        for other in (0..3).filter(|&other| other != at) {
            let factor = rows[other][at];
            let base = rows[at];
            for (cell, base) in rows[other].iter_mut().zip(base) {
                *cell -= factor * base;
            }
        }
    }
    Some(rows.map(|row| row[3]))
}

/// The costs of both sides for an algorithm in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossover {
    /// The CPU's costs, by the back end chosen for it.
    pub cpu: Costs,
    /// The accelerator's costs, from handing over until everything is back.
    pub accelerator: Costs,
}

impl Crossover {
    /// No packet ever goes to the accelerator.
    pub const NEVER: Self = Self {
        cpu: Costs {
            batch: 0,
            packet: 0,
            byte: 0,
        },
        accelerator: Costs {
            batch: u64::MAX,
            packet: 0,
            byte: 0,
        },
    };

    /// The required gain, as a divisor: splitting must save an eighth, or everything stays on the CPU. A batch may be
    /// slower than reckoned, and splitting has costs that the lines leave out.
    const GAIN: u64 = 8;

    /// How many packets of a batch should go to the accelerator: 0 to `packets`.
    #[must_use]
    pub fn share(&self, packets: usize, bytes: usize) -> usize {
        let alone = self.cpu.of(packets, bytes);
        if packets == 0 || alone <= self.accelerator.batch {
            return 0;
        }
        let mean = bytes / packets;
        let cpu_each = self.cpu.of(1, mean).saturating_sub(self.cpu.batch);
        let accelerator_each = self
            .accelerator
            .of(1, mean)
            .saturating_sub(self.accelerator.batch);
        // Both sides end at the same time: accelerator.batch + k * accelerator_each = cpu.batch + (n - k) * cpu_each.
        let both = (alone - self.accelerator.batch)
            .checked_div(cpu_each.saturating_add(accelerator_each))
            .map_or(packets, |share| share as usize)
            .min(packets);
        let time = |share: usize| {
            let accelerator = if share == 0 {
                0
            } else {
                self.accelerator
                    .batch
                    .saturating_add(accelerator_each.saturating_mul(share as u64))
            };
            let rest = packets - share;
            let cpu = if rest == 0 {
                0
            } else {
                self.cpu
                    .batch
                    .saturating_add(cpu_each.saturating_mul(rest as u64))
            };
            accelerator.max(cpu)
        };
        let share = if time(packets) <= time(both) {
            packets
        } else {
            both
        };
        if time(share).saturating_add(alone / Self::GAIN) <= alone {
            share
        } else {
            0
        }
    }

    /// The length from which packets go to the accelerator, at least in part, in batches of `packets`; `None` if they
    /// stay up to `most` bytes.
    #[must_use]
    pub fn bytes(&self, packets: usize, most: usize) -> Option<usize> {
        let goes = |bytes: usize| self.share(packets, packets * bytes) > 0;
        let (mut low, mut high) = (1, most);
        if !goes(high) {
            return None;
        }
        // If a packet goes, longer ones go too, where the accelerator's byte costs less than the CPU's. Otherwise the
        // answer is one of several lengths from which packets go.
        while low < high {
            let middle = low.midpoint(high);
            if goes(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples(costs: Costs) -> Vec<Sample> {
        let mut samples = Vec::new();
        for packets in [1, 4, 32, 64] {
            for bytes in [16, 256, 1408, 8192] {
                samples.push(Sample {
                    packets,
                    bytes,
                    nanoseconds: costs.of(packets, packets * bytes) / 1000,
                });
            }
        }
        samples
    }

    #[test]
    fn the_figures_of_an_r9000() {
        // AES-256-CBC through openssl speed: the accelerator needs 12.2 us for a block of 16 bytes and 26.8 us for 8192
        // bytes, the CPU 17 ns for each byte.
        let crossover = Crossover {
            cpu: Costs {
                batch: 0,
                packet: 10_000,
                byte: 17_000,
            },
            accelerator: Costs {
                batch: 0,
                packet: 12_200_000,
                byte: 1_800,
            },
        };
        // With the accelerator alone a block would have to have 800 bytes; sharing gains nothing with one block.
        assert_eq!(crossover.share(1, 64), 0);
        assert_eq!(crossover.share(1, 700), 0);
        assert_eq!(crossover.share(1, 1408), 1);
        // In parallel the CPU does its part of a batch: 24 us against 14.7.
        let share = crossover.share(32, 32 * 1408);
        assert!((19..=20).contains(&share), "{share}");
        assert_eq!(crossover.share(32, 32 * 64), 0);
        let bytes = crossover.bytes(1, 65_536).unwrap();
        assert!((850..1100).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_fast_cpu_gets_everything_and_a_slow_one_nothing() {
        let fast = Costs {
            batch: 0,
            packet: 100_000,
            byte: 200,
        };
        let slow = Costs {
            batch: 20_000_000,
            packet: 15_000_000,
            byte: 2_000,
        };
        let crossover = |cpu, accelerator| Crossover { cpu, accelerator };
        assert_eq!(crossover(fast, slow).share(64, 64 * 1408), 0);
        assert_eq!(crossover(fast, slow).bytes(64, 1 << 16), None);
        assert!(crossover(slow, fast).share(64, 64 * 1408) > 60);
        assert_eq!(crossover(fast, slow).share(0, 0), 0);
    }

    #[test]
    fn two_samples_make_no_line() {
        let two = &samples(Costs::default())[..2];
        assert_eq!(Costs::fit(two), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_fit_finds_the_lines_that_made_the_samples(
            batch in 0..100_000_000_u64, packet in 50_000..50_000_000_u64, byte in 100..100_000_u64,
        ) {
            let costs = Costs { batch, packet, byte };
            let found = Costs::fit(&samples(costs)).unwrap();
            for (packets, bytes) in [(1, 64), (32, 32 * 1408), (64, 64 * 1408)] {
                let (a, b) = (costs.of(packets, bytes), found.of(packets, bytes));
                prop_assert!(a.abs_diff(b) <= a / 20 + 20_000, "{costs:?} {found:?}");
            }
        }

        #[test]
        fn a_share_is_never_more_than_there_is_and_never_slower_than_the_cpu(
            cpu: (u32, u32, u16), accelerator: (u32, u32, u16), packets in 0..65_usize, bytes in 0..9000_usize,
        ) {
            let costs = |(batch, packet, byte): (u32, u32, u16)| Costs {
                batch: batch.into(), packet: packet.into(), byte: byte.into(),
            };
            let crossover = Crossover { cpu: costs(cpu), accelerator: costs(accelerator) };
            let share = crossover.share(packets, packets * bytes);
            prop_assert!(share <= packets);
            if share > 0 {
                let alone = crossover.cpu.of(packets, packets * bytes);
                prop_assert!(crossover.accelerator.of(share, share * bytes) < alone);
            }
        }
    }
}
