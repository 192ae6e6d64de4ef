//! Port forwarding: asks providers' gateways for public ports, and leads packets to them on to devices of the LAN.
//!
//! ```text
//! tunnels and their addresses, leases ─> pmp::Client of each forward ─> datagrams to the gateway
//!                                                 │
//!                 open ports ─> table inet millrace_forward, written as a whole; reports
//! ```
//!
//! The table is written again with each renewal: a firewall that reloads may delete it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::forward::{Forward, Protocol, To};
use netio::netlink::{Monitor, Netlink, NetlinkError, Watch};
use netio::poll::{Poller, Waker};
use nix::sys::socket::{setsockopt, sockopt::BindToDevice};

use crate::policy::lease_of;
use crate::{SteerError, system};
use pmp::{Client, State};

pub mod pmp;

/// The table, whose family is `inet`.
pub const TABLE: &str = "millrace_forward";

/// Longest time between two looks at leases.
const LOOK: Duration = Duration::from_secs(30);

/// Shortest time between two looks: events may come in crowds.
const PACE: Duration = Duration::from_millis(50);

/// Maximum number of answers that are read at a time.
const ANSWERS: usize = 16;

/// Tokens of the poller for the stop and for news; forwards follow.
const STOP: u64 = 0;
const NEWS: u64 = 1;

/// The state of a forward, for one protocol or for both.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The tunnel's device.
    pub through: String,
    /// The device of the LAN, as the settings name it.
    pub to: String,
    /// The protocols.
    pub protocols: Vec<Protocol>,
    /// The gateway; `None` while the tunnel has no address.
    pub gateway: Option<Ipv4Addr>,
    /// `open`, `asking` or `refused`.
    pub state: &'static str,
    /// The public port, while it is open.
    pub port: Option<u16>,
    /// The device's port; `None` while the gateway has not chosen it.
    pub device_port: Option<u16>,
    /// The end of the gateway's promise, in seconds since 1970.
    pub until_unix: Option<u64>,
    /// Why the port is not open, in words; empty if it is.
    pub reason: String,
}

/// The way to a gateway.
#[derive(Clone, Copy, Eq, PartialEq)]
struct Place {
    /// Index of the tunnel's device.
    device: u32,
    /// The tunnel's address.
    own: Ipv4Addr,
    gateway: Ipv4Addr,
}

/// A gateway that is being asked, through a tunnel that is up.
struct Asked {
    place: Place,
    /// The device that gets the packets.
    target: Ipv4Addr,
    socket: UdpSocket,
    client: Client,
}

/// A forward, and who is asked for it.
struct Entry<'f> {
    forward: &'f Forward,
    asked: Result<Asked, String>,
}

/// Deletes the table: a process that was killed leaves its own.
///
/// # Errors
/// [`SteerError::NoNft`] or [`SteerError::Nft`].
pub fn clear() -> Result<(), SteerError> {
    system::nft(&format!(
        "add table inet {TABLE}\ndelete table inet {TABLE}\n"
    ))
}

/// Forwards ports until `stop` is woken. Calls `tell` with each change of the reports. Call
/// [`clear`] before.
///
/// # Errors
/// [`SteerError::Netlink`] if the kernel reports no changes, and the errors of [`clear`] at the end. Failures in between
/// are logged, and tried again.
pub fn run(
    forwards: &[Forward],
    stop: &Waker,
    mut tell: impl FnMut(&[Report]),
) -> Result<(), SteerError> {
    let failed = NetlinkError::Open;
    let mut monitor = Monitor::open(Watch {
        routes: false,
        rules: false,
        ..Watch::ALL
    })?;
    let poller = Poller::new().map_err(failed)?;
    poller.add(stop, STOP).map_err(failed)?;
    poller.add(&monitor, NEWS).map_err(failed)?;
    let mut netlink = Netlink::open()?;
    let mut entries: Vec<Entry<'_>> = forwards
        .iter()
        .map(|forward| Entry {
            forward,
            asked: Err(String::new()),
        })
        .collect();
    let mut looked: Option<Instant> = None;
    let (mut rules, mut reports) = (Vec::new(), Vec::new());
    let mut complaint = String::new();
    loop {
        let mut has_news = false;
        while monitor.next()?.is_some() {
            has_news = true;
        }
        let now = Instant::now();
        if has_news || looked.is_none_or(|it| now - it >= LOOK) {
            looked = Some(now);
            for (entry, token) in entries.iter_mut().zip(NEWS + 1..) {
                entry.look(&mut netlink, &poller, token, now);
            }
        }
        let mut has_answers = false;
        for entry in &mut entries {
            has_answers |= entry.exchange(now);
        }
        let new: Vec<String> = entries.iter().flat_map(Entry::rules).collect();
        if new != rules || has_answers && !new.is_empty() {
            match write(&new) {
                Ok(()) => complaint.clear(),
                Err(error) if error.to_string() == complaint => {}
                Err(error) => {
                    log::error!("port forwarding: {error}");
                    complaint = error.to_string();
                }
            }
            rules = new;
        }
        let new: Vec<Report> = entries.iter().flat_map(Entry::reports).collect();
        let is_alike = new.iter().map(timeless).eq(reports.iter().map(timeless));
        if has_answers || !is_alike {
            note(&reports, &new);
            tell(&new);
            reports = new;
        }
        let due = entries.iter().filter_map(Entry::due).min();
        let wait = due.map_or(LOOK, |it| it.saturating_duration_since(Instant::now()));
        let ready = poller.wait(Some(wait.min(LOOK))).map_err(failed)?;
        if ready.iter().any(|it| it == STOP) {
            break;
        }
        std::thread::sleep(PACE.saturating_sub(now.elapsed()));
    }
    for entry in &entries {
        entry.end();
    }
    clear()
}

