//! OpenVPN and PPTP servers as OpenWrt's netifd runs them, with test doubles of netifd and ubus.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;

use lab::acceptance::netifd::Netifd;
use lab::acceptance::openvpn::{Pair, credentials, ready};
use lab::acceptance::{Directory, Net, PROGRAM, ip, pings, reaches, until};
use lab::openvpn::{ConfigFile, KeyKind, OpenVpn, READY_LINE, RunningOpenVpn, Setup};

const OFFICE: &str = "office";
const FILE: &str = "office.ovpn";

/// Our server, a netifd interface on A; stock clients run on B.
struct Office<'h> {
    net: &'h Net,
    directory: Directory,
    setup: Setup,
    file: ConfigFile,
    programs: [Box<dyn OpenVpn>; 2],
}

impl<'h> Office<'h> {
    fn new(net: &'h Net, change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup);
        let programs = Pair::Server.programs(false);
        let (keys, at) = (credentials(KeyKind::Ecdsa), net.link.a4());
        let file = setup.server_file(programs[0].as_ref(), keys, at).unwrap();
        let office = Self {
            net,
            directory: Directory::new(),
            setup,
            file,
            programs,
        };
        fs::create_dir(office.directory.path().join("ccd")).unwrap();
        office.write(&office.file.to_string());
        office.section("");
        office
    }

    fn write(&self, text: &str) {
        self.directory.replace(FILE, text);
    }

    fn section(&self, more: &str) {
        self.directory.interface(OFFICE, FILE, more);
    }

    /// Changes the file, and has netifd make the process read it again.
    fn renew(&mut self, netifd: &Netifd<'_>, change: impl FnOnce(&mut ConfigFile)) {
        change(&mut self.file);
        self.write(&self.file.to_string());
        netifd.renew();
    }

    fn netifd(&self) -> Netifd<'h> {
        Netifd::start(&self.net.a, OFFICE, self.directory.path())
    }

    fn client(&self) -> RunningOpenVpn<'h> {
        let (program, keys) = (self.programs[1].as_ref(), credentials(KeyKind::Ecdsa));
        let file = self.setup.client_file(program, keys, self.net.link.a4());
        program.start(&self.net.b, &file.unwrap()).unwrap()
    }

    fn inner(&self, number: u8) -> String {
        self.setup.inner4(number).to_string()
    }
}

