//! LZO1X, as `comp-lzo` compresses: unpacking only, into memory of a fixed size.
//!
//! A stream is a sequence of instructions. Each is a run of literals, or copies earlier output (a *match*) and has up
//! to three literal bytes behind it. The number of literals behind the previous instruction decides the meaning of an
//! instruction below 16:
//!
//! | instruction | copies | from bytes before, at most |
//! |---|---|---|
//! | `0000LLLL`, behind no literal | a run of 4 or more literals | |
//! | `0000DDSS D`, behind 1 to 3 | 2 bytes | 1,024 |
//! | `0000DDSS D`, behind a run | 3 bytes | 3,072 |
//! | `0001DLLL D D` | 3 or more bytes | 49,151; a distance of 0 bits ends the stream |
//! | `001LLLLL D D` | 3 or more bytes | 16,384 |
//! | `01LDDDSS D` to `111DDDSS D` | 3 to 8 bytes | 2,048 |
//!
//! A length with all bits 0 continues in the bytes behind: 255 for each 0 byte, plus the first byte that is not 0.

/// The bytes are not an LZO stream, or unpack to more than there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet is not compressed with LZO1X, or is too long")]
pub struct Corrupt;

/// Unpacks `packed` to the beginning of `unpacked` and returns the length.
///
/// # Errors
/// [`Corrupt`]: the stream ends early or late, refers to bytes before its beginning, or is longer than `unpacked`.
pub fn unpack(packed: &[u8], unpacked: &mut [u8]) -> Result<usize, Corrupt> {
    let mut input = Input(packed);
    let mut output = Output {
        bytes: unpacked,
        len: 0,
    };
    let mut before = Before::Match;
    // Above 17 the first byte is a run by itself.
    if let Some(run @ 18..) = input.peek() {
        input.byte()?;
        let run = usize::from(run - 17);
        output.literals(input.take(run)?)?;
        before = Before::literals(run);
    }
    loop {
        let instruction = input.byte()?;
        let bits = usize::from(instruction);
        let (len, distance, literals) = match (instruction, before) {
            (0..16, Before::Match) => {
                let run = 3 + input.length(bits, 15)?;
                output.literals(input.take(run)?)?;
                before = Before::Run;
                continue;
            }
            (0..16, Before::Few) => (2, 1 + (bits >> 2) + input.high(2)?, bits & 3),
            (0..16, Before::Run) => (3, 2049 + (bits >> 2) + input.high(2)?, bits & 3),
            (16..32, _) => {
                let len = 2 + input.length(bits & 7, 7)?;
                let (low, literals) = input.distance()?;
                let distance = low + ((bits & 8) << 11);
                if distance == 0 {
                    // Nothing may follow the end of a stream.
                    return match input.0 {
                        [] if len == 3 => Ok(output.len),
                        _ => Err(Corrupt),
                    };
                }
                (len, distance + 16_384, literals)
            }
            (32..64, _) => {
                let len = 2 + input.length(bits & 31, 31)?;
                let (distance, literals) = input.distance()?;
                (len, distance + 1, literals)
            }
            (64.., _) => {
                let distance = 1 + (bits >> 2 & 7) + input.high(3)?;
                ((bits >> 5) + 1, distance, bits & 3)
            }
        };
        output.repeat(distance, len)?;
        output.literals(input.take(literals)?)?;
        before = Before::literals(literals);
    }
}

/// The literals just before an instruction.
#[derive(Clone, Copy)]
enum Before {
    /// A match with no literal behind it, or nothing yet.
    Match,
    /// One to three literals.
    Few,
    /// Four literals or more.
    Run,
}

