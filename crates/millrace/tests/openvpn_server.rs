//! A server and its stock clients: the clients' files, scripts, addresses and status.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;

use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::{Directory, Net, PATIENCE, PROGRAM, ip, pings, until, until_some, usable};
use lab::openvpn::{
    ConfigFile, Identity, KeyKind, Management, OpenVpn as _, READY_LINE, RunningOpenVpn, Setup,
    StockOpenVpn,
};
use lab::{Host, Link, LinkOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Our server at B, and stock clients at A and at a second host.
struct Office {
    net: Net,
    second: Host,
    second_link: LinkOptions,
    setup: Setup,
}

impl Office {
    fn new(change: impl FnOnce(&mut Setup)) -> Self {
        let net = Net::new();
        let second = Host::private("second").unwrap();
        let second_link = LinkOptions::numbered(2);
        Link::new(&second, "eth0", &net.b, "eth1", &second_link).unwrap();
        let mut setup = Setup::default();
        // The server answers from either of its addresses.
        setup.server.line("multihome").line("script-security 3");
        change(&mut setup);
        Self {
            net,
            second,
            second_link,
            setup,
        }
    }

    fn server_file(&self) -> ConfigFile {
        let keys = credentials(KeyKind::Ecdsa);
        let file = self
            .setup
            .server_file(&millrace(), keys, self.net.link.b4());
        let mut file = file.unwrap();
        file.remove("local");
        file
    }

    fn server(&self) -> RunningOpenVpn<'_> {
        millrace().start(&self.net.b, &self.server_file()).unwrap()
    }

    /// The file for a client at A or at the second host.
    fn client_file(&self, second: bool) -> ConfigFile {
        let keys = credentials(KeyKind::Ecdsa);
        let link = if second {
            &self.second_link
        } else {
            &self.net.link
        };
        let file = self.setup.client_file(&StockOpenVpn, keys, link.b4());
        file.unwrap()
    }

    fn client(&self) -> RunningOpenVpn<'_> {
        StockOpenVpn
            .start(&self.net.a, &self.client_file(false))
            .unwrap()
    }

    fn inner(&self) -> String {
        self.setup.inner4(1).to_string()
    }
}

fn present(file: &mut ConfigFile, identity: &Identity) {
    file.remove("cert").remove("key");
    file.block("cert", &identity.certificate);
    file.block("key", &identity.key);
}

fn login(setup: &mut Setup, password: &str) {
    let lines = format!("somebody\n{password}\n");
    setup.client.line("auth-user-pass login");
    setup.client.file("login", lines);
}

/// The clients that the management port lists, by name and outer address.
fn listed(port: &mut Management) -> Vec<String> {
    let lines = port.command("status 2").unwrap();
    let clients = lines.iter().filter(|it| it.starts_with("CLIENT_LIST,"));
    clients
        .map(|it| it.split(',').skip(1).take(2).collect::<Vec<_>>().join(" "))
        .collect()
}

/// After a renewal with a new password check, the server still lists the client. A second client with the same name
/// replaces it.
#[test]
fn a_client_that_renews_its_keys_stays_the_client_it_is() {
    if !ready() {
        return;
    }
    let office = Office::new(|setup| {
        setup.server.line(Management::DIRECTIVE);
        setup
            .server
            .line("auth-user-pass-verify /bin/true via-file");
        setup.server.line("reneg-sec 0");
        login(setup, "secret");
        setup.client.line("reneg-sec 2");
    });
    let server = office.server();
    let client = office.client();
    until("two changes of keys", || {
        server.said("new data channel keys") >= 2
    });
    let mut port = server.management().unwrap();
    let clients = listed(&mut port);
    assert_eq!(clients.len(), 1, "{clients:?}");
    assert!(clients[0].starts_with("client 192.168.1.1:"), "{clients:?}");
    // This client does not retry, so that the two do not evict each other for ever.
    let file = office.client_file(true);
    let _second = StockOpenVpn.start(&office.second, &file).unwrap();
    assert_eq!(server.said("will cause previous active sessions"), 1);
    drop(client);
    pings(&office.second, &office.inner(), 3);
    let clients = listed(&mut port);
    assert!(clients[0].starts_with("client 192.168.2.1:"), "{clients:?}");
}

