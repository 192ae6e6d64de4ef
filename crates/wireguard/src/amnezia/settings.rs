//! The settings of an interface, by the names that files give them.

use crypto::Key;

use super::range::decimal;
use super::{COMMON_PATH, Fault, Hint, JUNK_MAX, PREFIX_MAX, Range, Template};
use crate::data::DATA_MIN_LEN;
use crate::message::{
    COOKIE_REPLY_LEN, INITIATION_LEN, KEEPALIVE_TIMEOUT, REJECT_AFTER_TIME, REKEY_TIMEOUT,
    RESPONSE_LEN,
};

/// Settings of one interface. All-default settings are WireGuard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `Jc`: number of random packets before each initiation.
    pub junk: u16,
    /// `Jmin` and `Jmax`: their lengths.
    pub junk_len: [u16; 2],
    /// `S1` to `S4`: bytes in front of an initiation, a response, a cookie reply, a data packet.
    pub prefix: [u16; 4],
    /// `H1` to `H4`: numbers for the types of these messages.
    pub types: [Range<u32>; 4],
    /// `I1` to `I5`: packets before an initiation, in front of the random ones.
    pub special: [Option<Template>; 5],
    /// `J1` to `J3` of 1.5: these packets replace `I1` to `I5` until `Itime` has passed.
    pub between: [Option<Template>; 3],
    /// `Itime` of 1.5 in seconds.
    pub special_every: u32,
    /// `HeaderProtectionKey`.
    pub header_key: Option<Key>,
    /// `ContentPaddingAddition`: bytes of padding in a data packet.
    pub padding: Range<u16>,
    /// `RekeyAfterTime` in seconds; 0 for WireGuard's, as with the four that follow.
    pub rekey_after: Range<u16>,
    /// `RekeyTimeout` in seconds.
    pub rekey_timeout: Range<u16>,
    /// `RejectAfterTime` in seconds.
    pub reject_after: Range<u16>,
    /// `KeepaliveTimeout` in seconds.
    pub keepalive: Range<u16>,
    /// `MaxHandshakeAttempts`.
    pub attempts: Range<u16>,
    /// `RandomTrailers`: random bytes behind handshake messages.
    pub trailers: bool,
    /// `DisableCookies`: send no cookie replies.
    pub no_cookies: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            junk: 0,
            junk_len: [0; 2],
            prefix: [0; 4],
            types: [1, 2, 3, 4].map(Range::one),
            special: [const { None }; 5],
            between: [const { None }; 3],
            special_every: 0,
            header_key: None,
            padding: Range::one(0),
            rekey_after: Range::one(0),
            rekey_timeout: Range::one(0),
            reject_after: Range::one(0),
            keepalive: Range::one(0),
            attempts: Range::one(0),
            trailers: false,
            no_cookies: false,
        }
    }
}

/// All names, as files write them and in the order in which the configuration protocol lists them.
pub const KEYS: [&str; 29] = [
    "Jc",
    "Jmin",
    "Jmax",
    "S1",
    "S2",
    "S3",
    "S4",
    "H1",
    "H2",
    "H3",
    "H4",
    "I1",
    "I2",
    "I3",
    "I4",
    "I5",
    "J1",
    "J2",
    "J3",
    "Itime",
    "HeaderProtectionKey",
    "ContentPaddingAddition",
    "RekeyAfterTime",
    "RekeyTimeout",
    "RejectAfterTime",
    "KeepaliveTimeout",
    "MaxHandshakeAttempts",
    "RandomTrailers",
    "DisableCookies",
];

/// The keys whose values are packets of tags.
const PACKETS: [&str; 8] = ["I1", "I2", "I3", "I4", "I5", "J1", "J2", "J3"];

/// Bytes of the messages, and the names of the datagrams that carry them.
const MESSAGES: [(usize, &str); 4] = [
    (INITIATION_LEN, "initiation"),
    (RESPONSE_LEN, "response"),
    (COOKIE_REPLY_LEN, "cookie"),
    (DATA_MIN_LEN, "keepalive"),
];

