//! Asks a gateway to forward ports: NAT-PMP (RFC 6886), or PCP (RFC 6887) if the gateway speaks only that. Without I/O:
//! requests out, answers in.
//!
//! ```text
//! due ─> request ─> answer: open, renewed at half of its lifetime, after 30 s at most
//!   ^       └────> no answer: again after 0.25, 0.5, … 8 s, then a pause
//!   └── refused: a pause
//! ```

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use config::forward::Protocol;

/// The port of NAT-PMP and PCP at a gateway.
pub const PORT: u16 = 5351;

/// The longest answer, in bytes (RFC 6887, section 7).
pub const ANSWER_MAX: usize = 1100;

/// Lifetime to ask for, in seconds: what providers grant.
const LIFETIME: u32 = 60;

/// Longest lifetime that counts: a later answer may correct it.
const LIFETIME_MAX: u32 = 24 * 3600;

/// Requests in a row without an answer.
const TRIES: u32 = 6;

/// Wait for the first answer, doubled each time (RFC 6886, section 3.1).
const FIRST: Duration = Duration::from_millis(250);

/// Wait after requests without an answer, and after a refusal.
const PAUSE: Duration = Duration::from_secs(30);

/// Wait after requests without an answer while a port is open: short, so that the port is kept.
const SHORT_PAUSE: Duration = Duration::from_secs(5);

/// Shortest time to a renewal.
const RENEWAL_MIN: Duration = Duration::from_secs(5);

/// Longest time to a renewal, however long the gateway promises the port: a pool may have moved to another server, and a
/// firewall may have deleted the table.
const RENEWAL_MAX: Duration = Duration::from_secs(30);

/// Version of NAT-PMP and of PCP.
const NAT_PMP: u8 = 0;
const PCP: u8 = 2;

/// Bit of an opcode that marks answers.
const ANSWER: u8 = 0x80;

/// PCP's opcode MAP.
const MAP: u8 = 1;

/// The result "unsupported version" of both protocols.
const VERSION: u16 = 1;

/// Bytes of a NAT-PMP answer, a PCP header, and PCP's MAP.
const NAT_PMP_LEN: usize = 16;
const PCP_HEADER: usize = 24;
const PCP_LEN: usize = 60;

/// The state of a port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum State {
    /// The gateway is being asked. `true` if it did not answer so far.
    Asking(bool),
    /// The gateway forwards this public port.
    Open {
        /// The public port.
        port: u16,
        /// The end of the lifetime.
        until: Instant,
    },
    /// The gateway refuses, with the reason in words.
    Refused(String),
}

/// The port of one protocol.
#[derive(Debug)]
struct Mapping {
    protocol: Protocol,
    suggested: u16,
    state: State,
    /// Requests since the last answer or pause.
    tries: u32,
    due: Instant,
    /// An answer is expected.
    is_asked: bool,
    /// Time of the last answer.
    answered: Option<Instant>,
}

/// Asks one gateway for a port, over UDP, TCP or both.
#[derive(Debug)]
pub struct Client {
    /// The device's port; `None` for the port that the gateway chooses.
    port: Option<u16>,
    own: Ipv4Addr,
    nonce: [u8; 12],
    speaks_pcp: bool,
    mappings: Vec<Mapping>,
    /// The gateway's seconds since its start, and when it told them.
    epoch: Option<(u32, Instant)>,
}

/// The fields of an answer that grants or refuses.
struct Answer {
    protocol: Protocol,
    result: u16,
    epoch: u32,
    public: u16,
    lifetime: u32,
}

impl Client {
    /// Asks for the device's `port`, or with `None` for a port of the gateway's choice. `own` is the tunnel's address,
    /// and `nonce` is random.
    #[must_use]
    pub fn new(
        port: Option<u16>,
        protocols: &[Protocol],
        own: Ipv4Addr,
        nonce: [u8; 12],
        now: Instant,
    ) -> Self {
        let mapping = |protocol: &Protocol| Mapping {
            protocol: *protocol,
            // Providers that choose the port expect 1.
            suggested: port.unwrap_or(1),
            state: State::Asking(false),
            tries: 0,
            due: now,
            is_asked: false,
            answered: None,
        };
        Self {
            port,
            own,
            nonce,
            speaks_pcp: false,
            mappings: protocols.iter().map(mapping).collect(),
            epoch: None,
        }
    }

    /// The state of each protocol's port.
    pub fn states(&self) -> impl Iterator<Item = (Protocol, &State)> {
        self.mappings.iter().map(|it| (it.protocol, &it.state))
    }

