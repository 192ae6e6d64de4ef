//! Tests a tunnel as OpenWrt's netifd runs it, with test doubles of netifd and ubus.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::SystemTime;

use lab::acceptance::netifd::Netifd;
use lab::acceptance::{
    A4, B4, PORT_B, PROGRAM, Site, interface, ip, millrace, peer, pings, reaches, ready, status_of,
    until,
};
use lab::peer::{Keys, PeerOptions, RunningPeer, WgPeer, WireGuardPeer};

#[path = "netifd/amneziawg.rs"]
mod amneziawg;
#[path = "netifd/faults.rs"]
mod faults;

/// The second peer, C, runs on host B: its interface, its port, its inner address, and A's inner address towards it.
const WG_C: &str = "wg1";
const PORT_C: u16 = PORT_B + 1;
const C4: &str = "10.0.1.2";
const A4_FOR_C: &str = "10.0.1.1";

/// The interface, with the addresses and routes it has by default.
const OFFICE: &str = "office";
const ADDRESSES: [&str; 2] = ["10.0.0.1/24", "10.0.1.1/24"];
const ROUTES: [&str; 2] = ["10.0.0.0/24", "10.0.1.0/24"];

/// Router A and two peers.
struct Office {
    site: Site,
    keys_c: Keys,
}

impl Office {
    fn new() -> Self {
        let site = Site::new();
        let keys_c = Keys::generate(&site.net.a).unwrap();
        Self { site, keys_c }
    }

    fn peers(&self) -> (RunningPeer<'_>, RunningPeer<'_>) {
        let b = self.site.server(&[], &[]);
        let host = &self.site.net.b;
        let c = millrace()
            .start(host, WG_C, &PeerOptions::default())
            .unwrap();
        let a = WgPeer::new(&self.site.keys_a.public);
        // Whichever of its addresses A sends from, C accepts it.
        let a = a.allow(ip(A4_FOR_C), 32).allow(ip(A4), 32);
        c.configure(&interface(&self.keys_c, PORT_C, vec![a]))
            .unwrap();
        c.bring_up(&[(ip(C4), 24)], 1420).unwrap();
        for words in [
            "rule add from 10.0.1.2 table 101",
            "route add default dev wg1 table 101",
        ] {
            host.output("ip", words.split(' ')).unwrap();
        }
        (b, c)
    }

    fn directory(&self) -> &Path {
        self.site.directory.path()
    }

    /// Writes the interface's section with these lines, followed by `peers`.
    fn write(&self, lines: &str, peers: &str) {
        let text = format!(
            "config interface '{OFFICE}'\n\toption proto 'millrace'\n\
             \toption private_key '{}'\n\toption multipath 'off'\n{lines}\n{peers}",
            self.site.keys_a.private
        );
        self.replace("network", &text);
    }

    /// Replaces a file atomically, as UCI does.
    fn replace(&self, name: &str, text: &str) {
        let new = self.site.directory.file("new", text);
        fs::rename(new, self.directory().join(name)).unwrap();
    }

    fn addresses() -> String {
        let list = ADDRESSES.map(|it| format!("\tlist addresses '{it}'\n"));
        list.concat()
    }

    fn peer(&self, key: &str, port: u16, range: &str, more: &str) -> String {
        let host = self.site.net.link.b4();
        format!(
            "config millrace_{OFFICE}\n\toption public_key '{key}'\n\
             \toption endpoint_host '{host}'\n\toption endpoint_port '{port}'\n\
             \tlist allowed_ips '{range}'\n\toption route_allowed_ips '1'\n{more}\n"
        )
    }

    fn b(&self, more: &str) -> String {
        self.peer(&self.site.keys_b.public, PORT_B, ROUTES[0], more)
    }

    fn c(&self, more: &str) -> String {
        self.peer(&self.keys_c.public, PORT_C, ROUTES[1], more)
    }

    fn netifd(&self) -> Netifd<'_> {
        Netifd::start(&self.site.net.a, OFFICE, self.directory())
    }

    /// Brings the interface up with both peers.
    fn up(&self) -> Netifd<'_> {
        self.write(&Self::addresses(), &(self.b("") + &self.c("")));
        let mut netifd = self.netifd();
        netifd.if_up();
        netifd.until_has(&ADDRESSES, &ROUTES);
        reaches(&self.site.net.a, B4);
        reaches(&self.site.net.a, C4);
        netifd
    }

    fn shaken(&self, peers: &RunningPeer<'_>) -> Option<SystemTime> {
        peer(peers, &self.site.keys_a).latest_handshake
    }
}