/// Rejected clients learn no path and no error of the machine; the log has both.
#[test]
fn a_refused_client_is_told_nothing_of_the_machine() {
    if !ready() {
        return;
    }
    let office = Office::new(|setup| {
        setup
            .server
            .line("auth-user-pass-verify /bin/true via-file");
        setup.server.line("tmp-dir scratch");
        setup.server.file("scratch/nothing", "");
        login(setup, "secret");
    });
    let server = office.server();
    fs::remove_dir_all(server.directory().join("scratch")).unwrap();
    let mut client = StockOpenVpn
        .launch(&office.net.a, &office.client_file(false))
        .unwrap();
    client.wait_for_lines("AUTH_FAILED", 1).unwrap();
    assert_eq!(client.said("scratch"), 0);
    assert_eq!(client.said("No such file"), 0);
    until("a line of the log", || {
        server.said("scratch: No such file") == 1
    });
}

/// Every log line about a client names it: by address from the first packet on, and by common name once that is
/// verified. A certificate that a script refuses is never called valid.
#[test]
fn log_lines_name_their_client() {
    if !ready() {
        return;
    }
    let office = Office::new(|setup| {
        setup.server.line("verb 4").line("tls-verify /bin/true");
        setup.server.line("reneg-bytes 100");
    });
    let server = office.server();
    let client = office.client();
    pings(&office.net.a, &office.inner(), 3);
    until("a change of keys", || {
        server.said("new data channel keys") >= 1
    });
    client.stop().unwrap();
    until("the end of the session", || {
        server.said("the peer exited") == 1
    });
    let said = server.process.stdout();
    let mut lines = said.lines().skip_while(|it| !it.contains("Initial packet"));
    let end = |line: &&str| !line.contains("the peer exited");
    for line in lines.by_ref().take_while(end) {
        assert!(line.contains("192.168.1.1:"), "{line}");
    }
    for (text, name) in [
        ("TLS: Initial packet", " 192.168.1.1:"),
        ("VERIFY OK: depth=0, CN=client", " 192.168.1.1:"),
        ("Control Channel: TLSv1.3", " 192.168.1.1:"),
        ("Data Channel: cipher", " client/192.168.1.1:"),
        ("primary virtual IP", " client/192.168.1.1:"),
        ("new keys are negotiated", " client/192.168.1.1:"),
        ("new data channel keys", " client/192.168.1.1:"),
        ("the peer exited", " client/192.168.1.1:"),
    ] {
        let line = said.lines().find(|line| line.contains(text)).unwrap();
        assert!(line.contains(name), "{line}");
    }
    drop(server);

    let mut file = office.server_file();
    file.remove("tls-verify").line("tls-verify /bin/false");
    let server = millrace().start(&office.net.b, &file).unwrap();
    let mut client = StockOpenVpn
        .launch(&office.net.a, &office.client_file(false))
        .unwrap();
    client.wait_for_lines("AUTH_FAILED", 1).unwrap();
    until("why, in the log", || server.said("TLS Auth Error") >= 1);
    assert_eq!(server.said("VERIFY OK"), 0);
}

/// `tls-verify` runs in each handshake: a client that it starts to refuse is out at its next renewal.
#[test]
fn a_script_judges_the_certificate_in_each_handshake() {
    if !ready() {
        return;
    }
    let office = Office::new(|setup| {
        setup
            .server
            .file("verify.sh", "[ ! -e refused ] || exit 1\n");
        setup.server.words("tls-verify", ["/bin/sh verify.sh"]);
        setup.server.line("reneg-sec 0");
        setup.client.line("reneg-sec 2");
    });
    let server = office.server();
    let mut client = office.client();
    until("a change of keys", || {
        server.said("new data channel keys") >= 1
    });
    fs::write(server.directory().join("refused"), "").unwrap();
    client.wait_for_lines("AUTH_FAILED", 1).unwrap();
    assert_eq!(client.said(READY_LINE), 1);
}

