//! Accepted certificates, and the error for each refused one.

use openvpn::identity::Identity;
use openvpn::role::Role;
use openvpn::tls::{TlsError, TlsOptions, TlsSession, TlsSettings};
use openvpn::verify::{
    CertificateProfile, Fingerprint, KeyUsageRule, NameRule, PeerCertificate, PeerRules, Usage,
    VerifyError, VerifyFault,
};

use std::time::{Duration, SystemTime};

use crate::{Pair, file, identity, options};

/// Returns the verdict of a client with these options on a server with this certificate (and the P-256 key).
pub(crate) fn client_sees(cert: &str, client: TlsOptions) -> Result<PeerCertificate, VerifyError> {
    let mut server = options("p256", Role::Server);
    server.identity = Some(identity(cert, "p256/server.key"));
    let mut pair = Pair::new(client, server);
    match pair.run().0 {
        Ok(()) => Ok(pair.client.peer().expect("a peer").clone()),
        Err(TlsError::Certificate(refused)) => Err(refused),
        Err(other) => panic!("{cert}: {other}"),
    }
}

pub(crate) fn client() -> TlsOptions {
    options("p256", Role::Client)
}

fn client_with(rules: impl FnOnce(&mut PeerRules)) -> TlsOptions {
    let mut options = client();
    rules(&mut options.rules);
    options
}

#[track_caller]
pub(crate) fn assert_refused(
    seen: Result<PeerCertificate, VerifyError>,
    subject: &str,
    fault: VerifyFault,
    says: &[&str],
) {
    let refused = seen.expect_err("to be refused");
    assert_eq!(
        (refused.subject.as_str(), refused.fault),
        (subject, fault),
        "{refused}"
    );
    for part in says {
        assert!(refused.reason.contains(part), "{refused}");
    }
}

#[test]
fn certificates_of_all_honest_kinds_are_accepted() {
    for (cert, name) in [
        ("p256/server.crt", "server"),
        ("odd/no-eku.crt", "no-eku"),
        ("odd/netscape.crt", "netscape"),
        ("odd/names.crt", "second"),
    ] {
        assert_eq!(client_sees(cert, client()).expect(cert).common_name, name);
    }
    let mut version_1 = client();
    version_1.ca = file("odd/ca-version-1.crt");
    assert_eq!(
        client_sees("odd/by-version-1.crt", version_1)
            .expect("v1 CA")
            .common_name,
        "by-version-1"
    );
}

#[test]
fn names_serials_and_digests_are_what_openssl_says() {
    let peer = client_sees("odd/names.crt", client()).expect("accepted");
    assert_eq!(
        peer.subject(),
        "C=DE, ST=Bayern, L=N\u{fc}rnberg, OU=Rad + O=M\u{fc}hle, CN=first, CN=second, \
         emailAddress=a@example.org"
    );
    assert_eq!(peer.chain[0].serial, "5373003642731685151011");
    let environment = peer.environment();
    let get = |name: &str| {
        let found = environment.iter().find(|(other, _)| other == name);
        found
            .map(|(_, value)| value.as_str())
            .unwrap_or_else(|| panic!("{name} is missing"))
    };
    assert_eq!(get("common_name"), "second");
    assert_eq!(get("X509_0_CN"), "first");
    assert_eq!(get("X509_0_CN_1"), "second");
    assert_eq!(get("X509_0_emailAddress"), "a@example.org");
    assert_eq!(get("X509_1_CN"), "p256 CA");
    assert_eq!(get("tls_id_1"), "O=Millrace Test, CN=p256 CA");
    assert_eq!(get("tls_serial_0"), "5373003642731685151011");
    assert_eq!(get("tls_serial_hex_0"), "01:23:45:67:89:ab:cd:ef:01:23");
    assert_eq!(get("tls_digest_0").len(), 59);
    assert_eq!(get("tls_digest_sha256_1").len(), 95);
}

#[test]
fn the_common_name_may_be_another_field() {
    for (field, name) in [
        ("ext:subjectAltName", "b@example.org"),
        ("emailAddress", "a@example.org"),
        ("serialNumber", "0x0123456789abcdef0123"),
        ("2.5.4.7", "N\u{fc}rnberg"),
    ] {
        let options = client_with(|rules| rules.username_fields = vec![field.to_owned()]);
        assert_eq!(
            client_sees("odd/names.crt", options)
                .expect(field)
                .common_name,
            name
        );
    }
    let two = client_with(|rules| rules.username_fields = vec!["CN".to_owned(), "C".to_owned()]);
    assert_eq!(
        client_sees("odd/names.crt", two).expect("two").common_name,
        "second_DE"
    );
    let seen = client_sees("odd/no-cn.crt", client());
    assert_refused(
        seen,
        "O=No Name",
        VerifyFault::Rule,
        &["no CN", "x509-username-field"],
    );
}

