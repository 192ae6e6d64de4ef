//! Encrypts packets (RFC 3078, section 3).

use crate::mppe::header::{HEADER_LEN, Header};
use crate::mppe::keys::{SessionKey, StartKey};
use crypto::Rc4;

/// How a stateful sender restarts the stream at the peer's request.
///
/// RFC 3078 restarts the stream with the present key, as FreeBSD does. Linux changes the key first, both as sender and
/// as receiver. A [`Decryptor`](super::Decryptor) understands both, and reports which one the peer uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetStyle {
    /// The sender changes the key.
    #[default]
    Change,
    /// The sender keeps the key.
    Keep,
}

/// The sending end of an encrypted direction.
#[derive(Debug)]
pub struct Encryptor {
    key: SessionKey,
    cipher: Rc4,
    stateless: bool,
    /// The count of the next packet.
    count: u16,
    /// Whether the next packet restarts the stream.
    flush: bool,
    style: ResetStyle,
}

impl Encryptor {
    /// An encryptor before its first packet.
    #[must_use]
    pub fn new(key: StartKey, stateless: bool) -> Self {
        let key = key.session_key();
        Self {
            cipher: key.cipher(),
            key,
            stateless,
            count: 0,
            flush: false,
            style: ResetStyle::default(),
        }
    }

    /// Encrypts `frame`, the inner protocol field and packet, in place. Returns the header to put in front.
    pub fn seal(&mut self, frame: &mut [u8]) -> [u8; HEADER_LEN] {
        // RFC 3078, sections 8.1 and 8.2: the key changes with every packet, or with every 256th.
        let change = self.stateless || self.count & 0xff == 0xff;
        if change || self.flush {
            if change || self.style == ResetStyle::Change {
                self.key.change(&mut self.cipher);
            }
            self.cipher.set_key(self.key.as_bytes());
        }
        let header = Header {
            flushed: change || self.flush,
            count: self.count,
        };
        self.flush = false;
        self.count = (self.count + 1) & 0x0fff;
        self.cipher.apply(frame);
        header.to_bytes()
    }

    /// Restarts the stream with the next packet, at the peer's request (RFC 3078, section 8.2). Repeated requests
    /// change the key once per packet. Stateless mode needs no restart.
    pub fn reset(&mut self, style: ResetStyle) {
        self.style = style;
        self.flush = !self.stateless;
    }
}
