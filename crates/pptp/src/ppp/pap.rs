//! The packets of PAP (RFC 1334, section 2).

use crate::ppp::packet::Packet;

const REQUEST: u8 = 1;
const ACK: u8 = 2;
const NAK: u8 = 3;

/// A packet of PAP. It does not print its password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PapPacket<'a> {
    /// Let me in.
    Request {
        /// To be repeated in the answer.
        id: u8,
        /// The user's name.
        user: &'a [u8],
        /// The password.
        password: &'a [u8],
    },
    /// Yes.
    Ack {
        /// That of the request.
        id: u8,
    },
    /// No.
    Nak {
        /// That of the request.
        id: u8,
        /// For people.
        message: &'a [u8],
    },
}

impl<'a> PapPacket<'a> {
    /// Reads the information field of a frame; `None` if it is none of PAP's. An answer without a message is understood,
    /// as some servers send such.
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

    /// The packet's bytes; they hold the password, if there is one. Fields of more than 255 bytes are cut.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut data = Vec::new();
        let mut put = |field: &[u8]| {
            let field = &field[..field.len().min(255)];
            // Cut above so that it fits.
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
