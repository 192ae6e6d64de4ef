//! Puts GRE packets back into order before they are decrypted.
//!
//! Where all packets form one RC4 stream, a reordered packet costs a round trip until the sender resets the stream.
//! The window of the crate `lines` holds early packets while the missing one is likely to come.

use ::lines::reorder::Extender;
use ::lines::reorder::{Arrival, Jump, Late, Order as Strictness, Settings, Verdict, Window};
use ::pptp::gre::Packet;
use ::pptp::session::Protection;
use plane::{LineCounts, LineId, OrderCounts};
use std::time::{Duration, Instant};

/// Maximum number of packets and bytes that wait.
const MAX: (usize, usize) = (2048, 4 << 20);

/// Shortest wait for a missing packet of one RC4 stream.
const STREAM_FLOOR: Duration = Duration::from_millis(20);

/// The order of one call.
pub(super) struct Order {
    window: Window<Vec<u8>>,
    numbers: Extender,
    /// Our call ID: packets for other calls do not count.
    call_id: u16,
}

impl Order {
    /// Makes the order of a call: as configured, or by default if its packets form one stream.
    pub(super) fn of(
        call_id: u16,
        protection: Option<Protection>,
        configured: Option<bool>,
    ) -> Option<Self> {
        let stream = protection.is_some_and(|protection| !protection.stateless);
        if !configured.unwrap_or(stream) {
            return None;
        }
        let settings = Settings {
            packets_max: MAX.0,
            bytes_max: MAX.1,
            // In a stream, a gap that is given up too soon costs a round trip.
            floor: if stream {
                STREAM_FLOOR
            } else {
                Settings::default().floor
            },
            line_rule: !stream,
            late: if stream { Late::Drop } else { Late::Deliver },
            order: Strictness::Strict,
            jump: Jump::Agreed,
            ..Settings::default()
        };
        Some(Self {
            window: Window::new(settings),
            numbers: Extender::new(),
            call_id,
        })
    }

    /// Whether to open a packet now. If not, it waits or is dropped.
    pub(super) fn arrived(&mut self, packet: &[u8], line: LineId, now: Instant) -> bool {
        // A packet that does not belong to the call passes: the code that opens packets refuses and counts it.
        let Ok(Packet { header, .. }) = Packet::parse(packet) else {
            return true;
        };
        let Some(sequence) = header.sequence.filter(|_| header.call_id == self.call_id) else {
            return true;
        };
        let Some(number) = self.numbers.extend(sequence) else {
            return false;
        };
        let arrival = Arrival::new(number, line, packet.len());
        let verdict = self.window.arrived(&arrival, now, || packet.to_vec());
        if verdict.deliver() || verdict == Verdict::Held {
            self.numbers.taken(number);
        }
        verdict.deliver()
    }

    /// Takes the next packet that is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.window.due(now)
    }

    /// The counts over all lines.
    pub(super) fn counts(&self) -> OrderCounts {
        let counted = self.window.counters();
        OrderCounts {
            given_up: counted.given_up,
            decided: counted.decided,
            waiting: counted.waiting,
            accepted: counted.copies.accepted,
            late: counted.copies.late,
            received: counted.copies.received(),
            // PPTP requests no packet again.
            ..OrderCounts::default()
        }
    }

    /// The counts of one line, completed by `others`, which this order does not count.
    pub(super) fn counts_of(&self, line: LineId, others: LineCounts) -> LineCounts {
        let copies = self.window.line_copies(line);
        LineCounts {
            accepted: copies.accepted,
            late: copies.late,
            buffered: copies.buffered,
            duplicated: copies.duplicated(),
            ancient: copies.ancient,
            ..others
        }
    }

    /// When the wait for the next missing packet ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.window.next_deadline()
    }
}