impl Settings {
    /// Whether the interface speaks plain WireGuard.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// The protocol's name: `WireGuard`, or `AmneziaWG 2.0` with the first generation that has all these settings.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        let timings = [
            self.rekey_after,
            self.rekey_timeout,
            self.reject_after,
            self.keepalive,
            self.attempts,
        ];
        let is_set = |range: &Range<u16>| *range != Range::one(0);
        match self {
            _ if self.is_plain() => "WireGuard",
            _ if self.trailers || self.no_cookies => "AmneziaWG 3.1",
            _ if self.header_key.is_some() || is_set(&self.padding) => "AmneziaWG 3.0",
            _ if timings.iter().any(is_set) => "AmneziaWG 3.0",
            _ if self.is_of_1_5() => "AmneziaWG 1.5",
            _ if self.prefix[2..] != [0; 2] => "AmneziaWG 2.0",
            _ if self.types.iter().any(|it| it.width() > 1) => "AmneziaWG 2.0",
            _ if self.special.iter().any(Option::is_some) => "AmneziaWG 1.5",
            _ => "AmneziaWG 1.0",
        }
    }

    /// The generation in [`Settings::protocol`]; `None` for plain WireGuard.
    #[must_use]
    pub fn generation(&self) -> Option<&'static str> {
        self.protocol().strip_prefix("AmneziaWG ")
    }

    /// Whether a key is set that only generation 1.5 has.
    fn is_of_1_5(&self) -> bool {
        self.special_every > 0 || self.between.iter().any(Option::is_some)
    }

    /// Whether datagrams of both look the same to a receiver, so that sessions may go on after a change from one to
    /// the other.
    #[must_use]
    pub fn same_wire(&self, other: &Self) -> bool {
        let shared = |it: &Self| (it.prefix, it.types, it.header_key.clone(), it.trailers);
        shared(self) == shared(other)
    }

    /// Whether data packets are padded at random.
    #[must_use]
    pub const fn pads(&self) -> bool {
        self.padding.hi > 0 || self.trailers
    }

    /// Bytes of the times and counts in packets of tags: generation 1.5 has longer ones.
    pub(super) fn stamp(&self) -> usize {
        if self.is_of_1_5() { 8 } else { 4 }
    }

    /// Sets the value of a key of [`KEYS`], written in any case and with any underscores, as other programs write it. A
    /// key is 64 hexadecimal digits. An empty text removes a packet of tags.
    ///
    /// # Errors
    /// [`Fault`]; the settings are as before then.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        let name = name.replace('_', "").to_ascii_lowercase();
        let value = value.trim();
        let (letters, number) = match name.strip_suffix(|end: char| end.is_ascii_digit()) {
            Some(letters) => (letters, usize::from(name.as_bytes()[letters.len()] - b'0')),
            None => (&*name, 0),
        };
        let of = |count: usize| (1..=count).contains(&number).then(|| number - 1);
        let named = |count: usize| of(count).ok_or(Fault::Name);
        match letters {
            "s" => self.prefix[named(4)?] = up_to(value, PREFIX_MAX, Fault::PREFIX)?,
            "h" => self.types[named(4)?] = value.parse()?,
            "i" => self.special[named(5)?] = template(value)?,
            "j" => self.between[named(3)?] = template(value)?,
            _ if number > 0 => return Err(Fault::Name),
            "jc" => self.junk = up_to(value, JUNK_MAX, Fault::JUNK)?,
            "jmin" => self.junk_len[0] = length(value)?,
            "jmax" => self.junk_len[1] = length(value)?,
            "itime" => {
                let most = u64::from(u32::MAX);
                self.special_every = decimal(value).ok_or(Fault::Number(most))?;
            }
            "headerprotectionkey" => self.header_key = key(value)?,
            "contentpaddingaddition" => self.padding = value.parse()?,
            "rekeyaftertime" => self.rekey_after = above_zero(value)?,
            "rekeytimeout" => self.rekey_timeout = above_zero(value)?,
            "rejectaftertime" => self.reject_after = above_zero(value)?,
            "keepalivetimeout" => self.keepalive = above_zero(value)?,
            "maxhandshakeattempts" => self.attempts = above_zero(value)?,
            "randomtrailers" => self.trailers = switch(value)?,
            "disablecookies" => self.no_cookies = switch(value)?,
            _ => return Err(Fault::Name),
        }
        Ok(())
    }

    /// The value of a key of [`KEYS`] as [`Settings::set`] reads it; `None` for the default. The header protection key
    /// is secret.
    #[must_use]
    pub fn show(&self, name: &str) -> Option<String> {
        let at = usize::from(name.bytes().last()?.wrapping_sub(b'1'));
        let at = if name.len() == 2 { at } else { 0 };
        let plain = Self::default();
        let number = |value: u32| (value != 0).then(|| value.to_string());
        let range = |value: &Range<u16>| (*value != Range::one(0)).then(|| value.to_string());
        let text = |value: &Option<Template>| value.as_ref().map(|it| it.text().to_owned());
        let switch = |value: bool| value.then(|| "on".to_owned());
        match name {
            "Jc" => number(self.junk.into()),
            "Jmin" => number(self.junk_len[0].into()),
            "Jmax" => number(self.junk_len[1].into()),
            "S1" | "S2" | "S3" | "S4" => number(self.prefix[at].into()),
            "H1" | "H2" | "H3" | "H4" => {
                let value = self.types[at];
                (value != plain.types[at]).then(|| value.to_string())
            }
            "I1" | "I2" | "I3" | "I4" | "I5" => text(&self.special[at]),
            "J1" | "J2" | "J3" => text(&self.between[at]),
            "Itime" => number(self.special_every),
            "HeaderProtectionKey" => {
                let key = self.header_key.as_ref()?;
                Some(crypto::hex(key.as_bytes()))
            }
            "ContentPaddingAddition" => range(&self.padding),
            "RekeyAfterTime" => range(&self.rekey_after),
            "RekeyTimeout" => range(&self.rekey_timeout),
            "RejectAfterTime" => range(&self.reject_after),
            "KeepaliveTimeout" => range(&self.keepalive),
            "MaxHandshakeAttempts" => range(&self.attempts),
            "RandomTrailers" => switch(self.trailers),
            "DisableCookies" => switch(self.no_cookies),
            _ => None,
        }
    }

    /// Whether the values work together.
    ///
    /// # Errors
    /// The first [`Fault`].
    pub fn check(&self) -> Result<(), Fault> {
        for (at, types) in self.types.iter().enumerate() {
            let later = self.types.iter().enumerate().skip(at + 1);
            if let Some((other, _)) = later.into_iter().find(|(_, it)| types.overlaps(it)) {
                return Err(Fault::Overlap(at + 1, other + 1));
            }
        }
        let short = self.prefix.iter().position(|&len| len < 12);
        if let Some(at) = short.filter(|_| self.header_key.is_some()) {
            return Err(Fault::ShortPrefix(at + 1));
        }
        if self.junk_len[0] > self.junk_len[1] {
            return Err(Fault::JunkLengths);
        }
        let seconds = |range: Range<u16>, default: core::time::Duration| {
            range.or_default(default.as_secs() as u16)
        };
        let expiry = seconds(self.reject_after, REJECT_AFTER_TIME).lo;
        let silence = seconds(self.keepalive, KEEPALIVE_TIMEOUT).hi
            + seconds(self.rekey_timeout, REKEY_TIMEOUT).hi;
        match expiry > silence {
            true => Ok(()),
            false => Err(Fault::Expiry(silence + 1)),
        }
    }

    /// Returns hints about values that have no effect, give the tunnel away or cost packets. `mtu` is the interface's,
    /// if the file sets it.
    #[must_use]
    pub fn hints(&self, mtu: Option<u32>) -> Vec<Hint> {
        let mut hints = Vec::new();
        if self.is_plain() {
            return hints;
        }
        if self.header_key.is_none() {
            let own = self.types.iter().filter(|it| it.lo <= 4).count();
            hints.extend(match own {
                0 => None,
                4 => Some(Hint::Types),
                _ => Some(Hint::OneType),
            });
        }
        if !self.trailers {
            let equal = self.equal_lengths().into_iter();
            hints.extend(equal.map(|[one, other]| Hint::Lengths(one, other)));
        }
        let width: u64 = self.types[..3].iter().map(Range::width).sum();
        // 10^-5 of all numbers.
        if self.trailers && width > 42_949 {
            hints.push(Hint::Wide);
        }
        let lengths = ["S1", "S2", "S3"].into_iter().zip(self.lengths());
        let mut lengths: Vec<(&str, usize)> = lengths.collect();
        if self.junk > 0 {
            let cut = self.junk_len[1] > COMMON_PATH;
            hints.extend(cut.then_some(Hint::Cut(self.junk_len[1])));
        } else if self.junk_len != [0; 2] {
            hints.push(Hint::NoJunk);
        }
        for (name, packet) in PACKETS.into_iter().zip(self.packets()) {
            let Some(packet) = packet else { continue };
            lengths.push((name, packet.len(self.stamp())));
            if packet.is_constant() {
                hints.push(Hint::Constant(name));
            } else if packet.is_known() {
                hints.push(Hint::Known(name));
            }
        }
        let long = lengths
            .into_iter()
            .filter(|(_, len)| *len > COMMON_PATH.into());
        hints.extend(long.map(|(name, len)| Hint::Long(name, len)));
        let s4 = self.prefix[3];
        // 1500 less the headers of IPv6 and UDP, and of a data packet.
        let most = 1500 - 80 - u32::from(s4);
        if s4 > 0 && mtu.is_some_and(|mtu| mtu > most + 20) {
            hints.push(Hint::Mtu(s4, most));
        }
        hints
    }

    /// The lengths of the datagrams of [`MESSAGES`].
    fn lengths(&self) -> [usize; 4] {
        let mut prefixes = self.prefix.into_iter();
        MESSAGES.map(|(len, _)| len + usize::from(prefixes.next().unwrap_or_default()))
    }

    /// The pairs of datagrams that have the same length, by their names.
    #[must_use]
    pub fn equal_lengths(&self) -> Vec<[&'static str; 2]> {
        let lengths = self.lengths();
        let pairs = (1..4).flat_map(|other| (0..other).map(move |one| [one, other]));
        let equal = pairs.filter(|it| lengths[it[0]] == lengths[it[1]]);
        equal.map(|it| it.map(|at| MESSAGES[at].1)).collect()
    }

    /// The packets of [`PACKETS`].
    fn packets(&self) -> impl Iterator<Item = &Option<Template>> {
        self.special.iter().chain(&self.between)
    }
}

