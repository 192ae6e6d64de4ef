//! Several lines of one call, between two ends that know of them. This is no part of RFC 2637.
//!
//! A call is known by an ID and the address of its client. Here the client has other lines besides the one that it made the
//! call by, and a *probe* on each of them: a packet of GRE that has no sequence number, so that one that is lost leaves no
//! gap, and whose payload is no frame of PPP. The server answers it where it came from.
//!
//! - Probes and answers are authentic: their key comes from the login ([`ProbeKey`]), as those of MPPE do, so there are none
//!   where MPPE is not used. Who has broken the login can forge them.
//! - Each has a greater number than the one before on its line: what was recorded and is sent again counts for nothing.
//! - An address takes part after a probe from it has repeated a *token* that the server sent there. A probe that is sent on
//!   from elsewhere, or with a source that is not the sender's, costs an answer of its own length.
//!
//! The client says with each probe which of its lines it uses. Packets of the call go where it says, and are taken from the
//! addresses that take part. Beyond that they are what they are in PPTP: not authentic.

use std::time::{Duration, Instant};

use crate::control::CloseReason;

mod addresses;
mod probe;
mod prober;

pub use addresses::{ADDRESSES_MAX, ALIVE, Addresses, Probed, Refused};
pub(crate) use probe::call_of;
pub use probe::{Kind, LEN, Probe, ProbeKey, is_probe};
pub use prober::{Answered, Prober};

/// How long a call without a control connection goes on while no probe comes, or no answer.
pub(crate) const SILENT: Duration = Duration::from_secs(30);

/// The time for the first answer to a client that has lost the control connection, and asks at once: the server's end
/// may have ended it.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(5);

/// The time for the first probe at a server that has: its client may not have noticed, and one probe may be lost.
pub(crate) const UNASKED: Duration = Duration::from_secs(25);
const _: () = assert!(UNASKED.as_secs() > 2 * TELL.as_secs());

/// How often at least a client probes the line of its call.
pub const TELL: Duration = Duration::from_secs(10);

/// When a call ends whose control connection was lost, and whose lines were last heard then; `first` is how long it goes on
/// without having been heard since.
pub(crate) fn ends_at(lost: Instant, heard: Option<Instant>, first: Duration) -> Instant {
    match heard {
        Some(heard) if heard > lost => heard + SILENT,
        _ => lost + first,
    }
}

/// Whether a call may go on without its control connection, which ended for this reason.
pub(crate) const fn outlives(reason: &CloseReason) -> bool {
    matches!(
        reason,
        CloseReason::StreamEnded | CloseReason::EchoTimeOut | CloseReason::NotReading
    )
}

/// Most lines of a client: numbers in probes are below it.
pub const LINES_MAX: usize = 16;
