//! Renewed certificates and lists, seen by our own verifier and by OpenSSL's.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use openvpn::expiry::{self, End, Ending};
use openvpn::identity::Identity;
use openvpn::renewal::{RenewalError, Renewer};
use openvpn::role::Role;
use openvpn::tls::TlsSettings;
use openvpn::verify::VerifyFault;

use crate::verify::{assert_refused, client, client_sees};
use crate::{Pair, file, options};

const DAY: Duration = Duration::from_secs(86_400);

fn authority(kind: &str) -> Renewer {
    let (key, ca) = (
        file(&format!("{kind}/ca.key")),
        file(&format!("{kind}/ca.crt")),
    );
    Renewer::read(&key, &ca, None).unwrap()
}

/// Runs OpenSSL in a directory; returns what it said.
fn openssl(at: &Path, arguments: &str) -> String {
    let mut command = Command::new("openssl");
    command.current_dir(at).args(arguments.split(' '));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "openssl {arguments}: {said}");
    said
}

/// Seconds at which things end.
fn ends_of(ends: &[End], of: Ending) -> Vec<SystemTime> {
    let ends = ends.iter().filter(|it| it.of == of);
    ends.map(|it| it.at).collect()
}

#[test]
fn a_renewed_certificate_has_the_same_key_and_satisfies_openssl() {
    let has_openssl = lab::require(Command::new("openssl").arg("version").output()).is_some();
    let now = SystemTime::now();
    for kind in ["p256", "p384", "rsa2048", "ed25519"] {
        let old = file(&format!("{kind}/server.crt"));
        let renewed = authority(kind).certificate(&old, now, 825).unwrap();
        let ends = expiry::read(renewed.text.as_bytes(), b"", b"");
        let seconds = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(seconds(ends[0].at), seconds(now + 825 * DAY), "{kind}");
        assert_eq!(ends[0].name, "C=DE, O=Millrace Test, CN=server");

        let mut server = options(kind, Role::Server);
        let key = file(&format!("{kind}/server.key"));
        let own = Identity::from_pem(renewed.text.as_bytes(), &key, b"", None);
        server.identity = Some(own.expect("the same key"));
        Pair::new(options(kind, Role::Client), server).connect();
        if !has_openssl {
            continue;
        }
        let at = tempfile::tempdir().unwrap();
        let at = at.path();
        fs::write(at.join("ca.crt"), file(&format!("{kind}/ca.crt"))).unwrap();
        fs::write(at.join("old.crt"), &old).unwrap();
        fs::write(at.join("new.crt"), &renewed.text).unwrap();
        openssl(
            at,
            "verify -x509_strict -purpose sslserver -CAfile ca.crt new.crt",
        );
        let fields = "-noout -subject -issuer -pubkey -ext keyUsage,extendedKeyUsage";
        let both = ["old", "new"].map(|it| openssl(at, &format!("x509 -in {it}.crt {fields}")));
        assert_eq!(both[0], both[1]);
        let serials =
            ["old", "new"].map(|it| openssl(at, &format!("x509 -in {it}.crt -noout -serial")));
        assert_ne!(serials[0], serials[1]);
    }
}

#[test]
fn a_certificate_ends_with_its_authority_at_the_latest() {
    let renewed =
        authority("p256").certificate(&file("p256/server.crt"), SystemTime::now(), 36_500);
    let ca = expiry::read(b"", &file("p256/ca.crt"), b"");
    assert_eq!(renewed.unwrap().ends, ca[0].at);
    let later = ca[0].at + DAY;
    let error = authority("p256").certificate(&file("p256/server.crt"), later, 1);
    assert!(matches!(error, Err(RenewalError::Ended(_))), "{error:?}");
}

#[test]
fn a_renewed_list_revokes_the_same_certificates() {
    let with = |list: &str| {
        let mut options = client();
        options.crl = Some(list.as_bytes().to_vec());
        options
    };
    let now = SystemTime::now();
    for old in [
        "odd/crl.pem",
        "odd/crl-version-1.pem",
        "odd/crl-expired.pem",
    ] {
        let renewed = authority("p256").list(&file(old), now, 30).unwrap();
        let settings = TlsSettings::new(with(&renewed.text)).unwrap();
        assert_eq!(ends_of(&settings.ends(), Ending::List).len(), 1);
        client_sees("p256/server.crt", with(&renewed.text)).expect("not revoked");
        let seen = client_sees("odd/revoked.crt", with(&renewed.text));
        assert_refused(seen, "CN=revoked", VerifyFault::Revoked, &["crl-verify"]);
    }
    let error = authority("p256").list(&file("odd/crl-forged.pem"), now, 30);
    assert!(
        matches!(error, Err(RenewalError::Foreign { .. })),
        "{error:?}"
    );
}

