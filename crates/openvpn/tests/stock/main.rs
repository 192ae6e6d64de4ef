//! Tests our sessions against the stock program, over a loopback socket in a separate network namespace.
//!
//! Skipped if `openvpn` or `unshare` is missing, or namespaces cannot be made.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

mod data;
mod end;
mod program;

use std::sync::Arc;
use std::time::Duration;

use crypto::Digest;
use openvpn::keyfile::v2::{ClientKey, Metadata, ServerKey};
use openvpn::keyfile::{KeyDirection, StaticKey};
use openvpn::negotiate::{Cipher, CipherList};
use openvpn::role::Role;
use openvpn::session::{
    ClientSettings, Credentials, Decision, Renegotiation, ServerSettings, Settings, TokenKeeper,
};
use openvpn::wrap::WrapSettings;

use end::{ClientEnd, ServerEnd, common};
use program::{Stock, in_namespace};

/// A wrap as our settings for both roles, and as the stock program's options for the other role.
struct Wrapped {
    name: &'static str,
    client: WrapSettings,
    server: WrapSettings,
    stock_client: Vec<(&'static str, String)>,
    stock_server: Vec<(&'static str, String)>,
}

fn wraps() -> Vec<Wrapped> {
    let key = StaticKey::generate().unwrap();
    let text = key.to_text().to_string();
    let server_key = ServerKey::generate().unwrap();
    let client_key = ClientKey::generate(&server_key, &Metadata::user(b"x")).unwrap();
    let auth = |direction| WrapSettings::tls_auth(&key, direction, Digest::Sha256).unwrap();
    vec![
        Wrapped {
            name: "none",
            client: WrapSettings::none(),
            server: WrapSettings::none(),
            stock_client: Vec::new(),
            stock_server: Vec::new(),
        },
        Wrapped {
            name: "tls-auth",
            client: auth(KeyDirection::Inverse),
            server: auth(KeyDirection::Normal),
            stock_client: vec![("tls-auth 1", text.clone())],
            stock_server: vec![("tls-auth 0", text.clone())],
        },
        Wrapped {
            name: "tls-crypt",
            client: WrapSettings::tls_crypt(&key, Role::Client),
            server: WrapSettings::tls_crypt(&key, Role::Server),
            stock_client: vec![("tls-crypt", text.clone())],
            stock_server: vec![("tls-crypt", text)],
        },
        Wrapped {
            name: "tls-crypt-v2",
            client: WrapSettings::tls_crypt_v2_client(&client_key),
            server: WrapSettings::tls_crypt_v2_server(&server_key, None),
            stock_client: vec![("tls-crypt-v2", client_key.to_text().to_string())],
            stock_server: vec![("tls-crypt-v2", server_key.to_text().to_string())],
        },
    ]
}

fn settings(role: Role, tls_auth: bool) -> Settings {
    let mut settings = common(role);
    settings.occ.tls_auth = tls_auth;
    settings.occ.key_direction = tls_auth.then_some(role == Role::Client);
    settings.auth = Digest::Sha256;
    settings.occ.auth = settings.auth;
    settings
}

/// Connects, exchanges pings in both directions, and renews the keys twice.
#[test]
fn client_of_the_stock_server() {
    in_namespace(|| {
        let wraps = wraps();
        std::thread::scope(|scope| {
            for wrapped in &wraps {
                for (exporter, cipher) in [
                    (true, Cipher::Aes256Gcm),
                    (false, Cipher::Aes256Cbc),
                    (false, Cipher::ChaCha20Poly1305),
                ] {
                    scope.spawn(move || client_case(wrapped, exporter, cipher));
                }
            }
        });
    });
}

fn client_case(wrapped: &Wrapped, exporter: bool, cipher: Cipher) {
    let what = format!("{}, exporter {exporter}, {cipher}", wrapped.name);
    let stock = Stock::server(&[
        "--reneg-sec",
        "2",
        "--auth",
        "SHA256",
        "--data-ciphers",
        cipher.name(),
        "--ping",
        "1",
        "--ping-restart",
        "60",
        "--push",
        "ping 1",
        "--push",
        "route 10.99.0.0 255.255.0.0",
    ])
    .with_inline(&wrapped.stock_server)
    .start();
    let mut common = settings(Role::Client, wrapped.name == "tls-auth");
    common.exporter = exporter;
    common.data_ciphers = CipherList::of(&[cipher]);
    common.keys.renegotiation = Renegotiation::every(Duration::ZERO);
    let settings = ClientSettings::new(common, wrapped.client.clone());
    let mut client = ClientEnd::begin(settings, stock.port(), None);
    client.run_until(|it| it.renewed >= 2 && it.data.opened >= 4, &what, &stock);
    assert_eq!(client.data.failed, 0, "{what}");
    let reply = client.pushed.as_ref().unwrap();
    assert_eq!(reply.routes.len(), 1, "{what}");
    assert_eq!(reply.tls_ekm, exporter, "{what}");
    client.leave();
    stock.wait_for("CC-EEN exit message received");
    let log = stock.log();
    for bad in ["TLS Error", "inconsistently", "Authenticate/Decrypt"] {
        assert!(!log.contains(bad), "{what}: {bad}\n{log}");
    }
}

#[test]
fn server_of_the_stock_client() {
    in_namespace(|| {
        let wraps = wraps();
        std::thread::scope(|scope| {
            for wrapped in &wraps {
                for (exporter, cipher) in [
                    (true, Cipher::Aes256Gcm),
                    (false, Cipher::Aes256Cbc),
                    (true, Cipher::ChaCha20Poly1305),
                ] {
                    scope.spawn(move || server_case(wrapped, exporter, cipher));
                }
            }
        });
    });
}

fn server_case(wrapped: &Wrapped, exporter: bool, cipher: Cipher) {
    let what = format!("{}, exporter {exporter}, {cipher}", wrapped.name);
    let mut common = settings(Role::Server, wrapped.name == "tls-auth");
    common.exporter = exporter;
    common.data_ciphers = CipherList::of(&[cipher]);
    common.keys.renegotiation = Renegotiation::every(Duration::from_secs(4));
    common.timers.ping = Some(Duration::from_secs(1));
    common.timers.ping_restart = Some(Duration::from_secs(60));
    let server = ServerSettings::new(common);
    let mut server = ServerEnd::begin(server, wrapped.server.clone());
    let stock = Stock::client(
        server.port(),
        &[
            "--reneg-sec",
            "0",
            "--auth",
            "SHA256",
            "--data-ciphers",
            cipher.name(),
            "--explicit-exit-notify",
            "1",
        ],
    )
    .with_inline(&wrapped.stock_client)
    .start();
    server.run_until(|it| it.renewed >= 2 && it.data.opened >= 4, &what, &stock);
    assert_eq!(server.data.failed, 0, "{what}");
    assert!(stock.log().contains("Initialization Sequence Completed"));
    // The stock program is silent during a renewal and sends not even a goodbye.
    let opened = server.data.opened;
    server.run_until(|it| it.data.opened > opened, &what, &stock);
    stock.terminate();
    server.run_until(|it| it.closed.is_some(), &what, &stock);
    assert_eq!(
        server.closed,
        Some(openvpn::session::CloseReason::PeerExit),
        "{what}"
    );
    let log = stock.log();
    for bad in ["TLS Error", "inconsistently", "Authenticate/Decrypt"] {
        assert!(!log.contains(bad), "{what}: {bad}\n{log}");
    }
}

/// User name, password, and the token that replaces them when keys are renewed.
#[test]
fn passwords_and_tokens_both_ways() {
    in_namespace(|| {
        let login = "ann\nsecret\n".to_owned();
        let mut common = settings(Role::Server, false);
        common.keys.renegotiation = Renegotiation::every(Duration::from_secs(4));
        common.timers.ping = Some(Duration::from_secs(1));
        let mut server = ServerSettings::new(common);
        server.tokens = Some(Arc::new(TokenKeeper::new(
            &[9; 32],
            None,
            Duration::from_secs(60),
        )));
        let mut server = ServerEnd::begin(server, WrapSettings::none());
        server.judge = Box::new(|request| {
            assert_eq!(request.username, "ann");
            let token = request.token == openvpn::session::TokenState::Authenticated;
            assert_eq!(token, request.renegotiation);
            assert!(token || &**request.password == "secret");
            Decision::Accept
        });
        let stock = Stock::client(server.port(), &["--auth", "SHA256"])
            .with_file("auth-user-pass", &login)
            .start();
        server.run_until(|it| it.renewed >= 2, "tokens", &stock);
        drop((server, stock));

        let stock = Stock::server(&[
            "--auth",
            "SHA256",
            "--reneg-sec",
            "4",
            "--hand-window",
            "10",
            "--auth-gen-token",
            "3600",
            "20",
            "--script-security",
            "3",
            "--auth-user-pass-verify",
            "/bin/false",
            "via-env",
        ])
        .start();
        let settings = || ClientSettings::new(settings(Role::Client, false), WrapSettings::none());
        let credentials = Credentials {
            username: b"ann".to_vec(),
            password: b"wrong".to_vec(),
        };
        let mut client = ClientEnd::begin(settings(), stock.port(), Some(credentials.clone()));
        client.run_until(|it| it.closed.is_some(), "refused", &stock);
        assert!(matches!(
            client.closed,
            Some(openvpn::session::CloseReason::AuthFailed(_))
        ));
        drop(stock);

        let stock = Stock::server(&[
            "--auth",
            "SHA256",
            "--reneg-sec",
            "4",
            "--hand-window",
            "10",
            "--auth-gen-token",
            "3600",
            "20",
            "--script-security",
            "3",
            "--auth-user-pass-verify",
            "/bin/true",
            "via-env",
            // The stock program sends the new token only when another event wakes it.
            "--ping",
            "1",
        ])
        .start();
        let mut client = ClientEnd::begin(settings(), stock.port(), Some(credentials));
        client.run_until(|it| it.renewed >= 2, "token of the stock server", &stock);
        assert!(client.tokens >= 2, "{}\n{}", client.tokens, stock.log());
    });
}