    /// Time of the next call of [`tick`](Self::tick).
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let times = (0..self.mappings.len()).map(|place| {
            let mapping = &self.mappings[place];
            let due = self.may_ask(place).then_some(mapping.due);
            let end = match mapping.state {
                State::Open { until, .. } => Some(until),
                _ => None,
            };
            due.into_iter().chain(end).min()
        });
        times.flatten().min()
    }

    /// Whether a mapping may be asked for. A port of the gateway's choice must be the same for both protocols, so the
    /// second one waits for the first one's port, to suggest it.
    fn may_ask(&self, place: usize) -> bool {
        let first = self.mappings.first();
        place == 0
            || self.port.is_some()
            || first.is_none_or(|it| !matches!(it.state, State::Asking(_)))
    }

    /// Ends lifetimes, and returns the requests that are due.
    pub fn tick(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut requests = Vec::new();
        for place in 0..self.mappings.len() {
            let may_ask = self.may_ask(place);
            let mapping = &mut self.mappings[place];
            if matches!(mapping.state, State::Open { until, .. } if until <= now) {
                mapping.state = State::Asking(true);
            }
            if !may_ask || mapping.due > now {
                continue;
            }
            if mapping.tries >= TRIES {
                let is_open = matches!(mapping.state, State::Open { .. });
                mapping.due = now + if is_open { SHORT_PAUSE } else { PAUSE };
                mapping.tries = 0;
                if mapping.state == State::Asking(false) {
                    mapping.state = State::Asking(true);
                }
                continue;
            }
            mapping.due = now + FIRST * 2_u32.pow(mapping.tries);
            mapping.tries += 1;
            mapping.is_asked = true;
            requests.push(self.request(place, LIFETIME));
        }
        requests
    }

    /// Requests that end the open ports.
    #[must_use]
    pub fn end(&self) -> Vec<Vec<u8>> {
        let places = 0..self.mappings.len();
        let open = places.filter(|it| matches!(self.mappings[*it].state, State::Open { .. }));
        open.map(|place| self.request(place, 0)).collect()
    }

    fn request(&self, place: usize, lifetime: u32) -> Vec<u8> {
        let mapping = &self.mappings[place];
        let private = self.port.unwrap_or(0);
        // A request that ends a port names no public one.
        let public = if lifetime == 0 { 0 } else { mapping.suggested };
        if !self.speaks_pcp {
            let mut request = vec![NAT_PMP, opcode(mapping.protocol), 0, 0];
            request.extend(private.to_be_bytes());
            request.extend(public.to_be_bytes());
            request.extend(lifetime.to_be_bytes());
            return request;
        }
        let mut request = vec![PCP, MAP, 0, 0];
        request.extend(lifetime.to_be_bytes());
        request.extend(self.own.to_ipv6_mapped().octets());
        request.extend(self.nonce);
        request.extend([number(mapping.protocol), 0, 0, 0]);
        request.extend(private.to_be_bytes());
        request.extend(public.to_be_bytes());
        request.extend(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets());
        request
    }

    /// Takes an answer of the gateway. Returns whether it granted, refused or changed anything.
    pub fn heard(&mut self, data: &[u8], now: Instant) -> bool {
        if !self.speaks_pcp && wants_pcp(data) {
            return self.change_to_pcp(now);
        }
        let Some(answer) = self.answer(data) else {
            return false;
        };
        let is_it = |it: &&mut Mapping| it.protocol == answer.protocol && it.is_asked;
        let Some(mapping) = self.mappings.iter_mut().find(is_it) else {
            return false;
        };
        mapping.is_asked = false;
        mapping.tries = 0;
        mapping.answered = Some(now);
        if answer.result != 0 || answer.lifetime == 0 || answer.public == 0 {
            mapping.state = State::Refused(reason(answer.result, self.speaks_pcp));
            mapping.suggested = self.port.unwrap_or(1);
            mapping.due = now + PAUSE;
            return true;
        }
        let lifetime = Duration::from_secs(answer.lifetime.min(LIFETIME_MAX).into());
        mapping.state = State::Open {
            port: answer.public,
            until: now + lifetime,
        };
        mapping.suggested = answer.public;
        mapping.due = now + (lifetime / 2).clamp(RENEWAL_MIN, RENEWAL_MAX);
        if self.port.is_none() {
            let others = self.mappings.iter_mut();
            for other in others.filter(|it| !matches!(it.state, State::Open { .. })) {
                other.suggested = answer.public;
            }
        }
        if self.has_restarted(answer.epoch, now) {
            // Otherwise a gateway whose clock runs backwards would be asked without a pause.
            let is_old = |it: &Mapping| it.answered.is_none_or(|then| now - then >= RENEWAL_MIN);
            for other in self.mappings.iter_mut() {
                if other.protocol != answer.protocol && is_old(other) {
                    other.due = now;
                    other.tries = 0;
                }
            }
        }
        true
    }

    fn change_to_pcp(&mut self, now: Instant) -> bool {
        let asked = self.mappings.iter_mut().filter(|it| it.is_asked);
        let mut has_asked = false;
        for mapping in asked {
            has_asked = true;
            mapping.is_asked = false;
            mapping.tries = 0;
            mapping.due = now;
            if self.port.is_none() {
                // A request for any port may make a PCP gateway try all of them.
                let why = "the gateway speaks PCP, which takes no `port = \"any\"`; write a port of the device";
                mapping.state = State::Refused(why.to_owned());
                mapping.due = now + PAUSE;
            }
        }
        self.speaks_pcp |= has_asked && self.port.is_some();
        has_asked
    }

    /// Whether the gateway has lost its ports since its last answer: its clock is behind (RFC 6886, section 3.6).
    fn has_restarted(&mut self, epoch: u32, now: Instant) -> bool {
        let Some((before, then)) = self.epoch.replace((epoch, now)) else {
            return false;
        };
        let passed = now.duration_since(then).as_secs() * 7 / 8;
        u64::from(epoch) + 2 < u64::from(before) + passed
    }

    /// The answer, if it is one to this client.
    fn answer(&self, data: &[u8]) -> Option<Answer> {
        let (version, code) = (*data.first()?, *data.get(1)?);
        if !self.speaks_pcp {
            let protocol = [Protocol::Udp, Protocol::Tcp]
                .into_iter()
                .find(|it| opcode(*it) | ANSWER == code)?;
            let result = u16_at(data, 2)?;
            let is_ours = data.len() >= NAT_PMP_LEN && u16_at(data, 8)? == self.port.unwrap_or(0);
            // A refusal may end after the epoch.
            if version != NAT_PMP || !is_ours && (result == 0 || data.len() >= NAT_PMP_LEN) {
                return None;
            }
            return Some(Answer {
                protocol,
                result,
                epoch: u32_at(data, 4)?,
                public: u16_at(data, 10).unwrap_or(0),
                lifetime: u32_at(data, 12).unwrap_or(0),
            });
        }
        let protocol = [Protocol::Udp, Protocol::Tcp]
            .into_iter()
            .find(|it| data.get(36) == Some(&number(*it)))?;
        let is_ours = version == PCP
            && code == MAP | ANSWER
            && data.len() >= PCP_LEN
            && data.get(PCP_HEADER..36)? == self.nonce
            && Some(u16_at(data, 40)?) == self.port;
        is_ours.then_some(Answer {
            protocol,
            result: data[3].into(),
            epoch: u32_at(data, 8)?,
            public: u16_at(data, 42)?,
            lifetime: u32_at(data, 4)?,
        })
    }
}

