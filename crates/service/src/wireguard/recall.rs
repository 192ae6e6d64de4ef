//! The addresses of peers with a session, kept for the next start of the program.
//!
//! A peer that connects to this host notices only after 15 seconds of silence that its session is gone. A program that
//! restarts soon starts a handshake with each peer first: to the peer's last address, from the address that the peer
//! used here. The file is written while the program runs, so that the start after a crash does the same.

use super::machine::{Cx, Machine, Plane};
use config::types::Key32;
use crypto::x25519::PublicKey;
use plane::{Endpoint, Source};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Maximum number of peers with which a start begins handshakes: those heard last.
pub(super) const RECALLED_MAX: usize = 256;

/// Age of the file beyond which a start begins no handshakes, as peers have noticed the loss by themselves.
pub(super) const SOON: Duration = Duration::from_secs(180);

/// Longest file that is read, in bytes.
const SIZE_MAX: u64 = (RECALLED_MAX as u64) * 256;

/// Minimum time between two writes of the file, which lies in memory.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// A peer, the address where it was last heard, and our address that it sent to.
pub(super) type Recalled = (Key32, Endpoint);

/// When to write the file of peers next.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    last: Option<Instant>,
    pub(super) due: Option<Instant>,
}

impl Keeping {
    /// Plans a write, as a peer has a new session or has moved.
    fn changed(&mut self, now: Instant) {
        let next = self.last.map_or(now, |last| now.max(last + KEEP_EVERY));
        self.due.get_or_insert(next);
    }
}

impl Machine {
    /// Plans a write, as a peer has a new session or has moved.
    pub(super) fn peers_changed(&mut self, cx: &Cx<'_>) {
        self.keeping.changed(cx.now.monotonic);
    }

    /// Has the file of peers written, if that is due.
    pub(super) fn keep_peers(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        if self.keeping.due.take_if(|at| *at <= now).is_some() {
            self.keeping.last = Some(now);
            cx.host.keep_peers(&self.recalled(now, cx.plane));
        }
    }

    /// Addresses of the peers that have a session, the last heard first.
    pub(super) fn recalled(&self, now: Instant, plane: &Plane) -> Vec<Recalled> {
        let mut found: Vec<_> = (self.peers.iter())
            .filter_map(|(id, entry)| {
                let (_, renewed) = entry.last_handshake?;
                let state = plane.peer(*id)?;
                let lasts = now.saturating_duration_since(renewed) < SOON;
                let at = state.line.filter(|_| lasts)?.endpoint;
                Some((state.times.last_received, entry.public_key.clone(), at))
            })
            .collect();
        found.sort_by_key(|(heard, ..)| std::cmp::Reverse(*heard));
        found.truncate(RECALLED_MAX);
        found.into_iter().map(|(_, key, at)| (key, at)).collect()
    }

    /// Starts handshakes with peers that lost their sessions in our restart, at the configured address or where they
    /// were.
    pub(super) fn recall(&mut self, peers: Vec<Recalled>, cx: &mut Cx<'_>) {
        for (key, at) in peers {
            let public = PublicKey::from(*key.as_bytes());
            let Some(id) = self.device.peer_by_public_key(&public) else {
                continue;
            };
            let known = cx.endpoint(id).map(|known| known.addr);
            if !self.names.contains_key(&id) && known.is_none_or(|known| known == at.addr) {
                self.call_at(id, at, cx);
            }
            // A second initiation would make the answer to the first useless, and the peer refuses two at once.
            if self.device.is_initiating(id) {
                continue;
            }
            let mut out = Vec::new();
            self.device.probe(id, true, cx.now.monotonic, &mut out);
            self.translate(out, None, cx);
        }
    }

    /// Calls peers whose names have no address yet where they were.
    #[cfg(feature = "handover")]
    pub(super) fn recall_named(&mut self, peers: &[Recalled], cx: &mut Cx<'_>) {
        for (key, at) in peers {
            let public = PublicKey::from(*key.as_bytes());
            if let Some(id) = self.device.peer_by_public_key(&public)
                && self.names.contains_key(&id)
                && cx.endpoint(id).is_none()
            {
                self.call_at(id, *at, cx);
            }
        }
    }

    /// Starts handshakes with peers as if packets waited for them, until they answer.
    pub(super) fn call(&mut self, peers: Vec<Key32>, cx: &mut Cx<'_>) {
        for key in peers {
            let public = PublicKey::from(*key.as_bytes());
            if let Some(id) = self.device.peer_by_public_key(&public) {
                let mut out = Vec::new();
                self.device.need_session(id, cx.now.monotonic, &mut out);
                self.translate(out, None, cx);
            }
        }
    }
}

/// Path of an interface's file. The file holds no secrets, and is gone after a reboot.
pub(super) fn path(ifname: &str) -> PathBuf {
    Path::new("/run/millrace").join(format!("{ifname}.peers"))
}

/// Writes the peers' addresses to the file.
pub(super) fn keep(path: &Path, peers: &[Recalled]) {
    if let Err(error) = keep_at(path, peers) {
        log::debug!("{}: {error}", path.display());
    }
}

