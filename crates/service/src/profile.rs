//! The profile: measurements of `millrace tune` on this machine, which tunnels use at start.
//!
//! The profile is a JSON file of one object. It names the machine where it was measured, and is invalid on another
//! processor, kernel or release of this program. Its choice for a cipher is also invalid for a build of the same
//! release that has other code for that cipher.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

#[cfg(feature = "accelerators")]
use crypto::accelerator::{self, Costs, Crossover, Task};
use crypto::select::{self, Algorithm};
#[cfg(feature = "accelerators")]
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use host::machine::Machine;

#[cfg(feature = "kernel")]
use crate::openvpn::compared::{self, Compared};

/// Path of the profile, unless another file is named.
pub const DEFAULT_PATH: &str = "/etc/millrace/profile.json";

/// The environment variable that names another file; empty for no profile at all.
pub const ENVIRONMENT: &str = "MILLRACE_PROFILE";

/// Largest profile that is read, in bytes; a real one has about 2,000.
const FILE_MAX: u64 = 64 * 1024;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Version of the program.
    pub version: String,
    /// `model name` and number of processors, and the kernel's release.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// Release of the running kernel.
    pub kernel: String,
    /// The fastest code on the CPU for each algorithm.
    pub cpu: Vec<OnCpu>,
    /// The accelerators' gains; empty in the files of builds without accelerators.
    #[cfg(feature = "accelerators")]
    pub engines: Vec<OnAccelerator>,
    /// The kernel's data plane of OpenVPN beside this program's, by cipher; empty where it was not measured.
    #[cfg(feature = "kernel")]
    pub dataplanes: Vec<Compared>,
}

/// The fastest candidates on the CPU for one algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnCpu {
    /// Name of the algorithm.
    pub algorithm: String,
    /// The candidate for batches.
    pub many: String,
    /// The candidate for few packets.
    pub few: String,
    /// All candidates that were compared; empty in the files of older programs.
    pub among: Vec<String>,
}

impl OnCpu {
    /// Returns the fastest code on this machine, and measures it if that was not done yet.
    pub fn chosen(algorithm: Algorithm) -> Self {
        let choice = select::chosen_on_cpu(algorithm);
        let among = select::candidates_on_cpu(algorithm).into_iter();
        Self {
            algorithm: algorithm.name().to_owned(),
            many: choice.many.to_owned(),
            few: choice.few.to_owned(),
            among: among.map(str::to_owned).collect(),
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let among = value.get("among").and_then(Value::as_array);
        let among = among.into_iter().flatten().filter_map(Value::as_str);
        Some(Self {
            algorithm: text("algorithm")?,
            many: text("many")?,
            few: text("few")?,
            among: among.map(str::to_owned).collect(),
        })
    }

    /// The entry as it stands in the file.
    pub fn to_json(&self) -> Value {
        json!({
            "algorithm": self.algorithm,
            "many": self.many,
            "few": self.few,
            "among": self.among,
        })
    }
}

/// An accelerator, compared with the CPU for one algorithm.
#[cfg(feature = "accelerators")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnAccelerator {
    /// Name of the algorithm.
    pub algorithm: String,
    /// The kernel's name for the driver.
    pub driver: String,
    /// The interface through which the driver is reached.
    pub by: String,
    /// Whether the accelerator gains anything; if not, the other fields are for information only.
    pub used: bool,
    /// The cost of sealing.
    pub seal: Lines,
    /// The cost of opening.
    pub open: Lines,
}

/// Both cost lines of a [`Crossover`], in picoseconds: for a batch, for each packet, for each byte.
#[cfg(feature = "accelerators")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// Costs on the CPU.
    pub cpu: [u64; 3],
    /// Costs on the accelerator.
    #[serde(alias = "engine")]
    pub accelerator: [u64; 3],
}

#[cfg(feature = "accelerators")]
impl From<Crossover> for Lines {
    fn from(crossover: Crossover) -> Self {
        let line = |costs: Costs| [costs.batch, costs.packet, costs.byte];
        Self {
            cpu: line(crossover.cpu),
            accelerator: line(crossover.accelerator),
        }
    }
}

#[cfg(feature = "accelerators")]
impl From<Lines> for Crossover {
    fn from(lines: Lines) -> Self {
        let costs = |[batch, packet, byte]: [u64; 3]| Costs {
            batch,
            packet,
            byte,
        };
        Self {
            cpu: costs(lines.cpu),
            accelerator: costs(lines.accelerator),
        }
    }
}

/// Why a profile is not used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is not JSON.
    #[error("no profile: {0}")]
    Json(#[from] serde_json::Error),
    /// The file is JSON of something else.
    #[error("no profile: a field is missing or has another type; run millrace tune again")]
    Fields,
    /// The profile is of another machine, kernel or release.
    #[error("it was measured on {0}; run millrace tune again")]
    Stale(String),
}

