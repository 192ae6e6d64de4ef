//! The small types that every way of configuring WireGuard shares: keys, allowed
//! address ranges, endpoints, interface names.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;
use zeroize::{Zeroize as _, ZeroizeOnDrop, Zeroizing};

/// Length of every WireGuard key (private, public, preshared) in bytes.
pub const KEY_LEN: usize = 32;

/// Length of a key in base64, its `=` included, in characters.
pub const KEY_BASE64_LEN: usize = 44;

/// Length of a key in hexadecimal, in characters.
pub const KEY_HEX_LEN: usize = 64;

/// Longest interface name that Linux takes (`IFNAMSIZ` without its NUL), in bytes.
pub const IFNAME_MAX: usize = 15;

/// A 32-byte key: private, public or preshared.
///
/// The bytes are overwritten when the value is dropped. `Debug` never shows them, because one
/// type serves secrets as well as public keys; whoever wants to show a public key says so with
/// [`Key32::to_base64`].
#[derive(Clone, Default)]
pub struct Key32([u8; KEY_LEN]);

impl Key32 {
    /// Takes the 32 raw bytes.
    #[must_use]
    pub const fn new(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Reads the 44-character base64 form that `wg` prints and `.conf` files hold.
    ///
    /// # Errors
    /// [`KeyError`] when the text is not exactly one 32-byte key in canonical base64.
    pub fn from_base64(text: &str) -> Result<Self, KeyError> {
        if text.len() != KEY_BASE64_LEN {
            return Err(KeyError::Length {
                found: text.len(),
                wanted: KEY_BASE64_LEN,
            });
        }
        // One byte more than a key: the decoder estimates from the length, padding included.
        let mut bytes = Zeroizing::new([0; KEY_LEN + 1]);
        match STANDARD.decode_slice(text, bytes.as_mut_slice()) {
            Ok(KEY_LEN) => {}
            _ => return Err(KeyError::Base64),
        }
        let mut key = Self::default();
        key.0.copy_from_slice(&bytes[..KEY_LEN]);
        Ok(key)
    }

    /// Reads the 64-digit hexadecimal form of the UAPI, in either case.
    ///
    /// # Errors
    /// [`KeyError`] when the text is not exactly 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let digits = text.as_bytes();
        if digits.len() != KEY_HEX_LEN {
            return Err(KeyError::Length {
                found: digits.len(),
                wanted: KEY_HEX_LEN,
            });
        }
        let mut key = Self::default();
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Ok(key)
    }

    /// The base64 form; the text is overwritten when dropped, as it may be a secret.
    #[must_use]
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.0))
    }

    /// The lower-case hexadecimal form; the text is overwritten when dropped.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(KEY_HEX_LEN));
        for byte in self.0 {
            for digit in [byte >> 4, byte & 0xf] {
                text.push(char::from(if digit < 10 {
                    b'0' + digit
                } else {
                    b'a' + digit - 10
                }));
            }
        }
        text
    }

    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// True for the all-zero key, which stands for "no key" in every WireGuard interface.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.iter().fold(0, |all, byte| all | byte) == 0
    }
}

impl Drop for Key32 {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Key32 {}

impl PartialEq for Key32 {
    /// Looks at all bytes whatever the first ones are, so that the time says nothing of a secret.
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |d, (a, b)| d | (a ^ b));
        differing == 0
    }
}

impl Eq for Key32 {}

impl Hash for Key32 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl From<[u8; KEY_LEN]> for Key32 {
    fn from(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Key32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key32(hidden)")
    }
}

fn hex_digit(digit: u8) -> Result<u8, KeyError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(KeyError::Hex),
    }
}

/// Why a text is not a key. Never repeats the text: it may be most of a secret.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum KeyError {
    /// Too long or too short.
    #[error("a key has {wanted} characters here, this has {found}; copy the whole key")]
    Length {
        /// Length of the text in bytes.
        found: usize,
        /// Length it should have.
        wanted: usize,
    },
    /// Not base64, or base64 with stray bits at its end.
    #[error("not a base64 key; `wg genkey` and `wg pubkey` print one that is")]
    Base64,
    /// Not hexadecimal.
    #[error("not a hexadecimal key of 64 digits")]
    Hex,
}

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
    /// The address itself.
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

