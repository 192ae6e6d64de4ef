//! The configuration of the wrap, and the first packet of a stranger.

use std::sync::Arc;
use std::time::Duration;

use super::client_key::{ClientKeyError, Wrapper, split};
use super::{Keys, ReplayId, Wrap, WrapError, control_head};
use crate::keyfile::v2::{ClientKey, Metadata, ServerKey};
use crate::keyfile::{KeyDirection, StaticKey};
use crate::packet::{CONTROL_HEAD_LEN, ControlPacket};
use crate::role::Role;
use crypto::Digest;

/// How the control channel is wrapped, with the keys prepared. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WrapSettings {
    keys: Keys,
    /// Whether packets that carry no client key are accepted.
    takes_plain: bool,
    v2: Option<Server>,
}

/// A server's key of tls-crypt-v2.
#[derive(Clone, Debug)]
struct Server {
    wrapper: Arc<Wrapper>,
    max_age: Option<Duration>,
}

/// The first packet of a stranger.
#[derive(Debug)]
pub struct FirstPacket {
    /// Length on the wire, in bytes.
    pub len: usize,
    /// The packet, unwrapped.
    pub packet: ControlPacket,
    /// A wrap for this client, with nothing sent and this packet received. It seals the answer to a reset, and becomes
    /// the session's wrap if the packet begins a session. A server that answered without keeping state calls
    /// [`Wrap::skip_reset`] on the wrap of the client's next packet.
    pub wrap: Wrap,
    /// The number of the packet, where the wrap has one. It may well be a replay.
    pub number: Option<ReplayId>,
    /// The description of the client in its key, if the packet carried one (tls-crypt-v2), for a script to judge.
    pub metadata: Option<Metadata>,
}

impl FirstPacket {
    /// Whether the client understands what a reset may carry, so that it can be asked to send its key again.
    #[must_use]
    pub fn announces_early_negotiation(&self) -> bool {
        self.metadata.is_some()
            && self
                .number
                .is_some_and(ReplayId::announces_early_negotiation)
    }
}

impl WrapSettings {
    const fn with(keys: Keys) -> Self {
        Self {
            keys,
            takes_plain: true,
            v2: None,
        }
    }

    /// No wrap.
    #[must_use]
    pub const fn none() -> Self {
        Self::with(Keys::none())
    }

    /// tls-auth with an HMAC of `digest`, which is that of `--auth`; `None` for [`Digest::None`].
    #[must_use]
    pub fn tls_auth(key: &StaticKey, direction: KeyDirection, digest: Digest) -> Option<Self> {
        Some(Self::with(Keys::tls_auth(key, direction, digest)?))
    }

    /// tls-crypt.
    #[must_use]
    pub fn tls_crypt(key: &StaticKey, role: Role) -> Self {
        Self::with(Keys::tls_crypt(key, role))
    }

    /// tls-crypt-v2 of a client.
    #[must_use]
    pub fn tls_crypt_v2_client(key: &ClientKey) -> Self {
        Self::with(Keys::tls_crypt_v2_client(key))
    }

    /// tls-crypt-v2 of a server, for clients with a key of their own and no others. With
    /// [`WrapSettings::and_tls_crypt_v2`] a server takes others as well.
    #[must_use]
    pub fn tls_crypt_v2_server(key: &ServerKey, max_age: Option<Duration>) -> Self {
        Self {
            takes_plain: false,
            ..Self::none().and_tls_crypt_v2(key, max_age)
        }
    }

    /// Takes clients with keys of tls-crypt-v2 besides those of this wrap. Keys that are older than `max_age`, or do
    /// not say how old they are, are refused.
    ///
    /// With [`WrapSettings::none`] this leaves the server open to everyone; stock does not offer that.
    #[must_use]
    pub fn and_tls_crypt_v2(self, key: &ServerKey, max_age: Option<Duration>) -> Self {
        Self {
            v2: Some(Server {
                wrapper: Arc::new(Wrapper::new(key)),
                max_age,
            }),
            ..self
        }
    }

    /// A wrap for a new session of a client, or of a server that has a peer by configuration.
    #[must_use]
    pub fn wrap(&self) -> Wrap {
        Wrap::with(self.keys.clone())
    }

    /// Opens the packet of an unknown client and remembers nothing. `now` is in seconds since 1970.
    ///
    /// The cost: an HMAC and decryption of the packet, for tls-crypt-v2 twice that and the preparation of a key.
    ///
    /// # Errors
    /// See [`WrapError`]. A replayed packet is not detected.
    pub fn open_first(&self, packet: &[u8], now: u64) -> Result<FirstPacket, WrapError> {
        let head = control_head(packet)?;
        let (keys, wrapped, metadata) = if head.opcode.carries_client_key() {
            let server = self.v2.as_ref().ok_or(ClientKeyError::NotConfigured)?;
            let (wrapped, client_key) = split(packet, CONTROL_HEAD_LEN)?;
            let (key, metadata) = server.wrapper.unwrap(client_key)?;
            server.check_age(&metadata, now)?;
            (Keys::tls_crypt_v2_server(&key), wrapped, Some(metadata))
        } else if self.takes_plain {
            (self.keys.clone(), packet, None)
        } else {
            return Err(WrapError::NotAuthentic);
        };
        let (number, body) = keys.open(wrapped)?;
        let mut wrap = Wrap::with(keys);
        if number.is_some_and(|number| !wrap.window.accept(number)) {
            return Err(WrapError::Replay);
        }
        Ok(FirstPacket {
            len: packet.len(),
            packet: ControlPacket::parse_body(head, &body)?,
            wrap,
            number,
            metadata,
        })
    }
}

impl Server {
    /// A key from the future is not too old, as with stock: clocks of new routers are wrong.
    fn check_age(&self, metadata: &Metadata, now: u64) -> Result<(), ClientKeyError> {
        let Some(max_age) = self.max_age else {
            return Ok(());
        };
        match metadata.made_at() {
            Some(made) if now.saturating_sub(made) <= max_age.as_secs() => Ok(()),
            _ => Err(ClientKeyError::TooOld),
        }
    }
}
