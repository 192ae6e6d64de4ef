//! Whole clients and servers in this process, over loopback and without an interface: no rights are needed.
//!
//! Each is told what to do, and tells how it is, at its management port, which calls the test (`management-client`): what
//! comes there is waited for, and nothing else.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

use lab::openvpn::{Directory, KeyKind, Management, Pki, Role};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A program that has not ended.
struct Running {
    thread: JoinHandle<String>,
    listener: UnixListener,
    management: Management,
}

/// The two ends share the process' log and its signals: one pair at a time.
fn exclusive() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    fn start(directory: &Directory, name: &str, config: &str) -> Self {
        let socket = directory.join(format!("{name}.sock"));
        let listener = UnixListener::bind(&socket).unwrap();
        let config = format!(
            "{config}management {} unix\nmanagement-client\nmanagement-hold\n",
            socket.display()
        );
        let file = directory.file(&format!("{name}.conf"), config).unwrap();
        let thread = thread::spawn(move || {
            let status = service::openvpn::main(&[file.display().to_string()]);
            // If it never called, that it has ended must be heard all the same.
            drop(UnixStream::connect(socket));
            format!("{status:?}")
        });
        let management = Management::accept(&listener).unwrap();
        let mut running = Self {
            thread,
            listener,
            management,
        };
        running.begins();
        running
    }

    /// It waits for the management client (`management-hold`), which misses nothing so.
    fn begins(&mut self) {
        self.command("state on");
        self.command("hold off");
        self.command("hold release");
    }

    /// Waits until it says that it is in this state.
    fn wait_for_state(&mut self, state: &str) -> String {
        loop {
            let line = self.management.wait_for(">STATE:").unwrap();
            if line.split(',').nth(1) == Some(state) {
                return line;
            }
        }
    }

    /// It reads its configuration again, and calls the management client anew.
    fn comes_back(&mut self) {
        self.management = Management::accept(&self.listener).unwrap();
        self.begins();
    }

    fn command(&mut self, command: &str) -> Vec<String> {
        self.management.command(command).unwrap()
    }

    fn end(mut self) {
        self.command("signal SIGTERM");
        drop(self.management);
        let status = self.thread.join().unwrap();
        assert_eq!(status, format!("{:?}", ExitCode::SUCCESS));
    }
}

fn identity(pki: &Pki, client: bool) -> String {
    let identity = if client { pki.client() } else { pki.server() };
    format!(
        "<ca>\n{}</ca>\n<cert>\n{}</cert>\n<key>\n{}</key>\n",
        pki.ca(),
        identity.certificate,
        identity.key
    )
}

fn free_port(proto: &str) -> u16 {
    let address = if proto.starts_with("tcp") {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr()
    } else {
        UdpSocket::bind("127.0.0.1:0").unwrap().local_addr()
    };
    address.unwrap().port()
}

fn server(pki: &Pki, proto: &str, port: u16, directory: &Directory) -> String {
    format!(
        "dev null\nproto {proto}\nlocal 127.0.0.1\nport {port}\ndh none\ntopology subnet\nverb 4\n\
         server 10.8.0.0 255.255.255.0\nserver-ipv6 fd00:8::/64\nclient-to-client\nkeepalive 1 10\n\
         push \"route 192.168.7.0 255.255.255.0\"\npush \"dhcp-option DNS 10.8.0.1\"\n\
         status {status} 1\nwritepid {pid}\nreneg-sec 3600\n{identity}",
        status = directory.join("server.status").display(),
        pid = directory.join("server.pid").display(),
        identity = identity(pki, false),
    )
}

fn client(pki: &Pki, proto: &str, port: u16) -> String {
    let proto = proto.replace("-server", "-client");
    format!(
        "client\ndev null\nproto {proto}\nremote 127.0.0.1 {port}\nnobind\nverb 4\n\
         remote-cert-tls server\nconnect-retry 1 1\n{}",
        identity(pki, true),
    )
}

fn pki() -> Option<Pki> {
    lab::require(Pki::new(KeyKind::Ecdsa))
}

/// The clients that a server tells of.
fn clients(server: &mut Running) -> Vec<String> {
    let lines = server.command("status 3");
    let clients = lines.into_iter();
    clients
        .filter(|it| it.starts_with("CLIENT_LIST\t"))
        .collect()
}

/// The threads of this process that do handshakes and have run for a tenth of a millisecond at least.
fn handshake_threads() -> HashSet<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
    let worked = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.join("comm")).ok()?;
        let times = fs::read_to_string(task.join("schedstat")).ok()?;
        let nanoseconds: u64 = times.split_whitespace().next()?.parse().ok()?;
        let is_one = name.trim() == "handshake" && nanoseconds > 100_000;
        is_one.then(|| task.display().to_string())
    });
    worked.collect()
}

