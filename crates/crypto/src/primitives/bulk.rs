//! Hashes, block ciphers and RC4 on messages of one length.

use core::ops::Range;

use super::algorithm::{Operation, Task};
use crate::blocks::BlockCipher;
use crate::implementations::{CHUNK, Chain, Hmac, Mac, MacImplementation, Pair};
use crate::select::Algorithm;
use crate::{Backend, Cipher, Digest, Rc4};

/// Messages in one memory, as packets lie in a slot.
struct Messages {
    memory: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl Messages {
    /// Makes messages, each with room for an IV in front.
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
    // The key does not matter: implementations of HMACs do plain hashes as well, except accelerators.
    let implementations = match backend {
        // A digest other than SHA-1 and SHA-2 has one implementation, which is portable on every machine.
        _ if Algorithm::of_digest(digest).is_none() => match backend {
            Backend::Portable => Pair::mac(None, &Hmac::new(digest, &[])?)?,
            _ => return None,
        },
        _ => Pair::mac(Some(backend), &Hmac::new(digest, &[])?)?,
    };
    let messages = Messages::new(batch, bytes);
    let mut hashing = Hashing {
        implementations,
        hashes: vec![Mac::EMPTY; messages.places.len()],
        messages,
    };
    if !hashing.run() {
        return None;
    }
    Some(Box::new(hashing))
}

struct Hashing {
    implementations: Pair<dyn MacImplementation>,
    messages: Messages,
    hashes: Vec<Mac>,
}

impl Task for Hashing {
    fn run(&mut self) -> bool {
        let Messages { memory, places } = &self.messages;
        let implementation = self.implementations.of(places.len());
        let mut hashes = &mut self.hashes[..];
        places.chunks(CHUNK).all(|places| {
            let (now, rest) = core::mem::take(&mut hashes).split_at_mut(places.len());
            hashes = rest;
            implementation.hash_each(memory, places, now)
        })
    }

    fn implementation(&self) -> &'static str {
        self.implementations
            .of(self.messages.places.len())
            .describe()
    }
}

/// Encrypts or decrypts each message, rounded up to whole blocks.
pub(super) fn cbc(
    cipher: Cipher,
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
        // Implementations take at most `CHUNK` chains at once.
        for chains in self.chains.chunks(CHUNK) {
            if self.encrypting {
                self.blocks.encrypt(&mut self.memory, chains);
            } else {
                self.blocks.decrypt(&mut self.memory, chains);
            }
        }
        true
    }

    fn implementation(&self) -> &'static str {
        self.blocks
            .describe(self.encrypting, self.chains.len().min(CHUNK))
    }
}

/// Encrypts each message with one stream, which continues from message to message.
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

#[cfg(test)]
mod tests {
    use aws_lc_rs::digest;

    use super::*;
    use crate::implementations::MACS;

    /// Compares plain hashes of every length around the ends of blocks, by each candidate that has them, with the
    /// library's.
    #[test]
    fn plain_hashes_are_those_of_the_library() {
        let memory: Vec<u8> = (0..2000_u32).map(|at| ((at * 31) >> 3) as u8).collect();
        let messages: Vec<_> = (0..300).map(|len| len % 7..len % 7 + len).collect();
        for (which, library) in [
            (Digest::Sha1, &digest::SHA1_FOR_LEGACY_USE_ONLY),
            (Digest::Sha224, &digest::SHA224),
            (Digest::Sha256, &digest::SHA256),
            (Digest::Sha384, &digest::SHA384),
            (Digest::Sha512, &digest::SHA512),
        ] {
            let key = Hmac::new(which, b"has no part in it").unwrap();
            let mut tried = Vec::new();
            for candidate in MACS {
                let Some(implementation) = (candidate.make)(&key) else {
                    continue;
                };
                for messages in messages.chunks(41) {
                    let mut hashes = vec![Mac::EMPTY; messages.len()];
                    if !implementation.hash_each(&memory, messages, &mut hashes) {
                        continue;
                    }
                    tried.push(candidate.name);
                    for (message, hash) in messages.iter().zip(hashes) {
                        let expected = digest::digest(library, &memory[message.clone()]);
                        assert_eq!(
                            hash.as_bytes(),
                            expected.as_ref(),
                            "{which} of {message:?} by {}",
                            candidate.name
                        );
                    }
                }
            }
            assert!(tried.contains(&"aws-lc") && tried.contains(&"portable"));
        }
    }
}
