//! Start and end of the program, which leaves nothing behind.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;

use lab::acceptance::{
    B4, B6, Net, PATIENCE, PROGRAM, Setup, Tunnel, WG, inhabitants, millrace, pings, ready,
    run_files, tcp_both_ways, until,
};
use lab::peer::{PeerOptions, RunningPeer, WireGuardPeer};
use lab::{Exit, Host};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn start(host: &Host) -> RunningPeer<'_> {
    let options = PeerOptions::default();
    millrace().start(host, WG, &options).unwrap()
}

fn delete_link(host: &Host) {
    let mut netlink = host.netlink().unwrap();
    let index = netlink.index_of(WG).unwrap();
    netlink.delete_link(index).unwrap();
}

/// Starts the program as `wg-quick` does: the call returns when the interface exists.
fn daemonise(host: &Host) -> Exit {
    let command = host.command(PROGRAM).args(["wireguard", WG]);
    command.spawn().unwrap().wait_at_most(PATIENCE).unwrap()
}

/// Checks that no interface, socket or process is left.
fn nothing_is_left(host: &Host) {
    until("the end of all processes", || inhabitants(host).is_empty());
    assert!(!host.has_interface(WG).unwrap());
    assert_eq!(run_files(host), Vec::<String>::new());
}

#[test]
fn ends_with_its_link() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let program = start(&host);
    assert_eq!(run_files(&host).len(), 2);
    delete_link(&host);
    let exit = program.process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    nothing_is_left(&host);
}

#[test]
fn ends_by_signals() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let program = start(&host);
        program.process.signal(signal).unwrap();
        let exit = program.process.wait_at_most(PATIENCE).unwrap();
        assert!(exit.status.success(), "{signal}: {exit:?}");
        nothing_is_left(&host);
    }
}

#[test]
fn ends_with_its_socket() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let program = start(&host);
    let path = format!("/var/run/wireguard/{WG}.sock");
    host.run(|| fs::remove_file(path)).unwrap().unwrap();
    // The program checks its socket when a link changes, as `wg-quick` makes happen.
    host.set_mtu(WG, 1400).unwrap();
    let exit = program.process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    nothing_is_left(&host);
}

#[test]
fn goes_into_the_background_when_it_is_ready() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let exit = daemonise(&host);
    assert!(exit.status.success(), "{exit:?}");
    assert_eq!((exit.stdout.as_str(), exit.stderr.as_str()), ("", ""));
    // The interface answers `wg` at once.
    host.output("wg", ["show", WG]).unwrap();
    assert!(host.has_interface(WG).unwrap());
    assert_eq!(inhabitants(&host).len(), 1);
    delete_link(&host);
    nothing_is_left(&host);
}

#[test]
fn second_of_the_same_name_is_refused_and_harms_nothing() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let program = start(&host);
    program.set(&["listen-port", "77"]).unwrap();
    for background in [true, false] {
        let mut command = host.command(PROGRAM).args(["wireguard", WG]);
        if !background {
            command = command.arg("-f");
        }
        let exit = command.spawn().unwrap().wait_at_most(PATIENCE).unwrap();
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        assert!(exit.stderr.contains(WG), "{exit:?}");
        assert!(exit.stderr.contains("in use"), "{exit:?}");
        assert_eq!(program.status().unwrap().listen_port, 77);
    }
    assert_eq!(inhabitants(&host).len(), 1);
}

#[test]
fn wrong_names_and_settings_are_refused() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    for name in ["", "much-too-long-for-a-name", "a/b", "a b", ".."] {
        let exit = host
            .command(PROGRAM)
            .args(["wireguard", "-f", "--", name])
            .exit()
            .unwrap();
        assert!(!exit.status.success(), "{name:?}: {exit:?}");
        assert!(!exit.stderr.is_empty(), "{name:?}");
    }
    let command = host.command(PROGRAM).args(["wireguard", WG, "-f"]);
    let exit = command
        .env("MILLRACE_SET", "dataplane.no-such=off")
        .exit()
        .unwrap();
    assert_eq!(exit.status.code(), Some(2), "{exit:?}");
    assert!(exit.stderr.contains("no-such"), "{exit:?}");
    assert_eq!(
        host.command(PROGRAM)
            .arg("wireguard")
            .exit()
            .unwrap()
            .status
            .code(),
        Some(2)
    );
    nothing_is_left(&host);
}

