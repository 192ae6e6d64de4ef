//! RC4, the stream cipher of PPTP's encryption. Broken: use it only where a protocol requires it.

use core::fmt;

use zeroize::Zeroize;

/// State of an RC4 stream. Its key-dependent state is overwritten on drop.
pub struct Rc4 {
    state: [u8; 256],
    i: u8,
    j: u8,
}

/// Every byte value once.
const START: [u8; 256] = {
    let mut state = [0; 256];
    let mut at = 0;
    while at < state.len() {
        state[at] = at as u8;
        at += 1;
    }
    state
};

/// Bytes of a block: consecutive positions of the state that do not wrap.
const BLOCK: usize = 8;
/// Bytes that are encrypted at once.
const WORD: usize = 4;

impl Rc4 {
    /// Begins the stream of a key of 1 to 256 bytes.
    ///
    /// # Panics
    /// If `key` is empty.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        let mut rc4 = Self {
            state: START,
            i: 0,
            j: 0,
        };
        rc4.mix(key);
        rc4
    }

    /// Restarts with another key in the same memory, which is cheaper than a new stream: nothing has to be overwritten.
    ///
    /// # Panics
    /// If `key` is empty.
    pub fn set_key(&mut self, key: &[u8]) {
        self.state = START;
        (self.i, self.j) = (0, 0);
        self.mix(key);
    }

    fn mix(&mut self, key: &[u8]) {
        assert!(!key.is_empty(), "RC4 needs a key");
        // The lengths of MPPE's keys, for which loops need no check for the key's end.
        if let Ok(key) = key.try_into() {
            mix_whole::<16>(&mut self.state, key);
        } else if let Ok(key) = key.try_into() {
            mix_whole::<8>(&mut self.state, key);
        } else {
            let mut j = 0_u8;
            for (at, &byte) in (0..256).zip(key.iter().cycle()) {
                j = j.wrapping_add(self.state[at]).wrapping_add(byte);
                self.state.swap(at, usize::from(j));
            }
        }
    }

    /// Encrypts or decrypts the next bytes of the stream, in place.
    pub fn apply(&mut self, bytes: &mut [u8]) {
        // The bytes before the next block of positions.
        let until = BLOCK - (usize::from(self.i) + 1) % BLOCK;
        let (head, rest) = bytes.split_at_mut((until % BLOCK).min(bytes.len()));
        self.apply_singly(head);
        let (blocks, tail) = rest.as_chunks_mut::<BLOCK>();
        let state = &mut self.state;
        // Both are written back once, at the end.
        let (mut i, mut j) = (self.i, self.j);
        for block in blocks {
            // At most 248, which saves a bounds check and the wrapping for each byte.
            let first = usize::from(i.wrapping_add(1)) & (256 - BLOCK);
            for (half, word) in block.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
                let mut stream = 0;
                for at in 0..WORD {
                    let i = first + half * WORD + at;
                    let a = state[i];
                    j = j.wrapping_add(a);
                    let b = state[usize::from(j)];
                    state[i] = b;
                    state[usize::from(j)] = a;
                    stream |= u32::from(state[usize::from(a.wrapping_add(b))]) << (8 * at);
                }
                *word = (u32::from_le_bytes(*word) ^ stream).to_le_bytes();
            }
            i = i.wrapping_add(BLOCK as u8);
        }
        (self.i, self.j) = (i, j);
        self.apply_singly(tail);
    }

    fn apply_singly(&mut self, bytes: &mut [u8]) {
        let state = &mut self.state;
        for byte in bytes {
            self.i = self.i.wrapping_add(1);
            let a = state[usize::from(self.i)];
            self.j = self.j.wrapping_add(a);
            let b = state[usize::from(self.j)];
            state[usize::from(self.i)] = b;
            state[usize::from(self.j)] = a;
            *byte ^= state[usize::from(a.wrapping_add(b))];
        }
    }
}

/// The key schedule for a key whose length divides 256.
#[inline(always)]
fn mix_whole<const LEN: usize>(state: &mut [u8; 256], key: &[u8; LEN]) {
    let mut j = 0_u8;
    for first in (0..256).step_by(LEN) {
        for (at, &byte) in key.iter().enumerate() {
            let at = (first + at) & 0xff;
            let a = state[at];
            j = j.wrapping_add(a).wrapping_add(byte);
            state[at] = state[usize::from(j)];
            state[usize::from(j)] = a;
        }
    }
}

impl fmt::Debug for Rc4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rc4(..)")
    }
}

impl Drop for Rc4 {
    fn drop(&mut self) {
        self.state.zeroize();
        self.i.zeroize();
        self.j.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 6229, section 2: the streams of two keys at offsets 0, 16 and 4096.
    #[test]
    fn the_streams_of_rfc_6229() {
        let key: Vec<u8> = (1..=16).collect();
        let expected = [
            (
                5,
                [
                    "b2396305f03dc027ccc3524a0a1118a8",
                    "6982944f18fc82d589c403a47a0d0919",
                    "ff25b58995996707e51fbdf08b34d875",
                ],
            ),
            (
                16,
                [
                    "9ac7cc9a609d1ef7b2932899cde41b97",
                    "5248c4959014126a6e8a84f11d1a9e1c",
                    "a36a4c301ae8ac13610ccbc12256cacc",
                ],
            ),
        ];
        for (len, streams) in expected {
            let mut stream = [0; 4112];
            // In two parts: the second continues where the first ended.
            let mut rc4 = Rc4::new(&key[..len]);
            rc4.apply(&mut stream[..7]);
            rc4.apply(&mut stream[7..]);
            for (at, hex) in [0, 16, 4096].into_iter().zip(streams) {
                let found: String = stream[at..][..16]
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                assert_eq!(found, hex, "{len} bytes of key, offset {at}");
            }
        }
    }

    /// The algorithm in its usual form.
    fn plain(key: &[u8], len: usize) -> Vec<u8> {
        let mut state: Vec<u8> = (0..=255).collect();
        let mut j = 0_usize;
        for i in 0..256 {
            j = (j + usize::from(state[i]) + usize::from(key[i % key.len()])) % 256;
            state.swap(i, j);
        }
        let (mut i, mut j) = (0, 0);
        let mut next = || {
            i = (i + 1) % 256;
            j = (j + usize::from(state[i])) % 256;
            state.swap(i, j);
            state[(usize::from(state[i]) + usize::from(state[j])) % 256]
        };
        (0..len).map(|_| next()).collect()
    }

    proptest! {
        #[test]
        fn any_key_in_any_pieces_and_any_memory_gives_the_same_stream(
            first in proptest::collection::vec(any::<u8>(), 1..20),
            key in prop_oneof![
                proptest::collection::vec(any::<u8>(), 16),
                proptest::collection::vec(any::<u8>(), 8),
                proptest::collection::vec(any::<u8>(), 1..257),
            ],
            pieces in proptest::collection::vec(0_usize..300, 0..12),
        ) {
            let mut rc4 = Rc4::new(&first);
            rc4.apply(&mut [0; 100]);
            rc4.set_key(&key);
            let mut stream = vec![0; pieces.iter().sum()];
            let mut rest = &mut stream[..];
            for piece in pieces {
                let (now, later) = rest.split_at_mut(piece);
                rc4.apply(now);
                rest = later;
            }
            prop_assert_eq!(&stream, &plain(&key, stream.len()));
        }
    }
}
