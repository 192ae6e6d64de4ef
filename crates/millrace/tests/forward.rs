//! Port forwarding through tunnels: a real gateway (`miniupnpd`) with a port of the device, and a double of a provider
//! that chooses the port, which no packaged program does. A host outside reaches a device of the LAN over UDP and TCP.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::acceptance::policed::Policed;
use lab::acceptance::quick::make_executable;
use lab::acceptance::{Directory, PATIENCE, PROGRAM, ip, until};
use lab::{Host, Link, LinkOptions, Process, tools};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The gateway's public address, and a host's on the same network.
const PUBLIC: &str = "8.8.4.4";
const CALLER: &str = "8.8.4.5";

/// Where the device's echo listens.
const DEVICE: u16 = 9000;

/// Tables that `miniupnpd` writes into.
const GATEWAY: &str = "table inet filter {\n\
    chain forward { type filter hook forward priority 0; jump miniupnpd; }\n chain miniupnpd { }\n\
    chain prerouting { type nat hook prerouting priority -100; jump prerouting_miniupnpd; }\n\
    chain prerouting_miniupnpd { }\n\
    chain postrouting { type nat hook postrouting priority 100; jump postrouting_miniupnpd; }\n\
    chain postrouting_miniupnpd { }\n}\n";

/// Starts `miniupnpd` between the tunnel `wg1` and the device `ext`.
fn gateway(server: &Host, directory: &Directory) -> Process {
    let settings = "ext_ifname=ext\nlistening_ip=wg1\nenable_natpmp=yes\nenable_upnp=no\nhttp_port=0\n\
        secure_mode=yes\nmin_lifetime=1\nupnp_table_name=filter\nupnp_nat_table_name=filter\n\
        upnp_forward_chain=miniupnpd\nupnp_nat_chain=prerouting_miniupnpd\n\
        upnp_nat_postrouting_chain=postrouting_miniupnpd\nallow 1024-65535 0.0.0.0/0 1024-65535\n\
        deny 0-65535 0.0.0.0/0 0-65535\n";
    let settings = directory.file("miniupnpd.conf", settings);
    let pid = directory.path().join("miniupnpd.pid");
    let command = server.command(tools::find("miniupnpd").unwrap());
    let command = command.arg("-d").arg("-f").arg(settings);
    let mut process = command.arg("-P").arg(pid).spawn().unwrap();
    let told = |line: &str| line.contains("Listening for NAT-PMP");
    process
        .wait_for_line("the gateway", PATIENCE, told)
        .unwrap();
    process
}

/// A provider that answers NAT-PMP with a port of its choice: a request for private port 0 gets [`DEVICE`].
fn provider(server: &Host, at: &str, stop: &Arc<AtomicBool>) {
    let at = SocketAddr::new(ip(at), 5351);
    let socket = server.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    let stop = Arc::clone(stop);
    let serve = move || -> io::Result<()> {
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let mut request = [0; 64];
        while !stop.load(Ordering::Relaxed) {
            let Ok((12, from)) = socket.recv_from(&mut request) else {
                continue;
            };
            let mut answer = vec![0, request[1] | 0x80, 0, 0, 0, 0, 0, 9, 0, 0];
            answer.extend(DEVICE.to_be_bytes());
            answer.extend(&request[8..12]);
            socket.send_to(&answer, from)?;
        }
        Ok(())
    };
    server.spawn("provider", serve).unwrap();
}

/// Whether a datagram and a stream to this address and port are answered by the address itself.
fn answers(host: &Host, to: &str, port: u16) -> bool {
    let to = SocketAddr::new(ip(to), port);
    let moment = Some(Duration::from_millis(500));
    let exchange = || -> io::Result<bool> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(moment)?;
        socket.send_to(&[7; 8], to)?;
        let (length, from) = socket.recv_from(&mut [0; 16])?;
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(1))?;
        stream.set_read_timeout(moment)?;
        stream.write_all(&[7])?;
        stream.read_exact(&mut [0])?;
        Ok((length, from) == (8, to))
    };
    host.run(exchange).unwrap().unwrap_or(false)
}

