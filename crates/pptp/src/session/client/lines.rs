//! A client's lines.

use std::time::Instant;

use crate::control::CloseReason;
use crate::lines::{Answered, LEN, Prober, SILENT, UNANSWERED, ends_at, outlives};
use crate::session::call::Call;
use crate::session::client::{Client, ClientOutput};
use crate::session::output::DownReason;

impl Client {
    /// A probe for a line, as the payload of an IP packet of protocol 47: see [`Prober::probe`]. `None` unless the
    /// server agrees to several lines.
    pub fn probe(&mut self, line: u8, used: u8, lines: u16) -> Option<[u8; LEN]> {
        self.prober.as_mut()?.probe(line, used, lines)
    }

    /// Takes a packet that [looks like](crate::lines::is_probe) the answer to a probe. `None` if it is not one.
    pub fn answered(&mut self, packet: &[u8], now: Instant) -> Option<Answered> {
        self.prober.as_mut()?.answered(packet, now)
    }

    /// Whether the server agrees to several lines.
    #[must_use]
    pub const fn has_lines(&self) -> bool {
        self.prober.is_some()
    }

    /// Sends an Echo-Request to check that the server is alive (RFC 1661, section 5.8).
    pub fn ask_echo(&mut self, now: Instant, out: &mut Vec<ClientOutput>) {
        if let Some(call) = self.call.as_mut().filter(|call| call.is_up()) {
            call.ask_echo(now, &mut self.outputs);
            self.link_outputs(now, out);
        }
    }

    pub(super) fn agreed(&mut self, agreed: bool, out: &mut Vec<ClientOutput>) {
        let probes = self.call.as_ref().and_then(Call::probes);
        self.prober = probes.map(|(key, ours, theirs)| Prober::new(key, ours, theirs));
        out.push(ClientOutput::Lines(agreed));
    }

    /// Handles the end of the control connection.
    pub(super) fn closed(
        &mut self,
        reason: CloseReason,
        now: Instant,
        out: &mut Vec<ClientOutput>,
    ) {
        let heard = self.prober.as_ref().and_then(Prober::heard);
        let works = heard.is_some_and(|heard| now < heard + SILENT);
        if works && outlives(&reason) && !self.down {
            self.lost = Some(now);
            out.push(ClientOutput::ControlLost(reason));
        } else {
            self.end(DownReason::Control(reason), now, out);
        }
    }

    /// When a call without a control connection ends, if no answer arrives.
    pub(super) fn silent_at(&self) -> Option<Instant> {
        let heard = self.prober.as_ref().and_then(Prober::heard);
        self.lost.map(|lost| ends_at(lost, heard, UNANSWERED))
    }

    pub(super) fn expire_lines(&mut self, now: Instant, out: &mut Vec<ClientOutput>) {
        if self.silent_at().is_some_and(|at| at <= now) {
            self.end(DownReason::Silent, now, out);
        }
    }
}
