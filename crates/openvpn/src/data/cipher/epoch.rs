//! AEAD packets with epochs: `epoch:u16, number:u48, text, tag[16]`.
//!
//! A sender that has used up an epoch's key goes on to the next without asking; the receiver keeps the keys of the
//! epochs around the newest that it has seen. Each epoch's secret comes from the one before it by HKDF-Expand (RFC
//! 5869) with labels in the form of TLS 1.3 (RFC 8446, section 7.1) that begin with `ovpn `.

use std::sync::{Arc, PoisonError, RwLock};

use crypto::hmac::Hmac;
use crypto::packet_aead::{self, AeadLayout};
use crypto::{Backend, Batch, Cipher, Packet, PacketCipher, TAG_LEN};
use zeroize::Zeroizing;

use crate::data::wire::V2_LEN;

/// Epochs after the current one whose packets are opened.
const FUTURE: u16 = 4;

/// Bits of a packet's number that are not the epoch.
const NUMBER_BITS: u32 = 48;

/// One direction of one key.
pub(super) struct EpochAead {
    cipher: Cipher,
    /// The name of the cipher for reports.
    name: &'static str,
    window: RwLock<Window>,
}

/// The keys of consecutive epochs: the one before the current, the current, and at most [`FUTURE`] later ones. A later
/// epoch's key is made when a packet names that epoch. That is rare: an epoch lasts 2^36 blocks, and the whole key is
/// usually renewed before.
struct Window {
    current: u16,
    /// The epoch of `keys[0]`.
    first: u16,
    /// A key that could not be made leaves its place empty, so that the others keep theirs.
    keys: Vec<Option<Arc<dyn PacketCipher>>>,
    /// The epoch of the last of `keys`, and its secret.
    last: u16,
    secret: Zeroizing<[u8; 32]>,
}

impl EpochAead {
    /// A cipher from the secret of epoch 1. `None` if `cipher` is no AEAD, or the machine has no code for it.
    pub(super) fn new(cipher: Cipher, secret: &[u8; 32]) -> Option<Self> {
        let first = key(packet_aead::new, cipher, secret)?;
        let name = first.name();
        let window = Window {
            current: 1,
            first: 1,
            keys: vec![Some(first)],
            last: 1,
            secret: Zeroizing::new(*secret),
        };
        Some(Self {
            cipher,
            name,
            window: RwLock::new(window),
        })
    }

    /// Makes `epoch` the current one, if it is newer.
    fn advance(&self, epoch: u16) {
        let mut window = self.window.write().unwrap_or_else(PoisonError::into_inner);
        window.advance(self.cipher, epoch);
    }

    /// Makes the keys up to this epoch.
    fn extend(&self, epoch: u16) {
        let mut window = self.window.write().unwrap_or_else(PoisonError::into_inner);
        window.extend(self.cipher, epoch);
    }

    /// Calls `f` for each run of packets of one epoch, with its key if it is in the window, and returns the newest
    /// epoch for which `f` returned true.
    fn runs(
        &self,
        batch: &mut Batch<'_>,
        epoch_of: impl Fn(&[u8], &Packet) -> u16,
        mut f: impl FnMut(Option<&dyn PacketCipher>, &mut Batch<'_>) -> bool,
    ) -> u16 {
        // The lock is held for a batch: a writer comes once in 2^36 blocks, or on request.
        let mut window = self.window.read().unwrap_or_else(PoisonError::into_inner);
        let memory = &mut *batch.memory;
        let mut rest = &mut batch.packets[..];
        let mut newest = 0;
        while let Some(first) = rest.first() {
            let epoch = epoch_of(memory, first);
            let count = rest
                .iter()
                .take_while(|packet| epoch_of(memory, packet) == epoch)
                .count();
            let (packets, others) = rest.split_at_mut(count);
            if window.lacks(epoch) {
                // A stranger can trigger this too, but only once for each epoch.
                drop(window);
                self.extend(epoch);
                window = self.window.read().unwrap_or_else(PoisonError::into_inner);
            }
            if f(window.key(epoch), &mut Batch { memory, packets }) {
                newest = newest.max(epoch);
            }
            rest = others;
        }
        newest
    }
}

impl Window {
    fn key(&self, epoch: u16) -> Option<&dyn PacketCipher> {
        let place = usize::from(epoch.checked_sub(self.first)?);
        self.keys.get(place)?.as_deref()
    }

    fn advance(&mut self, cipher: Cipher, epoch: u16) {
        self.current = self.current.max(epoch);
        let first = self.current.saturating_sub(1).max(1);
        self.keys
            .drain(..usize::from(first - self.first).min(self.keys.len()));
        self.first = first;
        self.extend(cipher, self.current);
    }

