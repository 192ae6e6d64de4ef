//! The file system of a private host: the machine's, with its own /var/run, /etc/resolv.conf, settings and state of
//! the program under test.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{chdir, chroot, fchdir};

const NONE: Option<&str> = None;

/// Directories that each private host has for itself: the program's state, which outlives a reboot, and its settings.
const OWN: [&str; 2] = ["/var/lib/millrace", "/etc/millrace"];

/// Maximum number of parent directories to climb through; a path has no more components.
const DEPTH: usize = 4096;

/// A mount namespace and its root directory.
#[derive(Debug)]
pub(crate) struct Mounts {
    namespace: OwnedFd,
    /// The host's root directory. In a plain chroot it differs from the namespace's root, where a thread lands that
    /// enters the namespace.
    root: OwnedFd,
}

impl Mounts {
    /// Moves the current thread into a new mount namespace with its own /var/run, /etc/resolv.conf, settings and state.
    pub(crate) fn make() -> io::Result<Self> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        make_private()?;
        cover()?;
        let open = |path: &str| File::open(path).map(OwnedFd::from);
        Ok(Self {
            namespace: open("/proc/thread-self/ns/mnt")?,
            root: open("/")?,
        })
    }

    /// Moves the current thread into this mount namespace.
    pub(crate) fn enter(&self) -> io::Result<()> {
        // The kernel refuses a change of mounts to a thread that shares its working directory.
        unshare(CloneFlags::CLONE_FS)?;
        setns(self.namespace.as_fd(), CloneFlags::CLONE_NEWNS)?;
        return_to(&self.root)
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            namespace: self.namespace.try_clone()?,
            root: self.root.try_clone()?,
        })
    }
}

/// Keeps mounts of this namespace from appearing in the rest of the machine.
fn make_private() -> io::Result<()> {
    let all = |path: &str| {
        mount(
            NONE,
            path,
            NONE,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            NONE,
        )
    };
    match all("/") {
        // The root is not a mount point: a plain chroot, from inside which the enclosing mount has no path.
        Err(Errno::EINVAL) => {}
        other => return Ok(other?),
    }
    let root = OwnedFd::from(File::open("/")?);
    // From a directory outside the root, `..` leads up to the namespace's own root.
    chdir("/")?;
    chroot("proc")?;
    climb()?;
    all(".")?;
    return_to(&root)
}

/// Moves the working directory up to the root of the namespace.
fn climb() -> io::Result<()> {
    let place = |path: &str| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    for _ in 0..DEPTH {
        if place(".")? == place("..")? {
            return Ok(());
        }
        chdir("..")?;
    }
    Err(io::Error::other("the root directory was not found"))
}

/// Makes a directory the root and the working directory of the current thread.
fn return_to(root: &OwnedFd) -> io::Result<()> {
    fchdir(root)?;
    Ok(chroot(".")?)
}

/// Mounts the directories and the file that a private host has for itself.
fn cover() -> io::Result<()> {
    let resolver = fs::canonicalize("/etc/resolv.conf").ok();
    let run = fs::canonicalize("/var/run")?;
    mount(
        Some("tmpfs"),
        &run,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some("size=16m,mode=0755"),
    )?;
    fs::create_dir(run.join("wireguard"))?;
    for own in OWN {
        // If this directory cannot be made, the program cannot write there either.
        if fs::create_dir_all(own).is_err() {
            continue;
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let options = Some("size=1m,mode=0700");
        mount(Some("tmpfs"), own, Some("tmpfs"), flags, options)?;
    }
    let Some(resolver) = resolver else {
        return Ok(());
    };
    if resolver.starts_with(&run) {
        // The mount over /run has hidden the machine's own resolv.conf.
        if let Some(directory) = resolver.parent() {
            fs::create_dir_all(directory)?;
        }
        return fs::write(resolver, "");
    }
    let own = run.join("resolv.conf");
    fs::write(&own, "")?;
    mount(Some(&own), &resolver, NONE, MsFlags::MS_BIND, NONE)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;

    use super::*;
    use crate::Host;
    use crate::openvpn::Directory;

    /// The machine does not see the test's files, nor the test the machine's.
    #[test]
    fn a_private_host_has_settings_of_its_own() {
        if !crate::may_enter() {
            return;
        }
        let host = Host::private("settings").unwrap();
        let name = format!("/etc/millrace/test-{}", std::process::id());
        let seen = host.run(|| {
            let before = fs::read_dir("/etc/millrace").unwrap().count();
            fs::write(&name, "").unwrap();
            before
        });
        assert_eq!(seen.unwrap(), 0);
        assert!(!Path::new(&name).exists());
    }

    /// Works in a root that is not a mount point.
    #[test]
    fn a_private_host_is_made_in_a_plain_chroot() {
        if !crate::may_enter() {
            return;
        }
        let directory = Directory::new().unwrap();
        let root = directory.path().to_owned();
        for name in ["proc", "run", "etc", "var"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("/run", root.join("var/run")).unwrap();
        fs::write(root.join("etc/resolv.conf"), "# of the chroot\n").unwrap();
        let work = || {
            // Only /proc is mounted here, for this thread only.
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            make_private().unwrap();
            let proc = root.join("proc");
            mount(
                Some("/proc"),
                &proc,
                NONE,
                MsFlags::MS_BIND | MsFlags::MS_REC,
                NONE,
            )
            .unwrap();
            chroot(&root).unwrap();
            chdir("/").unwrap();
            let host = Host::private("chrooted").unwrap();
            let look = || {
                let own = fs::read_to_string("/etc/resolv.conf").unwrap();
                let names = fs::read_dir("/")
                    .unwrap()
                    .flatten()
                    .map(|entry| entry.file_name());
                let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
                names.sort();
                fs::write("/var/run/wireguard/wg0.sock", "").unwrap();
                (own, names.join(" "))
            };
            let seen = host.run(look).unwrap();
            assert_eq!(seen, (String::new(), "etc proc run var".to_owned()));
            let outside = fs::read_to_string("/etc/resolv.conf").unwrap();
            assert_eq!(outside, "# of the chroot\n");
            assert!(!Path::new("/run/wireguard").exists());
        };
        thread::scope(|scope| scope.spawn(work).join().unwrap());
        assert!(!root.join("run/wireguard").exists());
    }
}
