//! Servers made in a directory, changed by the functions behind the commands.

use super::*;
use crate::peer::{Directory, Wanted};
use service::openvpn::authority::{Authority, Purpose, ServerKey};
use std::cell::RefCell;

/// A server without clients.
struct Office {
    directory: tempfile::TempDir,
}

impl Office {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (authority, own) = Authority::create("office authority").unwrap();
        let server = authority.issue("office server", Purpose::Server).unwrap();
        let office = Self { directory };
        let store = Store::of(&office.path());
        for made in [&store.directory, &store.revoked(), &store.ccd()] {
            fs::create_dir(made).unwrap();
        }
        fs::write(store.key(), &*own.key).unwrap();
        fs::write(store.list(), "").unwrap();
        let text = format!(
            "dev office\ndev-type tun\nproto udp\nserver 10.8.0.0 255.255.255.0\ndh none\n\
             remote-cert-tls client\ncrl-verify \"{}\" dir\nclient-config-dir \"{}\"\n\
             <ca>\n{}</ca>\n<cert>\n{}</cert>\n<key>\n{}</key>\n<tls-crypt-v2>\n{}</tls-crypt-v2>\n",
            store.revoked().display(),
            store.ccd().display(),
            own.certificate,
            server.certificate,
            *server.key,
            *ServerKey::generate().unwrap().to_text()
        );
        fs::write(office.path(), text).unwrap();
        office
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("office.ovpn")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    /// The path of the settings of a client.
    fn ccd(&self, name: &str) -> PathBuf {
        Store::of(&self.path()).ccd().join(name)
    }

    fn add(&self, name: &str, networks: &[&str]) -> Result<(), PeerError> {
        let shown = RefCell::default();
        let wanted = Wanted {
            name,
            terms: Terms {
                lan_only: false,
                endpoint: Some("office.example:1194".parse().unwrap()),
            },
            file: None,
            qr: false,
            #[cfg(feature = "amnezia")]
            link: false,
            behind: networks.iter().map(|it| it.parse().unwrap()).collect(),
            note: Some("a note".to_owned()),
            keepalive: None,
            shown: &shown,
        };
        let new = New {
            name,
            behind: &wanted.behind,
            note: wanted.note.as_deref(),
            keepalive: None,
        };
        crate::peer::add_all(&self.path(), &wanted.terms, &[new], &wanted)
    }

    fn set(&self, name: &str, networks: &[&str]) -> Result<(), PeerError> {
        let networks: Vec<AllowedIp> = networks.iter().map(|it| it.parse().unwrap()).collect();
        set(&self.path(), name, &Change::behind(networks))
    }
}

#[test]
fn an_unreadable_file_of_another_client_stops_no_change() {
    let office = Office::new();
    office.add("other", &["192.168.7.0/24"]).unwrap();
    office.add("victim", &["192.168.8.0/24"]).unwrap();
    fs::write(office.ccd("other"), b"# \xfc\n").unwrap();
    revoke(&office.path(), "victim").unwrap();
    assert!(list(&office.path(), false).unwrap()[1].revoked);
    assert!(!office.text().contains("192.168.8.0"));
    // The routes to the networks in the unreadable file stay.
    assert!(office.text().contains("# behind other"));
    office.add("third", &["192.168.9.0/24"]).unwrap();

    // Nor does a client's own file stop its revocation.
    fs::remove_file(office.ccd("third")).unwrap();
    fs::create_dir(office.ccd("third")).unwrap();
    revoke(&office.path(), "third").unwrap();
    assert!(list(&office.path(), false).unwrap()[2].revoked);
    assert!(office.set("other", &[]).is_err());
}

