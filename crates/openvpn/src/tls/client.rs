//! rustls as a TLS client.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection};

use crate::tls::verifier::PeerVerifier;
use crate::tls::{Connection, TlsError, TlsSettings};

#[cfg_attr(
    not(feature = "server"),
    allow(clippy::useless_conversion, reason = "nothing to tell apart")
)]
pub(super) fn connect(
    settings: &TlsSettings,
    verifier: Arc<PeerVerifier>,
) -> Result<Connection, TlsError> {
    let library = |error: rustls::Error| TlsError::Library(error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&settings.provider))
        .with_protocol_versions(&settings.versions)
        .map_err(library)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &settings.identity {
        Some(identity) => builder
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&identity.key)))),
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
