//! Name servers. The program that manages them sets them: of all changes to the host only this one is impossible by
//! netlink.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::background;
use dnsmasq::{Dnsmasq, Restarts};

pub mod dnsmasq;
mod helper;

/// Time limit for a program. A restart of `dnsmasq` takes seconds on a small router. A program that hangs must not keep
/// a tunnel from starting or from being undone.
const LIMIT: Duration = Duration::from_secs(30);

/// Debian's resolvconf sorts interfaces by this file; a record gets its place by a prefix of its name.
const INTERFACE_ORDER: &str = "/etc/resolvconf/interface-order";

/// Name servers, and the domains that they are asked about.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct NameServers {
    /// The servers, the preferred one first.
    pub servers: Vec<IpAddr>,
    /// Search domains: names without a dot are looked up in these.
    pub search: Vec<String>,
    /// The servers are asked about these domains only; empty for all names.
    #[serde(default)]
    pub only: Vec<String>,
}

/// The program that manages the name servers.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Resolver {
    /// `resolvconf`: openresolv, Debian's, or systemd's stand-in.
    Resolvconf {
        /// The beginning of the record's name; often empty.
        prefix: String,
    },
    /// `resolvectl` of systemd-resolved.
    Resolvectl,
    /// `dnsmasq` on OpenWrt and Debian: a file in the directory that it reads when it starts.
    #[serde(alias = "OpenWrt")]
    Dnsmasq {
        /// Directory of dnsmasq's extra configuration files.
        directory: PathBuf,
    },
}

