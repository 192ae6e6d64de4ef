//! The lines of one peer: its address on each, and the line used to send.

use crate::gathered::Gathered;
use crate::sent::Sent;
use crate::stats::LineCounters;
use crate::stream::Stream;
use crate::ways::{Plan, Way};
use arc_swap::ArcSwapOption;
use netio::udp::Endpoint;
use plane::{LINES_MAX, LineId, LineMode};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A peer's addresses on one line, and its stream if that line uses one.
#[derive(Debug, Default)]
pub(crate) struct PeerLine {
    pub(crate) addresses: Gathered,
    pub(crate) stream: ArcSwapOption<Stream>,
    pub(crate) counts: LineCounters,
}

impl PeerLine {
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        self.addresses.first()
    }

    pub(crate) fn set_endpoint(&self, endpoint: Endpoint) {
        self.addresses.set_first(endpoint);
    }

    /// Forgets the sticky source address, because this host no longer has it.
    pub(crate) fn clear_source(&self) {
        self.addresses.clear_source();
    }

    pub(crate) fn set_stream(&self, stream: Option<Arc<Stream>>) {
        if let Some(stream) = &stream {
            self.set_endpoint(stream.endpoint());
        }
        self.stream.store(stream);
    }

    fn clear(&self) {
        self.addresses.clear();
        self.stream.store(None);
    }
}

/// All lines of a peer. Most peers have only the first, which is stored in place. Memory for the others is allocated
/// when one of them is set.
#[derive(Debug, Default)]
pub(crate) struct PeerLines {
    first: PeerLine,
    others: OnceLock<Box<[PeerLine; LINES_MAX - 1]>>,
    used: AtomicU8,
    /// Whether there is a plan; spares peers with one line a look at `plan`.
    planned: AtomicBool,
    /// Whether packets of one connection take several lines, so that the peer may request lost ones.
    repairs: AtomicBool,
    sent: Mutex<Sent>,
    plan: ArcSwapOption<Plan>,
}

impl PeerLines {
    /// The number of the line used to send.
    pub(crate) fn used_id(&self) -> LineId {
        LineId(self.used.load(Ordering::Relaxed))
    }

    /// The line used to send.
    pub(crate) fn used(&self) -> &PeerLine {
        // A line is used only after it was set, so it exists.
        self.get(self.used_id()).unwrap_or(&self.first)
    }

    /// The line, if memory for it is allocated. It may have no endpoint.
    pub(crate) fn get(&self, line: LineId) -> Option<&PeerLine> {
        match line.index().checked_sub(1) {
            None => Some(&self.first),
            Some(at) => self.others.get()?.get(at),
        }
    }

    /// Sets the peer's endpoint and stream on a line, which becomes the line used to send if no other is. `None` if the
    /// line number is invalid.
    pub(crate) fn set(
        &self,
        line: LineId,
        endpoint: Endpoint,
        stream: Option<Arc<Stream>>,
    ) -> Option<()> {
        let wanted = self.make(line)?;
        wanted.set_stream(stream);
        wanted.set_endpoint(endpoint);
        self.use_first(line);
        Some(())
    }

    /// Records an address of a peer whose addresses are gathered; the old address may still be a line.
    pub(crate) fn gather(&self, line: LineId, endpoint: Endpoint, millis: u64) {
        if let Some(wanted) = self.make(line) {
            wanted.set_stream(None);
            wanted.addresses.move_first(endpoint, millis);
            self.use_first(line);
        }
    }

    fn make(&self, line: LineId) -> Option<&PeerLine> {
        if line != LineId::FIRST {
            self.others.get_or_init(Box::default);
        }
        self.get(line)
    }

    /// Sends over a line if no other line can be used.
    fn use_first(&self, line: LineId) {
        if self.used().endpoint().is_none() {
            self.used.store(line.0, Ordering::Relaxed);
        }
    }

