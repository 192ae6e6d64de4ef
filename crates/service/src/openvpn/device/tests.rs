use super::*;
use crate::openvpn::OWN_NAME;
use std::path::Path;

/// The sockets of a client with these lines.
fn opened(more: &str, only: Option<udp::Family>) -> Result<Sockets, DeviceError> {
    let text = format!("client\ndev tun\nremote vpn.example\nca c\nauth-user-pass\n{more}\n");
    let config = config(&text);
    let settings = DataplaneSettings::default();
    open_udp(&config, &config.connections[0], &settings, only, false)
}

fn config(text: &str) -> OpenVpn {
    let mut none = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let name = Path::new("a.ovpn");
    let import = config::openvpn::parse_bytes(text.as_bytes(), name, &mut none, OWN_NAME);
    import.unwrap().into_model().unwrap().0
}

fn refused(more: &str, only: Option<udp::Family>) -> String {
    match opened(more, only) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{more}: opened"),
    }
}

#[test]
fn sockets_are_of_the_families_that_proto_and_local_permit() {
    let families = |more: &str, only| {
        let sockets = opened(more, only).unwrap();
        [sockets.v4.is_some(), sockets.v6.is_some()]
    };
    assert_eq!(families("proto udp4\nnobind", None), [true, false]);
    assert_eq!(families("local 127.0.0.1\nlport 0", None), [true, false]);
    let v4 = Some(udp::Family::V4);
    assert_eq!(families("nobind", v4), [true, false]);
}

#[test]
fn a_local_address_that_cannot_be_had_is_named() {
    let words = "local 127.0.0.1: it has no address of the family that proto requires";
    assert_eq!(refused("proto udp6\nlocal 127.0.0.1", None), words);
    // The server has addresses of the other family only.
    let other = refused("local 127.0.0.1\nlport 0", Some(udp::Family::V6));
    assert_eq!(
        other,
        "local 127.0.0.1: it has no address of the server's family"
    );
    // An address of documentation, which this host does not have.
    let foreign = opened("local 192.0.2.7\nlport 0", None);
    assert!(matches!(foreign, Err(DeviceError::Udp(_))));
}

#[test]
fn a_servers_udp6_also_takes_ipv4() {
    let bound = |more: &str| {
        let config = config(&format!(
            "dev tun\nserver 10.8.0.0 255.255.255.0\nca c\ncert c\nkey k\ndh none\n{more}\n"
        ));
        families(&config, &config.connections[0])
    };
    assert_eq!(bound("proto udp6"), Family::Any);
    assert_eq!(bound("proto udp6\nlocal ::1"), Family::V6);
    assert_eq!(bound("proto udp6\nbind ipv6only"), Family::V6);
    assert_eq!(bound("proto udp4"), Family::V4);
}

#[test]
fn the_sockets_of_an_uplink_are_bound_to_its_address_and_device() {
    let config =
        config("client\ndev tun\nremote vpn.example\nca c\nauth-user-pass\nsndbuf 4000000\n");
    let settings = DataplaneSettings::default();
    let line = |interface: Option<&str>| Line {
        interface: interface.map(str::to_owned),
        source: Some(Ipv4Addr::new(127, 0, 0, 83).into()),
        ..Line::default()
    };
    let sockets = open_line(&config, &settings, &line(Some("lo")), 0, 0).unwrap();
    assert!(sockets.v6.is_none());
    let port = sockets.v4.unwrap().port();
    assert_ne!(port, 0);
    let missing = open_line(&config, &settings, &line(Some("no-such-device")), 0, 0);
    assert!(missing.is_err());
}
