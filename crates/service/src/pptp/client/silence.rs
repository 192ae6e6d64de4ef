//! Reports to the tunnel's manager that the server is silent, so that the owner sees it without the log.

use super::ClientMachine;
use crate::pptp::machine::{Cx, Silent};
use std::time::{Duration, Instant};

/// Time without an answer before a report.
const PATIENCE: Duration = Duration::from_secs(10);

/// The packets of the server that have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Heard {
    #[default]
    Nothing,
    /// Its control connection was open.
    Tcp,
    /// GRE has arrived since then.
    Gre,
}

/// The server's silence, while the tunnel is not up.
#[derive(Debug, Default)]
pub(super) struct Silence {
    heard: Heard,
    /// When to judge the silence; `None` while the tunnel is up.
    at: Option<Instant>,
    /// The last report.
    told: Option<Silent>,
}

impl Silence {
    /// Starts to wait for the server, unless that has begun.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.at.is_none() {
            (self.heard, self.at) = (Heard::Nothing, Some(now + PATIENCE));
        }
    }

    /// Records that the server answers at its port.
    pub(super) fn connected(&mut self, now: Instant) {
        if self.heard != Heard::Tcp {
            (self.heard, self.at) = (Heard::Tcp, Some(now + PATIENCE));
        }
    }

    /// Records that no control connection can be opened.
    pub(super) const fn not_connected(&mut self) {
        self.heard = Heard::Nothing;
    }

    /// Records that GRE has arrived from the server.
    pub(super) const fn heard_gre(&mut self) {
        self.heard = Heard::Gre;
    }

    /// Judges no more, as the tunnel is up or ends.
    pub(super) const fn end(&mut self) {
        self.at = None;
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.at
    }
}

impl ClientMachine {
    /// Reports the silence if that is due, and its end once the tunnel is up.
    pub(super) fn tell_silence(&mut self, cx: &mut Cx<'_>) {
        let silence = &mut self.silence;
        let why = match silence.at {
            Some(at) if cx.now < at => return,
            Some(_) => match silence.heard {
                Heard::Nothing => Some(Silent::Server),
                Heard::Tcp => Some(Silent::Gre),
                // The log has the reason why the tunnel is not up.
                Heard::Gre => None,
            },
            None => None,
        };
        if let Some(at) = &mut silence.at {
            *at = cx.now + PATIENCE;
        }
        if std::mem::replace(&mut silence.told, why) != why {
            cx.host.silent(why);
        }
    }
}
