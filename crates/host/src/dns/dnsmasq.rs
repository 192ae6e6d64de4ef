//! Sets name servers in `dnsmasq`, which answers for the router and the devices behind it. A script starts `dnsmasq`
//! from the system's configuration, which belongs to the owner. A tunnel or the guard writes its own file into the
//! directory that `dnsmasq` reads as well.
//!
//! Servers are bound to the tunnel's device (`server=10.8.0.1@mr-office`). Without the device, `dnsmasq` answers a
//! query "refused" and sends it nowhere else. Seen with 2.90:
//!
//! | the device | what `dnsmasq` does |
//! |---|---|
//! | is missing at the start, and comes later | binds by name at each query: answers once the device exists |
//! | exists at the start, goes, comes again | remembers the old index: refuses until restarted; SIGHUP does not help |
//! | is missing, and the name has another server without a device | asks that one: so ours must be the only one |
//!
//! Only a start reads the directory, so `dnsmasq` is restarted. OpenWrt's list of name servers in `/tmp/resolv.conf.d`
//! is no alternative: the system rewrites it whenever an uplink changes, and it cannot name devices.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use restarts::{mark_of, token};

use crate::dns::{DnsError, NameServers, run};

mod restarts;

pub use restarts::{Restarts, knows_sets};

/// A file that every OpenWrt has.
const RELEASE: &str = "/etc/openwrt_release";

/// Directory of OpenWrt's running configurations, named `dnsmasq.conf.SECTION`.
const CONFIGURATIONS: &str = "/var/etc";

/// Script that restarts `dnsmasq`, on OpenWrt and on Debian.
const SCRIPT: &str = "/etc/init.d/dnsmasq";

/// File where Debian's script writes the process number.
const DEBIAN_PID: &str = "/run/dnsmasq/dnsmasq.pid";
const DEBIAN_DEFAULTS: &str = "/etc/default/dnsmasq";
const DEBIAN_DIRECTORY: &str = "/etc/dnsmasq.d";

/// Largest configuration file that is read, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// A `dnsmasq` that the system starts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Dnsmasq {
    /// The directory that `dnsmasq` reads besides its configuration.
    directory: PathBuf,
    /// Whether `dnsmasq` has been started.
    runs: bool,
    /// The command that restarts `dnsmasq`: program and arguments.
    restart: Vec<String>,
}

impl Dnsmasq {
    /// Finds this host's `dnsmasq`. On OpenWrt it must have been started, since only that tells its directory; on
    /// Debian it need not.
    #[must_use]
    pub fn find() -> Option<Self> {
        if !Path::new(SCRIPT).exists() {
            return None;
        }
        if Path::new(RELEASE).exists() {
            return running().into_iter().find_map(|text| {
                let directory = conf_dir(&text)?;
                directory.is_dir().then(|| Self::at(directory))
            });
        }
        let defaults = fs::read_to_string(DEBIAN_DEFAULTS).unwrap_or_default();
        let directory = debian_directory(&defaults);
        directory.is_dir().then(|| Self {
            runs: Path::new(DEBIAN_PID).exists(),
            ..Self::at(directory)
        })
    }

    /// A `dnsmasq` that has not been started yet, and will read this directory.
    #[must_use]
    pub fn not_started(directory: PathBuf) -> Self {
        Self {
            runs: false,
            ..Self::at(directory)
        }
    }

    /// A running `dnsmasq` that reads this directory.
    #[must_use]
    pub fn at(directory: PathBuf) -> Self {
        Self {
            directory,
            runs: true,
            restart: [SCRIPT, "restart"].map(str::to_owned).to_vec(),
        }
    }

    /// Sets the command that restarts `dnsmasq`; with no words, the system's own script does.
    #[must_use]
    pub fn restarted_by(mut self, words: Vec<String>) -> Self {
        if !words.is_empty() {
            (self.runs, self.restart) = (true, words);
        }
        self
    }

