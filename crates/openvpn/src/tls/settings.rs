//! What the configuration says about TLS, checked once.

use crate::identity::Identity;
use crate::role::Role;
use crate::tls::SettingsError;
use crate::verify::PeerRules;

/// A version of TLS that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2
    V1_2,
    /// TLS 1.3
    V1_3,
}

/// `verify-client-cert`: what a server asks of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificate {
    /// No certificate is asked for.
    None,
    /// A client may show one; if it does, it must be good.
    Optional,
    /// A client must show one.
    #[default]
    Require,
}

/// `tls-cert-profile`: how strong certificates must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CertificateProfile {
    /// RSA from 2048 bits, any elliptic curve that is known, SHA-256 and longer. Stock programs
    /// go lower (RSA 1024, SHA-1); Millrace does not.
    #[default]
    Legacy,
    /// The same here, as `legacy` already asks for what this asks for.
    Preferred,
    /// ECDSA with P-256 or P-384 and SHA-256 or SHA-384 alone.
    SuiteB,
}

/// What the configuration says, unchecked.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// `tls-client` or `tls-server`.
    pub role: Role,
    /// The bytes of `ca`: PEM, or one certificate as DER. Empty if not given.
    pub ca: Vec<u8>,
    /// `cert` and `key`, or `pkcs12`.
    pub identity: Option<Identity>,
    /// `tls-version-min`
    pub version_min: TlsVersion,
    /// `tls-version-max`
    pub version_max: TlsVersion,
    /// `tls-cipher`: suites of TLS 1.2, by OpenSSL's or IANA's names, joined by colons.
    pub cipher: Option<String>,
    /// `tls-ciphersuites`: suites of TLS 1.3.
    pub ciphersuites: Option<String>,
    /// `tls-groups` or `ecdh-curve`
    pub groups: Option<String>,
    /// `tls-cert-profile`
    pub profile: CertificateProfile,
    /// `verify-client-cert`, of servers.
    pub client_certificate: ClientCertificate,
    /// The bytes of `crl-verify`: PEM with any number of lists, or one as DER.
    pub crl: Option<Vec<u8>>,
    /// The rules for the peer's certificate.
    pub rules: PeerRules,
}

impl TlsOptions {
    /// The defaults of OpenVPN.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            ca: Vec::new(),
            identity: None,
            version_min: TlsVersion::V1_2,
            version_max: TlsVersion::V1_3,
            cipher: None,
            ciphersuites: None,
            groups: None,
            profile: CertificateProfile::default(),
            client_certificate: ClientCertificate::default(),
            crl: None,
            rules: PeerRules::default(),
        }
    }
}

/// Checked settings, from which every negotiation starts.
pub struct TlsSettings {
    role: Role,
}

impl TlsSettings {
    /// Checks what the configuration says.
    pub fn new(options: TlsOptions) -> Result<Self, SettingsError> {
        Ok(Self { role: options.role })
    }

    /// Which end we are.
    pub fn role(&self) -> Role {
        self.role
    }

    /// What the configuration names and is not known, one sentence each, for the log.
    pub fn warnings(&self) -> &[String] {
        &[]
    }

    /// Puts another revocation list in the place of the one before; sessions that start from now
    /// on are checked with it. A list that cannot be read changes nothing.
    pub fn replace_crl(&self, _crl: &[u8]) -> Result<(), SettingsError> {
        todo!()
    }
}
