//! Files that are too long.

use super::*;

/// Peers, made by hand, each with a network behind it.
fn crowd(count: usize) -> String {
    let peer = |number: usize| {
        let [high, low] = [number / 256, number % 256];
        format!(
            "\n[Peer]\nPublicKey = {number:010}{:A<33}=\nAllowedIPs = 10.7.1{high}.{low}/32, 172.{high}.{low}.0/24\n",
            ""
        )
    };
    (0..count).map(peer).collect()
}

#[test]
fn a_file_that_would_be_too_long_is_refused_before_anything_is_written() {
    let office = Office::new();
    office.add("store-7", &["192.168.7.0/24"], true).unwrap();
    let (server, to) = (office.path(), office.directory.path().join("files"));
    let few = office.text();
    let terms = |lan_only| Terms {
        lan_only,
        endpoint: None,
    };
    let give = |lan_only: bool| {
        let new = [new("store-8", &[])];
        add(
            &server,
            &terms(lan_only),
            &new,
            &directory(&to, &server, "file"),
        )
    };
    let again = || {
        let command = issue::command(clap::Command::new("reissue"));
        let words = ["reissue", "--to", "x", "store-7"];
        let chosen = Chosen::of(&command.try_get_matches_from(words).unwrap());
        reissue(&server, &chosen, &directory(&to, &server, "file"))
    };
    let refused = |result: Result<(), PeerError>, words: &str, text: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(files(&to).is_empty());
        assert!(office.text() == text, "the server's file has changed");
    };
    // One line has all networks.
    let many = few.clone() + &crowd(4500);
    fs::write(&server, &many).unwrap();
    refused(give(true), "too many for the file", &many);
    refused(again().map(drop), "too many for the file", &many);
    give(false).unwrap();
    fs::remove_dir_all(&to).unwrap();
    // The server's file is at its limit.
    let rest = (4 << 20) - few.len() - 100;
    let long = format!("# {}\n{few}", "-".repeat(60))
        + &format!("# {}\n", "-".repeat(1000)).repeat(rest / 1003);
    let long = long + &"#\n".repeat((4 << 20) / 2);
    let long = &long[..(4 << 20) - 100];
    fs::write(&server, long).unwrap();
    refused(give(true), "it would have", long);
    refused(again().map(drop), "it would have", long);
}

#[test]
fn a_file_that_is_too_long_for_a_camera_is_written_as_a_file() {
    let office = Office::new();
    fs::write(office.path(), office.text() + &crowd(100)).unwrap();
    let (server, to) = (office.path(), office.directory.path().join("codes"));
    let codes = directory(&to, &server, "qr");
    let phone = [new("phone", &[])];
    add(&server, &Terms::default(), &phone, &codes).unwrap();
    assert_eq!(
        (files(&to), codes.uncoded()),
        (vec!["phone.txt".to_owned()], vec![])
    );
    let terms = Terms {
        lan_only: true,
        endpoint: None,
    };
    let codes = directory(&to, &server, "qr");
    add(&server, &terms, &[new("store-7", &[])], &codes).unwrap();
    assert_eq!(files(&to), ["phone.txt", "store-7.conf"]);
    assert_eq!(codes.uncoded(), ["store-7"]);
    // A single code has no directory for a file beside it.
    let shown = RefCell::default();
    let wanted = Wanted {
        name: "store-8",
        terms,
        file: None,
        qr: true,
        #[cfg(feature = "amnezia")]
        link: false,
        behind: Vec::new(),
        note: Some("to the left".to_owned()),
        keepalive: Some(20),
        shown: &shown,
    };
    let before = office.text();
    let refused = crate::peer::add(&server, &wanted).unwrap_err().to_string();
    assert!(refused.contains("--file OUT"), "{refused}");
    assert_eq!(office.text(), before);
    let file = to.join("store-8.conf");
    let both = Wanted {
        file: Some(&file),
        ..wanted
    };
    crate::peer::add(&server, &both).unwrap();
    assert!(shown.borrow().is_empty() && file.is_file());
    let section = office.text().split("[Peer]").last().unwrap().to_owned();
    assert!(section.starts_with("\n#! Name = store-8\n#! Note = to the left\n"));
    assert!(
        section.ends_with("/128\nPersistentKeepalive = 20\n"),
        "{section}"
    );
}
