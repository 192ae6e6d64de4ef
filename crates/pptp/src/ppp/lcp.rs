//! The options of the Link Control Protocol (RFC 1661, section 6), and its authentication protocols (RFC 1994, section
//! 3; RFC 2759, section 3).

use crate::ppp::negotiation::{Layer, Verdict};
use crate::ppp::packet::Option as ConfigOption;
use crate::ppp::protocol;
use core::fmt;

/// LCP's codes beyond those of all layers (RFC 1661, section 5; RFC 1570, section 2).
pub mod code {
    /// Protocol-Reject: the peer does not have a protocol.
    pub const PROTOCOL_REJECT: u8 = 8;
    /// Echo-Request: asks whether the peer is alive.
    pub const ECHO_REQUEST: u8 = 9;
    /// Echo-Reply.
    pub const ECHO_REPLY: u8 = 10;
    /// Time-Remaining: how long the peer allows the link to last. Ignored, as are codes 11 (Discard-Request) and 12
    /// (Identification).
    pub const TIME_REMAINING: u8 = 13;
}

const MRU: u8 = 1;
const ACCM: u8 = 2;
const AUTH: u8 = 3;
const MAGIC: u8 = 5;
const PFC: u8 = 7;
const ACFC: u8 = 8;

/// The MRU of a peer that names none (RFC 1661, section 6.1), and the smallest useful MRU.
pub(crate) const DEFAULT_MRU: u16 = 1500;
const MIN_MRU: u16 = 128;

/// Our settings for LCP.
#[derive(Clone, Debug)]
pub struct LcpSettings {
    /// The longest information field that we want to receive.
    pub mru: u16,
    /// How the peer must authenticate itself, best first; empty if it need not.
    pub require: Vec<Auth>,
    /// How we are ready to authenticate ourselves, best first.
    pub accept: Vec<Auth>,
    /// The seed of our magic numbers: a random number.
    pub seed: u64,
}

/// The options of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// The longest information field that the end accepts.
    pub mru: u16,
    /// The end's magic number; 0 for none.
    pub magic: u32,
    /// How the other end must authenticate itself.
    pub auth: Option<Auth>,
    /// Whether the end accepts frames without address and control fields.
    pub acfc: bool,
    /// Whether the end accepts protocol fields of one byte.
    pub pfc: bool,
}

const NOTHING: LinkOptions = LinkOptions {
    mru: DEFAULT_MRU,
    magic: 0,
    auth: None,
    acfc: false,
    pfc: false,
};

/// The options of both ends.
#[derive(Debug)]
pub struct Lcp {
    ours: LinkOptions,
    accm: bool,
    peer: LinkOptions,
    require: Vec<Auth>,
    accept: Vec<Auth>,
    random: u64,
}

impl Lcp {
    /// The options before any request.
    #[must_use]
    pub fn new(settings: LcpSettings) -> Self {
        let mut random = settings.seed;
        Self {
            ours: LinkOptions {
                mru: settings.mru,
                magic: magic(&mut random),
                auth: settings.require.first().copied(),
                acfc: true,
                pfc: true,
            },
            accm: true,
            peer: NOTHING,
            require: settings.require,
            accept: settings.accept,
            random,
        }
    }

    /// The options that we have requested.
    #[must_use]
    pub const fn ours(&self) -> &LinkOptions {
        &self.ours
    }

    /// The options that the peer has requested.
    #[must_use]
    pub const fn peer(&self) -> &LinkOptions {
        &self.peer
    }

    /// The next login protocol that the peer may use, if it proposes `value`.
    fn instead(&self, value: &[u8]) -> Option<Auth> {
        let proposed = Auth::parse(value).filter(|auth| self.require.contains(auth));
        proposed.or_else(|| {
            let refused = self
                .require
                .iter()
                .position(|&auth| Some(auth) == self.ours.auth)?;
            self.require.get(refused + 1).copied()
        })
    }
}

impl Layer for Lcp {
    const PROTOCOL: u16 = protocol::LCP;
    const CODES: core::ops::RangeInclusive<u8> = code::PROTOCOL_REJECT..=code::TIME_REMAINING;

    fn request(&self, out: &mut Vec<u8>) {
        let mut put = |kind, data: &[u8]| ConfigOption { kind, data }.write(out);
        if self.ours.mru != DEFAULT_MRU {
            put(MRU, &self.ours.mru.to_be_bytes());
        }
        if self.accm {
            // GRE packets carry all byte values, so no characters need escaping.
            put(ACCM, &[0; 4]);
        }
        if let Some(auth) = self.ours.auth {
            put(AUTH, auth.option());
        }
        if self.ours.magic != 0 {
            put(MAGIC, &self.ours.magic.to_be_bytes());
        }
        if self.ours.pfc {
            put(PFC, &[]);
        }
        if self.ours.acfc {
            put(ACFC, &[]);
        }
    }

