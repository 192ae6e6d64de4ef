//! OpenVPN and PPTP files as OpenWrt's netifd runs them, with test doubles of netifd and ubus.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use lab::acceptance::netifd::Netifd;
use lab::acceptance::openvpn::{Pair, credentials};
use lab::acceptance::{Directory, Net, PATIENCE, PROGRAM, reaches, until};
use lab::openvpn::{KeyKind, RunningOpenVpn, Setup};

const OFFICE: &str = "office";
const COMPLETED: &str = "Initialization Sequence Completed";

/// Our OpenVPN server at B; its client's file lies in the directory.
struct Office<'h> {
    net: &'h Net,
    directory: Directory,
    server: RunningOpenVpn<'h>,
    setup: Setup,
    client: String,
}

impl<'h> Office<'h> {
    fn new(net: &'h Net, change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup);
        let programs = Pair::Both.programs(false);
        let keys = credentials(KeyKind::Ecdsa);
        let at = net.link.b4();
        let file = setup.server_file(programs[0].as_ref(), keys, at).unwrap();
        let server = programs[0].start(&net.b, &file).unwrap();
        let client = setup.client_file(programs[1].as_ref(), keys, at).unwrap();
        let office = Self {
            net,
            directory: Directory::new(),
            server,
            setup,
            client: client.to_string(),
        };
        office.write("");
        office.directory.interface(OFFICE, "office.ovpn", "");
        office
    }

    fn write(&self, more: &str) {
        let text = format!("{}\n{more}\n", self.client);
        self.directory.replace("office.ovpn", &text);
    }

    fn netifd(&self) -> Netifd<'h> {
        Netifd::start(&self.net.a, OFFICE, self.directory.path())
    }
}

#[test]
fn an_openvpn_client_is_made_anew_only_for_what_has_changed() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let net = Net::new();
    let office = Office::new(&net, |setup| {
        setup
            .server
            .words("push", ["route 192.168.77.0 255.255.255.0"])
            .words("push", ["dhcp-option DNS 192.168.77.53"]);
    });
    // `user nobody` must be ignored: it would prevent the later reloads.
    let user = "user nobody\ngroup nogroup";
    office.write(user);
    let mut netifd = office.netifd();
    netifd.if_up();
    let (addresses, routes) = netifd.until_up();
    netifd.until_said("`user nobody` is not used under netifd");
    assert!(!addresses.is_empty());
    assert!(routes.contains(&"192.168.77.0/24".to_owned()), "{routes:?}");
    assert_eq!(netifd.dns(), ["192.168.77.53"]);
    let inner = office.setup.inner4(1).to_string();
    reaches(&net.a, &inner);
    let completed = |netifd: &Netifd<'_>| netifd.said().matches(COMPLETED).count();
    until("the log", || completed(&netifd) == 1);
    // The process stays root, because root owns its files, and keeps only network capabilities.
    netifd.has_few_privileges();
    // Renewing an unchanged tunnel does not rebuild it.
    netifd.renew();
    netifd.renew();
    reaches(&net.a, &inner);
    assert_eq!((netifd.taken(), completed(&netifd)), (1, 1));
    office.write("no-such-directive-here");
    netifd.renew();
    netifd.until_said("the old configuration stays in use");
    let fault = netifd.until_fault("CONFIG_FAULT");
    assert!(fault.contains("no-such-directive-here"), "{fault}");
    reaches(&net.a, &inner);
    assert_eq!((netifd.taken(), completed(&netifd)), (1, 1));
    // A changed file rebuilds the tunnel.
    office.write(&format!("{user}\nroute 192.168.78.0 255.255.255.0"));
    netifd.renew();
    until("another route", || {
        netifd.until_up().1.contains(&"192.168.78.0/24".to_owned())
    });
    reaches(&net.a, &inner);
    assert_eq!((netifd.taken(), netifd.starts), (2, 1));
    netifd.has_few_privileges();
    disturb(&mut netifd, &net, &inner);
    assert_eq!(netifd.starts, 1);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    // The tunnel ends although no server confirms it.
    office.server.stop().unwrap();
    netifd.if_down();
    assert!(!net.a.has_interface(&netifd.device()).unwrap());
}

/// Other programs disturb the device, which netifd does not notice. The tunnel reaches `inner` again.
fn disturb(netifd: &mut Netifd<'_>, net: &Net, inner: &str) {
    for words in ["link set DEV down", "addr flush dev DEV"] {
        let taken = netifd.taken();
        netifd.others(words);
        until("the repair", || netifd.taken() == taken + 1);
        netifd.until_up();
        reaches(&net.a, inner);
    }
}

/// A server that does not answer is a fault until one does.
#[test]
fn an_openvpn_server_that_does_not_answer_is_a_fault() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let net = Net::new();
    let office = Office::new(&net, |_| ());
    net.a.set_up("eth0", false).unwrap();
    let mut netifd = office.netifd();
    netifd.if_up();
    let fault = netifd.until_fault("NO_ANSWER");
    assert!(fault.contains(&net.link.b4().to_string()), "{fault}");
    net.a.set_up("eth0", true).unwrap();
    netifd.until_up();
    netifd.until_faults(&[]);
    reaches(&net.a, &office.setup.inner4(1).to_string());
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));
}

