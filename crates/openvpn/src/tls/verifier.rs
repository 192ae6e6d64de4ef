//! The link between rustls and our rules for certificates.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

#[cfg(feature = "server")]
use rustls::CipherSuite;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

#[cfg(feature = "server")]
use crate::tls::suites;
use crate::verify::{PeerCertificate, Revocations, Time, Trust, Usage, VerifyError, VerifyFault};

/// Maximum number of a client's suites that are kept for the log.
#[cfg(feature = "server")]
const SUITES_MAX: usize = 16;

/// `verify-client-cert`: what a server asks of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificate {
    /// The server requests no certificate.
    None,
    /// A client may show a certificate, which must then be valid.
    Optional,
    /// A client must show a certificate.
    #[default]
    Require,
}

/// Checks the certificate of one peer in one negotiation, and keeps the result.
pub(super) struct PeerVerifier {
    pub(super) trust: Arc<Trust>,
    pub(super) revocations: Revocations,
    pub(super) provider: Arc<CryptoProvider>,
    /// The server's demand for a client certificate.
    pub(super) client_certificate: ClientCertificate,
    /// The names of the authorities, which a server tells its clients.
    pub(super) hints: Arc<[DistinguishedName]>,
    /// The current time is at least this, whatever the clock shows.
    earliest: UnixTime,
    verified: OnceLock<Arc<PeerCertificate>>,
    refused: Mutex<Option<VerifyError>>,
    /// The cipher suites that the client offers to us.
    #[cfg(feature = "server")]
    suites: OnceLock<Box<[CipherSuite]>>,
}

impl PeerVerifier {
    pub(super) fn new(
        trust: Arc<Trust>,
        revocations: Revocations,
        provider: Arc<CryptoProvider>,
        client_certificate: ClientCertificate,
        hints: Arc<[DistinguishedName]>,
        earliest: UnixTime,
    ) -> Self {
        let (verified, refused) = (OnceLock::new(), Mutex::new(None));
        Self {
            trust,
            revocations,
            provider,
            client_certificate,
            hints,
            earliest,
            verified,
            refused,
            #[cfg(feature = "server")]
            suites: OnceLock::new(),
        }
    }

    /// Keeps the suites that a client offers, to report them if this end supports none.
    #[cfg(feature = "server")]
    pub(super) fn client_offers(&self, suites: &[CipherSuite]) {
        let kept = suites.iter().copied().take(SUITES_MAX);
        // A second hello, after a request to try again, offers the same.
        let _ = self.suites.set(kept.collect());
    }

    /// The client's offer, where we are a server and know it, and ours.
    pub(super) fn offered(&self, ours: &str) -> String {
        #[cfg(feature = "server")]
        if let Some(theirs) = self.suites.get() {
            let names: Vec<_> = theirs.iter().map(|suite| suites::name(*suite)).collect();
            return format!("it offers {}, and we {ours}", names.join(", "));
        }
        format!("we offer {ours}")
    }

    /// The peer, once its certificate was found good. Only the end of the handshake proves that the peer has the
    /// private key.
    pub(super) fn verified(&self) -> Option<&Arc<PeerCertificate>> {
        self.verified.get()
    }

    /// Why the peer was refused, if it was.
    pub(super) fn refused(&self) -> Option<VerifyError> {
        self.refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn verify(
        &self,
        peer: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: Usage,
        now: UnixTime,
    ) -> Result<(), Error> {
        match self.judge(peer, sent, usage, now) {
            Ok(verified) => {
                // A handshake has one certificate; were there a second, the first would count.
                let _ = self.verified.set(Arc::new(verified));
                Ok(())
            }
            Err(refused) => {
                // The alert that tells the peer follows from this.
                let told = match refused.fault {
                    VerifyFault::Unreadable => CertificateError::BadEncoding,
                    VerifyFault::Time | VerifyFault::Early | VerifyFault::Clock => {
                        CertificateError::Expired
                    }
                    VerifyFault::Revoked => CertificateError::Revoked,
                    VerifyFault::Unknown => CertificateError::UnknownIssuer,
                    VerifyFault::Weak => CertificateError::BadSignature,
                    VerifyFault::Purpose => CertificateError::InvalidPurpose,
                    VerifyFault::Rule => CertificateError::ApplicationVerificationFailure,
                };
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
                Err(Error::InvalidCertificate(told))
            }
        }
    }

    /// Judges by the clock, or by the earliest possible time if the clock is behind it.
    fn judge(
        &self,
        peer: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        usage: Usage,
        clock: UnixTime,
    ) -> Result<PeerCertificate, VerifyError> {
        let at = |now| self.trust.verify(peer, sent, usage, &self.revocations, now);
        let by_clock = at(clock);
        let known = self.earliest;
        let wrong = clock.as_secs() < known.as_secs();
        match by_clock {
            Err(refused) if wrong && refused.fault == VerifyFault::Early => {
                at(known).map_err(|refused| match refused.fault {
                    VerifyFault::Early => clock_wrong(refused, clock, known),
                    _ => refused,
                })
            }
            verified => verified,
        }
    }
}

/// The refusal of a certificate that is not valid yet by a clock known to be wrong.
fn clock_wrong(refused: VerifyError, clock: UnixTime, known: UnixTime) -> VerifyError {
    let (clock, known) = (Time::of(clock), Time::of(known));
    VerifyError {
        fault: VerifyFault::Clock,
        reason: format!(
            "this host's clock is wrong: it shows {clock}, but it is {known} or later; set it (with NTP, or date -s), \
             as the certificate's validity cannot be checked until then"
        ),
        ..refused
    }
}

impl std::fmt::Debug for PeerVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerVerifier").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        peer: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(peer, sent, Usage::Server, now)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn offer_client_auth(&self) -> bool {
        self.client_certificate != ClientCertificate::None
    }

    fn client_auth_mandatory(&self) -> bool {
        self.client_certificate == ClientCertificate::Require
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        peer: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(peer, sent, Usage::Client, now)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls13_signature(self, message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ServerCertVerifier::supported_verify_schemes(self)
    }
}
