//! MACs and cookies: what a message must carry before anything expensive is done with it.
//!
//! `mac1` shows that the sender knows the public key of the receiver. A responder under load requires `mac2` as well.
//! The key of the second MAC is the cookie, which the responder sent to the source address of an earlier message: so
//! the sender has that address.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use crypto::x25519::PublicKey;
use crypto::{Key, aead, blake2s, equal, random};

use crate::message::{
    COOKIE_SECRET_LATENCY, COOKIE_SECRET_MAX_AGE, CookieReply, LABEL_COOKIE, LABEL_MAC1, MAC_LEN,
    TAG_LEN,
};

type Mac = [u8; MAC_LEN];

/// Cuts an initiation or a response into what mac1 covers and the two MACs.
fn split(message: &[u8]) -> Option<(&[u8], &Mac, &Mac)> {
    let (rest, mac2) = message.split_last_chunk()?;
    let (covered, mac1) = rest.split_last_chunk()?;
    Some((covered, mac1, mac2))
}

/// The mac1 key and the cookie key of the peer with this public key.
#[derive(Clone, Debug)]
struct LabelKeys {
    mac1: Key,
    cookie: Key,
}

impl LabelKeys {
    fn new(public: &PublicKey) -> Self {
        let labelled = |label: &[u8]| Key::from(blake2s::hash(&[label, public.as_bytes()]));
        Self {
            mac1: labelled(LABEL_MAC1),
            cookie: labelled(LABEL_COOKIE),
        }
    }
}

/// Checks what arrives: the responder's side.
#[derive(Debug)]
pub(crate) struct Checker {
    keys: LabelKeys,
    secret: Key,
    /// When the secret was drawn; `None` until the first load.
    drawn: Option<Instant>,
}

impl Checker {
    pub(crate) fn new(own: &PublicKey) -> Self {
        Self {
            keys: LabelKeys::new(own),
            secret: Key::ZERO,
            drawn: None,
        }
    }

    pub(crate) fn mac1_valid(&self, message: &[u8]) -> bool {
        split(message).is_some_and(|(covered, mac1, _)| {
            equal(&blake2s::mac(self.keys.mac1.as_bytes(), &[covered]), mac1)
        })
    }

    /// Whether `message` carries a MAC under the cookie that its source was given.
    pub(crate) fn mac2_valid(&mut self, message: &[u8], from: SocketAddr, now: Instant) -> bool {
        let cookie = self.cookie(from, now);
        split(message).is_some_and(|(covered, mac1, mac2)| {
            equal(&blake2s::mac(&cookie, &[covered, mac1]), mac2)
        })
    }

    /// The answer that gives the source of `message` its cookie; `sender` is the index in that message.
    pub(crate) fn reply(
        &mut self,
        message: &[u8],
        sender: u32,
        from: SocketAddr,
        now: Instant,
    ) -> Option<CookieReply> {
        let (_, mac1, _) = split(message)?;
        let mut reply = CookieReply {
            receiver: sender,
            nonce: [0; 24],
            sealed_cookie: [0; MAC_LEN + TAG_LEN],
        };
        random(&mut reply.nonce);
        reply.sealed_cookie[..MAC_LEN].copy_from_slice(&self.cookie(from, now));
        aead::xseal(
            &self.keys.cookie,
            &reply.nonce,
            mac1,
            &mut reply.sealed_cookie,
        );
        Some(reply)
    }

    /// The cookie of an address *and port*: behind a NAT many hosts share one address.
    fn cookie(&mut self, from: SocketAddr, now: Instant) -> Mac {
        if self
            .drawn
            .is_none_or(|drawn| now.saturating_duration_since(drawn) >= COOKIE_SECRET_MAX_AGE)
        {
            let mut secret = [0; 32];
            random(&mut secret);
            self.secret = Key::from(secret);
            self.drawn = Some(now);
        }
        let port = from.port().to_be_bytes();
        match from.ip().to_canonical() {
            IpAddr::V4(ip) => blake2s::mac(self.secret.as_bytes(), &[&ip.octets(), &port]),
            IpAddr::V6(ip) => blake2s::mac(self.secret.as_bytes(), &[&ip.octets(), &port]),
        }
    }
}

/// Puts MACs onto what is sent to one peer, and keeps the cookie that it gave us: the initiator's side.
#[derive(Debug)]
pub(crate) struct Jar {
    keys: LabelKeys,
    cookie: Option<(Mac, Instant)>,
    /// The mac1 that was sent last. A cookie reply proves by it that it answers that message, once.
    awaited: Option<Mac>,
}

