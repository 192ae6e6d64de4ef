//! One TLS session over memory, with rustls as its client.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection};
use zeroize::Zeroizing;

use crate::role::Role;
use crate::tls::verifier::PeerVerifier;
use crate::tls::{Connection, TlsError, TlsSettings};
use crate::verify::{PeerCertificate, VerifyError, VerifyFault};

#[cfg(feature = "server")]
use crate::tls::server;

/// Maximum number of decrypted bytes of the peer that are kept until they are read. The largest record of the protocol
/// is well below.
const PLAIN_MAX: usize = 64 * 1024;

/// Maximum number of bytes that wait to be sent, in the clear during the handshake or encrypted after it.
const SEND_MAX: usize = 64 * 1024;

/// The fatal alert `access_denied` in the clear (RFC 8446, sections 5.1 and 6). rustls would send our certificate first
/// and encrypt the alert. Servers accept a clear alert until they have decrypted something of the client's.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// The daemon's verdict on the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The verdict is to be requested once the certificate is accepted.
    Wanted,
    /// The daemon was asked. Nothing is sent until it answers.
    Asked,
    /// The peer may pass, or needs no verdict.
    Accepted,
    /// The peer is refused; the alert has yet to be sent.
    Refused,
    /// The peer is refused and was told.
    Told,
}

/// TLS of one negotiation: the handshake and the data after it.
pub struct TlsSession {
    connection: Connection,
    verifier: Arc<PeerVerifier>,
    /// Decrypted bytes of the peer that were not read yet.
    plain: Zeroizing<Vec<u8>>,
    failed: Option<TlsError>,
    peer_closed: bool,
    verdict: Verdict,
    /// Our offer, for the log.
    offer: Arc<str>,
}

