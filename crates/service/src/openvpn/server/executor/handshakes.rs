//! TLS handshakes of clients, on all processors.
//!
//! Signatures and key agreements are most of what a client costs that comes, and those of a session concern no other. So they
//! are done on a thread for each processor, and the control loop has its time for packets. Data packets go first: the threads
//! have a lower priority than workers and the loop. What does not fit is done by the loop itself, which then takes no more
//! packets out of the inbox until it has caught up; but of one source that is a stranger's only so many wait, and the rest is
//! not done: it would have the loop for itself.

use super::super::super::policy::background::{Background, BusyError, Crew, Work};
use super::super::machine::{ClientKey, Event};
use openvpn::server::Source;
use openvpn::session::{Handshake, Handshaken};
use std::thread;
use std::time::Duration;

/// Handshakes that wait: what the threads of some processors do in a second. More would be done when their clients have given
/// up.
const WAITING: usize = 1024;

/// How much lower the threads' priority is: a worker that wants a processor has three quarters of it.
const NICER: i32 = 5;

/// How long a thread without work stays: clients come one by one, and a thread for each would cost more.
const LINGER: Duration = Duration::from_secs(1);

/// What takes turns: sources, and of each apart those whose clients were let in before and renew their keys.
type Turn = (Source, bool);

/// The threads, and what they do.
pub(super) struct Handshakes<T = Box<Handshaken>> {
    background: Background<Turn, (ClientKey, T)>,
}

/// What becomes of work that no thread does.
#[derive(Debug, PartialEq, Eq)]
enum Instead<T> {
    /// It was done at once.
    Done(T),
    /// It will not be done.
    Crowded,
}

/// How many handshakes are done at once: one for each processor. `None` where there is one: the loop does them.
pub(super) fn threads() -> Option<usize> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors > 1).then_some(processors)
}

impl<T: Send + 'static> Handshakes<T> {
    /// So many threads at most, in a process of this nice value. `wake` is called on them.
    pub(super) fn new(threads: usize, nice: i32, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let crew = Crew {
            name: "handshake",
            threads,
            // None takes long.
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

    fn offer(
        &mut self,
        client: ClientKey,
        turn: Turn,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Instead<T>> {
        let work: Work<(ClientKey, T)> = Box::new(move || (client, work()));
        let (busy, work) = self.background.offer(turn, work).err()?;
        let (_, renewal) = turn;
        if matches!(busy, BusyError::Share { .. }) && !renewal {
            return Some(Instead::Crowded);
        }
        Some(Instead::Done(work().1))
    }
}

impl Handshakes {
    /// Has it done, or does it, or says that it will not be done. `turn` has the source, and whether keys are renewed.
    pub(super) fn begin<'a>(
        &mut self,
        client: ClientKey,
        turn: Turn,
        work: Box<Handshake>,
    ) -> Option<Event<'a>> {
        let instead = self.offer(client, turn, move || Box::new(work.run()))?;
        Some(match instead {
            Instead::Done(done) => Event::Handshaken(client, done),
            Instead::Crowded => Event::Crowded(client),
        })
    }

    /// What was done since the last call.
    pub(super) fn take_done<'a>(&self) -> impl Iterator<Item = Event<'a>> + use<'a> {
        let done = self.background.take_done().into_iter();
        done.map(|(_, (client, done))| Event::Handshaken(client, done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openvpn::server::ClientId;
    use std::net::SocketAddr;
    use std::sync::mpsc;

    /// A stranger that calls from many ports has half of the places, and never the loop.
    #[test]
    fn a_source_that_has_its_share_is_not_served_by_the_loop() {
        let source = |address: &str| Source::from(address.parse::<SocketAddr>().unwrap());
        let (stranger, other) = (source("192.0.2.1:1"), source("192.0.2.2:1"));
        let (release, wait) = mpsc::channel::<()>();
        let (begins, begun) = mpsc::channel();
        let mut handshakes = Handshakes::new(1, 0, || {});
        let client = ClientKey {
            id: ClientId(1),
            number: 1,
        };
        // The only thread is busy from here to the end.
        let busy = move || {
            let _ = begins.send(());
            let _ = wait.recv();
            0
        };
        assert_eq!(handshakes.offer(client, (other, true), busy), None);
        begun.recv().unwrap();
        for _ in 0..WAITING / 2 {
            assert_eq!(handshakes.offer(client, (stranger, false), || 1), None);
        }
        let more = handshakes.offer(client, (stranger, false), || 2);
        assert_eq!(more, Some(Instead::Crowded));
        // Those who were let in, and others, wait for their turn.
        assert_eq!(handshakes.offer(client, (stranger, true), || 3), None);
        assert_eq!(handshakes.offer(client, (other, false), || 4), None);
        for _ in 2..WAITING / 2 {
            assert_eq!(handshakes.offer(client, (stranger, true), || 5), None);
        }
        // All places are taken, which changes nothing for those who have half of them.
        let more = handshakes.offer(client, (stranger, false), || 2);
        assert_eq!(more, Some(Instead::Crowded));
        let more = handshakes.offer(client, (other, false), || 6);
        assert_eq!(more, Some(Instead::Done(6)));
        drop(release);
    }
}
