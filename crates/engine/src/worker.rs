//! Workers: threads that fill, and help each other when there is a backlog.
//!
//! The first worker owns the TUN, the second the sockets; on one core one worker owns both. A
//! worker that has nothing to read helps with whatever batch waits in either lane. There are no
//! other threads in the data plane, and none that only passes things on.

use crate::commit::{Direction, Lane};
use crate::drain::{InboundDrain, OutboundDrain};
use crate::fill::{Filled, InboundFill, OutboundFill};
use crate::shared::{Shared, Sockets};
use crate::slot::{InboundSlot, OutboundSlot};
use crate::stats::LaneStats;
use crate::stream::Stream;
use crate::transform;
use crate::wire::Wire;
use netio::poll::{Poller, Waker};
use netio::udp::Family;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const WAKE: u64 = 0;
const TUN: u64 = 1;
const UDP_V4: u64 = 2;
const UDP_V6: u64 = 3;
/// The first stream's; the others follow by number.
const STREAMS: u64 = 16;

/// Batches that must wait before another worker is woken: waking one costs more than one batch.
const BACKLOG: usize = 2;

pub(crate) struct Outbound<W: Wire>(Arc<Shared<W>>);

impl<W: Wire> Direction for Outbound<W> {
    type Slot = OutboundSlot;
    type Drain = OutboundDrain;

    fn new_slot() -> OutboundSlot {
        OutboundSlot::new()
    }
    fn transform(&self, slot: &mut OutboundSlot) {
        transform::outbound(slot);
    }
    fn drain(&self, drain: &mut OutboundDrain, slot: &mut OutboundSlot) {
        drain.drain(&self.0, slot);
    }
    fn clear(&self, slot: &mut Self::Slot) {
        slot.clear();
    }
    fn stats(&self) -> &LaneStats {
        &self.0.outbound
    }
}

pub(crate) struct Inbound<W: Wire>(Arc<Shared<W>>);

impl<W: Wire> Direction for Inbound<W> {
    type Slot = InboundSlot<W>;
    type Drain = InboundDrain;

    fn new_slot() -> InboundSlot<W> {
        InboundSlot::new()
    }
    fn transform(&self, slot: &mut InboundSlot<W>) {
        transform::inbound(&self.0, slot);
    }
    fn drain(&self, drain: &mut InboundDrain, slot: &mut InboundSlot<W>) {
        drain.drain(&self.0, slot);
    }
    fn clear(&self, slot: &mut Self::Slot) {
        slot.clear();
    }
    fn stats(&self) -> &LaneStats {
        &self.0.inbound
    }
}

/// All workers of a tunnel.
pub(crate) struct Crew<W: Wire> {
    shared: Arc<Shared<W>>,
    outbound: Lane<Outbound<W>>,
    inbound: Lane<Inbound<W>>,
    members: Vec<Member>,
    stop: AtomicBool,
    parallel: bool,
    streams: Mutex<HashMap<u64, Arc<Stream>>>,
}

struct Member {
    poller: Arc<Poller>,
    waker: Arc<Waker>,
    idle: AtomicBool,
}

impl<W: Wire> Crew<W> {
    /// # Errors
    /// Descriptor limits.
    pub(crate) fn new(shared: Arc<Shared<W>>, workers: usize, parallel: bool) -> io::Result<Self> {
        let parallel = parallel && workers > 1;
        let members: Vec<Member> = (0..workers)
            .map(|_| {
                Ok(Member {
                    poller: Arc::new(Poller::new()?),
                    waker: Arc::new(Waker::new()?),
                    idle: AtomicBool::new(false),
                })
            })
            .collect::<io::Result<_>>()?;
        if let Some(first) = members.first() {
            let _ = shared.tun_waker.set(Arc::clone(&first.waker));
        }
        Ok(Self {
            outbound: Lane::new(Outbound(Arc::clone(&shared)), parallel),
            inbound: Lane::new(Inbound(Arc::clone(&shared)), parallel),
            shared,
            members,
            stop: AtomicBool::new(false),
            parallel,
            streams: Mutex::default(),
        })
    }

