//! Preshared keys of one peer, and their names on the wire.

use crypto::{Key, blake2s};

use crate::derivation::Tag;
use crate::message::ExchangeId;

/// Names a preshared key in messages: a hash that does not reveal it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyId(pub [u8; 8]);

impl KeyId {
    /// The name of a key.
    #[must_use]
    pub fn of(key: &Key) -> Self {
        let hash = blake2s::hash(&[b"millrace-pq-key-id-1", key.as_bytes()]);
        let mut id = [0; 8];
        id.copy_from_slice(&hash[..8]);
        Self(id)
    }
}

/// A key and its name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) key: Key,
    pub(crate) id: KeyId,
}

impl From<Key> for Named {
    fn from(key: Key) -> Self {
        let id = KeyId::of(&key);
        Self { key, id }
    }
}

/// A key made by an exchange, with everything that repeats its last messages.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) named: Named,
    pub(crate) exchange: ExchangeId,
    /// The tag of Confirm and Done.
    pub(crate) tag: Tag,
}
