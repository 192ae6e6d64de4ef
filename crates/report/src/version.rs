//! Versions of programs.

use crate::part::Part;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;

/// Most digits of one number.
const DIGITS: usize = 5;

/// A version of two or three numbers, such as `24.10.2`. Four numbers would be an IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: Option<u32>,
}

impl Version {
    /// The version at the beginning of a text: its end, or one of `-`, `~`, `_` and `+`, must follow, and what follows
    /// them is left out.
    ///
    /// ```
    /// let version = report::Version::of("6.6.73-router.example").unwrap();
    /// assert_eq!(version.to_string(), "6.6.73");
    /// assert_eq!(report::Version::of("192.0.2.1"), None);
    /// ```
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let numbers = text.split(['-', '~', '_', '+']).next()?;
        let number = |text: &str| {
            let is_number = text.bytes().all(|it| it.is_ascii_digit()) && text.len() <= DIGITS;
            text.parse().ok().filter(|_| is_number)
        };
        let mut numbers = numbers.split('.');
        let version = Self {
            major: number(numbers.next()?)?,
            minor: number(numbers.next()?)?,
            patch: match numbers.next() {
                Some(text) => Some(number(text)?),
                None => None,
            },
        };
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |it| write!(out, ".{it}"))
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let version = Self::of(&text).filter(|it| it.to_string() == text);
        version.ok_or_else(|| D::Error::custom("a version has two or three numbers"))
    }
}

impl Part for Version {
    fn schema() -> Value {
        let pattern = r"^(0|[1-9]\d{0,4})\.(0|[1-9]\d{0,4})(\.(0|[1-9]\d{0,4}))?$";
        json!({ "type": "string", "pattern": pattern })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_packages_and_nothing_else() {
        for (text, version) in [
            ("0.1.0", Some("0.1.0")),
            ("24.10", Some("24.10")),
            ("24.10-SNAPSHOT", Some("24.10")),
            ("6.6.73", Some("6.6.73")),
            ("6.18.44-fc-v669", Some("6.18.44")),
            ("2024.12.17~ea01ed41-r1", Some("2024.12.17")),
            ("26.052.70521~9a7e2a1", Some("26.52.70521")),
            ("SNAPSHOT", None),
            ("6", None),
            ("192.0.2.1", None),
            ("192.0.2.1-1", None),
            ("10.0.0.0/8", None),
            ("1.2.x", None),
            ("1..2", None),
            ("+1.2", None),
            ("1.+2", None),
            ("1.2 host", None),
            ("123456.1", None),
            ("00.11.22:33", None),
            ("", None),
        ] {
            let found = Version::of(text).map(|it| it.to_string());
            assert_eq!(found.as_deref(), version, "{text}");
        }
        assert!(serde_json::from_str::<Version>("\"24.10.2\"").is_ok());
        for text in ["\"24.10-x\"", "\"024.10\"", "24.10"] {
            assert!(serde_json::from_str::<Version>(text).is_err(), "{text}");
        }
    }
}
