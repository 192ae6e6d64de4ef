//! Packets in a TCP stream: each after its length, in two bytes, big-endian.

use thiserror::Error;

/// Bytes of the length.
pub const PREFIX_LEN: usize = 2;

/// The length before a packet; `None` if it is empty or longer than a length can say.
#[must_use]
pub fn prefix(packet: &[u8]) -> Option<[u8; PREFIX_LEN]> {
    match u16::try_from(packet.len()) {
        Ok(0) | Err(_) => None,
        Ok(len) => Some(len.to_be_bytes()),
    }
}

/// What stands at the front of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A whole packet of this many bytes, after its length.
    Packet(usize),
    /// The first so many bytes must be there before more can be said.
    Need(usize),
}

/// A length that no packet has: the other end speaks something else, and the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a packet of {len} bytes in the TCP stream, not 1 to {most}; does the other end speak OpenVPN?"
)]
pub struct BadLength {
    /// What the stream says.
    pub len: usize,
    /// Bytes of the longest packet.
    pub most: usize,
}

/// Looks at the front of what was received. Packets have at most `most` bytes.
///
/// # Errors
/// If the length is 0 or more than `most`.
pub fn front(received: &[u8], most: usize) -> Result<Front, BadLength> {
    let Some((prefix, rest)) = received.split_first_chunk() else {
        return Ok(Front::Need(PREFIX_LEN));
    };
    let len = usize::from(u16::from_be_bytes(*prefix));
    if len == 0 || len > most {
        return Err(BadLength { len, most });
    }
    Ok(if rest.len() < len {
        Front::Need(PREFIX_LEN + len)
    } else {
        Front::Packet(len)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_at_a_time() {
        let stream = [0, 3, 7, 8, 9, 0, 1, 5];
        assert_eq!(front(&[], 100), Ok(Front::Need(2)));
        assert_eq!(front(&stream[..1], 100), Ok(Front::Need(2)));
        for len in 2..5 {
            assert_eq!(front(&stream[..len], 100), Ok(Front::Need(5)));
        }
        assert_eq!(front(&stream, 100), Ok(Front::Packet(3)));
        assert_eq!(front(&stream[5..], 100), Ok(Front::Packet(1)));
        assert_eq!(prefix(&stream[2..5]), Some([0, 3]));
    }

    #[test]
    fn impossible_lengths() {
        assert_eq!(front(&[0, 0], 100), Err(BadLength { len: 0, most: 100 }));
        assert!(front(&[0, 101], 100).is_err());
        assert_eq!(front(&[0, 100], 100), Ok(Front::Need(102)));
        // What a browser says first.
        assert!(front(b"GET / HTTP/1.1\r\n", 2048).is_err());
        assert_eq!(prefix(&[]), None);
        assert_eq!(prefix(&vec![0; 65536]), None);
    }
}
