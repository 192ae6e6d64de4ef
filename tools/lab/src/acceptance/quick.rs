//! `wg-quick` with Millrace as its user-space implementation.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::{Host, tools};
use nix::mount::{MsFlags, mount};

use crate::acceptance::Directory;

/// Copies `wg-quick` so that the kernel seems to lack WireGuard: the script first looks for `ip` in its own
/// directory.
pub fn without_the_kernels(directory: &Directory, original: &Path) -> PathBuf {
    let copy = directory.path().join("wg-quick");
    fs::copy(original, &copy).unwrap();
    let ip = tools::find("ip").unwrap();
    let text = format!(
        "#!/bin/sh\ncase \" $* \" in *' type wireguard '*) exit 2 ;; esac\nexec {} \"$@\"\n",
        ip.display()
    );
    make_executable(&directory.file("ip", &text));
    copy
}

/// Makes a file executable by its owner only.
pub fn make_executable(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o700)).unwrap();
}

/// Hides loaded kernel modules, because `wg-quick` uses no user-space program where the kernel's module is loaded.
pub fn hide_kernel_modules(host: &Host) {
    let hide = || {
        mount(
            Some("none"),
            "/sys/module",
            Some("tmpfs"),
            MsFlags::empty(),
            None::<&str>,
        )
    };
    host.run(hide).unwrap().unwrap();
}
