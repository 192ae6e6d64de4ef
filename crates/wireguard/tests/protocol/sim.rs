//! Hosts on a virtual wire with a virtual clock: real devices, each with a minimal data plane.

mod host;
mod perform;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use crypto::x25519::PrivateKey;
use crypto::{Key, TAG_LEN, aead};
use plane::{Packet, Payload, PeerId, Protocol as _};
use wireguard::message::{TYPE_DATA, kind};
use wireguard::{DATA_HEADER_LEN, DataHeader, DataKeys, Device, Output, WireGuard};

use host::SendKey;
pub(crate) use host::{Event, Host};

pub(crate) const LATENCY: Duration = Duration::from_millis(10);

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the delay of each arriving copy of a datagram; empty if the datagram is lost.
type Link = Box<dyn FnMut(&Flight) -> Vec<Duration>>;

#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// The forms of handshakes, with WireGuard's times, in which scenarios run: settings of AmneziaWG, or none.
#[cfg(feature = "amnezia")]
pub(crate) const FORMS: &[&str] = &["", crate::amneziawg::V20, crate::amneziawg::WIDE];
#[cfg(not(feature = "amnezia"))]
pub(crate) const FORMS: &[&str] = &[""];

pub(crate) struct Sim {
    /// The form of all hosts' handshakes. Data keeps WireGuard's form, and junk is not sent.
    form: &'static str,
    /// Bytes that keepalives are padded with, as `ContentPaddingAddition` has it.
    pub(crate) padding: usize,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Host>,
    pub(crate) link: Link,
    /// Every datagram that was sent.
    pub(crate) sent: Vec<Flight>,
    flying: BTreeMap<(Instant, u64), Flight>,
    number: u64,
}

pub(crate) fn wall() -> SystemTime {
    SystemTime::UNIX_EPOCH + secs(1_700_000_000)
}

