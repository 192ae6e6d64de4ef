//! State shared by all workers and by the calls of control.

use crate::aqm::CrossTraffic;
use crate::clock::Epoch;
use crate::commit::RING_SLOTS;
use crate::flags::{Alarm, HeldBack};
use crate::icmp::{self, ANSWER_MAX};
use crate::line::{Lines, ToldRates};
use crate::peer::Peer;
use crate::session::Sessions;
use crate::slot::{BATCH_PACKETS, OUTBOUND_BYTES};
use crate::stats::{Carried, Drops, PipelineStats};
use crate::stream::{PENDING_MAX, Stream, Written};
use arc_swap::ArcSwap;
use netio::poll::{self, Waker};
use netio::rung::Rung;
use netio::tun::{Tun, VnetHdr};
use plane::{AtomicU64, Control, LineId, Routes, Wire};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Limit of waiting bytes where the interface is not read while bytes wait. It includes the batches that may be in
/// flight at that moment, as many as the ring has places. So a client drops no packets for lack of room.
const PENDING_IN_FLIGHT_MAX: usize = PENDING_MAX + RING_SLOTS * OUTBOUND_BYTES;

/// Maximum number of injected payloads that wait for a worker.
const INJECTED_MAX: usize = 1024;

/// Name of the coalescing in the list of kernel features.
const COALESCING: &str = "coalescing";

/// Maximum number of ICMP unreachable messages per second.
const UNREACHABLE_PER_SECOND: u64 = 100;

/// The routing table: which peer owns an address.
pub(crate) type PeerRoutes = Routes<Arc<Peer>>;

/// A payload that control sends among a peer's packets.
pub(crate) struct Injected {
    /// The peer that gets the payload.
    pub(crate) peer: Arc<Peer>,
    /// The only line that the payload takes; `None` for any line of the peer's packets.
    pub(crate) line: Option<LineId>,
    pub(crate) payload: Box<[u8]>,
}

/// Options of a tunnel's data plane.
#[derive(Clone, Debug)]
pub struct TunnelOptions {
    /// Threads, at least 1.
    pub workers: usize,
    /// Whether several workers may share one direction.
    pub parallel: bool,
    /// Whether a worker may wait up to 50 µs, to collect a batch when packets arrive quickly and one by one.
    pub coalescing: bool,
    /// The interface's MTU in bytes.
    pub mtu: usize,
    /// Maximum number of packets in one super-packet handed to the kernel.
    pub gso_max_segs: usize,
    /// Stop reading the interface while a stream has no room: right if all packets go to one peer. Otherwise packets
    /// that find no room are dropped.
    pub backpressure: bool,
}

pub(crate) struct Shared<W: Wire> {
    pub(crate) tun: Tun,
    pub(crate) wire: W,
    /// The sockets of all lines.
    pub(crate) lines: ArcSwap<Lines>,
    pub(crate) routes: ArcSwap<PeerRoutes>,
    pub(crate) sessions: Sessions<W>,
    pub(crate) control: Arc<dyn Control>,
    pub(crate) epoch: Epoch,
    pub(crate) mtu: AtomicUsize,
    pub(crate) gso_max_segs: usize,
    /// Whether workers wait for more packets where they come quickly and one by one.
    pub(crate) coalescing: Rung,
    pub(crate) outbound: PipelineStats,
    pub(crate) inbound: PipelineStats,
    pub(crate) drops: Drops,
    /// Bytes carried by each line.
    pub(crate) carried: Carried,
    pub(crate) staged_bytes: Arc<AtomicUsize>,
    /// Bytes of datagrams that peers may request once more.
    pub(crate) kept_bytes: Arc<AtomicUsize>,
    injected: Mutex<VecDeque<Injected>>,
    has_injected: AtomicBool,
    /// Wakes the worker that owns the TUN and takes injected payloads.
    pub(crate) tun_waker: OnceLock<Arc<Waker>>,
    /// Wakes the worker that owns the sockets.
    pub(crate) receiver_waker: OnceLock<Arc<Waker>>,
    /// When the worker that owns the sockets must look at held packets.
    pub(crate) alarm: Alarm,
    /// Whether received packets belong to more than one flow.
    pub(crate) cross_traffic: CrossTraffic,
    /// Whether a sender was told to slow down since the AQM last asked.
    pub(crate) told: AtomicBool,
    /// If true, the TUN is not read while a stream of the line used to send has no room.
    pub(crate) backpressure: bool,
    /// The lines that have a congested stream.
    congested: HeldBack,
    /// Rates of the lines for which packets must wait.
    pub(crate) rates: ToldRates,
    /// Whether packets from one peer to another bypass the kernel.
    pub(crate) hairpin: AtomicBool,
    unreachable: UnreachableLimit,
}