#[test]
fn an_interface_comes_up_bare_and_netifd_gives_it_what_it_has() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let _peers = office.peers();
    let a = &office.site.net.a;
    office.write(
        &(Office::addresses()
            + "\toption mtu '1380'\n\tlist only_through 'none'\n\tlist only_through 'wan'\n"),
        &(office.b("")
            + &office.c("")
            + "config interface 'wan'\n\toption device 'eth0'\n\toption proto 'dhcp'\n"),
    );
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_has(&ADDRESSES, &ROUTES);
    reaches(a, B4);
    reaches(a, C4);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    // An uplink interface is not a LAN.
    let fault = netifd.until_fault("CONFIG_FAULT");
    assert!(
        fault.contains("only_through: wan: it is not a LAN network"),
        "{fault}"
    );
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));
    let link = a.netlink().unwrap().link(&netifd.device()).unwrap();
    assert_eq!((link.mtu, link.up), (1380, true));
    // The host is otherwise unchanged: no rule, no name server.
    let rules = a.output("ip", ["rule"]).unwrap();
    assert_eq!(rules.lines().count(), 3, "{rules}");
    // Ending the tunnel removes the device without errors about late reports to netifd.
    netifd.if_down();
    assert!(!a.has_interface(&netifd.device()).unwrap());
    assert!(
        !netifd.said().contains("permission denied"),
        "{}",
        netifd.said()
    );
    // A second start.
    netifd.if_up();
    netifd.until_has(&ADDRESSES, &ROUTES);
    reaches(a, B4);
}

/// The first server of a tunnel for everything is dead. The next one gets its route past the tunnel before it is called.
#[test]
fn the_next_server_of_a_pool_is_called() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let (_b, c) = office.peers();
    let site = &office.site;
    let (b4, key) = (site.net.link.b4(), &office.keys_c.public);
    let [live, other] = ["198.51.100.9", "198.51.100.10"];
    for address in [live, other] {
        site.net.b.add_address("lo", ip(address), 32).unwrap();
    }
    site.net.a.add_default_route(b4).unwrap();
    let lines = format!(
        "Address = {A4}/24\n#! [Pool]\n#! Server = dead {b4}:9 {key}\n#! Server = live {live}:{PORT_B}\n\
        #! Server = other {other}:{PORT_C} {key}\n#! Server = same {b4}:{PORT_C} {key}\n"
    );
    let file = site.file(OFFICE, &lines, live, "0.0.0.0/0", "");
    site.directory.interface(OFFICE, "office.conf", "");
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_has(&ADDRESSES[..1], &["0.0.0.0/1", "128.0.0.0/1"]);
    reaches(&site.net.a, B4);
    netifd.until_said("no answer from dead");
    let status = status_of(&site.net.a, &netifd.device());
    assert_eq!(status["peers"][0]["name"], "live", "{status}");
    let way = |to: &str| site.net.a.output("ip", ["route", "get", to]).unwrap();
    assert!(way(live).contains("dev eth0"), "{}", way(live));

    // The command finds the tunnel by its file. The other server, too, gets its route before it is called: no packet of
    // the tunnel's own goes into the tunnel.
    let pool = |words: &[&str]| {
        let words = ["pool", file.to_str().unwrap()]
            .into_iter()
            .chain(words.iter().copied());
        site.net.a.output(PROGRAM, words).unwrap()
    };
    let shown = pool(&[]);
    assert!(shown.lines().any(|it| it.ends_with("  in use")), "{shown}");
    let device = netifd.device();
    let quiet = format!("net/ipv6/conf/{device}/disable_ipv6");
    site.net.a.sysctl(&quiet, "1").unwrap();
    let sent = || {
        let link = site
            .net
            .a
            .output("ip", ["-j", "-s", "link", "show", &device]);
        let link: serde_json::Value = serde_json::from_str(&link.unwrap()).unwrap();
        link[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
    };
    let before = sent();
    pool(&["use", "other"]);
    until("a handshake with the other server", || {
        peer(&c, &site.keys_a).latest_handshake.is_some()
    });
    assert_eq!(sent(), before);
    assert!(way(other).contains("dev eth0"), "{}", way(other));
    reaches(&site.net.a, C4);
    let status = status_of(&site.net.a, &device);
    assert_eq!(status["peers"][0]["name"], "other", "{status}");
    // A server with the same key is another peer: its counters begin anew, and so does its session.
    pings(&site.net.a, C4, 3);
    let received = || {
        let status = status_of(&site.net.a, &device);
        let server = &status["peers"][0];
        let name = server["name"].as_str().map(str::to_owned);
        name.zip(server["rx_bytes"].as_u64())
    };
    let before = received().unwrap().1;
    pool(&["use", "same"]);
    until("an answer of the server with the same key", || {
        received().is_some_and(|(name, bytes)| name == "same" && bytes > 0)
    });
    assert!(received().unwrap().1 < before);
    reaches(&site.net.a, C4);
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    netifd.if_down();
    assert!(!site.net.a.has_interface(&netifd.device()).unwrap());
}

