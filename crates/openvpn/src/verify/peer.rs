//! Facts about a verified peer, for logs, scripts and accounts.

use crate::verify::certificate::Certificate;
use crate::verify::rules::{sha1, sha256};
use crate::verify::time::Time;
use crate::{der, name};
use std::time::SystemTime;

/// A peer's certificate that was verified, and the chain up to what we trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The common name, or the field that stands for it, with `_` for characters that are not printable.
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
    /// The issuer's name in the form in which names are compared.
    pub(crate) issuer: Box<[u8]>,
    /// The issuer's key (the content of its SubjectPublicKeyInfo), if the chain has it: authorities may share a name.
    pub(crate) issuer_key: Option<Box<[u8]>>,
    /// The end of validity.
    pub(crate) not_after: Time,
    /// The parts of the subject, by OpenSSL's short names, in order: `("CN", "server")`.
    pub fields: Vec<(String, String)>,
}

impl PeerCertificate {
    /// The subject of the peer's own certificate.
    pub fn subject(&self) -> &str {
        self.chain.first().map_or("", |own| &own.subject)
    }

    /// The SHA-256 digest of the peer's own certificate.
    pub fn fingerprint(&self) -> Option<&[u8; 32]> {
        self.chain.first().map(|own| &own.sha256)
    }

    /// The end of the peer's own certificate.
    pub fn ends(&self) -> Option<SystemTime> {
        self.chain.first().map(|own| own.not_after.system())
    }

    /// The environment of scripts: `common_name`, and for each certificate of the chain its
    /// `X509_n_FIELD`, `tls_id_n`, `tls_digest_n`, `tls_digest_sha256_n`, `tls_serial_n` and
    /// `tls_serial_hex_n`, where n is 0 for the peer's own. From the trusted one downwards, as
    /// stock programs set them.
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        for (depth, certificate) in self.chain.iter().enumerate().rev() {
            certificate.environment(depth, &mut variables);
        }
        variables.push(("common_name".to_owned(), self.common_name.clone()));
        variables
    }
}

impl ChainCertificate {
    /// `above` is the next one of the chain.
    pub(super) fn new(certificate: &Certificate<'_>, above: Option<&Certificate<'_>>) -> Self {
        let subject = certificate.subject_name();
        let own = Some(certificate).filter(|it| it.is_self_issued());
        Self {
            subject: subject
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            serial: der::decimal(certificate.serial_integer),
            serial_hex: der::hex(certificate.serial),
            sha1: sha1(certificate.der),
            sha256: sha256(certificate.der),
            issuer: name::canonical(certificate.issuer).into(),
            issuer_key: above.or(own).map(|it| it.public_key.into()),
            not_after: certificate.not_after,
            fields: subject.map(|name| name.fields()).unwrap_or_default(),
        }
    }

    /// Adds the variables of this certificate.
    fn environment(&self, depth: usize, variables: &mut Vec<(String, String)>) {
        for (at, (field, value)) in self.fields.iter().enumerate() {
            // A field that comes again is numbered.
            let before = self.fields[..at]
                .iter()
                .filter(|(other, _)| other == field)
                .count();
            let number = if before > 0 {
                format!("_{before}")
            } else {
                String::new()
            };
            variables.push((format!("X509_{depth}_{field}{number}"), value.clone()));
        }
        for (name, value) in [
            ("tls_id", self.subject.clone()),
            ("tls_digest", der::hex(&self.sha1)),
            ("tls_digest_sha256", der::hex(&self.sha256)),
            ("tls_serial", self.serial.clone()),
            ("tls_serial_hex", self.serial_hex.clone()),
        ] {
            variables.push((format!("{name}_{depth}"), value));
        }
    }
}
