//! The configuration of both ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use openvpn::identity::Identity;
use openvpn::negotiate::{Cipher, OccOptions, Transport};
use openvpn::role::Role;
use openvpn::session::{ClientSettings, Credentials, ServerSettings, Settings};
use openvpn::tls::{TlsOptions, TlsSettings};
use openvpn::wrap::WrapSettings;

use crate::world::secs;

pub(crate) fn wall() -> SystemTime {
    SystemTime::UNIX_EPOCH + secs(1_700_000_000)
}

pub(crate) fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/certs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn tls(role: Role) -> Arc<TlsSettings> {
    Arc::new(tls_settings(role))
}

pub(crate) fn tls_settings(role: Role) -> TlsSettings {
    let name = match role {
        Role::Client => "client",
        Role::Server => "server",
    };
    let (cert, key) = (
        file(&format!("p256/{name}.crt")),
        file(&format!("p256/{name}.key")),
    );
    let mut options = TlsOptions::new(role);
    options.ca = file("p256/ca.crt");
    options.identity = Some(Identity::from_pem(&cert, &key, b"", None).unwrap());
    TlsSettings::new(options).unwrap()
}

pub(crate) fn common(role: Role) -> Settings {
    let occ = OccOptions {
        dev_type: "tun",
        tun_mtu: 1500,
        transport: Transport::Udp,
        comp_lzo: false,
        comp_byte: false,
        fragment: false,
        key_direction: None,
        cipher: Cipher::Aes256Gcm,
        cipher_allowed: true,
        auth: crypto::Digest::None,
        tls_auth: false,
    };
    Settings::new(tls(role), occ)
}

/// Settings that a test changes before it creates a world.
pub(crate) struct Setup {
    pub(crate) client: ClientSettings,
    pub(crate) server: ServerSettings,
    pub(crate) server_wrap: WrapSettings,
    pub(crate) starts: Option<(u32, Duration)>,
    pub(crate) max_clients: usize,
    pub(crate) credentials: Option<Credentials>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self {
            client: ClientSettings::new(common(Role::Client), WrapSettings::none()),
            server: ServerSettings::new(common(Role::Server)),
            server_wrap: WrapSettings::none(),
            starts: None,
            max_clients: 1024,
            credentials: None,
        }
    }

    pub(crate) fn both(&mut self, change: impl Fn(&mut Settings)) {
        change(&mut self.client.common);
        change(&mut self.server.common);
    }

    pub(crate) fn login(&mut self, username: &str, password: &str) {
        self.credentials = Some(Credentials {
            username: username.as_bytes().to_vec(),
            password: password.as_bytes().to_vec(),
        });
    }
}
