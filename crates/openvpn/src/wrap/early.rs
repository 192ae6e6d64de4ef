//! Early negotiation: what a server's reset can tell a client before there is any session.

use crate::packet::PacketError;

/// The content of a server's HARD_RESET_SERVER_V2: type, length and value of 16 bits, any number of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyNegotiation {
    /// The client shall append its wrapped key to its next packet, since the server has kept nothing.
    pub resend_client_key: bool,
}

const FLAGS: u16 = 1;
const RESEND_CLIENT_KEY: u16 = 1;

impl EarlyNegotiation {
    /// Reads the payload of a server's reset. Unknown types are skipped.
    ///
    /// # Errors
    /// If it is cut off, or its flags are not of 16 bits.
    pub fn parse(mut payload: &[u8]) -> Result<Self, PacketError> {
        let mut found = Self::default();
        while !payload.is_empty() {
            let (head, rest) = payload
                .split_first_chunk::<4>()
                .ok_or(PacketError::TooShort)?;
            let kind = u16::from_be_bytes([head[0], head[1]]);
            let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let (value, rest) = rest.split_at_checked(length).ok_or(PacketError::TooShort)?;
            if kind == FLAGS {
                let flags = value.try_into().map_err(|_| PacketError::TooShort)?;
                if u16::from_be_bytes(flags) & RESEND_CLIENT_KEY != 0 {
                    found.resend_client_key = true;
                }
            }
            payload = rest;
        }
        Ok(found)
    }

    /// The payload; empty if there is nothing to say, which clients before 2.6 require.
    #[must_use]
    pub fn emit(self) -> Vec<u8> {
        if !self.resend_client_key {
            return Vec::new();
        }
        [FLAGS, 2, RESEND_CLIENT_KEY]
            .into_iter()
            .flat_map(u16::to_be_bytes)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESEND: EarlyNegotiation = EarlyNegotiation {
        resend_client_key: true,
    };

    #[test]
    fn comes_back() {
        assert_eq!(RESEND.emit(), [0, 1, 0, 2, 0, 1]);
        for said in [RESEND, EarlyNegotiation::default()] {
            assert_eq!(EarlyNegotiation::parse(&said.emit()), Ok(said));
        }
    }

    #[test]
    fn the_unknown_is_skipped_and_the_damaged_refused() {
        let unknown = [0, 9, 0, 3, 1, 2, 3, 0, 1, 0, 2, 0xff, 0xff];
        assert_eq!(EarlyNegotiation::parse(&unknown), Ok(RESEND));
        for cut in [1, 2, 3, 4, 5, 6, 8, 10, 11, 12] {
            assert!(EarlyNegotiation::parse(&unknown[..cut]).is_err(), "{cut}");
        }
        assert!(EarlyNegotiation::parse(&[0, 1, 0, 3, 0, 1, 0]).is_err());
        assert!(EarlyNegotiation::parse(&[0, 9, 0xff, 0xff]).is_err());
    }
}
