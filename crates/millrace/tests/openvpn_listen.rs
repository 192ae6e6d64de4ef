//! The addresses on which a server listens.

use lab::acceptance::openvpn::{Pair, credentials, ready};
use lab::acceptance::{Net, pings, tcp_both_ways};
use lab::openvpn::{KeyKind, Setup, Transport};
use lab::{Host, Link, LinkOptions};

/// `udp6` and `tcp6-server` also accept IPv4 clients, unless `bind ipv6only` is set.
#[test]
fn a_server_of_ipv6_takes_ipv4_too() {
    if !ready() {
        return;
    }
    for (pair, proto, transport) in [
        (Pair::Server, "udp6", Transport::Udp),
        (Pair::Server, "tcp6-server", Transport::Tcp),
    ] {
        let net = Net::new();
        let setup = Setup {
            transport,
            ..Setup::default()
        };
        let programs = pair.programs(false);
        let keys = credentials(KeyKind::Ecdsa);
        let at = net.link.b4();
        let mut file = setup.server_file(programs[0].as_ref(), keys, at).unwrap();
        file.remove("local").remove("proto").words("proto", [proto]);
        let _server = programs[0].start(&net.b, &file).unwrap();
        for to in [at, net.link.b6()] {
            let file = setup.client_file(programs[1].as_ref(), keys, to).unwrap();
            let _client = programs[1].start(&net.a, &file).unwrap();
            pings(&net.a, &setup.inner4(1).to_string(), 3);
        }
    }
}

/// One server at two addresses, one over TCP and one over UDP, as in 2.7.
#[test]
fn server_listens_at_several_addresses() {
    if !ready() {
        return;
    }
    for pair in [Pair::Both, Pair::Server] {
        let net = Net::new();
        let second = Host::private("second").unwrap();
        let link = LinkOptions::numbered(2);
        Link::new(&second, "eth0", &net.b, "eth1", &link).unwrap();
        let mut setup = Setup::default();
        setup.server.line("duplicate-cn").line("client-to-client");
        let programs = pair.programs(false);
        let keys = credentials(KeyKind::Ecdsa);
        let mut file = setup
            .server_file(programs[0].as_ref(), keys, net.link.b4())
            .unwrap();
        file.remove("local").remove("proto");
        file.words(
            "local",
            [net.link.b4().to_string(), "1194".into(), "udp".into()],
        );
        file.words(
            "local",
            [link.b6().to_string(), "1195".into(), "tcp".into()],
        );
        let _server = programs[0].start(&net.b, &file).unwrap();
        let file = setup.client_file(programs[1].as_ref(), keys, net.link.b4());
        let one = programs[1].start(&net.a, &file.unwrap()).unwrap();
        let tcp = Setup {
            transport: Transport::Tcp,
            port: 1195,
            ..setup.clone()
        };
        let file = tcp.client_file(programs[1].as_ref(), keys, link.b6());
        let two = programs[1].start(&second, &file.unwrap()).unwrap();
        let addresses = [&one, &two].map(|client| client.addresses().unwrap()[0].to_string());
        let server = setup.inner4(1).to_string();
        for host in [&net.a, &second] {
            pings(host, &server, 3);
            tcp_both_ways(host, &net.b, &server, 300_000);
        }
        // Data from one client through the server to the other.
        tcp_both_ways(&second, &net.a, &addresses[0], 300_000);
        assert!(two.stop().unwrap().status.success(), "{pair:?}");
        pings(&net.a, &server, 3);
    }
}