/// Why the name servers were not set or not set back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DnsError {
    /// The program could not be started or spoken to.
    #[error("{program}: cannot be run: {error}")]
    Run {
        /// The program's name.
        program: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// The program failed.
    #[error("{program}: {status}: {message}")]
    Failed {
        /// The program's name.
        program: &'static str,
        /// The program's exit status.
        status: std::process::ExitStatus,
        /// The beginning of the program's output.
        message: String,
    },
    /// The program took too long, and was killed.
    #[error("{program}: killed, as it did not finish within {} seconds", LIMIT.as_secs())]
    TooSlow {
        /// The program's name.
        program: &'static str,
    },
    /// `dnsmasq` would not start with these lines.
    #[error("dnsmasq refuses its new lines, so they are not used: {message}")]
    Refused {
        /// The message of `dnsmasq` about the lines.
        message: String,
    },
    /// `dnsmasq` could not be restarted.
    #[error("{command}: {reason}; dnsmasq keeps its old configuration until it restarts")]
    Restart {
        /// The restart command.
        command: String,
        /// Why the command failed.
        reason: String,
    },
    /// A file of `dnsmasq`'s configuration failed.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

impl Resolver {
    /// The first of these that is installed: a `dnsmasq` that the host itself asks, `resolvconf`, `resolvectl`,
    /// OpenWrt's `dnsmasq`.
    pub(crate) fn find() -> Option<Self> {
        let dnsmasq = Dnsmasq::find();
        let of = |dnsmasq: Dnsmasq| Self::Dnsmasq {
            directory: dnsmasq.into_directory(),
        };
        if let Some(dnsmasq) = dnsmasq.clone().filter(Dnsmasq::answers_the_host) {
            return Some(of(dnsmasq));
        }
        if find_program("resolvconf").is_some() {
            let order = fs::read_to_string(INTERFACE_ORDER).unwrap_or_default();
            return Some(Self::Resolvconf {
                prefix: interface_prefix(&order),
            });
        }
        // The program is also installed on hosts that look names up by other means.
        let runs = Path::new("/run/systemd/resolve").exists();
        if runs && find_program("resolvectl").is_some() {
            return Some(Self::Resolvectl);
        }
        dnsmasq.filter(Dnsmasq::is_openwrts).map(of)
    }

    /// True when servers can serve some domains only.
    pub(crate) const fn can_split(&self) -> bool {
        !matches!(self, Self::Resolvconf { .. })
    }

    /// Makes these servers the only ones while the interface exists. If `wanted` names domains and
    /// [`Resolver::can_split`], they are the only ones for those domains.
    ///
    /// # Errors
    /// The program cannot be run, fails or does not end in time.
    pub(crate) fn set(&self, ifname: &str, wanted: &NameServers) -> Result<(), DnsError> {
        let NameServers {
            servers,
            search,
            only,
        } = wanted;
        match self {
            Self::Resolvconf { prefix } => {
                let record = format!("{prefix}{ifname}");
                // Metric 0 and exclusive: these servers come first, and are the only ones.
                let arguments = ["-a", &record, "-m", "0", "-x"];
                run("resolvconf", arguments, &resolvconf_record(servers, search))
            }
            Self::Resolvectl => {
                let servers = servers.iter().map(ToString::to_string);
                let arguments = ["dns", ifname].map(str::to_owned).into_iter();
                run("resolvectl", arguments.chain(servers), "")?;
                // `~.` sends all names to these servers.
                let routed: Vec<String> = match only.as_slice() {
                    [] => vec!["~.".to_owned()],
                    domains => domains.iter().map(|domain| format!("~{domain}")).collect(),
                };
                let arguments = ["domain", ifname].map(str::to_owned).into_iter();
                let domains = routed.into_iter().chain(search.iter().cloned());
                run("resolvectl", arguments.chain(domains), "")
            }
            Self::Dnsmasq { directory } => {
                let (name, text) = (dnsmasq::name_of(ifname), dnsmasq::text(wanted, ifname));
                let (it, now) = (Dnsmasq::at(directory.clone()), &mut Restarts::at_once());
                for domain in dnsmasq::public_domains(wanted) {
                    log::warn!(
                        "{ifname}: name servers are set for the public domain `{domain}`; dnsmasq still refuses \
                         answers with private addresses below it"
                    );
                }
                match it.read(&name) == Some(text.clone()) {
                    // A killed tunnel left the file: `dnsmasq` still remembers the number of its device.
                    true => it.again(&name, now),
                    false => it.set(&name, &text, now),
                }
            }
        }
    }

    /// Undoes [`Resolver::set`]. Succeeds also if nothing was set.
    ///
    /// # Errors
    /// The errors of [`Resolver::set`].
    pub(crate) fn unset(&self, ifname: &str) -> Result<(), DnsError> {
        match self {
            Self::Resolvconf { prefix } => {
                let record = format!("{prefix}{ifname}");
                run("resolvconf", ["-d", &record, "-f"], "")
            }
            // The settings belong to the interface, and may have gone with it.
            Self::Resolvectl if !interface_exists(ifname) => Ok(()),
            Self::Resolvectl => run("resolvectl", ["revert", ifname], ""),
            Self::Dnsmasq { directory } => {
                let dnsmasq = Dnsmasq::at(directory.clone());
                dnsmasq.remove(&dnsmasq::name_of(ifname), &mut Restarts::at_once())
            }
        }
    }
}

fn resolvconf_record(servers: &[IpAddr], search: &[String]) -> String {
    let mut record = String::new();
    for server in servers {
        let _ = writeln!(record, "nameserver {server}");
    }
    if !search.is_empty() {
        let _ = writeln!(record, "search {}", search.join(" "));
    }
    record
}

/// The prefix for virtual interfaces: the first line of the order that is a name and `*`. `tun*` makes the prefix
/// `tun.`.
fn interface_prefix(order: &str) -> String {
    let plain = |name: &&str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let mut families = order.lines().filter_map(|line| line.strip_suffix('*'));
    families
        .find(plain)
        .map(|name| format!("{name}."))
        .unwrap_or_default()
}

fn interface_exists(ifname: &str) -> bool {
    Path::new("/sys/class/net").join(ifname).exists()
}

/// Finds a program, also in the `sbin` directories, which are often missing from a daemon's PATH.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .chain(system)
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

fn run(
    program: &'static str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    input: &str,
) -> Result<(), DnsError> {
    let path = find_program(program).unwrap_or_else(|| program.into());
    let mut command = Command::new(path);
    command.args(arguments).env_remove(background::CHILD);
    let ended = helper::run(&mut command, input, LIMIT);
    let (status, message) = match ended {
        Ok(Some(ended)) => ended,
        Ok(None) => return Err(DnsError::TooSlow { program }),
        Err(error) => return Err(DnsError::Run { program, error }),
    };
    if status.success() {
        return Ok(());
    }
    Err(DnsError::Failed {
        program,
        status,
        message: {
            let mut lines = message.lines().map(str::trim);
            lines.find(|line| !line.is_empty()).unwrap_or("").to_owned()
        },
    })
}

/// The addresses of name servers in a text in the format of `resolv.conf(5)`, as they are written: that of a
/// link-local one ends with its zone.
pub fn name_servers_in(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == "nameserver").then(|| words.next())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_holds_servers_and_domains() {
        let servers = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let search = ["a.example".to_owned(), "b.example".to_owned()];
        assert_eq!(
            resolvconf_record(&servers, &search),
            "nameserver 10.0.0.1\nnameserver fd00::1\nsearch a.example b.example\n"
        );
        assert_eq!(
            resolvconf_record(&servers[..1], &[]),
            "nameserver 10.0.0.1\n"
        );
    }

    #[test]
    fn the_prefix_is_that_of_the_first_family() {
        let debian = "# interface-order(5)\nlo.inet6\nlo.@(dnsmasq|pdnsd)\nlo\ntun*\ntap*\n";
        assert_eq!(interface_prefix(debian), "tun.");
        assert_eq!(interface_prefix(""), "");
        assert_eq!(interface_prefix("@(br|eth)*\n*\n"), "");
    }

    #[test]
    fn a_program_that_fails_says_so() {
        assert!(run("true", [""; 0], "ignored").is_ok());
        assert!(matches!(
            run("false", [""; 0], ""),
            Err(DnsError::Failed { .. })
        ));
        let missing = run("no-such-program-anywhere", [""; 0], "");
        assert!(matches!(missing, Err(DnsError::Run { .. })));
    }
}