/// A client's own file sets its address, the network behind it, and pushed options in place of the server's list.
/// Packets from any other source address are dropped.
#[test]
fn a_client_gets_what_its_own_file_says() {
    if !ready() {
        return;
    }
    let office = Office::new(|setup| {
        setup.server.line("client-config-dir ccd");
        setup.server.line("route 192.168.50.0 255.255.255.0");
        setup
            .server
            .words("push", ["route 192.168.91.0 255.255.255.0"]);
        let own = "ifconfig-push 10.8.0.77 255.255.255.0\niroute 192.168.50.0 255.255.255.0\n\
                   push-reset\npush \"topology subnet\"\npush \"route 192.168.90.0 255.255.255.0 10.8.0.1\"\n";
        setup.server.file("ccd/client", own);
        setup.server.file("ccd/closed", "disable\n");
    });
    let server = office.server();
    let client = office.client();
    // The IPv6 address comes from the pool.
    let mut fd0f = office.setup.server6().to_string();
    fd0f.pop();
    let addresses = [ip("10.8.0.77"), ip(&format!("{fd0f}1000"))];
    assert_eq!(client.addresses().unwrap(), addresses);
    usable(&office.net.a, &addresses[1].to_string());
    pings(&office.net.b, &addresses[1].to_string(), 3);
    let routes = office.net.a.output("ip", ["route"]).unwrap();
    assert!(routes.contains("192.168.90.0/24"), "{routes}");
    assert!(!routes.contains("192.168.91.0/24"), "{routes}");
    let a = &office.net.a;
    for address in ["192.168.50.1", "192.168.60.1"] {
        a.add_address("lo", ip(address), 32).unwrap();
        usable(a, address);
    }
    pings(&office.net.b, "192.168.50.1", 3);
    let inside = |host: &Host, address: &str| {
        let address = ip(address);
        host.run(|| UdpSocket::bind((address, 0)).unwrap()).unwrap()
    };
    let receiver = inside(&office.net.b, &office.inner());
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = receiver.local_addr().unwrap();
    for (from, text) in [("192.168.60.1", "stolen"), ("192.168.50.1", "own")] {
        let sender = inside(a, from);
        sender.send_to(text.as_bytes(), to).unwrap();
    }
    let mut buffer = [0; 16];
    let (length, from) = receiver.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"own");
    assert_eq!(from.ip(), ip("192.168.50.1"));

    let keys = credentials(KeyKind::Ecdsa);
    let mut file = office.client_file(true);
    present(
        &mut file,
        &keys
            .pki
            .issue("closed", lab::openvpn::Role::Client)
            .unwrap(),
    );
    let mut closed = StockOpenVpn.launch(&office.second, &file).unwrap();
    closed.wait_for_lines("AUTH_FAILED", 1).unwrap();
    assert_eq!(closed.said(READY_LINE), 0);
    until("a line of the log", || {
        server.said("client-config-dir disables it") == 1
    });
}

/// With room for one client, the second has to wait and connects when the first has gone.
#[test]
fn no_more_clients_come_in_than_max_clients_says() {
    if !ready() {
        return;
    }
    let office = Office::new(|setup| {
        setup.server.line("max-clients 1");
    });
    let server = office.server();
    let first = office.client();
    let keys = credentials(KeyKind::Ecdsa);
    let mut file = office.client_file(true);
    let other = keys.pki.issue("other", lab::openvpn::Role::Client).unwrap();
    present(&mut file, &other);
    // Time for a handshake on a busy machine, and for several attempts.
    file.line("hand-window 10").line("server-poll-timeout 10");
    let mut second = StockOpenVpn.launch(&office.second, &file).unwrap();
    until("a refusal", || {
        server.said("would exceed maximum number of clients") >= 1
    });
    pings(&office.net.a, &office.inner(), 3);
    assert_eq!(second.said(READY_LINE), 0);
    first.stop().unwrap();
    second.wait_until_ready(1).unwrap();
    pings(&office.second, &office.inner(), 3);
}

