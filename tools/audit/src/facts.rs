//! Facts from one ELF file. [`judge`](crate) decides what they mean for a chip.

use std::collections::BTreeSet;

/// The machine that the code is for (`e_machine`, with the class and the byte order).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// 32-bit ARM, A32 and T32.
    Arm {
        /// Big-endian data.
        big: bool,
    },
    /// AArch64, A64.
    Aarch64 {
        /// Big-endian data.
        big: bool,
    },
    /// MIPS, all its levels.
    Mips {
        /// Big-endian.
        big: bool,
        /// ELFCLASS64, or the N32 convention.
        wide: bool,
    },
    /// PowerPC.
    PowerPc {
        /// ELFCLASS64.
        wide: bool,
    },
    /// x86.
    X86 {
        /// x86-64.
        wide: bool,
    },
    /// Anything else, by its `e_machine`.
    Other(u16),
}

/// Program, library, kernel module or object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `ET_EXEC`, or `ET_DYN` with an entry point and an interpreter, or a static program that is
    /// position-independent.
    Program,
    /// `ET_DYN` without an interpreter.
    Library,
    /// `ET_REL` with `.modinfo`: a kernel module.
    Module,
    /// `ET_REL`: an object file.
    Object,
}

/// The `aeabi` part of `.ARM.attributes` (ABI for the Arm Architecture, "Build Attributes"): the tags that
/// affect speed. `None`: the file lacks the tag, which means its default, 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArmAttributes {
    /// `Tag_CPU_name` (5).
    pub cpu_name: Option<String>,
    /// `Tag_CPU_arch` (6): 4 is v5TE, 6 to 9 and 11, 12 are of v6, 10 is v7, 14 is v8-A.
    pub cpu_arch: Option<u64>,
    /// `Tag_FP_arch` (10): 0 none, 2 VFPv2, 3 VFPv3, 4 VFPv3-D16, 5 VFPv4, 6 VFPv4-D16, 7 and 8 ARMv8.
    pub fp_arch: Option<u64>,
    /// `Tag_Advanced_SIMD_arch` (12): 0 none, 1 NEONv1, 2 NEONv1 with FMA, 3 and 4 ARMv8.
    pub simd_arch: Option<u64>,
    /// `Tag_ABI_VFP_args` (28): 0 base convention, 1 VFP registers.
    pub vfp_args: Option<u64>,
    /// `Tag_ABI_optimization_goals` (30): 1, 2 speed, 3, 4 size, 5, 6 debugging. Valid in object files and
    /// modules only: linkers keep the value of the first object, which belongs to the C library.
    pub optimization_goals: Option<u64>,
    /// `Tag_MPextension_use` (42; 70 in old files): 1 allowed.
    pub mp_extension: Option<u64>,
    /// `Tag_DIV_use` (44): 0 where the architecture has it, 1 not allowed, 2 allowed as an extension of
    /// v7-A.
    pub div_use: Option<u64>,
}

/// The flags of MIPS files, in `.MIPS.abiflags` (or, failing that, in `e_flags`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MipsFlags {
    /// 1 to 5 for MIPS I to V, 32 or 64.
    pub isa_level: u8,
    /// Release of MIPS32 and MIPS64: 1, 2, 3, 5, 6.
    pub isa_rev: u8,
    /// `fp_abi`: 0 any, 1 hard double, 2 hard single, 3 soft, 5 to 7 newer.
    pub fp_abi: u8,
    /// Chip-specific extension, as the ABI numbers them: 5 is Octeon, 3 Octeon+, 2 Octeon2, 19 Octeon3.
    pub isa_ext: u32,
}

