//! Keys and containers in every format that people use.

use openvpn::identity::{Identity, IdentityError};
use openvpn::role::Role;
use openvpn::tls::TlsOptions;

use crate::{Pair, file, options};

const PASSPHRASE: Option<&[u8]> = Some(b"millrace");

fn with_key(key: &str, passphrase: Option<&[u8]>) -> Result<Identity, IdentityError> {
    Identity::from_pem(&file("rsa2048/server.crt"), &file(key), b"", passphrase)
}

#[test]
fn keys_in_the_clear_are_read() {
    for key in ["rsa2048/server.key", "keys/pkcs1.pem", "keys/pkcs8.der"] {
        // An unneeded passphrase does no harm.
        for passphrase in [None, PASSPHRASE] {
            with_key(key, passphrase).unwrap_or_else(|error| panic!("{key}: {error}"));
        }
    }
    let cert = file("p256/server.crt");
    Identity::from_pem(&cert, &file("keys/sec1.pem"), b"", None).expect("SEC1");
    Identity::from_pem(&cert, &file("keys/legacy-sec1.pem"), b"", PASSPHRASE).expect("locked SEC1");
}

#[test]
fn locked_keys_open_only_with_their_passphrase() {
    for key in [
        "legacy-aes128.pem",
        "legacy-aes192.pem",
        "legacy-aes256.pem",
        "legacy-des3.pem",
        "legacy-des.pem",
        "pbes2-aes-128-cbc.pem",
        "pbes2-aes-192-cbc.pem",
        "pbes2-aes-256-cbc.pem",
        "pbes2-des3.pem",
        "pbes2-hmacWithSHA1.pem",
        "pbes2-hmacWithSHA384.pem",
        "pbes2-hmacWithSHA512.pem",
        "pbes2.der",
        "PBE-SHA1-3DES.pem",
        "PBE-SHA1-2DES.pem",
        "PBE-SHA1-RC2-128.pem",
        "PBE-SHA1-RC2-40.pem",
    ] {
        let key = format!("keys/{key}");
        with_key(&key, PASSPHRASE).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(
            with_key(&key, None).err(),
            Some(IdentityError::PassphraseNeeded("key")),
            "{key}"
        );
        for wrong in [&b"Millrace"[..], b""] {
            let error = with_key(&key, Some(wrong)).err();
            assert_eq!(error, Some(IdentityError::WrongPassphrase("key")), "{key}");
        }
    }
}

#[test]
fn what_cannot_be_opened_says_what_to_do() {
    let error = with_key("keys/scrypt.pem", PASSPHRASE)
        .expect_err("scrypt")
        .to_string();
    assert!(error.contains("openssl pkcs8 -topk8"), "{error}");
    let weak = Identity::from_pem(
        &file("odd/rsa1024.crt"),
        &file("odd/rsa1024.key"),
        b"",
        None,
    );
    assert!(weak.expect_err("weak").to_string().contains("2048"));
    let error = with_key("rsa2048/server.crt", None)
        .expect_err("no key")
        .to_string();
    assert!(error.contains("BEGIN PRIVATE KEY"), "{error}");
}

#[test]
fn a_certificate_of_version_1_is_told_apart() {
    let old = Identity::from_pem(
        &file("odd/version-1.crt"),
        &file("p256/server.key"),
        b"",
        None,
    );
    assert!(
        old.expect_err("version 1")
            .to_string()
            .contains("version 3")
    );
}

#[test]
fn a_key_of_another_certificate_is_noticed() {
    for (cert, key) in [
        ("rsa2048/client.crt", "rsa2048/server.key"),
        ("p256/server.crt", "p384/server.key"),
    ] {
        let mixed = Identity::from_pem(&file(cert), &file(key), b"", None);
        assert_eq!(mixed.err(), Some(IdentityError::Mismatch));
    }
}

#[test]
fn containers_of_all_ages_open() {
    for (name, passphrase) in [
        ("new", "millrace"),
        ("old", "millrace"),
        ("sha512", "millrace"),
        ("plain", "millrace"),
        ("no-mac", "millrace"),
        ("open", ""),
        ("umlaut", "m\u{fc}hle"),
    ] {
        let container = file(&format!("keys/{name}.p12"));
        let own = Identity::from_pkcs12(&container, b"", Some(passphrase.as_bytes()))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        // Without `ca`, the CA inside the container is trusted.
        let mut client = TlsOptions::new(Role::Client);
        client.identity = Some(own);
        let mut pair = Pair::new(client, options("rsa2048", Role::Server));
        pair.connect();
        assert_eq!(
            pair.server.peer().map(|peer| peer.common_name.as_str()),
            Some("client")
        );
    }
}

#[test]
fn a_container_wants_its_passphrase() {
    let open = |name: &str, passphrase| {
        Identity::from_pkcs12(&file(&format!("keys/{name}.p12")), b"", passphrase).err()
    };
    assert_eq!(
        open("new", None),
        Some(IdentityError::PassphraseNeeded("pkcs12"))
    );
    for name in ["new", "old", "sha512", "plain", "no-mac"] {
        let error = open(name, Some(b"wrong"));
        assert_eq!(
            error,
            Some(IdentityError::WrongPassphrase("pkcs12")),
            "{name}"
        );
    }
    assert_eq!(open("open", None), None);
}

#[test]
fn damaged_containers_are_errors_and_no_more() {
    let container = file("keys/old.p12");
    for at in 0..container.len() {
        let mut cut = container.clone();
        cut.truncate(at);
        assert!(Identity::from_pkcs12(&cut, b"", PASSPHRASE).is_err());
    }
    // With a single PBKDF2 round, a change at each byte of the structure's start can be tried in little time.
    for at in 0..60 {
        let mut changed = container.clone();
        changed[at] ^= 0x55;
        let _ = Identity::from_pkcs12(&changed, b"", PASSPHRASE);
    }
}

#[test]
fn debug_shows_no_key() {
    let own = with_key("rsa2048/server.key", None).expect("an identity");
    assert_eq!(format!("{own:?}"), "Identity { certificates: 1, .. }");
}
