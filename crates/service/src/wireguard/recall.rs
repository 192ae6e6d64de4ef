//! Peers whose sessions end with this program: where they are, for the next start.
//!
//! A peer that calls from an address of its own choice notices after 15 seconds of silence that its session is gone. A program
//! that starts again soon calls it first: one handshake each, to where the peer was.

use config::types::Key32;
use std::fs;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Most peers that are called: those that were heard last.
pub(super) const RECALLED_MAX: usize = 256;

/// Time after which a start is no restart any more, and peers have noticed by themselves.
pub(super) const SOON: Duration = Duration::from_secs(180);

/// Longest file that is read, in bytes.
const SIZE_MAX: u64 = (RECALLED_MAX as u64) * 128;

/// A peer, and where it was heard last.
pub(super) type Recalled = (Key32, SocketAddr);

/// The file of an interface. It has no secrets, and is gone after a reboot.
fn path(ifname: &str) -> PathBuf {
    Path::new("/run/millrace").join(format!("{ifname}.peers"))
}

/// Writes down where peers are.
pub(super) fn keep(ifname: &str, peers: &[Recalled]) {
    if let Err(error) = keep_at(&path(ifname), peers) {
        log::debug!("{ifname}: where its peers are is forgotten: {error}");
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
    let lines = lines.map(|(key, at)| format!("{} {at}\n", key.to_base64().as_str()));
    host::written_file::replace_for_now(path, lines.collect::<String>().as_bytes(), 0o600)
}

/// Reads where peers were when the interface ended, if that was a moment ago. The next call finds nothing.
pub(super) fn take(ifname: &str) -> Vec<Recalled> {
    take_at(&path(ifname), SystemTime::now())
}

fn take_at(path: &Path, now: SystemTime) -> Vec<Recalled> {
    let read = || -> io::Result<String> {
        let file = fs::File::open(path)?;
        let written = file.metadata()?.modified()?;
        // A clock that was set back since says nothing.
        if now.duration_since(written).is_ok_and(|age| age > SOON) {
            return Ok(String::new());
        }
        let mut text = String::new();
        file.take(SIZE_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().unwrap_or_default();
    let _ = fs::remove_file(path);
    let peers = text.lines().filter_map(|line| {
        let (key, at) = line.split_once(' ')?;
        Some((Key32::from_base64(key).ok()?, at.parse().ok()?))
    });
    peers.take(RECALLED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u16) -> Recalled {
        let mut key = [0; 32];
        key[..2].copy_from_slice(&number.to_be_bytes());
        let at = format!("[2001:db8::{number:x}]:{}", 1000 + number);
        (Key32::new(key), at.parse().unwrap())
    }

    #[test]
    fn peers_are_known_again_once_and_for_a_while() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.peers");
        let now = SystemTime::now();
        assert_eq!(take_at(&path, now), []);
        let peers = [peer(1), peer(2)];
        keep_at(&path, &peers).unwrap();
        assert_eq!(take_at(&path, now), peers);
        assert_eq!(take_at(&path, now), [], "the next start is another");
        keep_at(&path, &peers).unwrap();
        assert_eq!(take_at(&path, now + 2 * SOON), [], "too late");
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
        assert_eq!(take_at(&path, SystemTime::now()).len(), RECALLED_MAX);
        let key = peer(7).0.to_base64().as_str().to_owned();
        let text = format!("x\n{key}\n{key} nowhere\n{key} 192.0.2.1:7\n\0\n");
        fs::write(&path, text).unwrap();
        let found = take_at(&path, SystemTime::now());
        assert_eq!(found, [(peer(7).0, "192.0.2.1:7".parse().unwrap())]);
    }
}
