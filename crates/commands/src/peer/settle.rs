//! New files of WireGuard clients that are in use: the client's own section gets the key of the new file, and the
//! sections of that file and of earlier ones end.
//!
//! The running server has made the change already, at the client's first use of the new file. Each command reads the
//! server's file as if it had been changed. `peer list`, and the commands that change the file, write that.

use super::chain::Chains;
use config::clients::{self, Section};
use service::status::Status;
use std::collections::HashSet;
use std::path::Path;
use zeroize::Zeroizing;

/// The chains of a file's sections.
pub(super) fn chains(sections: &[Section]) -> Chains {
    let keys = sections.iter();
    Chains::of(keys.map(|it| (&*it.public_key, it.replaces.as_deref())))
}

/// The text of a server's file with the new keys that clients use by now, without their old ones; `None` if that is the
/// text of the file.
pub(super) fn settled(path: &Path, text: &str) -> Option<Zeroizing<String>> {
    let sections = clients::sections(text);
    if sections.iter().all(|it| it.replaces.is_none()) {
        return None;
    }
    with(text, &sections, &super::live(path, false).ok()?)
}

/// The text by this status of the server; `None` if it stays.
pub(super) fn with(text: &str, sections: &[Section], status: &Status) -> Option<Zeroizing<String>> {
    let peers = status.peers.iter();
    let in_use = peers.filter(|it| it.latest_handshake_age.is_some());
    let in_use: HashSet<&str> = in_use.map(|it| &*it.public_key).collect();
    let chains = chains(sections);
    let mut changes: Vec<(&Section, Option<Zeroizing<String>>)> = Vec::new();
    for client in chains.clients() {
        let mut newest = client[1..].iter().rev();
        let Some(&used) = newest.find(|it| in_use.contains(&*sections[**it].public_key)) else {
            continue;
        };
        let (own, new) = (&sections[client[0]], &sections[used]);
        let shared = new.setting(text, "PresharedKey");
        let shared = shared.map(|key| ("PresharedKey", key));
        let record = new.file.as_deref().map(|record| ("File", record));
        let policy = new.setting(text, "PostQuantum");
        let policy = policy.map(|it| ("PostQuantum", it));
        let values: Vec<_> = [("PublicKey", &*new.public_key)]
            .into_iter()
            .chain(shared)
            .chain(record)
            .chain(policy)
            .collect();
        changes.push((own, Some(own.text_with(text, &values))));
        let gone: HashSet<usize> = chains.before(used).chain([used]).collect();
        for at in &client[1..] {
            let section = &sections[*at];
            let is_of_gone = || {
                chains
                    .before(*at)
                    .next()
                    .is_some_and(|it| gone.contains(&it))
            };
            if gone.contains(at) {
                changes.push((section, None));
            } else if is_of_gone() && section.replaces.as_ref() != Some(&new.public_key) {
                let values = [("Replaces", &*new.public_key)];
                changes.push((section, Some(section.text_with(text, &values))));
            }
        }
    }
    let changes = changes
        .iter()
        .map(|(section, new)| (*section, new.as_ref().map(|it| it.as_str())));
    let changes: Vec<_> = changes.collect();
    (!changes.is_empty()).then(|| clients::changed(text, &changes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use service::status::PeerStatus;

    fn status(in_use: &[&str], others: &[&str]) -> Status {
        let peer = |key: &&str, age| PeerStatus {
            public_key: (*key).to_owned(),
            latest_handshake_age: age,
            ..PeerStatus::default()
        };
        let used = in_use.iter().map(|it| peer(it, Some(500)));
        let others = others.iter().map(|it| peer(it, None));
        Status {
            peers: used.chain(others).collect(),
            ..Status::default()
        }
    }

    const OFFICE: &str = "[Interface]\nPrivateKey = k\n\n[Peer] # the first\n#! Name = store-7\n#! Note = Ms Long\n\
        #! File = 1 lan\nPublicKey = A=\nPresharedKey = PA= # x\nAllowedIPs = 10.7.0.2/32, 192.168.7.0/24\n\
        # above the second\n[Peer]\n#! Name = store-8\nPublicKey = B=\nAllowedIPs = 10.7.0.3/32\n";
    const SEVEN: &str = "\n[Peer]\n#! Name = store-7\n#! Replaces = A=\n#! File = 2 lan\nPublicKey = C=\n\
        PresharedKey = PC=\n";
    const EIGHT: &str = "\n[Peer]\n#! Name = store-8\n#! Replaces = B=\n#! File = 3 lan\nPublicKey = D=\n\
        PresharedKey = PD=\n";

    #[test]
    fn keys_in_use_take_the_place_of_the_old_ones() {
        let text = format!("{OFFICE}{SEVEN}{EIGHT}");
        let settled = |status: &Status| with(&text, &clients::sections(&text), status);
        assert_eq!(settled(&status(&["A=", "B="], &["C=", "D="])), None);
        let seven = |text: &str| {
            text.replace("File = 1", "File = 2")
                .replace("PublicKey = A=", "PublicKey = C=")
                .replace("PresharedKey = PA=", "PresharedKey = PC=")
        };
        let eight = |text: &str| {
            let new =
                "[Peer]\n#! File = 3 lan\nPresharedKey = PD=\n#! Name = store-8\nPublicKey = D=";
            text.replace("[Peer]\n#! Name = store-8\nPublicKey = B=", new)
        };
        for (status, wanted) in [
            (status(&["C="], &["B=", "D="]), seven(OFFICE) + EIGHT),
            (status(&["D="], &[]), eight(OFFICE) + SEVEN),
            (status(&["C=", "D="], &[]), seven(&eight(OFFICE))),
        ] {
            assert_eq!(*settled(&status).unwrap(), wanted);
        }
    }

    #[test]
    fn the_latest_key_in_use_ends_all_earlier_ones() {
        // Three files, of which each replaces the one before.
        let section = |key: &str, replaced: &str| {
            format!(
                "\n[Peer]\n#! Name = store-7\n#! Replaces = {replaced}\n#! File = {key}\nPublicKey = {key}\n\
                 PresharedKey = P{key}\n"
            )
        };
        let [c, d, e] =
            [("C=", "A="), ("D=", "C="), ("E=", "D=")].map(|(key, it)| section(key, it));
        let own = |key: &str| {
            OFFICE
                .replace("File = 1 lan", &format!("File = {key}"))
                .replace("PublicKey = A=", &format!("PublicKey = {key}"))
                .replace("PresharedKey = PA=", &format!("PresharedKey = P{key}"))
        };
        let text = format!("{OFFICE}{c}{d}{e}");
        for (used, left) in [
            ("C=", format!("{}{d}{e}", own("C="))),
            ("D=", format!("{}{e}", own("D="))),
            ("E=", own("E=")),
        ] {
            let settled = with(&text, &clients::sections(&text), &status(&[used], &[]));
            assert_eq!(*settled.unwrap(), left);
        }
        // By hand: two for one. The unused one replaces the key in use.
        let text = format!("{OFFICE}{c}{}", section("D=", "A="));
        let settled = |used: &str| with(&text, &clients::sections(&text), &status(&[used], &[]));
        assert_eq!(*settled("C=").unwrap(), format!("{}{d}", own("C=")));
        let other = section("C=", "D=");
        assert_eq!(*settled("D=").unwrap(), format!("{}{other}", own("D=")));
        // By hand: keys that replace none.
        for (key, replaced) in [("C=", "X="), ("C=", "C=")] {
            let text = format!("{OFFICE}{}", section(key, replaced));
            let settled = with(&text, &clients::sections(&text), &status(&["C="], &[]));
            assert_eq!(settled, None, "{replaced}");
        }
    }
}
