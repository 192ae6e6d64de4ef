//! The handshake: `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s`.
//!
//! The pattern is written as it stands in the Noise specification, with prologue and payloads as arguments, so that the
//! vectors of other implementations run through the very code that WireGuard runs through.
//!
//! ```text
//! <- s
//! ...
//! -> e, es, s, ss
//! <- e, ee, se, psk
//! ```
//!
//! `ss` never changes while both static keys stay, so it is an argument and computed once for each peer.

use crypto::blake2s::kdf;
use crypto::x25519::{PrivateKey, PublicKey};
use crypto::{Key, aead, blake2s};

use crate::message::{CONSTRUCTION, TAG_LEN};

/// The handshake message was not made by the peer that it claims to be from, for us, with this preshared key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unauthentic;

impl From<aead::Unauthentic> for Unauthentic {
    fn from(_: aead::Unauthentic) -> Self {
        Self
    }
}

impl From<crypto::x25519::LowOrder> for Unauthentic {
    fn from(_: crypto::x25519::LowOrder) -> Self {
        Self
    }
}

/// The keys of a session, named by their direction as the initiator sees it.
pub(crate) struct TransportKeys {
    pub(crate) from_initiator: Key,
    pub(crate) from_responder: Key,
}

/// Noise's symmetric state: all that both sides have seen (`hash`) and all that they share (`chaining_key`).
#[derive(Clone)]
struct Symmetric {
    chaining_key: Key,
    hash: [u8; 32],
}

impl Symmetric {
    /// The state after the prologue and the pre-message `<- s`.
    fn new(prologue: &[u8], responder: &PublicKey) -> Self {
        let name = blake2s::hash(&[CONSTRUCTION]);
        let mut state = Self {
            chaining_key: Key::from(name),
            hash: name,
        };
        state.mix_hash(prologue);
        state.mix_hash(responder.as_bytes());
        state
    }

    fn mix_hash(&mut self, data: &[u8]) {
        self.hash = blake2s::hash(&[&self.hash, data]);
    }

    /// Mixes in a public value (an ephemeral public key, as patterns with a preshared key do) without deriving a key
    /// from it.
    fn mix_public(&mut self, public: &[u8; 32]) {
        self.mix_hash(public);
        let [chaining_key] = kdf(self.chaining_key.as_bytes(), public);
        self.chaining_key = chaining_key;
    }

    /// Mixes in a shared secret and returns the key for the next sealed field.
    fn mix_key(&mut self, secret: &Key) -> Key {
        let [chaining_key, key] = kdf(self.chaining_key.as_bytes(), secret.as_bytes());
        self.chaining_key = chaining_key;
        key
    }

    fn mix_preshared(&mut self, preshared: &Key) -> Key {
        let [chaining_key, hash, key] = kdf(self.chaining_key.as_bytes(), preshared.as_bytes());
        self.chaining_key = chaining_key;
        self.mix_hash(hash.as_bytes());
        key
    }

    /// Seals the text at the front of `field` and puts the tag behind it.
    fn seal(&mut self, key: &Key, text: &[u8], field: &mut [u8]) {
        field[..text.len()].copy_from_slice(text);
        aead::seal(key, 0, &self.hash, field);
        self.mix_hash(field);
    }

    fn open<'a>(
        &mut self,
        key: &Key,
        sealed: &[u8],
        text: &'a mut [u8],
    ) -> Result<&'a mut [u8], Unauthentic> {
        text.copy_from_slice(sealed);
        let opened = aead::open(key, 0, &self.hash, text)?;
        self.mix_hash(sealed);
        Ok(opened)
    }

    fn split(&self) -> TransportKeys {
        let [from_initiator, from_responder] = kdf(self.chaining_key.as_bytes(), &[]);
        TransportKeys {
            from_initiator,
            from_responder,
        }
    }
}

/// The initiator, between its message and the answer.
pub(crate) struct Initiator {
    state: Symmetric,
    ephemeral: PrivateKey,
}

impl Initiator {
    /// Writes the first message, `-> e, es, s, ss`. `sealed_payload` is longer than `payload` by a tag.
    ///
    /// Returns the state, which also has the ephemeral public key to send.
    pub(crate) fn start(
        prologue: &[u8],
        (own, ephemeral): (&PrivateKey, PrivateKey),
        (responder, static_static): (&PublicKey, &Key),
        payload: &[u8],
        sealed_static: &mut [u8; 32 + TAG_LEN],
        sealed_payload: &mut [u8],
    ) -> Result<Self, Unauthentic> {
        let mut state = Symmetric::new(prologue, responder);
        state.mix_public(ephemeral.public().as_bytes());
        let key = state.mix_key(&ephemeral.agree(responder)?);
        state.seal(&key, own.public().as_bytes(), sealed_static);
        let key = state.mix_key(static_static);
        state.seal(&key, payload, sealed_payload);
        Ok(Self { state, ephemeral })
    }

