//! Facts that the running system reports about itself.
//!
//! This module reads everything below a root directory: `/` for the box itself, or a copy of another box's
//! files.

mod cpu;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::hints::by_compatible;
use super::{Detected, Hints, Soc, Table};
use crate::dtb;

/// Bytes of a file that are read, at most. Kernel configurations have 300 KiB.
const MOST: u64 = 4 * 1024 * 1024;

const AT_PAGESZ: u64 = 6;
const AT_HWCAP: u64 = 16;
const AT_HWCAP2: u64 = 26;

/// A kind of processor core that the system has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// `CPU implementer` of `/proc/cpuinfo`.
    pub implementer: u32,
    /// `CPU part`.
    pub part: u32,
    /// The core's name, if known.
    pub name: Option<&'static str>,
}

/// One implementation in the kernel's cipher interface, from `/proc/crypto`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Algorithm: `gcm(aes)`.
    pub name: String,
    /// Implementation: `gcm-aes-ce`.
    pub driver: String,
    /// The kernel prefers the highest priority.
    pub priority: i64,
    /// Whether the driver completes requests later, as hardware engines do.
    pub asynchronous: bool,
}

/// Facts about the running system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Processors that `/proc/cpuinfo` lists.
    pub processors: usize,
    /// Kinds of ARM cores, each once.
    pub cpus: Vec<Cpu>,
    /// `model name`, `cpu model` (MIPS) or `cpu` (PowerPC).
    pub cpu_model: Option<String>,
    /// `Hardware` (ARM), `system type` (MIPS), `machine` or `platform` (PowerPC).
    pub system: Option<String>,
    /// `Features` (ARM), `flags` (x86) or `ASEs implemented` (MIPS).
    pub features: BTreeSet<String>,
    /// Names of the bits set in `AT_HWCAP` and `AT_HWCAP2`, on ARM.
    pub capabilities: Vec<&'static str>,
    /// The device tree's `compatible`.
    pub compatible: Vec<String>,
    /// The device tree's `model`.
    pub model: Option<String>,
    /// The kernel's release: `6.6.73`.
    pub release: Option<String>,
    /// The file that [`Self::config`] was read from.
    pub config_file: Option<String>,
    /// The kernel's configuration: `CONFIG_KERNEL_MODE_NEON` to `y`. Empty if the kernel does not publish
    /// it; unset options are absent.
    pub config: BTreeMap<String, String>,
    /// Implementations in the kernel's cipher interface.
    pub drivers: Vec<Driver>,
    /// Modules that are loaded, or that are built in and have parameters or a version.
    pub modules: BTreeSet<String>,
    /// Whether there is `/dev/crypto`.
    pub dev_crypto: bool,
    /// Whether AF_ALG is available: loaded, built in or built as a module. `None` if neither the kernel's
    /// configuration nor its list of protocols is readable.
    pub af_alg: Option<bool>,
    hints: Vec<(String, Vec<u8>)>,
}

impl Live {
    /// Reads the system below `root`.
    ///
    /// # Errors
    /// The error of reading `/proc/cpuinfo`. Other missing facts stay empty.
    pub fn read(root: &Path) -> io::Result<Self> {
        let file = |path: &str| read(&root.join(path)).ok();
        let line = |path: &str| {
            file(path)
                .map(|bytes| lossy(&bytes).trim().to_owned())
                .filter(|line| !line.is_empty())
        };
        let mut live = Self::default();
        live.cpuinfo(&lossy(&read(&root.join("proc/cpuinfo"))?));
        live.auxv(&file("proc/self/auxv").unwrap_or_default());
        let tree = |name: &str| {
            file(&format!("proc/device-tree/{name}"))
                .or_else(|| file(&format!("sys/firmware/devicetree/base/{name}")))
        };
        if let Some(bytes) = tree("compatible") {
            live.compatible = dtb::texts(&bytes).map(str::to_owned).collect();
        }
        live.model = tree("model").and_then(|bytes| dtb::texts(&bytes).next().map(str::to_owned));
        live.release = line("proc/sys/kernel/osrelease");
        live.kernel_config(root);
        live.drivers = drivers(&lossy(&file("proc/crypto").unwrap_or_default()));
        let modules = lossy(&file("proc/modules").unwrap_or_default());
        live.modules = modules
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect();
        for entry in root
            .join("sys/module")
            .read_dir()
            .into_iter()
            .flatten()
            .flatten()
        {
            live.modules.extend(entry.file_name().into_string().ok());
        }
        live.dev_crypto = root.join("dev/crypto").exists();
        live.af_alg = live.has_af_alg(file("proc/net/protocols").as_deref());
        for path in [
            "etc/board.json",
            "tmp/sysinfo/board_name",
            "etc/openwrt_release",
            "etc/os-release",
            "module_name",
        ] {
            live.hints
                .extend(file(path).map(|bytes| (format!("/{path}"), bytes)));
        }
        Ok(live)
    }