/// netifd cannot set name servers for some domains only: log and status say how the owner configures dnsmasq for
/// them.
#[test]
fn name_servers_for_some_domains_are_told() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let net = Net::new();
    let office = Office::new(&net, |setup| {
        setup
            .server
            .words("push", ["dns server 1 address 192.168.77.53"])
            .words("push", ["dns server 1 resolve-domains corp.example"]);
    });
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_up();
    let how = "list server '/corp.example/192.168.77.53'";
    netifd.until_said(how);
    let status = net.a.output(PROGRAM, ["status", "--no-rate"]).unwrap();
    assert!(status.contains(how), "{status}");
    assert_eq!(netifd.dns(), ["192.168.77.53"]);
    netifd.if_down();
}

fn ends_refused(netifd: &mut Netifd<'_>) {
    netifd.until_fault("AUTH_FAILED");
    until("the end", || {
        netifd.tick();
        netifd.ended == Some(19)
    });
    // netifd is told not to restart the tunnel.
    netifd.tick();
    assert_eq!(netifd.starts, 1);
}

#[test]
fn refused_credentials_end_with_a_code_of_their_own_and_are_not_tried_again() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let net = Net::new();
    let office = Office::new(&net, |setup| {
        setup
            .server
            .line("script-security 2")
            .line("auth-user-pass-verify /bin/false via-file");
        setup.client.line("auth-user-pass login");
    });
    office.directory.file("login", "somebody\nwrong\n");
    // The profile may not name a login file, and there is no terminal to prompt on.
    let mut netifd = office.netifd();
    netifd.if_up();
    let fault = netifd.until_fault("CONFIG_FAULT");
    assert!(fault.contains("auth-user-pass"), "{fault}");
    netifd.if_down();
    let permission = "\toption allow_files '1'\n";
    office
        .directory
        .interface(OFFICE, "office.ovpn", permission);
    let mut netifd = office.netifd();
    netifd.if_up();
    ends_refused(&mut netifd);
}

/// Runs a provider's file that tries to overwrite, delete and send root's files, and to let the LAN control the tunnel.
#[test]
fn a_file_touches_nothing_beside_its_tunnel() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let net = Net::new();
    let office = Office::new(&net, |_| ());
    let victim = office.directory.file("victim", "kept");
    let named = victim.display();
    let lines =
        format!("status {named} 1\nwritepid {named}\nlog {named}\nmanagement 0.0.0.0 7506\n");
    // A refused `config` file might verify the server, so the whole profile is refused without it.
    office.write(&format!("{lines}config {named}\n"));
    let mut netifd = office.netifd();
    netifd.if_up();
    let fault = netifd.until_fault("CONFIG_FAULT");
    assert!(
        fault.contains("config") && !fault.contains("kept"),
        "{fault}"
    );
    netifd.if_down();
    office.write(&lines);
    let mut netifd = office.netifd();
    netifd.if_up();
    netifd.until_up();
    reaches(&net.a, &office.setup.inner4(1).to_string());
    let at = SocketAddr::new(net.link.a4(), 7506);
    let called = net.b.run(|| TcpStream::connect_timeout(&at, PATIENCE));
    assert!(called.unwrap().is_err(), "the management port is open");
    netifd.if_down();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
}

fn pptp_client(directory: &Directory, server: &str, password: &str) {
    let text = format!(
        "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"{server}\"\nusername = \"alice\"\n\
         password = \"{password}\"\nroutes = [\"10.50.0.0/16\"]\n"
    );
    directory.replace("office.toml", &text);
    directory.interface(OFFICE, "office.toml", "");
}

#[test]
fn a_pptp_client_is_run_too() {
    if !lab::acceptance::ready() {
        return;
    }
    let net = Net::new();
    let directory = Directory::new();
    let server = directory.file(
        "server.toml",
        "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nlisten = \"0.0.0.0\"\n\
         address = \"10.9.0.1/24\"\ninterface = \"pptp0\"\n\n[users]\nalice = \"correct horse\"\n",
    );
    let mut server = serve(&net, &server);
    server
        .wait_for_line("the server", PATIENCE, |line| line.contains("is up"))
        .unwrap();
    let at = net.link.b4().to_string();
    pptp_client(&directory, &at, "correct horse");
    let mut netifd = Netifd::start(&net.a, OFFICE, directory.path());
    netifd.if_up();
    netifd.until_has(&["10.9.0.2/32"], &["10.50.0.0/16"]);
    assert_eq!(netifd.complaints(), Vec::<String>::new());
    reaches(&net.a, "10.9.0.1");
    netifd.renew();
    reaches(&net.a, "10.9.0.1");
    assert_eq!((netifd.taken(), netifd.starts), (1, 1));
    disturb(&mut netifd, &net, "10.9.0.1");
    assert_eq!(netifd.starts, 1);
    netifd.if_down();
    assert!(!net.a.has_interface("mr-office").unwrap());
    // Starts a client with a wrong password.
    pptp_client(&directory, &at, "wrong");
    let mut netifd = Netifd::start(&net.a, OFFICE, directory.path());
    netifd.if_up();
    ends_refused(&mut netifd);
}

fn serve(net: &Net, file: &Path) -> lab::Process {
    net.b.command(PROGRAM).arg("up").arg(file).spawn().unwrap()
}