    pub(crate) fn ephemeral(&self) -> PublicKey {
        self.ephemeral.public()
    }

    /// `<- e, ee, se`. The initiator is only borrowed: a forged answer must not end a handshake that continues.
    pub(crate) fn agree(
        &self,
        own: &PrivateKey,
        ephemeral: &PublicKey,
    ) -> Result<Agreed, Unauthentic> {
        let mut state = self.state.clone();
        state.mix_public(ephemeral.as_bytes());
        state.mix_key(&self.ephemeral.agree(ephemeral)?);
        state.mix_key(&own.agree(ephemeral)?);
        Ok(Agreed(state))
    }
}

/// The initiator after all multiplications, which it does once however many preshared keys it tries.
#[cfg_attr(feature = "postquantum", derive(Clone))]
pub(crate) struct Agreed(Symmetric);

impl Agreed {
    /// `<- psk`. `payload` is as long as `sealed_payload`; its front becomes the text.
    pub(crate) fn finish(
        self,
        preshared: &Key,
        sealed_payload: &[u8],
        payload: &mut [u8],
    ) -> Result<TransportKeys, Unauthentic> {
        let Self(mut state) = self;
        let key = state.mix_preshared(preshared);
        state.open(&key, sealed_payload, payload)?;
        Ok(state.split())
    }
}

/// The responder, which knows which peer the sender claims to be.
pub(crate) struct Responder {
    state: Symmetric,
    remote_ephemeral: PublicKey,
    /// The static key that the initiator claims; proven by [`Responder::verify`].
    pub(crate) claimed: PublicKey,
}

impl Responder {
    /// The first half of `-> e, es, s, ss`: finds which static key the initiator claims.
    pub(crate) fn identify(
        prologue: &[u8],
        own: &PrivateKey,
        ephemeral: &PublicKey,
        sealed_static: &[u8; 32 + TAG_LEN],
    ) -> Result<Self, Unauthentic> {
        let mut state = Symmetric::new(prologue, &own.public());
        state.mix_public(ephemeral.as_bytes());
        let key = state.mix_key(&own.agree(ephemeral)?);
        let mut text = [0; 32 + TAG_LEN];
        let claimed: &[u8] = state.open(&key, sealed_static, &mut text)?;
        let claimed: [u8; 32] = claimed.try_into().map_err(|_| Unauthentic)?;
        Ok(Self {
            state,
            remote_ephemeral: *ephemeral,
            claimed: PublicKey::from(claimed),
        })
    }

    /// The second half: checks that the initiator owns that key. `payload` is as long as `sealed_payload`; its front
    /// becomes the text.
    pub(crate) fn verify(
        &mut self,
        static_static: &Key,
        sealed_payload: &[u8],
        payload: &mut [u8],
    ) -> Result<(), Unauthentic> {
        let key = self.state.mix_key(static_static);
        self.state.open(&key, sealed_payload, payload)?;
        Ok(())
    }

