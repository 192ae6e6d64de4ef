//! Millrace's own settings: what a `.conf` file has no word for.
//!
//! They come, later ones winning, from the built-in defaults, from a TOML file, from the
//! environment variable `MILLRACE_SET`, and from `--set` on the command line. The environment
//! is there because `wg-quick` starts the program with an interface name and nothing else.
//!
//! ```toml
//! [dataplane]
//! workers = "auto"        # or a number of threads
//! udp-gso = "off"         # switch one rung of the offload ladder off
//! ```

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml::de::{DeTable, DeValue};

use crate::types::decimal;

/// Where the settings are looked for when no file is named; it need not exist.
pub const DEFAULT_PATH: &str = "/etc/millrace/millrace.toml";

/// Environment variable with comma-separated overrides: `dataplane.udp-gso=off,...`.
pub const ENVIRONMENT: &str = "MILLRACE_SET";

/// Largest settings file that is read, in bytes; a real one has a few hundred.
pub const FILE_MAX: u64 = 64 * 1024;

/// All settings.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// How packets are moved.
    pub dataplane: DataplaneSettings,
}

/// The `[dataplane]` section.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataplaneSettings {
    /// Threads of the data plane, 1 to 64; `None` lets the program choose by the cores.
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
    /// `sendmmsg` and `recvmmsg`.
    pub mmsg: Rung,
    /// What becomes of outer datagrams that are too long for their path.
    pub mtu_disc: MtuDiscovery,
    /// Whether several cores may work on one direction.
    pub parallel: Parallel,
    /// Kernel buffer of each UDP socket and direction, in bytes; `None` scales with memory.
    pub socket_buffer: Option<usize>,
    /// Most segments in one super-packet handed to the kernel, 1 to 128; `None` is its limit.
    /// Some drivers damage longer ones silently.
    pub gso_max_segs: Option<u16>,
    /// Bits of an IPv4 source address that the handshake rate limiter counts as one source,
    /// 8 to 32; 24 where attackers own whole networks.
    pub cookie_v4_prefix: u8,
    /// Which kind of code computes ciphers.
    pub crypto_backend: CryptoBackend,
}

impl Default for DataplaneSettings {
    fn default() -> Self {
        Self {
            workers: None,
            tun_gso: Rung::Auto,
            tun_uso: Rung::Auto,
            tun_gro: Rung::Auto,
            udp_gso: Rung::Auto,
            udp_gro: Rung::Auto,
            mmsg: Rung::Auto,
            mtu_disc: MtuDiscovery::No,
            parallel: Parallel::Auto,
            socket_buffer: None,
            gso_max_segs: None,
            cookie_v4_prefix: 32,
            crypto_backend: CryptoBackend::Auto,
        }
    }
}

/// One rung of the offload ladder.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Rung {
    /// Used when the kernel has it and it works.
    #[default]
    Auto,
    /// Never used.
    Off,
}

impl Rung {
    /// False when the rung is switched off.
    #[must_use]
    pub const fn wanted(self) -> bool {
        matches!(self, Self::Auto)
    }
}

/// Whether helpers may join a worker on one direction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Parallel {
    /// On a backlog, when there are cores to spare.
    #[default]
    Auto,
    /// Never: one core a direction.
    Off,
    /// On a backlog, whatever the number of cores.
    On,
}

/// What becomes of outer datagrams that are longer than a link on their way carries; the words are
/// those of OpenVPN's `mtu-disc`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MtuDiscovery {
    /// They are cut: no IPv4 datagram has DF.
    #[default]
    No,
    /// As the kernel does by default: DF on what fits the known MTU of the path, the rest cut here.
    Maybe,
    /// They are dropped: every IPv4 datagram has DF.
    Yes,
}

impl MtuDiscovery {
    /// The values in the order of the type, as they are written.
    pub const NAMES: [&'static str; 3] = ["no", "maybe", "yes"];

    /// The value of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "no" => Some(Self::No),
            "maybe" => Some(Self::Maybe),
            "yes" => Some(Self::Yes),
            _ => None,
        }
    }
}

/// Which kind of code computes ciphers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CryptoBackend {
    /// Whatever a measurement at the start, or the profile, finds fastest.
    #[default]
    Auto,
    /// Plain instructions.
    Portable,
    /// Vector registers and cipher instructions of the CPU.
    Simd,
    /// An accelerator, where there is one.
    Accelerator,
}

