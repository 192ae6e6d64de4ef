//! The lines of a server's clients.

use std::net::Ipv4Addr;
use std::time::Instant;

use zeroize::Zeroizing;

use crate::control::CloseReason;
use crate::gre::Ends;
use crate::lines::{Addresses, ProbeKey, Refused, SILENT, UNASKED, call_of, ends_at, outlives};
use crate::session::link::{Link, LinkOutput};
use crate::session::output::DownReason;
use crate::session::server::{ConnectionId, ProbeCounters, Server, ServerCall, ServerOutput};

impl ServerCall {
    /// Whether the call accepts packets from an address.
    pub(super) fn hears(&self, from: Ipv4Addr, now: Instant) -> bool {
        let own = from == self.ends.theirs && self.lost.is_none();
        own || self
            .addresses
            .as_ref()
            .is_some_and(|it| it.place_of(from, now).is_some())
    }

    /// The destination for packets that take only one line.
    pub(super) fn used(&self, now: Instant) -> Ends {
        let used = self.addresses.as_ref().and_then(|it| it.used(now));
        used.map_or(self.ends, |(_, ends)| ends)
    }

    /// Sends a packet of a control protocol over all lines that the client uses.
    pub(super) fn send_by_all(&self, packet: Vec<u8>, now: Instant, out: &mut Vec<ServerOutput>) {
        let first = self.used(now);
        let all = self.addresses.iter().flat_map(|it| it.in_use(now));
        for (_, to) in all.filter(|(_, ends)| *ends != first) {
            let packet = packet.clone();
            out.push(ServerOutput::Gre { to, packet });
        }
        out.push(ServerOutput::Gre { to: first, packet });
    }

    /// When a call without a control connection ends, if no probe arrives.
    pub(super) fn silent_at(&self) -> Option<Instant> {
        let heard = self.addresses.as_ref().and_then(Addresses::heard);
        self.lost.map(|lost| ends_at(lost, heard, UNASKED))
    }
}

impl Server {
    /// Takes a packet that [looks like](crate::lines::is_probe) a probe, and answers it. Returns its call if the probe
    /// is authentic and its address takes part.
    pub fn probed(
        &mut self,
        from: Ends,
        packet: &[u8],
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) -> Option<u16> {
        let call = call_of(packet);
        let addresses = call.and_then(|call| self.calls.get_mut(&call)?.addresses.as_mut());
        let Some(addresses) = addresses else {
            self.unknown_packets += 1;
            return None;
        };
        match addresses.probed(from, packet, now) {
            Ok(probed) => {
                let (to, packet) = (from, probed.answer.to_vec());
                out.push(ServerOutput::Gre { to, packet });
                if !probed.accepted {
                    self.probes.unaccepted += 1;
                }
                call.filter(|_| probed.accepted)
            }
            Err(refused) => {
                *match refused {
                    Refused::Forged => &mut self.probes.forged,
                    Refused::Replayed => &mut self.probes.replayed,
                } += 1;
                None
            }
        }
    }

    /// The addresses of a call's lines, if both ends agree to several.
    #[must_use]
    pub fn addresses(&self, call: u16) -> Option<&Addresses> {
        self.calls.get(&call)?.addresses.as_ref()
    }

    /// Whether a call accepts packets from an address.
    #[must_use]
    pub fn hears(&self, call: u16, from: Ipv4Addr, now: Instant) -> bool {
        let call = self.calls.get(&call);
        call.is_some_and(|call| call.hears(from, now))
    }

    /// The address for a call's packets that take only one line.
    #[must_use]
    pub fn used_of(&self, call: u16, now: Instant) -> Option<Ipv4Addr> {
        Some(self.calls.get(&call)?.used(now).theirs)
    }

    /// Counts of rejected probes.
    #[must_use]
    pub const fn probe_counters(&self) -> &ProbeCounters {
        &self.probes
    }

    pub(super) fn agreed(&mut self, call: u16, agreed: bool, out: &mut Vec<ServerOutput>) {
        let secret = ProbeKey::new(Zeroizing::new(self.entropy.bytes()));
        if let Some(found) = self.calls.get_mut(&call).filter(|_| agreed) {
            let probes = Link::probes(&found.call);
            found.addresses =
                probes.map(|(key, ours, theirs)| Addresses::new(key, secret, ours, theirs));
            out.push(ServerOutput::Lines { call });
        }
    }

    /// Whether a call may continue without its control connection.
    pub(super) fn outlives(&mut self, call: u16, now: Instant) -> bool {
        let Some(found) = self.calls.get_mut(&call) else {
            return false;
        };
        let heard = found.addresses.as_ref().and_then(Addresses::heard);
        let outlives = heard.is_some_and(|heard| now < heard + SILENT);
        if outlives {
            found.lost = Some(now);
        }
        outlives
    }

    /// Handles the end of a control connection; the reason decides whether its calls may continue.
    pub(super) fn lost(
        &mut self,
        id: ConnectionId,
        reason: CloseReason,
        now: Instant,
        out: &mut Vec<ServerOutput>,
    ) {
        let of = self.calls.iter();
        let of = of.filter(|(_, call)| call.connection == id && call.lost.is_some());
        let of: Vec<u16> = of.map(|(&call, _)| call).collect();
        for call in of {
            if outlives(&reason) {
                out.push(ServerOutput::ControlLost { call });
            } else {
                self.drop_call(call, DownReason::Control(reason), now, out);
            }
        }
    }

    pub(super) fn expire_lines(&mut self, now: Instant, out: &mut Vec<ServerOutput>) {
        let silent = self.calls.iter();
        let silent = silent.filter(|(_, call)| call.silent_at().is_some_and(|at| at <= now));
        let silent: Vec<u16> = silent.map(|(&call, _)| call).collect();
        for call in silent {
            if let Some(found) = self.calls.get_mut(&call) {
                // The client may still hear us although we do not hear the client, so tell it.
                found.call.stop(now, &mut self.outputs);
                for output in self.outputs.drain(..) {
                    if let LinkOutput::Gre(packet) = output {
                        found.send_by_all(packet, now, out);
                    }
                }
            }
            self.drop_call(call, DownReason::Silent, now, out);
        }
    }
}
