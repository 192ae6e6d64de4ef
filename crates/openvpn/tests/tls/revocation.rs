//! Certificates that are refused because they are revoked.

use std::sync::Arc;

use openvpn::identity::Identity;
use openvpn::role::Role;
use openvpn::tls::{TlsError, TlsOptions, TlsSession, TlsSettings};
use openvpn::verify::{Fingerprint, PeerCertificate, RevokedSerials, VerifyError, VerifyFault};

use crate::verify::{assert_refused, client, client_sees};
use crate::{Pair, file, identity, options};

#[test]
fn revoked_certificates_are_refused() {
    let with = |name: &str| {
        let mut options = client();
        options.crl = Some(file(name));
        options
    };
    for list in ["odd/crl.pem", "odd/crl-version-1.pem"] {
        let seen = client_sees("odd/revoked.crt", with(list));
        assert_refused(seen, "CN=revoked", VerifyFault::Revoked, &["crl-verify"]);
        client_sees("p256/server.crt", with(list)).expect("not revoked");
    }
    let subject = "C=DE, O=Millrace Test, CN=server";
    let seen = client_sees("p256/server.crt", with("odd/crl-expired.pem"));
    assert_refused(
        seen,
        subject,
        VerifyFault::Revoked,
        &["expired on 2021-02-03"],
    );
    let seen = client_sees("p256/server.crt", with("odd/crl-forged.pem"));
    assert_refused(
        seen,
        subject,
        VerifyFault::Revoked,
        &["not signed by that authority"],
    );
    let partial = TlsSettings::new(with("odd/crl-partial.pem"))
        .expect_err("partial")
        .to_string();
    assert!(partial.contains("complete"), "{partial}");
    // A CRL from another CA has no effect.
    let mut other = options("p384", Role::Client);
    other.crl = Some(file("odd/crl.pem"));
    Pair::new(other, options("p384", Role::Server)).connect();
}

/// A running session is checked with its whole certificate, because another CA may have issued the same serial number.
#[test]
fn a_list_ends_sessions_of_its_own_authority_only() {
    let mut with_list = client();
    with_list.crl = Some(file("odd/crl.pem"));
    let settings = TlsSettings::new(with_list).unwrap();
    let revoked = client_sees("odd/revoked.crt", client()).unwrap();
    assert!(settings.is_revoked(&revoked));
    let good = client_sees("p256/server.crt", client()).unwrap();
    assert!(!settings.is_revoked(&good));
    // Another CA has the same name and its own CRL.
    let mut with_other = client();
    with_other.crl = Some(file("odd/crl-forged.pem"));
    let namesake = TlsSettings::new(with_other).unwrap();
    assert!(!namesake.is_revoked(&revoked));

    let mut pair = Pair::new(options("p384", Role::Client), options("p384", Role::Server));
    pair.connect();
    let mut other = pair.client.peer().unwrap().clone();
    let number = &revoked.chain[0];
    other.chain[0].serial.clone_from(&number.serial);
    other.chain[0].serial_hex.clone_from(&number.serial_hex);
    assert!(
        !settings.is_revoked(&other),
        "the certificate has a different authority"
    );
}

#[test]
fn one_good_list_of_several_is_enough() {
    let with = |names: [&str; 2]| {
        let mut options = client();
        options.crl = Some(names.iter().flat_map(|name| file(name)).collect());
        options
    };
    for other in ["odd/crl-expired.pem", "odd/crl-forged.pem"] {
        for names in [["odd/crl.pem", other], [other, "odd/crl.pem"]] {
            client_sees("p256/server.crt", with(names)).expect("one is good");
            let seen = client_sees("odd/revoked.crt", with(names));
            assert_refused(seen, "CN=revoked", VerifyFault::Revoked, &["revoked"]);
        }
    }
}

/// A CA's CRL applies to its certificates, however the CA encodes its name there.
#[test]
fn names_in_lists_are_compared_by_what_they_say() {
    let mut options = client();
    options.crl = Some(file("odd/crl-printable.pem"));
    let seen = client_sees("odd/revoked.crt", options.clone());
    assert_refused(seen, "CN=revoked", VerifyFault::Revoked, &["crl-verify"]);
    client_sees("p256/server.crt", options).expect("not revoked");
}

