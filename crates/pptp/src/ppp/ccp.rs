//! The Compression Control Protocol, of which encryption by MPPE is an option (RFC 1962; RFC 3078, section 2).
//!
//! Each end asks for what it wants to receive. The ends may thus differ, in theory; in practice both directions get the
//! same. Compression (MPPC) and what else the option could be is never accepted.

use core::fmt;

use crate::ppp::frame::protocol;
use crate::ppp::negotiation::{Layer, Verdict};
use crate::ppp::packet::Option as ConfigOption;

/// The receiver has lost its place (RFC 1962, section 3).
pub const RESET_REQUEST: u8 = 14;
/// The sender begins anew (RFC 1962, section 3).
pub const RESET_ACK: u8 = 15;

const MPPE: u8 = 18;

/// The bits of the option (RFC 3078, section 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MppeBits(pub u32);

impl MppeBits {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// H: a key for each packet.
    pub const STATELESS: Self = Self(0x0100_0000);
    /// M: keys of 56 bits.
    pub const KEY_56: Self = Self(0x80);
    /// S: keys of 128 bits.
    pub const KEY_128: Self = Self(0x40);
    /// L: keys of 40 bits.
    pub const KEY_40: Self = Self(0x20);
    /// C: compression by MPPC, which is refused.
    pub const MPPC: Self = Self(0x01);

    /// Keys of 128, 56 and 40 bits, best first.
    const KEYS: [Self; 3] = [Self::KEY_128, Self::KEY_56, Self::KEY_40];

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The longest of the keys in both sets.
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

/// The agreement of both ends, or nothing yet.
#[derive(Debug)]
pub struct Ccp {
    /// Keys that may be used.
    allowed: MppeBits,
    /// Whether a key for the whole stream will do, and whether that is what we ask for.
    stateful: bool,
    want: MppeBits,
    peer: MppeBits,
    /// Whether the peer was told that each packet should have a key.
    told: bool,
}

impl Ccp {
    /// `allowed` are keys, and [`MppeBits::STATELESS`] if we ask for it; `stateful` says whether it may go without.
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

    /// How the peer encrypts, once the layer is open.
    #[must_use]
    pub const fn receive(&self) -> MppeBits {
        self.want
    }

    /// How we encrypt, once the layer is open.
    #[must_use]
    pub const fn send(&self) -> MppeBits {
        self.peer
    }

    /// The bits that we would take of those that the peer offers.
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

    fn judge(&mut self, option: ConfigOption<'_>, last: bool, nak: &mut Vec<u8>) -> Verdict {
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
        // Without encryption the layer is of no use, so it is never just rejected.
        let _ = last;
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
