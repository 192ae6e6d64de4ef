//! OpenWrt: `dnsmasq` answers for the router and the devices behind it, and is started by a script
//! from the system's configuration. That is the owner's; what a tunnel brings goes into a file of
//! its own in the directory that `dnsmasq` reads beside it, which is in memory.
//!
//! The list of name servers in `/tmp/resolv.conf.d` is not the place: it is written anew whenever
//! a line changes. Only a start reads the directory, so `dnsmasq` is restarted, twice in the life
//! of a tunnel.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{DnsError, NameServers, run};
use crate::written_file;

/// Every OpenWrt has it.
const RELEASE: &str = "/etc/openwrt_release";

/// Where the running configurations are, named `dnsmasq.conf.SECTION`.
const CONFIGURATIONS: &str = "/var/etc";

const SCRIPT: &str = "/etc/init.d/dnsmasq";

/// The directory that the running `dnsmasq` was told of; `None` where this is not OpenWrt.
pub(super) fn directory() -> Option<PathBuf> {
    if !Path::new(RELEASE).exists() || !Path::new(SCRIPT).exists() {
        return None;
    }
    let entries = fs::read_dir(CONFIGURATIONS).ok()?.flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("dnsmasq.conf")
        })
        .map(|entry| entry.path())
        .collect();
    // The first instance is the one that the router itself asks.
    paths.sort();
    let texts = paths
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts
        .filter_map(|text| conf_dir(&text))
        .find(|directory| directory.is_dir())
}

/// `conf-dir=/tmp/dnsmasq.d,*.conf`: the first word, if all files of that name would be read.
fn conf_dir(text: &str) -> Option<PathBuf> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("conf-dir="))?;
    let directory = value.split(',').next()?.trim();
    directory.starts_with('/').then(|| directory.into())
}

fn path(directory: &Path, ifname: &str) -> PathBuf {
    directory.join(format!("millrace-{ifname}.conf"))
}

/// What `dnsmasq` is told. Domains that belong to the servers may have private addresses, which
/// it would otherwise take for an attack.
fn text(wanted: &NameServers) -> String {
    let NameServers {
        servers,
        search,
        only,
    } = wanted;
    let mut text = String::new();
    if only.is_empty() {
        // Not the servers of the line as well, or names would be asked outside the tunnel.
        text.push_str("no-resolv\n");
    }
    for server in servers {
        if only.is_empty() {
            let _ = writeln!(text, "server={server}");
        }
        for domain in only {
            let _ = writeln!(text, "server=/{domain}/{server}");
        }
    }
    for domain in only.iter().chain(search) {
        let _ = writeln!(text, "rebind-domain-ok=/{domain}/");
    }
    text
}

/// Writes the file.
pub(super) fn write(directory: &Path, ifname: &str, wanted: &NameServers) -> Result<(), DnsError> {
    let path = path(directory, ifname);
    // `dnsmasq` reads it as a user of its own.
    let written = written_file::replace(&path, text(wanted).as_bytes(), 0o644);
    written.map_err(|error| DnsError::File {
        path: path.clone(),
        error,
    })
}

/// Removes the file; false when there was none.
pub(super) fn remove(directory: &Path, ifname: &str) -> Result<bool, DnsError> {
    let path = path(directory, ifname);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(DnsError::File { path, error }),
    }
}

/// Has the file read.
pub(super) fn restart() -> Result<(), DnsError> {
    run(SCRIPT, ["restart"], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_or_those_of_the_domains() {
        let servers = vec!["10.8.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let corp = vec!["corp.example".to_owned()];
        let all = NameServers {
            servers: servers.clone(),
            search: corp.clone(),
            only: Vec::new(),
        };
        assert_eq!(
            text(&all),
            "no-resolv\nserver=10.8.0.1\nserver=fd00::1\nrebind-domain-ok=/corp.example/\n"
        );
        let some = NameServers {
            servers: servers[..1].to_vec(),
            search: Vec::new(),
            only: corp,
        };
        assert_eq!(
            text(&some),
            "server=/corp.example/10.8.0.1\nrebind-domain-ok=/corp.example/\n"
        );
    }

    #[test]
    fn the_directory_is_the_running_configurations() {
        let text = "# auto-generated\nport=53\nconf-dir=/tmp/dnsmasq.cfg01411c.d\nuser=dnsmasq\n";
        assert_eq!(conf_dir(text), Some("/tmp/dnsmasq.cfg01411c.d".into()));
        assert_eq!(
            conf_dir("conf-dir=/tmp/dnsmasq.d,*.conf"),
            Some("/tmp/dnsmasq.d".into())
        );
        assert_eq!(conf_dir("port=53\n"), None);
    }

    #[test]
    fn the_file_comes_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = NameServers {
            servers: vec!["10.8.0.1".parse().unwrap()],
            ..NameServers::default()
        };
        write(directory.path(), "tun0", &wanted).unwrap();
        let file = directory.path().join("millrace-tun0.conf");
        let written = fs::read_to_string(file).unwrap();
        assert_eq!(written, "no-resolv\nserver=10.8.0.1\n");
        assert!(remove(directory.path(), "tun0").unwrap());
        assert!(!remove(directory.path(), "tun0").unwrap());
    }
}
