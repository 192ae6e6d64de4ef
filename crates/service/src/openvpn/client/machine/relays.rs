//! The lines' relays: their addresses, and the hellos that tell them the client's address.
//!
//! To the server, a relay is one more client address. Hellos are not OpenVPN packets, and relays know nothing of
//! OpenVPN.

use super::Machine;
use crate::openvpn::client::effect::{Cx, Effect, HostStep, SERVER};
use crate::openvpn::connect::Name as LookUpOf;
use config::openvpn::Family;
use lines::floor::FloorFile;
use lines::names::Whose;
use openvpn::data::protocol::session;
use plane::Now;
use plane::{LineId, Sender};
use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

impl Machine<'_> {
    /// Makes all later timestamps exceed `floor`, the latest that an earlier run may have sent. Later floors go to the
    /// file.
    pub(in crate::openvpn::client) fn restore_floor(
        &mut self,
        file: Option<FloorFile>,
        floor: SystemTime,
    ) {
        self.floor_file = file;
        if let Some(it) = &mut self.lines {
            it.lines.set_stamp_floor(floor);
        }
    }

    /// Writes the floor to its file before a stamp is used, if it has to be raised for that.
    pub(super) fn keep_floor(&mut self, used: SystemTime, wall: SystemTime) {
        let floor = self.floor.use_up(used, wall);
        if let (Some(floor), Some(file)) = (floor, &mut self.floor_file) {
            file.raise(floor);
        }
    }

    /// When the next relay look-up is due.
    pub(super) fn relays_due(&self) -> Option<Instant> {
        self.lines.as_ref()?.lines.relays_due()
    }

    /// Looks up the relays that are due.
    pub(super) fn look_up_relays(&mut self, cx: &mut Cx) {
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
                cx.push(Effect::LookUpRelay(line, name));
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
        cx: &mut Cx,
    ) {
        self.with_lines(cx, |it, now, effects| {
            it.lines
                .relay_looked_up(line, found, now.monotonic, effects);
            it.lines.hurry(now.monotonic);
        });
    }

    /// Handles another address of a relay.
    pub(super) fn relay_at(&self, address: SocketAddr, cx: &mut Cx) {
        if self.network.is_some() {
            cx.host(HostStep::KeepRelayOutside(address.ip()));
        }
        if self.connection().is_some_and(|it| it.peer.key.is_some()) {
            known_at(address, cx);
        }
    }

    /// Routes packets to the relays outside the tunnel.
    pub(super) fn keep_relays_outside(&self, cx: &mut Cx) {
        for address in self.relay_addresses() {
            cx.host(HostStep::KeepRelayOutside(address.ip()));
        }
    }

    /// Attributes packets from the relays to the server, once there are keys.
    pub(super) fn know_relays(&self, cx: &mut Cx) {
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

    /// Sends a relay the client's address.
    pub(super) fn say_hello(&mut self, line: LineId, cx: &mut Cx) {
        let now = cx.now;
        let Some(lines) = self.lines.as_mut() else {
            return;
        };
        if let Some((to, hello)) = lines.lines.hello(line, now.wall) {
            let used = lines.lines.latest_stamp();
            // Saved before a packet with this timestamp leaves.
            self.keep_floor(used, now.wall);
            cx.plane(|plane| plane.send(&to, &hello));
        }
    }
}

/// Attributes packets without a peer-id from this address to the server.
fn known_at(address: SocketAddr, cx: &mut Cx) {
    let from = Sender::Address(address);
    cx.plane(|plane| plane.set_sender(SERVER, from, session(SERVER, 0)));
}
