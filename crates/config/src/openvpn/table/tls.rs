//! Directives about certificates and the rules for the peer's certificate.

use std::path::PathBuf;

use super::foreign;
use super::value::{
    OK, Outcome, ignored, note, number, one_of, prompted, put, set, some, source, word,
};
use super::{
    EXTERNAL, End, Entry, INLINE, LIST, MANY, OPENSSL, PKCS11, SECRET, file, here, no, one, skip,
    text, yes,
};
use crate::openvpn::directive::Directive;
use crate::openvpn::draft::{ConnectionDraft, Draft};
use crate::openvpn::lexer::shown;
use crate::openvpn::{
    CertificateProfile, Crl, Fingerprint, KeyDirection, KeyUsageRule, NameRule, TlsVersion, Usage,
};

/// Maximum number of fingerprints of one configuration.
const FINGERPRINTS_MAX: usize = 65_536;

pub(super) const ROWS: &[Entry] = &[
    file("ca", |d| &mut d.tls.ca),
    no(
        "capath",
        "directories of certificates are not searched; join them into one `ca` file",
    ),
    file("cert", |d| &mut d.tls.cert),
    file("key", |d| &mut d.tls.key).is(SECRET),
    file("pkcs12", |d| &mut d.tls.pkcs12).is(SECRET),
    file("extra-certs", |d| &mut d.tls.extra_certs).foreign(foreign::certificates),
    yes("crl-verify", 1, 2, |d, it| {
        let list = match it.get(1) {
            None => Crl::List(source(it)),
            Some("dir") => Crl::Directory(PathBuf::from(it.at(0))),
            Some(other) => return Err(one_of(other, &["dir"])),
        };
        put(&mut d.tls.crl, list)
    })
    .is(INLINE),
    yes("askpass", 0, 1, |d, it| {
        put(&mut d.tls.askpass, prompted(it))
    })
    .is(SECRET),
    skip(
        "dh",
        "no old Diffie-Hellman group is used: key exchange is by elliptic curves",
    )
    .is(INLINE),
    yes("tls-version-min", 1, 2, version_min),
    one("tls-version-max", |d, v| {
        some(&mut d.tls.version_max, version(v))
    }),
    one("tls-cipher", |d, v| {
        d.tls.ciphers = Some(names(v));
        match v.split(':').any(is_suite) {
            true => OK,
            false => note(NO_SUITE),
        }
    }),
    one("tls-ciphersuites", |d, v| {
        d.tls.ciphersuites = Some(names(v));
        match v.split(':').any(is_suite_1_3) {
            true => OK,
            false => note(NO_SUITE_1_3),
        }
    }),
    one("tls-groups", |d, v| put(&mut d.tls.groups, names(v))),
    one("ecdh-curve", |d, v| {
        d.tls.groups.get_or_insert_with(|| names(v));
        OK
    }),
    one("tls-cert-profile", |d, v| match v {
        "insecure" => Err(
            "certificates with MD5, SHA-1 or short keys can be forged; ask for new ones \
             (RSA from 2048 bits or ECDSA, with SHA-256) and remove the line"
                .to_owned(),
        ),
        name => {
            let profiles = [
                ("legacy", CertificateProfile::Legacy),
                ("preferred", CertificateProfile::Preferred),
                ("suiteb", CertificateProfile::SuiteB),
            ];
            set(&mut d.tls.profile, word(name, &profiles))
        }
    }),
    here("tls-auth", 1, 2, tls_auth).is(INLINE | SECRET),
    here("key-direction", 1, 1, |d, it| {
        some(&mut d.key_direction, direction(it.at(0)))
    }),
    here("tls-crypt", 1, 2, |d, it| {
        d.tls_crypt = Some(source(it));
        match it.get(1) {
            Some(_) => note("a tls-crypt key has no direction"),
            None => OK,
        }
    })
    .is(INLINE | SECRET),
    here("tls-crypt-v2", 1, 2, tls_crypt_v2).is(INLINE | SECRET),
    one("tls-crypt-v2-max-age", |d, v| {
        let days = number(v, 1..=36_500);
        some(&mut d.tls.tls_crypt_v2_max_age, days)
    })
    .end(End::IdleInClient),
    one("remote-cert-tls", |d, v| {
        some(&mut d.remote_cert_tls, role(v))
    }),
    yes("remote-cert-ku", 0, MANY, |d, it| {
        let masks: Result<Vec<u16>, _> = it.values.iter().map(|text| usage(text)).collect();
        let rule = masks.map(|masks| match masks.is_empty() {
            true => KeyUsageRule::Present,
            false => KeyUsageRule::AnyOf(masks),
        });
        some(&mut d.tls.rules.key_usage, rule)
    }),
    text("remote-cert-eku", |d| &mut d.tls.rules.extended_key_usage),
    one("ns-cert-type", |d, v| {
        some(&mut d.tls.rules.netscape_type, role(v))
    }),
    yes("verify-x509-name", 1, 2, x509_name),
    yes("verify-hash", 1, 2, verify_hash).is(INLINE | LIST),
    yes("peer-fingerprint", 1, 1, |d, it| {
        let new = fingerprints(it, true)?;
        let all = &mut d.tls.rules.peer_fingerprints;
        if all.len() + new.len() > FINGERPRINTS_MAX {
            return Err(format!("more than {FINGERPRINTS_MAX} fingerprints"));
        }
        all.extend(new);
        OK
    })
    .is(INLINE | LIST),
    yes("x509-username-field", 1, MANY, username_fields),
    skip(
        "x509-track",
        "scripts get X509_* for each field of every subject without it",
    ),
    no(
        "keying-material-exporter",
        "keying material is not given to anybody else; remove the line",
    ),
    no(
        "tls-remote",
        "removed from OpenVPN 2.4; write `verify-x509-name NAME name`",
    ),
    no(
        "compat-names",
        "removed from OpenVPN 2.5; write names as `verify-x509-name` has them",
    ),
    skip("no-name-remapping", "names are not rewritten"),
    no(
        "tls-export-cert",
        "peer certificates are not written to files; `tls-verify` gets X509_*",
    ),
    no(
        "cryptoapicert",
        "a Windows key store; use `cert` and `key`, or `pkcs12`",
    ),
    no("management-external-key", EXTERNAL),
    no("management-external-cert", EXTERNAL),
    no("pkcs11-providers", PKCS11),
    no("pkcs11-protected-authentication", PKCS11),
    no("pkcs11-private-mode", PKCS11),
    no("pkcs11-cert-private", PKCS11),
    no("pkcs11-pin-cache", PKCS11),
    no("pkcs11-id", PKCS11),
    no("pkcs11-id-management", PKCS11),
    no(
        "secret",
        "a static key without TLS has no forward secrecy and is gone from OpenVPN 2.8; \
         give both ends certificates, or `peer-fingerprint`",
    )
    .is(INLINE),
    skip(
        "allow-deprecated-insecure-static-crypto",
        "there is no static-key mode to allow",
    ),
    one("key-method", |_, v| match v {
        "2" => ignored("the only method there is"),
        _ => Err("only method 2 exists since OpenVPN 2.4; remove the line".to_owned()),
    }),
    skip("single-session", "a peer has one session"),
    skip("prng", OPENSSL),
    skip("engine", OPENSSL),
    skip("providers", OPENSSL),
    skip("use-prediction-resistance", OPENSSL),
];

