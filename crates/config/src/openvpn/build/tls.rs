//! Directives about certificates and the rules for the peer's certificate.

use std::path::PathBuf;

use super::Builder;
use super::value::{OK, Outcome, Remark, at, number, one_of, prompted, source};
use crate::openvpn::directive::Directive;
use crate::openvpn::lexer::shown;
use crate::openvpn::{
    CertProfile, CertRole, ClientCertificate, Crl, Fingerprint, TlsVersion, X509Name, X509NameKind,
};

/// Most fingerprints of one configuration.
const FINGERPRINTS_MAX: usize = 65_536;

/// Applies a directive of this group.
pub(super) fn apply(builder: &mut Builder, directive: &Directive) -> Option<Outcome> {
    let value = at(directive, 0);
    let list = || {
        Some(
            value
                .split(':')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    };
    let tls = &mut builder.tls;
    let verify = &mut tls.verify;
    match directive.name.as_str() {
        "ca" => tls.ca = Some(source(directive)),
        "cert" => tls.cert = Some(source(directive)),
        "key" => tls.key = Some(source(directive)),
        "pkcs12" => tls.pkcs12 = Some(source(directive)),
        "extra-certs" => tls.extra_certs = Some(source(directive)),
        "askpass" => tls.askpass = Some(prompted(directive)),
        "crl-verify" => match directive.get(1) {
            None => tls.crl = Some(Crl::List(source(directive))),
            Some("dir") => tls.crl = Some(Crl::Directory(PathBuf::from(value))),
            Some(other) => return Some(Err(one_of(other, &["dir"]))),
        },
        "tls-version-min" => return Some(version_min(builder, directive)),
        "tls-version-max" => match version(value) {
            Ok(version) => tls.version_max = Some(version),
            Err(reason) => return Some(Err(reason)),
        },
        "tls-cipher" => {
            tls.ciphers = list();
            if !names_suite(value.split(':')) {
                return Some(Ok(Remark::Note(NO_SUITE.to_owned())));
            }
        }
        "tls-ciphersuites" => {
            tls.ciphersuites = list();
            if !value.split(':').any(is_suite_1_3) {
                return Some(Ok(Remark::Note(NO_SUITE_1_3.to_owned())));
            }
        }
        "tls-groups" => tls.groups = list(),
        "ecdh-curve" => {
            if tls.groups.is_none() {
                tls.groups = list();
            }
        }
        "tls-cert-profile" => match value {
            "legacy" => tls.profile = CertProfile::Legacy,
            "preferred" => tls.profile = CertProfile::Preferred,
            "suiteb" => tls.profile = CertProfile::SuiteB,
            "insecure" => {
                return Some(Err(
                    "certificates with MD5, SHA-1 or short keys can be forged; ask for new ones \
                     (RSA from 2048 bits or ECDSA, with SHA-256) and remove the line"
                        .to_owned(),
                ));
            }
            other => return Some(Err(one_of(other, &["legacy", "preferred", "suiteb"]))),
        },
        "tls-crypt-v2-max-age" => match number(value, 1..=36_500) {
            Ok(days) => tls.tls_crypt_v2_max_age = Some(days),
            Err(reason) => return Some(Err(reason)),
        },
        "remote-cert-tls" => match role(value) {
            Ok(role) => verify.remote_cert_tls = Some(role),
            Err(reason) => return Some(Err(reason)),
        },
        "ns-cert-type" => match role(value) {
            Ok(role) => verify.ns_cert_type = Some(role),
            Err(reason) => return Some(Err(reason)),
        },
        "remote-cert-ku" => match directive.values.iter().map(|text| usage(text)).collect() {
            Ok(masks) => verify.remote_cert_ku = Some(masks),
            Err(reason) => return Some(Err(reason)),
        },
        "remote-cert-eku" => verify.remote_cert_eku = Some(value.to_owned()),
        "verify-x509-name" => return Some(x509_name(builder, directive)),
        "verify-hash" => return Some(verify_hash(builder, directive)),
        "peer-fingerprint" => {
            return Some(fingerprints(directive, true).and_then(|new| {
                if verify.peer_fingerprints.len() + new.len() > FINGERPRINTS_MAX {
                    return Err(format!("more than {FINGERPRINTS_MAX} fingerprints"));
                }
                verify.peer_fingerprints.extend(new);
                OK
            }));
        }
        "verify-client-cert" => {
            verify.client_certificate = match directive.get(0) {
                None | Some("require") => ClientCertificate::Require,
                Some("optional") => ClientCertificate::Optional,
                Some("none") => ClientCertificate::None,
                Some(other) => return Some(Err(one_of(other, &["require"]))),
            };
        }
        "client-cert-not-required" => {
            verify.client_certificate = ClientCertificate::None;
            let note = "the old name of `verify-client-cert none`".to_owned();
            return Some(Ok(Remark::Note(note)));
        }
        "x509-username-field" => return Some(username_fields(builder, directive)),
        "key-method" => {
            return Some(match value {
                "2" => Ok(Remark::Ignored("the only method there is".to_owned())),
                _ => Err("only method 2 exists since OpenVPN 2.4; remove the line".to_owned()),
            });
        }
        _ => return None,
    }
    Some(OK)
}

/// The remark on a `tls-cipher` in which [`names_suite`] finds no suite.
const NO_SUITE: &str = "none of these suites of TLS 1.2 is spoken: they exchange keys by RSA or old Diffie-Hellman groups, \
    or encrypt in CBC mode. This file connects to servers with TLS 1.3, or with ECDHE and AES-GCM or \
    ChaCha20-Poly1305, which are offered in their place";

/// The remark on a `tls-ciphersuites` without a supported suite.
const NO_SUITE_1_3: &str = "none of these suites of TLS 1.3 is spoken; AES-GCM and ChaCha20-Poly1305 are offered in their place";

fn is_suite_1_3(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('_', "-");
    let spoken = [
        "TLS-AES-256-GCM-SHA384",
        "TLS-CHACHA20-POLY1305-SHA256",
        "TLS-AES-128-GCM-SHA256",
    ];
    spoken.contains(&name.as_str())
}

/// OpenSSL's names for sets that contain supported suites.
const SETS: [&str; 18] = [
    "DEFAULT",
    "ALL",
    "HIGH",
    "SECURE",
    "COMPLEMENTOFDEFAULT",
    "ECDHE",
    "EECDH",
    "KEECDH",
    "KECDHE",
    "TLSV1.2",
    "AESGCM",
    "AES",
    "AES256",
    "AES128",
    "CHACHA20",
    "ECDSA",
    "AECDSA",
    "ARSA",
];

/// Whether one of these names is a supported suite of TLS 1.2.
fn names_suite<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    names.any(is_suite)
}