impl Before {
    const fn literals(len: usize) -> Self {
        match len {
            0 => Self::Match,
            1..=3 => Self::Few,
            _ => Self::Run,
        }
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn byte(&mut self) -> Result<u8, Corrupt> {
        let (&byte, rest) = self.0.split_first().ok_or(Corrupt)?;
        self.0 = rest;
        Ok(byte)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Corrupt)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// The next byte, as the bits of a distance from `shift` on.
    fn high(&mut self, shift: u32) -> Result<usize, Corrupt> {
        Ok(usize::from(self.byte()?) << shift)
    }

    /// Reads a length: the `bits` of the instruction or, if they are 0, `most` and the bytes that follow.
    fn length(&mut self, bits: usize, most: usize) -> Result<usize, Corrupt> {
        if bits != 0 {
            return Ok(bits);
        }
        let mut len = most;
        // Each turn takes a byte of a packet: it cannot overflow.
        loop {
            match self.byte()? {
                0 => len += 255,
                last => return Ok(len + usize::from(last)),
            }
        }
    }

    /// Two bytes: 14 bits of distance, and 2 of the number of literals behind.
    fn distance(&mut self) -> Result<(usize, usize), Corrupt> {
        let (&bytes, rest) = self.0.split_first_chunk().ok_or(Corrupt)?;
        self.0 = rest;
        let both = usize::from(u16::from_le_bytes(bytes));
        Ok((both >> 2, both & 3))
    }
}

struct Output<'a> {
    bytes: &'a mut [u8],
    /// Invariant: at most the length of `bytes`.
    len: usize,
}

