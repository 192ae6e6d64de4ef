//! Dispatches events.

use super::client::Client;
use super::{Admission, Effect, Event, Machine, PlaneCall, line};
use crate::inbox::Arrival;
use crate::openvpn::Ended;
use crate::openvpn::console::Who;
use crate::openvpn::management::{State, Victim};
use crate::openvpn::policy::log_lines;
use crate::openvpn::signals::Signal;
use config::openvpn::RemapUsr1;
use openvpn::data::inband::InBand;
use openvpn::message::Restart;
use openvpn::server::{ClientId, Refused, Remote};
use openvpn::session::CloseReason;
use plane::{Notice, StreamId};
use std::net::SocketAddr;
use std::time::Duration;

/// Interval between log lines that say that the server is full.
const FULL_AGAIN: Duration = Duration::from_secs(60);

/// Minimum interval between two answers to a client's options requests. Millrace clients ask half as often.
const OPTIONS_APART: Duration = Duration::from_millis(200);

impl<'a> Machine<'a> {
    pub(super) fn told(&mut self, event: Event<'a>) {
        match event {
            Event::InterfaceUp => {
                self.out.push(Effect::State(State::Connected, "SUCCESS"));
                self.out.push(Effect::IsUp);
                line!(self, Info, "Initialization Sequence Completed");
            }
            Event::Packet(arrival) => self.arrived(arrival),
            Event::Message(id, message) => match InBand::of(&message) {
                Some(InBand::Exit) => {
                    self.with(id, |session, now, out| session.peer_exits(now, out));
                }
                Some(InBand::OptionsRequest) => {
                    self.options_asked(id);
                }
                _ => {}
            },
            Event::Notice(id, notice) => self.about(id, |machine| machine.notice(id, notice)),
            Event::StreamAccepted(id, from) => self.stream_accepted(id, from),
            Event::StreamClosed(id) => self.close_stream(id),
            Event::JobDone(job, done) => self.finished(job, done),
            Event::JobRefused(job, kind, why) => self.not_started(job, kind, &why),
            Event::Signal(signal) => self.signal(signal),
            Event::Kill(victim) => {
                for id in self.matching(&victim) {
                    // No message, like stock: a client that is refused for good must not return at once.
                    self.with(id, |session, _, out| session.close(CloseReason::Local, out));
                }
            }
            Event::KillClient(number) => {
                let found = self.clients.iter().find(|(_, it)| it.number == number);
                if let Some(id) = found.map(|(id, _)| *id) {
                    self.send_away(id);
                }
            }
            Event::DeadlinePassed => self.deadline_passed(),
            Event::Failed(why) => {
                line!(self, Error, "{why}");
                self.end(Ended::Exit(1));
            }
            Event::ConfigurationRead(read) => self.configuration_read(read),
            Event::PasswordsRead(Ok(passwords)) => self.passwords = passwords,
            Event::PasswordsRead(Err(error)) => {
                line!(self, Error, "{error}; the earlier file is used");
            }
            Event::Revoked(clients) => self.revoked(&clients),
            Event::OpenFiles(files) => self.limit_connections(files),
            Event::ClientFile(client, file) if self.is_there(client) => {
                self.about(client.id, |machine| machine.file_read(client.id, file));
            }
            Event::Polled(client, job, polled) if self.is_there(client) => {
                self.about(client.id, |machine| machine.polled(client.id, job, polled));
            }
            Event::KeysAdded(client, key_id, added) if self.is_there(client) => {
                self.about(client.id, |machine| {
                    machine.keys_added(client.id, key_id, added);
                });
            }
            Event::Handshaken(client, done) if self.is_there(client) => {
                self.with(client.id, |session, now, out| {
                    session.handshaken(*done, now, out);
                });
            }
            Event::PeerState(client, look, state) => self.peer_state(client, look, &state),
            Event::KeyUsed(client, key_id, usage) if self.is_there(client) => {
                self.key_used(client.id, key_id, usage);
            }
            // Events of departed clients.
            Event::ClientFile(..)
            | Event::Polled(..)
            | Event::KeysAdded(..)
            | Event::Handshaken(..)
            | Event::KeyUsed(..) => {}
        }
    }

    /// Returns the clients that a management command names.
    pub(in crate::openvpn::server) fn matching(&self, victim: &Victim) -> Vec<ClientId> {
        let fits = |client: &Client| match victim {
            Victim::CommonName(name) => client.common_name == *name,
            Victim::Address(address) => client.from.address == *address,
        };
        let clients = self.clients.iter().filter(|(_, client)| fits(client));
        clients.map(|(id, _)| *id).collect()
    }

    /// Whether a client of this number exists.
    pub(in crate::openvpn::server) fn has_client(&self, number: u64) -> bool {
        self.clients.values().any(|it| it.number == number)
    }

    /// Disconnects a client so that it reconnects.
    pub(super) fn send_away(&mut self, id: ClientId) {
        self.with(id, |session, now, out| {
            session.restart(Restart::default(), now, out);
        });
    }

