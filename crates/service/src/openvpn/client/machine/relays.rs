//! The lines' relays: their addresses, and the hellos that tell them the client's address.
//!
//! To the server, a relay is one more client address. Hellos are not OpenVPN packets, and relays know nothing of
//! OpenVPN.

use super::Machine;
use crate::openvpn::client::host::{Cx, SERVER};
use config::openvpn::Family;
use lines::names::Whose;
use openvpn::data::protocol::session;
use openvpn_host::connect::Name as LookUpOf;
use plane::Now;
use plane::{LineId, Sender};
use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

impl Machine<'_> {
    /// Makes all later timestamps exceed `floor`, the latest that an earlier run may have sent.
    pub(in crate::openvpn::client) fn restore_floor(&mut self, floor: SystemTime) {
        if let Some(it) = &mut self.lines {
            it.lines.set_stamp_floor(floor);
        }
    }

    /// When the next relay look-up is due.
    pub(super) fn relays_due(&self) -> Option<Instant> {
        self.lines.as_ref()?.lines.relays_due()
    }

    /// Looks up the relays that are due.
    pub(super) fn look_up_relays(&mut self, cx: &mut Cx<'_>) {
        let Some(it) = &mut self.lines else { return };
        for (whose, name) in it.lines.relay_names() {
            if let Whose::Relay(line) = whose
                && name.due().is_some_and(|at| at <= cx.now.monotonic)
            {
                let lookup = name.begin(whose, 0);
                let name = LookUpOf {
                    host: lookup.host,
                    port: lookup.endpoint.port,
                    family: Family::Any,
                };
                cx.later(move |host| host.look_up_relay(line, name));
            }
        }
    }

    /// Repeats at once the relay look-ups that failed for lack of an uplink.
    pub(super) fn hurry_relays(&mut self, now: Now) {
        if let Some(it) = &mut self.lines {
            it.lines.hurry_relays(now.monotonic);
        }
    }

    /// Handles the result of a look-up.
    pub(super) fn relay_looked_up(
        &mut self,
        line: LineId,
        found: Result<Vec<SocketAddr>, String>,
        cx: &mut Cx<'_>,
    ) {
        self.with_lines(cx, |it, now, out| {
            it.lines.relay_looked_up(line, found, now, out);
            it.lines.hurry(now);
        });
        self.lines_settled(cx);
    }

    /// Routes packets to the relays outside the tunnel.
    pub(super) fn keep_relays_outside(&self, cx: &mut Cx<'_>) {
        for address in self.relay_addresses() {
            cx.later(move |host| host.keep_relay_outside(address.ip()));
        }
    }

    /// Attributes packets from the relays to the server, once there are keys.
    pub(super) fn know_relays(&self, cx: &mut Cx<'_>) {
        self.relay_addresses().for_each(|at| known_at(at, cx));
    }

    fn relay_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.lines.iter().flat_map(|it| it.lines.relays())
    }

    /// The address of a line's relay.
    pub(super) fn relay_on(&self, line: LineId) -> Option<SocketAddr> {
        self.lines.as_ref()?.lines.relay(line)
    }

    /// Destination of control packets: the relay of the line in use, otherwise `remote`.
    pub(super) fn destination(&self, remote: SocketAddr) -> Option<SocketAddr> {
        Some(remote).filter(|_| self.relay_addresses().next().is_none())
    }
}

/// Attributes packets without a peer-id from this address to the server.
pub(super) fn known_at(address: SocketAddr, cx: &mut Cx<'_>) {
    let from = Sender::Address(address);
    cx.plane(|plane| plane.set_sender(SERVER, from, session(SERVER, 0)));
}
