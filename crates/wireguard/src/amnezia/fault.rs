//! Faults of settings, which other ends or this one could not work with, and hints about values that give a tunnel
//! away.

use super::{COMMON_PATH, JUNK_MAX, PACKET_MAX, PREFIX_MAX};

/// Why a value, or the values together, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The text is neither a number nor a range that the key may have.
    #[error("must be a number or a range such as `10-20`, within what the key may have")]
    Range,
    /// A range ends before it begins.
    #[error("the range ends before it begins; write the lesser number first")]
    Backwards,
    /// A time or count could be drawn as 0.
    #[error("the range must begin above 0; 0 alone stands for WireGuard's value")]
    Zero,
    /// The text is not a number, or the number is too great for the key.
    #[error("must be a number from 0 to {0}")]
    Number(u64),
    /// The text is neither `on` nor `off`.
    #[error("must be `on` or `off`")]
    Switch,
    /// The text is no key in base64 or hexadecimal.
    #[error("must be a key of 32 bytes; copy it from the other end's file")]
    Key,
    /// A tag has no end.
    #[error("a tag lacks its `>`; complete it")]
    Unclosed,
    /// A tag is unknown.
    #[error("unknown tag; use <b 0xHEX>, <r N>, <rc N>, <rd N>, <t> and <c>")]
    Tag,
    /// A tag has no bytes in hexadecimal.
    #[error("the tag `b` needs hexadecimal digits, such as <b 0xc0ffee>")]
    Hex,
    /// A tag has no length.
    #[error("the tag needs a length from 0 to {PACKET_MAX}, such as <r 16>")]
    Length,
    /// The packet has no bytes.
    #[error("the packet has no bytes; remove the key, or add a tag such as <r 16>")]
    Empty,
    /// The packet does not fit into a datagram.
    #[error("the packet is longer than the {PACKET_MAX} bytes of a datagram; shorten it")]
    Long,
    /// No setting has this name.
    #[error("unknown key")]
    Name,
    /// Two types share numbers.
    #[error("H{0} and H{1} overlap; choose ranges that have no number in common")]
    Overlap(usize, usize),
    /// A prefix is too short for the nonce of the header protection.
    #[error("S{0} is below the 12 bytes that HeaderProtectionKey needs; raise it at both ends")]
    ShortPrefix(usize),
    /// The least length is above the greatest.
    #[error("Jmin is above Jmax; exchange them")]
    JunkLengths,
    /// The keys of a session would be renewed after they have expired.
    #[error(
        "RejectAfterTime must exceed KeepaliveTimeout and RekeyTimeout together; raise it to {0} or more"
    )]
    Expiry(u32),
}

impl Fault {
    pub(super) const PREFIX: Self = Self::Number(PREFIX_MAX as u64);
    pub(super) const JUNK: Self = Self::Number(JUNK_MAX as u64);
}

/// A value that works but has no effect, gives the tunnel away or costs packets. The words after "; " are the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hint {
    /// The types are WireGuard's own, and visible.
    #[error(
        "H1-H4 are WireGuard's own and visible, so filters see WireGuard; set others, or a HeaderProtectionKey, at \
         both ends"
    )]
    Types,
    /// Some types are WireGuard's own, and visible.
    #[error(
        "a value of H1-H4 is one of WireGuard's 1 to 4: filters see it, and programs of 1.0 and 1.5 take it for \"not \
         set\"; set another at both ends"
    )]
    OneType,
    /// Datagrams of two types have the same length.
    #[error(
        "{0} and {1} datagrams have the same length, which peers of 1.0 and 1.5 refuse; set another size at both ends"
    )]
    Lengths(&'static str, &'static str),
    /// A data packet is taken for a handshake message more often than once in 100,000.
    #[error(
        "H1-H3 are wide and RandomTrailers is on: other programs than Millrace lose data packets; narrow them"
    )]
    Wide,
    /// The packet is longer than most paths carry.
    #[error(
        "{0} makes datagrams of up to {1} bytes, which most paths fragment or drop; shorten it"
    )]
    Long(&'static str, usize),
    /// Random packets are not as long as `Jmax` allows.
    #[error(
        "Jmax is {0}, but random packets get the {COMMON_PATH} bytes that most paths carry at most; lower it"
    )]
    Cut(u16),
    /// A data packet of the interface's MTU is longer than most paths carry.
    #[error("S4 = {0} needs an MTU of at most {1} on common paths; lower MTU or S4")]
    Mtu(u16, u32),
    /// The packet is the same each time.
    #[error("{0} is the same each time, which filters can learn; add <r N>")]
    Constant(&'static str),
    /// The packet is the default of Amnezia's apps.
    #[error(
        "{0} is the default of Amnezia's apps, which filters know; write another, which the other end need not have"
    )]
    Known(&'static str),
    /// Junk has no effect.
    #[error("Jc is 0, so Jmin and Jmax have no effect; set Jc, or remove them")]
    NoJunk,
}
