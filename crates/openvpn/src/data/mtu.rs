//! Sizes, by stock's arithmetic: how large an inner packet may be for the outer one to fit.
//!
//! Each end computes these figures and the ends compare one of them. So ours must equal those of the stock program,
//! even where better ones exist.

use crypto::{Cipher, Digest};

use super::format::Framing;
use super::wire::{Layout, RECORD_HEADER_LEN};

/// The MTU of the interface, unless `tun-mtu` says another.
pub const DEFAULT_TUN_MTU: u16 = 1500;
/// Default of `mssfix` if the interface's MTU is the default: bytes of the outer IP packet.
pub const DEFAULT_MSSFIX: u16 = 1492;

/// Bytes of IPv4 and TCP headers without options: what `mssfix` takes off for the inner packet.
const INNER_HEADERS: usize = 20 + 20;
/// Bytes that a SOCKS5 proxy puts before each datagram to IPv4.
const SOCKS: usize = 10;

/// The transport of the outer packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outer {
    /// IPv6, or a family that is not known yet. An IPv4 address that a socket for both families shows as
    /// `::ffff:a.b.c.d` counts as IPv6, as with stock.
    pub v6: bool,
    /// TCP instead of UDP.
    pub tcp: bool,
    /// UDP through a SOCKS5 proxy.
    pub socks: bool,
}

impl Outer {
    /// Bytes of the outer IP and UDP or TCP headers.
    #[must_use]
    pub const fn headers(self) -> usize {
        (if self.v6 { 40 } else { 20 }) + (if self.tcp { 20 } else { 8 })
    }
}

/// Bytes added to a packet between the interface and the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encapsulation {
    /// The cipher of the data channel.
    pub cipher: Cipher,
    /// The digest beside a cipher that does not authenticate; ignored for an AEAD.
    pub auth: Digest,
    /// The head and the packet id.
    pub layout: Layout,
    /// Compression framing.
    pub framing: Framing,
    /// Whether there is `fragment`.
    pub fragment: bool,
    /// Transport below the tunnel.
    pub outer: Outer,
}

/// `mssfix`: the limit for the size of TCP segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MssFix {
    /// `mssfix 0`: nothing is changed.
    Off,
    /// `mssfix N`: the UDP or TCP payload has at most this many bytes.
    Link(u16),
    /// `mssfix N mtu`: the outer IP packet has at most this many bytes.
    Mtu(u16),
    /// `mssfix N fixed`: the inner packet has at most this many bytes.
    Fixed(u16),
}

impl MssFix {
    /// The default for no `mssfix` at all, or one without a number. `fragment` is the number of that directive.
    #[must_use]
    pub const fn default_for(tun_mtu: u16, fragment: Option<u16>) -> Self {
        match (fragment, tun_mtu) {
            (Some(fragment), _) => Self::Mtu(fragment),
            (None, DEFAULT_TUN_MTU) => Self::Mtu(DEFAULT_MSSFIX),
            // The user chose an MTU that fits.
            (None, tun_mtu) => Self::Fixed(tun_mtu),
        }
    }
}

/// `fragment`: the limit for the size of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentSize {
    /// Bytes, 68 or more.
    pub bytes: u16,
    /// `fragment N mtu`: of the outer IP packet instead of the UDP payload.
    pub of_outer_packet: bool,
}

impl Encapsulation {
    /// Unencrypted bytes of the UDP or TCP payload, including those of the proxy and of the stream. With CBC the packet
    /// id is encrypted, so it does not count.
    #[must_use]
    pub fn protocol_headers(&self) -> usize {
        let transport = match (self.outer.tcp, self.outer.socks) {
            (true, _) => RECORD_HEADER_LEN,
            (false, true) => SOCKS,
            (false, false) => 0,
        };
        transport + self.packet_headers()
    }

    /// Unencrypted bytes of a data packet.
    fn packet_headers(&self) -> usize {
        let packet_id = if self.is_cbc() {
            0
        } else {
            self.layout.packet_id_len()
        };
        let cipher = if self.cipher.is_aead() {
            16
        } else {
            self.cipher.iv_len() + self.auth.len()
        };
        self.layout.header_len() + packet_id + cipher
    }