    pub(crate) fn workers(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn is_parallel(&self) -> bool {
        self.parallel
    }

    /// Makes every worker look at the sockets and at the stop flag.
    pub(crate) fn wake_all(&self) {
        for member in &self.members {
            member.waker.wake();
        }
    }

    /// The worker that owns the sockets.
    fn receiver(&self) -> &Member {
        &self.members[1.min(self.members.len() - 1)]
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// Descriptor limits.
    pub(crate) fn add_stream(&self, stream: &Arc<Stream>) -> io::Result<()> {
        // Known before it is watched: its first event must find it.
        self.streams().insert(stream.id(), Arc::clone(stream));
        let token = STREAMS + stream.id();
        stream
            .watch(Arc::clone(&self.receiver().poller), token)
            .inspect_err(|_| drop(self.streams().remove(&stream.id())))
    }

    pub(crate) fn remove_stream(&self, id: u64) {
        let stream = self.streams().remove(&id);
        if let Some(stream) = stream {
            stream.unwatch();
            self.room_again(&stream);
        }
    }

    /// The TUN may be read again if it was not for this stream's sake.
    fn room_again(&self, stream: &Stream) {
        if self.shared.backpressure && !stream.is_congested() {
            self.shared.go_on();
        }
    }

    /// Ends every worker.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Tells control that the data plane has ended.
    pub(crate) fn tell_gone(&self) {
        self.shared.control.device_gone();
    }

    /// The life of worker `me`.
    ///
    /// # Errors
    /// Descriptor limits, at the start.
    pub(crate) fn work(&self, me: usize) -> io::Result<()> {
        let poller = Arc::clone(&self.members[me].poller);
        poller.add(&*self.members[me].waker, WAKE)?;
        let mut tun_waits = false;
        let mut tun = if me == 0 {
            poller.add(&self.shared.tun, TUN)?;
            Some(OutboundFill::new(Arc::clone(&self.shared)))
        } else {
            None
        };
        let owns_udp = me == 1 || self.members.len() == 1;
        let mut udp = owns_udp.then(|| InboundFill::new(Arc::clone(&self.shared)));
        let mut sockets = Arc::new(Sockets::default());
        if owns_udp {
            self.follow_sockets(&poller, &mut sockets)?;
        }
        while !self.stop.load(Ordering::Acquire) {
            for token in self.wait(me, &poller)?.iter() {
                match (token, &mut tun, &mut udp) {
                    (WAKE, ..) => {
                        self.members[me].waker.clear();
                        if tun_waits && !self.shared.congested() {
                            poller.add(&self.shared.tun, TUN)?;
                            tun_waits = false;
                        }
                        if let Some(fill) = &mut tun
                            && self.shared.has_injected()
                        {
                            self.pump_tun(fill);
                        }
                        if owns_udp {
                            self.follow_sockets(&poller, &mut sockets)?;
                        }
                    }
                    (TUN, Some(fill), _) => {
                        self.pump_tun(fill);
                        if self.shared.congested() && !tun_waits {
                            // Readable all the while: not to be asked until there is room.
                            poller.remove(&self.shared.tun)?;
                            tun_waits = true;
                            // Room may have come between the two.
                            self.members[me].waker.wake();
                        }
                    }
                    (UDP_V4 | UDP_V6, _, Some(fill)) => {
                        let family = if token == UDP_V4 {
                            Family::V4
                        } else {
                            Family::V6
                        };
                        if let Some(socket) = sockets.of(family) {
                            self.pump(
                                &self.inbound,
                                |slot| fill.fill(slot, socket),
                                |s| !s.runs.is_empty(),
                            );
                        }
                    }
                    (STREAMS.., _, Some(fill)) => self.pump_stream(token - STREAMS, fill),
                    _ => {}
                }
            }
            self.help();
        }
        Ok(())
    }

    pub(crate) fn pump_tun(&self, fill: &mut OutboundFill<W>) {
        let filled = self.pump(
            &self.outbound,
            |slot| fill.fill(slot),
            |s| !s.runs.is_empty(),
        );
        if filled == Filled::Gone {
            self.stop();
            self.tell_gone();
        }
    }

    /// A stream is readable, or writable after it was not, or both, or at its end.
    pub(crate) fn pump_stream(&self, id: u64, fill: &mut InboundFill<W>) {
        let Some(stream) = self.streams().get(&id).cloned() else {
            return;
        };
        if stream.is_congested() && stream.flush() {
            self.room_again(&stream);
        }
        let mut ended = false;
        self.pump(
            &self.inbound,
            |slot| {
                fill.fill_stream(slot, &stream).unwrap_or_else(|| {
                    ended = true;
                    Filled::Drained
                })
            },
            |s| !s.runs.is_empty(),
        );
        if ended {
            stream.close();
            self.remove_stream(id);
            self.shared.control.stream_closed(id);
        }
    }

    fn wait(&self, me: usize, poller: &Poller) -> io::Result<netio::poll::Ready> {
        if !self.parallel {
            return poller.wait(None);
        }
        let idle = &self.members[me].idle;
        idle.store(true, Ordering::SeqCst);
        // A batch published before the flag was up woke nobody.
        self.help();
        let ready = poller.wait(None);
        idle.store(false, Ordering::SeqCst);
        ready
    }

    fn help(&self) {
        while self.outbound.work() || self.inbound.work() {}
    }

    /// Reads and passes on until nothing waits.
    fn pump<D: Direction>(
        &self,
        lane: &Lane<D>,
        mut fill: impl FnMut(&mut D::Slot) -> Filled,
        filled_any: impl Fn(&D::Slot) -> bool,
    ) -> Filled {
        // A bound, so that one descriptor cannot keep a worker that owns both from the other.
        for _ in 0..64 {
            let mut slot = loop {
                match lane.spare() {
                    Some(slot) => break slot,
                    // All are in flight: help with one, or let the workers that have them finish.
                    None if lane.work() => {}
                    None => std::thread::yield_now(),
                }
            };
            let filled = fill(&mut slot);
            if !filled_any(&slot) {
                lane.put_back(slot);
            } else if lane.is_idle() && !(self.parallel && filled == Filled::Full) {
                lane.run(slot);
            } else {
                lane.publish(slot);
                if lane.waiting() >= BACKLOG {
                    self.wake_one();
                }
                // With a backlog, read on while others work; without, do it now.
                if filled != Filled::Full || lane.waiting() > BACKLOG {
                    lane.work();
                }
            }
            if filled != Filled::Full {
                while lane.work() {}
                return filled;
            }
        }
        while lane.work() {}
        Filled::Full
    }

    fn wake_one(&self) {
        for member in &self.members {
            if member.idle.load(Ordering::Relaxed) && member.idle.swap(false, Ordering::SeqCst) {
                member.waker.wake();
                return;
            }
        }
    }

    fn follow_sockets(&self, poller: &Poller, current: &mut Arc<Sockets>) -> io::Result<()> {
        let wanted = self.shared.sockets.load_full();
        if Arc::ptr_eq(&wanted, current) {
            return Ok(());
        }
        for socket in current.iter() {
            // One that was already closed has left the set by itself.
            let _ = poller.remove(socket);
        }
        for socket in wanted.iter() {
            let token = if socket.family() == Family::V4 {
                UDP_V4
            } else {
                UDP_V6
            };
            poller.add(socket, token)?;
        }
        *current = wanted;
        Ok(())
    }
}