const DATAPLANE_KEYS: [&str; 13] = [
    "workers",
    "tun-gso",
    "tun-uso",
    "tun-gro",
    "udp-gso",
    "udp-gro",
    "mmsg",
    "mtu-disc",
    "parallel",
    "socket-buffer",
    "gso-max-segs",
    "cookie-v4-prefix",
    "crypto-backend",
];

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
    /// [`SettingsError::Read`] when it cannot be read, [`SettingsError::TooLarge`] above
    /// [`FILE_MAX`], and what [`Settings::from_toml`] says.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let read = |error| SettingsError::Read {
            path: path.to_owned(),
            error,
        };
        let mut text = String::new();
        let file = File::open(path).map_err(read)?;
        file.take(FILE_MAX + 1)
            .read_to_string(&mut text)
            .map_err(read)?;
        if text.len() as u64 > FILE_MAX {
            return Err(SettingsError::TooLarge {
                path: path.to_owned(),
            });
        }
        Self::from_toml(&text, path)
    }

    /// Reads TOML text over the defaults; `path` only names it in errors.
    ///
    /// # Errors
    /// [`SettingsError::Syntax`], [`SettingsError::Unknown`] or [`SettingsError::Value`], each
    /// with the line.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, SettingsError> {
        let place = |offset: usize| Origin::File {
            path: path.to_owned(),
            line: line_of(text, offset),
        };
        let root = DeTable::parse(text).map_err(|error| SettingsError::Syntax {
            origin: place(error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        let mut settings = Self::default();
        for (name, section) in root.get_ref() {
            let origin = place(name.span().start);
            if name.get_ref() != "dataplane" {
                return Err(unknown(name.get_ref(), &["dataplane"], origin));
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
                    // In base 16 and the like the text would mean another number.
                    DeValue::Integer(value) if value.radix() == 10 => value.as_str(),
                    // No setting takes these; the empty text is refused with what it does take.
                    _ => "",
                };
                settings.dataplane.set(key.get_ref(), value, origin)?;
            }
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
        if section != "dataplane" {
            return Err(unknown(section, &["dataplane"], origin));
        }
        self.dataplane.set(key, value, origin)
    }
}

impl DataplaneSettings {
    fn set(&mut self, key: &str, value: &str, origin: Origin) -> Result<(), SettingsError> {
        let refused = |wanted| SettingsError::Value {
            origin: origin.clone(),
            key: format!("dataplane.{key}"),
            found: match value {
                "" => "of this kind".to_owned(),
                _ => format!("`{value}`"),
            },
            wanted,
        };
        let rung = || match value {
            "auto" => Ok(Rung::Auto),
            "off" => Ok(Rung::Off),
            _ => Err(refused("\"auto\" or \"off\"")),
        };
        // `auto` is None; a number must lie in the range that `wanted` describes in words.
        let number = |min, max, wanted| match value {
            "auto" => Ok(None),
            _ => match decimal(value) {
                Some(n) if (min..=max).contains(&n) => Ok(usize::try_from(n).ok()),
                _ => Err(refused(wanted)),
            },
        };
        match key {
            "workers" => self.workers = number(1, 64, "\"auto\" or a number from 1 to 64")?,
            "tun-gso" => self.tun_gso = rung()?,
            "tun-uso" => self.tun_uso = rung()?,
            "tun-gro" => self.tun_gro = rung()?,
            "udp-gso" => self.udp_gso = rung()?,
            "udp-gro" => self.udp_gro = rung()?,
            "mmsg" => self.mmsg = rung()?,
            "mtu-disc" => {
                self.mtu_disc = MtuDiscovery::from_name(value)
                    .ok_or_else(|| refused("\"no\", \"maybe\" or \"yes\""))?;
            }
            "parallel" => {
                self.parallel = match value {
                    "auto" => Parallel::Auto,
                    "off" => Parallel::Off,
                    "on" => Parallel::On,
                    _ => return Err(refused("\"auto\", \"off\" or \"on\"")),
                }
            }
            "socket-buffer" => {
                let wanted = "\"auto\" or a number of bytes from 4096 to 67108864";
                self.socket_buffer = number(4096, 64 << 20, wanted)?;
            }
            "gso-max-segs" => {
                let segments = number(1, 128, "\"auto\" or a number from 1 to 128")?;
                self.gso_max_segs = segments.and_then(|n| u16::try_from(n).ok());
            }
            "cookie-v4-prefix" => {
                self.cookie_v4_prefix = decimal(value)
                    .and_then(|n| u8::try_from(n).ok())
                    .filter(|n| (8..=32).contains(n))
                    .ok_or_else(|| refused("a number of bits from 8 to 32"))?;
            }
            "crypto-backend" => {
                self.crypto_backend = match value {
                    "auto" => CryptoBackend::Auto,
                    "portable" => CryptoBackend::Portable,
                    "simd" => CryptoBackend::Simd,
                    "engine" => CryptoBackend::Accelerator,
                    _ => {
                        return Err(refused("\"auto\", \"portable\", \"simd\" or \"engine\""));
                    }
                }
            }
            _ => return Err(unknown(key, &DATAPLANE_KEYS, origin)),
        }
        Ok(())
    }
}

/// Where a setting was written.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Origin {
    /// A line, counted from 1, of a settings file.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// The variable [`ENVIRONMENT`].
    Environment,
    /// A `--set` argument.
    CommandLine,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment => f.write_str(ENVIRONMENT),
            Self::CommandLine => f.write_str("--set"),
        }
    }
}

/// Why the settings cannot be used. All are the administrator's to mend, and say how.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file is missing or unreadable.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// The file as it was named.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The file is above [`FILE_MAX`].
    #[error("{}: larger than {FILE_MAX} bytes; is it a settings file?", path.display())]
    TooLarge {
        /// The file as it was named.
        path: PathBuf,
    },
    /// The file is not TOML.
    #[error("{origin}: not valid TOML: {message}")]
    Syntax {
        /// Where.
        origin: Origin,
        /// What the TOML parser said.
        message: String,
    },
    /// An override without a section or a value.
    #[error("{origin}: `{found}` is no setting; write for example dataplane.udp-gso=off")]
    Assignment {
        /// Where.
        origin: Origin,
        /// The text.
        found: String,
    },
    /// No setting of this name.
    #[error("{origin}: there is no setting `{found}`; {suggestion}")]
    Unknown {
        /// Where.
        origin: Origin,
        /// The name.
        found: String,
        /// The nearest name, or all of them.
        suggestion: String,
    },
    /// A value that the setting does not take.
    #[error("{origin}: {key} cannot be {found}; write {wanted}")]
    Value {
        /// Where.
        origin: Origin,
        /// Section and name.
        key: String,
        /// The value.
        found: String,
        /// What it may be.
        wanted: &'static str,
    },
}

fn unknown(found: &str, known: &[&str], origin: Origin) -> SettingsError {
    SettingsError::Unknown {
        origin,
        found: found.to_owned(),
        suggestion: crate::suggest::suggest(found, known),
    }
}

/// The line, counted from 1, that the byte at `offset` is in.
fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests;
