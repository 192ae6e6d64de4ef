//! Lines (uplinks): the ways by which a tunnel may reach its peers, as a file describes them.
//!
//! In a `wg-quick` file lines stand in comments, which programs without support for lines skip:
//!
//! ```text
//! #! [Lines]
//! #! Mode = failover
//! #! Hold = 30
//! #! [Line]
//! #! Name = fibre
//! #! Interface = eth1
//! ```
//!
//! A section begins with its head and ends with the next head of any kind. `#!` before the first such head is an
//! ordinary comment. In a TOML file, lines are tables: `[lines]` and `[[line]]`. Those of Millrace's own settings
//! file are for every tunnel without lines of its own ([`SharedLines`]).

use std::net::IpAddr;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::suggest::suggest;
use crate::types::{Endpoint, Key32, decimal, is_ifname};
use crate::wgquick::value;

mod section;
mod shared;
pub(crate) mod table;

pub(crate) use section::{Found, Sections};
pub use shared::{Given, SharedLines};

/// Most lines that a file may describe, which is the most that a tunnel may have.
pub const LINES_MAX: usize = 16;

/// Default of `Hold`: how long a better line must have worked before the tunnel goes back to it.
pub const HOLD_DEFAULT: Duration = Duration::from_secs(30);

/// Longest `Hold`, in seconds.
const HOLD_MAX: u64 = 3600;

/// Longest name of a line, in bytes.
const NAME_MAX: usize = 32;

/// Upper bound of the text of one line, in bytes: a relay's name and zone, and 512 for everything else.
const LINE_TEXT: usize = 1024;

/// The lines of one tunnel. Without any, it has one socket for each address family, and the host's routes decide.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lines {
    /// How the tunnel uses its lines.
    pub mode: LineMode,
    /// How long a better line must have worked before the tunnel goes back to it.
    pub hold: Duration,
    /// Packets of a peer are put back into order before they are written. For peers that send by several lines.
    pub reorder: bool,
    /// Each line has a fair queue, from which packets leave no faster than the line's rate.
    pub shape: bool,
    /// The lines, at most [`LINES_MAX`], with different names and different local ends. May be empty: peers may call
    /// by several lines of theirs, and this host answers on each.
    pub lines: Vec<Line>,
}

impl Lines {
    /// Whether these are the defaults: one socket for each address family, and one way to each peer.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            mode: LineMode::default(),
            hold: HOLD_DEFAULT,
            reorder: false,
            shape: false,
            lines: Vec::new(),
        }
    }
}

/// How a tunnel uses its lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LineMode {
    /// Use the preferred line, whatever its state.
    Single,
    /// Use the best working line, and go back to a better one after the hold time.
    #[default]
    Failover,
    /// Send each packet by all working lines.
    Duplicate,
    /// Send loss-sensitive packets by all working lines, and others as with failover.
    Critical,
    /// Send each connection by one working line, in proportion to the lines' rates.
    Balance,
    /// Send each packet by one working line, with bytes in proportion to the lines' rates.
    BalancePackets,
}

impl LineMode {
    /// All modes.
    pub const ALL: [Self; 6] = [
        Self::Single,
        Self::Failover,
        Self::Duplicate,
        Self::Critical,
        Self::Balance,
        Self::BalancePackets,
    ];

    /// Whether packets to one peer use several lines at a time.
    #[must_use]
    pub const fn spreads(self) -> bool {
        !matches!(self, Self::Single | Self::Failover)
    }

    /// The mode's name in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Failover => "failover",
            Self::Duplicate => "duplicate",
            Self::Critical => "critical",
            Self::Balance => "balance",
            Self::BalancePackets => "balance-packets",
        }
    }
}