/// A server that goes says so to all, and all come again at the same moment.
#[test]
fn handshakes_of_clients_that_come_at_once_are_done_by_several_threads() {
    const CLIENTS: usize = 24;
    let _one = exclusive();
    let processors = thread::available_parallelism().unwrap().get();
    let several = (processors > 1).then_some(()).ok_or("several processors");
    let Some(()) = lab::require(several) else {
        return;
    };
    let Some(pki) = pki() else { return };
    let directory = Directory::new().unwrap();
    let port = free_port("udp4");
    let mut config = server(&pki, "udp4", port, &directory);
    config.push_str("duplicate-cn\nexplicit-exit-notify 1\npersist-key\npersist-tun\n");
    // Fewer than there are clients: those that wait are answered when others have come in.
    config.push_str("connect-freq-initial 4 60\n");
    let mut server = Running::start(&directory, "server", &config);
    server.wait_for_state("CONNECTED");
    let config = client(&pki, "udp4", port);
    let mut all: Vec<Running> = (0..CLIENTS)
        .map(|number| Running::start(&directory, &format!("client{number}"), &config))
        .collect();
    let mut seen = HashSet::new();
    for round in 0.. {
        for client in &mut all {
            client.wait_for_state("CONNECTED");
            seen.extend(handshake_threads());
        }
        assert_eq!(clients(&mut server).len(), CLIENTS);
        assert!(seen.len() <= processors * (round + 1));
        // How many find no thread that is idle is the scheduler's choice.
        if round > 0 && seen.len() > 1 {
            break;
        }
        assert!(round < 20, "one thread did all");
        server.command("signal SIGUSR1");
    }
    for client in all {
        client.end();
    }
    server.end();
}

#[test]
fn a_client_comes_in_over_udp_and_everything_is_asked_of_both() {
    let _one = exclusive();
    let Some(pki) = pki() else { return };
    let directory = Directory::new().unwrap();
    let port = free_port("udp4");
    let config = server(&pki, "udp4", port, &directory);
    let mut server = Running::start(&directory, "server", &config);
    server.wait_for_state("CONNECTED");
    let mut client = Running::start(&directory, "client", &client(&pki, "udp4", port));
    let line = client.wait_for_state("CONNECTED");
    assert!(line.contains(",SUCCESS,"), "{line}");

    let there = clients(&mut server);
    assert_eq!(there.len(), 1);
    assert!(there[0].contains("\tclient\t"), "{}", there[0]);
    assert!(there[0].contains("\t10.8.0.2\t"), "{}", there[0]);
    for command in [
        "version",
        "pid",
        "help",
        "log 20",
        "state all",
        "verb",
        "mute",
        "echo all",
    ] {
        client.command(command);
        server.command(command);
    }
    assert!(server.command("load-stats")[0].contains("nclients=1"));
    let status = client.command("status");
    assert!(status.iter().any(|it| it.starts_with("TUN/TAP read bytes")));
    server.command("bytecount 1");
    assert!(server.management.wait_for(">BYTECOUNT_CLI:").is_ok());
    client.command("bytecount 1");
    assert!(client.management.wait_for(">BYTECOUNT:").is_ok());
    server.command("signal SIGUSR2");
    client.command("signal SIGUSR2");

    // Sent away by the server, it comes again; and once more when it is asked to.
    server.command("kill client");
    client.wait_for_state("CONNECTED");
    client.command("signal SIGUSR1");
    client.wait_for_state("RECONNECTING");
    client.wait_for_state("CONNECTED");
    // A client begins anew with what it reads.
    client.command("signal SIGHUP");
    client.comes_back();
    client.wait_for_state("CONNECTED");
    assert!(fs::metadata(directory.join("server.status")).is_ok());
    client.end();
    server.end();
    assert!(fs::metadata(directory.join("server.pid")).is_err());
}

