//! PAP packets (RFC 1334, section 2).

use crate::ppp::packet::Packet;

const REQUEST: u8 = 1;
const ACK: u8 = 2;
const NAK: u8 = 3;

/// A PAP packet. Debug output omits the password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PapPacket<'a> {
    /// Authenticate-Request.
    Request {
        /// Identifier that the answer repeats.
        id: u8,
        /// The user's name.
        user: &'a [u8],
        /// The password.
        password: &'a [u8],
    },
    /// Authenticate-Ack: the login is accepted.
    Ack {
        /// Identifier of the request.
        id: u8,
    },
    /// Authenticate-Nak: the login is refused.
    Nak {
        /// Identifier of the request.
        id: u8,
        /// Message for people.
        message: &'a [u8],
    },
}

impl<'a> PapPacket<'a> {
    /// Reads the information field of a frame; `None` if it is not a PAP packet. Accepts answers without a message,
    /// which some servers send.
    #[must_use]
    pub fn parse(information: &'a [u8]) -> Option<Self> {
        let Packet { code, id, data } = Packet::parse(information)?;
        Some(match code {
            REQUEST => {
                let (user, rest) = counted(data)?;
                let (password, _) = counted(rest)?;
                Self::Request { id, user, password }
            }
            ACK => Self::Ack { id },
            NAK => Self::Nak {
                id,
                message: counted(data).map_or(&[], |(message, _)| message),
            },
            _ => return None,
        })
    }

    /// The packet's bytes, including the password of a request. Fields of more than 255 bytes are cut.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut put = |field: &[u8]| {
            let field = &field[..field.len().min(255)];
            // The field was cut above, so the length fits.
            data.push(field.len() as u8);
            data.extend_from_slice(field);
        };
        let (code, id) = match *self {
            Self::Request { id, user, password } => {
                put(user);
                put(password);
                (REQUEST, id)
            }
            Self::Ack { id } => {
                put(&[]);
                (ACK, id)
            }
            Self::Nak { id, message } => {
                put(message);
                (NAK, id)
            }
        };
        let data = &data;
        Packet { code, id, data }.to_vec()
    }
}

impl core::fmt::Debug for PapPacket<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Request { .. } => "PapPacket::Request",
            Self::Ack { .. } => "PapPacket::Ack",
            Self::Nak { .. } => "PapPacket::Nak",
        })
    }
}

fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(len))
}