/// One line, which has at least one of: interface, source, relay.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Line {
    /// The line's name in logs and reports.
    pub name: String,
    /// The network device that the line's sockets are bound to.
    pub interface: Option<String>,
    /// The local address that the line's sockets are bound to.
    pub source: Option<IpAddr>,
    /// The firewall mark of its datagrams, which replaces the tunnel's.
    pub mark: Option<u32>,
    /// Lines with a lower number are preferred.
    pub priority: u8,
    /// The line's traffic costs money, so that it is used only if no other line works.
    pub metered: bool,
    /// The line's upload rate, in bits a second: sets its share of connections or packets, and the queue's limit.
    pub rate: Option<u64>,
    /// The line's monthly allowance, in bytes of both directions. A line that has used it up carries packets only if
    /// no other line works.
    pub cap: Option<u64>,
    /// The day on which the allowance's month begins, 1 to 28.
    pub cap_day: u8,
    /// The relay through which this line reaches the peer. Set if and only if `relay_key` is.
    pub relay: Option<Endpoint>,
    /// The key for the relay; see [`Line::relay`].
    pub relay_key: Option<Key32>,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            name: String::new(),
            interface: None,
            source: None,
            mark: None,
            priority: 10,
            metered: false,
            rate: None,
            cap: None,
            cap_day: 1,
            relay: None,
            relay_key: None,
        }
    }
}

/// Keys of `[Lines]`.
const LINES_KEYS: [&str; 4] = ["Mode", "Hold", "Reorder", "Shape"];

/// Keys of `[Line]`.
const LINE_KEYS: [&str; 11] = [
    "Name",
    "Interface",
    "Source",
    "Mark",
    "Priority",
    "Metered",
    "Rate",
    "Cap",
    "CapDay",
    "Relay",
    "RelayKey",
];

impl Lines {
    /// Sets a key of `[Lines]`. Returns its usual spelling.
    fn set(&mut self, key: &str, value: &str) -> Result<&'static str, String> {
        let name = known(key, &LINES_KEYS)?;
        match name {
            "Mode" => {
                let mode = LineMode::ALL.into_iter().find(|it| it.as_str() == value);
                self.mode = mode.ok_or(
                    "must be `failover`, `single`, `duplicate`, `critical`, `balance` or `balance-packets`",
                )?;
            }
            "Reorder" => self.reorder = yes_or_no(value)?,
            "Shape" => self.shape = yes_or_no(value)?,
            _ => {
                let seconds = decimal(value).filter(|&seconds| seconds <= HOLD_MAX);
                let seconds = seconds.ok_or("must be a number of seconds up to 3600")?;
                self.hold = Duration::from_secs(seconds);
            }
        }
        Ok(name)
    }

    /// Writes the sections as comments of a `wg-quick` file; empty for the default. The text holds the relays' keys,
    /// and is overwritten when dropped.
    #[must_use]
    pub fn to_comments(&self) -> Zeroizing<String> {
        if self.is_default() {
            return Zeroizing::default();
        }
        let (mode, hold) = (self.mode.as_str(), self.hold.as_secs());
        // Reserved beforehand: a string that grows leaves copies of the keys behind.
        let mut out = Zeroizing::new(String::with_capacity(128 + self.lines.len() * LINE_TEXT));
        *out += &format!("#! [Lines]\n#! Mode = {mode}\n#! Hold = {hold}\n");
        if self.reorder {
            *out += "#! Reorder = yes\n";
        }
        if self.shape {
            *out += "#! Shape = yes\n";
        }
        for line in &self.lines {
            *out += "#! [Line]\n";
            for (key, value) in line.values() {
                for part in ["#! ", key, " = ", value.as_str(), "\n"] {
                    *out += part;
                }
            }
        }
        out
    }
}

impl Line {
    /// Keys whose values differ from the defaults.
    fn values(&self) -> Vec<(&'static str, Zeroizing<String>)> {
        let usual = Self::default();
        let mut values = vec![("Name", self.name.clone())];
        values.extend(self.interface.clone().map(|it| ("Interface", it)));
        values.extend(self.source.map(|it| ("Source", it.to_string())));
        values.extend(self.mark.map(|it| ("Mark", format!("{it:#x}"))));
        let priority = Some(self.priority).filter(|it| *it != usual.priority);
        values.extend(priority.map(|it| ("Priority", it.to_string())));
        values.extend(self.metered.then(|| ("Metered", "yes".to_owned())));
        values.extend(self.rate.map(|it| ("Rate", it.to_string())));
        values.extend(self.cap.map(|it| ("Cap", it.to_string())));
        let day = Some(self.cap_day).filter(|it| *it != usual.cap_day);
        values.extend(day.map(|it| ("CapDay", it.to_string())));
        values.extend(self.relay.iter().map(|it| ("Relay", it.to_string())));
        let values = values.into_iter();
        let mut values: Vec<_> = values.map(|it| (it.0, Zeroizing::new(it.1))).collect();
        let key = self.relay_key.iter();
        values.extend(key.map(|it| ("RelayKey", it.to_base64())));
        values
    }