impl Sim {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            form: "",
            padding: 0,
            start: now,
            now,
            hosts: Vec::new(),
            link: Box::new(|_| vec![LATENCY]),
            sent: Vec::new(),
            flying: BTreeMap::new(),
            number: 0,
        }
    }

    /// Creates two hosts that know each other's addresses.
    pub(crate) fn pair() -> (Self, PeerId, PeerId) {
        Self::pair_in("")
    }

    /// As [`Sim::pair`], in a form of [`FORMS`].
    pub(crate) fn pair_in(form: &'static str) -> (Self, PeerId, PeerId) {
        let mut sim = Self {
            form,
            ..Self::new()
        };
        sim.host(PrivateKey::generate());
        sim.host(PrivateKey::generate());
        let (at_a, at_b) = sim.join(0, 1);
        (sim, at_a, at_b)
    }

    pub(crate) fn host(&mut self, key: PrivateKey) -> usize {
        let number = self.hosts.len();
        let mut device = Device::new(self.now, wall(), number as u64);
        device.set_private_key(Some(key), self.now, &mut Vec::new());
        #[cfg(not(feature = "amnezia"))]
        assert_eq!(self.form, "");
        #[cfg(feature = "amnezia")]
        let profile = crate::amneziawg::profile(self.form);
        #[cfg(feature = "amnezia")]
        device.set_profile(profile, self.now, &mut Vec::new());
        let address = SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 51820));
        let (events, receive, planes) = (Vec::new(), HashMap::new(), HashMap::new());
        self.hosts.push(Host {
            device,
            address,
            wall: wall(),
            under_load: false,
            up: true,
            events,
            receive,
            planes,
        });
        number
    }

    /// Makes both hosts peers of one another. Returns the peer at `a`, which is `b`, and the other way round.
    pub(crate) fn join(&mut self, a: usize, b: usize) -> (PeerId, PeerId) {
        (self.add(a, b), self.add(b, a))
    }

    pub(crate) fn add(&mut self, at: usize, other: usize) -> PeerId {
        let key = self.hosts[other].device.public_key().unwrap();
        let id = self.hosts[at].device.add_peer(key).unwrap();
        let address = self.hosts[other].address;
        self.hosts[at].planes.entry(id).or_default().endpoint = Some(address);
        let now = self.now;
        self.with(at, |device, out| {
            device.set_endpoint(id, Some(address), now, out);
        });
        id
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Calls into a device and performs its outputs.
    pub(crate) fn with<R>(
        &mut self,
        at: usize,
        call: impl FnOnce(&mut Device, &mut Vec<Output>) -> R,
    ) -> R {
        let mut out = Vec::new();
        self.tell_time(at);
        let result = call(&mut self.hosts[at].device, &mut out);
        self.perform(at, out);
        result
    }

    fn log(&mut self, at: usize, event: Event) {
        let elapsed = self.elapsed();
        self.hosts[at].events.push((elapsed, event));
    }

    /// Sends data from host `at` to its peer, or stages it.
    pub(crate) fn send(&mut self, at: usize, peer: PeerId, text: &[u8]) {
        let plane = self.hosts[at].planes.entry(peer).or_default();
        if plane.staged.len() == 128 {
            plane.staged.pop_front();
        }
        plane.staged.push_back(text.to_vec());
        self.flush(at, peer);
    }

    fn flush(&mut self, at: usize, peer: PeerId) {
        let now = self.now;
        loop {
            let plane = self.hosts[at].planes.entry(peer).or_default();
            if plane.staged.is_empty() {
                return;
            }
            let usable =
                |key: &SendKey| now < key.limits.expires && key.counter < key.limits.messages_max;
            if !plane.send.as_ref().is_some_and(usable) {
                return self.with(at, |device, out| device.need_session(peer, now, out));
            }
            let Some(text) = plane.staged.pop_front() else {
                return;
            };
            self.seal(at, peer, &text);
        }
    }

    fn seal(&mut self, at: usize, peer: PeerId, text: &[u8]) {
        let now = self.now;
        let host = &mut self.hosts[at];
        let plane = host.planes.get_mut(&peer).unwrap();
        let Some(key) = &mut plane.send else { return };
        assert!(
            !host::is_barred(key.only_exchange, text),
            "a user's packet on a session without a post-quantum key"
        );
        let header = DataHeader {
            receiver: key.remote_index,
            counter: key.counter,
        };
        key.counter += 1;
        let mut message = header.emit().to_vec();
        message.extend_from_slice(text);
        if text.is_empty() {
            message.resize(message.len() + self.padding, 0);
        }
        message.resize(message.len() + TAG_LEN, 0);
        aead::seal(
            &key.key,
            header.counter,
            &[],
            &mut message[DATA_HEADER_LEN..],
        );
        let aged = key.limits.refresh_at.is_some_and(|at| now >= at)
            || key.counter > key.limits.refresh_messages;
        let refresh =
            (aged && !std::mem::replace(&mut key.reported, aged)).then_some(key.local_index);

        plane.notes.unacknowledged_since = None;
        plane.notes.last_traversal = Some(now);
        if !text.is_empty() {
            plane.notes.unanswered_since.get_or_insert(now);
            plane.notes.last_data_sent = Some(now);
        }
        let to = plane.endpoint.unwrap();
        self.log(
            at,
            if text.is_empty() {
                Event::Keepalive
            } else {
                Event::Data
            },
        );
        self.throw(at, to, message);
        if let Some(local_index) = refresh {
            self.with(at, |device, out| {
                device.refresh(peer, local_index, now, out);
            });
        }
        self.noted(at, peer);
    }

    pub(crate) fn set_counter(&mut self, at: usize, peer: PeerId, counter: u64) {
        self.hosts[at]
            .planes
            .get_mut(&peer)
            .unwrap()
            .send
            .as_mut()
            .unwrap()
            .counter = counter;
    }

    /// Reports activity, unless the device polls for it.
    fn noted(&mut self, at: usize, peer: PeerId) {
        let now = self.now;
        let plane = self.hosts[at].planes.get_mut(&peer).unwrap();
        let notes = plane.notes;
        let something = notes.unanswered_since.is_some() || notes.unacknowledged_since.is_some();
        if something && !std::mem::replace(&mut plane.armed, true) {
            self.with(at, |device, out| device.activity(peer, &notes, now, out));
        }
    }

    pub(crate) fn throw(&mut self, at: usize, to: SocketAddr, bytes: Vec<u8>) {
        let flight = Flight {
            from: self.hosts[at].address,
            to,
            bytes,
        };
        self.sent.push(flight.clone());
        for delay in (self.link)(&flight) {
            self.number += 1;
            self.flying
                .insert((self.now + delay, self.number), flight.clone());
        }
    }

    /// A datagram that no device has sent.
    pub(crate) fn inject(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.number += 1;
        self.flying
            .insert((self.now, self.number), Flight { from, to, bytes });
    }

    fn arrive(&mut self, flight: Flight) {
        let Some(at) = self
            .hosts
            .iter()
            .position(|host| host.up && host.address == flight.to)
        else {
            return;
        };
        if kind(&flight.bytes) == Some(TYPE_DATA) {
            return self.open(at, flight);
        }
        let (now, load) = (self.now, self.hosts[at].under_load);
        let result = self.with(at, |device, out| {
            device.receive(&flight.bytes, flight.from, now, load, out)
        });
        if let Err(reason) = result {
            self.log(at, Event::Dropped(reason));
        }
    }

    fn open(&mut self, at: usize, mut flight: Flight) {
        let now = self.now;
        let Some(header) = DataHeader::parse(&flight.bytes) else {
            return;
        };
        let host = &mut self.hosts[at];
        let Some(key) = host.receive.get_mut(&header.receiver) else {
            return;
        };
        if now >= key.limits.expires {
            return;
        }
        let sealed = &mut flight.bytes[DATA_HEADER_LEN..];
        let Ok(text) = aead::open(&key.key, header.counter, &[], sealed) else {
            return;
        };
        if !key.window.accept(header.counter) {
            return self.log(at, Event::Replayed);
        }
        let peer = key.peer;
        let confirm = std::mem::replace(&mut key.confirm, false);
        let refresh = key.limits.refresh_at.take_if(|at| now >= *at).is_some();
        let plane = host.planes.entry(peer).or_default();
        plane.notes.unanswered_since = None;
        plane.notes.last_traversal = Some(now);
        let mut text = text.to_vec();
        let is_keepalive = is_keepalive(&mut text);
        if !is_keepalive {
            plane.notes.unacknowledged_since.get_or_insert(now);
        }
        if plane.endpoint.replace(flight.from) != Some(flight.from) {
            self.with(at, |device, out| {
                device.set_endpoint(peer, Some(flight.from), now, out);
            });
        }
        #[cfg(feature = "postquantum")]
        let exchanged = postquantum::is_exchange(&text).then(|| text.clone());
        self.log(
            at,
            if is_keepalive {
                Event::KeepaliveReceived
            } else {
                Event::Received(text)
            },
        );
        if confirm {
            self.with(at, |device, out| {
                device.confirmed(peer, header.receiver, now, out);
            });
        }
        #[cfg(feature = "postquantum")]
        if let Some(payload) = exchanged {
            self.with(at, |device, out| {
                device.exchange_received(peer, &payload, now, out);
            });
        }
        if refresh {
            self.with(at, |device, out| {
                device.refresh(peer, header.receiver, now, out);
            });
        }
        self.noted(at, peer);
    }

    /// Runs the simulation until `until` after the start.
    pub(crate) fn run_until(&mut self, until: Duration) {
        let end = self.start + until;
        loop {
            let deadlines = self.hosts.iter().enumerate().filter(|(_, host)| host.up);
            let deadline = deadlines
                .filter_map(|(at, host)| Some((host.device.next_deadline()?, at)))
                .min();
            let arrival = self.flying.keys().next().copied();
            match (arrival, deadline) {
                (Some(key), timer) if key.0 <= end && timer.is_none_or(|(at, _)| key.0 <= at) => {
                    self.now = self.now.max(key.0);
                    if let Some(flight) = self.flying.remove(&key) {
                        self.arrive(flight);
                    }
                }
                (_, Some((at, host))) if at <= end => {
                    self.now = self.now.max(at);
                    self.expire(host);
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// Sets the device's clock to the host's time, as the program does whenever it has work.
    fn tell_time(&mut self, at: usize) {
        let (now, elapsed) = (self.now, self.elapsed());
        let host = &mut self.hosts[at];
        host.device.set_wall_clock(now, host.wall + elapsed);
    }

    fn expire(&mut self, at: usize) {
        self.tell_time(at);
        let now = self.now;
        let Host { device, planes, .. } = &mut self.hosts[at];
        let mut out = Vec::new();
        device.expired(
            now,
            |peer| {
                planes
                    .get(&peer)
                    .map(|plane| plane.notes)
                    .unwrap_or_default()
            },
            &mut out,
        );
        self.perform(at, out);
        let next = self.hosts[at].device.next_deadline();
        assert!(
            next.is_none_or(|next| next > now),
            "a deadline that was dealt with is still due"
        );
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        self.run_until(self.elapsed() + time);
    }
}

/// Whether the protocol's data format takes the opened bytes for a keepalive.
fn is_keepalive(text: &mut [u8]) -> bool {
    let keys = DataKeys {
        remote_index: 0,
        seal: Key::ZERO,
        open: Key::ZERO,
        #[cfg(feature = "postquantum")]
        exchange: None,
    };
    let formats = WireGuard::new().formats(&keys).unwrap();
    let mut packet = Packet {
        len: text.len() as u32,
        ..Packet::default()
    };
    formats.open.reveal(text, &mut packet) == Payload::Keepalive
}

/// Asserts that the times are one retransmission timeout apart, jitter included.
pub(crate) fn assert_retransmissions(times: &[Duration]) {
    for pair in times.windows(2) {
        let gap = pair[1] - pair[0];
        assert!((secs(5)..=millis(5333)).contains(&gap), "{times:?}");
    }
}
