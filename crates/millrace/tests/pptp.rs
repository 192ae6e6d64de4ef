//! PPTP between our client and our server: packets arrive unchanged over a reordering line. A wrong password and a file
//! that does not allow PPTP are refused, and hostile senders only increase counters.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use lab::acceptance::fw4::Fw4;
use lab::acceptance::netifd::Netifd;
use lab::acceptance::world::World;
use lab::acceptance::{
    Directory, Net, PATIENCE, PROGRAM, ip, pings, reaches, run_files, status_of, tcp_both_ways,
    until,
};
use lab::{Emulator, Exit, Host, Impairment, LinkOptions, Process, Side, tools};
use netio::gre::{GreSocket, Outgoing};
use nix::sys::signal::Signal;

/// Bytes to send each way.
const SIZE: usize = 10 << 20;

/// Inner addresses.
const SERVER: &str = "10.9.0.1";
const CLIENT: &str = "10.9.0.2";

const ALLOWED: &str = "allow-insecure = \"pptp\"\n";

fn ready() -> bool {
    lab::may_enter() && lab::require(tools::tun()).is_some()
}

fn server_text(more: &str) -> String {
    format!(
        "protocol = \"pptp\"\n{ALLOWED}listen = \"0.0.0.0\"\naddress = \"{SERVER}/24\"\ninterface = \"pptp0\"\n{more}\n\
         [users]\nalice = \"correct horse\"\n"
    )
}

fn client_text(server: IpAddr, password: &str, more: &str) -> String {
    format!(
        "protocol = \"pptp\"\n{ALLOWED}server = \"{server}\"\nusername = \"alice\"\npassword = \"{password}\"\n\
         interface = \"pptp0\"\n{more}\n"
    )
}

fn start(host: &Host, file: &PathBuf) -> Process {
    host.command(PROGRAM).arg("up").arg(file).spawn().unwrap()
}

fn is_up(process: &mut Process) {
    let up = |line: &str| line.contains("pptp0 is up");
    process
        .wait_for_line("the tunnel", PATIENCE, up)
        .unwrap_or_else(|error| panic!("{error}\n{}", process.stderr()));
}

fn end(process: Process) -> Exit {
    process.signal(Signal::SIGTERM).unwrap();
    let exit = process.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    exit
}

/// A server at B and a client at A.
struct Tunnel {
    server: Process,
    client: Process,
}

impl Tunnel {
    fn new(hosts: [&Host; 2], at: IpAddr, directory: &Directory, more: [&str; 2]) -> Self {
        let [server_more, client_more] = more;
        let file = directory.file("server.toml", &server_text(server_more));
        let mut server = start(hosts[1], &file);
        is_up(&mut server);
        let text = client_text(at, "correct horse", client_more);
        let mut client = start(hosts[0], &directory.file("client.toml", &text));
        is_up(&mut client);
        Self { server, client }
    }
}

/// Ten megabytes each way at once, while packets overtake each other.
fn moves_packets(mppe: &str, cipher: &str) {
    if !ready() {
        return;
    }
    let (a, b) = Net::hosts();
    let link = LinkOptions::numbered(1);
    let line = Impairment {
        delay: Duration::from_millis(2),
        reorder: 0.02,
        ..Impairment::NONE
    };
    let emulator = Emulator::new(&a, "eth0", &b, "eth0", &link, [line; 2], 7).unwrap();
    let directory = Directory::new();
    let more = format!("mppe = \"{mppe}\"");
    let tunnel = Tunnel::new([&a, &b], link.b4(), &directory, [&more; 2]);
    pings(&a, SERVER, 3);
    pings(&b, CLIENT, 3);
    tcp_both_ways(&a, &b, SERVER, SIZE);
    let status = status_of(&a, "pptp0");
    assert_eq!(status["peers"][0]["cipher"], cipher, "{status}");
    assert_eq!(status["state"], "connected", "{status}");
    assert_eq!(status["addresses"][0], CLIENT, "{status}");
    let at_server = status_of(&b, "pptp0");
    assert_eq!(at_server["peers"][0]["name"], "alice", "{at_server}");
    for status in [&status, &at_server] {
        assert!(status["peers"][0]["rx_bytes"].as_u64().unwrap() > SIZE as u64);
        // On a busy machine the reorder wait may be too short, which breaks one direction for a round trip.
        let broken = status["dataplane"]["drops"]["undecryptable"].as_u64();
        // At most half of the received packets, which have a thousand bytes each.
        let most = match cipher.ends_with("stateful") {
            true => status["peers"][0]["rx_bytes"].as_u64().unwrap() / 2_000,
            false => 0,
        };
        assert!(broken.unwrap() <= most, "{status}");
    }
    for side in [Side::A, Side::B] {
        assert!(emulator.counters(side).reordered > 50);
    }
    end(tunnel.client);
    until("the call's end", || {
        status_of(&b, "pptp0")["peers"]
            .as_array()
            .unwrap()
            .is_empty()
    });
    end(tunnel.server);
    for host in [&a, &b] {
        assert!(!host.has_interface("pptp0").unwrap());
        assert_eq!(run_files(host), Vec::<String>::new());
    }
}

