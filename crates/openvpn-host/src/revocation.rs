//! `crl-verify`: a revocation list that may change while the program runs, or a directory.

use crate::setup;
use config::openvpn::{Crl, OpenVpn, Source};
use openvpn::tls::TlsSettings;
use openvpn::verify::RevokedSerials;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directory of `crl-verify DIRECTORY dir`: a file named by a certificate's decimal serial number revokes it.
#[derive(Debug)]
pub(crate) struct RevokedDirectory(PathBuf);

impl RevokedDirectory {
    /// # Errors
    /// The directory is missing or unreadable, so revocation cannot be checked.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        // A name that is not a serial number, to probe the directory.
        match Self::has(&path, "-") {
            Ok(_) => Ok(Self(path)),
            Err(error) => Err(error),
        }
    }

    /// Whether the directory has an entry of this name; an error if that cannot be determined.
    fn has(directory: &Path, name: &str) -> io::Result<bool> {
        match fs::symlink_metadata(directory.join(name)) {
            Ok(_) => Ok(true),
            // The directory itself may be missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::metadata(directory.join(".")).map(|_| false)
            }
            Err(error) => Err(error),
        }
    }
}

impl RevokedSerials for RevokedDirectory {
    fn contains(&self, serial: &str) -> Result<bool, String> {
        Self::has(&self.0, serial).map_err(|error| {
            format!(
                "crl-verify: {}: cannot be looked into for {serial} ({error}); make the directory \
                 readable for the user that this runs as",
                self.0.display()
            )
        })
    }
}

/// A file's modification time (seconds, nanoseconds), length and inode.
type Stamp = (i64, i64, u64, u64);

/// State of the `crl-verify FILE` list when it was last read.
#[derive(Debug, Default)]
pub struct RevocationFile {
    /// Path of the list; `None` without `crl-verify`, or for an inline list.
    path: Option<PathBuf>,
    read: Option<Stamp>,
    /// The log already says that the list is unreadable.
    told: bool,
}

impl RevocationFile {
    /// Watches the configured list for changes. The start reads the list itself, with the other files.
    pub fn new(config: &OpenVpn) -> Self {
        let path = match &config.tls.crl {
            Some(Crl::List(Source::File(path))) => Some(config.path(path)),
            _ => None,
        };
        let read = path.as_deref().and_then(|path| stamp(path).ok());
        Self {
            path,
            read,
            told: false,
        }
    }

    /// Reads the list again if it changed. An unreadable list changes nothing and is logged once.
    pub fn refresh(&mut self, config: &OpenVpn, tls: &TlsSettings) {
        let Some(path) = &self.path else { return };
        let changed = match stamp(path) {
            Ok(stamp) if self.read == Some(stamp) => {
                self.told = false;
                return;
            }
            Ok(stamp) => setup::crl(config)
                .map(|list| (stamp, list))
                .map_err(|error| error.to_string()),
            Err(error) => Err(format!("crl-verify: {}: {error}", path.display())),
        };
        match changed {
            Ok((stamp, list)) => {
                self.read = Some(stamp);
                self.told = false;
                match list.map(|list| tls.replace_crl(&list)) {
                    Some(Err(error)) => log::warn!("{error}; the earlier list is used"),
                    _ => log::info!("crl-verify: the list was read anew"),
                }
            }
            Err(error) if !self.told => {
                self.told = true;
                log::warn!("{error}; the earlier list is used");
            }
            Err(_) => {}
        }
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let data = fs::metadata(path)?;
    Ok((data.mtime(), data.mtime_nsec(), data.len(), data.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "server")]
    use crate::tests::server;
    use crate::tests::{certificate, client};
    #[cfg(feature = "server")]
    use openvpn::tls::TlsSession;
    #[cfg(feature = "server")]
    use openvpn::verify::PeerCertificate;

    #[test]
    fn only_what_is_surely_not_there_is_not_revoked() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("revoked");
        assert!(RevokedDirectory::open(path.clone()).is_err());
        fs::write(&path, "").unwrap();
        assert!(RevokedDirectory::open(path.clone()).is_err());
        fs::remove_file(&path).unwrap();

        fs::create_dir(&path).unwrap();
        let directory = RevokedDirectory::open(path.clone()).unwrap();
        fs::write(path.join("12"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", path.join("13")).unwrap();
        fs::create_dir(path.join("14")).unwrap();
        for serial in ["12", "13", "14"] {
            assert_eq!(directory.contains(serial), Ok(true), "{serial}");
        }
        for serial in ["1", "2", "-12", "0"] {
            assert_eq!(directory.contains(serial), Ok(false), "{serial}");
        }
        // The directory vanished while the program ran; the name is too long for any file system.
        assert!(directory.contains(&"1".repeat(300)).is_err());
        fs::remove_dir_all(&path).unwrap();
        let refused = directory.contains("12").unwrap_err();
        assert!(refused.contains("crl-verify"), "{refused}");
        assert!(directory.contains("1").is_err());
    }

    #[cfg(feature = "server")]
    /// Carries the bytes of a handshake, and returns the client that the server has verified.
    fn seen_by_server(server: &TlsSettings, client: &TlsSettings) -> PeerCertificate {
        let mut server = TlsSession::new(server).unwrap();
        let mut client = TlsSession::new(client).unwrap();
        loop {
            let (to_server, to_client) = (client.take_tls(), server.take_tls());
            if to_server.is_empty() && to_client.is_empty() {
                return server.peer().unwrap().clone();
            }
            server.read_tls(&to_server).unwrap();
            client.read_tls(&to_client).unwrap();
        }
    }

    #[cfg(feature = "server")]
    #[test]
    fn a_list_that_is_replaced_counts_and_one_that_cannot_be_read_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("crl.pem");
        let next = directory.path().join("next");
        // Under another name first: a list must never be read half.
        let replace = |bytes: &[u8]| {
            fs::write(&next, bytes).unwrap();
            fs::rename(&next, &list).unwrap();
        };
        let file = |name| fs::read(certificate(name)).unwrap();
        let empty = file("odd/crl-cross-y.pem");
        replace(&empty);
        let config = server(&format!("crl-verify {}", list.display()));
        let tls = setup::tls_settings(&config, None).unwrap();
        let [cert, key] = ["odd/revoked.crt", "p256/server.key"].map(certificate);
        let caller = client(&format!("cert {}\nkey {}", cert.display(), key.display()));
        let peer = seen_by_server(&tls, &setup::tls_settings(&caller, None).unwrap());

        let mut watched = RevocationFile::new(&config);
        let mut is_revoked = || {
            watched.refresh(&config, &tls);
            tls.is_revoked(&peer)
        };
        assert!(!is_revoked());
        replace(&file("odd/crl.pem"));
        assert!(is_revoked());
        replace(b"half a list");
        assert!(is_revoked());
        replace(b"");
        assert!(is_revoked());
        fs::remove_file(&list).unwrap();
        assert!(is_revoked() && is_revoked());
        replace(&empty);
        assert!(!is_revoked());
    }

    #[test]
    fn an_inline_list_never_changes() {
        let text = fs::read_to_string(certificate("odd/crl.pem")).unwrap();
        let config = client(&format!(
            "auth-user-pass\n<crl-verify>\n{text}</crl-verify>"
        ));
        assert_eq!(RevocationFile::new(&config).path, None);
    }
}
