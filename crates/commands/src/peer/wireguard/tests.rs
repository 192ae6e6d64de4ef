//! Servers made in a directory, changed by the functions behind the commands.

#[cfg(feature = "amnezia")]
mod amneziawg;
mod long;

use super::*;
use crate::peer::{Directory, Wanted, issue};
use std::cell::RefCell;
use std::fs;

/// A server with the branches that `add` made: their names, their networks, and whether they are `lan_only`.
struct Office {
    directory: tempfile::TempDir,
}

impl Office {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let office = Self { directory };
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = 10.7.0.1/24, fd00:7::1/64\nListenPort = 7\n\
             #! [Server]\n#! Endpoint = office.example:7\n#! LAN = 192.168.1.0/24\n#! DNS = 192.168.1.1\n",
            *keys::new().to_base64()
        );
        fs::write(office.path(), text).unwrap();
        office
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("office.conf")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    fn add(&self, name: &str, networks: &[&str], lan_only: bool) -> Result<String, PeerError> {
        let shown = RefCell::default();
        let wanted = Wanted {
            name,
            terms: Terms {
                lan_only,
                endpoint: None,
            },
            file: None,
            qr: false,
            #[cfg(feature = "amnezia")]
            link: false,
            behind: networks.iter().map(|it| it.parse().unwrap()).collect(),
            note: None,
            keepalive: None,
            shown: &shown,
        };
        let new = New {
            name,
            behind: &wanted.behind,
            note: None,
            keepalive: None,
        };
        // The networks of the host that runs the test do not count.
        crate::peer::add_all(&self.path(), &wanted.terms, &[new], &wanted)?;
        let line = |it: &&str| it.starts_with("AllowedIPs = ");
        let shown = shown.borrow();
        Ok(shown.lines().find(line).unwrap()[13..].to_owned())
    }

    /// The name, networks and file of each client.
    fn list(&self) -> Vec<String> {
        let row = |row: Row| format!("{} {} {}", row.name, row.behind.join(","), row.file);
        list(&self.path(), false)
            .unwrap()
            .into_iter()
            .map(row)
            .collect()
    }

    fn set(&self, name: &str, networks: &[&str]) -> Result<(), PeerError> {
        let networks: Vec<AllowedIp> = networks.iter().map(|it| it.parse().unwrap()).collect();
        set(&self.path(), name, &Change::behind(networks))
    }
}

