//! Records: packets over TCP as `length:u16, packet`, big-endian.

use plane::Record;

/// Bytes in front of the packet.
pub const HEADER_LEN: usize = 2;

/// The header of a packet of `len` bytes.
#[must_use]
pub const fn header(len: u16) -> [u8; HEADER_LEN] {
    len.to_be_bytes()
}

/// A packet as a record; `None` where its length does not fit into 16 bits.
#[must_use]
pub fn of(packet: &[u8]) -> Option<Vec<u8>> {
    let len = u16::try_from(packet.len()).ok()?;
    Some([&header(len), packet].concat())
}

/// The record that `bytes` begin with. A length of 0, which stock does not send either, or above `longest` is
/// malformed.
#[must_use]
pub fn next(bytes: &[u8], longest: usize) -> Record {
    let Some(len) = bytes.first_chunk() else {
        return Record::Partial;
    };
    let len = usize::from(u16::from_be_bytes(*len));
    if len == 0 || len > longest {
        Record::Malformed
    } else if HEADER_LEN + len <= bytes.len() {
        Record::Whole { len }
    } else {
        Record::Partial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_whole_or_awaited_or_refused() {
        assert_eq!(next(&[], 10), Record::Partial);
        assert_eq!(next(&[0], 10), Record::Partial);
        assert_eq!(next(&[0, 3, 1, 2], 10), Record::Partial);
        assert_eq!(next(&[0, 3, 1, 2, 3, 9], 10), Record::Whole { len: 3 });
        assert_eq!(next(&[0, 0, 1], 10), Record::Malformed, "empty");
        assert_eq!(
            next(&[0, 11], 10),
            Record::Malformed,
            "refused before its bytes come"
        );
    }

    #[test]
    fn what_is_too_long_is_no_record() {
        assert_eq!(of(&[7; 3]), Some(vec![0, 3, 7, 7, 7]));
        let longest = of(&[7; 65_535]).unwrap();
        assert_eq!(next(&longest, 65_535), Record::Whole { len: 65_535 });
        assert_eq!(of(&[7; 65_536]), None);
    }
}
