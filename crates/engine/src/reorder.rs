//! The place where packets that came by several lines are put back into order: behind the replay window, which has let
//! them through, and in front of the write.
//!
//! Each session has a window of its own, since each begins with new numbers. What a window holds is copied: the memory of
//! a batch is used again.

use crate::missing::Missing;
use crate::peer_order::PeerOrder;
use lines::inner::{Kind, Reader};
use lines::reorder::{Arrival, Reordering, Settings, Verdict, Window};
use plane::{LINES_MAX, LineId, OrderCounts, Reorder};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most bytes that windows of all sessions hold together. Beyond that packets are written as they come.
pub(crate) const HELD_MAX: usize = 16 << 20;

/// Packet numbers may have an epoch in front of so many bits (OpenVPN), from which they begin anew.
const NUMBER_BITS: u32 = 48;

/// The window of one session.
pub(crate) struct Order {
    settings: Arc<Reorder>,
    /// Packets that wait; empty for a number whose packet is none of the tunnel's, and was dealt with when it came.
    window: Window<Box<[u8]>>,
    epoch: u64,
    /// Counts of windows of former epochs.
    before: OrderCounts,
    /// Counts that the peer's counters have already.
    told: OrderCounts,
    reordering: Reordering,
    /// Where a peer with several addresses was heard: the window counts each as a line.
    addresses: Vec<(LineId, SocketAddr)>,
    /// The one that makes room for another.
    oldest: usize,
    /// Whether the session is among those that are looked at when a deadline comes.
    pub(crate) listed: bool,
    /// The window knows what the one before it has learnt of requests.
    learns: bool,
}

impl Order {
    /// A window that has seen nothing but what another has learnt of the peer's lines. `None`: the settings make no sense.
    pub(crate) fn new(settings: &Arc<Reorder>, reordering: Reordering) -> Option<Box<Self>> {
        let mut window = window(settings)?;
        window.expect(reordering);
        Some(Box::new(Self {
            window,
            reordering,
            settings: Arc::clone(settings),
            epoch: 0,
            before: OrderCounts::default(),
            told: OrderCounts::default(),
            addresses: Vec::new(),
            oldest: 0,
            listed: false,
            learns: false,
        }))
    }

    /// Whether these are its settings, and no others that were set since.
    pub(crate) fn has(&self, settings: &Arc<Reorder>) -> bool {
        Arc::ptr_eq(&self.settings, settings)
    }

    /// Whether this number begins an epoch. What waits becomes due, and is to be fetched first.
    pub(crate) fn ends_before(&mut self, number: u64) -> bool {
        let ends = number >> NUMBER_BITS > self.epoch;
        if ends {
            self.window.flush();
        }
        ends
    }

    /// The window's line for an address of a peer that calls by several lines, of which this end sees no more than that. A
    /// packet has come from there that is no copy.
    pub(crate) fn line_at(&mut self, line: LineId, address: SocketAddr) -> LineId {
        if let Some(known) = self.line_known_at(line, address) {
            return known;
        }
        let way = (line, address);
        let at = if self.addresses.len() < LINES_MAX {
            self.addresses.push(way);
            self.addresses.len() - 1
        } else {
            let at = self.oldest;
            self.oldest = (at + 1) % LINES_MAX;
            self.addresses[at] = way;
            at
        };
        LineId(at as u8)
    }

    /// The line of an address, if a packet has come from there before.
    pub(crate) fn line_known_at(&self, line: LineId, address: SocketAddr) -> Option<LineId> {
        let way = (line, address);
        let at = self.addresses.iter().position(|known| *known == way)?;
        Some(LineId(at as u8))
    }

    /// All that waits becomes due.
    pub(crate) fn flush(&mut self) {
        self.window.flush();
    }

    /// The number has come, and there is no packet to be held.
    pub(crate) fn passed(&mut self, number: u64, line: LineId, now: Instant) -> Verdict {
        self.follow(number);
        if number >> NUMBER_BITS < self.epoch {
            self.dropped();
            return Verdict::Duplicate;
        }
        let arrival = Arrival {
            urgent: true,
            ..Arrival::new(low(number), line, 0)
        };
        self.window.arrived(&arrival, now, Box::default)
    }

    /// A packet has come that the replay window knows nothing of. For the window of the order it has not come.
    pub(crate) fn dropped(&mut self) {
        self.before.received += 1;
    }

