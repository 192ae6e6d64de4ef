//! A relay's knowledge of its clients, without I/O. It takes datagrams and the time, and returns who sent them and
//! how many may be forwarded.
//!
//! A relay forwards a tunnel's datagrams unchanged to one fixed target, and the target's answers back. A client
//! announces its address by a [`Hello`], which only a holder of its key can make. The relay never answers it: without
//! a key nothing comes out of a relay. It keeps state only for keys that it was given; a stranger's datagram changes a
//! counter and nothing else.
//!
//! [`Table`] is the relay's end, [`Key::hello`] the client's; [`pieces()`] separates hellos from datagrams to
//! forward.
//!
//! ```
//! use std::time::{Instant, SystemTime};
//! use plane::Endpoint;
//! use lines::relay::{Client, Clock, Key, Rates, Table};
//!
//! let now = Instant::now();
//! let client = Client { name: "branch".to_owned(), key: Key::new(&[7; 32]), rates: Rates::of(50_000_000, 6_000) };
//! let mut table = Table::new(vec![client], now);
//!
//! let from = Endpoint::new("192.0.2.1:51820".parse()?);
//! assert_eq!(table.outbound(from.addr, 1, 100, now), None, "a stranger");
//! let hello = Key::new(&[7; 32]).hello(Clock::default().stamp(SystemTime::now()));
//! table.hello(&hello, from, now)?;
//! assert_eq!(table.outbound(from.addr, 1, 100, now), Some((0, 1)));
//! assert!(table.hello(&hello, from, now).is_err(), "a replay");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plane::Endpoint;

use self::bucket::Limit;

mod bucket;
mod hello;

pub use plane::tai64n::{Clock, Tai64n};

pub use bucket::Rates;
pub use hello::{HELLO_LEN, Hello, Key, KeyId, Malformed, Piece, pieces};

/// How often a client sends a hello. NATs forget UDP after 30 seconds (RFC 4787, section 4.3, wants two minutes; many
/// do with less).
pub const HELLO_EVERY: Duration = Duration::from_secs(20);

/// How long a client counts as being at its last address: two hellos may be lost.
pub const HEARD_FOR: Duration = Duration::from_secs(60);

/// A client as it is configured.
#[derive(Clone, Debug)]
pub struct Client {
    /// The name in logs and reports.
    pub name: String,
    /// The key that the client shares with the relay.
    pub key: Key,
    /// Limits of the rates at which the client may send and receive.
    pub rates: Rates,
}

/// What an accepted hello changed about a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// Nothing changed.
    None,
    /// The client was heard for the first time.
    First,
    /// The client was silent, and is heard again.
    Again,
    /// The client has moved from this address.
    Moved(SocketAddr),
}

/// Why a hello was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refused {
    /// The datagram does not have the form of a hello.
    Malformed,
    /// No client has the key that the hello names.
    UnknownKey,
    /// The MAC does not match the key that the hello names.
    WrongMac,
    /// The stamp is not newer than the last one: a replay, or the client's clock was set back.
    OldStamp,
}

impl Refused {
    const ALL: [Self; 4] = [
        Self::Malformed,
        Self::UnknownKey,
        Self::WrongMac,
        Self::OldStamp,
    ];
}

impl From<Malformed> for Refused {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it is malformed",
            Self::UnknownKey => "its key is unknown",
            Self::WrongMac => "its MAC is wrong",
            Self::OldStamp => "it is not newer than the last",
        })
    }
}

impl std::error::Error for Refused {}

/// The traffic in one direction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Traffic {
    /// Datagrams that were within the rates.
    pub datagrams: u64,
    /// Bytes of these datagrams, without headers of UDP and IP.
    pub bytes: u64,
    /// Datagrams dropped because they exceeded the rates.
    pub over_rate: u64,
}

/// The traffic of a client since the relay was started.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Hellos that were accepted.
    pub hellos: u64,
    /// Traffic from the client to the target.
    pub out: Traffic,
    /// Traffic from the target to the client.
    pub back: Traffic,
}

