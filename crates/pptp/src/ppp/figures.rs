//! Calculates the MTU and MSS of a link.

use crate::gre::MAX_HEADER_LEN;
use crate::mppe::OVERHEAD;

/// Bytes of an outer IPv4 header.
const OUTER: u16 = 20;

/// The values that the MTU depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The longest IP packet that the path to the peer carries.
    pub path_mtu: u16,
    /// The longest information field that the peer accepts (RFC 1661, section 6.1).
    pub peer_mru: u16,
    /// The longest information field that we accept.
    pub our_mru: u16,
    /// Whether packets are encrypted.
    pub mppe: bool,
}

/// The longest inner packet in bytes. It must fit the path after IP, GRE with both numbers and an unshortened frame,
/// and both ends' MRUs. Encryption costs 4 bytes of the information field.
#[must_use]
pub fn mtu(figures: Figures) -> u16 {
    // Both constants are a few bytes, so the casts are exact.
    let around = OUTER + MAX_HEADER_LEN as u16 + 4;
    let inside = if figures.mppe { OVERHEAD as u16 } else { 0 };
    figures
        .path_mtu
        .saturating_sub(around)
        .min(figures.peer_mru)
        .min(figures.our_mru)
        .saturating_sub(inside)
}

/// The longest TCP segments in packets of `mtu` bytes without options, for IPv4 and for IPv6.
#[must_use]
pub const fn mss(mtu: u16) -> (u16, u16) {
    (mtu.saturating_sub(40), mtu.saturating_sub(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_ethernet_the_path_decides_between_stock_peers() {
        let figures = Figures {
            path_mtu: 1500,
            peer_mru: 1500,
            our_mru: 1500,
            mppe: true,
        };
        // 20 IP, 16 GRE, 4 PPP, 2 MPPE, 2 inner protocol.
        assert_eq!(mtu(figures), 1456);
        assert_eq!(
            mtu(Figures {
                mppe: false,
                ..figures
            }),
            1460
        );
        assert_eq!(mss(1456), (1416, 1396));
    }

    #[test]
    fn the_smaller_mru_decides_where_the_path_does_not() {
        let figures = Figures {
            path_mtu: 1500,
            peer_mru: 1400,
            our_mru: 1420,
            mppe: true,
        };
        assert_eq!(mtu(figures), 1396);
        assert_eq!(
            mtu(Figures {
                path_mtu: 0,
                ..figures
            }),
            0
        );
    }
}
