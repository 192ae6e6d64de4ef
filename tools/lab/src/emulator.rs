//! An emulated line that delays, loses and reorders frames, for kernels without netem.
//!
//! ```text
//! host a [eth0]--veth--[a  namespace of the emulator  b]--veth--[eth0] host b
//!                       |   read -> wire a to b -> send |
//!                       |   send <- wire b to a <- read |
//! ```
//! One thread relays whole frames by AF_PACKET. Delays count from the kernel's receive time of a frame, not from the
//! time at which the thread reads it.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netio::packet::{BATCH, FrameBatch, Note, PacketSocket};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;

use crate::wire::{Held, Impairment, Wire, WireCounters};
use crate::{Host, LabError, Link, LinkOptions, Offloads};

/// Bytes of a frame beyond the MTU at most: Ethernet header and two VLAN tags.
const FRAME_OVERHEAD: usize = 22;
/// Longest sleep of the relay before it looks at the controls again.
const IDLE: Duration = Duration::from_secs(1);

/// A direction, named by the side that sends the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Frames from the first host to the second.
    A,
    /// Frames from the second host to the first.
    B,
}

/// An emulated line between two hosts. Dropping the value removes the line.
#[derive(Debug)]
pub struct Emulator {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
    /// The host that holds the relay's ends of the cables.
    _host: Host,
}

#[derive(Debug)]
struct Shared {
    controls: Mutex<Controls>,
    wake: EventFd,
}

#[derive(Debug)]
struct Controls {
    lines: [Impairment; 2],
    /// Whether `lines` has changed since the thread last read it.
    changed: bool,
    stop: bool,
    counters: [WireCounters; 2],
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Controls> {
        // A panic of another thread cannot leave these plain values half-written.
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Emulator {
    /// Joins two hosts by an emulated line. The offloads of all its ends are off, whatever the options say: the line
    /// carries frames, not super-packets.
    ///
    /// # Errors
    /// The errors of [`Link::new`], and [`LabError::Host`] if the relay cannot open its sockets.
    pub fn new(
        a: &Host,
        a_name: &str,
        b: &Host,
        b_name: &str,
        options: &LinkOptions,
        lines: [Impairment; 2],
        seed: u64,
    ) -> Result<Self, LabError> {
        let host = Host::new("emulator")?;
        // The relay's own interfaces must send no IPv6 packets.
        let _ = host.sysctl("net/ipv6/conf/default/disable_ipv6", "1");
        let _ = host.sysctl("net/ipv6/conf/all/disable_ipv6", "1");
        for (end, name, inner, addresses) in
            [(a, a_name, "a", &options.a), (b, b_name, "b", &options.b)]
        {
            let cable = LinkOptions {
                mtu: options.mtu,
                offloads: Offloads::Off,
                a: addresses.clone(),
                b: Vec::new(),
            };
            Link::new(end, name, &host, inner, &cable)?;
        }
        let failed = |error| LabError::host("emulator", "relay frames", error);
        let sockets = host
            .run(|| Ok([PacketSocket::open("a")?, PacketSocket::open("b")?]))?
            .map_err(failed)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|error| failed(error.into()))?;
        let shared = Arc::new(Shared {
            controls: Mutex::new(Controls {
                lines,
                changed: false,
                stop: false,
                counters: Default::default(),
            }),
            wake,
        });
        let mut relay = Relay {
            sockets,
            // With equal seeds both directions would lose the same frames.
            wires: [Wire::new(lines[0], seed), Wire::new(lines[1], !seed)],
            batch: FrameBatch::new(options.mtu as usize + FRAME_OVERHEAD),
            start: Instant::now(),
            shared: Arc::clone(&shared),
        };
        let thread = host.spawn("emulator", move || relay.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
            _host: host,
        })
    }

    /// Changes one direction while it runs. Frames that are already on the line keep their delivery times.
    pub fn set(&self, side: Side, line: Impairment) {
        let mut controls = self.shared.lock();
        controls.lines[side as usize] = line;
        controls.changed = true;
        drop(controls);
        self.wake();
    }

    /// Changes both directions.
    pub fn set_both(&self, line: Impairment) {
        self.set(Side::A, line);
        self.set(Side::B, line);
    }