/// Datagrams that the relay dropped for reasons other than a client's rates.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Dropped {
    /// Datagrams from an address that belongs to no client.
    pub strangers: u64,
    /// Datagrams of the target for clients that are silent.
    pub silent: u64,
    /// Refused hellos, indexed by [`Refused`] in its order.
    hellos: [u64; 4],
}

impl Dropped {
    /// Number of hellos that were refused for this reason.
    #[must_use]
    pub fn hellos(&self, why: Refused) -> u64 {
        let counts = Refused::ALL.iter().zip(self.hellos);
        counts.filter(|(it, _)| **it == why).map(|it| it.1).sum()
    }
}

/// Maximum number of removed keys whose last stamps are kept. The oldest stamps are forgotten first.
const GONE_MAX: usize = 64;

/// The place of a client.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The client's address, and the address of this host to which it sent.
    endpoint: Endpoint,
    heard: Instant,
}

impl Place {
    fn is_over(self, now: Instant) -> bool {
        now >= self.heard + HEARD_FOR
    }
}

#[derive(Debug)]
struct Entry {
    client: Client,
    /// Stamp of the last accepted hello; `None` before the first.
    stamp: Option<Tai64n>,
    place: Option<Place>,
    out: Limit,
    back: Limit,
    counters: Counters,
}

impl Entry {
    fn new(client: Client, now: Instant) -> Self {
        Self {
            stamp: None,
            place: None,
            out: Limit::new(client.rates, now),
            back: Limit::new(client.rates, now),
            counters: Counters::default(),
            client,
        }
    }
}

impl Traffic {
    /// Counts `of` datagrams of `segment` bytes each, of which `taken` are within the rates.
    fn count(&mut self, taken: u32, of: u32, segment: u32) {
        self.datagrams += u64::from(taken);
        self.bytes += u64::from(taken) * u64::from(segment);
        self.over_rate += u64::from(of - taken);
    }
}

/// All clients, numbered in the order in which they were given.
#[derive(Debug)]
pub struct Table {
    entries: Vec<Entry>,
    by_id: HashMap<KeyId, usize>,
    by_address: HashMap<SocketAddr, usize>,
    /// The last stamps of removed keys, so that no recorded hello is accepted after a key comes back.
    gone: HashMap<KeyId, Tai64n>,
    /// Number of accepted hellos.
    hellos: u64,
    dropped: Dropped,
}

impl Table {
    /// Makes a table of clients that were not heard yet. Their keys must differ; of two equal keys the last client
    /// counts.
    #[must_use]
    pub fn new(clients: Vec<Client>, now: Instant) -> Self {
        let mut table = Self {
            entries: Vec::new(),
            by_id: HashMap::new(),
            by_address: HashMap::new(),
            gone: HashMap::new(),
            hellos: 0,
            dropped: Dropped::default(),
        };
        table.replace(clients, now);
        table
    }

    /// Replaces the clients. A client whose key was there before keeps its place. Returns for each client the number
    /// that its key had before.
    pub fn replace(&mut self, clients: Vec<Client>, now: Instant) -> Vec<Option<usize>> {
        let mut before: Vec<Option<Entry>> = self.entries.drain(..).map(Some).collect();
        let mut numbers = Vec::with_capacity(clients.len());
        for client in clients {
            let number = self.by_id.get(&client.key.id()).copied();
            let old = number.and_then(|at| before.get_mut(at)?.take());
            numbers.push(number.filter(|_| old.is_some()));
            let mut entry = Entry::new(client, now);
            entry.stamp = self.gone.remove(&entry.client.key.id());
            if let Some(old) = old {
                entry.stamp = old.stamp;
                entry.place = old.place;
                entry.counters = old.counters;
                if old.client.rates == entry.client.rates {
                    (entry.out, entry.back) = (old.out, old.back);
                }
            }
            self.entries.push(entry);
        }
        for old in before.into_iter().flatten() {
            self.keep(old.client.key.id(), old.stamp);
        }
        let entries = || self.entries.iter().enumerate();
        self.by_id = entries().map(|(at, it)| (it.client.key.id(), at)).collect();
        // Reserves room for all clients, so that none needs memory later.
        self.by_address = HashMap::with_capacity(2 * self.entries.len());
        let placed = entries().filter_map(|(at, it)| Some((it.place?.endpoint.addr, at)));
        self.by_address.extend(placed);
        numbers
    }

