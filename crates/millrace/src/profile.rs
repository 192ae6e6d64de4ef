//! The profile: what `millrace tune` has measured on this machine, for tunnels to start with.
//!
//! A JSON file of one object. It names the machine that it was measured on, and is worth nothing on another: another
//! processor, another kernel, another release of this program.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crypto::engine::{self, Costs, Crossover, Task};
use crypto::select::{self, Algorithm};
use serde::{Deserialize, Serialize};

use crate::commands::machine::Machine;

/// Where it is, if nobody names another file.
pub(crate) const DEFAULT_PATH: &str = "/etc/millrace/profile.json";

/// The environment variable that names another; empty for none at all.
pub(crate) const ENVIRONMENT: &str = "MILLRACE_PROFILE";

/// Largest profile that is read, in bytes; a real one has two thousand.
const FILE_MAX: u64 = 64 * 1024;

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// The program's release.
    pub(crate) version: String,
    /// `model name` and number of processors, and the kernel's release.
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) kernel: String,
    /// What runs on the CPU.
    pub(crate) cpu: Vec<OnCpu>,
    /// What accelerators do.
    pub(crate) engines: Vec<OnEngine>,
}

/// The candidates that are fastest on the CPU for an algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OnCpu {
    pub(crate) algorithm: String,
    /// For batches.
    pub(crate) many: String,
    /// For few packets.
    pub(crate) few: String,
}

/// An accelerator beside the CPU for an algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OnEngine {
    pub(crate) algorithm: String,
    pub(crate) driver: String,
    /// The way to it.
    pub(crate) by: String,
    /// Whether it gains anything; if not, the rest is there to be read.
    pub(crate) used: bool,
    pub(crate) seal: Lines,
    pub(crate) open: Lines,
}

/// Both lines of a [`Crossover`], in picoseconds: for a batch, for each packet, for each byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lines {
    pub(crate) cpu: [u64; 3],
    pub(crate) engine: [u64; 3],
}

impl From<Crossover> for Lines {
    fn from(crossover: Crossover) -> Self {
        let line = |costs: Costs| [costs.batch, costs.packet, costs.byte];
        Self {
            cpu: line(crossover.cpu),
            engine: line(crossover.engine),
        }
    }
}

impl From<Lines> for Crossover {
    fn from(lines: Lines) -> Self {
        let costs = |[batch, packet, byte]: [u64; 3]| Costs {
            batch,
            packet,
            byte,
        };
        Self {
            cpu: costs(lines.cpu),
            engine: costs(lines.engine),
        }
    }
}

/// Why a profile is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is no profile.
    #[error("no profile: {0}")]
    Json(#[from] serde_json::Error),
    /// It was measured elsewhere, or before.
    #[error("measured on {0}: run millrace tune again")]
    Stale(String),
}

