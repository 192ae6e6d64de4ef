//! The way of packets: TUN to GRE and back, a batch at a time.

use super::{Executor, RunError};
use crate::pptp::machine::Machine;
use std::io;
use std::time::Instant;

/// Packets that are read from the interface in one go, a super-packet's counted one by one, and sent by one call.
const BATCH: usize = 64;

impl<M: Machine> Executor<'_, M> {
    /// Reads what waits at the interface, up to a batch, seals it and sends it.
    pub(super) fn pump_tun(&mut self, now: Instant) -> Result<(), RunError> {
        let (machine, outgoing) = (&mut self.machine, &mut self.outgoing);
        let (gre, unsent) = (&self.gre, &mut self.unsent);
        let mut read = 0;
        while read < BATCH {
            let found = self.reader.read(&self.tun, |packet| {
                outgoing.push(|memory| machine.outbound(packet, now, memory));
                // There may be a thousand in a super-packet.
                if outgoing.len() >= BATCH {
                    *unsent += gre.send(outgoing);
                }
            });
            match found {
                // What is dropped has cost a call too.
                Ok(packets) => read += packets.max(1),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if self.tun.current_name().is_err() {
                        return Err(RunError::Ended("the interface is gone".to_owned()));
                    }
                    log::debug!("reading from the interface: {error}");
                    break;
                }
            }
        }
        Ok(())
    }

    /// Receives what waits, up to a batch, opens it and writes it to the interface.
    pub(super) fn pump_gre(&mut self, now: Instant) {
        // Else nothing waits, or ICMP has left a word.
        let Ok(count) = self.gre.receive(&mut self.received) else {
            return;
        };
        let (tun, writer) = (&self.tun, &mut self.writer);
        let mut deliver = |packet: &[u8]| writer.push(tun, packet);
        for at in 0..count {
            if let Some((from, packet)) = self.received.packet(at) {
                self.machine
                    .inbound(from, packet, now, &mut deliver, &mut self.effects);
            }
        }
        self.writer.flush(&self.tun);
    }

    /// Writes what has waited for packets that do not come.
    pub(super) fn release(&mut self, now: Instant) {
        let (tun, writer) = (&self.tun, &mut self.writer);
        let mut deliver = |packet: &[u8]| writer.push(tun, packet);
        self.machine.release(now, &mut deliver, &mut self.effects);
        self.writer.flush(&self.tun);
    }
}