/// True for a supported suite, and for names of sets that may contain one, such as `DEFAULT`.
fn is_suite(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let spoken = ["GCM", "CHACHA20", "POLY1305"]
        .iter()
        .any(|mode| name.contains(mode));
    !name.starts_with(['!', '-', '@'])
        && (name.split('+').all(|word| SETS.contains(&word)) || name.contains("ECDHE") && spoken)
}

fn version(text: &str) -> Result<TlsVersion, String> {
    match text {
        "1.2" => Ok(TlsVersion::V1_2),
        "1.3" => Ok(TlsVersion::V1_3),
        "1.0" | "1.1" => Err(format!(
            "TLS {text} is broken and not spoken; the other end must learn TLS 1.2"
        )),
        other => Err(one_of(other, &["1.2", "1.3"])),
    }
}

fn version_min(builder: &mut Builder, directive: &Directive) -> Outcome {
    let highest = match directive.get(1) {
        None => false,
        Some("or-highest") => true,
        Some(other) => return Err(one_of(other, &["or-highest"])),
    };
    let text = at(directive, 0);
    builder.tls.version_min = match version(text) {
        Ok(version) => version,
        Err(_) if text == "1.0" || text == "1.1" => {
            builder.tls.version_min = TlsVersion::V1_2;
            return Ok(Remark::Note(
                "TLS 1.2 is the oldest that is spoken".to_owned(),
            ));
        }
        Err(_) if highest => TlsVersion::V1_3,
        Err(reason) => return Err(reason),
    };
    OK
}