/// A router boots: the device of the default route appears later.
#[test]
fn a_device_that_is_not_there_yet_is_waited_for() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let file = directory.file("server.toml", &server_text(""));
    let mut server = start(&net.b, &file);
    is_up(&mut server);
    let text = client_text(net.link.b4(), "correct horse", "");
    let file = directory.file("client.toml", &text);
    let start = || {
        let command = net.a.command(PROGRAM).arg("up").arg(&file);
        let mut client = command.args(["--bind-device", "wan0"]).spawn().unwrap();
        let waits = |line: &str| line.contains("waiting for the device wan0");
        client.wait_for_line("its device", PATIENCE, waits).unwrap();
        client
    };
    // A process that ends while it waits leaves nothing behind.
    end(start());
    assert!(!net.a.has_interface("pptp0").unwrap());
    let mut client = start();
    for words in ["set eth0 down", "set eth0 name wan0", "set wan0 up"] {
        let words = ["link"].into_iter().chain(words.split(' '));
        net.a.output("ip", words).unwrap();
    }
    is_up(&mut client);
    pings(&net.a, SERVER, 1);
    end(client);
    end(server);
    assert_eq!(run_files(&net.a), Vec::<String>::new());
}

#[test]
fn a_key_for_each_packet_over_a_line_that_reorders() {
    moves_packets("128", "MPPE-128 stateless");
}

#[test]
fn one_stream_over_a_line_that_reorders() {
    moves_packets("128,stateful", "MPPE-128 stateful");
}

#[test]
fn a_client_that_pppd_is_written_for_comes_up() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let mut server = start(&net.b, &directory.file("server.toml", &server_text("")));
    is_up(&mut server);
    let text = |first: &str| {
        format!(
            "{first}\npty \"pptp {} --nolaunchpppd\"\nname alice\nremotename office\npassword \"correct horse\"\n\
             require-mppe-128 refuse-pap refuse-chap\nlock noauth nobsdcomp nodeflate novj\nmtu 1300\npersist\n",
            net.link.b4()
        )
    };
    let refused = start(&net.a, &directory.file("pptp0", &text("# nothing")));
    let exit = refused.wait_at_most(PATIENCE).unwrap();
    assert!(!exit.status.success(), "{exit:?}");
    assert!(exit.stderr.contains("#! allow-insecure = pptp"), "{exit:?}");
    let file = directory.file("pptp0", &text("#! allow-insecure = pptp"));
    let mut client = start(&net.a, &file);
    is_up(&mut client);
    pings(&net.a, SERVER, 3);
    tcp_both_ways(&net.a, &net.b, SERVER, SIZE / 10);
    assert_eq!(status_of(&net.a, "pptp0")["mtu"], 1300);
    end(client);
    end(server);
}

#[test]
fn a_wrong_password_ends_the_client_and_not_the_server() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let mut server = start(&net.b, &directory.file("server.toml", &server_text("")));
    is_up(&mut server);
    let file = |password: &str| {
        let text = client_text(net.link.b4(), password, "");
        directory.file("client.toml", &text)
    };
    let exit = start(&net.a, &file("wrong horse")).wait_at_most(PATIENCE);
    let exit = exit.unwrap();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(
        exit.stderr.contains("wrong user name or password"),
        "{exit:?}"
    );
    assert!(!exit.stderr.contains("is up"), "{exit:?}");
    assert!(!net.a.has_interface("pptp0").unwrap());
    let told = format!("{}: login: unknown user, or wrong password", net.link.a4());
    server
        .wait_for_line("the refusal", PATIENCE, |line| line.contains(&told))
        .unwrap();
    // Negotiation never switches encryption off.
    let text = client_text(net.link.b4(), "correct horse", "mppe = \"40\"");
    let exit = start(&net.a, &directory.file("client.toml", &text)).wait_at_most(PATIENCE);
    let exit = exit.unwrap();
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(exit.stderr.contains("encryption"), "{exit:?}");
    let mut client = start(&net.a, &file("correct horse"));
    is_up(&mut client);
    pings(&net.a, SERVER, 1);
    end(client);
    end(server);
}