#[test]
fn files_name_the_networks_of_others_and_the_list_tells_which_do_not() {
    let office = Office::new();
    let tunnel = "10.7.0.0/24, fd00:7::/64, 192.168.1.0/24";
    let seven = ["192.168.7.0/24", "fd00:77::/64"];
    assert_eq!(office.add("store-7", &seven, true).unwrap(), tunnel);
    let text = office.text();
    assert!(
        text.ends_with("\nAllowedIPs = 10.7.0.2/32, fd00:7::2/128, 192.168.7.0/24, fd00:77::/64\n"),
        "{text}"
    );
    #[cfg(feature = "postquantum")]
    assert!(
        text.contains("\n#! PostQuantum = prefer\nPublicKey = "),
        "{text}"
    );
    let ranges = office.add("store-8", &["192.168.8.0/24"], true).unwrap();
    assert_eq!(ranges, format!("{tunnel}, 192.168.7.0/24, fd00:77::/64"));
    assert_eq!(office.add("phone", &[], false).unwrap(), "0.0.0.0/0, ::/0");
    let rows = [
        "store-7 192.168.7.0/24,fd00:77::/64 outdated",
        "store-8 192.168.8.0/24 current",
        "phone  current",
    ];
    assert_eq!(office.list(), rows);
    // Its own networks are not in its file.
    office.set("store-8", &[]).unwrap();
    assert_eq!(office.list()[0], rows[0].replace("outdated", "current"));
    assert_eq!(office.list()[1], "store-8  current");
    office.set("store-7", &["192.168.9.0/24"]).unwrap();
    assert_eq!(office.list()[1..], ["store-8  outdated", "phone  current"]);
    office.set("store-7", &seven).unwrap();
    assert_eq!(office.list()[1], "store-8  current");

    let refused = office
        .add("store-9", &["192.168.0.0/17"], true)
        .unwrap_err();
    let words = refused.to_string();
    assert!(
        words.contains("overlaps 192.168.7.0/24, behind store-7"),
        "{words}"
    );
    let refused = office.set("phone", &["fd00:77::/80"]).unwrap_err();
    assert!(refused.to_string().contains("behind store-7"), "{refused}");
    office.set("store-7", &["192.168.7.0/25"]).unwrap();
    office.set("phone", &["192.168.7.128/25"]).unwrap();

    // By hand: another endpoint, and a client without a record.
    let text = office.text().replace("office.example", "198.51.100.1");
    let key = keys::public_of(&keys::new()).to_base64();
    let text = format!(
        "{text}\n[Peer]\nPublicKey = {key}\nAllowedIPs = 10.7.0.77/32, 10.9.0.0/16\n",
        key = *key
    );
    fs::write(office.path(), &text).unwrap();
    let states: Vec<&str> = list(&office.path(), false)
        .unwrap()
        .iter()
        .map(|it| it.file)
        .collect();
    assert_eq!(
        states,
        [
            file::OUTDATED,
            file::OUTDATED,
            file::OUTDATED,
            file::UNKNOWN
        ]
    );
    assert_eq!(office.list()[3], "- 10.9.0.0/16 unknown");
    rename(&office.path(), "store-8", "store-88").unwrap();
    revoke(&office.path(), "store-7").unwrap();
    revoke(&office.path(), "phone").unwrap();
    revoke(&office.path(), "store-88").unwrap();
    let left = text.split("\n[Peer]").next().unwrap();
    let last = text.rsplit("\n[Peer]").next().unwrap();
    assert_eq!(office.text(), format!("{left}\n[Peer]{last}"));
}

/// A directory for files, which remembers nothing.
fn directory<'a>(to: &'a Path, server: &'a Path, format: &str) -> Directory<'a> {
    let command = clap::Command::new("x").args(crate::peer::options());
    let words = ["x", "--to", to.to_str().unwrap(), "--format", format];
    let matches = command.get_matches_from(words);
    Directory::of(Box::leak(Box::new(matches)), server)
}

fn new<'a>(name: &'a str, behind: &'a [AllowedIp]) -> New<'a> {
    New {
        name,
        behind,
        note: None,
        keepalive: None,
    }
}

fn files(at: &Path) -> Vec<String> {
    let names = fs::read_dir(at).into_iter().flatten();
    let mut names: Vec<String> = names
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn many_are_added_at_once_or_none() {
    let office = Office::new();
    office.add("store-1", &["192.168.11.0/24"], true).unwrap();
    let (server, to) = (office.path(), office.directory.path().join("files"));
    let behind: Vec<[AllowedIp; 1]> = (12..32)
        .map(|it| [format!("192.168.{it}.0/24").parse().unwrap()])
        .collect();
    let names: Vec<String> = (12..32).map(|it| format!("store-{it}")).collect();
    let mut clients: Vec<New<'_>> = names
        .iter()
        .zip(&behind)
        .map(|(name, behind)| new(name, behind))
        .collect();
    clients[0].note = Some("Ms Long: +1 555 0100 # call first");
    let terms = Terms {
        lan_only: true,
        endpoint: None,
    };
    // Taken by a client, by another new one, and a name that is taken.
    let wrong = [
        new("a", &behind[3]),
        new("b", &behind[3]),
        new("store-1", &[]),
        new("store-12", &[]),
    ];
    let both = [&clients[..], &wrong].concat();
    let before = office.text();
    let refused = add(&server, &terms, &both, &directory(&to, &server, "file"));
    let Err(PeerError::Several(faults)) = refused else {
        panic!("{refused:?}");
    };
    let faults: Vec<String> = faults
        .iter()
        .map(|(it, why)| format!("{it} {why}"))
        .collect();
    assert!(
        faults[0].starts_with("20 --behind 192.168.15.0/24: overlaps"),
        "{faults:?}"
    );
    assert!(faults[0].contains("behind store-15"), "{faults:?}");
    assert_eq!(faults.len(), 4);
    assert_eq!((office.text(), files(&to).len()), (before, 0));

    add(&server, &terms, &clients, &directory(&to, &server, "file")).unwrap();
    assert_eq!(files(&to).len(), 20);
    let rows = list(&server, false).unwrap();
    assert_eq!(rows[1].note.as_deref(), clients[0].note);
    let states: Vec<&str> = rows.iter().map(|it| it.file).collect();
    assert_eq!(states[0], file::OUTDATED);
    assert!(
        states[1..].iter().all(|it| *it == file::CURRENT),
        "{states:?}"
    );
    let mut own: Vec<String> = rows.iter().map(|it| it.detail.clone()).collect();
    own.iter_mut()
        .for_each(|it| *it = it.split("  ").nth(1).unwrap().to_owned());
    own.sort();
    own.dedup();
    assert_eq!(own.len(), 21);
    let text = fs::read_to_string(to.join("store-12.conf")).unwrap();
    for network in [11, 13, 31] {
        assert!(text.contains(&format!("192.168.{network}.0/24")), "{text}");
    }
    assert!(!text.contains("192.168.12.0/24"), "{text}");

    // Nothing is overwritten.
    let before = office.text();
    fs::write(to.join("store-41.conf"), "mine").unwrap();
    let clash = [new("store-40", &[]), new("store-41", &[])];
    for make in [crate::peer::add_all, add] {
        let refused = make(&server, &terms, &clash, &directory(&to, &server, "file"));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("store-41.conf: "), "{refused}");
        assert_eq!((office.text(), files(&to).len()), (before.clone(), 21));
    }
}