    /// The system's chip, by its device tree, by the kernel's name for the system, by its firmware's settings, or else
    /// by its cores; a chip found by its cores is never certain.
    #[must_use]
    pub fn find<'t>(&self, table: &'t Table) -> Option<Detected<'t>> {
        if let Some((soc, by)) = by_compatible(table, &self.compatible) {
            return Some(Detected {
                soc,
                because: format!("the device tree says {by}"),
                certain: true,
            });
        }
        if let Some(system) = &self.system
            && let Some(soc) = named_in(table, system)
        {
            return Some(Detected {
                soc,
                because: format!("/proc/cpuinfo names the {system}"),
                certain: true,
            });
        }
        let mut hints = Hints::default();
        for (path, bytes) in &self.hints {
            hints.see(path, bytes);
        }
        hints.find(table).or_else(|| self.by_core(table))
    }

    /// Whether the processor has a feature, by its name in `/proc/cpuinfo` and `AT_HWCAP`: `neon`, `asimd`,
    /// `aes`.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.contains(feature) || self.capabilities.contains(&feature)
    }

    /// The implementations of an algorithm, the kernel's preferred one first.
    #[must_use]
    pub fn drivers_of(&self, name: &str) -> Vec<&Driver> {
        let mut drivers: Vec<&Driver> = self
            .drivers
            .iter()
            .filter(|driver| driver.name == name)
            .collect();
        drivers.sort_by_key(|driver| std::cmp::Reverse(driver.priority));
        drivers
    }

    fn by_core<'t>(&self, table: &'t Table) -> Option<Detected<'t>> {
        let first = self.cpus.first()?;
        let key = format!("{:02x}/{:03x}", first.implementer, first.part);
        let aes = self.has("aes");
        let neon = self.has("neon") || self.has("asimd");
        let soc = table.socs().iter().find(|soc| {
            soc.core.cpu.contains(&key) && soc.core.aes == aes && soc.core.neon == neon
        })?;
        let core = first.name.unwrap_or("unnamed");
        let because = format!(
            "/proc/cpuinfo says {core} ({key}), which the {} has; nothing names the chip",
            soc.name
        );
        Some(Detected {
            soc,
            because,
            certain: false,
        })
    }

    fn cpuinfo(&mut self, text: &str) {
        let mut implementer = None;
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            match key {
                // Old ARM kernels add a line `Processor`, which holds a name and is not counted.
                "processor" => self.processors += 1,
                "CPU implementer" => implementer = number(value),
                "CPU part" => {
                    if let (Some(implementer), Some(part)) = (implementer, number(value)) {
                        let cpu = Cpu {
                            implementer,
                            part,
                            name: cpu::name(implementer, part),
                        };
                        if !self.cpus.contains(&cpu) {
                            self.cpus.push(cpu);
                        }
                    }
                }
                "Features" | "flags" | "ASEs implemented" => {
                    self.features
                        .extend(value.split_whitespace().map(str::to_owned));
                }
                "Hardware" | "system type" | "machine" | "platform" => {
                    self.system.get_or_insert_with(|| value.to_owned());
                }
                "model name" | "cpu model" | "cpu" => {
                    self.cpu_model.get_or_insert_with(|| value.to_owned());
                }
                _ => {}
            }
        }
    }

    fn auxv(&mut self, bytes: &[u8]) {
        // The vector uses the word size and byte order of the process: those that parse are right.
        let ways = [(8, false), (4, false), (8, true), (4, true)];
        let Some((wide, pairs)) = ways
            .into_iter()
            .find_map(|(size, big)| Some((size == 8, auxiliary(bytes, size, big)?)))
        else {
            return;
        };
        let value = |wanted| {
            pairs
                .iter()
                .find(|(key, _)| *key == wanted)
                .map_or(0, |(_, value)| *value)
        };
        if !self.cpus.is_empty() {
            self.capabilities = cpu::capabilities(wide, value(AT_HWCAP), value(AT_HWCAP2));
        }
    }

    fn kernel_config(&mut self, root: &Path) {
        let packed = root.join("proc/config.gz");
        let plain = self
            .release
            .as_ref()
            .map(|release| format!("boot/config-{release}"));
        let text = if let Ok(file) = File::open(packed) {
            self.config_file = Some("/proc/config.gz".to_owned());
            let mut text = Vec::new();
            // A truncated configuration is not reliable.
            match flate2::read::GzDecoder::new(file)
                .take(MOST)
                .read_to_end(&mut text)
            {
                Ok(_) => text,
                Err(_) => Vec::new(),
            }
        } else if let Some(path) = plain
            && let Ok(text) = read(&root.join(&path))
        {
            self.config_file = Some(format!("/{path}"));
            text
        } else {
            return;
        };
        for line in lossy(&text).lines() {
            if let Some((key, value)) = line.split_once('=')
                && key.starts_with("CONFIG_")
            {
                self.config
                    .insert(key.to_owned(), value.trim_matches('"').to_owned());
            }
        }
        if self.config.is_empty() {
            self.config_file = None;
        }
    }

    fn has_af_alg(&self, protocols: Option<&[u8]>) -> Option<bool> {
        let registered =
            protocols.map(|bytes| lossy(bytes).lines().any(|line| line.starts_with("ALG ")));
        if registered == Some(true) || self.modules.contains("af_alg") {
            return Some(true);
        }
        if self.config.is_empty() {
            // The kernel may still have AF_ALG as a module that is not loaded yet.
            return None;
        }
        Some(self.config.contains_key("CONFIG_CRYPTO_USER_API"))
    }
}

