//! An office that is killed or ended and starts again starts handshakes with the branches that had sessions with it. By
//! themselves they would notice after 15 seconds of silence.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::IpAddr;

use lab::acceptance::forged::seen;
use lab::acceptance::{
    A4, B4, Directory, Net, PATIENCE, PORT_A, PORT_B, PROGRAM, WG, ip, reaches, ready, until,
    usable,
};
use lab::peer::Keys;
use lab::{Host, Process};
use netio::packet::PacketSocket;
use nix::sys::signal::Signal;

fn up(host: &Host, directory: &Directory, text: &str) -> Process {
    let file = directory.file("wg0.conf", text);
    let command = host.command(PROGRAM).arg("up").arg(file);
    let mut process = command.spawn().unwrap();
    process
        .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
        .unwrap();
    process
}

/// The branch sends no data and never starts a handshake: only an office that remembers it can reach it. The branch
/// uses the office's second address, and its firewall accepts answers only from there.
#[test]
fn an_office_that_starts_again_calls_its_branches_from_the_address_that_they_call() {
    if !ready() {
        return;
    }
    for called in [ip("192.168.1.22"), ip("fd00:1::22")] {
        let (net, directories) = (Net::new(), [Directory::new(), Directory::new()]);
        let [own, other] = match called {
            IpAddr::V4(_) => [net.link.a4(), ip("192.168.1.77")],
            IpAddr::V6(_) => [net.link.a6(), ip("fd00:1::77")],
        };
        let prefix = if called.is_ipv4() { 24 } else { 64 };
        let add = |host: &Host, address: IpAddr| {
            host.add_address("eth0", address, prefix).unwrap();
            usable(host, &address.to_string());
        };
        add(&net.b, called);
        let [branch, office] = [(); 2].map(|()| Keys::generate(&net.a).unwrap());
        let text = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = {PORT_B}\nAddress = {B4}/24\n\
             [Peer]\nPublicKey = {}\nAllowedIPs = {A4}/32\n",
            office.private, branch.public,
        );
        let start = || up(&net.b, &directories[1], &text);
        let mut at_office = start();
        let text = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = {PORT_A}\nAddress = {A4}/24\n\
             [Peer]\nPublicKey = {}\nEndpoint = {}\nAllowedIPs = {B4}/32\n",
            branch.private,
            office.public,
            std::net::SocketAddr::new(called, PORT_B),
        );
        let _branch = up(&net.a, &directories[0], &text);
        reaches(&net.a, B4);
        let known = |at: IpAddr| {
            let read = || fs::read_to_string("/run/millrace/wg0.peers").unwrap_or_default();
            let at = std::net::SocketAddr::new(at, PORT_A).to_string();
            until("a file that says where the branch is", || {
                net.b.run(read).unwrap().contains(&at)
            });
        };
        known(own);
        // The branch moves without a handshake that would tell the office.
        let mut netlink = net.a.netlink().unwrap();
        let index = netlink.index_of("eth0").unwrap();
        netlink.remove_address(index, own, prefix, None).unwrap();
        add(&net.a, other);
        reaches(&net.a, B4);
        known(other);
        let tap = net.a.run(|| PacketSocket::open("eth0")).unwrap().unwrap();
        for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL] {
            at_office.signal(signal).unwrap();
            at_office.wait_at_most(PATIENCE).unwrap();
            until("the end of the interface", || {
                !net.b.has_interface(WG).unwrap()
            });
            at_office = start();
            reaches(&net.b, A4);
            known(other);
        }
        let seen = seen(&tap, PORT_B);
        assert!(seen.iter().any(|it| it.kind == 1), "{seen:?}");
        assert!(seen.iter().all(|it| it.from == called), "{seen:?}");
    }
}
