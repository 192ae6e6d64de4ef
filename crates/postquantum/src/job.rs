//! The work of ML-KEM, which takes up to some milliseconds on a router: on another thread than the machine's.

use std::sync::Arc;

use crypto::Key;
use crypto::mlkem::{self, CIPHERTEXT_LEN, DecapsulationKey, ENCAPSULATION_KEY_LEN, Refused};

use crate::message::ExchangeId;

/// One operation of ML-KEM.
#[derive(Debug)]
pub struct Job {
    /// The exchange that waits for it.
    pub id: ExchangeId,
    /// The operation.
    pub task: Task,
}

/// The operations of ML-KEM.
#[derive(Debug)]
pub enum Task {
    /// Make a key pair.
    Generate,
    /// Make a secret for the owner of this key. A peer asks for it: limit how many of these wait.
    Encapsulate(Box<[u8; ENCAPSULATION_KEY_LEN]>),
    /// Open a ciphertext.
    Decapsulate(Arc<DecapsulationKey>, Box<[u8; CIPHERTEXT_LEN]>),
}

/// The result of a [`Job`].
#[derive(Debug)]
pub struct Outcome {
    /// The exchange of the job.
    pub id: ExchangeId,
    /// The result, or that there is none: the peer's key is not valid, or the caller has refused the work.
    pub result: Result<Computed, Refused>,
}

/// The results of the operations.
#[derive(Debug)]
pub enum Computed {
    /// The new key pair.
    Generated(DecapsulationKey, Box<[u8; ENCAPSULATION_KEY_LEN]>),
    /// The ciphertext and the secret in it.
    Encapsulated(Box<[u8; CIPHERTEXT_LEN]>, Key),
    /// The secret.
    Decapsulated(Key),
}

impl Job {
    /// Does the work.
    #[must_use]
    pub fn run(self) -> Outcome {
        let result = match self.task {
            Task::Generate => {
                let made = DecapsulationKey::generate();
                made.map(|(private, public)| Computed::Generated(private, public))
            }
            Task::Encapsulate(public) => {
                let made = mlkem::encapsulate(&public);
                made.map(|(ciphertext, secret)| Computed::Encapsulated(ciphertext, secret))
            }
            Task::Decapsulate(private, ciphertext) => {
                private.decapsulate(&ciphertext).map(Computed::Decapsulated)
            }
        };
        Outcome {
            id: self.id,
            result,
        }
    }

    /// The outcome of work that was not done, as too much waits. The peer's repetition asks for it again.
    #[must_use]
    pub const fn refuse(&self) -> Outcome {
        Outcome {
            id: self.id,
            result: Err(Refused),
        }
    }
}
