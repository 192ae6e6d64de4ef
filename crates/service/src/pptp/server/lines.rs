//! Clients that call over several of their lines, and are answered on each.

use super::{Client, ServerMachine};
use crate::pptp::machine::{Cx, Way};
use crate::pptp::order::Order;
use crate::pptp::traffic::Traffic;
use crate::status::PeerStatus;
use ::config::lines::{LineMode, Lines as Settings};
use ::pptp::lines::{ADDRESSES_MAX, Addresses};
use log::Level;
use plane::{LineId, LineMode as Mode, LineSet};
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
        lines::control::evenly(self.mode, places)
    }
}

/// The lines of one client. A line's number is the index of the client's address.
pub(super) struct ClientLines {
    answering: Answering,
    places: LineSet,
    pub(super) traffic: Traffic,
}

impl ClientLines {
    fn new(answering: Answering) -> Self {
        Self {
            answering,
            places: LineSet::EMPTY,
            traffic: Traffic::new(),
        }
    }

    /// Returns one path for a packet, and adds the others to `copies`.
    pub(super) fn send(
        &mut self,
        packet: (&[u8], usize),
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
            self.traffic.spread.set_mode(self.answering.among(places));
        }
        let way = |line: LineId| {
            let to = ways.get(line.index()).copied().flatten()?;
            Some(Way::between(line, to))
        };
        let used = LineId(used as u8);
        self.traffic.send(packet, used, way, copies)
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
    pub(super) fn agreed(&mut self, call: u16, cx: &mut Cx<'_>) {
        let reorder = self.reorder.or(Some(true));
        let (Some(answering), Some(client)) = (self.answering, self.clients.get_mut(&call)) else {
            return;
        };
        client.lines = Some(Box::new(ClientLines::new(answering)));
        if client.order.is_none() {
            client.order = Order::of(call, client.up.protection, reorder);
        }
        let words = format!("{}: calls by several paths", super::name(&client.up));
        cx.host.log(Level::Debug, words);
    }

    /// Handles the loss of a call's control connection.
    pub(super) fn control_lost(&self, call: u16, cx: &mut Cx<'_>) {
        if let Some(client) = self.clients.get(&call) {
            let name = super::name(&client.up);
            let words = format!("{name}: the control connection is lost, the call goes on");
            cx.host.log(Level::Info, words);
        }
    }

    /// The line of a client with several lines that has this address.
    pub(super) fn line_of(&self, call: u16, from: Ipv4Addr, now: Instant) -> Option<LineId> {
        let place = self.session.addresses(call)?.place_of(from, now);
        let own = || self.session.hears(call, from, now).then_some(LineId::FIRST);
        place.map(|place| LineId(place as u8)).or_else(own)
    }
}

impl Client {
    /// Fills in the client's lines for `millrace status`.
    pub(super) fn describe_lines(&self, addresses: Option<&Addresses>, peer: &mut PeerStatus) {
        let (Some(lines), Some(addresses)) = (&self.lines, addresses) else {
            return;
        };
        let now = Instant::now();
        let all = addresses.all(now);
        let all = all.map(|(at, ip, age)| (LineId(at as u8), ip.into(), now.checked_sub(age)));
        let known = lines.traffic.describe(self.order.as_ref(), all, peer);
        let used = addresses.used(now).map(|(at, _)| LineId(at as u8));
        let mode = lines.answering.among(places_in_use(addresses, now));
        peer.lines = crate::status::lines::their_status(&known, now);
        for (of, line) in peer.lines.iter_mut().zip(&known.lines) {
            let line = line.line;
            // Address only, as GRE has no ports.
            of.name = line.endpoint.addr.ip().to_string();
            of.in_use = used == Some(line.id) || mode.lines().contains(line.id);
        }
    }
}
