//! Microsoft Point-to-Point Encryption (RFC 3078), with keys from MS-CHAP version 2 (RFC 3079).
//!
//! MPPE is RC4 without an integrity check. An attacker on the path can flip bits of packets, and of the count that
//! keeps both ends in step. A decrypted packet is only known to look like an IP packet.
//!
//! | bytes | field |
//! |---|---|
//! | 2 | bits A (flushed), B, C (compressed), D (encrypted), and a count of 12 bits |
//! | 1 to 2 | the inner frame's protocol, encrypted |
//! | rest | the inner packet, encrypted |

mod header;
mod keys;
mod stateful;
mod stateless;

use crypto::Rc4;

pub use header::{HEADER_LEN, Header, OVERHEAD, OpenError};
pub use keys::{KeyLength, MasterKey, SessionKey, StartKey};
pub use stateful::{ResetStyle, Stateful};
pub use stateless::{BEHIND, MAX_AHEAD, Stateless};

/// The sending end of an encrypted direction (RFC 3078, section 3).
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

/// The receiving end of an encrypted direction.
#[derive(Debug)]
// Each call has one decryptor; a box would add an access per packet.
#[allow(clippy::large_enum_variant)]
pub enum Decryptor {
    /// Each packet has its own key.
    Stateless(Stateless),
    /// All packets are one stream.
    Stateful(Stateful),
}

impl Decryptor {
    /// A decryptor before its first packet.
    #[must_use]
    pub fn new(key: StartKey, stateless: bool) -> Self {
        if stateless {
            Self::Stateless(Stateless::new(key))
        } else {
            Self::Stateful(Stateful::new(key))
        }
    }

    /// Decrypts a packet in place, after its header of 2 bytes. `number` is the GRE number, which never wraps; `late`
    /// if a higher number came before.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        &mut self,
        number: u64,
        late: bool,
        information: &mut [u8],
    ) -> Result<(), OpenError> {
        match self {
            Self::Stateless(stateless) => stateless.open(number, information),
            Self::Stateful(_) if late => Err(OpenError::Late),
            Self::Stateful(stateful) => stateful.open(information),
        }
    }

    /// Records an unencrypted frame that arrived in order.
    pub fn unencrypted(&mut self) {
        match self {
            Self::Stateless(stateless) => stateless.unencrypted(),
            Self::Stateful(_) => {}
        }
    }

    /// Whether the peer must be asked to restart the stream.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        match self {
            Self::Stateless(_) => false,
            Self::Stateful(stateful) => stateful.is_broken(),
        }
    }

    /// How the peer restarts its stream; our encryptor does the same.
    #[must_use]
    pub const fn style(&self) -> ResetStyle {
        match self {
            Self::Stateless(_) => ResetStyle::Change,
            Self::Stateful(stateful) => stateful.style(),
        }
    }
}
