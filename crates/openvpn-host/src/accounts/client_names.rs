//! The names that the owner of a server gives clients, where they differ from those in the certificates.
//!
//! `millrace peer` keeps them in the file `clients`, beside the directory `revoked` that `crl-verify` names: a line for each
//! certificate, with its serial number, the name in it and the client's name.

use config::openvpn::{Crl, OpenVpn};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;

/// Largest list that is read, in bytes.
const LIST_MAX: u64 = 4 << 20;

/// The names of clients whose certificates have other names.
#[derive(Debug, Default)]
pub struct ClientNames(BTreeMap<Box<str>, Box<str>>);

impl ClientNames {
    /// Reads the list of a server. Most servers have none; then clients have the names in their certificates.
    pub fn read(config: &OpenVpn) -> Self {
        let Some(Crl::Directory(revoked)) = &config.tls.crl else {
            return Self::default();
        };
        let revoked = config.path(revoked);
        let mut text = String::new();
        let file = File::open(revoked.with_file_name("clients"));
        match file.map(|it| it.take(LIST_MAX).read_to_string(&mut text)) {
            Ok(Ok(_)) if revoked.ends_with("revoked") => Self::parse(&text),
            _ => Self::default(),
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

    /// The client's name, if its certificate has this other one.
    #[must_use]
    pub fn of(&self, common_name: &str) -> Option<&str> {
        self.0.get(common_name).map(|it| &**it)
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
            assert_eq!(names.of(common_name), name, "{common_name}");
        }
    }
}
