//! Authentication protocols of LCP (RFC 1661, section 6.2; RFC 1994, section 3; RFC 2759, section 3).

use core::fmt;

use crate::ppp::frame::protocol;

/// A protocol by which one end authenticates itself. MS-CHAP version 1 is always refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Auth {
    /// PAP: the password itself goes over the line (RFC 1334).
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