#[test]
fn renew_changes_in_place_and_disturbs_no_other_peer() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let (b, c) = office.peers();
    let a = &office.site.net.a;
    let mut netifd = office.up();
    let shaken = (office.shaken(&b), office.shaken(&c));
    let before = peer(&b, &office.site.keys_a).received;
    netifd.changes();

    // C gets another range, the interface another address and MTU.
    let c_changed = office.c("\tlist allowed_ips '10.50.0.0/16'\n");
    let lines = Office::addresses() + "\tlist addresses '10.0.9.1/32'\n\toption mtu '1370'\n";
    office.write(&lines, &(office.b("") + &c_changed));
    netifd.renew();
    let addresses = [&ADDRESSES[..], &["10.0.9.1/32"]].concat();
    let routes = [&ROUTES[..], &["10.50.0.0/16"]].concat();
    netifd.until_has(&addresses, &routes);
    // Unchanged settings were left alone, and the device is the same.
    assert_eq!(netifd.changes(), ["+10.0.9.1/32", "+10.50.0.0/16"]);
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));
    let link = || a.netlink().unwrap().link(&netifd.device()).unwrap();
    assert_eq!(link().mtu, 1370);
    pings(a, B4, 3);
    pings(a, C4, 3);
    assert_eq!((office.shaken(&b), office.shaken(&c)), shaken);
    assert!(peer(&b, &office.site.keys_a).received > before);

    // C goes while B stays. C returns beside a peer with an unresolvable name and a faulty peer.
    office.write(&Office::addresses(), &office.b(""));
    netifd.renew();
    netifd.until_has(&ADDRESSES, &ROUTES[..1]);
    pings(a, B4, 3);
    let nowhere = office.peer(
        &Keys::generate(a).unwrap().public,
        PORT_C,
        "10.7.0.0/16",
        "\toption endpoint_host 'nowhere.invalid'\n",
    );
    let wrong = office.peer("short", PORT_C, "10.8.0.0/16", "");
    // Another program's section with an odd line is not an obstacle either.
    let others = "config interface 'lan'\n\toption a-b 'c'\n";
    let all = nowhere + &wrong + &office.b("") + &office.c("") + others;
    office.write(&Office::addresses(), &all);
    netifd.renew();
    let routes = [&ROUTES[..], &["10.7.0.0/16"]].concat();
    netifd.until_has(&ADDRESSES, &routes);
    netifd.until_said("it is ignored");
    let fault = netifd.until_fault("PEER_FAULT");
    assert!(fault.contains("@millrace_office[1].public_key"), "{fault}");
    reaches(a, C4);
    pings(a, B4, 3);
    assert_eq!(office.shaken(&b), shaken.0);
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));

    // A file that cannot be parsed changes nothing.
    office.replace("network", "config interface 'office'\n\toption 'broken\n");
    netifd.renew();
    let fault = netifd.until_fault("CONFIG_FAULT");
    assert!(fault.contains("line 2"), "{fault}");
    netifd.until_has(&ADDRESSES, &routes);
    pings(a, B4, 3);
    assert_eq!(office.shaken(&b), shaken.0);
}