#[test]
fn a_server_of_openvpn_is_run_and_changed_under_its_clients() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let mut office = Office::new(&net, |setup| {
        setup
            .server
            .line("client-config-dir ccd")
            .line("crl-verify revoked dir")
            .line("explicit-exit-notify 1")
            .line("route 192.168.77.0 255.255.255.0")
            .line("route-ipv6 fd77::/64")
            .words("push", ["route 192.168.70.0 255.255.255.0"]);
    });
    fs::create_dir(office.directory.path().join("revoked")).unwrap();
    let iroute = "iroute 192.168.77.0 255.255.255.0\n";
    office.directory.file("ccd/client", iroute);
    let (server4, server6) = (office.inner(1), office.setup.server6().to_string());
    let addresses = [format!("{server4}/24"), format!("{server6}/64")];
    let addresses = addresses.each_ref().map(String::as_str);
    let routes = ["192.168.77.0/24", "fd77::/64"];
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_has(&addresses, &routes);
    // The interface had no other settings, and the host is changed only by netifd.
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    let added: Vec<String> = addresses
        .iter()
        .chain(&routes)
        .map(|it| format!("+{it}"))
        .collect();
    assert_eq!(netifd.changes(), added);
    let rules = net.a.output("ip", ["rule"]).unwrap();
    assert_eq!(rules.lines().count(), 3, "{rules}");
    netifd.has_few_privileges();

    let mut client = office.client();
    let branch = ["192.168.77.1", "192.168.78.1"];
    for network in branch {
        net.b.add_address("lo", ip(network), 32).unwrap();
    }
    reaches(&net.b, &server4);
    reaches(&net.b, &server6);
    reaches(&net.a, &office.inner(2));
    reaches(&net.a, branch[0]);
    let pushed = net.b.output("ip", ["route"]).unwrap();
    assert!(pushed.contains("192.168.70.0/24"), "{pushed}");

    // Renewing an unchanged configuration changes nothing.
    let read = "changed settings applied";
    netifd.renew();
    netifd.until_said(read);
    pings(&net.b, &server4, 3);
    assert_eq!((netifd.taken(), netifd.changes().len()), (1, 0));

    // A second network behind the client and a prefix in the section: netifd adds both without a restart.
    let more = format!("{iroute}iroute 192.168.78.0 255.255.255.0\n");
    office.directory.file("ccd/client", &more);
    office.section("\tlist ip6prefix '2001:db8:7::/48'\n");
    office.renew(&netifd, |file| {
        file.line("route 192.168.78.0 255.255.255.0");
    });
    let routes = ["192.168.77.0/24", "192.168.78.0/24", "fd77::/64"];
    netifd.until_has(&addresses, &routes);
    assert_eq!(netifd.changes(), ["+192.168.78.0/24"]);
    until("the prefix", || netifd.prefixes() == ["2001:db8:7::/48"]);
    reaches(&net.a, branch[1]);
    pings(&net.a, branch[0], 3);

    // A faulty file changes nothing.
    let whole = office.file.clone();
    office.renew(&netifd, |file| {
        file.line("no-such-directive-here");
    });
    let fault = netifd.until_fault("CONFIG_FAULT");
    assert!(fault.contains("no-such-directive-here"), "{fault}");
    netifd.until_said("the server keeps its old configuration");
    netifd.until_has(&addresses, &routes);
    pings(&net.a, branch[1], 3);
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));
    assert_eq!(client.said(READY_LINE), 1);

    // Settings that affect every session start a new server, to which the client reconnects.
    office.file = whole;
    office.renew(&netifd, |file| {
        file.line("reneg-sec 1000");
    });
    client.wait_until_ready(2).unwrap();
    netifd.until_has(&addresses, &routes);
    reaches(&net.a, branch[1]);
    reaches(&net.b, &server4);
    netifd.has_few_privileges();
    assert_eq!((netifd.taken(), netifd.starts), (2, 1));
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    netifd.if_down();
    assert!(!net.a.has_interface(&netifd.device()).unwrap());
}

/// With net30, each client has a pair of addresses, and routes go through the other half of the server's own pair.
#[test]
fn a_server_with_pairs_of_addresses_is_run_too() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let office = Office::new(&net, |_| {});
    let text = office.file.to_string();
    let text = text.replace("topology subnet", "topology net30\ntun-mtu 1400");
    office.write(&text);
    let (server, others) = (office.inner(1), office.inner(0));
    let mut netifd = office.netifd();
    netifd.if_up();
    let server6 = format!("{}/64", office.setup.server6());
    netifd.until_has(
        &[&format!("{server}/32"), &server6],
        &[&format!("{others}/24")],
    );
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    let _client = office.client();
    reaches(&net.b, &server);
    reaches(&net.a, &office.inner(6));
    // netifd's protocol cannot express these settings.
    let link = net.a.netlink().unwrap().link(&netifd.device()).unwrap();
    assert_eq!((link.mtu, link.up), (1400, true));
}

