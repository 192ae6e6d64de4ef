//! Upgrades of the program under a running interface of OpenWrt's netifd: another file lies in its place, and a reload
//! makes the process execute it. The device stays as it is, and no packet leaves outside the tunnel.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::acceptance::dns::{NameServer, ask};
use lab::acceptance::netifd::Netifd;
use lab::acceptance::openvpn::{Pair, credentials};
use lab::acceptance::{
    A4, B4, Directory, Net, PATIENCE, PORT_A, PORT_B, PROGRAM, Site, WG, interface, ip, millrace,
    reaches, ready, until, until_answer, until_some,
};
use lab::openvpn::{KeyKind, Setup, Transport};
use lab::peer::{PeerOptions, RunningPeer, WgPeer, WireGuardPeer as _};
use lab::{Host, require, tools};

const OFFICE: &str = "office";

/// The servers' address, behind the default route.
const SERVER: &str = "198.51.100.9";

/// An address behind every tunnel. Nobody answers.
const UNANSWERED: &str = "10.50.7.7";

/// Words of the log when the process keeps its program.
const STAYS: &str = "the old program goes on";

/// A router's program file, which can be replaced.
struct Installed<'d>(&'d Directory);

impl Installed<'_> {
    fn path(&self) -> PathBuf {
        self.0.path().join("millrace")
    }

    /// Puts a copy of this file in the program's place, as a package manager does.
    fn put(&self, source: &Path) {
        let new = self.0.path().join("millrace.new");
        // A copy by this process could be open for writing in the child of another test's thread, and not be executed.
        let mut copy = std::process::Command::new("cp");
        let copied = copy.arg(source).arg(&new).status().unwrap();
        assert!(copied.success());
        fs::rename(new, self.path()).unwrap();
    }

    /// Puts a script in the program's place.
    fn put_script(&self, text: &str, mode: u32) {
        let script = self.0.file("script", text);
        fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap();
        self.put(&script);
    }

    /// Whether the process executes the present file.
    fn is_run_by(&self, process: u32) -> bool {
        fs::read_link(format!("/proc/{process}/exe")).unwrap() == self.path()
    }
}

/// Counts packets to [`UNANSWERED`] that leave a host outside its tunnel.
struct Clear<'h>(&'h Host);

impl<'h> Clear<'h> {
    fn watch(host: &'h Host) -> Self {
        let rules = format!(
            "table inet clear {{\n counter clear {{ }}\n chain out {{\n\
             type filter hook postrouting priority 0;\n\
             oifname \"eth0\" ip daddr {UNANSWERED} counter name clear\n }}\n}}\n"
        );
        let directory = Directory::new();
        let path = directory.file("rules", &rules);
        host.output("nft", ["-f", path.to_str().unwrap()]).unwrap();
        Self(host)
    }

    fn count(&self) -> u64 {
        let words = ["-j", "list", "counters", "table", "inet", "clear"];
        let found = self.0.output("nft", words).unwrap();
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        let mut entries = found["nftables"].as_array().unwrap().iter();
        entries
            .find_map(|it| it["counter"]["packets"].as_u64())
            .unwrap()
    }
}

/// Sets the flag when it is dropped.
struct Sets<'f>(&'f AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls `work` while the host sends to [`UNANSWERED`] and pings `target`. Returns the number of packets sent, and the
/// longest time between two answers.
fn under_load(host: &Host, target: &str, work: impl FnOnce()) -> (u64, Duration) {
    let over = AtomicBool::new(false);
    let socket = host.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    let send = || {
        let mut sent = 0;
        while !over.load(Ordering::Relaxed) {
            sent += u64::from(socket.send_to(b"secret", (ip(UNANSWERED), 9)).is_ok());
            thread::sleep(Duration::from_millis(1));
        }
        sent
    };
    let ping = || {
        let (mut last, mut gap) = (Instant::now(), Duration::ZERO);
        while !over.load(Ordering::Relaxed) {
            until_answer(host, target);
            gap = gap.max(last.elapsed());
            last = Instant::now();
        }
        gap
    };
    thread::scope(|scope| {
        let (send, ping) = (scope.spawn(send), scope.spawn(ping));
        let ends = Sets(&over);
        work();
        reaches(host, target);
        drop(ends);
        (send.join().unwrap(), ping.join().unwrap())
    })
}

