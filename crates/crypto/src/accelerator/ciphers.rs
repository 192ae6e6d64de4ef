//! Ciphers that give a part of each batch to an accelerator and the rest to the CPU.
//!
//! The number of packets that go is [reckoned](Crossover::share) for each batch. The longest go, because an accelerator
//! takes little more time for a long packet. While it works on copies, the CPU works on the rest in place. Afterwards
//! the CPU does all packets that the accelerator did not do, for whatever reason.

use core::ops::Range;

use super::costs::Crossover;
use super::job::JOBS;
use super::offload::{Offload, Verdict};
use super::{Task, found};
use crate::TAG_LEN;
use crate::accelerator::{Direction, Piece, Span};
use crate::implementations::{
    AeadImplementation, CHUNK, CbcImplementation, Chain, List, Pair, Place,
};
use crate::packet_aead::AeadAlgorithm;

const _: () = assert!(JOBS >= CHUNK);

/// Maximum text for the accelerator: the sockets of AF_ALG hold a limited number of bytes.
const MAX_TEXT: usize = 16 << 10;

/// Which packets of a chunk go to the accelerator: all that are longer than `from`, and `ties` packets of that length.
struct Split {
    /// The length of the shortest packet that goes.
    from: usize,
    /// How many packets of that length still go.
    ties: usize,
}

impl Split {
    fn new(crossover: &Crossover, lens: impl Iterator<Item = usize> + Clone) -> Option<Self> {
        let candidates = lens.filter(|len| (1..=MAX_TEXT).contains(len));
        let mut sorted = [0_u16; CHUNK];
        let (mut packets, mut bytes) = (0, 0);
        for len in candidates {
            // The length is at most 16 Ki, so the cast is lossless.
            sorted[packets] = len as u16;
            packets += 1;
            bytes += len;
        }
        let most = crossover.share(packets, bytes);
        let sorted = &mut sorted[..packets];
        let at = packets.checked_sub(most).filter(|at| *at < packets)?;
        let (_, &mut from, longest) = sorted.select_nth_unstable(at);
        let ties = 1 + longest.iter().filter(|len| **len == from).count();
        Some(Self {
            from: usize::from(from),
            ties,
        })
    }

    /// Whether the next packet, of `len` bytes, goes to the accelerator.
    fn takes(&mut self, len: usize) -> bool {
        if len == self.from && self.ties > 0 {
            self.ties -= 1;
            return true;
        }
        len > self.from && len <= MAX_TEXT
    }
}

/// Makes an AEAD, if an accelerator supports it and has a session left.
pub(crate) fn aead(algorithm: AeadAlgorithm, key: &[u8]) -> Option<AcceleratorAead> {
    let offer = found::offer(Task::of(algorithm.family())?)?;
    let crossovers = offer.crossovers()?;
    let cpu = Pair::aead_on_cpu(algorithm, key)?;
    Some(AcceleratorAead::new(
        (offer.open(key)?, offer.name),
        crossovers,
        cpu,
    ))
}

/// Makes AES-CBC, under the same conditions.
pub(crate) fn cbc(key: &[u8]) -> Option<AcceleratorCbc> {
    let offer = found::offer(Task::AesCbc)?;
    let crossovers = offer.crossovers()?;
    let (encrypting, decrypting) = Pair::cbc_on_cpu(key)?;
    Some(AcceleratorCbc::new(
        (offer.open(key)?, offer.name),
        crossovers,
        [encrypting, decrypting],
    ))
}

/// An AEAD shared between an accelerator and the CPU.
pub(crate) struct AcceleratorAead {
    offload: Offload,
    name: &'static str,
    sealing: Crossover,
    opening: Crossover,
    cpu: Pair<dyn AeadImplementation>,
}

impl AcceleratorAead {
    pub(crate) fn new(
        (offload, name): (Offload, &'static str),
        [sealing, opening]: [Crossover; 2],
        cpu: Pair<dyn AeadImplementation>,
    ) -> Self {
        Self {
            offload,
            name,
            sealing,
            opening,
            cpu,
        }
    }

    /// Divides the packets into those that go and those that stay; `None` if all stay.
    fn split(&self, crossover: &Crossover, places: &[Place]) -> Option<Parts<Place>> {
        if !self.offload.is_alive() {
            return None;
        }
        let lens = places.iter().map(|place| place.text.len());
        let mut split = Split::new(crossover, lens)?;
        let mut parts = Parts::new();
        for (index, place) in places.iter().enumerate() {
            if split.takes(place.text.len()) {
                let mut nonce = [0; 16];
                nonce[..12].copy_from_slice(&place.nonce);
                parts.go.push(Piece {
                    aad: Span::from(&place.aad),
                    text: Span::from(&place.text),
                    tag: Span {
                        start: place.tag,
                        len: TAG_LEN,
                    },
                    nonce,
                });
                parts.gone.push(index);
            } else {
                parts.stay.push(place.clone());
                parts.stayed.push(index);
            }
        }
        Some(parts)
    }
}

/// A chunk in two parts, with each packet's index in the chunk.
struct Parts<T> {
    go: List<Piece>,
    gone: List<usize>,
    stay: List<T>,
    stayed: List<usize>,
}

impl<T> Parts<T> {
    fn new() -> Self {
        Self {
            go: List::new(),
            gone: List::new(),
            stay: List::new(),
            stayed: List::new(),
        }
    }
}

impl AeadImplementation for AcceleratorAead {
    fn seal(&self, memory: &mut [u8], places: &[Place]) {
        let Some(parts) = self.split(&self.sealing, places) else {
            return self.cpu.of(places.len()).seal(memory, places);
        };
        let submission = self.offload.submit(memory, &parts.go, Direction::Encrypt);
        if !parts.stay.is_empty() {
            self.cpu.of(parts.stay.len()).seal(memory, &parts.stay);
        }
        let mut verdicts = [Verdict::Undone; JOBS];
        self.offload
            .collect(&submission, memory, &parts.go, &mut verdicts);
        let mut undone = List::new();
        for (&index, verdict) in parts.gone.iter().zip(verdicts) {
            if verdict != Verdict::Done {
                undone.push(places[index].clone());
            }
        }
        if !undone.is_empty() {
            self.cpu.of(undone.len()).seal(memory, &undone);
        }
    }

