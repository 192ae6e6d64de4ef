//! A server's table of one client's addresses.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;

use crate::gre::Ends;
use crate::lines::probe::{Kind, LEN, LINES_MAX, Probe, ProbeKey};

/// Maximum number of addresses that packets of a call may come from.
pub const ADDRESSES_MAX: usize = 4;

/// Time without a probe after which an address is forgotten. Clients probe idle lines every 5 s.
pub const ALIVE: Duration = Duration::from_secs(20);

/// A client's address that takes part in a call.
#[derive(Clone, Copy, Debug)]
struct Address {
    ends: Ends,
    /// The client's lines behind this address, a bit each; one NAT may hide several.
    lines: u16,
    heard: Instant,
}

/// An authentic probe and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The answer, to be sent to the probe's origin.
    pub answer: [u8; LEN],
    /// Whether the address takes part.
    pub accepted: bool,
}

/// Why a probe is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The probe does not come from the client.
    #[error("a forged probe")]
    Forged,
    /// The probe is not newer than earlier ones.
    #[error("a probe that was sent again")]
    Replayed,
}

/// The addresses where a client is reachable and may send from.
#[derive(Debug)]
pub struct Addresses {
    key: ProbeKey,
    /// The secret for tokens, unknown to the client.
    secret: ProbeKey,
    call_id: u16,
    peer_call_id: u16,
    /// Number of the last probe on each line, and on any line.
    numbers: [u64; LINES_MAX],
    newest: u64,
    /// The client's last choice: the line for packets that take only one, and all lines in use.
    used: u8,
    lines: u16,
    table: [Option<Address>; ADDRESSES_MAX],
    heard: Option<Instant>,
}

impl Addresses {
    /// A table without addresses. The control connection's address is kept elsewhere.
    #[must_use]
    pub fn new(key: ProbeKey, secret: ProbeKey, call_id: u16, peer_call_id: u16) -> Self {
        Self {
            key,
            secret,
            call_id,
            peer_call_id,
            numbers: [0; LINES_MAX],
            newest: 0,
            used: 0,
            lines: 0,
            table: [None; ADDRESSES_MAX],
            heard: None,
        }
    }

    /// Takes a packet that looks like a probe.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn probed(&mut self, from: Ends, packet: &[u8], now: Instant) -> Result<Probed, Refused> {
        let probe = Probe::read(packet, &self.key).ok_or(Refused::Forged)?;
        let ours = probe.to == self.call_id && probe.from == self.peer_call_id;
        if probe.kind != Kind::Probe || !ours {
            return Err(Refused::Forged);
        }
        let line = usize::from(probe.line);
        if probe.number <= *self.numbers.get(line).ok_or(Refused::Forged)? {
            return Err(Refused::Replayed);
        }
        let token = self.token(from.theirs);
        let proven = bool::from(token.ct_eq(&probe.token));
        let accepted = proven && self.take_part(from, 1 << line, now);
        if proven {
            self.numbers[line] = probe.number;
            if accepted {
                self.heard = Some(now);
            }
            if accepted && probe.number > self.newest {
                self.newest = probe.number;
                (self.used, self.lines) = (probe.used, probe.lines);
            }
        }
        let answer = Probe {
            kind: Kind::Answer { accepted },
            to: self.peer_call_id,
            from: self.call_id,
            token,
            ..probe
        };
        let answer = answer.write(&self.key);
        Ok(Probed { answer, accepted })
    }

    /// The token that a probe from this address must repeat.
    fn token(&self, of: Ipv4Addr) -> u64 {
        let mac = self.secret.mac(&[&of.octets()]);
        let (token, _) = mac.split_first_chunk().unwrap_or((&[0; 8], &[]));
        u64::from_be_bytes(*token)
    }

    /// Records a line at an address. `false` if there are too many addresses.
    fn take_part(&mut self, ends: Ends, line: u16, now: Instant) -> bool {
        let is_free = |slot: &Option<Address>| {
            slot.is_none_or(|it| it.lines & !line == 0 || it.heard + ALIVE <= now)
        };
        let known = |slot: &Option<Address>| slot.is_some_and(|it| it.ends.theirs == ends.theirs);
        let place = self.table.iter().position(known);
        let place = place.or_else(|| self.table.iter().position(is_free));
        let Some(place) = place else {
            return false;
        };
        let before =
            self.table[place].filter(|it| it.ends.theirs == ends.theirs && now < it.heard + ALIVE);
        let others = before.map_or(0, |it| it.lines);
        // A line is at one address only.
        for slot in &mut self.table {
            if let Some(it) = slot {
                it.lines &= !line;
                if it.lines == 0 {
                    *slot = None;
                }
            }
        }
        self.table[place] = Some(Address {
            ends,
            lines: others | line,
            heard: now,
        });
        true
    }

    fn alive(&self, now: Instant) -> impl Iterator<Item = (usize, Address)> + '_ {
        let numbered = self.table.iter().enumerate();
        let numbered = numbered.filter_map(|(at, slot)| Some((at, (*slot)?)));
        numbered.filter(move |(_, it)| now < it.heard + ALIVE)
    }

    /// The index of an address that takes part, below [`ADDRESSES_MAX`].
    #[must_use]
    pub fn place_of(&self, from: Ipv4Addr, now: Instant) -> Option<usize> {
        let found = self.alive(now).find(|(_, it)| it.ends.theirs == from);
        found.map(|(at, _)| at)
    }

    /// The address for packets that take only one line, and its index.
    #[must_use]
    pub fn used(&self, now: Instant) -> Option<(usize, Ends)> {
        let uses = |lines: u16| lines.checked_shr(self.used.into()).unwrap_or(0) & 1 == 1;
        let exact = self.alive(now).find(|(_, it)| uses(it.lines));
        let latest = || self.alive(now).max_by_key(|(_, it)| it.heard);
        exact.or_else(latest).map(|(at, it)| (at, it.ends))
    }

    /// The addresses of the lines in use, with their indices.
    pub fn in_use(&self, now: Instant) -> impl Iterator<Item = (usize, Ends)> + '_ {
        let lines = self.lines;
        let used = self.alive(now).filter(move |(_, it)| it.lines & lines != 0);
        used.map(|(at, it)| (at, it.ends))
    }

    /// All addresses that take part: index, address, and time since the last probe.
    pub fn all(&self, now: Instant) -> impl Iterator<Item = (usize, Ipv4Addr, Duration)> + '_ {
        let all = self.alive(now);
        all.map(move |(at, it)| (at, it.ends.theirs, now.saturating_duration_since(it.heard)))
    }

    /// When the last authentic probe came from an address that takes part.
    #[must_use]
    pub const fn heard(&self) -> Option<Instant> {
        self.heard
    }
}

#[cfg(test)]
mod tests;
