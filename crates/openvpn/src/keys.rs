//! Derives the keys of the data channel from random bytes, and assigns them to the two directions.
//!
//! Either way, 256 bytes come out: two sets of a cipher field and an HMAC field. The client seals
//! with the first set and the server with the second. A cipher or an HMAC uses the first bytes of
//! its field; the implicit IV of an AEAD is the start of the HMAC field.

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::packet::SessionId;
use crate::prf::tls1_prf;
use crate::role::Role;
use crate::tls::{TlsError, TlsSession};

/// Bytes of a cipher field and of an HMAC field.
pub const FIELD_LEN: usize = 64;

/// Bytes of both sets together.
pub const KEY_BLOCK_LEN: usize = 4 * FIELD_LEN;

/// The exporter's label for the keys of the data channel.
const DATA_KEYS_LABEL: &[u8] = b"EXPORTER-OpenVPN-datakeys";

/// The exporter's label for the key that wraps renegotiations.
const DYNAMIC_TLS_CRYPT_LABEL: &[u8] = b"EXPORTER-OpenVPN-dynamic-tls-crypt";

/// The secrets of one direction of one key: 128 bytes, of which each algorithm takes as many as it needs from the
/// beginning of each field.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeyMaterial {
    /// The cipher takes its key from the start of this field, and packets with epochs their first secret.
    pub cipher: [u8; FIELD_LEN],
    /// The HMAC takes its key from the start of this field, and an AEAD its implicit IV.
    pub hmac: [u8; FIELD_LEN],
}

impl std::fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyMaterial { .. }")
    }
}

/// The key material of both directions.
#[derive(Clone, Debug, Zeroize, ZeroizeOnDrop)]
pub struct KeyBlock {
    /// Key material with which the client seals and the server opens.
    pub client_to_server: KeyMaterial,
    /// Key material with which the server seals and the client opens.
    pub server_to_client: KeyMaterial,
}

impl KeyBlock {
    /// Takes the two sets from their bytes.
    pub fn from_bytes(bytes: &[u8; KEY_BLOCK_LEN]) -> Self {
        let field = |at: usize| {
            let mut field = [0; FIELD_LEN];
            field.copy_from_slice(&bytes[at * FIELD_LEN..(at + 1) * FIELD_LEN]);
            field
        };
        Self {
            client_to_server: KeyMaterial {
                cipher: field(0),
                hmac: field(1),
            },
            server_to_client: KeyMaterial {
                cipher: field(2),
                hmac: field(3),
            },
        }
    }

    /// Derives the sets from what both ends put into the key method 2 record, as peers up to 2.5 do.
    ///
    /// `client` and `server` are what each end sent, each with the session id of its end. The
    /// pre-master secret is the client's.
    #[must_use]
    pub fn from_prf(
        client: &KeySource,
        client_session: &SessionId,
        server: &KeySource,
        server_session: &SessionId,
    ) -> Self {
        let mut master = Zeroizing::new([0; 48]);
        tls1_prf(
            client.pre_master(),
            b"OpenVPN master secret",
            &[client.random1(), server.random1()],
            &mut master[..],
        );
        let mut block = Zeroizing::new([0; KEY_BLOCK_LEN]);
        tls1_prf(
            &master[..],
            b"OpenVPN key expansion",
            &[
                client.random2(),
                server.random2(),
                client_session.as_bytes(),
                server_session.as_bytes(),
            ],
            &mut block[..],
        );
        Self::from_bytes(&block)
    }

    /// Exports the sets from the TLS session, as peers from 2.6 on do if both announced it.
    pub fn from_exporter(tls: &TlsSession) -> Result<Self, TlsError> {
        let mut block = Zeroizing::new([0; KEY_BLOCK_LEN]);
        tls.export(DATA_KEYS_LABEL, &mut block[..])?;
        Ok(Self::from_bytes(&block))
    }

    /// The material to seal with and the material to open with, of the end that plays `role`.
    pub fn split(self, role: Role) -> (KeyMaterial, KeyMaterial) {
        let (client, server) = (self.client_to_server.clone(), self.server_to_client.clone());
        match role {
            Role::Client => (client, server),
            Role::Server => (server, client),
        }
    }
}