/// A killed program leaves its sockets behind; its successor takes them over.
#[test]
fn starts_again_after_it_was_killed() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    for _ in 0..3 {
        let program = start(&host);
        program.process.signal(Signal::SIGKILL).unwrap();
        let exit = program.process.wait_at_most(PATIENCE).unwrap();
        assert!(!exit.status.success());
        assert_eq!(run_files(&host).len(), 2);
        assert!(!host.has_interface(WG).unwrap());
    }
    let program = start(&host);
    program.process.stop().unwrap();
    nothing_is_left(&host);
}

#[test]
fn follows_its_link_up_and_down() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 2);
    for _ in 0..3 {
        net.a.set_up(WG, false).unwrap();
        net.a.set_up(WG, true).unwrap();
        // The kernel has dropped the IPv6 address; the IPv4 one is still there.
        lab::acceptance::reaches(&net.a, B4);
    }
    assert_eq!(
        tunnel.a.status().unwrap().listen_port,
        lab::acceptance::PORT_A
    );
}

/// An interface that moves to another namespace sends its datagrams from its original one: this gives containers the
/// tunnel as their only network.
#[test]
fn interface_moves_to_another_namespace() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    let inside = Host::new("inside").unwrap();
    let mut netlink = net.a.netlink().unwrap();
    let index = netlink.index_of(WG).unwrap();
    netlink.set_netns_fd(index, inside.network()).unwrap();
    for (address, prefix) in [(lab::acceptance::A4, 24), (lab::acceptance::A6, 64)] {
        inside
            .add_address(WG, lab::acceptance::ip(address), prefix)
            .unwrap();
    }
    inside.set_up(WG, true).unwrap();
    lab::acceptance::usable(&inside, lab::acceptance::A6);
    pings(&inside, B4, 3);
    tcp_both_ways(&inside, &net.b, B6, 1_000_000);
    // `wg` still reaches the program, which still ends with its link.
    assert!(tunnel.at_a().received > 1_000_000);
    let mut netlink = inside.netlink().unwrap();
    let index = netlink.index_of(WG).unwrap();
    netlink.delete_link(index).unwrap();
    tunnel.a.process.wait_at_most(PATIENCE).unwrap();
    nothing_is_left(&net.a);
}

#[test]
fn hundred_lives_leave_nothing() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    for life in 0..100 {
        assert!(daemonise(&host).status.success());
        if life % 2 == 0 {
            delete_link(&host);
        } else {
            let [process] = inhabitants(&host)[..] else {
                panic!("{:?}", inhabitants(&host));
            };
            kill(Pid::from_raw(process.cast_signed()), Signal::SIGTERM).unwrap();
        }
        nothing_is_left(&host);
    }
    let links = host.netlink().unwrap().links().unwrap();
    assert_eq!(links.len(), 1, "{links:?}");
}

/// Returns descriptors, threads and memory of a process.
fn holdings(process: u32) -> (usize, u64, u64) {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
    let usage = lab::cpu::usage(process).unwrap();
    (descriptors, usage.threads, usage.rss)
}

/// A long-lived program: peers come with their sessions and go.
#[test]
fn hundred_peers_with_sessions_leave_nothing() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    let to = format!("{}:{}", net.link.b4(), lab::acceptance::PORT_B);
    let cycle = || {
        let ends = [
            (&tunnel.a, &tunnel.keys_b, "10.0.0.2/32"),
            (&tunnel.b, &tunnel.keys_a, "10.0.0.1/32"),
        ];
        for (end, other, range) in ends {
            end.set(&["peer", &other.public, "remove"]).unwrap();
            end.set(&["peer", &other.public, "allowed-ips", range])
                .unwrap();
        }
        tunnel
            .a
            .set(&["peer", &tunnel.keys_b.public, "endpoint", &to])
            .unwrap();
        // A busy machine may lose a packet; this test is about leftovers.
        lab::acceptance::reaches(&net.a, B4);
    };
    let process = tunnel.a.process.id();
    for _ in 0..30 {
        cycle();
    }
    let before = holdings(process);
    for _ in 0..100 {
        cycle();
    }
    // Threads that serve `wg` end shortly after it has gone.
    until("as many descriptors and threads as before", || {
        let now = holdings(process);
        now.0 <= before.0 && now.1 <= before.1
    });
    let grown = holdings(process).2.saturating_sub(before.2);
    assert!(grown < 1 << 20, "{grown} bytes more than {}", before.2);
}

