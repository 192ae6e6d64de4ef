//! Signs, verifies and agrees on secrets: one operation at a time, for any batch.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
    VerificationAlgorithm,
};

use super::algorithm::{Algorithm, Operation, Task};
use super::dsa::Dsa;
use crate::x25519::{PrivateKey, PublicKey};

/// The message to sign: as long as a SHA-256 hash. The time to hash it is negligible.
const MESSAGE: [u8; 32] = [0x5a; 32];

/// Bytes of a signature with a key of 2048 bits.
const RSA_LEN: usize = 256;

/// Makes the operation's task with a fresh key; `None` if the algorithm has no such operation, or the library finds no
/// memory.
pub(super) fn task(algorithm: Algorithm, operation: Operation) -> Option<Box<dyn Task>> {
    match algorithm {
        Algorithm::Rsa2048 => {
            let key = RsaKeyPair::generate(KeySize::Rsa2048).ok()?;
            let mut signature = vec![0; RSA_LEN];
            rsa_sign(&key, &mut signature)?;
            match operation {
                Operation::Sign => Some(Box::new(Repeated(move || {
                    rsa_sign(&key, &mut signature).is_some()
                }))),
                Operation::Verify => {
                    let public = key.public_key().as_ref();
                    verifying(&RSA_PKCS1_2048_8192_SHA256, public, signature)
                }
                _ => None,
            }
        }
        Algorithm::EcdsaP256 => {
            let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).ok()?;
            match operation {
                Operation::Sign => Some(Box::new(Repeated(move || {
                    key.sign(&SystemRandom::new(), &MESSAGE).is_ok()
                }))),
                Operation::Verify => {
                    let signature = key.sign(&SystemRandom::new(), &MESSAGE).ok()?;
                    let public = key.public_key().as_ref();
                    verifying(&ECDSA_P256_SHA256_ASN1, public, signature.as_ref().to_vec())
                }
                _ => None,
            }
        }
        Algorithm::Dsa2048 => {
            let mut key = Dsa::generate()?;
            key.sign(&MESSAGE).then_some(())?;
            match operation {
                Operation::Sign => Some(Box::new(Repeated(move || key.sign(&MESSAGE)))),
                Operation::Verify => Some(Box::new(Repeated(move || key.verify(&MESSAGE)))),
                _ => None,
            }
        }
        Algorithm::X25519 if operation == Operation::Agree => {
            let (ours, theirs) = (PrivateKey::generate(), PrivateKey::generate());
            let theirs: PublicKey = theirs.public();
            Some(Box::new(Repeated(move || ours.agree(&theirs).is_ok())))
        }
        _ => None,
    }
}

fn rsa_sign(key: &RsaKeyPair, signature: &mut [u8]) -> Option<()> {
    let random = SystemRandom::new();
    key.sign(&RSA_PKCS1_SHA256, &random, &MESSAGE, signature)
        .ok()
}

/// The key is parsed once, like the key of a peer whose certificate has been read.
fn verifying(
    algorithm: &'static dyn VerificationAlgorithm,
    public: &[u8],
    signature: Vec<u8>,
) -> Option<Box<dyn Task>> {
    let key: ParsedPublicKey = UnparsedPublicKey::new(algorithm, public).parse().ok()?;
    Some(Box::new(Repeated(move || {
        key.verify_sig(&MESSAGE, &signature).is_ok()
    })))
}

/// Repeats one operation; the function returns whether its result was correct.
struct Repeated<F>(F);

impl<F: FnMut() -> bool + Send> Task for Repeated<F> {
    fn run(&mut self) -> bool {
        (self.0)()
    }

    fn implementation(&self) -> &'static str {
        "aws-lc"
    }
}
