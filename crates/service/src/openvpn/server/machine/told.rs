//! Dispatches events.

use super::client::Client;
use super::{Admission, Cx, Event, Machine, Speaking, line};
use crate::inbox::Arrival;
use crate::openvpn::Ended;
use config::openvpn::RemapUsr1;
use openvpn::data::inband::InBand;
use openvpn::message::Restart;
use openvpn::server::{ClientId, Refused, Remote};
use openvpn::session::CloseReason;
use openvpn_host::console::Who;
use openvpn_host::console::log_lines;
use openvpn_host::management::{State, Victim};
use openvpn_host::signals::Signal;
use plane::{Notice, StreamId};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

/// Interval between log lines that say that the server is full.
const FULL_AGAIN: Duration = Duration::from_secs(60);

/// Minimum interval between two answers to a client's options requests. Millrace clients ask half as often.
const OPTIONS_APART: Duration = Duration::from_millis(200);

impl<'a> Machine<'a> {
    pub(super) fn told(&mut self, cx: &mut Cx<'_>, event: Event<'a>) {
        match event {
            Event::InterfaceUp => {
                cx.host.state(State::Connected, "SUCCESS");
                cx.host.is_up();
                line!(cx, Info, "Initialization Sequence Completed");
            }
            Event::Packet(arrival) => self.arrived(cx, arrival),
            Event::Message(id, message) => match InBand::of(&message) {
                Some(InBand::Exit) => {
                    self.with(cx, id, |session, now, out| session.peer_exits(now, out));
                }
                Some(InBand::OptionsRequest) => {
                    self.options_asked(cx, id);
                }
                _ => {}
            },
            Event::Notice(id, notice) => {
                let _about = self.about(id);
                self.notice(cx, id, notice);
            }
            Event::StreamAccepted(id, from) => self.stream_accepted(cx, id, from),
            Event::StreamClosed(id) => self.close_stream(cx, id),
            Event::JobDone(job, done) => self.finished(cx, job, done),
            Event::Signal(signal) => self.signal(cx, signal),
            Event::Kill(victim) => {
                for id in self.matching(&victim) {
                    // No message, like stock: a client that is refused for good must not return at once.
                    self.close(cx, id, CloseReason::Local);
                }
            }
            Event::KillClient(number) => {
                let found = self.clients.iter().find(|(_, it)| it.number == number);
                if let Some(id) = found.map(|(id, _)| *id) {
                    self.send_away(cx, id);
                }
            }
            Event::DeadlinePassed => self.deadline_passed(cx),
            Event::Failed(why) => {
                line!(cx, Error, "{why}");
                self.end(cx, Ended::Exit(1));
            }
            Event::ConfigurationRead(read) => self.configuration_read(cx, read),
            Event::Handshaken(client, done) if self.is_there(client) => {
                self.with(cx, client.id, |session, now, out| {
                    session.handshaken(*done, now, out);
                });
            }
            // The client is gone.
            Event::Handshaken(..) => {}
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
    pub(super) fn send_away(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        self.with(cx, id, |session, now, out| {
            session.restart(Restart::default(), now, out);
        });
    }

    /// Answers a client's options request, which clients use to test a line.
    fn options_asked(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        let now = cx.now.monotonic;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if client
            .options_told
            .is_none_or(|at| now >= at + OPTIONS_APART)
        {
            client.options_told = Some(now);
            self.with(cx, id, |session, _, out| session.options_asked(out));
        }
    }

    fn signal(&mut self, cx: &mut Cx<'_>, signal: Signal) {
        match signal {
            Signal::Exit(name) => {
                line!(cx, Info, "{name}[hard,] received, process exiting");
                self.leave(cx, Ended::Exit(0));
            }
            Signal::Reload => {
                self.find_revoked(cx);
                cx.host.read_configuration();
            }
            Signal::Restart => {
                line!(cx, Info, "SIGUSR1[hard,] received, process restarting");
                let service = &self.config.service;
                match service.remap_usr1 {
                    Some(RemapUsr1::Term) => self.leave(cx, Ended::Exit(0)),
                    // No file is read again, which a process without privileges could not do.
                    None if service.persist_key && service.persist_tun => self.say_goodbye(cx),
                    Some(RemapUsr1::Hup) | None => self.leave(cx, Ended::Reload),
                }
            }
            Signal::Status => cx.host.log_status(self.status(cx.plane, cx.now)),
        }
    }

    fn stream_accepted(&mut self, cx: &mut Cx<'_>, id: StreamId, from: SocketAddr) {
        let about = Speaking::of(stranger(from));
        match self.connections.accepted(id, from, cx.now.monotonic) {
            Admission::Taken => {}
            Admission::InPlaceOf(other) => {
                line!(
                    cx,
                    Debug,
                    "{from}: another connection was closed to admit it"
                );
                self.close_stream(cx, other);
            }
            Admission::TurnedAway => {
                line!(
                    cx,
                    Debug,
                    "{from}: refused, as the maximum number of connections is open"
                );
                return cx.host.remove_stream(id);
            }
        }
        let outer = log_lines::outer(from);
        line!(cx, Info, "TCP connection established with {outer}");
        drop(about);
        if let Err(error) = cx.host.add_stream(id) {
            // The client closed the connection itself: worth a debug line only.
            match error.kind() {
                ErrorKind::NotConnected => line!(cx, Debug, "{error}"),
                _ => line!(cx, Warn, "{error}"),
            }
            self.close_stream(cx, id);
        }
    }

    /// Handles the end of a TCP connection, and ends its client's session.
    fn close_stream(&mut self, cx: &mut Cx<'_>, id: StreamId) {
        if let Some(address) = self.connections.remove(id) {
            cx.host.remove_stream(id);
            let mut out = Vec::new();
            self.listener
                .disconnected(Remote::tcp(address, id), &mut out);
            self.perform(cx, out);
        }
    }

    pub(super) fn arrived(&mut self, cx: &mut Cx<'_>, arrival: Arrival) {
        let from = Remote {
            address: arrival.from.addr,
            connection: arrival.stream,
        };
        let of = self.listener.at(from).and_then(|id| self.clients.get(&id));
        let who = of.map_or_else(|| stranger(from.address), |it| it.who());
        let _about = Speaking::of(who);
        let mut out = Vec::new();
        let now = cx.now.monotonic;
        let source = arrival.from.source;
        let received = (self.listener).receive(&arrival.bytes, from, source, now, &mut out);
        // Strangers can cause this, so most cases are debug lines.
        match received {
            Err(Refused::Full) if self.full_told.is_none_or(|at| now >= at + FULL_AGAIN) => {
                self.full_told = Some(now);
                line!(
                    cx,
                    Warn,
                    "MULTI: new incoming connection would exceed maximum number of clients ({})",
                    self.config.server().map_or(0, |it| it.max_clients)
                );
            }
            Err(Refused::Limited | Refused::Crowded) => self.hold(cx, arrival),
            Err(why) => {
                // Anybody can forge the address of an admitted client.
                let _about = Speaking::of(stranger(from.address));
                line!(cx, Debug, "control packet: {why}");
            }
            Ok(()) => {}
        }
        self.perform(cx, out);
    }

    fn notice(&mut self, cx: &mut Cx<'_>, id: ClientId, notice: Notice) {
        if !self.clients.contains_key(&id) {
            return;
        }
        match notice {
            Notice::Compressed { unpacked: true } => line!(
                cx,
                Warn,
                "the client compresses packets; they are accepted, but their lengths reveal parts of their content to \
                 eavesdroppers (VORACLE). Set `compress migrate` or push `comp-lzo no`"
            ),
            Notice::Compressed { unpacked: false } => line!(
                cx,
                Error,
                "the client compresses packets in a form that was not agreed or allowed; they are dropped. Set \
                 `compress migrate` or push `comp-lzo no`"
            ),
            Notice::Unframed => line!(
                cx,
                Error,
                "the client's packets lack the agreed framing of comp-lzo or compress; they are dropped. Remove both at \
                 both ends, or set the same"
            ),
            Notice::Silent => self.with(cx, id, |session, _, out| session.fell_silent(out)),
            Notice::Failed => self.close(cx, id, CloseReason::DataPlane),
            Notice::Refresh { .. } => {
                self.with(cx, id, |session, now, out| session.renegotiate(now, out));
            }
            Notice::Moved { .. } => self.has_moved(cx, id),
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