impl TlsSession {
    /// Starts a negotiation; a client has something to send at once.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsError> {
        let verifier = Arc::new(settings.verifier());
        let mut connection = match settings.role() {
            Role::Client => connect(settings, Arc::clone(&verifier))?,
            #[cfg(feature = "server")]
            Role::Server => server::accept(settings, Arc::clone(&verifier))?,
            #[cfg(not(feature = "server"))]
            Role::Server => {
                let reason = "this build of Millrace is for clients only";
                return Err(TlsError::Library(reason.to_owned()));
            }
        };
        connection.set_buffer_limit(Some(SEND_MAX));
        let plain = Zeroizing::new(Vec::new());
        Ok(Self {
            connection,
            verifier,
            plain,
            failed: None,
            peer_closed: false,
            offer: Arc::clone(&settings.offer),
            verdict: match settings.verdicts {
                true => Verdict::Wanted,
                false => Verdict::Accepted,
            },
        })
    }

    /// Takes in TLS bytes of the peer, in order. After an error the session is of no use, but an
    /// alert that tells the peer why may wait in [`Self::take_tls`].
    pub fn read_tls(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let result = self.take_in(bytes);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    fn take_in(&mut self, mut bytes: &[u8]) -> Result<(), TlsError> {
        while !bytes.is_empty() && !self.peer_closed {
            // Reading from memory fails only if the kept plaintext is full.
            self.connection
                .read_tls(&mut bytes)
                .map_err(|error| TlsError::Protocol(error.to_string()))?;
            let state = self.connection.process_new_packets().map_err(|error| {
                let offered = || self.verifier.offered(&self.offer);
                TlsError::of_rustls(error, self.verifier.refused(), offered)
            })?;
            self.peer_closed |= state.peer_has_closed();
            self.keep_plain(state.plaintext_bytes_to_read())?;
        }
        Ok(())
    }

    /// Moves decrypted bytes into `plain`.
    fn keep_plain(&mut self, len: usize) -> Result<(), TlsError> {
        let before = self.plain.len();
        let total = before + len;
        if total > PLAIN_MAX {
            return Err(TlsError::Flood(PLAIN_MAX));
        }
        if total > self.plain.capacity() {
            // Growing in place would leave the old copy behind.
            let mut grown = Zeroizing::new(Vec::with_capacity(total.next_power_of_two()));
            grown.extend_from_slice(&self.plain);
            self.plain = grown;
        }
        self.plain.resize(total, 0);
        self.connection
            .reader()
            .read_exact(&mut self.plain[before..])
            .map_err(|error| TlsError::Library(error.to_string()))
    }

    /// The peer on which the daemon must give a verdict, once its certificate is found good; only once. Nothing is sent
    /// until [`Self::judged`], since our own certificate is not for every server.
    pub fn question(&mut self) -> Option<PeerCertificate> {
        let peer = self.verifier.verified();
        let peer = PeerCertificate::clone(peer.filter(|_| self.verdict == Verdict::Wanted)?);
        self.verdict = Verdict::Asked;
        Some(peer)
    }

    /// Takes the daemon's verdict. After a refusal the session is of no use, but an alert waits in [`Self::take_tls`].
    /// Does nothing if no question is open.
    pub fn judged(&mut self, verdict: Result<(), String>) -> Result<(), TlsError> {
        if self.verdict != Verdict::Asked {
            return Ok(());
        }
        let Err(reason) = verdict else {
            self.verdict = Verdict::Accepted;
            return Ok(());
        };
        self.verdict = Verdict::Refused;
        let subject = self.verifier.verified().map(|it| it.subject());
        let error = TlsError::Certificate(VerifyError {
            subject: subject.unwrap_or_default().to_owned(),
            fault: VerifyFault::Rule,
            reason,
        });
        self.failed = Some(error.clone());
        Err(error)
    }

    /// The TLS bytes that are to be sent; empty if there are none.
    pub fn take_tls(&mut self) -> Vec<u8> {
        match self.verdict {
            Verdict::Accepted => {}
            Verdict::Wanted if self.verifier.verified().is_none() => {}
            Verdict::Refused => {
                self.verdict = Verdict::Told;
                return ACCESS_DENIED.to_vec();
            }
            Verdict::Wanted | Verdict::Asked | Verdict::Told => return Vec::new(),
        }
        let mut out = Vec::new();
        // Writing to a vector does not fail.
        while self.connection.wants_write() && self.connection.write_tls(&mut out).is_ok() {}
        out
    }

    /// The peer's bytes inside TLS since the last call; empty if none.
    pub fn read_plain(&mut self) -> Zeroizing<Vec<u8>> {
        std::mem::take(&mut self.plain)
    }

    /// Queues data to send inside TLS; it goes out with the next [`Self::take_tls`] if the handshake is
    /// done, else when it is. All of it is taken, or nothing.
    pub fn write_plain(&mut self, plain: &[u8]) -> Result<(), TlsError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let written = self
            .connection
            .writer()
            .write(plain)
            .map_err(|error| TlsError::Library(error.to_string()))?;
        if written < plain.len() {
            let full = TlsError::Full(SEND_MAX);
            // Part of a message was sent, so no valid message can follow.
            self.failed = Some(full.clone());
            return Err(full);
        }
        Ok(())
    }

    /// Whether the handshake continues, or the daemon has yet to accept the peer.
    pub fn is_handshaking(&self) -> bool {
        self.verdict != Verdict::Accepted || self.connection.is_handshaking()
    }

    /// Whether the peer has closed the session, so that nothing more will be read.
    pub fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Fills `out` with a secret that only the two ends have (RFC 5705, RFC 8446 §7.5),
    /// without context. Only after the handshake.
    pub fn export(&self, label: &[u8], out: &mut [u8]) -> Result<(), TlsError> {
        if self.is_handshaking() {
            return Err(TlsError::NotReady);
        }
        self.connection
            .export_keying_material(out, label, None)
            .map(|_| ())
            .map_err(|error| TlsError::Library(error.to_string()))
    }

    /// The peer's verified certificate. `None` before the handshake is done, or if the peer of a server that requires
    /// no certificate sent none.
    pub fn peer(&self) -> Option<&PeerCertificate> {
        let verified = self.verifier.verified()?;
        (!self.is_handshaking()).then_some(verified)
    }

    /// The peer's certificate, to be kept.
    pub(crate) fn shared_peer(&self) -> Option<Arc<PeerCertificate>> {
        let verified = self.verifier.verified()?;
        (!self.is_handshaking()).then(|| Arc::clone(verified))
    }

    /// The version, the suite and the group in use, for the log; none before they are agreed upon.
    pub fn describe(&self) -> Option<String> {
        let version = match self.connection.protocol_version()? {
            rustls::ProtocolVersion::TLSv1_3 => "TLSv1.3",
            _ => "TLSv1.2",
        };
        let suite = self.connection.negotiated_cipher_suite()?.suite();
        let suite = suite
            .as_str()
            .unwrap_or_default()
            .replacen("TLS13_", "TLS_", 1);
        let group = self.connection.negotiated_key_exchange_group();
        let group = group
            .map(|group| format!(", group {:?}", group.name()))
            .unwrap_or_default();
        Some(format!("{version}, cipher {suite}{group}"))
    }

    /// The name of the group of the key exchange, such as `X25519MLKEM768`, once it is agreed upon.
    #[cfg(feature = "postquantum")]
    pub fn key_exchange(&self) -> Option<&'static str> {
        let group = self.connection.negotiated_key_exchange_group()?;
        group.name().as_str()
    }

    /// Sends the TLS closure alert: no data follows.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }
}

impl std::fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSession")
            .field("handshaking", &self.is_handshaking())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

#[cfg_attr(
    not(feature = "server"),
    allow(clippy::useless_conversion, reason = "nothing to tell apart")
)]
fn connect(settings: &TlsSettings, verifier: Arc<PeerVerifier>) -> Result<Connection, TlsError> {
    let library = |error: rustls::Error| TlsError::Library(error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&settings.provider))
        .with_protocol_versions(&settings.versions)
        .map_err(library)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match settings.identity() {
        Some(identity) => {
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.key)))
        }
        None => builder.with_no_client_auth(),
    };
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    // This name is not sent, and the verifier does not look at it.
    let name =
        ServerName::try_from("openvpn").map_err(|error| TlsError::Library(error.to_string()))?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(library)?;
    Ok(Connection::from(connection))
}