    /// Sets the lines over which packets are sent.
    pub(crate) fn set_mode(&self, mode: LineMode) {
        let plan = Plan::new(mode, self.plan.load().as_deref()).map(Arc::new);
        self.planned.store(plan.is_some(), Ordering::Relaxed);
        let repairs = matches!(mode, LineMode::BalancePackets(_));
        self.repairs.store(repairs, Ordering::Relaxed);
        if !repairs {
            self.sent().clear();
        }
        self.plan.store(plan);
    }

    /// The kept copies of sent datagrams.
    pub(crate) fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether sent datagrams are kept for a while, and missing ones requested.
    pub(crate) fn repairs(&self) -> bool {
        self.repairs.load(Ordering::Relaxed)
    }

    /// How packets are spread over several lines; `None` for one line.
    pub(crate) fn plan(&self) -> Option<Arc<Plan>> {
        self.planned
            .load(Ordering::Relaxed)
            .then(|| self.plan.load_full())
            .flatten()
    }

    /// The ways for control's messages: those of all lines in the plan. Empty if messages take the line in use.
    pub(crate) fn ways_of_messages(&self) -> Vec<Way> {
        let mut ways = Vec::new();
        if let Some(plan) = self.plan() {
            plan.collect(self, &mut ways);
        }
        ways
    }

    /// The ways of messages, without lines that carry only a small part of the packets.
    pub(crate) fn large_ways(&self) -> Vec<Way> {
        let mut ways = self.ways_of_messages();
        if let Some(plan) = self.plan() {
            ways.retain(|way| plan.is_large(way.line));
        }
        ways
    }

    /// All lines of the peer, by number.
    pub(crate) fn known(&self) -> impl Iterator<Item = (LineId, &PeerLine)> {
        let all = (0..LINES_MAX as u8).map(LineId);
        all.filter_map(|id| Some((id, self.get(id)?)))
            .filter(|(_, line)| line.endpoint().is_some())
    }

    /// Forgets a line.
    pub(crate) fn remove(&self, line: LineId) {
        if let Some(line) = self.get(line) {
            line.clear();
        }
    }

    /// Sends over this line from now on. Returns whether the peer has the line.
    pub(crate) fn choose(&self, line: LineId) -> bool {
        let known = self.get(line).is_some_and(|line| line.endpoint().is_some());
        if known {
            self.used.store(line.0, Ordering::Relaxed);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> Endpoint {
        Endpoint::new(([192, 0, 2, last], 1194).into())
    }

    #[test]
    fn the_first_line_that_is_set_is_used_until_another_is_chosen() {
        let lines = PeerLines::default();
        assert_eq!(lines.used().endpoint(), None);
        lines.set(LineId(2), at(2), None).unwrap();
        assert_eq!(
            (lines.used_id(), lines.used().endpoint()),
            (LineId(2), Some(at(2)))
        );
        lines.set(LineId(0), at(1), None).unwrap();
        assert_eq!(lines.used_id(), LineId(2));
        assert!(lines.choose(LineId(0)));
        assert_eq!(lines.used().endpoint(), Some(at(1)));
        assert!(!lines.choose(LineId(1)), "the peer does not have it");
        assert_eq!(lines.used_id(), LineId(0));
    }

    #[test]
    fn a_peer_whose_line_was_removed_is_not_sent_to_until_it_gets_another() {
        let lines = PeerLines::default();
        lines.set(LineId(0), at(1), None).unwrap();
        lines.remove(LineId(0));
        assert_eq!(lines.used().endpoint(), None);
        lines.set(LineId(1), at(2), None).unwrap();
        assert_eq!(lines.used().endpoint(), Some(at(2)));
    }

    #[test]
    fn there_are_no_more_lines_than_numbers() {
        let lines = PeerLines::default();
        let last = LineId(LINES_MAX as u8 - 1);
        assert!(lines.set(last, at(1), None).is_some());
        assert!(lines.set(LineId(LINES_MAX as u8), at(1), None).is_none());
        assert!(lines.get(LineId(u8::MAX)).is_none());
    }
}