    /// A packet has come that is no copy. Says whether it is to be written now or is held. Where there is no `room` it is
    /// not held.
    pub(crate) fn arrived(
        &mut self,
        (number, line): (u64, LineId),
        packet: &[u8],
        reader: &Reader,
        room: bool,
        now: Instant,
    ) -> Verdict {
        self.follow(number);
        if number >> NUMBER_BITS < self.epoch {
            // All that can still come of a former epoch is late.
            self.before.late += 1;
            self.dropped();
            return Verdict::DeliverLate;
        }
        // The usual case: nothing of the packet has to be known.
        if self.window.arrived_in_order(low(number), 1, line) {
            return Verdict::Deliver;
        }
        let inner = reader.read(packet);
        let arrival = Arrival {
            // Linux takes a segment for lost a quarter of a round trip after a later one has come (RFC 8985), however few
            // came: bulk transfers wait for each gap.
            flow: inner
                .filter(|inner| inner.kind != Kind::Tcp)
                .map(|inner| inner.flow),
            urgent: !room || inner.is_some_and(|inner| inner.needs_no_order()),
            ..Arrival::new(low(number), line, packet.len())
        };
        match self.window.arrived(&arrival, now, || packet.into()) {
            // The replay window knows that it is no copy.
            Verdict::Ancient | Verdict::Ignored => Verdict::DeliverLate,
            verdict => verdict,
        }
    }

    /// The request for the peer, if it is asked at all: a request at most, and none if nothing is missing.
    pub(crate) fn missing(&mut self, asks: bool, peer: &PeerOrder, now: Instant) -> Missing {
        let mut missing = Missing::default();
        self.window.set_repair(asks);
        match (asks, self.window.learnt()) {
            (true, Some(_)) if !self.learns => {
                self.learns = true;
                self.window.learn(peer.learnt());
            }
            (true, Some(learnt)) if learnt != peer.learnt() => peer.learn(learnt),
            _ => {}
        }
        while asks
            && missing.has_room()
            && let Some(number) = self.window.missing(now)
        {
            missing.add(self.epoch << NUMBER_BITS | number);
        }
        missing
    }

    /// The next packet whose turn has come.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Box<[u8]>> {
        loop {
            let packet = self.window.due(now)?;
            if !packet.is_empty() {
                return Some(packet);
            }
        }
    }

    /// When the next packet that waits must go, though one in front of it is missing.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.window.next_deadline()
    }

    /// Bytes that wait.
    pub(crate) fn held(&self) -> usize {
        self.window.waiting().1
    }

    /// Adds to the peer's counters what was counted since the last time, and says what was learnt of its lines.
    pub(crate) fn tell(&mut self, peer: &PeerOrder, now: Instant) {
        let counts = self.counts();
        if counts != self.told {
            peer.note(&self.told, &counts);
            self.told = counts;
        }
        let reordering = self.window.reordering(now);
        if reordering != self.reordering {
            peer.set_reordering(reordering);
            self.reordering = reordering;
        }
    }

    fn counts(&self) -> OrderCounts {
        let (counters, repairs) = (self.window.counters(), self.window.repairs());
        OrderCounts {
            given_up: self.before.given_up + counters.given_up,
            decided: self.before.decided + counters.decided,
            waiting: counters.waiting,
            accepted: self.before.accepted + counters.copies.accepted,
            late: self.before.late + counters.copies.late,
            received: self.before.received + counters.copies.received(),
            asked: self.before.asked + repairs.asked,
            repaired: self.before.repaired + repairs.came,
        }
    }

    /// Begins a window where the number begins an epoch.
    fn follow(&mut self, number: u64) {
        let epoch = number >> NUMBER_BITS;
        if epoch > self.epoch
            && let Some(mut window) = window(&self.settings)
        {
            window.expect(self.reordering);
            self.before = self.counts();
            self.window = window;
            self.learns = false;
            self.epoch = epoch;
        }
    }
}

const fn low(number: u64) -> u64 {
    number & ((1 << NUMBER_BITS) - 1)
}

fn window(settings: &Reorder) -> Option<Window<Box<[u8]>>> {
    let usual = Settings::default();
    let longest = settings.longest.min(Duration::from_secs(10));
    let cap = usual.cap.min(longest);
    let settings = Settings {
        packets_max: settings.packets.clamp(1, usual.packets_max),
        bytes_max: settings.bytes,
        floor: usual.floor.min(cap),
        cap,
        cap_max: longest,
        ..usual
    };
    Window::new(settings).ok()
}

#[cfg(test)]
mod tests;