    /// Whether this is OpenWrt's `dnsmasq`.
    pub(super) fn is_openwrts(&self) -> bool {
        Path::new(RELEASE).exists()
    }

    /// Whether the host itself asks this `dnsmasq`, according to its resolv.conf.
    pub(super) fn answers_the_host(&self) -> bool {
        let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        self.runs && asks_itself(&text)
    }

    /// Returns the directory of the configuration file.
    pub(super) fn into_directory(self) -> PathBuf {
        self.directory
    }

    /// The content of this file, if it exists and `dnsmasq` has read it. Empty if it has changed since `dnsmasq` read
    /// it.
    #[must_use]
    pub fn read(&self, name: &str) -> Option<String> {
        match self.has_read(name) {
            true => read(&self.directory.join(name)),
            false => Some(String::new()),
        }
    }

    /// Whether `dnsmasq` has read the file `name` as it is now.
    pub(super) fn has_read(&self, name: &str) -> bool {
        !mark_of(&self.directory, name).exists()
    }

    /// Writes a file after `dnsmasq` itself has checked it: an unknown line keeps `dnsmasq` from starting, and DHCP is
    /// then gone as well. Restarts a `dnsmasq` that has been started, unless it has read this text already.
    ///
    /// # Errors
    /// The file is invalid or cannot be written, or `dnsmasq` does not start.
    pub fn set(&self, name: &str, text: &str, restarts: &mut Restarts) -> Result<(), DnsError> {
        let path = self.directory.join(name);
        if read(&path).is_some_and(|it| it == text) {
            // Not marked again: the current restart began after the mark, so it reads the file.
            return match self.has_read(name) {
                true => Ok(()),
                false => self.restart(restarts),
            };
        }
        if !restarts.may() {
            // A restart that is in progress or has failed comes first.
            return self.mark(name);
        }
        self.put(&path, name, text)
            .inspect_err(|_| restarts.failed())?;
        self.restart(restarts)
    }

    fn put(&self, path: &Path, name: &str, text: &str) -> Result<(), DnsError> {
        let new = self.directory.join(format!(".{name}.new"));
        let failed = |error| DnsError::File {
            path: path.to_owned(),
            error,
        };
        write(&new, text).map_err(failed)?;
        let mut option = std::ffi::OsString::from("--conf-file=");
        option.push(&new);
        let checked = run("dnsmasq", ["--test".into(), option], "");
        let put = match checked {
            Ok(()) => self.mark(name).and_then(|()| {
                let renamed = fs::rename(&new, path);
                renamed
                    .and_then(|()| crate::written_file::sync_directory_of(path))
                    .map_err(failed)
            }),
            Err(DnsError::Failed { message, .. }) => Err(DnsError::Refused { message }),
            Err(error) => Err(error),
        };
        if put.is_err() {
            // No program reads this file.
            let _ = fs::remove_file(&new);
        }
        put
    }

    /// Restarts `dnsmasq` because something that a file names has changed, though the file itself has not.
    ///
    /// # Errors
    /// The errors of [`Dnsmasq::set`].
    pub fn again(&self, name: &str, restarts: &mut Restarts) -> Result<(), DnsError> {
        self.mark(name)?;
        self.restart(restarts)
    }

