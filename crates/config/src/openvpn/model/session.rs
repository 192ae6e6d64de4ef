//! A session: certificates and the rules for the peer's, the data channel, and timers. All times are in seconds.

pub use crypto::{Cipher, Digest};
pub use openvpn::data::format::Framing;
pub use openvpn::tls::{ClientCertificate, TlsVersion};
pub use openvpn::verify::{
    CertificateProfile, Fingerprint, KeyUsageRule, NameRule, PeerRules, Usage,
};

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
    pub profile: CertificateProfile,
    /// The rules for the peer's certificate, beyond its signature by the CA.
    pub rules: PeerRules,
    /// `verify-client-cert`, in a server.
    pub client_certificate: ClientCertificate,
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

/// The data channel's settings before anything is negotiated.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
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
    /// `compress migrate`: a server moves clients to [`Framing::V2`] or `comp-lzo no`.
    pub migrate: bool,
    /// `reorder`, a Millrace switch: puts UDP packets back into order before they are written.
    pub reorder: bool,
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
    /// `ping-restart`: connect again after this many seconds.
    Restart(u32),
    /// `ping-exit`: give up after this many seconds.
    Exit(u32),
}

/// `reneg-*`: when keys are renewed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
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

/// Timers of a session. In a client, pushed values replace the ping and timeout fields.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
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
