//! The keys of a peer: which are in the kernel's two slots, and the form in which the kernel takes them.
//!
//! New keys go to the secondary slot, where they only open; a swap of the slots makes them seal. A session may
//! briefly have three keys: the current, the previous and the next. The next keys replace the previous ones.

use crypto::Cipher;
use netio::netlink::{OvpnCipher, OvpnDirection, OvpnKey, OvpnSlot};
use openvpn::data::format::Framing;
use openvpn::data::protocol::Material;
use openvpn::data::wire::Layout;
use openvpn::keys::KeyMaterial;

/// Control's numbers of the sessions whose keys are in the kernel's slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Keys that seal.
    pub(crate) primary: Option<u32>,
    /// Keys that only open.
    pub(crate) secondary: Option<u32>,
}

impl Slots {
    /// The slot of a session's keys.
    pub(crate) fn find(self, session: u32) -> Option<OvpnSlot> {
        if self.primary == Some(session) {
            Some(OvpnSlot::Primary)
        } else if self.secondary == Some(session) {
            Some(OvpnSlot::Secondary)
        } else {
            None
        }
    }

    pub(crate) fn swap(&mut self) {
        std::mem::swap(&mut self.primary, &mut self.secondary);
    }

    pub(crate) fn clear(&mut self, slot: OvpnSlot) {
        match slot {
            OvpnSlot::Primary => self.primary = None,
            OvpnSlot::Secondary => self.secondary = None,
        }
    }
}

/// Why the kernel cannot carry packets with these keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error(
        "the kernel's data plane supports only AES-GCM and CHACHA20-POLY1305, but {0} was negotiated; name only those \
         two in `data-ciphers`, or set dataplane.kind=user"
    )]
    Cipher(&'static str),
    #[error(
        "the kernel's data plane needs packets with a peer-id, but the server assigned none; set dataplane.kind=user"
    )]
    NoPeerId,
    #[error(
        "the kernel's data plane does not support the epoch format of data packets; set dataplane.kind=user"
    )]
    Epochs,
    #[error(
        "the kernel's data plane cannot carry packets framed by comp-lzo or compress, even `comp-lzo no`; set \
         dataplane.kind=user, or remove the option at the server"
    )]
    Compression,
    #[error(
        "the kernel's data plane does not fragment packets (fragment); set dataplane.kind=user"
    )]
    Fragments,
    #[error("Millrace uses the kernel's data plane over UDP only; set dataplane.kind=user")]
    Stream,
}

/// The peer number in the packets of these keys.
///
/// # Errors
/// The kernel does not support such packets.
pub(crate) fn peer_id(material: &Material) -> Result<u32, Unfit> {
    let (keys, shape) = (&material.keys, &material.shape);
    cipher(keys.cipher)?;
    if shape.stream {
        return Err(Unfit::Stream);
    }
    if shape.framing != Framing::None {
        return Err(Unfit::Compression);
    }
    if shape.fragments.is_some() {
        return Err(Unfit::Fragments);
    }
    match keys.layout {
        Layout::V1 => Err(Unfit::NoPeerId),
        Layout::V2 { peer_id } => Ok(peer_id),
        Layout::Epoch { .. } => Err(Unfit::Epochs),
    }
}

/// Converts the key for the kernel.
pub(crate) fn key(peer: u32, material: &Material) -> Result<OvpnKey<'_>, Unfit> {
    let keys = &material.keys;
    let (cipher, len) = cipher(keys.cipher)?;
    Ok(OvpnKey {
        peer,
        slot: OvpnSlot::Secondary,
        key_id: keys.key_id,
        cipher,
        encrypt: direction(&keys.send, len),
        decrypt: direction(&keys.receive, len),
    })
}

/// The kernel's cipher, and the bytes of its key.
fn cipher(cipher: Cipher) -> Result<(OvpnCipher, usize), Unfit> {
    Ok(match cipher {
        Cipher::Aes128Gcm => (OvpnCipher::AesGcm, 16),
        Cipher::Aes192Gcm => (OvpnCipher::AesGcm, 24),
        Cipher::Aes256Gcm => (OvpnCipher::AesGcm, 32),
        Cipher::ChaCha20Poly1305 => (OvpnCipher::ChaCha20Poly1305, 32),
        other => return Err(Unfit::Cipher(other.name())),
    })
}

fn direction(material: &KeyMaterial, len: usize) -> OvpnDirection<'_> {
    let (nonce_tail, _) = material.hmac.split_first_chunk().expect("64 bytes");
    OvpnDirection {
        key: &material.cipher[..len],
        nonce_tail,
    }
}
