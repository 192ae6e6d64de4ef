//! A public PPTP server: calls, connections and silence without a login cost a few log lines and little memory, and a
//! client still connects. The server answers a client from the address to which the client connected.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use lab::acceptance::forged::anonymous_memory;
use lab::acceptance::{Directory, Net, PATIENCE, PROGRAM, pings, status_of, until};
use lab::{Host, Process, tools};
use netio::poll::Poller;
use netio::tcp::{Connecting, TcpOptions};
use nix::sys::signal::Signal;

const SERVER: &str = "10.9.0.1";

const PORT: u16 = 1723;

/// Address of strangers.
const STRANGER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 66);

/// Log lines that strangers may cause: at once, and each further second.
const LINES: (usize, u64) = (100, 2);

/// Memory that strangers may cost, in bytes.
const MEMORY: u64 = 8 << 20;

fn ready() -> bool {
    lab::may_enter() && lab::require(tools::tun()).is_some()
}

fn up(host: &Host, directory: &Directory, name: &str, more: &str) -> Process {
    let text =
        format!("protocol = \"pptp\"\nallow-insecure = \"pptp\"\ninterface = \"pptp0\"\n{more}\n");
    let file = directory.file(name, &text);
    let command = host.command(PROGRAM).arg("up").arg(file);
    let mut process = command.spawn().unwrap();
    let is_up = |line: &str| line.contains("pptp0 is up");
    process
        .wait_for_line("the tunnel", PATIENCE, is_up)
        .unwrap_or_else(|error| panic!("{error}\n{}", process.stderr()));
    process
}

fn server(host: &Host, directory: &Directory) -> Process {
    let text = format!(
        "listen = \"0.0.0.0\"\naddress = \"{SERVER}/24\"\npool = \"10.9.0.10-10.9.0.99\"\n[users]\nalice = \"word\""
    );
    up(host, directory, "server.toml", &text)
}

fn client(host: &Host, directory: &Directory, server: IpAddr) -> Process {
    let text = format!("server = \"{server}\"\nusername = \"alice\"\npassword = \"word\"");
    up(host, directory, "client.toml", &text)
}

fn end(process: Process) {
    process.signal(Signal::SIGTERM).unwrap();
    let exit = process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
}

/// A control connection message with its length, type and cookie.
fn message(kind: u16, rest: &[u8], len: usize) -> Vec<u8> {
    let mut message = (len as u16).to_be_bytes().to_vec();
    message.extend([0, 1, 0x1a, 0x2b, 0x3c, 0x4d]);
    message.extend(kind.to_be_bytes());
    message.extend([0, 0]);
    message.extend(rest);
    message.resize(len, 0);
    message
}

/// Start-Control-Connection-Request.
fn hello() -> Vec<u8> {
    message(1, &[1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3], 156)
}

/// Outgoing-Call-Request.
fn call(id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let rest = [
        high, low, 0, 1, 0, 0, 9, 96, 59, 154, 202, 0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 64,
    ];
    message(7, &rest, 168)
}

/// Call-Clear-Request.
fn clear(id: u16) -> Vec<u8> {
    message(12, &id.to_be_bytes(), 16)
}

/// Echo-Request.
fn echo() -> Vec<u8> {
    message(5, &[0, 0, 0, 1], 16)
}

/// A TCP connection from an address other than the client's.
fn connect(from: &Host, to: IpAddr) -> Option<TcpStream> {
    let options = TcpOptions {
        local: Some((STRANGER, 0).into()),
        ..TcpOptions::default()
    };
    let connect = || {
        let connecting = Connecting::new((to, PORT).into(), &options).ok()?;
        let poller = Poller::new().ok()?;
        poller.add(&connecting, 0).ok()?;
        poller.modify(&connecting, 0, true).ok()?;
        let _ready = poller.wait(Some(PATIENCE)).ok()?;
        let done = connecting.is_done().is_ok_and(|done| done);
        done.then(|| connecting.into_stream())
    };
    from.run(connect).unwrap()
}

/// A stranger's connection, and the message it repeats.
struct Stranger {
    stream: TcpStream,
    sends: Vec<u8>,
    reads: bool,
}

