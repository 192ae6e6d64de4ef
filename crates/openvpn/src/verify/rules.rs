//! OpenVPN's own rules for the peer's certificate, beyond its chain.

use aws_lc_rs::digest;
use subtle::ConstantTimeEq;

use crate::der::oid::{CLIENT_AUTH, SERVER_AUTH};
use crate::der::{self, BadDer, hex};
use crate::verify::certificate::Certificate;

/// The longest common name, in bytes, as stock programs have it.
const NAME_MAX: usize = 64;

/// The use of a certificate.
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
    /// The extension must be present, whatever its bits (TLS itself checks those that it needs).
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
    /// The beginning of the common name.
    NamePrefix(String),
}

/// A digest that `verify-hash` or `peer-fingerprint` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fingerprint {
    /// SHA-1, only of `verify-hash`.
    Sha1([u8; 20]),
    /// SHA-256
    Sha256([u8; 32]),
}

impl Fingerprint {
    /// Whether a certificate has this digest.
    fn matches(&self, certificate: &[u8]) -> bool {
        match self {
            Self::Sha1(wanted) => sha1(certificate).ct_eq(wanted).into(),
            Self::Sha256(wanted) => sha256(certificate).ct_eq(wanted).into(),
        }
    }
}

/// The SHA-1 digest of a certificate.
pub(crate) fn sha1(certificate: &[u8]) -> [u8; 20] {
    fixed(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, certificate).as_ref())
}

/// The SHA-256 digest of a certificate.
pub(crate) fn sha256(certificate: &[u8]) -> [u8; 32] {
    fixed(digest::digest(&digest::SHA256, certificate).as_ref())
}

/// A digest in an array of its length.
fn fixed<const N: usize>(digest: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(digest);
    array
}

/// The rules for the peer's certificate, beyond its chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// else of the chain is checked, and a self-signed certificate suffices.
    pub peer_fingerprints: Vec<Fingerprint>,
    /// `verify-hash`: the certificate that signed the peer's must be one of these.
    pub issuer_fingerprints: Vec<Fingerprint>,
    /// `x509-username-field`: what counts as common name, joined by `_`; empty stands for `CN`.
    pub username_fields: Vec<String>,
}

impl PeerRules {
    /// `remote-cert-tls`: the peer's certificate must have been made for that end of TLS. Explicit `remote-cert-ku` and
    /// `remote-cert-eku` stay.
    pub fn remote_cert_tls(&mut self, usage: Usage) {
        self.key_usage.get_or_insert(KeyUsageRule::Present);
        self.extended_key_usage.get_or_insert_with(|| {
            match usage {
                Usage::Client => "TLS Web Client Authentication",
                Usage::Server => "TLS Web Server Authentication",
            }
            .to_owned()
        });
    }

    /// The peer's common name, or the field that replaces it.
    pub(crate) fn common_name(&self, certificate: &Certificate<'_>) -> Result<String, String> {
        let default = ["CN".to_owned()];
        let fields = if self.username_fields.is_empty() {
            &default
        } else {
            &self.username_fields[..]
        };
        let mut values = Vec::with_capacity(fields.len());
        for field in fields {
            let value = match field.as_str() {
                "ext:subjectAltName" => certificate.mail_address().unwrap_or(None),
                // The certificate's number, not the attribute of that name in the subject.
                "serialNumber" => Some(format!("0x{}", hex(certificate.serial).replace(':', ""))),
                part => certificate.subject_name().and_then(|name| name.last(part)),
            };
            let value = value.filter(|value| !value.is_empty()).ok_or_else(|| {
                format!(
                    "it has no {field}; name a field that it has with x509-username-field, or have \
                     it made anew"
                )
            })?;
            if value.len() > NAME_MAX {
                return Err(format!(
                    "its {field} has {} bytes, and {NAME_MAX} are allowed",
                    value.len()
                ));
            }
            values.push(value.replace(char::is_control, "_"));
        }
        Ok(values.join("_"))
    }

    /// Checks the peer's own certificate. The error tells the fault and the remedy.
    pub(crate) fn check(
        &self,
        certificate: &Certificate<'_>,
        common_name: &str,
    ) -> Result<(), String> {
        if !self.peer_fingerprints.is_empty()
            && !self
                .peer_fingerprints
                .iter()
                .any(|wanted| wanted.matches(certificate.der))
        {
            return Err(format!(
                "it is not among those of peer-fingerprint; if it is the right one, add {}",
                hex(&sha256(certificate.der)).to_uppercase()
            ));
        }
        let broken = |BadDer| "one of its extensions cannot be read".to_owned();
        if let Some(usage) = self.netscape_type {
            check_netscape_type(certificate, usage).map_err(broken)??;
        }
        if let Some(rule) = &self.key_usage {
            check_key_usage(certificate.key_usage().map_err(broken)?, rule)?;
        }
        if let Some(wanted) = &self.extended_key_usage {
            let present = certificate
                .extended_key_usage()
                .map_err(broken)?
                .unwrap_or_default();
            if !present
                .iter()
                .any(|oid| der::dotted(oid) == *wanted || long_name(oid) == Some(wanted))
            {
                return Err(format!(
                    "its extended key usage is not '{wanted}', which remote-cert-tls or \
                     remote-cert-eku demands; have it made for that use"
                ));
            }
        }
        if let Some(rule) = &self.name {
            check_name(certificate, common_name, rule)?;
        }
        Ok(())
    }

