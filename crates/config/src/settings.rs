//! Millrace's own settings, which have no key in a `.conf` file.
//!
//! Sources, later ones winning: the built-in defaults, a TOML file, the environment variable `MILLRACE_SET`, and
//! `--set` on the command line. The variable exists because `wg-quick` starts the program with only an interface
//! name.
//!
//! ```toml
//! [dataplane]
//! workers = "auto"        # or a number of threads
//! udp-gso = "off"         # switch one kind of offload off
//! ```
//!
//! [`crate::lines`] describes `[uplinks]` and `[[uplink]]`.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use toml::de::DeValue;

use crate::lines::{SharedLines, table};
use crate::text::line_of;
use crate::types::decimal;
use reader::{Row, parsed, places, put, set, text_of, unknown};

mod error;
pub(crate) mod reader;
pub mod tables;

use error::wrong_line;
pub use error::{Origin, SettingsError};

/// Default path of the settings file, which need not exist.
pub const DEFAULT_PATH: &str = "/etc/millrace/millrace.toml";

/// Environment variable with comma-separated overrides: `dataplane.udp-gso=off,...`.
pub const ENVIRONMENT: &str = "MILLRACE_SET";

/// Largest accepted settings file, in bytes; real ones have a few hundred.
pub const FILE_MAX: u64 = 64 * 1024;

/// Settings of one tunnel, from its settings file and `-o` options.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// How packets are moved.
    pub dataplane: DataplaneSettings,
    /// Lines for tunnels without lines of their own; `None` if the file has neither `[uplinks]` nor `[[uplink]]`.
    pub lines: Option<SharedLines>,
}

/// The `[dataplane]` section.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DataplaneSettings {
    /// Who moves the packets of an OpenVPN tunnel.
    pub kind: Kind,
    /// Threads of the data plane, 1 to 64; `None` derives it from the number of cores.
    pub workers: Option<usize>,
    /// Read TCP super-packets from the TUN (`TUN_F_TSO4`/`TSO6`).
    pub tun_gso: Rung,
    /// Read UDP super-packets from the TUN (`TUN_F_USO4`/`USO6`, Linux 6.2).
    pub tun_uso: Rung,
    /// Join received packets into super-packets before they are written to the TUN.
    pub tun_gro: Rung,
    /// Send several datagrams in one call (`UDP_SEGMENT`, Linux 4.18).
    pub udp_gso: Rung,
    /// Receive several datagrams joined (`UDP_GRO`, Linux 5.0).
    pub udp_gro: Rung,
    /// Use `sendmmsg` and `recvmmsg`.
    pub mmsg: Rung,
    /// Active queue management (RFC 7567): makes TCP slow down before packets queue for long in the sockets.
    pub aqm: Rung,
    /// Lets a worker wait up to 50 µs for more packets while they arrive quickly and one by one.
    pub coalescing: Rung,
    /// Treatment of outer datagrams that exceed the path MTU.
    pub mtu_disc: MtuDiscovery,
    /// The address that MTU probes in a WireGuard tunnel are sent to.
    pub mtu_probe: MtuProbe,
    /// Make the TCP segments of connections through a WireGuard tunnel fit its MTU.
    pub mss_clamp: Rung,
    /// Whether several cores may work on one direction.
    pub parallel: Parallel,
    /// Kernel buffer of each UDP socket and direction, in bytes; `None` scales with memory.
    pub socket_buffer: Option<usize>,
    /// Maximum number of segments in one super-packet handed to the kernel, 1 to 128; `None` is its limit.
    /// Some drivers damage longer ones silently.
    pub gso_max_segs: Option<u16>,
    /// Leading bits of an IPv4 source address that the handshake rate limiter counts as one source, 8 to 32; 24 if
    /// attackers own whole networks. `None` for 32.
    pub cookie_v4_prefix: Option<u8>,
    /// Implementation of the ciphers.
    pub crypto_backend: CryptoBackend,
}

/// Which data plane moves packets. Protocols without a kernel data plane always use the one in user space.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Kind {
    /// The kernel's for clients that it serves as well and where `millrace tune` measured it to be faster; otherwise
    /// the one in this program.
    #[default]
    Auto,
    /// The data plane in this program.
    User,
    /// The kernel's data plane; without it the tunnel does not start.
    Kernel,
}

impl Kind {
    /// The names of the data planes in settings.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("auto", Self::Auto),
        ("user", Self::User),
        ("kernel", Self::Kernel),
    ];
}

/// A switch for one kind of offload.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Rung {
    /// The feature is used if the kernel supports it and it works.
    #[default]
    Auto,
    /// The feature is never used.
    Off,
}

impl Rung {
    /// False if the offload is switched off.
    #[must_use]
    pub const fn wanted(self) -> bool {
        matches!(self, Self::Auto)
    }
}

/// Whether helper threads may join a worker on one direction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Parallel {
    /// Helpers join on a backlog, if cores are idle.
    #[default]
    Auto,
    /// Helpers never join: one core per direction.
    Off,
    /// Helpers join on a backlog, whatever the number of cores.
    On,
}

