//! Lowers the segment size of TCP connections so that segments fit through a tunnel: `mssfix` of OpenVPN, and the clamp
//! of WireGuard.

/// Bytes of IPv4 and TCP headers without options.
const HEADERS: usize = 40;

/// Bytes by which TCP over IPv6 must be smaller: its IP header is longer.
const IPV6_EXTRA: u16 = 20;

const TCP: u8 = 6;
const SYN: u8 = 0x02;
const TCP_MIN: usize = 20;
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_MSS: u8 = 2;
const OPTION_MSS_LEN: usize = 4;

/// The largest segment over IPv4, in bytes, that an interface of `mtu` bytes carries, for [`clamp`]. `None` if the
/// interface cannot carry any.
#[must_use]
pub fn most(mtu: usize) -> Option<u16> {
    let most = mtu
        .checked_sub(HEADERS)
        .filter(|most| *most > usize::from(IPV6_EXTRA))?;
    Some(u16::try_from(most).unwrap_or(u16::MAX))
}

/// Lowers the largest segment size in a TCP SYN to `most`, for IPv6 to 20 less, and mends the checksum. Returns
/// whether anything was changed.
///
/// As in stock, these stay unchanged: other packets, packets cut off or with bytes after their end, later IP fragments,
/// IPv6 with extension headers, and sizes that are small enough.
pub fn clamp(packet: &mut [u8], most: u16) -> bool {
    let Some((tcp, most)) = syn(packet, most) else {
        return false;
    };
    let Some(at) = mss_option(tcp) else {
        return false;
    };
    let old = u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    if old <= most {
        return false;
    }
    tcp[at..at + 2].copy_from_slice(&most.to_be_bytes());
    // The checksum adds pairs of bytes from the header's start; at an odd offset the two bytes of the value change
    // places.
    let (was, is) = if at % 2 == 0 {
        (old, most)
    } else {
        (old.swap_bytes(), most.swap_bytes())
    };
    let sum = u16::from_be_bytes([tcp[16], tcp[17]]);
    tcp[16..18].copy_from_slice(&updated(sum, was, is).to_be_bytes());
    true
}

/// The TCP part of a SYN, and the largest segment size that it may announce.
fn syn(packet: &mut [u8], most: u16) -> Option<(&mut [u8], u16)> {
    let len = packet.len();
    let (header, most) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let fields = packet.first_chunk::<20>()?;
            let total = usize::from(u16::from_be_bytes([fields[2], fields[3]]));
            let offset = u16::from_be_bytes([fields[6], fields[7]]) & 0x1fff;
            if header < 20 || total != len || offset != 0 || fields[9] != TCP {
                return None;
            }
            (header, most)
        }
        6 => {
            let fields = packet.first_chunk::<40>()?;
            let payload = usize::from(u16::from_be_bytes([fields[4], fields[5]]));
            if 40 + payload != len || fields[6] != TCP {
                return None;
            }
            (40, most.saturating_sub(IPV6_EXTRA))
        }
        _ => return None,
    };
    let tcp = packet.get_mut(header..)?;
    let fields = tcp.first_chunk::<TCP_MIN>()?;
    if fields[13] & SYN == 0 {
        return None;
    }
    let header = usize::from(fields[12] >> 4) * 4;
    Some((tcp.get_mut(..header)?, most))
}

/// The offset of the MSS option's value in a TCP header.
fn mss_option(tcp: &[u8]) -> Option<usize> {
    let mut at = TCP_MIN;
    loop {
        match tcp.get(at..)? {
            [] | [_] | [OPTION_END, ..] => return None,
            [OPTION_NOP, ..] => at += 1,
            [OPTION_MSS, 4, _, _, ..] => return Some(at + OPTION_MSS_LEN - 2),
            // A length of 0 or 1 would loop forever.
            [_, len, ..] if *len >= 2 => at += usize::from(*len),
            _ => return None,
        }
    }
}

