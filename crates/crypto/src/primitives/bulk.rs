//! Hashes, block ciphers and RC4 on messages of one length.

use core::ops::Range;

use aws_lc_rs::digest;
use md5::Digest as _;

use super::rc4::Rc4;
use super::{Operation, Task, library};
use crate::Backend;
use crate::blocks::{BlockCipher, Chain};
use crate::openvpn::{DataCipher, Digest};

/// Messages in one memory, as packets lie in a slot.
struct Messages {
    memory: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl Messages {
    /// Each with room for an IV in front of it.
    fn new(batch: usize, bytes: usize) -> Self {
        const FRONT: usize = 16;
        let stride = FRONT + bytes.next_multiple_of(16);
        let start = |number: usize| number * stride + FRONT;
        Self {
            memory: (0..stride * batch).map(|at| (at * 31) as u8).collect(),
            places: (0..batch)
                .map(|number| start(number)..start(number) + bytes)
                .collect(),
        }
    }
}

/// Hashes each message.
pub(super) fn hash(
    digest: Digest,
    backend: Backend,
    batch: usize,
    bytes: usize,
) -> Option<Box<dyn Task>> {
    let algorithm = match digest {
        Digest::Md5 => None,
        Digest::Sha1 => Some(&digest::SHA1_FOR_LEGACY_USE_ONLY),
        Digest::Sha224 => Some(&digest::SHA224),
        Digest::Sha256 => Some(&digest::SHA256),
        Digest::Sha384 => Some(&digest::SHA384),
        Digest::Sha512 => Some(&digest::SHA512),
        Digest::None => return None,
    };
    let own = match algorithm {
        Some(_) => library(),
        None => Backend::Portable,
    };
    if backend != own {
        return None;
    }
    Some(Box::new(Hashing {
        algorithm,
        messages: Messages::new(batch, bytes),
    }))
}

struct Hashing {
    /// The library's; MD5 is not.
    algorithm: Option<&'static digest::Algorithm>,
    messages: Messages,
}

impl Task for Hashing {
    fn run(&mut self) -> bool {
        let Messages { memory, places } = &mut self.messages;
        for place in places {
            let message = &mut memory[place.clone()];
            // Into the next message, so that nothing of it can be left out.
            let first = match self.algorithm {
                Some(algorithm) => digest::digest(algorithm, message).as_ref().first().copied(),
                None => md5::Md5::digest(&*message).first().copied(),
            };
            if let (Some(byte), Some(first)) = (message.first_mut(), first) {
                *byte = first;
            }
        }
        true
    }

    fn implementation(&self) -> &'static str {
        match self.algorithm {
            Some(_) => "aws-lc",
            None => "rustcrypto",
        }
    }
}

/// Encrypts or decrypts each message, rounded up to whole blocks.
pub(super) fn cbc(
    cipher: DataCipher,
    operation: Operation,
    backend: Backend,
    batch: usize,
    bytes: usize,
) -> Option<Box<dyn Task>> {
    let encrypting = match operation {
        Operation::Encrypt => true,
        Operation::Decrypt => false,
        _ => return None,
    };
    let mut key = [0; 64];
    crate::random(&mut key);
    let blocks = BlockCipher::new(Some(backend), cipher, &key)?;
    let messages = Messages::new(batch, bytes.next_multiple_of(cipher.block_len()));
    let chain = |place: &Range<usize>| Chain::new(place, cipher.iv_len());
    Some(Box::new(Chains {
        blocks,
        encrypting,
        chains: messages.places.iter().map(chain).collect(),
        memory: messages.memory,
    }))
}

struct Chains {
    blocks: BlockCipher,
    encrypting: bool,
    memory: Vec<u8>,
    chains: Vec<Chain>,
}

impl Task for Chains {
    fn run(&mut self) -> bool {
        // Kernels take so many at once, at most.
        for chains in self.chains.chunks(crate::kernels::CHUNK) {
            if self.encrypting {
                self.blocks.encrypt(&mut self.memory, chains);
            } else {
                self.blocks.decrypt(&mut self.memory, chains);
            }
        }
        true
    }

    fn implementation(&self) -> &'static str {
        self.blocks.backend()
    }
}

/// Encrypts each message, the stream going on from one to the next.
pub(super) fn rc4(batch: usize, bytes: usize) -> Box<dyn Task> {
    let mut key = [0; 16];
    crate::random(&mut key);
    Box::new(Streaming {
        rc4: Rc4::new(&key),
        messages: Messages::new(batch, bytes),
    })
}

struct Streaming {
    rc4: Rc4,
    messages: Messages,
}

impl Task for Streaming {
    fn run(&mut self) -> bool {
        for place in &self.messages.places {
            self.rc4.apply(&mut self.messages.memory[place.clone()]);
        }
        true
    }

    fn implementation(&self) -> &'static str {
        "own (portable)"
    }
}
