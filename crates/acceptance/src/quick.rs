//! `wg-quick` with the program as its user-space implementation.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lab::{Host, tools};
use nix::mount::{MsFlags, mount};

use crate::Directory;

/// A copy of `wg-quick` for which the kernel has no WireGuard, as it looks for `ip` beside itself first.
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

/// Lets only its owner run a file.
pub fn make_executable(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o700)).unwrap();
}

/// `wg-quick` does without a program for it where the kernel's module is loaded, and so does not see modules.
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
