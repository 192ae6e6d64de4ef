//! The calls that lines make: to a data plane, to the host, and to the protocol.

#[cfg(doc)]
use super::Lines;
use super::{LineFacts, LineUsage};
use log::Level;
use plane::{DataPlane, LINES_MAX, Line, LineId, LineMode, PeerId};
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

/// Everything around [`Lines`]. No method calls back into the lines.
pub trait Outside {
    /// The wall clock's time.
    fn wall(&self) -> SystemTime;

    /// The data plane, or a test's substitute; `None` without an interface.
    fn plane(&mut self) -> Option<&mut dyn LinePlane>;

    /// Reads the host's facts about the lines, in order; `None` for a line without a device.
    fn facts(&mut self) -> Vec<Option<LineFacts>>;

    /// Replaces the open sockets of a line by new ones. `mark` is the line's own mark, if it has one.
    ///
    /// # Errors
    /// A message for the log.
    fn open(&mut self, line: LineId, mark: Option<u32>) -> Result<(), String>;

    /// Sends a peer a message over this line that it answers at once. With `renew`, no data has come recently: if the
    /// probe makes a new session, use it.
    fn probe(&mut self, peer: PeerId, line: Line, renew: bool);

    /// Sends a peer an empty packet, if there are keys for the peer.
    fn keepalive(&mut self, peer: PeerId);

    /// Sends a hello with this stamp to the relay of a line, once the floor for the stamp is saved.
    fn hello(&mut self, to: &Line, hello: &[u8], stamp: SystemTime);

    /// Records that a relay has this address now.
    fn relay_at(&mut self, address: SocketAddr);

    /// Saves that a peer answers through a relay at this address of this name.
    fn keep_address(&mut self, name: &str, address: IpAddr);

    /// Saves the lines' byte counts.
    fn keep_usage(&mut self, usage: &[LineUsage]);

    /// Writes to the log, about a peer if one is named.
    fn log(&mut self, peer: Option<PeerId>, level: Level, words: &str);
}

impl dyn Outside + '_ {
    /// Calls the data plane, if there is an interface.
    pub(super) fn on_plane(&mut self, call: impl FnOnce(&mut dyn LinePlane)) {
        if let Some(plane) = self.plane() {
            call(plane);
        }
    }
}

/// The calls of [`DataPlane`] that lines make.
pub trait LinePlane {
    /// [`DataPlane::close_line`].
    fn close_line(&mut self, line: LineId);
    /// [`DataPlane::set_line`].
    fn set_line(&mut self, id: PeerId, line: Line);
    /// [`DataPlane::use_line`].
    fn use_line(&mut self, id: PeerId, line: LineId);
    /// [`DataPlane::set_line_mode`].
    fn set_line_mode(&mut self, id: PeerId, mode: LineMode);
    /// [`DataPlane::set_rate`], in bits a second.
    fn set_rate(&mut self, rate: u64);
    /// [`DataPlane::set_line_rates`], in bits a second.
    fn set_line_rates(&mut self, rates: [u64; LINES_MAX]);
    /// [`DataPlane::carried`].
    fn carried(&mut self) -> [u64; LINES_MAX];
}

impl<P: DataPlane + ?Sized> LinePlane for &P {
    fn close_line(&mut self, line: LineId) {
        P::close_line(self, line);
    }

    fn set_line(&mut self, id: PeerId, line: Line) {
        P::set_line(self, id, line);
    }

    fn use_line(&mut self, id: PeerId, line: LineId) {
        P::use_line(self, id, line);
    }

    fn set_line_mode(&mut self, id: PeerId, mode: LineMode) {
        P::set_line_mode(self, id, mode);
    }

    fn set_rate(&mut self, rate: u64) {
        P::set_rate(self, Some(rate));
    }

    fn set_line_rates(&mut self, rates: [u64; LINES_MAX]) {
        P::set_line_rates(self, rates);
    }

    fn carried(&mut self) -> [u64; LINES_MAX] {
        P::carried(self)
    }
}