impl Profile {
    /// An empty one of this machine.
    pub(crate) fn new() -> Self {
        let machine = Machine::this();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            processor: machine.model,
            processors: machine.processors,
            kernel: machine.kernel,
            cpu: Vec::new(),
            engines: Vec::new(),
        }
    }

    /// Reads one that is of this machine.
    pub(crate) fn read(path: &Path) -> Result<Self, ProfileError> {
        let mut text = String::new();
        fs::File::open(path)?
            .take(FILE_MAX)
            .read_to_string(&mut text)?;
        let profile: Self = serde_json::from_str(&text)?;
        let this = Self::new();
        let Self {
            version,
            processor,
            processors,
            kernel,
            ..
        } = &profile;
        let same = (version, processor, processors, kernel)
            == (
                &this.version,
                &this.processor,
                &this.processors,
                &this.kernel,
            );
        if !same {
            return Err(ProfileError::Stale(format!(
                "{processors} processors ({processor}), Linux {kernel}, by millrace {version}"
            )));
        }
        Ok(profile)
    }

    /// Writes it, whole or not at all, and makes its directory.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(directory)?;
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        // Who may start a tunnel may read what it starts with; there is no secret in it.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(mode)?;
        file.persist(path)?;
        Ok(())
    }

    /// Has this process choose as it says. What does not exist here any more is left to be measured.
    fn apply(&self) {
        for choice in &self.cpu {
            let known = Algorithm::from_name(&choice.algorithm)
                .is_some_and(|algorithm| select::import(algorithm, &choice.many, &choice.few));
            if !known {
                log::debug!("profile: no code {} for {}", choice.many, choice.algorithm);
            }
        }
        for choice in self.engines.iter().filter(|choice| choice.used) {
            let Some(task) = Task::from_name(&choice.algorithm) else {
                continue;
            };
            if !engine::set_crossovers(task, [choice.seal.into(), choice.open.into()]) {
                log::debug!("profile: {} is not there", choice.driver);
                continue;
            }
            for algorithm in Algorithm::ALL {
                // What the CPU keeps, of many packets or few, is told above.
                if Task::of(algorithm) == Some(task) {
                    select::import(algorithm, "engine", "engine");
                }
            }
        }
    }
}

/// The file: the environment's, or the default; `None` if there is to be none.
pub(crate) fn path() -> Option<PathBuf> {
    match std::env::var_os(ENVIRONMENT) {
        None => Some(PathBuf::from(DEFAULT_PATH)),
        Some(path) if path.is_empty() => None,
        Some(path) => Some(PathBuf::from(path)),
    }
}

/// Reads the profile and has this process choose as it says; says in one line if it does not fit.
pub(crate) fn load() {
    let Some(path) = path() else { return };
    // Most machines have none, and nobody has asked for one.
    if std::env::var_os(ENVIRONMENT).is_none() && !path.exists() {
        return;
    }
    match Profile::read(&path) {
        Ok(profile) => profile.apply(),
        Err(why) => log::warn!("profile {}: {why}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile {
            cpu: vec![OnCpu {
                algorithm: "aes-gcm".to_owned(),
                many: "aws-lc".to_owned(),
                few: "aws-lc".to_owned(),
            }],
            engines: vec![OnEngine {
                algorithm: "aes-cbc".to_owned(),
                driver: "cbc-aes-qce".to_owned(),
                by: "/dev/crypto".to_owned(),
                used: true,
                seal: Lines {
                    cpu: [0, 1, 2],
                    engine: [u64::MAX, 3, 4],
                },
                open: Crossover::NEVER.into(),
            }],
            ..Profile::new()
        }
    }

    #[test]
    fn what_is_written_is_read_and_applies() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made/profile.json");
        profile().write(&path).unwrap();
        let read = Profile::read(&path).unwrap();
        assert_eq!(read, profile());
        assert_eq!(Crossover::from(read.engines[0].open), Crossover::NEVER);
        // The accelerator is not there: the CPU does it.
        read.apply();
        let chosen = select::chosen(Algorithm::AesGcm);
        assert_eq!((chosen.many, chosen.few), ("aws-lc", "aws-lc"));
    }

    #[test]
    fn what_was_measured_elsewhere_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("profile.json");
        for other in [
            Profile {
                processor: "Cortex-A7".to_owned(),
                ..profile()
            },
            Profile {
                processors: 400,
                ..profile()
            },
            Profile {
                kernel: "3.10.0".to_owned(),
                ..profile()
            },
            Profile {
                version: "0.0.0".to_owned(),
                ..profile()
            },
        ] {
            other.write(&path).unwrap();
            assert!(matches!(Profile::read(&path), Err(ProfileError::Stale(_))));
        }
        fs::write(&path, "{\"version\": 3}").unwrap();
        assert!(matches!(Profile::read(&path), Err(ProfileError::Json(_))));
        let missing = directory.path().join("missing");
        assert!(matches!(Profile::read(&missing), Err(ProfileError::Io(_))));
    }
}
