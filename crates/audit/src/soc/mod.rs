//! The abilities of chips: the table of SoCs and routers, and finding out which of them an image or a box is.
//!
//! The facts are in `socs.toml`, each with where it was read; [`Table`] is that file checked and searchable,
//! [`Hints`] tells the chip from the files of an image, [`Live`] from the system that this runs on.

mod file;
mod hints;
mod live;
mod table;

use std::collections::BTreeMap;

pub use hints::{Detected, Hints};
pub use live::{Cpu, Driver, Live};
pub use table::{Table, TableError};

/// Instruction set, as far as compiler options tell sets apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isa {
    /// 32-bit ARM of version 5TE.
    Armv5te,
    /// 32-bit ARM of version 7, application profile.
    Armv7,
    /// AArch64; runs 32-bit ARM code as well, unless [`Soc::gcc32`] is empty.
    Armv8,
    /// MIPS32 release 2.
    Mips32r2,
    /// 64-bit MIPS with Cavium's extensions of the CN50xx.
    Mips64OcteonPlus,
    /// 64-bit MIPS with Cavium's extensions of the CN70xx.
    Mips64Octeon3,
    /// 32-bit PowerPC with SPE in the place of the classic floating-point unit.
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
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Vfp {
    /// None, or not ARM.
    None,
    /// VFPv3 with 16 registers.
    V3D16,
    /// VFPv3 with 32 registers.
    V3,
    /// VFPv4 with 32 registers.
    V4,
    /// That of ARMv8.
    V8,
}

/// One chip, or several that differ in nothing that matters here.
#[derive(Clone, Debug, PartialEq)]
pub struct Soc {
    /// The name for `--soc`, in lower case: `ipq8065`.
    pub id: String,
    /// Maker and name: `Qualcomm IPQ8065`.
    pub name: String,
    /// Other names that `--soc` takes.
    pub aliases: Vec<String>,
    /// Routers with it, with their makers: `NETGEAR R7800`.
    pub routers: Vec<String>,
    /// The processor core: `Krait 300`.
    pub core: String,
    /// Cores that the system sees; hardware threads where there are some.
    pub cores: u8,
    /// Clocks in GHz: the lowest and the highest top clock that boxes with this chip have.
    pub ghz: (f32, f32),
    /// Instruction set.
    pub isa: Isa,
    /// Whether routers run it big-endian.
    pub big_endian: bool,
    /// Advanced SIMD.
    pub neon: bool,
    /// ARM's floating-point unit.
    pub vfp: Vfp,
    /// A floating-point unit of any sort.
    pub fpu: bool,
    /// `sdiv` and `udiv` in A32 and T32, or the like.
    pub divide: bool,
    /// The multiprocessing extension of ARMv7 (A7, A9, A15, Krait), or more.
    pub multiprocessing: bool,
    /// ARMv8's AES, PMULL, SHA-1 and SHA-256 instructions.
    pub aes: bool,
    /// ARMv8.1's atomics.
    pub lse: bool,
    /// GCC's `-march` that the core fulfils: `armv7ve+simd`.
    pub march: String,
    /// The options for GCC that fit, with the convention that passes floats in registers where there are
    /// such: `-mcpu=cortex-a15 -mfpu=neon-vfpv4 -mfloat-abi=hard`.
    pub gcc: String,
    /// Options for gcc, for 32-bit programs on a 64-bit ARM core.
    pub gcc32: Option<String>,
    /// Options for rustc: `-C target-cpu=cortex-a53`; empty where the target says it all.
    pub rust: String,
    /// The cipher engine, and what it is good for.
    pub engine: Option<String>,
    /// Names in a device tree's root `compatible`: `qcom,ipq8065`.
    pub compatible: Vec<String>,
    /// Board numbers in NETGEAR's CHK headers: `U12H270T00_NETGEAR`.
    pub board_ids: Vec<String>,
    /// OpenWrt's targets: `ipq806x/generic`. Others chips may share them.
    pub openwrt_targets: Vec<String>,
    /// OpenWrt's package architectures: `arm_cortex-a15_neon-vfpv4`.
    pub openwrt_arch: Vec<String>,
    /// The processor in `/proc/cpuinfo`, `implementer/part` in hexadecimal (ARM): `51/06f`.
    pub cpu: Vec<String>,
    /// Where each fact was read: addresses by the name of the fact.
    pub sources: BTreeMap<String, Vec<String>>,
    /// Facts that no public source confirmed: nothing may be concluded from them.
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

    /// The target of rustc that [`Self::rust`] goes with, for musl; `None` where Rust has none that fits.
    #[must_use]
    pub fn rust_target(&self) -> Option<&'static str> {
        match (self.isa, self.fpu, self.big_endian) {
            (Isa::Armv5te, _, _) => Some("armv5te-unknown-linux-musleabi"),
            (Isa::Armv7, true, _) => Some("armv7-unknown-linux-musleabihf"),
            (Isa::Armv7, false, _) => Some("armv7-unknown-linux-musleabi"),
            (Isa::Armv8, _, _) => Some("aarch64-unknown-linux-musl"),
            (Isa::Mips32r2, _, true) => Some("mips-unknown-linux-musl"),
            (Isa::Mips32r2, _, false) => Some("mipsel-unknown-linux-musl"),
            (Isa::Mips64OcteonPlus | Isa::Mips64Octeon3 | Isa::PowerPcSpe, _, _) => None,
        }
    }

    /// [`Self::gcc`] for a userland that passes floats in core registers (`soft` and `softfp`, whose
    /// programs mix): instructions of the floating-point unit are used all the same.
    #[must_use]
    pub fn gcc_soft_abi(&self) -> String {
        self.gcc.replace("-mfloat-abi=hard", "-mfloat-abi=softfp")
    }
}
