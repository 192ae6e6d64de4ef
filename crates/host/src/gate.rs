//! Pauses listening sockets when the process has run out of descriptors.
//!
//! A connection that cannot be accepted keeps waiting, and its socket stays readable. A loop that tried again at once
//! would spin, and write a log line each time.

use netio::poll::Poller;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long nothing is accepted after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Minimum time between two log lines about pauses.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// Maximum number of connections turned away in one go; the kernel queues no more than this.
const BACKLOG: usize = 128;

/// Watches the listening sockets of one loop, and pauses them while descriptors have run out.
pub struct Gate {
    /// A spare descriptor, freed for a moment to accept a connection and close it, so that its client learns at once.
    reserve: Option<File>,
    shut_until: Option<Instant>,
    watched: bool,
    told: Option<Instant>,
    /// Connections that [`Gate::failed`] has turned away.
    pub turned_away: u64,
}

impl Default for Gate {
    /// Gate that lets every write pass.
    fn default() -> Self {
        Self {
            reserve: reserve(),
            shut_until: None,
            watched: false,
            told: None,
            turned_away: 0,
        }
    }
}

impl Gate {
    /// Has the poller watch for connections, unless a pause is on.
    ///
    /// # Errors
    /// The error of `epoll_ctl`.
    pub fn follow<'f>(
        &mut self,
        poller: &Poller,
        sockets: impl IntoIterator<Item = (BorrowedFd<'f>, u64)>,
        now: Instant,
    ) -> io::Result<()> {
        let watch = self.shut_until.is_none_or(|until| now >= until);
        if watch {
            self.shut_until = None;
        }
        if watch == self.watched {
            return Ok(());
        }
        for (socket, token) in sockets {
            if watch {
                poller.add(socket, token)?;
            } else {
                poller.remove(socket)?;
            }
        }
        self.watched = watch;
        Ok(())
    }

    /// Has the poller watch for no connections until the next [`Gate::follow`].
    ///
    /// # Errors
    /// The error of `epoll_ctl`.
    pub fn rest<'f>(
        &mut self,
        poller: &Poller,
        sockets: impl IntoIterator<Item = BorrowedFd<'f>>,
    ) -> io::Result<()> {
        if std::mem::take(&mut self.watched) {
            for socket in sockets {
                poller.remove(socket)?;
            }
        }
        Ok(())
    }

    /// When [`Gate::follow`] next has something to do.
    pub const fn next_deadline(&self) -> Option<Instant> {
        self.shut_until
    }

    /// Pauses for a second, as a client has guessed at a password.
    pub fn shut(&mut self, now: Instant) {
        self.shut_until = Some(now + PAUSE);
    }

    /// Handles a failed `accept`: turns waiting connections away, pauses the sockets for a second, and logs a line.
    /// Does nothing of that if no connection waits: the kernel looks for a free descriptor before it looks for a
    /// connection.
    ///
    /// `turn_away` accepts one connection and closes it. It returns whether there was one.
    pub fn failed(
        &mut self,
        error: &io::Error,
        now: Instant,
        mut turn_away: impl FnMut() -> io::Result<bool>,
    ) {
        for number in 0..BACKLOG {
            if self.reserve.take().is_none() {
                break;
            }
            let outcome = turn_away();
            self.reserve = reserve();
            match outcome {
                Ok(true) => self.turned_away += 1,
                Ok(false) if number == 0 => return,
                Ok(false) | Err(_) => break,
            }
        }
        if self.reserve.is_none() {
            self.reserve = reserve();
        }
        self.shut_until = Some(now + PAUSE);
        if self.told.is_none_or(|at| now >= at + TOLD_AGAIN) {
            self.told = Some(now);
            log::warn!(
                "connections are turned away: {error} (the limit of open files, ulimit -n or LimitNOFILE=, is too \
                 low for so many)"
            );
        }
    }
}

/// Returns the accepted connection; `None` if no connection waits.
///
/// # Errors
/// Descriptors ran out.
pub fn accepted<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(connection) => Ok(Some(connection)),
        Err(error) => match error.kind() {
            // The client of an aborted one has left already.
            ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {
                Ok(None)
            }
            _ => Err(error),
        },
    }
}

/// Converts the result of accepting a connection to turn it away, for [`Gate::failed`].
pub fn turned_away<T>(outcome: io::Result<T>) -> io::Result<bool> {
    Ok(accepted(outcome)?.is_some())
}

fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_gate_that_is_shut_is_not_waited_at() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (poller, mut gate, mut now) = (Poller::new().unwrap(), Gate::default(), Instant::now());
        let follow = |gate: &mut Gate, now| {
            gate.follow(&poller, [(listener.as_fd(), 7)], now).unwrap();
            !poller.wait(Some(Duration::ZERO)).unwrap().is_empty()
        };
        let _callers: Vec<_> = (0..3)
            .map(|_| UnixStream::connect(&path).unwrap())
            .collect();
        assert!(follow(&mut gate, now));
        // One connection stays in the queue, so only the pause keeps the socket quiet.
        let mut left = 2;
        let why = io::Error::from_raw_os_error(24);
        gate.failed(&why, now, || {
            left -= 1;
            if left >= 0 {
                turned_away(listener.accept())
            } else {
                Err(io::Error::from_raw_os_error(24))
            }
        });
        assert_eq!(gate.turned_away, 2);
        assert!(!follow(&mut gate, now));
        now = gate.next_deadline().unwrap();
        assert!(follow(&mut gate, now));
        assert_eq!(gate.next_deadline(), None);
        assert!(gate.reserve.is_some());
        // No connection waits, so there is no pause.
        gate.failed(&why, now, || {
            turned_away(Err::<(), _>(ErrorKind::WouldBlock.into()))
        });
        assert!(follow(&mut gate, now));
        assert!(gate.reserve.is_some());
        assert_eq!(gate.turned_away, 2);
        // A paused listener is not watched until the gate follows it again.
        let _one = UnixStream::connect(&path).unwrap();
        assert!(follow(&mut gate, now));
        gate.rest(&poller, [listener.as_fd()]).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
        assert!(follow(&mut gate, now));
        // A pause that has ended already sets no deadline.
        gate.shut_until = Some(now);
        assert!(follow(&mut gate, now));
        assert_eq!(gate.next_deadline(), None);
    }
}
