//! The form of an interface's datagrams: which message a datagram may be, and how one is made.

use std::sync::Arc;

use crypto::header_key::{HeaderKey, MASK_LEN, NONCE_LEN};
use crypto::unpredictable;
use plane::Packet;

use super::template::fill;
use super::{Fault, Range, Settings};
use crate::data::{DATA_HEADER_LEN, DATA_MIN_LEN, DataHeader};
use crate::message::{COOKIE_REPLY_LEN, INITIATION_LEN, RESPONSE_LEN};

/// Length that handshake messages with a trailer stay below, as other programs' do before data has flowed. It is also
/// the length below which data packets are padded when trailers are on and no padding is set.
const WINDOW: usize = 500;

/// Data packets whose headers are hidden at once. Their nonces and masks take 1.8 KB of the stack.
const BATCH: usize = 64;

const _: () = assert!(MASK_LEN == DATA_HEADER_LEN, "a mask hides a header");

/// The kinds of messages, in the order of `S1` to `S4` and `H1` to `H4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A handshake initiation.
    Initiation,
    /// A handshake response.
    Response,
    /// A cookie reply.
    Cookie,
    /// A data packet.
    Data,
}

impl Kind {
    /// The messages of handshakes.
    pub const HANDSHAKE: [Self; 3] = [Self::Initiation, Self::Response, Self::Cookie];

    const ALL: [Self; 4] = [Self::Initiation, Self::Response, Self::Cookie, Self::Data];

    /// Bytes of the message; for a data packet the least.
    pub(super) const fn len(self) -> usize {
        match self {
            Self::Initiation => INITIATION_LEN,
            Self::Response => RESPONSE_LEN,
            Self::Cookie => COOKIE_REPLY_LEN,
            Self::Data => DATA_MIN_LEN,
        }
    }
}

/// Which kinds of message a datagram may be. Several may fit: ranges of types are wide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fits {
    kinds: [bool; 4],
    /// The keystream over the first bytes of the message.
    mask: [u8; DATA_HEADER_LEN],
}

impl Fits {
    /// Whether the datagram may be such a message.
    #[must_use]
    pub const fn has(&self, kind: Kind) -> bool {
        self.kinds[kind as usize]
    }

    /// Whether the datagram may be a handshake message.
    #[must_use]
    pub const fn handshake(&self) -> bool {
        self.kinds[0] || self.kinds[1] || self.kinds[2]
    }
}

/// A handshake message.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    bytes: [u8; INITIATION_LEN],
    len: usize,
}

impl Message {
    /// The message of this kind that begins at `start` in a datagram, with `mask` taken off; `None` if it does not fit
    /// in.
    pub(super) fn cut(
        kind: Kind,
        datagram: &[u8],
        start: usize,
        mask: Option<&[u8; INITIATION_LEN]>,
    ) -> Option<Self> {
        let len = kind.len();
        let mut bytes = [0; INITIATION_LEN];
        let message = bytes.get_mut(..len)?;
        message.copy_from_slice(datagram.get(start..start + len)?);
        let mask = mask.into_iter().flatten();
        message
            .iter_mut()
            .zip(mask)
            .for_each(|(it, mask)| *it ^= mask);
        Some(Self { bytes, len })
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The message with another type.
    pub(crate) fn with_type(mut self, kind: u32) -> Self {
        self.bytes[..4].copy_from_slice(&kind.to_le_bytes());
        self
    }
}

/// The settings of an interface that does not speak plain WireGuard, ready for use.
#[derive(Debug)]
pub struct Profile {
    settings: Settings,
    header: Option<HeaderKey>,
}

impl Profile {
    /// The profile of these settings; `None` for plain WireGuard.
    ///
    /// # Errors
    /// The values do not [work together](Settings::check).
    pub fn new(settings: Settings) -> Result<Option<Arc<Self>>, Fault> {
        settings.check()?;
        if settings.is_plain() {
            return Ok(None);
        }
        let header = settings.header_key.clone().map(HeaderKey::new);
        Ok(Some(Arc::new(Self { settings, header })))
    }

    /// The settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Bytes in front of a message of this kind.
    #[must_use]
    #[inline]
    pub fn prefix(&self, kind: Kind) -> usize {
        self.settings.prefix[kind as usize].into()
    }

    const fn types(&self, kind: Kind) -> &Range<u32> {
        &self.settings.types[kind as usize]
    }

    /// The kinds of message that a datagram may be, by its length and its type.
    #[must_use]
    #[inline]
    pub fn fits(&self, datagram: &[u8]) -> Fits {
        self.fits_under(datagram, None)
    }

    /// The header protection key.
    pub(crate) const fn header(&self) -> Option<&HeaderKey> {
        self.header.as_ref()
    }

    /// Classifies as [`fits`](Self::fits) does. `mask` is that of the datagram's header, if it is known already.
    #[inline]
    pub(crate) fn fits_under(&self, datagram: &[u8], mask: Option<&[u8; MASK_LEN]>) -> Fits {
        let mut fits = Fits::default();
        for kind in Kind::ALL {
            let least = self.prefix(kind) + kind.len();
            let longer_fits = kind == Kind::Data || self.settings.trailers;
            fits.kinds[kind as usize] =
                datagram.len() == least || longer_fits && datagram.len() > least;
        }
        if fits.kinds == [false; 4] {
            return fits;
        }
        if let Some(mask) = mask {
            fits.mask = *mask;
        } else if let (Some(key), Some(nonce)) = (&self.header, datagram.first_chunk()) {
            key.apply(nonce, &mut fits.mask);
        }
        for kind in Kind::ALL {
            let word = self.word(datagram, &fits, kind, 0);
            fits.kinds[kind as usize] &= self.types(kind).contains(word);
        }
        fits
    }

