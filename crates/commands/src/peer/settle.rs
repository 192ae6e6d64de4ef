//! New files of WireGuard clients that are in use: the client's own section gets the key of the new file, and the second
//! section ends.
//!
//! The running server has made the change already, at the client's first use of the new file. Each command reads the
//! server's file as if it had been changed, and those that change it write that.

use config::clients::{self, Section};
use service::status::Status;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use zeroize::Zeroizing;

/// The text of a server's file, with the new keys that clients use by now instead of their old ones.
pub(super) fn settled(path: &Path, text: Zeroizing<String>) -> Zeroizing<String> {
    let sections = clients::sections(&text);
    if sections.iter().all(|it| it.replaces.is_none()) {
        return text;
    }
    match super::live(path, false) {
        Ok(status) => with(&text, &sections, &status),
        Err(_) => text,
    }
}

fn with(text: &str, sections: &[Section], status: &Status) -> Zeroizing<String> {
    let peers = status.peers.iter();
    let in_use = peers.filter(|it| it.latest_handshake_age.is_some());
    let in_use: HashSet<&str> = in_use.map(|it| &*it.public_key).collect();
    let (new, old): (Vec<_>, Vec<_>) = sections.iter().partition(|it| it.replaces.is_some());
    let mut old: HashMap<&str, &Section> =
        old.into_iter().map(|it| (&*it.public_key, it)).collect();
    let mut settled = Vec::new();
    for new in new {
        let before = new.replaces.as_deref().and_then(|key| old.remove(key));
        let Some(before) = before.filter(|_| in_use.contains(&*new.public_key)) else {
            continue;
        };
        let shared = new.setting(text, "PresharedKey");
        let shared = shared.map(|key| ("PresharedKey", key));
        let record = new.file.as_deref().map(|record| ("File", record));
        let values: Vec<_> = [("PublicKey", &*new.public_key)]
            .into_iter()
            .chain(shared)
            .chain(record)
            .collect();
        settled.push((before, new, before.text_with(text, &values)));
    }
    let changes = settled
        .iter()
        .flat_map(|(before, new, text)| [(*before, Some(text.as_str())), (*new, None)]);
    clients::changed(text, &changes.collect::<Vec<_>>())
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
            (status(&["A=", "B="], &["C=", "D="]), text.clone()),
            (status(&["C="], &["B=", "D="]), seven(OFFICE) + EIGHT),
            (status(&["D="], &[]), eight(OFFICE) + SEVEN),
            (status(&["C=", "D="], &[]), seven(&eight(OFFICE))),
        ] {
            assert_eq!(*settled(&status), wanted);
        }
        // By hand: two for one, and one for none.
        let twice = format!(
            "{text}{}{}",
            SEVEN.replace("C=", "E="),
            EIGHT.replace("= B=", "= X=")
        );
        let all = status(&["C=", "D=", "E="], &[]);
        let settled = with(&twice, &clients::sections(&twice), &all);
        assert!(settled.starts_with(&seven(&eight(OFFICE))), "{}", *settled);
        assert_eq!(clients::sections(&settled).len(), 4);
    }
}
