//! The random bytes from which keys are made.

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::role::Role;

/// The random bytes of one end. The server has no pre-master secret: it is zeros.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeySource {
    pub(super) pre_master: [u8; 48],
    pub(super) random1: [u8; 32],
    pub(super) random2: [u8; 32],
}

impl KeySource {
    /// Draws the random bytes of an end.
    pub fn generate(role: Role) -> Result<Self, RandomError> {
        let mut source = Self {
            pre_master: [0; 48],
            random1: [0; 32],
            random2: [0; 32],
        };
        let fill = |bytes: &mut [u8]| aws_lc_rs::rand::fill(bytes).map_err(|_| RandomError);
        if role == Role::Client {
            fill(&mut source.pre_master)?;
        }
        fill(&mut source.random1)?;
        fill(&mut source.random2)?;
        Ok(source)
    }

    /// Takes given bytes, for known answers.
    pub fn from_bytes(pre_master: [u8; 48], random1: [u8; 32], random2: [u8; 32]) -> Self {
        Self {
            pre_master,
            random1,
            random2,
        }
    }

    /// The pre-master secret; zeros if this is a server's.
    pub fn pre_master(&self) -> &[u8; 48] {
        &self.pre_master
    }

    /// The seed of the master secret.
    pub fn random1(&self) -> &[u8; 32] {
        &self.random1
    }

    /// The seed of the key expansion.
    pub fn random2(&self) -> &[u8; 32] {
        &self.random2
    }
}

impl std::fmt::Debug for KeySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeySource { .. }")
    }
}

/// The system gave no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random numbers")]
pub struct RandomError;
