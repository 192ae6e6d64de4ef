//! Decrypts packets, in stateless or stateful mode.

use crate::mppe::encryptor::ResetStyle;
use crate::mppe::header::OpenError;
use crate::mppe::keys::StartKey;
use crate::mppe::stateful::Stateful;
use crate::mppe::stateless::Stateless;

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

    /// Notes an unencrypted frame that arrived in order.
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