impl Profile {
    /// Makes an empty profile of this machine.
    #[allow(clippy::new_without_default, reason = "it measures")]
    pub fn new() -> Self {
        let machine = Machine::this();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            processor: machine.model,
            processors: machine.processors,
            kernel: machine.kernel,
            cpu: Vec::new(),
            #[cfg(feature = "accelerators")]
            engines: Vec::new(),
            #[cfg(feature = "kernel")]
            dataplanes: Vec::new(),
        }
    }

    /// Reads a profile, if it is of this machine.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let mut text = Vec::new();
        fs::File::open(path)?
            .take(FILE_MAX)
            .read_to_end(&mut text)?;
        let profile = Self::from_json(&serde_json::from_slice(&text)?)?;
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

    fn from_json(value: &Value) -> Result<Self, ProfileError> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let read = || {
            let processors = value.get("processors")?.as_u64()?;
            let cpu = value.get("cpu")?.as_array()?.iter();
            Some(Self {
                version: text("version")?,
                processor: text("processor")?,
                processors: processors.try_into().ok()?,
                kernel: text("kernel")?,
                cpu: cpu.map(OnCpu::from_json).collect::<Option<_>>()?,
                #[cfg(feature = "accelerators")]
                engines: list(value, "engines")?,
                #[cfg(feature = "kernel")]
                dataplanes: list(value, "dataplanes")?,
            })
        };
        read().ok_or(ProfileError::Fields)
    }

    /// The content of the file.
    pub fn to_json(&self) -> Value {
        let cpu: Vec<Value> = self.cpu.iter().map(OnCpu::to_json).collect();
        #[cfg_attr(
            not(any(feature = "accelerators", feature = "kernel")),
            expect(unused_mut, reason = "other lists are added")
        )]
        let mut value = json!({
            "version": self.version,
            "processor": self.processor,
            "processors": self.processors,
            "kernel": self.kernel,
            "cpu": cpu,
        });
        #[cfg(feature = "accelerators")]
        {
            value["engines"] = json!(self.engines);
        }
        #[cfg(feature = "kernel")]
        {
            value["dataplanes"] = json!(self.dataplanes);
        }
        value
    }

    /// Checks that the profile could be written, without writing it. Makes its directory.
    pub fn check_path(path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Self::beside(path).map(drop)
    }

    /// Writes the profile, whole or not at all, and makes its directory.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        Self::check_path(path)?;
        let mut text = serde_json::to_vec_pretty(&self.to_json())?;
        text.push(b'\n');
        // Readable for everyone: users that may start a tunnel may read it, and it holds no secret.
        host::written_file::replace(path, &text, 0o644)
    }

    /// Makes a temporary file in the profile's directory, and the directory.
    fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(directory)?;
        tempfile::NamedTempFile::new_in(directory)
    }

    /// Applies the profile's choices to this process. Choices without code here, or made among other candidates, are
    /// measured again. Returns the algorithms whose candidates have changed.
    fn apply(&self) -> Vec<Algorithm> {
        let is_fresh = |algorithm: Algorithm| {
            let mut entries = self.cpu.iter();
            entries
                .find(|choice| choice.algorithm == algorithm.name())
                .is_some_and(|choice| choice.among == select::candidates_on_cpu(algorithm))
        };
        let (fresh, stale): (Vec<_>, Vec<_>) =
            Algorithm::ALL.into_iter().partition(|&of| is_fresh(of));
        for choice in &self.cpu {
            let Some(algorithm) = Algorithm::from_name(&choice.algorithm) else {
                continue;
            };
            if fresh.contains(&algorithm) && !select::import(algorithm, &choice.many, &choice.few) {
                log::debug!(
                    "profile: unknown code {} for {}",
                    choice.many,
                    choice.algorithm
                );
            }
        }
        #[cfg(feature = "accelerators")]
        self.apply_engines(&stale);
        #[cfg(feature = "kernel")]
        compared::apply(&self.dataplanes);
        stale
    }

    /// Applies the choices for accelerators, except where the CPU's code has changed.
    #[cfg(feature = "accelerators")]
    fn apply_engines(&self, stale: &[Algorithm]) {
        for choice in self.engines.iter().filter(|choice| choice.used) {
            let Some(task) = Task::from_name(&choice.algorithm) else {
                continue;
            };
            // The accelerator's gain was measured against other CPU code.
            if stale.iter().any(|&of| Task::of(of) == Some(task)) {
                continue;
            }
            if !accelerator::set_crossovers(task, [choice.seal.into(), choice.open.into()]) {
                log::debug!("profile: {} does not exist", choice.driver);
                continue;
            }
            for algorithm in Algorithm::ALL {
                // The CPU's code for large and small batches, for packets that the accelerator does not take, is
                // imported above.
                if Task::of(algorithm) == Some(task) {
                    select::import(algorithm, "accelerator", "accelerator");
                }
            }
        }
    }
}

/// A list of the file, empty if the file lacks it; `None` if it is of another form.
#[cfg(any(feature = "accelerators", feature = "kernel"))]
fn list<T: serde::de::DeserializeOwned>(value: &Value, name: &str) -> Option<Vec<T>> {
    match value.get(name) {
        Some(list) => serde_json::from_value(list.clone()).ok(),
        None => Some(Vec::new()),
    }
}