/// After any fault of the daemons the interface has the settings of its file, and the client is back.
#[test]
fn a_server_outlives_trouble() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let office = Office::new(&net, |setup| {
        setup.server.line("explicit-exit-notify 1");
    });
    let text = office.file.to_string();
    office.write(&text.replace("keepalive 10 60", "keepalive 1 3"));
    let (server4, server6) = (office.inner(1), office.setup.server6());
    let addresses = [format!("{server4}/24"), format!("{server6}/64")];
    let addresses = addresses.each_ref().map(String::as_str);
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_has(&addresses, &[]);
    let client = office.client();
    reaches(&net.b, &server4);
    // Neither a restart of ubus nor a change of `lo` loses a packet.
    netifd.restart_bus();
    net.a.set_up("lo", false).unwrap();
    net.a.set_up("lo", true).unwrap();
    netifd.renew();
    netifd.until_has(&addresses, &[]);
    pings(&net.b, &server4, 3);
    assert_eq!((netifd.taken(), client.said(READY_LINE)), (1, 1));
    // Other programs disturb the device. The route to the clients is the kernel's own, of which netifd does not know.
    for words in [
        "link set DEV down",
        "addr flush dev DEV",
        "route flush dev DEV",
    ] {
        netifd.others(words);
        netifd.until_has(&addresses, &[]);
        reaches(&net.b, &server4);
    }
    // The orphaned process of a crashed netifd holds port and device until its successor ends it.
    netifd.crash();
    netifd.until_has(&addresses, &[]);
    reaches(&net.b, &server4);
    netifd.kill();
    let killed = netifd.process();
    until("another process", || {
        netifd.tick();
        netifd.process() != killed
    });
    netifd.until_has(&addresses, &[]);
    reaches(&net.b, &server4);
    netifd.if_down();
    netifd.if_up();
    netifd.until_has(&addresses, &[]);
    reaches(&net.b, &server4);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
}

/// The server starts before its listening address exists, as at boot.
#[test]
fn a_server_without_its_address_waits_for_it() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let office = Office::new(&net, |_| {});
    let text = office.file.to_string();
    let at = net.link.a4().to_string();
    office.write(&text.replace(&format!("local {at}"), "local 192.168.66.1"));
    let mut netifd = office.netifd();
    netifd.if_up();
    let fault = netifd.until_fault("START_FAILED");
    assert!(fault.contains("192.168.66.1"), "{fault}");
    net.a.add_address("lo", ip("192.168.66.1"), 32).unwrap();
    netifd.until_up();
    assert_eq!(netifd.starts, 1);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
}

fn pptp_server(directory: &Directory, password: &str) {
    let text = format!(
        "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nlisten = \"0.0.0.0\"\n\
         address = \"10.9.0.1/24\"\n\n[users]\nalice = \"{password}\"\n"
    );
    directory.replace("office.toml", &text);
    directory.interface(OFFICE, "office.toml", "");
}

#[test]
fn a_server_of_pptp_is_run_too() {
    if !lab::acceptance::ready() {
        return;
    }
    let net = Net::new();
    let directory = Directory::new();
    let call = |password: &str| {
        let text = format!(
            "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"{}\"\nusername = \"alice\"\n\
             password = \"{password}\"\nroutes = [\"10.9.0.0/24\"]\ninterface = \"pptp0\"\n",
            net.link.a4()
        );
        let file = directory.file("client.toml", &text);
        net.b.command(PROGRAM).arg("up").arg(file).spawn().unwrap()
    };
    pptp_server(&directory, "correct horse");
    let mut netifd = Netifd::start(&net.a, OFFICE, directory.path());
    netifd.if_up();
    netifd.until_has(&["10.9.0.1/24"], &[]);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    netifd.has_few_privileges();
    let mut client = call("correct horse");
    reaches(&net.b, "10.9.0.1");
    reaches(&net.a, "10.9.0.2");
    // Neither an unchanged nor a faulty file disturbs a call.
    netifd.renew();
    pings(&net.b, "10.9.0.1", 3);
    directory.replace("office.toml", "protocol = \"pptp\"\nlisten = 7\n");
    netifd.renew();
    netifd.until_fault("CONFIG_FAULT");
    pings(&net.b, "10.9.0.1", 3);
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));
    assert!(client.try_wait().unwrap().is_none());
    drop(client);
    // A new password starts a new server.
    pptp_server(&directory, "battery staple");
    netifd.renew();
    until("a new server", || {
        netifd.tick();
        netifd.taken() == 2
    });
    netifd.until_has(&["10.9.0.1/24"], &[]);
    let _client = call("battery staple");
    reaches(&net.b, "10.9.0.1");
    reaches(&net.a, "10.9.0.2");
    assert_eq!((netifd.taken(), netifd.starts), (2, 1));
    netifd.if_down();
    assert!(!net.a.has_interface("mr-office").unwrap());
}
