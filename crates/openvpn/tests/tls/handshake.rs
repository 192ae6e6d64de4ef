//! TLS handshakes, and the keys derived from their sessions.

use openvpn::keys::{KeyBlock, dynamic_tls_crypt};
use openvpn::role::Role;
use openvpn::tls::{
    ClientCertificate, SettingsError, TlsError, TlsOptions, TlsSettings, TlsVersion,
};

use crate::{Pair, file, options, session};

const KINDS: [&str; 5] = ["rsa2048", "rsa4096", "p256", "p384", "ed25519"];

fn pair_of(kind: &str, version: TlsVersion) -> Pair {
    let limited = |role| {
        let mut options = options(kind, role);
        (options.version_min, options.version_max) = (version, version);
        options
    };
    Pair::new(limited(Role::Client), limited(Role::Server))
}

#[test]
fn every_kind_of_key_and_both_versions_connect() {
    for kind in KINDS {
        for (version, name) in [(TlsVersion::V1_2, "TLSv1.2"), (TlsVersion::V1_3, "TLSv1.3")] {
            let mut pair = pair_of(kind, version);
            assert!(pair.client.peer().is_none());
            assert_eq!(
                pair.client.export(b"x", &mut [0; 32]),
                Err(TlsError::NotReady)
            );
            pair.connect();

            let server = pair.client.peer().expect("the server's certificate");
            assert_eq!(server.common_name, "server");
            assert_eq!(server.subject(), "C=DE, O=Millrace Test, CN=server");
            assert_eq!(server.chain.len(), 2);
            let client = pair.server.peer().expect("the client's certificate");
            assert_eq!(
                (client.common_name.as_str(), client.chain[0].serial.as_str()),
                ("client", "258")
            );
            let description = pair.client.describe().expect("agreed");
            assert!(
                description.starts_with(&format!("{name}, cipher TLS_")),
                "{description}"
            );
            assert_eq!(pair.server.describe().as_ref(), Some(&description));
        }
    }
}

/// The default is a quantum-safe group. With a peer that lacks it, a classical group is used without an extra round
/// trip.
#[test]
fn the_strongest_group_in_common_is_agreed_on() {
    let classical = || Some("X25519:secp256r1:secp384r1".to_owned());
    for (at_client, at_server, group) in [
        (None, None, "X25519MLKEM768"),
        (classical(), None, "X25519"),
        (None, classical(), "X25519"),
        (None, Some("secp384r1".to_owned()), "secp384r1"),
        (Some("secp256r1".to_owned()), None, "secp256r1"),
    ] {
        let with = |role, groups| {
            let mut options = options("p256", role);
            options.groups = groups;
            options
        };
        let mut pair = Pair::new(with(Role::Client, at_client), with(Role::Server, at_server));
        pair.connect();
        for end in [&pair.client, &pair.server] {
            let said = end.describe().expect("agreed");
            assert!(said.ends_with(&format!("group {group}")), "{said}");
        }
    }
    let mut pair = pair_of("p256", TlsVersion::V1_2);
    pair.connect();
    let said = pair.client.describe().expect("agreed");
    assert!(said.ends_with("group X25519"), "{said}");
}

#[test]
fn both_ends_export_the_same_keys() {
    for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let mut pair = pair_of("p256", version);
        pair.connect();
        let client = KeyBlock::from_exporter(&pair.client).expect("keys");
        let server = KeyBlock::from_exporter(&pair.server).expect("keys");
        let (send, receive) = client.split(Role::Client);
        let (server_send, server_receive) = server.split(Role::Server);
        assert_eq!(
            (send.cipher, send.hmac),
            (server_receive.cipher, server_receive.hmac)
        );
        assert_eq!(
            (receive.cipher, receive.hmac),
            (server_send.cipher, server_send.hmac)
        );
        assert_ne!(send.cipher, receive.cipher);

        let client = dynamic_tls_crypt(&pair.client).expect("a key");
        assert_eq!(client, dynamic_tls_crypt(&pair.server).expect("a key"));
    }
}