/// Digits only: `str::parse` would also take a leading `+`, which no WireGuard tool does.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Why a text is not an address, a range or an endpoint.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AddressError {
    /// Not an IPv4 or IPv6 address.
    #[error("not an IP address; write for example 10.0.0.1/24 or fd00::1/64")]
    Address,
    /// A prefix length that is no number or beyond the family's size.
    #[error("the prefix length must be a number from 0 to {max}")]
    Prefix {
        /// The family's longest prefix.
        max: u8,
    },
    /// No `:port`.
    #[error("the port is missing; write HOST:PORT, and [ADDRESS]:PORT for IPv6")]
    NoPort,
    /// A port that is no number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// An IPv6 address without its brackets.
    #[error("write an IPv6 address in brackets: [ADDRESS]:PORT")]
    Brackets,
    /// A host name with characters that no host name has.
    #[error("not a host name: letters, digits, `-`, `_` and `.` only, at most 253 of them")]
    HostName,
    /// An IPv6 zone (`%eth0`) that is empty, or on an address that is no IPv6 address.
    #[error("the zone after `%` must be an interface name or number on an IPv6 address")]
    Zone,
}

/// Where a peer is reached: an address or a name to look up, and a UDP port.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Endpoint {
    /// Address or name.
    pub host: Host,
    /// UDP port, never zero.
    pub port: u16,
}

/// The host part of an [`Endpoint`].
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A link-local address with the interface (name or index) that it is valid on.
    Scoped(Ipv6Addr, String),
    /// A name that the resolver has to look up.
    Name(String),
}

impl Endpoint {
    /// The socket address when nothing has to be looked up: an address without a zone, or with
    /// a numeric one.
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match &self.host {
            Host::Ip(addr) => Some(SocketAddr::new(*addr, self.port)),
            Host::Scoped(addr, zone) => {
                let scope = u32::try_from(decimal(zone)?).ok()?;
                Some(SocketAddrV6::new(*addr, self.port, 0, scope).into())
            }
            Host::Name(_) => None,
        }
    }
}

impl FromStr for Endpoint {
    type Err = AddressError;

    /// `IPV4:PORT`, `[IPV6]:PORT`, `[IPV6%ZONE]:PORT` or `NAME:PORT`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, port) = rest.split_once(']').ok_or(AddressError::Brackets)?;
            let port = port.strip_prefix(':').ok_or(AddressError::NoPort)?;
            (bracketed_host(host)?, port)
        } else {
            let (host, port) = text.rsplit_once(':').ok_or(AddressError::NoPort)?;
            if host.contains(':') {
                return Err(AddressError::Brackets);
            }
            (plain_host(host)?, port)
        };
        let port = decimal(port)
            .and_then(|n| u16::try_from(n).ok())
            .filter(|&n| n != 0)
            .ok_or(AddressError::Port)?;
        Ok(Self { host, port })
    }
}

fn bracketed_host(host: &str) -> Result<Host, AddressError> {
    let (addr, zone) = match host.split_once('%') {
        Some((addr, zone)) => (addr, Some(zone)),
        None => (host, None),
    };
    let Some(zone) = zone else {
        return host
            .parse()
            .map(Host::Ip)
            .map_err(|_| AddressError::Address);
    };
    let addr = addr.parse().map_err(|_| AddressError::Zone)?;
    if !is_ifname(zone) {
        return Err(AddressError::Zone);
    }
    Ok(Host::Scoped(addr, zone.to_owned()))
}

