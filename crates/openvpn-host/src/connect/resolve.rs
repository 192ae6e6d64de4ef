//! Resolves names on a separate thread.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use config::lines::Lines;
use config::openvpn::Family;
use netio::poll::Waker;
use thiserror::Error;

use super::stop::{Stop, Woken};
use lines::names::Background;

/// Time limit for a look-up. The resolver's own is usually shorter, and ends an abandoned thread.
const PATIENCE: Duration = Duration::from_secs(40);

/// Error while resolving a name.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The resolver returned an error.
    #[error("RESOLVE: Cannot resolve host address: {host}: {error}")]
    Failed {
        /// The name.
        host: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// The name has addresses only of the other family.
    #[error("RESOLVE: {host} has no {family} address; use proto udp or tcp without 4 or 6")]
    Family {
        /// The name.
        host: String,
        /// The requested address family.
        family: &'static str,
    },
    /// The resolver did not answer in time.
    #[error("RESOLVE: Cannot resolve host address: {host}: no answer in 40 seconds")]
    Late {
        /// The name.
        host: String,
    },
    /// Threads or descriptors ran out.
    #[error("looking up {host}: {error}")]
    Resources {
        /// The name.
        host: String,
        /// The kernel's error.
        error: io::Error,
    },
}

/// A name to resolve, with port and family.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Name {
    /// A host name or a literal address.
    pub host: String,
    /// Port to connect to.
    pub port: u16,
    /// Permitted address family.
    pub family: Family,
}

impl Name {
    /// Parses a literal address, which needs no look-up; `None` for a host name.
    pub(crate) fn address(&self) -> Option<Result<Vec<SocketAddr>, ResolveError>> {
        let ip = literal(&self.host)?;
        Some(self.choose(vec![SocketAddr::new(ip, self.port)]))
    }

    /// Picks the addresses of the allowed family.
    fn choose(&self, mut found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, ResolveError> {
        let (fits, family): (fn(&SocketAddr) -> bool, _) = match self.family {
            Family::Any => (|_| true, "IP"),
            Family::V4 => (SocketAddr::is_ipv4, "IPv4"),
            Family::V6 => (SocketAddr::is_ipv6, "IPv6"),
        };
        found.retain(fits);
        if found.is_empty() {
            let host = self.host.clone();
            return Err(ResolveError::Family { host, family });
        }
        Ok(found)
    }
}

/// Parses a literal address, with or without brackets.
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    plain.parse().ok()
}

/// Returns a name's addresses in the resolver's order, or a literal address itself. `None` if `stop` came first.
///
/// # Errors
/// See [`ResolveError`].
pub fn resolve(
    host: &str,
    port: u16,
    family: Family,
    stop: &Stop<'_>,
) -> Result<Option<Vec<SocketAddr>>, ResolveError> {
    let name = Name {
        host: host.to_owned(),
        port,
        family,
    };
    if let Some(address) = name.address() {
        return address.map(Some);
    }
    let resources = |error| ResolveError::Resources {
        host: host.to_owned(),
        error,
    };
    let answer = Arc::new((Mutex::default(), Waker::new().map_err(resources)?));
    let told = Arc::clone(&answer);
    let done = move |found| {
        *told.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        told.1.wake();
    };
    // Asks the host's resolver over no particular line.
    let mut names = Background::new(&Lines::default(), None);
    look_up(name, &mut names, (0, false), done).map_err(resources)?;
    let until = Instant::now() + PATIENCE;
    match stop.readable(&answer.1, until).map_err(resources)? {
        Woken::Stop => Ok(None),
        Woken::Late => Err(ResolveError::Late {
            host: host.to_owned(),
        }),
        // The thread stores its result before it wakes the caller.
        Woken::Ready => {
            let mut found = answer.0.lock().unwrap_or_else(PoisonError::into_inner);
            found.take().transpose()
        }
    }
}

/// Looks up a name on a separate thread, which calls `done` with all permitted addresses in the resolver's order.
/// [`Background::begin`] explains the mark and the flag for name servers inside the tunnel.
///
/// # Errors
/// No thread can be started.
pub fn look_up(
    name: Name,
    names: &mut Background,
    (mark, inside): (u32, bool),
    done: impl FnOnce(Result<Vec<SocketAddr>, ResolveError>) + Send + 'static,
) -> io::Result<()> {
    if let Some(address) = name.address() {
        done(address);
        return Ok(());
    }
    let asked = (name.host.clone(), name.port);
    names.begin(asked, mark, inside, move |found| {
        let found = found.map_err(|error| ResolveError::Failed {
            host: name.host.clone(),
            error,
        });
        done(found.and_then(|found| name.choose(found)));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_need_no_resolver() {
        let never = Waker::new().unwrap();
        let stop = Stop::new(&never);
        let resolve = |host: &str, family| resolve(host, 1194, family, &stop);
        let found = resolve("192.0.2.1", Family::Any).unwrap().unwrap();
        assert_eq!(found, [addr("192.0.2.1:1194")]);
        let found = resolve("[2001:db8::1]", Family::V6).unwrap().unwrap();
        assert_eq!(found, [addr("[2001:db8::1]:1194")]);
        let error = resolve("192.0.2.1", Family::V6).unwrap_err();
        assert!(error.to_string().contains("no IPv6 address"), "{error}");
    }

    #[test]
    fn names_are_looked_up_elsewhere() {
        let never = Waker::new().unwrap();
        let found = resolve("localhost", 7, Family::V4, &Stop::new(&never)).unwrap();
        assert_eq!(found.unwrap(), [addr("127.0.0.1:7")]);
    }

    #[test]
    fn a_stop_is_not_kept_waiting_by_a_resolver() {
        let now = Waker::new().unwrap();
        now.wake();
        let found = resolve("name.invalid", 7, Family::Any, &Stop::new(&now)).unwrap();
        assert!(found.is_none());
    }

    #[test]
    fn addresses_of_the_wanted_family_keep_their_order() {
        let (four, six) = (addr("192.0.2.1:1"), addr("[2001:db8::1]:1"));
        let choose = |found: &[SocketAddr], family| {
            let (host, port) = ("a.example".to_owned(), 1);
            let name = Name { host, port, family };
            name.choose(found.to_vec())
        };
        assert_eq!(choose(&[six, four], Family::Any).unwrap(), [six, four]);
        assert_eq!(choose(&[six, four], Family::V4).unwrap(), [four]);
        assert!(choose(&[six], Family::V4).is_err());
    }
}
