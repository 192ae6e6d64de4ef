//! RC4, the stream cipher of PPTP's encryption. Broken: nothing that is chosen freely should use it.

use core::fmt;

use zeroize::Zeroize;

/// A stream of RC4 under way. What the key was made into is overwritten on drop.
pub struct Rc4 {
    state: [u8; 256],
    i: u8,
    j: u8,
}

impl Rc4 {
    /// Begins the stream of a key of 1 to 256 bytes.
    ///
    /// # Panics
    /// If `key` is empty.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        assert!(!key.is_empty(), "RC4 needs a key");
        // Every byte value once.
        let mut state = core::array::from_fn(|at| at as u8);
        let mut j = 0_u8;
        for (at, &byte) in (0..256).zip(key.iter().cycle()) {
            j = j.wrapping_add(state[at]).wrapping_add(byte);
            state.swap(at, usize::from(j));
        }
        Self { state, i: 0, j: 0 }
    }

    /// Encrypts or decrypts what comes next, in place.
    pub fn apply(&mut self, bytes: &mut [u8]) {
        let state = &mut self.state;
        // Written back once.
        let (mut i, mut j) = (self.i, self.j);
        for byte in bytes {
            i = i.wrapping_add(1);
            let a = state[usize::from(i)];
            j = j.wrapping_add(a);
            let b = state[usize::from(j)];
            state[usize::from(i)] = b;
            state[usize::from(j)] = a;
            *byte ^= state[usize::from(a.wrapping_add(b))];
        }
        (self.i, self.j) = (i, j);
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
            // In two parts, so that the second goes on where the first ended.
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
}
