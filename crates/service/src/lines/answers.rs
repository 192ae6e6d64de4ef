//! How soon peers answer.

use std::time::Duration;

/// How soon peers say something when they are sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// They answer probes at once.
    Probes,
    /// They do not, but are heard within this time of being sent something, or the line does not work.
    Within(Duration),
}

impl Answers {
    /// The time of those that do not answer probes.
    pub(super) const fn within(self) -> Option<Duration> {
        match self {
            Self::Probes => None,
            Self::Within(time) => Some(time),
        }
    }
}