#[test]
fn scripts_passwords_and_files_of_clients_decide_over_tcp() {
    let _one = exclusive();
    let Some(pki) = pki() else { return };
    let directory = Directory::new().unwrap();
    let port = free_port("tcp");
    let script = |name: &str, body: &str| {
        let log = directory.join(format!("{name}.ran"));
        let text = format!(
            "#!/bin/sh\necho \"$script_type $common_name $*\" >>{}\n{body}\n",
            log.display()
        );
        let path = directory.file(&format!("{name}.sh"), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
        path.display().to_string()
    };
    // What a script has noted, once that is in it: nothing waits for `learn-address` and its kin.
    let ran = |name: &str, wanted: &str| {
        let file = directory.join(format!("{name}.ran"));
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let noted = fs::read_to_string(&file).unwrap_or_default();
            if noted.contains(wanted) || Instant::now() >= end {
                return noted;
            }
            thread::sleep(Duration::from_millis(5));
        }
    };
    fs::create_dir(directory.join("ccd")).unwrap();
    directory
        .file(
            "ccd/client",
            "ifconfig-push 10.8.0.77 255.255.255.0\niroute 192.168.99.0 255.255.255.0\n",
        )
        .unwrap();
    let mut config = server(&pki, "tcp4-server", port, &directory);
    write!(
        config,
        "script-security 3\nauth-user-pass-verify {verify} via-file\nclient-connect {connect}\n\
         client-disconnect {disconnect}\nlearn-address {learn}\ntls-verify {tls}\n\
         client-config-dir {ccd}\nroute 192.168.99.0 255.255.255.0\nauth-gen-token\nmax-clients 5\n\
         ifconfig-pool-persist {pool} 1\n",
        verify = script("verify", "grep -q '^secret$' \"$1\""),
        connect = script(
            "connect",
            "echo 'push \"route 192.168.8.0 255.255.255.0\"' >\"$1\""
        ),
        disconnect = script("disconnect", ""),
        learn = script("learn", ""),
        tls = script("tls", ""),
        ccd = directory.join("ccd").display(),
        pool = directory.join("pool").display(),
    )
    .unwrap();
    let mut server = Running::start(&directory, "server", &config);
    server.wait_for_state("CONNECTED");

    let with_password = |password: &str| {
        let login = directory.file(&format!("{password}.login"), format!("user\n{password}\n"));
        let login = login.unwrap().display().to_string();
        format!(
            "{}auth-user-pass {login}\nauth-retry none\n",
            client(&pki, "tcp4-server", port)
        )
    };
    let mut welcome = Running::start(&directory, "welcome", &with_password("secret"));
    welcome.wait_for_state("CONNECTED");
    let there = clients(&mut server);
    assert!(
        there.iter().any(|it| it.contains("\t10.8.0.77\t")),
        "{there:?}"
    );
    let status = server.command("status 3");
    assert!(
        status.iter().any(|it| it.contains("192.168.99.0")),
        "{status:?}"
    );
    welcome.end();
    for (name, wanted) in [
        ("verify", "user-pass-verify client"),
        ("connect", "client-connect client"),
        ("learn", "learn-address"),
        ("tls", "tls-verify"),
    ] {
        let noted = ran(name, wanted);
        assert!(noted.contains(wanted), "{name}: {noted}");
    }

    let mut refused = Running::start(&directory, "refused", &with_password("wrong"));
    let said = refused.management.wait_for(">PASSWORD:Verification Failed");
    assert!(said.is_ok());
    drop(refused.management);
    assert_eq!(
        refused.thread.join().unwrap(),
        format!("{:?}", ExitCode::FAILURE)
    );

    // Its clients' departure is told before it ends.
    server.end();
    let wanted = "client-disconnect client";
    assert!(ran("disconnect", wanted).contains(wanted));
}

#[test]
fn a_server_that_reads_again_keeps_its_clients_where_it_can() {
    let _one = exclusive();
    let Some(pki) = pki() else { return };
    let directory = Directory::new().unwrap();
    let port = free_port("udp4");
    let list = directory.file("crl.pem", pki.revoke(&[]).unwrap()).unwrap();
    let config = format!(
        "{}crl-verify {}\n",
        server(&pki, "udp4", port, &directory),
        list.display()
    );
    let mut server = Running::start(&directory, "server", &config);
    server.wait_for_state("CONNECTED");
    let second = pki.issue("second", Role::Client).unwrap();
    let of_second = format!(
        "client\ndev null\nproto udp4\nremote 127.0.0.1 {port}\nnobind\nverb 3\nconnect-retry 1 1\n\
         explicit-exit-notify 1\n<ca>\n{}</ca>\n<cert>\n{}</cert>\n<key>\n{}</key>\n",
        pki.ca(),
        second.certificate,
        second.key
    );
    let mut first = Running::start(&directory, "first", &client(&pki, "udp4", port));
    let mut second_client = Running::start(&directory, "second", &of_second);
    first.wait_for_state("CONNECTED");
    second_client.wait_for_state("CONNECTED");
    assert_eq!(clients(&mut server).len(), 2);

    // A route more: no client has to come again.
    let socket = directory.join("server.sock");
    let more = format!(
        "{config}route 192.168.50.0 255.255.255.0\nmanagement {} unix\nmanagement-client\nmanagement-hold\n",
        socket.display()
    );
    directory.file("server.conf", more).unwrap();
    server.command("signal SIGHUP");
    assert_eq!(clients(&mut server).len(), 2);

    // A certificate is revoked: it comes in no more.
    directory
        .file("crl.pem", pki.revoke(&[&second]).unwrap())
        .unwrap();
    server.command("kill second");
    second_client.wait_for_state("RECONNECTING");
    second_client.command("signal SIGTERM");
    drop(second_client.management);
    second_client.thread.join().unwrap();
    assert_eq!(clients(&mut server).len(), 1);
    first.end();
    server.end();
}