/// Scripts for the login and for client settings may take long: other clients connect meanwhile, and the scripts'
/// results apply in the end.
#[test]
fn scripts_may_decide_later() {
    if !ready() {
        return;
    }
    let login_script = "#!/bin/sh\n(until [ -e go ]; do sleep 0.1; done; echo 1 > \"$auth_control_file\") \
                        > /dev/null 2>&1 &\nexit 2\n";
    let connect = "#!/bin/sh\necho 2 > \"$client_connect_deferred_file\"\n\
                   (echo 'ifconfig-push 10.8.0.99 255.255.255.0' > \"$1\"\n\
                   echo 1 > \"$client_connect_deferred_file\") > /dev/null 2>&1 &\nexit 0\n";
    let office = Office::new(|setup| {
        setup
            .server
            .file("login.sh", login_script)
            .file("connect.sh", connect);
        setup
            .server
            .words("auth-user-pass-verify", ["/bin/sh login.sh", "via-env"]);
        setup.server.words("client-connect", ["/bin/sh connect.sh"]);
        login(setup, "secret");
    });
    let server = office.server();
    let mut client = StockOpenVpn
        .launch(&office.net.a, &office.client_file(false))
        .unwrap();
    until("a login that waits", || {
        server.said("VERIFY OK: depth=0") == 1
    });
    assert_eq!(client.said(READY_LINE), 0);
    fs::write(server.directory().join("go"), "").unwrap();
    client.wait_until_ready(1).unwrap();
    assert_eq!(client.addresses().unwrap()[0], ip("10.8.0.99"));
    pings(&office.net.a, &office.inner(), 3);
}

/// Four addresses for each client, as old Windows clients need.
#[test]
fn net30_gives_each_client_a_network_of_its_own() {
    if !ready() {
        return;
    }
    let office = Office::new(|setup| {
        setup.server.line("duplicate-cn");
    });
    let mut file = office.server_file();
    file.remove("topology").line("topology net30");
    let _server = millrace().start(&office.net.b, &file).unwrap();
    let first = office.client();
    let second = StockOpenVpn
        .start(&office.second, &office.client_file(true))
        .unwrap();
    for (client, address) in [(&first, "10.8.0.6"), (&second, "10.8.0.10")] {
        assert_eq!(client.addresses().unwrap()[0], ip(address));
        pings(client.host(), "10.8.0.1", 3);
        pings(&office.net.b, address, 3);
    }
}

/// The answer to a static challenge reaches the script beside the password.
#[test]
fn a_static_challenge_is_judged_by_the_script() {
    if !ready() {
        return;
    }
    // base64 of "secret" and "123456".
    let check = "#!/bin/sh\n[ \"$username $password\" = 'somebody SCRV1:c2VjcmV0:MTIzNDU2' ]\n";
    let office = Office::new(|setup| {
        setup.server.file("check", check);
        setup
            .server
            .words("auth-user-pass-verify", ["/bin/sh check", "via-env"]);
        setup
            .client
            .line("auth-user-pass")
            .line(Management::DIRECTIVE);
        setup
            .client
            .line("management-query-passwords")
            .line("auth-retry interact");
        setup.client.words("static-challenge", ["The code?", "1"]);
    });
    let server = office.server();
    let mut client = StockOpenVpn
        .launch(&office.net.a, &office.client_file(false))
        .unwrap();
    let mut port = until_some("the management port", || client.management().ok());
    for (code, refusals) in [("NjU0MzIx", 1), ("MTIzNDU2", 1)] {
        port.wait_for(">PASSWORD:Need 'Auth'").unwrap();
        port.command("username \"Auth\" somebody").unwrap();
        let password = format!("password \"Auth\" \"SCRV1:c2VjcmV0:{code}\"");
        port.command(&password).unwrap();
        until("a verdict", || {
            server.said("TLS Auth Error") == refusals || client.said(READY_LINE) > 0
        });
    }
    client.wait_until_ready(1).unwrap();
    assert_eq!(server.said("TLS Auth Error"), 1);
}