    fn naked(&mut self, option: ConfigOption<'_>) -> bool {
        match (option.kind, option.data) {
            // A proposed MRU is capped at ours: a larger one is unnecessary, since peers may send less.
            (MRU, &[high, low]) => {
                let mru = u16::from_be_bytes([high, low]).min(self.ours.mru);
                self.ours.mru = mru.max(MIN_MRU);
            }
            (AUTH, value) if self.ours.auth.is_some() => {
                self.ours.auth = self.instead(value);
                return self.ours.auth.is_some();
            }
            (MAGIC, _) => self.ours.magic = magic(&mut self.random),
            (ACCM, _) => self.accm = false,
            (PFC, _) => self.ours.pfc = false,
            (ACFC, _) => self.ours.acfc = false,
            _ => {}
        }
        true
    }

    fn rejected(&mut self, option: ConfigOption<'_>) -> bool {
        match option.kind {
            MRU => self.ours.mru = DEFAULT_MRU,
            ACCM => self.accm = false,
            AUTH => return self.ours.auth.is_none(),
            MAGIC => self.ours.magic = 0,
            PFC => self.ours.pfc = false,
            ACFC => self.ours.acfc = false,
            _ => {}
        }
        true
    }

    fn begin(&mut self) {
        self.peer = NOTHING;
    }

    fn judge(&mut self, option: ConfigOption<'_>, last: bool, nak: &mut Vec<u8>) -> Verdict {
        match (option.kind, option.data) {
            (MRU, &[high, low]) => {
                let mru = u16::from_be_bytes([high, low]);
                if mru < MIN_MRU {
                    let data = &MIN_MRU.to_be_bytes();
                    return other(MRU, data, last, nak);
                }
                self.peer.mru = mru;
                Verdict::Ack
            }
            (ACCM, &[_, _, _, _]) => Verdict::Ack,
            (AUTH, value) => {
                let Some(&best) = self.accept.first() else {
                    return Verdict::Reject;
                };
                match Auth::parse(value).filter(|auth| self.accept.contains(auth)) {
                    Some(auth) => {
                        self.peer.auth = Some(auth);
                        Verdict::Ack
                    }
                    // The peer proposes another protocol, such as MS-CHAP version 1.
                    None => other(AUTH, best.option(), last, nak),
                }
            }
            (MAGIC, &[a, b, c, d]) => {
                let number = u32::from_be_bytes([a, b, c, d]);
                if number != 0 && number == self.ours.magic {
                    // Our own request has come back, or both ends chose the same number (RFC 1661, section 6.4).
                    let data = magic(&mut self.random).to_be_bytes();
                    return other(MAGIC, &data, last, nak);
                }
                self.peer.magic = number;
                Verdict::Ack
            }
            (PFC, &[]) => {
                self.peer.pfc = true;
                Verdict::Ack
            }
            (ACFC, &[]) => {
                self.peer.acfc = true;
                Verdict::Ack
            }
            // Other options, such as quality reports, callback and multilink, are rejected.
            _ => Verdict::Reject,
        }
    }

    fn missing(&mut self, _last: bool, _nak: &mut Vec<u8>) {}
}

/// Proposes another value; if `last`, rejects the option instead.
pub(super) fn other(kind: u8, data: &[u8], last: bool, nak: &mut Vec<u8>) -> Verdict {
    if last {
        return Verdict::Reject;
    }
    ConfigOption { kind, data }.write(nak);
    Verdict::Nak
}

/// The next pseudo-random number (SplitMix64); never 0. Magic numbers differ between hosts but need not be secret.
fn magic(state: &mut u64) -> u32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // Returns the upper half.
    (((z ^ (z >> 31)) >> 32) as u32).max(1)
}

/// A protocol by which one end authenticates itself. MS-CHAP version 1 is always refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Auth {
    /// PAP: the password itself is sent (RFC 1334).
    Pap,
    /// CHAP with MD5 (RFC 1994).
    ChapMd5,
    /// MS-CHAP version 2 (RFC 2759), the only one that gives keys for MPPE.
    MsChapV2,
}

impl Auth {
    /// The protocol's value in LCP's option 3.
    #[must_use]
    pub const fn option(self) -> &'static [u8] {
        match self {
            Self::Pap => &[0xc0, 0x23],
            Self::ChapMd5 => &[0xc2, 0x23, 5],
            Self::MsChapV2 => &[0xc2, 0x23, 0x81],
        }
    }

    /// The protocol in a value of LCP's option 3; `None` if unsupported, such as MS-CHAP version 1.
    /// version 1.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        [Self::Pap, Self::ChapMd5, Self::MsChapV2]
            .into_iter()
            .find(|auth| auth.option() == value)
    }

    /// The PPP protocol number of its frames.
    #[must_use]
    pub const fn protocol(self) -> u16 {
        match self {
            Self::Pap => protocol::PAP,
            Self::ChapMd5 | Self::MsChapV2 => protocol::CHAP,
        }
    }
}

impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pap => "PAP",
            Self::ChapMd5 => "CHAP",
            Self::MsChapV2 => "MS-CHAPv2",
        })
    }
}
