//! A TCP connection to a peer: records, each behind its length in 16 bits, big-endian.
//!
//! Records are laid out in a slot as datagrams are, with the length as part of the header, so that
//! a whole batch is written by one call.

use crate::commit::RING_SLOTS;
use crate::slot::OUTBOUND_BYTES;
use netio::poll::Poller;
use netio::udp::{Endpoint, Source};
use plane::{LineId, StreamId};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of a record behind its length, which has 16 bits.
pub(crate) const RECORD_MAX: usize = u16::MAX as usize;

/// Bytes that may wait for a peer that does not read. A batch always goes in as a whole or not at
/// all, so this is exceeded by one batch at most. What was sent is no part of it, nor kept.
pub(crate) const PENDING_MAX: usize = 256 << 10;

/// The bound where the interface is not read while something waits: batches that are in flight at that moment go in,
/// too. No more than the ring has places for can be in flight, so packets of a client are not dropped for a lack of
/// room.
pub(crate) const PENDING_IN_FLIGHT_MAX: usize = PENDING_MAX + RING_SLOTS * OUTBOUND_BYTES;

/// No session belongs to a stream yet.
const NO_SESSIONS: u32 = u32::MAX;

/// A connection. Written by workers and by control, read by the worker that owns the sockets.
#[derive(Debug)]
pub struct Stream {
    id: StreamId,
    line: LineId,
    socket: TcpStream,
    endpoint: Endpoint,
    /// The first of our names for the sessions of the peer at the other end.
    sessions: AtomicU32,
    out: Mutex<Outgoing>,
    /// The beginning of a record whose rest has not come yet.
    pub(crate) partial: Mutex<Vec<u8>>,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Outgoing {
    /// Bytes that wait, and none that were sent: a peer that is always a little behind never lets this become empty.
    pending: VecDeque<u8>,
    /// Where writability is waited for, once the data plane knows the stream.
    poller: Option<(Arc<Poller>, u64)>,
}

impl Outgoing {
    fn wait(&mut self, records: &[u8]) {
        // Not doubled: the limit is one of memory, too.
        self.pending.reserve_exact(records.len());
        self.pending.extend(records);
    }
}

/// The fate of records that were to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The kernel has them.
    Sent,
    /// They wait until the peer reads.
    Waiting,
    /// Too much waits already, or the connection has ended.
    Dropped,
}

impl Stream {
    /// Takes a connection over. `id` is what [`Control`](plane::Control) will call it.
    ///
    /// # Errors
    /// The kernel's error for the addresses or for making it non-blocking.
    pub fn new(id: StreamId, socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Records are written in batches; holding the last one back would only add delay.
        socket.set_nodelay(true)?;
        let endpoint = Endpoint {
            addr: socket.peer_addr()?,
            source: Some(Source {
                ip: socket.local_addr()?.ip(),
                ifindex: 0,
            }),
        };
        Ok(Self::over(id, socket, endpoint))
    }

