//! Workers: threads that fill, and help each other when there is a backlog.
//!
//! The first worker owns the TUN, the second the sockets; on one core one worker owns both. A
//! worker that has nothing to read helps with batches that wait in either pipeline. The data plane has no other
//! threads, and none that only passes packets on.

use crate::coalescing::PAUSE;
use crate::commit::{Direction, Pipeline};
use crate::drain::{InboundDrain, OutboundDrain};
use crate::fill::{Filled, InboundFill, OutboundFill};
use crate::line::{Lines, TOKENS_END};
use crate::shared::Shared;
use crate::slot::{InboundSlot, OutboundSlot};
use crate::stats::PipelineStats;
use crate::stream::Stream;
use crate::transform;
use netio::poll::{Poller, Waker};
use netio::udp::UdpSocket;
use plane::{LineId, StreamId, Wire};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const WAKE: u64 = 0;
const TUN: u64 = 1;
/// Poller token of the first stream, after those of the lines' sockets. Other streams follow by number.
const STREAMS: u64 = 64;
const _: () = assert!(TOKENS_END <= STREAMS);

/// Batches that one descriptor fills before the next has its turn. [`ROUNDS_SHAPED`] applies while packets wait for a
/// line's rate.
const ROUNDS: usize = 64;
const ROUNDS_SHAPED: usize = 4;

/// Waiting batches beyond which another worker is woken: waking one costs more than one batch.
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
    fn stats(&self) -> &PipelineStats {
        &self.0.outbound
    }
}

pub(crate) struct Inbound<W: Wire>(Arc<Shared<W>>);

impl<W: Wire> Direction for Inbound<W> {
    type Slot = InboundSlot<W>;
    type Drain = InboundDrain<W>;

    fn new_slot() -> InboundSlot<W> {
        InboundSlot::new()
    }
    fn transform(&self, slot: &mut InboundSlot<W>) {
        transform::inbound(&self.0, slot);
    }
    fn drain(&self, drain: &mut InboundDrain<W>, slot: &mut InboundSlot<W>) {
        drain.drain(&self.0, slot);
    }
    fn clear(&self, slot: &mut Self::Slot) {
        slot.clear();
    }
    fn stats(&self) -> &PipelineStats {
        &self.0.inbound
    }
    fn expire(&self, drain: &mut InboundDrain<W>, now: Instant) {
        drain.expire(&self.0, now);
    }
}

/// All workers of a tunnel.
pub(crate) struct Workers<W: Wire> {
    shared: Arc<Shared<W>>,
    outbound: Pipeline<Outbound<W>>,
    inbound: Pipeline<Inbound<W>>,
    all: Vec<Worker>,
    stop: AtomicBool,
    parallel: bool,
    /// The latest round that all workers were asked for: see [`Workers::pulse`].
    rounds: AtomicU32,
    streams: Mutex<HashMap<StreamId, Arc<Stream>>>,
}

/// How one worker is woken.
struct Worker {
    poller: Arc<Poller>,
    waker: Arc<Waker>,
    idle: AtomicBool,
    /// The latest round that this worker has done.
    round: AtomicU32,
}

