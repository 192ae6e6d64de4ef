//! The names of cipher suites and groups, as OpenVPN files have them.

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::{cipher_suite as suite, kx_group};
use rustls::{CipherSuite, SupportedCipherSuite};

/// The suites of TLS 1.2: IANA's name, OpenSSL's name.
const SUITES_1_2: [(SupportedCipherSuite, &str, &str); 6] = [
    (
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLS-ECDHE-ECDSA-WITH-AES-256-GCM-SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "TLS-ECDHE-RSA-WITH-AES-256-GCM-SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    (
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS-ECDHE-ECDSA-WITH-CHACHA20-POLY1305-SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS-ECDHE-RSA-WITH-CHACHA20-POLY1305-SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
    (
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLS-ECDHE-ECDSA-WITH-AES-128-GCM-SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "TLS-ECDHE-RSA-WITH-AES-128-GCM-SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
];

/// The suites of TLS 1.3, which have the same name in IANA's list and in OpenSSL.
const SUITES_1_3: [(SupportedCipherSuite, &str); 3] = [
    (suite::TLS13_AES_256_GCM_SHA384, "TLS-AES-256-GCM-SHA384"),
    (
        suite::TLS13_CHACHA20_POLY1305_SHA256,
        "TLS-CHACHA20-POLY1305-SHA256",
    ),
    (suite::TLS13_AES_128_GCM_SHA256, "TLS-AES-128-GCM-SHA256"),
];

/// OpenSSL's words for sets of suites that hold all of ours.
const ALL: [&str; 10] = [
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
];

/// IANA's name of a suite, or its number.
pub(super) fn name(suite: CipherSuite) -> String {
    let name = suite
        .as_str()
        .map(|name| name.replacen("TLS13_", "TLS_", 1));
    name.unwrap_or_else(|| format!("{:#06x}", u16::from(suite)))
}

/// All suites of TLS 1.2, ours best first.
pub(super) fn default_1_2() -> Vec<SupportedCipherSuite> {
    SUITES_1_2.iter().map(|(suite, ..)| *suite).collect()
}

/// All suites of TLS 1.3, ours best first.
pub(super) fn default_1_3() -> Vec<SupportedCipherSuite> {
    SUITES_1_3.iter().map(|(suite, _)| *suite).collect()
}

/// The suites that `tls-cipher` names, in its order. Names of other suites go to `unknown`. If all names are unknown,
/// the result is all suites that the list does not exclude, and the second value is `true`.
pub(super) fn parse_1_2(
    list: &str,
    unknown: &mut Vec<String>,
) -> (Vec<SupportedCipherSuite>, bool) {
    let before = unknown.len();
    let mut found: Vec<SupportedCipherSuite> = Vec::new();
    let mut banned: Vec<SupportedCipherSuite> = Vec::new();
    for word in words(list) {
        let name = word
            .trim_start_matches(['!', '-', '+'])
            .to_ascii_uppercase()
            .replace('_', "-");
        let named: Vec<_> = match SUITES_1_2
            .iter()
            .find(|(_, iana, openssl)| name == *iana || name == *openssl)
        {
            Some((suite, ..)) => vec![*suite],
            None => set(&name),
        };
        if word.starts_with('!') {
            banned.extend(&named);
        }
        if word.starts_with(['!', '-']) {
            // Suites that we do not have are excluded already.
            found.retain(|suite| !named.contains(suite));
        } else if word.starts_with('@') || word.starts_with('+') {
            // An order of OpenSSL's, or a security level below which we do not go anyway.
        } else if named.is_empty() {
            unknown.push(word.to_owned());
        } else {
            for suite in named {
                if !found.contains(&suite) {
                    found.push(suite);
                }
            }
        }
    }
    let replaced = found.is_empty() && unknown.len() > before;
    if replaced {
        // DHE or CBC: every suite of ours is stronger than what the list allows.
        found = default_1_2();
    }
    found.retain(|suite| !banned.contains(suite));
    let replaced = replaced && !found.is_empty();
    (found, replaced)
}

/// The suites of TLS 1.2 that an OpenSSL word, or several joined by `+`, stands for.
fn set(name: &str) -> Vec<SupportedCipherSuite> {
    let holds = |openssl: &str, word: &str| match word {
        word if ALL.contains(&word) => true,
        "AESGCM" => openssl.contains("GCM"),
        "AES" | "AES256" | "AES128" | "CHACHA20" | "ECDSA" => openssl.contains(word),
        "AECDSA" => openssl.contains("ECDSA"),
        "ARSA" => openssl.contains("RSA") && !openssl.contains("ECDSA"),
        _ => false,
    };
    let all = SUITES_1_2.iter();
    all.filter(|(_, _, openssl)| name.split('+').all(|word| holds(openssl, word)))
        .map(|(suite, ..)| *suite)
        .collect()
}

/// The suites that `tls-ciphersuites` names, in its order.
pub(super) fn parse_1_3(list: &str, unknown: &mut Vec<String>) -> Vec<SupportedCipherSuite> {
    let mut found = Vec::new();
    for word in words(list) {
        let name = word.to_ascii_uppercase().replace('_', "-");
        match SUITES_1_3.iter().find(|(_, iana)| name == *iana) {
            Some((suite, _)) if found.contains(suite) => {}
            Some((suite, _)) => found.push(*suite),
            None => unknown.push(word.to_owned()),
        }
    }
    found
}

/// The groups without `tls-groups`, as peers with OpenSSL 3.5 have them: a post-quantum group comes first. A client
/// sends shares for the first and for X25519, which is a part of it. So a peer that knows only classical groups costs
/// no extra round trip.
pub(super) fn default_groups() -> Vec<&'static dyn SupportedKxGroup> {
    vec![
        kx_group::X25519MLKEM768,
        kx_group::X25519,
        kx_group::SECP256R1,
        kx_group::SECP384R1,
    ]
}

/// The groups that `tls-groups` or `ecdh-curve` names, in its order.
pub(super) fn parse_groups(
    list: &str,
    unknown: &mut Vec<String>,
) -> Vec<&'static dyn SupportedKxGroup> {
    let mut found: Vec<&'static dyn SupportedKxGroup> = Vec::new();
    for word in words(list) {
        let group = match word.to_ascii_lowercase().as_str() {
            "x25519" => kx_group::X25519,
            "secp256r1" | "prime256v1" | "p-256" => kx_group::SECP256R1,
            "secp384r1" | "p-384" => kx_group::SECP384R1,
            "x25519mlkem768" => kx_group::X25519MLKEM768,
            "secp256r1mlkem768" => kx_group::SECP256R1MLKEM768,
            _ => {
                unknown.push(word.to_owned());
                continue;
            }
        };
        if !found.iter().any(|other| other.name() == group.name()) {
            found.push(group);
        }
    }
    found
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([':', ',', ' ']).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> (usize, Vec<String>) {
        let mut unknown = Vec::new();
        (parse_1_2(list, &mut unknown).0.len(), unknown)
    }

    #[test]
    fn both_kinds_of_name_are_known() {
        for name in [
            "ECDHE-RSA-AES256-GCM-SHA384",
            "TLS-ECDHE-RSA-WITH-AES-256-GCM-SHA384",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        ] {
            let (suites, _) = parse_1_2(name, &mut Vec::new());
            assert_eq!(
                suites,
                [suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384],
                "{name}"
            );
        }
        let suites = parse_1_3(
            "TLS_AES_128_GCM_SHA256:TLS-AES-256-GCM-SHA384:x",
            &mut Vec::new(),
        );
        assert_eq!(
            suites,
            [
                suite::TLS13_AES_128_GCM_SHA256,
                suite::TLS13_AES_256_GCM_SHA384
            ]
        );
    }

    #[test]
    fn lists_of_openssl_are_understood() {
        assert_eq!(parse("DEFAULT:!EXP:!LOW:@SECLEVEL=0"), (6, vec![]));
        assert_eq!(parse("ECDHE+AESGCM:!AES128"), (2, vec![]));
        assert_eq!(parse("ECDHE+AESGCM+aRSA"), (2, vec![]));
        assert_eq!(parse("!AES256:HIGH"), (4, vec![]));
    }

    #[test]
    fn a_list_of_weaker_suites_only_stands_for_all_of_ours() {
        let list = "TLS-DHE-RSA-WITH-AES-256-CBC-SHA:ECDHE-RSA-AES256-SHA384";
        assert_eq!(parse(list).0, 6);
        assert_eq!(parse(&format!("{list}:!CHACHA20")).0, 4);
        assert_eq!(parse(&format!("{list}:!ECDHE")).0, 0);
        assert_eq!(parse("!AES:!CHACHA20").0, 0);
    }

    #[test]
    fn what_is_not_known_is_told() {
        let (found, unknown) =
            parse("TLS-DHE-RSA-WITH-AES-256-CBC-SHA:ECDHE-RSA-AES128-GCM-SHA256");
        assert_eq!(
            (found, unknown),
            (1, vec!["TLS-DHE-RSA-WITH-AES-256-CBC-SHA".to_owned()])
        );
        let mut unknown = Vec::new();
        assert_eq!(
            parse_groups("P-256:prime256v1:secp521r1:X25519", &mut unknown).len(),
            2
        );
        assert_eq!(unknown, ["secp521r1"]);
    }
}
