//! TLS between two ends in memory, with all kinds of certificates, and against OpenSSL.

mod handshake;
mod identity;
mod openssl;
mod revocation;
mod verdict;
mod verify;

use openvpn::identity::Identity;
use openvpn::role::Role;
use openvpn::tls::{TlsError, TlsOptions, TlsSession, TlsSettings};

/// A file of `tests/certs`.
fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/certs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The certificate and key of an end.
fn identity(cert: &str, key: &str) -> Identity {
    Identity::from_pem(&file(cert), &file(key), b"", None).expect("certificate and key fit")
}

/// Options of an end that uses the CA in this directory.
fn options(kind: &str, role: Role) -> TlsOptions {
    let name = match role {
        Role::Client => "client",
        Role::Server => "server",
    };
    let mut options = TlsOptions::new(role);
    options.ca = file(&format!("{kind}/ca.crt"));
    options.identity = Some(identity(
        &format!("{kind}/{name}.crt"),
        &format!("{kind}/{name}.key"),
    ));
    options
}

fn session(options: TlsOptions) -> TlsSession {
    TlsSession::new(&TlsSettings::new(options).expect("good settings")).expect("a session")
}

/// A client and a server.
struct Pair {
    client: TlsSession,
    server: TlsSession,
}

impl Pair {
    fn new(client: TlsOptions, server: TlsOptions) -> Self {
        Self {
            client: session(client),
            server: session(server),
        }
    }

    /// Carries bytes until neither end has more to send, or one fails. The last message of the failing end is carried
    /// too, so that the error of the other end is known as well.
    fn run(&mut self) -> (Result<(), TlsError>, Result<(), TlsError>) {
        let (mut client, mut server) = (Ok(()), Ok(()));
        loop {
            let to_server = self.client.take_tls();
            if !to_server.is_empty() && server.is_ok() {
                server = self.server.read_tls(&to_server);
            }
            let to_client = self.server.take_tls();
            if !to_client.is_empty() && client.is_ok() {
                client = self.client.read_tls(&to_client);
            }
            if to_server.is_empty() && to_client.is_empty() {
                return (client, server);
            }
        }
    }

    /// Runs a handshake that must succeed.
    fn connect(&mut self) {
        assert_eq!(self.run(), (Ok(()), Ok(())));
        assert!(!self.client.is_handshaking() && !self.server.is_handshaking());
    }
}
