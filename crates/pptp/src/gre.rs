//! Enhanced GRE, which carries the frames of PPP (RFC 2637, section 4), and the tunnel of one call.
//!
//! GRE authenticates nothing: anyone who can send from the peer's address can inject packets. Refused packets are
//! counted, see [`Counters`].

mod header;
mod receiver;

use core::ops::Range;
use std::net::Ipv4Addr;
use std::time::Instant;

pub use header::{Header, HeaderError, MAX_HEADER_LEN, PROTOCOL, Packet};
pub use receiver::{ACK_DELAY, MAX_JUMP, Receiver, Refusal};

/// Both addresses of GRE packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Address of the peer.
    pub theirs: Ipv4Addr,
    /// Our address that the peer called; `None` for any.
    pub ours: Option<Ipv4Addr>,
}

impl From<Ipv4Addr> for Ends {
    fn from(theirs: Ipv4Addr) -> Self {
        Self { theirs, ours: None }
    }
}

/// Counters of one call's refused packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that are not enhanced GRE.
    pub malformed: u64,
    /// Packets with another call's ID.
    pub other_call: u64,
    /// Packets received before.
    pub duplicates: u64,
    /// Packets older than the window.
    pub too_old: u64,
    /// Packets refused for being too far ahead.
    pub jumps: u64,
}

/// An accepted payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The payload's range in the packet.
    pub payload: Range<usize>,
    /// The packet's number, which does not wrap.
    pub number: u64,
    /// Whether a packet with a higher number arrived earlier.
    pub late: bool,
}

/// Numbers and acknowledgements of one call, both directions.
#[derive(Debug)]
pub struct Tunnel {
    call_id: u16,
    peer_call_id: u16,
    /// The number of the next packet that we send. The peer's window does not limit how many are in transit: inner
    /// packets have their own congestion control.
    next: u32,
    receiver: Receiver,
    counters: Counters,
}

impl Tunnel {
    /// Creates the tunnel of a call that is up; `window` is our receive window, in packets.
    #[must_use]
    pub fn new(call_id: u16, peer_call_id: u16, window: u16) -> Self {
        Self {
            call_id,
            peer_call_id,
            next: 0,
            receiver: Receiver::new(window),
            counters: Counters::default(),
        }
    }

    /// Takes the payload of an IP packet of protocol 47. `None` if it has no PPP frame.
    pub fn receive(&mut self, bytes: &[u8], now: Instant) -> Option<Received> {
        let Ok(Packet { header, payload }) = Packet::parse(bytes) else {
            self.counters.malformed += 1;
            return None;
        };
        if header.call_id != self.call_id {
            self.counters.other_call += 1;
            return None;
        }
        match self.receiver.receive(header.sequence?, now) {
            Ok((number, late)) => Some(Received {
                payload,
                number,
                late,
            }),
            Err(refusal) => {
                let counter = match refusal {
                    Refusal::Duplicate => &mut self.counters.duplicates,
                    Refusal::TooOld => &mut self.counters.too_old,
                    Refusal::Jump => &mut self.counters.jumps,
                };
                *counter += 1;
                None
            }
        }
    }

    /// The header for a payload, and its length. Includes an acknowledgement if one is pending.
    pub fn header(&mut self, payload: u16) -> ([u8; MAX_HEADER_LEN], usize) {
        let sequence = self.next;
        self.next = sequence.wrapping_add(1);
        Header {
            call_id: self.peer_call_id,
            sequence: Some(sequence),
            acknowledgement: self.receiver.acknowledgement(),
        }
        .write(payload)
    }

    /// A separate acknowledgement, if one is due.
    pub fn expire(&mut self, now: Instant) -> Option<([u8; MAX_HEADER_LEN], usize)> {
        if self.deadline()? > now {
            return None;
        }
        let header = Header {
            call_id: self.peer_call_id,
            sequence: None,
            acknowledgement: Some(self.receiver.acknowledgement()?),
        };
        Some(header.write(0))
    }

    /// When [`expire`](Self::expire) must be called next.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.receiver.deadline()
    }

    /// Our call ID and the peer's.
    #[must_use]
    pub const fn call_ids(&self) -> (u16, u16) {
        (self.call_id, self.peer_call_id)
    }

    /// Counters of the tunnel's packets.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}
