//! Moves packets from the TUN to GRE and back, a batch at a time.

use super::{Executor, RunError};
use crate::pptp::machine::{Cx, Machine, Way};
use plane::LineId;
use std::io;
use std::time::Instant;

/// Maximum number of packets read from the interface in one go and sent by one call; each packet in a super-packet
/// counts.
pub(super) const BATCH: usize = 64;

impl<M: Machine> Executor<'_, M> {
    /// Reads packets that wait at the interface, up to a batch, seals them and sends them.
    pub(super) fn pump_tun(&mut self, now: Instant) -> Result<(), RunError> {
        let (machine, gre) = (&mut self.machine, &mut self.outside.gre);
        let tun = &self.outside.tun;
        let mut read = 0;
        while read < BATCH {
            let found = self
                .reader
                .read(tun, |packet| gre.send(machine, packet, now));
            match found {
                // A dropped packet has cost a call too, so it counts.
                Ok(packets) => read += packets.max(1),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if tun.current_name().is_err() {
                        return Err(RunError::Ended("the interface is gone".to_owned()));
                    }
                    log::debug!("reading from the interface: {error}");
                    break;
                }
            }
        }
        Ok(())
    }

    /// Receives waiting packets, up to a batch, opens them and writes them to the interface.
    pub(super) fn pump_gre(&mut self, now: Instant) {
        // Otherwise nothing waits, or ICMP has left an error on the socket.
        if let Some(gre) = self.outside.gre.only()
            && let Ok(count) = gre.receive(&mut self.received)
        {
            self.take_in(count, LineId::FIRST, now);
        }
    }

    /// Opens packets received over a line, and writes them to the interface.
    pub(super) fn take_in(&mut self, count: usize, line: LineId, now: Instant) {
        let mut cx = Cx {
            now,
            host: &mut self.outside,
        };
        for at in 0..count {
            if let Some(((to, called), packet)) = self.received.packet(at) {
                let from = Some(called);
                self.machine
                    .inbound(Way { line, to, from }, packet, &mut cx);
            }
        }
        self.outside.writer.flush(&self.outside.tun);
    }

    /// Writes packets that have waited in vain for earlier ones.
    pub(super) fn release(&mut self, now: Instant) {
        let host = &mut self.outside;
        self.machine.release(&mut Cx { now, host });
        self.outside.writer.flush(&self.outside.tun);
    }
}