    /// A little-endian word of the message that a datagram is if it is of this kind.
    #[inline]
    fn word(&self, datagram: &[u8], fits: &Fits, kind: Kind, at: usize) -> u32 {
        let start = self.prefix(kind) + at;
        let word = |bytes: &[u8], at: usize| {
            let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        word(datagram, start) ^ word(&fits.mask, at)
    }

    /// The receiver's index, the packet's number and the bytes before the sealed part of a datagram that may be a data
    /// packet.
    #[inline]
    pub(crate) fn data(&self, datagram: &[u8], fits: &Fits) -> (u32, u64, usize) {
        let word = |at| self.word(datagram, fits, Kind::Data, at);
        let counter = u64::from(word(8)) | u64::from(word(12)) << 32;
        (word(4), counter, self.prefix(Kind::Data) + DATA_HEADER_LEN)
    }

    /// The receiver's index and the number of a keepalive without `S4`, as amneziawg-go 0.2.13 and 0.2.16 send them.
    pub(crate) fn bare_keepalive(&self, datagram: &[u8]) -> Option<(u32, u64)> {
        let bare = datagram.len() == DATA_MIN_LEN && self.prefix(Kind::Data) > 0;
        let word = |at: usize| {
            datagram[at..]
                .first_chunk()
                .map(|it| u32::from_le_bytes(*it))
        };
        let is_data = |kind| self.types(Kind::Data).contains(kind);
        (bare && self.header.is_none() && is_data(word(0)?)).then_some(())?;
        Some((word(4)?, u64::from(word(8)?) | u64::from(word(12)?) << 32))
    }

    /// The handshake message in a datagram that may be of this kind.
    pub(crate) fn undress(&self, kind: Kind, datagram: &[u8]) -> Option<Message> {
        let mask = self.keystream(datagram);
        Message::cut(kind, datagram, self.prefix(kind), mask.as_ref())
    }

    /// The keystream that hides the message of a datagram, if the profile has a key.
    pub(super) fn keystream(&self, datagram: &[u8]) -> Option<[u8; INITIATION_LEN]> {
        let mut mask = [0; INITIATION_LEN];
        self.header
            .as_ref()?
            .apply(datagram.first_chunk()?, &mut mask);
        Some(mask)
    }

    /// A type for a message of this kind.
    pub(crate) fn draw(&self, kind: Kind) -> u32 {
        self.types(kind).draw()
    }

    /// The datagram of a handshake message whose type was drawn and whose MACs are in place.
    pub(crate) fn dress(&self, kind: Kind, message: &[u8]) -> Box<[u8]> {
        let start = self.prefix(kind);
        let end = start + message.len();
        let room = WINDOW.saturating_sub(end + 1) as u32;
        let trailer = match self.settings.trailers {
            true => Range { lo: 0, hi: room }.draw() as usize,
            false => 0,
        };
        let mut datagram = vec![0; end + trailer];
        fill(&mut datagram[..start]);
        datagram[start..end].copy_from_slice(message);
        fill(&mut datagram[end..]);
        self.hide(&mut datagram, start..end);
        datagram.into()
    }

    /// Hides a part of a datagram, if the profile has a key.
    pub(super) fn hide(&self, datagram: &mut [u8], part: core::ops::Range<usize>) {
        let nonce = datagram.first_chunk::<NONCE_LEN>().copied();
        if let (Some(key), Some(nonce)) = (&self.header, nonce) {
            key.apply(&nonce, &mut datagram[part]);
        }
    }

    /// Writes the bytes before the sealed part of data packets for the session `receiver`.
    pub(crate) fn write_heads(&self, memory: &mut [u8], receiver: u32, packets: &[Packet]) {
        let (prefix, types) = (self.prefix(Kind::Data), self.types(Kind::Data));
        let first = |packet: &Packet| packet.start as usize - DATA_HEADER_LEN - prefix;
        unpredictable(|fill| {
            for packet in packets {
                let head = &mut memory[first(packet)..packet.start as usize];
                let (before, header) = head.split_at_mut(prefix);
                before.chunks_mut(64).for_each(&mut *fill);
                let counter = packet.counter;
                header.copy_from_slice(&DataHeader { receiver, counter }.emit());
                header[..4].copy_from_slice(&types.draw_with(fill).to_le_bytes());
            }
        });
        let Some(key) = &self.header else { return };
        let (mut nonces, mut masks) = ([[0; NONCE_LEN]; BATCH], [[0; MASK_LEN]; BATCH]);
        for packets in packets.chunks(BATCH) {
            for (nonce, packet) in nonces.iter_mut().zip(packets) {
                nonce.copy_from_slice(&memory[first(packet)..][..NONCE_LEN]);
            }
            key.masks(&nonces[..packets.len()], &mut masks);
            for (mask, packet) in masks.iter().zip(packets) {
                let header = &mut memory[first(packet) + prefix..][..DATA_HEADER_LEN];
                header
                    .iter_mut()
                    .zip(mask)
                    .for_each(|(byte, mask)| *byte ^= mask);
            }
        }
    }

    /// The length that an inner packet of `len` bytes is padded to, on an interface of `mtu` bytes; `None` if it is
    /// padded as in WireGuard.
    #[inline]
    pub(crate) fn padded(&self, len: usize, mtu: usize) -> Option<usize> {
        let settings = &self.settings;
        let more = match (settings.padding.hi, settings.trailers) {
            (1.., _) => settings.padding.draw() as usize,
            (0, true) if len < WINDOW => {
                let hi = (WINDOW - len - 1) as u32;
                Range { lo: 0, hi }.draw() as usize
            }
            (0, true) => 0,
            (0, false) => return None,
        };
        let most = if mtu > 0 { mtu } else { usize::MAX };
        Some((len + more).min(most).max(len))
    }
}
