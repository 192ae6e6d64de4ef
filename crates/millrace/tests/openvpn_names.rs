//! An OpenVPN client whose server has a host name.

use lab::acceptance::dns::{NameServer, ask};
use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::{Directory, Net, PATIENCE, PROGRAM, inhabitants, ip, pings, reaches};
use lab::openvpn::{KeyKind, OpenVpn, Setup, StockOpenVpn};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

const NAME: &str = "vpn.test";
const UNUSED: &str = "192.168.1.77";
/// The server's new address after it moves.
const MOVED: &str = "192.168.1.3";

#[test]
fn a_client_that_starts_before_its_dns_connects_when_it_is_there_and_again_when_it_lost_its_server()
{
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let (a, at) = (&net.a, net.link.b4());
    ask(a, at);
    let mut setup = Setup::default();
    setup.server.line("keepalive 1 4");
    let keys = credentials(KeyKind::Ecdsa);
    let server_file = setup.server_file(&StockOpenVpn, keys, at).unwrap();
    let mut server = StockOpenVpn.start(&net.b, &server_file).unwrap();
    let mut file = setup.client_file(&millrace(), keys, at).unwrap();
    file.remove("remote");
    file.words("remote", [NAME, &setup.port.to_string()]);
    // Shortens the wait before the client tries the next address.
    file.line("server-poll-timeout 3");
    let path = directory.file("office.ovpn", &file.to_string());
    let mut client = a.command(PROGRAM).arg("up").arg(&path).spawn().unwrap();
    let mut says = |words: &str| {
        client
            .wait_for_line(words, PATIENCE, |line| line.contains(words))
            .unwrap();
    };
    says("Cannot resolve host address: vpn.test");
    let second = a.command(PROGRAM).arg("up").arg(&path).spawn().unwrap();
    let exit = second.wait_at_most(PATIENCE).unwrap();
    assert!(exit.stderr.contains("millrace down office"), "{exit:?}");

    let dns = NameServer::start(&net.b, at);
    dns.set(NAME, &[ip(UNUSED), at]);
    says("the tunnel is up");
    reaches(a, "10.8.0.1");

    server.process.signal(Signal::SIGKILL).unwrap();
    says("the connection is lost");
    drop(server);
    server = StockOpenVpn.start(&net.b, &server_file).unwrap();
    says("the tunnel is up again");
    reaches(a, "10.8.0.1");
    pings(a, "10.8.0.1", 1);

    // SIGHUP restarts the client in the same process.
    client.signal(Signal::SIGHUP).unwrap();
    client
        .wait_for_lines("a second start", 3, PATIENCE, |line| {
            line.contains("the tunnel is up")
        })
        .unwrap();
    reaches(a, "10.8.0.1");
    a.output(PROGRAM, ["down", "office"]).unwrap();
    let exit = client.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    assert!(inhabitants(a).is_empty());
    drop(server);
}

/// The tunnel's name servers replace the host's and answer nothing when the tunnel is broken: the client then asks the
/// earlier ones.
#[test]
fn a_server_that_moves_is_found_by_the_name_servers_of_before_the_tunnel() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let (a, b, at) = (&net.a, &net.b, net.link.b4());
    ask(a, at);
    b.add_address("eth0", ip(MOVED), 24).unwrap();
    let dns = NameServer::start(b, at);
    dns.set(NAME, &[at]);
    let script = "#!/bin/sh\nprintf 'nameserver 10.8.0.53\\noptions timeout:1 attempts:1\\n' > /etc/resolv.conf\n";
    let program = directory.file("resolvconf", script);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", directory.path().display());
    let mut setup = Setup::default();
    setup.server.line("keepalive 1 4");
    setup.server.line("multihome");
    setup.server.words("push", ["dhcp-option DNS 10.8.0.53"]);
    let keys = credentials(KeyKind::Ecdsa);
    let mut server_file = setup.server_file(&StockOpenVpn, keys, at).unwrap();
    server_file.remove("local");
    let _server = StockOpenVpn.start(b, &server_file).unwrap();
    let mut file = setup.client_file(&millrace(), keys, at).unwrap();
    file.remove("remote");
    file.words("remote", [NAME, &setup.port.to_string()]);
    file.line("server-poll-timeout 3");
    file.line("persist-tun");
    let file = directory.file("office.ovpn", &file.to_string());
    let command = a.command(PROGRAM).env("PATH", path).arg("up").arg(&file);
    let mut client = command.spawn().unwrap();
    let mut says = |words: &str| {
        client
            .wait_for_line(words, PATIENCE, |line| line.contains(words))
            .unwrap();
    };
    says("the tunnel is up");
    reaches(a, "10.8.0.1");
    let resolver = a.run(|| fs::read_to_string("/etc/resolv.conf")).unwrap();
    assert!(resolver.unwrap().contains("10.8.0.53"));
    dns.set(NAME, &[ip(MOVED)]);
    let port = setup.port;
    let table = format!(
        "table ip t {{ chain c {{ type filter hook input priority 0; ip daddr {at} udp dport {port} drop; }}; \
         chain d {{ type filter hook output priority 0; ip saddr {at} udp sport {port} drop; }}; }}"
    );
    b.output("nft", [&table]).unwrap();
    says("the connection is lost");
    says("the tunnel is up again");
    reaches(a, "10.8.0.1");
    client.signal(Signal::SIGTERM).unwrap();
    let exit = client.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
}
