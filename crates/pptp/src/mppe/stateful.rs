//! Decrypts packets of one RC4 stream (RFC 3078, section 8.2): each loss breaks the stream until the sender restarts
//! it.

use crate::mppe::header::{GLANCE, HEADER_LEN, Header, OpenError, looks_like_ip};
use crate::mppe::keys::{SessionKey, StartKey};
use crypto::Rc4;

/// Key changes tried when the sender restarts: one for each lost restart.
const MAX_CHANGES: u8 = 6;
/// Consecutive garbled packets after which the stream counts as broken.
const MAX_GARBLED: u8 = 8;

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

/// The receiving end of a stateful direction.
#[derive(Debug)]
pub struct Stateful {
    key: SessionKey,
    cipher: Rc4,
    /// The count of the next packet.
    next: u16,
    broken: bool,
    garbled: u8,
    style: ResetStyle,
}

impl Stateful {
    /// A receiver before its first packet.
    #[must_use]
    pub fn new(key: StartKey) -> Self {
        let key = key.session_key();
        Self {
            cipher: key.cipher(),
            key,
            next: 0,
            broken: false,
            garbled: 0,
            style: ResetStyle::default(),
        }
    }

    /// Decrypts a packet in place, after its header. Callers must drop late packets, which would break the stream.
    ///
    /// # Errors
    /// See [`OpenError`]; after [`OpenError::Lost`] a Reset-Request is to be sent, and again from time to time while
    /// [`is_broken`](Self::is_broken).
    pub fn open(&mut self, information: &mut [u8]) -> Result<(), OpenError> {
        let header = Header::parse(information)?;
        let body = &mut information[HEADER_LEN..];
        let lost = header.count != self.next || self.broken;
        if lost && !header.flushed {
            let first = !self.broken;
            self.broken = true;
            return Err(if first {
                OpenError::Lost
            } else {
                OpenError::Waiting
            });
        }
        if header.flushed {
            self.begin_anew(header.count, body)?;
        } else if header.count & 0xff == 0xff {
            // Linux sets bit A on this packet; FreeBSD changes the key without it.
            self.key.change(&mut self.cipher);
            self.cipher.set_key(self.key.as_bytes());
        }
        self.next = (header.count + 1) & 0x0fff;
        self.cipher.apply(body);
        if looks_like_ip(body) {
            self.garbled = 0;
            return Ok(());
        }
        self.garbled += 1;
        if self.garbled < MAX_GARBLED {
            return Err(OpenError::Garbled);
        }
        self.garbled = 0;
        self.broken = true;
        Err(OpenError::Lost)
    }

    /// Finds the key that a packet with bit A begins with.
    fn begin_anew(&mut self, count: u16, body: &[u8]) -> Result<(), OpenError> {
        let mut base = self.key.clone();
        let mut cipher = base.cipher();
        let mut at = self.next;
        while at != count {
            if at & 0xff == 0xff {
                base.change(&mut cipher);
            }
            at = (at + 1) & 0x0fff;
        }
        let scheduled = count & 0xff == 0xff;
        let kept_first = self.style == ResetStyle::Keep;
        // Numbers of key changes to try, likeliest first.
        let likeliest = match (scheduled, kept_first) {
            (true, _) | (false, false) => [1, 0],
            (false, true) => [0, 1],
        };
        let skipped = usize::from(scheduled);
        let tried = &likeliest[..likeliest.len() - skipped];
        for changes in tried.iter().copied().chain(2..=MAX_CHANGES) {
            let mut key = base.clone();
            for _ in 0..changes {
                key.change(&mut cipher);
            }
            let mut glance = [0; GLANCE];
            let seen = body.len().min(GLANCE);
            glance[..seen].copy_from_slice(&body[..seen]);
            cipher.set_key(key.as_bytes());
            cipher.apply(&mut glance[..seen]);
            if looks_like_ip(&glance[..seen]) {
                match (scheduled, changes) {
                    (false, 0) => self.style = ResetStyle::Keep,
                    (false, 1) => self.style = ResetStyle::Change,
                    _ => {}
                }
                self.cipher.set_key(key.as_bytes());
                self.key = key;
                self.broken = false;
                return Ok(());
            }
        }
        let first = !self.broken;
        self.broken = true;
        Err(if first {
            OpenError::Lost
        } else {
            OpenError::Garbled
        })
    }

    /// Whether the sender must restart the stream.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// How the sender restarts the stream.
    #[must_use]
    pub const fn style(&self) -> ResetStyle {
        self.style
    }
}
