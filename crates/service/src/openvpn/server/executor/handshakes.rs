//! Runs clients' TLS handshakes on all processors.
//!
//! Signatures and key agreements are most of a new client's cost, and each session's are independent. A thread per
//! processor runs them, so the control loop stays free for packets. The threads have a lower priority than the data
//! plane's workers and the loop. When the queue is full, or a source has used up its places there, the loop runs the
//! handshake itself and meanwhile takes no packets out of the inbox. Strangers cannot cause this: all together have
//! fewer sessions than one source has places (`openvpn::server::Listener`).

use super::background::{Background, Crew};
use crate::openvpn::server::machine::{ClientKey, Event};
use openvpn::session::{Handshake, Handshaken};
use plane::SourceNetwork;
use std::thread;
use std::time::Duration;

/// Maximum number of handshakes that wait: about one second's work for a few processors. Longer queues would outlast
/// their clients' patience.
const WAITING: usize = 1024;

/// Added to the threads' nice value: a busy worker then gets three quarters of a processor.
const NICER: i32 = 5;

/// How long an idle thread stays: clients come one by one, and starting a thread for each would cost more.
const LINGER: Duration = Duration::from_secs(1);

/// Key of a queue that takes turns: the source, and whether its clients are admitted ones that renew keys.
type Turn = (SourceNetwork, bool);

/// Handshake threads and their queue.
pub(super) struct Handshakes<T = Box<Handshaken>> {
    background: Background<Turn, ClientKey, T>,
}

/// Number of handshake threads: one per processor. `None` with one processor: the loop runs the handshakes.
pub(super) fn threads() -> Option<usize> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors > 1).then_some(processors)
}

impl<T: Send + 'static> Handshakes<T> {
    /// `threads` is the maximum, `nice` the process's nice value. The threads call `wake`.
    pub(super) fn new(threads: usize, nice: i32, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let crew = Crew {
            name: "handshake",
            threads,
            // Every handshake is short, so one source may use all threads.
            share: threads,
            waiting: WAITING,
            nice: Some((nice + NICER).min(19)),
            linger: LINGER,
            confined: true,
        };
        Self {
            background: Background::new(crew, wake),
        }
    }

    /// Queues the work, or runs it here if the queue is full. `turn` is the source and whether keys are renewed.
    fn offer(
        &self,
        client: ClientKey,
        turn: Turn,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let offered = self.background.offer(turn, client, Box::new(work));
        offered.err().map(|(_, work)| work())
    }

    /// Drops the handshake of a departed client, to free its memory.
    pub(super) fn cancel(&self, client: ClientKey) {
        self.background.cancel(&client);
    }
}

impl Handshakes {
    /// Queues a handshake, or runs it here and returns its result.
    pub(super) fn begin<'a>(
        &self,
        client: ClientKey,
        turn: Turn,
        work: Box<Handshake>,
    ) -> Option<Event<'a>> {
        let done = self.offer(client, turn, move || Box::new(work.run()))?;
        Some(Event::Handshaken(client, done))
    }

    /// Takes the finished handshakes.
    pub(super) fn take_done<'a>(&self) -> Vec<Event<'a>> {
        let done = self.background.take_done().into_iter();
        done.map(|(client, done)| Event::Handshaken(client, done))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openvpn::server::ClientId;
    use std::net::SocketAddr;
    use std::sync::mpsc;

    #[test]
    fn what_finds_no_place_is_done_at_once_and_those_that_are_gone_have_none() {
        let source = |address: &str| SourceNetwork::from(address.parse::<SocketAddr>().unwrap());
        let (many, other) = (source("192.0.2.1:1"), source("192.0.2.2:1"));
        let (release, wait) = mpsc::channel::<()>();
        let (begins, begun) = mpsc::channel();
        let handshakes = Handshakes::new(1, 0, || {});
        let client = |number| ClientKey {
            id: ClientId(1),
            number,
        };
        // Keeps the only thread busy until the end of the test.
        let busy = move || {
            let _ = begins.send(());
            let _ = wait.recv();
            0
        };
        assert_eq!(handshakes.offer(client(0), (other, true), busy), None);
        begun.recv().unwrap();
        for number in 1..=WAITING as u64 / 2 {
            let turn = (many, false);
            assert_eq!(handshakes.offer(client(number), turn, || 1), None);
        }
        let more = client(5000);
        assert_eq!(handshakes.offer(more, (many, false), || 2), Some(2));
        // Another source still has places, although one source's share is full.
        assert_eq!(handshakes.offer(more, (other, false), || 3), None);
        handshakes.cancel(client(7));
        assert_eq!(handshakes.offer(more, (many, false), || 4), None);
        assert_eq!(handshakes.offer(more, (many, false), || 5), Some(5));
        drop(release);
    }
}
