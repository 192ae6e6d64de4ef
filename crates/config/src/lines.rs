//! Lines (uplinks): the paths over which a tunnel may reach its peers, as a file describes them.
//!
//! In a `wg-quick` file lines stand in comments, which programs without support for lines skip:
//!
//! ```text
//! #! [Uplinks]
//! #! Mode = failover
//! #! Hold = 30
//! #! [Uplink]
//! #! Name = fibre
//! #! Interface = eth1
//! ```
//!
//! A section begins with its head and ends with the next head of any kind. `#!` before the first such head is an
//! ordinary comment. In a TOML file, lines are tables: `[uplinks]` and `[[uplink]]`. Those of Millrace's own settings
//! file are for every tunnel without lines of its own ([`SharedLines`]).

use std::net::IpAddr;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::keys::{self, Key, some, store, texts, up_to};
use crate::types::{Endpoint, Key32, is_ifname};

mod section;
mod shared;
pub(crate) mod table;

pub(crate) use section::{Found, Sections};
pub use shared::{Given, SharedLines};

/// Maximum number of lines that a file may describe, and that a tunnel may have.
pub const LINES_MAX: usize = 16;

/// Default of `Hold`: how long a better line must have worked before the tunnel goes back to it.
pub const HOLD_DEFAULT: Duration = Duration::from_secs(30);

/// Longest `Hold`, in seconds.
const HOLD_MAX: u64 = 3600;

/// Default of `Priority`.
const PRIORITY_DEFAULT: u8 = 10;

/// Default of `CapDay`.
const CAP_DAY_DEFAULT: u8 = 1;

/// Upper bound of the text of one line, in bytes: a relay's name and zone, and 512 for everything else.
const LINE_TEXT: usize = 1024;

/// The lines of one tunnel. Without any, it has one socket for each address family, and the host's routes decide.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lines {
    /// How the tunnel uses its lines.
    pub mode: LineMode,
    /// How long a better line must have worked before the tunnel goes back to it.
    pub hold: Duration,
    /// Packets of a peer are put back into order before they are written. For peers that send over several lines.
    pub reorder: bool,
    /// Each line has a fair queue, from which packets leave no faster than the line's rate.
    pub shape: bool,
    /// The lines, at most [`LINES_MAX`], with different names and different local ends. May be empty: peers may connect
    /// over several lines of theirs, and this host answers on each.
    pub lines: Vec<Line>,
}

impl Lines {
    /// Whether these are the defaults: one socket for each address family, and one path to each peer.
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
    /// Send each packet over all working lines.
    Duplicate,
    /// Send loss-sensitive packets over all working lines, and others as with failover.
    Critical,
    /// Send each connection over one working line, in proportion to the lines' rates.
    Balance,
    /// Send each packet over one working line, with bytes in proportion to the lines' rates.
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
    /// The firewall mark of the line's datagrams, which replaces the tunnel's.
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
            priority: PRIORITY_DEFAULT,
            metered: false,
            rate: None,
            cap: None,
            cap_day: CAP_DAY_DEFAULT,
            relay: None,
            relay_key: None,
        }
    }
}

/// Keys of `[Uplinks]`.
const LINES_KEYS: &[Key<Lines>] = &[
    Key {
        name: "Mode",
        set: |lines, value| {
            let mode = LineMode::ALL.into_iter().find(|it| it.as_str() == value);
            let wanted = "must be `failover`, `single`, `duplicate`, `critical`, `balance` or `balance-packets`";
            store(&mut lines.mode, mode.ok_or(wanted))
        },
        show: |lines| texts([lines.mode.as_str()]),
    },
    Key {
        name: "Hold",
        set: |lines, value| {
            let hold = up_to(value, HOLD_MAX).map(Duration::from_secs);
            let wanted = "must be a number of seconds up to 3600";
            store(&mut lines.hold, hold.ok_or(wanted))
        },
        show: |lines| texts([lines.hold.as_secs()]),
    },
    Key {
        name: "Reorder",
        set: |lines, value| store(&mut lines.reorder, yes_or_no(value)),
        show: |lines| texts(lines.reorder.then_some("yes")),
    },
    Key {
        name: "Shape",
        set: |lines, value| store(&mut lines.shape, yes_or_no(value)),
        show: |lines| texts(lines.shape.then_some("yes")),
    },
];