/// The clock is behind a known lower bound (here: it shows the current year, and 2100 is known to be past). A
/// certificate valid at the bound is accepted; otherwise the error blames the clock.
#[test]
fn a_clock_that_is_known_to_be_wrong_is_told_from_a_certificate_that_is() {
    let sees = |known: u64, cert: &str| {
        let mut settings = TlsSettings::new(client()).expect("good settings");
        settings.set_earliest(SystemTime::UNIX_EPOCH + Duration::from_secs(known));
        let mut server = options("p256", Role::Server);
        server.identity = Some(identity(cert, "p256/server.key"));
        let mut pair = Pair::new(client(), server);
        pair.client = TlsSession::new(&settings).expect("a session");
        match pair.run().0 {
            Ok(()) => Ok(pair.client.peer().expect("a peer").clone()),
            Err(TlsError::Certificate(refused)) => Err(refused),
            Err(other) => panic!("{cert}: {other}"),
        }
    };
    // 2104, 2099 and 2111.
    let (within, before, after) = (4_230_000_000, 4_075_000_000, 4_460_000_000);
    assert_eq!(
        sees(within, "odd/not-yet.crt").unwrap().common_name,
        "not-yet"
    );
    let says = ["clock of this host is wrong", "2099-", "set it"];
    let seen = sees(before, "odd/not-yet.crt");
    assert_refused(seen, "CN=not-yet", VerifyFault::Clock, &says);
    // A certificate is expired if it has expired by the clock or by the bound; it is accepted if it is valid by the
    // clock.
    let seen = sees(before, "odd/expired.crt");
    assert_refused(seen, "CN=expired", VerifyFault::Time, &["expired on"]);
    let seen = sees(after, "odd/not-yet.crt");
    assert_refused(seen, "CN=not-yet", VerifyFault::Time, &["expired on"]);
    assert!(sees(after, "p256/server.crt").is_ok());
}

#[test]
fn dates_are_in_the_message() {
    let seen = client_sees("odd/expired.crt", client());
    assert_refused(
        seen,
        "CN=expired",
        VerifyFault::Time,
        &["expired on 2021-02-03 04:05 UTC"],
    );
    let seen = client_sees("odd/not-yet.crt", client());
    assert_refused(
        seen,
        "CN=not-yet",
        VerifyFault::Early,
        &["2100-01-01 00:00 UTC", "set the clock"],
    );
    let mut old = client();
    old.ca = file("odd/ca-expired.crt");
    let seen = client_sees("odd/by-expired.crt", old);
    assert_refused(seen, "CN=Expired CA", VerifyFault::Time, &["2021-02-03"]);
}

#[test]
fn weak_certificates_are_refused_with_a_remedy() {
    let seen = client_sees("odd/sha1.crt", client());
    assert_refused(seen, "CN=sha1", VerifyFault::Weak, &["SHA-1", "SHA-256"]);
    let mut weak = client();
    weak.ca = file("odd/ca-weak.crt");
    let seen = client_sees("odd/by-weak.crt", weak);
    assert_refused(
        seen,
        "CN=Weak CA",
        VerifyFault::Weak,
        &["1024 bits", "2048"],
    );
}

#[test]
fn suite_b_takes_only_its_own() {
    let strict = |kind| {
        let mut options = options(kind, Role::Client);
        options.profile = CertificateProfile::SuiteB;
        options
    };
    for kind in ["p256", "p384"] {
        Pair::new(strict(kind), options(kind, Role::Server)).connect();
    }
    for kind in ["rsa2048", "ed25519"] {
        let (seen, _) = Pair::new(strict(kind), options(kind, Role::Server)).run();
        let Err(TlsError::Certificate(refused)) = seen else {
            panic!("{kind}: {seen:?}")
        };
        assert_eq!(refused.fault, VerifyFault::Weak);
        assert!(refused.reason.contains("suiteb"));
    }
}

#[test]
fn strangers_are_refused() {
    let seen = client_sees("odd/by-sub.crt", client());
    let says = ["'CN=Sub CA' is not among those of ca", "extra-certs"];
    assert_refused(seen, "CN=by-sub", VerifyFault::Unknown, &says);
    let seen = client_sees("odd/self-signed.crt", client());
    assert_refused(
        seen,
        "CN=self-signed",
        VerifyFault::Unknown,
        &["peer-fingerprint"],
    );
    // Another CA has the same name and a different key.
    let mut other = client();
    other.ca = file("odd/ca-other.crt");
    let seen = client_sees("p256/server.crt", other);
    let subject = "C=DE, O=Millrace Test, CN=server";
    assert_refused(seen, subject, VerifyFault::Unknown, &["not the key"]);
}