/// AWS-LC's own jitter entropy would take half of the startup time; the kernel's generator suffices.
#[test]
fn no_jitter_of_the_processor_is_collected() {
    let program = fs::read(PROGRAM).unwrap();
    let names = |name: &str| program.windows(name.len()).any(|at| at == name.as_bytes());
    assert!(
        names("RAND_bytes"),
        "the program has no symbols to look for"
    );
    assert!(
        !names("jent_entropy"),
        "it was built without .cargo/config.toml"
    );
}

/// The program also runs on a host without IPv6.
#[test]
fn runs_without_ipv6() {
    if !ready() {
        return;
    }
    let (a, b) = Net::hosts();
    for host in [&a, &b] {
        host.sysctl("net/ipv6/conf/default/disable_ipv6", "1")
            .unwrap();
        host.sysctl("net/ipv6/conf/all/disable_ipv6", "1").unwrap();
    }
    let mut link = lab::LinkOptions::numbered(1);
    for addresses in [&mut link.a, &mut link.b] {
        addresses.retain(|(address, _)| address.is_ipv4());
    }
    lab::Link::new(&a, "eth0", &b, "eth0", &link).unwrap();
    let ends = [(&a, lab::acceptance::A4), (&b, B4)];
    let keys = ends.map(|(host, _)| lab::peer::Keys::generate(host).unwrap());
    let mut running = Vec::new();
    for (number, (host, address)) in ends.into_iter().enumerate() {
        let program = start(host);
        let other = lab::peer::WgPeer::new(&keys[1 - number].public)
            .at(([link.b4(), link.a4()][number], 1000 + 2 - number as u16).into())
            .allow(lab::acceptance::ip(ends[1 - number].1), 32);
        let port = 1001 + number as u16;
        program
            .configure(&lab::acceptance::interface(
                &keys[number],
                port,
                vec![other],
            ))
            .unwrap();
        program
            .bring_up(&[(lab::acceptance::ip(address), 24)], 1420)
            .unwrap();
        running.push(program);
    }
    pings(&a, B4, 3);
    tcp_both_ways(&a, &b, B4, 1_000_000);
    // An unreachable endpoint does not end the program.
    let words = ["peer", &keys[1].public, "endpoint", "[fd00:1::2]:1002"];
    until("an endpoint that leads nowhere", || {
        running[0].set(&words).unwrap();
        // A keepalive from the other end may arrive now and correct the endpoint.
        let once = lab::load::PingOptions::count(1);
        let report = lab::load::ping(&a, lab::acceptance::ip(B4), &once).unwrap();
        report.received == 0
    });
    assert!(running[0].process.try_wait().unwrap().is_none());
}

/// A process that was stopped and resumed, like a sleeping laptop, keeps working.
#[test]
fn goes_on_after_it_was_stopped() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 1);
    tunnel.b.process.signal(Signal::SIGSTOP).unwrap();
    lab::acceptance::no_ping(&net.a, B4);
    tunnel.b.process.signal(Signal::SIGCONT).unwrap();
    lab::acceptance::reaches(&net.a, B4);
}

/// A restarted peer has forgotten the session that its server still has. The server must answer the first packet of the
/// new session under the new session, too.
#[test]
fn first_answer_to_a_peer_that_started_anew_arrives() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    let to = format!("{}:{}", net.link.b4(), lab::acceptance::PORT_B);
    // An initiation within 20 ms of the last one counts as its replay and is repeated after five
    // seconds, so each round takes that long.
    for _ in 0..3 {
        pings(&net.a, B4, 1);
        let peer = &tunnel.keys_b.public;
        tunnel.a.set(&["peer", peer, "remove"]).unwrap();
        let words = ["peer", peer, "endpoint", &to, "allowed-ips", "10.0.0.2/32"];
        tunnel.a.set(&words).unwrap();
    }
}
