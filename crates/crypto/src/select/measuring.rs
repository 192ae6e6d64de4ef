//! The measurement behind a choice.

use core::ops::Range;
use core::time::Duration;
use std::time::Instant;

use crate::algorithm::Algorithm;
use crate::implementations::{
    AEADS, AeadImplementation, Backend, CBCS, CbcImplementation, Chain, Hmac, MACS, Mac,
    MacImplementation, Place,
};
use crate::packet_aead::AeadAlgorithm;
use crate::{Digest, TAG_LEN};

/// The measured time of a candidate: processor time of the fastest of some runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Name of the measured candidate.
    pub name: &'static str,
    /// Back end of the measured candidate.
    pub backend: Backend,
    /// Time for each packet of a batch; `None` if the candidate was far behind already with small packets.
    pub batch: Option<Duration>,
    /// Bytes of each packet in the batch.
    pub batch_len: usize,
    /// Time for a single packet.
    pub alone: Option<Duration>,
    /// Bytes of the single packet.
    pub alone_len: usize,
}

/// Candidates by their index in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) many: usize,
    pub(crate) few: usize,
}

impl Picked {
    /// The first candidate for everything.
    pub(crate) const FIRST: Self = Self { many: 0, few: 0 };

    pub(super) const fn packed(self) -> u32 {
        1 + (self.many << 8 | self.few) as u32
    }

    pub(super) const fn unpacked(bits: u32) -> Self {
        let bits = bits as usize - 1;
        Self {
            many: bits >> 8,
            few: bits & 0xff,
        }
    }
}

/// Batches: packets, and bytes of each. The first two stand for a tunnel's usual traffic, data and acknowledgements;
/// the others are few packets. A quarter of a full packet tells candidates apart as well as a full one, in a quarter of
/// the time; a router's core would need milliseconds for full ones.
const SHAPES: [(usize, usize); 5] = [(32, 352), (32, 64), (1, 1408), (3, 352), (1, 64)];

/// The number of shapes, from the first, that are batches.
const BATCHES: usize = 2;

/// A shape is measured for this long, and at least [`SAMPLES`] times; the fastest run counts.
const ENOUGH: Duration = Duration::from_micros(60);

/// Minimum runs of each shape, however long one takes: the first may find caches cold.
const SAMPLES: u32 = 3;

/// Portable code is not expected to beat code for the vector registers of the same CPU. It is chosen only if that takes
/// more than this many times as long, in two measurements: a disturbed measurement is likelier.
const FAR: f64 = 1.5;

/// A candidate that takes so many times as long as another for small packets is not tried with large ones. An example
/// is portable code beside the CPU's own instructions, which would take as long as all others together.
const HOPELESS: u32 = 4;

/// Portable code that takes so many times as long as other code of the same CPU for few packets is tried with no more.
/// Several packets at a time make it at most twice as fast. Beside AES instructions it would take as long as all else
/// together.
const BEHIND: u32 = 8;

/// A candidate that takes at most so many times as long as another counts as equally fast.
const SAME: f64 = 1.1;

/// Room for a packet and everything around it.
const STRIDE: usize = 16 + 4 + 1408 + TAG_LEN;

/// The fastest of the candidates, for batches and for few packets, and what each took.
///
/// The times of the batches are simply added. So code that saves a tenth of the time for large packets may cost a third
/// more for small ones, which are few where throughput matters.
pub(super) fn fastest(algorithm: Algorithm, among: &[Among]) -> (Picked, Vec<Measured>) {
    let implementation = |of: &Among| {
        Some(Tried {
            of: of.clone(),
            implementation: Implementation::new(algorithm, of.index)?,
            times: [Duration::MAX; SHAPES.len()],
        })
    };
    let mut tried: Vec<_> = among.iter().filter_map(implementation).collect();
    let mut memory = vec![0x5a; STRIDE * SHAPES[0].0];
    measure(&mut tried, &mut memory);
    let is_doubtful = |shapes| {
        best(&tried, shapes).is_some_and(|of| of.of.backend == Backend::Portable)
            && tried.iter().any(|of| of.of.backend == Backend::Simd)
    };
    if is_doubtful(0..BATCHES) || is_doubtful(BATCHES..SHAPES.len()) {
        measure(&mut tried, &mut memory);
    }
    (picked(&tried), tried.iter().map(Tried::measured).collect())
}

