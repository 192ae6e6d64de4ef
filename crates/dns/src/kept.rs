//! The last addresses of names that were good, for a start at which no name server answers: a text of a line for each name,
//! of which the one that was used last comes last.

use std::fmt::Write as _;
use std::net::IpAddr;

/// Most names that are kept: those of a few tunnels' peers and relays.
pub const NAMES_MAX: usize = 32;

/// Most addresses of a name that are kept.
pub const ADDRESSES_MAX: usize = 4;

/// More bytes than a whole text has.
pub const TEXT_MAX: usize = 16 << 10;

/// Longest name, in bytes.
const NAME_MAX: usize = 253;

/// Names and their addresses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Kept {
    names: Vec<(String, Vec<IpAddr>)>,
}

/// The change that a name's new addresses make to the kept ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// One of them is kept already.
    None,
    /// All of them are new.
    Moved,
    /// The name is new.
    New,
}

impl Kept {
    /// Reads a text. Lines that are none are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut kept = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let Some(name) = words.next() else { continue };
            let addresses: Vec<IpAddr> = words.filter_map(|it| it.parse().ok()).collect();
            if !addresses.is_empty() {
                kept.put(name, &addresses);
            }
        }
        kept
    }

    /// The text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, addresses) in &self.names {
            text.push_str(name);
            for address in addresses {
                // Writing to a string does not fail.
                let _ = write!(text, " {address}");
            }
            text.push('\n');
        }
        text
    }

    /// The addresses of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> &[IpAddr] {
        let found = self.names.iter().find(|it| it.0.eq_ignore_ascii_case(name));
        found.map_or(&[], |(_, addresses)| addresses)
    }

    /// The change that keeping these addresses would make.
    #[must_use]
    pub fn change(&self, name: &str, addresses: &[IpAddr]) -> Change {
        match self.get(name) {
            [] => Change::New,
            kept if kept.iter().any(|it| addresses.contains(it)) => Change::None,
            _ => Change::Moved,
        }
    }

    /// Keeps the addresses of a name; of too many names the one that was put first goes.
    pub fn put(&mut self, name: &str, addresses: &[IpAddr]) {
        let is_plain = |byte: u8| byte.is_ascii_graphic();
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_plain) {
            return;
        }
        self.names.retain(|it| !it.0.eq_ignore_ascii_case(name));
        let addresses = addresses.iter().copied().take(ADDRESSES_MAX).collect();
        self.names.push((name.to_owned(), addresses));
        if self.names.len() > NAMES_MAX {
            self.names.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|it| it.parse().unwrap()).collect()
    }

    #[test]
    fn a_name_is_kept_until_it_moves() {
        let mut kept = Kept::default();
        let (first, second) = (ips(&["192.0.2.1", "2001:db8::1"]), ips(&["192.0.2.2"]));
        assert_eq!(kept.change("vpn.example", &first), Change::New);
        kept.put("vpn.example", &first);
        assert_eq!(kept.change("VPN.example", &first[1..]), Change::None);
        assert_eq!(kept.change("vpn.example", &second), Change::Moved);
        assert_eq!(kept.to_text(), "vpn.example 192.0.2.1 2001:db8::1\n");
        assert_eq!(Kept::parse(&kept.to_text()), kept);
        assert!(kept.get("other.example").is_empty());
    }

    #[test]
    fn what_is_no_line_is_left_out() {
        let kept =
            Kept::parse("a.example 192.0.2.1 nonsense\n\nb.example\n 192.0.2.9\nc.example x\n");
        assert_eq!(kept.to_text(), "a.example 192.0.2.1\n");
    }

    proptest! {
        /// For any kept addresses the text is small and is read back unchanged.
        #[test]
        fn texts_are_bounded(names in prop::collection::vec("[ -~]{0,300}", 0..80), bits: u128) {
            let mut kept = Kept::default();
            for (number, name) in names.iter().enumerate() {
                let addresses: Vec<IpAddr> = (0..9).map(|it| IpAddr::from((bits ^ (number as u128 + it)).to_be_bytes())).collect();
                kept.put(name, &addresses);
            }
            let text = kept.to_text();
            prop_assert!(text.len() <= TEXT_MAX);
            prop_assert_eq!(Kept::parse(&text), kept);
        }
    }
}
