//! A TCP connection to a peer. Each record follows its length in 16 bits, big-endian.
//!
//! A slot holds records like datagrams, with the length as part of the header, so that one call writes a whole batch.

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

/// Maximum number of bytes of a record after its 16-bit length.
pub(crate) const RECORD_MAX: usize = u16::MAX as usize;

/// Maximum number of bytes that may wait for a peer that does not read. A batch is queued whole or dropped, so the
/// queue exceeds this by one batch at most. Bytes already sent do not count and are not kept.
pub(crate) const PENDING_MAX: usize = 256 << 10;

/// No session belongs to the stream yet.
const NO_SESSIONS: u32 = u32::MAX;

/// A connection. Workers and control write it; the worker that owns the sockets reads it.
#[derive(Debug)]
pub struct Stream {
    id: StreamId,
    line: LineId,
    socket: TcpStream,
    endpoint: Endpoint,
    /// The first of our session indices for the peer at the other end.
    sessions: AtomicU32,
    out: Mutex<Outgoing>,
    /// The beginning of a record whose rest has not arrived yet.
    pub(crate) partial: Mutex<Vec<u8>>,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Outgoing {
    /// Bytes still to be sent. Sent bytes are removed, since a peer that is always a little behind never empties the
    /// queue.
    pending: VecDeque<u8>,
    /// The poller and token that report writability, once the data plane knows the stream.
    poller: Option<(Arc<Poller>, u64)>,
}

impl Outgoing {
    fn wait(&mut self, records: &[u8]) {
        // Reserves exactly, without doubling: the limit bounds memory too.
        self.pending.reserve_exact(records.len());
        self.pending.extend(records);
    }
}

/// The result of writing records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The kernel has the records.
    Sent,
    /// The records wait until the peer reads.
    Waiting,
    /// Too many bytes wait already, or the connection has ended.
    Dropped,
}

impl Stream {
    /// Takes over a connection. `id` is its number in [`Control`](plane::Control).
    ///
    /// # Errors
    /// The kernel's error for the addresses or for making it non-blocking.
    pub fn new(id: StreamId, socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Workers write records in batches, so holding the last one back would only add delay.
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

    /// A simulated stream to `peer` without a network, and its other end.
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

    /// Assigns the connection to a line; the default is the first.
    #[must_use]
    pub fn on_line(mut self, line: LineId) -> Self {
        self.line = line;
        self
    }

    /// The stream's number.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The line that the stream belongs to.
    #[must_use]
    pub fn line(&self) -> LineId {
        self.line
    }

    /// Addresses of both ends.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The TCP socket, for setting options.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Assigns data packets that name no session ([`SessionName::OfSender`](plane::SessionName::OfSender)) to the
    /// sessions from `first` on.
    pub fn set_sessions(&self, first: u32) {
        self.sessions.store(first, Ordering::Relaxed);
    }

    /// Assigns packets that name no session to the sessions from `first` on; if `theirs` is false, removes that.
    pub(crate) fn set_sender(&self, first: u32, theirs: bool) {
        if theirs {
            self.set_sessions(first);
        } else {
            let sessions = &self.sessions;
            let order = Ordering::Relaxed;
            // Another peer may have taken over the stream; then its number stays.
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

    /// Ends the connection for both sides, and drops waiting bytes.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // A write that missed the flag ends before this call gets the lock, and later writes see the flag. So no bytes
        // wait in a closed stream.
        self.out().pending = VecDeque::new();
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Whether the stream has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Writes whole records, each after its length. Drops them if more than `most` bytes wait already.
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

    /// Writes waiting bytes. Returns whether none are left.
    pub(crate) fn flush(&self) -> bool {
        let mut out = self.out();
        if out.pending.is_empty() {
            return true;
        }
        // A ring buffer has at most two pieces; the second is written only after the whole first.
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

    /// Whether bytes wait to be sent.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        !self.out().pending.is_empty()
    }

    fn wait_for_room(&self, out: &Outgoing, wait: bool) {
        if let Some((poller, token)) = &out.poller {
            // A removed stream is no longer in the poller, so this error does not matter.
            let _ = poller.modify(&self.socket, *token, wait);
        }
    }

    /// Writes until the kernel takes no more. Returns the bytes written.
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

    /// Reads available bytes. `Ok(0)`: the peer has closed.
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
            // Writes more than the peer reads, so that bytes wait at all times.
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