fn keep_at(path: &Path, peers: &[Recalled]) -> io::Result<()> {
    if peers.is_empty() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let lines = peers.iter().take(RECALLED_MAX);
    let lines = lines.map(|(key, at)| {
        let source = at.source.map(|source| format!(" {}", source.ip));
        let source = source.unwrap_or_default();
        format!("{} {}{source}\n", key.to_base64().as_str(), at.addr)
    });
    host::written_file::replace_for_now(path, lines.collect::<String>().as_bytes(), 0o600)
}

/// Reads the peers' addresses, if the interface ended a moment ago. The file stays until it is written again.
pub(super) fn read(path: &Path) -> Vec<Recalled> {
    read_at(path, SystemTime::now())
}

fn read_at(path: &Path, now: SystemTime) -> Vec<Recalled> {
    let read = || -> io::Result<String> {
        let file = fs::File::open(path)?;
        let written = file.metadata()?.modified()?;
        // If the clock was set back since, the file's age is unknown and the file is used.
        if now.duration_since(written).is_ok_and(|age| age > SOON) {
            return Ok(String::new());
        }
        let mut text = String::new();
        file.take(SIZE_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().unwrap_or_default();
    let peers = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let key = Key32::from_base64(words.next()?).ok()?;
        let addr = words.next()?.parse().ok()?;
        let source = |ip| Source { ip, ifindex: 0 };
        let source = words.next().and_then(|ip| ip.parse().ok()).map(source);
        Some((key, Endpoint { addr, source }))
    });
    peers.take(RECALLED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u16) -> Recalled {
        let mut key = [0; 32];
        key[..2].copy_from_slice(&number.to_be_bytes());
        let addr = format!("[2001:db8::{number:x}]:{}", 1000 + number);
        let ip = format!("2001:db8:ffff::{number:x}").parse().unwrap();
        let at = Endpoint {
            addr: addr.parse().unwrap(),
            source: number
                .is_multiple_of(2)
                .then_some(Source { ip, ifindex: 0 }),
        };
        (Key32::new(key), at)
    }

    #[test]
    fn peers_are_known_again_for_a_while() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.peers");
        let now = SystemTime::now();
        assert_eq!(read_at(&path, now), []);
        let peers = [peer(1), peer(2)];
        keep_at(&path, &peers).unwrap();
        assert_eq!(read_at(&path, now), peers);
        assert_eq!(read_at(&path, now), peers, "one that was killed at once");
        assert_eq!(read_at(&path, now + 2 * SOON), [], "too late");
        keep_at(&path, &peers).unwrap();
        keep_at(&path, &[]).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_of_others_is_bounded_and_harmless() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.peers");
        let many: Vec<_> = (0..1000).map(peer).collect();
        keep_at(&path, &many).unwrap();
        assert_eq!(read_at(&path, SystemTime::now()).len(), RECALLED_MAX);
        let key = peer(7).0.to_base64().as_str().to_owned();
        let text = format!("x\n{key}\n{key} nowhere\n{key} 192.0.2.1:7 there\n\0\n");
        fs::write(&path, text).unwrap();
        let found = read_at(&path, SystemTime::now());
        let at = Endpoint::new(([192, 0, 2, 1], 7).into());
        assert_eq!(found, [(peer(7).0, at)]);
    }

    /// The new program of a running tunnel may reach name servers only through that tunnel.
    #[cfg(feature = "handover")]
    #[test]
    fn a_peer_with_a_name_is_called_where_it_was_until_its_name_is_found() {
        use crate::wireguard::event::Event;
        use crate::wireguard::fixture::FakeHost;
        use ::wireguard::WireGuard;
        use config::uapi::{SetDevice, SetPeer};
        use plane::fake::{Call, FakeDataPlane};
        use std::sync::Arc;

        let (key, at) = peer(9);
        let now = plane::Now::read();
        let mut machine = Machine::new(now, 1);
        let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
        let mut host = FakeHost::new(plane.clone());
        let mut cx = Cx::new(now, &*plane, &mut host);
        let set = SetDevice {
            private_key: Some(Key32::new([7; 32])),
            peers: vec![SetPeer {
                public_key: key.clone(),
                ..SetPeer::default()
            }],
            ..SetDevice::default()
        };
        machine.configure(&set, &mut cx).unwrap();
        machine.handle(Event::Start, &mut cx);
        let endpoint = "vpn.example:5".parse().unwrap();
        let public_key = key.clone();
        let named = Event::SetEndpoint {
            public_key,
            endpoint,
        };
        machine.handle(named, &mut cx);
        let id = machine.peers.keys().next().copied().unwrap();
        assert_eq!(cx.endpoint(id), None);
        machine.handle(Event::RecallNamed(vec![(key.clone(), at)]), &mut cx);
        machine.handle(Event::Recall(vec![(key, at)]), &mut cx);
        assert_eq!(cx.endpoint(id).map(|it| it.addr), Some(at.addr));
        let sends = |it: &Call| matches!(it, Call::Send(..) | Call::SendToPeer(..));
        assert_eq!(plane.take_calls().iter().filter(|it| sends(it)).count(), 1);
        let lookup = host.lookups.remove(0);
        let elsewhere = "192.0.2.9:5".parse().unwrap();
        let found = Ok(vec![elsewhere]);
        let mut cx = Cx::new(now, &*plane, &mut host);
        machine.handle(Event::LookedUp { lookup, found }, &mut cx);
        assert_eq!(cx.endpoint(id).map(|it| it.addr), Some(elsewhere));
    }
}
