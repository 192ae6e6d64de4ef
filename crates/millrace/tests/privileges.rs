//! Checks the rights of every thread of a running tunnel, for each protocol and each way to start it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lab::acceptance::openvpn::{credentials, millrace as openvpn_millrace};
use lab::acceptance::{A4, Directory, Net, PATIENCE, PORT_B, PROGRAM, WG, millrace, until};
use lab::openvpn::{KeyKind, OpenVpn, Setup};
use lab::peer::{Keys, PeerOptions, WireGuardPeer};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Group, User};

/// CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW.
const NETWORK: u64 = 1 << 10 | 1 << 12 | 1 << 13;

/// A thread as its `status` file shows it.
#[derive(Debug)]
struct Thread {
    main: bool,
    name: String,
    /// Union of the permitted, effective, inheritable and ambient sets.
    capabilities: u64,
    uids: Vec<u32>,
    gids: Vec<u32>,
    groups: Vec<u32>,
}

impl Thread {
    fn all(process: u32) -> Vec<Self> {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let one = |entry: fs::DirEntry| {
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            let field = |name: &str| -> Vec<&str> {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_default().split_whitespace().collect()
            };
            let numbers = |name: &str| {
                let words = field(name);
                words.iter().map(|word| word.parse().unwrap()).collect()
            };
            let sets = ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"];
            let bits = sets.map(|set| u64::from_str_radix(field(set)[0], 16).unwrap());
            Some(Self {
                main: entry.file_name().to_str()? == process.to_string(),
                name: field("Name:").concat(),
                capabilities: bits.into_iter().fold(0, |all, set| all | set),
                uids: numbers("Uid:"),
                gids: numbers("Gid:"),
                groups: numbers("Groups:"),
            })
        };
        tasks.flatten().filter_map(one).collect()
    }
}

/// Asserts that workers have no capabilities. The control thread has those a tunnel needs or, if it runs programs, all.
fn confined(process: u32, runs_programs: bool) -> Vec<Thread> {
    let mut threads = Vec::new();
    // An exiting thread may appear before it has given up its capabilities.
    until("workers without capabilities", || {
        threads = Thread::all(process);
        threads.iter().all(|it| it.main || it.capabilities == 0)
    });
    assert!(threads.iter().any(|it| it.name == "tun"), "{threads:?}");
    let main = threads.iter().find(|thread| thread.main).unwrap();
    if !runs_programs {
        assert_eq!(main.capabilities & !NETWORK, 0, "{main:?}");
    }
    threads
}

#[test]
fn workers_of_wireguard_have_no_capabilities() {
    if !lab::acceptance::ready() {
        return;
    }
    let net = Net::new();
    let peer = millrace()
        .start(&net.a, WG, &PeerOptions::default())
        .unwrap();
    confined(peer.process.id(), false);
    drop(peer);

    let keys = Keys::generate(&net.a).unwrap();
    let directory = Directory::new();
    let resolvconf = directory.file("resolvconf", "#!/bin/sh\nexec cat > /dev/null\n");
    fs::set_permissions(resolvconf, fs::Permissions::from_mode(0o700)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", directory.path().display());
    for (lines, switches, runs_programs) in [
        ("", &[][..], false),
        ("DNS = 10.0.0.9", &[], true),
        ("DNS = 10.0.0.9", &["--no-dns"], false),
        ("PostUp = true", &["--allow-scripts"], true),
    ] {
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = {A4}/24\n{lines}\n[Peer]\nPublicKey = {}\n\
             Endpoint = {}:{PORT_B}\nAllowedIPs = 10.0.0.0/24\n",
            keys.private,
            keys.public,
            net.link.b4(),
        );
        let file = directory.file("up0.conf", &text);
        let mut process = net
            .a
            .command(PROGRAM)
            .arg("up")
            .args(switches)
            .arg(&file)
            .env("PATH", &path)
            .spawn()
            .unwrap();
        process
            .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
            .unwrap();
        confined(process.id(), runs_programs);
        process.signal(Signal::SIGTERM).unwrap();
        process.wait_at_most(PATIENCE).unwrap();
    }
}

#[test]
fn workers_of_openvpn_have_no_capabilities_and_a_user_brings_its_groups() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let nobody = User::from_name("nobody").unwrap().unwrap();
    let group = Group::from_name("daemon").unwrap().unwrap();
    let keys = credentials(KeyKind::Ecdsa);
    for lines in [
        &[][..],
        &["user nobody"],
        &["user nobody", "group daemon"],
        &["group daemon"],
    ] {
        let net = Net::new();
        let mut setup = Setup::default();
        for line in lines {
            setup.server.line(line);
            setup.client.line(line);
        }
        let program = openvpn_millrace();
        let file = setup.server_file(&program, keys, net.link.b4()).unwrap();
        let server = program.start(&net.b, &file).unwrap();
        let file = setup.client_file(&program, keys, net.link.b4()).unwrap();
        let mut client = program.start(&net.a, &file).unwrap();
        client.wait_until_ready(1).unwrap();
        let user = lines.contains(&"user nobody");
        let wanted = match (user, lines.contains(&"group daemon")) {
            (_, true) => Some(group.gid),
            (true, false) => Some(nobody.gid),
            (false, false) => None,
        };
        // A root client sets name servers, for which it runs other programs.
        for (end, runs_programs) in [(&server, false), (&client, !user)] {
            let threads = confined(end.process.id(), runs_programs);
            for thread in &threads {
                if user {
                    assert!(thread.uids.iter().all(|&it| it == nobody.uid.as_raw()));
                }
                if let Some(gid) = wanted.map(Gid::as_raw) {
                    assert!(thread.gids.iter().all(|&it| it == gid), "{thread:?}");
                    assert_eq!(thread.groups, [gid], "{thread:?}");
                }
            }
        }
    }
}

/// The workers of a rebuilt interface start after the first workers were confined.
#[test]
fn workers_of_a_restarted_client_have_no_capabilities() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let net = Net::new();
    let keys = credentials(KeyKind::Ecdsa);
    let setup = Setup::default();
    let program = openvpn_millrace();
    let file = setup.server_file(&program, keys, net.link.b4()).unwrap();
    let _server = program.start(&net.b, &file).unwrap();
    let file = setup.client_file(&program, keys, net.link.b4()).unwrap();
    let mut client = program.start(&net.a, &file).unwrap();
    client.wait_until_ready(1).unwrap();
    client.process.signal(Signal::SIGUSR1).unwrap();
    client.wait_until_ready(2).unwrap();
    confined(client.process.id(), true);
}

/// A relay's only thread, which reads strangers' datagrams, has no capabilities.
#[test]
fn a_relay_keeps_nothing() {
    if !lab::may_enter() {
        return;
    }
    let net = Net::new();
    let directory = Directory::new();
    let file = directory.file(
        "relay.conf",
        "[Relay]\nListen = 500\nTarget = 192.168.1.1:501\n[Client]\nName = a\n\
         Key = YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=\n",
    );
    let command = net.b.command(PROGRAM).arg("relay").arg(file);
    let mut relay = command.spawn().unwrap();
    let words = "relaying from port 500";
    let told = relay.wait_for_line(words, PATIENCE, |line| line.contains(words));
    told.unwrap();
    let threads = Thread::all(relay.id());
    assert_eq!(threads.len(), 1, "{threads:?}");
    assert_eq!(threads[0].capabilities, 0, "{threads:?}");
    relay.stop().unwrap().success().unwrap();
}