fn plain_host(host: &str) -> Result<Host, AddressError> {
    if let Ok(addr) = host.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(addr.into()));
    }
    let fits = !host.is_empty()
        && host.len() <= 253
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !fits {
        return Err(AddressError::HostName);
    }
    // Digits and dots alone are a mistyped address: no resolver may turn them into another one.
    if host.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(AddressError::Address);
    }
    Ok(Host::Name(host.to_owned()))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(addr)) => write!(f, "[{addr}]:{}", self.port),
            Host::Ip(IpAddr::V4(addr)) => write!(f, "{addr}:{}", self.port),
            Host::Scoped(addr, zone) => write!(f, "[{addr}%{zone}]:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// True when `name` is an interface name as `wg-quick` takes it: 1 to 15 characters out of
/// letters, digits and `_=+.-`, and neither `.` nor `..`, which the kernel refuses.
#[must_use]
pub fn is_ifname(name: &str) -> bool {
    (1..=IFNAME_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'=' | b'+' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_keeps_its_value_and_hides_it() {
        let text = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
        let key = Key32::from_base64(text).unwrap();
        assert_eq!(key.to_base64().as_str(), text);
        assert_eq!(Key32::from_hex(&key.to_hex()).unwrap(), key);
        assert_eq!(format!("{key:?}"), "Key32(hidden)");
        assert!(!key.is_zero());
        assert!(Key32::default().is_zero());
    }

    #[test]
    fn keys_of_another_shape_are_refused() {
        // Too short; bad digit; no padding; stray bits in the last digit.
        for text in [
            "",
            "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk",
            "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBm*=",
            "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBml=",
            "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmkA",
        ] {
            assert!(Key32::from_base64(text).is_err(), "{text}");
        }
        assert!(Key32::from_hex(&"g".repeat(64)).is_err());
        assert!(Key32::from_hex(&"0".repeat(63)).is_err());
        assert!(Key32::from_hex(&"é".repeat(32)).is_err());
    }

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

    #[test]
    fn endpoints_of_every_form() {
        for text in [
            "192.95.5.67:1234",
            "[2607:5300:60:6b0::c05f:543]:2468",
            "[fe80::1%eth0]:51820",
            "test.wireguard.com:18981",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        let scoped: Endpoint = "[fe80::1%3]:1".parse().unwrap();
        assert_eq!(scoped.socket_addr(), Some("[fe80::1%3]:1".parse().unwrap()));
        let cases = [
            ("1.2.3.4", AddressError::NoPort),
            ("1.2.3.4:0", AddressError::Port),
            ("1.2.3.4:65536", AddressError::Port),
            ("1.2.3.4:+1", AddressError::Port),
            ("1.2.3.400:1", AddressError::Address),
            ("fd00::1:51820", AddressError::Brackets),
            ("[fd00::1]", AddressError::NoPort),
            ("[fd00::1:51820", AddressError::Brackets),
            ("[fe80::1%]:1", AddressError::Zone),
            ("[1.2.3.4%eth0]:1", AddressError::Zone),
            (":51820", AddressError::HostName),
            ("a b:51820", AddressError::HostName),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Endpoint>(), Err(error), "{text}");
        }
    }

    #[test]
    fn interface_names() {
        assert!(is_ifname("wg0") && is_ifname("a_b=c+d.e-f"));
        for name in ["", ".", "..", "a b", "a/b", "sixteen-letters-"] {
            assert!(!is_ifname(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_key_goes_round(bytes in any::<[u8; KEY_LEN]>()) {
            let key = Key32::new(bytes);
            prop_assert_eq!(&Key32::from_base64(&key.to_base64()).unwrap(), &key);
            prop_assert_eq!(&Key32::from_hex(&key.to_hex()).unwrap(), &key);
        }

        #[test]
        fn any_range_goes_round(addr in any::<IpAddr>(), prefix in 0u8..=128) {
            prop_assume!(prefix <= family_bits(addr));
            let range = AllowedIp::new(addr, prefix).unwrap();
            prop_assert!(range.contains(addr));
            prop_assert_eq!(range.to_string().parse::<AllowedIp>().unwrap(), range);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = text.parse::<AllowedIp>();
            let _ = text.parse::<Endpoint>();
            let _ = Key32::from_base64(&text);
            let _ = Key32::from_hex(&text);
        }

        #[test]
        fn a_parsed_endpoint_goes_round(text in "[\\[\\]0-9a-f:.%-]{1,40}") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
            }
        }
    }
}
