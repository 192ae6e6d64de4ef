//! An OpenVPN client restores the machine, however it ends.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::world::World;
use lab::acceptance::{
    Directory, PATIENCE, PROGRAM, inhabitants, pings, reaches, run_files, until,
};
use lab::openvpn::{ConfigFile, KeyKind, OpenVpn, RunningOpenVpn, Setup, StockOpenVpn};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A stock server that pushes every option that changes a machine, and a function to start our client.
struct Office<'w> {
    world: &'w World,
    file: ConfigFile,
    server: Option<RunningOpenVpn<'w>>,
    server_file: ConfigFile,
    directory: Directory,
}

impl<'w> Office<'w> {
    fn new(world: &'w World) -> Self {
        let mut setup = Setup::default();
        setup.server.line("keepalive 1 4");
        for option in [
            "redirect-gateway def1 ipv6",
            "route 192.168.50.0 255.255.255.0",
            "route-ipv6 fd50::/64",
            "dhcp-option DNS 192.0.2.53",
            "dhcp-option DOMAIN example.com",
        ] {
            setup.server.words("push", [option]);
        }
        setup.server.line("explicit-exit-notify 1");
        let keys = credentials(KeyKind::Ecdsa);
        let at = world.outside.b4();
        let server_file = setup.server_file(&StockOpenVpn, keys, at).unwrap();
        let server = StockOpenVpn.start(&world.server, &server_file).unwrap();
        Self {
            world,
            file: setup.client_file(&millrace(), keys, at).unwrap(),
            server: Some(server),
            server_file,
            directory: Directory::new(),
        }
    }

    /// Starts our client with a `resolvconf` that records its input.
    fn client(&self) -> RunningOpenVpn<'w> {
        let log = self.directory.path().join("log");
        let text = format!(
            "#!/bin/sh\necho \"$@\" >> {0}\n[ \"$1\" = -a ] && cat >> {0}\nexit 0\n",
            log.display()
        );
        let program = self.directory.file("resolvconf", &text);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let path = self.directory.path().display();
        let path = format!("{path}:{}", std::env::var("PATH").unwrap());
        millrace()
            .with_environment("PATH", &path)
            .start(&self.world.client, &self.file)
            .unwrap()
    }

    fn told_resolvconf(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Waits until the tunnel matches the server's options.
    fn is_up(&self) {
        pings(&self.world.client, "10.8.0.1", 3);
        assert_eq!(self.world.way_to("198.51.100.9"), "ovpn0");
        assert_eq!(self.world.way_to("192.168.50.1"), "ovpn0");
        assert_eq!(self.world.way_to("2001:db8::9"), "ovpn0");
        assert_eq!(self.world.way_to("192.168.2.2"), "eth0");
        let told = self.told_resolvconf();
        assert!(told.contains("nameserver 192.0.2.53"), "{told}");
        assert!(told.contains("example.com"), "{told}");
    }

    /// Waits until the machine is as before.
    fn is_gone(&self, before: &str) {
        let host = &self.world.client;
        until("the end of all processes", || inhabitants(host).is_empty());
        assert_eq!(self.world.state(), before);
        assert_eq!(run_files(host), Vec::<String>::new());
        let told = self.told_resolvconf();
        let last = told.lines().last().unwrap_or_default();
        assert!(last.starts_with("-d"), "{told}");
    }
}

#[test]
fn signals_end_it_and_all_is_as_it_was() {
    if !ready() {
        return;
    }
    let world = World::new();
    let before = world.state();
    let office = Office::new(&world);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let client = office.client();
        office.is_up();
        client.process.signal(signal).unwrap();
        let exit = client.process.wait_at_most(PATIENCE).unwrap();
        assert!(exit.status.success(), "{exit:?}");
        office.is_gone(&before);
    }
}

/// A successor removes everything that its killed predecessor left, even if the server has moved meanwhile.
#[test]
fn successor_of_a_killed_program_leaves_nothing_of_either() {
    if !ready() {
        return;
    }
    let world = World::new();
    let before = world.state();
    let office = Office::new(&world);
    for _ in 0..2 {
        let client = office.client();
        office.is_up();
        client.process.signal(Signal::SIGKILL).unwrap();
        client.process.wait_at_most(PATIENCE).unwrap();
        until("the end of the interface", || {
            !world.client.has_interface("ovpn0").unwrap()
        });
    }
    let client = office.client();
    office.is_up();
    assert!(client.stop().unwrap().status.success());
    office.is_gone(&before);
}

/// SIGUSR1 and SIGHUP restart the client in place.
#[test]
fn restarts_by_signals() {
    if !ready() {
        return;
    }
    let world = World::new();
    let before = world.state();
    let office = Office::new(&world);
    let mut client = office.client();
    for (number, signal) in [Signal::SIGUSR1, Signal::SIGHUP].into_iter().enumerate() {
        client.process.signal(signal).unwrap();
        client.wait_until_ready(2 + number).unwrap();
        reaches(&world.client, "10.8.0.1");
        office.is_up();
        // Other commands still find the process by its file, by name and by interface.
        for name in ["openvpn", "ovpn0"] {
            let words = ["status", name, "--json", "--no-rate"];
            let status = world.client.output(PROGRAM, words).unwrap();
            let status: Value = serde_json::from_str(&status).unwrap();
            assert_eq!(status[0]["interface"], "ovpn0", "{name}: {status}");
        }
    }
    client.process.signal(Signal::SIGTERM).unwrap();
    client.process.wait_at_most(PATIENCE).unwrap();
    office.is_gone(&before);
}

/// While the server is away nothing leaks past the tunnel; when it returns, the tunnel works again.
#[test]
fn routes_stay_while_the_server_is_away() {
    if !ready() {
        return;
    }
    let world = World::new();
    let before = world.state();
    let mut office = Office::new(&world);
    office.file.line("persist-tun");
    let mut client = office.client();
    office.is_up();
    let server = office.server.take().unwrap();
    server.process.signal(Signal::SIGKILL).unwrap();
    drop(server);
    client.wait_for_lines("Inactivity timeout", 1).unwrap();
    assert_eq!(world.way_to("198.51.100.9"), "ovpn0");
    office.server = Some(
        StockOpenVpn
            .start(&world.server, &office.server_file)
            .unwrap(),
    );
    client.wait_until_ready(2).unwrap();
    office.is_up();
    client.process.signal(Signal::SIGTERM).unwrap();
    client.process.wait_at_most(PATIENCE).unwrap();
    office.is_gone(&before);
}

/// The router's cable is unplugged and plugged in again: the tunnel's routes are still there.
#[test]
fn routes_survive_a_pulled_cable() {
    if !ready() {
        return;
    }
    let world = World::new();
    let office = Office::new(&world);
    let mut client = office.client();
    office.is_up();
    world.router.set_up("wan", false).unwrap();
    client.wait_for_lines("Inactivity timeout", 1).unwrap();
    world.router.set_up("wan", true).unwrap();
    client.wait_until_ready(2).unwrap();
    reaches(&world.client, "10.8.0.1");
    office.is_up();
}
