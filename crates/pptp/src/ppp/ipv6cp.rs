//! The option of the IPv6 Control Protocol: interface identifiers, from which link-local addresses follow (RFC 5072,
//! section 4).

use std::net::Ipv6Addr;

use crate::ppp::lcp::{magic, other};
use crate::ppp::negotiation::{Layer, Verdict};
use crate::ppp::packet::Option as ConfigOption;
use crate::ppp::protocol;

const INTERFACE_ID: u8 = 1;

/// The interface identifiers of both ends.
#[derive(Debug)]
pub struct Ipv6cp {
    ours: u64,
    peer: u64,
    random: u64,
}

impl Ipv6cp {
    /// Creates an identifier from a random seed.
    #[must_use]
    pub fn new(mut seed: u64) -> Self {
        let ours = identifier(&mut seed);
        Self {
            ours,
            peer: 0,
            random: seed,
        }
    }

    /// Our link-local address.
    #[must_use]
    pub fn address(&self) -> Ipv6Addr {
        link_local(self.ours)
    }

    /// The peer's link-local address, once the layer is open.
    #[must_use]
    pub fn peer(&self) -> Ipv6Addr {
        link_local(self.peer)
    }
}

impl Layer for Ipv6cp {
    const PROTOCOL: u16 = protocol::IPV6CP;
    const CODES: core::ops::RangeInclusive<u8> = u8::MAX..=u8::MAX;

    fn request(&self, out: &mut Vec<u8>) {
        ConfigOption {
            kind: INTERFACE_ID,
            data: &self.ours.to_be_bytes(),
        }
        .write(out);
    }

    fn naked(&mut self, option: ConfigOption<'_>) -> bool {
        if let (INTERFACE_ID, Ok(bytes)) = (option.kind, option.data.try_into()) {
            self.ours = match u64::from_be_bytes(bytes) {
                0 => identifier(&mut self.random),
                proposed => proposed,
            };
        }
        true
    }

    fn rejected(&mut self, _option: ConfigOption<'_>) -> bool {
        false
    }

    fn begin(&mut self) {
        self.peer = 0;
    }

    fn judge(&mut self, option: ConfigOption<'_>, last: bool, nak: &mut Vec<u8>) -> Verdict {
        let (INTERFACE_ID, Ok(bytes)) = (option.kind, <[u8; 8]>::try_from(option.data)) else {
            return Verdict::Reject;
        };
        let asked = u64::from_be_bytes(bytes);
        if asked == 0 || asked == self.ours {
            let data = identifier(&mut self.random).to_be_bytes();
            return other(INTERFACE_ID, &data, last, nak);
        }
        self.peer = asked;
        Verdict::Ack
    }

    fn missing(&mut self, last: bool, nak: &mut Vec<u8>) {
        if self.peer == 0 && nak.is_empty() && !last {
            let data = identifier(&mut self.random).to_be_bytes();
            other(INTERFACE_ID, &data, last, nak);
        }
    }
}

/// An identifier without the universal bit (RFC 5072, section 4.1: bit "u" is 0).
fn identifier(random: &mut u64) -> u64 {
    let id = u64::from(magic(random)) << 32 | u64::from(magic(random));
    id & !(0x02 << 56)
}

fn link_local(identifier: u64) -> Ipv6Addr {
    Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(identifier))
}
