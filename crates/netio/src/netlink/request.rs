//! Builds requests, as the bytes that the kernel reads.
//!
//! A library with types for every message and attribute would be more code than the rest of this module.

use std::net::IpAddr;

use netlink_packet_core::NLM_F_REQUEST;
use zeroize::Zeroizing;

/// Bytes of `struct nlmsghdr`, which every message starts with.
const MESSAGE_HEADER: usize = 16;
/// Bytes of `struct nlattr`, which every attribute starts with.
const ATTRIBUTE_HEADER: usize = 4;

/// Initial capacity of a body: more than any body with a key needs. A body that grew would leave a copy of the key
/// behind.
const ROOM: usize = 512;

/// A fixed header with attributes after it, or attributes alone: of a request, or of another attribute. Dropping it
/// overwrites it, since it may contain keys.
#[derive(Clone)]
pub(super) struct Body(Zeroizing<Vec<u8>>);

impl Body {
    /// A body that begins with `header`, whose length must be a multiple of four.
    pub(super) fn new(header: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(ROOM);
        bytes.extend_from_slice(header);
        Self(Zeroizing::new(bytes))
    }

    /// Attributes without a header.
    pub(super) fn attributes() -> Self {
        Self::new(&[])
    }

    /// Adds an attribute.
    #[must_use]
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.push(kind, value);
        self
    }

    /// Appends an attribute.
    pub(super) fn push(&mut self, kind: u16, value: &[u8]) {
        // The kernel rejects messages larger than its own buffers.
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        let end = self.0.len().next_multiple_of(4);
        self.0.resize(end, 0);
    }

    /// Appends a number, if there is one.
    pub(super) fn push_number(&mut self, kind: u16, number: Option<u32>) {
        if let Some(number) = number {
            self.push(kind, &number.to_ne_bytes());
        }
    }

    /// Appends an address, if there is one.
    pub(super) fn push_ip(&mut self, kind: u16, ip: Option<IpAddr>) {
        match ip {
            Some(IpAddr::V4(ip)) => self.push(kind, &ip.octets()),
            Some(IpAddr::V6(ip)) => self.push(kind, &ip.octets()),
            None => {}
        }
    }

    /// Appends a text, with the terminating zero that the kernel requires.
    pub(super) fn push_text(&mut self, kind: u16, text: &str) {
        self.push(kind, &[text.as_bytes(), &[0]].concat());
    }

    /// Appends an attribute that contains attributes.
    pub(super) fn push_body(&mut self, kind: u16, inner: &Self) {
        self.push(kind, &inner.0);
    }

    /// Header and attributes.
    #[cfg(test)]
    pub(super) fn payload(&self) -> &[u8] {
        &self.0
    }

    /// Builds the request of type `kind` with this body.
    pub(super) fn request(&self, kind: u16, flags: u16, sequence: u32) -> Zeroizing<Vec<u8>> {
        // No body of ours needs more than 32 bits for its length.
        let length = (MESSAGE_HEADER + self.0.len()) as u32;
        let mut bytes = Zeroizing::new(Vec::with_capacity(length as usize));
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        // The sender's port number, which the kernel fills in.
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(&self.0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_their_lengths_are_not() {
        let mut inner = Body::attributes();
        inner.push_text(1, "veth");
        let mut body = Body::new(&[9; 4]);
        body.push_body(18, &inner);
        body.push_number(4, Some(1500));
        body.push_number(5, None);
        body.push_ip(6, Some(IpAddr::from([10, 1, 2, 3])));
        let bytes = body.request(16, 0x600, 7);
        let words = [
            &(16 + 4 + 16 + 8 + 8u32).to_ne_bytes()[..],
            &16u16.to_ne_bytes(),
            &0x601u16.to_ne_bytes(),
            &7u32.to_ne_bytes(),
            &0u32.to_ne_bytes(),
            &[9; 4],
            &16u16.to_ne_bytes(),
            &18u16.to_ne_bytes(),
            &9u16.to_ne_bytes(),
            &1u16.to_ne_bytes(),
            b"veth\0\0\0\0",
            &8u16.to_ne_bytes(),
            &4u16.to_ne_bytes(),
            &1500u32.to_ne_bytes(),
            &8u16.to_ne_bytes(),
            &6u16.to_ne_bytes(),
            &[10, 1, 2, 3],
        ];
        assert_eq!(*bytes, words.concat());
    }
}
