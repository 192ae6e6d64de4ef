//! Sends this host's probes, and captures the packets of all probes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use host::names::message::{Kind as Addresses, question};
use netio::capture::{Capture, LENGTH};
use netio::poll::Poller;

use super::judge::{From, Kind, Probe, note};
use super::{Plan, name};

/// How long to wait for an answer. Servers behind a slow uplink, or that ask other servers, take a second or two.
const PATIENCE: Duration = Duration::from_secs(4);

/// How long to continue capturing after the last expected packet.
const AFTER: Duration = Duration::from_millis(300);

/// The destination port of packet probes: `discard`.
const PORT: u16 = 9;

/// Sends and captures. Returns whether no captured packet was lost.
pub(super) fn run(capture: &Capture, probes: &mut [Probe], plan: &Plan) -> io::Result<bool> {
    let poller = Poller::new()?;
    poller.add(capture, 0)?;
    let mut sockets = Vec::new();
    for probe in probes.iter_mut().filter(|it| it.from == From::Router) {
        let token = probe.token.clone();
        match send(probe, &plan.domain) {
            Ok(socket) if probe.kind == Kind::Query => {
                poller.add(&socket, 1)?;
                sockets.push((token, socket));
            }
            Ok(_) => {}
            Err(error) => probe.unsent = Some(error.to_string()),
        }
    }
    let begin = Instant::now();
    // Each server gets two queries; the count reaches 0 when all are answered.
    let mut awaited = 2 * sockets.len();
    let mut settled = None;
    let mut buffer = [0; LENGTH];
    loop {
        while let Some(seen) = capture.next(&mut buffer)? {
            let role = plan.devices.role(seen.index);
            note(probes, seen.index, role, seen.outgoing, seen.packet);
        }
        for (token, socket) in &sockets {
            while let Some(answered) = answer(socket) {
                awaited = awaited.saturating_sub(1);
                let probe = probes.iter_mut().find(|it| it.token == *token);
                if let Some(probe) = probe.filter(|_| answered) {
                    probe.answered = true;
                }
            }
        }
        let now = Instant::now();
        // A packet may wait for the address of its next hop. The kernel drops it if there is none.
        let is_settled = |it: &Probe| {
            it.from == From::Lan || it.kind == Kind::Query || it.unsent.is_some() || it.began
        };
        let own = awaited == 0 && probes.iter().all(is_settled) || now >= begin + PATIENCE;
        let lan = plan.from_lan.is_none_or(|time| {
            let mut theirs = probes.iter().filter(|it| it.from == From::Lan);
            now >= begin + time || theirs.all(|it| it.began)
        });
        if own && lan {
            let settled = *settled.get_or_insert(now);
            // The router may send queries for a LAN device a while later.
            let after = if plan.from_lan.is_some() {
                5 * AFTER
            } else {
                AFTER
            };
            if now >= settled + after {
                return Ok(capture.dropped()? == 0);
            }
        }
        poller.wait(Some(AFTER / 6))?;
    }
}

fn send(probe: &Probe, domain: &str) -> io::Result<UdpSocket> {
    let to = probe.to.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    match probe.kind {
        Kind::Packet => {
            socket.send_to(&probe.token, SocketAddr::new(to, PORT))?;
        }
        Kind::Query => {
            socket.connect(SocketAddr::new(to, 53))?;
            let name = name(probe, domain);
            for kind in [Addresses::A, Addresses::Aaaa] {
                let mut number = [0; 2];
                crypto::random(&mut number);
                let query = question(u16::from_ne_bytes(number), &name, kind);
                socket.send(&query.ok_or(io::ErrorKind::InvalidInput)?)?;
            }
        }
    }
    Ok(socket)
}

/// The next answer, and whether it tells about the name; an unreachable server counts as an answer that does not.
fn answer(socket: &UdpSocket) -> Option<bool> {
    let mut message = [0; 512];
    match socket.recv(&mut message) {
        Ok(count) => Some(count > 3 && matches!(message[3] & 15, 0 | 3)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Some(false),
        Err(_) => None,
    }
}