    /// Removes a file and restarts `dnsmasq` without it. Does nothing if there is no such file.
    ///
    /// # Errors
    /// The errors of [`Dnsmasq::set`].
    pub fn remove(&self, name: &str, restarts: &mut Restarts) -> Result<(), DnsError> {
        let path = self.directory.join(name);
        let is_there = path.symlink_metadata().is_ok();
        if !is_there && self.has_read(name) {
            return Ok(());
        }
        self.mark(name)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DnsError::File { path, error })
            }
            _ => self.restart(restarts),
        }
    }

    /// Marks a file as changed or removed since `dnsmasq` read it. A `dnsmasq` that has not been started needs no mark:
    /// it reads everything at its start.
    fn mark(&self, name: &str) -> Result<(), DnsError> {
        let path = mark_of(&self.directory, name);
        if !self.runs {
            let _ = fs::remove_file(path);
            return Ok(());
        }
        write(&path, &token()).map_err(|error| DnsError::File { path, error })
    }

    fn restart(&self, restarts: &mut Restarts) -> Result<(), DnsError> {
        match self.runs {
            true => restarts.start(&self.directory, &self.restart),
            false => Ok(()),
        }
    }

    /// The owner's other servers that `dnsmasq` asks for all names, each with the file that names it. `dnsmasq` falls
    /// back to them where a device is missing. With `names`, the servers that it asks for some of these.
    #[must_use]
    pub fn other_servers(&self, names: &[String]) -> Vec<String> {
        let mut texts = vec![(
            "/etc/dnsmasq.conf".to_owned(),
            read(Path::new("/etc/dnsmasq.conf")),
        )];
        texts.extend(
            running()
                .into_iter()
                .map(|text| (CONFIGURATIONS.to_owned(), Some(text))),
        );
        let entries = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries.take(256) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with("millrace") && !name.starts_with('.') {
                texts.push((entry.path().display().to_string(), read(&entry.path())));
            }
        }
        let mut found = Vec::new();
        for (place, text) in texts {
            let text = text.unwrap_or_default();
            let servers: Vec<String> = match names {
                [] => general_servers(&text).map(str::to_owned).collect(),
                _ => servers_of(&text, names),
            };
            for server in servers {
                found.push(format!("{server} ({place})"));
            }
        }
        found
    }
}

/// The texts of OpenWrt's running configurations. The router itself asks the first instance.
fn running() -> Vec<String> {
    let entries = fs::read_dir(CONFIGURATIONS).into_iter().flatten().flatten();
    let is_one = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("dnsmasq.conf")
    };
    let mut paths: Vec<PathBuf> = entries.filter(is_one).map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Option<String> {
    use io::Read as _;
    let mut text = String::new();
    let file = fs::File::open(path).ok()?;
    file.take(FILE_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    // Readable by all: `dnsmasq` runs as a user of its own.
    crate::written_file::replace(path, text.as_bytes(), 0o644)
}

/// The directory of a `conf-dir=/tmp/dnsmasq.d,*.conf` line, if `dnsmasq` would read our file names in it.
fn conf_dir(text: &str) -> Option<PathBuf> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("conf-dir="))?;
    let directory = value.split(',').next()?.trim();
    directory.starts_with('/').then(|| directory.into())
}

/// The directory of `CONFIG_DIR=/etc/dnsmasq.d,.dpkg-dist,…` in Debian's defaults.
fn debian_directory(defaults: &str) -> PathBuf {
    let mut values = defaults
        .lines()
        .filter_map(|line| line.trim().strip_prefix("CONFIG_DIR="));
    let value = values.next_back().unwrap_or(DEBIAN_DIRECTORY);
    let first = value
        .trim_matches('"')
        .split(',')
        .next()
        .unwrap_or_default();
    match first.starts_with('/') {
        true => first.into(),
        false => DEBIAN_DIRECTORY.into(),
    }
}

/// A sentence about the file whose absence keeps Debian's `dnsmasq`, which the host asks, from being used.
pub(crate) fn lacks() -> Option<String> {
    let resolv = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let defaults = fs::read_to_string(DEBIAN_DEFAULTS).unwrap_or_default();
    let directory = debian_directory(&defaults);
    let needed = [Path::new(SCRIPT), &directory, Path::new(DEBIAN_PID)];
    match Path::new(RELEASE).exists() {
        true => None,
        false => lacking(&resolv, &needed),
    }
}

fn lacking(resolv: &str, needed: &[&Path]) -> Option<String> {
    let missing = needed.iter().find(|it| !it.exists())?;
    if !asks_itself(resolv) {
        return None;
    }
    Some(format!(
        "/etc/resolv.conf names this host, but its dnsmasq cannot be used: {} is missing (Debian's package dnsmasq and \
         its service make it)",
        missing.display()
    ))
}

