//! Differences between the settings of two ends, and the words for them.

use core::fmt;

use super::{Kind, Range};

/// A difference between the other end's settings and ours, as its datagrams show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Messages of a kind have another form. At least one of the two parts differs.
    Form {
        /// The kind of message.
        kind: Kind,
        /// Bytes in front of it: at the other end, and here.
        prefix: Option<[u16; 2]>,
        /// The type that the other end drew, and the types that are accepted here.
        number: Option<(u32, Range<u32>)>,
    },
    /// The other end speaks plain WireGuard; this end does not.
    OtherIsPlain,
    /// This end speaks plain WireGuard; the other end does not.
    ThisIsPlain {
        /// The kind of message that shows it.
        kind: Kind,
        /// Bytes in front of it.
        prefix: u16,
        /// Its type.
        number: u32,
    },
    /// `RandomTrailers` is on at one end only.
    Trailers {
        /// It is on at the other end.
        there: bool,
    },
    /// `HeaderProtectionKey` is set here only.
    NoKey,
    /// No value here explains the other end's datagrams.
    Unreadable {
        /// `HeaderProtectionKey` is set here.
        key: bool,
    },
}

impl Mismatch {
    /// Whether both tell of the same fault. The types that the other end draws differ from message to message.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.with_number(0) == other.with_number(0)
    }

    /// Whether the beginning of a handshake that this end could read shows that the fault is gone.
    #[must_use]
    pub const fn is_refuted_by_a_beginning(&self) -> bool {
        match self {
            Self::Form { kind, .. } | Self::ThisIsPlain { kind, .. } => {
                matches!(kind, Kind::Initiation)
            }
            Self::OtherIsPlain | Self::NoKey | Self::Unreadable { .. } => true,
            Self::Trailers { .. } => false,
        }
    }

    fn with_number(mut self, drawn: u32) -> Self {
        match &mut self {
            Self::Form {
                number: Some((number, _)),
                ..
            }
            | Self::ThisIsPlain { number, .. } => *number = drawn,
            _ => {}
        }
        self
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form {
                kind,
                prefix,
                number,
            } => {
                let at = *kind as usize + 1;
                if let Some([there, here]) = prefix {
                    write!(f, "S{at} is {there} at the other end, {here} here")?;
                }
                if prefix.is_some() && number.is_some() {
                    f.write_str("; ")?;
                }
                match number {
                    Some((there, here)) => {
                        write!(f, "H{at} includes {there} at the other end, is {here} here")
                    }
                    None => Ok(()),
                }
            }
            Self::OtherIsPlain => {
                f.write_str("the other end speaks plain WireGuard, this end AmneziaWG")
            }
            Self::ThisIsPlain {
                kind,
                prefix,
                number,
            } => {
                let at = *kind as usize + 1;
                write!(
                    f,
                    "the other end speaks AmneziaWG (S{at} is {prefix}, H{at} includes {number}), this end plain \
                     WireGuard"
                )
            }
            Self::Trailers { there } => {
                let (there, here) = if *there { ("on", "off") } else { ("off", "on") };
                write!(f, "RandomTrailers is {there} at the other end, {here} here")
            }
            Self::NoKey => f.write_str("HeaderProtectionKey is set here, not at the other end"),
            Self::Unreadable { key: true } => f.write_str(
                "its datagrams fit no value here: HeaderProtectionKey differs, or several values",
            ),
            Self::Unreadable { key: false } => f.write_str(
                "its datagrams fit no value here: HeaderProtectionKey is set at the other end only, or several values \
                 differ",
            ),
        }
    }
}
