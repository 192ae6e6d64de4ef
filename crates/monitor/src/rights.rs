//! Decides who may change something: knows the password, the sessions, and the browsers in which somebody has logged in
//! before. The process with privileges keeps them, so the front cannot grant itself anything.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crypto::blake2s;
use zeroize::Zeroizing;

use crate::password::Password;
use crate::question::{Login, Refused};
use crate::sessions::Sessions;
use config::types::Secret;

/// Bytes of the random part of a browser's token.
const ID_LEN: usize = 16;

/// Bytes of the MAC, which proves that this program made the token.
const MAC_LEN: usize = 16;

/// Longest browser token, in characters.
const MOST: usize = 64;

/// The context string for deriving the key of browser tokens.
const KNOWN: &[u8] = b"millrace monitor known browser";

/// The password, the sessions and the key of browser tokens.
pub struct Rights {
    password: Option<Password>,
    sessions: Mutex<Sessions>,
    /// The key of browser tokens. It is derived from the stretched password, so that it survives a restart but not a
    /// new password.
    key: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").finish_non_exhaustive()
    }
}

impl Rights {
    /// Takes the password; without one, everything may be seen and nothing changed.
    #[must_use]
    pub fn new(password: Option<Password>) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        match &password {
            Some(password) => *key = password.key(KNOWN),
            None => crypto::random(&mut *key),
        }
        Self {
            password,
            sessions: Mutex::default(),
            key,
        }
    }

    /// Whether there is a password.
    #[must_use]
    pub const fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Checks a password, which takes about a quarter of a second, and starts a session if it is correct.
    pub fn login(&self, text: &str, now: Instant) -> Option<Login> {
        let password = self.password.as_ref()?;
        password.is(text).then(|| Login {
            session: Secret::new(self.sessions().begin(now)),
            known: self.known(),
        })
    }

    /// Whether `session` is the token of an open session; if so, prolongs the session.
    pub fn has(&self, session: &str, now: Instant) -> bool {
        self.sessions().has(session, now)
    }

    /// Ends a session.
    pub fn end(&self, session: &str) {
        self.sessions().end(session);
    }

    /// Whether this session may see clients.
    ///
    /// # Errors
    /// The session may not, for this reason.
    pub fn may_see(&self, session: Option<&Secret>, now: Instant) -> Result<(), Refused> {
        match session {
            _ if !self.has_password() => Ok(()),
            Some(it) if self.has(it.expose(), now) => Ok(()),
            _ => Err(Refused::Session),
        }
    }

    /// Whether this session may make changes.
    ///
    /// # Errors
    /// The session may not, for this reason.
    pub fn may_change(&self, session: Option<&Secret>, now: Instant) -> Result<(), Refused> {
        match self.has_password() {
            true => self.may_see(session, now),
            false => Err(Refused::Open),
        }
    }

    /// A new token by which to recognise the browser.
    fn known(&self) -> Secret {
        let mut token = [0; ID_LEN + MAC_LEN];
        let (id, mac) = token.split_at_mut(ID_LEN);
        crypto::random(id);
        mac.copy_from_slice(&blake2s::mac(&self.key, &[id]));
        Secret::new(URL_SAFE_NO_PAD.encode(token))
    }

    /// Whether [`Rights::login`] made this token, in this run of the program or an earlier one.
    #[must_use]
    pub fn is_known(&self, token: &str) -> bool {
        // Longer tokens are not decoded.
        if token.len() > MOST {
            return false;
        }
        let Ok(token) = URL_SAFE_NO_PAD.decode(token) else {
            return false;
        };
        let Some((id, mac)) = token.split_first_chunk::<ID_LEN>() else {
            return false;
        };
        let Ok(mac) = <&[u8; MAC_LEN]>::try_from(mac) else {
            return false;
        };
        crypto::equal(&blake2s::mac(&self.key, &[id]), mac)
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(password: &str) -> Rights {
        Rights::new(Some(Password::quick(password)))
    }

    #[test]
    fn only_the_password_gives_rights_and_only_while_the_session_lasts() {
        let now = Instant::now();
        let rights = rights("a long secret");
        assert!(rights.login("another secret", now).is_none());
        let login = rights.login("a long secret", now).unwrap();
        assert_eq!(rights.may_change(Some(&login.session), now), Ok(()));
        assert_eq!(rights.may_see(Some(&login.session), now), Ok(()));
        for other in ["", "guess", login.known.expose()] {
            let refused = Err(Refused::Session);
            assert_eq!(rights.may_change(Some(&other.into()), now), refused);
            assert_eq!(rights.may_see(Some(&other.into()), now), refused);
        }
        assert_eq!(rights.may_see(None, now), Err(Refused::Session));
        rights.end(login.session.expose());
        assert_eq!(
            rights.may_change(Some(&login.session), now),
            Err(Refused::Session)
        );
    }

    #[test]
    fn without_a_password_everything_is_seen_and_nothing_changed() {
        let now = Instant::now();
        let rights = Rights::new(None);
        assert!(rights.login("", now).is_none());
        assert_eq!(rights.may_see(None, now), Ok(()));
        assert_eq!(rights.may_change(None, now), Err(Refused::Open));
    }

    #[test]
    fn a_browser_is_known_after_a_restart_and_until_the_password_changes() {
        let password = Password::quick("a long secret");
        let now = Instant::now();
        let first = Rights::new(Some(password.clone()));
        let known = first.login("a long secret", now).unwrap().known;
        let again = Rights::new(Some(password));
        assert!(first.is_known(known.expose()) && again.is_known(known.expose()));
        assert!(!rights("a long secret").is_known(known.expose()));
        assert!(!Rights::new(None).is_known(known.expose()));
        let mut other = known.expose().to_owned();
        let first_letter = if other.starts_with('A') { "B" } else { "A" };
        other.replace_range(..1, first_letter);
        for forged in [&other, "", &other[1..], &"A".repeat(43), &"=".repeat(43)] {
            assert!(!first.is_known(forged), "{forged}");
        }
    }
}