    /// Sets a key of `[Line]`. Returns its usual spelling.
    fn set(&mut self, key: &str, value: &str) -> Result<&'static str, String> {
        let name = known(key, &LINE_KEYS)?;
        match name {
            "Name" => {
                name_of(value)?.clone_into(&mut self.name);
            }
            "Interface" => {
                if !is_ifname(value) {
                    return Err("is no name of an interface".to_owned());
                }
                self.interface = Some(value.to_owned());
            }
            "Source" => {
                let source: IpAddr = value.parse().map_err(|_| "must be an address".to_owned())?;
                let any = source.is_unspecified() || source.is_multicast();
                if any {
                    return Err("must be an address of this machine".to_owned());
                }
                self.source = Some(source);
            }
            "Mark" => {
                let mark = number(value).filter(|&mark| mark != 0);
                self.mark = Some(mark.ok_or("must be a number from 1 to 0xffffffff")?);
            }
            "Priority" => {
                let number = decimal(value).and_then(|it| u8::try_from(it).ok());
                self.priority = number.ok_or("must be a number from 0 to 255; 0 is preferred")?;
            }
            "Metered" => self.metered = yes_or_no(value)?,
            "Relay" => self.relay = Some(value::parsed(&value::compact(value))?),
            "Cap" => self.cap = Some(cap(value).ok_or(CAP_FAULT)?),
            "CapDay" => {
                let day = decimal(value).and_then(|it| u8::try_from(it).ok());
                let day = day.filter(|day| (1..=28).contains(day));
                self.cap_day = day.ok_or("must be a day of each month, from 1 to 28")?;
            }
            "RelayKey" => self.relay_key = Some(secret(value)?),
            _ => self.rate = Some(rate(value).ok_or(RATE_FAULT)?),
        }
        Ok(name)
    }
}

/// Checks a name for logs and reports.
pub(crate) fn name_of(value: &str) -> Result<&str, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match value.is_empty() || value.len() > NAME_MAX || !value.bytes().all(fits) {
        true => Err("must be letters, digits, `-`, `_` and `.`, at most 32".to_owned()),
        false => Ok(value),
    }
}

/// Parses a key that two ends share.
pub(crate) fn secret(value: &str) -> Result<Key32, String> {
    let key = value::key(value)?;
    match key.is_zero() {
        true => Err("an all-zero key is none; `millrace genpsk` makes one".to_owned()),
        false => Ok(key),
    }
}

pub(crate) const RATE_FAULT: &str =
    "must be bits a second, with `k`, `M` or `G` for thousands, at most 1000G";

/// Parses a rate, in bits a second.
pub(crate) fn rate(text: &str) -> Option<u64> {
    thousands(text).filter(|rate| (1..=1_000_000_000_000).contains(rate))
}

const CAP_FAULT: &str =
    "must be bytes a month, with `k`, `M` or `G` for thousands, from 1M to 1000000G";

/// Parses an allowance, in bytes a month. Below a megabyte it is a mistake: probes to the peer cost more.
fn cap(text: &str) -> Option<u64> {
    thousands(text).filter(|cap| (1_000_000..=1_000_000_000_000_000).contains(cap))
}

/// Parses a number with an optional unit (powers of 1,000).
fn thousands(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().next_back()? {
        (at, 'k') => (&text[..at], 1_000),
        (at, 'M') => (&text[..at], 1_000_000),
        (at, 'G') => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    decimal(digits)?.checked_mul(unit)
}

fn yes_or_no(value: &str) -> Result<bool, &'static str> {
    match value {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err("must be `yes` or `no`"),
    }
}

/// The usual spelling of a key that is written in any case.
pub(crate) fn known(key: &str, keys: &[&'static str]) -> Result<&'static str, String> {
    let found = keys.iter().find(|known| known.eq_ignore_ascii_case(key));
    let unknown = || format!("no such key; {}", suggest(key, keys));
    found.copied().ok_or_else(unknown)
}

fn number(text: &str) -> Option<u32> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => decimal(text)?,
    };
    u32::try_from(value).ok()
}