fn role(text: &str) -> Result<CertRole, String> {
    match text {
        "client" => Ok(CertRole::Client),
        "server" => Ok(CertRole::Server),
        other => Err(one_of(other, &["client", "server"])),
    }
}

/// Parses a mask of key usages in hexadecimal, such as `a0`.
fn usage(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u16::from_str_radix(digits, 16)
        .map_err(|_| format!("`{}` is no key usage in hexadecimal", shown(text)))
}

fn x509_name(builder: &mut Builder, directive: &Directive) -> Outcome {
    let kind = match directive.get(1) {
        None | Some("subject") => X509NameKind::Subject,
        Some("name") => X509NameKind::Name,
        Some("name-prefix") => X509NameKind::NamePrefix,
        Some(other) => return Err(one_of(other, &["subject", "name", "name-prefix"])),
    };
    let name = at(directive, 0).to_owned();
    if name.is_empty() {
        return Err("the name is empty, which every certificate would fit".to_owned());
    }
    builder.tls.verify.x509_name = Some(X509Name { kind, name });
    OK
}

fn verify_hash(builder: &mut Builder, directive: &Directive) -> Outcome {
    // The default is SHA-1 on a line and SHA-256 in a block, as in stock.
    let sha256 = match directive.get(1) {
        None => directive.inline.is_some(),
        Some("SHA1") => false,
        Some("SHA256") => true,
        Some(other) => return Err(one_of(other, &["SHA256", "SHA1"])),
    };
    let new = fingerprints(directive, sha256)?;
    builder.tls.verify.issuer_fingerprints.extend(new);
    Ok(Remark::Note(
        "`peer-fingerprint`, or the signing certificate as `ca`, says it better".to_owned(),
    ))
}

/// Parses one fingerprint a line; `#` and `;` begin a comment.
fn fingerprints(directive: &Directive, sha256: bool) -> Result<Vec<Fingerprint>, String> {
    let text = match &directive.inline {
        Some(block) => block.expose(),
        None => at(directive, 0),
    };
    let lines = text
        .lines()
        .map(|line| line.split(['#', ';']).next().unwrap_or("").trim());
    let found: Result<Vec<_>, _> = lines
        .filter(|line| !line.is_empty())
        .map(|line| fingerprint(line, sha256))
        .collect();
    match found {
        Ok(found) if found.is_empty() => Err("holds no fingerprint".to_owned()),
        other => other,
    }
}

fn fingerprint(text: &str, sha256: bool) -> Result<Fingerprint, String> {
    let wrong = || {
        let bytes = if sha256 { 32 } else { 20 };
        format!(
            "`{}` is no fingerprint of {bytes} bytes, AB:CD:…; `openssl x509 -fingerprint \
             {} -noout -in FILE` prints one",
            shown(text),
            if sha256 { "-sha256" } else { "-sha1" },
        )
    };
    let bytes: Vec<u8> = text
        .split(':')
        .map(|pair| match pair.len() {
            2 => u8::from_str_radix(pair, 16).map_err(|_| wrong()),
            _ => Err(wrong()),
        })
        .collect::<Result<_, _>>()?;
    match sha256 {
        true => bytes.try_into().map(Fingerprint::Sha256),
        false => bytes.try_into().map(Fingerprint::Sha1),
    }
    .map_err(|_| wrong())
}

fn username_fields(builder: &mut Builder, directive: &Directive) -> Outcome {
    let mut fields = Vec::new();
    for field in &directive.values {
        match field.strip_prefix("ext:") {
            Some("subjectAltName" | "issuerAltName") => fields.push(field.clone()),
            Some(other) => return Err(one_of(other, &["subjectAltName", "issuerAltName"])),
            // Names in lower case are taken as upper case, as in stock.
            None if field.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                fields.push(field.clone());
            }
            None => fields.push(field.to_ascii_uppercase()),
        }
    }
    builder.tls.verify.username_fields = fields;
    OK
}
