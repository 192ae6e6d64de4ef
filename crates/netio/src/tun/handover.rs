//! Hands a TUN to the program that this process executes next. The interface keeps its index, addresses and routes, and
//! packets wait in its queue until the new program reads them.

use super::create::{IFF_NO_PI, IFF_TUN, IFF_VNET_HDR, TunOptions};
use super::{IfReq, name_of};
use crate::poll::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// TUNs that this process has made, with the features that they were given. A TUN may be closed since.
static MADE: Mutex<Vec<(String, RawFd, TunOptions)>> = Mutex::new(Vec::new());

/// The TUN that the program before this one has handed over, until it is used.
static INHERITED: Mutex<Option<Kept>> = Mutex::new(None);

/// Whether routes lead into an inherited TUN that is not connected yet: see [`has_inherited`].
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Letters of the features in [`Kept::pass_on`]'s text.
const LETTERS: [char; 3] = ['t', 'u', 'g'];

/// A descriptor that keeps a TUN open for the next program.
#[derive(Debug)]
pub struct Kept {
    fd: OwnedFd,
    name: String,
    options: TunOptions,
}

/// The descriptor in the text is not that of a TUN of this process.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} does not name a TUN that this process has inherited")]
pub struct NotInherited(String);

impl Kept {
    /// Keeps the open TUN `name` of this process.
    ///
    /// # Errors
    /// This process has no open TUN of this name, or no free descriptor.
    pub fn of(name: &str) -> io::Result<Self> {
        if let Some(kept) = lock(&INHERITED).take_if(|it| it.name == name) {
            return Ok(kept);
        }
        let made = lock(&MADE);
        let (fd, options) = open_of(&made, name).ok_or_else(|| {
            let words = format!("{name} is not an open TUN");
            io::Error::new(io::ErrorKind::NotFound, words)
        })?;
        // SAFETY: no pointers are passed; the result is checked before it is owned.
        let fd = check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) })?;
        Ok(Self {
            // SAFETY: `fd` is a fresh descriptor that nothing else owns.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            name: name.to_owned(),
            options,
        })
    }

    /// Whether [`of`](Self::of) would find this TUN.
    #[must_use]
    pub fn has(name: &str) -> bool {
        let is_inherited = lock(&INHERITED).as_ref().is_some_and(|it| it.name == name);
        is_inherited || open_of(&lock(&MADE), name).is_some()
    }

    /// Lets the next program that this process executes inherit the descriptor. Returns the text for [`inherit`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn pass_on(&self) -> io::Result<String> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: no pointers are passed.
        check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })?;
        let TunOptions { tso, uso, gro } = self.options;
        let features = LETTERS.iter().zip([tso, uso, gro]);
        let features = features.filter(|it| it.1).map(|it| it.0);
        Ok(format!("{fd}{}", features.collect::<String>()))
    }
}

/// Takes the TUN that [`Kept::pass_on`] describes with this text. [`Tun::create`](super::Tun::create) of its name then
/// uses it, with no more features than it had.
///
/// # Errors
/// See [`NotInherited`].
pub fn inherit(text: &str) -> Result<(), NotInherited> {
    let digits = text.trim_end_matches(LETTERS);
    let has = |letter| text[digits.len()..].contains(letter);
    let inherited = digits.parse().ok().and_then(|fd: RawFd| {
        let req = request(fd).ok()?;
        // SAFETY: no pointers are passed.
        check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }).ok()?;
        Some((fd, name_of(&req)))
    });
    let (fd, name) = inherited.ok_or_else(|| NotInherited(text.to_owned()))?;
    let [tso, uso, gro] = LETTERS.map(has);
    *lock(&INHERITED) = Some(Kept {
        // SAFETY: the descriptor is open, it is a TUN's, and this process has made no TUN yet.
        fd: unsafe { OwnedFd::from_raw_fd(fd) },
        name,
        options: TunOptions { tso, uso, gro },
    });
    GOES_ON.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether the host's routes lead into an inherited TUN that is not connected yet, so that name servers may be out of
/// reach. False after [`settle_inherited`].
#[must_use]
pub fn has_inherited() -> bool {
    GOES_ON.load(Ordering::Relaxed)
}

/// Says that the tunnel is up, or that the host's routes into the inherited TUN are being removed. The TUN itself stays
/// until it is used.
pub fn settle_inherited() {
    GOES_ON.store(false, Ordering::Relaxed);
}

/// The inherited TUN, if it has this name and its packets have a form that [`Tun`](super::Tun) reads; whether a header
/// precedes each packet, and the features it may have.
pub(super) fn take(name: &str) -> Option<(OwnedFd, bool, TunOptions)> {
    let kept = lock(&INHERITED).take_if(|it| it.name == name)?;
    let flags = request(kept.fd.as_raw_fd()).ok()?.flags;
    let is_plain = flags & (IFF_TUN | IFF_NO_PI) == IFF_TUN | IFF_NO_PI;
    is_plain.then_some((kept.fd, flags & IFF_VNET_HDR != 0, kept.options))
}

/// Notes a TUN that this process has made.
pub(super) fn note(name: &str, fd: &OwnedFd, options: TunOptions) {
    let mut made = lock(&MADE);
    made.retain(|it| it.0 != name);
    made.push((name.to_owned(), fd.as_raw_fd(), options));
}

/// The descriptor and the features of the open TUN `name`, of the TUNs that this process has made.
fn open_of(made: &[(String, RawFd, TunOptions)], name: &str) -> Option<(RawFd, TunOptions)> {
    let mut found = made.iter().rev().filter(|it| it.0 == name);
    // The number may belong to another file since.
    let found = found.find(|it| request(it.1).is_ok_and(|req| name_of(&req) == name));
    found.map(|it| (it.1, it.2))
}

/// The name and the flags of a TUN.
fn request(fd: RawFd) -> io::Result<IfReq> {
    let mut req = IfReq {
        name: [0; 16],
        flags: 0,
        pad: [0; 22],
    };
    // SAFETY: TUNGETIFF fills a `struct ifreq`, which `IfReq` has the size of. Other files refuse the request.
    check(unsafe { libc::ioctl(fd, libc::TUNGETIFF, &raw mut req) })?;
    Ok(req)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_a_tun_is_inherited() {
        let file = File::open("/dev/null").unwrap();
        let fd = file.as_raw_fd();
        for text in ["", "t", "-1", "7 t", &format!("{fd}"), &format!("{fd}tug")] {
            assert!(inherit(text).is_err(), "{text}");
        }
        assert!(take("null").is_none());
        // The file is still this test's.
        assert!(file.metadata().is_ok());
    }

    #[test]
    fn a_closed_tun_is_not_kept() {
        let file = File::open("/dev/null").unwrap();
        note("gone0", &OwnedFd::from(file), TunOptions::ALL);
        let error = Kept::of("gone0").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(Kept::of("other0").is_err());
        assert!(!Kept::has("gone0") && !Kept::has("other0"));
    }
}