    /// Answers a client's options request, which clients use to test a line.
    fn options_asked(&mut self, id: ClientId) {
        let now = self.now.instant;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if client
            .options_told
            .is_none_or(|at| now >= at + OPTIONS_APART)
        {
            client.options_told = Some(now);
            self.with(id, |session, _, out| session.options_asked(out));
        }
    }

    fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::Exit(name) => {
                line!(self, Info, "{name}[hard,] received, process exiting");
                self.leave(Ended::Exit(0));
            }
            Signal::Reload => {
                self.find_revoked();
                self.out.push(Effect::ReadConfiguration);
            }
            Signal::Restart => {
                line!(self, Info, "SIGUSR1[hard,] received, process restarting");
                let service = &self.config.service;
                match service.remap_usr1 {
                    Some(RemapUsr1::Term) => self.leave(Ended::Exit(0)),
                    // No file is read again, which a process without privileges could not do.
                    None if service.persist_key && service.persist_tun => self.say_goodbye(),
                    Some(RemapUsr1::Hup) | None => self.leave(Ended::Reload),
                }
            }
            Signal::Status => self.out.push(Effect::LogStatus),
        }
    }

    fn stream_accepted(&mut self, id: StreamId, from: SocketAddr) {
        match self.connections.accepted(id, from, self.now.instant) {
            Admission::Taken => {}
            Admission::InPlaceOf(other) => {
                self.about_whom(Some(stranger(from)), |machine| {
                    line!(
                        machine,
                        Debug,
                        "{from}: another connection is closed for it"
                    );
                });
                self.close_stream(other);
            }
            Admission::TurnedAway => {
                self.about_whom(Some(stranger(from)), |machine| {
                    line!(
                        machine,
                        Debug,
                        "{from}: turned away, as many connections are open as may be"
                    );
                });
                return self.plane(PlaneCall::RemoveStream(id));
            }
        }
        self.about_whom(Some(stranger(from)), |machine| {
            let from = log_lines::outer(from);
            line!(machine, Info, "TCP connection established with {from}");
        });
        self.plane(PlaneCall::AddStream(id));
    }

    /// Handles the end of a TCP connection, and ends its client's session.
    fn close_stream(&mut self, id: StreamId) {
        if let Some(address) = self.connections.remove(id) {
            self.plane(PlaneCall::RemoveStream(id));
            let mut out = Vec::new();
            self.listener
                .disconnected(Remote::tcp(address, id), &mut out);
            self.perform(out);
        }
    }

    pub(super) fn arrived(&mut self, arrival: Arrival) {
        let from = Remote {
            address: arrival.from.addr,
            connection: arrival.stream,
        };
        let of = self.listener.at(from).and_then(|id| self.clients.get(&id));
        let who = of.map_or_else(|| stranger(from.address), |it| it.who());
        self.about_whom(Some(who), |machine| machine.receive(arrival, from));
    }

    fn receive(&mut self, arrival: Arrival, from: Remote) {
        let mut out = Vec::new();
        let now = self.now.instant;
        // A session writes to the log by itself.
        let speaking = self.who.clone().map(super::Speaking::of);
        let received =
            self.listener
                .receive(&arrival.bytes, from, arrival.from.source, now, &mut out);
        drop(speaking);
        // Strangers can cause this, so most cases are debug lines.
        match received {
            Err(Refused::Full) if self.full_told.is_none_or(|at| now >= at + FULL_AGAIN) => {
                self.full_told = Some(now);
                line!(
                    self,
                    Warn,
                    "MULTI: new incoming connection would exceed maximum number of clients ({})",
                    self.config.server().map_or(0, |it| it.max_clients)
                );
            }
            Err(Refused::Limited | Refused::Crowded) => self.hold(arrival),
            // Anybody can forge the address of an admitted client.
            Err(why) => self.about_whom(Some(stranger(from.address)), |machine| {
                line!(machine, Debug, "control packet: {why}");
            }),
            Ok(()) => {}
        }
        self.perform(out);
    }

    fn notice(&mut self, id: ClientId, notice: Notice) {
        if !self.clients.contains_key(&id) {
            return;
        }
        match notice {
            Notice::Compressed { unpacked: true } => line!(
                self,
                Warn,
                "the client compresses packets: they are unpacked, but their lengths tell who \
                 listens something of what is in them (VORACLE). Set `compress migrate` or push \
                 `comp-lzo no`"
            ),
            Notice::Compressed { unpacked: false } => line!(
                self,
                Error,
                "the client compresses packets, and not as agreed or allowed: they are dropped. \
                 Set `compress migrate` or push `comp-lzo no`"
            ),
            Notice::Silent => self.with(id, |session, _, out| session.fell_silent(out)),
            Notice::Failed => self.with(id, |session, _, out| {
                session.close(CloseReason::DataPlane, out);
            }),
            Notice::Refresh { .. } => {
                self.with(id, |session, now, out| session.renegotiate(now, out));
            }
            Notice::Moved { .. } => self.has_moved(id),
            _ => {}
        }
    }
}

/// Log name of a client of which only the address is known.
pub(super) fn stranger(from: SocketAddr) -> Who {
    Who {
        label: from.to_string(),
        stranger: true,
    }
}
