//! The file system of a private host: the machine's, but for /var/run, /etc/resolv.conf, the program's settings and its
//! files that outlive a reboot.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{chdir, chroot, fchdir};

const NONE: Option<&str> = None;

/// Where the program under test keeps what is to outlive a reboot, and where its settings are: of each host by itself.
const OWN: [&str; 2] = ["/var/lib/millrace", "/etc/millrace"];

/// Directories above the root that are climbed at most. A path has no more names than that.
const DEPTH: usize = 4096;

/// A mount namespace, and which directory is the root in it.
#[derive(Debug)]
pub(crate) struct Mounts {
    namespace: OwnedFd,
    /// In a plain chroot, not the root of the namespace, which is where a thread that enters one finds itself.
    root: OwnedFd,
}

impl Mounts {
    /// Moves the current thread into a new mount namespace with its own /var/run, /var/lib/millrace, /etc/millrace and /etc/resolv.conf.
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

    /// Moves the current thread into it.
    pub(crate) fn enter(&self) -> io::Result<()> {
        // The kernel lets no thread change its mounts that shares its working directory.
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

/// Keeps what is mounted in this namespace from showing up in the rest of the machine.
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
        // The root is no mount point: a plain chroot. The mount that it lies in cannot be named from inside.
        Err(Errno::EINVAL) => {}
        other => return Ok(other?),
    }
    let root = OwnedFd::from(File::open("/")?);
    // From a directory outside of the root, the way up leads to the namespace's own root.
    chdir("/")?;
    chroot("proc")?;
    climb()?;
    all(".")?;
    return_to(&root)
}

/// Moves the working directory up as far as that goes.
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

/// Mounts what a private host has of its own.
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
        // Where it cannot be made, the program cannot write there either.
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
        // The machine's own one was hidden along with the rest of /run.
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

    /// Files of the test are not on the machine, and the machine's are not in the test.
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

    /// In a root that is no mount point.
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