/// Whether a gateway answers NAT-PMP by asking for PCP.
fn wants_pcp(data: &[u8]) -> bool {
    match data {
        [NAT_PMP, code, high, low, ..] => {
            code & ANSWER != 0 && u16::from_be_bytes([*high, *low]) == VERSION
        }
        [PCP, code, ..] => code & ANSWER != 0,
        _ => false,
    }
}

const fn opcode(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Udp => 1,
        Protocol::Tcp => 2,
    }
}

/// The protocol's number in IP.
const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Udp => 17,
        Protocol::Tcp => 6,
    }
}

fn u16_at(data: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*data.get(place..)?.first_chunk()?))
}

fn u32_at(data: &[u8], place: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(place..)?.first_chunk()?))
}

/// A result in words.
fn reason(result: u16, is_pcp: bool) -> String {
    match (result, is_pcp) {
        (0, _) => "the gateway ended the port".to_owned(),
        (1, _) => "the gateway speaks neither NAT-PMP nor PCP of this version".to_owned(),
        (2, _) => {
            "the gateway does not permit it; is port forwarding on at the provider?".to_owned()
        }
        (3, false) => "the gateway has no connection itself".to_owned(),
        (4, false) | (8, true) => "the gateway has no port left".to_owned(),
        (5, false) | (4, true) => "the gateway does not forward ports".to_owned(),
        _ => format!("the gateway refuses, with code {result}"),
    }
}

#[cfg(test)]
mod tests;