    /// Encrypted bytes that do not belong to the inner packet, without padding.
    #[must_use]
    pub fn payload_headers(&self) -> usize {
        let packet_id = if self.is_cbc() {
            self.layout.packet_id_len()
        } else {
            0
        };
        self.framing.overhead() + if self.fragment { 4 } else { 0 } + packet_id
    }

    /// The largest segment that TCP in IPv4 may use, for [`mss::clamp`](plane::mss::clamp), which takes off the rest
    /// for IPv6. `None` if nothing is to be changed: `mssfix 0`, or a size with no room for a packet in it.
    #[must_use]
    pub fn mss(&self, mssfix: MssFix) -> Option<u16> {
        let (bytes, outer) = match mssfix {
            MssFix::Off => return None,
            MssFix::Fixed(bytes) => {
                let mss = usize::from(bytes).checked_sub(INNER_HEADERS)?;
                return u16::try_from(mss).ok();
            }
            MssFix::Link(bytes) => (bytes, 0),
            MssFix::Mtu(bytes) => (bytes, self.outer.headers()),
        };
        let room = usize::from(bytes).checked_sub(self.protocol_headers() + outer)?;
        let mss = self
            .plaintext(room)?
            .checked_sub(self.payload_headers() + INNER_HEADERS)?;
        u16::try_from(mss).ok()
    }

    /// Bytes of the largest packet that [`Fragmenter`](super::fragment::Fragmenter) leaves whole, and of its pieces:
    /// with compression framing, without the fragment header. `None` if nothing fits.
    #[must_use]
    pub fn max_fragment(&self, size: FragmentSize) -> Option<usize> {
        let outer = if size.of_outer_packet {
            self.outer.headers()
        } else {
            0
        };
        let room = usize::from(size.bytes).checked_sub(self.protocol_headers() + outer)?;
        let packet_id = if self.is_cbc() {
            self.layout.packet_id_len()
        } else {
            0
        };
        // A piece has at least 4 bytes.
        self.plaintext(room)?
            .checked_sub(super::fragment::HEADER_LEN + packet_id)
            .filter(|&most| most >= 4)
    }

    /// Bytes of the data packet for an unfragmented inner packet of `len` bytes.
    #[must_use]
    pub fn sealed_len(&self, len: usize) -> usize {
        let text = len + self.payload_headers();
        let text = if self.is_cbc() {
            // There is always padding: a whole block if the text fills its blocks.
            (text + 1).next_multiple_of(self.cipher.block_len())
        } else {
            text
        };
        self.packet_headers() + text
    }

    const fn is_cbc(&self) -> bool {
        self.cipher.block_len() > 1
    }