    /// Checks the certificate that signed the peer's.
    pub(crate) fn check_issuer(&self, issuer: Option<&[u8]>) -> Result<(), String> {
        if self.issuer_fingerprints.is_empty() {
            return Ok(());
        }
        let issuer = issuer.ok_or("verify-hash wants an authority above it, and there is none")?;
        if self
            .issuer_fingerprints
            .iter()
            .any(|wanted| wanted.matches(issuer))
        {
            return Ok(());
        }
        Err(format!(
            "the authority that signed it is not the one of verify-hash; its SHA-256 fingerprint is {}",
            hex(&sha256(issuer)).to_uppercase()
        ))
    }
}

fn check_key_usage(present: Option<u16>, rule: &KeyUsageRule) -> Result<(), String> {
    let Some(present) = present else {
        return Err(
            "it has no key usage, which remote-cert-tls or remote-cert-ku demands; have it \
                    made anew with one"
                .to_owned(),
        );
    };
    let KeyUsageRule::AnyOf(wanted) = rule else {
        return Ok(());
    };
    // Only the eight bits of the first octet are compared, as stock programs do.
    let present = present & 0xff;
    if wanted
        .iter()
        .any(|&wanted| wanted != 0 && present & wanted == wanted)
    {
        return Ok(());
    }
    let wanted: Vec<_> = wanted
        .iter()
        .map(|wanted| format!("{wanted:02x}"))
        .collect();
    Err(format!(
        "its key usage is {present:02x}, and remote-cert-ku wants {}",
        wanted.join(" or ")
    ))
}

fn check_netscape_type(
    certificate: &Certificate<'_>,
    usage: Usage,
) -> Result<Result<(), String>, BadDer> {
    let (bit, oid, name) = match usage {
        Usage::Client => (0x80, CLIENT_AUTH, "client"),
        Usage::Server => (0x40, SERVER_AUTH, "server"),
    };
    // Stock programs check first whether the certificate is valid for that end of TLS at all, so one
    // with neither extension passes.
    let netscape = certificate.netscape_type()?;
    let extended = certificate.extended_key_usage()?;
    let by_netscape = netscape.map(|netscape| netscape & bit != 0);
    let by_extended = extended.map(|usages| usages.contains(&oid));
    Ok(match (by_netscape, by_extended) {
        (Some(true), _) | (None, Some(true) | None) => Ok(()),
        (Some(false), _) | (None, Some(false)) => Err(format!(
            "it was not made for a TLS {name}, which ns-cert-type demands; have it made for that use"
        )),
    })
}

fn check_name(
    certificate: &Certificate<'_>,
    common_name: &str,
    rule: &NameRule,
) -> Result<(), String> {
    let (name, must, wanted, good) = match rule {
        NameRule::Subject(wanted) => {
            let subject = certificate.describe();
            let good = subject == *wanted;
            (subject, "be", wanted, good)
        }
        NameRule::Name(wanted) => (common_name.to_owned(), "be", wanted, common_name == wanted),
        NameRule::NamePrefix(wanted) => (
            common_name.to_owned(),
            "start with",
            wanted,
            common_name.starts_with(wanted.as_str()),
        ),
    };
    if good {
        return Ok(());
    }
    Err(format!(
        "its name is '{name}' and must {must} '{wanted}' (verify-x509-name)"
    ))
}

/// OpenSSL's long names of extended key usages.
fn long_name(oid: &[u8]) -> Option<&'static str> {
    Some(match oid {
        SERVER_AUTH => "TLS Web Server Authentication",
        CLIENT_AUTH => "TLS Web Client Authentication",
        [0x2b, 6, 1, 5, 5, 7, 3, 3] => "Code Signing",
        [0x2b, 6, 1, 5, 5, 7, 3, 4] => "E-mail Protection",
        [0x2b, 6, 1, 5, 5, 7, 3, 5] => "IPSec End System",
        [0x2b, 6, 1, 5, 5, 7, 3, 6] => "IPSec Tunnel",
        [0x2b, 6, 1, 5, 5, 7, 3, 7] => "IPSec User",
        [0x2b, 6, 1, 5, 5, 7, 3, 8] => "Time Stamping",
        [0x2b, 6, 1, 5, 5, 7, 3, 17] => "ipsec Internet Key Exchange",
        [0x55, 0x1d, 0x25, 0] => "Any Extended Key Usage",
        _ => return None,
    })
}
