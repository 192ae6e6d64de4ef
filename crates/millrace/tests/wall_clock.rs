//! A machine whose clock is wrong when the tunnel starts, and is set later.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use lab::acceptance::{
    A4, A6, B4, B6, Directory, Net, PATIENCE, PORT_A, PORT_B, PROGRAM, WG, interface, ip, millrace,
    openvpn, peer, pings, reaches, ready, status_of, until,
};
use lab::load::{PingOptions, ping};
use lab::peer::{Keys, PeerOptions, WgPeer, WireGuardPeer};
use lab::{Host, HostCommand, Process, tools};

/// The file that keeps the time across restarts.
const FLOOR: &str = "/var/lib/millrace/clock";

/// A clock for one program, with an offset in seconds.
struct Clock {
    directory: Directory,
    library: PathBuf,
}

impl Clock {
    fn new() -> Self {
        let directory = Directory::new();
        let source = directory.file("clock.c", include_str!("data/clock.c"));
        let library = directory.path().join("clock.so");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(made.success());
        let clock = Self { directory, library };
        clock.set(0);
        clock
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("seconds")
    }

    fn set(&self, seconds: i64) {
        // Replaces the file atomically, because a program may be reading it.
        let new = self.directory.file("new", &seconds.to_string());
        fs::rename(new, self.file()).unwrap();
    }

    fn options(&self) -> PeerOptions {
        let pair = |name: &str, path: PathBuf| (name.to_owned(), path.display().to_string());
        PeerOptions {
            environment: vec![
                pair("LD_PRELOAD", self.library.clone()),
                pair("TEST_CLOCK", self.file()),
            ],
            ..PeerOptions::default()
        }
    }
}

/// A router without a battery-backed clock starts its tunnel before it knows the time. With the time it keeps on disk,
/// its peer accepts it at once. Without that, the peer takes its handshakes for replays, and the tunnel comes up by
/// itself once the clock is right.
#[test]
fn a_tunnel_that_starts_before_its_clock_is_set_comes_up() {
    if !ready() {
        return;
    }
    if lab::require(tools::find("cc")).is_none() {
        return;
    }
    let (net, clock) = (Net::new(), Clock::new());
    let (keys_a, keys_b) = (
        Keys::generate(&net.a).unwrap(),
        Keys::generate(&net.b).unwrap(),
    );
    let b = millrace()
        .start(&net.b, WG, &PeerOptions::default())
        .unwrap();
    let a_of_b = WgPeer::new(&keys_a.public).allow(ip(A4), 32);
    b.configure(&interface(&keys_b, PORT_B, vec![a_of_b]))
        .unwrap();
    b.bring_up(&[(ip(B4), 24), (ip(B6), 64)], 1420).unwrap();
    let start = || {
        let a = millrace().start(&net.a, WG, &clock.options()).unwrap();
        let b_of_a = WgPeer::new(&keys_b.public)
            .at((net.link.b4(), PORT_B).into())
            .allow(ip(B4), 32);
        a.configure(&interface(&keys_a, PORT_A, vec![b_of_a]))
            .unwrap();
        a.bring_up(&[(ip(A4), 24), (ip(A6), 64)], 1420).unwrap();
        a
    };
    let a = start();
    reaches(&net.a, B4);
    a.stop().unwrap();

    clock.set(-1_000_000_000);
    let a = start();
    reaches(&net.a, B4);
    a.stop().unwrap();

    net.a.run(|| fs::remove_file(FLOOR)).unwrap().unwrap();
    let a = start();
    until("two initiations", || {
        ping(&net.a, ip(B4), &PingOptions::count(1)).unwrap();
        peer(&a, &keys_b).sent >= 2 * 148
    });
    assert_eq!(peer(&a, &keys_b).received, 0);

    clock.set(0);
    reaches(&net.a, B4);
    pings(&net.a, B4, 2);
    // The status shows people the corrected time.
    let shaken = peer(&a, &keys_b).latest_handshake.unwrap();
    assert!(shaken.elapsed().unwrap().as_secs() < 1_000);
}

const DAY: i64 = 86_400;

/// The keys of docs/openvpn-server.md, whose server's certificate and list end after 825 days.
const KEYS: &str = "
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj '/CN=Office CA' -keyout ca.key -out ca.crt
    sign() {
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj \"/CN=$1\" -keyout $1.key -out $1.csr
        printf 'keyUsage=digitalSignature\\nextendedKeyUsage=%s\\n' $2 > $1.ext
        openssl x509 -req -in $1.csr -CA ca.crt -CAkey ca.key -days $3 -extfile $1.ext \
            -set_serial 0x$(openssl rand -hex 7) -out $1.crt
    }
    sign server serverAuth 825
    sign ours clientAuth 3650
    sign stock clientAuth 3650
    printf '[ca]\\ndefault_ca = o\\n[o]\\ndatabase = index.txt\\ncertificate = ca.crt\\nprivate_key = ca.key\\n' > ca.cnf
    printf 'default_md = sha256\\ndefault_crl_days = 825\\n' >> ca.cnf
    touch index.txt
    openssl ca -config ca.cnf -gencrl -out crl.pem";

const OFFICE: &str = "dev tun0\ntopology subnet\nserver 10.8.0.0 255.255.255.0\nca ca.crt\ncert server.crt\n\
    key server.key\ndh none\nremote-cert-tls client\ncrl-verify crl.pem\nkeepalive 1 10\nreneg-sec 0\nverb 3\n";

