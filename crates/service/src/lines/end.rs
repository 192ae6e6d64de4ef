//! The local end of a line.

use lines::health::Fault;
use std::time::Instant;

/// What the host says of a line's device, or of the interface that has its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineFacts {
    /// Its index.
    pub ifindex: u32,
    /// It is up and has a carrier.
    pub running: bool,
    /// It has an address from which others can be reached, or the one that the line is bound to.
    pub addressed: bool,
}

impl LineFacts {
    /// What is wrong with it, if anything is.
    pub(crate) const fn fault(self) -> Option<Fault> {
        match self {
            Self { running: false, .. } => Some(Fault::NoCarrier),
            Self {
                addressed: false, ..
            } => Some(Fault::NoAddress),
            _ => None,
        }
    }
}

/// The local end of a line.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) facts: Option<LineFacts>,
    pub(super) fault: Option<Fault>,
    pub(super) sockets: Sockets,
    /// Why they could last not be opened.
    pub(super) refused: Option<String>,
}

/// Whether a line has sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    /// None; not to be tried before then.
    Closed(Option<Instant>),
    Asked,
    Open,
}
