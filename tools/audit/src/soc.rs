//! Chips and their abilities: the table of SoCs and routers, and detection of the chip of an image or a box.
//!
//! `socs.toml` holds the facts, each with its source; [`Table`] is that file, checked and searchable.
//! [`Hints`] finds the chip from an image's files, [`Live`] from the running system.

mod hints;
mod live;
mod table;

use std::collections::BTreeMap;

pub use hints::{Detected, Hints};
pub use live::{Cpu, Driver, Live};
pub use table::{Table, TableError};

/// Instruction set, as far as compiler options tell sets apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isa {
    /// 32-bit ARM of version 5TE.
    #[default]
    Armv5te,
    /// 32-bit ARM of version 7, application profile.
    Armv7,
    /// AArch64; runs 32-bit ARM code as well, unless [`Core::gcc32`] is empty.
    Armv8,
    /// MIPS32 release 2.
    Mips32r2,
    /// 64-bit MIPS with Cavium's extensions of the CN50xx.
    Mips64OcteonPlus,
    /// 64-bit MIPS with Cavium's extensions of the CN70xx.
    Mips64Octeon3,
    /// 32-bit PowerPC with SPE in place of the classic floating-point unit.
    PowerPcSpe,
}

impl Isa {
    /// 32-bit ARM or AArch64.
    #[must_use]
    pub fn is_arm(self) -> bool {
        matches!(self, Self::Armv5te | Self::Armv7 | Self::Armv8)
    }
}

/// ARM's floating-point unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vfp {
    /// No unit, or not ARM.
    #[default]
    None,
    /// VFPv3 with 16 registers.
    V3D16,
    /// VFPv3 with 32 registers.
    V3,
    /// VFPv4 with 32 registers.
    V4,
    /// ARMv8's unit.
    V8,
}

/// One build of one processor core: with and without NEON, with and without AES.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    id: String,
    /// The core's name: `Krait 300`.
    pub name: String,
    /// Instruction set.
    pub isa: Isa,
    /// Advanced SIMD.
    #[serde(default)]
    pub neon: bool,
    /// ARM's floating-point unit.
    pub vfp: Vfp,
    /// A floating-point unit of any sort.
    #[serde(default)]
    pub fpu: bool,
    /// `sdiv` and `udiv` in A32 and T32, or the equivalent.
    #[serde(default)]
    pub divide: bool,
    /// The multiprocessing extension of ARMv7 (A7, A9, A15, Krait), or more.
    #[serde(default)]
    pub multiprocessing: bool,
    /// ARMv8's AES, PMULL, SHA-1 and SHA-256 instructions.
    #[serde(default)]
    pub aes: bool,
    /// ARMv8.1's atomics.
    #[serde(default)]
    pub lse: bool,
    /// GCC options that fit, with the convention that passes floats in floating-point registers if the chip
    /// has them: `-mcpu=cortex-a15 -mfpu=neon-vfpv4 -mfloat-abi=hard`.
    pub gcc: String,
    /// Options for gcc, for 32-bit programs on a 64-bit ARM core.
    pub gcc32: Option<String>,
    /// Options for rustc: `-C target-cpu=cortex-a53`; empty if the target suffices.
    #[serde(default)]
    pub rust: String,
    /// The processor in `/proc/cpuinfo`, `implementer/part` in hexadecimal (ARM): `51/06f`.
    #[serde(default)]
    pub cpu: Vec<String>,
    sources: BTreeMap<String, Vec<String>>,
}

/// One chip, or several that do not differ in any listed fact.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Soc {
    /// The name for `--soc`, in lower case: `ipq8065`.
    pub id: String,
    /// Maker and name: `Qualcomm IPQ8065`.
    pub name: String,
    /// Other names that `--soc` takes.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Routers with this chip, with their makers: `NETGEAR R7800`.
    pub routers: Vec<String>,
    #[serde(rename = "core")]
    core_id: String,
    /// The processor core.
    #[serde(skip)]
    pub core: Core,
    /// Cores that the system sees, or hardware threads if the cores have several.
    pub cores: u8,
    /// Clocks in GHz: the lowest and highest top clock among boxes with this chip.
    pub ghz: (f32, f32),
    /// Whether routers run the chip big-endian.
    #[serde(default)]
    pub big_endian: bool,
    /// The cipher accelerator, and its use.
    pub accelerator: Option<String>,
    /// Names in a device tree's root `compatible`: `qcom,ipq8065`.
    #[serde(default)]
    pub compatible: Vec<String>,
    /// Board numbers in NETGEAR's CHK headers: `U12H270T00_NETGEAR`.
    #[serde(default)]
    pub board_ids: Vec<String>,
    /// OpenWrt's targets: `ipq806x/generic`. Other chips may share them.
    #[serde(default, rename = "targets")]
    pub openwrt_targets: Vec<String>,
    /// OpenWrt's package architectures: `arm_cortex-a15_neon-vfpv4`.
    #[serde(default, rename = "arch")]
    pub openwrt_arch: Vec<String>,
    /// Sources of the chip's and its core's facts: addresses by the name of the fact.
    pub sources: BTreeMap<String, Vec<String>>,
    /// Facts that no public source confirms: the audit concludes nothing from them.
    #[serde(default)]
    pub unsure: Vec<String>,
    /// A note for people.
    pub note: Option<String>,
}

impl Soc {
    /// Whether a public source confirms the fact of this name (a name of [`Self::sources`], or `neon`,
    /// `vfp`, `aes`).
    #[must_use]
    pub fn is_sure(&self, fact: &str) -> bool {
        !self.unsure.iter().any(|unsure| unsure == fact)
    }
}
