//! Faults that the simulation injects.

use super::wire::Item;
use super::world::World;
use crate::openvpn::management::{Action, Signal as Asked, Victim};
use crate::openvpn::policy::timestamp::Clock;
use crate::openvpn::server::machine::Event;
use crate::openvpn::signals::Signal;
use std::net::SocketAddr;
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

impl World {
    /// Injects one fault and schedules the next.
    pub(super) fn trouble(&mut self) {
        let at = self.random.below(self.size.clients as u64) as usize;
        // With more clients, faults come more often, and network faults hit all clients: they last less long.
        let every = SEC * 60 / self.size.clients.min(60) as u32 / 4;
        match self.random.below(15) {
            0 => {
                self.seen.network_deaths += 1;
                self.dead_until = self.now.instant + self.random.within(SEC * 3 + every * 5);
            }
            1 => {
                self.seen.clock_jumps += 1;
                let hours = SEC * 3600 * self.random.below(50_000) as u32;
                self.now.system = match self.random.percent(50) {
                    true => self.now.system + hours,
                    false => self.now.system - hours,
                };
            }
            2 | 3 => self.lose_mappings(at),
            // A client that loses power sends no message.
            4 => {
                self.clients[at].session = None;
                let soon = self.now.instant + SEC;
                self.agenda.add(soon, Item::Begin(at));
            }
            5 => self.client(at, |session, now, out| session.leave(now, out)),
            6 => self.client(at, |session, now, out| session.renegotiate(now, out)),
            7..=10 => self.manage(at),
            11 => self.tell(Event::Signal(Signal::Reload)),
            12 if self.random.percent(20) => self.tell(Event::Signal(Signal::Restart)),
            // The process or machine is suspended: everything due comes late and at once.
            13 if self.random.percent(50) => {
                self.seen.pauses += 1;
                let pause = self.random.within(SEC * 10 + every * 5);
                self.now.instant += pause;
                self.now.system += pause;
            }
            _ => self.tell(Event::Signal(Signal::Status)),
        }
        let soon = Duration::from_millis(200) + self.random.within(every);
        self.agenda.add(self.now.instant + soon, Item::Trouble);
    }

    /// A NAT loses its mappings; in large worlds, several clients are behind it.
    fn lose_mappings(&mut self, first: usize) {
        let behind = 1 + self.size.clients / 50;
        for at in first..first + behind {
            self.float(at % self.size.clients);
        }
    }

    /// Moves a client to another address.
    pub(super) fn float(&mut self, at: usize) {
        let before = self.clients[at].address;
        self.next_port = self.next_port.wrapping_add(1).max(1024);
        self.move_client(at, SocketAddr::new(before.ip(), self.next_port));
    }

    pub(super) fn move_client(&mut self, at: usize, to: SocketAddr) {
        self.at.remove(&self.clients[at].address);
        self.at.insert(to, at);
        self.clients[at].address = to;
    }

    /// A management client sends all or part of a command. It may leave at any moment, even mid-command or before the
    /// reply.
    fn manage(&mut self, at: usize) {
        let client = &self.clients[at];
        let line = match self.random.below(9) {
            0 | 1 => format!("kill {}\n", client.name),
            2 => format!("kill {}\n", client.address),
            3 | 4 => format!(
                "client-kill {}\n",
                self.random.below(self.machine.counted + 1)
            ),
            5 => "signal SIGHUP\n".to_owned(),
            6 => "log on all\nstate on all\nbytecount 5\n".to_owned(),
            7 => "nclients\nload-stats\n".to_owned(),
            _ => "status 2\n".to_owned(),
        };
        self.management.say(&line, &mut self.random);
        while let Some(action) = self.management.port.next_action(self.now.instant) {
            // The server must act on a command even if its sender has left.
            if self.random.percent(15) {
                self.management.leave();
            }
            self.act(action);
        }
        if self.management.port.bytes_due(self.now.instant) {
            for client in self.status().clients {
                let (received, sent) = (client.bytes_received, client.bytes_sent);
                let port = &mut self.management.port;
                port.client_bytes(client.client_id, received, sent);
            }
        }
        self.management.hear(&mut self.random);
        if self.random.percent(30) {
            self.management.leave();
            // Models `management-signal`.
            if self.random.percent(10) {
                self.tell(Event::Signal(Signal::Restart));
            }
        }
        self.seen.managers_gone = self.management.left;
    }

    /// Performs an action like the management port's server.
    fn act(&mut self, action: Action) {
        match action {
            Action::Signal(Asked::Hup) => self.tell(Event::Signal(Signal::Reload)),
            Action::Status(format) => {
                let text = self
                    .status()
                    .text(format, "title", &Clock::utc(), self.now.system);
                self.management.port.reply_status(&text);
            }
            Action::Kill(victim) => {
                let count = self.machine.matching(&victim).len();
                self.tell(Event::Kill(victim.clone()));
                assert!(self.is_gone(&victim), "{victim:?} is still there");
                self.management.port.reply_kill(count);
            }
            Action::ClientKill { client, .. } => {
                let found = self.machine.has_client(client);
                self.tell(Event::KillClient(client));
                self.management.port.reply_done(found);
            }
            Action::LoadStats => {
                let clients = self.status().clients.len();
                self.management.port.reply_load(clients, 0, 0);
            }
            Action::ClientCount => {
                let clients = self.status().clients.len();
                self.management.port.reply_client_count(clients);
            }
            other => panic!("{other:?} was not asked for"),
        }
    }

    fn is_gone(&self, victim: &Victim) -> bool {
        self.machine.matching(victim).is_empty()
    }
}