    /// Pulls the cable, or plugs it in again. The hosts keep their carrier, as behind a modem; to make a host notice,
    /// take its interface down instead.
    pub fn cut(&self, cut: bool) {
        let mut controls = self.shared.lock();
        for line in &mut controls.lines {
            line.cut = cut;
        }
        controls.changed = true;
        drop(controls);
        self.wake();
    }

    /// Returns the frame counters of one direction, as of the last time the relay went to sleep.
    pub fn counters(&self, side: Side) -> WireCounters {
        self.shared.lock().counters[side as usize]
    }

    fn wake(&self) {
        // The write only fails if wake-ups are already pending.
        let _ = self.shared.wake.write(1);
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.wake();
        if let Some(thread) = self.thread.take() {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => log::warn!("the emulator stopped: {error}"),
                Err(_) => log::error!("the emulator panicked"),
            }
        }
    }
}

/// The state of the relay's thread.
struct Relay {
    sockets: [PacketSocket; 2],
    /// Wire `n` carries the frames that socket `n` reads.
    wires: [Wire; 2],
    batch: FrameBatch,
    /// Zero point of the wires' time.
    start: Instant,
    shared: Arc<Shared>,
}

impl Relay {
    fn run(&mut self) -> io::Result<()> {
        // Without this every wait takes up to 50 us longer than requested.
        let _ = prctl::set_timerslack(1);
        while self.control() {
            let mut more = false;
            for side in [0, 1] {
                more |= self.read(side)?;
            }
            for side in [0, 1] {
                self.send(side);
            }
            if !more {
                self.publish();
                self.sleep()?;
            }
        }
        Ok(())
    }

    fn publish(&self) {
        self.shared.lock().counters = [self.wires[0].counters, self.wires[1].counters];
    }

    /// Applies changed controls; returns false when the relay must stop.
    fn control(&mut self) -> bool {
        let mut controls = self.shared.lock();
        if controls.changed {
            controls.changed = false;
            for (wire, line) in self.wires.iter_mut().zip(controls.lines) {
                wire.set(line);
            }
        }
        !controls.stop
    }

    /// Reads one batch of frames; returns true if there may be more.
    fn read(&mut self, side: usize) -> io::Result<bool> {
        let count = match self.sockets[side].receive(&mut self.batch) {
            Ok(count) => count,
            // The kernel reports once that the interface is down; reads work again when it is up.
            Err(error) if error.kind() == io::ErrorKind::NetworkDown => 0,
            Err(error) => return Err(error),
        };
        let now = self.start.elapsed();
        let wire = &mut self.wires[side];
        wire.counters.too_long += self.batch.truncated() as u64;
        for received in self.batch.frames() {
            let arrived = now.saturating_sub(received.age);
            wire.push(arrived, received.note, received.frame);
        }
        Ok(count == BATCH)
    }

    /// Sends the frames that are due.
    fn send(&mut self, side: usize) {
        let wire = &mut self.wires[side];
        let socket = &self.sockets[1 - side];
        loop {
            let now = self.start.elapsed();
            let due: Vec<Held> = std::iter::from_fn(|| wire.pop(now)).take(BATCH).collect();
            if due.is_empty() {
                return;
            }
            let frames: Vec<(Note, &[u8])> = due
                .iter()
                .map(|held| (held.note, held.frame.as_slice()))
                .collect();
            let mut done = 0;
            while done < frames.len() {
                // Drops a frame that the kernel refuses, as a full switch port does.
                match socket.send_batch(&frames[done..]) {
                    Ok(sent) if sent > 0 => {
                        wire.counters.sent += sent as u64;
                        done += sent;
                    }
                    _ => {
                        wire.counters.refused += 1;
                        done += 1;
                    }
                }
            }
            drop(frames);
            for held in due {
                wire.recycle(held);
            }
        }
    }

    /// Waits for frames, for the time at which a frame is due, or for a change of the controls.
    fn sleep(&self) -> io::Result<()> {
        let due = self.wires.iter().filter_map(Wire::next_due).min();
        let wait = due.map_or(IDLE, |due| {
            due.saturating_sub(self.start.elapsed()).min(IDLE)
        });
        let mut descriptors = [
            PollFd::new(self.sockets[0].as_fd(), PollFlags::POLLIN),
            PollFd::new(self.sockets[1].as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
        ];
        match ppoll(&mut descriptors, Some(TimeSpec::from_duration(wait)), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Mostly there is no wake-up to read.
        let _ = self.shared.wake.read();
        Ok(())
    }
}