#[test]
fn what_is_said_arrives_byte_by_byte_too() {
    let mut pair = pair_of("p256", TlsVersion::V1_3);
    // Data sent before the handshake is complete waits.
    pair.client.write_plain(b"early ").expect("kept");
    pair.connect();
    pair.client.write_plain(b"late").expect("sent");
    for byte in pair.client.take_tls() {
        pair.server.read_tls(&[byte]).expect("taken in");
    }
    assert_eq!(&pair.server.read_plain()[..], b"early late");
    assert!(pair.server.read_plain().is_empty());
    assert!(!pair.server.peer_closed());
    pair.client.close();
    assert_eq!(pair.run(), (Ok(()), Ok(())));
    assert!(pair.server.peer_closed());
}

#[test]
fn there_are_no_tickets() {
    let mut pair = pair_of("p256", TlsVersion::V1_3);
    pair.connect();
    assert!(pair.server.take_tls().is_empty());
}

#[test]
fn no_more_is_kept_than_is_bounded() {
    let mut pair = pair_of("p256", TlsVersion::V1_3);
    pair.connect();
    let mut flooded = Ok(());
    for _ in 0..10 {
        pair.client.write_plain(&[0; 8192]).expect("sent");
        flooded = flooded.and_then(|()| pair.server.read_tls(&pair.client.take_tls()));
    }
    assert!(matches!(flooded, Err(TlsError::Flood(_))), "{flooded:?}");
    assert!(matches!(
        pair.client.write_plain(&[0; 100_000]),
        Err(TlsError::Full(_))
    ));
}

#[test]
fn noise_is_an_error_and_no_more() {
    let mut server = session(options("p256", Role::Server));
    let noise: Vec<u8> = (0..200u8).collect();
    let error = server.read_tls(&noise).expect_err("noise");
    assert!(matches!(error, TlsError::Protocol(_)), "{error}");
    assert_eq!(server.read_tls(b"x"), Err(error));
}

#[test]
fn a_server_may_ask_for_no_certificate() {
    for (asks, client_has, name) in [
        (ClientCertificate::None, true, None),
        (ClientCertificate::Optional, false, None),
        (ClientCertificate::Optional, true, Some("client")),
    ] {
        let mut server = options("p256", Role::Server);
        server.client_certificate = asks;
        let mut client = options("p256", Role::Client);
        if !client_has {
            client.identity = None;
        }
        let mut pair = Pair::new(client, server);
        pair.connect();
        assert_eq!(
            pair.server.peer().map(|peer| peer.common_name.as_str()),
            name
        );
    }
}

#[test]
fn a_client_without_a_certificate_is_told_what_to_do() {
    for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let mut client = options("p256", Role::Client);
        client.identity = None;
        client.version_max = version;
        let (client, server) = Pair::new(client, options("p256", Role::Server)).run();
        assert_eq!(server, Err(TlsError::NoCertificate));
        let told = client.expect_err("an alert").to_string();
        assert!(told.contains("alert"), "{told}");
    }
}

#[test]
fn versions_that_do_not_meet_are_explained() {
    let mut client = options("p256", Role::Client);
    client.version_max = TlsVersion::V1_2;
    let mut server = options("p256", Role::Server);
    server.version_min = TlsVersion::V1_3;
    let (client, server) = Pair::new(client, server).run();
    let server = server.expect_err("no common version").to_string();
    assert!(server.contains("tls-version-min"), "{server}");
    let client = client.expect_err("an alert").to_string();
    assert!(client.contains("neither TLS 1.2 nor 1.3"), "{client}");
}

