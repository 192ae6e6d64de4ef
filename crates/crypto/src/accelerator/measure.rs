//! Measures how long the CPU and an accelerator take for batches on this machine.

#[cfg(feature = "accelerators")]
mod device;

use std::time::{Duration, Instant};

use super::costs::Crossover;
use super::task::Task;
use crate::TAG_LEN;
use crate::accelerator::task::{Direction, Piece, Span};
use crate::implementations::{
    AeadImplementation, CHUNK, CbcImplementation, Chain, List, Pair, Place,
};
use crate::packet_aead::AeadAlgorithm;
#[cfg(feature = "accelerators")]
use device::Keyed;
#[cfg(feature = "accelerators")]
pub(super) use device::{is_right, quickly};

/// Associated data of a packet: OpenVPN's opcode, peer-id and number.
const AAD: usize = 8;

/// Bytes in front of a text: associated data, or the initialisation vector.
const FRONT: usize = 16;

/// The side that encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Only the CPU, by the back end chosen for it.
    Cpu,
    /// Only the accelerator.
    Accelerator,
    /// CPU and accelerator, with packets shared between them.
    Both,
}

/// The time of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Wall time from beginning to end, in nanoseconds: the fastest run.
    pub wall: u64,
    /// CPU time of this process on all cores and in the kernel, in nanoseconds: the mean of all runs, without
    /// interrupts.
    pub cpu: u64,
}

/// A key of the longest kind, which protects nothing.
pub(super) fn key() -> [u8; 32] {
    let mut key = [0; 32];
    crate::random(&mut key);
    key
}

/// One task on the CPU, and on its accelerator if there is one, with a key of 256 bits.
pub struct Tuner {
    task: Task,
    cpu: Cpu,
    #[cfg(feature = "accelerators")]
    accelerator: Option<Keyed>,
}

/// The CPU's code, as the callers of an implementation use it.
enum Cpu {
    Aead(Pair<dyn AeadImplementation>),
    Cbc(Pair<dyn CbcImplementation>, Pair<dyn CbcImplementation>),
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

    /// Runs a batch; `false` if an AEAD found a packet not genuine.
    fn run(&self, direction: Direction, memory: &mut [u8], pieces: &[Piece]) -> bool {
        match self {
            Self::Aead(implementation) => {
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
                let implementation = implementation.of(pieces.len());
                match direction {
                    Direction::Encrypt => {
                        implementation.seal(memory, &places);
                        true
                    }
                    Direction::Decrypt => {
                        let mut authentic = [false; CHUNK];
                        let authentic = &mut authentic[..places.len()];
                        implementation.open(memory, &places, authentic);
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
    /// Makes a tuner that shares packets by `crossovers`, for encrypting and decrypting; without, all packets stay on
    /// the CPU when both could work. `None` if the CPU has no code for the task, which never happens.
    #[must_use]
    pub fn new(task: Task, crossovers: Option<[Crossover; 2]>) -> Option<Self> {
        #[cfg(feature = "accelerators")]
        if let Some(offer) = super::found::offer(task) {
            return Self::with(offer, crossovers);
        }
        let _ = crossovers;
        Some(Self {
            task,
            cpu: Cpu::new(task, &key())?,
            #[cfg(feature = "accelerators")]
            accelerator: None,
        })
    }

    /// Times batches of `packets` packets of `bytes` bytes for the time `enough`, and at least twice. `None` if the
    /// accelerator has failed, or cannot take so many or so long packets at once.
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
        // The first run finds caches cold, and threads asleep.
        for run in 0.. {
            batch.memory.copy_from_slice(&fresh);
            let cpu_from = process_time();
            let from = Instant::now();
            let done = match side {
                Side::Cpu => self.cpu.run(direction, &mut batch.memory, &batch.pieces),
                #[cfg(feature = "accelerators")]
                Side::Accelerator => self.by_accelerator(direction, &mut batch),
                #[cfg(feature = "accelerators")]
                Side::Both => self.by_both(direction, &mut batch),
                #[cfg(not(feature = "accelerators"))]
                Side::Accelerator | Side::Both => false,
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

/// The time that the process has used of all CPUs.
fn process_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure lives through the call, which fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