#[test]
fn a_client_with_networks_keeps_the_settings_of_all() {
    let office = Office::new();
    let default = "push \"route 10.0.0.0 255.0.0.0\"\n";
    fs::write(office.ccd(DEFAULT), default).unwrap();
    office.add("store-7", &["192.168.7.0/24"]).unwrap();
    let text = fs::read_to_string(office.ccd("store-7")).unwrap();
    assert!(
        text.starts_with(&format!("{default}iroute 192.168.7.0 ")),
        "{text}"
    );
    office.set("store-7", &[]).unwrap();
    assert!(!office.ccd("store-7").exists());
    for refused in [
        office.add(DEFAULT, &[]),
        rename(&office.path(), "store-7", DEFAULT),
    ] {
        let words = refused.unwrap_err().to_string();
        assert!(words.starts_with("DEFAULT: "), "{words}");
    }
}

#[test]
fn many_are_added_at_once_or_none_and_get_new_certificates() {
    let office = Office::new();
    let server = office.path();
    let text = fs::read_to_string(&server).unwrap();
    let home = "#! [Server]\n#! Endpoint = office.example:1194\n#! LAN = 192.168.1.0/24\n<ca>";
    fs::write(&server, text.replacen("<ca>", home, 1)).unwrap();
    let before = office.text();
    let at = |name: &str| office.directory.path().join(name);
    let files = |at: &Path| fs::read_dir(at).into_iter().flatten().count();
    let matches = |to: &str, more: &[&str]| {
        let command = crate::peer::issue::command(clap::Command::new("reissue"));
        let to = at(to);
        let words = [&["reissue", "--to", to.to_str().unwrap()], more].concat();
        command.try_get_matches_from(words).unwrap()
    };
    let behind: [AllowedIp; 2] = ["192.168.7.0/24", "192.168.8.0/24"].map(|it| it.parse().unwrap());
    let new = |name, behind| New {
        name,
        behind,
        note: Some("a note"),
        keepalive: None,
    };
    let terms = Terms {
        lan_only: true,
        endpoint: None,
    };
    let first = matches("first", &["x"]);
    let add = |new: &[New<'_>], matches| {
        crate::peer::add_all(&server, &terms, new, &Directory::of(matches, &server))
    };
    let refused = add(&[new("a", &behind[..1]), new("b", &behind[..1])], &first);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("behind a, which is new too;")
    );
    let code = matches("first", &["x", "--format", "qr"]);
    assert!(matches!(
        add(&[new("a", &[])], &code),
        Err(PeerError::OpenVpnCode)
    ));
    let list = || fs::read_to_string(Store::of(&server).list()).unwrap();
    assert_eq!(
        (office.text(), list(), files(&at("first"))),
        (before, String::new(), 0)
    );

    add(
        &[new("store-7", &behind[..1]), new("store-8", &behind[1..])],
        &first,
    )
    .unwrap();
    assert_eq!(files(&at("first")), 2);
    let rows = || {
        let rows = super::list(&server, false)
            .unwrap()
            .into_iter()
            .filter(|it| !it.revoked);
        let row = |it: Row| {
            format!(
                "{} {} {} {:?}",
                it.name,
                it.behind.join(" "),
                it.file,
                it.note
            )
        };
        rows.map(row).collect::<Vec<_>>()
    };
    let row = |name: &str, network: &str, file: &str| {
        format!("{name} 192.168.{network}.0/24 {file} Some(\"a note\")")
    };
    assert_eq!(
        rows(),
        [
            row("store-7", "7", "current"),
            row("store-8", "8", "current")
        ]
    );

    let give = |to: &str, words: &[&str]| {
        let matches = matches(to, words);
        let directory = Directory::of(&matches, &server);
        reissue(&server, &Chosen::of(&matches), &directory).unwrap()
    };
    let moved = office.text().replace("office.example", "new.example");
    fs::write(&server, moved).unwrap();
    assert_eq!(
        rows(),
        [
            row("store-7", "7", "outdated"),
            row("store-8", "8", "outdated")
        ]
    );
    let own = "ifconfig-push 10.8.0.7 255.255.255.0\n";
    let settings = fs::read_to_string(office.ccd("store-7")).unwrap();
    fs::write(office.ccd("store-7"), format!("{own}{settings}")).unwrap();
    let before = office.text();
    give("second", &["--outdated"]);
    let text = fs::read_to_string(at("second/store-7.ovpn")).unwrap();
    assert!(text.contains("remote new.example 1194\n"), "{text}");
    assert_eq!(
        rows(),
        [
            row("store-7", "7", "pending"),
            row("store-8", "8", "pending")
        ]
    );
    let copied = fs::read_to_string(office.ccd("store-7-2")).unwrap();
    assert_eq!(copied, format!("{own}{settings}"));
    assert_eq!(office.text(), before);
    // Another one before the first is used, which stays good.
    give("third", &["store-7"]);
    assert_eq!(
        rows(),
        [
            row("store-7", "7", "pending"),
            row("store-8", "8", "pending")
        ]
    );
    assert_eq!(files(&Store::of(&server).revoked()), 0);
    assert_eq!(office.text(), before);
    // All its certificates have other networks, and then another name, and then none.
    office.set("store-7", &["192.168.9.0/24"]).unwrap();
    assert_eq!(
        office.text().matches("192.168.9.0 255.255.255.0").count(),
        2
    );
    rename(&server, "store-7", "berlin").unwrap();
    assert_eq!(rows()[0], row("berlin", "9", "pending"));
    for name in ["berlin", "store-8"] {
        revoke(&server, name).unwrap();
    }
    assert_eq!(rows(), [""; 0]);
    assert_eq!(
        fs::read_dir(Store::of(&server).revoked()).unwrap().count(),
        5
    );
    assert!(!office.text().contains("# behind"), "{}", office.text());
}

