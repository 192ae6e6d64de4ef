//! Decrypts packets that have a key each (RFC 3078, section 8.1), in any order.
//!
//! Each packet's key derives from the previous packet's key. Keys of missing packets are kept for their late arrival,
//! and each key opens one packet. The number of keys made ahead and of keys kept is bounded.

use std::collections::VecDeque;

use zeroize::Zeroizing;

use crate::mppe::header::{GLANCE, HEADER_LEN, Header, OpenError, looks_like_ip};
use crate::mppe::keys::{SessionKey, StartKey};
use crypto::Rc4;

/// Keys kept for packets before the latest one.
pub const BEHIND: u64 = 2048;
/// Consecutive missing packets beyond which the link must be restarted.
pub const MAX_AHEAD: u64 = 4096;

const COUNTS: u64 = 4096;

type Key = Zeroizing<[u8; 16]>;

/// The receiving end of a stateless direction. Takes about 100 KiB.
#[derive(Debug)]
pub struct Stateless {
    /// The key of count `first + keys.len() - 1`; if `keys` is empty, the first session key.
    last: SessionKey,
    /// Reused for each packet.
    cipher: Rc4,
    /// The unwrapped count of the first of `keys`.
    first: u64,
    /// Keys by count; `None` if a key was used. Invariant: at most `BEHIND + MAX_AHEAD + 1`.
    keys: VecDeque<Option<Key>>,
    /// The latest packet: its GRE number and its count.
    latest: Option<(u64, u64)>,
    /// Unencrypted frames since the latest packet.
    unencrypted: u64,
}

impl Stateless {
    /// A receiver before its first packet.
    #[must_use]
    pub fn new(key: StartKey) -> Self {
        let last = key.session_key();
        Self {
            cipher: last.cipher(),
            last,
            first: 0,
            // Allocates everything at once: growing would leave copies of keys in freed memory.
            keys: VecDeque::with_capacity((BEHIND + MAX_AHEAD) as usize + 1),
            latest: None,
            unencrypted: 0,
        }
    }

    /// Decrypts a packet in place, after its header. `number` is the GRE number, which never wraps.
    ///
    /// # Errors
    /// See [`OpenError`]; the bytes are unchanged then.
    pub fn open(&mut self, number: u64, information: &mut [u8]) -> Result<(), OpenError> {
        let header = Header::parse(information)?;
        if !header.flushed {
            return Err(OpenError::NotFlushed);
        }
        let count = self.extend(number, u64::from(header.count))?;
        let at = count.checked_sub(self.first).ok_or(OpenError::Late)?;
        while self.first + self.keys.len() as u64 <= count {
            self.last.change(&mut self.cipher);
            let mut key = Zeroizing::new([0; 16]);
            let bytes = self.last.as_bytes();
            key[..bytes.len()].copy_from_slice(bytes);
            self.keys.push_back(Some(key));
        }
        // `extend` bounds the difference far below a usize.
        let slot = &mut self.keys[at as usize];
        let key = slot.as_ref().ok_or(OpenError::Duplicate)?;
        let key = &key[..self.last.length().bytes()];
        let body = &mut information[HEADER_LEN..];
        let mut glance = [0; GLANCE];
        let seen = body.len().min(GLANCE);
        glance[..seen].copy_from_slice(&body[..seen]);
        let cipher = &mut self.cipher;
        cipher.set_key(key);
        cipher.apply(&mut glance[..seen]);
        if !looks_like_ip(&glance[..seen]) {
            // The key stays available for its genuine packet.
            return Err(OpenError::Garbled);
        }
        body[..seen].copy_from_slice(&glance[..seen]);
        cipher.apply(&mut body[seen..]);
        *slot = None;
        if self.latest.is_none_or(|(_, latest)| count > latest) {
            self.latest = Some((number, count));
            self.unencrypted = 0;
            while self.first + BEHIND < count && !self.keys.is_empty() {
                self.keys.pop_front();
                self.first += 1;
            }
        }
        Ok(())
    }

    /// Records an unencrypted frame in order: it has a GRE number and no count.
    pub fn unencrypted(&mut self) {
        self.unencrypted += 1;
    }

    /// Unwraps the count: the candidate nearest to the count that the GRE number predicts.
    ///
    /// Numbers and counts advance together, with two exceptions. Unencrypted frames have no count. Packets that their
    /// sender lost between encryption and numbering have no number. Half of all counts is tolerance for these.
    fn extend(&self, number: u64, count: u64) -> Result<u64, OpenError> {
        let Some((latest_number, latest)) = self.latest else {
            return Ok(count);
        };
        let expected = if number >= latest_number {
            let counted = (number - latest_number).saturating_sub(self.unencrypted);
            latest.saturating_add(counted)
        } else {
            latest.saturating_sub(latest_number - number)
        };
        let ahead = count.wrapping_sub(expected) % COUNTS;
        let found = if ahead < COUNTS / 2 {
            expected.saturating_add(ahead)
        } else {
            let behind = COUNTS - ahead;
            expected.checked_sub(behind).ok_or(OpenError::Late)?
        };
        if found > latest.saturating_add(MAX_AHEAD) {
            return Err(OpenError::TooFar);
        }
        Ok(found)
    }

    /// Number of keys in memory.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.keys.len()
    }
}
