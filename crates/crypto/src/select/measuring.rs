//! The measurement behind a choice.

use core::ops::Range;
use core::time::Duration;
use std::time::Instant;

use super::{Algorithm, Picked};
use crate::TAG_LEN;
use crate::kernels::{
    AEADS, AeadKernel, CBCS, CbcKernel, Chain, MACS, Mac, MacKernel, MacKey, Place,
};
use crate::openvpn::Digest;
use crate::packet_aead::AeadAlgorithm;

/// A batch: packets, and bytes of each. The first two stand for what tunnels carry, data and acknowledgements; the others
/// are few packets. A quarter of a whole packet tells candidates apart as well as a whole one, in a quarter of the time,
/// of which a router's core would need milliseconds.
const SHAPES: [(usize, usize); 5] = [(32, 352), (32, 64), (1, 1408), (3, 352), (1, 64)];

/// The first shapes are batches.
const BATCHES: usize = 2;

/// A shape is measured until it has taken so long, of which the fastest run counts. A run that alone takes longer is not
/// repeated: what disturbs it, or finds caches cold, is little beside it.
const ENOUGH: Duration = Duration::from_micros(60);

/// A candidate that takes so many times as long as another for small packets is not tried with large ones. Portable code
/// beside the CPU's own instructions is, and would take as long as all others together.
const HOPELESS: u32 = 4;

/// What takes so many times as long as another is as fast.
const SAME: f32 = 1.1;

/// Room for a packet with whatever stands around it.
const STRIDE: usize = 16 + 4 + 1408 + TAG_LEN;

/// The fastest of the candidates, for batches and for few packets.
///
/// A batch's times are added as they are, so that what saves a tenth of the time for large packets may cost a third more for
/// small ones. Those are few where throughput matters.
pub(super) fn fastest(algorithm: Algorithm, among: &[usize]) -> Picked {
    let kernels: Vec<_> = among
        .iter()
        .filter_map(|&index| Some((index, Kernel::new(algorithm, index)?)))
        .collect();
    let mut memory = vec![0x5a; STRIDE * SHAPES[0].0];
    let mut times = vec![[Duration::MAX; SHAPES.len()]; kernels.len()];
    // The largest batch last, when it is known who has a chance.
    for shape in (0..SHAPES.len()).rev() {
        let hopeless = times.iter().map(|times| times[1]).min();
        let hopeless = hopeless.map_or(Duration::MAX, |best| best.saturating_mul(HOPELESS));
        for ((_, kernel), times) in kernels.iter().zip(&mut times) {
            if shape != 0 || times[1] <= hopeless {
                times[shape] = time(kernel, &mut memory, SHAPES[shape]);
            }
        }
    }
    let total = |at: usize, shapes: Range<usize>| {
        times[at][shapes]
            .iter()
            .fold(Duration::ZERO, |sum, time| sum.saturating_add(*time))
    };
    let best = |shapes: Range<usize>| {
        (0..kernels.len())
            .min_by_key(|&at| total(at, shapes.clone()))
            .unwrap_or(0)
    };
    let many = best(0..BATCHES);
    let few = best(BATCHES..SHAPES.len());
    // One kernel for both, unless two are worth their keys.
    let few_of = |at| total(at, BATCHES..SHAPES.len());
    let few = match few_of(many) <= few_of(few).mul_f32(SAME) {
        true => many,
        false => few,
    };
    let index = |at: usize| kernels.get(at).map_or(0, |(index, _)| *index);
    Picked {
        many: index(many),
        few: index(few),
    }
}

/// The fastest of some runs.
fn time(kernel: &Kernel, memory: &mut [u8], (packets, len): (usize, usize)) -> Duration {
    let mut best = Duration::MAX;
    let mut total = Duration::ZERO;
    while total < ENOUGH {
        let from = Instant::now();
        kernel.run(memory, packets, len);
        let taken = from.elapsed();
        best = best.min(taken);
        // Whatever the clock is like, it goes on.
        total += taken.max(Duration::from_nanos(1));
    }
    best
}

/// A candidate with a key of zeros.
enum Kernel {
    Aead(Box<dyn AeadKernel>),
    Encrypt(Box<dyn CbcKernel>),
    Decrypt(Box<dyn CbcKernel>),
    Mac(Box<dyn MacKernel>),
}

impl Kernel {
    fn new(algorithm: Algorithm, index: usize) -> Option<Self> {
        let key = [0; 32];
        let aead = |algorithm| (AEADS[index].make)(algorithm, &key).map(Self::Aead);
        let mac = |digest| (MACS[index].make)(&MacKey::new(digest, &key)?).map(Self::Mac);
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

    /// Sealing alone: what it takes to open is nearly the same, but that tags are compared.
    fn run(&self, memory: &mut [u8], packets: usize, len: usize) {
        let text = |number: usize| {
            let start = number * STRIDE + 20;
            start..start + len
        };
        let mut places = crate::kernels::List::new();
        let mut chains = crate::kernels::List::new();
        let mut messages = crate::kernels::List::new();
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
            Self::Aead(kernel) => kernel.seal(memory, &places),
            Self::Encrypt(kernel) => kernel.encrypt(memory, &chains),
            Self::Decrypt(kernel) => kernel.decrypt(memory, &chains),
            Self::Mac(kernel) => {
                let mut macs = [Mac::EMPTY; crate::kernels::CHUNK];
                kernel.sign_each(memory, &messages, &mut macs[..packets]);
            }
        }
    }
}