    /// Maximum number of bytes of plaintext that encrypt to at most `sealed` bytes.
    const fn plaintext(&self, sealed: usize) -> Option<usize> {
        if self.is_cbc() {
            let block = self.cipher.block_len();
            // At least one byte is padding.
            (sealed / block * block).checked_sub(1)
        } else {
            Some(sealed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::Digest;

    const STOCK: &str = include_str!("../../tests/data/mtu.txt");

    fn outer(name: &str) -> Outer {
        Outer {
            v6: name.ends_with('6'),
            tcp: name.starts_with("tcp"),
            socks: false,
        }
    }

    fn plain(cipher: Cipher, auth: Digest) -> Encapsulation {
        Encapsulation {
            cipher,
            auth,
            layout: Layout::V2 { peer_id: 0 },
            framing: Framing::None,
            fragment: false,
            outer: outer("udp4"),
        }
    }

    #[test]
    fn figures_of_stock() {
        let mut rows = 0;
        for row in STOCK.lines().filter(|row| !row.starts_with('#')) {
            let words: Vec<_> = row.split(' ').collect();
            let number = |text: &str| text.split(',').next().unwrap().parse::<u16>().unwrap();
            let mut mssfix = MssFix::default_for(DEFAULT_TUN_MTU, None);
            let mut fragment = None;
            match words[4].split_once('=') {
                Some(("mssfix", text)) => {
                    let bytes = number(text);
                    mssfix = match text.split_once(',') {
                        Some((_, "mtu")) => MssFix::Mtu(bytes),
                        Some((_, "fixed")) => MssFix::Fixed(bytes),
                        _ => MssFix::Link(bytes),
                    };
                }
                Some((_, text)) => {
                    let bytes = number(text);
                    let of_outer_packet = text.ends_with(",mtu");
                    mssfix = MssFix::default_for(DEFAULT_TUN_MTU, Some(bytes));
                    fragment = Some(FragmentSize {
                        bytes,
                        of_outer_packet,
                    });
                }
                None => {}
            }
            let encapsulation = Encapsulation {
                cipher: Cipher::from_name(words[1]).unwrap(),
                auth: Digest::from_name(words[2]).unwrap(),
                layout: Layout::V2 { peer_id: 0 },
                framing: match words[3] {
                    "none" => Framing::None,
                    "lzo" => Framing::Lzo,
                    "stub" => Framing::Swap,
                    _ => Framing::V2,
                },
                fragment: fragment.is_some(),
                outer: outer(words[0]),
            };
            assert_eq!(encapsulation.mss(mssfix), Some(number(words[5])), "{row}");
            let most = fragment.map_or(0, |size| encapsulation.max_fragment(size).unwrap());
            assert_eq!(most, usize::from(number(words[6])), "{row}");
            rows += 1;
        }
        assert_eq!(rows, 98);
    }

    /// Computed sizes equal those of real packets: none exceeds the limit, and one byte more would.
    #[test]
    fn sealed_packets_fit_and_are_the_largest_that_do() {
        for cipher in Cipher::ALL {
            for framing in [Framing::None, Framing::Lzo] {
                for layout in [
                    Layout::V1,
                    Layout::V2 { peer_id: 0 },
                    Layout::Epoch { peer_id: 0 },
                ] {
                    let encapsulation = Encapsulation {
                        layout,
                        framing,
                        ..plain(cipher, Digest::Sha256)
                    };
                    for link in 1200..1240 {
                        let mss = encapsulation.mss(MssFix::Link(link)).unwrap();
                        let packet = usize::from(mss) + 40;
                        let link = usize::from(link);
                        assert!(
                            encapsulation.sealed_len(packet) <= link,
                            "{encapsulation:?}"
                        );
                        assert!(
                            encapsulation.sealed_len(packet + 1) > link,
                            "{encapsulation:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn defaults() {
        assert_eq!(MssFix::default_for(1500, None), MssFix::Mtu(1492));
        assert_eq!(MssFix::default_for(1400, None), MssFix::Fixed(1400));
        assert_eq!(MssFix::default_for(1400, Some(1300)), MssFix::Mtu(1300));
        let gcm = plain(Cipher::Aes256Gcm, Digest::None);
        assert_eq!(gcm.mss(MssFix::Fixed(1400)), Some(1360));
        assert_eq!(gcm.mss(MssFix::Off), None);
        // Version 2.7.6 counts the four bytes more of the epoch format.
        let epoch = Encapsulation {
            layout: Layout::Epoch { peer_id: 0 },
            ..gcm
        };
        assert_eq!(epoch.mss(MssFix::default_for(1500, None)), Some(1396));
    }

    /// Sizes that fall below zero in stock.
    #[test]
    fn no_room() {
        for cipher in Cipher::ALL {
            let encapsulation = Encapsulation {
                fragment: true,
                ..plain(cipher, Digest::Sha512)
            };
            for bytes in 0..200 {
                for mssfix in [
                    MssFix::Link(bytes),
                    MssFix::Mtu(bytes),
                    MssFix::Fixed(bytes),
                ] {
                    assert!(encapsulation.mss(mssfix).is_none_or(|mss| mss <= bytes));
                }
                let most = encapsulation.max_fragment(FragmentSize {
                    bytes,
                    of_outer_packet: true,
                });
                assert!(most.is_none_or(|most| (4..200).contains(&most)));
            }
        }
    }
}