#[test]
fn a_configuration_that_is_missing_or_wrong_is_waited_for() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let _peers = office.peers();
    let a = &office.site.net.a;
    let mut netifd = office.netifd();
    netifd.if_up();
    assert!(netifd.until_fault("NO_CONFIG").contains("network"));
    office.write("\toption fwmark 'x'\n", "");
    netifd.renew();
    assert!(netifd.until_fault("CONFIG_FAULT").contains("office.fwmark"));
    // The configuration file does not exist yet.
    let file = office.directory().join("tunnel.conf");
    let section = format!(
        "config interface '{OFFICE}'\n\toption proto 'millrace'\n\toption config_file '{}'\n",
        file.display()
    );
    office.replace("network", &section);
    netifd.renew();
    netifd.until_said("tunnel.conf");
    let endpoint = office.site.net.link.b4();
    let text = |ranges: &str, dns: &str| {
        format!(
            "[Interface]\nPrivateKey = {}\nAddress = {A4}/24\nDNS = {dns}, office.example\n\
             PostUp = reboot\n[Peer]\n#! Name = by-{dns}\nPublicKey = {}\n\
             Endpoint = {endpoint}:{PORT_B}\nAllowedIPs = {ranges}\n",
            office.site.keys_a.private, office.site.keys_b.public
        )
    };
    office.replace(
        "tunnel.conf",
        &text("10.0.0.0/24, 10.51.0.0/16", "10.0.0.53"),
    );
    netifd.renew();
    netifd.until_has(&ADDRESSES[..1], &["10.0.0.0/24", "10.51.0.0/16"]);
    assert_eq!(netifd.dns(), ["10.0.0.53"]);
    let name = || status_of(a, "mr-office")["peers"][0]["name"].to_string();
    assert_eq!(name(), "\"by-10.0.0.53\"");
    reaches(a, B4);
    // The file's PostUp script does not run, and the log says so.
    assert!(netifd.said().contains("PostUp"), "{}", netifd.said());
    // Renew reads the file again: removed ranges are gone, and no name server is listed twice.
    for (ranges, dns) in [
        ("10.0.0.0/24, 10.52.0.0/16", "10.0.0.53"),
        ("10.0.0.0/24", "10.0.0.54"),
    ] {
        office.replace("tunnel.conf", &text(ranges, dns));
        netifd.renew();
        netifd.until_has(&ADDRESSES[..1], &ranges.split(", ").collect::<Vec<_>>());
        assert_eq!(netifd.dns(), [dns]);
        assert_eq!(name(), format!("\"by-{dns}\""));
    }
    // Mended faults began other processes, whose lists were empty.
    assert!(netifd.taken() == 1 && netifd.starts > 1);
    netifd.until_faults(&[]);
}

#[test]
fn a_tunnel_for_everything_does_not_carry_itself() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let (_b, _c) = office.peers();
    let a = &office.site.net.a;
    let gateway = office.site.net.link.b4().to_string();
    a.output("ip", ["route", "add", "default", "via", &gateway])
        .unwrap();
    office.write(
        &Office::addresses(),
        &office.peer(&office.site.keys_b.public, PORT_B, "0.0.0.0/0", ""),
    );
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_has(&ADDRESSES, &["0.0.0.0/1", "128.0.0.0/1"]);
    reaches(a, B4);
    let way = |to: &str| a.output("ip", ["route", "get", to]).unwrap();
    assert!(way("203.0.113.9").contains("dev mr-office"));
    assert!(way(&gateway).contains("dev eth0"));
    // A table of its own has one route, and no host route to the peer.
    let lines = Office::addresses() + "\toption ip4table '77'\n";
    office.write(
        &lines,
        &office.peer(&office.site.keys_b.public, PORT_B, "0.0.0.0/0", ""),
    );
    netifd.renew();
    netifd.until_has(&ADDRESSES, &["0.0.0.0/0"]);
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));
}

#[test]
fn a_process_that_is_to_end_before_it_is_up_ends() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_fault("NO_CONFIG");
    netifd.if_down();
    // The interface comes up although the host has no uplink.
    let a = &office.site.net.a;
    a.set_up("eth0", false).unwrap();
    office.write(&Office::addresses(), &(office.b("") + &office.c("")));
    netifd.if_up();
    netifd.until_has(&ADDRESSES, &ROUTES);
    let _peers = office.peers();
    a.set_up("eth0", true).unwrap();
    reaches(a, B4);
}

/// netifd does not notice that another program takes the link down or removes addresses or routes. From the moment that
/// this program does, no packet leaves outside the tunnel.
#[test]
fn what_others_take_from_the_device_is_set_up_again() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let _peers = office.peers();
    let a = &office.site.net.a;
    let gateway = office.site.net.link.b4().to_string();
    a.output("ip", ["route", "add", "default", "via", &gateway])
        .unwrap();
    let clear = Clear::watch(a);
    let (mut netifd, mut shields) = (office.up(), 0);
    for words in [
        "link set DEV down",
        "addr flush dev DEV",
        "route flush dev DEV",
    ] {
        let taken = netifd.taken();
        let (senders, over) = clear.send(a);
        netifd.others(words);
        let mut is_shielded = false;
        until("the shield", || {
            let routes = a.output("ip", ["-4", "route"]).unwrap();
            is_shielded = routes.matches("metric 4294967294").count() == ROUTES.len();
            is_shielded || netifd.taken() > taken
        });
        // Each sender may have one packet on its way.
        let left = clear.count(a) + senders.len() as u64;
        until("the repair", || netifd.taken() > taken);
        netifd.until_has(&ADDRESSES, &ROUTES);
        over.store(true, Ordering::Relaxed);
        let sent: u64 = senders.into_iter().map(|it| it.join().unwrap()).sum();
        assert!(sent > 0);
        // A busy machine may not show the shield in time.
        assert!(!is_shielded || clear.count(a) <= left, "{words}");
        shields += usize::from(is_shielded);
        reaches(a, B4);
        reaches(a, C4);
    }
    assert!(shields > 0);
    netifd.until_said("netifd sets it up again");
    // Addresses and routes of others are their own business.
    let taken = netifd.taken();
    netifd.others("addr add 10.77.0.1/24 dev DEV");
    netifd.others("addr del 10.77.0.1/24 dev DEV");
    netifd.renew();
    netifd.until_said("the configuration was read again");
    netifd.until_has(&ADDRESSES, &ROUTES);
    assert_eq!((netifd.taken(), netifd.starts), (taken, 1));
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    assert_eq!(netifd.faults(), Vec::<String>::new());
}