#[test]
fn the_link_to_the_authority_may_come_from_either_end() {
    let sees = |ca: &[&str], extra: &str| {
        let mut client = client();
        client.ca = ca.iter().flat_map(|name| file(name)).collect();
        let extra = if extra.is_empty() {
            Vec::new()
        } else {
            file(extra)
        };
        let mut server = options("p256", Role::Server);
        let own = Identity::from_pem(
            &file("odd/by-sub.crt"),
            &file("p256/server.key"),
            &extra,
            None,
        );
        server.identity = Some(own.expect("an identity"));
        let mut pair = Pair::new(client, server);
        let seen = pair.run().0;
        seen.map(|()| pair.client.peer().expect("a peer").chain.len())
    };
    assert_eq!(sees(&["p256/ca.crt"], "odd/sub.crt"), Ok(3));
    assert_eq!(sees(&["odd/sub.crt", "p256/ca.crt"], ""), Ok(3));
    // An intermediate CA without its issuer is trusted by itself.
    assert_eq!(sees(&["odd/sub.crt"], ""), Ok(2));
    assert!(sees(&["p256/ca.crt"], "").is_err());
}

#[test]
fn who_must_not_sign_has_not_signed() {
    let mut client = client();
    client.ca.extend(file("odd/sub-no-sign.crt"));
    let seen = client_sees("odd/by-sub-no-sign.crt", client);
    assert_refused(
        seen,
        "CN=No Sign CA",
        VerifyFault::Purpose,
        &["sign certificates"],
    );
}

/// OpenSSL accepts a peer certificate with CA:TRUE; webpki rejects it.
#[test]
fn a_peers_certificate_may_say_ca_true() {
    let with_sub = || {
        let mut client = client();
        client.ca.extend(file("odd/sub.crt"));
        client
    };
    let seen = client_sees("odd/ca-flag.crt", client()).expect("accepted");
    assert_eq!(
        (seen.common_name.as_str(), seen.chain.len()),
        ("ca-flag", 2)
    );
    let seen = client_sees("odd/ca-flag-by-sub.crt", with_sub()).expect("accepted");
    assert_eq!(seen.chain.len(), 3);
    let seen = client_sees("odd/ca-flag-by-sub.crt", client());
    let says = ["'CN=Sub CA' is not among those of ca"];
    assert_refused(seen, "CN=ca-flag-by-sub", VerifyFault::Unknown, &says);
    // All other rules still apply.
    let mut other = client();
    other.ca = file("odd/ca-other.crt");
    let seen = client_sees("odd/ca-flag.crt", other);
    assert_refused(seen, "CN=ca-flag", VerifyFault::Unknown, &["not the key"]);
    let wants_server = client_with(|rules| rules.remote_cert_tls(Usage::Server));
    let seen = client_sees("odd/ca-flag.crt", wants_server);
    assert_refused(seen, "CN=ca-flag", VerifyFault::Rule, &[]);
    // A CA that may only sign certificates cannot be a peer.
    let mut server = options("p256", Role::Server);
    server.identity = Some(identity("odd/sub.crt", "odd/sub.key"));
    let Err(TlsError::Certificate(refused)) = Pair::new(client(), server).run().0 else {
        panic!("an authority poses as a server");
    };
    assert_eq!(refused.fault, VerifyFault::Purpose, "{refused}");
}

/// OpenSSL sends the whole chain with its root, if it finds the root.
#[test]
fn a_root_that_the_peer_sends_is_not_taken_for_one_of_ca() {
    for (ca, says) in [
        (
            "p384/ca.crt",
            "'O=Millrace Test, CN=p256 CA' is not among those of ca",
        ),
        ("odd/ca-other.crt", "has the name, but not the key"),
    ] {
        let mut client = client();
        client.ca = file(ca);
        let mut server = options("p256", Role::Server);
        let (cert, key) = (file("p256/server.crt"), file("p256/server.key"));
        let own = Identity::from_pem(&cert, &key, &file("p256/ca.crt"), None);
        server.identity = Some(own.expect("an identity"));
        let Err(TlsError::Certificate(refused)) = Pair::new(client, server).run().0 else {
            panic!("{ca}: accepted");
        };
        assert_eq!(refused.fault, VerifyFault::Unknown);
        assert!(refused.reason.contains(says), "{ca}: {refused}");
    }
}

