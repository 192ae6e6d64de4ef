//! Faults that the simulation injects.

use super::management_client::ManagementClient;
use super::wire::Item;
use super::world::World;
use crate::openvpn::server::machine::Event;
use openvpn_host::management::Victim;
use openvpn_host::monitored::{Monitored, ProcessRequest, Status};
use openvpn_host::signals::Signal;
use std::net::SocketAddr;
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

impl World {
    /// Injects one fault and schedules the next.
    pub(super) fn trouble(&mut self) {
        let at = self.around.random.below(self.around.size.clients as u64) as usize;
        // With more clients, faults come more often, and network faults affect all clients, so they last less long.
        let every = SEC * 60 / self.around.size.clients.min(60) as u32 / 4;
        match self.around.random.below(15) {
            0 => {
                self.around.seen.network_deaths += 1;
                self.around.dead_until =
                    self.around.now.monotonic + self.around.random.within(SEC * 3 + every * 5);
            }
            1 => {
                self.around.seen.clock_jumps += 1;
                let hours = SEC * 3600 * self.around.random.below(50_000) as u32;
                self.around.now.wall = match self.around.random.percent(50) {
                    true => self.around.now.wall + hours,
                    false => self.around.now.wall - hours,
                };
            }
            2 | 3 => self.lose_mappings(at),
            // A client that loses power sends no message.
            4 => {
                self.around.clients[at].session = None;
                let soon = self.around.now.monotonic + SEC;
                self.around.agenda.add(soon, Item::Begin(at));
            }
            5 => self.client(at, |session, now, out| session.leave(now, out)),
            6 => self.client(at, |session, now, out| session.renegotiate(now, out)),
            7..=10 => self.manage(at),
            11 => self.tell(Event::Signal(Signal::Reload)),
            12 if self.around.random.percent(20) => self.tell(Event::Signal(Signal::Restart)),
            // The process or machine is suspended: everything due comes late and at once.
            13 if self.around.random.percent(50) => {
                self.around.seen.pauses += 1;
                let pause = self.around.random.within(SEC * 10 + every * 5);
                self.around.now.monotonic += pause;
                self.around.now.wall += pause;
            }
            _ => self.tell(Event::Signal(Signal::Status)),
        }
        let soon = Duration::from_millis(200) + self.around.random.within(every);
        self.around
            .agenda
            .add(self.around.now.monotonic + soon, Item::Trouble);
    }

    /// A NAT loses its mappings; in large worlds, several clients are behind it.
    fn lose_mappings(&mut self, first: usize) {
        let behind = 1 + self.around.size.clients / 50;
        for at in first..first + behind {
            self.float(at % self.around.size.clients);
        }
    }

    /// Moves a client to another address.
    pub(super) fn float(&mut self, at: usize) {
        let before = self.around.clients[at].address;
        self.around.next_port = self.around.next_port.wrapping_add(1).max(1024);
        self.move_client(at, SocketAddr::new(before.ip(), self.around.next_port));
    }

    pub(super) fn move_client(&mut self, at: usize, to: SocketAddr) {
        self.around.at.remove(&self.around.clients[at].address);
        self.around.at.insert(to, at);
        self.around.clients[at].address = to;
    }

    /// A management client sends all or part of a command. It may leave at any moment, even mid-command or before
    /// the server acts.
    fn manage(&mut self, at: usize) {
        let client = &self.around.clients[at];
        let line = match self.around.random.below(9) {
            0 | 1 => format!("kill {}\n", client.name),
            2 => format!("kill {}\n", client.address),
            3 | 4 => format!(
                "client-kill {}\n",
                self.around.random.below(self.machine.counted + 1)
            ),
            5 => "signal SIGHUP\n".to_owned(),
            6 => "log on all\nstate on all\nbytecount 5\n".to_owned(),
            7 => "nclients\nload-stats\n".to_owned(),
            _ => "status 2\n".to_owned(),
        };
        self.around.management.say(&line, &mut self.around.random);
        let now = self.around.now.monotonic;
        let mut management =
            std::mem::replace(&mut self.around.management, ManagementClient::new());
        management.port.handle_lines(now, self);
        management.port.tell_bytes(now, self);
        self.around.management = management;
        // The server must act on a command even if its sender has left.
        if self.around.random.percent(15) {
            self.around.management.leave();
        }
        for request in std::mem::take(&mut self.around.management.port.requests) {
            match request {
                ProcessRequest::Signal(signal) => self.tell(Event::Signal(signal)),
                other => panic!("{other:?} was not asked for"),
            }
        }
        self.around.management.hear(&mut self.around.random);
        if self.around.random.percent(30) {
            self.around.management.leave();
            // Models `management-signal`.
            if self.around.random.percent(10) {
                self.tell(Event::Signal(Signal::Restart));
            }
        }
        self.around.seen.managers_gone = self.around.management.left;
    }

    /// The numbers of the clients that this command names.
    fn named(&self, victim: &Victim) -> Vec<u64> {
        let ids = self.machine.matching(victim);
        ids.iter()
            .map(|id| self.machine.clients[id].number)
            .collect()
    }
}

impl Monitored for World {
    fn status(&self) -> Status {
        Status::Server(Self::status(self))
    }

    fn kill(&mut self, victim: &Victim) -> usize {
        let killed = self.named(victim);
        self.tell(Event::Kill(victim.clone()));
        // A held packet from the same address may begin a new session at once, because there is room now.
        let left = self.named(victim);
        assert!(
            killed.iter().all(|number| !left.contains(number)),
            "{victim:?} is still there"
        );
        killed.len()
    }

    fn kill_client(&mut self, number: u64) -> bool {
        let found = self.machine.has_client(number);
        self.tell(Event::KillClient(number));
        found
    }
}