    /// A stream to `peer` that is none of the network, and its other end: for simulations.
    ///
    /// # Errors
    /// Descriptor limits.
    #[doc(hidden)]
    pub fn simulated(id: StreamId, peer: SocketAddr) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let socket = TcpStream::from(OwnedFd::from(ours));
        Ok((Self::over(id, socket, Endpoint::new(peer)), theirs))
    }

    fn over(id: StreamId, socket: TcpStream, endpoint: Endpoint) -> Self {
        Self {
            id,
            line: LineId::FIRST,
            socket,
            endpoint,
            sessions: AtomicU32::new(NO_SESSIONS),
            out: Mutex::default(),
            partial: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Makes it a connection of another line than the first.
    #[must_use]
    pub fn on_line(mut self, line: LineId) -> Self {
        self.line = line;
        self
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The line that it belongs to.
    #[must_use]
    pub fn line(&self) -> LineId {
        self.line
    }

    /// Both ends' addresses.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The connection itself, for options.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Says which sessions data packets belong to that name none
    /// ([`SessionName::OfSender`](plane::SessionName::OfSender)): `first` and those after it.
    pub fn set_sessions(&self, first: u32) {
        self.sessions.store(first, Ordering::Relaxed);
    }

    /// Says that such packets belong to the sessions from `first` on, or no longer do.
    pub(crate) fn set_sender(&self, first: u32, theirs: bool) {
        if theirs {
            self.set_sessions(first);
        } else {
            let sessions = &self.sessions;
            let order = Ordering::Relaxed;
            // Unless it has become another peer's.
            let _ = sessions.compare_exchange(first, NO_SESSIONS, order, order);
        }
    }

    pub(crate) fn sessions(&self) -> Option<u32> {
        Some(self.sessions.load(Ordering::Relaxed)).filter(|first| *first != NO_SESSIONS)
    }

    fn out(&self) -> MutexGuard<'_, Outgoing> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `poller` wait for this stream under `token`.
    pub(crate) fn watch(&self, poller: Arc<Poller>, token: u64) -> io::Result<()> {
        let mut out = self.out();
        poller.add(&self.socket, token)?;
        if !out.pending.is_empty() {
            poller.modify(&self.socket, token, true)?;
        }
        out.poller = Some((poller, token));
        Ok(())
    }

    pub(crate) fn unwatch(&self) {
        if let Some((poller, _)) = self.out().poller.take() {
            let _ = poller.remove(&self.socket);
        }
    }

    /// Ends the connection, for both sides, and drops what waits.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // A write that did not see the flag is over when this has the lock, and later ones see it:
        // nothing waits in a closed stream, so nothing is waited for.
        self.out().pending = VecDeque::new();
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Writes whole records, each with its length before it. They are dropped where more than `most` bytes wait already.
    pub(crate) fn write(&self, records: &[u8], most: usize) -> Written {
        let mut out = self.out();
        if self.closed.load(Ordering::Relaxed) {
            return Written::Dropped;
        }
        if !out.pending.is_empty() {
            if out.pending.len() > most {
                return Written::Dropped;
            }
            out.wait(records);
            return Written::Waiting;
        }
        match self.write_some(records) {
            Ok(n) if n == records.len() => Written::Sent,
            Ok(n) => {
                out.wait(&records[n..]);
                self.wait_for_room(&out, true);
                Written::Waiting
            }
            Err(_) => {
                self.closed.store(true, Ordering::Relaxed);
                Written::Dropped
            }
        }
    }

    /// Writes what waits. Returns whether nothing waits any more.
    pub(crate) fn flush(&self) -> bool {
        let mut out = self.out();
        if out.pending.is_empty() {
            return true;
        }
        // A ring is two pieces at most: the second is tried only when the first has gone as a whole.
        loop {
            let (piece, _) = out.pending.as_slices();
            let len = piece.len();
            let sent = self.write_some(piece).unwrap_or_else(|_| {
                self.closed.store(true, Ordering::Relaxed);
                out.pending.len()
            });
            out.pending.drain(..sent);
            if out.pending.is_empty() {
                out.pending = VecDeque::new();
                self.wait_for_room(&out, false);
                return true;
            }
            if sent < len {
                return false;
            }
        }
    }

    /// Whether something waits.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        !self.out().pending.is_empty()
    }

    fn wait_for_room(&self, out: &Outgoing, wait: bool) {
        if let Some((poller, token)) = &out.poller {
            // A stream that was removed meanwhile needs no waiting.
            let _ = poller.modify(&self.socket, *token, wait);
        }
    }

    /// Writes until the kernel has enough. Returns the bytes that went.
    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match (&self.socket).write(&bytes[done..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Reads what is there. `Ok(0)`: the peer has closed.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.socket).read(buffer)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        (Stream::new(StreamId(1), ours).unwrap(), theirs)
    }

    #[test]
    fn what_waits_is_bounded_and_comes_whole_and_in_order() {
        let (ours, mut theirs) = pair();
        let record = vec![7; 60_000];
        let mut taken = 0_usize;
        let mut dropped = false;
        for _ in 0..2000 {
            match ours.write(&record, PENDING_MAX) {
                Written::Dropped => {
                    dropped = true;
                    break;
                }
                _ => taken += 1,
            }
        }
        assert!(dropped, "a peer that never reads");
        assert!(ours.is_congested());
        let mut received = 0;
        let mut buffer = vec![0; 100_000];
        theirs.set_nonblocking(true).unwrap();
        while received < taken * record.len() {
            ours.flush();
            match theirs.read(&mut buffer) {
                Ok(n) => received += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(ours.flush());
        assert_eq!(received, taken * record.len());
    }

    #[test]
    fn a_peer_that_is_always_behind_costs_no_more_than_what_waits() {
        let (ours, mut theirs) = pair();
        let batch = vec![7; 60_000];
        let mut buffer = vec![0; 20_000];
        theirs.set_nonblocking(true).unwrap();
        let (mut read, mut waited) = (0_usize, 0_usize);
        while read < 32 << 20 {
            // More than the peer reads, so that something waits at all times.
            waited += usize::from(ours.write(&batch, PENDING_MAX) == Written::Waiting);
            ours.flush();
            match theirs.read(&mut buffer) {
                Ok(n) => read += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            let out = ours.out();
            assert!(out.pending.len() <= PENDING_MAX + batch.len());
            assert!(out.pending.capacity() <= PENDING_MAX + batch.len());
        }
        assert!(waited > 100, "the peer was behind");
    }

    #[test]
    fn nothing_waits_in_a_closed_stream() {
        let (ours, _theirs) = pair();
        while ours.write(&[7; 60_000], PENDING_MAX) != Written::Waiting {}
        assert!(ours.is_congested());
        ours.close();
        assert!(!ours.is_congested());
        assert_eq!(ours.out().pending.capacity(), 0);
    }

    #[test]
    fn nothing_is_written_to_a_closed_stream() {
        let (ours, _theirs) = pair();
        ours.close();
        assert_eq!(ours.write(b"late", PENDING_MAX), Written::Dropped);
    }
}
