//! Tokens that a server gives out so that a client need not keep the password (`auth-gen-token`).
//!
//! ```text
//! "SESS_ID_AT_" | base64( session id[12] | issued first: u64 | issued now: u64 | HMAC-SHA256[32] )
//! ```
//! Times are seconds since 1970. The HMAC is over the user name and all bytes before the HMAC. So the server keeps no
//! state, and servers with the same key accept each other's tokens.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::output::TokenState;
use crypto::hmac::Hmac;

const PREFIX: &str = "SESS_ID_AT_";
const ID_LEN: usize = 12;
const TAG_LEN: usize = 32;
const TOKEN_LEN: usize = ID_LEN + 8 + 8 + TAG_LEN;
/// Bytes of the base64 of the session id: what two tokens of one session have in common.
const ID_TEXT_LEN: usize = ID_LEN / 3 * 4;

/// Makes and checks tokens.
#[derive(Debug)]
pub struct TokenKeeper {
    key: Hmac,
    /// How long a session may be continued with tokens; `None` for ever.
    lifetime: Option<Duration>,
    /// How often clients renew their token. A token is valid for twice that.
    renewal: Duration,
}

/// The session that a token belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenSession {
    id: [u8; ID_LEN],
    /// When the session's first token was made, in seconds since 1970.
    began: u64,
}

/// The result of checking a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) state: TokenState,
    /// The token's session, if the token is good.
    pub(super) session: Option<TokenSession>,
}

impl TokenKeeper {
    /// A keeper. `secret` is random or from `auth-gen-token-secret`; of a file of 128 bytes, pass the first 32 bytes of
    /// the second half. `renewal` is `reneg-sec` by default.
    #[must_use]
    pub fn new(secret: &[u8; 32], lifetime: Option<Duration>, renewal: Duration) -> Self {
        Self {
            key: Hmac::sha256(secret),
            lifetime,
            renewal,
        }
    }

    /// Issues a token for a new session, or for one that continues.
    pub(super) fn issue(
        &self,
        username: &str,
        session: Option<TokenSession>,
        now: u64,
    ) -> (Zeroizing<String>, TokenSession) {
        let session = session.unwrap_or_else(|| {
            let mut id = [0; ID_LEN];
            crypto::random(&mut id);
            TokenSession { id, began: now }
        });
        let mut token = Zeroizing::new([0; TOKEN_LEN]);
        token[..ID_LEN].copy_from_slice(&session.id);
        token[ID_LEN..ID_LEN + 8].copy_from_slice(&session.began.to_be_bytes());
        token[ID_LEN + 8..ID_LEN + 16].copy_from_slice(&now.to_be_bytes());
        let tag = self
            .key
            .sign(&[username.as_bytes(), &token[..TOKEN_LEN - TAG_LEN]]);
        token[TOKEN_LEN - TAG_LEN..].copy_from_slice(tag.as_ref());
        let mut text = Zeroizing::new(PREFIX.to_owned());
        STANDARD.encode_string(&token[..], &mut text);
        (text, session)
    }

