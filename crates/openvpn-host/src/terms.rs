//! Protocol settings from the configuration: offers, limits and timers.

use config::openvpn::{Connection, Framing, KeyDirection, OpenVpn, PingTimeout, SharedWrap};
use openvpn::negotiate::{Cipher, CipherList, OccOptions, PeerInfo, Transport};
use openvpn::push;
use openvpn::session::{ClientSettings, Renegotiate, Settings, Timers};
#[cfg(feature = "server")]
use openvpn::session::{ServerSettings, TokenKeeper};
use openvpn::tls::TlsSettings;
use openvpn::wrap::WrapSettings;
use std::sync::Arc;
use std::time::Duration;

/// Default MTU of a tunnel.
pub(crate) const TUN_MTU: u16 = 1500;

fn seconds(n: u32) -> Option<Duration> {
    (n > 0).then(|| Duration::from_secs(n.into()))
}

/// The interface's MTU before the server pushes another.
pub fn tun_mtu(connection: &Connection) -> u16 {
    connection.mtu.tun.unwrap_or(TUN_MTU)
}

/// Builds the options that peers compare (OCC).
fn occ(config: &OpenVpn, connection: &Connection, ciphers: &CipherList) -> OccOptions {
    let framing = config.data.framing;
    let own = config.data.cipher.or(config.data.fallback);
    let own = own.unwrap_or(Cipher::BlowfishCbc);
    let (tls_auth, direction) = match &connection.wrap.shared {
        SharedWrap::TlsAuth { direction, .. } => (true, *direction),
        _ => (false, KeyDirection::Bidirectional),
    };
    OccOptions {
        dev_type: if config.device.null { "null" } else { "tun" },
        tun_mtu: connection
            .mtu
            .occ
            .unwrap_or_else(|| tun_mtu(connection))
            .into(),
        transport: transport(connection),
        comp_lzo: framing != Framing::None,
        comp_byte: matches!(framing, Framing::Lzo | Framing::Swap),
        fragment: connection.mtu.fragment.is_some(),
        key_direction: match direction {
            KeyDirection::Bidirectional => None,
            KeyDirection::Normal => Some(false),
            KeyDirection::Inverse => Some(true),
        },
        cipher: own,
        cipher_allowed: ciphers.contains(own) || config.data.fallback == Some(own),
        auth: config.data.auth,
        tls_auth,
    }
}

/// Returns UDP or TCP, for the protocol.
pub(crate) fn transport(connection: &Connection) -> Transport {
    if connection.protocol.transport.is_tcp() {
        Transport::Tcp
    } else {
        Transport::Udp
    }
}

/// Builds the settings that both roles need.
fn common(
    config: &OpenVpn,
    connection: &Connection,
    tls: Arc<TlsSettings>,
    kernel: bool,
) -> Settings {
    let ciphers = CipherList::of(&config.data.ciphers);
    let mut settings = Settings::new(tls, occ(config, connection, &ciphers));
    settings.data_ciphers = ciphers;
    settings.fallback = config.data.fallback;
    settings.auth = config.data.auth;
    // Features that the kernel's data plane lacks are not offered.
    settings.epoch = !kernel;
    settings.framings = !kernel;
    settings.in_band = !kernel;
    if let Some(size) = connection.mtu.control {
        settings.max_packet_size = size;
    }
    let timers = &config.timers;
    let reneg = &timers.renegotiation;
    settings.renegotiate = Renegotiate {
        time: seconds(reneg.seconds).map(|most| {
            let least = match (reneg.seconds_min, config.server()) {
                (Some(least), _) => Duration::from_secs(least.into()).min(most),
                (None, Some(_)) => most - most / 10,
                (None, None) => most,
            };
            (least, most)
        }),
        bytes: reneg.bytes,
        packets: reneg.packets,
    };
    settings.hand_window = Duration::from_secs(timers.hand_window.into());
    settings.tran_window = Duration::from_secs(timers.tran_window.into());
    settings.tls_timeout = Duration::from_secs(timers.tls_timeout.into());
    let (restart, exit) = match timers.ping_timeout {
        // Stock clients give up after two silent minutes over UDP, unless the server pushes another limit.
        PingTimeout::Unset if config.client().is_some() && !transport(connection).is_stream() => {
            (seconds(120), None)
        }
        PingTimeout::Unset | PingTimeout::Off => (None, None),
        PingTimeout::Restart(n) => (seconds(n), None),
        PingTimeout::Exit(n) => (None, seconds(n)),
    };
    settings.timers = Timers {
        ping: seconds(timers.ping),
        ping_restart: restart,
        ping_exit: exit,
        inactive: timers
            .inactive
            .map(|(n, bytes)| (Duration::from_secs(n.into()), bytes)),
        session_timeout: timers.session_timeout.and_then(seconds),
    };
    settings
}

/// Builds a client's settings for one connection; `kernel` if the kernel's data plane moves the packets.
pub fn client(
    config: &OpenVpn,
    connection: &Connection,
    tls: Arc<TlsSettings>,
    wrap: WrapSettings,
    kernel: bool,
) -> ClientSettings {
    let mut settings = ClientSettings::new(common(config, connection, tls, kernel), wrap);
    let Some(client) = config.client() else {
        return settings;
    };
    let mut info = PeerInfo::default();
    info.set("IV_VER", concat!("millrace_", env!("CARGO_PKG_VERSION")));
    info.set("IV_PLAT", "linux");
    for (name, value) in &config.scripts.environment {
        // Front ends identify themselves through these environment variables.
        let always = matches!(name.as_str(), "IV_GUI_VER" | "IV_SSO");
        if always || (client.push_peer_info && name.starts_with("UV_")) {
            info.set(name, value);
        }
    }
    settings.peer_info = info;
    settings.filter = push::PullFilter {
        rules: client.pull_filters.clone(),
        no_routes: config.network.route_nopull,
    };
    let own = tun_mtu(connection);
    settings.tun_mtu_max = u32::from(connection.mtu.tun_max.unwrap_or(1600).max(own));
    let notify = u32::from(connection.exit_notify);
    settings.explicit_exit_notify = (notify > 0).then_some(notify);
    settings
}

/// Builds a server's settings for one listener's clients; `kernel` if the kernel's data plane moves the packets.
#[cfg(feature = "server")]
pub fn server(
    config: &OpenVpn,
    connection: &Connection,
    tls: Arc<TlsSettings>,
    tokens: Option<Arc<TokenKeeper>>,
    kernel: bool,
) -> ServerSettings {
    let mut settings = ServerSettings::new(common(config, connection, tls, kernel));
    settings.tokens = tokens;
    settings
}

#[cfg(test)]
mod tests;
