//! Whether the kernel is to move a tunnel's packets, and whether it supports the configuration.

mod choice;

pub(super) use choice::Choice;
use config::openvpn::{Cipher, Framing, OpenVpn, Topology};
use config::settings::{DataplaneSettings, Kind, Rung};
#[cfg(feature = "kernel")]
use {
    config::openvpn::Connection, openvpn::data::mtu::MssFix, openvpn::data::wire::Layout,
    openvpn::push::PushReply,
};

/// Whether only the kernel may move the packets. With `auto`, [`Choice`] decides.
pub(super) const fn is_wanted(settings: &DataplaneSettings) -> bool {
    matches!(settings.kind, Kind::Kernel)
}

/// Checks that the kernel can move the tunnel's packets.
///
/// # Errors
/// The first unsupported option, and its remedy.
pub(super) fn check(config: &OpenVpn) -> Result<(), String> {
    match unfit(config) {
        Some(why) => Err(format!("{why} set dataplane.kind=user")),
        None => Ok(()),
    }
}

/// The first option that the kernel does not support; behind a semicolon the beginning of the remedy.
fn unfit(config: &OpenVpn) -> Option<String> {
    let data = &config.data;
    let connections = &config.connections;
    let server = config.server();
    // The fallback cipher of peers without negotiation is checked only when a peer needs it.
    let unknown = data.ciphers.iter().find(|it| !is_known(**it));
    let cipher = unknown.map_or("", |it| it.name());
    // The refusal's first word finds the line in the file.
    let framing = match config.place("comp-lzo") {
        Some(_) => "comp-lzo",
        None => "compress",
    };
    let refused = [
        (
            cfg!(not(feature = "kernel")),
            "dataplane.kind: this program was built without the kernel's data plane;",
        ),
        (
            config.device.null,
            "dev: the kernel's data plane needs an interface, which `dev null` is not;",
        ),
        (
            connections.iter().any(|it| it.protocol.transport.is_tcp()),
            "proto: the kernel's data plane works over UDP only; use only UDP servers, or",
        ),
        (
            connections.iter().any(|it| it.mtu.fragment.is_some()),
            "fragment: the kernel's data plane does not fragment packets; remove it at both ends, or",
        ),
        (
            data.framing != Framing::None || data.migrate,
            &format!(
                "{framing}: the kernel's data plane cannot carry the framing of compression, not even `comp-lzo no`; \
                 remove it at both ends, or"
            ),
        ),
        (
            unknown.is_some(),
            &format!(
                "data-ciphers: the kernel's data plane supports only AES-GCM and CHACHA20-POLY1305, not {cipher}; \
                 remove it, or"
            ),
        ),
        (
            !config.lines.lines.is_empty(),
            "uplink: the kernel's data plane uses only one uplink; remove the uplinks, or",
        ),
        (
            config.sockets.device.is_some(),
            "bind-dev: the kernel's data plane chooses the device by route; use `local` with an address instead, or",
        ),
        (
            config.sockets.shaper.is_some(),
            "shaper: the kernel's data plane does not limit rates; remove it, or",
        ),
        (
            data.reorder,
            "reorder: the kernel's data plane does not reorder packets; remove it, or",
        ),
        (
            server.is_some() && config.network.topology != Some(Topology::Subnet),
            "topology: a server of the kernel's data plane needs `topology subnet`; write that, or",
        ),
        (
            server.is_some_and(|it| it.client_to_client),
            "client-to-client: the kernel's data plane leaves packets between clients to the host's forwarding; remove it, or",
        ),
    ];
    let (_, why) = refused.into_iter().find(|(refused, _)| *refused)?;
    Some(why.to_owned())
}

/// Why `auto` does not take the kernel where `mssfix` has something to do.
#[cfg(feature = "kernel")]
const NO_MSSFIX: &str = "mssfix: the kernel's data plane does not shorten TCP segments; a tun-mtu that fits the uplink, \
                         such as 1420, makes them short";

/// Checks that `mssfix` has nothing to do for packets that fit an interface of this MTU.
///
/// # Errors
/// The reason, and the remedy.
#[cfg(feature = "kernel")]
pub(super) fn check_mssfix(config: &OpenVpn, mtu: u16) -> Result<(), String> {
    match (config.connections.iter()).any(|it| needs_mssfix(it, mtu)) {
        true => Err(NO_MSSFIX.to_owned()),
        false => Ok(()),
    }
}

