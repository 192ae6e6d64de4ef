//! A server reloads its configuration, or ends and restarts; the tests check the effect on its clients.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lab::Host;
use lab::acceptance::openvpn::{Pair, credentials, millrace, ready};
use lab::acceptance::{Net, PATIENCE, PROGRAM, ip, pings, reaches, until};
use lab::openvpn::{ConfigFile, KeyKind, OpenVpn, READY_LINE, RunningOpenVpn, Setup, StockOpenVpn};
use nix::sys::signal::Signal;

/// Our server on B, whose file can change while it runs.
struct Office<'h> {
    net: &'h Net,
    setup: Setup,
    file: ConfigFile,
    server: RunningOpenVpn<'h>,
    programs: [Box<dyn OpenVpn>; 2],
}

impl<'h> Office<'h> {
    fn new(net: &'h Net, pair: Pair, setup: Setup) -> Self {
        let programs = pair.programs(false);
        let keys = credentials(KeyKind::Ecdsa);
        let at = net.link.b4();
        let file = setup.server_file(programs[0].as_ref(), keys, at).unwrap();
        Self {
            server: programs[0].start(&net.b, &file).unwrap(),
            net,
            setup,
            file,
            programs,
        }
    }

    fn client(&self) -> RunningOpenVpn<'h> {
        let (program, keys) = (self.programs[1].as_ref(), credentials(KeyKind::Ecdsa));
        let file = self.setup.client_file(program, keys, self.net.link.b4());
        program.start(&self.net.a, &file.unwrap()).unwrap()
    }

    fn inner(&self) -> String {
        self.setup.inner4(1).to_string()
    }

    /// Changes the file and tells the server to reload.
    fn reload(&mut self, change: impl FnOnce(&mut ConfigFile)) {
        change(&mut self.file);
        let path = self.server.directory().join("openvpn.conf");
        fs::write(path, self.file.to_string()).unwrap();
        self.server.process.signal(Signal::SIGHUP).unwrap();
    }
}

fn routes(host: &Host) -> String {
    host.output("ip", ["route"]).unwrap()
}

/// Adds and removes a branch and its network: no client reconnects, and no packet is lost.
#[test]
fn a_branch_comes_and_goes_without_an_outage() {
    if !ready() {
        return;
    }
    for pair in [Pair::Server, Pair::Both] {
        let net = Net::new();
        let mut setup = Setup::default();
        setup.server.line("client-config-dir ccd");
        setup.server.file("ccd/other", "");
        let mut office = Office::new(&net, pair, setup);
        let client = office.client();
        let inner = office.inner();
        pings(&net.a, &inner, 3);
        net.a.add_address("lo", ip("192.168.77.1"), 32).unwrap();

        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let traffic = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    pings(&net.a, &inner, 20);
                }
            });
            let own = office.server.directory().join("ccd/client");
            fs::write(&own, "iroute 192.168.77.0 255.255.255.0\n").unwrap();
            office.reload(|file| {
                file.line("route 192.168.77.0 255.255.255.0");
            });
            until("the route", || {
                routes(&net.b).contains("\n192.168.77.0/24 ")
            });
            reaches(&net.b, "192.168.77.1");
            pings(&net.b, "192.168.77.1", 20);
            // Removes the branch again.
            fs::remove_file(own).unwrap();
            office.reload(|file| {
                file.remove("route");
            });
            until("no route", || {
                routes(&net.b).contains("unreachable 192.168.77.0/24")
            });
            // A file that cannot be parsed changes nothing.
            office.reload(|file| {
                file.line("no-such-directive-here");
            });
            until("a refusal", || {
                office.server.said("the server keeps its old configuration") == 1
            });
            stop.store(true, Ordering::Relaxed);
            traffic.join().unwrap();
        });
        assert_eq!(client.said(READY_LINE), 1, "{pair:?}");
        assert_eq!(office.server.said(READY_LINE), 1, "{pair:?}");
    }
}

/// Clients reconnect at once by themselves for new pushed options; the server process stays.
#[test]
fn clients_connect_again_for_what_they_are_pushed() {
    if !ready() {
        return;
    }
    for pair in [Pair::Server, Pair::Both] {
        let net = Net::new();
        let mut office = Office::new(&net, pair, Setup::default());
        let mut client = office.client();
        office.reload(|file| {
            file.words("push", ["route 192.168.78.0 255.255.255.0"]);
        });
        client.wait_until_ready(2).unwrap();
        until("the route", || routes(&net.a).contains("192.168.78.0/24"));
        reaches(&net.a, &office.inner());
        assert_eq!(office.server.said(READY_LINE), 1, "{pair:?}");
    }
}

/// A server that restarts, by SIGHUP or as a new process, admits no client while it ends: its clients return soon, and
/// do not wait for a server that is gone.
#[test]
fn clients_are_not_let_in_by_a_server_that_goes() {
    if !ready() {
        return;
    }
    for pair in [Pair::Server, Pair::Both] {
        let net = Net::new();
        let mut setup = Setup::default();
        setup.server.line("explicit-exit-notify 1");
        let mut office = Office::new(&net, pair, setup);
        let mut client = office.client();
        let inner = office.inner();
        pings(&net.a, &inner, 3);
        // Settings that affect existing sessions cannot change under them.
        office.reload(|file| {
            file.line("reneg-sec 1000");
        });
        office.server.wait_until_ready(2).unwrap();
        client.wait_until_ready(2).unwrap();
        reaches(&net.a, &inner);
        // Other commands still find the server by its file.
        let listed = net.b.output(PROGRAM, ["list"]).unwrap();
        let path = office.server.directory().join("openvpn.conf");
        let path = path.to_str().unwrap();
        let line = listed.lines().find(|it| it.ends_with(path));
        assert!(line.is_some_and(|it| it.contains("  up  ")), "{listed}");
        office.server.process.signal(Signal::SIGTERM).unwrap();
        until("the end of the server", || {
            office.server.process.try_wait().unwrap().is_some()
        });
        let program = office.programs[0].as_ref();
        let again = program.start(&net.b, &office.file).unwrap();
        client.wait_until_ready(3).unwrap();
        reaches(&net.a, &inner);
        assert_eq!(client.said("TLS key negotiation failed"), 0, "{pair:?}");
        assert_eq!(client.said("Inactivity timeout"), 0, "{pair:?}");
        drop(again);
    }
}

