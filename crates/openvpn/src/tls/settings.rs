//! The configuration of TLS, checked once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{DistinguishedName, SupportedCipherSuite, SupportedProtocolVersion};

use crate::identity::{self, Identity};
use crate::role::Role;
use crate::tls::verifier::{ClientCertificate, PeerVerifier};
use crate::tls::{SettingsError, suites};
use crate::verify::{
    CertificateProfile, PeerCertificate, PeerRules, RevocationLists, Revocations, RevokedSerials,
    Trust,
};

/// A TLS version that Millrace supports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2
    #[default]
    V1_2,
    /// TLS 1.3
    V1_3,
}

/// The configuration of TLS, unchecked.
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
    /// `crl-verify DIRECTORY dir`
    pub revoked_serials: Option<Arc<dyn RevokedSerials>>,
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
            revoked_serials: None,
            rules: PeerRules::default(),
        }
    }
}

/// Checked settings, from which every negotiation starts.
pub struct TlsSettings {
    role: Role,
    pub(super) identity: Option<Identity>,
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) versions: Vec<&'static SupportedProtocolVersion>,
    pub(super) client_certificate: ClientCertificate,
    trust: Arc<Trust>,
    hints: Arc<[DistinguishedName]>,
    revocations: Mutex<Revocations>,
    /// Whether the daemon gives a verdict on each peer.
    pub(super) verdicts: bool,
    /// Whether other threads run the handshakes.
    apart: bool,
    /// The current time is at least this, whatever the clock shows.
    earliest: UnixTime,
    warnings: Vec<String>,
    /// Versions, suites and groups, for the log.
    pub(super) offer: Arc<str>,
}

impl TlsSettings {
    /// Checks what the configuration says.
    pub fn new(options: TlsOptions) -> Result<Self, SettingsError> {
        let mut warnings = Vec::new();
        let versions = versions(&options)?;
        let suites = suites(&options, &versions, &mut warnings)?;
        // With no suite of TLS 1.2 left, that version is not offered.
        let versions: Vec<_> = versions
            .into_iter()
            .filter(|version| suites.iter().any(|suite| suite.version() == *version))
            .collect();
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.cipher_suites = suites;
        provider.kx_groups = groups(&options, &mut warnings)?;

        let offer = offer(&versions, &provider).into();

        let mut identity = options.identity;
        let authorities = authorities(&options.ca, &mut identity)?;
        let asks =
            options.role == Role::Client || options.client_certificate != ClientCertificate::None;
        if options.role == Role::Server && identity.is_none() {
            return Err(SettingsError::Missing(
                "a server needs its certificate and key: give cert and key, or pkcs12",
            ));
        }
        if asks && authorities.is_empty() && options.rules.peer_fingerprints.is_empty() {
            return Err(SettingsError::Missing(
                "nothing says which peers to trust: give ca, or peer-fingerprint",
            ));
        }
        let trust = Trust::new(
            authorities,
            provider.signature_verification_algorithms.all,
            options.profile,
            options.rules,
        )
        .map_err(|reason| SettingsError::Unreadable { what: "ca", reason })?;
        let hints = trust
            .subjects()
            .map(DistinguishedName::in_sequence)
            .collect();
        let revocations = Revocations {
            lists: options.crl.as_deref().map(revocation_lists).transpose()?,
            serials: options.revoked_serials,
        };
        Ok(Self {
            role: options.role,
            identity,
            provider: Arc::new(provider),
            versions,
            client_certificate: options.client_certificate,
            trust: Arc::new(trust),
            hints,
            revocations: Mutex::new(revocations),
            verdicts: false,
            apart: false,
            earliest: UnixTime::since_unix_epoch(Duration::ZERO),
            warnings,
            offer,
        })
    }

    /// Our role: client or server.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Unknown words of the configuration, one sentence each, for the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The versions, cipher suites and groups that are offered to every peer, for the log.
    pub fn offer(&self) -> &str {
        &self.offer
    }

    /// Makes one signature to warm up our key, so that the first handshake takes no longer than later ones.
    pub fn prepare(&self) {
        if let Some(identity) = &self.identity {
            identity.prepare();
        }
    }

