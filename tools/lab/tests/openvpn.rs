//! The stock OpenVPN at both ends: the lab's part of every OpenVPN test works.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::time::{Duration, Instant};

use lab::openvpn::{
    Cipher, ConfigFile, Credentials, Digest, Framing, KeyKind, Management, OldClient, OldServer,
    OpenVpn, RunningOpenVpn, Setup, StockOpenVpn, Transport, Wrap,
};
use lab::{Host, Link, LinkOptions, may_enter, tools};

fn ready() -> bool {
    if !may_enter() {
        return false;
    }
    let programs = ["openvpn", "openssl", "ip"];
    lab::require(
        programs
            .into_iter()
            .try_for_each(|name| tools::find(name).map(drop)),
    )
    .is_some()
        && lab::require(tools::tun()).is_some()
}

struct Net {
    server: Host,
    client: Host,
    link: LinkOptions,
}

fn net() -> Net {
    let (server, client) = (
        Host::private("server").unwrap(),
        Host::private("client").unwrap(),
    );
    let link = LinkOptions::numbered(1);
    Link::new(&server, "eth0", &client, "eth0", &link).unwrap();
    Net {
        server,
        client,
        link,
    }
}

fn pair<'n>(
    net: &'n Net,
    setup: &Setup,
    programs: [&dyn OpenVpn; 2],
    kind: KeyKind,
) -> [RunningOpenVpn<'n>; 2] {
    let credentials = Credentials::new(kind).unwrap();
    let at = net.link.a4();
    let file = setup.server_file(programs[0], &credentials, at).unwrap();
    let server = programs[0].start(&net.server, &file).unwrap();
    let file = setup.client_file(programs[1], &credentials, at).unwrap();
    let client = programs[1].start(&net.client, &file).unwrap();
    common::answered(&net.client, setup.inner4(1), 3);
    common::answered(&net.client, setup.server6(), 3);
    [server, client]
}

#[test]
fn every_part_of_a_setup_works() {
    if !ready() {
        return;
    }
    let setups = [
        (KeyKind::Rsa, Setup::default()),
        (
            KeyKind::Ecdsa,
            Setup {
                transport: Transport::Tcp,
                wrap: Wrap::TlsAuth,
                cipher: Cipher::Aes256Cbc,
                auth: Digest::Sha512,
                framing: Framing::CompLzoNo,
                tls12: true,
                ..Setup::default()
            },
        ),
        (
            KeyKind::Ed25519,
            Setup {
                wrap: Wrap::TlsCrypt,
                cipher: Cipher::BlowfishCbc,
                framing: Framing::Compress,
                fragment: Some(1200),
                ..Setup::default()
            },
        ),
        (
            KeyKind::Ecdsa,
            Setup {
                wrap: Wrap::TlsCryptV2,
                cipher: Cipher::None,
                auth: Digest::None,
                framing: Framing::StubV2,
                tun_mtu: Some(9000),
                mssfix: Some(0),
                ..Setup::default()
            },
        ),
    ];
    for (kind, setup) in setups {
        let net = net();
        let [server, client] = pair(&net, &setup, [&StockOpenVpn, &StockOpenVpn], kind);
        assert_eq!(server.addresses().unwrap()[0], setup.inner4(1));
        assert_eq!(client.addresses().unwrap()[0], setup.inner4(2));
        assert!(client.stop().unwrap().status.success());
        assert!(server.stop().unwrap().status.success());
    }
}

/// Programs that neither announce nor support TLS key export derive the same keys as one that does both.
#[test]
fn old_stand_ins_do_without_the_exporter() {
    if !ready() {
        return;
    }
    let (old_server, old_client) = (OldServer::new().unwrap(), OldClient::new().unwrap());
    let mut verbose = Setup::default();
    verbose.client.line("verb 4");
    let programs: [[&dyn OpenVpn; 2]; 3] = [
        [&StockOpenVpn, &StockOpenVpn],
        [&old_server, &StockOpenVpn],
        [&StockOpenVpn, &old_client],
    ];
    for (number, programs) in programs.into_iter().enumerate() {
        let net = net();
        let [_server, client] = pair(&net, &verbose, programs, KeyKind::Ecdsa);
        assert_eq!(client.said("tls-ekm") > 0, number == 0, "{programs:?}");
    }
}

#[test]
fn management_and_status_are_read() {
    if !ready() {
        return;
    }
    let net = net();
    let mut setup = Setup {
        server: ConfigFile::parse("status status 1\nstatus-version 2"),
        ..Setup::default()
    };
    setup.server.line(Management::DIRECTIVE);
    let [server, client] = pair(&net, &setup, [&StockOpenVpn, &StockOpenVpn], KeyKind::Ecdsa);
    let mut management = server.management().unwrap();
    let status = management.command("status 2").unwrap();
    assert!(
        status
            .iter()
            .any(|line| line.starts_with("CLIENT_LIST,client,")),
        "{status:?}"
    );
    assert!(management.command("no such command").is_err());
    let end = Instant::now() + Duration::from_secs(30);
    while !server.file("status").contains("CLIENT_LIST,client,") {
        assert!(Instant::now() < end, "{}", server.file("status"));
        std::thread::yield_now();
    }
    let answer = management.command("kill client").unwrap();
    assert!(answer[0].starts_with("SUCCESS:"), "{answer:?}");
    drop(client);
}
