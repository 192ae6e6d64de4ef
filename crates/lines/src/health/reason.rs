//! States of a line, and the reasons for a change.

use std::fmt;
use std::time::Duration;

/// The state of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LineState {
    /// No packet has come over the line yet.
    #[default]
    Unknown,
    /// The line works.
    Up,
    /// The line works, but worse than it should.
    Degraded,
    /// The line does not work.
    Down,
}

impl LineState {
    /// Whether packets sent on it are likely to arrive.
    #[must_use]
    pub const fn usable(self) -> bool {
        matches!(self, Self::Up | Self::Degraded)
    }
}

impl fmt::Display for LineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Degraded => "degraded",
            Self::Down => "down",
        })
    }
}

/// A fault of a line, reported by the host, or by a protocol that has detected it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The device does not exist.
    NoDevice,
    /// The device is switched off, or its cable is out.
    NoCarrier,
    /// The device has no address.
    NoAddress,
    /// The address of the line's relay is unknown.
    NoRelay,
    /// The peer answers on the line, but calls on it fail.
    NoCall,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoDevice => "its device does not exist",
            Self::NoCarrier => "its device has no carrier",
            Self::NoAddress => "its device has no address",
            Self::NoRelay => "the name of its relay has not been found",
            Self::NoCall => "the last call by it has failed",
        })
    }
}

/// Why a line has changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The first authentic packet has come over the line.
    FirstPacket,
    /// Authentic packets come over the line again, after this time.
    PacketsAgain(Duration),
    /// Packets on the line were not answered for this time.
    Silent(Duration),
    /// The host reports a fault of the line.
    Fault(Fault),
    /// The host's fault is gone, and the line is tried.
    FaultGone(Fault),
    /// Round trips take `now`, but `usual` when the line is idle.
    RoundTrip {
        /// The smoothed round trip.
        now: Duration,
        /// The shortest recent round trip.
        usual: Duration,
    },
    /// Round trips have been normal for this time.
    Recovered(Duration),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstPacket => f.write_str("the peer has answered on it"),
            Self::PacketsAgain(after) => {
                write!(f, "the peer answers on it again, after {}", Seconds(*after))
            }
            Self::Silent(time) => {
                write!(f, "the peer has not answered on it for {}", Seconds(*time))
            }
            Self::Fault(fault) => fault.fmt(f),
            Self::FaultGone(_) => f.write_str("it can be tried again"),
            Self::RoundTrip { now, usual } => {
                let (now, usual) = (now.as_millis(), usual.as_millis());
                write!(f, "its round trip is {now} ms, usually {usual} ms")
            }
            Self::Recovered(time) => {
                write!(f, "it has worked as it should for {}", Seconds(*time))
            }
        }
    }
}

/// Formats a duration for people.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match millis {
            0..10_000 => write!(f, "{}.{} s", millis / 1000, millis % 1000 / 100),
            10_000..120_000 => write!(f, "{} s", millis / 1000),
            _ => write!(f, "{} min", millis / 60_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sentences() {
        let ms = Duration::from_millis;
        for (reason, text) in [
            (
                Reason::Silent(ms(1250)),
                "the peer has not answered on it for 1.2 s",
            ),
            (
                Reason::PacketsAgain(ms(600_000)),
                "the peer answers on it again, after 10 min",
            ),
            (Reason::Fault(Fault::NoCarrier), "its device has no carrier"),
            (
                Reason::RoundTrip {
                    now: ms(300),
                    usual: ms(40),
                },
                "its round trip is 300 ms, usually 40 ms",
            ),
            (
                Reason::Recovered(ms(10_000)),
                "it has worked as it should for 10 s",
            ),
        ] {
            assert_eq!(reason.to_string(), text);
        }
    }
}
