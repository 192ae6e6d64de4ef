//! The addresses of one client, at a server.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;

use crate::lines::LINES_MAX;
use crate::lines::probe::{Kind, LEN, Probe, ProbeKey};
use crate::session::Ends;

/// Most addresses of a call that packets are taken from.
pub const ADDRESSES_MAX: usize = 4;

/// An address is forgotten after so long without a probe. Clients probe idle lines each 5 s.
pub const ALIVE: Duration = Duration::from_secs(20);

/// An address that takes part.
#[derive(Clone, Copy, Debug)]
struct Address {
    ends: Ends,
    /// The client's lines that lead here, a bit each: there may be several behind one NAT.
    lines: u16,
    heard: Instant,
}

/// A probe that was authentic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The answer, for where the probe came from.
    pub answer: [u8; LEN],
    /// Whether the address takes part.
    pub accepted: bool,
}

/// Why a probe counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not by the client.
    #[error("a forged probe")]
    Forged,
    /// Not newer than what came before.
    #[error("a probe that was sent again")]
    Replayed,
}

/// Where a client can be reached, and is heard.
#[derive(Debug)]
pub struct Addresses {
    key: ProbeKey,
    /// The secret of tokens. The client does not know it.
    secret: ProbeKey,
    call_id: u16,
    peer_call_id: u16,
    /// The number of the last probe of each line, and of all lines.
    numbers: [u64; LINES_MAX],
    newest: u64,
    /// The client's last choice: the line for packets that go by one only, and all lines in use.
    used: u8,
    lines: u16,
    table: [Option<Address>; ADDRESSES_MAX],
    heard: Option<Instant>,
}

impl Addresses {
    /// No address but the one of the control connection is known, which is not here.
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

    /// A packet that looks like a probe has come.
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

    /// The token that a probe from this address has to repeat.
    fn token(&self, of: Ipv4Addr) -> u64 {
        let mac = self.secret.mac(&[&of.octets()]);
        let (token, _) = mac.split_first_chunk().unwrap_or((&[0; 8], &[]));
        u64::from_be_bytes(*token)
    }

    /// A line is at an address, unless there are too many.
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
        // A line is in one place.
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

    /// The place of an address that takes part, below [`ADDRESSES_MAX`].
    #[must_use]
    pub fn place_of(&self, from: Ipv4Addr, now: Instant) -> Option<usize> {
        let found = self.alive(now).find(|(_, it)| it.ends.theirs == from);
        found.map(|(at, _)| at)
    }

    /// The address for what goes by one line only, and its place.
    #[must_use]
    pub fn used(&self, now: Instant) -> Option<(usize, Ends)> {
        let uses = |lines: u16| lines.checked_shr(self.used.into()).unwrap_or(0) & 1 == 1;
        let exact = self.alive(now).find(|(_, it)| uses(it.lines));
        let latest = || self.alive(now).max_by_key(|(_, it)| it.heard);
        exact.or_else(latest).map(|(at, it)| (at, it.ends))
    }

    /// The addresses of the lines that the client uses, with their places.
    pub fn in_use(&self, now: Instant) -> impl Iterator<Item = (usize, Ends)> + '_ {
        let lines = self.lines;
        let used = self.alive(now).filter(move |(_, it)| it.lines & lines != 0);
        used.map(|(at, it)| (at, it.ends))
    }

    /// All that take part: place, address, and how long ago it was heard.
    pub fn all(&self, now: Instant) -> impl Iterator<Item = (usize, Ipv4Addr, Duration)> + '_ {
        let all = self.alive(now);
        all.map(move |(at, it)| (at, it.ends.theirs, now.saturating_duration_since(it.heard)))
    }

    /// When an authentic probe last came from an address that takes part.
    #[must_use]
    pub const fn heard(&self) -> Option<Instant> {
        self.heard
    }
}

#[cfg(test)]
mod tests;
