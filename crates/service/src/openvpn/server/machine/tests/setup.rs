//! Settings of the simulated server and its clients.

use super::world::Size;
use crate::openvpn::OWN_NAME;
use config::openvpn::OpenVpn;
use openvpn::identity::Identity;
use openvpn::negotiate::{Cipher, OccOptions, Transport};
use openvpn::role::Role;
use openvpn::server::ListenerSettings;
use openvpn::session::{ClientSettings, Settings};
use openvpn::tls::{ClientCertificate, TlsOptions, TlsSettings};
use openvpn::wrap::WrapSettings;
use openvpn_host::accounts::pool::Pool;
use openvpn_host::terms;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

/// Parsed configurations, shared by all worlds.
static KEPT: Mutex<BTreeMap<(usize, &str), &OpenVpn>> = Mutex::new(BTreeMap::new());

pub(super) fn config(max_clients: usize, more: &'static str) -> &'static OpenVpn {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.entry((max_clients, more))
        .or_insert_with(|| read(max_clients, more))
}

fn read(max_clients: usize, more: &str) -> &'static OpenVpn {
    let text = format!(
        "dev tun\ntopology subnet\nserver 10.8.0.0 255.255.240.0\nca c\ncert c\nkey k\ndh none\n\
         verify-client-cert none\nusername-as-common-name\nscript-security 3\n\
         auth-user-pass-verify /bin/verify via-env\nclient-connect /bin/connect\n\
         client-disconnect /bin/disconnect\nlearn-address /bin/learn\nclient-config-dir ccd\n\
         keepalive 5 20\nreneg-sec 60\nhand-window 20\ntran-window 30\n\
         connect-freq-initial 100000 1\nifconfig-pool-persist leases 30\n\
         persist-key\npersist-tun\nmax-clients {max_clients}\n{more}"
    );
    let name = Path::new("a.conf");
    let mut none = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let import = config::openvpn::parse_bytes(text.as_bytes(), name, &mut none, OWN_NAME);
    Box::leak(Box::new(import.unwrap().into_model().unwrap().0))
}

pub(super) fn tls(role: Role, apart: bool) -> Arc<TlsSettings> {
    let file = |name: &str| {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../openvpn/tests/certs/p256");
        std::fs::read(format!("{directory}/{name}")).unwrap()
    };
    let mut options = TlsOptions::new(role);
    options.ca = file("ca.crt");
    let name = match role {
        Role::Client => "client",
        Role::Server => "server",
    };
    let (certificate, key) = (file(&format!("{name}.crt")), file(&format!("{name}.key")));
    options.identity = Some(Identity::from_pem(&certificate, &key, b"", None).unwrap());
    options.client_certificate = ClientCertificate::None;
    let mut settings = TlsSettings::new(options).unwrap();
    if apart {
        settings.hand_out_handshakes();
    }
    Arc::new(settings)
}

pub(super) fn client_settings() -> ClientSettings {
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
    let mut settings = Settings::new(tls(Role::Client, false), occ);
    settings.keys.hand_window = SEC * 20;
    settings.keys.tran_window = SEC * 30;
    ClientSettings::new(settings, WrapSettings::none())
}

pub(super) fn listener_settings(config: &OpenVpn, size: Size) -> ListenerSettings {
    let tls = tls(Role::Server, size.apart);
    let server = terms::server(config, &config.connections[0], tls, None, false);
    let mut settings = ListenerSettings::new(Arc::new(server), WrapSettings::none());
    settings.max_clients = size.max_clients;
    settings.resets = size.resets;
    settings
}

pub(super) fn pool() -> Pool {
    let range = config::openvpn::Pool {
        start: [10, 8, 0, 2].into(),
        end: [10, 8, 15, 253].into(),
        netmask: None,
    };
    Pool::new(Some(range), None, config::openvpn::Topology::Subnet, false).unwrap()
}
