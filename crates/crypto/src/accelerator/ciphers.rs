//! Ciphers that give a part of each batch to an accelerator and the rest to the CPU.
//!
//! The number of packets that go is [reckoned](Crossover::share) for each batch. The longest go, because an accelerator
//! takes little more time for a long packet. While it works on copies, the CPU works on the rest in place. Afterwards
//! the CPU does all packets that the accelerator did not do, for whatever reason.

use super::costs::Crossover;
use super::found::{self, Offer};
use super::job::JOBS;
use super::offload::{Offload, Verdict};
use super::task::Task;
use crate::TAG_LEN;
use crate::accelerator::task::{Direction, Piece, Span};
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
    let route = Route::new(offer, key, crossovers)?;
    Some(AcceleratorAead { route, cpu })
}

/// Makes AES-CBC, under the same conditions.
pub(crate) fn cbc(key: &[u8]) -> Option<AcceleratorCbc> {
    let offer = found::offer(Task::AesCbc)?;
    let crossovers = offer.crossovers()?;
    let (encrypting, decrypting) = Pair::cbc_on_cpu(key)?;
    let route = Route::new(offer, key, crossovers)?;
    let cpu = [encrypting, decrypting];
    Some(AcceleratorCbc { route, cpu })
}

/// A key's connection to the accelerator.
pub(crate) struct Route {
    pub(crate) offload: Offload,
    /// The cipher's name while the accelerator works.
    pub(crate) name: &'static str,
    /// Crossovers for encryption and for decryption.
    pub(crate) crossovers: [Crossover; 2],
}

impl Route {
    /// Opens a session of the key; `None` if none is left.
    pub(crate) fn new(offer: &Offer, key: &[u8], crossovers: [Crossover; 2]) -> Option<Self> {
        Some(Self {
            offload: offer.open(key)?,
            name: offer.name,
            crossovers,
        })
    }

    /// Divides a chunk into the items that go and those that stay; `None` if all stay. `len` is the length of an item's
    /// text.
    fn split<T: Clone>(
        &self,
        direction: Direction,
        items: &[T],
        len: impl Fn(&T) -> usize,
        piece: impl Fn(&T) -> Piece,
    ) -> Option<Parts<T>> {
        if !self.offload.is_alive() {
            return None;
        }
        let crossover = &self.crossovers[usize::from(direction == Direction::Decrypt)];
        let mut split = Split::new(crossover, items.iter().map(&len))?;
        let mut parts = Parts {
            go: List::new(),
            gone: List::new(),
            stay: List::new(),
            stayed: List::new(),
        };
        for (index, item) in items.iter().enumerate() {
            if split.takes(len(item)) {
                parts.go.push(piece(item));
                parts.gone.push(index);
            } else {
                parts.stay.push(item.clone());
                parts.stayed.push(index);
            }
        }
        Some(parts)
    }

    /// Does a chunk that was divided: `cpu` does the items that stay, and those that the accelerator leaves undone.
    fn work<T: Clone>(
        &self,
        memory: &mut [u8],
        items: &[T],
        direction: Direction,
        parts: Option<Parts<T>>,
        cpu: impl Fn(&mut [u8], &[T]),
    ) {
        let Some(parts) = parts else {
            return cpu(memory, items);
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
                undone.push(items[index].clone());
            }
        }
        if !undone.is_empty() {
            cpu(memory, &undone);
        }
    }

    fn describe(&self, cpu: &'static str) -> &'static str {
        if self.offload.is_alive() {
            self.name
        } else {
            cpu
        }
    }
}

/// A chunk in two parts, with each packet's index in the chunk.
struct Parts<T> {
    go: List<Piece>,
    gone: List<usize>,
    stay: List<T>,
    stayed: List<usize>,
}

/// An AEAD shared between an accelerator and the CPU.
pub(crate) struct AcceleratorAead {
    pub(crate) route: Route,
    pub(crate) cpu: Pair<dyn AeadImplementation>,
}

impl AcceleratorAead {
    fn split(&self, direction: Direction, places: &[Place]) -> Option<Parts<Place>> {
        let piece = |place: &Place| {
            let mut nonce = [0; 16];
            nonce[..12].copy_from_slice(&place.nonce);
            Piece {
                aad: Span::from(&place.aad),
                text: Span::from(&place.text),
                tag: Span {
                    start: place.tag,
                    len: TAG_LEN,
                },
                nonce,
            }
        };
        self.route
            .split(direction, places, |place| place.text.len(), piece)
    }
}

impl AeadImplementation for AcceleratorAead {
    fn seal(&self, memory: &mut [u8], places: &[Place]) {
        let direction = Direction::Encrypt;
        let parts = self.split(direction, places);
        let cpu = |memory: &mut [u8], places: &[Place]| {
            self.cpu.of(places.len()).seal(memory, places);
        };
        self.route.work(memory, places, direction, parts, cpu);
    }

    fn open(&self, memory: &mut [u8], places: &[Place], authentic: &mut [bool]) {
        let Some(parts) = self.split(Direction::Decrypt, places) else {
            return self.cpu.of(places.len()).open(memory, places, authentic);
        };
        let submission = self
            .route
            .offload
            .submit(memory, &parts.go, Direction::Decrypt);
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
        self.route
            .offload
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
                self.route
                    .offload
                    .give_up(format_args!("it rejected a genuine packet"));
            }
        }
    }

    fn describe(&self) -> &'static str {
        self.route.describe(self.cpu.many().describe())
    }
}

/// AES in CBC mode, shared between an accelerator and the CPU.
pub(crate) struct AcceleratorCbc {
    pub(crate) route: Route,
    /// The CPU's implementations for encrypting and for decrypting.
    pub(crate) cpu: [Pair<dyn CbcImplementation>; 2],
}

impl AcceleratorCbc {
    fn work(&self, memory: &mut [u8], chains: &[Chain], direction: Direction) {
        let cpu = |memory: &mut [u8], chains: &[Chain]| match direction {
            Direction::Encrypt => self.cpu[0].of(chains.len()).encrypt(memory, chains),
            Direction::Decrypt => self.cpu[1].of(chains.len()).decrypt(memory, chains),
        };
        let piece = |chain: &Chain| {
            let text = chain.text();
            let mut nonce = [0; 16];
            nonce.copy_from_slice(&memory[text.start - 16..text.start]);
            Piece {
                text: Span::from(&text),
                nonce,
                ..Piece::default()
            }
        };
        let len = |chain: &Chain| chain.text().len();
        let parts = self.route.split(direction, chains, len, piece);
        self.route.work(memory, chains, direction, parts, cpu);
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
        self.route.describe(self.cpu[0].many().describe())
    }
}
