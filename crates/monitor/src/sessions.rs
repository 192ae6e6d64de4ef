//! Sessions of those who have logged in.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crypto::blake2s;

/// Maximum number of sessions; a new one replaces the oldest.
const MOST: usize = 32;

/// A session without a request ends after this time.
const IDLE: Duration = Duration::from_secs(12 * 3600);

/// A session ends after this time in any case.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// The digest of a token, which is stored and looked up in its place: the time of a comparison then reveals nothing.
type Digest = [u8; 32];

#[derive(Debug)]
struct Session {
    digest: Digest,
    begin: Instant,
    last: Instant,
}

/// All sessions; a restart ends them.
#[derive(Debug, Default)]
pub struct Sessions(VecDeque<Session>);

impl Sessions {
    /// Starts a session and returns its token.
    pub fn begin(&mut self, now: Instant) -> String {
        let mut token = [0; 32];
        crypto::random(&mut token);
        let token = URL_SAFE_NO_PAD.encode(token);
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(Session {
            digest: digest(&token),
            begin: now,
            last: now,
        });
        token
    }

    /// Whether a token has a session; if so, prolongs it.
    pub fn has(&mut self, token: &str, now: Instant) -> bool {
        let ago = |then| now.saturating_duration_since(then);
        self.0
            .retain(|it| ago(it.last) < IDLE && ago(it.begin) < LONGEST);
        let digest = digest(token);
        let found = self.0.iter_mut().find(|it| it.digest == digest);
        found.map(|it| it.last = now).is_some()
    }

    /// Ends a session.
    pub fn end(&mut self, token: &str) {
        let digest = digest(token);
        self.0.retain(|it| it.digest != digest);
    }
}

fn digest(token: &str) -> Digest {
    blake2s::hash(&[token.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_until_it_ends() {
        let begin = Instant::now();
        let mut sessions = Sessions::default();
        let token = sessions.begin(begin);
        assert!(token.len() >= 43 && sessions.has(&token, begin));
        assert!(!sessions.has("", begin) && !sessions.has(&token[1..], begin));
        let other = sessions.begin(begin);
        sessions.end(&other);
        assert!(!sessions.has(&other, begin) && sessions.has(&token, begin));
        let mut now = begin;
        while now < begin + LONGEST - IDLE {
            now += IDLE / 2;
            assert!(sessions.has(&token, now));
        }
        assert!(!sessions.has(&token, begin + LONGEST));
        let idle = sessions.begin(begin);
        assert!(!sessions.has(&idle, begin + IDLE));
    }

    #[test]
    fn sessions_are_few() {
        let now = Instant::now();
        let mut sessions = Sessions::default();
        let first = sessions.begin(now);
        for _ in 0..MOST {
            sessions.begin(now);
        }
        assert_eq!(sessions.0.len(), MOST);
        assert!(!sessions.has(&first, now));
    }
}
