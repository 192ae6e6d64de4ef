//! Values for a new server, drawn so that no two servers share a signature.

use wireguard::amnezia::{Range, Settings, Template};
use zeroize::Zeroizing;

/// The generation that both ends must know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Generation {
    /// 2.0: types in ranges, random bytes in front of all messages.
    V20,
    /// 3.1: also the header protection key, padding, trailers and drawn times.
    V31,
}

impl Generation {
    /// All generations, by the names that users give them.
    pub const ALL: [(&'static str, Self); 2] = [("2.0", Self::V20), ("3.1", Self::V31)];
}

/// The protocol whose first packet `I1` imitates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Look {
    /// A DNS query.
    Dns,
    /// A connectivity check of WebRTC.
    Stun,
    /// QUIC's first packet.
    Quic,
}

impl Look {
    /// All protocols, by the names that users give them.
    pub const ALL: [(&'static str, Self); 3] = [
        ("dns", Self::Dns),
        ("stun", Self::Stun),
        ("quic", Self::Quic),
    ];
}

/// Widths of the ranges of types. Three of the widest hold less than 1 in 100,000 of all numbers: with random trailers,
/// other programs lose a data packet that falls into one of them.
const WIDTHS: Range<u32> = Range {
    lo: 4_000,
    hi: 14_000,
};

/// Draws the values for a server's file.
#[must_use]
pub fn draw(generation: Generation, look: Option<Look>) -> Settings {
    let least = pick(40, 90);
    let mut settings = Settings {
        junk: pick(4, 8),
        junk_len: [least, least + pick::<u16>(60, 600)],
        prefix: prefixes(),
        ..Settings::default()
    };
    settings.special[0] = look.and_then(|look| {
        Template::parse(&match look {
            Look::Dns => dns(),
            Look::Stun => stun(),
            Look::Quic => quic(),
        })
        .ok()
    });
    match generation {
        Generation::V20 => settings.types = types(),
        // The key hides the types, which may then be WireGuard's: four numbers, which no data packet has by accident.
        // The ranges are those that Amnezia's apps give to their servers.
        Generation::V31 => {
            let mut key = Zeroizing::new([0; 32]);
            crypto::random(&mut *key);
            settings.header_key = Some((*key).into());
            settings.padding = Range { lo: 10, hi: 100 };
            settings.rekey_after = Range { lo: 100, hi: 120 };
            settings.rekey_timeout = Range { lo: 3, hi: 7 };
            settings.reject_after = Range { lo: 150, hi: 180 };
            settings.keepalive = Range { lo: 5, hi: 15 };
            settings.attempts = Range { lo: 15, hi: 20 };
            settings.trailers = true;
        }
    }
    settings
}

/// A random number, both ends included.
fn pick<T: Copy + Into<u32> + TryFrom<u32>>(lo: T, hi: T) -> T {
    // A number between two of the type is one of the type.
    T::try_from(Range { lo, hi }.draw()).unwrap_or(lo)
}

/// One of some items.
fn one<T: Copy>(items: &[T]) -> T {
    items[pick(0, items.len() as u32 - 1) as usize]
}

/// Some small letters.
fn letters(count: u32) -> String {
    (0..count).map(|_| char::from(pick(b'a', b'z'))).collect()
}

/// `S1` to `S4`, with which no two kinds of messages have the same length. All hold the nonce of a header protection
/// key. `S4` keeps data packets aligned, and fits into common paths with an MTU of 1420.
fn prefixes() -> [u16; 4] {
    loop {
        let drawn = [
            pick(15, 150),
            pick(15, 150),
            pick(12, 64),
            one(&[12, 16, 20]),
        ];
        let settings = Settings {
            prefix: drawn,
            ..Settings::default()
        };
        if settings.equal_lengths().is_empty() {
            return drawn;
        }
    }
}

/// `H1` to `H4`. Each lies in another 16th of the numbers up to 2^31, which programs with signed numbers read, too. The
/// first 16th has WireGuard's own.
fn types() -> [Range<u32>; 4] {
    const PART: u32 = 1 << 27;
    let mut parts: Vec<u32> = (1..16).collect();
    [(); 4].map(|()| {
        let part = parts.swap_remove(pick(0, parts.len() as u32 - 1) as usize);
        let lo = part * PART + pick(0, PART - WIDTHS.hi);
        let hi = lo + WIDTHS.draw() - 1;
        Range { lo, hi }
    })
}

/// A query for the address of a name that is this server's, with a random number each time.
fn dns() -> String {
    let syllable = |_| {
        let consonant = one(b"bcdfghklmnprstvz");
        [consonant, one(b"aeiou")].map(char::from)
    };
    let site: String = (0..pick(2_u32, 5)).flat_map(syllable).collect();
    let host = one(&["www", "api", "cdn", "img", "m", "mail", "news", "static"]);
    let top = one(&["com", "net", "org", "info", "io", "de"]);
    // Recursion desired; one question, and one record of EDNS behind it.
    let mut bytes = vec![1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in [host, &site, top] {
        // A label has at most 10 letters.
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    let kind = one(&[1, 28, 65]);
    let [high, low] = one(&[512_u16, 1232, 1452, 4096]).to_be_bytes();
    bytes.extend([0, 0, kind, 0, 1, 0, 0, 41, high, low, 0, 0, 0, 0, 0, 0]);
    format!("<r 2><b 0x{}>", crypto::hex(&bytes))
}

/// A binding request with the attributes of ICE (RFC 8445), without a fingerprint, which tags cannot compute.
fn stun() -> String {
    let mut user = format!("{}:{}", letters(4), letters(pick(4, 12)));
    // A user name has at most 17 letters.
    let length = user.len() as u8;
    while user.len() % 4 != 0 {
        user.push('\0');
    }
    // Four attributes: the user's name, a priority, which end controls, and a MAC.
    let total = (4 + user.len() + 8 + 12 + 24) as u8;
    let name = [&[0, 6, 0, length], user.as_bytes()].concat();
    let priority = [0, 0x24, 0, 4, 0x6e, pick(0, 255), pick(0, 255), 0xff];
    let controls = [0x80, one(&[0x29, 0x2a]), 0, 8];
    format!(
        "<b 0x000100{total:02x}2112a442><r 12><b 0x{}{}{}><r 8><b 0x00080014><r 20>",
        crypto::hex(&name),
        crypto::hex(&priority),
        crypto::hex(&controls)
    )
}

/// The outer form of an Initial packet (RFC 9000). Its content cannot be decrypted.
fn quic() -> String {
    let (size, own) = (pick(1200, 1252), one(&[0, 3, 4, 8]));
    let their = pick(8_u32, 20);
    let rest: u32 = size - (10 + their + own);
    let own_bytes = if own == 0 {
        String::new()
    } else {
        format!("<r {own}>")
    };
    // Generation 1.5 takes up to 1,000 bytes for each tag.
    format!(
        "<b 0x{:02x}00000001{their:02x}><r {their}><b 0x{own:02x}>{own_bytes}<b 0x00{:04x}><r 1000><r {}>",
        pick(0xc0_u8, 0xcf),
        0x4000 | rest,
        rest - 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireguard::amnezia::KEYS;

    #[test]
    fn no_drawn_value_is_warned_of() {
        for _ in 0..300 {
            for (_, generation) in Generation::ALL {
                for look in [None, Some(Look::Dns), Some(Look::Stun), Some(Look::Quic)] {
                    let settings = draw(generation, look);
                    assert_eq!(settings.check(), Ok(()));
                    for mtu in [None, Some(1420)] {
                        assert_eq!(settings.hints(mtu), [], "{settings:?}");
                    }
                    assert!(settings.equal_lengths().is_empty());
                    assert!(settings.prefix.iter().all(|it| *it >= 12));
                    assert!(settings.junk_len[1] < 1200);
                    assert!(settings.types.iter().all(|it| it.hi < 1 << 31));
                    assert_eq!(settings.special[0].is_some(), look.is_some());
                    assert_eq!(settings.header_key.is_some(), generation == Generation::V31);
                }
            }
        }
    }

    #[test]
    fn two_servers_differ() {
        for (_, look) in Look::ALL {
            let drawn = [(); 2].map(|()| draw(Generation::V20, Some(look)));
            for key in ["H1", "H2", "H3", "H4", "I1"] {
                assert_ne!(drawn[0].show(key), drawn[1].show(key), "{key}");
            }
        }
        let keys = [(); 2].map(|()| draw(Generation::V31, None).header_key);
        assert_ne!(keys[0], keys[1]);
        // A program of 2.0 knows all keys of that generation.
        let second = draw(Generation::V20, Some(Look::Dns));
        let used = KEYS.iter().filter(|it| second.show(it).is_some());
        assert!(
            used.into_iter()
                .all(|it| it.len() == 2 || it.starts_with("Jm"))
        );
    }

    #[test]
    fn packets_have_the_form_of_their_protocol() {
        for _ in 0..100 {
            let packet = |look| {
                draw(Generation::V20, Some(look)).special[0]
                    .clone()
                    .unwrap()
            };
            let bytes = |look| packet(look).emit(0, 0, 4);

            let dns = bytes(Look::Dns);
            assert_eq!(dns[2..12], [1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
            let mut at = 12;
            while dns[at] != 0 {
                at += usize::from(dns[at]) + 1;
            }
            assert_eq!(dns.len(), at + 1 + 4 + 11);

            let stun = bytes(Look::Stun);
            assert_eq!(stun[4..8], [0x21, 0x12, 0xa4, 0x42]);
            assert_eq!(usize::from(stun[3]), stun.len() - 20);
            let (mut at, mut kinds) = (20, Vec::new());
            while at < stun.len() {
                kinds.push(u16::from_be_bytes([stun[at], stun[at + 1]]));
                at += 4 + usize::from(stun[at + 3]).next_multiple_of(4);
            }
            assert_eq!(at, stun.len());
            assert_eq!((kinds[0], kinds[1], kinds[3]), (6, 0x24, 8));

            let quic = bytes(Look::Quic);
            assert!((1200..=1252).contains(&quic.len()));
            assert_eq!((quic[0] & 0xf0, &quic[1..5]), (0xc0, &[0, 0, 0, 1][..]));
            let own = 6 + usize::from(quic[5]);
            let token = own + 1 + usize::from(quic[own]);
            let length = u16::from_be_bytes([quic[token + 1], quic[token + 2]]) & 0x3fff;
            assert_eq!(quic[token], 0);
            assert_eq!(usize::from(length), quic.len() - token - 3);
        }
    }
}