/// The device with its index, flags and addresses, once they are usable, and the routes.
fn state(host: &Host, device: &str) -> [String; 2] {
    let show = || host.output("ip", ["address", "show", "dev", device]);
    let device = until_some("usable addresses", || {
        Some(show().unwrap()).filter(|it| !it.contains("tentative"))
    });
    let routes = host.output("ip", ["route", "show", "table", "all"]);
    [device, routes.unwrap()]
}

/// Gives B the servers' address, and A a default route to B.
fn join(net: &Net) {
    net.b.add_address("lo", ip(SERVER), 32).unwrap();
    net.a.add_default_route(net.link.b4()).unwrap();
}

/// Brings the interface up, from where `target` is reached, and upgrades the program twice.
fn upgrade(case: &str, net: &Net, directory: &Directory, target: &str) {
    let installed = Installed(directory);
    installed.put(PROGRAM.path());
    let mut netifd = Netifd::start(&net.a, OFFICE, directory.path());
    netifd.program = installed.path();
    netifd.if_up();
    netifd.until_up();
    reaches(&net.a, target);
    let process = netifd.process();
    let clear = Clear::watch(&net.a);
    // The kernel adds routes of an IPv6 address once no other host has claimed it.
    let unsure = || net.a.output("ip", ["-6", "address", "show", "tentative"]);
    until("all addresses are sure", || unsure().unwrap().is_empty());
    let before = state(&net.a, &netifd.device());
    for number in 1..=2 {
        installed.put(PROGRAM.path());
        assert!(!installed.is_run_by(process));
        let (sent, gap) = under_load(&net.a, target, || {
            netifd.renew();
            until("the new program", || installed.is_run_by(process));
        });
        assert!(sent > 0);
        let met = format!("{case}: upgrade {number}: {:.2} s", gap.as_secs_f32());
        println!("{met}");
        lab::met(&met);
        netifd.tick();
        assert_eq!((netifd.taken(), netifd.starts), (1, 1), "{}", netifd.said());
        assert_eq!(netifd.process(), process);
        assert_eq!(state(&net.a, &netifd.device()), before);
        assert_eq!(clear.count(), 0);
        let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let files = files.filter_map(|it| fs::read_link(it.unwrap().path()).ok());
        let tuns = files.filter(|it| it.as_path() == Path::new("/dev/net/tun"));
        assert_eq!(tuns.count(), 1);
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        assert!(status.contains("SigBlk:\t0000000000000000\n"), "{status}");
        netifd.has_few_privileges();
    }
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    assert_eq!(netifd.faults(), Vec::<String>::new());
    assert_eq!(clear.count(), 0);
    netifd.if_down();
    assert!(!net.a.has_interface(&netifd.device()).unwrap());
}

/// A WireGuard interface of netifd on A, and its peer on B.
struct Office {
    site: Site,
}

impl Office {
    fn new() -> Self {
        let site = Site::new();
        join(&site.net);
        Self { site }
    }

    fn installed(&self) -> Installed<'_> {
        let installed = Installed(&self.site.directory);
        installed.put(PROGRAM.path());
        installed
    }

    /// Writes the interface's section, with a peer of these ranges. A calls B, or B calls A.
    fn write(&self, ranges: &str, calls: bool) {
        let endpoint =
            format!("\toption endpoint_host '{SERVER}'\n\toption endpoint_port '{PORT_B}'\n");
        let text = format!(
            "config interface '{OFFICE}'\n\toption proto 'millrace'\n\toption private_key '{}'\n\
             \toption listen_port '{PORT_A}'\n\tlist addresses '{A4}/24'\n\
             config millrace_{OFFICE}\n\toption public_key '{}'\n\tlist allowed_ips '{ranges}'\n\
             \toption route_allowed_ips '1'\n{}",
            self.site.keys_a.private,
            self.site.keys_b.public,
            if calls { &endpoint } else { "" },
        );
        self.site.directory.replace("network", &text);
    }

    fn netifd(&self) -> Netifd<'_> {
        let directory = self.site.directory.path();
        let mut netifd = Netifd::start(&self.site.net.a, OFFICE, directory);
        netifd.program = Installed(&self.site.directory).path();
        netifd
    }

    /// B, which calls A.
    fn caller(&self) -> RunningPeer<'_> {
        let site = &self.site;
        let b = millrace().start(&site.net.b, WG, &PeerOptions::default());
        let b = b.unwrap();
        let a = WgPeer::new(&site.keys_a.public).allow(ip(A4), 32);
        let a = a.at((site.net.link.a4(), PORT_A).into());
        b.configure(&interface(&site.keys_b, PORT_B, vec![a]))
            .unwrap();
        b.bring_up(&[(ip(B4), 24)], 1420).unwrap();
        b
    }
}