impl Stranger {
    /// Sends the message once more; returns `false` once the server has closed the connection.
    fn goes_on(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let read = match self.reads {
            true => self.stream.read(&mut bytes),
            false => self.stream.peek(&mut bytes[..1]),
        };
        let alive = match read {
            Ok(count) => count > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        // A full queue is the server's response to a stranger that does not read.
        let sent = match self.stream.write(&self.sends) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        alive && sent
    }
}

/// An attack: its number of connections, each one's first and repeated messages, and whether it reads the answers.
struct Attack {
    name: &'static str,
    connections: usize,
    first: Vec<u8>,
    again: Vec<u8>,
    reads: bool,
}

fn attacks() -> Vec<Attack> {
    let calls = |ids: std::ops::Range<u16>| ids.flat_map(call).collect::<Vec<u8>>();
    let attack = |name, connections, first, again, reads| Attack {
        name,
        connections,
        first,
        again,
        reads,
    };
    let one_by_one: Vec<u8> = (1..200)
        .flat_map(|id| [call(id), clear(id)].concat())
        .collect();
    vec![
        attack("call after call", 1, hello(), one_by_one, true),
        attack(
            "all addresses",
            6,
            [hello(), calls(1..17)].concat(),
            Vec::new(),
            true,
        ),
        attack("silence", 200, Vec::new(), Vec::new(), true),
        attack("answers unread", 100, hello(), echo().repeat(200), false),
    ]
}

impl Attack {
    /// Attacks until `ended`; reconnects when the server closes a connection. `rounds` counts.
    fn run(&self, from: &Host, to: IpAddr, rounds: &AtomicUsize, ended: &AtomicBool) {
        let mut strangers: Vec<Stranger> = Vec::new();
        while !ended.load(Ordering::Relaxed) {
            strangers.retain_mut(Stranger::goes_on);
            if strangers.len() < self.connections
                && let Some(mut stream) = connect(from, to)
            {
                let _ = stream.write(&self.first);
                strangers.push(Stranger {
                    stream,
                    sends: self.again.clone(),
                    reads: self.reads,
                });
            }
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Ends an attack when it is dropped.
struct EndsAttack<'a>(&'a AtomicBool);

impl Drop for EndsAttack<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn strangers_cost_little_and_lock_nobody_out() {
    if !ready() {
        return;
    }
    for attack in attacks() {
        let (net, directory) = (Net::new(), Directory::new());
        let at = net.link.b4();
        net.a.add_address("eth0", STRANGER.into(), 24).unwrap();
        let began = Instant::now();
        let server = server(&net.b, &directory);
        let memory = || anonymous_memory(&server);
        let (rounds, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        let before = memory();
        thread::scope(|scope| {
            scope.spawn(|| attack.run(&net.a, at, &rounds, &ended));
            // Ends the attack even if an assertion fails, because the scope waits for it.
            let ends = EndsAttack(&ended);
            until(attack.name, || rounds.load(Ordering::Relaxed) > 500);
            let client = client(&net.a, &directory, at);
            pings(&net.a, SERVER, 2);
            let rounds_before = rounds.load(Ordering::Relaxed);
            until(attack.name, || {
                rounds.load(Ordering::Relaxed) > rounds_before + 200
            });
            let status = status_of(&net.b, "pptp0");
            assert_eq!(status["peers"].as_array().unwrap().len(), 1, "{status}");
            let grown = memory().saturating_sub(before);
            drop(ends);
            assert!(grown <= MEMORY, "{}: {grown} bytes", attack.name);
            end(client);
        });
        let lines = server.stderr().lines().count();
        let most = LINES.0 + (began.elapsed().as_secs() * LINES.1) as usize;
        assert!(lines <= most, "{}: {lines} lines of log", attack.name);
        end(server);
    }
}

/// The server listens on all its addresses. TCP always answers from the called address; GRE packets must do so too,
/// because the client accepts no other source.
#[test]
fn a_client_that_calls_any_address_is_answered_from_it() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let b = |words: &str| net.b.output("ip", words.split(' ')).unwrap();
    b("link add eth1 type veth peer name eth2");
    b("link set eth1 up");
    b("link set eth2 up");
    let called = [
        ("eth0", net.link.b4()),
        ("eth0", ip("192.168.1.77")),
        ("lo", ip("203.0.113.7")),
        ("eth1", ip("198.51.100.9")),
    ];
    for (device, address) in &called[1..] {
        net.b.add_address(device, *address, 24).unwrap();
        let to = format!("route add {address} via {}", net.link.b4());
        if *device != "eth0" {
            net.a.output("ip", to.split(' ')).unwrap();
        }
    }
    let server = server(&net.b, &directory);
    for (_, address) in called {
        let client = client(&net.a, &directory, address);
        pings(&net.a, SERVER, 2);
        end(client);
    }
    end(server);
}
