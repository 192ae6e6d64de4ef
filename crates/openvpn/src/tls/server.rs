//! rustls as a TLS server.

use std::sync::Arc;

use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, ServerConnection};

use crate::tls::verifier::PeerVerifier;
use crate::tls::{ClientCertificate, Connection, TlsError, TlsSettings};

/// Presents our only certificate, and notes what the client offers.
#[derive(Debug)]
struct Watching {
    identity: SingleCertAndKey,
    verifier: Arc<PeerVerifier>,
}

impl ResolvesServerCert for Watching {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.verifier.client_offers(hello.cipher_suites());
        self.identity.resolve(hello)
    }
}

pub(super) fn accept(
    settings: &TlsSettings,
    verifier: Arc<PeerVerifier>,
) -> Result<Connection, TlsError> {
    let library = |error: rustls::Error| TlsError::Library(error.to_string());
    let identity = settings.identity().ok_or_else(|| {
        TlsError::Library(
            "the server has no certificate, which the settings should have refused".to_owned(),
        )
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&settings.provider))
        .with_protocol_versions(&settings.versions)
        .map_err(library)?;
    let identity = Watching {
        identity: SingleCertAndKey::from(identity.key),
        verifier: Arc::clone(&verifier),
    };
    let builder = match settings.client_certificate {
        ClientCertificate::None => {
            builder.with_client_cert_verifier(WebPkiClientVerifier::no_client_auth())
        }
        ClientCertificate::Optional | ClientCertificate::Require => {
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(identity));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(ServerConnection::new(Arc::new(config))
        .map_err(library)?
        .into())
}
