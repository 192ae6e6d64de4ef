//! Enhanced GRE, which carries the frames of PPP (RFC 2637, section 4), and the tunnel of one call.
//!
//! GRE authenticates nothing: anyone who can send from the peer's address can inject packets. Refused packets are
//! counted, see [`Counters`].

mod header;
mod receiver;
mod sender;

use core::ops::Range;
use std::net::Ipv4Addr;
use std::time::Instant;

pub use header::{Header, HeaderError, MAX_HEADER_LEN, PROTOCOL, Packet};
pub use receiver::{ACK_DELAY, Arrival, MAX_JUMP, Receiver, Refusal};
pub use sender::{BadAcknowledgement, Sender};

/// Both addresses of GRE packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The peer's address.
    pub theirs: Ipv4Addr,
    /// Our address that the peer called; `None` for any.
    pub ours: Option<Ipv4Addr>,
}

impl From<Ipv4Addr> for Ends {
    fn from(theirs: Ipv4Addr) -> Self {
        Self { theirs, ours: None }
    }
}

/// Counters of one call's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets with a payload that were accepted.
    pub received: u64,
    /// Acknowledgements without a payload.
    pub acknowledgements: u64,
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
    /// Packets accepted after one with a higher number.
    pub late: u64,
    /// Numbers that were skipped, including those that arrived late.
    pub missing: u64,
    /// Acknowledgements of packets that were never sent.
    pub bad_acknowledgements: u64,
}

/// An accepted payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The payload's range in the packet.
    pub payload: Range<usize>,
    /// The packet's number, which does not wrap.
    pub number: u64,
    /// The packet's position relative to the others.
    pub arrival: Arrival,
}

/// Numbers and acknowledgements of one call, both directions.
#[derive(Debug)]
pub struct Tunnel {
    call_id: u16,
    peer_call_id: u16,
    sender: Sender,
    receiver: Receiver,
    counters: Counters,
}

impl Tunnel {
    /// Creates the tunnel of a call that is up; `window` is our receive window, `peer_window` the peer's.
    #[must_use]
    pub fn new(call_id: u16, peer_call_id: u16, window: u16, peer_window: u16) -> Self {
        Self {
            call_id,
            peer_call_id,
            sender: Sender::new(peer_window),
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
        if let Some(number) = header.acknowledgement
            && self.sender.acknowledged(number, now).is_err()
        {
            self.counters.bad_acknowledgements += 1;
        }
        let Some(sequence) = header.sequence else {
            self.counters.acknowledgements += 1;
            return None;
        };
        match self.receiver.receive(sequence, now) {
            Ok((number, arrival)) => {
                self.counters.received += 1;
                match arrival {
                    Arrival::InOrder => {}
                    Arrival::Ahead(missing) => self.counters.missing += missing,
                    Arrival::Late => self.counters.late += 1,
                }
                Some(Received {
                    payload,
                    number,
                    arrival,
                })
            }
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

    /// The header for a payload sent now, and its length. Includes an acknowledgement if one is pending.
    pub fn header(&mut self, payload: u16, now: Instant) -> ([u8; MAX_HEADER_LEN], usize) {
        Header {
            call_id: self.peer_call_id,
            sequence: Some(self.sender.number(now)),
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

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The sending state.
    #[must_use]
    pub const fn sender(&self) -> &Sender {
        &self.sender
    }
}