/// Whether `mssfix` shortens segments of packets that fit an interface of this MTU.
#[cfg(feature = "kernel")]
fn needs_mssfix(connection: &Connection, mtu: u16) -> bool {
    let fix = connection.mtu.mssfix;
    match fix.unwrap_or_else(|| MssFix::default_for(mtu, None)) {
        MssFix::Off => false,
        MssFix::Fixed(size) => size < mtu,
        MssFix::Link(_) | MssFix::Mtu(_) => true,
    }
}

/// Why `auto` leaves the kernel, or does not move a tunnel there, for a server that pushes these options: user space can do what they ask for. `agreed` is
/// the cipher and layout, `framing` the framing of packets, and `mtu` the interface's.
#[cfg(feature = "kernel")]
pub(super) fn refused_push(
    reply: &PushReply,
    agreed: Option<(Cipher, Layout)>,
    framing: Framing,
    connection: &Connection,
    mtu: u16,
) -> Option<&'static str> {
    if agreed.is_some_and(|(cipher, _)| !is_known(cipher)) {
        Some("the server agreed to none of the ciphers of the kernel's data plane")
    } else if framing != Framing::None {
        Some(
            "the server pushed the framing of compression, which the kernel's data plane cannot carry",
        )
    } else if reply.shaper.is_some() {
        Some("the server pushed `shaper`, but the kernel's data plane does not limit rates")
    } else if agreed.is_some_and(|(_, layout)| layout == Layout::V1) {
        Some("the server assigned no peer-id, which the kernel's data plane needs")
    } else if needs_mssfix(connection, mtu) {
        Some(NO_MSSFIX)
    } else {
        None
    }
}

/// Default metric of a server's routes: lower in preference than routes to networks behind its clients.
const METRIC: u32 = 200;

/// Returns the configuration if the kernel can move its packets.
///
/// # Errors
/// The unsupported option and its place in the file.
pub(super) fn checked(mut config: OpenVpn) -> Result<OpenVpn, String> {
    check(&config).map_err(|refusal| config.located(&refusal))?;
    if config.server().is_some() {
        config.network.route_metric.get_or_insert(METRIC);
    }
    Ok(config)
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
    use config::permissions::Permissions;
    use std::path::Path;

    pub(super) const CLIENT: &str = "client\nremote 192.0.2.1 1194 udp";
    pub(super) const SERVER: &str = "server 10.8.0.0 255.255.255.0\ntopology subnet\ndh none";

    /// Checks a client's or a server's configuration with one more line.
    fn refusal(role: &str, line: &str) -> Result<(), String> {
        check(&config(role, line))
    }

    pub(super) fn config(role: &str, line: &str) -> OpenVpn {
        let text = format!("dev tun\nca c\ncert c\nkey k\n{role}\n{line}\n");
        let mut none = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        let name = Path::new("a.conf");
        let options = Options {
            permissions: Permissions::ALL,
            ..Options::default()
        };
        let import = parse_bytes(text.as_bytes(), name, &mut none, options);
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
            (CLIENT, "remote 192.0.2.2 1194 tcp", "proto"),
            (CLIENT, "fragment 1300", "fragment"),
            (CLIENT, "comp-lzo no", "comp-lzo"),
            (CLIENT, "compress stub-v2", "compress"),
            (
                CLIENT,
                "data-ciphers AES-256-GCM:AES-256-CBC",
                "data-ciphers",
            ),
            (CLIENT, "bind-dev eth0", "bind-dev"),
            (SERVER, "bind-dev eth0", "bind-dev"),
            (CLIENT, "shaper 100000", "shaper"),
            (CLIENT, "reorder", "reorder"),
            (SERVER, "client-to-client", "client-to-client"),
            (SERVER, "proto tcp-server", "proto"),
            (SERVER, "topology net30", "topology"),
        ];
        for (role, line, option) in cases {
            let text = refusal(role, line).unwrap_err();
            assert_eq!(text.split_once(": ").unwrap().0, option, "{line}");
            assert!(text.ends_with("set dataplane.kind=user"), "{text}");
        }
        let text = checked(config(CLIENT, "comp-lzo no")).unwrap_err();
        assert_eq!(
            text,
            "a.conf:7: comp-lzo: the kernel's data plane cannot carry the framing of compression, not even `comp-lzo \
             no`; remove it at both ends, or set dataplane.kind=user"
        );
        let text = refusal(CLIENT, "data-ciphers AES-256-CBC").unwrap_err();
        assert!(text.contains("not AES-256-CBC; remove it"), "{text}");
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