/// Whether a resolv.conf names this host first.
fn asks_itself(text: &str) -> bool {
    let mut servers = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"));
    let first: Option<IpAddr> = servers.next().and_then(|it| it.trim().parse().ok());
    // systemd-resolved is at 127.0.0.53.
    first.is_some_and(|it| ["127.0.0.1", "::1"].contains(&it.to_string().as_str()))
}

/// Servers in a configuration that `dnsmasq` asks for all names.
fn general_servers(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let value = line.trim().strip_prefix("server")?.trim_start();
        let value = value.strip_prefix('=')?.trim();
        (!value.is_empty() && !value.starts_with('/')).then_some(value)
    })
}

/// The name of a tunnel's file.
#[must_use]
pub fn name_of(ifname: &str) -> String {
    format!("millrace-{ifname}.conf")
}

/// Domains that anybody may register names in. Their names may not have private addresses, though the tunnel's servers
/// answer for them.
pub(super) fn public_domains(wanted: &NameServers) -> impl Iterator<Item = &str> {
    let domains = wanted.only.iter().chain(&wanted.search);
    domains
        .map(String::as_str)
        .filter(|it| !is_of_one_network(it))
}

/// The settings for `dnsmasq` for servers behind a device. Names in the servers' own domains may have private
/// addresses, which `dnsmasq` would otherwise reject as an attack.
#[must_use]
pub fn text(wanted: &NameServers, device: &str) -> String {
    let NameServers {
        servers,
        search,
        only,
    } = wanted;
    let mut text = String::new();
    if only.is_empty() {
        // Without this, `dnsmasq` would also ask the uplink's servers, outside the tunnel.
        text.push_str("no-resolv\n");
    }
    // Writing to a string does not fail.
    for server in servers {
        if only.is_empty() {
            let _ = writeln!(text, "server={server}@{device}");
        }
        for domain in only {
            let _ = writeln!(text, "server=/{domain}/{server}@{device}");
        }
    }
    let domains = only.iter().chain(search);
    for domain in domains.filter(|it| is_of_one_network(it)) {
        let _ = writeln!(text, "rebind-domain-ok=/{domain}/");
    }
    text
}

/// Servers that a configuration has for any of these names, in lines such as `server=/corp.example/192.0.2.1`. Lines
/// for subdomains count, too.
fn servers_of(text: &str, names: &[String]) -> Vec<String> {
    let is_of = |value: &&str| {
        let mut words = value.split('/').skip(1).collect::<Vec<_>>();
        words.pop();
        words.iter().any(|word| {
            let word = word.trim_matches('.').to_ascii_lowercase();
            names.iter().any(|name| {
                let name = name.trim_matches('.').to_ascii_lowercase();
                word == name || word.strip_suffix(&name).is_some_and(|it| it.ends_with('.'))
            })
        })
    };
    let lines = text.lines().filter_map(|line| {
        let line = line.trim();
        let value = line
            .strip_prefix("server")
            .or_else(|| line.strip_prefix("local"))?;
        value.trim_start().strip_prefix('=').map(str::trim)
    });
    lines
        .filter(|it| it.starts_with('/'))
        .filter(is_of)
        .map(str::to_owned)
        .collect()
}

/// Top-level names that the Internet never delegates, and that private networks use.
const PRIVATE: [&str; 10] = [
    "corp",
    "home",
    "internal",
    "intra",
    "intranet",
    "lan",
    "local",
    "localdomain",
    "localnet",
    "private",
];

