//! Who is connected: names beside keys in status and log, and `millrace peer list`.

use super::office::Office;
use super::*;
use lab::acceptance::{status_of, until_some};
use serde_json::Value;

impl Office {
    /// Runs `millrace peer list` with these options; returns its output and its notes.
    fn who_at_once(&self, options: &[&str]) -> (String, String) {
        let words = [&["peer", "list", "--server", &self.server], options].concat();
        let command = self.place.home.command(PROGRAM).args(words);
        let exit = command.exit().unwrap();
        assert!(exit.status.success(), "{exit:?}");
        (exit.stdout, exit.stderr)
    }

    /// Runs `peer list` until the server is not too busy to answer.
    fn who(&self, options: &[&str]) -> (String, String) {
        until_some("an answer", || {
            let (list, note) = self.who_at_once(options);
            (!note.contains("does not answer")).then_some((list, note))
        })
    }

    /// The row of `peer list --json` for a client.
    fn row(&self, name: &str) -> Value {
        let rows: Value = serde_json::from_str(&self.who(&["--json"]).0).unwrap();
        let mut rows = rows.as_array().unwrap().iter();
        let found = rows.find(|row| row["name"] == name);
        found.unwrap_or_else(|| panic!("no row of {name}")).clone()
    }

    /// The row of a client, once the client is connected.
    fn row_of_one_in(&self, name: &str) -> Value {
        until_some(name, || {
            Some(self.row(name)).filter(|row| row["state"] == "up")
        })
    }

    /// Adds a branch with a file; returns the file's path.
    fn add(&self, name: &str, network: &str, ending: &str) -> PathBuf {
        let file = self.place.path(&format!("{name}.{ending}"));
        let words = ["add", name, "--lan-only", "--behind", network, "--file"];
        self.peer(&[&words[..], &[&file.display().to_string()]].concat());
        file
    }
}

/// The lines of the table, without summary and head.
fn table(text: &str) -> Vec<&str> {
    text.lines().skip(2).collect()
}

#[test]
fn a_wireguard_branch_that_is_in_and_one_that_never_was_are_told_apart_by_name() {
    if !ready(&["wg", "wg-quick", "wireguard-go", "nft", "ip"]) {
        return;
    }
    let office = Office::new("wireguard");
    let place = &office.place;
    let seven = office.add("store-7", "192.168.7.0/24", "conf");
    let (list, note) = office.who(&[]);
    assert!(list.starts_with("home: 1 client\n"), "{list}");
    assert!(note.contains("no `millrace up` runs home now"), "{note}");
    assert_eq!(office.row("store-7")["state"], Value::Null);

    let process = place.up(&office.path, "is up");
    // The running server learns this name by a reload.
    office.add("store-8", "192.168.8.0/24", "conf");
    let branch = Quick::up(&place.clients[0], seven);
    reaches(branch.host, IN_LAN);
    let row = office.row_of_one_in("store-7");
    let text = |name: &str| row[name].as_str().unwrap();
    let (key, endpoint) = (text("id"), text("endpoint"));
    let line = format!(
        "peer store-7 ({}\u{2026}; {endpoint}) is connected",
        &key[..8]
    );
    until(&line, || process.stderr().contains(&line));
    assert!(!process.stderr().contains(key), "{}", process.stderr());
    assert!(endpoint.starts_with("192.168.3.2:"), "{row}");
    assert_eq!(text("file"), "outdated");
    assert!(row["rx_bytes"].as_u64() > Some(0), "{row}");
    let never = office.row("store-8");
    assert_eq!(never["state"], "never", "{never}");
    assert!(never["last_heard_age"].is_null(), "{never}");

    let summary = "home: 2 clients: 1 in, 1 was never in; 1 runs an outdated file\n";
    let (list, note) = until_some(summary, || {
        Some(office.who(&[])).filter(|(list, _)| list.starts_with(summary))
    });
    assert!(note.is_empty(), "{note}");
    let rows = table(&list);
    let address = row["addresses"][0].as_str().unwrap();
    let told = |row: &str, words: &[&str]| words.iter().all(|it| row.contains(it));
    let start = format!("store-7  {} ", address.trim_end_matches("/32"));
    assert!(told(rows[0], &[&start, " in, heard "]), "{list}");
    let words = ["store-8", "192.168.8.0/24", "never in"];
    assert!(told(rows[1], &words), "{list}");
    for (options, names) in [
        (&["--down"][..], &["store-8"][..]),
        (&["--up"], &["store-7"]),
        (&["--outdated"], &["store-7"]),
        (&["--name", "*-7", "--name", "x"], &["store-7"]),
        (&["--down", "--name", "*-7"], &[]),
        (&["--rates", "--all"], &["store-7", "store-8"]),
    ] {
        let (list, _) = office.who(options);
        let rows = table(&list);
        let first = rows.iter().filter_map(|row| row.split(' ').next());
        assert!(first.eq(names.iter().copied()), "{options:?}: {list}");
    }
    let (csv, _) = office.who(&["--csv", "--down"]);
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert!(
        lines[0].starts_with("name,addresses,behind,state,"),
        "{csv}"
    );
    assert!(lines[1].starts_with("store-8,10."), "{csv}");
    assert_eq!(lines.len(), 3);

    office.peer(&["rename", "store-7", "berlin"]);
    until("the new name", || {
        let status = status_of(&place.home, "home");
        let peers = status["peers"].as_array().unwrap();
        peers.iter().any(|it| it["name"] == "berlin")
    });
    office.row_of_one_in("berlin");

    // A server that hangs hides no client.
    process.signal(Signal::SIGSTOP).unwrap();
    let (list, note) = office.who_at_once(&[]);
    let (down, _) = office.who_at_once(&["--down", "--json"]);
    process.signal(Signal::SIGCONT).unwrap();
    assert!(list.starts_with("home: 2 clients; 1 runs an"), "{list}");
    assert!(note.contains("home does not answer"), "{note}");
    let rows: Value = serde_json::from_str(&down).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2, "{down}");
    assert!(rows[0]["state"].is_null(), "{down}");
    drop(branch);
    place.down(&office.path, process);
}

