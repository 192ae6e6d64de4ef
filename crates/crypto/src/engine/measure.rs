//! What the CPU and an accelerator take for batches on this machine.

use std::time::{Duration, Instant};

use super::Task;
use super::costs::{Costs, Crossover, Sample};
use super::found::{self, Offer};
use super::job::{Direction, JOBS, Piece, Span};
use super::kernel::{EngineAead, EngineCbc};
use super::offload::{Offload, Verdict};
use crate::TAG_LEN;
use crate::kernels::{AeadKernel, CHUNK, CbcKernel, Chain, List, Pair, Place};
use crate::packet_aead::AeadAlgorithm;

/// Associated data of a packet: OpenVPN's opcode, peer-id and number.
const AAD: usize = 8;

/// Bytes in front of a text: associated data, or the initialisation vector.
const FRONT: usize = 16;

/// Who encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The CPU alone, by the back end chosen for it.
    Cpu,
    /// The accelerator alone.
    Engine,
    /// Both, as packets are shared out between them.
    Both,
}

/// What a batch took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From beginning to end, in nanoseconds: the fastest run.
    pub wall: u64,
    /// Of this process on all cores and in the kernel, in nanoseconds: the mean of all runs. Interrupts are not in it.
    pub cpu: u64,
}

/// A key of the longest kind, which protects nothing.
pub(super) fn key() -> [u8; 32] {
    let mut key = [0; 32];
    crate::random(&mut key);
    key
}

/// One task on the CPU, and on the accelerator that does it if there is one, with a key of 256 bits.
pub struct Tuner {
    task: Task,
    cpu: Cpu,
    engine: Option<Engine>,
}

struct Engine {
    offload: Offload,
    /// What shares packets out.
    both: Cpu,
}

/// Code that a kernel's callers would call.
enum Cpu {
    Aead(Pair<dyn AeadKernel>),
    Cbc(Pair<dyn CbcKernel>, Pair<dyn CbcKernel>),
}

impl Cpu {
    fn new(task: Task, key: &[u8; 32]) -> Option<Self> {
        let aead = |algorithm| Some(Self::Aead(Pair::aead_on_cpu(algorithm, key)?));
        match task {
            Task::AesGcm => aead(AeadAlgorithm::Aes256Gcm),
            Task::ChaCha20Poly1305 => aead(AeadAlgorithm::ChaCha20Poly1305),
            Task::AesCbc => {
                let (encrypting, decrypting) = Pair::cbc_on_cpu(key)?;
                Some(Self::Cbc(encrypting, decrypting))
            }
        }
    }

    /// `false` if an AEAD did not take a packet for genuine.
    fn run(&self, direction: Direction, memory: &mut [u8], pieces: &[Piece]) -> bool {
        match self {
            Self::Aead(kernel) => {
                let mut places = List::new();
                for piece in pieces {
                    let mut nonce = [0; 12];
                    nonce.copy_from_slice(&piece.nonce[..12]);
                    places.push(Place {
                        aad: piece.aad.range(),
                        text: piece.text.range(),
                        tag: piece.tag.start,
                        nonce,
                    });
                }
                let kernel = kernel.of(pieces.len());
                match direction {
                    Direction::Encrypt => {
                        kernel.seal(memory, &places);
                        true
                    }
                    Direction::Decrypt => {
                        let mut authentic = [false; CHUNK];
                        let authentic = &mut authentic[..places.len()];
                        kernel.open(memory, &places, authentic);
                        authentic.iter().all(|authentic| *authentic)
                    }
                }
            }
            Self::Cbc(encrypting, decrypting) => {
                let mut chains = List::new();
                for piece in pieces {
                    chains.push(Chain::new(&piece.text.range(), 16));
                }
                match direction {
                    Direction::Encrypt => encrypting.of(pieces.len()).encrypt(memory, &chains),
                    Direction::Decrypt => decrypting.of(pieces.len()).decrypt(memory, &chains),
                }
                true
            }
        }
    }
}

impl Tuner {
    /// Packets are shared out by `crossovers`, for encrypting and decrypting; without, none goes to the accelerator where
    /// both could. `None` if the CPU has no code for the task, which all have.
    #[must_use]
    pub fn new(task: Task, crossovers: Option<[Crossover; 2]>) -> Option<Self> {
        match found::offer(task) {
            Some(offer) => Self::with(offer, crossovers),
            None => Some(Self {
                task,
                cpu: Cpu::new(task, &key())?,
                engine: None,
            }),
        }
    }

    /// `None` if the accelerator is gone, or has no session left.
    pub(super) fn with(offer: &Offer, crossovers: Option<[Crossover; 2]>) -> Option<Self> {
        let key = key();
        let crossovers = crossovers.unwrap_or([Crossover::NEVER; 2]);
        let with = (offer.open(&key)?, offer.name);
        let both = match Cpu::new(offer.task, &key)? {
            Cpu::Aead(pair) => {
                let kernel = EngineAead::new(with, crossovers, pair);
                Cpu::Aead(Pair::only(Box::new(kernel)))
            }
            Cpu::Cbc(encrypting, decrypting) => {
                let kernel = EngineCbc::new(with, crossovers, [encrypting, decrypting]);
                let pair: Pair<dyn CbcKernel> = Pair::only(Box::new(kernel));
                Cpu::Cbc(pair.clone(), pair)
            }
        };
        Some(Self {
            task: offer.task,
            cpu: Cpu::new(offer.task, &key)?,
            engine: Some(Engine {
                offload: offer.open(&key)?,
                both,
            }),
        })
    }