impl Entry<'_> {
    /// Looks for the tunnel, its address and the device. Begins anew if the way to the gateway has changed.
    fn look(&mut self, netlink: &mut Netlink, poller: &Poller, token: u64, now: Instant) {
        self.asked = match (self.find(netlink), &mut self.asked) {
            (Ok((place, target)), Ok(asked)) if asked.place == place => {
                asked.target = target;
                return;
            }
            (Ok((place, target)), _) => ask(self.forward, place, target, poller, token, now),
            (Err(why), _) => Err(why),
        };
    }

    /// The way to the gateway, and the device's address; or why there is nothing to ask.
    fn find(&self, netlink: &mut Netlink) -> Result<(Place, Ipv4Addr), String> {
        let through = &self.forward.through;
        let link = netlink.link(through).ok().filter(|it| it.up);
        let device = link.ok_or_else(|| format!("{through} is not up"))?.index;
        let addresses = netlink.addresses(Some(device));
        let addresses = addresses.map_err(|error| error.to_string())?;
        let own = addresses.iter().find_map(|it| match it.ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        });
        let own = own.ok_or_else(|| format!("{through} has no IPv4 address"))?;
        let [a, b, c, _] = own.octets();
        let first = Ipv4Addr::from([a, b, c, 1]);
        let gateway = self.forward.gateway.unwrap_or(first);
        let target = match &self.forward.to {
            To::Address(ip) => *ip,
            to => lease_of(to)?,
        };
        let place = Place {
            device,
            own,
            gateway,
        };
        Ok((place, target))
    }

    /// Reads answers, and sends the requests that are due. Returns whether the gateway granted or refused a port.
    fn exchange(&mut self, now: Instant) -> bool {
        let Ok(asked) = &mut self.asked else {
            return false;
        };
        let mut has_answers = false;
        let mut answer = [0; pmp::ANSWER_MAX];
        for _ in 0..ANSWERS {
            match asked.socket.recv(&mut answer) {
                Ok(length) => has_answers |= asked.client.heard(&answer[..length], now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // A gateway that refuses the port: asking goes on.
                Err(_) => {}
            }
        }
        for request in asked.client.tick(now) {
            if let Err(error) = asked.socket.send(&request) {
                log::debug!("{}: {}: {error}", self.forward.through, asked.place.gateway);
            }
        }
        has_answers
    }

    fn due(&self) -> Option<Instant> {
        self.asked.as_ref().ok()?.client.due()
    }

    /// The rules for open ports.
    fn rules(&self) -> Vec<String> {
        let Ok(asked) = &self.asked else {
            return Vec::new();
        };
        let (through, target) = (&self.forward.through, asked.target);
        let rule = |(protocol, state): (Protocol, &State)| {
            let State::Open { port, .. } = state else {
                return None;
            };
            let port = self.forward.port.unwrap_or(*port);
            let protocol = protocol.name();
            Some(format!(
                "iifname \"{through}\" ip daddr {} {protocol} dport {port} dnat ip to {target}:{port}",
                asked.place.own
            ))
        };
        asked.client.states().filter_map(rule).collect()
    }

    /// The state, with protocols of the same state together.
    fn reports(&self) -> Vec<Report> {
        let to = match &self.forward.to {
            To::Address(ip) => ip.to_string(),
            To::Mac(mac) => mac.to_string(),
            To::Lease(name) => name.clone(),
        };
        let base = Report {
            through: self.forward.through.clone(),
            to,
            protocols: Vec::new(),
            gateway: None,
            state: "asking",
            port: None,
            device_port: self.forward.port,
            until_unix: None,
            reason: String::new(),
        };
        let asked = match &self.asked {
            Ok(asked) => asked,
            Err(why) => {
                return vec![Report {
                    protocols: self.forward.protocols.clone(),
                    reason: why.clone(),
                    ..base
                }];
            }
        };
        let mut reports: Vec<Report> = Vec::new();
        for (protocol, state) in asked.client.states() {
            let mut report = base.clone();
            report.gateway = Some(asked.place.gateway);
            match state {
                State::Asking(false) => {}
                State::Asking(true) => {
                    report.reason = format!("no answer from {}", asked.place.gateway);
                }
                State::Open { port, until } => {
                    report.state = "open";
                    report.port = Some(*port);
                    report.device_port = Some(self.forward.port.unwrap_or(*port));
                    report.until_unix = unix(*until);
                }
                State::Refused(why) => {
                    report.state = "refused";
                    report.reason = why.clone();
                }
            }
            let alike = reports.iter_mut().find(|it| {
                (it.state, it.port, &it.reason) == (report.state, report.port, &report.reason)
            });
            match alike {
                Some(other) => {
                    other.until_unix = other.until_unix.min(report.until_unix);
                    other.protocols.push(protocol);
                }
                None => {
                    report.protocols.push(protocol);
                    reports.push(report);
                }
            }
        }
        reports
    }

    /// Ends the open ports at the gateway.
    fn end(&self) {
        let Ok(asked) = &self.asked else { return };
        for request in asked.client.end() {
            // The port ends by itself otherwise.
            let _ = asked.socket.send(&request);
        }
    }
}