#[test]
fn a_certificate_for_clients_is_no_servers() {
    for kind in ["p256", "rsa2048"] {
        let mut server = options(kind, Role::Server);
        let own = format!("{kind}/client");
        server.identity = Some(identity(&format!("{own}.crt"), &format!("{own}.key")));
        let (seen, told) = Pair::new(options(kind, Role::Client), server).run();
        let Err(TlsError::Certificate(refused)) = seen else {
            panic!("{seen:?}")
        };
        assert_eq!(refused.fault, VerifyFault::Purpose);
        assert!(matches!(told, Err(TlsError::Alert { .. })), "{told:?}");
    }
    let seen = client_sees("odd/netscape-client.crt", client());
    assert_refused(
        seen,
        "CN=netscape-client",
        VerifyFault::Purpose,
        &["another purpose"],
    );
}

#[test]
fn a_self_signed_certificate_can_be_trusted_by_name_or_by_print() {
    let mut by_ca = client();
    by_ca.ca = file("odd/self-signed.crt");
    assert_eq!(
        client_sees("odd/self-signed.crt", by_ca)
            .expect("trusted")
            .chain
            .len(),
        1
    );

    // The error shows the refused certificate's fingerprint.
    let mut pinned = TlsOptions::new(Role::Client);
    pinned.identity = client().identity;
    pinned.rules.peer_fingerprints = vec![Fingerprint::Sha256([0; 32])];
    let refused = client_sees("odd/self-signed.crt", pinned.clone()).expect_err("not it");
    let shown = refused.reason.split("add ").nth(1).expect("a fingerprint");
    let bytes: Vec<u8> = shown
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("hex"))
        .collect();
    pinned
        .rules
        .peer_fingerprints
        .push(Fingerprint::Sha256(bytes.try_into().expect("32 bytes")));
    let peer = client_sees("odd/self-signed.crt", pinned).expect("it is");
    assert_eq!(
        (peer.common_name.as_str(), peer.chain.len()),
        ("self-signed", 1)
    );
}

#[test]
fn a_fingerprint_beside_an_authority_is_one_rule_more() {
    let server = client_sees("p256/server.crt", client()).expect("accepted");
    let print = Fingerprint::Sha256(*server.fingerprint().expect("a digest"));
    let pinned = || client_with(|rules| rules.peer_fingerprints = vec![print]);
    client_sees("p256/server.crt", pinned()).expect("it is");
    let seen = client_sees("odd/no-eku.crt", pinned());
    assert_refused(seen, "CN=no-eku", VerifyFault::Rule, &["peer-fingerprint"]);

    let issuer = |digest| client_with(|rules| rules.issuer_fingerprints = vec![digest]);
    let authority = &server.chain[1];
    for digest in [
        Fingerprint::Sha1(authority.sha1),
        Fingerprint::Sha256(authority.sha256),
    ] {
        client_sees("p256/server.crt", issuer(digest)).expect("it is");
    }
    let seen = client_sees("p256/server.crt", issuer(print));
    let subject = "C=DE, O=Millrace Test, CN=server";
    assert_refused(seen, subject, VerifyFault::Rule, &["verify-hash"]);
}

#[test]
fn usages_are_demanded_as_stock_programs_do() {
    let tls = || client_with(|rules| rules.remote_cert_tls(Usage::Server));
    client_sees("p256/server.crt", tls()).expect("made for servers");
    let seen = client_sees("odd/no-eku.crt", tls());
    assert_refused(
        seen,
        "CN=no-eku",
        VerifyFault::Rule,
        &["no key usage", "remote-cert-tls"],
    );

    let eku = |name: &str| client_with(|rules| rules.extended_key_usage = Some(name.to_owned()));
    client_sees("p256/server.crt", eku("1.3.6.1.5.5.7.3.1")).expect("by number");
    assert!(client_sees("p256/server.crt", eku("TLS Web Client Authentication")).is_err());
    assert!(client_sees("odd/no-eku.crt", eku("1.3.6.1.5.5.7.3.1")).is_err());

    let ku = |masks| client_with(|rules| rules.key_usage = Some(KeyUsageRule::AnyOf(masks)));
    client_sees("p256/server.crt", ku(vec![0x88, 0xa0])).expect("the second");
    let seen = client_sees("p256/server.crt", ku(vec![0x88, 0]));
    let subject = "C=DE, O=Millrace Test, CN=server";
    assert_refused(seen, subject, VerifyFault::Rule, &["key usage is a0", "88"]);

    let netscape = |usage| client_with(|rules| rules.netscape_type = Some(usage));
    client_sees("odd/netscape.crt", netscape(Usage::Server)).expect("by the old extension");
    client_sees("p256/server.crt", netscape(Usage::Server)).expect("by the new one");
    client_sees("odd/no-eku.crt", netscape(Usage::Server)).expect("by none");
    let seen = client_sees("odd/netscape.crt", netscape(Usage::Client));
    assert_refused(seen, "CN=netscape", VerifyFault::Rule, &["ns-cert-type"]);
}