/// A file that breaks between the check and the restart does not end a client, either.
#[test]
fn a_client_whose_file_is_spoilt_after_a_reload_goes_on() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let keys = credentials(KeyKind::Ecdsa);
    let mut setup = Setup::default();
    let file = setup
        .server_file(&StockOpenVpn, keys, net.link.b4())
        .unwrap();
    let _server = StockOpenVpn.start(&net.b, &file).unwrap();
    // The old tunnel ends after the new file has been checked.
    setup.client.line("script-security 2");
    setup.client.words("down", ["/bin/sh spoil.sh"]);
    setup
        .client
        .file("spoil.sh", "echo no-such-directive-here >> openvpn.conf\n");
    let file = setup.client_file(&millrace(), keys, net.link.b4()).unwrap();
    let mut client = millrace().start(&net.a, &file).unwrap();
    let inner = setup.inner4(1).to_string();
    pings(&net.a, &inner, 3);
    client.process.signal(Signal::SIGHUP).unwrap();
    client.wait_until_ready(2).unwrap();
    pings(&net.a, &inner, 3);
    assert_eq!(client.said("restarts with its old configuration"), 1);
}

/// A profile that does not fit the settings of now, or a faulty settings file, does not end a client.
#[test]
fn a_client_whose_settings_cannot_be_used_goes_on_as_it_was() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let keys = credentials(KeyKind::Ecdsa);
    let mut setup = Setup::default();
    let file = setup
        .server_file(&StockOpenVpn, keys, net.link.b4())
        .unwrap();
    let _server = StockOpenVpn.start(&net.b, &file).unwrap();
    setup.client.line("shaper 10000000");
    let file = setup.client_file(&millrace(), keys, net.link.b4()).unwrap();
    let mut client = millrace().start(&net.a, &file).unwrap();
    let inner = setup.inner4(1).to_string();
    pings(&net.a, &inner, 3);
    let set = |text: &'static str| {
        let written = net.a.run(move || {
            fs::create_dir_all("/etc/millrace")?;
            fs::write("/etc/millrace/millrace.toml", text)
        });
        written.unwrap().unwrap();
    };
    let faulty = ["[dataplane]\nkind = \"kernel\"\n", "[dataplane"];
    for (times, text) in (1..).zip(faulty) {
        set(text);
        client.process.signal(Signal::SIGHUP).unwrap();
        client
            .wait_for_lines("the tunnel keeps its old configuration", times)
            .unwrap();
        pings(&net.a, &inner, 3);
    }
    assert_eq!(
        client.said("shaper: the kernel's data plane does not limit rates"),
        1
    );
    set("");
    client.process.signal(Signal::SIGHUP).unwrap();
    client.wait_until_ready(2).unwrap();
    pings(&net.a, &inner, 3);
}

/// A typo in its file does not end a client: it continues, and the user who asked for the reload sees the error.
#[test]
fn a_client_whose_file_cannot_be_used_goes_on_as_it_was() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let keys = credentials(KeyKind::Ecdsa);
    let setup = Setup::default();
    let file = setup
        .server_file(&StockOpenVpn, keys, net.link.b4())
        .unwrap();
    let _server = StockOpenVpn.start(&net.b, &file).unwrap();
    let file = setup.client_file(&millrace(), keys, net.link.b4()).unwrap();
    let mut client = millrace().start(&net.a, &file).unwrap();
    let inner = setup.inner4(1).to_string();
    pings(&net.a, &inner, 3);
    let path = client.directory().join("openvpn.conf");
    let pid = client.process.id().to_string();
    let reload = || {
        let command = net
            .a
            .command(PROGRAM)
            .args(["reload", "--pid", &pid])
            .spawn();
        command.unwrap().wait_at_most(PATIENCE).unwrap()
    };
    let mut bad = Vec::new();
    for (line, what) in [
        ("no-such-directive-here", "no-such-directive-here"),
        ("tls-auth nowhere.key", "nowhere.key"),
    ] {
        bad.push(what);
        let mut other = file.clone();
        fs::write(&path, other.line(line).to_string()).unwrap();
        // The command checks the file and does not signal the process; after a bare signal the process checks it
        // itself.
        let exit = reload();
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        assert!(exit.stderr.contains(what), "{exit:?}");
        assert_eq!(
            client.said("the tunnel keeps its old configuration"),
            bad.len() - 1
        );
        client.process.signal(Signal::SIGHUP).unwrap();
        client
            .wait_for_lines("the tunnel keeps its old configuration", bad.len())
            .unwrap();
        pings(&net.a, &inner, 3);
    }
    assert_eq!(client.said(READY_LINE), 1);
    fs::write(&path, file.to_string()).unwrap();
    let exit = reload();
    assert!(exit.status.success(), "{exit:?}");
    client.wait_until_ready(2).unwrap();
    pings(&net.a, &inner, 3);
}