#[test]
fn a_new_file_waits_until_it_is_used() {
    let office = Office::new();
    let seven = ["192.168.7.0/24"];
    office.add("store-7", &seven, true).unwrap();
    office.add("phone", &[], false).unwrap();
    let before = office.text();
    let server = office.path();
    let at = |name: &str| office.directory.path().join(name);
    let give = |which: &[&str], to: &str| {
        let command = issue::command(clap::Command::new("reissue"));
        let to = at(to);
        let words = [&["reissue", "--to", to.to_str().unwrap()], which].concat();
        let matches = command.try_get_matches_from(words).unwrap();
        let directory = Directory::of(&matches, &server);
        reissue(&server, &Chosen::of(&matches), &directory)
    };
    assert_eq!(give(&["--outdated"], "none").unwrap(), [""; 0]);
    assert_eq!(
        (files(&at("none")).len(), office.text()),
        (0, before.clone())
    );
    assert!(matches!(
        give(&["store-9"], "none"),
        Err(PeerError::Absent(_))
    ));

    office.add("store-8", &["192.168.8.0/24"], true).unwrap();
    let moved = office.text().replace("office.example", "new.example");
    fs::write(&server, moved).unwrap();
    assert_eq!(office.list()[0], "store-7 192.168.7.0/24 outdated");
    give(&["--outdated"], "first").unwrap();
    assert_eq!(
        files(&at("first")),
        ["phone.conf", "store-7.conf", "store-8.conf"]
    );
    let text = fs::read_to_string(at("first/store-7.conf")).unwrap();
    assert!(text.contains("Endpoint = new.example:7\n"), "{text}");
    assert!(
        text.contains("Address = 10.7.0.2/32, fd00:7::2/128\n"),
        "{text}"
    );
    assert!(
        text.contains(", 192.168.8.0/24\n") && !text.contains("192.168.7.0"),
        "{text}"
    );
    let rows = [
        "store-7 192.168.7.0/24 pending",
        "phone  pending",
        "store-8 192.168.8.0/24 pending",
    ];
    assert_eq!(office.list(), rows);
    // Programs read the file with both keys.
    let sections = clients::sections(&office.text());
    assert_eq!(sections.len(), 6);
    assert_eq!(sections[3].replaces.as_ref(), Some(&sections[0].public_key));
    let tunnel = File::read(&server).unwrap().tunnel;
    let replaced = tunnel.peers[3].replaces.as_ref().unwrap();
    assert_eq!(**replaced, tunnel.peers[0].public_key);
    assert!(tunnel.peers[3].allowed_ips.is_empty());

    // Another new file replaces the one before, which stays good.
    give(&["phone", "store-7", "phone"], "second").unwrap();
    assert_eq!(files(&at("second")), ["phone.conf", "store-7.conf"]);
    let now = clients::sections(&office.text());
    assert_eq!(now[..6], sections);
    assert_eq!(now[6].replaces.as_ref(), Some(&sections[4].public_key));
    assert_eq!(now[7].replaces.as_ref(), Some(&sections[3].public_key));
    assert_eq!(office.list(), rows);
    // The new file is outdated, too.
    office.set("store-8", &[]).unwrap();
    assert_eq!(office.list()[0], "store-7 192.168.7.0/24 outdated");
    office.set("store-8", &["192.168.8.0/24"]).unwrap();
    rename(&server, "store-7", "berlin").unwrap();
    assert_eq!(office.list()[0], "berlin 192.168.7.0/24 pending");
    for name in ["berlin", "phone", "store-8"] {
        revoke(&server, name).unwrap();
    }
    let head = before.split("\n[Peer]").next().unwrap();
    assert_eq!(office.text(), head.replace("office.example", "new.example"));
}

