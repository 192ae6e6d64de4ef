//! Inner addresses: ranges that belong to peers, and addresses of interfaces.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::{AddressError, decimal};

/// A range of inner addresses that belongs to a peer: a network and its prefix length.
///
/// Invariant: bits of `addr` beyond `prefix` are zero and `prefix` fits the family.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AllowedIp {
    addr: IpAddr,
    prefix: u8,
}

impl AllowedIp {
    /// The network that `addr` lies in; host bits are cleared, as the kernel does.
    ///
    /// # Errors
    /// [`AddressError::Prefix`] when `prefix` is above 32 for IPv4 or 128 for IPv6.
    pub fn new(addr: IpAddr, prefix: u8) -> Result<Self, AddressError> {
        if prefix > family_bits(addr) {
            return Err(AddressError::Prefix {
                max: family_bits(addr),
            });
        }
        Ok(Self {
            addr: mask(addr, prefix),
            prefix,
        })
    }

    /// The network address, host bits zero.
    #[must_use]
    pub const fn addr(&self) -> IpAddr {
        self.addr
    }

    /// The prefix length in bits: 0 to 32, or 0 to 128.
    #[must_use]
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// True for `0.0.0.0/0` and `::/0`.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        self.prefix == 0
    }

    /// True when `addr` is in the range; never across families.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.addr.is_ipv4() && mask(addr, self.prefix) == self.addr
    }
}

impl FromStr for AllowedIp {
    type Err = AddressError;

    /// `ADDRESS` or `ADDRESS/PREFIX`; without a prefix the range is the one address.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (addr, prefix) = parse_cidr(text)?;
        Self::new(addr, prefix)
    }
}

impl fmt::Display for AllowedIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.prefix)
    }
}

/// An address of an interface with its prefix length; host bits are kept.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct InterfaceAddr {
    /// Address without its prefix length.
    pub addr: IpAddr,
    /// Length of the on-link prefix in bits.
    pub prefix: u8,
}

impl FromStr for InterfaceAddr {
    type Err = AddressError;

    /// `ADDRESS` or `ADDRESS/PREFIX`; without a prefix it is 32 or 128, as `ip address` does.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (addr, prefix) = parse_cidr(text)?;
        Ok(Self { addr, prefix })
    }
}

impl fmt::Display for InterfaceAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.prefix)
    }
}

/// Bits in an address of this family: 32 or 128.
#[must_use]
pub const fn family_bits(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn mask(addr: IpAddr, prefix: u8) -> IpAddr {
    // `checked_shl` is None exactly for a prefix of zero, whose mask is empty.
    match addr {
        IpAddr::V4(v4) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(prefix.min(32)))
                .unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(prefix.min(128)))
                .unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), AddressError> {
    let (addr, prefix) = match text.split_once('/') {
        Some((addr, prefix)) => (addr, Some(prefix)),
        None => (text, None),
    };
    let addr: IpAddr = addr.parse().map_err(|_| AddressError::Address)?;
    let max = family_bits(addr);
    let prefix = match prefix {
        None => max,
        Some(digits) => decimal(digits)
            .filter(|&n| n <= u64::from(max))
            .and_then(|n| u8::try_from(n).ok())
            .ok_or(AddressError::Prefix { max })?,
    };
    Ok((addr, prefix))
}
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_is_masked_to_its_network() {
        let shown = |text: &str| text.parse::<AllowedIp>().unwrap().to_string();
        assert_eq!(shown("10.192.124.1/24"), "10.192.124.0/24");
        assert_eq!(shown("10.0.0.1"), "10.0.0.1/32");
        assert_eq!(shown("1.2.3.4/0"), "0.0.0.0/0");
        assert_eq!(shown("fd00::1"), "fd00::1/128");
        assert_eq!(shown("fd00::1/0"), "::/0");
        assert_eq!(shown("fd00:1:2:3::1/64"), "fd00:1:2:3::/64");
        for text in [
            "",
            "/",
            "10.0.0.1/",
            "10.0.0.1/33",
            "::/129",
            "10.0.0.1/+8",
            "10.0.0.1/8/8",
        ] {
            assert!(text.parse::<AllowedIp>().is_err(), "{text}");
        }
        let range: AllowedIp = "10.0.0.0/8".parse().unwrap();
        assert!(range.contains("10.1.2.3".parse().unwrap()));
        assert!(!range.contains("11.1.2.3".parse().unwrap()));
        assert!(!range.contains("::a01:203".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn any_range_goes_round(addr in any::<IpAddr>(), prefix in 0u8..=128) {
            let prefix = prefix % (family_bits(addr) + 1);
            let range = AllowedIp::new(addr, prefix).unwrap();
            prop_assert!(range.contains(addr));
            prop_assert_eq!(range.to_string().parse::<AllowedIp>().unwrap(), range);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = text.parse::<AllowedIp>();
            let _ = text.parse::<InterfaceAddr>();
        }
    }
}
