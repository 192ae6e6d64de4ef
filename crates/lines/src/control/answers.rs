//! How soon peers answer.

use std::time::Duration;

/// How soon peers send a packet after receiving one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Peers answer probes at once.
    Probes,
    /// Peers do not answer probes, but send a packet within this time after receiving one, if the line works.
    Within(Duration),
}

impl Answers {
    /// The time for peers that do not answer probes.
    pub(super) const fn within(self) -> Option<Duration> {
        match self {
            Self::Probes => None,
            Self::Within(time) => Some(time),
        }
    }
}
