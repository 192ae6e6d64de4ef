//! OpenVPN's keys as a data plane takes them: material, our names for sessions, and the limits of keys.

use super::cipher::CipherError;
use super::format::{DataFormat, Shape};
use super::wire::{KEYS_PER_PEER, Layout, OpenVpn};
use crate::session::{self, DataKeys};
use plane::{CipherName, Formats, KeyLimits, PeerId, Protocol, SessionKeys};
use std::time::{Duration, Instant};
use zeroize::ZeroizeOnDrop;

/// The lifetime of keys in the data plane: without end, as the session itself removes keys.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The packet id within a packet's number, whose upper 16 bits are the epoch where there is one.
const PACKET_ID: u64 = (1 << 48) - 1;

/// The material of one negotiation's formats.
pub struct Material {
    /// The keys of both directions. Each direction erases itself when it is dropped.
    pub keys: Box<DataKeys>,
    /// The form of this peer's packets, with any of its keys.
    pub shape: Shape,
    /// Ciphers and digests that are not secure any more may be used.
    pub allow_insecure: bool,
}

// The secrets in it erase themselves, see `keys`.
impl ZeroizeOnDrop for Material {}

impl Protocol for OpenVpn {
    type Keys = Material;
    type Error = CipherError;

    fn formats(&self, material: &Material) -> Result<Formats, CipherError> {
        let Material {
            keys,
            shape,
            allow_insecure,
        } = material;
        let (seal, open) = DataFormat::pair(keys, shape, *allow_insecure)?;
        let (cipher, backend) = seal.cipher();
        Ok(Formats {
            seal,
            open,
            cipher: CipherName { cipher, backend },
        })
    }
}

/// Our name for a peer's session under the keys with this key id. The name for key id 0, the peer's first keys, goes to
/// [`DataPlane::set_sender`](plane::DataPlane::set_sender).
#[must_use]
pub const fn session(peer: PeerId, key_id: u8) -> u32 {
    peer.0 * KEYS_PER_PEER + key_id as u32
}

/// The keys of a peer for [`DataPlane::add_keys`](plane::DataPlane::add_keys).
#[must_use]
pub fn session_keys(peer: PeerId, material: Material, now: Instant) -> SessionKeys<Material> {
    let session = session(peer, material.keys.key_id);
    let limits = limits(material.keys.layout, now);
    SessionKeys {
        session,
        // Both ends have the same numbers.
        remote: session,
        material,
        receive: limits,
        send: limits,
        confirm: false,
    }
}

/// The use of the keys with this key id, in the form that a session takes: `usage` is the data plane's count, `bytes`
/// are those of both directions since the keys were installed.
#[must_use]
pub const fn usage(key_id: u8, usage: plane::KeyUsage, bytes: u64) -> session::KeyUsage {
    session::KeyUsage {
        key_id,
        bytes,
        sealed: usage.sealed,
        // Of both directions, so neither is underestimated.
        blocks_sealed: bytes / 16,
        blocks_opened: bytes / 16,
        opened: usage.opened & PACKET_ID,
        failed: usage.forged,
        epoch: usage.epoch,
    }
}

/// How many packets a key may have, and after how many to renew it.
fn limits(layout: Layout, now: Instant) -> KeyLimits {
    let (most, renew) = match layout {
        Layout::V1 | Layout::V2 { .. } => (0xffff_fffe, 0xff00_0000),
        // Ids continue across epochs, and stock counts a key as used up at id 2^36.
        Layout::Epoch { .. } => (1 << 36, 1 << 35),
    };
    KeyLimits {
        expires: now + FOR_EVER,
        messages_max: most,
        refresh_at: None,
        refresh_messages: renew,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyMaterial;
    use crypto::Cipher;
    use crypto::Digest;
    use plane::{Class, SessionName, Wire};

    fn material(cipher: Cipher, layout: Layout, allow_insecure: bool) -> Material {
        let bytes = || KeyMaterial {
            cipher: [1; 64],
            hmac: [2; 64],
        };
        Material {
            keys: Box::new(DataKeys {
                key_id: 3,
                cipher,
                auth: Digest::Sha256,
                layout,
                send: bytes(),
                receive: bytes(),
            }),
            shape: Shape::default(),
            allow_insecure,
        }
    }

    #[test]
    fn a_session_has_the_name_that_its_packets_carry() {
        let peer = PeerId(260);
        let layout = Layout::V2 { peer_id: peer.0 };
        let keys = session_keys(
            peer,
            material(Cipher::Aes256Gcm, layout, false),
            Instant::now(),
        );
        let Class::Data { session, .. } = OpenVpn::Server.classify(&(), &layout.header(3)) else {
            panic!("no data packet");
        };
        assert_eq!(session, SessionName::Index(keys.session));
    }

    #[test]
    fn a_cipher_that_is_not_secure_is_refused_unless_allowed() {
        let of = |allow| OpenVpn::Server.formats(&material(Cipher::BlowfishCbc, Layout::V1, allow));
        assert!(matches!(of(false), Err(CipherError::Insecure { .. })));
        assert!(of(true).is_ok());
    }

    #[test]
    fn packet_ids_are_counted_without_their_epoch() {
        let counted = plane::KeyUsage {
            opened: 5 << 48 | 77,
            sealed: 9,
            ..plane::KeyUsage::default()
        };
        let usage = usage(3, counted, 160);
        assert_eq!(
            (usage.opened, usage.sealed, usage.blocks_sealed),
            (77, 9, 10)
        );
    }
}