/// Reasons of revocation, and more entries than a length of two bytes can tell.
#[test]
fn a_renewed_list_satisfies_openssl() {
    if lab::require(Command::new("openssl").arg("version").output()).is_none() {
        return;
    }
    let at = tempfile::tempdir().unwrap();
    let at = at.path();
    for kind in ["p256", "rsa2048"] {
        let index: String = (1..=2_000)
            .map(|serial| {
                let reason = if serial % 2 == 0 {
                    ",keyCompromise"
                } else {
                    ""
                };
                format!("R\t490101000000Z\t260101000000Z{reason}\t{serial:06X}\tunknown\t/CN=c\n")
            })
            .collect();
        fs::write(at.join("index.txt"), index).unwrap();
        let config = "[ca]\ndefault_ca=o\n[o]\ndatabase=index.txt\ncertificate=ca.crt\nprivate_key=ca.key\n\
             default_md=sha256\ncrlnumber=number\ncrl_extensions=e\n[e]\nauthorityKeyIdentifier=keyid\n";
        fs::write(at.join("ca.cnf"), config).unwrap();
        fs::write(at.join("number"), "1000\n").unwrap();
        for name in ["ca.crt", "ca.key"] {
            fs::write(at.join(name), file(&format!("{kind}/{name}"))).unwrap();
        }
        openssl(at, "ca -config ca.cnf -gencrl -crldays 1 -out old.pem");
        let old = fs::read(at.join("old.pem")).unwrap();
        let days = |list: &[u8]| {
            let at = ends_of(&expiry::read(b"", b"", list), Ending::List)[0];
            at.duration_since(SystemTime::now()).unwrap().as_secs() / 86_400
        };
        assert_eq!(days(&old), 0);
        let renewed = authority(kind).list(&old, SystemTime::now(), 825).unwrap();
        assert_eq!(days(renewed.text.as_bytes()), 824);
        fs::write(at.join("new.pem"), &renewed.text).unwrap();
        let said = openssl(at, "crl -in new.pem -CAfile ca.crt -noout -verify");
        assert!(said.contains("verify OK"), "{said}");
        let both = ["old", "new"].map(|it| {
            let text = openssl(at, &format!("crl -in {it}.pem -noout -text"));
            let (_, entries) = text.split_once("Revoked Certificates:").unwrap();
            entries
                .split_once("Signature Algorithm")
                .unwrap()
                .0
                .to_owned()
        });
        assert_eq!(both[0], both[1]);
        assert_eq!(both[0].matches("Key Compromise").count(), 1_000);
    }
}

#[test]
fn keys_of_other_authorities_are_refused() {
    let now = SystemTime::now();
    let error = Renewer::read(&file("p384/ca.key"), &file("p256/ca.crt"), None);
    assert_eq!(error.unwrap_err(), RenewalError::Other);
    let error = authority("p384").certificate(&file("p256/server.crt"), now, 1);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("CN=server was not signed by") && error.contains("CN=p384 CA"),
        "{error}"
    );
    assert!(authority("p256").list(b"", now, 1).is_err());
}

/// A server that is shown a renewed certificate takes it; one of another key, and a damaged one, change nothing.
#[test]
fn a_certificate_is_replaced_while_the_settings_are_in_use() {
    let settings = TlsSettings::new(options("p256", Role::Server)).unwrap();
    let old = ends_of(&settings.ends(), Ending::Certificate);
    let replace = |cert: &[u8]| settings.replace_certificate(cert, b"");
    assert_eq!(replace(&file("p256/server.crt")).ok(), Some(false));
    for wrong in [file("p384/server.crt"), b"x".to_vec()] {
        assert!(replace(&wrong).is_err());
        assert_eq!(ends_of(&settings.ends(), Ending::Certificate), old);
    }
    let now = SystemTime::now();
    let renewed = authority("p256").certificate(&file("p256/server.crt"), now, 9);
    assert_eq!(replace(renewed.unwrap().text.as_bytes()).ok(), Some(true));
    let ends = ends_of(&settings.ends(), Ending::Certificate);
    assert!(ends[0] < now + 10 * DAY, "{ends:?}");
}
