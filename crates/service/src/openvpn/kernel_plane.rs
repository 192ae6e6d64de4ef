//! Whether the kernel is to move a tunnel's packets, and whether it supports the configuration.

use config::openvpn::{Cipher, Framing, OpenVpn, Topology};
use config::settings::{DataplaneSettings, Kind, Rung};

/// Configuration option that the kernel's data plane does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// This build lacks the kernel's data plane.
    #[cfg(not(feature = "kernel"))]
    #[error(
        "dataplane.kind: this program was built without the kernel's data plane; set dataplane.kind=user"
    )]
    NotBuilt,
    /// `dev null`.
    #[error("dev: dataplane.kind=kernel needs an interface; set dataplane.kind=user")]
    NoInterface,
    /// TCP.
    #[error(
        "proto: dataplane.kind=kernel is for UDP; name only servers over UDP, or set dataplane.kind=user"
    )]
    Stream,
    /// `fragment`.
    #[error(
        "fragment: the kernel's data plane does not cut packets; remove it at both ends, or set dataplane.kind=user"
    )]
    Fragment,
    /// `comp-lzo`, `compress`.
    #[error(
        "compress: the kernel's data plane knows no compression and none of its marks; remove it at both ends, or set dataplane.kind=user"
    )]
    Compression,
    /// A cipher that the kernel lacks.
    #[error(
        "data-ciphers: the kernel's data plane has AES-GCM and CHACHA20-POLY1305, not {0}; remove it, or set dataplane.kind=user"
    )]
    Cipher(&'static str),
    /// A topology other than `subnet`.
    #[error(
        "topology: a server of the kernel's data plane needs `topology subnet`; write that, or set dataplane.kind=user"
    )]
    Topology,
    /// `client-to-client`.
    #[error(
        "client-to-client: the kernel's data plane leaves packets between clients to the host's forwarding; remove it, or set dataplane.kind=user"
    )]
    ClientToClient,
    /// Several uplinks (`line`).
    #[error(
        "uplink: the kernel's data plane has one uplink; remove the uplinks, or set dataplane.kind=user"
    )]
    Lines,
    /// `bind-dev`.
    #[error(
        "bind-dev: the kernel's data plane chooses the device by its routes; remove it and name an address by `local`, or set dataplane.kind=user"
    )]
    Device,
    /// `shaper`.
    #[error(
        "shaper: the kernel's data plane holds nothing back; remove it, or set dataplane.kind=user"
    )]
    Shaper,
    /// `reorder`.
    #[error(
        "reorder: the kernel's data plane delivers packets as they come; remove it, or set dataplane.kind=user"
    )]
    Reorder,
}

/// Whether the kernel is to move the packets. By default this program does: in bulk it needs fewer instructions
/// (docs/benchmarks/kernel.md) on every kernel, and it has more features.
pub(super) const fn is_wanted(settings: &DataplaneSettings) -> bool {
    matches!(settings.kind, Kind::Kernel)
}

/// Checks that the kernel can move the tunnel's packets.
///
/// # Errors
/// The first unsupported option.
pub(super) fn check(config: &OpenVpn) -> Result<(), Unfit> {
    let refuse = |bad: bool, why: Unfit| if bad { Err(why) } else { Ok(()) };
    #[cfg(not(feature = "kernel"))]
    refuse(true, Unfit::NotBuilt)?;
    let data = &config.data;
    refuse(config.device.null, Unfit::NoInterface)?;
    for connection in &config.connections {
        refuse(connection.protocol.transport.is_tcp(), Unfit::Stream)?;
        refuse(connection.mtu.fragment.is_some(), Unfit::Fragment)?;
    }
    let compresses = data.framing != Framing::None || data.migrate;
    refuse(compresses, Unfit::Compression)?;
    // The fallback cipher of peers without negotiation is checked only when a peer needs it.
    if let Some(other) = data.ciphers.iter().find(|it| !is_known(**it)) {
        return Err(Unfit::Cipher(other.name()));
    }
    refuse(!config.lines.lines.is_empty(), Unfit::Lines)?;
    refuse(config.sockets.device.is_some(), Unfit::Device)?;
    refuse(config.sockets.shaper.is_some(), Unfit::Shaper)?;
    refuse(data.reorder, Unfit::Reorder)?;
    let Some(server) = config.server() else {
        return Ok(());
    };
    let subnet = config.network.topology == Some(Topology::Subnet);
    refuse(!subnet, Unfit::Topology)?;
    refuse(server.client_to_client, Unfit::ClientToClient)
}

/// Default metric of a server's routes: lower in preference than routes to networks behind its clients.
const METRIC: u32 = 200;

/// Returns the configuration if the kernel can move its packets.
///
/// # Errors
/// The unsupported option and its place in the file.
pub(super) fn checked(mut config: OpenVpn) -> Result<OpenVpn, String> {
    match check(&config) {
        Ok(()) => {
            if config.server().is_some() {
                config.network.route_metric.get_or_insert(METRIC);
            }
            Ok(config)
        }
        Err(unfit) => Err(config.located(&unfit.to_string())),
    }
}

