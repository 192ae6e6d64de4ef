//! Clients that call by several of their lines, and are answered on each.

use super::{Client, ServerMachine};
use crate::pptp::machine::{Effect, Way};
use crate::pptp::order::Order;
use crate::status::PeerStatus;
use ::config::lines::{LineMode, Lines as Settings};
use ::lines::scheduler::Spread;
use ::pptp::lines::{ADDRESSES_MAX, Addresses};
use ::pptp::session::Ends;
use log::Level;
use plane::{Endpoint, Line, LineCounts, LineId, LineMode as Mode, LineSet, LineState, Transport};
use std::net::Ipv4Addr;
use std::time::Instant;

/// How the server answers clients with several lines.
#[derive(Clone, Copy, Debug)]
pub(in crate::pptp) struct Answering {
    mode: LineMode,
}

impl Answering {
    /// `None` if no lines are configured: then clients are told that the server uses one line.
    pub(in crate::pptp) fn new(settings: &Settings) -> Option<Self> {
        let mode = settings.mode;
        (!settings.is_default()).then_some(Self { mode })
    }

    /// The mode, for lines with these numbers.
    fn among(self, places: LineSet) -> Mode {
        crate::lines::evenly(self.mode, places)
    }
}

/// The lines of one client. A line's number is the index of the client's address.
pub(super) struct ClientLines {
    answering: Answering,
    places: LineSet,
    spread: Spread,
    counts: [LineCounts; ADDRESSES_MAX],
}

impl ClientLines {
    fn new(answering: Answering) -> Self {
        Self {
            answering,
            places: LineSet::EMPTY,
            spread: Spread::default(),
            counts: [LineCounts::default(); ADDRESSES_MAX],
        }
    }

    /// Returns one way of a packet, and puts the others into `copies`.
    fn send(
        &mut self,
        (packet, sealed): (&[u8], usize),
        addresses: &Addresses,
        now: Instant,
        copies: &mut Vec<Way>,
    ) -> Option<Way> {
        let (used, _) = addresses.used(now)?;
        let mut ways = [None; ADDRESSES_MAX];
        for (at, to) in addresses.in_use(now).chain(addresses.used(now)) {
            ways[at] = Some(to);
        }
        let places = places_in_use(addresses, now);
        if places != self.places {
            self.places = places;
            self.spread.set_mode(self.answering.among(places));
        }
        for line in self.spread.pick(packet, LineId(used as u8)) {
            let to = ways.get(line.index()).copied().flatten();
            let Some(to) = to else { continue };
            if let Some(counts) = self.counts.get_mut(line.index()) {
                counts.sent += 1;
                counts.sent_bytes += sealed as u64;
            }
            copies.push(Way::between(line, to));
        }
        copies.pop()
    }
}

/// Numbers of the lines that a client uses.
fn places_in_use(addresses: &Addresses, now: Instant) -> LineSet {
    let in_use = addresses.in_use(now);
    in_use.map(|(at, _)| LineId(at as u8)).collect()
}

impl ServerMachine {
    /// Sets how clients with several lines are answered.
    pub(in crate::pptp) fn answering(self, answering: Option<Answering>) -> Self {
        Self { answering, ..self }
    }

    /// Handles an agreement with a client to use several lines.
    pub(super) fn agreed(&mut self, call: u16, effects: &mut Vec<Effect>) {
        let reorder = self.reorder.or(Some(true));
        let (Some(answering), Some(client)) = (self.answering, self.clients.get_mut(&call)) else {
            return;
        };
        client.lines = Some(Box::new(ClientLines::new(answering)));
        if client.order.is_none() {
            client.order = Order::of(call, client.up.protection, reorder);
        }
        let words = format!("{}: calls by several paths", super::name(&client.up));
        effects.push(Effect::Log(Level::Debug, words));
    }

    /// Handles the loss of a call's control connection.
    pub(super) fn control_lost(&self, call: u16, effects: &mut Vec<Effect>) {
        if let Some(client) = self.clients.get(&call) {
            let name = super::name(&client.up);
            let words = format!("{name}: the control connection is lost, the call goes on");
            effects.push(Effect::Log(Level::Info, words));
        }
    }

    /// The line of a client with several lines that has this address.
    pub(super) fn line_of(&self, call: u16, from: Ipv4Addr, now: Instant) -> Option<LineId> {
        let place = self.session.addresses(call)?.place_of(from, now);
        let own = || self.session.hears(call, from, now).then_some(LineId::FIRST);
        place.map(|place| LineId(place as u8)).or_else(own)
    }

    /// Returns the first way of a packet that was sealed for a client with several lines.
    pub(super) fn ways_of(
        &mut self,
        call: u16,
        packet: (&[u8], usize),
        to: Ends,
        now: Instant,
    ) -> Way {
        self.copies.clear();
        let lines = self.clients.get_mut(&call).and_then(|it| it.lines.as_mut());
        let addresses = self.session.addresses(call);
        let way = lines
            .zip(addresses)
            .and_then(|(lines, addresses)| lines.send(packet, addresses, now, &mut self.copies));
        way.unwrap_or_else(|| Way::between(LineId::FIRST, to))
    }
}

impl Client {
    /// Counts a packet of the call that came by a line.
    pub(super) fn count_by(&mut self, line: LineId, bytes: usize, first: bool) {
        let counts = self.lines.as_mut().map(|it| &mut it.counts);
        if let Some(counts) = counts.and_then(|counts| counts.get_mut(line.index())) {
            counts.received_bytes += bytes as u64;
            counts.accepted += u64::from(first);
        }
    }

    /// Fills in the client's lines for `millrace status`.
    pub(super) fn describe_lines(&self, addresses: Option<&Addresses>, peer: &mut PeerStatus) {
        let (Some(lines), Some(addresses)) = (&self.lines, addresses) else {
            return;
        };
        let now = Instant::now();
        let mut known = plane::PeerLines::default();
        for (at, ip, age) in addresses.all(now) {
            let line = LineId(at as u8);
            let counts = lines.counts[at];
            let order = self.order.as_ref();
            known.lines.push(LineState {
                line: Line {
                    id: line,
                    endpoint: Endpoint::new((ip, 0).into()),
                    transport: Transport::Gre,
                },
                heard: now.checked_sub(age),
                counts: order.map_or(counts, |order| order.counts_of(line, counts)),
            });
        }
        if let Some(order) = &self.order {
            known.order = order.counts();
            peer.order = Some(crate::lines::order_status(&known));
        }
        let used = addresses.used(now).map(|(at, _)| LineId(at as u8));
        let mode = lines.answering.among(places_in_use(addresses, now));
        peer.lines = crate::lines::their_status(&known, now);
        for (of, line) in peer.lines.iter_mut().zip(&known.lines) {
            let line = line.line;
            // Address only, as GRE has no ports.
            of.name = line.endpoint.addr.ip().to_string();
            of.in_use = used == Some(line.id) || mode.lines().contains(line.id);
        }
    }
}
