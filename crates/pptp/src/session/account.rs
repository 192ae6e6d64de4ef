//! The accounts of a server, and the source of random numbers.

use core::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use plane::Guesses;

use crate::mschap::Password;

/// The users of a server.
pub trait Accounts: Send {
    /// The password of a user, by the name that the client sent; `None` for an unknown user. A name may have a domain
    /// before it (`DOMAIN\user`).
    fn password(&self, user: &str) -> Option<Password>;
}

/// A list of users for small servers and for tests.
impl Accounts for Vec<(String, Password)> {
    fn password(&self, user: &str) -> Option<Password> {
        let found = self.iter().find(|(name, _)| name == user);
        found.map(|(_, password)| password.clone())
    }
}

/// A client's accounts: none.
impl Accounts for () {
    fn password(&self, _user: &str) -> Option<Password> {
        None
    }
}

/// Everything a server needs to judge one client's login.
pub(super) struct Door<'a> {
    pub(super) accounts: &'a dyn Accounts,
    pub(super) guesses: &'a mut Guesses<Ipv4Addr>,
    /// The client's address.
    pub(super) source: Ipv4Addr,
}

impl Door<'_> {
    /// The time until which logins as this user must wait, because of wrong passwords.
    pub(super) fn shut_until(&self, user: &[u8], now: Instant) -> Option<Instant> {
        self.guesses.shut_until(self.source, user, now)
    }

    /// Notes the result of a login.
    pub(super) fn judged(&mut self, user: &[u8], good: bool, now: Instant) {
        if good {
            self.guesses.right(self.source, user);
        } else {
            self.guesses.wrong(self.source, user, now);
        }
    }
}

/// Source of unguessable random bytes, for example for challenges. A program passes the kernel's.
#[derive(Clone)]
pub struct Entropy(Arc<Fill>);

/// Type of the function that fills a slice.
type Fill = dyn Fn(&mut [u8]) + Send + Sync;

impl Entropy {
    /// Creates a source from `fill`, which fills a slice with random bytes.
    #[must_use]
    pub fn new(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    pub(super) fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.0)(&mut bytes);
        bytes
    }

    pub(super) fn number(&self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}
