//! Certificates, and the rules for the peer's certificate.

use super::source::{Prompted, Source};

/// Keys, certificates and versions of the TLS session.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tls {
    /// `ca`: PEM.
    pub ca: Option<Source>,
    /// `cert`: PEM.
    pub cert: Option<Source>,
    /// `key`: PEM, possibly encrypted with [`Tls::askpass`].
    pub key: Option<Source>,
    /// `pkcs12`: replaces the three above; base64 when inline.
    pub pkcs12: Option<Source>,
    /// `extra-certs`: PEM, sent along with our certificate.
    pub extra_certs: Option<Source>,
    /// `crl-verify`.
    pub crl: Option<Crl>,
    /// `askpass`: the passphrase of the key or bundle.
    pub askpass: Option<Prompted>,
    /// `tls-version-min`, by default 1.2.
    pub version_min: TlsVersion,
    /// `tls-version-max`.
    pub version_max: Option<TlsVersion>,
    /// `tls-cipher`: names of TLS 1.2 suites, OpenSSL's or IANA's, in order of preference.
    pub ciphers: Option<Vec<String>>,
    /// `tls-ciphersuites`: names of TLS 1.3 suites.
    pub ciphersuites: Option<Vec<String>>,
    /// `tls-groups`, or the one of `ecdh-curve`.
    pub groups: Option<Vec<String>>,
    /// `tls-cert-profile`.
    pub profile: CertProfile,
    /// The rules for the peer's certificate.
    pub verify: Verify,
    /// `tls-crypt-v2 … force-cookie`: keeps no state of a client, not even of one before 2.6, until it proved its
    /// address.
    pub force_cookie: bool,
    /// `tls-crypt-v2-max-age`: days, `None` for no limit.
    pub tls_crypt_v2_max_age: Option<u32>,
}

/// `crl-verify`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Crl {
    /// A list of revoked certificates, PEM.
    List(Source),
    /// `crl-verify DIRECTORY dir`: a file named after the decimal serial number revokes it.
    Directory(std::path::PathBuf),
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum TlsVersion {
    /// TLS 1.2, the oldest version supported.
    #[default]
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// `tls-cert-profile`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CertProfile {
    /// SHA-1 refused, RSA from 2048 bits.
    #[default]
    Legacy,
    /// SHA-2, RSA from 2048 bits, any curve.
    Preferred,
    /// P-256 and P-384 with their SHA-2 only.
    SuiteB,
}

/// The end that a certificate is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CertRole {
    /// `client`.
    Client,
    /// `server`.
    Server,
}

/// `verify-x509-name`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct X509Name {
    /// The part of the certificate that is compared.
    pub kind: X509NameKind,
    /// The name.
    pub name: String,
}

/// The part of a certificate that `verify-x509-name` compares.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum X509NameKind {
    /// `subject`, the default: the whole subject, `C=KG, ST=NA, CN=Server-1`.
    #[default]
    Subject,
    /// `name`: the common name (or the field of `x509-username-field`).
    Name,
    /// `name-prefix`: the beginning of the common name.
    NamePrefix,
}

/// A digest that identifies a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fingerprint {
    /// SHA-256 of the DER.
    Sha256([u8; 32]),
    /// SHA-1 of the DER, only with `verify-hash … SHA1`.
    Sha1([u8; 20]),
}

/// Whether a client must present a certificate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientCertificate {
    /// `verify-client-cert none`: the server does not ask for one.
    None,
    /// `verify-client-cert optional`: verified if presented.
    Optional,
    /// The client must present one.
    #[default]
    Require,
}

/// The rules for the peer's certificate, beyond its signature by the CA.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verify {
    /// `remote-cert-tls`: the peer's key usage and extended key usage must fit this role.
    pub remote_cert_tls: Option<CertRole>,
    /// `remote-cert-ku`: the key usage must cover one of these masks; `Some` and empty for "any key usage".
    pub remote_cert_ku: Option<Vec<u16>>,
    /// `remote-cert-eku`: object identifier or OpenSSL's name.
    pub remote_cert_eku: Option<String>,
    /// `ns-cert-type`: satisfied by the Netscape extension or the extended key usage.
    pub ns_cert_type: Option<CertRole>,
    /// `verify-x509-name`.
    pub x509_name: Option<X509Name>,
    /// `peer-fingerprint`: the peer's certificate must be one of these. Without a CA it may be self-signed.
    pub peer_fingerprints: Vec<Fingerprint>,
    /// `verify-hash`: the certificate that signed the peer's must be one of these.
    pub issuer_fingerprints: Vec<Fingerprint>,
    /// `verify-client-cert`, in a server.
    pub client_certificate: ClientCertificate,
    /// `x509-username-field`: fields that give the common name, joined by `_`; empty for `CN`.
    pub username_fields: Vec<String>,
}