/// Treatment of outer datagrams that exceed the path MTU, named as in OpenVPN's `mtu-disc`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MtuDiscovery {
    /// Routers may fragment datagrams: no IPv4 datagram has DF.
    #[default]
    No,
    /// The kernel's default: DF on datagrams within the known path MTU; this host fragments longer ones.
    Maybe,
    /// Routers drop datagrams that are too long: every IPv4 datagram has DF.
    Yes,
}

impl MtuDiscovery {
    /// Configuration names of the modes, with their values.
    pub const NAMES: [(&'static str, Self); 3] =
        [("no", Self::No), ("maybe", Self::Maybe), ("yes", Self::Yes)];
}

/// The address inside a WireGuard tunnel that echo requests measure the MTU to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MtuProbe {
    /// The address that is most likely the peer's own, if there is one.
    #[default]
    Auto,
    /// No probes.
    Off,
    /// A given address, which must belong to a peer.
    Address(IpAddr),
}

/// Implementation of the ciphers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CryptoBackend {
    /// The fastest one, by the profile or by a measurement at the start.
    #[default]
    Auto,
    /// Plain instructions of any CPU.
    Portable,
    /// Vector registers and cipher instructions of the CPU.
    Simd,
    /// A hardware accelerator, if there is one.
    Accelerator,
}

/// Sections of a file. Only the first may be overridden.
const SECTIONS: [&str; 3] = ["dataplane", table::NAMES[0], table::NAMES[1]];

const RUNG: &str = "\"auto\" or \"off\"";

type SetText = fn(&mut DataplaneSettings, &str) -> Option<()>;

/// Keys of `[dataplane]`.
const DATAPLANE: &[Row<SetText>] = &[
    ("kind", "\"auto\", \"user\" or \"kernel\"", |it, v| {
        put(&mut it.kind, word(v, &Kind::NAMES))
    }),
    ("workers", "\"auto\" or a number from 1 to 64", |it, v| {
        put(&mut it.workers, number(v, 1, 64))
    }),
    ("tun-gso", RUNG, |it, v| put(&mut it.tun_gso, rung(v))),
    ("tun-uso", RUNG, |it, v| put(&mut it.tun_uso, rung(v))),
    ("tun-gro", RUNG, |it, v| put(&mut it.tun_gro, rung(v))),
    ("udp-gso", RUNG, |it, v| put(&mut it.udp_gso, rung(v))),
    ("udp-gro", RUNG, |it, v| put(&mut it.udp_gro, rung(v))),
    ("mmsg", RUNG, |it, v| put(&mut it.mmsg, rung(v))),
    ("aqm", RUNG, |it, v| put(&mut it.aqm, rung(v))),
    ("coalescing", RUNG, |it, v| put(&mut it.coalescing, rung(v))),
    ("mtu-disc", "\"no\", \"maybe\" or \"yes\"", |it, v| {
        put(&mut it.mtu_disc, word(v, &MtuDiscovery::NAMES))
    }),
    ("mtu-probe", "\"auto\", \"off\" or an address", |it, v| {
        let address = || v.parse().ok().map(MtuProbe::Address);
        let words = [("auto", MtuProbe::Auto), ("off", MtuProbe::Off)];
        put(&mut it.mtu_probe, word(v, &words).or_else(address))
    }),
    ("mss-clamp", RUNG, |it, v| put(&mut it.mss_clamp, rung(v))),
    ("parallel", "\"auto\", \"off\" or \"on\"", |it, v| {
        let words = [
            ("auto", Parallel::Auto),
            ("off", Parallel::Off),
            ("on", Parallel::On),
        ];
        put(&mut it.parallel, word(v, &words))
    }),
    (
        "socket-buffer",
        "\"auto\" or a number of bytes from 4096 to 67108864",
        |it, v| put(&mut it.socket_buffer, number(v, 4096, 64 << 20)),
    ),
    (
        "gso-max-segs",
        "\"auto\" or a number from 1 to 128",
        |it, v| put(&mut it.gso_max_segs, number(v, 1, 128)),
    ),
    (
        "cookie-v4-prefix",
        "a number of bits from 8 to 32",
        |it, v| {
            let bits = number(v, 8, 32).filter(Option::is_some);
            put(&mut it.cookie_v4_prefix, bits)
        },
    ),
    (
        "crypto-backend",
        "\"auto\", \"portable\", \"simd\" or \"accelerator\"",
        |it, v| {
            let backends = [
                ("auto", CryptoBackend::Auto),
                ("portable", CryptoBackend::Portable),
                ("simd", CryptoBackend::Simd),
                ("accelerator", CryptoBackend::Accelerator),
            ];
            put(&mut it.crypto_backend, word(v, &backends))
        },
    ),
];

/// Maps `found` to its meaning in `known`; an error lists the known words.
fn word<T: Copy>(found: &str, known: &[(&str, T)]) -> Option<T> {
    let meant = known.iter().find(|(name, _)| *name == found)?;
    Some(meant.1)
}