/// The running program's reports, by tunnel; and the exit code.
fn status(router: &Host) -> (Vec<Value>, Option<i32>) {
    let command = router.command(PROGRAM);
    let exit = command
        .args(["forward", "status", "--json"])
        .exit()
        .unwrap();
    (
        serde_json::from_str(&exit.stdout).unwrap(),
        exit.status.code(),
    )
}

/// Whether the tunnel has one report, with this state.
fn is(router: &Host, tunnel: &str, state: &str) -> bool {
    let (reports, _) = status(router);
    let mut of = reports.iter().filter(|it| it["through"] == tunnel);
    of.next().is_some_and(|it| it["state"] == state) && of.next().is_none()
}

#[test]
fn a_device_is_reached_through_ports_that_gateways_forward() {
    let has_nft = lab::acceptance::ready() && lab::require(tools::find("nft")).is_some();
    if !has_nft || lab::require(tools::find("miniupnpd")).is_none() {
        return;
    }
    let all = Policed::new();
    let (server, router) = (&all.world.server, &all.world.router);
    let caller = Host::new("caller").unwrap();
    Link::new(server, "ext", &caller, "eth0", &LinkOptions::bare()).unwrap();
    server.add_address("ext", ip(PUBLIC), 24).unwrap();
    caller.add_address("eth0", ip(CALLER), 24).unwrap();
    server.sysctl("net/ipv4/ip_forward", "1").unwrap();
    server.nft(GATEWAY).unwrap();
    let directory = Directory::new();
    let mut tunnels = all.tunnels(&directory);
    // The policy makes answers leave through the tunnel that the question came by.
    let policy = format!(
        "lan = [\"br-lan\"]\n[[entry]]\nname = \"pc\"\nwho = \"{}\"\nthrough = \"mr-us\"\n",
        all.mac(&all.world.pc)
    );
    let policy = directory.file("policy.toml", &policy).display().to_string();
    assert_eq!(all.policy(&["on", "--settings", &policy]).0, Some(0));
    let _policy = all.watch(&policy);
    let daemon = gateway(server, &directory);
    let stop = Arc::<AtomicBool>::default();
    provider(server, "10.2.0.1", &stop);

    // Without forwarding nothing is reached.
    assert_eq!(status(router), (vec![], Some(3)));
    assert!(!answers(&caller, PUBLIC, DEVICE));
    let script = "#!/bin/sh\necho \"$MILLRACE_EVENT $MILLRACE_TUNNEL $MILLRACE_NAME $MILLRACE_PORT\" >> \"$1\"\n";
    let script = directory.file("alert.sh", script);
    make_executable(&script);
    let log = directory.path().join("events");
    let hooks = format!(
        "[[on-event]]\nevents = [\"port-forwarded\", \"port-lost\"]\nrun = [{script:?}, {log:?}]\n"
    );
    let hooks = directory.file("alerts.toml", &hooks);
    let _alerts = router.command(PROGRAM).args(["alerts", "--settings"]);
    let _alerts = _alerts.arg(hooks).spawn().unwrap();
    let events = || fs::read_to_string(&log).unwrap_or_default();

    let text = format!(
        "[[forward]]\nthrough = \"mr-us\"\nto = \"192.168.1.1\"\nport = {DEVICE}\n\
         [[forward]]\nthrough = \"mr-nl\"\nto = \"192.168.1.1\"\nport = \"any\"\ngateway = \"10.2.0.1\"\n"
    );
    let file = directory.file("forward.toml", &text);
    let start = || {
        let command = router.command(PROGRAM).args(["forward", "--settings"]);
        command.arg(&file).spawn().unwrap()
    };
    let forward = start();
    for tunnel in ["mr-us", "mr-nl"] {
        until("an open port", || is(router, tunnel, "open"));
    }
    let (reports, code) = status(router);
    assert_eq!(code, Some(0));
    for report in &reports {
        assert_eq!(report["port"], DEVICE);
        assert_eq!(report["device_port"], DEVICE);
        assert_eq!(report["protocols"], serde_json::json!(["udp", "tcp"]));
    }
    until("the device, over mr-us", || {
        answers(&caller, PUBLIC, DEVICE)
    });
    // The double forwards nothing: the server itself plays the host outside.
    until("the device, over mr-nl", || {
        answers(server, "10.2.0.2", DEVICE)
    });
    for tunnel in ["mr-us", "mr-nl"] {
        let line = format!("port-forwarded {tunnel} 192.168.1.1 {DEVICE}\n");
        until("an alert", || events().contains(&line));
    }

    // A firewall that reloads and a gateway that restarts lose everything; the next renewal restores it.
    daemon.signal(Signal::SIGTERM).unwrap();
    daemon.wait_at_most(PATIENCE).unwrap();
    server.nft("delete table inet filter\n").unwrap();
    server.nft(GATEWAY).unwrap();
    router.nft("delete table inet millrace_forward\n").unwrap();
    assert!(!answers(&caller, PUBLIC, DEVICE));
    let _daemon = gateway(server, &directory);
    // Renewals come every 30 seconds.
    let end = Instant::now() + 4 * PATIENCE;
    while !answers(&caller, PUBLIC, DEVICE) {
        assert!(Instant::now() < end, "the port is not restored");
        thread::sleep(Duration::from_millis(100));
    }

    // A tunnel that goes takes its rules with it, and the other one keeps its own.
    let (_far, process) = tunnels.remove(0);
    process.signal(Signal::SIGKILL).unwrap();
    process.wait_at_most(PATIENCE).unwrap();
    until("a report", || is(router, "mr-us", "asking"));
    let table = || router.output("nft", ["list", "table", "inet", "millrace_forward"]);
    let rules = || table().unwrap();
    until("the rules", || {
        !rules().contains("mr-us") && rules().contains("mr-nl")
    });
    let line = format!("port-lost mr-us 192.168.1.1 {DEVICE}\n");
    until("an alert", || events().contains(&line));
    let _again = all.up(&directory, "mr-us");
    until("the port again", || is(router, "mr-us", "open"));
    until("the device again", || answers(&caller, PUBLIC, DEVICE));

    // The end closes the ports, here and at the gateway.
    forward.signal(Signal::SIGTERM).unwrap();
    forward.wait_at_most(PATIENCE).unwrap().success().unwrap();
    assert!(table().is_err());
    assert_eq!(status(router), (vec![], Some(3)));
    let at_gateway = || server.output("nft", ["list", "table", "inet", "filter"]);
    until("the gateway's end", || {
        !at_gateway().unwrap().contains("9000")
    });

    // A killed process leaves rules and a file; the next one clears them, even if its settings are faulty.
    let forward = start();
    until("the port again", || is(router, "mr-us", "open"));
    forward.signal(Signal::SIGKILL).unwrap();
    forward.wait_at_most(PATIENCE).unwrap();
    assert!(rules().contains("mr-us"));
    stop.store(true, Ordering::Relaxed);
    let settings = "[[forward]]\nthrough = \"mr-no\"\n";
    directory.file("forward.toml", settings);
    let mut forward = start();
    let told = |line: &str| line.contains("trying again") && line.contains("forward.toml:1");
    forward.wait_for_line("the fault", PATIENCE, told).unwrap();
    assert!(table().is_err());
    assert_eq!(status(router), (vec![], Some(3)));
    // The process waits for valid settings.
    directory.file("forward.toml", &format!("{settings}to = \"192.168.1.1\"\n"));
    until("a report", || is(router, "mr-no", "asking"));
    forward.signal(Signal::SIGTERM).unwrap();
    forward.wait_at_most(PATIENCE).unwrap().success().unwrap();
}