impl Jar {
    pub(crate) fn new(peer: &PublicKey) -> Self {
        Self {
            keys: LabelKeys::new(peer),
            cookie: None,
            awaited: None,
        }
    }

    /// Fills in both MACs of an initiation or a response, which ends with room for them.
    pub(crate) fn sign(&mut self, message: &mut [u8], now: Instant) {
        let Some((rest, mac2)) = message.split_last_chunk_mut::<MAC_LEN>() else {
            return;
        };
        let Some((covered, mac1)) = rest.split_last_chunk_mut::<MAC_LEN>() else {
            return;
        };
        *mac1 = blake2s::mac(self.keys.mac1.as_bytes(), &[covered]);
        self.awaited = Some(*mac1);
        let lifetime = COOKIE_SECRET_MAX_AGE - COOKIE_SECRET_LATENCY;
        self.cookie = self
            .cookie
            .take()
            .filter(|(_, since)| now.saturating_duration_since(*since) < lifetime);
        if let Some((cookie, _)) = &self.cookie {
            *mac2 = blake2s::mac(cookie, &[rest]);
        }
    }

    /// The cookie in a reply, if the reply answers the last message.
    pub(crate) fn cookie_in(&self, reply: &CookieReply) -> Option<Mac> {
        let mut cookie = reply.sealed_cookie;
        let mac1 = self.awaited.as_ref()?;
        let cookie = aead::xopen(&self.keys.cookie, &reply.nonce, mac1, &mut cookie).ok()?;
        Mac::try_from(&*cookie).ok()
    }

    /// Takes the cookie out of a reply, if the reply answers the last message.
    pub(crate) fn consume(&mut self, reply: &CookieReply, now: Instant) -> bool {
        let Some(cookie) = self.cookie_in(reply) else {
            return false;
        };
        self.cookie = Some((cookie, now));
        self.awaited = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crypto::x25519::PrivateKey;

    use super::*;

    const FROM: &str = "192.168.13.37:2570";

    fn pair() -> (Jar, Checker) {
        let public = PrivateKey::generate().public();
        (Jar::new(&public), Checker::new(&public))
    }

    fn message(len: usize) -> Vec<u8> {
        (0..len)
            .map(|at| at as u8)
            .chain([0; 2 * MAC_LEN])
            .collect()
    }

    #[test]
    fn mac2_follows_the_cookie() {
        let now = Instant::now();
        let from = FROM.parse().unwrap();
        let (mut jar, mut checker) = pair();
        let mut first = message(60);
        jar.sign(&mut first, now);
        assert!(checker.mac1_valid(&first));
        assert!(!checker.mac2_valid(&first, from, now));

        let reply = checker.reply(&first, 1377, from, now).unwrap();
        let mut forged = reply;
        forged.sealed_cookie[3] ^= 1;
        assert!(!jar.consume(&forged, now));
        assert!(jar.consume(&reply, now));
        assert!(!jar.consume(&reply, now), "one reply answers one message");

        for len in [60, 116, 7] {
            let mut next = message(len);
            jar.sign(&mut next, now);
            assert!(checker.mac1_valid(&next) && checker.mac2_valid(&next, from, now));
            for other in [
                "192.168.13.37:2571",
                "192.168.13.38:2570",
                "[2001:db8::1]:2570",
            ] {
                assert!(
                    !checker.mac2_valid(&next, other.parse().unwrap(), now),
                    "{other}"
                );
            }
            assert!(checker.mac2_valid(&next, "[::ffff:192.168.13.37]:2570".parse().unwrap(), now));
            next[5] ^= 0x20;
            assert!(!checker.mac1_valid(&next) && !checker.mac2_valid(&next, from, now));
        }
    }

    #[test]
    fn a_cookie_is_used_for_115_seconds_and_its_secret_for_120() {
        let now = Instant::now();
        let from = FROM.parse().unwrap();
        let (mut jar, mut checker) = pair();
        let mut first = message(60);
        jar.sign(&mut first, now);
        let reply = checker.reply(&first, 1, from, now).unwrap();
        assert!(jar.consume(&reply, now));

        let at = |secs| now + Duration::from_secs(secs);
        let mut next = message(60);
        jar.sign(&mut next, at(114));
        assert!(checker.mac2_valid(&next, from, at(119)));
        assert!(!checker.mac2_valid(&next, from, at(120)));
        let mut next = message(60);
        jar.sign(&mut next, at(115));
        assert!(next.ends_with(&[0; MAC_LEN]));
    }
}
