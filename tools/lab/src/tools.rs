//! Finding the programs that the lab calls.

use std::env;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::LabError;

/// Directories of system programs, which an ordinary user's PATH may lack.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns the path of a program that every distribution packages.
///
/// # Errors
/// [`LabError::Missing`], naming the package to install.
pub fn find(name: &str) -> Result<PathBuf, LabError> {
    in_path(name).ok_or_else(|| LabError::Missing {
        tool: name.to_owned(),
        hint: format!("install the package {}", package(name)),
    })
}

/// Checks that TUN interfaces can be made here.
///
/// # Errors
/// [`LabError::Unusable`] if the kernel has no TUN driver, or this user may not open /dev/net/tun. File permissions
/// still count in a user namespace.
pub fn tun() -> Result<(), LabError> {
    let device = "/dev/net/tun";
    let opened = File::options().read(true).write(true).open(device);
    opened.map(drop).map_err(|error| LabError::Unusable {
        what: device.to_owned(),
        hint: format!("{error}: load the module tun, or as root `chmod 0666 {device}`"),
    })
}

/// Returns the path of a program in PATH or in the system directories.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| is_program(candidate))
}

/// Returns the first line that `program --version` prints, if any. Only for programs that end after printing it.
pub fn version(program: &Path) -> Option<String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    [output.stdout, output.stderr].iter().find_map(|text| {
        let text = String::from_utf8_lossy(text);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.to_owned())
    })
}

/// Path of a file of another system that a script has fetched: below `MILLRACE_TOOLS`, by default
/// `~/.cache/millrace`. `None` if the file is missing.
#[must_use]
pub fn fetched(path: &str) -> Option<PathBuf> {
    let cache = || {
        let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
        Some(cache.join("millrace"))
    };
    let tools = env::var_os("MILLRACE_TOOLS").map(PathBuf::from);
    Some(tools.or_else(cache)?.join(path))
}

/// Path of another VPN's program, built for comparison: in the directory that `MILLRACE_PEERS` names, else in
/// `target/peers/bin` here or in a parent directory.
pub fn peer(name: &str) -> Option<PathBuf> {
    peer_directories()
        .map(|directory| directory.join(name))
        .find(|candidate| is_program(candidate))
}

fn peer_directories() -> impl Iterator<Item = PathBuf> {
    let named = env::var_os("MILLRACE_PEERS").map(PathBuf::from);
    let above = env::current_dir()
        .map(|here| here.ancestors().map(Path::to_owned).collect::<Vec<_>>())
        .unwrap_or_default()
        .into_iter()
        .map(|directory| directory.join("target/peers/bin"));
    named.into_iter().chain(above)
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The Debian package of a program, where the package has another name.
fn package(name: &str) -> &str {
    match name {
        "wg" | "wg-quick" => "wireguard-tools",
        "nft" => "nftables",
        "ping" => "iputils-ping",
        "ip" => "iproute2",
        "dnsmasq" => "dnsmasq-base",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_one_line() {
        let env = find("sh").unwrap().with_file_name("env");
        assert!(version(&env).unwrap().starts_with("env"));
        assert_eq!(version(Path::new("/no/such/program")), None);
    }

    #[test]
    fn programs_are_found_and_missing_ones_come_with_a_hint() {
        assert!(find("sh").unwrap().is_absolute());
        let error = find("no-such-program").unwrap_err();
        assert!(error.to_string().contains("install"), "{error}");
    }
}
