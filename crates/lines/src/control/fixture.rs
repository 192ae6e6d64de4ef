//! A fake [`Outside`] for tests, which records its calls.

use super::{LineFacts, LinePlane, LineUsage, Outside};
use log::Level;
use plane::{LINES_MAX, Line, LineId, LineMode, PeerId};
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

/// Fake of all facilities: records calls that have an address, in order, and returns what its fields say.
pub(super) struct Fake {
    pub(super) facts: Vec<Option<LineFacts>>,
    pub(super) wall: SystemTime,
    pub(super) carried: [u64; LINES_MAX],
    /// No data plane exists.
    pub(super) gone: bool,
    /// Calls since [`told`](Self::told): the kind, the line, and an address.
    pub(super) calls: Vec<(&'static str, u8, Option<SocketAddr>)>,
    pub(super) hellos: Vec<(Line, Vec<u8>)>,
    pub(super) usage: Vec<LineUsage>,
    /// Why no sockets can be opened.
    pub(super) refuses: Option<String>,
    /// The other calls since [`rest`](Self::rest), and lines of the log, as texts.
    others: Vec<String>,
}

impl Fake {
    /// Makes a fake with two lines, both with a device.
    pub(super) fn new() -> Self {
        let there = LineFacts {
            ifindex: 0,
            running: true,
            addressed: true,
        };
        Self {
            facts: vec![Some(there); 2],
            wall: SystemTime::UNIX_EPOCH,
            carried: [0; LINES_MAX],
            gone: false,
            calls: Vec::new(),
            hellos: Vec::new(),
            usage: Vec::new(),
            refuses: None,
            others: Vec::new(),
        }
    }

    /// Returns the calls recorded since the last use of this function.
    pub(super) fn told(&mut self) -> Vec<(&'static str, u8, Option<SocketAddr>)> {
        std::mem::take(&mut self.calls)
    }

    /// Returns the other calls since the last call.
    pub(super) fn rest(&mut self) -> Vec<String> {
        std::mem::take(&mut self.others)
    }

    fn note(&mut self, call: String) {
        self.others.push(call);
    }
}

impl Outside for Fake {
    fn wall(&self) -> SystemTime {
        self.wall
    }

    fn plane(&mut self) -> Option<&mut dyn LinePlane> {
        match self.gone {
            true => None,
            false => Some(self),
        }
    }

    fn facts(&mut self) -> Vec<Option<LineFacts>> {
        self.calls.push(("read", 0, None));
        self.facts.clone()
    }

    fn open(&mut self, line: LineId, _: Option<u32>) -> Result<(), String> {
        self.calls.push(("open", line.0, None));
        self.refuses.clone().map_or(Ok(()), Err)
    }

    fn probe(&mut self, _: PeerId, line: Line, _: bool) {
        let at = Some(line.endpoint.addr);
        self.calls.push(("probe", line.id.0, at));
    }

    fn keepalive(&mut self, _: PeerId) {
        self.note("keepalive".to_owned());
    }

    fn hello(&mut self, to: &Line, hello: &[u8], _: SystemTime) {
        self.calls.push(("hello", to.id.0, None));
        self.hellos.push((*to, hello.to_vec()));
    }

    fn relay_at(&mut self, _: SocketAddr) {}

    fn keep_address(&mut self, name: &str, address: IpAddr) {
        self.note(format!("keep {name} {address}"));
    }

    fn keep_usage(&mut self, usage: &[LineUsage]) {
        self.usage = usage.to_vec();
    }

    fn log(&mut self, _: Option<PeerId>, _: Level, words: &str) {
        self.note(words.to_owned());
    }
}

impl LinePlane for Fake {
    fn close_line(&mut self, line: LineId) {
        self.note(format!("close {}", line.0));
    }

    fn set_line(&mut self, _: PeerId, line: Line) {
        self.calls
            .push(("set", line.id.0, Some(line.endpoint.addr)));
    }

    fn use_line(&mut self, _: PeerId, line: LineId) {
        self.note(format!("use {}", line.0));
    }

    fn set_line_mode(&mut self, _: PeerId, mode: LineMode) {
        self.note(format!("{mode:?}"));
    }

    fn set_rate(&mut self, rate: u64) {
        self.note(format!("rate {rate}"));
    }

    fn set_line_rates(&mut self, rates: [u64; LINES_MAX]) {
        self.note(format!("rates {:?}", &rates[..3]));
    }

    fn carried(&mut self) -> [u64; LINES_MAX] {
        self.carried
    }
}