/// The checksum after one word has changed (RFC 1624, equation 3).
fn updated(sum: u16, was: u16, is: u16) -> u16 {
    let mut new = u32::from(!sum) + u32::from(!was) + u32::from(is);
    while new > 0xffff {
        new = (new & 0xffff) + (new >> 16);
    }
    // Folded to 16 bits.
    !(new as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The sum over the pseudo-header and the TCP part; 0 if the checksum is correct.
    fn sum_of(packet: &[u8]) -> u16 {
        let (header, addresses) = match packet[0] >> 4 {
            4 => (usize::from(packet[0] & 15) * 4, &packet[12..20]),
            _ => (40, &packet[8..40]),
        };
        let tcp = &packet[header..];
        let mut sum = u32::from(TCP) + tcp.len() as u32;
        for part in [addresses, tcp] {
            for pair in part.chunks(2) {
                sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            }
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn packet(v6: bool, flags: u8, options: &[u8]) -> Vec<u8> {
        let mut tcp = vec![0x12, 0x34, 0, 80, 1, 2, 3, 4, 0, 0, 0, 0];
        tcp.extend([
            (((20 + options.len()) / 4) << 4) as u8,
            flags,
            0xff,
            0xff,
            0,
            0,
            0,
            0,
        ]);
        tcp.extend(options);
        let mut packet = if v6 {
            let mut header = vec![0x60, 0, 0, 0, 0, tcp.len() as u8, TCP, 64];
            header.extend([0xfd; 32]);
            header
        } else {
            let mut header = vec![
                0x45,
                0,
                0,
                20 + tcp.len() as u8,
                0,
                0,
                0x40,
                0,
                64,
                TCP,
                0,
                0,
            ];
            header.extend([10, 8, 0, 1, 192, 168, 200, 2]);
            header
        };
        let start = packet.len();
        packet.extend(tcp);
        let sum = sum_of(&packet).to_be_bytes();
        packet[start + 16..start + 18].copy_from_slice(&sum);
        assert_eq!(sum_of(&packet), 0);
        packet
    }

    const MSS_1460: [u8; 4] = [2, 4, 0x05, 0xb4];

    #[test]
    fn what_an_interface_carries() {
        assert_eq!(most(1420), Some(1380));
        assert_eq!(most(1 << 20), Some(u16::MAX));
        assert_eq!(most(61), Some(21));
        for mtu in [0, 40, 60] {
            assert_eq!(most(mtu), None, "{mtu}");
        }
    }

    #[test]
    fn a_syn_is_clamped() {
        for (v6, expected) in [(false, 1300_u16), (true, 1280)] {
            let mut syn = packet(v6, 0x02, &MSS_1460);
            assert!(clamp(&mut syn, 1300));
            let end = syn.len();
            assert_eq!(syn[end - 2..], expected.to_be_bytes());
            assert_eq!(sum_of(&syn), 0);
            assert!(!clamp(&mut syn, 1300), "it fits now");
        }
    }

    #[test]
    fn an_option_at_an_odd_place() {
        let mut options = vec![OPTION_NOP];
        options.extend(MSS_1460);
        options.extend([1, 1, 1]);
        let mut answer = packet(false, 0x12, &options);
        assert!(clamp(&mut answer, 1200));
        assert_eq!(answer[43..45], 1200_u16.to_be_bytes());
        assert_eq!(sum_of(&answer), 0);
    }

    #[test]
    fn what_is_not_changed() {
        let syn = packet(false, 0x02, &MSS_1460);
        let changed = |at: usize, value: u8| {
            let mut packet = syn.clone();
            packet[at] = value;
            clamp(&mut packet, 1000)
        };
        assert!(changed(8, 1));
        assert!(!changed(33, 0x10), "an ACK");
        assert!(!changed(9, 17), "UDP");
        assert!(!changed(7, 1), "a fragment");
        assert!(!changed(3, 43), "cut off");
        assert!(!changed(0, 0x44), "a header that is too short");
        assert!(!changed(0, 0x4f), "a header that is too long");
        assert!(!changed(0, 0x55), "no IP");
        assert!(!changed(32, 0x40), "a TCP header that is too short");
        assert!(!changed(32, 0xf0), "a TCP header that is too long");
        assert!(!clamp(&mut syn.clone(), 1460));
        let odd = [&[3, 0, 0][..], &[2, 4, 5, 0xb4, 0]].concat();
        assert!(
            !clamp(&mut packet(false, 2, &odd), 1000),
            "an option of length 0"
        );
        assert!(!clamp(&mut packet(false, 2, &[2, 3, 9, 0]), 1000));
        assert!(!clamp(
            &mut packet(false, 2, &[0, 2, 4, 5, 0xb4, 0, 0, 0]),
            1000
        ));
        assert!(!clamp(&mut [], 1000));
    }

    proptest! {
        #[test]
        fn the_checksum_stays_right(options in prop::collection::vec(any::<u8>(), 0..9), most in 0..2000_u16, v6: bool, before in 0..3_usize) {
            let mut all = vec![OPTION_NOP; before];
            all.extend(MSS_1460);
            all.extend(options);
            all.resize(all.len().next_multiple_of(4), 0);
            let mut syn = packet(v6, 2, &all);
            clamp(&mut syn, most);
            prop_assert_eq!(sum_of(&syn), 0);
        }

        #[test]
        fn anything_at_all(mut bytes in prop::collection::vec(any::<u8>(), 0..90), v6: bool) {
            let len = bytes.len() as u8;
            if v6 && bytes.len() >= 40 {
                bytes[0] = 0x60;
                bytes[4..7].copy_from_slice(&[0, len - 40, TCP]);
            } else if bytes.len() >= 20 {
                bytes[0] = 0x45;
                bytes[2..4].copy_from_slice(&[0, len]);
                bytes[6..10].copy_from_slice(&[0, 0, 0, TCP]);
            }
            clamp(&mut bytes, 0);
        }
    }
}
