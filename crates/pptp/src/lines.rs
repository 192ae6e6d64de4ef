//! Several lines for one call, between two ends that support them. An extension to RFC 2637.
//!
//! A call is known by its ID and its client's address. Here the client has further lines, and sends *probes* on each. A
//! probe is a GRE packet without a sequence number, so a lost one leaves no gap. Its payload is not a PPP frame. The
//! server answers to the address that the probe came from.
//!
//! - Probes and answers are authentic: their key comes from the login ([`ProbeKey`]), like MPPE's keys. So they require
//!   MPPE. An attacker who has broken the login can forge them.
//! - Each probe has a greater number than the one before on its line, so a replayed probe is ignored.
//! - An address takes part after a probe from it has repeated a *token* that the server sent there. A probe relayed
//!   from elsewhere, or with a forged source, costs one answer of its own length.
//!
//! Each probe says which lines the client uses. The server sends the call's packets there, and accepts packets from
//! addresses that take part. The packets themselves stay unauthenticated, as in PPTP.

use std::time::{Duration, Instant};

use crate::control::CloseReason;

mod addresses;
mod probe;
mod prober;

pub use addresses::{ADDRESSES_MAX, ALIVE, Addresses, Probed, Refused};
pub(crate) use probe::call_of;
pub use probe::{Kind, LEN, Probe, ProbeKey, is_probe};
pub use prober::{Answered, Prober};

/// How long a call without a control connection continues without a probe or an answer.
pub(crate) const SILENT: Duration = Duration::from_secs(30);

/// Time for the first answer to a client that lost the control connection and probes at once: the server may have ended
/// the call.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(5);

/// Time for the first probe to a server that lost it: its client may not have noticed, and one probe may be lost.
pub(crate) const UNASKED: Duration = Duration::from_secs(25);
const _: () = assert!(UNASKED.as_secs() > 2 * TELL.as_secs());

/// Longest interval between a client's probes on the line of its call.
pub const TELL: Duration = Duration::from_secs(10);

/// When a call without a control connection ends. It was lost at `lost`, and its lines were last heard at `heard`.
/// `first` is the time allowed until they are heard again.
pub(crate) fn ends_at(lost: Instant, heard: Option<Instant>, first: Duration) -> Instant {
    match heard {
        Some(heard) if heard > lost => heard + SILENT,
        _ => lost + first,
    }
}

/// Whether a call may continue after its control connection ended for this reason.
pub(crate) const fn outlives(reason: &CloseReason) -> bool {
    matches!(
        reason,
        CloseReason::StreamEnded | CloseReason::EchoTimeOut | CloseReason::NotReading
    )
}

/// Most lines of a client; line numbers in probes are below this.
pub const LINES_MAX: usize = 16;
