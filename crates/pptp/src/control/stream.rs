//! Splits a TCP byte stream into messages (RFC 2637, section 2).

use crate::control::message::{HEADER_LEN, MAX_LEN, Message, MessageError, length};

/// Reassembles messages from TCP segments. Holds at most one message, in place.
#[derive(Debug)]
pub struct Stream {
    bytes: [u8; MAX_LEN],
    /// Invariant: at most `MAX_LEN`.
    len: usize,
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream {
    /// A stream that has read no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; MAX_LEN],
            len: 0,
        }
    }

    /// Takes bytes from the front of `input` until a message is complete; `None` when `input` ends before that.
    ///
    /// # Errors
    /// If [`MessageError::in_step`], the stream skipped that message and the next call continues. Otherwise the
    /// connection must be closed, and each further call returns the same error.
    pub fn next(&mut self, input: &mut &[u8]) -> Option<Result<Message, MessageError>> {
        self.fill(HEADER_LEN, input);
        let header = self
            .bytes
            .first_chunk()
            .filter(|_| self.len >= HEADER_LEN)?;
        let whole = match length(header) {
            Ok(whole) => whole,
            Err(error) => return Some(Err(error)),
        };
        self.fill(whole, input);
        if self.len < whole {
            return None;
        }
        self.len = 0;
        Some(Message::parse(&self.bytes[..whole]))
    }

    /// Bytes of the incomplete message.
    #[must_use]
    pub const fn pending(&self) -> usize {
        self.len
    }

    /// Moves bytes from `input` until the buffer has `wanted`, which is at most `MAX_LEN`.
    fn fill(&mut self, wanted: usize, input: &mut &[u8]) {
        let missing = wanted.saturating_sub(self.len).min(input.len());
        let (taken, rest) = input.split_at(missing);
        self.bytes[self.len..][..missing].copy_from_slice(taken);
        self.len += missing;
        *input = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(identifier: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        Message::EchoRequest { identifier }.write(&mut bytes);
        bytes
    }

    #[test]
    fn messages_are_the_same_however_they_are_cut() {
        let bytes = [echo(1), echo(2), echo(3)].concat();
        for size in 1..bytes.len() {
            let mut stream = Stream::new();
            let mut found = Vec::new();
            for mut part in bytes.chunks(size) {
                while let Some(message) = stream.next(&mut part) {
                    found.push(message.unwrap());
                }
            }
            let expected = [1, 2, 3].map(|identifier| Message::EchoRequest { identifier });
            assert_eq!(found, expected, "parts of {size} bytes");
            assert_eq!(stream.pending(), 0);
        }
    }

    #[test]
    fn an_unknown_kind_is_skipped_and_a_wrong_cookie_is_for_good() {
        let mut bytes = echo(1);
        bytes[9] = 99;
        bytes.extend(echo(2));
        bytes.extend([0, 16, 0, 1, 0x2a, 0x2b, 0x3c, 0x4d, 0, 5, 0, 0]);
        bytes.extend([0; 4]);
        let mut stream = Stream::new();
        let mut input = bytes.as_slice();
        assert_eq!(stream.next(&mut input), Some(Err(MessageError::Kind(99))));
        assert!(matches!(
            stream.next(&mut input),
            Some(Ok(Message::EchoRequest { identifier: 2 }))
        ));
        for _ in 0..2 {
            let found = stream.next(&mut input);
            assert_eq!(found, Some(Err(MessageError::Cookie(0x2a2b_3c4d))));
        }
    }

    #[test]
    fn a_length_that_no_message_has_is_refused_before_anything_is_stored() {
        for len in [0_u16, 11, 221, u16::MAX] {
            let mut bytes = echo(1);
            bytes[..2].copy_from_slice(&len.to_be_bytes());
            let mut stream = Stream::new();
            assert_eq!(
                stream.next(&mut bytes.as_slice()),
                Some(Err(MessageError::Length(len)))
            );
        }
    }
}
