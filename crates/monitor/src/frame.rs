//! Frames between the two processes: a length and a number, four bytes each in network byte order, and then that many
//! bytes of JSON. An answer has its question's number.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

/// Longest question, in bytes: the text of a day is the longest.
pub const QUESTION_MAX: usize = 512 << 10;

/// Longest answer, in bytes: 10,000 peers take about 6 MiB.
pub const ANSWER_MAX: usize = 64 << 20;

/// Bytes of the header: length and number.
const HEAD: usize = 8;

/// One question or answer.
pub struct Frame {
    /// Number of the question that this frame answers.
    pub number: u32,
    /// The JSON, which may contain a password.
    body: Zeroizing<Vec<u8>>,
}

impl Frame {
    /// Makes a frame of a value.
    ///
    /// # Errors
    /// The value is too long.
    pub fn new(number: u32, value: &impl Serialize) -> io::Result<Self> {
        let body = Zeroizing::new(serde_json::to_vec(value)?);
        match body.len() <= ANSWER_MAX {
            true => Ok(Self { number, body }),
            false => Err(too_long()),
        }
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// The JSON is not a `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// Sends the frame.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let length = u32::try_from(self.body.len()).map_err(io::Error::other)?;
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&length.to_be_bytes());
        head[4..].copy_from_slice(&self.number.to_be_bytes());
        stream.write_all(&head)?;
        stream.write_all(&self.body)
    }

    /// Reads a frame of at most `most` bytes; `None` if the stream has ended.
    ///
    /// # Errors
    /// The frame is longer, or ends early.
    pub fn read(stream: &mut impl Read, most: usize) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD];
        match stream.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let [a, b, c, d, number @ ..] = head;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > most {
            return Err(too_long());
        }
        // The buffer grows with the bytes that arrive, not with the announced length.
        let mut body = Zeroizing::new(Vec::new());
        stream.take(length as u64).read_to_end(&mut body)?;
        match body.len() == length {
            true => Ok(Some(Self {
                number: u32::from_be_bytes(number),
                body,
            })),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message that is too long")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::Question;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_is_read() {
        let mut bytes = Vec::new();
        for (number, question) in [
            (7, Question::Begin),
            (u32::MAX, Question::Keep("day".to_owned())),
        ] {
            Frame::new(number, &question)
                .unwrap()
                .write(&mut bytes)
                .unwrap();
        }
        let mut rest = &bytes[..];
        let first = Frame::read(&mut rest, QUESTION_MAX).unwrap().unwrap();
        assert_eq!(first.number, 7);
        assert_eq!(first.parse::<Question>().unwrap(), Question::Begin);
        let second = Frame::read(&mut rest, QUESTION_MAX).unwrap().unwrap();
        assert_eq!(second.number, u32::MAX);
        assert!(Frame::read(&mut rest, QUESTION_MAX).unwrap().is_none());
        assert!(Frame::read(&mut &bytes[..12], QUESTION_MAX).is_err());
        assert!(Frame::read(&mut &bytes[..], 3).is_err());
    }

    proptest! {
        /// Any bytes are read without a panic, and no more is allocated than the smaller of the bytes that came and the
        /// bound.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), most in 0..100_usize) {
            let mut rest = &bytes[..];
            while let Ok(Some(frame)) = Frame::read(&mut rest, most) {
                prop_assert!(frame.body.len() <= most);
                let _ = frame.parse::<Question>();
            }
        }
    }
}