    /// `<- e, ee, se, psk`. `sealed_payload` is a tag longer than `payload`.
    pub(crate) fn respond(
        mut self,
        ephemeral: &PrivateKey,
        preshared: &Key,
        payload: &[u8],
        sealed_payload: &mut [u8],
    ) -> Result<TransportKeys, Unauthentic> {
        self.state.mix_public(ephemeral.public().as_bytes());
        self.state
            .mix_key(&ephemeral.agree(&self.remote_ephemeral)?);
        self.state.mix_key(&ephemeral.agree(&self.claimed)?);
        let key = self.state.mix_preshared(preshared);
        self.state.seal(&key, payload, sealed_payload);
        Ok(self.state.split())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    fn array<const N: usize>(hex: &str) -> [u8; N] {
        bytes(hex).try_into().unwrap()
    }

    /// From wireguard-go's `kdf_test.go` (MIT).
    #[test]
    fn kdf_gives_the_outputs_of_wireguard_go() {
        let cases = [
            (
                "746573742d6b6579",
                "746573742d696e707574",
                [
                    "6f0e5ad38daba1bea8a0d213688736f19763239305e0f58aba697f9ffc41c633",
                    "df1194df20802a4fe594cde27e92991c8cae66c366e8106aaa937a55fa371e8a",
                    "fac6e2745a325f5dc5d11a5b165aad08b0ada28e7b4e666b7c077934a4d76c24",
                ],
            ),
            (
                "776972656775617264",
                "776972656775617264",
                [
                    "491d43bbfdaa8750aaf535e334ecbfe5129967cd64635101c566d4caefda96e8",
                    "1e71a379baefd8a79aa4662212fcafe19a23e2b609a3db7d6bcba8f560e3d25f",
                    "31e1ae48bddfbe5de38f295e5452b1909a1b4e38e183926af3780b0c1e1f0160",
                ],
            ),
            (
                "",
                "",
                [
                    "8387b46bf43eccfcf349552a095d8315c4055beb90208fb1be23b894bc2ed5d0",
                    "58a0e5f6faefccf4807bff1f05fa8a9217945762040bcec2f4b4a62bdfe0e86e",
                    "0ce6ea98ec548f8e281e93e32db65621c45eb18dc6f0a7ad94178610a2f7338e",
                ],
            ),
        ];
        for (key, input, outputs) in cases {
            let found: [Key; 3] = kdf(&bytes(key), &bytes(input));
            assert_eq!(found, outputs.map(|hex| Key::from(array(hex))));
            let [first]: [Key; 1] = kdf(&bytes(key), &bytes(input));
            assert_eq!(first, found[0]);
        }
    }

    /// The case `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s` of the cacophony vectors, as snow carries them (Apache-2.0 or
    /// MIT).
    #[test]
    fn the_vector_of_cacophony() {
        let prologue = b"John Galt";
        let preshared = Key::from(array(
            "54686973206973206d7920417573747269616e20706572737065637469766521",
        ));
        let own = PrivateKey::new(array(
            "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
        ));
        let ephemeral = PrivateKey::new(array(
            "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
        ));
        let other = PrivateKey::new(array(
            "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
        ));
        let other_ephemeral = PrivateKey::new(array(
            "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
        ));
        let responder = PublicKey::from(array(
            "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62",
        ));
        assert_eq!(other.public(), responder);
        let static_static = own.agree(&responder).unwrap();

        let (mut sealed_static, mut sealed_payload) = ([0; 48], [0; 32]);
        let keys = (&own, ephemeral);
        let first = b"Ludwig von Mises";
        let to = (&responder, &static_static);
        let initiator = Initiator::start(
            prologue,
            keys,
            to,
            first,
            &mut sealed_static,
            &mut sealed_payload,
        )
        .unwrap();
        let sent = [
            &initiator.ephemeral().as_bytes()[..],
            &sealed_static,
            &sealed_payload,
        ]
        .concat();
        let expected = "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944001e21de9f98ddd8e2ad5752\
                        7207feb56253c9c94a9e496782ecfcb2a75fbcaf1b52948cc48daefe660c62119ab5000980c84831215f2441\
                        eba616548e832985464cf17e51ee93109008399a21f7e13f";
        assert_eq!(sent, bytes(expected));

        let mut answering =
            Responder::identify(prologue, &other, &initiator.ephemeral(), &sealed_static).unwrap();
        assert_eq!(answering.claimed, own.public());
        let mut payload = [0; 32];
        answering
            .verify(&static_static, &sealed_payload, &mut payload)
            .unwrap();
        assert_eq!(&payload[..16], first);

        let second = b"Murray Rothbard";
        let mut sealed_payload = [0; 31];
        let theirs = answering
            .respond(&other_ephemeral, &preshared, second, &mut sealed_payload)
            .unwrap();
        let sent = [&other_ephemeral.public().as_bytes()[..], &sealed_payload].concat();
        let expected = "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843\
                        cb765f2caef0751b8f007572dab0322217755c0632f365717edbf34d33e87a";
        assert_eq!(sent, bytes(expected));

        let mut payload = [0; 31];
        let other_public = other_ephemeral.public();
        let finish = |preshared: &Key, payload: &mut [u8]| {
            let agreed = initiator.agree(&own, &other_public).unwrap();
            agreed.finish(preshared, &sealed_payload, payload)
        };
        assert!(finish(&Key::ZERO, &mut payload).is_err());
        let ours = finish(&preshared, &mut payload).unwrap();
        assert_eq!(&payload[..15], second);
        assert_eq!(ours.from_initiator, theirs.from_initiator);
        assert_eq!(ours.from_responder, theirs.from_responder);

        let transport = [
            (
                "462e20412e20486179656b",
                "8153ca9833bc3c1b91a7e66e5f4d4f5b59bf9e64c2f20d15f0bba7",
            ),
            (
                "4361726c204d656e676572",
                "07af0c9c86e1b4e80f36b04ff7688d51141af3debd0332f0a705ef",
            ),
            (
                "4a65616e2d426170746973746520536179",
                "6ab1467c0448cc78394494abaaf23afce0e234315d6e2624dcbfa8a21c1c4d073d",
            ),
            (
                "457567656e2042f6686d20766f6e2042617765726b",
                "dfc346c0d2296ae6cf1acf6f12b8456a1dba228cf8d8b774aacf1c47fc53aa80ebc7a4c292",
            ),
        ];
        for (number, (text, sealed)) in transport.into_iter().enumerate() {
            let key = [&ours.from_initiator, &ours.from_responder][number % 2];
            let mut message = bytes(text);
            message.extend([0; TAG_LEN]);
            aead::seal(key, number as u64 / 2, &[], &mut message);
            assert_eq!(message, bytes(sealed));
        }
    }
}