/// Labels below a country's domain under which its registry sells domains to everybody, as in `co.uk` and `com.au`.
/// Names of cities and regions (`tokyo.jp`) are left out: a complete list has 10,000 entries.
const REGISTRIES: [&str; 33] = [
    "ac", "asso", "biz", "cci", "co", "com", "ed", "edu", "firm", "gen", "go", "gob", "gouv",
    "gov", "govt", "gv", "ind", "info", "int", "ltd", "mil", "ne", "net", "nom", "nome", "or",
    "org", "plc", "police", "prd", "publ", "sch", "tm",
];

/// Countries in which networks own names of up to three letters, as in `abc.de`. Elsewhere such a name belongs to a
/// registry (`me.uk`, `adv.br`, `mi.it`, `ca.us`), or is too likely to.
const DIRECT: [&str; 15] = [
    "at", "be", "ch", "cz", "de", "dk", "es", "eu", "fi", "fr", "ie", "io", "lu", "nl", "pt",
];

/// Whether one network owns the domain. Anybody can register names under `com` or `co.uk`; such names must not lead
/// browsers of the LAN to addresses of the LAN (DNS rebinding).
fn is_of_one_network(domain: &str) -> bool {
    let domain = domain.trim_end_matches('.').to_ascii_lowercase();
    let labels: Vec<&str> = domain.split('.').collect();
    let is_label = |label: &&str| {
        let fits = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_');
        !label.is_empty() && label.bytes().all(fits)
    };
    if !labels.iter().all(is_label) {
        return false;
    }
    match labels.as_slice() {
        [] => false,
        [.., top] if PRIVATE.contains(top) => true,
        [_] => false,
        [second, top] if top.len() == 2 => {
            !REGISTRIES.contains(second) && (second.len() > 3 || DIRECT.contains(top))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_or_those_of_the_domains_by_the_device_only() {
        let servers = vec!["10.8.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let corp = vec!["corp.example".to_owned()];
        let all = NameServers {
            servers: servers.clone(),
            search: corp.clone(),
            only: Vec::new(),
        };
        assert_eq!(
            text(&all, "mr-office"),
            "no-resolv\nserver=10.8.0.1@mr-office\nserver=fd00::1@mr-office\nrebind-domain-ok=/corp.example/\n"
        );
        let some = NameServers {
            servers: servers[..1].to_vec(),
            search: Vec::new(),
            only: corp,
        };
        assert_eq!(
            text(&some, "tun0"),
            "server=/corp.example/10.8.0.1@tun0\nrebind-domain-ok=/corp.example/\n"
        );
        // A server may answer for all of `com`, and must not lead a browser from there into the LAN.
        let public = NameServers {
            search: vec!["co.uk".to_owned()],
            only: vec!["com".to_owned()],
            ..some
        };
        assert_eq!(text(&public, "tun0"), "server=/com/10.8.0.1@tun0\n");
        assert!(public_domains(&public).eq(["com", "co.uk"]));
    }

    #[test]
    fn the_directory_is_the_configurations() {
        let text = "# auto-generated\nport=53\nconf-dir=/tmp/dnsmasq.cfg01411c.d\nuser=dnsmasq\n";
        assert_eq!(conf_dir(text), Some("/tmp/dnsmasq.cfg01411c.d".into()));
        assert_eq!(
            conf_dir("conf-dir=/tmp/dnsmasq.d,*.conf"),
            Some("/tmp/dnsmasq.d".into())
        );
        assert_eq!(conf_dir("port=53\n"), None);
        let usual = Path::new("/etc/dnsmasq.d");
        assert_eq!(debian_directory("ENABLED=1\n"), usual);
        let text = "#CONFIG_DIR=/no\nCONFIG_DIR=/etc/names.d,.dpkg-dist,.dpkg-old,.dpkg-new\n";
        assert_eq!(debian_directory(text), Path::new("/etc/names.d"));
        assert_eq!(debian_directory("CONFIG_DIR=,x\n"), usual);
    }

    #[test]
    fn the_missing_file_of_a_dnsmasq_that_the_host_asks_is_named() {
        let place = tempfile::tempdir().unwrap();
        let names = ["init.d", "dnsmasq.d", "pid"].map(|it| place.path().join(it));
        let needed: Vec<&Path> = names.iter().map(PathBuf::as_path).collect();
        let own = "nameserver 127.0.0.1\n";
        for name in &names {
            let words = lacking(own, &needed).unwrap();
            let missing = format!("{} is missing", name.display());
            assert!(words.contains(&missing), "{words}");
            assert_eq!(lacking("nameserver 192.0.2.1\n", &needed), None);
            fs::write(name, "").unwrap();
        }
        assert_eq!(lacking(own, &needed), None);
    }

    #[test]
    fn what_the_host_asks_and_what_is_asked_besides() {
        assert!(asks_itself(
            "search lan\nnameserver 127.0.0.1\nnameserver 192.0.2.1\n"
        ));
        assert!(asks_itself("nameserver ::1\n"));
        for other in [
            "",
            "nameserver 127.0.0.53\n",
            "nameserver 192.0.2.1\nnameserver 127.0.0.1\n",
        ] {
            assert!(!asks_itself(other), "{other}");
        }
        let text = "#server=1.1.1.1\nserver=8.8.8.8\nserver=/lan/192.168.1.9\n server = fd00::1 \nservers-file=/x\n";
        let found: Vec<&str> = general_servers(text).collect();
        assert_eq!(found, ["8.8.8.8", "fd00::1"]);
    }

    #[test]
    fn a_file_comes_when_it_is_good_and_goes() {
        // Without the program, `set` accepts no file.
        if crate::dns::find_program("dnsmasq").is_none() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("dnsmasq.cfg01411c.d");
        let dnsmasq = Dnsmasq::not_started(directory.clone());
        let now = &mut Restarts::at_once();
        let good = "no-resolv\nserver=10.8.0.1@mr-office\n";
        dnsmasq.set("millrace.conf", good, now).unwrap();
        assert_eq!(dnsmasq.read("millrace.conf").as_deref(), Some(good));
        let error = dnsmasq
            .set("millrace.conf", "no-such-option\n", now)
            .unwrap_err();
        assert!(error.to_string().contains("bad option"), "{error}");
        assert_eq!(dnsmasq.read("millrace.conf").as_deref(), Some(good));
        dnsmasq.remove("millrace.conf", now).unwrap();
        dnsmasq.remove("millrace.conf", now).unwrap();
        assert_eq!(fs::read_dir(directory).unwrap().count(), 0);
    }

    #[test]
    fn lines_of_the_owners_for_the_names_are_found() {
        let text = "server=8.8.8.8\n#server=/corp.example/1.1.1.1\nserver=/a.org/Corp.Example/192.0.2.1\n\
                    server=/db.corp.example/192.0.2.2\nserver=/mycorp.example/192.0.2.3\nserver=/a.org/192.0.2.4\n";
        assert_eq!(
            servers_of(text, &["corp.example".to_owned()]),
            [
                "/a.org/Corp.Example/192.0.2.1",
                "/db.corp.example/192.0.2.2"
            ]
        );
    }

    #[test]
    fn names_under_which_everybody_has_names_are_no_networks_own() {
        for domain in [
            "corp.example",
            "Example.COM.",
            "example.co.uk",
            "abc.de",
            "lan",
            "corp",
            "office.local",
            "home.arpa",
            "10.in-addr.arpa",
            "_tcp.example.org",
        ] {
            assert!(is_of_one_network(domain), "{domain}");
        }
        for domain in [
            "",
            ".",
            "..",
            "com",
            "org.",
            "DE",
            "co.uk",
            "COM.au",
            "or.jp",
            "gouv.fr",
            ".com",
            "a..b",
            "a/b.c",
            "*.com",
            "me.uk",
            "nhs.uk",
            "adv.br",
            "id.au",
            "gv.at",
            "police.uk",
        ] {
            assert!(!is_of_one_network(domain), "{domain}");
        }
    }
}
