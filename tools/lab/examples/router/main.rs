//! A virtual router, with a VPN in it, between a computer behind it and a far end on this machine.
//!
//! `make count-router` and `make test-arm` call it through `scripts/router`, which prepares what the machine is made
//! of.
//!
//! ```text
//!  device (namespace)          router (qemu-system-arm)             far end (namespace)
//!  10.91.0.2  lan0 ------- eth0  10.91.0.1   10.92.0.1  eth1 ------- wan0  10.92.0.2
//!                                  VPN 10.93.0.2 ======================= VPN 10.93.0.1
//! ```
//!
//! The device's packets to 10.93.0.1 go through the router's kernel, its VPN, and the far end's. Only the router is
//! counted: a plug-in adds up the instructions that its processor executes, in the kernel and in programs, and both
//! network interfaces are read at this end. `count` prints the instructions for each packet that the router forwarded;
//! `test` compares what comes back with what was sent.

mod contender;
mod machine;
mod pptp;
mod table;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use contender::{Contender, FarEnd};
use lab::load::EchoServer;
use lab::{Host, LabError};
use machine::{Machine, Parts};
use table::Table;
use traffic::{Cost, Tcp};

/// How long the machine gets to boot and to make its tunnel.
const READY: Duration = Duration::from_secs(180);
/// Port of the far end's echo server.
const ECHO_PORT: u16 = 7;

const USAGE: &str = "usage: router count|test DIRECTORY CPU REPETITIONS CONTENDER...";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, directory, cpu, repetitions, names @ ..] = &words[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let parts = Parts {
        directory: PathBuf::from(directory),
        cpu: cpu.clone(),
    };
    let contenders: Option<Vec<Contender>> =
        names.iter().map(|name| Contender::named(name)).collect();
    let (Some(contenders), Ok(repetitions)) = (contenders, repetitions.parse::<u32>()) else {
        eprintln!("{USAGE}\ncontenders: {}", Contender::names().join(" "));
        return ExitCode::from(2);
    };
    if let Err(error) = lab::enter() {
        eprintln!("router: {error}");
        return ExitCode::FAILURE;
    }
    // Number of failed repetitions, by contender.
    let mut failures = vec![0; contenders.len()];
    if mode == "count" {
        println!("{}", Cost::HEAD);
    }
    let mut table = Table::default();
    // Contenders take turns: changes on this machine affect all alike.
    for repetition in 0..repetitions {
        let last = repetition + 1 == repetitions;
        for (&contender, failures) in contenders.iter().zip(&mut failures) {
            let result = match mode.as_str() {
                "count" => count(&parts, contender, last, &mut table),
                _ => test(&parts, contender),
            };
            if let Err(error) = result {
                eprintln!("{}: {error}", contender.name());
                *failures += 1;
            }
        }
    }
    if mode == "count" {
        println!("\n{table}");
    }
    // A failed repetition is left out of the medians; it must not end an hour of counting.
    let most = match mode.as_str() {
        "count" => repetitions.saturating_sub(1),
        _ => 0,
    };
    ExitCode::from(u8::from(failures.iter().any(|&it| it > most)))
}

/// A router that has made its tunnel, and what is around it. Fields are dropped in order.
struct Stage<'h> {
    machine: Machine,
    _far_end: FarEnd<'h>,
    _echo: EchoServer,
}

impl<'h> Stage<'h> {
    fn set(
        parts: &Parts,
        contender: Contender,
        device: &'h Host,
        far: &'h Host,
    ) -> Result<Self, LabError> {
        let (make, overlay) = contender.prepare(far)?;
        let mut machine = Machine::start(parts, &overlay, device, far)?;
        let far_end = make.start(far, &parts.directory)?;
        let echo = EchoServer::start(far, ECHO_PORT)?;
        let begun = Instant::now();
        let inside = machine::FAR_INSIDE.to_string();
        // One packet at a time: a thousand in a second keep the emulated processor from its programs.
        let answered = || {
            let ping = device.command("ping");
            ping.args(["-n", "-c", "1", "-W", "1", &inside]).exit()
        };
        while !answered()?.status.success() {
            machine.still_running()?;
            if begun.elapsed() > READY {
                return Err(machine.failure("the tunnel did not come up"));
            }
        }
        Ok(Self {
            machine,
            _far_end: far_end,
            _echo: echo,
        })
    }
}

/// Sends one kind of traffic.
type Send<'a> = &'a dyn Fn() -> Result<Cost, LabError>;

/// One repetition, in a machine of its own; the last one writes a profile of each kind of traffic.
fn count(
    parts: &Parts,
    contender: Contender,
    last: bool,
    table: &mut Table,
) -> Result<(), LabError> {
    let (device, far) = (Host::private("device")?, Host::private("far end")?);
    let stage = Stage::set(parts, contender, &device, &far)?;
    let machine = &stage.machine;
    let idle = machine.facts()?.resident;
    let tcp = Tcp::start(&far)?;
    // The effects of the first packets (keys chosen, caches filled, windows opened) are not counted.
    tcp.send(machine, &device, false)?;
    traffic::datagrams(machine, &device, ECHO_PORT)?;
    let sends: [(&str, Send<'_>); 3] = [
        ("", &|| tcp.send(machine, &device, false)),
        ("-down", &|| tcp.send(machine, &device, true)),
        ("-udp", &|| traffic::datagrams(machine, &device, ECHO_PORT)),
    ];
    for (what, (suffix, send)) in table::TRAFFIC.into_iter().zip(sends) {
        if last {
            machine.begin_profile();
        }
        let cost = send()?;
        if last {
            machine.end_profile(&format!("{}{suffix}", contender.name()));
        }
        println!("{}", cost.line(contender.name(), what));
        table.add(contender.name(), what, &cost);
    }
    let facts = machine.facts()?;
    table.memory(contender.name(), [idle, facts.resident]);
    table.conditions(contender.name(), facts);
    Ok(())
}

fn test(parts: &Parts, contender: Contender) -> Result<(), LabError> {
    let (device, far) = (Host::private("device")?, Host::private("far end")?);
    let _stage = Stage::set(parts, contender, &device, &far)?;
    let compared = traffic::compare(&device, &far)?;
    println!(
        "{} on {}: {compared} bytes there and back, the same",
        contender.name(),
        parts.cpu
    );
    Ok(())
}
