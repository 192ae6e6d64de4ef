//! The Compression Control Protocol; MPPE encryption is one of its options (RFC 1962; RFC 3078, section 2).
//!
//! Each end requests the mode in which it wants to receive. In theory the directions may differ; in practice they are
//! equal. Compression (MPPC) and all other options are refused.

use core::fmt;

use crate::ppp::negotiation::{Layer, Verdict};
use crate::ppp::packet::Option as ConfigOption;
use crate::ppp::protocol;

/// Reset-Request: the receiver has lost synchronisation (RFC 1962, section 3).
pub const RESET_REQUEST: u8 = 14;
/// Reset-Ack: the sender restarts (RFC 1962, section 3).
pub const RESET_ACK: u8 = 15;

const MPPE: u8 = 18;

/// The bits of the MPPE option (RFC 3078, section 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MppeBits(pub u32);

impl MppeBits {
    /// No bits.
    pub const NONE: Self = Self(0);
    /// H: stateless mode, with a key for each packet.
    pub const STATELESS: Self = Self(0x0100_0000);
    /// M: keys of 56 bits.
    pub const KEY_56: Self = Self(0x80);
    /// S: keys of 128 bits.
    pub const KEY_128: Self = Self(0x40);
    /// L: keys of 40 bits.
    pub const KEY_40: Self = Self(0x20);

    /// Keys of 128, 56 and 40 bits, best first.
    const KEYS: [Self; 3] = [Self::KEY_128, Self::KEY_56, Self::KEY_40];

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The longest key length in both sets.
    fn best_key(self, allowed: Self) -> Option<Self> {
        let both = Self(self.0 & allowed.0);
        Self::KEYS.into_iter().find(|&key| both.has(key))
    }
}

impl fmt::Debug for MppeBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MppeBits({:#010x})", self.0)
    }
}

/// The negotiated encryption of both directions.
#[derive(Debug)]
pub struct Ccp {
    /// Allowed key lengths, and the stateless bit.
    allowed: MppeBits,
    /// Whether stateful mode is acceptable, and the bits that we request.
    stateful: bool,
    want: MppeBits,
    peer: MppeBits,
    /// Whether a Nak has already proposed stateless mode to the peer.
    told: bool,
}

impl Ccp {
    /// `allowed` has the key lengths, and [`MppeBits::STATELESS`] if we request it; `stateful` permits stateful mode.
    #[must_use]
    pub fn new(allowed: MppeBits, stateful: bool) -> Self {
        let key = allowed.best_key(allowed).unwrap_or(MppeBits::NONE);
        Self {
            allowed,
            stateful,
            want: key.and(MppeBits(allowed.0 & MppeBits::STATELESS.0)),
            peer: MppeBits::NONE,
            told: false,
        }
    }

    /// The bits for packets from the peer, once the layer is open.
    #[must_use]
    pub const fn receive(&self) -> MppeBits {
        self.want
    }

    /// The bits for packets to the peer, once the layer is open.
    #[must_use]
    pub const fn send(&self) -> MppeBits {
        self.peer
    }

    /// The bits that we accept among those that the peer offers.
    fn choose(&self, offered: MppeBits) -> Option<MppeBits> {
        let key = offered.best_key(self.allowed)?;
        let stateless = if offered.has(MppeBits::STATELESS)
            || !self.stateful
            || (self.allowed.has(MppeBits::STATELESS) && !self.told)
        {
            MppeBits::STATELESS
        } else {
            MppeBits::NONE
        };
        Some(key.and(stateless))
    }
}

impl Layer for Ccp {
    const PROTOCOL: u16 = protocol::CCP;
    const CODES: core::ops::RangeInclusive<u8> = RESET_REQUEST..=RESET_ACK;

    fn request(&self, out: &mut Vec<u8>) {
        let data = &self.want.0.to_be_bytes();
        ConfigOption { kind: MPPE, data }.write(out);
    }

    fn usable(&self) -> bool {
        self.allowed.best_key(self.want).is_some()
    }

    fn naked(&mut self, option: ConfigOption<'_>) -> bool {
        let &[a, b, c, d] = option.data else {
            return option.kind != MPPE;
        };
        if option.kind != MPPE {
            return true;
        }
        let offered = MppeBits(u32::from_be_bytes([a, b, c, d]));
        let Some(key) = offered.best_key(self.allowed) else {
            return false;
        };
        let stateless = offered.has(MppeBits::STATELESS);
        if !stateless && !self.stateful {
            return false;
        }
        self.want = key.and(MppeBits(offered.0 & MppeBits::STATELESS.0));
        true
    }

    fn rejected(&mut self, option: ConfigOption<'_>) -> bool {
        option.kind != MPPE
    }

    fn begin(&mut self) {
        self.peer = MppeBits::NONE;
    }

    fn judge(&mut self, option: ConfigOption<'_>, _last: bool, nak: &mut Vec<u8>) -> Verdict {
        let (MPPE, &[a, b, c, d]) = (option.kind, option.data) else {
            return Verdict::Reject;
        };
        let asked = MppeBits(u32::from_be_bytes([a, b, c, d]));
        let chosen = self.choose(asked).unwrap_or(self.want);
        self.told = true;
        self.peer = asked;
        if chosen == asked {
            return Verdict::Ack;
        }
        // The layer is useless without encryption, so a missing option always gets a Nak.
        ConfigOption {
            kind: MPPE,
            data: &chosen.0.to_be_bytes(),
        }
        .write(nak);
        Verdict::Nak
    }

    fn missing(&mut self, _last: bool, nak: &mut Vec<u8>) {
        if self.peer == MppeBits::NONE && nak.is_empty() {
            self.request(nak);
        }
    }
}
