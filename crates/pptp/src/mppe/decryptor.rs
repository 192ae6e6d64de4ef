//! Opening packets, with a key each or as one stream.

use crate::mppe::encryptor::ResetStyle;
use crate::mppe::header::OpenError;
use crate::mppe::keys::StartKey;
use crate::mppe::stateful::Stateful;
use crate::mppe::stateless::Stateless;

/// The receiving end of an encrypted direction.
#[derive(Debug)]
// There is one for each call; a box would cost an access for each packet.
#[allow(clippy::large_enum_variant)]
pub enum Decryptor {
    /// Each packet has a key.
    Stateless(Stateless),
    /// All packets are one stream.
    Stateful(Stateful),
}

impl Decryptor {
    /// Nothing received.
    #[must_use]
    pub fn new(key: StartKey, stateless: bool) -> Self {
        if stateless {
            Self::Stateless(Stateless::new(key))
        } else {
            Self::Stateful(Stateful::new(key))
        }
    }

    /// Decrypts a packet in place, behind its header of 2 bytes. `number` is that of GRE, which never wraps; `late` says
    /// that one with a higher number came before.
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

    /// A frame that was not encrypted came in order.
    pub fn unencrypted(&mut self) {
        match self {
            Self::Stateless(stateless) => stateless.unencrypted(),
            Self::Stateful(_) => {}
        }
    }

    /// Whether the peer must be asked to begin anew.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        match self {
            Self::Stateless(_) => false,
            Self::Stateful(stateful) => stateful.is_broken(),
        }
    }

    /// The way in which the peer begins anew; we do likewise.
    #[must_use]
    pub const fn style(&self) -> ResetStyle {
        match self {
            Self::Stateless(_) => ResetStyle::Change,
            Self::Stateful(stateful) => stateful.style(),
        }
    }
}
