//! Who the peer is: its certificate, checked by OpenVPN's rules.

/// What a certificate is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Being a TLS client.
    Client,
    /// Being a TLS server.
    Server,
}

/// `remote-cert-ku`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyUsageRule {
    /// The extension must be there, whatever it says (TLS itself needs what it needs of it).
    Present,
    /// All bits of one of these must be set; 0x80 is digitalSignature, the first.
    AnyOf(Vec<u16>),
}

/// `verify-x509-name`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameRule {
    /// The whole subject, as OpenVPN prints it: `C=DE, O=Example, CN=server`.
    Subject(String),
    /// The common name (or the field that `x509-username-field` names).
    Name(String),
    /// How the common name begins.
    NamePrefix(String),
}

/// A digest that `verify-hash` or `peer-fingerprint` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fingerprint {
    /// SHA-1, of `verify-hash` alone.
    Sha1([u8; 20]),
    /// SHA-256
    Sha256([u8; 32]),
}

/// The rules for the peer's certificate, beyond its chain.
#[derive(Debug, Clone, Default)]
pub struct PeerRules {
    /// `remote-cert-ku`
    pub key_usage: Option<KeyUsageRule>,
    /// `remote-cert-eku`: OpenSSL's long name (`TLS Web Server Authentication`) or a dotted OID.
    pub extended_key_usage: Option<String>,
    /// `ns-cert-type`
    pub netscape_type: Option<Usage>,
    /// `verify-x509-name`
    pub name: Option<NameRule>,
    /// `peer-fingerprint`: the peer's own certificate must be one of these. Without `ca` nothing
    /// else of the chain is checked, and a self-signed certificate will do.
    pub peer_fingerprints: Vec<Fingerprint>,
    /// `verify-hash`: the certificate that signed the peer's must be one of these.
    pub issuer_fingerprints: Vec<Fingerprint>,
    /// `x509-username-field`: what counts as common name; empty stands for `CN`.
    pub username_fields: Vec<String>,
}

impl PeerRules {
    /// `remote-cert-tls`: the peer's certificate must have been made for that end of TLS.
    pub fn remote_cert_tls(&mut self, usage: Usage) {
        self.key_usage = Some(KeyUsageRule::Present);
        self.extended_key_usage = Some(
            match usage {
                Usage::Client => "TLS Web Client Authentication",
                Usage::Server => "TLS Web Server Authentication",
            }
            .to_owned(),
        );
    }
}

/// A peer's certificate that was verified, and the chain up to what we trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The common name, or the field that stands for it; what is not printable is `_`.
    pub common_name: String,
    /// The peer's certificate first, then those that signed it, up to the trusted one.
    pub chain: Vec<ChainCertificate>,
}

/// One certificate of a verified chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainCertificate {
    /// The subject as OpenVPN prints it: `C=DE, O=Example, CN=server`.
    pub subject: String,
    /// The serial number, decimal (`tls_serial_n`).
    pub serial: String,
    /// The serial number, hexadecimal with colons (`tls_serial_hex_n`).
    pub serial_hex: String,
    /// SHA-1 of the certificate (`tls_digest_n`); for scripts, not for security.
    pub sha1: [u8; 20],
    /// SHA-256 of the certificate (`tls_digest_sha256_n`).
    pub sha256: [u8; 32],
    /// The parts of the subject, by OpenSSL's short names, in order: `("CN", "server")`.
    pub fields: Vec<(String, String)>,
}

impl PeerCertificate {
    /// The subject of the peer's own certificate.
    pub fn subject(&self) -> &str {
        self.chain.first().map_or("", |own| &own.subject)
    }

    /// The environment of scripts: `X509_n_FIELD`, `tls_id_n`, `tls_digest_n`, `tls_serial_n` and
    /// so on for each depth, `common_name`.
    pub fn environment(&self) -> Vec<(String, String)> {
        todo!()
    }
}

/// Why a peer's certificate does not satisfy us.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("certificate of {subject}: {reason}")]
pub struct VerifyError {
    /// Whose certificate, as OpenVPN prints it.
    pub subject: String,
    /// What is wrong and what to do.
    pub reason: String,
}