#[test]
fn suites_that_do_not_meet_are_explained() {
    let limited = |role, suite: &str| {
        let mut options = options("p256", role);
        options.version_max = TlsVersion::V1_2;
        options.cipher = Some(suite.to_owned());
        options
    };
    let (client, server) = Pair::new(
        limited(Role::Client, "ECDHE-ECDSA-AES128-GCM-SHA256"),
        limited(Role::Server, "TLS-ECDHE-ECDSA-WITH-AES-256-GCM-SHA384"),
    )
    .run();
    let server = server.expect_err("no suite").to_string();
    let client = client.expect_err("an alert").to_string();
    let (mine, its) = (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    );
    // The server sees both offers; the client learns nothing of the server's.
    for says in ["check tls-cipher", "it offers", its, "and we", mine] {
        assert!(server.contains(says), "{says}: {server}");
    }
    for says in ["cipher suite in common", "we offer TLS 1.2 with", its] {
        assert!(client.contains(says), "{says}: {client}");
    }
}

#[test]
fn the_groups_of_the_settings_are_used() {
    let mut client = options("p256", Role::Client);
    client.groups = Some("secp384r1:brainpoolP256r1".to_owned());
    let settings = TlsSettings::new(client.clone()).expect("settings");
    assert!(settings.warnings()[0].contains("brainpoolP256r1"));
    let mut pair = Pair::new(client, options("p256", Role::Server));
    pair.connect();
    assert!(
        pair.client
            .describe()
            .is_some_and(|text| text.ends_with("secp384r1"))
    );
}

#[test]
fn old_suites_are_left_out_or_refused() {
    let with = |cipher: &str, max| {
        let mut options = options("p256", Role::Client);
        options.cipher = Some(cipher.to_owned());
        options.version_max = max;
        TlsSettings::new(options)
    };
    for max in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let settings =
            with("DHE-RSA-AES256-SHA:ECDHE-RSA-AES256-SHA384", max).expect("ours are left");
        assert_eq!(settings.warnings().len(), 1, "{:?}", settings.warnings());
        assert!(settings.warnings()[0].contains("is offered instead"));
        assert!(
            settings.offer().contains("TLS 1.2 with TLS_ECDHE_ECDSA"),
            "{}",
            settings.offer()
        );
    }
    // A client whose file names only other suites still reaches a TLS 1.2 server with ECDHE and AES-GCM.
    let mut client = options("p256", Role::Client);
    client.cipher = Some("TLS-DHE-RSA-WITH-AES-256-CBC-SHA".to_owned());
    let mut server = options("p256", Role::Server);
    server.version_max = TlsVersion::V1_2;
    Pair::new(client, server).connect();
    let none = "DHE-RSA-AES256-SHA:!ECDHE";
    let settings = with(none, TlsVersion::V1_3).expect("TLS 1.3 is left");
    assert_eq!(settings.warnings().len(), 2, "{:?}", settings.warnings());
    let refused = with(none, TlsVersion::V1_2).expect_err("nothing is left");
    assert!(matches!(
        refused,
        SettingsError::NothingLeft {
            directive: "tls-cipher",
            ..
        }
    ));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refused = |change: &dyn Fn(&mut TlsOptions), role| {
        let mut options = options("p256", role);
        change(&mut options);
        TlsSettings::new(options).expect_err("refused").to_string()
    };
    assert!(refused(&|o| o.identity = None, Role::Server).contains("cert and key"));
    assert!(refused(&|o| o.ca.clear(), Role::Client).contains("set ca"));
    assert!(refused(&|o| o.ca = b"x".to_vec(), Role::Client).contains("BEGIN CERTIFICATE"));
    assert!(refused(&|o| o.ca = vec![0x30, 0], Role::Client).contains("data other than"));
    assert!(refused(&|o| o.crl = Some(file("p256/ca.crt")), Role::Client).contains("X509 CRL"));
    assert!(refused(&|o| o.groups = Some("x".to_owned()), Role::Client).contains("X25519"));
    let backwards = |o: &mut TlsOptions| {
        (o.version_min, o.version_max) = (TlsVersion::V1_3, TlsVersion::V1_2);
    };
    assert!(refused(&backwards, Role::Client).contains("tls-version-min"));
}
