//! Encrypting packets (RFC 3078, section 3).

use crate::mppe::header::{HEADER_LEN, Header};
use crate::mppe::keys::{SessionKey, StartKey};
use crypto::Rc4;

/// The way in which a stateful sender begins anew when the peer asks.
///
/// RFC 3078 has the stream begin again with the present key, as FreeBSD does. Linux changes the key first, both as sender
/// and as receiver. A [`Decryptor`](super::Decryptor) understands both and tells which it has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetStyle {
    /// The key is changed.
    #[default]
    Change,
    /// The key stays.
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
    /// Whether the next packet begins anew.
    flush: bool,
    style: ResetStyle,
}

impl Encryptor {
    /// Nothing sent yet.
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

    /// Encrypts `frame`, the inner protocol field and packet, in place. What comes back goes before it.
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

    /// The peer has asked to begin anew (RFC 3078, section 8.2): the next packet does. However often it asks, the key
    /// changes once a packet. Where each packet has a key of its own there is nothing to do.
    pub fn reset(&mut self, style: ResetStyle) {
        self.style = style;
        self.flush = !self.stateless;
    }
}
