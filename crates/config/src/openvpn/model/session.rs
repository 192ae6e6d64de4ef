//! A session: certificates and the rules for the peer's, the data channel, and timers. All times are in seconds.

pub use crypto::{Cipher, Digest};

use super::{Prompted, Source};

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

/// The bytes that `comp-lzo` and `compress` put around a packet. Millrace never compresses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Framing {
    /// No framing; the peer must have none either.
    #[default]
    None,
    /// `comp-lzo` in each form, `compress lzo`: one byte 0xFA in front.
    Lzo,
    /// `compress` without a word, `compress stub`: byte 0xFB first, the packet's first byte last.
    Stub,
    /// `compress lz4`: as [`Framing::Stub`]; the peer may send LZ4.
    Lz4,
    /// `compress stub-v2`: only an escape for ambiguous first bytes.
    StubV2,
    /// `compress lz4-v2`: as [`Framing::StubV2`]; the peer may send LZ4.
    Lz4V2,
}

/// The data channel's settings before anything is negotiated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataChannel {
    /// `data-ciphers`: ciphers to negotiate, in order of preference; never empty.
    pub ciphers: Vec<Cipher>,
    /// `data-ciphers-fallback`, or else `cipher` if it is not insecure: for a peer that does not negotiate.
    pub fallback: Option<Cipher>,
    /// `cipher` as written, for the options string that the peers compare.
    pub cipher: Option<Cipher>,
    /// `auth`.
    pub auth: Digest,
    /// `--allow-insecure-ciphers`: a Millrace switch for 64-bit blocks, DES and `cipher none`.
    pub allow_insecure: bool,
    /// `comp-lzo`, `compress`.
    pub framing: Framing,
    /// Whether packets that the peer compressed are decompressed: yes, unless `allow-compression no` is given.
    pub unpack: bool,
    /// `compress migrate`: a server moves clients to [`Framing::StubV2`] or `comp-lzo no`.
    pub migrate: bool,
    /// `reorder`, a Millrace switch: puts UDP packets back into order before they are written.
    pub reorder: bool,
}

impl Default for DataChannel {
    fn default() -> Self {
        Self {
            ciphers: vec![
                Cipher::Aes256Gcm,
                Cipher::Aes128Gcm,
                Cipher::ChaCha20Poly1305,
            ],
            fallback: None,
            cipher: None,
            auth: Digest::default(),
            allow_insecure: false,
            framing: Framing::default(),
            unpack: true,
            migrate: false,
            reorder: false,
        }
    }
}

/// The action when no packet arrives from the peer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PingTimeout {
    /// Neither was given. A client over UDP reconnects after 120 seconds, until the server pushes a value; otherwise
    /// there is no timeout.
    #[default]
    Unset,
    /// `ping-restart 0`: no timeout.
    Off,
    /// `ping-restart`: connect again after so many seconds.
    Restart(u32),
    /// `ping-exit`: give up after so many seconds.
    Exit(u32),
}

/// `reneg-*`: when keys are renewed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Renegotiation {
    /// `reneg-sec MAX`, by default 3600; 0 for never.
    pub seconds: u32,
    /// `reneg-sec MAX MIN`: each session takes its own time between the two. `None`: 90 % of
    /// the maximum in a server, the maximum in a client.
    pub seconds_min: Option<u32>,
    /// `reneg-bytes`: sum of both directions; `None` for no limit but that of 64-bit blocks.
    pub bytes: Option<u64>,
    /// `reneg-pkts`: sum of both directions.
    pub packets: Option<u64>,
}

impl Default for Renegotiation {
    fn default() -> Self {
        Self {
            seconds: 3600,
            seconds_min: None,
            bytes: None,
            packets: None,
        }
    }
}

/// Timers of a session. In a client, pushed values replace the ping and timeout fields.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timers {
    /// `ping`: a ping after this many seconds without sending; 0 for none.
    pub ping: u32,
    /// `ping-restart`, `ping-exit`: `keepalive` doubles it in a server.
    pub ping_timeout: PingTimeout,
    /// `inactive SECONDS [BYTES]`: exit when fewer bytes went through in that time.
    pub inactive: Option<(u32, u64)>,
    /// `session-timeout`.
    pub session_timeout: Option<u32>,
    /// `reneg-*`.
    pub renegotiation: Renegotiation,
    /// `hand-window`: time limit of a handshake, by default 60.
    pub hand_window: u32,
    /// `tran-window`: how long an old key still decrypts, by default 3600.
    pub tran_window: u32,
    /// `tls-timeout`: time to the first retransmission on the control channel, by default 2.
    pub tls_timeout: u32,
    /// `tls-exit`: exit when a handshake fails.
    pub tls_exit: bool,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            ping: 0,
            ping_timeout: PingTimeout::Unset,
            inactive: None,
            session_timeout: None,
            renegotiation: Renegotiation::default(),
            hand_window: 60,
            tran_window: 3600,
            tls_timeout: 2,
            tls_exit: false,
        }
    }
}