fn can_run() -> bool {
    ready() && require(tools::find("nft")).is_some()
}

#[test]
fn a_wireguard_tunnel_goes_on_with_the_new_program() {
    if !can_run() {
        return;
    }
    for (case, ranges, calls) in [
        ("client", "10.0.0.0/8", true),
        ("client, all", "0.0.0.0/0", true),
        ("server", "10.0.0.0/8", false),
    ] {
        let office = Office::new();
        let site = &office.site;
        let _b = match calls {
            true => site.server(&[], &[]),
            false => office.caller(),
        };
        office.write(ranges, calls);
        if !calls {
            // Only B knows the other's address.
            thread::scope(|scope| {
                scope.spawn(|| reaches(&site.net.b, A4));
                upgrade(
                    &format!("WireGuard, {case}"),
                    &site.net,
                    &site.directory,
                    B4,
                );
            });
            continue;
        }
        upgrade(
            &format!("WireGuard, {case}"),
            &site.net,
            &site.directory,
            B4,
        );
    }
}

#[test]
fn an_openvpn_client_goes_on_with_the_new_program() {
    if !can_run() || !lab::acceptance::openvpn::ready() {
        return;
    }
    let routes = ["route 10.50.0.0 255.255.0.0", "redirect-gateway def1"];
    for (transport, more) in [
        (Transport::Udp, routes[0]),
        (Transport::Udp, routes[1]),
        (Transport::Tcp, routes[1]),
    ] {
        let (net, directory) = (Net::new(), Directory::new());
        join(&net);
        let (mut setup, programs) = (Setup::default(), Pair::Both.programs(false));
        setup.transport = transport;
        let (keys, at) = (credentials(KeyKind::Ecdsa), ip(SERVER));
        let file = setup.server_file(programs[0].as_ref(), keys, at).unwrap();
        let _server = programs[0].start(&net.b, &file).unwrap();
        let file = setup.client_file(programs[1].as_ref(), keys, at).unwrap();
        directory.replace("office.ovpn", &format!("{file}\n{more}\n"));
        directory.interface(OFFICE, "office.ovpn", "");
        let case = format!("OpenVPN client, {transport:?}, {more}");
        upgrade(&case, &net, &directory, &setup.inner4(1).to_string());
    }
}

#[test]
fn a_pptp_client_goes_on_with_the_new_program() {
    if !can_run() {
        return;
    }
    let common = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\n";
    for more in ["routes = [\"10.50.0.0/16\"]", "default-route = true"] {
        let (net, directory) = (Net::new(), Directory::new());
        join(&net);
        let text = format!(
            "{common}listen = \"{SERVER}\"\naddress = \"10.9.0.1/24\"\ninterface = \"pptp0\"\n\
             [users]\nalice = \"correct horse\"\n"
        );
        let file = directory.file("server.toml", &text);
        let mut server = net.b.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
        let is_up = |line: &str| line.contains("is up");
        server.wait_for_line("the server", PATIENCE, is_up).unwrap();
        let text = format!(
            "{common}server = \"{SERVER}\"\nusername = \"alice\"\npassword = \"correct horse\"\n{more}\n"
        );
        directory.replace("office.toml", &text);
        directory.interface(OFFICE, "office.toml", "");
        upgrade(
            &format!("PPTP client, {more}"),
            &net,
            &directory,
            "10.9.0.1",
        );
    }
}

