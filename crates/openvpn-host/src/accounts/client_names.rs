//! The names that the owner of a server gives clients, where they differ from those in the certificates.
//!
//! `millrace peer` keeps them in the file `clients`, beside the directory `revoked` that `crl-verify` names: a line for each
//! certificate, with its serial number, the name in it and the client's name.

use config::openvpn::{Crl, OpenVpn};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};

/// Largest list that is read, in bytes.
const LIST_MAX: u64 = 4 << 20;

/// The names of clients whose certificates have other names.
#[derive(Debug, Default)]
pub struct ClientNames(BTreeMap<Box<str>, Box<str>>);

impl ClientNames {
    /// Reads the list of a server. Most servers have none; then clients have the names in their certificates.
    ///
    /// # Errors
    /// The list exists and cannot be read, with its path: after the start the process may have no privileges.
    pub fn read(config: &OpenVpn) -> Result<Self, String> {
        let Some(Crl::Directory(revoked)) = &config.tls.crl else {
            return Ok(Self::default());
        };
        let revoked = config.path(revoked);
        if !revoked.ends_with("revoked") {
            return Ok(Self::default());
        }
        let path = revoked.with_file_name("clients");
        let mut text = String::new();
        let read = File::open(&path).and_then(|it| it.take(LIST_MAX).read_to_string(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
            Ok(_) => Ok(Self::parse(&text)),
        }
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?.into(), words.next()?.into()))
        });
        // The last line of a name in certificates counts: earlier ones are of revoked certificates.
        let mut names: BTreeMap<Box<str>, Box<str>> = lines.collect();
        names.retain(|certificate, name| certificate != name);
        Self(names)
    }

    /// The name of a client that is called `common_name`, if its certificate has that name and the owner another one.
    /// `certified` is the name in the certificate; `common_name` may be a user name.
    #[must_use]
    pub fn of(&self, certified: Option<&str>, common_name: &str) -> Option<&str> {
        let is_certified = certified == Some(common_name);
        self.0
            .get(common_name)
            .filter(|_| is_certified)
            .map(|it| &**it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_called_as_their_owner_calls_them() {
        let names = ClientNames::parse(
            "01 store-7 store-7\n02 store-7-2 store-7 replaces=01 note=a b\n03 old old-shop\n04 old old\n05 x\n\n",
        );
        for (common_name, name) in [
            ("store-7-2", Some("store-7")),
            ("store-7", None),
            ("old", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(
                names.of(Some(common_name), common_name),
                name,
                "{common_name}"
            );
            assert_eq!(names.of(Some("tablet"), common_name), None, "{common_name}");
            assert_eq!(names.of(None, common_name), None, "{common_name}");
        }
    }
}