    /// Checks a password. A malformed token counts as a wrong password.
    pub(super) fn check(&self, username: &str, password: &str, now: u64) -> Checked {
        let none = Checked {
            state: TokenState::Initial,
            session: None,
        };
        let Some(text) = password.strip_prefix(PREFIX) else {
            return none;
        };
        let Ok(token) = STANDARD.decode(text).map(Zeroizing::new) else {
            return none;
        };
        let Ok(token) = <&[u8; TOKEN_LEN]>::try_from(&token[..]) else {
            return none;
        };
        let (body, tag) = token.split_at(TOKEN_LEN - TAG_LEN);
        if !self.key.verify(&[username.as_bytes(), body], tag) {
            return none;
        }
        let mut id = [0; ID_LEN];
        id.copy_from_slice(&body[..ID_LEN]);
        let time = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&body[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let (began, issued) = (time(ID_LEN), time(ID_LEN + 8));
        let renewal = self.renewal.as_secs().saturating_mul(2);
        // A time in the future means that our clock was set back; the user can log in again.
        let fresh = began <= issued && issued <= now && now - issued < renewal;
        let alive = self
            .lifetime
            .is_none_or(|it| now.saturating_sub(began) <= it.as_secs());
        Checked {
            state: if fresh && alive {
                TokenState::Authenticated
            } else {
                TokenState::Expired
            },
            session: Some(TokenSession { id, began }),
        }
    }

    /// Whether a password has the shape of a token, good or not.
    pub(super) fn is_token(password: &str) -> bool {
        password.starts_with(PREFIX)
            && password.len() == PREFIX.len() + TOKEN_LEN / 3 * 4
            && password.len() > PREFIX.len() + ID_TEXT_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn keeper(lifetime: Option<Duration>) -> TokenKeeper {
        TokenKeeper::new(&[7; 32], lifetime, HOUR)
    }

    #[test]
    fn a_token_is_good_for_its_user_and_time() {
        let keeper = keeper(Some(10 * HOUR));
        let (token, session) = keeper.issue("ann", None, 1_000_000);
        assert!(TokenKeeper::is_token(&token));
        let check = |user: &str, now| keeper.check(user, &token, now).state;
        assert_eq!(check("ann", 1_000_000), TokenState::Authenticated);
        assert_eq!(check("ann", 1_007_199), TokenState::Authenticated);
        assert_eq!(check("ann", 1_007_200), TokenState::Expired);
        assert_eq!(check("ann", 999_999), TokenState::Expired);
        assert_eq!(check("bob", 1_000_000), TokenState::Initial);

        // Renewed, the session stays the same and its lifetime continues.
        let (second, same) = keeper.issue("ann", Some(session), 1_030_000);
        assert_eq!(session, same);
        assert_ne!(*token, *second);
        let state = |now| keeper.check("ann", &second, now).state;
        assert_eq!(state(1_036_000), TokenState::Authenticated);
        assert_eq!(state(1_036_001), TokenState::Expired);
    }

    #[test]
    fn another_server_knows_it_only_with_the_same_key() {
        let (token, _) = keeper(None).issue("ann", None, 5);
        let stranger = TokenKeeper::new(&[8; 32], None, HOUR);
        assert_eq!(stranger.check("ann", &token, 5).state, TokenState::Initial);
        let twin = keeper(None);
        assert_eq!(
            twin.check("ann", &token, 5).state,
            TokenState::Authenticated
        );
    }

    /// CVE-2026-13122 of OpenVPN was a crash on tokens of the wrong shape.
    #[test]
    fn tokens_of_any_length_are_only_wrong() {
        let keeper = keeper(None);
        let (token, _) = keeper.issue("ann", None, 5);
        for len in 0..token.len() {
            let checked = keeper.check("ann", &token[..len], 5);
            assert_eq!(checked.state, TokenState::Initial, "{len}");
        }
        for text in [
            "SESS_ID_AT_",
            "SESS_ID_AT_=",
            "SESS_ID_AT_AAAA",
            "SESS_ID_AT_!!!!",
        ] {
            assert_eq!(keeper.check("ann", text, 5).session, None);
        }
        let long = format!("{PREFIX}{}", "A".repeat(4096));
        assert_eq!(keeper.check("ann", &long, 5).state, TokenState::Initial);
    }

    proptest! {
        #[test]
        fn nothing_forged_is_taken(at in 0usize..88, with in any::<char>()) {
            let keeper = keeper(None);
            let (token, _) = keeper.issue("ann", None, 5);
            let mut chars: Vec<char> = token.chars().collect();
            prop_assume!(chars.get(at).is_some_and(|it| *it != with));
            chars[at] = with;
            let forged: String = chars.into_iter().collect();
            prop_assert_eq!(keeper.check("ann", &forged, 5).state, TokenState::Initial);
        }
    }
}