/// A directory that contains these serial numbers, or `None` for an unreadable one.
#[derive(Debug)]
struct Directory(Option<Vec<String>>);

impl RevokedSerials for Directory {
    fn contains(&self, serial: &str) -> Result<bool, String> {
        let serials = self.0.as_ref().ok_or("the directory cannot be read")?;
        Ok(serials.iter().any(|other| other == serial))
    }
}

/// The result at both ends of a three-certificate chain, where the end with role `looks` uses this directory.
fn with_directory(looks: Role, serials: Option<&[&str]>) -> Result<PeerCertificate, VerifyError> {
    let with = |role| {
        let mut options = options("p256", role);
        let own = Identity::from_pem(
            &file("odd/by-sub.crt"),
            &file("p256/server.key"),
            &file("odd/sub.crt"),
            None,
        );
        if role == looks {
            let serials = serials.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
            options.revoked_serials = Some(Arc::new(Directory(serials)));
        } else if role == Role::Server {
            options.identity = Some(own.expect("an identity"));
        }
        options
    };
    let mut pair = Pair::new(with(Role::Client), with(Role::Server));
    let (client, server) = pair.run();
    let (said, peer) = match looks {
        Role::Client => (client, pair.client.peer()),
        Role::Server => (server, pair.server.peer()),
    };
    match said {
        Ok(()) => Ok(peer.expect("a peer").clone()),
        Err(TlsError::Certificate(refused)) => Err(refused),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_directory_revokes_every_certificate_of_the_chain_at_both_ends() {
    for (looks, len) in [(Role::Client, 3), (Role::Server, 2)] {
        let peer = with_directory(looks, Some(&["1234567"])).expect("not revoked");
        assert_eq!(peer.chain.len(), len);
        for certificate in peer.chain {
            let seen = with_directory(looks, Some(&[&certificate.serial]));
            let says = ["revoked (crl-verify)"];
            assert_refused(seen, &certificate.subject, VerifyFault::Revoked, &says);
        }
        let refused = with_directory(looks, None).expect_err("nothing is known");
        assert_eq!(refused.fault, VerifyFault::Revoked);
        assert!(refused.reason.contains("cannot be read"), "{refused}");
    }
}

/// The directory also revokes certificates that are trusted by fingerprint or by themselves.
#[test]
fn a_directory_revokes_what_has_no_authority() {
    let mut trusted = client();
    trusted.ca = file("odd/self-signed.crt");
    let seen = client_sees("odd/self-signed.crt", trusted.clone()).expect("trusted");
    let mut pinned = TlsOptions::new(Role::Client);
    pinned.identity = client().identity;
    pinned.rules.peer_fingerprints = vec![Fingerprint::Sha256(seen.chain[0].sha256)];
    for mut options in [trusted, pinned] {
        client_sees("odd/self-signed.crt", options.clone()).expect("trusted");
        let serials = Some(vec![seen.chain[0].serial.clone()]);
        options.revoked_serials = Some(Arc::new(Directory(serials)));
        let seen = client_sees("odd/self-signed.crt", options);
        assert_refused(
            seen,
            "CN=self-signed",
            VerifyFault::Revoked,
            &["crl-verify"],
        );
    }
}

#[test]
fn a_list_can_be_replaced_while_running() {
    let mut server = options("p256", Role::Server);
    server.identity = Some(identity("odd/revoked.crt", "p256/server.key"));
    let server = TlsSettings::new(server).expect("settings");
    let client = TlsSettings::new(client()).expect("settings");
    let connect = || {
        let (client, server) = (TlsSession::new(&client), TlsSession::new(&server));
        Pair {
            client: client.expect("a session"),
            server: server.expect("a session"),
        }
        .run()
        .0
    };
    connect().expect("no list yet");
    client.replace_crl(b"nonsense").expect_err("no list");
    connect().expect("still none");
    client.replace_crl(&file("odd/crl.pem")).expect("a list");
    assert!(matches!(connect(), Err(TlsError::Certificate(_))));
}
