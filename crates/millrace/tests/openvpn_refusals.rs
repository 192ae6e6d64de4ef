//! A client that must not connect does not, whichever end has to refuse.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::openvpn::{Pair, credentials, millrace, ready};
use lab::acceptance::{Net, PATIENCE};
use lab::openvpn::{
    Cipher, Credentials, Identity, KeyKind, OpenVpn, RunningOpenVpn, Setup, StaticKey, Wrap,
};

/// A setup in which an endless handshake times out soon.
fn quick() -> Setup {
    let mut setup = Setup::default();
    setup.client.line("hand-window 4");
    setup.server.line("hand-window 4");
    setup
}

/// Replaces an end's certificate.
fn present(file: &mut lab::openvpn::ConfigFile, identity: &Identity) {
    file.remove("cert").remove("key");
    file.block("cert", &identity.certificate);
    file.block("key", &identity.key);
}

/// Starts both ends with these changes to client and server, and waits until the client logs `line`; it must not have
/// connected before.
fn refused(
    pair: Pair,
    setup: &Setup,
    line: &str,
    change: impl Fn(&mut lab::openvpn::ConfigFile, &mut lab::openvpn::ConfigFile),
) {
    let net = Net::new();
    let keys = credentials(KeyKind::Ecdsa);
    let programs = pair.programs(false);
    let at = net.link.b4();
    let mut server = setup.server_file(programs[0].as_ref(), keys, at).unwrap();
    let mut client = setup.client_file(programs[1].as_ref(), keys, at).unwrap();
    change(&mut server, &mut client);
    let _server = programs[0].start(&net.b, &server).unwrap();
    let mut client: RunningOpenVpn<'_> = programs[1].launch(&net.a, &client).unwrap();
    client.wait_for_lines(line, 1).unwrap();
    assert_eq!(client.said(lab::openvpn::READY_LINE), 0, "{pair:?}");
    // The interface may exist already, but carries nothing.
    let addresses = client.addresses().unwrap_or_default();
    assert!(addresses.is_empty(), "{pair:?}: {addresses:?}");
}

/// Log text of every client about a failed handshake.
const FAILED: &str = "TLS Error";

#[test]
fn revoked_client() {
    if !ready() {
        return;
    }
    let keys = credentials(KeyKind::Ecdsa);
    let crl = keys.pki.revoke(&[keys.pki.client()]).unwrap();
    for pair in Pair::ALL {
        refused(pair, &quick(), FAILED, |server, _| {
            server.block("crl-verify", &crl);
        });
    }
}

/// A directory of files named by serial number: either end checks it for the peer's certificate and for its CA's.
#[test]
fn certificates_that_a_directory_revokes() {
    if !ready() {
        return;
    }
    const AUTHORITY: &str = "revoked/1";
    for pair in Pair::ALL {
        for revoked in ["revoked/3", AUTHORITY] {
            refused(pair, &quick(), FAILED, |server, _| {
                server.file(revoked, "").line("crl-verify revoked dir");
            });
        }
        for revoked in ["revoked/2", AUTHORITY] {
            refused(pair, &quick(), FAILED, |_, client| {
                client.file(revoked, "").line("crl-verify revoked dir");
            });
        }
    }
}

/// Without the directory no certificate can be checked for revocation, so the program does not start.
#[test]
fn a_directory_of_revoked_certificates_that_is_not_there() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let keys = credentials(KeyKind::Ecdsa);
    let setup = Setup::default();
    let mut file = setup.client_file(&millrace(), keys, net.link.b4()).unwrap();
    file.line("crl-verify revoked dir");
    let client = millrace().launch(&net.a, &file).unwrap();
    let exit = client.process.wait_at_most(PATIENCE).unwrap();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    let said = exit.stdout.clone() + &exit.stderr;
    assert!(said.contains("crl-verify"), "{said}");
}

#[test]
fn client_of_another_authority() {
    if !ready() {
        return;
    }
    let stranger = Credentials::new(KeyKind::Ecdsa).unwrap();
    for pair in Pair::ALL {
        refused(pair, &quick(), FAILED, |_, client| {
            present(client, stranger.pki.client());
        });
    }
}

#[test]
fn server_that_is_a_client() {
    if !ready() {
        return;
    }
    for pair in Pair::ALL {
        refused(pair, &quick(), FAILED, |server, _| {
            present(server, credentials(KeyKind::Ecdsa).pki.client());
        });
    }
}

#[test]
fn server_of_another_name() {
    if !ready() {
        return;
    }
    for pair in Pair::ALL {
        refused(pair, &quick(), FAILED, |_, client| {
            client.line("verify-x509-name other name");
        });
    }
}

#[test]
fn client_with_another_key_before_tls() {
    if !ready() {
        return;
    }
    let other = StaticKey::generate().unwrap();
    for pair in Pair::ALL {
        for (wrap, name) in [(Wrap::TlsCrypt, "tls-crypt"), (Wrap::TlsAuth, "tls-auth")] {
            let setup = Setup { wrap, ..quick() };
            refused(pair, &setup, FAILED, |_, client| {
                client.remove(name).block(name, other.text());
            });
        }
    }
}

#[test]
fn wrong_password() {
    if !ready() {
        return;
    }
    let check = "#!/bin/sh\n[ \"$(cat \"$1\")\" = \"$(printf 'user\\nsecret')\" ]\n";
    for pair in Pair::ALL {
        refused(pair, &quick(), "AUTH_FAILED", |server, client| {
            server.file("check", check).line("script-security 2");
            server.words("auth-user-pass-verify", ["/bin/sh check", "via-file"]);
            client
                .file("login", "user\nwrong\n")
                .line("auth-user-pass login");
        });
    }
}

#[test]
fn no_cipher_in_common() {
    if !ready() {
        return;
    }
    for pair in Pair::ALL {
        let setup = Setup {
            cipher: Cipher::Aes256Gcm,
            ..quick()
        };
        refused(pair, &setup, "AUTH_FAILED", |_, client| {
            client.remove("data-ciphers").remove("cipher");
            client.line("data-ciphers AES-128-CBC");
        });
    }
}

/// Insecure ciphers need a switch, which the refusal names.
#[test]
fn insecure_ciphers_without_the_switch() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let keys = credentials(KeyKind::Ecdsa);
    for cipher in [
        Cipher::BlowfishCbc,
        Cipher::DesCbc,
        Cipher::TripleDesCbc,
        Cipher::None,
    ] {
        let setup = Setup {
            cipher,
            ..Setup::default()
        };
        let mut file = setup.client_file(&millrace(), keys, net.link.b4()).unwrap();
        file.remove("allow-insecure-ciphers");
        let client = millrace().launch(&net.a, &file).unwrap();
        let exit = client.process.wait_at_most(PATIENCE).unwrap();
        assert_eq!(exit.status.code(), Some(1), "{cipher:?}: {exit:?}");
        let said = exit.stdout.clone() + &exit.stderr;
        assert!(
            said.contains("allow-insecure-ciphers"),
            "{cipher:?}: {said}"
        );
    }
}