const fn is_known(cipher: Cipher) -> bool {
    matches!(
        cipher,
        Cipher::Aes128Gcm | Cipher::Aes192Gcm | Cipher::Aes256Gcm | Cipher::ChaCha20Poly1305
    )
}

/// Settings of sockets attached to the kernel's data plane. The kernel takes data packets off them one by one, before
/// GRO; only control packets are left.
pub(super) const fn udp_settings(mut settings: DataplaneSettings) -> DataplaneSettings {
    settings.udp_gso = Rung::Off;
    settings.udp_gro = Rung::Off;
    settings.aqm = Rung::Off;
    settings
}

#[cfg(test)]
#[cfg(feature = "kernel")]
mod tests {
    use super::*;
    use config::openvpn::{Options, parse_bytes};
    use std::path::Path;

    const CLIENT: &str = "client\nremote 192.0.2.1 1194 udp";
    const SERVER: &str = "server 10.8.0.0 255.255.255.0\ntopology subnet\ndh none";

    /// Checks a client's or a server's configuration with one more line.
    fn refusal(role: &str, line: &str) -> Result<(), Unfit> {
        check(&config(role, line))
    }

    fn config(role: &str, line: &str) -> OpenVpn {
        let text = format!("dev tun\nca c\ncert c\nkey k\n{role}\n{line}\n");
        let mut none = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        let name = Path::new("a.conf");
        let import = parse_bytes(text.as_bytes(), name, &mut none, Options::default());
        import.unwrap().into_model().unwrap().0
    }

    #[test]
    fn what_the_kernel_can_do_is_let_pass() {
        assert_eq!(refusal(CLIENT, ""), Ok(()));
        assert_eq!(
            refusal(CLIENT, "data-ciphers AES-192-GCM:CHACHA20-POLY1305"),
            Ok(())
        );
        assert_eq!(refusal(SERVER, "keepalive 10 60"), Ok(()));
    }

    #[test]
    fn what_it_cannot_do_is_named() {
        let cases = [
            (CLIENT, "remote 192.0.2.2 1194 tcp", Unfit::Stream),
            (CLIENT, "fragment 1300", Unfit::Fragment),
            (CLIENT, "comp-lzo no", Unfit::Compression),
            (CLIENT, "compress stub-v2", Unfit::Compression),
            (
                CLIENT,
                "data-ciphers AES-256-GCM:AES-256-CBC",
                Unfit::Cipher("AES-256-CBC"),
            ),
            (CLIENT, "bind-dev eth0", Unfit::Device),
            (SERVER, "bind-dev eth0", Unfit::Device),
            (CLIENT, "shaper 100000", Unfit::Shaper),
            (CLIENT, "reorder", Unfit::Reorder),
            (SERVER, "client-to-client", Unfit::ClientToClient),
            (SERVER, "proto tcp-server", Unfit::Stream),
            (SERVER, "topology net30", Unfit::Topology),
        ];
        for (role, line, unfit) in cases {
            assert_eq!(refusal(role, line), Err(unfit), "{line}");
        }
    }

    #[test]
    fn a_configuration_that_is_read_again_is_refused_with_its_line() {
        let reloaded = checked(config(SERVER, "client-to-client")).unwrap_err();
        assert!(
            reloaded.starts_with("a.conf:8: client-to-client: "),
            "{reloaded}"
        );
        assert!(checked(config(SERVER, "max-clients 7")).is_ok());
    }

    #[test]
    fn a_servers_routes_are_behind_those_to_its_clients() {
        let metric = |role, line| checked(config(role, line)).unwrap().network.route_metric;
        assert_eq!(metric(SERVER, ""), Some(200));
        assert_eq!(metric(SERVER, "route-metric 7"), Some(7));
        assert_eq!(metric(CLIENT, ""), None);
    }

    #[test]
    fn each_refusal_names_a_word_of_the_configuration_and_the_way_out() {
        for unfit in [
            Unfit::Stream,
            Unfit::Topology,
            Unfit::Cipher("BF-CBC"),
            Unfit::Lines,
            Unfit::Device,
        ] {
            let text = unfit.to_string();
            assert!(text.ends_with("set dataplane.kind=user"), "{text}");
            assert!(text.split_once(": ").is_some(), "{text}");
        }
    }

    #[test]
    fn only_the_word_kernel_asks_for_it() {
        for (kind, wanted) in [
            (Kind::Auto, false),
            (Kind::User, false),
            (Kind::Kernel, true),
        ] {
            let settings = DataplaneSettings {
                kind,
                ..DataplaneSettings::default()
            };
            assert_eq!(is_wanted(&settings), wanted, "{kind:?}");
        }
    }
}
