//! Packets of the control protocols, and their options (RFC 1661, sections 5 and 6).

use crate::bytes::Reader;

/// Codes that all layers share (RFC 1661, section 5).
pub(crate) mod code {
    pub(crate) const CONFIGURE_REQUEST: u8 = 1;
    pub(crate) const CONFIGURE_ACK: u8 = 2;
    pub(crate) const CONFIGURE_NAK: u8 = 3;
    pub(crate) const CONFIGURE_REJECT: u8 = 4;
    pub(crate) const TERMINATE_REQUEST: u8 = 5;
    pub(crate) const TERMINATE_ACK: u8 = 6;
    pub(crate) const CODE_REJECT: u8 = 7;
}

/// A packet of a control protocol (RFC 1661, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The kind of packet.
    pub code: u8,
    /// Identifier that matches an answer to its request.
    pub id: u8,
    /// The rest of the packet, without padding.
    pub data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads the information field of a frame; bytes after the packet's length are padding. `None` if the length is
    /// wrong.
    #[must_use]
    pub fn parse(information: &'a [u8]) -> core::option::Option<Self> {
        let mut reader = Reader::new(information);
        let code = reader.u8()?;
        let id = reader.u8()?;
        let len = usize::from(reader.u16()?).checked_sub(4)?;
        let data = reader.take(len)?;
        Some(Self { code, id, data })
    }

    /// The packet's bytes. Data too long for the length field is cut.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let data = &self.data[..self.data.len().min(usize::from(u16::MAX) - 4)];
        let mut out = Vec::with_capacity(4 + data.len());
        out.extend([self.code, self.id]);
        // Data was cut above, so the length fits.
        out.extend((data.len() as u16 + 4).to_be_bytes());
        out.extend_from_slice(data);
        out
    }
}

/// An option of a Configure packet (RFC 1661, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Option<'a> {
    /// The option's type.
    pub kind: u8,
    /// The option's value.
    pub data: &'a [u8],
}

impl Option<'_> {
    /// Appends the option. Data of more than 253 bytes is cut.
    pub fn write(&self, out: &mut Vec<u8>) {
        let data = &self.data[..self.data.len().min(253)];
        // Data was cut above, so the length fits.
        out.extend([self.kind, data.len() as u8 + 2]);
        out.extend_from_slice(data);
    }
}

/// The options of a Configure packet, in order.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    /// Parses options; `None` if their lengths do not add up.
    #[must_use]
    pub fn parse(data: &'a [u8]) -> core::option::Option<Self> {
        let mut rest = data;
        while !rest.is_empty() {
            rest = split(rest)?.1;
        }
        Some(Self(data))
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Option<'a>;

    fn next(&mut self) -> core::option::Option<Option<'a>> {
        let (option, rest) = split(self.0)?;
        self.0 = rest;
        Some(option)
    }
}

fn split(bytes: &[u8]) -> core::option::Option<(Option<'_>, &[u8])> {
    let &[kind, len, ..] = bytes else {
        return None;
    };
    let (option, rest) = bytes.split_at_checked(usize::from(len))?;
    let data = option.get(2..)?;
    Some((Option { kind, data }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_left_out_and_a_wrong_length_refused() {
        let packet = Packet::parse(&[1, 7, 0, 6, 5, 2, 0, 0]).unwrap();
        assert_eq!((packet.code, packet.id, packet.data), (1, 7, &[5, 2][..]));
        assert_eq!(packet.to_vec(), [1, 7, 0, 6, 5, 2]);
        for bytes in [&[1, 7, 0, 3][..], &[1, 7, 0, 9, 0], &[1, 7, 0]] {
            assert_eq!(Packet::parse(bytes), None);
        }
    }

    #[test]
    fn options_whose_lengths_do_not_add_up_are_refused_as_a_whole() {
        let found: Vec<_> = Options::parse(&[7, 2, 1, 4, 5, 0xdc]).unwrap().collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].kind, found[1].data), (1, &[5, 0xdc][..]));
        for bytes in [&[7][..], &[7, 1], &[7, 0], &[7, 2, 1, 4, 5]] {
            assert!(Options::parse(bytes).is_none());
        }
    }
}
