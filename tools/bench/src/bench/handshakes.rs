//! `millrace bench --clients N --impl millrace`: many clients that connect to one WireGuard server at the same
//! moment.
//!
//! The server has just started and has all peers configured. The clients run the protocol without interfaces, in this
//! process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use std::{io, thread};

use host::machine::Machine;
use lab::cpu::usage;
use lab::load::{Times, WgClients};
use lab::peer::{Keys, WgInterface};
use lab::{Carrier, Host, LabError, Link, LinkOptions};

use super::contender::Contender;
use super::rig::RigError;
use super::table::{Table, Verdicts};
use crate::bench::table::number;
use crate::two_lines::failed;

/// How long all clients together may take to connect.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time for the server's memory to settle.
const REST: Duration = Duration::from_secs(2);
const PORT: u16 = 51820;
const MTU: u32 = 1420;

/// Target: seconds until 10,000 clients have their sessions.
const TARGET: f64 = 20.0;

/// The results of one server with its clients.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    name: &'static str,
    clients: u32,
    /// How long `wg` took to configure all peers.
    told: Duration,
    /// When each client had its session, counted from the first handshake.
    times: Times,
    /// The server's processor time for the handshakes.
    cpu: Duration,
    /// The server's memory in bytes: with all peers configured, and with all sessions.
    memory: [u64; 2],
}

/// Lets `clients` clients connect to a server at once.
///
/// # Errors
/// [`RigError::Lab`] if a program fails, some clients get no session, or the contender does not use WireGuard.
pub(super) fn measure(contender: Contender, clients: u32) -> Result<Outcome, RigError> {
    let name = contender.name();
    let Some(Carrier::WireGuard(program, options)) = contender.carrier()? else {
        return Err(LabError::Unusable {
            what: format!("--impl {name}"),
            hint: "with --clients, --impl must name WireGuard or OpenVPN programs".to_owned(),
        }
        .into());
    };
    let [server, crowd] = ["server", "crowd"].map(Host::private);
    let (server, crowd) = (server?, crowd?);
    let link = LinkOptions::numbered(1);
    Link::new(&crowd, "eth0", &server, "eth0", &link)?;
    let running = program.start(&server, "wg0", &options)?;
    let keys = Keys::generate(&server)?;
    let mut callers = WgClients::new(clients, &keys)?;
    callers.settle(&crowd, &server, link.a4())?;
    let start = Instant::now();
    running.configure(&WgInterface {
        keys,
        listen_port: Some(PORT),
        fwmark: None,
        peers: callers.peers(),
    })?;
    let told = start.elapsed();
    running.bring_up(&[(IpAddr::V4(Ipv4Addr::new(10, 97, 0, 1)), 24)], MTU)?;
    thread::sleep(REST);
    let process = running.process.id();
    let before = usage(process)?;
    let at = SocketAddr::new(link.b4(), PORT);
    let times = callers.call(&crowd, at, PATIENCE)?;
    let after = usage(process)?;
    if times.len() < clients as usize {
        let error = io::Error::other(format!("{} of {clients} have a session", times.len()));
        return Err(failed("wait for handshakes")(error).into());
    }
    Ok(Outcome {
        name,
        clients,
        told,
        times,
        cpu: after.cpu().saturating_sub(before.cpu()),
        memory: [before.rss, after.rss],
    })
}

/// All results, compared with the project's target for this program.
pub(super) fn markdown(outcomes: &[Outcome]) -> String {
    let mut table = Table::new([
        "",
        "clients",
        "configured, s",
        "half have a session, s",
        "all, s",
        "server's CPU s",
        "server's MB before",
        "after",
    ]);
    let mut verdicts = Verdicts::default();
    for outcome in outcomes {
        let all = outcome.times.max().as_secs_f64();
        let [before, after] = outcome.memory.map(|bytes| number(bytes as f64 / 1e6));
        table.row([
            outcome.name.to_owned(),
            outcome.clients.to_string(),
            number(outcome.told.as_secs_f64()),
            number(outcome.times.median().as_secs_f64()),
            number(all),
            number(outcome.cpu.as_secs_f64()),
            before,
            after,
        ]);
        if !outcome.name.starts_with("millrace") {
            continue;
        }
        let what = format!("{}: all handshakes, s", outcome.name);
        verdicts.row(what, format!("<= {TARGET}"), all, all <= TARGET);
    }
    let machine = Machine::this().show();
    format!(
        "# millrace bench --clients, WireGuard\n\n{machine}.\n\nClients and server share this machine.\n\n{}\n{}",
        table.render(),
        verdicts.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_program_is_judged() {
        let outcome = |name, seconds| Outcome {
            name,
            clients: 10_000,
            told: Duration::from_secs(1),
            times: Times::new(vec![Duration::from_secs(1), Duration::from_secs(seconds)]),
            cpu: Duration::from_secs(2),
            memory: [10 << 20, 20 << 20],
        };
        let text = markdown(&[outcome("millrace", 20), outcome("wireguard-go", 30)]);
        assert_eq!(text.matches("PASS").count(), 1, "{text}");
        assert!(!text.contains("short"), "{text}");
        assert!(markdown(&[outcome("millrace", 21)]).contains("short"));
    }
}
