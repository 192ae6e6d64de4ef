//! One TLS session over memory.

use zeroize::Zeroizing;

use crate::tls::{TlsError, TlsSettings};
use crate::verify::PeerCertificate;

/// One negotiation and what follows inside it.
pub struct TlsSession {}

impl TlsSession {
    /// Starts a negotiation; a client has something to send at once.
    pub fn new(_settings: &TlsSettings) -> Result<Self, TlsError> {
        todo!()
    }

    /// Takes in TLS bytes of the peer, in order. After an error the session is of no use, but an
    /// alert that tells the peer why may wait in [`Self::take_tls`].
    pub fn read_tls(&mut self, _bytes: &[u8]) -> Result<(), TlsError> {
        todo!()
    }

    /// The TLS bytes that are to be sent; empty if there are none.
    pub fn take_tls(&mut self) -> Vec<u8> {
        todo!()
    }

    /// What the peer said inside TLS since the last call; empty if nothing.
    pub fn read_plain(&mut self) -> Zeroizing<Vec<u8>> {
        todo!()
    }

    /// Says something inside TLS; it goes out with the next [`Self::take_tls`] if the handshake is
    /// done, else when it is.
    pub fn write_plain(&mut self, _plain: &[u8]) -> Result<(), TlsError> {
        todo!()
    }

    /// Whether the handshake goes on.
    pub fn is_handshaking(&self) -> bool {
        todo!()
    }

    /// Whether the peer has closed the session, so that nothing more will be read.
    pub fn peer_closed(&self) -> bool {
        todo!()
    }

    /// Fills `out` with a secret that both ends have and nobody else (RFC 5705, RFC 8446 §7.5),
    /// without context. Only after the handshake.
    pub fn export(&mut self, _label: &[u8], _out: &mut [u8]) -> Result<(), TlsError> {
        todo!()
    }

    /// The peer's verified certificate; none before the handshake is done, nor if a server did not
    /// ask for one.
    pub fn peer(&self) -> Option<&PeerCertificate> {
        todo!()
    }

    /// The version and the suite in use, as `TLSv1.3, cipher TLS_AES_256_GCM_SHA384`, for the log.
    pub fn describe(&self) -> Option<String> {
        todo!()
    }

    /// Tells the peer that nothing more will be said.
    pub fn close(&mut self) {
        todo!()
    }
}
