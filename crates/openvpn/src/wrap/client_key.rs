//! Wrapped client keys of tls-crypt-v2: WKc, at the end of a client's first packets.
//!
//! Everything here comes from a sender that is not authenticated yet. The length field is compared with the actual
//! length before use, and every size is bounded.

use thiserror::Error;
use zeroize::Zeroizing;

use crate::keyfile::StaticKey;
use crate::keyfile::v2::{MAX_WRAPPED_LEN, MIN_WRAPPED_LEN, Metadata, ServerKey};
use crate::wrap::tls_crypt::{SyntheticIv, TAG_LEN};

/// Bytes of the length field.
const LENGTH: usize = 2;

/// A server's key, ready to wrap and unwrap the keys of clients.
#[derive(Debug)]
pub(crate) struct Wrapper(SyntheticIv);

impl Wrapper {
    pub(crate) fn new(key: &ServerKey) -> Self {
        Self(SyntheticIv::new(key.cipher(), key.hmac()))
    }

    /// Wraps a client's key; `None` if the metadata does not fit.
    pub(crate) fn wrap(&self, key: &StaticKey, metadata: &Metadata) -> Option<Vec<u8>> {
        let len = MIN_WRAPPED_LEN + metadata.as_wire().len();
        if len > MAX_WRAPPED_LEN {
            return None;
        }
        // At most 1024.
        let length = (len as u16).to_be_bytes();
        let mut text = Zeroizing::new([&key.as_bytes()[..], metadata.as_wire()].concat());
        let tag = self.0.seal(&length, &mut text);
        Some([&tag[..], &text, &length].concat())
    }

    /// Unwraps a client's key.
    ///
    /// # Errors
    /// If its length is out of bounds or not what its field says, or if it was not wrapped with this server's key.
    pub(crate) fn unwrap(&self, wrapped: &[u8]) -> Result<(StaticKey, Metadata), ClientKeyError> {
        if wrapped.len() < MIN_WRAPPED_LEN || wrapped.len() > MAX_WRAPPED_LEN {
            return Err(ClientKeyError::Length);
        }
        let (sealed, length) = wrapped
            .split_last_chunk::<LENGTH>()
            .ok_or(ClientKeyError::Length)?;
        if usize::from(u16::from_be_bytes(*length)) != wrapped.len() {
            return Err(ClientKeyError::Length);
        }
        let (tag, text) = sealed
            .split_first_chunk::<TAG_LEN>()
            .ok_or(ClientKeyError::Length)?;
        let mut text = Zeroizing::new(text.to_vec());
        if !self.0.open(length, tag, &mut text) {
            return Err(ClientKeyError::NotAuthentic);
        }
        let (key, metadata) = text.split_first_chunk().ok_or(ClientKeyError::Length)?;
        Ok((StaticKey::new(key), Metadata::from_wire(metadata)))
    }
}

/// Divides a packet into the part that is wrapped by tls-crypt and the wrapped client key at its end.
///
/// # Errors
/// If the length at the end is that of no wrapped key, or leaves no room for the packet's head.
pub(super) fn split(packet: &[u8], head: usize) -> Result<(&[u8], &[u8]), ClientKeyError> {
    let length = packet
        .last_chunk::<LENGTH>()
        .ok_or(ClientKeyError::Length)?;
    let length = usize::from(u16::from_be_bytes(*length));
    if !(MIN_WRAPPED_LEN..=MAX_WRAPPED_LEN).contains(&length) {
        return Err(ClientKeyError::Length);
    }
    let at = packet
        .len()
        .checked_sub(length)
        .filter(|&at| at >= head)
        .ok_or(ClientKeyError::Length)?;
    Ok(packet.split_at(at))
}

/// Why a wrapped client key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientKeyError {
    /// The key's length is out of bounds, or differs from its length field.
    #[error("wrapped client key of an impossible length")]
    Length,
    /// The client key was wrapped with the key of another server, or it is forged.
    #[error("wrapped client key is not of this server")]
    NotAuthentic,
    /// The client key is older than `tls-crypt-v2-max-age` allows, or does not say how old it is.
    #[error("client key is too old, or does not say when it was made; make the client a new one")]
    TooOld,
    /// The server has no tls-crypt-v2 key.
    #[error("a client with a tls-crypt-v2 key, and this server has none")]
    NotConfigured,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrapper() -> Wrapper {
        Wrapper::new(&ServerKey::new(&[0x5a; 128]))
    }

    fn wrapped(metadata: &Metadata) -> Vec<u8> {
        wrapper()
            .wrap(&StaticKey::new(&[0xc3; 256]), metadata)
            .unwrap()
    }

    /// A length field that claims more than there is, or less than a key has, must not reach the arithmetic: the bugs
    /// CVE-2026-35058, CVE-2026-12932 and CVE-2026-13698 of OpenVPN were of this kind.
    #[test]
    fn cve_2026_35058_length_fields_that_lie() {
        let good = wrapped(&Metadata::default());
        let packet = [&[0x50; 53][..], &good].concat();
        assert_eq!(split(&packet, 9).unwrap().1, good);
        for length in [
            0, 1, 2, 33, 34, 289, 291, 343, 344, 1023, 1024, 1025, 0x7fff, 0x8000, 0xffff_u16,
        ] {
            let mut packet = packet.clone();
            let at = packet.len() - 2;
            packet[at..].copy_from_slice(&length.to_be_bytes());
            let result = split(&packet, 9).and_then(|(_, wkc)| wrapper().unwrap(wkc));
            assert!(result.is_err(), "length {length}");
        }
        for len in 0..packet.len() {
            let result = split(&packet[packet.len() - len..], 9);
            assert!(result.is_err() || len >= good.len() + 9, "{len} bytes");
        }
        for len in 0..good.len() {
            assert!(wrapper().unwrap(&good[..len]).is_err());
            assert!(wrapper().unwrap(&good[good.len() - len..]).is_err());
        }
    }

    /// A tagged but too short key: authentic, so made by a holder of the server's key, and still refused.
    #[test]
    fn cve_2026_12932_short_keys() {
        for body in [0, 1, 255] {
            let len = TAG_LEN + body + LENGTH;
            let length = (len as u16).to_be_bytes();
            let mut text = vec![1; body];
            let tag = wrapper().0.seal(&length, &mut text);
            let wkc = [&tag[..], &text, &length].concat();
            assert_eq!(wrapper().unwrap(&wkc).unwrap_err(), ClientKeyError::Length);
        }
    }

    #[test]
    fn of_another_server() {
        let other = Wrapper::new(&ServerKey::new(&[0x5b; 128]));
        let wkc = wrapped(&Metadata::user(b"x"));
        assert_eq!(
            other.unwrap(&wkc).unwrap_err(),
            ClientKeyError::NotAuthentic
        );
        for at in 0..wkc.len() {
            let mut damaged = wkc.clone();
            damaged[at] ^= 1;
            assert!(wrapper().unwrap(&damaged).is_err(), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn anything_at_all(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
            let _ = split(&bytes, 9);
            prop_assert!(wrapper().unwrap(&bytes).is_err());
        }
    }
}