/// The name server may be reached only through the tunnel, which is not up yet; here it has lost the name.
#[test]
fn a_new_program_calls_the_address_that_worked_last() {
    if !can_run() {
        return;
    }
    let common = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\n";
    let (net, directory) = (Net::new(), Directory::new());
    join(&net);
    ask(&net.a, net.link.b4());
    let dns = NameServer::start(&net.b, net.link.b4());
    dns.set("vpn.test", &[ip(SERVER)]);
    let text = format!(
        "{common}listen = \"{SERVER}\"\naddress = \"10.9.0.1/24\"\ninterface = \"pptp0\"\n\
         [users]\nalice = \"correct horse\"\n"
    );
    let file = directory.file("server.toml", &text);
    let _server = net.b.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
    let text = format!(
        "{common}server = \"vpn.test\"\nusername = \"alice\"\npassword = \"correct horse\"\n"
    );
    directory.replace("office.toml", &text);
    directory.interface(OFFICE, "office.toml", "");
    let installed = Installed(&directory);
    installed.put(PROGRAM.path());
    let mut netifd = Netifd::start(&net.a, OFFICE, directory.path());
    netifd.program = installed.path();
    netifd.if_up();
    netifd.until_up();
    reaches(&net.a, "10.9.0.1");
    let nobody = "192.168.1.77";
    dns.set("vpn.test", &[ip(nobody)]);
    let process = netifd.process();
    installed.put(PROGRAM.path());
    netifd.renew();
    until("the new program", || installed.is_run_by(process));
    reaches(&net.a, "10.9.0.1");
    assert_eq!((netifd.taken(), netifd.process()), (1, process));
    assert!(!netifd.said().contains(nobody), "{}", netifd.said());
    netifd.if_down();
}

/// A server's sessions are worth more than the new program.
#[test]
fn a_pptp_server_keeps_its_clients_and_its_program() {
    if !can_run() {
        return;
    }
    let common = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\n";
    let (net, directory) = (Net::new(), Directory::new());
    let at = net.link.a4();
    let text = format!(
        "{common}listen = \"{at}\"\naddress = \"10.9.0.1/24\"\npool = \"10.9.0.2-10.9.0.2\"\n\
         [users]\nalice = \"correct horse\"\n"
    );
    directory.replace("office.toml", &text);
    directory.interface(OFFICE, "office.toml", "");
    let installed = Installed(&directory);
    installed.put(PROGRAM.path());
    let mut netifd = Netifd::start(&net.a, OFFICE, directory.path());
    netifd.program = installed.path();
    netifd.if_up();
    netifd.until_up();
    let process = netifd.process();
    let text = format!(
        "{common}server = \"{at}\"\nusername = \"alice\"\npassword = \"correct horse\"\ninterface = \"pptp0\"\n"
    );
    let file = directory.file("client.toml", &text);
    let client = net.b.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
    reaches(&net.b, "10.9.0.1");
    let before = state(&net.b, "pptp0");
    installed.put(PROGRAM.path());
    netifd.renew();
    netifd.until_said(STAYS);
    reaches(&net.b, "10.9.0.1");
    assert!(!installed.is_run_by(process));
    assert_eq!((netifd.taken(), netifd.process()), (1, process));
    assert_eq!(state(&net.b, "pptp0"), before, "{}", client.stderr());
    netifd.if_down();
}

