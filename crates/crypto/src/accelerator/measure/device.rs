//! Measures the accelerator's side, and checks its results.

use std::time::Duration;

use super::{Batch, Cpu, Side, Tuner, key};
use crate::TAG_LEN;
use crate::accelerator::ciphers::{AcceleratorAead, AcceleratorCbc, Route};
use crate::accelerator::costs::{Costs, Crossover, Sample};
use crate::accelerator::found::Offer;
use crate::accelerator::job::JOBS;
use crate::accelerator::offload::{Offload, Verdict};
use crate::accelerator::task::Direction;
use crate::accelerator::task::Task;
use crate::implementations::{CbcImplementation, Pair};

/// An accelerator with a key.
pub(super) struct Keyed {
    offload: Offload,
    /// The code that shares packets between accelerator and CPU.
    both: Cpu,
}

impl Tuner {
    /// Opens a session; `None` if the accelerator is gone, or has no session left.
    pub(in crate::accelerator) fn with(
        offer: &Offer,
        crossovers: Option<[Crossover; 2]>,
    ) -> Option<Self> {
        let key = key();
        let crossovers = crossovers.unwrap_or([Crossover::NEVER; 2]);
        let route = Route::new(offer, &key, crossovers)?;
        let both = match Cpu::new(offer.task, &key)? {
            Cpu::Aead(pair) => {
                let cipher = AcceleratorAead { route, cpu: pair };
                Cpu::Aead(Pair::only(Box::new(cipher)))
            }
            Cpu::Cbc(encrypting, decrypting) => {
                let cpu = [encrypting, decrypting];
                let cipher = AcceleratorCbc { route, cpu };
                let pair: Pair<dyn CbcImplementation> = Pair::only(Box::new(cipher));
                Cpu::Cbc(pair.clone(), pair)
            }
        };
        Some(Self {
            task: offer.task,
            cpu: Cpu::new(offer.task, &key)?,
            accelerator: Some(Keyed {
                offload: offer.open(&key)?,
                both,
            }),
        })
    }

    /// Runs a batch on the accelerator; `false` if there is none, or it has failed.
    pub(super) fn by_accelerator(&self, direction: Direction, batch: &mut Batch) -> bool {
        let Some(Keyed { offload, .. }) = &self.accelerator else {
            return false;
        };
        let submission = offload.submit(&batch.memory, &batch.pieces, direction);
        let mut verdicts = [Verdict::Undone; JOBS];
        offload.collect(&submission, &mut batch.memory, &batch.pieces, &mut verdicts);
        verdicts[..batch.pieces.len()]
            .iter()
            .all(|verdict| *verdict == Verdict::Done)
    }

    /// Whether the accelerator detects a forged packet in a batch, wherever in it a bit is wrong. A task without tags
    /// has nothing to detect.
    pub(in crate::accelerator) fn rejects_forgeries(&self) -> bool {
        let Some(Keyed { offload, .. }) = &self.accelerator else {
            return false;
        };
        let task = self.task;
        [16, 64, 1408].into_iter().all(|bytes| {
            let mut batch = Batch::new(task, 8, bytes);
            let sealed = self
                .cpu
                .run(Direction::Encrypt, &mut batch.memory, &batch.pieces);
            for forged in 0..4 {
                let mut batch = batch.clone();
                let piece = batch.pieces[forged];
                // Includes the last byte of the tag: the accelerator must compare it to the end.
                let spoilt = [
                    piece.aad.start,
                    piece.text.start + forged,
                    piece.tag.start,
                    piece.tag.start + TAG_LEN - 1,
                ][forged];
                batch.memory[spoilt] ^= 4;
                let before = batch.memory.clone();
                let (memory, pieces) = (&mut batch.memory, &batch.pieces);
                let submission = offload.submit(memory, pieces, Direction::Decrypt);
                let mut verdicts = [Verdict::Undone; JOBS];
                offload.collect(&submission, memory, pieces, &mut verdicts);
                let told = (0..8).all(|index| {
                    let expected = match index == forged {
                        true => Verdict::Forged,
                        false => Verdict::Done,
                    };
                    verdicts[index] == expected
                });
                let range = piece.text.range();
                if !told || memory[range.clone()] != before[range] {
                    return false;
                }
            }
            sealed
        })
    }

    /// Whether the accelerator and the CPU produce equal results, for texts around the borders of blocks and pages.
    pub(in crate::accelerator) fn agrees(&self) -> bool {
        let task = self.task;
        [16, 17, 64, 1000, 1408, 4096, 9000]
            .into_iter()
            .all(|bytes| {
                let bytes = match task {
                    Task::AesCbc => bytes / 16 * 16,
                    _ => bytes,
                };
                let mut theirs = Batch::new(task, 5, bytes);
                let mut ours = theirs.clone();
                [Direction::Encrypt, Direction::Decrypt]
                    .into_iter()
                    .all(|direction| {
                        let opened = self.cpu.run(direction, &mut ours.memory, &ours.pieces);
                        self.by_accelerator(direction, &mut theirs)
                            && opened
                            && ours.memory == theirs.memory
                    })
            })
    }

    /// Runs a batch on both, with packets shared between them. `false` if there is no accelerator, or a packet was
    /// found not genuine.
    pub(super) fn by_both(&self, direction: Direction, batch: &mut Batch) -> bool {
        self.accelerator
            .as_ref()
            .is_some_and(|Keyed { both, .. }| both.run(direction, &mut batch.memory, &batch.pieces))
    }
}

/// Whether an accelerator computes correctly. Its verdict that a packet is genuine is never checked again, so it must
/// have been seen to reject forged packets.
pub(in crate::accelerator) fn is_right(offer: &Offer) -> bool {
    let has_tag = offer.task.tag_len() > 0;
    Tuner::with(offer, None)
        .is_some_and(|tuner| tuner.agrees() && (!has_tag || tuner.rejects_forgeries()))
}

/// Shapes of batches for a quick measurement of costs: packets, and bytes of each.
const FEW: [(usize, usize); 4] = [(1, 64), (1, 1408), (32, 64), (32, 1408)];

/// The costs in both directions, from a few batches.
pub(in crate::accelerator) fn quickly(offer: &Offer) -> Option<[Crossover; 2]> {
    let tuner = Tuner::with(offer, None)?;
    let enough = Duration::from_micros(200);
    let costs = |side, direction| {
        let mut samples = Vec::new();
        for (packets, bytes) in FEW {
            let timing = tuner.time(side, direction, packets, bytes, enough)?;
            samples.push(Sample {
                packets,
                bytes,
                nanoseconds: timing.wall,
            });
        }
        Costs::fit(&samples)
    };
    let both = |direction| {
        Some(Crossover {
            cpu: costs(Side::Cpu, direction)?,
            accelerator: costs(Side::Accelerator, direction)?,
        })
    };
    Some([both(Direction::Encrypt)?, both(Direction::Decrypt)?])
}