#[test]
fn keys_are_made_and_passwords_are_asked_of_the_management_client() {
    let _one = exclusive();
    let Some(pki) = pki() else { return };
    let directory = Directory::new().unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    let main = |arguments: &[&str]| {
        let arguments: Vec<_> = arguments.iter().map(|&it| it.to_owned()).collect();
        format!("{:?}", service::openvpn::main(&arguments))
    };
    let (done, failed) = (
        format!("{:?}", ExitCode::SUCCESS),
        format!("{:?}", ExitCode::FAILURE),
    );
    for list in [
        "--show-ciphers",
        "--show-digests",
        "--show-tls",
        "--show-groups",
    ] {
        assert_eq!(main(&[list]), done, "{list}");
    }
    for other in ["--help", "--version", "--no-such-option"] {
        assert_eq!(main(&[other]), failed, "{other}");
    }
    let (of_server, of_client) = (path("v2.server"), path("v2.client"));
    assert_eq!(main(&["--genkey", "tls-crypt-v2-server", &of_server]), done);
    let wrapped = [
        "--tls-crypt-v2",
        &of_server,
        "--genkey",
        "tls-crypt-v2-client",
        &of_client,
    ];
    assert_eq!(main(&wrapped), done);
    assert_eq!(main(&["--genkey", "secret", &path("static")]), done);
    assert_eq!(main(&["--genkey", "auth-token", &path("token")]), done);
    // One that is there is kept.
    assert_eq!(main(&["--genkey", "secret", &of_server]), failed);

    let port = free_port("udp4");
    let verify =
        "#!/bin/sh\ntest \"$username\" = user && grep -q '^SCRV1:' <<EOF\n$password\nEOF\n";
    let verify = directory.file("verify.sh", verify).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&verify, mode).unwrap();
    let config = format!(
        "{}tls-crypt-v2 {of_server}\nscript-security 3\nauth-user-pass-verify {} via-env\n\
         auth-gen-token 3600\nauth-gen-token-secret {}\ndata-ciphers CHACHA20-POLY1305\n\
         verify-client-cert require\n",
        server(&pki, "udp4", port, &directory),
        verify.display(),
        path("token"),
    );
    let mut server = Running::start(&directory, "server", &config);
    server.wait_for_state("CONNECTED");
    let key = pki.encrypted_key(pki.client(), "of the key").unwrap();
    let config = format!(
        "client\ndev null\nproto udp4\nremote 127.0.0.1 {port}\nnobind\nverb 4\n\
         remote-cert-tls server\nverify-x509-name server name\nauth-user-pass\n\
         static-challenge \"Which number?\" 1\nmanagement-query-passwords\n\
         tls-crypt-v2 {of_client}\n<ca>\n{}</ca>\n<cert>\n{}</cert>\n<key>\n{key}</key>\n",
        pki.ca(),
        pki.client().certificate,
    );
    let mut client = Running::start(&directory, "client", &config);
    let asked = client.management.wait_for(">PASSWORD:Need 'Private Key'");
    assert!(asked.is_ok());
    client.command("password \"Private Key\" \"of the key\"");
    let asked = client.management.wait_for(">PASSWORD:Need 'Auth'").unwrap();
    assert!(asked.contains("SC:1,Which number?"), "{asked}");
    client.command("username \"Auth\" user");
    // "secret" and "42", as a management client has to put them.
    client.command("password \"Auth\" \"SCRV1:c2VjcmV0:NDI=\"");
    client.wait_for_state("CONNECTED");
    let there = clients(&mut server);
    assert!(there[0].contains("CHACHA20-POLY1305"), "{there:?}");
    // With a token nothing is asked for again.
    client.command("signal SIGUSR1");
    client.wait_for_state("RECONNECTING");
    client.wait_for_state("CONNECTED");
    client.end();
    server.end();
}
