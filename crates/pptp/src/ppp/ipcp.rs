//! The options of the IP Control Protocol (RFC 1332, section 3; RFC 1877, section 1).

use std::net::Ipv4Addr;

use crate::ppp::lcp::other;
use crate::ppp::negotiation::{Layer, Verdict};
use crate::ppp::packet::Option as ConfigOption;
use crate::ppp::protocol;

const ADDRESS: u8 = 3;
const DNS: [u8; 2] = [129, 131];

/// A first and a second name server.
pub type Dns = [Option<Ipv4Addr>; 2];

/// Our settings for IPCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpcpSettings {
    /// Our address; `None` to let the peer assign one.
    pub address: Option<Ipv4Addr>,
    /// The peer's address, which it must accept; `None` to accept any.
    pub peer: Option<Ipv4Addr>,
    /// Whether we request name servers.
    pub ask_dns: bool,
    /// Name servers for the peer.
    pub dns: Dns,
}

/// The addresses of both ends.
#[derive(Debug)]
pub struct Ipcp {
    settings: IpcpSettings,
    address: Ipv4Addr,
    /// The name servers requested; `None` once the peer has rejected the option.
    asked: [Option<Ipv4Addr>; 2],
    peer: Option<Ipv4Addr>,
}

impl Ipcp {
    /// A negotiation before any agreement.
    #[must_use]
    pub fn new(settings: IpcpSettings) -> Self {
        let asked = settings.ask_dns.then_some(Ipv4Addr::UNSPECIFIED);
        Self {
            address: settings.address.unwrap_or(Ipv4Addr::UNSPECIFIED),
            asked: [asked; 2],
            peer: None,
            settings,
        }
    }

    /// Our address, once the layer is open.
    #[must_use]
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The peer's address, if it has one.
    #[must_use]
    pub const fn peer(&self) -> Option<Ipv4Addr> {
        self.peer
    }

    /// The name servers that the peer assigned.
    #[must_use]
    pub fn dns(&self) -> Dns {
        self.asked
            .map(|server| server.filter(|server| !server.is_unspecified()))
    }
}

impl Layer for Ipcp {
    const PROTOCOL: u16 = protocol::IPCP;
    const CODES: core::ops::RangeInclusive<u8> = u8::MAX..=u8::MAX;

    fn request(&self, out: &mut Vec<u8>) {
        let mut put = |kind, address: Ipv4Addr| {
            let data = &address.octets();
            ConfigOption { kind, data }.write(out);
        };
        put(ADDRESS, self.address);
        for (kind, server) in DNS.into_iter().zip(self.asked) {
            if let Some(server) = server {
                put(kind, server);
            }
        }
    }

    fn usable(&self) -> bool {
        !self.address.is_unspecified()
    }

    fn naked(&mut self, option: ConfigOption<'_>) -> bool {
        let Some(address) = address(option) else {
            return true;
        };
        match option.kind {
            ADDRESS if self.settings.address.is_none() => self.address = address,
            // The peer rejects our fixed address.
            ADDRESS => return false,
            kind => {
                if let Some(at) = DNS.iter().position(|&dns| dns == kind)
                    && let Some(asked) = &mut self.asked[at]
                {
                    *asked = address;
                }
            }
        }
        true
    }

    fn rejected(&mut self, option: ConfigOption<'_>) -> bool {
        if let Some(at) = DNS.iter().position(|&dns| dns == option.kind) {
            self.asked[at] = None;
        }
        option.kind != ADDRESS
    }

    fn begin(&mut self) {
        self.peer = None;
    }

    fn judge(&mut self, option: ConfigOption<'_>, last: bool, nak: &mut Vec<u8>) -> Verdict {
        // Other options, such as header compression and NetBIOS name servers, are rejected.
        let Some(asked) = address(option) else {
            return Verdict::Reject;
        };
        let (given, free) = match option.kind {
            ADDRESS => (self.settings.peer, self.settings.peer.is_none()),
            kind => {
                let at = DNS.iter().position(|&dns| dns == kind);
                let server = at.and_then(|at| self.settings.dns[at]);
                (server, false)
            }
        };
        let good = match given {
            Some(given) => asked == given,
            None => free && !asked.is_unspecified(),
        };
        match (good, given) {
            (true, _) => {
                if option.kind == ADDRESS {
                    self.peer = Some(asked);
                }
                Verdict::Ack
            }
            (false, Some(given)) => other(option.kind, &given.octets(), last, nak),
            (false, None) => Verdict::Reject,
        }
    }

    fn missing(&mut self, last: bool, nak: &mut Vec<u8>) {
        // A peer that requests no address is told its address.
        if let Some(given) = self.settings.peer
            && self.peer.is_none()
            && !last
            && nak.is_empty()
        {
            other(ADDRESS, &given.octets(), last, nak);
        }
    }
}

/// The address in an option that carries one.
fn address(option: ConfigOption<'_>) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = option.data.try_into().ok()?;
    (option.kind == ADDRESS || DNS.contains(&option.kind)).then(|| octets.into())
}
