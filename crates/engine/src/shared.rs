//! What every worker and the boundary share.

use crate::clock::Epoch;
use crate::control::Control;
use crate::icmp::{self, ANSWER_MAX};
use crate::peer::Peer;
use crate::routes::Routes;
use crate::session::Sessions;
use crate::slot::BATCH_PACKETS;
use crate::stats::{Drops, LaneStats};
use crate::stream::Stream;
use crate::wire::Wire;
use arc_swap::ArcSwap;
use netio::poll::Waker;
use netio::tun::Tun;
use netio::udp::{Family, UdpSocket};
use netio::vnet::VnetHdr;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most payloads of our own that wait for a worker.
const INJECTED_MAX: usize = 1024;

/// Unreachable messages per second, at most.
const UNREACHABLE_PER_SECOND: u64 = 100;

/// The sockets in use; replaced whole when the port changes.
#[derive(Debug, Default)]
pub struct Sockets {
    /// For IPv4 endpoints.
    pub v4: Option<UdpSocket>,
    /// For IPv6 endpoints.
    pub v6: Option<UdpSocket>,
}

impl Sockets {
    /// The socket for a family.
    #[must_use]
    pub fn of(&self, family: Family) -> Option<&UdpSocket> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }

    /// Both, where they are.
    pub fn iter(&self) -> impl Iterator<Item = &UdpSocket> {
        self.v4.iter().chain(self.v6.iter())
    }
}

/// The routing table: who owns an address.
pub(crate) type PeerRoutes = Routes<Arc<Peer>>;

/// A payload of our own, and whom it is for.
pub(crate) type Injected = (Arc<Peer>, Box<[u8]>);

pub(crate) struct Shared<W: Wire> {
    pub(crate) tun: Tun,
    pub(crate) sockets: ArcSwap<Sockets>,
    pub(crate) routes: ArcSwap<PeerRoutes>,
    pub(crate) sessions: Sessions<W>,
    pub(crate) control: Arc<dyn Control>,
    pub(crate) epoch: Epoch,
    pub(crate) mtu: AtomicUsize,
    pub(crate) gso_max_segs: usize,
    pub(crate) outbound: LaneStats,
    pub(crate) inbound: LaneStats,
    pub(crate) drops: Drops,
    pub(crate) staged_bytes: Arc<AtomicUsize>,
    injected: Mutex<VecDeque<Injected>>,
    has_injected: AtomicBool,
    /// Wakes the worker that owns the TUN and takes payloads of our own.
    pub(crate) tun_waker: OnceLock<Arc<Waker>>,
    /// Where `true`, the TUN is not read while a stream has no room.
    pub(crate) backpressure: bool,
    congested: AtomicBool,
    /// Packets for other peers do not go through the kernel.
    pub(crate) hairpin: AtomicBool,
    unreachable: UnreachableLimit,
}

impl<W: Wire> Shared<W> {
    pub(crate) fn new(
        tun: Tun,
        control: Arc<dyn Control>,
        mtu: usize,
        gso_max_segs: usize,
        backpressure: bool,
    ) -> Self {
        Self {
            tun,
            sockets: ArcSwap::default(),
            routes: ArcSwap::default(),
            sessions: Sessions::new(),
            control,
            epoch: Epoch::new(),
            mtu: AtomicUsize::new(mtu),
            gso_max_segs,
            outbound: LaneStats::default(),
            inbound: LaneStats::default(),
            drops: Drops::default(),
            staged_bytes: Arc::default(),
            injected: Mutex::default(),
            has_injected: AtomicBool::new(false),
            tun_waker: OnceLock::new(),
            backpressure,
            congested: AtomicBool::new(false),
            hairpin: AtomicBool::new(false),
            unreachable: UnreachableLimit::default(),
        }
    }

    pub(crate) fn mtu(&self) -> usize {
        self.mtu.load(Ordering::Relaxed)
    }

    /// The longest datagram that a peer should send, in bytes, and a little more.
    pub(crate) fn longest_datagram(&self) -> usize {
        self.mtu() + W::HEAD_MAX + W::TAIL_MAX + 64
    }

    /// Queues a payload for a peer; the worker that owns the TUN takes it.
    pub(crate) fn inject(&self, peer: &Arc<Peer>, payload: &[u8]) {
        let mut injected = self.injected.lock().unwrap_or_else(PoisonError::into_inner);
        if injected.len() >= INJECTED_MAX {
            self.drops.staged.add(1);
            return;
        }
        injected.push_back((Arc::clone(peer), payload.into()));
        let first = injected.len() == 1;
        self.has_injected.store(true, Ordering::Release);
        drop(injected);
        if first {
            self.wake_tun();
        }
    }

    /// Makes the worker that owns the TUN look at what there is to do beside it.
    pub(crate) fn wake_tun(&self) {
        if let Some(waker) = self.tun_waker.get() {
            waker.wake();
        }
    }

    /// Whether payloads of our own wait.
    pub(crate) fn has_injected(&self) -> bool {
        self.has_injected.load(Ordering::Acquire)
    }

    /// A batch's worth of the payloads of our own.
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

    /// Whether the TUN must not be read for now.
    pub(crate) fn congested(&self) -> bool {
        self.congested.load(Ordering::SeqCst)
    }

    /// Something was left waiting in `stream`: the TUN is not to be read until that is gone.
    pub(crate) fn hold_back(&self, stream: &Stream) {
        self.congested.store(true, Ordering::SeqCst);
        // The one who flushes or closes the stream may have done so before the flag was up, and
        // looks at it no more.
        if !stream.is_congested() {
            self.go_on();
        }
    }

    /// There is room again: the TUN may be read.
    pub(crate) fn go_on(&self) {
        self.congested.store(false, Ordering::SeqCst);
        self.wake_tun();
    }

    /// Tells the sender of `packet`, an inner packet that cannot go, that it cannot.
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

/// A limit per second, approximate under contention.
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

/// Whether an error of the TUN means that the interface is no more.
pub(crate) fn tun_is_gone(error: &std::io::Error) -> bool {
    // EBADFD: the descriptor is no longer attached to an interface. The number is Linux's on
    // every architecture we build for.
    const EBADFD: i32 = 77;
    error.raw_os_error() == Some(EBADFD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Notice;
    use crate::key::tests::PlainWire;
    use crate::stream::Written;
    use netio::udp::Endpoint;

    struct Deaf;

    impl Control for Deaf {
        fn datagram(&self, _: Endpoint, _: Option<u64>, _: &[u8]) -> bool {
            true
        }
        fn notify(&self, _: u32, _: Notice) {}
        fn device_gone(&self) {}
    }

    #[test]
    fn a_stream_that_was_closed_meanwhile_does_not_hold_the_interface_back() {
        let tun = Tun::null().unwrap();
        let shared = Shared::<PlainWire>::new(tun, Arc::new(Deaf), 1500, 64, true);
        let (stream, _theirs) = Stream::simulated(1, ([192, 0, 2, 1], 1194).into()).unwrap();
        while stream.write(&[0; 60_000]) != Written::Waiting {}
        shared.hold_back(&stream);
        assert!(shared.congested());
        // Between the write that left something waiting and the flag, the stream is removed.
        while stream.write(&[0; 60_000]) == Written::Waiting {}
        stream.close();
        shared.go_on();
        shared.hold_back(&stream);
        assert!(!shared.congested());
    }
}
