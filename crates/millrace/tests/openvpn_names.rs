//! An OpenVPN client whose server has a name.

use acceptance::dns::{NameServer, ask};
use acceptance::openvpn::{credentials, millrace, ready};
use acceptance::{Directory, Net, PATIENCE, PROGRAM, inhabitants, ip, pings, reaches};
use lab::openvpn::{KeyKind, OpenVpn, Setup, StockOpenVpn};
use nix::sys::signal::Signal;

const NAME: &str = "vpn.test";
const UNUSED: &str = "192.168.1.77";

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
    // Before the next address has its turn.
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
    says("the tunnel is up; Ctrl-C");
    reaches(a, "10.8.0.1");

    server.process.signal(Signal::SIGKILL).unwrap();
    says("the connection is lost");
    drop(server);
    server = StockOpenVpn.start(&net.b, &server_file).unwrap();
    says("the tunnel is up again");
    reaches(a, "10.8.0.1");
    pings(a, "10.8.0.1", 1);

    // Read again: another start in the same process.
    client.signal(Signal::SIGHUP).unwrap();
    client
        .wait_for_lines("a second start", 2, PATIENCE, |line| {
            line.contains("the tunnel is up; Ctrl-C")
        })
        .unwrap();
    reaches(a, "10.8.0.1");
    a.output(PROGRAM, ["down", "office"]).unwrap();
    let exit = client.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    assert!(inhabitants(a).is_empty());
    drop(server);
}