/// A code requested after the password: the user sees the question, the first answer is wrong, and the second script's
/// verdict on the next answer counts (`client-crresponse`).
#[test]
fn a_code_that_is_asked_for_later_is_judged_by_a_second_script() {
    if !ready() {
        return;
    }
    let ask = "#!/bin/sh\nprintf '60\\ncrtext\\nCR_TEXT:R,E:The code?\\n' > \"$auth_pending_file\"\nexit 2\n";
    let check = "#!/bin/sh\necho \"$username $(cat \"$1\")\" >> answers\n\
                 [ \"$(cat \"$1\")\" = MTIzNDU2 ] && echo 1 > \"$auth_control_file\"\nexit 0\n";
    let office = Office::new(|setup| {
        setup.server.file("ask", ask).file("check", check);
        setup
            .server
            .words("auth-user-pass-verify", ["/bin/sh ask", "via-env"])
            .words("client-crresponse", ["/bin/sh check"]);
        login(setup, "secret");
        setup
            .client
            .line(Management::DIRECTIVE)
            .line("push-peer-info")
            .line("setenv IV_SSO crtext");
    });
    let server = office.server();
    let mut client = StockOpenVpn
        .launch(&office.net.a, &office.client_file(false))
        .unwrap();
    let mut port = until_some("the management port", || client.management().ok());
    port.wait_for(">INFOMSG:CR_TEXT:R,E:The code?").unwrap();
    let answers = || fs::read_to_string(server.directory().join("answers")).unwrap_or_default();
    port.command("cr-response NjU0MzIx").unwrap();
    until("the first answer", || answers() == "somebody NjU0MzIx\n");
    assert_eq!(client.said(READY_LINE), 0);
    // The script judges one answer at a time: a further answer is dropped while the script runs.
    until("the second answer", || {
        port.command("cr-response MTIzNDU2").unwrap();
        answers().contains("MTIzNDU2")
    });
    client.wait_until_ready(1).unwrap();
    pings(&office.net.a, &office.inner(), 3);
}

/// Runs as distributions' services do: named `openvpn`, in the background, with a PID file, a log and scripts for its
/// interface.
#[test]
fn it_runs_as_a_service_does_under_the_name_openvpn() {
    if !ready() {
        return;
    }
    let script = "#!/bin/sh\necho \"$script_type $1 $4\" >> interface\n";
    let office = Office::new(|setup| {
        setup
            .server
            .words("up", ["/bin/sh script.sh"])
            .words("down", ["/bin/sh script.sh"]);
    });
    let directory = Directory::new();
    let program = directory.path().join("openvpn");
    symlink(PROGRAM, &program).unwrap();
    directory.file("script.sh", script);
    let file = directory.file("server.conf", &office.server_file().to_string());
    let exit = office
        .net
        .b
        .command(&program)
        .arg("--cd")
        .arg(directory.path())
        .arg("--config")
        .arg(file)
        .args(["--daemon", "service", "--writepid", "pid", "--log", "log"])
        .exit()
        .unwrap();
    assert!(exit.status.success(), "{exit:?}");
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    until("a server", || read("log").contains(READY_LINE));
    let pid = Pid::from_raw(read("pid").trim().parse().unwrap());
    let _client = office.client();
    pings(&office.net.a, &office.inner(), 3);
    assert_eq!(read("interface"), "up ovpn0 10.8.0.1\n");
    kill(pid, Signal::SIGTERM).unwrap();
    until("its end", || {
        !directory.path().join("pid").exists() && !office.net.b.has_interface("ovpn0").unwrap()
    });
    assert_eq!(
        read("interface"),
        "up ovpn0 10.8.0.1\ndown ovpn0 10.8.0.1\n"
    );
}
