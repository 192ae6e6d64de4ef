//! Several lines at once, in order: everything that one tunnel needs to use more than one path to its peer. Sans-IO:
//! packets and the time come in, decisions and deadlines come out.
//!
//! - [`reorder`]: packets that came over several lines, put back into order
//! - [`health`]: how well each line works, and the reason for that verdict
//! - [`scheduler`]: which lines a packet is sent on
//! - [`queue`]: a fair queue in front of a line that is the bottleneck
//! - [`inner`]: the facts about an inner packet that the others need
//! - [`relay`]: what a relay that forwards a tunnel's datagrams knows of its clients
//! - `control`: the uplinks of a running tunnel, probed, chosen and counted (feature `control`, as the rest)
//! - `names`: addresses of servers by name, asked through each uplink
//! - `floor`, `places`: files that outlive a program
//!
//! Nothing here knows a protocol. A packet's number is the one that its protocol gave it (WireGuard's counter,
//! OpenVPN's packet id, PPTP's sequence number), so the peer at the other end need not know of lines.

#![forbid(unsafe_code)]

#[cfg(feature = "control")]
pub mod control;
#[cfg(feature = "control")]
pub mod floor;
pub mod health;
pub mod inner;
#[cfg(feature = "control")]
pub mod names;
#[cfg(feature = "control")]
pub mod places;
pub mod queue;
pub mod relay;
pub mod reorder;
pub mod scheduler;
#[cfg(test)]
mod simulation;
