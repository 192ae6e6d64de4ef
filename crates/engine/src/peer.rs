//! A peer in the data plane: its lines, its sending key, and when packets were last sent and received.

use crate::clock::{Epoch, Moment};
use crate::flags::Armed;
use crate::key::SendKey;
use crate::peer_line::{PeerLine, PeerLines};
use crate::peer_order::PeerOrder;
use crate::stats::Counter;
use crate::stream::Stream;
use arc_swap::ArcSwapOption;
use netio::udp::Endpoint;
use plane::{LineId, Moving, PeerId, StreamId, Times};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Maximum number of packets staged for one peer until it has a session (the kernel's `MAX_STAGED_PACKETS`).
const STAGED_PACKETS: usize = 128;

/// Maximum number of bytes staged for all peers of a tunnel together.
const STAGED_BYTES: usize = 4 << 20;

/// A peer. Shared by control, tables and workers; everything in it is atomic.
#[derive(Debug)]
pub struct Peer {
    id: PeerId,
    pub(crate) lines: PeerLines,
    moving: AtomicU8,
    pub(crate) send_key: ArcSwapOption<SendKey>,
    pub(crate) order: PeerOrder,
    staged: Mutex<VecDeque<Box<[u8]>>>,
    staged_bytes: Arc<AtomicUsize>,
    epoch: Epoch,
    armed: Armed,
    unanswered: Moment,
    unacked: Moment,
    data_sent: Moment,
    sent: Moment,
    received: Moment,
    data_received: Moment,
    /// Bytes of authenticated messages received, headers and tags included.
    pub rx_bytes: Counter,
    /// Bytes of messages sent, headers and tags included.
    pub tx_bytes: Counter,
    /// Bytes of keepalives and of messages inside data packets, about to be added to `rx_bytes` or `tx_bytes`.
    pub message_bytes: Counter,
}

impl Peer {
    pub(crate) fn new(id: PeerId, epoch: Epoch, staged_bytes: Arc<AtomicUsize>) -> Self {
        Self {
            id,
            lines: PeerLines::default(),
            moving: AtomicU8::new(Moving::Tell as u8),
            send_key: ArcSwapOption::empty(),
            order: PeerOrder::default(),
            staged: Mutex::new(VecDeque::new()),
            staged_bytes,
            epoch,
            armed: Armed::new(),
            unanswered: Moment::default(),
            unacked: Moment::default(),
            data_sent: Moment::default(),
            sent: Moment::default(),
            received: Moment::default(),
            data_received: Moment::default(),
            rx_bytes: Counter::default(),
            tx_bytes: Counter::default(),
            message_bytes: Counter::default(),
        }
    }

    /// The peer's number, given by control.
    #[must_use]
    pub fn id(&self) -> PeerId {
        self.id
    }

    /// The peer's address on the line used to send; `None` while unknown.
    #[must_use]
    pub fn endpoint(&self) -> Option<Endpoint> {
        self.lines.used().endpoint()
    }

    /// Sets the peer's address on the line used to send.
    pub fn set_endpoint(&self, endpoint: Endpoint) {
        self.lines.used().set_endpoint(endpoint);
    }

    /// Forgets the sticky source address of the line used to send, because this host no longer has that address.
    pub fn clear_source(&self) {
        self.lines.used().clear_source();
    }

    /// The TCP connection of the line used to send; `None` if that line sends datagrams.
    #[must_use]
    pub fn stream(&self) -> Option<Arc<Stream>> {
        self.lines.used().stream.load_full()
    }

    /// Sets the connection of the line used to send; `None` sends datagrams.
    pub fn set_stream(&self, stream: Option<Arc<Stream>>) {
        self.lines.used().set_stream(stream);
    }

    /// Sets what an authentic packet from another address means for this peer.
    pub fn set_moving(&self, moving: Moving) {
        self.moving.store(moving as u8, Ordering::Relaxed);
    }

    /// Whether to reject authentic packets from this origin: over a line that the peer lacks, outside a line's stream,
    /// or from a new address of a peer that may not move.
    ///
    /// Otherwise an attacker could record a stream's records and send them as datagrams, to move the peer.
    pub(crate) fn refuses(&self, line: LineId, from: Endpoint, stream: Option<StreamId>) -> bool {
        let Some(known) = self.line(line) else {
            return true;
        };
        let own = known.stream.load().as_deref().map(Stream::id);
        if own.is_some() || stream.is_some() {
            return own != stream;
        }
        self.moving.load(Ordering::Relaxed) == Moving::Stay as u8
            && known.endpoint().is_none_or(|e| e.addr != from.addr)
    }

    /// Follows the peer to the origin of an authentic packet that is not a copy. Returns whether control wants to know
    /// of the move.
    pub(crate) fn heard_from(&self, line: LineId, from: Endpoint, millis: u64) -> bool {
        let Some(known) = self.line(line) else {
            return false;
        };
        let moving = self.moving.load(Ordering::Relaxed);
        if moving == Moving::Gather as u8 {
            return known.addresses.heard_at(from, true, millis);
        }
        known.addresses.note_heard(millis);
        let current = known.endpoint();
        if current == Some(from) {
            return false;
        }
        let moved = current.is_none_or(|e| e.addr != from.addr);
        known.set_endpoint(from);
        moved && moving == Moving::Tell as u8
    }

    /// Counts copies of packets received before. A copy never moves a peer.
    pub(crate) fn copies_from(&self, line: LineId, from: Endpoint, millis: u64) {
        let Some(known) = self.line(line) else {
            return;
        };
        if self.gathers() {
            known.addresses.heard_at(from, false, millis);
        } else if known.endpoint().is_some_and(|e| e.addr == from.addr) {
            known.addresses.note_heard(millis);
        }
    }

    /// Whether each address at which the peer is heard counts as a line.
    pub(crate) fn gathers(&self) -> bool {
        self.moving.load(Ordering::Relaxed) == Moving::Gather as u8
    }

    /// Whether the peer may be heard over several lines, so that copies of packets are normal.
    pub(crate) fn has_several_lines(&self) -> bool {
        self.gathers() || self.lines.known().nth(1).is_some()
    }

    /// A line on which packets from the peer are accepted: one that control has set, or the line used to send, even
    /// before the peer was heard on it.
    fn line(&self, line: LineId) -> Option<&PeerLine> {
        let known = self.lines.get(line)?;
        let may = line == self.lines.used_id() || known.endpoint().is_some();
        may.then_some(known)
    }

    /// The packet counter of the sending key: how many packets it has sealed.
    #[must_use]
    pub fn sent_on_key(&self) -> Option<u64> {
        self.send_key.load().as_ref().map(|k| k.used())
    }

    /// Times of the peer's activity.
    #[must_use]
    pub fn times(&self) -> Times {
        let at = |m: &Moment| self.epoch.instant(m.millis());
        Times {
            unanswered_since: at(&self.unanswered),
            unacked_since: at(&self.unacked),
            last_data_sent: at(&self.data_sent),
            last_sent: at(&self.sent),
            last_received: at(&self.received),
            last_data_received: at(&self.data_received),
        }
    }

    /// Stops notices, because control now reads [`Peer::times`] itself: no [`Notice::Active`] comes until
    /// [`Peer::disarm`]. Returns whether this call changed that. If a worker was faster, its notice is already queued.
    ///
    /// [`Notice::Active`]: plane::Notice::Active
    pub(crate) fn arm(&self) -> bool {
        self.armed.arm()
    }

    /// Makes workers send [`Notice::Active`](plane::Notice::Active) again.
    ///
    /// Read [`Peer::times`] once more after this call: workers did not report activity just before it.
    pub fn disarm(&self) {
        self.armed.disarm();
    }

    /// Records that an authenticated packet was sent; `data` if it was more than a keepalive.
    pub(crate) fn note_sent(&self, millis: u64, data: bool) {
        self.unacked.clear();
        self.sent.set(millis);
        if data {
            self.data_sent.set(millis);
            self.unanswered.set_first(millis);
        }
    }

    /// Records that an authenticated packet was received; `data` if it was more than a keepalive.
    pub(crate) fn note_received(&self, millis: u64, data: bool) {
        self.unanswered.clear();
        self.received.set(millis);
        if data {
            self.data_received.set(millis);
            self.unacked.set_first(millis);
        }
    }

    /// Forgets that packets await an answer, because no key is left to answer with.
    pub(crate) fn expect_nothing(&self) {
        self.unanswered.clear();
        self.unacked.clear();
    }

    /// Records that control sent a handshake message to the peer.
    pub(crate) fn handshake_sent(&self, now: Instant, bytes: usize) {
        self.note_sent(self.epoch.millis(now), false);
        self.tx_bytes.add(bytes as u64);
    }

    /// Records that control received a valid handshake message from the peer.
    pub(crate) fn handshake_received(&self, now: Instant, bytes: usize) {
        self.note_received(self.epoch.millis(now), false);
        self.rx_bytes.add(bytes as u64);
    }

    /// Stages a packet until there is a session. Returns how many older packets it displaced.
    pub(crate) fn stage(&self, packet: &[u8]) -> u64 {
        let mut staged = plane::lock(&self.staged);
        let mut dropped = 0;
        while staged.len() >= STAGED_PACKETS {
            dropped += u64::from(self.unstage(&mut staged).is_some());
        }
        if self.staged_bytes.load(Ordering::Relaxed) + packet.len() > STAGED_BYTES {
            return dropped + 1;
        }
        self.staged_bytes.fetch_add(packet.len(), Ordering::Relaxed);
        staged.push_back(packet.into());
        dropped
    }

    fn unstage(&self, staged: &mut VecDeque<Box<[u8]>>) -> Option<Box<[u8]>> {
        let packet = staged.pop_front()?;
        self.staged_bytes.fetch_sub(packet.len(), Ordering::Relaxed);
        Some(packet)
    }

    /// Takes the staged packets, in order.
    pub(crate) fn take_staged(&self) -> Vec<Box<[u8]>> {
        let mut staged = plane::lock(&self.staged);
        let mut all = Vec::with_capacity(staged.len());
        while let Some(packet) = self.unstage(&mut staged) {
            all.push(packet);
        }
        // The next packets are staged minutes later at the earliest, so the queue gives its memory back.
        staged.shrink_to_fit();
        all
    }

    /// Whether packets wait for a session.
    #[must_use]
    pub fn has_staged(&self) -> bool {
        !plane::lock(&self.staged).is_empty()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.take_staged();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn peer() -> Peer {
        Peer::new(PeerId(1), Epoch::new(), Arc::default())
    }

    #[test]
    fn the_oldest_staged_packet_makes_room_and_memory_is_bounded() {
        let p = peer();
        for i in 0..130_u8 {
            assert_eq!(p.stage(&[i; 4]), u64::from(i >= 128));
        }
        let all = p.take_staged();
        assert_eq!((all.len(), all[0][0]), (128, 2));
        let big = vec![0; 60_000];
        let kept = (0..100).map(|_| 1 - p.stage(&big)).sum::<u64>() as usize;
        assert_eq!(kept, STAGED_BYTES / big.len());
        drop(p.take_staged());
        assert_eq!(p.staged_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn moments_say_what_the_timers_need() {
        let p = peer();
        let t0 = Instant::now();
        let ms = |s| p.epoch.millis(t0 + Duration::from_secs(s));
        assert_eq!(p.times(), Times::default());
        p.note_sent(ms(1), true);
        p.note_sent(ms(2), true);
        let since = p.times().unanswered_since.unwrap();
        assert_eq!(p.epoch.millis(since), ms(1), "the first one counts");
        p.note_received(ms(3), true);
        assert_eq!(p.times().unanswered_since, None);
        assert!(p.times().unacked_since.is_some());
        p.note_sent(ms(4), false);
        assert_eq!(p.times().unacked_since, None);
        assert_eq!(
            p.times().unanswered_since,
            None,
            "a keepalive expects no answer"
        );
    }

    #[test]
    fn packets_by_another_way_than_the_stream_of_a_peer_are_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let call = |id| {
            let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            Arc::new(Stream::new(StreamId(id), socket).unwrap())
        };
        let (own, other) = (call(1), call(2));
        let datagrams = Endpoint::new("192.0.2.1:1".parse().unwrap());
        let p = peer();
        p.set_moving(Moving::Tell);
        let refuses = |from, stream| p.refuses(LineId::FIRST, from, stream);
        assert!(!refuses(datagrams, None));
        assert!(
            refuses(other.endpoint(), Some(StreamId(2))),
            "it has no stream"
        );
        p.set_stream(Some(Arc::clone(&own)));
        assert!(!refuses(own.endpoint(), Some(StreamId(1))));
        assert!(refuses(other.endpoint(), Some(StreamId(2))));
        assert!(refuses(datagrams, None));
        assert!(refuses(own.endpoint(), None), "its address, over UDP");
        assert!(
            p.refuses(LineId(1), datagrams, None),
            "by a line that it does not have"
        );
    }

    #[test]
    fn a_peer_moves_on_the_line_that_it_is_heard_by() {
        let at = |last: u8| Endpoint::new(([192, 0, 2, last], 1).into());
        let p = peer();
        p.set_moving(Moving::Tell);
        assert!(!p.heard_from(LineId(1), at(1), 1), "it does not have it");
        assert_eq!(p.endpoint(), None);
        assert!(p.heard_from(LineId::FIRST, at(1), 1));
        p.lines.set(LineId(1), at(2), None).unwrap();
        assert!(p.heard_from(LineId(1), at(3), 1));
        assert!(!p.heard_from(LineId(1), at(3), 1));
        assert_eq!(
            p.endpoint(),
            Some(at(1)),
            "the line that sends is as it was"
        );
        assert!(p.lines.choose(LineId(1)));
        assert_eq!(p.endpoint(), Some(at(3)));
    }

    #[test]
    fn one_caller_arms() {
        let p = peer();
        assert!(p.arm());
        assert!(!p.arm());
        p.disarm();
        assert!(p.arm());
    }
}