    /// Handles a datagram that begins like a hello. Returns the client's number, and what the hello changed.
    ///
    /// # Errors
    /// [`Refused`]. Only a counter has changed.
    pub fn hello(
        &mut self,
        datagram: &[u8],
        from: Endpoint,
        now: Instant,
    ) -> Result<(usize, Change), Refused> {
        let accepted = self.verify(datagram);
        let number = accepted.inspect_err(|why| {
            let counts = Refused::ALL.iter().zip(&mut self.dropped.hellos);
            counts
                .filter(|(it, _)| *it == why)
                .for_each(|(_, count)| *count += 1);
        })?;
        Ok((number, self.place(number, from, now)))
    }

    /// The last stamp of each client that was heard, removed clients included.
    pub fn stamps(&self) -> impl Iterator<Item = (KeyId, Tai64n)> {
        let entries = self.entries.iter();
        let heard = entries.filter_map(|it| Some((it.client.key.id(), it.stamp?)));
        heard.chain(self.gone.iter().map(|(id, stamp)| (*id, *stamp)))
    }

    /// Restores a client's last stamp from an earlier run of the relay, which then refuses hellos that are not newer.
    pub fn remember(&mut self, id: KeyId, stamp: Tai64n) {
        let number = self.by_id.get(&id).copied();
        match number.and_then(|at| self.entries.get_mut(at)) {
            Some(entry) => entry.stamp = entry.stamp.max(Some(stamp)),
            None => self.keep(id, Some(stamp)),
        }
    }

    /// Keeps the last stamp of a key that no client has now.
    fn keep(&mut self, id: KeyId, stamp: Option<Tai64n>) {
        let Some(stamp) = stamp else { return };
        self.gone.insert(id, stamp);
        let oldest = self.gone.iter().min_by_key(|it| it.1).map(|it| *it.0);
        if let Some(oldest) = oldest.filter(|_| self.gone.len() > GONE_MAX) {
            self.gone.remove(&oldest);
        }
    }

    /// Number of accepted hellos.
    #[must_use]
    pub const fn hellos(&self) -> u64 {
        self.hellos
    }

    /// Returns which client made a hello, and stores its stamp as the last.
    fn verify(&mut self, datagram: &[u8]) -> Result<usize, Refused> {
        let hello = Hello::parse(datagram).ok_or(Refused::Malformed)??;
        let number = *self.by_id.get(&hello.id).ok_or(Refused::UnknownKey)?;
        let entry = self.entries.get_mut(number).ok_or(Refused::UnknownKey)?;
        if !hello.is_of(&entry.client.key) {
            return Err(Refused::WrongMac);
        }
        if entry.stamp.is_some_and(|last| hello.stamp <= last) {
            return Err(Refused::OldStamp);
        }
        entry.stamp = Some(hello.stamp);
        entry.counters.hellos += 1;
        self.hellos += 1;
        Ok(number)
    }

    /// Stores where a client is.
    fn place(&mut self, number: usize, endpoint: Endpoint, now: Instant) -> Change {
        let Some(entry) = self.entries.get_mut(number) else {
            return Change::None;
        };
        let first = entry.counters.hellos == 1;
        let heard = now;
        let before = entry.place.replace(Place { endpoint, heard });
        let change = match before {
            _ if first => Change::First,
            None => Change::Again,
            Some(place) if place.is_over(now) => Change::Again,
            Some(place) if place.endpoint.addr == endpoint.addr => Change::None,
            Some(place) => Change::Moved(place.endpoint.addr),
        };
        if let Some(place) = before
            && place.endpoint.addr != endpoint.addr
            && self.by_address.get(&place.endpoint.addr) == Some(&number)
        {
            self.by_address.remove(&place.endpoint.addr);
        }
        // A NAT has given one client's address to another, so the first client loses it.
        let other = self.by_address.insert(endpoint.addr, number);
        if let Some(other) = other.filter(|other| *other != number)
            && let Some(entry) = self.entries.get_mut(other)
        {
            entry.place = None;
        }
        change
    }

