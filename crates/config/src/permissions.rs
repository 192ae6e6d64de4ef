//! Decides what a tunnel's file may do on this machine besides its tunnel.
//!
//! Tunnel files come from providers and offices, but act with the rights of root. Without a permission, a file that
//! connects to another end cannot make this machine a router. It names no program to run, and no file to write, to send
//! or to read as more configuration. It opens no port or socket through which other machines control the tunnel.
//! Certificates and keys are read without a permission, as regular files of a bounded size: their content stays on the
//! machine, and no error quotes it.
//!
//! The machine's owner gives permissions outside the file; the file itself never can:
//!
//! | entry | permission |
//! |---|---|
//! | `millrace up`, `check`, `import`, and their units | `--allow-files`, `--allow-scripts`, `--allow-forwarding` |
//! | an interface of OpenWrt | [`UCI_OPTION`]; no scripts |
//! | a file that LuCI's page or the web page of `monitor` offers | none, and no certificates or keys by path either |
//! | `millrace openvpn`, or the program called `openvpn` | all: the caller uses OpenVPN's own command line |
//! | files of pppd and pptpd where those programs look for them | files: only root puts them there |

use std::fs::{canonicalize, symlink_metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// End of a sentence about a file that needs a permission.
pub(crate) const ALLOW_FILES: &str = "permit it with --allow-files";

/// The option of an OpenWrt interface that permits files.
pub const UCI_OPTION: &str = "allow_files";

/// Rewrites a report sentence for an OpenWrt interface: its own option replaces the switch.
#[must_use]
pub fn for_uci(words: &str) -> String {
    words.replace("--allow-files", &format!("`option {UCI_OPTION} '1'`"))
}

/// Extensions of the password file that a tunnel may use for its login without a permission.
const PASSWORDS: [&str; 2] = ["password", "pw"];

/// Extension of the file that may hold the management port's password without a permission. It is never sent, and its
/// first line is not a user name.
const MANAGEMENT: &str = "management";

/// Where pppd and pptpd keep their files.
const OF_PPPD: [&str; 2] = ["/etc/ppp", "/etc/pptpd.conf"];

/// Permissions that the machine's owner gives a tunnel's file. The default permits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    files: bool,
    scripts: bool,
    forwarding: bool,
}

impl Permissions {
    /// Permits nothing.
    pub const NONE: Self = Self::new(false, false);
    /// Permits files to be written, sent and read as configuration, and sockets.
    pub const FILES: Self = Self::new(true, false);
    /// Permits scripts, files and forwarding.
    pub const ALL: Self = Self::new(true, true);

    /// Permissions for files and scripts. Scripts imply files and forwarding: a script may do anything.
    #[must_use]
    pub const fn new(files: bool, scripts: bool) -> Self {
        Self {
            files: files || scripts,
            scripts,
            forwarding: scripts,
        }
    }

    /// If `permitted`, also lets a WireGuard file whose peer has an `Endpoint` make this machine a router.
    #[must_use]
    pub const fn with_forwarding(self, permitted: bool) -> Self {
        Self {
            forwarding: self.forwarding || permitted,
            ..self
        }
    }

    /// Whether the file may name programs, which run as root.
    #[must_use]
    pub const fn scripts(self) -> bool {
        self.scripts
    }

    /// Whether the file may make this machine forward packets although one of its peers has an `Endpoint` (`[Server]`).
    #[must_use]
    pub const fn forwarding(self) -> bool {
        self.forwarding
    }

    /// Whether the file may name files to write, send or read as configuration, and command sockets.
    #[must_use]
    pub const fn files(self) -> bool {
        self.files
    }

    /// These permissions, plus files for a pppd or pptpd file in the place where those programs look for it.
    #[must_use]
    pub(crate) fn with_place(self, path: &Path) -> Self {
        let path = canonicalize(path).unwrap_or_default();
        let of_pppd = OF_PPPD.iter().any(|it| path.starts_with(it));
        Self {
            files: self.files || of_pppd,
            ..self
        }
    }
}

/// Stem of the monitor page's password file, `monitor.password`, which no tunnel may use.
const MONITOR: &str = "monitor";

/// Existing files beside `path` whose names make them its password files, whoever put them there.
#[must_use]
pub fn passwords_beside(path: &Path) -> Vec<PathBuf> {
    let endings = PASSWORDS.into_iter().chain([MANAGEMENT]);
    let own = endings.map(|ending| path.with_extension(ending));
    let is_there = |it: &PathBuf| symlink_metadata(it).is_ok();
    own.filter(is_there).collect()
}

/// The password file of a profile's management port, `NAME.management`. A symbolic link does not count.
pub(crate) fn own_management(path: &Path) -> Option<PathBuf> {
    Some(path.with_extension(MANAGEMENT)).filter(|it| it != path && may_be_own(it))
}

/// Whether a path may be a tunnel's own file. A symbolic link may not: an archive can bring one that leads anywhere.
fn may_be_own(path: &PathBuf) -> bool {
    match symlink_metadata(path) {
        Ok(data) => data.is_file(),
        // The start reports that the file is missing.
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Password files beside a tunnel's file: `NAME.password` and `NAME.pw`. Their names show the tunnel and the purpose.
/// Symbolic links are left out.
pub(crate) fn own_passwords(path: &Path) -> Vec<PathBuf> {
    if path.file_stem().is_some_and(|it| it == MONITOR) {
        return Vec::new();
    }
    let own = PASSWORDS.map(|ending| path.with_extension(ending));
    own.into_iter()
        .filter(|it| it != path && may_be_own(it))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_permitted_by_default_and_scripts_imply_files() {
        assert_eq!(Permissions::default(), Permissions::NONE);
        assert!(!Permissions::NONE.files() && !Permissions::NONE.scripts());
        assert!(Permissions::FILES.files() && !Permissions::FILES.scripts());
        assert_eq!(Permissions::new(false, true), Permissions::ALL);
        assert!(Permissions::ALL.forwarding() && !Permissions::FILES.forwarding());
        let permitted = Permissions::NONE.with_forwarding(true);
        assert!(permitted.forwarding() && !permitted.files() && !permitted.scripts());
    }

    #[test]
    fn a_password_belongs_to_the_tunnel_of_its_name_unless_it_is_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let own = || own_passwords(&at("office.toml"));
        assert_eq!(own(), [at("office.password"), at("office.pw")]);
        std::os::unix::fs::symlink("/etc/shadow", at("office.pw")).unwrap();
        assert_eq!(own(), [at("office.password")]);
        assert_eq!(own_passwords(&at("office.pw")), [at("office.password")]);
    }

    #[test]
    fn the_monitors_password_is_no_tunnels_own() {
        for path in ["/etc/millrace/monitor.toml", "a/monitor.ovpn", "monitor"] {
            assert_eq!(own_passwords(Path::new(path)), [""; 0].map(PathBuf::from));
        }
        assert_eq!(own_passwords(Path::new("monitors.toml")).len(), 2);
    }

    #[test]
    fn only_pppds_own_directory_permits_files_by_its_place() {
        for path in ["/etc/passwd", "/etc/pppd", "office", "/etc/ppp/none"] {
            let permissions = Permissions::NONE.with_place(Path::new(path));
            assert_eq!(permissions, Permissions::NONE, "{path}");
        }
    }
}