/// The names of a list that colons separate.
fn names(value: &str) -> Vec<String> {
    let names = value.split(':').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Parses `0` or `1`.
fn direction(text: &str) -> Result<KeyDirection, String> {
    let sides = [("0", KeyDirection::Normal), ("1", KeyDirection::Inverse)];
    word(text, &sides)
}

fn tls_auth(draft: &mut ConnectionDraft, directive: &Directive) -> Outcome {
    let given = directive.get(1).map(direction).transpose()?;
    draft.tls_auth = Some(source(directive));
    // A block's own key does not inherit another key's direction.
    if draft.origin.is_some() || given.is_some() {
        draft.key_direction = given;
    }
    OK
}

fn tls_crypt_v2(draft: &mut ConnectionDraft, directive: &Directive) -> Outcome {
    if let Some(cookies) = directive.get(1) {
        let ways = [("force-cookie", true), ("allow-noncookie", false)];
        draft.force_cookie = Some(word(cookies, &ways)?);
    }
    put(&mut draft.tls_crypt_v2, source(directive))
}

/// The remark on a `tls-cipher` in which [`is_suite`] finds no suite.
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
        "1.0" | "1.1" => Err(format!(
            "TLS {text} is broken and not spoken; the other end must learn TLS 1.2"
        )),
        _ => word(
            text,
            &[("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)],
        ),
    }
}

fn version_min(draft: &mut Draft, directive: &Directive) -> Outcome {
    let highest = directive.get(1);
    let highest = highest.map_or(Ok(false), |it| word(it, &[("or-highest", true)]))?;
    let text = directive.at(0);
    draft.tls.version_min = match version(text) {
        Ok(version) => version,
        Err(_) if text == "1.0" || text == "1.1" => {
            draft.tls.version_min = TlsVersion::V1_2;
            return note("TLS 1.2 is the oldest that is spoken");
        }
        Err(_) if highest => TlsVersion::V1_3,
        Err(reason) => return Err(reason),
    };
    OK
}

fn role(value: &str) -> Result<Usage, String> {
    let roles = [("client", Usage::Client), ("server", Usage::Server)];
    word(value, &roles)
}

/// Parses a mask of key usages in hexadecimal, such as `a0`.
fn usage(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u16::from_str_radix(digits, 16)
        .map_err(|_| format!("`{}` is no key usage in hexadecimal", shown(text)))
}

fn x509_name(draft: &mut Draft, directive: &Directive) -> Outcome {
    type Make = fn(String) -> NameRule;
    let kinds: [(&str, Make); 3] = [
        ("subject", NameRule::Subject),
        ("name", NameRule::Name),
        ("name-prefix", NameRule::NamePrefix),
    ];
    let rule = word(directive.get(1).unwrap_or("subject"), &kinds)?;
    let name = directive.at(0).to_owned();
    if name.is_empty() {
        return Err("the name is empty, which every certificate would fit".to_owned());
    }
    put(&mut draft.tls.rules.name, rule(name))
}

fn verify_hash(draft: &mut Draft, directive: &Directive) -> Outcome {
    // The default is SHA-1 on a line and SHA-256 in a block, as in stock.
    let kinds = [("SHA256", true), ("SHA1", false)];
    let sha256 = directive.get(1).map(|it| word(it, &kinds)).transpose()?;
    let new = fingerprints(
        directive,
        sha256.unwrap_or_else(|| directive.inline.is_some()),
    )?;
    draft.tls.rules.issuer_fingerprints.extend(new);
    note("`peer-fingerprint`, or the signing certificate as `ca`, says it better")
}

/// Parses one fingerprint a line; `#` and `;` begin a comment.
fn fingerprints(directive: &Directive, sha256: bool) -> Result<Vec<Fingerprint>, String> {
    let text = match &directive.inline {
        Some(block) => block.expose(),
        None => directive.at(0),
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

fn username_fields(draft: &mut Draft, directive: &Directive) -> Outcome {
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
    draft.tls.rules.username_fields = fields;
    OK
}