    /// Decides how many of `count` datagrams of `segment` bytes each may go to the target, and whose they are.
    /// Returns `None` if no client has that address.
    pub fn outbound(
        &mut self,
        from: SocketAddr,
        count: u32,
        segment: u32,
        now: Instant,
    ) -> Option<(usize, u32)> {
        let number = self.by_address.get(&from).copied();
        let entry = number.and_then(|at| self.entries.get_mut(at));
        let entry = entry.filter(|it| it.place.is_some_and(|place| !place.is_over(now)));
        let (Some(number), Some(entry)) = (number, entry) else {
            self.dropped.strangers += u64::from(count);
            return None;
        };
        let taken = entry.out.take(count, segment, now);
        entry.counters.out.count(taken, count, segment);
        Some((number, taken))
    }

    /// Decides how many of `count` datagrams of `segment` bytes each from the target may go to a client, and where it
    /// is. Returns `None` if the client is silent.
    pub fn back(
        &mut self,
        number: usize,
        count: u32,
        segment: u32,
        now: Instant,
    ) -> Option<(Endpoint, u32)> {
        let entry = self.entries.get_mut(number);
        let place = entry.as_ref().and_then(|it| it.place);
        let place = place.filter(|place| !place.is_over(now));
        let (Some(entry), Some(place)) = (entry, place) else {
            self.dropped.silent += u64::from(count);
            return None;
        };
        let taken = entry.back.take(count, segment, now);
        entry.counters.back.count(taken, count, segment);
        Some((place.endpoint, taken))
    }

    /// Forgets the host address to which a client sent, as this machine has lost it. The client is answered from any
    /// address.
    pub fn forget_source(&mut self, number: usize) {
        let place = self
            .entries
            .get_mut(number)
            .and_then(|it| it.place.as_mut());
        if let Some(place) = place {
            place.endpoint.source = None;
        }
    }

    /// Forgets the places of clients that were silent for [`HEARD_FOR`], and calls `silent` with the name of each.
    pub fn expire(&mut self, now: Instant, mut silent: impl FnMut(&str, SocketAddr)) {
        for (number, entry) in self.entries.iter_mut().enumerate() {
            let Some(place) = entry.place.take_if(|place| place.is_over(now)) else {
                continue;
            };
            let addr = place.endpoint.addr;
            if self.by_address.get(&addr) == Some(&number) {
                self.by_address.remove(&addr);
            }
            silent(&entry.client.name, addr);
        }
    }

    /// When [`Table::expire`] next has something to do, if no hello comes until then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let heard = self.entries.iter().filter_map(|it| Some(it.place?.heard));
        Some(heard.min()? + HEARD_FOR)
    }

    /// Number of clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no clients.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The name of a client.
    #[must_use]
    pub fn name(&self, number: usize) -> &str {
        let entry = self.entries.get(number);
        entry.map_or("?", |it| it.client.name.as_str())
    }

    /// A client's address and its counters.
    #[must_use]
    pub fn of(&self, number: usize) -> Option<(Option<SocketAddr>, Counters)> {
        let entry = self.entries.get(number)?;
        Some((entry.place.map(|it| it.endpoint.addr), entry.counters))
    }

    /// Datagrams that the relay dropped for reasons other than a client's rates.
    #[must_use]
    pub const fn dropped(&self) -> &Dropped {
        &self.dropped
    }
}

#[cfg(test)]
mod tests;