impl<W: Wire> Workers<W> {
    /// # Errors
    /// Descriptor limits.
    pub(crate) fn new(shared: Arc<Shared<W>>, workers: usize, parallel: bool) -> io::Result<Self> {
        let parallel = parallel && workers > 1;
        let all: Vec<Worker> = (0..workers)
            .map(|_| {
                Ok(Worker {
                    poller: Arc::new(Poller::new()?),
                    waker: Arc::new(Waker::new()?),
                    idle: AtomicBool::new(false),
                    round: AtomicU32::new(0),
                })
            })
            .collect::<io::Result<_>>()?;
        if let Some(first) = all.first() {
            let _ = shared.tun_waker.set(Arc::clone(&first.waker));
        }
        if let Some(receiver) = all.get(1).or_else(|| all.first()) {
            let _ = shared.receiver_waker.set(Arc::clone(&receiver.waker));
        }
        Ok(Self {
            outbound: Pipeline::new(Outbound(Arc::clone(&shared)), parallel),
            inbound: Pipeline::new(Inbound(Arc::clone(&shared)), parallel),
            shared,
            all,
            stop: AtomicBool::new(false),
            parallel,
            rounds: AtomicU32::new(0),
            streams: Mutex::default(),
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_parallel(&self) -> bool {
        self.parallel
    }

    /// Makes every worker look at the sockets and at the stop flag.
    pub(crate) fn wake_all(&self) {
        for worker in &self.all {
            worker.waker.wake();
        }
    }

    /// Whether every worker has run since the last call. Asks all of them for another round.
    pub(crate) fn pulse(&self) -> bool {
        let asked = self.rounds.load(Ordering::Relaxed);
        let done = |worker: &Worker| worker.round.load(Ordering::Relaxed) == asked;
        if !self.all.iter().all(done) {
            return false;
        }
        self.rounds.store(asked.wrapping_add(1), Ordering::Relaxed);
        self.wake_all();
        true
    }

    /// The worker that owns the sockets.
    fn receiver(&self) -> &Worker {
        &self.all[1.min(self.all.len() - 1)]
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<StreamId, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// Descriptor limits.
    pub(crate) fn add_stream(&self, stream: &Arc<Stream>) -> io::Result<()> {
        // The stream is in the table before the poller watches it, so that its first event finds it.
        self.streams().insert(stream.id(), Arc::clone(stream));
        let token = STREAMS + stream.id().0;
        stream
            .watch(Arc::clone(&self.receiver().poller), token)
            .inspect_err(|_| drop(self.streams().remove(&stream.id())))
    }

    pub(crate) fn remove_stream(&self, id: StreamId) {
        let stream = self.streams().remove(&id);
        if let Some(stream) = stream {
            stream.unwatch();
            self.room_again(&stream);
        }
    }

    /// Lets the TUN be read again, if this stream's congestion had stopped it.
    fn room_again(&self, stream: &Stream) {
        if self.shared.backpressure && !stream.is_congested() {
            self.shared.go_on(stream.line());
        }
    }

    /// The stream with this number.
    pub(crate) fn stream(&self, id: StreamId) -> Option<Arc<Stream>> {
        self.streams().get(&id).cloned()
    }

    /// Ends every worker.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Notifies control that the data plane has ended.
    pub(crate) fn tell_gone(&self) {
        self.shared.control.device_gone();
    }

    /// Runs worker `me` until the tunnel stops.
    ///
    /// # Errors
    /// Descriptor limits, at the start.
    pub(crate) fn work(&self, me: usize) -> io::Result<()> {
        let poller = Arc::clone(&self.all[me].poller);
        poller.add(&*self.all[me].waker, WAKE)?;
        if self.shared.coalescing.on() {
            netio::poll::end_waits_in_time();
        }
        let mut tun_waits = false;
        let mut tun = if me == 0 {
            poller.add(&self.shared.tun, TUN)?;
            Some(OutboundFill::new(Arc::clone(&self.shared)))
        } else {
            None
        };
        let owns_udp = me == 1 || self.all.len() == 1;
        let mut udp = owns_udp.then(|| InboundFill::new(Arc::clone(&self.shared)));
        let mut lines = Arc::new(Lines::default());
        if owns_udp {
            self.follow_lines(&poller, &mut lines)?;
        }
        while !self.stop.load(Ordering::Acquire) {
            for token in self.wait(me, &poller, owns_udp, tun.as_ref())?.iter() {
                match (token, &mut tun, &mut udp) {
                    (WAKE, ..) => {
                        self.all[me].waker.clear();
                        let round = self.rounds.load(Ordering::Relaxed);
                        self.all[me].round.store(round, Ordering::Relaxed);
                        if tun_waits && !self.shared.congested() {
                            poller.add(&self.shared.tun, TUN)?;
                            tun_waits = false;
                        }
                        if let Some(fill) = &mut tun
                            && (self.shared.has_injected() || fill.rate_changed())
                        {
                            self.pump_tun(fill);
                        }
                        if owns_udp {
                            self.follow_lines(&poller, &mut lines)?;
                        }
                    }
                    (TUN, Some(fill), _) => {
                        self.pump_tun(fill);
                        if self.shared.congested() && !tun_waits {
                            // The TUN stays readable, so the poller must not report it until a stream has room.
                            poller.remove(&self.shared.tun)?;
                            tun_waits = true;
                            // A stream may have got room in between, so look again.
                            self.all[me].waker.wake();
                        }
                    }
                    (STREAMS.., _, Some(fill)) => self.pump_stream(StreamId(token - STREAMS), fill),
                    (_, _, Some(fill)) => {
                        if let Some((line, socket)) = lines.by_token(token) {
                            self.pump_socket(fill, line, socket);
                        }
                    }
                    _ => {}
                }
            }
            // Packets whose turn on a line has come are sent now.
            if let Some(fill) = tun
                .as_mut()
                .filter(|fill| Self::held(fill).is_some_and(|wait| wait.is_zero()))
            {
                self.pump_tun(fill);
            }
            self.help();
            // The worker that owns the sockets also releases held packets that came from them.
            if owns_udp && self.shared.alarm.is_due(self.shared.epoch) {
                self.inbound.expire();
            }
            let outbound = tun.as_mut().is_some_and(|it| it.coalescing.pause());
            let inbound = udp.as_mut().is_some_and(|it| it.coalescing.pause());
            if outbound || inbound {
                self.all[me].waker.pause(PAUSE);
            }
        }
        Ok(())
    }

    pub(crate) fn pump_tun(&self, fill: &mut OutboundFill<W>) {
        let filled = self.pump(
            &self.outbound,
            |slot| fill.fill(slot),
            |s| !s.runs.is_empty(),
        );
        match filled {
            Filled::Gone => {
                self.stop();
                self.tell_gone();
            }
            // `inject` wakes this worker only for the first waiting payload, and the poller watches only the interface.
            // So the payloads that remain need another wake-up.
            Filled::Full if self.shared.has_injected() => self.shared.wake_tun(),
            _ => {}
        }
    }

    /// Handles a readable socket of a line.
    pub(crate) fn pump_socket(&self, fill: &mut InboundFill<W>, line: LineId, socket: &UdpSocket) {
        self.pump(
            &self.inbound,
            |slot| fill.fill(slot, line, socket),
            |s| !s.runs.is_empty(),
        );
    }

    /// Handles a stream that is readable, writable again, or at its end.
    pub(crate) fn pump_stream(&self, id: StreamId, fill: &mut InboundFill<W>) {
        let Some(stream) = self.stream(id) else {
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

    /// How long packets that were read must still wait for a line; `None` if none wait.
    fn held(fill: &OutboundFill<W>) -> Option<Duration> {
        if !fill.shapes() {
            return None;
        }
        let now = Instant::now();
        let deadline = fill.deadline(now)?;
        Some(deadline.saturating_duration_since(now))
    }

    /// Waits for work. A worker with shaped packets wakes when the first may leave. The owner of the sockets also wakes
    /// when held packets are due.
    fn wait(
        &self,
        me: usize,
        poller: &Poller,
        owns_udp: bool,
        tun: Option<&OutboundFill<W>>,
    ) -> io::Result<netio::poll::Ready> {
        let idle = &self.all[me].idle;
        if self.parallel {
            idle.store(true, Ordering::SeqCst);
            // A batch published before the flag was set has woken no worker.
            self.help();
        }
        let alarm = owns_udp.then_some(&self.shared.alarm);
        let timeout = alarm.and_then(|alarm| alarm.sleep(self.shared.epoch));
        let held = tun.and_then(Self::held);
        let ready = poller.wait(timeout.into_iter().chain(held).min());
        if let Some(alarm) = alarm {
            alarm.awake();
        }
        if self.parallel {
            idle.store(false, Ordering::SeqCst);
        }
        ready
    }

    fn help(&self) {
        while self.outbound.work() || self.inbound.work() {}
    }

    /// Reads batches and passes them on until nothing waits.
    fn pump<D: Direction>(
        &self,
        pipeline: &Pipeline<D>,
        mut fill: impl FnMut(&mut D::Slot) -> Filled,
        filled_any: impl Fn(&D::Slot) -> bool,
    ) -> Filled {
        // The bound keeps one descriptor from starving the others that the worker owns.
        let rounds = match self.shared.rates.word() {
            0 => ROUNDS,
            _ => ROUNDS_SHAPED,
        };
        for _ in 0..rounds {
            let mut slot = loop {
                match pipeline.spare() {
                    Some(slot) => break slot,
                    // All slots are in flight: help with one, or let their workers finish.
                    None if pipeline.work() => {}
                    None => std::thread::yield_now(),
                }
            };
            let filled = fill(&mut slot);
            if !filled_any(&slot) {
                pipeline.put_back(slot);
            } else if pipeline.is_idle() && !(self.parallel && filled == Filled::Full) {
                pipeline.run(slot);
            } else {
                pipeline.publish(slot);
                if pipeline.waiting() >= BACKLOG {
                    self.wake_one();
                }
                // With a backlog, read on while other workers process batches; without, process one now.
                if filled != Filled::Full || pipeline.waiting() > BACKLOG {
                    pipeline.work();
                }
            }
            if filled != Filled::Full {
                while pipeline.work() {}
                return filled;
            }
        }
        while pipeline.work() {}
        Filled::Full
    }

    fn wake_one(&self) {
        for worker in &self.all {
            if worker.idle.load(Ordering::Relaxed) && worker.idle.swap(false, Ordering::SeqCst) {
                worker.waker.wake();
                return;
            }
        }
    }

    fn follow_lines(&self, poller: &Poller, current: &mut Arc<Lines>) -> io::Result<()> {
        let wanted = self.shared.lines.load_full();
        if !Arc::ptr_eq(&wanted, current) {
            wanted.watch(poller, current)?;
            *current = wanted;
        }
        Ok(())
    }
}