    fn open(&self, memory: &mut [u8], places: &[Place], authentic: &mut [bool]) {
        let Some(parts) = self.split(&self.opening, places) else {
            return self.cpu.of(places.len()).open(memory, places, authentic);
        };
        let submission = self.offload.submit(memory, &parts.go, Direction::Decrypt);
        let mut genuine = [false; CHUNK];
        if !parts.stay.is_empty() {
            let genuine = &mut genuine[..parts.stay.len()];
            self.cpu
                .of(parts.stay.len())
                .open(memory, &parts.stay, genuine);
            for (&index, genuine) in parts.stayed.iter().zip(genuine) {
                authentic[index] = *genuine;
            }
        }
        let mut verdicts = [Verdict::Undone; JOBS];
        self.offload
            .collect(&submission, memory, &parts.go, &mut verdicts);
        let (mut undone, mut which) = (List::new(), List::new());
        for (&index, verdict) in parts.gone.iter().zip(verdicts) {
            authentic[index] = verdict == Verdict::Done;
            if verdict != Verdict::Done {
                undone.push(places[index].clone());
                which.push((index, verdict));
            }
        }
        if undone.is_empty() {
            return;
        }
        let genuine = &mut genuine[..undone.len()];
        genuine.fill(false);
        self.cpu.of(undone.len()).open(memory, &undone, genuine);
        for (&(index, verdict), genuine) in which.iter().zip(genuine) {
            authentic[index] = *genuine;
            // A packet that the CPU rejects too was forged, so a forger costs no more than without an accelerator.
            if verdict == Verdict::Forged && *genuine {
                self.offload
                    .give_up(format_args!("it rejected a genuine packet"));
            }
        }
    }

    fn describe(&self) -> &'static str {
        if self.offload.is_alive() {
            self.name
        } else {
            self.cpu.many().describe()
        }
    }
}

/// AES in CBC mode, shared between an accelerator and the CPU.
pub(crate) struct AcceleratorCbc {
    offload: Offload,
    name: &'static str,
    encrypting: Crossover,
    decrypting: Crossover,
    /// The CPU's implementations for encrypting and for decrypting.
    cpu: [Pair<dyn CbcImplementation>; 2],
}

impl AcceleratorCbc {
    pub(crate) fn new(
        (offload, name): (Offload, &'static str),
        [encrypting, decrypting]: [Crossover; 2],
        cpu: [Pair<dyn CbcImplementation>; 2],
    ) -> Self {
        Self {
            offload,
            name,
            encrypting,
            decrypting,
            cpu,
        }
    }

    fn work(&self, memory: &mut [u8], chains: &[Chain], direction: Direction) {
        let crossover = match direction {
            Direction::Encrypt => &self.encrypting,
            Direction::Decrypt => &self.decrypting,
        };
        let cpu = |memory: &mut [u8], chains: &[Chain]| match direction {
            Direction::Encrypt => self.cpu[0].of(chains.len()).encrypt(memory, chains),
            Direction::Decrypt => self.cpu[1].of(chains.len()).decrypt(memory, chains),
        };
        let Some(parts) = self.split(crossover, memory, chains) else {
            return cpu(memory, chains);
        };
        let submission = self.offload.submit(memory, &parts.go, direction);
        if !parts.stay.is_empty() {
            cpu(memory, &parts.stay);
        }
        let mut verdicts = [Verdict::Undone; JOBS];
        self.offload
            .collect(&submission, memory, &parts.go, &mut verdicts);
        let mut undone = List::new();
        for (&index, verdict) in parts.gone.iter().zip(verdicts) {
            if verdict != Verdict::Done {
                undone.push(chains[index]);
            }
        }
        if !undone.is_empty() {
            cpu(memory, &undone);
        }
    }

    fn split(
        &self,
        crossover: &Crossover,
        memory: &[u8],
        chains: &[Chain],
    ) -> Option<Parts<Chain>> {
        if !self.offload.is_alive() {
            return None;
        }
        let lens = chains.iter().map(|chain| chain.text().len());
        let mut split = Split::new(crossover, lens)?;
        let mut parts = Parts::new();
        for (index, chain) in chains.iter().enumerate() {
            let text: Range<usize> = chain.text();
            if split.takes(text.len()) {
                let mut nonce = [0; 16];
                nonce.copy_from_slice(&memory[text.start - 16..text.start]);
                parts.go.push(Piece {
                    text: Span::from(&text),
                    nonce,
                    ..Piece::default()
                });
                parts.gone.push(index);
            } else {
                parts.stay.push(*chain);
                parts.stayed.push(index);
            }
        }
        Some(parts)
    }
}

impl CbcImplementation for AcceleratorCbc {
    fn encrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        self.work(memory, chains, Direction::Encrypt);
    }

    fn decrypt(&self, memory: &mut [u8], chains: &[Chain]) {
        self.work(memory, chains, Direction::Decrypt);
    }

    fn describe(&self) -> &'static str {
        if self.offload.is_alive() {
            self.name
        } else {
            self.cpu[0].many().describe()
        }
    }
}