/// A client has used its first new file, which the server does not know any more when the next one is made: the server was
/// down, or has begun anew.
#[test]
fn a_new_file_that_is_used_stays_good_when_another_is_made() {
    let office = Office::new();
    office.add("store-7", &["192.168.7.0/24"], true).unwrap();
    office.add("phone", &[], true).unwrap();
    let (server, begun) = (office.path(), office.text());
    let chosen = |words: &[&str]| {
        let command = issue::command(clap::Command::new("reissue"));
        let words = [&["reissue", "--to", "x"], words].concat();
        Chosen::of(&command.try_get_matches_from(words).unwrap())
    };
    let give = |number: usize, words: &[&str]| {
        let to = office.directory.path().join(number.to_string());
        let left = reissue(&server, &chosen(words), &directory(&to, &server, "file"));
        left.map(|_| files(&to))
    };
    for number in 1..=4 {
        assert_eq!(give(number, &["store-7"]).unwrap(), ["store-7.conf"]);
    }
    let full = office.text();
    let keys = |text: &str| -> Vec<String> {
        let sections = clients::sections(text).into_iter();
        sections.map(|it| it.public_key).collect()
    };
    // Sections of the client, of the phone, and of the new files.
    let all = keys(&full);
    // A fifth file ends the first of the unused ones, whichever option selects the client.
    for (number, words) in [(5, &["phone", "store-7"][..]), (6, &["--all"])] {
        let made = give(number, words).unwrap();
        assert_eq!(made, ["phone.conf", "store-7.conf"]);
        let text = office.text();
        let sections = clients::sections(&text);
        let own: Vec<_> = sections
            .iter()
            .filter(|it| it.name.as_deref() == Some("store-7"))
            .collect();
        let known: Vec<&str> = own.iter().map(|it| &*it.public_key).collect();
        assert_eq!(known[..4], [&all[0], &all[3], &all[4], &all[5]]);
        // Each replaces the one before.
        let replaced = own.iter().map(|it| it.replaces.as_deref());
        let wanted = [None].into_iter().chain(known.into_iter().map(Some));
        assert!(replaced.eq(wanted.take(5)), "{text}");
        assert!(text.starts_with(&begun[..begun.len() / 2]), "{text}");
        fs::write(&server, &full).unwrap();
    }
    for number in 1..=4 {
        let in_files = fs::read_to_string(
            office
                .directory
                .path()
                .join(format!("{number}/store-7.conf")),
        );
        let private = in_files.unwrap();
        let private = private
            .lines()
            .find_map(|it| it.strip_prefix("PrivateKey = "));
        let private = config::types::Key32::from_base64(private.unwrap()).unwrap();
        assert_eq!(*keys::public_of(&private).to_base64(), all[number + 1]);
        // The client comes back with this file.
        let peer = service::status::PeerStatus {
            public_key: all[number + 1].clone(),
            latest_handshake_age: Some(1),
            ..service::status::PeerStatus::default()
        };
        let status = service::status::Status {
            peers: vec![peer],
            ..service::status::Status::default()
        };
        let settled = settle::with(&full, &clients::sections(&full), &status).unwrap();
        fs::write(&server, &*settled).unwrap();
        let left = [
            &all[number + 1..=number + 1],
            &all[1..2],
            &all[number + 2..],
        ]
        .concat();
        assert_eq!(keys(&settled), left);
        let state = if number == 4 { "current" } else { "pending" };
        assert_eq!(
            office.list(),
            [
                format!("store-7 192.168.7.0/24 {state}"),
                "phone  current".to_owned()
            ]
        );
        give(10 + number, &["store-7"]).unwrap();
        assert_eq!(keys(&office.text()).len(), left.len() + 1);
    }
    fs::write(&server, &full).unwrap();
    for key in [&all[0], &all[3]] {
        revoke(&server, key).unwrap();
        let (_, phone) = begun
            .split_once("[Peer]")
            .unwrap()
            .1
            .split_once("[Peer]")
            .unwrap();
        assert!(office.text().ends_with(phone), "{}", office.text());
        assert_eq!(office.list(), ["phone  outdated"]);
        fs::write(&server, &full).unwrap();
    }
}

