//! Keeps the last good addresses of names, for a start at which no name server answers. The text has one line for
//! each name, the most recently used last.

use std::fmt::Write as _;
use std::net::IpAddr;

/// Maximum number of names to keep: enough for the peers and relays of a few tunnels.
pub const NAMES_MAX: usize = 32;

/// Maximum number of addresses to keep of a name.
pub const ADDRESSES_MAX: usize = 4;

/// Upper bound of the text, in bytes.
pub const TEXT_MAX: usize = 16 << 10;

/// Longest name, in bytes.
const NAME_MAX: usize = 253;

/// Names and their addresses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Kept {
    names: Vec<(String, Vec<IpAddr>)>,
}

/// How new addresses of a name compare with the kept ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// At least one address is kept already.
    None,
    /// The name is kept, but none of these addresses is.
    Moved,
    /// The name is not kept yet.
    New,
}

impl Kept {
    /// Parses the text. Invalid lines are skipped.
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

    /// The text for [`Kept::parse`].
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

    /// The kept addresses of a name; empty if there are none.
    #[must_use]
    pub fn get(&self, name: &str) -> &[IpAddr] {
        let found = self.names.iter().find(|it| it.0.eq_ignore_ascii_case(name));
        found.map_or(&[], |(_, addresses)| addresses)
    }

    /// Compares `addresses` with the kept ones.
    #[must_use]
    pub fn change(&self, name: &str, addresses: &[IpAddr]) -> Change {
        match self.get(name) {
            [] => Change::New,
            kept if kept.iter().any(|it| addresses.contains(it)) => Change::None,
            _ => Change::Moved,
        }
    }

    /// Keeps the addresses of a name. With too many names, drops the one that was put first.
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
        /// For any names and addresses, the text is bounded and is read back unchanged.
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