#[test]
fn an_openvpn_branch_that_is_in_is_listed_by_its_name_with_its_version() {
    if !ready(&["openvpn", "nft", "ip"]) {
        return;
    }
    let office = Office::new("openvpn");
    let place = &office.place;
    let process = place.up(&office.path, "Initialization Sequence Completed");
    let seven = office.add("store-7", "192.168.7.0/24", "ovpn");
    office.add("store-8", "192.168.8.0/24", "ovpn");
    let mut branch = openvpn(&place.clients[0], &seven);
    is_in(&mut branch);
    reaches(&place.clients[0], IN_LAN);
    office.peer(&["rename", "store-7", "berlin"]);
    let row = office.row_of_one_in("berlin");
    assert!(row["version"].as_str().unwrap().starts_with("2."), "{row}");
    assert!(row["connected_unix"].is_number(), "{row}");
    let addresses = row["addresses"].as_array().unwrap();
    assert!(
        !addresses.is_empty() && !addresses.contains(&"192.168.7.0/24".into()),
        "{row}"
    );
    assert_eq!(office.row("store-8")["state"], "down");
    office.peer(&["revoke", "store-8"]);
    let (list, note) = office.who(&[]);
    assert!(
        list.starts_with("home: 1 client: 1 in; 1 revoked\n"),
        "{list}"
    );
    assert!(table(&list)[0].contains(" in for "), "{list}");
    assert!(note.is_empty(), "{note}");
    drop(branch);
    place.down(&office.path, process);
}

/// The log and the status have a client's name, whatever its certificate has.
#[test]
fn the_log_of_an_openvpn_server_has_who_comes_leaves_and_is_refused() {
    if !ready(&["openvpn", "nft", "ip"]) {
        return;
    }
    let office = Office::new("openvpn");
    let place = &office.place;
    office.add("store-7", "192.168.7.0/24", "ovpn");
    let new = place.path("new");
    fs::create_dir(&new).unwrap();
    office.peer(&["reissue", "store-7", "--to", &new.display().to_string()]);
    let log = place.path("log");
    let log_at = log.display().to_string();
    place.millrace(&["up", &office.server, "--daemon", "--log", &log_at]);
    let is_logged = |words: &str| {
        let logged = || fs::read_to_string(&log).unwrap_or_default();
        until(&format!("{words} in {}", logged()), || {
            logged().contains(words)
        });
    };
    let new = new.join("store-7.ovpn");
    let mut branch = openvpn(&place.clients[0], &new);
    is_in(&mut branch);
    is_logged("info: store-7/192.168.3.2:");
    is_logged(": MULTI: primary virtual IP for store-7/192.168.3.2:");
    until("store-7", || {
        let list = office.who(&["--up", "--json"]).0;
        list.contains("\"name\":\"store-7\"")
    });
    let peer = &status_of(&place.home, "home")["peers"][0];
    assert_eq!(peer["name"], "store-7", "{peer}");
    assert_eq!(peer["certificate_name"], "store-7-2", "{peer}");
    branch.stop().unwrap();
    is_logged(": the peer exited");
    let mut branch = openvpn(&place.clients[0], &new);
    is_in(&mut branch);
    // The running server learns the name.
    office.peer(&["rename", "store-7", "berlin"]);
    until("the new name", || {
        status_of(&place.home, "home")["peers"][0]["name"] == "berlin"
    });
    office.peer(&["revoke", "berlin"]);
    is_logged("info: berlin/192.168.3.2:");
    is_logged(": session ended: its certificate is revoked");
    branch.stop().unwrap();
    let again = openvpn(&place.clients[0], &new);
    is_logged("it is revoked (crl-verify)");
    drop(again);
    place.millrace(&["down", &office.server]);
}