/// Instructions in the executable parts of a file, by class. The reader decodes them instead of using
/// symbols, so files without section headers count as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Decoded instructions of all classes.
    pub instructions: u64,
    /// Advanced SIMD (NEON) data processing, loads and stores; on AArch64 also loads and stores of whole Q
    /// registers, which copying memory uses. Cryptography instructions are counted apart.
    pub neon: u64,
    /// VFP (on AArch64: scalar floating point).
    pub vfp: u64,
    /// VFP or NEON instructions that name a register from D16 on: code for 16 registers never does.
    pub d16_up: u64,
    /// VFPv4's fused multiply-add, scalar or vector.
    pub fma: u64,
    /// `sdiv`, `udiv`.
    pub divide: u64,
    /// `aese`, `aesd`, `aesmc`, `aesimc`.
    pub aes: u64,
    /// 64-bit polynomial multiplication: `pmull`, `pmull2`, `vmull.p64`.
    pub pmull: u64,
    /// SHA-1, SHA-256 and SHA-512 instructions.
    pub sha: u64,
    /// Atomics of ARMv8.1 (`ldadd`, `cas`, `swp`...).
    pub lse: u64,
    /// `ldrex`, `ldxr` and similar exclusive loads and stores.
    pub exclusive: u64,
    /// `movw`, `movt`, `ubfx`, `bfi` and the other A32 and T32 instructions that v6T2 and v7 added.
    pub v7: u64,
    /// `ldaex`, `stl`, `vsel` and the other A32 and T32 instructions that ARMv8 added, except cryptography.
    pub v8: u64,
}

/// Where the NEON instructions are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Functions (by symbol) that hold NEON or cryptography instructions; without symbols, such pieces of 4
    /// KiB.
    pub with_neon: u64,
    /// All functions, or all pieces.
    pub all: u64,
    /// Whether the counts are of functions, not of pieces.
    pub functions: bool,
    /// Names of up to ten functions that hold the most such instructions, the largest count first.
    pub names: Vec<String>,
    /// 32-bit ARM: VFP instructions on D registers in functions or pieces without NEON.
    pub doubles_elsewhere: u64,
    /// Instructions in `doubles_elsewhere` that name a register from D16 on. GCC and LLVM use these
    /// registers first if told that they exist, which every NEON option implies.
    pub high_elsewhere: u64,
}

/// All facts that the reader extracts from one ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Machine, class and byte order.
    pub machine: Machine,
    /// Sort of file.
    pub kind: Kind,
    /// `e_flags`.
    pub flags: u32,
    /// Whether this is a statically linked program: it has no interpreter and needs no library.
    pub is_static: bool,
    /// `.ARM.attributes`, for [`Machine::Arm`] only. No segment covers it: without section headers, the
    /// reader finds it by its byte pattern, unless the tool cut it off as well.
    pub arm: Option<ArmAttributes>,
    /// MIPS flags, for [`Machine::Mips`] only.
    pub mips: Option<MipsFlags>,
    /// Undefined symbols.
    pub imports: BTreeSet<String>,
    /// Defined functions, of both symbol tables.
    pub functions: BTreeSet<String>,
    /// `DT_SONAME`.
    pub soname: Option<String>,
    /// `.modinfo` of kernel modules: `vermagic`, `name`, `depends`...
    pub modinfo: Vec<(String, String)>,
    /// Strings that name versions, options and assembly, for example `OpenSSL 3.0.17`, `compiler: gcc -fPIC
    /// -Os ...`, `SHA256 block transform for ARMv4/NEON/ARMv8, CRYPTOGAMS by ...`. At most 64, each of at
    /// most 1 KiB.
    pub notes: Vec<String>,
    /// Bytes in executable segments or sections.
    pub text: u64,
    /// Instructions by class.
    pub counts: Counts,
    /// Where the NEON instructions are.
    pub neon: Spread,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Facts of an empty file, for tests.
    pub(crate) fn facts(kind: Kind) -> Facts {
        Facts {
            machine: Machine::Arm { big: false },
            kind,
            flags: 0x0500_0400,
            is_static: false,
            arm: None,
            mips: None,
            imports: BTreeSet::new(),
            functions: BTreeSet::new(),
            soname: None,
            modinfo: Vec::new(),
            notes: Vec::new(),
            text: 0,
            counts: Counts::default(),
            neon: Spread::default(),
        }
    }
}