#[test]
fn a_key_that_replaces_none_is_a_client_of_its_own() {
    let office = Office::new();
    office.add("store-7", &["192.168.7.0/24"], true).unwrap();
    let begun = office.text();
    let own = clients::sections(&begun)[0].public_key.clone();
    let [one, two, absent] =
        [(); 3].map(|()| keys::public_of(&keys::new()).to_base64().to_string());
    let section = |key: &str, replaced: &str| {
        format!("\n[Peer]\n#! Name = store-7\n#! Replaces = {replaced}\nPublicKey = {key}\n")
    };
    let row = "store-7 192.168.7.0/24 current";
    let (unknown, other) = ("store-7 192.168.7.0/24 unknown", "store-7  unknown");
    // The other keys and those that they replace, the list, and what is left when the client is revoked.
    for ([first, second], rows, left) in [
        ([(&one, &own), (&two, &own)], &[unknown][..], 0),
        ([(&one, &own), (&two, &one)], &[unknown], 0),
        ([(&one, &two), (&two, &own)], &[unknown], 0),
        ([(&one, &absent), (&two, &absent)], &[row, other, other], 2),
        ([(&one, &one), (&two, &own)], &[unknown, other], 1),
        ([(&one, &two), (&two, &one)], &[row, other], 2),
    ] {
        let text = begun.clone() + &section(first.0, first.1) + &section(second.0, second.1);
        fs::write(office.path(), &text).unwrap();
        assert_eq!(office.list(), rows);
        rename(&office.path(), "store-7", "berlin").unwrap();
        let named = office.text().matches("#! Name = berlin").count();
        assert_eq!(named, 3 - left, "{}", office.text());
        revoke(&office.path(), "berlin").unwrap();
        assert_eq!(clients::sections(&office.text()).len(), left);
        // Each of the others is revoked by its key.
        for key in [&one, &two] {
            let _ = revoke(&office.path(), key);
        }
        assert!(clients::sections(&office.text()).is_empty());
    }
}

#[test]
fn clients_whose_files_are_unknown_are_left_out() {
    let office = Office::new();
    office.add("store-7", &[], true).unwrap();
    let known = office.text();
    let record = known.lines().find(|it| it.starts_with("#! File")).unwrap();
    fs::write(office.path(), known.replace(record, "# none")).unwrap();
    let chosen = |words: &[&str]| {
        let command = issue::command(clap::Command::new("reissue"));
        let words = [&["reissue", "--to", "x"], words].concat();
        Chosen::of(&command.try_get_matches_from(words).unwrap())
    };
    let (server, to) = (office.path(), office.directory.path().join("files"));
    let give = |words: &[&str]| reissue(&server, &chosen(words), &directory(&to, &server, "qr"));
    assert_eq!(give(&["--all"]).unwrap(), ["store-7"]);
    let refused = give(&["store-7"]).unwrap_err().to_string();
    assert!(refused.contains("--lan-only or --full-tunnel"), "{refused}");
    assert!(files(&to).is_empty());
    give(&["store-7", "--lan-only"]).unwrap();
    assert_eq!(files(&to), ["store-7.txt"]);
    assert_eq!(office.list(), ["store-7  pending"]);
}