/// The key that wraps the control packets of renegotiations (dynamic tls-crypt), in the order of a static key file.
/// [`Wrap::dynamic`](crate::wrap::Wrap::dynamic) mixes in the key file of the first negotiation, if there is one.
pub fn dynamic_tls_crypt(tls: &TlsSession) -> Result<Zeroizing<[u8; KEY_BLOCK_LEN]>, TlsError> {
    let mut key = Zeroizing::new([0; KEY_BLOCK_LEN]);
    tls.export(DYNAMIC_TLS_CRYPT_LABEL, &mut key[..])?;
    Ok(key)
}

/// The random bytes of one end. The server has no pre-master secret: it is zeros.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeySource {
    pre_master: [u8; 48],
    random1: [u8; 32],
    random2: [u8; 32],
}

impl KeySource {
    /// Draws the random bytes of an end.
    pub fn generate(role: Role) -> Result<Self, RandomError> {
        let mut source = Self {
            pre_master: [0; 48],
            random1: [0; 32],
            random2: [0; 32],
        };
        let fill = |bytes: &mut [u8]| aws_lc_rs::rand::fill(bytes).map_err(|_| RandomError);
        if role == Role::Client {
            fill(&mut source.pre_master)?;
        }
        fill(&mut source.random1)?;
        fill(&mut source.random2)?;
        Ok(source)
    }

    /// Takes given bytes, for known answers.
    pub fn from_bytes(pre_master: [u8; 48], random1: [u8; 32], random2: [u8; 32]) -> Self {
        Self {
            pre_master,
            random1,
            random2,
        }
    }

    /// The pre-master secret; zeros if this is a server's.
    pub fn pre_master(&self) -> &[u8; 48] {
        &self.pre_master
    }

    /// The seed of the master secret.
    pub fn random1(&self) -> &[u8; 32] {
        &self.random1
    }

    /// The seed of the key expansion.
    pub fn random2(&self) -> &[u8; 32] {
        &self.random2
    }
}

impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeySource { .. }")
    }
}

/// The system gave no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random numbers")]
pub struct RandomError;

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn session(bytes: &[u8; 8]) -> SessionId {
        SessionId::new(*bytes).expect("not zero")
    }

    /// Made with another implementation of the function, checked with `openssl kdf TLS1-PRF`.
    #[test]
    fn the_sets_are_those_of_the_function() {
        let mut pre_master = [0; 48];
        pre_master
            .iter_mut()
            .zip(0..)
            .for_each(|(byte, at)| *byte = at);
        let client = KeySource::from_bytes(pre_master, [1; 32], [3; 32]);
        let server = KeySource::from_bytes([0; 48], [2; 32], [4; 32]);
        let block = KeyBlock::from_prf(
            &client,
            &session(b"CLIENTID"),
            &server,
            &session(b"SERVERID"),
        );
        let (client_sends, client_receives) = block.clone().split(Role::Client);
        let (server_sends, server_receives) = block.split(Role::Server);
        for (set, cipher, hmac) in [
            (
                [client_sends, server_receives],
                "fb3974522062284b6ebab9d7b612b454a24d11fafe7251f710e381a95f688c57c898cdfe3fe2899779dd784c\
                 cdb53c8f869976268d3a5ef493b79058ee7b5bae",
                "2ec33aac294803eb4402c9d6c4f4ec11a2975336bd7f038a93153b62e346877f8d645654a02b46595b2544ab\
                 69bac1fccd749406ca846fc79342bc5382cf5f7b",
            ),
            (
                [server_sends, client_receives],
                "8f90c4da05cc8a88aa1c262506e1b6ae7ab9079dab8b80af15b963346a8d082d578e0397849d055a055c016e\
                 61b18a27ece460be58306b2f7fe502659e94f2f8",
                "b381c184a7724f5db250dbf99695921a6f7387e3dbe2cd9769ccb67f663a080d2bdb608ae891fe486b0b5850\
                 7053a17cede5be385818220ad1b450d718b66078",
            ),
        ] {
            for end in set {
                assert_eq!(
                    (hex(&end.cipher), hex(&end.hmac)),
                    (cipher.to_owned(), hmac.to_owned())
                );
            }
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let block = KeyBlock::from_bytes(&[0xab; KEY_BLOCK_LEN]);
        let shown = format!("{block:?}");
        assert!(!shown.contains("171") && !shown.contains("ab,"), "{shown}");
    }
}
