//! Messages from workers to the control thread, in bounded queues.

use netio::poll::Waker;
use plane::{
    Control, Endpoint, Line, LineId, Notice, PeerId, SourceNetwork, StreamId, Transport, lock,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::shares::Shares;

/// Maximum number of queued messages from data packets: pings are never queued, other messages are rare.
const MESSAGES: usize = 256;

/// Maximum number of queued messages of one peer, so that its flood leaves room for those of others.
const MESSAGES_OF_PEER: usize = MESSAGES / 8;

/// Bytes of room for each queued datagram; a shorter one counts as this long. The limit is on bytes, as anybody can
/// send datagrams, and long ones fill memory.
const MEAN: usize = 128;

/// Bytes beyond which a datagram counts for more than one in [`Inbox::next_arrival`]. A room that is full of long
/// datagrams counts as half full of short ones.
const WEIGHT: usize = 2 * MEAN;

/// Limits of an [`Inbox`].
#[derive(Clone, Copy, Debug)]
pub struct InboxLimits {
    /// Maximum number of datagrams that wait, at most half of them from one source; later ones are dropped.
    pub datagrams: usize,
    /// The longest datagram or message that is kept, in bytes.
    pub longest: usize,
    /// Bytes that are kept from the beginning of a longer message; 0 where only whole messages are useful.
    pub message_head: usize,
    /// Whether traffic raises [`Notice::Active`]. Not needed where timers look at the peers by themselves.
    pub active: bool,
}

/// A datagram that is not a data packet.
#[derive(Debug)]
pub struct Arrival {
    /// The sender, and our address that it sent to.
    pub from: Endpoint,
    /// The line over which the datagram came.
    pub line: LineId,
    /// The number of the stream over which the datagram came, if any.
    pub stream: Option<StreamId>,
    /// Payload of the datagram.
    pub bytes: Box<[u8]>,
}

/// Waiting datagrams. Sources take turns, so that one source's flood does not delay another's datagrams.
#[derive(Debug, Default)]
struct Arrivals {
    turns: VecDeque<SourceNetwork>,
    of_source: HashMap<SourceNetwork, VecDeque<Arrival>>,
    count: usize,
    shares: Shares,
}

impl Arrivals {
    fn push(&mut self, source: SourceNetwork, arrival: Arrival) {
        let waiting = self.of_source.entry(source).or_default();
        if waiting.is_empty() {
            self.turns.push_back(source);
        }
        waiting.push_back(arrival);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<Arrival> {
        let source = self.turns.pop_front()?;
        let waiting = self.of_source.get_mut(&source)?;
        let arrival = waiting.pop_front()?;
        match waiting.is_empty() {
            true => drop(self.of_source.remove(&source)),
            false => self.turns.push_back(source),
        }
        self.count -= 1;
        self.shares.give_back(source, arrival.bytes.len().max(MEAN));
        Some(arrival)
    }
}

/// The queue from the data plane to control.
#[derive(Debug)]
pub struct Inbox {
    limits: InboxLimits,
    arrivals: Mutex<Arrivals>,
    messages: Mutex<Vec<(PeerId, Box<[u8]>)>>,
    /// A set, as a worker may repeat a notice for every batch.
    notices: Mutex<HashSet<(PeerId, Notice)>>,
    closed: Mutex<Vec<StreamId>>,
    gone: AtomicBool,
    /// Wakes the control thread.
    pub waker: Waker,
}

impl Inbox {
    /// Makes an empty queue.
    ///
    /// # Errors
    /// Descriptor limits.
    pub fn new(limits: InboxLimits) -> io::Result<Self> {
        Ok(Self {
            limits,
            arrivals: Mutex::default(),
            messages: Mutex::default(),
            notices: Mutex::default(),
            closed: Mutex::default(),
            gone: AtomicBool::new(false),
            waker: Waker::new()?,
        })
    }

    /// Takes the next datagram. Also returns how many wait behind it; on average, one longer than [`WEIGHT`] counts as
    /// several, as fewer of them fit.
    pub fn next_arrival(&self) -> Option<(Arrival, usize)> {
        let mut arrivals = lock(&self.arrivals);
        let arrival = arrivals.pop()?;
        let waiting = arrivals.count.max(arrivals.shares.taken() / WEIGHT);
        Some((arrival, waiting))
    }

    /// Takes at most `most` datagrams. If more wait, the waker stays awake, so that they have their turn after all
    /// other work.
    pub fn next_arrivals(&self, most: usize) -> Vec<Arrival> {
        let mut arrivals = lock(&self.arrivals);
        let next = std::iter::from_fn(|| arrivals.pop()).take(most).collect();
        if arrivals.count > 0 {
            self.waker.wake();
        }
        next
    }

    /// Takes the messages that came inside data packets since the last call, each after the peer that sent it.
    pub fn take_messages(&self) -> Vec<(PeerId, Box<[u8]>)> {
        std::mem::take(&mut lock(&self.messages))
    }

    /// Takes the notices about peers since the last call.
    pub fn take_notices(&self) -> HashSet<(PeerId, Notice)> {
        std::mem::take(&mut lock(&self.notices))
    }

    /// Takes the streams that have ended since the last call.
    pub fn take_closed(&self) -> Vec<StreamId> {
        std::mem::take(&mut lock(&self.closed))
    }

    /// Whether the data plane has stopped.
    pub fn device_is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl Control for Inbox {
    fn datagram(&self, from: Line, bytes: &[u8]) -> bool {
        if bytes.len() > self.limits.longest {
            return false;
        }
        let mut arrivals = lock(&self.arrivals);
        let (source, room) = (from.endpoint.addr.into(), self.limits.datagrams * MEAN);
        let taken = bytes.len().max(MEAN);
        if !arrivals.shares.take(source, taken, room) {
            return false;
        }
        let arrival = Arrival {
            from: from.endpoint,
            line: from.id,
            stream: match from.transport {
                Transport::Tcp(stream) => Some(stream),
                Transport::Udp | Transport::Gre => None,
            },
            bytes: bytes.into(),
        };
        arrivals.push(source, arrival);
        let first = arrivals.count == 1;
        drop(arrivals);
        if first {
            self.waker.wake();
        }
        true
    }

    fn message(&self, peer: PeerId, bytes: &[u8]) {
        let head = self.limits.message_head;
        let bytes = match head {
            0 => bytes,
            _ => &bytes[..bytes.len().min(head)],
        };
        let mut messages = lock(&self.messages);
        let of_peer = || messages.iter().filter(|(from, _)| *from == peer).count();
        // Without the exchange of keys, a peer sends messages only if it is asked.
        let is_flood = cfg!(feature = "postquantum") && of_peer() >= MESSAGES_OF_PEER;
        if messages.len() < MESSAGES && bytes.len() <= self.limits.longest && !is_flood {
            messages.push((peer, bytes.into()));
            self.waker.wake();
        }
    }

    fn notify(&self, peer: PeerId, notice: Notice) {
        if notice == Notice::Active && !self.limits.active {
            return;
        }
        let mut notices = lock(&self.notices);
        let first = notices.is_empty();
        notices.insert((peer, notice));
        drop(notices);
        if first {
            self.waker.wake();
        }
    }

    fn stream_closed(&self, stream: StreamId) {
        lock(&self.closed).push(stream);
        self.waker.wake();
    }

    fn device_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netio::poll::Poller;
    use plane::Endpoint;
    use std::time::Duration;

    #[test]
    fn what_is_left_of_a_burst_has_its_turn_without_another_packet() {
        let limits = InboxLimits {
            datagrams: 2000,
            longest: 100,
            message_head: 0,
            active: false,
        };
        let inbox = Inbox::new(limits).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&inbox, 0).unwrap();
        let wakes = || poller.wait(Some(Duration::ZERO)).unwrap().iter().count() == 1;
        let from = Line::udp(Endpoint::new(([192, 0, 2, 1], 1194).into()));
        for _ in 0..1000 {
            assert!(inbox.datagram(from, &[1]));
        }
        for left in [900, 800, 700, 600, 500, 400, 300, 200, 100, 0] {
            assert!(wakes(), "{left}");
            inbox.waker.clear();
            assert_eq!(inbox.next_arrivals(100).len(), 100);
        }
        assert!(!wakes());
        assert_eq!(inbox.next_arrivals(100).len(), 0);
    }

    #[test]
    fn long_datagrams_wait_as_far_as_there_is_memory_for_them() {
        let inbox = inbox(200);
        let put = |length| put(&inbox, 1, length);
        assert_eq!((0..100).filter(|_| put(2000)).count(), 6);
        assert!(put(500), "a shorter one fits");
        assert_eq!(inbox.next_arrivals(1).len(), 1);
        assert!(put(2000));
        assert_eq!(inbox.next_arrivals(100).len(), 7);
        assert_eq!((0..300).filter(|_| put(20)).count(), 100);
    }

    #[test]
    fn long_datagrams_are_a_load_before_the_room_is_full() {
        for length in [148, 178, 500, 1400, 2048] {
            for hosts in [1, 10, 100] {
                let inbox = inbox(4096);
                let put =
                    |count: usize| (0..count).filter(|at| put(&inbox, (at % hosts) as u8, length));
                assert_eq!(put(20).count(), 20);
                let (_, waiting) = inbox.next_arrival().unwrap();
                assert!((19..=160).contains(&waiting), "{waiting} of {length} bytes");
                let accepted = put(5000).count();
                let (_, waiting) = inbox.next_arrival().unwrap();
                assert!(waiting >= 4096 / 8, "{waiting} of {length} bytes");
                if length <= 256 {
                    assert_eq!(waiting, 18 + accepted);
                }
            }
        }
    }

    #[test]
    #[cfg(feature = "postquantum")]
    fn a_peers_flood_of_messages_leaves_room_for_others() {
        let inbox = inbox(1);
        for _ in 0..MESSAGES {
            inbox.message(PeerId(1), &[0]);
        }
        inbox.message(PeerId(2), &[0]);
        let messages = inbox.take_messages().into_iter();
        let mut peers: Vec<u32> = messages.map(|(peer, _)| peer.0).collect();
        assert_eq!(peers.pop(), Some(2));
        assert_eq!(peers, [1; MESSAGES_OF_PEER]);
        assert!(inbox.take_messages().is_empty());
    }

    #[test]
    fn sources_take_turns() {
        let inbox = inbox(1000);
        for (host, length) in [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)] {
            assert!(put(&inbox, host, length));
        }
        let order = inbox.next_arrivals(100).into_iter();
        let order: Vec<usize> = order.map(|it| it.bytes.len()).collect();
        assert_eq!(order, [10, 20, 30, 11, 21, 12]);
        assert!(put(&inbox, 1, 13));
        assert_eq!(inbox.next_arrivals(100).len(), 1);
    }

    fn inbox(datagrams: usize) -> Inbox {
        let limits = InboxLimits {
            datagrams,
            longest: 2048,
            message_head: 0,
            active: false,
        };
        Inbox::new(limits).unwrap()
    }

    fn put(inbox: &Inbox, host: u8, length: usize) -> bool {
        let from = Endpoint::new(([192, 0, 2, host], 1194).into());
        inbox.datagram(Line::udp(from), &vec![0; length])
    }
}