/// Opens a socket to the gateway.
fn ask(
    forward: &Forward,
    place: Place,
    target: Ipv4Addr,
    poller: &Poller,
    token: u64,
    now: Instant,
) -> Result<Asked, String> {
    let gateway = place.gateway;
    let open = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // The gateway is reached through this device, wherever the routes lead.
        setsockopt(&socket, BindToDevice, &forward.through.clone().into())?;
        socket.connect((gateway, pmp::PORT))?;
        socket.set_nonblocking(true)?;
        poller.add(&socket, token)?;
        Ok(socket)
    };
    let socket = open().map_err(|error| format!("{gateway} cannot be asked: {error}"))?;
    let mut nonce = [0; 12];
    crypto::random(&mut nonce);
    let client = Client::new(forward.port, &forward.protocols, place.own, nonce, now);
    Ok(Asked {
        place,
        target,
        socket,
        client,
    })
}

/// Replaces the table.
fn write(rules: &[String]) -> Result<(), SteerError> {
    let rules = rules.join("\n  ");
    // Before destination NAT of firewalls (-100), and behind the redirects of guard and policy.
    system::nft(&format!(
        "add table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n chain arriving {{\n  \
         type nat hook prerouting priority -104; policy accept;\n  {rules}\n }}\n}}\n"
    ))
}

/// A report without the end of its lifetime.
fn timeless(report: &Report) -> Report {
    Report {
        until_unix: None,
        ..report.clone()
    }
}

/// Logs reports that are new.
fn note(before: &[Report], now: &[Report]) {
    let before: Vec<Report> = before.iter().map(timeless).collect();
    for report in now.iter().map(timeless).filter(|it| !before.contains(it)) {
        log::info!("{report}");
    }
}

impl std::fmt::Display for Report {
    /// The state as a sentence.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let protocols: Vec<&str> = self.protocols.iter().map(|it| it.name()).collect();
        let (through, to, protocols) = (&self.through, &self.to, protocols.join(", "));
        match (self.port, self.device_port) {
            (Some(port), Some(own)) if port == own => {
                write!(
                    f,
                    "{through}: port {port} ({protocols}) is forwarded to {to}"
                )
            }
            (Some(port), Some(own)) => write!(
                f,
                "{through}: port {port} ({protocols}) is forwarded to {to}, port {own}"
            ),
            _ => {
                let what = match self.state {
                    "refused" => "no port",
                    _ => "asking for a port",
                };
                let colon = if self.reason.is_empty() { "" } else { ": " };
                let reason = &self.reason;
                let own = self.device_port.map(|it| format!(", port {it}"));
                let own = own.unwrap_or_default();
                write!(
                    f,
                    "{through}: {what} ({protocols}) for {to}{own}{colon}{reason}"
                )
            }
        }
    }
}

/// A later time of the clock that never jumps, in seconds since 1970.
fn unix(time: Instant) -> Option<u64> {
    let left = time.saturating_duration_since(Instant::now());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some((now + left).as_secs())
}
