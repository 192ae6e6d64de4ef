//! `millrace bench --clients N`: many clients of one OpenVPN server.
//!
//! The clients are programs without an interface, all in one host. One more client, in a host of its own, has a
//! tunnel that carries load: first alone, then beside the idle ones. Finally the server restarts, and all clients
//! reconnect.

use std::net::IpAddr;
use std::time::{Duration, Instant};
use std::{io, thread};

use lab::cpu::usage;
use lab::load::{EchoServer, Iperf, IperfServer};
use lab::openvpn::{ConfigFile, Directory, Management, OpenVpn, RunningOpenVpn, Setup, Transport};
use lab::{Host, LabError, Link, LinkOptions};

use super::contender::Contender;
use super::openvpn::{Ends, Suite, credentials};
use super::rig::RigError;
use super::table::{Table, Verdicts};
use crate::bench::table::number;
use crate::two_lines::failed;
use host::machine::Machine;

/// How long all clients together may take to connect.
const PATIENCE: Duration = Duration::from_secs(600);
/// Interval between two queries of the server's number of clients.
const LOOK: Duration = Duration::from_millis(50);
/// How long the busy client's tunnel may take to answer.
const ANSWER: Duration = Duration::from_secs(20);
/// Client programs that start at the same time.
const STARTING: u32 = 8;
/// Time for the server's memory to settle after the last handshake.
const REST: Duration = Duration::from_secs(2);

/// The project's targets: seconds until 1,000 clients have reconnected after a restart, kilobytes (1024 bytes) for
/// each client, and the fraction of its rate that the busy client keeps.
const TARGETS: [f64; 3] = [5.0, 25.0, 0.9];

/// The results of one server with its clients.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    name: &'static str,
    clients: u32,
    /// Time from the start of the first idle client until all were connected.
    up: Duration,
    /// The server's memory in bytes: without clients, and with all of them idle.
    memory: [u64; 2],
    /// Bits per second of the busy client: alone, and beside the others.
    rate: [f64; 2],
    /// The server's processor time for all handshakes.
    handshakes: Duration,
    /// How long the server took to stop.
    stop: Duration,
    /// Time from the server's restart until all clients were connected again.
    back: Duration,
    /// The server's processor time during the reconnects.
    back_cpu: Duration,
}

impl Outcome {
    /// Kilobytes of the server's memory for each client.
    fn kilobytes_each(&self) -> f64 {
        let [empty, full] = self.memory;
        full.saturating_sub(empty) as f64 / 1024.0 / f64::from(self.clients.max(1))
    }
}