    /// Replaces the revocation list; sessions that start from now on are checked with the new one. A list that cannot
    /// be read changes nothing.
    pub fn replace_crl(&self, crl: &[u8]) -> Result<(), SettingsError> {
        let lists = revocation_lists(crl)?;
        self.revocations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lists = Some(lists);
        Ok(())
    }

    /// Whether a peer's certificate, or one that signed it, has been revoked since its session began.
    pub fn is_revoked(&self, peer: &PeerCertificate) -> bool {
        let revocations = self
            .revocations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        peer.chain.iter().any(|certificate| {
            let serials = revocations.serials.as_ref();
            let by_name = serials.map(|it| it.contains(&certificate.serial));
            // If the lookup fails, the next negotiation decides.
            let listed = |it: &Arc<RevocationLists>| it.name(certificate, self.trust.algorithms());
            by_name == Some(Ok(true)) || revocations.lists.as_ref().is_some_and(listed)
        })
    }

    /// Requires the daemon's verdict on each peer whose certificate passes all rules (`tls-verify` of a client). The
    /// session requests it by [`Output::Judge`](crate::session::Output::Judge).
    pub fn ask_for_verdicts(&mut self) {
        self.verdicts = true;
    }

    /// Makes a server's sessions hand out their handshakes by [`Output::Handshake`](crate::session::Output::Handshake)
    /// instead of doing them.
    pub fn hand_out_handshakes(&mut self) {
        self.apart = self.role == Role::Server;
    }

    /// Whether sessions hand out their handshakes.
    pub(crate) fn are_handshakes_apart(&self) -> bool {
        self.apart
    }

    /// Sets the earliest time that it can be now. A certificate that is not valid yet by a clock behind this time is
    /// judged by this time instead.
    pub fn set_earliest(&mut self, earliest: SystemTime) {
        let since = earliest.duration_since(SystemTime::UNIX_EPOCH);
        self.earliest = UnixTime::since_unix_epoch(since.unwrap_or_default());
    }

    /// The verifier that checks the peer of one negotiation.
    pub(super) fn verifier(&self) -> PeerVerifier {
        let revocations = self
            .revocations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        PeerVerifier::new(
            Arc::clone(&self.trust),
            revocations,
            Arc::clone(&self.provider),
            self.client_certificate,
            Arc::clone(&self.hints),
            self.earliest,
        )
    }
}

impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSettings")
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

fn revocation_lists(crl: &[u8]) -> Result<Arc<RevocationLists>, SettingsError> {
    let lists = RevocationLists::parse(crl);
    lists
        .map(Arc::new)
        .map_err(|reason| SettingsError::Unreadable {
            what: "crl-verify",
            reason,
        })
}

fn versions(options: &TlsOptions) -> Result<Vec<&'static SupportedProtocolVersion>, SettingsError> {
    let range = options.version_min..=options.version_max;
    let all = [
        (TlsVersion::V1_3, &rustls::version::TLS13),
        (TlsVersion::V1_2, &rustls::version::TLS12),
    ];
    let versions: Vec<_> = all
        .into_iter()
        .filter(|(version, _)| range.contains(version))
        .map(|(_, it)| it)
        .collect();
    if versions.is_empty() {
        return Err(SettingsError::Refused {
            directive: "tls-version-max",
            reason: "it is below tls-version-min; remove one of the two",
        });
    }
    Ok(versions)
}

