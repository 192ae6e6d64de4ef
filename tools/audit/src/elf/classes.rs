//! The classes of an instruction.

use std::ops::BitOr;

use crate::facts::Counts;

/// A set of classes. Empty: the instruction counts only towards the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Classes(u16);

impl Classes {
    pub(super) const NONE: Self = Self(0);
    pub(super) const NEON: Self = Self(1);
    pub(super) const VFP: Self = Self(1 << 1);
    pub(super) const D16_UP: Self = Self(1 << 2);
    pub(super) const FMA: Self = Self(1 << 3);
    pub(super) const DIVIDE: Self = Self(1 << 4);
    pub(super) const AES: Self = Self(1 << 5);
    pub(super) const PMULL: Self = Self(1 << 6);
    pub(super) const SHA: Self = Self(1 << 7);
    pub(super) const LSE: Self = Self(1 << 8);
    pub(super) const EXCLUSIVE: Self = Self(1 << 9);
    pub(super) const V7: Self = Self(1 << 10);
    /// VFP instructions that compute with, load or move a D register. If there are 32 of them, compilers
    /// use D16 and up first. Saving D8 to D15 on the stack does not count.
    pub(super) const DOUBLE: Self = Self(1 << 11);
    /// Instructions that came to A32 and T32 with ARMv8.
    pub(super) const V8: Self = Self(1 << 12);

    /// Instructions of cryptography.
    pub(super) const CRYPTO: Self = Self(Self::AES.0 | Self::PMULL.0 | Self::SHA.0);
    /// Instructions that a chip without NEON cannot run.
    pub(super) const SIMD: Self = Self(Self::NEON.0 | Self::CRYPTO.0);
    /// Instructions that work on the registers of VFP and NEON.
    pub(super) const VECTOR: Self = Self(Self::SIMD.0 | Self::VFP.0);

    /// Whether the two sets share a class.
    pub(super) fn any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    /// These classes if the condition holds, else the empty set.
    pub(super) fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }

    /// Counts one instruction of these classes.
    pub(super) fn count(self, counts: &mut Counts) {
        counts.instructions += 1;
        if self == Self::NONE {
            return;
        }
        for (class, count) in [
            (Self::NEON, &mut counts.neon),
            (Self::VFP, &mut counts.vfp),
            (Self::D16_UP, &mut counts.d16_up),
            (Self::FMA, &mut counts.fma),
            (Self::DIVIDE, &mut counts.divide),
            (Self::AES, &mut counts.aes),
            (Self::PMULL, &mut counts.pmull),
            (Self::SHA, &mut counts.sha),
            (Self::LSE, &mut counts.lse),
            (Self::EXCLUSIVE, &mut counts.exclusive),
            (Self::V7, &mut counts.v7),
            (Self::V8, &mut counts.v8),
        ] {
            *count += u64::from(self.any(class));
        }
    }
}

impl BitOr for Classes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