/// Path of the profile, from the environment or the default; `None` if no profile is to be read.
pub fn path() -> Option<PathBuf> {
    match std::env::var_os(ENVIRONMENT) {
        None => Some(PathBuf::from(DEFAULT_PATH)),
        Some(path) if path.is_empty() => None,
        Some(path) => Some(PathBuf::from(path)),
    }
}

/// Reads the profile and applies it to this process; logs one line if it does not fit.
pub fn load() {
    let Some(path) = path() else { return };
    // Silent: most machines have no profile, and the user asked for none.
    if std::env::var_os(ENVIRONMENT).is_none() && !path.exists() {
        return;
    }
    match Profile::read(&path) {
        Ok(profile) => {
            let stale = profile.apply();
            if !stale.is_empty() {
                let names: Vec<_> = stale.iter().map(|algorithm| algorithm.name()).collect();
                log::warn!(
                    "profile {}: not used for {}, as this program's code for it has changed; run millrace tune again",
                    path.display(),
                    names.join(", ")
                );
            }
        }
        Err(why) => log::warn!("profile {}: {why}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "kernel")]
    use crate::openvpn::compared::Speed;

    fn profile() -> Profile {
        Profile {
            cpu: vec![OnCpu {
                many: "aws-lc".to_owned(),
                few: "aws-lc".to_owned(),
                ..OnCpu::chosen(Algorithm::AesGcm)
            }],
            engines: vec![OnAccelerator {
                algorithm: "aes-cbc".to_owned(),
                driver: "cbc-aes-qce".to_owned(),
                by: "/dev/crypto".to_owned(),
                used: true,
                seal: Lines {
                    cpu: [0, 1, 2],
                    accelerator: [u64::MAX, 3, 4],
                },
                open: Crossover::NEVER.into(),
            }],
            #[cfg(feature = "kernel")]
            dataplanes: vec![Compared {
                cipher: "AES-256-GCM".to_owned(),
                user: Speed { bulk: 3, single: 2 },
                kernel: Speed { bulk: 2, single: 3 },
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
        // The accelerator is missing, so the CPU does the work.
        let stale = read.apply();
        assert!(!stale.contains(&Algorithm::AesGcm));
        assert!(stale.contains(&Algorithm::AesCbcEncrypt));
        let chosen = select::chosen(Algorithm::AesGcm);
        assert_eq!((chosen.many, chosen.few), ("aws-lc", "aws-lc"));
    }

    #[test]
    fn what_was_chosen_among_other_code_is_not_used() {
        let algorithm = Algorithm::HmacSha512;
        let now = OnCpu::chosen(algorithm);
        let names = select::candidates_on_cpu(algorithm);
        assert_eq!(now.among, names);
        // A candidate that was not the fastest just now is accepted only from a build with the same code.
        let other = names.iter().find(|name| **name != now.many).unwrap();
        let mut told = OnCpu {
            many: (*other).to_owned(),
            few: (*other).to_owned(),
            ..now.clone()
        };
        let apply = |told: &OnCpu| {
            let told = Profile {
                cpu: vec![told.clone()],
                ..Profile::new()
            };
            told.apply().contains(&algorithm)
        };
        for among in [
            Vec::new(),
            names[..names.len() - 1].to_vec(),
            [&names[..], &["to-come"]].concat(),
        ] {
            told.among = among.into_iter().map(str::to_owned).collect();
            assert!(apply(&told), "{:?}", told.among);
            assert_eq!(OnCpu::chosen(algorithm), now);
        }
        told.among.clone_from(&now.among);
        assert!(!apply(&told));
        assert_eq!(OnCpu::chosen(algorithm), told);
    }

    #[test]
    fn a_profile_of_an_older_program_is_read_and_stale() {
        let mut json = profile().to_json();
        json["cpu"][0].as_object_mut().unwrap().remove("among");
        json.as_object_mut().unwrap().remove("dataplanes");
        let read = Profile::from_json(&json).unwrap();
        assert!(read.apply().contains(&Algorithm::AesGcm));
    }

    #[test]
    fn where_nothing_can_be_written_is_known_before() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Profile::check_path(&file.join("below/profile.json")).is_err());
        assert!(Profile::check_path(directory.path()).is_err());
        // The check leaves an existing file as it is, and adds no other.
        fs::write(&file, "old").unwrap();
        Profile::check_path(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(Profile::check_path(&directory.path().join("made/profile.json")).is_ok());
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
        for text in ["{\"version\": 3}", "[]"] {
            fs::write(&path, text).unwrap();
            assert!(matches!(Profile::read(&path), Err(ProfileError::Fields)));
        }
        fs::write(&path, "{").unwrap();
        assert!(matches!(Profile::read(&path), Err(ProfileError::Json(_))));
        let missing = directory.path().join("missing");
        assert!(matches!(Profile::read(&missing), Err(ProfileError::Io(_))));
    }
}