/// The chip named by a word of a text such as `MediaTek MT7621 ver:1 eco:3` or `UBNT_E300
/// (CN7030p1.2-1000-AAP)`.
fn named_in<'t>(table: &'t Table, text: &str) -> Option<&'t Soc> {
    text.split([' ', ',', '(', ')', ':', '/'])
        .filter(|word| !word.is_empty())
        .find_map(|word| {
            // Revision and clock may follow the number without a gap.
            let letters = word
                .find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(word.len());
            let digits = word[letters..]
                .find(|c: char| !c.is_ascii_digit())
                .map_or(word.len(), |end| letters + end);
            table.soc(word).or_else(|| table.soc(&word[..digits]))
        })
}

/// Parses `/proc/crypto`.
fn drivers(text: &str) -> Vec<Driver> {
    let block = |block: &str| {
        let value = |wanted: &str| {
            block.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == wanted).then(|| value.trim().to_owned())
            })
        };
        Some(Driver {
            name: value("name")?,
            driver: value("driver")?,
            priority: value("priority")
                .and_then(|value| value.parse().ok())
                .unwrap_or(0),
            asynchronous: value("async").is_some_and(|value| value == "yes"),
        })
    };
    text.split("\n\n").filter_map(block).collect()
}

/// Pairs of the auxiliary vector, if words of this size and byte order give a valid one.
fn auxiliary(bytes: &[u8], size: usize, big: bool) -> Option<Vec<(u64, u64)>> {
    let word = |bytes: &[u8]| {
        bytes.iter().enumerate().fold(0_u64, |word, (index, byte)| {
            let index = if big { size - 1 - index } else { index };
            word | u64::from(*byte) << (8 * index)
        })
    };
    let mut pairs = Vec::new();
    for pair in bytes.chunks_exact(size * 2).take(128) {
        let (key, value) = (word(&pair[..size]), word(&pair[size..]));
        if key == 0 {
            break;
        }
        if key > 255 {
            return None;
        }
        pairs.push((key, value));
    }
    let page = pairs
        .iter()
        .any(|(key, value)| *key == AT_PAGESZ && value.is_power_of_two() && *value >= 4096);
    page.then_some(pairs)
}

fn number(text: &str) -> Option<u32> {
    text.strip_prefix("0x").map_or_else(
        || text.parse().ok(),
        |hex| u32::from_str_radix(hex, 16).ok(),
    )
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