    /// Whether this is an epoch whose packets are to be opened, and whose key is not made yet.
    fn lacks(&self, epoch: u16) -> bool {
        epoch > self.last && epoch <= self.current.saturating_add(FUTURE)
    }

    fn extend(&mut self, cipher: Cipher, epoch: u16) {
        while self.last < epoch {
            let next = expand_label(&self.secret, "datakey upd");
            self.secret = next;
            self.last += 1;
            // A sender may skip any number of epochs.
            if self.last >= self.first {
                // From the second epoch on only the CPU works, because an accelerator has few sessions.
                let key = key(packet_aead::sparing, cipher, &self.secret);
                self.keys.push(key);
            }
        }
    }
}

/// The maker of a key: [`packet_aead::new`] or [`packet_aead::sparing`].
type Make = fn(Option<Backend>, Cipher, &[u8], AeadLayout) -> Option<Arc<dyn PacketCipher>>;

fn key(make: Make, cipher: Cipher, secret: &[u8; 32]) -> Option<Arc<dyn PacketCipher>> {
    let key: Zeroizing<[u8; 32]> = match cipher.key_len() {
        // The length is part of the label, so that a short key is not a prefix of a long one.
        16 => widened(&expand_label::<16>(secret, "data_key")),
        24 => widened(&expand_label::<24>(secret, "data_key")),
        _ => expand_label(secret, "data_key"),
    };
    let iv = *expand_label(secret, "data_iv");
    let header = V2_LEN;
    make(None, cipher, &*key, AeadLayout::Number64 { header, iv })
}

fn widened<const N: usize>(bytes: &[u8; N]) -> Zeroizing<[u8; 32]> {
    let mut wide = Zeroizing::new([0; 32]);
    wide[..N].copy_from_slice(bytes);
    wide
}

/// HKDF-Expand-Label with SHA-256, no context and at most one block of output.
fn expand_label<const N: usize>(secret: &[u8; 32], label: &str) -> Zeroizing<[u8; N]> {
    const { assert!(N <= 32) };
    let hmac = Hmac::sha256(secret);
    let label_len = (b"ovpn ".len() + label.len()) as u8;
    let mac = hmac.sign(&[
        &(N as u16).to_be_bytes(),
        &[label_len],
        b"ovpn ",
        label.as_bytes(),
        &[0, 1],
    ]);
    let mut out = Zeroizing::new([0; N]);
    out.copy_from_slice(&mac.as_bytes()[..N]);
    out
}

impl PacketCipher for EpochAead {
    fn head(&self) -> usize {
        8
    }

    fn tail(&self, _: usize) -> usize {
        TAG_LEN
    }

    fn seal(&self, batch: &mut Batch<'_>) {
        let epoch_of = |packet: &Packet| (packet.counter >> NUMBER_BITS) as u16;
        // The caller decides when an epoch has been used up, and its numbers say so.
        let newest = batch.packets.iter().map(epoch_of).max().unwrap_or(0);
        if newest > self.current() {
            self.advance(newest);
        }
        self.runs(
            batch,
            |_, packet| epoch_of(packet),
            |key, batch| {
                debug_assert!(key.is_some(), "a number of an epoch that has passed");
                match key {
                    Some(key) => key.seal(batch),
                    // The plaintext must not leave this machine, however the caller uses it.
                    None => batch.packets.iter().for_each(|packet| {
                        if let Some(payload) = packet.range(0, 0, batch.memory.len()) {
                            batch.memory[payload].fill(0);
                        }
                    }),
                }
                true
            },
        );
    }

    fn open(&self, batch: &mut Batch<'_>) {
        let newest = self.runs(
            batch,
            |memory, packet| match packet.range(0, 0, memory.len()) {
                Some(bytes) if bytes.len() >= 2 => {
                    u16::from_be_bytes([memory[bytes.start], memory[bytes.start + 1]])
                }
                _ => 0,
            },
            |key, batch| match key {
                Some(key) => {
                    key.open(batch);
                    batch.packets.iter().any(|packet| packet.authentic)
                }
                None => {
                    for packet in batch.packets.iter_mut() {
                        packet.authentic = false;
                    }
                    false
                }
            },
        );
        if newest > self.current() {
            self.advance(newest);
        }
    }

    fn epoch(&self) -> u16 {
        self.current()
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn backend(&self) -> &'static str {
        let window = self.window.read().unwrap_or_else(PoisonError::into_inner);
        let first = window.keys.iter().flatten().next();
        first.map_or("none", |key| key.backend())
    }
}

impl EpochAead {
    fn current(&self) -> u16 {
        self.window
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .current
    }
}