impl<W: Wire> Shared<W> {
    pub(crate) fn new(
        tun: Tun,
        wire: W,
        control: Arc<dyn Control>,
        options: &TunnelOptions,
    ) -> Self {
        wire.follow_mtu(options.mtu);
        Self {
            tun,
            wire,
            lines: ArcSwap::default(),
            routes: ArcSwap::default(),
            sessions: Sessions::new(),
            control,
            epoch: Epoch::new(),
            mtu: AtomicUsize::new(options.mtu),
            gso_max_segs: options.gso_max_segs,
            coalescing: match options.coalescing {
                false => Rung::new_off(COALESCING, "setting"),
                true if poll::has_exact_timers() => Rung::new_on(COALESCING),
                true => Rung::new_off(COALESCING, "kernel: timers end at ticks"),
            },
            outbound: PipelineStats::default(),
            inbound: PipelineStats::default(),
            drops: Drops::default(),
            carried: Carried::default(),
            staged_bytes: Arc::default(),
            kept_bytes: Arc::default(),
            injected: Mutex::default(),
            has_injected: AtomicBool::new(false),
            tun_waker: OnceLock::new(),
            receiver_waker: OnceLock::new(),
            alarm: Alarm::new(),
            cross_traffic: CrossTraffic::default(),
            told: AtomicBool::new(false),
            backpressure: options.backpressure,
            congested: HeldBack::new(),
            rates: ToldRates::default(),
            hairpin: AtomicBool::new(false),
            unreachable: UnreachableLimit::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn simulated(
        tun: Tun,
        wire: W,
        control: Arc<dyn Control>,
        backpressure: bool,
    ) -> Self {
        let options = TunnelOptions {
            workers: 1,
            parallel: false,
            coalescing: false,
            mtu: 1500,
            gso_max_segs: 64,
            backpressure,
        };
        Self::new(tun, wire, control, &options)
    }

    pub(crate) fn mtu(&self) -> usize {
        self.mtu.load(Ordering::Relaxed)
    }

    /// A little more than the longest datagram that a peer should send, in bytes.
    pub(crate) fn longest_datagram(&self) -> usize {
        self.mtu() + self.wire.prefix() + W::HEAD_MAX + W::TAIL_MAX + 64
    }

    /// Queues a payload for a peer; the worker that owns the TUN takes it.
    pub(crate) fn inject(&self, peer: &Arc<Peer>, line: Option<LineId>, payload: &[u8]) {
        let mut injected = self.injected.lock().unwrap_or_else(PoisonError::into_inner);
        if injected.len() >= INJECTED_MAX {
            self.drops.staged.add(1);
            return;
        }
        injected.push_back(Injected {
            peer: Arc::clone(peer),
            line,
            payload: payload.into(),
        });
        let first = injected.len() == 1;
        self.has_injected.store(true, Ordering::Release);
        drop(injected);
        if first {
            self.wake_tun();
        }
    }

    /// Wakes the worker that owns the TUN, to look at work other than the TUN.
    pub(crate) fn wake_tun(&self) {
        if let Some(waker) = self.tun_waker.get() {
            waker.wake();
        }
    }

    /// Wakes the worker that owns the sockets, to look at the alarm.
    pub(crate) fn wake_receiver(&self) {
        if let Some(waker) = self.receiver_waker.get() {
            waker.wake();
        }
    }

    /// Whether injected payloads wait.
    pub(crate) fn has_injected(&self) -> bool {
        self.has_injected.load(Ordering::Acquire)
    }

    /// Takes one batch of injected payloads.
    pub(crate) fn take_injected(&self) -> Vec<Injected> {
        if !self.has_injected() {
            return Vec::new();
        }
        let mut injected = self.injected.lock().unwrap_or_else(PoisonError::into_inner);
        let count = injected.len().min(BATCH_PACKETS / 2);
        let taken = injected.drain(..count).collect();
        self.has_injected
            .store(!injected.is_empty(), Ordering::Release);
        taken
    }

    /// Whether the TUN must not be read now.
    pub(crate) fn congested(&self) -> bool {
        self.congested.get()
    }

    /// Maximum number of bytes that may wait in a stream. If streams hold the TUN back, every packet already read must
    /// fit.
    pub(crate) fn pending_max(&self) -> usize {
        if self.backpressure {
            PENDING_IN_FLIGHT_MAX
        } else {
            PENDING_MAX
        }
    }

    /// Writes records of a batch. On a client, the TUN is not read while records wait.
    pub(crate) fn write(&self, stream: &Stream, records: &[u8]) -> Written {
        let written = stream.write(records, self.pending_max());
        if written != Written::Dropped {
            self.carried.stream(stream.line(), records.len() as u64);
        }
        if written == Written::Waiting && self.backpressure {
            self.hold_back(stream);
        }
        written
    }

    /// Stops reading the TUN, because bytes wait in `stream`; reading resumes when they are gone.
    pub(crate) fn hold_back(&self, stream: &Stream) {
        let line = stream.line();
        if !self.congested.set(line, || stream.is_congested()) {
            self.wake_tun();
        }
    }

    /// Lets the TUN be read again, because a line's streams have room.
    pub(crate) fn go_on(&self, line: LineId) {
        self.congested.clear(line);
        self.wake_tun();
    }

    /// Sends packets from the TUN over this line from now on; streams of other lines no longer hold the TUN back.
    pub(crate) fn send_by(&self, line: LineId) {
        if self.congested.look_at(line) {
            self.wake_tun();
        }
    }

    /// Answers the sender of `packet`, an undeliverable inner packet, with ICMP unreachable.
    pub(crate) fn answer_unreachable(&self, packet: &[u8], millis: u64) {
        if !self.unreachable.allow(millis) {
            return;
        }
        let mut answer = [0; ANSWER_MAX];
        if let Some(len) = icmp::unreachable(packet, &mut answer) {
            let hdr = VnetHdr::NONE.emit();
            let parts = [IoSlice::new(&hdr), IoSlice::new(&answer[..len])];
            // Best effort, like every ICMP message.
            let _ = self.tun.write(if self.tun.vnet_hdr() {
                &parts
            } else {
                &parts[1..]
            });
        }
    }
}

/// Limits events per second; approximate under contention.
#[derive(Debug, Default)]
struct UnreachableLimit {
    second: AtomicU64,
    count: AtomicU64,
}

impl UnreachableLimit {
    fn allow(&self, millis: u64) -> bool {
        let second = millis / 1000;
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed) < UNREACHABLE_PER_SECOND
    }
}

/// Whether an error of the TUN means that the interface was deleted.
pub(crate) fn tun_is_gone(error: &std::io::Error) -> bool {
    // EBADFD: the descriptor is no longer attached to an interface. Linux uses this number on every architecture we
    // build for.
    const EBADFD: i32 = 77;
    error.raw_os_error() == Some(EBADFD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::tests::{Deaf, PlainWire};
    use crate::slot::BATCH_BYTES;
    use plane::StreamId;

    #[test]
    fn a_stream_that_was_closed_meanwhile_does_not_hold_the_interface_back() {
        let tun = Tun::null().unwrap();
        let shared = Shared::simulated(tun, PlainWire, Arc::new(Deaf), true);
        let (stream, _theirs) =
            Stream::simulated(StreamId(1), ([192, 0, 2, 1], 1194).into()).unwrap();
        while stream.write(&[0; 60_000], PENDING_MAX) != Written::Waiting {}
        shared.hold_back(&stream);
        assert!(shared.congested());
        // The stream is removed between the write that left bytes waiting and the setting of the flag.
        while stream.write(&[0; 60_000], PENDING_MAX) == Written::Waiting {}
        stream.close();
        shared.go_on(LineId::FIRST);
        shared.hold_back(&stream);
        assert!(!shared.congested());
    }

    #[test]
    fn batches_that_were_in_flight_when_a_stream_had_no_room_are_not_dropped() {
        for backpressure in [true, false] {
            let tun = Tun::null().unwrap();
            let shared = Shared::simulated(tun, PlainWire, Arc::new(Deaf), backpressure);
            let (stream, _theirs) =
                Stream::simulated(StreamId(1), ([192, 0, 2, 1], 1194).into()).unwrap();
            let batch = vec![0; BATCH_BYTES + BATCH_PACKETS * 100];
            while shared.write(&stream, &batch) != Written::Waiting {}
            assert_eq!(shared.congested(), backpressure);
            // The batches of a full ring, less the one that found no room.
            let mut rest = (1..RING_SLOTS).map(|_| shared.write(&stream, &batch));
            // A server keeps reading its interface, so only this limit bounds the waiting bytes.
            let dropped = rest.any(|written| written == Written::Dropped);
            assert_eq!(dropped, !backpressure);
        }
    }

    #[test]
    fn a_line_that_is_not_used_to_send_does_not_hold_the_interface_back() {
        let tun = Tun::null().unwrap();
        let shared = Shared::simulated(tun, PlainWire, Arc::new(Deaf), true);
        let stuck = |id, line| {
            let (stream, end) =
                Stream::simulated(StreamId(id), ([192, 0, 2, 1], 1194).into()).unwrap();
            let stream = stream.on_line(LineId(line));
            while stream.write(&[0; 60_000], PENDING_MAX) != Written::Waiting {}
            shared.hold_back(&stream);
            end
        };
        let _other = stuck(1, 1);
        assert!(!shared.congested());
        let _used = stuck(2, 0);
        assert!(shared.congested());
        shared.send_by(LineId(2));
        assert!(!shared.congested(), "a different line is used now");
        shared.send_by(LineId(1));
        assert!(shared.congested());
        shared.go_on(LineId(1));
        assert!(!shared.congested());
        shared.send_by(LineId(0));
        assert!(shared.congested(), "it was not the one that has room");
    }
}