impl Output<'_> {
    fn literals(&mut self, literals: &[u8]) -> Result<(), Corrupt> {
        let room = self.bytes[self.len..].get_mut(..literals.len());
        room.ok_or(Corrupt)?.copy_from_slice(literals);
        self.len += literals.len();
        Ok(())
    }

    /// Appends `len` bytes copied from `distance` bytes before. Where `distance` is less than `len`, the copied bytes
    /// repeat.
    fn repeat(&mut self, distance: usize, len: usize) -> Result<(), Corrupt> {
        let from = self.len.checked_sub(distance).ok_or(Corrupt)?;
        if len > self.bytes.len() - self.len {
            return Err(Corrupt);
        }
        if distance >= len {
            self.bytes.copy_within(from..from + len, self.len);
        } else {
            for at in 0..len {
                self.bytes[self.len + at] = self.bytes[from + at];
            }
        }
        self.len += len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: [u8; 3] = [17, 0, 0];

    fn unpacked(packed: &[u8], room: usize) -> Result<Vec<u8>, Corrupt> {
        let mut out = vec![0xee; room];
        let len = unpack(packed, &mut out)?;
        out.truncate(len);
        Ok(out)
    }

    /// One stream for each kind of instruction, and the ways in which a stream may be corrupt.
    #[test]
    fn each_instruction_does_what_it_says() {
        // A run of 4 (0x15), 3 bytes from 4 before (M2), and the end.
        let m2 = [&[21, b'a', b'b', b'c', b'd', 0x4c, 0x00][..], &END].concat();
        assert_eq!(unpacked(&m2, 7).unwrap(), b"abcdabc");
        assert_eq!(unpacked(&m2, 6), Err(Corrupt));
        // A byte repeated 5 times (M3, distance 1), with two literals behind.
        let m3 = [&[18, b'x', 0x23, 0x02, 0x00, b'y', b'z'][..], &END].concat();
        assert_eq!(unpacked(&m3, 99).unwrap(), b"xxxxxxyz");
        // Behind one literal an instruction below 16 copies two bytes.
        let m1 = [&[18, b'x', 0x00, 0x00][..], &END].concat();
        assert_eq!(unpacked(&m1, 99).unwrap(), b"xxx");
        // A long run: 3 + 15 + 255 + 2 literals.
        let long = [&[0, 0, 2][..], &[7; 275], &END].concat();
        assert_eq!(unpacked(&long, 275).unwrap(), [7; 275]);
        assert_eq!(unpacked(&long, 274), Err(Corrupt));
        assert_eq!(unpacked(&END, 0).unwrap(), []);
        for wrong in [
            &[][..],
            &[17],
            &[17, 0],
            // Something behind the end, and an end with another length.
            &[17, 0, 0, 0],
            &[18, 0, 0],
            // A match before the beginning.
            &[0x4c, 0x00, 17, 0, 0],
            &[18, b'x', 0x44, 0x01, 17, 0, 0],
            // A length that never ends.
            &[0; 2000],
        ] {
            assert_eq!(unpacked(wrong, 4096), Err(Corrupt), "{wrong:?}");
        }
    }

    /// Writes streams: any match is written as the instruction that can hold it, so that all kinds occur.
    #[derive(Default)]
    struct Writer {
        packed: Vec<u8>,
        plain: Vec<u8>,
        /// Where the last instruction keeps the number of literals behind it.
        few: Option<usize>,
    }

    impl Writer {
        fn length(&mut self, instruction: u8, len: usize, most: usize) {
            if len <= most {
                return self.packed.push(instruction | len as u8);
            }
            self.packed.push(instruction);
            let mut rest = len - most;
            while rest > 255 {
                self.packed.push(0);
                rest -= 255;
            }
            self.packed.push(rest as u8);
        }

        fn literals(&mut self, bytes: &[u8]) {
            match (self.few, bytes.len()) {
                (_, 0) => return,
                (Some(at), 1..=3) => self.packed[at] |= bytes.len() as u8,
                (None, 1..=238) if self.packed.is_empty() => {
                    self.packed.push(17 + bytes.len() as u8);
                }
                (_, 4..) => self.length(0, bytes.len() - 3, 15),
                // Fewer cannot follow literals.
                _ => return,
            }
            self.packed.extend(bytes);
            self.plain.extend(bytes);
            self.few = None;
        }

        fn repeat(&mut self, distance: usize, len: usize) {
            let distance = 1 + distance % self.plain.len().clamp(1, 49_151);
            if self.plain.len() < distance {
                return;
            }
            let len = match (len, distance) {
                (3..=8, 1..=2048) => {
                    let (low, high) = ((distance - 1) & 7, (distance - 1) >> 3);
                    self.few = Some(self.packed.len());
                    self.packed.push((((len - 1) << 5) | low << 2) as u8);
                    self.packed.push(high as u8);
                    len
                }
                (_, 1..=16_384) => {
                    let len = len.max(3);
                    self.length(32, len - 2, 31);
                    self.few = Some(self.packed.len());
                    self.packed
                        .extend((((distance - 1) << 2) as u16).to_le_bytes());
                    len
                }
                _ => {
                    let len = len.max(3);
                    let distance = distance - 16_384;
                    self.length(16 | (distance >> 11 & 8) as u8, len - 2, 7);
                    self.few = Some(self.packed.len());
                    self.packed.extend(((distance << 2) as u16).to_le_bytes());
                    len
                }
            };
            for _ in 0..len {
                self.plain.push(self.plain[self.plain.len() - distance]);
            }
        }
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_out_and_not_a_byte_more(
            steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..400), any::<usize>(), 2..700_usize), 1..90),
        ) {
            let mut writer = Writer::default();
            for (literals, distance, len) in steps {
                // Sometimes fewer than four, which go into the previous instruction.
                let literals = if distance % 3 == 0 { &literals[..literals.len().min(distance % 5)] } else { &literals };
                writer.literals(literals);
                if !writer.plain.is_empty() {
                    writer.repeat(distance, len);
                }
            }
            writer.packed.extend(END);
            let Writer { packed, plain, .. } = writer;
            let got = unpacked(&packed, plain.len());
            prop_assert_eq!(got.as_deref(), Ok(&plain[..]));
            if !plain.is_empty() {
                prop_assert_eq!(unpacked(&packed, plain.len() - 1), Err(Corrupt));
            }
            for cut in [packed.len() - 1, packed.len() / 2] {
                prop_assert!(unpacked(&packed[..cut], plain.len()).is_err());
            }
        }

        #[test]
        fn anything_at_all_stays_within_the_room(packed in prop::collection::vec(any::<u8>(), 0..300), room in 0..2000_usize) {
            if let Ok(plain) = unpacked(&packed, room) {
                prop_assert!(plain.len() <= room);
            }
        }
    }
}