/// The new program finds no server at first. The routes of the last one may be in the way of the connection, or another
/// program may remove one.
#[test]
fn a_new_program_that_does_not_connect_at_once_mends_the_routes() {
    if !can_run() || !lab::acceptance::openvpn::ready() {
        return;
    }
    for is_disturbed in [false, true] {
        let (net, directory) = (Net::new(), Directory::new());
        join(&net);
        let (setup, programs) = (Setup::default(), Pair::Both.programs(false));
        let (keys, at) = (credentials(KeyKind::Ecdsa), ip(SERVER));
        let server_file = setup.server_file(programs[0].as_ref(), keys, at).unwrap();
        let server = programs[0].start(&net.b, &server_file).unwrap();
        let file = setup.client_file(programs[1].as_ref(), keys, at).unwrap();
        directory.replace("office.ovpn", &format!("{file}\nredirect-gateway def1\n"));
        directory.interface(OFFICE, "office.ovpn", "");
        let installed = Installed(&directory);
        installed.put(PROGRAM.path());
        let mut netifd = Netifd::start(&net.a, OFFICE, directory.path());
        netifd.program = installed.path();
        // The route past the tunnel has the next metric if the one of the earlier program is still there when it is made.
        let routes = || {
            let text = net.a.output("ip", ["route", "show"]).unwrap();
            text.replace("static metric 2", "static metric 1")
        };
        let without = routes();
        netifd.if_up();
        netifd.until_up();
        let target = setup.inner4(1).to_string();
        reaches(&net.a, &target);
        let (process, with) = (netifd.process(), routes());
        drop(server);
        installed.put(PROGRAM.path());
        netifd.renew();
        until("the new program", || {
            installed.is_run_by(process) && netifd.said().matches("-linux [millrace").count() == 2
        });
        assert_eq!(routes(), with);
        if is_disturbed {
            netifd.others("route del 128.0.0.0/1 dev DEV");
        } else {
            netifd.until_said("no connection for 30 s since the upgrade");
            until("no routes", || routes() == without);
        }
        let _server = programs[0].start(&net.b, &server_file).unwrap();
        reaches(&net.a, &target);
        if is_disturbed {
            netifd.until_said("another program has removed 128.0.0.0/1");
        }
        until("all routes", || routes() == with);
        assert_eq!((netifd.starts, netifd.process()), (1, process));
        netifd.if_down();
    }
}

#[test]
fn a_program_that_cannot_run_the_interface_does_not_take_over() {
    if !can_run() {
        return;
    }
    let office = Office::new();
    let installed = office.installed();
    let _b = office.site.server(&[], &[]);
    office.write("10.0.0.0/8", true);
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_has(&["10.0.0.1/24"], &["10.0.0.0/8"]);
    let process = netifd.process();
    let stays = |netifd: &mut Netifd<'_>, times: usize| {
        netifd.renew();
        until(STAYS, || netifd.said().matches(STAYS).count() == times);
        let exe = fs::read_link(format!("/proc/{process}/exe")).unwrap();
        assert!(exe.to_str().unwrap().ends_with(" (deleted)"), "{exe:?}");
        reaches(&office.site.net.a, B4);
        assert_eq!((netifd.taken(), netifd.starts), (1, 1));
        assert_eq!(netifd.process(), process);
    };
    installed.put_script("#!/bin/sh\nexit 3\n", 0o700);
    stays(&mut netifd, 1);
    installed.put_script("", 0o600);
    stays(&mut netifd, 2);
    // The new program is well, but not the configuration.
    installed.put(PROGRAM.path());
    let network = office.site.directory.path().join("network");
    let good = fs::read_to_string(&network).unwrap();
    office
        .site
        .directory
        .replace("network", &good.replace("private_key '", "private_key 'x"));
    stays(&mut netifd, 3);
    netifd.until_said("the old configuration stays in use");
    office.site.directory.replace("network", &good);
    netifd.renew();
    until("the new program", || installed.is_run_by(process));
    reaches(&office.site.net.a, B4);
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));
    netifd.if_down();
}

/// A process that waits for its configuration has no device yet.
#[test]
fn a_waiting_process_is_renewed_once_the_new_program_can_go_on() {
    if !can_run() {
        return;
    }
    let office = Office::new();
    let installed = office.installed();
    let _b = office.site.server(&[], &[]);
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_fault("NO_CONFIG");
    let process = netifd.process();
    installed.put(PROGRAM.path());
    office.write("10.0.0.0/8", true);
    netifd.renew();
    until("the new program", || installed.is_run_by(process));
    netifd.until_has(&["10.0.0.1/24"], &["10.0.0.0/8"]);
    reaches(&office.site.net.a, B4);
    assert_eq!((netifd.taken(), netifd.process()), (1, process));
    netifd.if_down();
}