#[test]
fn what_another_program_takes_again_and_again_is_given_up() {
    if !ready() {
        return;
    }
    let office = Office::new();
    let _peers = office.peers();
    let mut netifd = office.up();
    until("a fault", || {
        netifd.others("route flush dev DEV");
        !netifd.faults().is_empty()
    });
    let fault = netifd.until_fault("DISTURBED");
    assert!(fault.contains("again and again"), "{fault}");
    let said = netifd.said();
    assert_eq!(said.matches("again and again").count(), 1, "{said}");
    netifd.if_down();
    netifd.if_up();
    netifd.until_has(&ADDRESSES, &ROUTES);
    netifd.until_faults(&[]);
    reaches(&office.site.net.a, B4);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
}

/// Counts packets to the tunnel's networks that leave through the uplink.
struct Clear;

impl Clear {
    fn watch(host: &lab::Host) -> Self {
        let rules = "table inet clear {\n counter clear { }\n chain out {\n\
                     type filter hook postrouting priority 0;\n\
                     oifname \"eth0\" ip daddr { 10.0.0.0/24, 10.0.1.0/24 } counter name clear\n }\n}\n";
        let file = lab::acceptance::Directory::new();
        let path = file.file("rules", rules);
        host.output("nft", ["-f", path.to_str().unwrap()]).unwrap();
        Self
    }

    /// Sends to addresses behind both peers that never answer, until told to stop. Returns the number of packets.
    fn send(&self, host: &lab::Host) -> (Vec<JoinHandle<u64>>, Arc<AtomicBool>) {
        let over = Arc::new(AtomicBool::new(false));
        let senders = ["10.0.0.77:9", "10.0.1.77:9"].map(|to| {
            let socket = host.run(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut sent = 0;
                while !over.load(Ordering::Relaxed) {
                    sent += u64::from(socket.send_to(b"secret", to).is_ok());
                }
                sent
            })
        });
        (senders.into(), over)
    }

    fn count(&self, host: &lab::Host) -> u64 {
        let words = ["-j", "list", "counters", "table", "inet", "clear"];
        let found = host.output("nft", words).unwrap();
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        let mut entries = found["nftables"].as_array().unwrap().iter();
        let packets = entries.find_map(|it| it["counter"]["packets"].as_u64());
        packets.unwrap()
    }
}

/// Runs the protocol handler with the test's own functions in place of netifd's.
#[test]
fn the_handler_declares_only_what_a_new_device_is_needed_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/openwrt/millrace");
    let handler = root.join("lib/netifd/proto/millrace.sh");
    let script = format!(
        "INCLUDE_ONLY=1; eval \"$(sed s,/usr/sbin/millrace,/bin/sh, {})\"\n\
         for kind in string array boolean int; do\n\
             eval \"proto_config_add_$kind() {{ echo $kind \\\"\\$@\\\"; }}\"\n\
         done\n\
         proto_run_command() {{ echo run \"$@\"; }}; proto_kill_command() {{ echo kill \"$@\"; }}\n\
         proto_millrace_init_config; echo $no_device$available$renew_handler\n\
         proto_millrace_setup office; proto_millrace_renew office; proto_millrace_teardown office\n",
        handler.display()
    );
    let output = Command::new("sh").args(["-euc", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "string config_file\nboolean allow_files\nstring mode\narray uplink:list(string)\n111\n\
         run office /bin/sh netifd office\nkill office 1\nkill office\n"
    );
    for file in [handler, root.join("etc/init.d/millrace")] {
        use std::os::unix::fs::PermissionsExt as _;
        // netifd would start a handler that is not executable a thousand times a second.
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{}", file.display());
        if let Ok(check) = Command::new("shellcheck").arg(&file).output() {
            assert!(check.status.success(), "{check:?}");
        }
    }
}
