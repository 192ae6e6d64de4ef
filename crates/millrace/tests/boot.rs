//! Boot without uplink or name server, under a service manager that expects status reports.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::IpAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use lab::acceptance::{A4, B4, Directory, PATIENCE, PROGRAM, Site, WG, reaches, ready, until};
use lab::peer::RunningPeer;
use lab::{Exit, Host, Process};
use nix::sys::signal::Signal;
use serde_json::Value;

fn ends(process: Process) {
    process.signal(Signal::SIGTERM).unwrap();
    let exit = process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
}

fn run(host: &Host, words: &[&str]) -> Exit {
    let process = host.command(PROGRAM).args(words).spawn().unwrap();
    process.wait_at_most(PATIENCE).unwrap()
}

fn says(process: &mut Process, words: &str) {
    process
        .wait_for_line(words, PATIENCE, |line| line.contains(words))
        .unwrap();
}

/// A service manager as systemd appears to a unit of `Type=notify`.
struct Manager {
    socket: UnixDatagram,
    _directory: Directory,
    path: String,
}

impl Manager {
    fn new() -> Self {
        let directory = Directory::new();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            path: path.display().to_string(),
            _directory: directory,
        }
    }

    /// The next message other than a watchdog ping.
    fn next(&self) -> String {
        loop {
            let message = self.any();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }

    fn any(&self) -> String {
        let mut buffer = [0; 1000];
        let count = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    /// Starts the program as a unit would.
    fn start(&self, host: &Host, file: &Path, microseconds: u64) -> Process {
        let variables = [
            format!("NOTIFY_SOCKET={}", self.path),
            format!("WATCHDOG_USEC={microseconds}"),
        ];
        let command = host.command("env").args(&variables);
        command.arg(PROGRAM).arg("up").arg(file).spawn().unwrap()
    }
}

fn server(site: &Site) -> RunningPeer<'_> {
    site.server(&[], &[])
}

/// The service manager learns why the tunnel is not up yet, then that it is up, reloads and stops. Watchdog pings
/// arrive while the workers are alive.
#[test]
fn a_service_manager_hears_how_it_stands() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = server(&site);
    let a = &site.net.a;
    let b4 = site.net.link.b4();
    lab::acceptance::dns::ask(a, b4);
    a.set_up("eth0", false).unwrap();
    let manager = Manager::new();
    let inside = format!("Address = {A4}/24");
    let file = site.file(WG, &inside, "vpn.test", "0.0.0.0/0", "");
    let process = manager.start(a, &file, 400_000);
    let first = manager.next();
    assert!(
        first.starts_with("READY=1\nSTATUS=not up yet: waiting for"),
        "{first}"
    );
    let dns = lab::acceptance::dns::NameServer::start(&site.net.b, b4);
    dns.set("vpn.test", &[b4]);
    a.set_up("eth0", true).unwrap();
    assert_eq!(manager.next(), "READY=1\nSTATUS=up");
    reaches(a, B4);
    // Several pings, because the workers answer between two of them.
    for _ in 0..3 {
        assert_eq!(manager.any(), "WATCHDOG=1");
    }
    process.signal(Signal::SIGHUP).unwrap();
    assert_eq!(manager.next(), "RELOADING=1");
    assert_eq!(manager.next(), "READY=1\nSTATUS=up");
    process.signal(Signal::SIGTERM).unwrap();
    assert_eq!(manager.next(), "STOPPING=1");
    let exit = process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
}

/// An OpenVPN client waits for a server name that resolves later, and reports that it waits.
#[test]
fn an_openvpn_client_waits_for_its_line_and_its_name() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let a = &site.net.a;
    a.set_up("eth0", false).unwrap();
    let manager = Manager::new();
    let directory = Directory::new();
    let certificates = concat!(env!("CARGO_MANIFEST_DIR"), "/../openvpn/tests/certs/p256");
    let text = format!(
        "client\ndev tun\nremote vpn.test 1194\nca {certificates}/ca.crt\ncert {certificates}/client.crt\n\
         key {certificates}/client.key\n"
    );
    let file = directory.file("office.ovpn", &text);
    let process = manager.start(a, &file, 60_000_000);
    let first = manager.next();
    assert!(first.starts_with("READY=1\nSTATUS=not up: "), "{first}");
    ends(process);
}

/// A PPTP client also waits, with a server that no route leads to.
#[test]
fn a_pptp_client_waits_for_its_line() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let a = &site.net.a;
    a.set_up("eth0", false).unwrap();
    let manager = Manager::new();
    let directory = Directory::new();
    let text = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"192.168.1.2\"\nusername = \"u\"\n\
        password = \"p\"\n";
    let file = directory.file("office.toml", text);
    let process = manager.start(a, &file, 60_000_000);
    let first = manager.next();
    assert!(first.contains("trying again"), "{first}");
    ends(process);
}

fn found(host: &Host) -> Vec<Value> {
    let exit = run(host, &["doctor", "--json"]);
    let found: Vec<Value> = serde_json::from_str(&exit.stdout).unwrap();
    assert_eq!(
        exit.status.code(),
        Some(i32::from(!found.is_empty())),
        "{exit:?}"
    );
    found
}

fn has(found: &[Value], check: &str, words: &str) -> bool {
    found.iter().any(|it| {
        let what = it["what"].as_str().unwrap_or_default();
        it["check"] == check && what.contains(words)
    })
}

/// Introduces several faults into a host, and repairs one fault after the other.
#[test]
fn the_doctor_says_what_is_wrong_and_no_more_once_it_is_mended() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = server(&site);
    let a = &site.net.a;
    // Neither name server nor default route.
    let before = found(a);
    assert!(has(&before, "dns", "no name server"), "{before:?}");
    assert!(has(&before, "route", "no route"), "{before:?}");
    let b4: IpAddr = site.net.link.b4();
    let dns = lab::acceptance::dns::NameServer::start(&site.net.b, b4);
    lab::acceptance::dns::ask(a, b4);
    a.output("ip", ["route", "add", "default", "via", &b4.to_string()])
        .unwrap();
    let after = found(a);
    assert!(
        !has(&after, "dns", "") && !has(&after, "route", ""),
        "{after:?}"
    );
    assert!(dns.asked() > 0);
    // A full tunnel without its own name servers, with a wrong MTU and an address inside the LAN's network.
    let inside = "Address = 192.168.1.77/24\nMTU = 1480";
    let file = site.file(WG, inside, &b4.to_string(), "0.0.0.0/0", "");
    let mut process = a.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
    says(&mut process, "is up");
    until("all that is wrong with it", || {
        let found = found(a);
        has(&found, "dns-leak", "past wg0")
            && has(&found, "mtu", "1480")
            && has(&found, "addresses", "one network")
    });
    let exit = run(a, &["doctor"]);
    assert!(exit.stdout.contains("    do:    "), "{exit:?}");
    ends(process);
}