#[test]
fn a_file_with_another_key_of_the_server_or_without_ipv6_is_outdated() {
    let office = Office::new();
    office.add("store-7", &[], true).unwrap();
    office.add("phone", &[], false).unwrap();
    let text = office.text();
    let states = |text: &str| {
        fs::write(office.path(), text).unwrap();
        office.list()
    };
    assert_eq!(states(&text), ["store-7  current", "phone  current"]);
    let key = File::read(&office.path()).unwrap().tunnel.interface;
    let key = key.private_key.unwrap().to_base64();
    let other = text.replace(&**key, &keys::new().to_base64());
    assert_eq!(states(&other), ["store-7  outdated", "phone  outdated"]);
    // The phone keeps its addresses, and its file would not name all of IPv6.
    let four = text.replace("10.7.0.1/24, fd00:7::1/64", "10.7.0.1/24");
    let phone = states(&four).pop();
    assert_eq!(phone.as_deref(), Some("phone  outdated"));
    // An earlier version's record does not tell.
    let record = text.lines().find(|it| it.starts_with("#! File")).unwrap();
    let earlier = text.replace(record, "#! File = 1a2b3c4d lan");
    assert_eq!(states(&earlier)[0], "store-7  unknown");
}

#[test]
fn clients_that_can_get_no_file_are_told_of() {
    let office = Office::new();
    office.add("store-7", &["192.168.7.0/24"], true).unwrap();
    let (server, to) = (office.path(), office.directory.path().join("files"));
    let give = |words: &[&str]| {
        let command = issue::command(clap::Command::new("reissue"));
        let words = [&["reissue", "--to", "x"], words].concat();
        let chosen = Chosen::of(&command.try_get_matches_from(words).unwrap());
        reissue(&server, &chosen, &directory(&to, &server, "file"))
    };
    let text = office.text();
    let own = "AllowedIPs = 10.7.0.2/32, fd00:7::2/128, ";
    fs::write(&server, text.replace(own, "AllowedIPs = ")).unwrap();
    assert_eq!(office.list(), ["store-7 192.168.7.0/24 unknown"]);
    for words in [&["--all"][..], &["--outdated"]] {
        assert_eq!(give(words).unwrap(), ["store-7"]);
    }
    let refused = give(&["store-7"]).unwrap_err().to_string();
    assert!(refused.contains("no address of its own"), "{refused}");
    assert!(files(&to).is_empty());
    // Without a name there is no name for the file.
    fs::write(&server, text.replace("#! Name = store-7\n", "")).unwrap();
    assert_eq!(give(&["--all"]).unwrap(), [""; 0]);
    assert!(files(&to).is_empty());
}

#[test]
fn notes_propose_commands_for_this_server() {
    let office = Office::new();
    office.add("store-7", &[], true).unwrap();
    assert_eq!(crate::peer::outdated(&office.path()), None);
    office.add("store-8", &["192.168.8.0/24"], true).unwrap();
    let note = crate::peer::outdated(&office.path()).unwrap();
    let server = format!("--server {}`", office.path().display());
    assert!(note.contains("--outdated --to DIRECTORY "), "{note}");
    assert_eq!(note.matches(&server).count(), 2, "{note}");
    let text = office.text();
    let records = text.lines().filter(|it| it.starts_with("#! File"));
    let unknown = records.fold(text.clone(), |text, it| text.replace(it, "#"));
    fs::write(office.path(), unknown).unwrap();
    let note = crate::peer::outdated(&office.path()).unwrap();
    assert!(!note.contains("--outdated"), "{note}");
    assert!(note.contains("peer reissue NAME --lan-only"), "{note}");
}

