//! Endpoints: addresses or names of peers, with a UDP port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use super::{AddressError, decimal, is_ifname};

/// Where a peer is reached: an address or a name to resolve, and a UDP port.
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
    /// A name to resolve.
    Name(String),
}

impl Endpoint {
    /// The socket address, if no name has to be resolved: an address without a zone, or with a numeric one.
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

impl Endpoint {
    /// Parses an endpoint as `wg` does, which also takes an IPv6 address without brackets: the port follows the last
    /// colon.
    ///
    /// # Errors
    /// The errors of [`Endpoint::from_str`].
    pub fn from_wg(text: &str) -> Result<Self, AddressError> {
        match (text.parse(), text.rsplit_once(':')) {
            (Err(AddressError::Brackets), Some((host, port))) if !text.starts_with('[') => {
                let bracketed = format!("[{host}]:{port}").parse();
                // The text before the port may not be an address.
                bracketed.map_err(|fault| match fault {
                    AddressError::Address => AddressError::Brackets,
                    fault => fault,
                })
            }
            (other, _) => other,
        }
    }
}

impl From<SocketAddr> for Endpoint {
    /// An IPv6 scope becomes a numeric zone.
    fn from(addr: SocketAddr) -> Self {
        let host = match addr {
            SocketAddr::V6(a) if a.scope_id() != 0 => {
                Host::Scoped(*a.ip(), a.scope_id().to_string())
            }
            _ => Host::Ip(addr.ip()),
        };
        Self {
            host,
            port: addr.port(),
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
    // Only digits and dots: a mistyped address, which no resolver may turn into another one.
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
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
    fn an_ipv6_address_without_brackets_is_taken_as_wg_does() {
        for (text, taken) in [
            ("2001:db8::1:51820", Ok("[2001:db8::1]:51820")),
            ("2001:db8:0:0:0:0:0:1:51820", Ok("[2001:db8::1]:51820")),
            ("::1:51820", Ok("[::1]:51820")),
            ("fe80::1%eth0:51820", Ok("[fe80::1%eth0]:51820")),
            ("[2001:db8::1]:51820", Ok("[2001:db8::1]:51820")),
            ("192.0.2.1:51820", Ok("192.0.2.1:51820")),
            ("a.example:51820", Ok("a.example:51820")),
            ("2001:db8::1:0", Err(AddressError::Port)),
            ("2001:db8::1:c000", Err(AddressError::Port)),
            ("2001:db8:0:0:0:0:0:1", Err(AddressError::Brackets)),
            ("a:b:51820", Err(AddressError::Brackets)),
            ("[2001:db8::1:51820", Err(AddressError::Brackets)),
        ] {
            let taken = taken.map(str::to_owned);
            assert_eq!(
                Endpoint::from_wg(text).map(|it| it.to_string()),
                taken,
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn wg_takes_whatever_else_is_taken(text in "[\\[\\]0-9a-f:.%-]{1,40}") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(Endpoint::from_wg(&text), Ok(endpoint));
            }
            if let Ok(endpoint) = Endpoint::from_wg(&text) {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
            }
        }

        #[test]
        fn a_parsed_endpoint_goes_round(text in "[\\[\\]0-9a-f:.%-]{1,40}") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = text.parse::<Endpoint>();
        }
    }
}
