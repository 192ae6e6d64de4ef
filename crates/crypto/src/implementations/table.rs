//! The candidates of each kind, in the order in which they were added. Names are unique within a table.

use super::{
    AeadImplementation, AwsLcAead, AwsLcAes, CbcImplementation, MacImplementation, aws_lc,
};
use crate::hmac::Hmac;
use crate::implementations::Backend;
use crate::lanes::{self, MacLanes};
use crate::packet_aead::AeadAlgorithm;
use crate::portable::{self, ChaChaPoly, Gcm};

/// Code that can be picked.
pub(crate) struct Candidate<Make> {
    /// The candidate's kind. A library that detects the CPU's features is of the kind that it will use.
    pub(crate) backend: fn() -> Backend,
    /// The candidate's name in profiles and tests.
    pub(crate) name: &'static str,
    /// Makes the candidate with a key; `None` if the machine lacks something it needs, or it does not support the
    /// algorithm.
    pub(crate) make: Make,
}

/// Makes an AEAD. The key must have the algorithm's length.
pub(crate) type MakeAead = fn(AeadAlgorithm, &[u8]) -> Option<Box<dyn AeadImplementation>>;

/// Makes AES-CBC. The key must have 16, 24 or 32 bytes.
pub(crate) type MakeCbc = fn(&[u8]) -> Option<Box<dyn CbcImplementation>>;

/// Makes an HMAC. The key knows its digest.
pub(crate) type MakeMac = fn(&Hmac) -> Option<Box<dyn MacImplementation>>;

#[cfg(any(target_arch = "x86_64", neon))]
const SIMD: fn() -> Backend = || Backend::Simd;

/// AES-GCM and ChaCha20-Poly1305.
pub(crate) const AEADS: &[Candidate<MakeAead>] = &[
    Candidate {
        backend: aws_lc::backend,
        name: "aws-lc",
        make: |algorithm, key| Some(Box::new(AwsLcAead::new(algorithm, key))),
    },
    Candidate {
        backend: || Backend::Portable,
        name: "portable",
        make: |algorithm, key| match algorithm {
            AeadAlgorithm::ChaCha20Poly1305 => Some(Box::new(ChaChaPoly::new(algorithm, key)?)),
            _ => Some(Box::new(Gcm::new(algorithm, key)?)),
        },
    },
    #[cfg(target_arch = "x86_64")]
    Candidate {
        backend: SIMD,
        name: "avx512-ifma",
        make: |algorithm, key| Some(Box::new(crate::avx512::Groups::new(algorithm, key)?)),
    },
    #[cfg(neon)]
    Candidate {
        backend: SIMD,
        name: "neon-bitsliced",
        make: |algorithm, key| Some(Box::new(crate::aes_arm::BitSlicedGcm::new(algorithm, key)?)),
    },
    #[cfg(all(neon, target_arch = "aarch64"))]
    Candidate {
        backend: SIMD,
        name: "aes",
        make: |algorithm, key| {
            Some(Box::new(crate::aes_arm::InstructionsGcm::new(
                algorithm, key,
            )?))
        },
    },
    #[cfg(neon)]
    Candidate {
        backend: SIMD,
        name: "neon",
        make: |algorithm, key| {
            Some(Box::new(crate::neon::ChaCha20Poly1305::new(
                algorithm, key,
            )?))
        },
    },
    #[cfg(feature = "accelerators")]
    Candidate {
        backend: || Backend::Accelerator,
        name: "accelerator",
        make: |algorithm, key| Some(Box::new(crate::accelerator::aead(algorithm, key)?)),
    },
];

/// AES-CBC.
pub(crate) const CBCS: &[Candidate<MakeCbc>] = &[
    Candidate {
        backend: aws_lc::backend,
        name: "aws-lc",
        make: |key| Some(Box::new(AwsLcAes::new(key))),
    },
    Candidate {
        backend: || Backend::Portable,
        name: "portable",
        make: |key| Some(Box::new(portable::Cbc::new(key))),
    },
    #[cfg(target_arch = "x86_64")]
    Candidate {
        backend: SIMD,
        name: "aes-ni",
        make: |key| Some(Box::new(crate::blocks::AesNi::new(key)?)),
    },
    #[cfg(target_arch = "x86_64")]
    Candidate {
        backend: SIMD,
        name: "vaes",
        make: |key| Some(Box::new(crate::blocks::Vaes::new(key)?)),
    },
    #[cfg(neon)]
    Candidate {
        backend: SIMD,
        name: "neon-bitsliced",
        make: |key| Some(Box::new(crate::aes_arm::BitSliced::new(key)?)),
    },
    #[cfg(all(neon, target_arch = "aarch64"))]
    Candidate {
        backend: SIMD,
        name: "aes",
        make: |key| Some(Box::new(crate::aes_arm::InstructionsCbc::new(key)?)),
    },
    #[cfg(feature = "accelerators")]
    Candidate {
        backend: || Backend::Accelerator,
        name: "accelerator",
        make: |key| Some(Box::new(crate::accelerator::cbc(key)?)),
    },
];

/// HMAC with SHA-1 and SHA-2; the first candidate supports every digest.
pub(crate) const MACS: &[Candidate<MakeMac>] = &[
    Candidate {
        backend: aws_lc::backend,
        name: "aws-lc",
        make: |key| Some(Box::new(key.clone())),
    },
    Candidate {
        backend: || Backend::Portable,
        name: "portable",
        make: |key| Some(Box::new(MacLanes::new(key, &lanes::scalar::SET)?)),
    },
    #[cfg(target_arch = "x86_64")]
    Candidate {
        backend: SIMD,
        name: "avx2",
        make: |key| Some(Box::new(MacLanes::new(key, &lanes::avx2::SET)?)),
    },
    #[cfg(target_arch = "x86_64")]
    Candidate {
        backend: SIMD,
        name: "avx512",
        make: |key| Some(Box::new(MacLanes::new(key, &lanes::avx512::SET)?)),
    },
    #[cfg(neon)]
    Candidate {
        backend: SIMD,
        name: "neon",
        make: |key| Some(Box::new(MacLanes::new(key, &lanes::neon::SET)?)),
    },
    #[cfg(all(neon, target_arch = "aarch64"))]
    Candidate {
        backend: SIMD,
        name: "sha",
        make: |key| Some(Box::new(MacLanes::new(key, &lanes::neon::SHA)?)),
    },
];
