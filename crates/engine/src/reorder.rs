//! Reordering of packets that came over several lines: after the replay window has accepted them, and before they are
//! written.
//!
//! Each session has its own window, since each begins with new numbers. A window holds copies of packets, because the
//! batch's memory is reused.

use crate::peer_order::PeerOrder;
use crate::sent::Missing;
use lines::inner::{Kind, Reader};
use lines::reorder::{Arrival, Reordering, Settings, Verdict, Window};
use plane::{LINES_MAX, LineId, OrderCounts, Reorder};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of bytes that the windows of all sessions hold together. Beyond that, packets are written as they
/// come.
pub(crate) const HELD_MAX: usize = 16 << 20;

/// Bits of a packet number below its epoch (OpenVPN); numbers restart in each epoch.
const NUMBER_BITS: u32 = 48;

/// The window of one session.
pub(crate) struct Order {
    settings: Arc<Reorder>,
    /// Packets that wait. An empty entry stands for a number that needs no write, because its packet was handled on
    /// arrival.
    window: Window<Box<[u8]>>,
    epoch: u64,
    /// Counts of windows of earlier epochs.
    before: OrderCounts,
    /// Counts already added to the peer's counters.
    told: OrderCounts,
    reordering: Reordering,
    /// Addresses at which a peer with several addresses was heard; the window counts each as a line.
    addresses: Vec<(LineId, SocketAddr)>,
    /// Index of the address that the next new address replaces.
    oldest: usize,
    /// Whether the session is in the list that is checked when a deadline comes.
    pub(crate) listed: bool,
    /// Whether the window has taken over what the previous window learnt about requests.
    learns: bool,
}

impl Order {
    /// A new window that starts with what another has learnt about the peer's lines.
    pub(crate) fn new(settings: &Arc<Reorder>, reordering: Reordering) -> Box<Self> {
        let mut window = window(settings);
        window.expect(reordering);
        Box::new(Self {
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
        })
    }

    /// Whether the window was made with these very settings.
    pub(crate) fn has(&self, settings: &Arc<Reorder>) -> bool {
        Arc::ptr_eq(&self.settings, settings)
    }

    /// Whether this number begins an epoch. If so, waiting packets become due, and the caller must fetch them first.
    pub(crate) fn ends_before(&mut self, number: u64) -> bool {
        let ends = number >> NUMBER_BITS > self.epoch;
        if ends {
            self.window.flush();
        }
        ends
    }

    /// The window's line for an address of a peer that connects over several lines, where this end sees only their
    /// addresses. The caller has received a new packet, not a copy, from that address.
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

    /// The line of an address, if a new packet has come from it before.
    pub(crate) fn line_known_at(&self, line: LineId, address: SocketAddr) -> Option<LineId> {
        let way = (line, address);
        let at = self.addresses.iter().position(|known| *known == way)?;
        Some(LineId(at as u8))
    }

    /// Makes all waiting packets due.
    pub(crate) fn flush(&mut self) {
        self.window.flush();
    }

    /// Records a number whose packet is written at once.
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

    /// Counts a packet that the replay window rejected; the order window has not seen it.
    pub(crate) fn dropped(&mut self) {
        self.before.received += 1;
    }

    /// Records a packet that is not a copy. Returns whether to write it now or to hold it. Without `room` it is not
    /// held.
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
            // A packet of an earlier epoch is always late.
            self.before.late += 1;
            self.dropped();
            return Verdict::DeliverLate;
        }
        // The usual case, which needs no look at the packet.
        if self.window.arrived_in_order(low(number), 1, line) {
            return Verdict::Deliver;
        }
        let inner = reader.read(packet);
        let arrival = Arrival {
            // Linux takes a TCP segment for lost a quarter of a round trip after a later one arrived (RFC 8985),
            // however few arrived. So TCP bulk transfers wait for each gap.
            flow: inner
                .filter(|inner| inner.kind != Kind::Tcp)
                .map(|inner| inner.flow),
            urgent: !room || inner.is_some_and(|inner| inner.needs_no_order()),
            ..Arrival::new(low(number), line, packet.len())
        };
        match self.window.arrived(&arrival, now, || packet.into()) {
            // The replay window has established that this is not a copy.
            Verdict::Ancient | Verdict::Ignored => Verdict::DeliverLate,
            verdict => verdict,
        }
    }

    /// The request for missing packets, if the peer is asked at all: at most one, and an empty one if nothing is
    /// missing.
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

    /// The next packet that is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Box<[u8]>> {
        loop {
            let packet = self.window.due(now)?;
            if !packet.is_empty() {
                return Some(packet);
            }
        }
    }

    /// When the next waiting packet must be written, even if an earlier one is missing.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.window.next_deadline()
    }

    /// Bytes of waiting packets.
    pub(crate) fn held(&self) -> usize {
        self.window.waiting().1
    }

    /// Adds the counts since the last call to the peer's counters, and stores what was learnt about its lines.
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

    /// Begins a new window if the number begins an epoch.
    fn follow(&mut self, number: u64) {
        let epoch = number >> NUMBER_BITS;
        if epoch > self.epoch {
            let mut window = window(&self.settings);
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

fn window(settings: &Reorder) -> Window<Box<[u8]>> {
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
    Window::new(settings)
}

#[cfg(test)]
mod tests;