#[test]
fn a_client_keeps_its_own_address_if_the_server_names_no_network_of_it() {
    let office = Office::new();
    let key = keys::public_of(&keys::new()).to_base64();
    for (server, own) in [
        ("10.7.0.1/32", "10.7.0.2/32"),
        ("10.7.0.1/24", "10.7.0.2/32, fd00::2/128"),
    ] {
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = {server}\n\n[Peer]\n#! Name = phone\nPublicKey = {}\n\
             AllowedIPs = {own}\n",
            *keys::new().to_base64(),
            *key
        );
        fs::write(office.path(), &text).unwrap();
        office.set("phone", &["192.168.7.0/24"]).unwrap();
        let with = text.replace(own, &format!("{own}, 192.168.7.0/24"));
        assert_eq!(office.text(), with);
        assert_eq!(office.list(), ["phone 192.168.7.0/24 unknown"]);
        let refused = office.set("phone", &["fd00:9::9/128"]).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("a single address"), "{refused}");
        office.set("phone", &[]).unwrap();
        assert_eq!(office.text(), text);
    }
    // The client has an IPv4 address in the tunnel, so this one is of a host behind it.
    office.set("phone", &["192.168.7.7/32"]).unwrap();
    assert_eq!(office.list(), ["phone 192.168.7.7/32 unknown"]);
}

#[test]
fn a_note_and_keepalive_packets_come_and_go() {
    let office = Office::new();
    office.add("store-7", &["192.168.7.0/24"], true).unwrap();
    office.add("store-8", &[], true).unwrap();
    let before = office.text();
    let set = |change: &Change| set(&office.path(), "store-7", change).unwrap();
    set(&Change {
        note: Some(Some("Ms Long = 7 # x".to_owned())),
        keepalive: Some(25),
        ..Change::default()
    });
    let row = &list(&office.path(), false).unwrap()[0];
    assert_eq!(row.note.as_deref(), Some("Ms Long = 7 # x"));
    assert_eq!(row.behind, ["192.168.7.0/24"]);
    let keepalive = |text: &str| {
        let tunnel = wgquick::parse(text, "x", config::permissions::Permissions::ALL);
        let peers = tunnel.into_tunnel().unwrap().0.peers;
        peers
            .iter()
            .map(|it| it.persistent_keepalive)
            .collect::<Vec<_>>()
    };
    assert_eq!(keepalive(&office.text()), [Some(25), None]);
    set(&Change {
        keepalive: Some(10),
        ..Change::default()
    });
    assert_eq!(keepalive(&office.text()), [Some(10), None]);
    set(&Change {
        note: Some(None),
        keepalive: Some(0),
        ..Change::default()
    });
    assert_eq!(office.text(), before);
}

#[test]
fn clients_files_have_the_keepalive_of_the_server_s_file() {
    let office = Office::new();
    for (line, wanted, is_outdated) in [
        ("", "\nPersistentKeepalive = 25\n", false),
        ("#! Keepalive = 25\n", "\nPersistentKeepalive = 25\n", false),
        ("#! Keepalive = 7\n", "\nPersistentKeepalive = 7\n", true),
        ("#! Keepalive = off\n", "", true),
    ] {
        let text = office.text();
        let head = text.find("#! [Server]\n").unwrap() + "#! [Server]\n".len();
        fs::write(
            office.path(),
            format!("{}{line}{}", &text[..head], &text[head..]),
        )
        .unwrap();
        let name = format!("store-{}", wanted.len() + line.len());
        let shown = RefCell::default();
        let wanted_client = Wanted {
            name: &name,
            terms: Terms {
                lan_only: false,
                endpoint: None,
            },
            file: None,
            qr: false,
            #[cfg(feature = "amnezia")]
            link: false,
            behind: Vec::new(),
            note: None,
            keepalive: None,
            shown: &shown,
        };
        crate::peer::add(&office.path(), &wanted_client).unwrap();
        let file = shown.borrow().to_string();
        assert!(file.ends_with(wanted), "{file}");
        assert_eq!(file.contains("PersistentKeepalive"), !wanted.is_empty());
        // The first client's file is without the line.
        let rows = office.list();
        assert_eq!(
            rows[0].ends_with("outdated"),
            is_outdated,
            "{line}: {rows:?}"
        );
        assert!(rows.last().unwrap().ends_with("current"), "{rows:?}");
        fs::write(office.path(), office.text().replacen(line, "", 1)).unwrap();
    }
}