fn rung(value: &str) -> Option<Rung> {
    word(value, &[("auto", Rung::Auto), ("off", Rung::Off)])
}

/// Parses `auto`, which is `None`, or a number from `min` to `max`.
fn number<T: TryFrom<u64>>(value: &str, min: u64, max: u64) -> Option<Option<T>> {
    if value == "auto" {
        return Some(None);
    }
    let number = decimal(value).filter(|n| (min..=max).contains(n))?;
    Some(T::try_from(number).ok())
}

impl Settings {
    /// Reads all sources in their order: `file`, or else [`DEFAULT_PATH`] where it exists; then
    /// `environment`, the value of [`ENVIRONMENT`]; then each of `overrides`, the `--set` words.
    ///
    /// # Errors
    /// The first setting or file that is wrong, with its place.
    pub fn load(
        file: Option<&Path>,
        environment: Option<&str>,
        overrides: &[String],
    ) -> Result<Self, SettingsError> {
        let mut settings = match file {
            Some(path) => Self::read(path)?,
            None => match Self::read(Path::new(DEFAULT_PATH)) {
                Err(SettingsError::Read { error, .. })
                    if error.kind() == io::ErrorKind::NotFound =>
                {
                    Self::default()
                }
                other => other?,
            },
        };
        let assignments = environment.unwrap_or("").split(',').map(str::trim);
        for assignment in assignments.filter(|text| !text.is_empty()) {
            settings.set(assignment, Origin::Environment)?;
        }
        for assignment in overrides {
            settings.set(assignment, Origin::CommandLine)?;
        }
        Ok(settings)
    }

    /// Reads one TOML file over the defaults.
    ///
    /// # Errors
    /// [`SettingsError::Read`] when it cannot be read, [`SettingsError::TooLarge`] above [`FILE_MAX`], and the errors
    /// of [`Settings::from_toml`].
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        Self::from_toml(&text_of(path)?, path)
    }

    /// Reads TOML text over the defaults; `path` only names it in errors.
    ///
    /// # Errors
    /// [`SettingsError::Syntax`], [`SettingsError::Unknown`] or [`SettingsError::Value`], each
    /// with the line.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, SettingsError> {
        let place = places(text, path);
        let root = parsed(text, &place)?;
        let mut settings = Self::default();
        let mut lines = [None; 2];
        for (name, section) in root.get_ref() {
            let origin = place(name.span().start);
            if let Some(at) = table::NAMES.iter().position(|it| it == name.get_ref()) {
                let line = line_of(text, name.span().start);
                lines[at] = Some((section.get_ref(), line));
                continue;
            }
            if name.get_ref() != SECTIONS[0] {
                return Err(unknown(name.get_ref(), &SECTIONS, origin));
            }
            let DeValue::Table(keys) = section.get_ref() else {
                return Err(SettingsError::Value {
                    origin,
                    key: name.get_ref().to_string(),
                    found: format!("a {}", section.get_ref().type_str()),
                    wanted: "a section: [dataplane]",
                });
            };
            for (key, value) in keys {
                let origin = place(key.span().start);
                let value = match value.get_ref() {
                    DeValue::String(value) => value.as_ref(),
                    // A number in another base would be misread as decimal.
                    DeValue::Integer(value) if value.radix() == 10 => value.as_str(),
                    // No setting takes other types. The error for the empty text lists the accepted values.
                    _ => "",
                };
                settings.dataplane.set(key.get_ref(), value, origin)?;
            }
        }
        if lines.iter().any(Option::is_some) {
            let shared = SharedLines::new(text, lines, path);
            settings.lines = Some(shared.map_err(|entry| wrong_line(path, &entry))?);
        }
        Ok(settings)
    }

    /// Applies one override of the form `dataplane.udp-gso=off`; `origin` only names its source
    /// in errors.
    ///
    /// # Errors
    /// [`SettingsError::Assignment`], [`SettingsError::Unknown`] or [`SettingsError::Value`].
    pub fn set(&mut self, assignment: &str, origin: Origin) -> Result<(), SettingsError> {
        let parts = assignment
            .split_once('=')
            .map(|(name, value)| (name.trim(), value.trim()))
            .and_then(|(name, value)| Some((name.split_once('.')?, value)));
        let Some(((section, key), value)) = parts else {
            return Err(SettingsError::Assignment {
                origin,
                found: assignment.to_owned(),
            });
        };
        if section != SECTIONS[0] {
            return Err(unknown(section, &SECTIONS[..1], origin));
        }
        self.dataplane.set(key, value, origin)
    }
}

impl DataplaneSettings {
    fn set(&mut self, key: &str, value: &str, origin: Origin) -> Result<(), SettingsError> {
        let found = || match value {
            "" => "of this kind".to_owned(),
            _ => format!("`{value}`"),
        };
        let apply = |set: SetText| set(self, value);
        set(DATAPLANE, ("dataplane.", key), apply, found, origin)
    }
}

#[cfg(test)]
mod tests;
