//! TLS handshakes of clients, on all processors.
//!
//! Signatures and key agreements are most of what a client costs that comes, and those of a session concern no other. So they
//! are done on a thread for each processor, and the control loop has its time for packets. Data packets go first: the threads
//! have a lower priority than workers and the loop. What does not fit is done by the loop itself, which then takes no more
//! packets out of the inbox until it has caught up. Strangers do not bring that about: they have fewer sessions than a source has
//! places here (`openvpn::server::Listener`).

use super::super::super::policy::background::{Background, Crew, Work};
use super::super::machine::{ClientKey, Event};
use openvpn::session::{Handshake, Handshaken};
use plane::SourceNetwork;
use std::collections::HashMap;
use std::thread;
use std::time::Duration;

/// Handshakes that wait: what the threads of some processors do in a second. More would be done when their clients have given
/// up.
const WAITING: usize = 1024;

/// How much lower the threads' priority is: a worker that wants a processor has three quarters of it.
const NICER: i32 = 5;

/// How long a thread without work stays: clients come one by one, and a thread for each would cost more.
const LINGER: Duration = Duration::from_secs(1);

/// Queue that takes turns: a source, and whether its clients were let in before and renew their keys.
type Turn = (SourceNetwork, bool);

/// The threads, and what they do.
pub(super) struct Handshakes<T = Box<Handshaken>> {
    background: Background<Turn, (ClientKey, T)>,
    /// How `background` calls those that are not done.
    waiting: HashMap<ClientKey, u64>,
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
            // No handshake takes long.
            share: threads,
            waiting: WAITING,
            nice: Some((nice + NICER).min(19)),
            linger: LINGER,
            confined: true,
        };
        Self {
            background: Background::new(crew, wake),
            waiting: HashMap::new(),
        }
    }

    /// Has it done, or does it where there is no place for it. `turn` has the source, and whether keys are renewed.
    fn offer(
        &mut self,
        client: ClientKey,
        turn: Turn,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let work: Work<(ClientKey, T)> = Box::new(move || (client, work()));
        match self.background.offer(turn, work) {
            Ok(number) => {
                self.waiting.insert(client, number);
                None
            }
            Err((_, work)) => Some(work().1),
        }
    }

    /// The client has gone: its handshake shall take no memory.
    pub(super) fn cancel(&mut self, client: ClientKey) {
        if let Some(number) = self.waiting.remove(&client) {
            self.background.cancel(number);
        }
    }
}

impl Handshakes {
    /// Has it done, or does it.
    pub(super) fn begin<'a>(
        &mut self,
        client: ClientKey,
        turn: Turn,
        work: Box<Handshake>,
    ) -> Option<Event<'a>> {
        let done = self.offer(client, turn, move || Box::new(work.run()))?;
        Some(Event::Handshaken(client, done))
    }

    /// Takes the handshakes done since the last call.
    pub(super) fn take_done<'a>(&mut self) -> Vec<Event<'a>> {
        let done = self.background.take_done().into_iter();
        let events = done.map(|(_, (client, done))| {
            self.waiting.remove(&client);
            Event::Handshaken(client, done)
        });
        events.collect()
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
        let mut handshakes = Handshakes::new(1, 0, || {});
        let client = |number| ClientKey {
            id: ClientId(1),
            number,
        };
        // The only thread is busy from here to the end.
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
        // Others wait for their turn, and those who were let in.
        assert_eq!(handshakes.offer(more, (other, false), || 3), None);
        handshakes.cancel(client(7));
        assert_eq!(handshakes.offer(more, (many, false), || 4), None);
        assert_eq!(handshakes.offer(more, (many, false), || 5), Some(5));
        drop(release);
    }
}
