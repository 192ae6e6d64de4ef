//! An endpoint given by name in a file. Its addresses are looked up until found, tried one by one, and looked up
//! again when no address answers.

use config::types::{Endpoint, Host, is_domain};
use plane::{LineId, PeerId};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Pause after the first look-up that failed or found nothing new. It doubles each time.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause: an uplink may come up at any moment, and a query costs little.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long a working address is not reported again. Reporting repeats because the first write of the file may have
/// failed.
const TOLD: Duration = Duration::from_secs(600);

/// A name to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// Who needs the address.
    pub whose: Whose,
    /// Endpoint as configured.
    pub endpoint: Endpoint,
    /// Host name to resolve.
    pub host: String,
    /// The mark of the tunnel's own datagrams. If there is one, unmarked packets go into the tunnel.
    pub mark: u32,
}

/// Who needs the address of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A peer.
    Peer(PeerId),
    /// The relay of an uplink.
    Relay(LineId),
    /// The target that a relay forwards to.
    Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No look-up is needed.
    Rests,
    /// A look-up begins at that moment.
    Due(Instant),
    /// A look-up is running.
    Runs,
}

/// The name in an endpoint: of a peer, a relay, or a relay's target.
#[derive(Debug)]
pub struct Name {
    endpoint: Endpoint,
    host: String,
    addresses: Vec<SocketAddr>,
    /// Index of the address in use, or the one in use when the peer was last heard.
    at: usize,
    stage: Stage,
    pause: Duration,
    /// Earliest time of the next look-up.
    not_before: Instant,
    /// Whether a look-up has ended.
    tried: bool,
    /// Why the last look-up failed, as logged.
    told: Option<String>,
    /// The working address that was last reported, and when.
    good: Option<(SocketAddr, Instant)>,
}

impl Name {
    /// Makes the name of an endpoint, if it has one, to be looked up at once.
    pub fn of(endpoint: &Endpoint, now: Instant) -> Option<Self> {
        let host = match &endpoint.host {
            Host::Name(name) => name.clone(),
            // The zone is not a number: its interface may appear later, like an answer to a look-up.
            Host::Scoped(addr, zone) if endpoint.socket_addr().is_none() => {
                format!("{addr}%{zone}")
            }
            _ => return None,
        };
        Some(Self {
            endpoint: endpoint.clone(),
            host,
            addresses: Vec::new(),
            at: 0,
            stage: Stage::Due(now),
            pause: PAUSE_MIN,
            not_before: now,
            tried: false,
            told: None,
            good: None,
        })
    }

    /// The endpoint with this name.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The addresses that the last look-up found.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether a look-up has ended, well or not.
    pub fn is_tried(&self) -> bool {
        self.tried
    }

    /// When to look the name up.
    pub fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Due(at) => Some(at),
            _ => None,
        }
    }

    /// Brings a failed look-up forward, as the network has changed: an uplink may be there now. A look-up that is running
    /// and fails is repeated soon.
    pub fn hurry(&mut self, now: Instant) {
        if self.addresses.is_empty() {
            self.pause = PAUSE_MIN;
            match self.stage {
                Stage::Due(_) => self.stage = Stage::Due(now),
                // A look-up under way may have begun without the uplink; if it fails, it is repeated after a short pause.
                Stage::Runs | Stage::Rests => {}
            }
        }
    }

    /// Handles a handshake message to a peer that did not answer the last one. Returns where to send it.
    pub fn unanswered(&mut self, now: Instant) -> Option<SocketAddr> {
        self.at += 1;
        if self.at >= self.addresses.len() {
            self.at = 0;
            if self.stage == Stage::Rests {
                self.stage = Stage::Due(self.not_before.max(now));
            }
        }
        self.addresses.get(self.at).copied()
    }

    /// Handles an authenticated answer of the peer at an address. Returns the name and the address if they are to be
    /// kept for a start at which no name server answers.
    pub fn answered(&mut self, at: Option<SocketAddr>, now: Instant) -> Option<(String, IpAddr)> {
        self.pause = PAUSE_MIN;
        // Cancels a look-up that was planned because of the silence, which is over.
        if !self.addresses.is_empty() && self.stage != Stage::Runs {
            self.stage = Stage::Rests;
        }
        // Ignores a peer that has moved away from the addresses of its name.
        let at = at.filter(|at| self.addresses.contains(at))?;
        let was_told = self
            .good
            .is_some_and(|(good, since)| good == at && now < since + TOLD);
        if was_told || !is_domain(self.host.trim_end_matches('.')) {
            return None;
        }
        self.good = Some((at, now));
        Some((self.host.clone(), at.ip()))
    }

    /// Starts the look-up of the name if it is due.
    pub fn begin_due(&mut self, whose: Whose, mark: u32, now: Instant) -> Option<LookUp> {
        let due = self.due().is_some_and(|at| at <= now);
        due.then(|| self.begin(whose, mark))
    }

    /// Starts the look-up of the name.
    pub fn begin(&mut self, whose: Whose, mark: u32) -> LookUp {
        self.stage = Stage::Runs;
        LookUp {
            whose,
            endpoint: self.endpoint.clone(),
            host: self.host.clone(),
            mark,
        }
    }

    /// Takes the result of a look-up. Returns the address to go on with, if it is not `current`, or the failure to
    /// log.
    pub fn looked_up(
        &mut self,
        found: Result<Vec<SocketAddr>, String>,
        current: Option<SocketAddr>,
        now: Instant,
    ) -> Result<Option<SocketAddr>, Option<String>> {
        self.tried = true;
        self.stage = Stage::Rests;
        self.not_before = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let found = found.and_then(|found| match found.is_empty() {
            true => Err("the name has no address".to_owned()),
            false => Ok(found),
        });
        let found = found.map_err(|why| self.failed(why))?;
        self.told = None;
        let known = current.and_then(|current| found.iter().position(|addr| *addr == current));
        self.addresses = found;
        self.at = known.unwrap_or(0);
        let first = self.addresses.first().copied();
        Ok(first.filter(|_| known.is_none()))
    }

    /// Returns the failure to log, unless it was logged already.
    fn failed(&mut self, why: String) -> Option<String> {
        let words = (self.told.as_ref() != Some(&why)).then(|| {
            let then = match self.addresses.is_empty() {
                true => "trying again until it is resolved",
                false => "trying its earlier addresses",
            };
            format!("endpoint {}: {why}; {then}", self.endpoint)
        });
        self.told = Some(why);
        if self.addresses.is_empty() {
            self.stage = Stage::Due(self.not_before);
        }
        words
    }
}

#[cfg(test)]
mod tests;