fn suites(
    options: &TlsOptions,
    versions: &[&'static SupportedProtocolVersion],
    warnings: &mut Vec<String>,
) -> Result<Vec<SupportedCipherSuite>, SettingsError> {
    let mut unknown = Vec::new();
    let mut suites = match &options.ciphersuites {
        Some(list) => suites::parse_1_3(list, &mut unknown),
        None => suites::default_1_3(),
    };
    if !unknown.is_empty() {
        let instead = match suites.is_empty() {
            true => "; all that are spoken are offered in their place",
            false => "",
        };
        warnings.push(format!(
            "tls-ciphersuites: not supported and left out: {}{instead}",
            unknown.join(" ")
        ));
    }
    if suites.is_empty() {
        suites = suites::default_1_3();
    }
    unknown.clear();
    let (of_1_2, replaced) = match &options.cipher {
        Some(list) => suites::parse_1_2(list, &mut unknown),
        None => (suites::default_1_2(), false),
    };
    suites.extend(of_1_2);
    suites.retain(|suite| versions.contains(&suite.version()));
    if replaced {
        warnings.push(format!(
            "tls-cipher: none of these suites is spoken: {}; ECDHE with AES-GCM or ChaCha20-Poly1305, which is \
             stronger, is offered in their place",
            unknown.join(" ")
        ));
    } else if !unknown.is_empty() {
        warnings.push(format!(
            "tls-cipher: not supported and left out: {}; only forward secret suites with \
             authenticated encryption are",
            unknown.join(" ")
        ));
    }
    for (version, name) in [
        (&rustls::version::TLS12, "TLS 1.2"),
        (&rustls::version::TLS13, "TLS 1.3"),
    ] {
        if versions.contains(&version) && !suites.iter().any(|suite| suite.version() == version) {
            warnings.push(format!(
                "tls-cipher: no supported suite of {name} is named, so that version is not offered; \
                 remove the line if the peer needs it"
            ));
        }
    }
    if suites.is_empty() {
        let (directive, list) = match (&options.cipher, &options.ciphersuites) {
            (Some(list), _) => ("tls-cipher", list),
            (None, Some(list)) => ("tls-ciphersuites", list),
            (None, None) => ("tls-cipher", &String::new()),
        };
        return Err(SettingsError::NothingLeft {
            directive,
            value: list.clone(),
            reason: "none of these suites is supported for the allowed versions of TLS; remove the \
                     line, or name ECDHE suites with GCM or ChaCha20-Poly1305",
        });
    }
    Ok(suites)
}

/// The names of everything that is offered.
fn offer(versions: &[&'static SupportedProtocolVersion], provider: &CryptoProvider) -> String {
    let mut parts = Vec::new();
    for (version, name) in [
        (&rustls::version::TLS13, "TLS 1.3"),
        (&rustls::version::TLS12, "TLS 1.2"),
    ] {
        let of_version = provider.cipher_suites.iter();
        let of_version = of_version.filter(|suite| suite.version() == version);
        let names: Vec<_> = of_version
            .map(|suite| suites::name(suite.suite()))
            .collect();
        if versions.contains(&version) {
            parts.push(format!("{name} with {}", names.join(", ")));
        }
    }
    let groups = provider.kx_groups.iter();
    let groups: Vec<_> = groups.map(|group| format!("{:?}", group.name())).collect();
    parts.push(format!("the groups {}", groups.join(", ")));
    parts.join("; ")
}

fn groups(
    options: &TlsOptions,
    warnings: &mut Vec<String>,
) -> Result<Vec<&'static dyn SupportedKxGroup>, SettingsError> {
    let Some(list) = &options.groups else {
        return Ok(suites::default_groups());
    };
    let mut unknown = Vec::new();
    let groups = suites::parse_groups(list, &mut unknown);
    if groups.is_empty() {
        return Err(SettingsError::NothingLeft {
            directive: "tls-groups",
            value: list.clone(),
            reason: "none of these groups is supported; remove the line, or name X25519MLKEM768, X25519, \
                     secp256r1 or secp384r1",
        });
    }
    if !unknown.is_empty() {
        warnings.push(format!(
            "tls-groups: not supported and left out: {}",
            unknown.join(" ")
        ));
    }
    Ok(groups)
}

/// The authorities to trust. Those of a PKCS#12 container are trusted if there is no `ca`, and
/// else go into the chain that is sent.
fn authorities(
    ca: &[u8],
    identity: &mut Option<Identity>,
) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let from_container = identity
        .as_ref()
        .map(|own| own.authorities.clone())
        .unwrap_or_default();
    if ca.is_empty() {
        return Ok(from_container);
    }
    if !from_container.is_empty() {
        *identity = identity.as_ref().map(Identity::with_authorities_sent);
    }
    Ok(identity::certificates("ca", ca)?)
}