    /// Times batches of `packets` packets of `bytes` bytes until it has taken `enough`, twice at least. `None` if the
    /// accelerator has failed, or cannot do so many or so long packets at once.
    pub fn time(
        &self,
        side: Side,
        direction: Direction,
        packets: usize,
        bytes: usize,
        enough: Duration,
    ) -> Option<Timing> {
        let task = self.task;
        let mut batch = Batch::new(task, packets.min(CHUNK), bytes);
        if direction == Direction::Decrypt {
            self.cpu
                .run(Direction::Encrypt, &mut batch.memory, &batch.pieces);
        }
        let fresh = batch.memory.clone();
        let mut wall = Duration::MAX;
        let (mut total, mut cpu, mut runs) = (Duration::ZERO, Duration::ZERO, 0);
        // The first finds caches cold, and threads asleep.
        for run in 0.. {
            batch.memory.copy_from_slice(&fresh);
            let cpu_from = process_time();
            let from = Instant::now();
            let done = match side {
                Side::Cpu => self.cpu.run(direction, &mut batch.memory, &batch.pieces),
                Side::Engine => self.by_engine(direction, &mut batch),
                Side::Both => {
                    let both = &self.engine.as_ref()?.both;
                    both.run(direction, &mut batch.memory, &batch.pieces)
                }
            };
            let taken = from.elapsed();
            if !done {
                return None;
            }
            if run == 0 {
                continue;
            }
            wall = wall.min(taken);
            total += taken;
            cpu += process_time().saturating_sub(cpu_from);
            runs += 1;
            if runs >= 2 && total >= enough {
                break;
            }
        }
        Some(Timing {
            wall: wall.as_nanos() as u64,
            cpu: cpu.as_nanos() as u64 / runs,
        })
    }

    fn by_engine(&self, direction: Direction, batch: &mut Batch) -> bool {
        let Some(Engine { offload, .. }) = &self.engine else {
            return false;
        };
        let flight = offload.depart(&batch.memory, &batch.pieces, direction);
        let mut verdicts = [Verdict::Undone; JOBS];
        offload.land(&flight, &mut batch.memory, &batch.pieces, &mut verdicts);
        verdicts[..batch.pieces.len()]
            .iter()
            .all(|verdict| *verdict == Verdict::Done)
    }

    /// Whether the accelerator tells a forged packet from the others of a batch, wherever in it a bit is wrong. What has no
    /// tag cannot be told.
    pub(super) fn rejects_forgeries(&self) -> bool {
        let Some(Engine { offload, .. }) = &self.engine else {
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
                // A tag is compared to its end, and not only its first bytes.
                let spoilt = [
                    piece.aad.start,
                    piece.text.start + forged,
                    piece.tag.start,
                    piece.tag.start + TAG_LEN - 1,
                ][forged];
                batch.memory[spoilt] ^= 4;
                let before = batch.memory.clone();
                let (memory, pieces) = (&mut batch.memory, &batch.pieces);
                let flight = offload.depart(memory, pieces, Direction::Decrypt);
                let mut verdicts = [Verdict::Undone; JOBS];
                offload.land(&flight, memory, pieces, &mut verdicts);
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

    /// Whether the accelerator and the CPU come to the same, for texts around the borders of blocks and pages.
    pub(super) fn agrees(&self) -> bool {
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
                        self.by_engine(direction, &mut theirs)
                            && opened
                            && ours.memory == theirs.memory
                    })
            })
    }
}

/// Whether an accelerator computes what it should. What it takes for genuine nobody looks at again, so that it must have
/// been seen to reject what is not.
pub(super) fn is_right(offer: &Offer) -> bool {
    let has_tag = offer.task.tag_len() > 0;
    Tuner::with(offer, None)
        .is_some_and(|tuner| tuner.agrees() && (!has_tag || tuner.rejects_forgeries()))
}

/// Shapes of batches by which costs are told, if there is little time: packets, and bytes of each.
const FEW: [(usize, usize); 4] = [(1, 64), (1, 1408), (32, 64), (32, 1408)];

/// The costs in both directions, from a few batches.
pub(super) fn quickly(offer: &Offer) -> Option<[Crossover; 2]> {
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
            engine: costs(Side::Engine, direction)?,
        })
    };
    Some([both(Direction::Encrypt)?, both(Direction::Decrypt)?])
}

/// Packets of one length, each with its own nonce.
#[derive(Clone)]
struct Batch {
    memory: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Batch {
    fn new(task: Task, packets: usize, bytes: usize) -> Self {
        let stride = FRONT + bytes + TAG_LEN;
        let mut memory = vec![0; stride * packets];
        for (at, byte) in memory.iter_mut().enumerate() {
            *byte = ((at * 31) >> 3) as u8;
        }
        let pieces = (0..packets).map(|number| {
            let text = number * stride + FRONT;
            let mut nonce = [number as u8; 16];
            if task == Task::AesCbc {
                nonce.copy_from_slice(&memory[text - 16..text]);
            }
            Piece {
                aad: match task {
                    Task::AesCbc => Span::default(),
                    _ => Span {
                        start: text - AAD,
                        len: AAD,
                    },
                },
                text: Span {
                    start: text,
                    len: bytes,
                },
                tag: Span {
                    start: text + bytes,
                    len: task.tag_len(),
                },
                nonce,
            }
        });
        let pieces = pieces.collect();
        Self { memory, pieces }
    }
}

/// What the process has used of all CPUs.
fn process_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure lives through the call, which fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
