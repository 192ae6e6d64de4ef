//! Packets that look like another protocol's, written in tags (`<b 0xc0ff><t><r 16>`).

use core::fmt;

use crypto::unpredictable;

use super::{Fault, PACKET_MAX};

/// The beginning of the packet that Amnezia's apps give to every server: a DNS answer about `icloud.com`.
const KNOWN: &[u8] = b"\x85\x80\0\x01\0\x01\0\0\0\0\x06icloud\x03com";

/// A packet to be sent before an initiation.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    text: Box<str>,
    tags: Box<[Tag]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tag {
    Bytes(Box<[u8]>),
    Random(usize),
    Letters(usize),
    Digits(usize),
    /// The time of day in seconds since 1970, big-endian.
    Time,
    /// The packet's number, big-endian.
    Count,
    Zeros(usize),
}

impl Tag {
    /// Bytes of the tag, whose time and count take `stamp` bytes.
    fn len(&self, stamp: usize) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Random(len) | Self::Letters(len) | Self::Digits(len) | Self::Zeros(len) => *len,
            Self::Time | Self::Count => stamp,
        }
    }
}

impl Template {
    /// Parses a packet of tags. Text outside tags counts for nothing, as in other programs.
    ///
    /// # Errors
    /// [`Fault::Tag`], [`Fault::Hex`], [`Fault::Length`] or [`Fault::Long`].
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let (mut tags, mut rest) = (Vec::new(), text);
        while let Some((_, after)) = rest.split_once('<') {
            let (tag, after) = after.split_once('>').ok_or(Fault::Unclosed)?;
            rest = after;
            tags.extend(self::tag(tag)?);
        }
        let template = Self {
            text: text.into(),
            tags: tags.into(),
        };
        match template.len(8) {
            0 => Err(Fault::Empty),
            1..=PACKET_MAX => Ok(template),
            _ => Err(Fault::Long),
        }
    }

    /// The text that was parsed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Bytes of the packet, whose times and counts take `stamp` bytes.
    #[must_use]
    pub fn len(&self, stamp: usize) -> usize {
        self.tags.iter().map(|tag| tag.len(stamp)).sum()
    }

    /// Whether all bytes are the same in each packet.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.tags
            .iter()
            .all(|tag| matches!(tag, Tag::Bytes(_) | Tag::Zeros(_)))
    }

    /// Whether the packet is the default of Amnezia's apps.
    #[must_use]
    pub fn is_known(&self) -> bool {
        let is_known = |tag: &Tag| matches!(tag, Tag::Bytes(bytes) if bytes.starts_with(KNOWN));
        self.tags.iter().any(is_known)
    }

    /// Makes a packet; its times and counts take `stamp` bytes, 4 or 8.
    #[must_use]
    pub fn emit(&self, unix: u64, count: u32, stamp: usize) -> Box<[u8]> {
        let mut packet = Vec::with_capacity(self.len(stamp));
        let number = |packet: &mut Vec<u8>, value: u64| {
            packet.extend_from_slice(&value.to_be_bytes()[8 - stamp..]);
        };
        for tag in &self.tags {
            let start = packet.len();
            match tag {
                Tag::Bytes(bytes) => packet.extend_from_slice(bytes),
                Tag::Time => number(&mut packet, unix),
                Tag::Count => number(&mut packet, count.into()),
                Tag::Random(len) | Tag::Letters(len) | Tag::Digits(len) | Tag::Zeros(len) => {
                    packet.resize(start + len, 0);
                }
            }
            let bytes = &mut packet[start..];
            match tag {
                Tag::Random(_) => fill(bytes),
                Tag::Letters(_) => choose(
                    bytes,
                    |at| {
                        if at < 26 { b'a' + at } else { b'A' + at - 26 }
                    },
                    52,
                ),
                Tag::Digits(_) => choose(bytes, |at| b'0' + at, 10),
                _ => {}
            }
        }
        packet.into()
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Fills `bytes` at random.
pub(super) fn fill(bytes: &mut [u8]) {
    unpredictable(|fill| bytes.chunks_mut(64).for_each(fill));
}

/// Fills `bytes` with random ones of `count` values.
fn choose(bytes: &mut [u8], value: impl Fn(u8) -> u8, count: u16) {
    fill(bytes);
    for byte in bytes {
        // Less than `count`, which is less than 256.
        *byte = value(((u16::from(*byte) * count) >> 8) as u8);
    }
}

/// Parses a tag without its brackets; `None` for a tag that adds nothing.
fn tag(text: &str) -> Result<Option<Tag>, Fault> {
    let mut words = text.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let argument = words.next();
    let length = || {
        let length = argument.and_then(super::range::decimal);
        length.filter(|&len| len <= PACKET_MAX).ok_or(Fault::Length)
    };
    Ok(Some(match name {
        "b" => Tag::Bytes(bytes(argument.unwrap_or_default())?),
        "r" => Tag::Random(length()?),
        "rc" => Tag::Letters(length()?),
        "rd" => Tag::Digits(length()?),
        "t" => Tag::Time,
        "c" => Tag::Count,
        "dz" => Tag::Zeros(length()?),
        // Data of the tunnel, of which these packets have none; and a pause, which would stop the other peers too.
        "d" | "ds" | "wt" => return Ok(None),
        _ => return Err(Fault::Tag),
    }))
}

/// Parses hexadecimal bytes, with or without `0x`. An odd number of digits begins with half a byte.
fn bytes(text: &str) -> Result<Box<[u8]>, Fault> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let whole = digits.len() % 2;
    let (half, pairs) = digits.split_at(whole);
    let half = half.iter().map(|&byte| digit(byte));
    let pairs = pairs
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    let bytes: Option<Box<[u8]>> = half.chain(pairs).collect();
    bytes.filter(|bytes| !bytes.is_empty()).ok_or(Fault::Hex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_become_bytes() {
        let packet = Template::parse("<b 0xc0ffee> <t>x<c><dz 2><b abc><d><wt 10>").unwrap();
        assert_eq!(packet.len(4), 3 + 4 + 4 + 2 + 2);
        let bytes = packet.emit(0x1_0203_0405, 7, 4);
        assert_eq!(
            bytes[..],
            [0xc0, 0xff, 0xee, 2, 3, 4, 5, 0, 0, 0, 7, 0, 0, 0x0a, 0xbc]
        );
        let long = Template::parse("<t><c>").unwrap().emit(0x1_0203_0405, 7, 8);
        assert_eq!(long[..], [0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn letters_and_digits_are_that() {
        let packet = Template::parse("<rc 4000><rd 4000><r 4000>").unwrap();
        let bytes = packet.emit(0, 0, 4);
        let (letters, rest) = bytes.split_at(4000);
        assert!(letters.iter().all(u8::is_ascii_alphabetic));
        for letter in [b'a', b'z', b'A', b'Z'] {
            assert!(letters.contains(&letter));
        }
        let (digits, random) = rest.split_at(4000);
        assert!(digits.iter().all(u8::is_ascii_digit));
        assert!(digits.contains(&b'0') && digits.contains(&b'9'));
        assert!(random.iter().any(|byte| !byte.is_ascii()));
        assert!(!packet.is_constant() && Template::parse("<b 00>").unwrap().is_constant());
    }

    #[test]
    fn faults_are_named() {
        for (text, fault) in [
            ("", Fault::Empty),
            ("words", Fault::Empty),
            ("<d>", Fault::Empty),
            ("<b 0x", Fault::Unclosed),
            ("<b>", Fault::Hex),
            ("<b 0x>", Fault::Hex),
            ("<b 0xzz>", Fault::Hex),
            ("<r>", Fault::Length),
            ("<r -1>", Fault::Length),
            ("<r 65508>", Fault::Length),
            ("<r 65507><t>", Fault::Long),
            ("<q 3>", Fault::Tag),
            ("<>", Fault::Tag),
        ] {
            assert_eq!(Template::parse(text), Err(fault), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_packet_of_its_length_or_a_fault(text in "[<>brcdtzw 0-9a-fx-]{0,40}") {
            if let Ok(packet) = Template::parse(&text) {
                prop_assert_eq!(packet.emit(1, 2, 4).len(), packet.len(4));
                prop_assert_eq!(Template::parse(packet.text()), Ok(packet));
            }
        }
    }
}
