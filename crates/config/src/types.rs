//! Small types shared by all configuration formats of WireGuard: keys, allowed
//! address ranges, endpoints, interface names.

use thiserror::Error;

mod address;
mod endpoint;
mod key;

pub use address::{AllowedIp, InterfaceAddr, family_bits};
pub use endpoint::{Endpoint, Host};
pub use key::{KEY_BASE64_LEN, KEY_HEX_LEN, KEY_LEN, Key32, KeyError, Secret, short_key};

/// Longest interface name that Linux takes (`IFNAMSIZ` without its NUL), in bytes.
pub const IFNAME_MAX: usize = 15;

/// Whether a text is a domain name in its plain form (RFC 1035, section 2.3.1, plus the underscore of service names):
/// at most 253 characters, no dot at either end.
#[must_use]
pub fn is_domain(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_".contains(&c);
    let label = |it: &str| (1..64).contains(&it.len()) && it.bytes().all(plain);
    text.len() <= 253 && text.split('.').all(label)
}

/// Why a text is not an address, a range or an endpoint.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AddressError {
    /// The text is not an IPv4 or IPv6 address.
    #[error("not an IP address; write for example 10.0.0.1/24 or fd00::1/64")]
    Address,
    /// A prefix length that is not a number, or exceeds the family's size.
    #[error("the prefix length must be a number from 0 to {max}")]
    Prefix {
        /// The family's longest prefix.
        max: u8,
    },
    /// An endpoint without `:port`.
    #[error("the port is missing; write HOST:PORT, and [ADDRESS]:PORT for IPv6")]
    NoPort,
    /// A port that is not a number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// An IPv6 address without brackets.
    #[error("write an IPv6 address in brackets: [ADDRESS]:PORT")]
    Brackets,
    /// A host name with invalid characters.
    #[error("not a host name; use at most 253 letters, digits, `-`, `_` and `.`")]
    HostName,
    /// An IPv6 zone (`%eth0`) that is empty, or on an address that is not IPv6.
    #[error("the zone after `%` must be an interface name or number on an IPv6 address")]
    Zone,
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
/// Parses digits only: `str::parse` would also take a leading `+`, which no WireGuard tool does.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names() {
        assert!(is_ifname("wg0") && is_ifname("a_b=c+d.e-f"));
        for name in ["", ".", "..", "a b", "a/b", "sixteen-letters-"] {
            assert!(!is_ifname(name), "{name}");
        }
    }
}
