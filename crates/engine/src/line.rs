//! The local ends of a tunnel's lines: their sockets, and the tokens by which workers wait for the sockets;
//! and the rates of lines for which packets must wait: set by control, followed by the worker that reads the TUN.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use netio::poll::Poller;
use netio::udp::{Family, UdpSocket};
use plane::{AtomicU64, LINES_MAX, LineId};

/// The sockets of one line.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Socket for IPv4 endpoints.
    pub v4: Option<UdpSocket>,
    /// Socket for IPv6 endpoints.
    pub v6: Option<UdpSocket>,
}

impl Sockets {
    /// The socket for an address family.
    #[must_use]
    pub fn of(&self, family: Family) -> Option<&UdpSocket> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }

    /// Both sockets, as far as they exist.
    pub fn iter(&self) -> impl Iterator<Item = &UdpSocket> {
        self.v4.iter().chain(self.v6.iter())
    }
}

/// The first token of a socket; lower tokens have other uses.
const FIRST_TOKEN: u64 = 2;

/// The first token after the sockets': each line has two.
pub(crate) const TOKENS_END: u64 = FIRST_TOKEN + 2 * LINES_MAX as u64;

fn token(line: LineId, family: Family) -> u64 {
    FIRST_TOKEN + 2 * u64::from(line.0) + u64::from(family == Family::V6)
}

/// The sockets of all lines, by number. An immutable snapshot: each change makes a new one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    sockets: Vec<Arc<Sockets>>,
}

impl Lines {
    /// A copy with other sockets for one line.
    pub(crate) fn with(&self, line: LineId, sockets: Sockets) -> Self {
        let mut all = self.clone();
        let len = all.sockets.len().max(line.index() + 1);
        all.sockets.resize_with(len, Arc::default);
        all.sockets[line.index()] = Arc::new(sockets);
        all
    }

    /// The sockets of a line.
    pub(crate) fn of(&self, line: LineId) -> Option<&Arc<Sockets>> {
        self.sockets.get(line.index())
    }

    /// The socket of a line for an address family.
    pub(crate) fn socket(&self, line: LineId, family: Family) -> Option<&UdpSocket> {
        self.of(line)?.of(family)
    }

    /// The line and socket with this token.
    pub(crate) fn by_token(&self, token: u64) -> Option<(LineId, &UdpSocket)> {
        let number = token.checked_sub(FIRST_TOKEN)?;
        let family = if number % 2 == 0 {
            Family::V4
        } else {
            Family::V6
        };
        let line = LineId(u8::try_from(number / 2).ok()?);
        Some((line, self.socket(line, family)?))
    }

    /// Sockets of every line.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &UdpSocket> {
        self.sockets.iter().flat_map(|sockets| sockets.iter())
    }

    /// Waits for these sockets instead of those of `before`. Sockets in both stay registered.
    ///
    /// # Errors
    /// Descriptor limits.
    pub(crate) fn watch(&self, poller: &Poller, before: &Self) -> io::Result<()> {
        let most = self.sockets.len().max(before.sockets.len());
        for line in (0..most as u8).map(LineId) {
            let (old, new) = (before.of(line), self.of(line));
            if let (Some(old), Some(new)) = (old, new)
                && Arc::ptr_eq(old, new)
            {
                continue;
            }
            for socket in old.iter().flat_map(|sockets| sockets.iter()) {
                // A closed socket has left the poller by itself.
                let _ = poller.remove(socket);
            }
            for socket in new.iter().flat_map(|sockets| sockets.iter()) {
                poller.add(socket, token(line, socket.family()))?;
            }
        }
        Ok(())
    }
}

/// Rates at which packets may leave, in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rates {
    /// Packets do not wait.
    #[default]
    None,
    /// One rate for all lines together.
    Together(u64),
    /// One rate for each line, by number; 0 for a line that must not be used.
    Each([u64; LINES_MAX]),
}

/// The rates that control set last. Finding that nothing has changed costs one relaxed load.
#[derive(Debug, Default)]
pub(crate) struct ToldRates {
    /// 0 if there are no rates; otherwise a count of changes.
    word: AtomicU64,
    rates: Mutex<Rates>,
    told: AtomicU64,
}

impl ToldRates {
    /// A number that changes with the rates; 0 if there are none.
    pub(crate) fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// The rates and their number.
    pub(crate) fn get(&self) -> (Rates, u64) {
        let rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        (*rates, self.word())
    }

    /// Sets the rates. Returns whether they changed.
    pub(crate) fn set(&self, wanted: Rates) -> bool {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = std::mem::replace(&mut *rates, wanted) != wanted;
        if changed {
            let told = self.told.fetch_add(1, Ordering::Relaxed) + 1;
            let word = if wanted == Rates::None { 0 } else { told };
            self.word.store(word, Ordering::Relaxed);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use netio::udp::SocketOptions;

    use super::*;

    fn sockets() -> Sockets {
        let options = SocketOptions {
            address: Some(std::net::Ipv4Addr::LOCALHOST.into()),
            ..SocketOptions::default()
        };
        Sockets {
            v4: Some(UdpSocket::bind(Family::V4, &options).unwrap()),
            v6: None,
        }
    }

    fn readable(poller: &Poller) -> Vec<u64> {
        let ready = poller.wait(Some(Duration::from_secs(40))).unwrap();
        ready.iter().collect()
    }

    #[test]
    fn each_line_has_its_own_tokens_and_keeps_its_sockets_when_another_changes() {
        let poller = Poller::new().unwrap();
        let none = Lines::default();
        let one = none.with(LineId(0), sockets());
        one.watch(&poller, &none).unwrap();
        let two = one.with(LineId(3), sockets());
        two.watch(&poller, &one).unwrap();
        assert!(Arc::ptr_eq(
            one.of(LineId(0)).unwrap(),
            two.of(LineId(0)).unwrap()
        ));
        assert!(two.of(LineId(1)).unwrap().iter().next().is_none());

        let caller = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = |line| two.socket(line, Family::V4).unwrap().port();
        caller
            .send_to(b"x", ("127.0.0.1", port(LineId(3))))
            .unwrap();
        let tokens = readable(&poller);
        let (line, socket) = two.by_token(tokens[0]).unwrap();
        assert_eq!((tokens.len(), line), (1, LineId(3)));
        assert_eq!(socket.port(), port(LineId(3)));
        assert!(tokens[0] < TOKENS_END);

        let closed = two.with(LineId(3), Sockets::default());
        closed.watch(&poller, &two).unwrap();
        caller
            .send_to(b"x", ("127.0.0.1", port(LineId(0))))
            .unwrap();
        let lines: Vec<_> = readable(&poller)
            .into_iter()
            .map(|token| closed.by_token(token).unwrap().0)
            .collect();
        assert_eq!(lines, [LineId(0)], "the socket that was closed is silent");
    }

    #[test]
    fn a_token_without_a_socket_leads_nowhere() {
        let lines = Lines::default().with(LineId(1), Sockets::default());
        assert!((0..=TOKENS_END).all(|token| lines.by_token(token).is_none()));
    }
}
