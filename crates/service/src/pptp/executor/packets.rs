//! The way of packets: TUN to GRE and back, a batch at a time.

use super::{Executor, RunError};
use crate::pptp::machine::Machine;
use netio::gre::PACKET_MAX;
use std::io::{self, IoSlice};
use std::time::Instant;

/// Packets read from the interface in one go.
const BATCH: usize = 64;

impl<M: Machine> Executor<'_, M> {
    /// Reads what waits at the interface, up to a batch, seals it and sends it.
    pub(super) fn pump_tun(&mut self, now: Instant) -> Result<(), RunError> {
        let mut packet = [0; PACKET_MAX];
        for _ in 0..BATCH {
            match self.tun.read(&mut packet) {
                Ok(len) => {
                    let packet = &packet[..len];
                    let machine = &mut self.machine;
                    self.outgoing
                        .push(|memory| machine.outbound(packet, now, memory));
                }
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
        let (tun, unwritten) = (&self.tun, &mut self.unwritten);
        let mut deliver = |packet: &[u8]| {
            if tun.write(&[IoSlice::new(packet)]).is_err() {
                *unwritten += 1;
            }
        };
        for at in 0..count {
            if let Some((from, packet)) = self.received.packet(at) {
                self.machine
                    .inbound(from, packet, now, &mut deliver, &mut self.effects);
            }
        }
    }

    /// Writes what has waited for packets that do not come.
    pub(super) fn release(&mut self, now: Instant) {
        let (tun, unwritten) = (&self.tun, &mut self.unwritten);
        let mut deliver = |packet: &[u8]| {
            if tun.write(&[IoSlice::new(packet)]).is_err() {
                *unwritten += 1;
            }
        };
        self.machine.release(now, &mut deliver, &mut self.effects);
    }
}