#[test]
fn nothing_starts_unless_the_file_allows_it() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let allowed = [
        server_text(""),
        client_text(net.link.b4(), "correct horse", ""),
    ];
    for text in allowed {
        let run = |command: &str, text: &str| {
            let file = directory.file("office.toml", text);
            let command = net.a.command(PROGRAM).arg(command).arg(file);
            let process = command.spawn().unwrap();
            process.wait_at_most(PATIENCE).unwrap()
        };
        let refused = text.replace(ALLOWED, "");
        for command in ["up", "check"] {
            let exit = run(command, &refused);
            let said = format!("{}{}", exit.stdout, exit.stderr);
            assert_eq!(exit.status.code(), Some(1), "{said}");
            for words in ["PPTP protects nothing", "Use WireGuard", "allow-insecure"] {
                assert!(said.contains(words), "{said}");
            }
        }
        assert!(!net.a.has_interface("pptp0").unwrap());
        let exit = run("check", &text);
        assert!(exit.status.success(), "{exit:?}");
        assert!(exit.stdout.contains("0 refused"), "{exit:?}");
        assert!(!exit.stdout.contains("correct horse"), "{exit:?}");
    }
}

/// Sends GRE payloads from a host.
fn forge(from: &Host, to: IpAddr, payloads: &[Vec<u8>]) {
    let IpAddr::V4(to) = to else {
        panic!("{to}");
    };
    let socket = from.run(|| GreSocket::open(None, None, None));
    let socket = socket.unwrap().unwrap();
    let mut batch = Outgoing::new();
    for payload in payloads {
        batch.push(|memory| {
            memory.extend_from_slice(payload);
            Some((to, None))
        });
        if batch.len() == 32 {
            socket.send(&mut batch);
        }
    }
    socket.send(&mut batch);
}

/// An enhanced GRE packet with a sequence number.
fn gre(call: u16, number: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x30, 0x01, 0x88, 0x0b];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend(call.to_be_bytes());
    packet.extend(number.to_be_bytes());
    packet.extend(payload);
    packet
}

/// A control connection message with its length, type and cookie.
fn control(kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut message = ((12 + rest.len()) as u16).to_be_bytes().to_vec();
    message.extend([0, 1, 0x1a, 0x2b, 0x3c, 0x4d]);
    message.extend(kind.to_be_bytes());
    message.extend([0, 0]);
    message.extend(rest);
    message
}

/// Sends Echo-Requests as fast as the server accepts them, without reading the answers.
fn flood(from: &Host, to: IpAddr) {
    let mut stream = from
        .run(|| TcpStream::connect_timeout(&(to, 1723).into(), PATIENCE))
        .unwrap()
        .unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut start = vec![1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 0];
    start.resize(144, 0);
    stream.write_all(&control(1, &start)).unwrap();
    let requests = control(5, &[0, 0, 0, 1]).repeat(1000);
    // The server may close the connection of a client that does not read.
    let _ = (0..1000).try_for_each(|_| stream.write_all(&requests));
    let _ = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = [0; 1 << 16];
    while matches!(stream.read(&mut rest), Ok(len) if len > 0) {}
}

