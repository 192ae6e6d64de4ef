//! TLS handshakes of clients, on all processors.
//!
//! Signatures and key agreements are most of what a client costs that comes, and those of a session concern no other. So they
//! are done on a thread for each processor, and the control loop has its time for packets. Data packets go first: the threads
//! have a lower priority than workers and the loop. What does not fit is done by the loop itself, which then takes no more
//! packets out of the inbox until it has caught up.

use super::super::super::policy::background::{Background, Crew, Work};
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

type Done = (ClientKey, Box<Handshaken>);

/// The threads, and what they do.
pub(super) struct Handshakes {
    background: Background<Source, Done>,
}

/// How many handshakes are done at once: one for each processor. `None` where there is one: the loop does them.
pub(super) fn threads() -> Option<usize> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    (processors > 1).then_some(processors)
}

impl Handshakes {
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

    /// Has it done, or does it.
    pub(super) fn begin<'a>(
        &mut self,
        client: ClientKey,
        source: Source,
        work: Box<Handshake>,
    ) -> Option<Event<'a>> {
        let work: Work<Done> = Box::new(move || (client, Box::new(work.run())));
        let (_, work) = self.background.offer(source, work).err()?;
        let (client, done) = work();
        Some(Event::Handshaken(client, done))
    }

    /// What was done since the last call.
    pub(super) fn take_done<'a>(&self) -> impl Iterator<Item = Event<'a>> + use<'a> {
        let done = self.background.take_done().into_iter();
        done.map(|(_, (client, done))| Event::Handshaken(client, done))
    }
}