/// A candidate that this machine has: its place in the table, its kind and its name.
#[derive(Clone)]
pub(super) struct Among {
    pub(super) index: usize,
    pub(super) backend: Backend,
    pub(super) name: &'static str,
}

impl Among {
    /// The `candidates` that are present.
    pub(super) fn present(candidates: &[(Backend, &'static str, bool)]) -> Vec<Self> {
        let all = candidates.iter().enumerate();
        all.filter(|&(_, &(.., present))| present)
            .map(|(index, &(backend, name, _))| Self {
                index,
                backend,
                name,
            })
            .collect()
    }
}

/// A candidate, and its shortest time for each shape; the maximum duration for an untried shape.
struct Tried {
    of: Among,
    implementation: Implementation,
    times: [Duration; SHAPES.len()],
}

impl Tried {
    // Rare, and needed in many places.
    #[inline(never)]
    fn total(&self, shapes: Range<usize>) -> Duration {
        let times = self.times[shapes].iter();
        times.fold(Duration::ZERO, |sum, time| sum.saturating_add(*time))
    }

    fn measured(&self) -> Measured {
        let (packets, batch_len) = SHAPES[0];
        let (_, alone_len) = SHAPES[BATCHES];
        let known = |time: Duration| (time != Duration::MAX).then_some(time);
        Measured {
            name: self.of.name,
            backend: self.of.backend,
            batch: known(self.times[0]).map(|time| time / packets as u32),
            batch_len,
            alone: known(self.times[BATCHES]),
            alone_len,
        }
    }
}

/// Measures every candidate with every shape; an earlier time stays if it was shorter.
fn measure(tried: &mut [Tried], memory: &mut [u8]) {
    // The largest batch comes last, when it is known which candidates have a chance.
    for shape in (0..SHAPES.len()).rev() {
        // The first shape has no times yet, and so no bound.
        let bound = |times: u32, shape: usize| {
            let all = tried.iter().filter_map(|of| of.times.get(shape));
            all.min()
                .map_or(Duration::MAX, |least| least.saturating_mul(times))
        };
        let (hopeless, behind) = (bound(HOPELESS, 1), bound(BEHIND, shape + 1));
        for of in &mut *tried {
            let is_behind = of.times.get(shape + 1).is_some_and(|time| *time > behind);
            let is_out = (is_behind && of.of.backend == Backend::Portable)
                || (shape == 0 && of.times[1] > hopeless);
            if !is_out {
                let taken = time(&of.implementation, memory, SHAPES[shape]);
                of.times[shape] = of.times[shape].min(taken);
            }
        }
    }
}

/// The fastest candidate for these shapes, whatever was expected.
#[inline(never)]
fn best(tried: &[Tried], shapes: Range<usize>) -> Option<&Tried> {
    tried.iter().min_by_key(|of| of.total(shapes.clone()))
}

/// The fastest candidate for these shapes, or the expected one if it is not far behind.
fn chosen(tried: &[Tried], shapes: Range<usize>) -> Option<&Tried> {
    let best = best(tried, shapes.clone())?;
    let expected = tried.iter().filter(|of| of.of.backend == Backend::Simd);
    let expected = expected.min_by_key(|of| of.total(shapes.clone()));
    let near = |of: &&Tried| {
        let (least, total) = (best.total(shapes.clone()), of.total(shapes.clone()));
        total.as_secs_f64() <= least.as_secs_f64() * FAR
    };
    match best.of.backend {
        Backend::Portable => Some(expected.filter(near).unwrap_or(best)),
        _ => Some(best),
    }
}

fn picked(tried: &[Tried]) -> Picked {
    const FEW: Range<usize> = BATCHES..SHAPES.len();
    let (Some(many), Some(few)) = (chosen(tried, 0..BATCHES), chosen(tried, FEW)) else {
        return Picked::FIRST;
    };
    // One implementation serves both, unless a second one is worth the cost of another key.
    let same = many.total(FEW).as_secs_f64() <= few.total(FEW).as_secs_f64() * SAME;
    Picked {
        many: many.of.index,
        few: if same { many.of.index } else { few.of.index },
    }
}

/// The fastest of some runs.
fn time(
    implementation: &Implementation,
    memory: &mut [u8],
    (packets, len): (usize, usize),
) -> Duration {
    let mut best = Duration::MAX;
    let mut total = Duration::ZERO;
    let mut samples = 0;
    while total < ENOUGH || samples < SAMPLES {
        let (from, cpu_from) = (Instant::now(), cpu_time());
        implementation.run(memory, packets, len);
        let (wall, cpu) = (from.elapsed(), cpu_time().saturating_sub(cpu_from));
        // The processor's time leaves out other threads. A kernel with a coarse clock for it reports zero.
        let taken = if cpu.is_zero() { wall } else { cpu.min(wall) };
        best = best.min(taken);
        // Adds at least a nanosecond, so that the measurement ends however coarse the clocks are.
        total += taken.max(Duration::from_nanos(1));
        samples += 1;
    }
    best
}

/// Processor time of this thread so far.
fn cpu_time() -> Duration {
    // SAFETY: zeros are valid for plain integers, and the call fills them or leaves them.
    let now = unsafe {
        let mut now: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now);
        now
    };
    // Neither field is negative, and the second is below 10^9.
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A candidate with a key of zeros.
enum Implementation {
    Aead(Box<dyn AeadImplementation>),
    Encrypt(Box<dyn CbcImplementation>),
    Decrypt(Box<dyn CbcImplementation>),
    Mac(Box<dyn MacImplementation>),
}

impl Implementation {
    fn new(algorithm: Algorithm, index: usize) -> Option<Self> {
        let key = [0; 32];
        let aead = |algorithm| (AEADS[index].make)(algorithm, &key).map(Self::Aead);
        let mac = |digest| (MACS[index].make)(&Hmac::new(digest, &key)?).map(Self::Mac);
        match algorithm {
            Algorithm::AesGcm => aead(AeadAlgorithm::Aes256Gcm),
            Algorithm::ChaCha20Poly1305 => aead(AeadAlgorithm::ChaCha20Poly1305),
            Algorithm::AesCbcEncrypt => (CBCS[index].make)(&key).map(Self::Encrypt),
            Algorithm::AesCbcDecrypt => (CBCS[index].make)(&key).map(Self::Decrypt),
            Algorithm::HmacSha1 => mac(Digest::Sha1),
            Algorithm::HmacSha256 => mac(Digest::Sha256),
            Algorithm::HmacSha512 => mac(Digest::Sha512),
        }
    }

    /// Measures sealing only: opening takes nearly the same time, plus the comparison of tags.
    fn run(&self, memory: &mut [u8], packets: usize, len: usize) {
        let text = |number: usize| {
            let start = number * STRIDE + 20;
            start..start + len
        };
        let mut places = crate::implementations::List::new();
        let mut chains = crate::implementations::List::new();
        let mut messages = crate::implementations::List::new();
        for number in 0..packets {
            let text = text(number);
            match self {
                Self::Aead(_) => places.push(Place {
                    aad: text.start - 4..text.start,
                    tag: text.end,
                    text,
                    nonce: [number as u8; 12],
                }),
                Self::Encrypt(_) | Self::Decrypt(_) => chains.push(Chain::new(&text, 16)),
                Self::Mac(_) => messages.push(text),
            }
        }
        match self {
            Self::Aead(implementation) => implementation.seal(memory, &places),
            Self::Encrypt(implementation) => implementation.encrypt(memory, &chains),
            Self::Decrypt(implementation) => implementation.decrypt(memory, &chains),
            Self::Mac(implementation) => {
                let mut macs = [Mac::EMPTY; crate::implementations::CHUNK];
                implementation.sign_each(memory, &messages, &mut macs[..packets]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