/// Keys of `[Uplink]`.
const LINE_KEYS: &[Key<Line>] = &[
    Key {
        name: "Name",
        set: |line, value| store(&mut line.name, keys::name(value)),
        show: |line| texts([&line.name]),
    },
    Key {
        name: "Interface",
        set: |line, value| {
            let name = is_ifname(value).then(|| value.to_owned());
            some(&mut line.interface, name.ok_or("is not an interface name"))
        },
        show: |line| texts(&line.interface),
    },
    Key {
        name: "Source",
        set: |line, value| {
            let source: IpAddr = value.parse().map_err(|_| "must be an address")?;
            let own = Some(source).filter(|it| !it.is_unspecified() && !it.is_multicast());
            some(
                &mut line.source,
                own.ok_or("must be an address of this machine"),
            )
        },
        show: |line| texts(line.source),
    },
    Key {
        name: "Mark",
        set: |line, value| {
            let mark = keys::number(value).filter(|&mark| mark != 0);
            some(
                &mut line.mark,
                mark.ok_or("must be a number from 1 to 0xffffffff"),
            )
        },
        show: |line| texts(line.mark.map(|it| format!("{it:#x}"))),
    },
    Key {
        name: "Priority",
        set: |line, value| {
            let wanted = "must be a number from 0 to 255; the uplink with the lowest is preferred";
            store(&mut line.priority, up_to(value, 255).ok_or(wanted))
        },
        show: |line| texts(Some(line.priority).filter(|it| *it != PRIORITY_DEFAULT)),
    },
    Key {
        name: "Metered",
        set: |line, value| store(&mut line.metered, yes_or_no(value)),
        show: |line| texts(line.metered.then_some("yes")),
    },
    Key {
        name: "Rate",
        set: |line, value| some(&mut line.rate, keys::rate(value)),
        show: |line| texts(line.rate),
    },
    Key {
        name: "Cap",
        set: |line, value| {
            // Below a megabyte it is a mistake: probes to the peer cost more.
            let fits = |cap: &u64| (1_000_000..=1_000_000_000_000_000).contains(cap);
            let wanted =
                "must be bytes per month, with `k`, `M` or `G` for thousands, from 1M to 1000000G";
            some(
                &mut line.cap,
                keys::thousands(value).filter(fits).ok_or(wanted),
            )
        },
        show: |line| texts(line.cap),
    },
    Key {
        name: "CapDay",
        set: |line, value| {
            let day = up_to(value, 28).filter(|day| *day > 0);
            let wanted = "must be a day of the month, from 1 to 28";
            store(&mut line.cap_day, day.ok_or(wanted))
        },
        show: |line| texts(Some(line.cap_day).filter(|it| *it != CAP_DAY_DEFAULT)),
    },
    Key {
        name: "Relay",
        set: |line, value| some(&mut line.relay, keys::parsed(&keys::compact(value))),
        show: |line| texts(&line.relay),
    },
    Key {
        name: "RelayKey",
        set: |line, value| some(&mut line.relay_key, keys::shared_key(value)),
        show: |line| line.relay_key.iter().map(Key32::to_base64).collect(),
    },
];

impl Line {
    /// Whether something says by which way the line's packets leave.
    const fn has_end(&self) -> bool {
        self.interface.is_some() || self.source.is_some() || self.relay.is_some()
    }

    /// The faults of keys that need others: words that follow `this [Uplink] has`.
    fn faults(&self) -> impl Iterator<Item = &'static str> {
        let (relay, key) = (self.relay.is_some(), self.relay_key.is_some());
        let day = self.cap_day != CAP_DAY_DEFAULT;
        let nowhere = "no Interface, Source or Relay; add one of them";
        let checks = [
            (self.name.is_empty(), "no Name; add one"),
            (!self.has_end(), nowhere),
            (day && self.cap.is_none(), "a CapDay but no Cap; add it"),
            (relay && !key, "a Relay but no RelayKey; add it"),
            (key && !relay, "a RelayKey but no Relay; add it"),
        ];
        checks.into_iter().filter(|it| it.0).map(|it| it.1)
    }
}

impl Lines {
    /// Why `key` has no effect beside the other keys, if it has none.
    fn does_nothing(&self, key: &str, calls: bool) -> Option<&'static str> {
        let Self {
            mode, lines, shape, ..
        } = self;
        // Every mode but `single` can fall back to one line: for handshakes, for metered or used-up lines, or for a
        // server that several lines cannot reach.
        let goes_back = *mode != LineMode::Single;
        let shares = matches!(mode, LineMode::Balance | LineMode::BalancePackets);
        match key {
            "Rate" if *shape => None,
            "Mode" | "Hold" | "Rate" | "Cap" | "CapDay" if !lines.is_empty() && !calls => Some(
                "has no effect without an Endpoint: a peer that connects is answered on the uplink that its packets \
                 came through",
            ),
            "Hold" if lines.is_empty() => Some("there is no [Uplink] to return to"),
            "Hold" if !goes_back => Some("this Mode does not return to an uplink"),
            "Rate" if !shares => Some(
                "has an effect only with `Mode = balance` or `balance-packets`, or `Shape = yes`",
            ),
            _ => None,
        }
    }

    /// Writes the sections as comments of a `wg-quick` file; empty for the default. The text holds the relays' keys,
    /// and is overwritten when dropped.
    #[must_use]
    pub fn to_comments(&self) -> Zeroizing<String> {
        if self.is_default() {
            return Zeroizing::default();
        }
        // Reserved beforehand: a string that grows leaves copies of the keys behind.
        let mut out = Zeroizing::new(String::with_capacity(128 + self.lines.len() * LINE_TEXT));
        *out += "#! [Uplinks]\n";
        keys::write(LINES_KEYS, self, "#! ", &mut out);
        for line in &self.lines {
            *out += "#! [Uplink]\n";
            keys::write(LINE_KEYS, line, "#! ", &mut out);
        }
        out
    }
}

fn yes_or_no(value: &str) -> Result<bool, &'static str> {
    match value {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err("must be `yes` or `no`"),
    }
}
