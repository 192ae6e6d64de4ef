//! A TCP connection to a peer: records, each behind its length in 16 bits, big-endian.
//!
//! Records are laid out in a slot as datagrams are, with the length as part of the header, so that
//! a whole batch is written by one call.

use netio::poll::Poller;
use netio::udp::{Endpoint, Source};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a record's length.
pub const RECORD_HEADER: usize = 2;

/// Bytes that may wait for a peer that does not read. A batch always goes in as a whole or not at
/// all, so this is exceeded by one batch at most.
const PENDING_MAX: usize = 256 << 10;

/// No session belongs to a stream yet.
const NO_SESSIONS: u32 = u32::MAX;

/// A connection. Written by workers and by control, read by the worker that owns the sockets.
#[derive(Debug)]
pub struct Stream {
    id: u64,
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
    pending: Vec<u8>,
    /// Bytes of `pending` that were sent.
    sent: usize,
    /// Where writability is waited for, once the data plane knows the stream.
    poller: Option<(Arc<Poller>, u64)>,
}

/// What became of records that were to be written.
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
    /// Takes a connection over. `id` is what [`Control`](crate::Control) will call it.
    ///
    /// # Errors
    /// What the kernel says to being asked for the addresses or to be non-blocking.
    pub fn new(id: u64, socket: TcpStream) -> io::Result<Self> {
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
        Ok(Self {
            id,
            socket,
            endpoint,
            sessions: AtomicU32::new(NO_SESSIONS),
            out: Mutex::default(),
            partial: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
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
    /// ([`SessionName::OfSender`](crate::SessionName::OfSender)): `first` and those after it.
    pub fn set_sessions(&self, first: u32) {
        self.sessions.store(first, Ordering::Relaxed);
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

    /// Ends the connection, for both sides.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Writes whole records, each with its length before it.
    pub fn write(&self, records: &[u8]) -> Written {
        let mut out = self.out();
        if self.closed.load(Ordering::Relaxed) {
            return Written::Dropped;
        }
        if !out.pending.is_empty() {
            if out.pending.len() - out.sent > PENDING_MAX {
                return Written::Dropped;
            }
            out.pending.extend_from_slice(records);
            return Written::Waiting;
        }
        match self.write_some(records) {
            Ok(n) if n == records.len() => Written::Sent,
            Ok(n) => {
                out.pending.extend_from_slice(&records[n..]);
                self.wait_for_room(&out, true);
                Written::Waiting
            }
            Err(_) => {
                self.closed.store(true, Ordering::Relaxed);
                Written::Dropped
            }
        }
    }

    /// Writes one record.
    pub fn write_record(&self, record: &[u8]) -> Written {
        let Ok(len) = u16::try_from(record.len()) else {
            return Written::Dropped;
        };
        let mut framed = Vec::with_capacity(RECORD_HEADER + record.len());
        framed.extend_from_slice(&len.to_be_bytes());
        framed.extend_from_slice(record);
        self.write(&framed)
    }

    /// Writes what waits. Returns whether nothing waits any more.
    pub(crate) fn flush(&self) -> bool {
        let mut out = self.out();
        if out.pending.is_empty() {
            return true;
        }
        match self.write_some(&out.pending[out.sent..]) {
            Ok(n) => out.sent += n,
            Err(_) => {
                self.closed.store(true, Ordering::Relaxed);
                out.sent = out.pending.len();
            }
        }
        if out.sent < out.pending.len() {
            return false;
        }
        out.pending = Vec::new();
        out.sent = 0;
        self.wait_for_room(&out, false);
        true
    }

    /// Whether something waits.
    pub(crate) fn is_congested(&self) -> bool {
        !self.out().pending.is_empty()
    }

    fn wait_for_room(&self, out: &Outgoing, wait: bool) {
        if let Some((poller, token)) = &out.poller {
            // A stream that was removed meanwhile needs no waiting.
            let _ = poller.modify(&self.socket, *token, wait);
        }
    }

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
        (Stream::new(1, ours).unwrap(), theirs)
    }

    #[test]
    fn what_waits_is_bounded_and_comes_whole_and_in_order() {
        let (ours, mut theirs) = pair();
        let record = vec![7; 60_000];
        let mut taken = 0_usize;
        let mut dropped = false;
        for _ in 0..2000 {
            match ours.write_record(&record) {
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
        while received < taken * (RECORD_HEADER + record.len()) {
            ours.flush();
            match theirs.read(&mut buffer) {
                Ok(n) => received += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(ours.flush());
        assert_eq!(received, taken * (RECORD_HEADER + record.len()));
    }

    #[test]
    fn nothing_is_written_to_a_closed_stream() {
        let (ours, _theirs) = pair();
        ours.close();
        assert_eq!(ours.write_record(b"late"), Written::Dropped);
        assert_eq!(ours.write_record(&vec![0; 70_000]), Written::Dropped);
    }
}