#[test]
fn names_are_compared_in_three_ways() {
    let named = |rule| client_with(|rules| rules.name = Some(rule));
    let subject = "C=DE, O=Millrace Test, CN=server";
    for (rule, good) in [
        (NameRule::Subject(subject.to_owned()), true),
        (NameRule::Subject("CN=server".to_owned()), false),
        (NameRule::Name("server".to_owned()), true),
        (NameRule::Name("serve".to_owned()), false),
        (NameRule::NamePrefix("serv".to_owned()), true),
        (NameRule::NamePrefix("server-".to_owned()), false),
    ] {
        let seen = client_sees("p256/server.crt", named(rule.clone()));
        if good {
            seen.expect("the right name");
        } else {
            assert_refused(seen, subject, VerifyFault::Rule, &["verify-x509-name"]);
        }
    }
}

#[test]
fn an_authority_may_be_renewed_with_its_key() {
    let of = |names: [&str; 2], crl| {
        let mut options = client();
        options.ca = names.iter().flat_map(|name| file(name)).collect();
        options.crl = crl;
        options
    };
    for names in [
        ["odd/ca-before.crt", "p256/ca.crt"],
        ["p256/ca.crt", "odd/ca-before.crt"],
    ] {
        let peer = client_sees("p256/server.crt", of(names, None)).expect("the new one is good");
        let new = client_sees("p256/server.crt", client()).expect("accepted");
        assert_eq!(peer.chain[1].sha256, new.chain[1].sha256);
        // The error names the peer's fault instead of the old CA's expiry.
        let seen = client_sees("odd/revoked.crt", of(names, Some(file("odd/crl.pem"))));
        assert_refused(seen, "CN=revoked", VerifyFault::Revoked, &["crl-verify"]);
        let seen = client_sees("odd/sha1.crt", of(names, None));
        assert_refused(seen, "CN=sha1", VerifyFault::Weak, &["SHA-1"]);
    }
    let seen = client_sees(
        "p256/server.crt",
        of(["odd/ca-before.crt", "odd/sub.crt"], None),
    );
    let subject = "O=Millrace Test, CN=p256 CA";
    assert_refused(seen, subject, VerifyFault::Time, &["expired on 2021-02-03"]);
}

#[test]
fn authorities_that_signed_each_other_are_trusted() {
    let with = |crl: Option<&str>| {
        let mut options = client();
        options.ca = [file("odd/cross-x.crt"), file("odd/cross-y.crt")].concat();
        options.crl = crl.map(file);
        options
    };
    client_sees("odd/by-cross-x.crt", with(None)).expect("trusted");
    // The other CA's CRL also revokes a cross-signed certificate.
    let seen = client_sees("odd/by-cross-x.crt", with(Some("odd/crl-cross-y.pem")));
    assert_refused(seen, "CN=Cross X", VerifyFault::Revoked, &["crl-verify"]);
}

#[test]
fn what_ca_names_signs_only_as_far_as_it_may() {
    let with = |ca: &str| {
        let mut options = client();
        options.ca = file(ca);
        options
    };
    // A peer's certificate in `ca` is trusted by itself, but cannot sign others.
    let seen = client_sees("odd/by-peer.crt", with("odd/peer-as-ca.crt"));
    assert_refused(
        seen,
        "CN=Peer",
        VerifyFault::Purpose,
        &["sign certificates"],
    );
    client_sees("odd/by-shallow.crt", with("odd/ca-shallow.crt")).expect("signed at once");
    let mut server = options("p256", Role::Server);
    let own = Identity::from_pem(
        &file("odd/by-sub.crt"),
        &file("p256/server.key"),
        &file("odd/sub-shallow.crt"),
        None,
    );
    server.identity = Some(own.expect("an identity"));
    let said = Pair::new(with("odd/ca-shallow.crt"), server).run().0;
    let Err(TlsError::Certificate(refused)) = said else {
        panic!("{said:?}")
    };
    assert_eq!(refused.fault, VerifyFault::Purpose, "{refused}");
    assert!(refused.reason.contains("pathlen"), "{refused}");
}