#[test]
fn a_file_with_another_protocol_or_authority_is_outdated() {
    let office = Office::new();
    office.add("phone", &[]).unwrap();
    let state = || list(&office.path(), false).unwrap()[0].file;
    assert_eq!(state(), file::CURRENT);
    let text = office.text();
    fs::write(office.path(), text.replace("proto udp", "proto tcp-server")).unwrap();
    assert_eq!(state(), file::OUTDATED);
    let six = "server-ipv6 fd00:8::/64\nserver 10";
    fs::write(office.path(), text.replace("server 10", six)).unwrap();
    assert_eq!(state(), file::OUTDATED);
    let (_, other) = Authority::create("another authority").unwrap();
    let (before, rest) = text.split_once("<ca>\n").unwrap();
    let (_, after) = rest.split_once("</ca>\n").unwrap();
    let text = format!("{before}<ca>\n{}</ca>\n{after}", other.certificate);
    fs::write(office.path(), text).unwrap();
    assert_eq!(state(), file::OUTDATED);
}

#[test]
fn a_network_of_the_office_may_not_be_that_of_a_branch() {
    let office = Office::new();
    office.add("store-7", &["192.168.7.0/24"]).unwrap();
    for (lan, words) in [
        ("192.168.0.0/16", "192.168.7.0/24, behind store-7"),
        ("10.8.0.0/25", "the tunnel's own addresses"),
    ] {
        let refused = crate::peer::check_lan(&office.path(), &[lan.parse().unwrap()]);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
    crate::peer::check_lan(&office.path(), &["192.168.1.0/24".parse().unwrap()]).unwrap();
    // In the tunnel, the server may be a name server, and no client.
    let text = fs::read_to_string(office.path()).unwrap();
    fs::write(office.path(), format!("topology subnet\n{text}")).unwrap();
    let dns = |it: &str| crate::peer::check_dns(&office.path(), &[it.parse().unwrap()]);
    let refused = dns("10.8.0.9").unwrap_err().to_string();
    assert!(refused.contains("the tunnel's own addresses"), "{refused}");
    dns("10.8.0.1").unwrap();
}

#[test]
fn more_networks_than_the_server_reads_are_refused_before_anything_is_written() {
    let office = Office::new();
    office.add("store-7", &["192.168.7.0/24"]).unwrap();
    let iroute = |it: usize| format!("iroute 172.{}.{}.0 255.255.255.0\n", it / 256, it % 256);
    let many: String = (0..BEHIND_MAX).map(iroute).collect();
    fs::write(office.ccd("store-7"), &many).unwrap();
    let refused = office.add("store-8", &["192.168.8.0/24"]).unwrap_err();
    assert!(refused.to_string().contains("8,000 networks"), "{refused}");
    assert!(!office.text().contains("192.168.8.0"));
    assert!(!office.ccd("store-8").exists());
    // A client without networks comes in, and networks can be taken away.
    office.add("phone", &[]).unwrap();
    office.set("store-7", &[]).unwrap();
    office.set("phone", &["192.168.8.0/24"]).unwrap();
}

#[test]
fn a_new_client_has_no_networks_of_a_revoked_one() {
    let office = Office::new();
    office.add("store-7", &["192.168.7.0/24"]).unwrap();
    let left = fs::read(office.ccd("store-7")).unwrap();
    revoke(&office.path(), "store-7").unwrap();
    fs::write(office.ccd("store-7"), left).unwrap();
    office.add("store-7", &[]).unwrap();
    assert!(!office.ccd("store-7").exists());
    // A file that was there before any client of its name stays.
    let text = "iroute 192.168.8.0 255.255.255.0\n";
    fs::write(office.ccd("store-8"), text).unwrap();
    office.add("store-8", &[]).unwrap();
    assert_eq!(fs::read_to_string(office.ccd("store-8")).unwrap(), text);
}

#[test]
fn a_new_certificate_that_is_used_stays_good_when_another_is_made() {
    let office = Office::new();
    let server = office.path();
    for name in ["store-7", "phone"] {
        office
            .add(name, &["192.168.7.0/24"][..usize::from(name != "phone")])
            .unwrap();
    }
    let to = |number: usize| office.directory.path().join(number.to_string());
    let give = |number: usize, which: &[&str]| {
        let command = crate::peer::issue::command(clap::Command::new("reissue"));
        let to = to(number);
        let words = [&["reissue", "--to", to.to_str().unwrap()], which].concat();
        let matches = command.try_get_matches_from(words).unwrap();
        let directory = Directory::of(&matches, &server);
        reissue(&server, &Chosen::of(&matches), &directory)
    };
    for number in 1..=4 {
        give(number, &["store-7"]).unwrap();
    }
    let settings = office.ccd("store-7-2");
    assert!(settings.exists());
    let revoked = || -> Vec<String> {
        let entries = Server::read(&server).unwrap().entries.into_iter();
        let revoked = entries.filter(|it| it.revoked);
        revoked.map(|it| it.common_name).collect()
    };
    // The server was not asked who is in: no certificate is known to be out of use.
    assert_eq!(revoked(), [""; 0]);
    // The fifth file ends the first of the unused ones.
    give(5, &["--all"]).unwrap();
    assert!(to(5).join("phone.ovpn").exists() && to(5).join("store-7.ovpn").exists());
    assert_eq!(revoked(), ["store-7-2"]);
    assert!(!fs::read_to_string(settings).is_ok_and(|it| it.contains("192.168.7.0")));

    let rows = |server: &Server| -> Vec<String> {
        let rows = server.rows().into_iter();
        let rows = rows.filter(|it| it.name == "store-7");
        let name = |it: &Row| it.common_name.clone().unwrap();
        let state = |it: &Row| [it.file, "revoked"][usize::from(it.revoked)];
        rows.map(|it| format!("{} {} {}", name(&it), state(&it), it.behind.join(",")))
            .collect()
    };
    // The certificate of a session, the row of the client, and the revoked certificates.
    for (name, row, out) in [
        ("none", "store-7 pending", &["store-7-2"][..]),
        ("store-7", "store-7 pending", &["store-7-2"]),
        ("store-7-3", "store-7-3 pending", &["store-7", "store-7-2"]),
        (
            "store-7-6",
            "store-7-6 current",
            &[
                "store-7",
                "store-7-2",
                "store-7-3",
                "store-7-4",
                "store-7-5",
            ],
        ),
    ] {
        let session = |name: &str| service::status::PeerStatus {
            name: Some(name.to_owned()),
            ..service::status::PeerStatus::default()
        };
        let status = Status {
            peers: vec![session(name), session("phone")],
            ..Status::default()
        };
        let mut office = Server::read(&server).unwrap();
        office.replace(&status);
        // Old certificates are no revoked clients, whether the server still admits them or not.
        let row = format!("{row} 192.168.7.0/24");
        assert_eq!(rows(&office), [&*row], "{name}");
        office.settle().unwrap();
        assert_eq!(revoked(), out, "{name}");
        assert_eq!(rows(&office), [&*row], "{name}");
    }
    let routes = office.text().matches("192.168.7.0 255.255.255.0").count();
    assert_eq!(routes, 2);
    assert!(give(7, &["store-7"]).is_ok());
    revoke(&server, "store-7").unwrap();
    assert_eq!(revoked().len(), 7);
    assert_eq!(rows(&Server::read(&server).unwrap()).len(), 1);
}

#[test]
fn only_a_name_without_a_valid_certificate_is_a_revoked_client() {
    let office = Office::new();
    let store = Store::of(&office.path());
    // Renamed after a new certificate; revoked and added again; revoked twice; renamed and revoked.
    let list = "01 a a\n02 a-2 b replaces=01\n03 c c\n04 c c\n05 d d\n06 d d\n07 e e\n08 e-2 f replaces=07\n";
    fs::write(store.list(), list).unwrap();
    for serial in ["01", "03", "05", "06", "07", "08"] {
        fs::write(store.revoked().join(serial), "").unwrap();
    }
    let rows = super::list(&office.path(), false).unwrap().into_iter();
    let rows: Vec<_> = rows
        .map(|it| format!("{} {} {}", it.id, it.name, it.revoked))
        .collect();
    assert_eq!(rows, ["02 b false", "04 c false", "06 d true", "08 f true"]);
}

#[test]
fn a_certificate_that_replaces_no_active_one_is_a_client_of_its_own() {
    let office = Office::new();
    let list = Store::of(&office.path()).list();
    fs::write(
        &list,
        "01 a a\n02 a-2 a replaces=01\n03 b b\n04 b-2 b replaces=04\n05 c c replaces=09\n",
    )
    .unwrap();
    fs::write(Store::of(&office.path()).revoked().join("03"), "").unwrap();
    let rows = super::list(&office.path(), true).unwrap().into_iter();
    let rows: Vec<_> = rows.map(|it| (it.id, it.revoked)).collect();
    let row = |id: &str, revoked| (id.to_owned(), revoked);
    assert_eq!(rows, [row("01", false), row("04", false), row("05", false)]);
}

#[test]
fn a_note_changes_and_a_single_client_has_no_keepalive() {
    let office = Office::new();
    office.add("store-7", &["192.168.7.0/24"]).unwrap();
    office.add("store-8", &[]).unwrap();
    let rows = || {
        let rows = list(&office.path(), false).unwrap().into_iter();
        rows.map(|it| (it.note, it.behind.join(",")))
            .collect::<Vec<_>>()
    };
    let note = |text: &str| Some(text.to_owned());
    let seven = "192.168.7.0/24".to_owned();
    for (new, behind) in [(note("Ms Long = 7"), &seven), (None, &String::new())] {
        let change = Change {
            behind: behind.is_empty().then(Vec::new),
            note: Some(new.clone()),
            ..Change::default()
        };
        set(&office.path(), "store-7", &change).unwrap();
        let eight = (note("a note"), String::new());
        assert_eq!(rows(), [(new, behind.clone()), eight]);
    }
    let before = rows();
    let refused = Change {
        note: Some(note("x")),
        keepalive: Some(25),
        ..Change::default()
    };
    let error = set(&office.path(), "store-7", &refused).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no keepalive for a single client")
    );
    assert_eq!(rows(), before);
}