#[test]
fn forged_packets_and_floods_cost_counters_only() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let at = net.link.b4();
    let tunnel = Tunnel::new([&net.a, &net.b], at, &directory, ["", ""]);
    pings(&net.a, SERVER, 2);
    let drops = |host: &Host, reason: &str| {
        let status = status_of(host, "pptp0");
        let count = status["dataplane"]["drops"][reason].as_u64();
        count.unwrap_or_else(|| panic!("no {reason} in {status}"))
    };
    let status = status_of(&net.b, "pptp0");
    let call = status["peers"][0]["client_id"].as_u64().unwrap() as u16;
    let mut forged = Vec::new();
    for n in 0..500_u32 {
        // Other call IDs; old and distant sequence numbers of this call; packets that are not PPTP's GRE.
        forged.push(gre(
            call.wrapping_add(1 + n as u16),
            n,
            &[0xff, 3, 0, 0xfd, 0x90, 0, 1],
        ));
        forged.push(gre(call, 0, &[0xff, 3, 0xc0, 0x21, 5, 1, 0, 4]));
        forged.push(gre(
            call,
            0x4000_0000 + n * 65_536,
            &[0xff, 3, 0xc0, 0x21, 5, 1, 0, 4],
        ));
        forged.push(n.to_be_bytes().repeat(n as usize % 20));
    }
    // From the client's own address to the server, and from the server's address to the client.
    forge(&net.a, at, &forged);
    forge(&net.b, net.link.a4(), &forged);
    until("the counters", || {
        let sum = |host: &Host, reasons: &[&str]| -> u64 {
            reasons.iter().map(|reason| drops(host, reason)).sum()
        };
        let numbers = ["jump", "replayed", "duplicate"];
        sum(&net.b, &["no_session"]) >= 900
            && sum(&net.b, &numbers) >= 900
            && sum(&net.a, &["no_session", "not_ours"]) >= 1800
    });
    pings(&net.a, SERVER, 5);
    flood(&net.a, at);
    pings(&net.a, SERVER, 5);
    tcp_both_ways(&net.a, &net.b, SERVER, 1 << 20);
    // The server drops an inner packet whose source is not the client's assigned address.
    let stray = Ipv4Addr::new(10, 77, 0, 1);
    net.a.add_address("lo", stray.into(), 32).unwrap();
    let socket = net.a.run(|| std::net::UdpSocket::bind((stray, 0)));
    let socket = socket.unwrap().unwrap();
    socket.send_to(b"not mine", (ip(SERVER), 9)).unwrap();
    until("the counter of sources", || {
        drops(&net.b, "wrong_source") == 1
    });
    end(tunnel.client);
    end(tunnel.server);
}

#[test]
fn a_default_route_leads_into_the_tunnel_and_is_taken_back() {
    if !ready() {
        return;
    }
    let (world, directory) = (World::new(), Directory::new());
    let before = world.state();
    let hosts = [&world.client, &world.server];
    let more = ["", "default-route = true\nroutes = [\"10.20.0.0/16\"]"];
    let tunnel = Tunnel::new(hosts, world.outside.b4(), &directory, more);
    pings(&world.client, SERVER, 2);
    for (address, way) in [
        ("198.51.100.7", "pptp0"),
        ("10.20.3.4", "pptp0"),
        (SERVER, "pptp0"),
        (&world.outside.b4().to_string(), "eth0"),
    ] {
        assert_eq!(world.way_to(address), way, "{address}");
    }
    tcp_both_ways(&world.client, &world.server, SERVER, 1 << 20);
    end(tunnel.client);
    assert_eq!(world.state(), before);
    end(tunnel.server);
}

/// The server stops and returns: the client connects to it again, and keeps its routes meanwhile.
#[test]
fn a_server_that_comes_back_is_called_again() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let tunnel = Tunnel::new([&net.a, &net.b], net.link.b4(), &directory, ["", ""]);
    pings(&net.a, SERVER, 1);
    end(tunnel.server);
    let connecting = || status_of(&net.a, "pptp0")["state"] == "connecting";
    until("the client to notice", connecting);
    let mut server = start(&net.b, &directory.file("server.toml", &server_text("")));
    is_up(&mut server);
    until("the tunnel again", || !connecting());
    pings(&net.a, SERVER, 1);
    end(tunnel.client);
    end(server);
}

/// OpenWrt's default firewall rejects the server's GRE. The log gives the commands with which the connection comes up.
#[test]
fn a_client_names_the_rule_that_it_lacks_and_comes_up_with_it() {
    if !ready() || lab::require(tools::find("nft")).is_none() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let file = directory.file("server.toml", &server_text(""));
    let mut server = start(&net.b, &file);
    is_up(&mut server);
    let text = client_text(net.link.b4(), "correct horse", "");
    directory.file("office.toml", &text);
    directory.interface("office", "office.toml", "");
    let mut firewall = Fw4::start(&net.a, &["eth0"], &directory);
    let mut netifd = Netifd::start(&net.a, "office", directory.path());
    netifd.if_up();
    netifd.until_said("answers, but no GRE (IP protocol 47) arrives");
    let said = netifd.said();
    let rule = &said[said.find("uci set").unwrap()..];
    let rule: Vec<&str> = rule.lines().next().unwrap().split("; ").collect();
    assert!(!net.a.output("ip", ["address"]).unwrap().contains("10.9.0."));
    firewall.uci(&rule);
    netifd.until_has(&["10.9.0.2/32"], &[]);
    reaches(&net.a, "10.9.0.1");
    netifd.if_down();
}