/// Connects `clients` clients to a server, the busy one among them.
///
/// # Errors
/// [`RigError::Lab`] if a program fails or clients do not connect, [`RigError::Silent`].
pub(super) fn measure(
    ends: Ends,
    suite: Suite,
    clients: u32,
    seconds: u32,
) -> Result<Outcome, RigError> {
    let name = Contender::OpenVpn(ends, suite).name();
    let [busy, server, crowd] = ["busy", "server", "crowd"].map(Host::private);
    let (busy, server, crowd) = (busy?, server?, crowd?);
    let (near, far) = (LinkOptions::numbered(1), LinkOptions::numbered(2));
    Link::new(&busy, "eth0", &server, "eth0", &near)?;
    Link::new(&crowd, "eth0", &server, "eth1", &far)?;
    let [calls, listens] = [0, 1].map(|number| ends.program(number, None));
    let (calls, listens) = (calls?, listens?);
    let setup = suite.setup();
    let keys = credentials()?;

    let mut server_file = setup.server_file(listens.as_ref(), &keys, near.b4())?;
    crowded(&mut server_file, &setup, clients);
    let running = listens.start(&server, &server_file)?;
    let process = running.process.id();
    let empty = usage(process)?.rss;

    let file = setup.client_file(calls.as_ref(), &keys, near.b4())?;
    let _client = calls.start(&busy, &file)?;
    let inside = setup.inner4(1);
    let echo = EchoServer::start(&server, 7)?;
    echo.first_answer(&busy, inside, ANSWER)?
        .ok_or(RigError::Silent)?;
    let iperf = IperfServer::start(&server, inside, 5201)?;
    let load = Iperf {
        seconds,
        ..Iperf::default()
    };
    let alone = load.run(&busy, &iperf)?.bits_per_second();
    host::terminal::note(format_args!(
        "bench: {name}: {} Mbit/s alone",
        number(alone / 1e6)
    ));

    let before = usage(process)?.cpu();
    let start = Instant::now();
    let idle = IdleClients::new(calls.as_ref(), &setup, far.b4())?;
    idle.start(&crowd, clients.saturating_sub(1))?;
    host::terminal::note(format_args!(
        "bench: {name}: {clients} clients started after {:.1} s",
        start.elapsed().as_secs_f64()
    ));
    wait_for(&running, clients)?;
    let up = start.elapsed();
    let handshakes = usage(process)?.cpu().saturating_sub(before);
    thread::sleep(REST);
    let full = usage(process)?.rss;
    let among = load.run(&busy, &iperf)?.bits_per_second();
    let ends = Instant::now();
    running.stop()?;
    let start = Instant::now();
    let stop = start.saturating_duration_since(ends);
    let running = listens.start(&server, &server_file)?;
    wait_for(&running, clients)?;
    let back = start.elapsed();
    let back_cpu = usage(running.process.id())?.cpu();
    let outcome = Outcome {
        name,
        clients,
        up,
        memory: [empty, full],
        rate: [alone, among],
        handshakes,
        stop,
        back,
        back_cpu,
    };
    host::terminal::note(format_args!("bench: {outcome:?}"));
    Ok(outcome)
}

/// Raises a server's limits for many clients.
fn crowded(file: &mut ConfigFile, setup: &Setup, clients: u32) {
    file.remove("server").remove("server-ipv6").remove("local");
    file.line(&format!("server 10.{}.0.0 255.255.0.0", setup.network));
    file.line("duplicate-cn");
    file.words("max-clients", [clients + 16]);
    if setup.transport == Transport::Udp {
        // Tells the clients that the server stops, so that they reconnect.
        file.line("explicit-exit-notify 1");
    }
    file.line(Management::DIRECTIVE);
    file.remove("verb").line("verb 1");
}

/// Waits until the server has `clients` clients.
fn wait_for(server: &RunningOpenVpn<'_>, clients: u32) -> Result<(), RigError> {
    let mut management = server.management()?;
    let end = Instant::now() + PATIENCE;
    let mut told = 0;
    loop {
        let answer = management.command("load-stats")?.concat();
        let found = connected(&answer).unwrap_or(0);
        if found >= clients {
            return Ok(());
        }
        if found / 100 > told {
            told = found / 100;
            host::terminal::note(format_args!(
                "bench: {found} of {clients} clients are connected"
            ));
        }
        if Instant::now() >= end {
            let error = io::Error::other(format!("{found} of {clients} clients connected"));
            return Err(failed("wait for clients")(error).into());
        }
        thread::sleep(LOOK);
    }
}

/// Parses the number of clients from `SUCCESS: nclients=1,bytesin=2,bytesout=3`.
fn connected(answer: &str) -> Option<u32> {
    let (_, rest) = answer.split_once("nclients=")?;
    rest.split(',').next()?.trim().parse().ok()
}

/// Idle clients without an interface, which share one configuration.
struct IdleClients<'p> {
    program: &'p dyn OpenVpn,
    directory: Directory,
}

impl<'p> IdleClients<'p> {
    fn new(program: &'p dyn OpenVpn, setup: &Setup, server: IpAddr) -> Result<Self, LabError> {
        let mut file = setup.client_file(program, &*credentials()?, server)?;
        file.remove("dev").remove("dev-type").remove("verb");
        file.line("dev null")
            .line("ifconfig-noexec")
            .line("route-noexec");
        file.line("verb 0").line("log /dev/null");
        // A daemon has no output pipes, each of which would need a thread of ours.
        file.line("daemon");
        let directory = Directory::new()?;
        directory.file("openvpn.conf", file.to_string())?;
        Ok(Self { program, directory })
    }