fn up_to(text: &str, most: u16, fault: Fault) -> Result<u16, Fault> {
    decimal(text).filter(|&value| value <= most).ok_or(fault)
}

/// A range of times or counts; 0 stands for WireGuard's value, and a timer of 0 would never stop to be due.
fn above_zero(text: &str) -> Result<Range<u16>, Fault> {
    let range: Range<u16> = text.parse()?;
    match range.lo > 0 || range.hi == 0 {
        true => Ok(range),
        false => Err(Fault::Zero),
    }
}

fn length(text: &str) -> Result<u16, Fault> {
    const MOST: u16 = super::PACKET_MAX as u16;
    up_to(text, MOST, Fault::Number(MOST.into()))
}

fn template(text: &str) -> Result<Option<Template>, Fault> {
    match text.is_empty() {
        true => Ok(None),
        false => Template::parse(text).map(Some),
    }
}

/// A key of 64 hexadecimal digits; all zeros mean none.
fn key(text: &str) -> Result<Option<Key>, Fault> {
    let mut bytes = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return Err(Fault::Key);
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(Fault::Key);
        // Each digit is below 16.
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    let key = Key::from(bytes);
    Ok((key != Key::ZERO).then_some(key))
}

fn switch(text: &str) -> Result<bool, Fault> {
    match &*text.to_ascii_lowercase() {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err(Fault::Switch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings(lines: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in lines {
            settings.set(name, value).unwrap();
        }
        settings
    }

    #[test]
    fn the_first_generation_with_all_settings_is_named() {
        let generation = |lines: &[(&str, &str)]| settings(lines).generation();
        let key = "40".repeat(32);
        for (lines, expected) in [
            (&[][..], None),
            (&[("Jc", "4"), ("S1", "9"), ("H1", "77")], Some("1.0")),
            (&[("I1", "<r 9>"), ("S1", "9")], Some("1.5")),
            (&[("Itime", "9"), ("S3", "9")], Some("1.5")),
            (&[("I1", "<r 9>"), ("S4", "9")], Some("2.0")),
            (&[("H1", "70-90")], Some("2.0")),
            (&[("RekeyTimeout", "3-7")], Some("3.0")),
            (&[("ContentPaddingAddition", "9"), ("S4", "9")], Some("3.0")),
            (&[("HeaderProtectionKey", &*key)], Some("3.0")),
            (&[("DisableCookies", "on"), ("Jc", "1")], Some("3.1")),
        ] {
            assert_eq!(generation(lines), expected, "{lines:?}");
        }
        assert_eq!(Settings::default().protocol(), "WireGuard");
    }

    #[test]
    fn every_key_is_shown_as_it_was_set() {
        let key = "40".repeat(32);
        for name in KEYS {
            let value = match name {
                "HeaderProtectionKey" => &*key,
                "RandomTrailers" | "DisableCookies" => "on",
                _ if name.len() == 2 && name.starts_with(['I', 'J']) && name != "Jc" => "<r 9><t>",
                _ if name.starts_with('H') => "70-90",
                _ if name.ends_with("Time") && name.starts_with('R') => "7-9",
                _ => "7",
            };
            let mut given = settings(&[(&name.to_uppercase(), value)]);
            assert_eq!(given.show(name).as_deref(), Some(value), "{name}");
            assert!(!given.is_plain());
            for other in KEYS.iter().filter(|other| **other != name) {
                assert_eq!(given.show(other), None, "{other} beside {name}");
            }
            let reset = match name {
                "H1" => "1",
                "H2" => "2",
                "H3" => "3",
                "H4" => "4",
                "HeaderProtectionKey" => &*"00".repeat(32),
                _ if value.starts_with('<') => "",
                _ => "0",
            };
            given.set(name, reset).unwrap();
            assert!(given.is_plain(), "{name}");
        }
        assert!(!format!("{:?}", settings(&[("HeaderProtectionKey", &key)])).contains("40"));
    }

    #[test]
    fn a_faulty_value_changes_nothing() {
        for (name, value, fault) in [
            ("Jc", "129", Fault::JUNK),
            ("Jc", "4-8", Fault::JUNK),
            ("S4", "1281", Fault::PREFIX),
            ("S5", "1", Fault::Name),
            ("S0", "1", Fault::Name),
            ("J4", "<r 1>", Fault::Name),
            ("Jmax", "65508", Fault::Number(65_507)),
            ("H1", "4294967296", Fault::Range),
            ("RekeyTimeout", "3-70000", Fault::Range),
            ("RekeyAfterTime", "0-120", Fault::Zero),
            ("RekeyTimeout", "0-7", Fault::Zero),
            ("RejectAfterTime", "0-180", Fault::Zero),
            ("KeepaliveTimeout", "0-10", Fault::Zero),
            ("MaxHandshakeAttempts", "0-20", Fault::Zero),
            ("RandomTrailers", "yes", Fault::Switch),
            ("HeaderProtectionKey", "40", Fault::Key),
            ("I1", "<x>", Fault::Tag),
            ("Itime", "-1", Fault::Number(u32::MAX.into())),
            ("Jitter", "1", Fault::Name),
            ("", "1", Fault::Name),
        ] {
            let mut given = Settings::default();
            assert_eq!(given.set(name, value), Err(fault), "{name} = {value}");
            assert!(given.is_plain());
        }
    }

    #[test]
    fn values_that_do_not_go_together_are_refused() {
        let key = "40".repeat(32);
        for (lines, fault) in [
            (&[("H1", "2")][..], Fault::Overlap(1, 2)),
            (&[("H4", "0-1")], Fault::Overlap(1, 4)),
            (&[("H2", "10-20"), ("H3", "20-30")], Fault::Overlap(2, 3)),
            (&[("Jmin", "10"), ("Jmax", "9")], Fault::JunkLengths),
            (
                &[
                    ("HeaderProtectionKey", &key),
                    ("S1", "12"),
                    ("S2", "12"),
                    ("S3", "11"),
                ],
                Fault::ShortPrefix(3),
            ),
            (&[("RejectAfterTime", "15-180")], Fault::Expiry(16)),
            (&[("KeepaliveTimeout", "10-200")], Fault::Expiry(206)),
        ] {
            assert_eq!(settings(lines).check(), Err(fault));
        }
        assert_eq!(Settings::default().check(), Ok(()));
    }

    #[test]
    fn values_that_give_a_tunnel_away_are_named() {
        let types = [("H1", "11"), ("H2", "12"), ("H3", "13"), ("H4", "14")];
        let with = |more: &[(&str, &str)]| settings(&[&types[..], more].concat()).hints(Some(1420));
        assert_eq!(with(&[]), []);
        assert_eq!(settings(&[("Jc", "4")]).hints(None), [Hint::Types]);
        assert_eq!(with(&[("H3", "3")]), [Hint::OneType]);
        let key = "40".repeat(32);
        let all = ["S1", "S2", "S3", "S4"].map(|name| (name, "12"));
        let hidden = [&all[..], &[("HeaderProtectionKey", &*key)]].concat();
        assert_eq!(settings(&hidden).hints(None), []);
        assert_eq!(Settings::default().hints(Some(9000)), []);
        let initiation = Hint::Lengths("initiation", "response");
        assert_eq!(with(&[("S1", "4"), ("S2", "60")]), [initiation]);
        let keepalive = Hint::Lengths("cookie", "keepalive");
        assert_eq!(with(&[("S4", "32")])[0], keepalive);
        let wide = [("H1", "100-100000"), ("RandomTrailers", "on")];
        assert_eq!(with(&wide), [Hint::Wide]);
        assert_eq!(with(&[("Jmin", "5"), ("Jmax", "9")]), [Hint::NoJunk]);
        let long = [("Jc", "1"), ("Jmax", "1473")];
        assert_eq!(with(&long), [Hint::Cut(1473)]);
        assert_eq!(with(&[("I2", "<r 1473>")]), [Hint::Long("I2", 1473)]);
        assert_eq!(with(&[("I3", "<b 01>")]), [Hint::Constant("I3")]);
        let known = [(
            "I1",
            "<r 2><b 0x858000010001000000000669636c6f756403636f6d0000010001>",
        )];
        assert_eq!(with(&known), [Hint::Known("I1")]);
        assert_eq!(with(&[("S4", "20")]), []);
        assert_eq!(with(&[("S4", "21")]), [Hint::Mtu(21, 1399)]);
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_a_fault(at in 0..KEYS.len(), value in "[ -~]{0,20}") {
            let mut given = Settings::default();
            let result = given.set(KEYS[at], &value);
            prop_assert!(result.is_ok() || given.is_plain());
            let _ = (given.check(), given.hints(None));
        }
    }
}