/// An office and its branches, whose clocks are moved together.
struct Office {
    net: Net,
    clock: Clock,
    files: Directory,
}

impl Office {
    fn new() -> Self {
        let office = Self {
            net: Net::new(),
            clock: Clock::new(),
            files: Directory::new(),
        };
        let made = office.command(&office.net.b, KEYS).exit().unwrap();
        assert!(made.status.success(), "{made:?}");
        office.files.file("office.conf", OFFICE);
        for name in ["ours", "stock"] {
            let lines = format!(
                "client\ndev {name}\ndev-type tun\nremote {} 1194\nnobind\nca ca.crt\ncert {name}.crt\nkey {name}.key\n\
                 remote-cert-tls server\nverify-x509-name server name\nreneg-sec 4\nroute-nopull\nverb 3\n",
                office.net.link.b4()
            );
            office.files.file(&format!("{name}.conf"), &lines);
        }
        office
    }

    /// A shell's command in the directory of the files, by the moved clock.
    fn command<'h>(&self, host: &'h Host, script: &str) -> HostCommand<'h> {
        let script = format!("cd {}; {script}", self.files.path().display());
        let mut command = host.command("sh").args(["-e", "-c", &script]);
        for (name, value) in self.clock.options().environment {
            command = command.env(name, value);
        }
        command
    }

    /// Runs a command of Millrace at the office; returns what it says.
    fn says(&self, arguments: &str) -> String {
        let script = format!("{PROGRAM} {arguments}");
        let exit = self.command(&self.net.b, &script).exit().unwrap();
        exit.stdout + &exit.stderr
    }

    fn start(&self, host: &Host, script: &str) -> Process {
        self.command(host, &format!("exec {script}"))
            .spawn()
            .unwrap()
    }

    /// The clients that are connected, and since when.
    fn clients(&self) -> Vec<(String, Option<u64>)> {
        let status = status_of(&self.net.b, "tun0");
        let peers = status["peers"].as_array().cloned().unwrap_or_default();
        let clients = peers.iter();
        let mut all: Vec<_> = clients
            .map(|it| (it["name"].to_string(), it["connected_unix"].as_u64()))
            .collect();
        all.sort();
        all
    }

    fn warnings(&self) -> String {
        status_of(&self.net.b, "tun0")["warnings"].to_string()
    }
}

/// Waits until a client has renewed its keys twice.
fn renews(client: &Process) {
    let handshakes = || client.stdout().matches("Control Channel: TLSv1").count();
    let before = handshakes();
    until("two renewals of keys", || handshakes() >= before + 2);
}

/// An office of the page nears the end of its certificate and list. It warns, and `server renew` renews both: its
/// clients stay, the stock program's too, and others come in when the earlier ones have ended.
#[test]
fn an_office_is_renewed_while_its_clients_stay() {
    if !openvpn::ready() || lab::require(tools::find("cc")).is_none() {
        return;
    }
    let office = Office::new();
    let (branch, at) = (&office.net.a, office.files.path().display());
    office.clock.set(790 * DAY);
    assert!(!office.says("doctor").contains("expiry:"));

    office.clock.set(800 * DAY);
    let script = format!("{PROGRAM} openvpn --cd {at} --config office.conf");
    let mut server = office.start(&office.net.b, &script);
    let is_up = |line: &str| line.ends_with("Initialization Sequence Completed");
    server
        .wait_for_line("a server that is up", PATIENCE, is_up)
        .unwrap();
    let ours = office.start(branch, &format!("{PROGRAM} openvpn --config ours.conf"));
    let stock = office.start(branch, "openvpn --config stock.conf");
    until("both clients", || office.clients().len() == 2);
    let before = office.clients();
    let ends = || {
        let (office, branch) = (status_of(&office.net.b, "tun0"), status_of(branch, "ours"));
        [&office, &branch["peers"][0]].map(|it| it["expires_unix"].as_u64().unwrap())
    };
    let [soon, of_server] = ends();
    for said in [office.warnings(), office.says("doctor")] {
        for what in [
            "the revocation list ends on",
            "the server's certificate CN=server ends on",
        ] {
            assert!(
                said.contains(what) && said.contains("server renew"),
                "{said}"
            );
        }
    }

    let said = office.says("server renew --server office.conf");
    assert!(
        said.contains("crl.pem: the revocation list") && said.contains("server.crt"),
        "{said}"
    );
    until("no more warnings", || office.warnings() == "null");
    assert!(server.stdout().contains("the renewed certificate is shown"));
    renews(&ours);
    renews(&stock);
    assert_eq!(office.clients(), before);
    let [later, of_renewed] = ends();
    assert!(later > soon + 700 * DAY as u64 && of_renewed > of_server + 700 * DAY as u64);
    let ups = stock
        .stdout()
        .matches("Initialization Sequence Completed")
        .count();
    assert_eq!(ups, 1, "{}", stock.stdout());
    stock.stop().unwrap();

    // Past the end of the earlier ones.
    office.clock.set(830 * DAY);
    renews(&ours);
    let now = office.clients();
    assert!(before.iter().any(|it| now.contains(it)), "{now:?}");
    let _stock = office.start(branch, "openvpn --config stock.conf");
    until("the stock client again", || office.clients().len() == 2);
}