    /// Starts `count` clients, which die with their host.
    fn start(&self, host: &Host, count: u32) -> Result<(), LabError> {
        let program = self.program.available()?;
        let invocation = self.program.invocation();
        let mut left = count;
        while left > 0 {
            let some = left.min(STARTING);
            let starting = (0..some).map(|_| {
                let mut command = host.command(&program).args(&invocation.arguments);
                for (key, value) in &invocation.environment {
                    command = command.env(key, value);
                }
                command
                    .arg("--cd")
                    .arg(self.directory.path())
                    .arg("--config")
                    .arg(self.directory.join("openvpn.conf"))
                    .spawn()
            });
            for process in starting.collect::<Vec<_>>() {
                process?.wait()?.success()?;
            }
            left -= some;
        }
        Ok(())
    }
}

/// All results, compared with the project's targets.
pub(super) fn markdown(outcomes: &[Outcome]) -> String {
    let mut table = Table::new([
        "",
        "clients",
        "all started and up, s",
        "server's CPU s for handshakes",
        "restart: stop, s",
        "all back, s",
        "server's CPU s",
        "KB for each",
        "server's MB",
        "busy client alone, Mbit/s",
        "among the idle",
        "kept",
    ]);
    let mut verdicts = Verdicts::default();
    for outcome in outcomes {
        let [alone, among] = outcome.rate;
        let kept = among / alone.max(1.0);
        let up = outcome.up.as_secs_f64();
        table.row([
            outcome.name.to_owned(),
            outcome.clients.to_string(),
            number(up),
            number(outcome.handshakes.as_secs_f64()),
            number(outcome.stop.as_secs_f64()),
            number(outcome.back.as_secs_f64()),
            number(outcome.back_cpu.as_secs_f64()),
            number(outcome.kilobytes_each()),
            number(outcome.memory[1] as f64 / 1e6),
            number(alone / 1e6),
            number(among / 1e6),
            number(kept),
        ]);
        if !outcome.name.starts_with("ovpn-") {
            continue;
        }
        let name = |what: &str| format!("{}: {what}", outcome.name);
        let [seconds, kilobytes, least] = TARGETS;
        // The target is for 1,000 clients. Fewer get proportionally less time, except for the second before a client
        // reconnects.
        let seconds = 1.0 + (seconds - 1.0) * f64::from(outcome.clients) / 1000.0;
        let back = outcome.back.as_secs_f64();
        verdicts.row(
            name("all back, s"),
            format!("< {}", number(seconds)),
            back,
            back < seconds,
        );
        let each = outcome.kilobytes_each();
        verdicts.row(
            name("KB for each idle client"),
            format!("<= {kilobytes}"),
            each,
            each <= kilobytes,
        );
        verdicts.row(
            name("rate kept by the busy client"),
            format!(">= {least}"),
            kept,
            kept >= least,
        );
    }
    let machine = Machine::this().show();
    format!(
        "# millrace bench --clients\n\n{machine}.\n\nClients, server and load share this machine.\n\n{}\n{}",
        table.render(),
        verdicts.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_counted_and_judged() {
        let answer = "SUCCESS: nclients=12,bytesin=1,bytesout=2";
        assert_eq!(connected(answer), Some(12));
        assert_eq!(connected("SUCCESS"), None);
        let outcome = Outcome {
            name: "ovpn-gcm",
            clients: 1000,
            up: Duration::from_secs(30),
            memory: [4 << 20, 28 << 20],
            rate: [1e9, 0.5e9],
            handshakes: Duration::from_secs(10),
            stop: Duration::from_secs(1),
            back: Duration::from_secs(4),
            back_cpu: Duration::from_secs(2),
        };
        assert!((outcome.kilobytes_each() - 24.576).abs() < 1e-9);
        let text = markdown(&[outcome]);
        assert_eq!(text.matches("PASS").count(), 2, "{text}");
        assert_eq!(text.matches("short").count(), 1, "{text}");
    }
}
