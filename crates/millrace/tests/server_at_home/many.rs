//! An office with many branches: a table adds them while others download, and new files for all of them are taken over
//! one branch at a time.

use super::office::{Office, READY, behind};
use super::*;

impl Office {
    /// The state of a client's file in `peer list`.
    fn state(&self, name: &str) -> String {
        let list = self.list();
        let mut lines = list.lines();
        let line = lines.find(|it| it.starts_with(&format!("{name:?} ")));
        line.unwrap().rsplit('"').nth(1).unwrap().to_owned()
    }

    /// A table of branches, each with a network behind it.
    fn table(&self, numbers: std::ops::RangeInclusive<u8>) -> String {
        let path = self.place.path("branches.csv");
        let row =
            |it: u8| format!("store-{it},192.168.{it}.0/24 fd00:{it}::/64,\"No. {it}, north\"\n");
        let rows: String = numbers.map(row).collect();
        fs::write(&path, format!("name,networks,note\n{rows}")).unwrap();
        path.display().to_string()
    }

    /// Runs `millrace server set endpoint`, and has new files written.
    fn moves(&self, to: &str, files: &str) -> String {
        let (server, files) = (self.path.display().to_string(), self.place.path(files));
        let words = ["server", "set", "endpoint", to, "--server", &server, "--to"];
        let command = self.place.home.command(PROGRAM).args(words).arg(files);
        let exit = command.exit().unwrap();
        let notes = exit.stderr.clone();
        exit.success().unwrap();
        notes
    }
}

#[test]
fn a_table_of_wireguard_branches_is_added_and_moved_one_by_one() {
    if !ready(&["wg", "wg-quick", "wireguard-go", "nft", "ip", "tar"]) {
        return;
    }
    let office = Office::new("wireguard");
    let place = &office.place;
    let process = place.up(&office.path, "is up");
    let [phone_at, seven_at, eight_at] = &place.clients[..] else {
        unreachable!()
    };
    let in_seven = behind(seven_at, 7);
    let phone_file = place.path("phone0.conf");
    office.peer(&["add", "phone", "--file", &phone_file.display().to_string()]);
    let phone = Quick::up(phone_at, phone_file);
    let to = place.path("files").display().to_string();
    let table = office.table(6..=25);
    let web = HttpServer::start(&place.world, (ip(OUTSIDE), 0).into()).unwrap();
    let watch = HttpWatch::default();
    thread::scope(|scope| {
        scope.spawn(|| download(phone_at, web.address(), &watch));
        goes_on(&watch);
        let notes = office.peer(&["add", "--from", &table, "--to", &to, "--lan-only"]);
        assert!(
            notes.contains(&format!("clients' files in {to}: 20.")),
            "{notes}"
        );
        office.has_route("192.168.25.0/24", true);
        goes_on(&watch);
        watch.stop();
    });
    let made = fs::metadata(&to).unwrap().permissions().mode();
    assert_eq!(made & 0o777, 0o700);
    let files: Vec<_> = fs::read_dir(&to).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 20);
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let old = place.path("files/store-7.conf");
    let seven = Quick::up(seven_at, old.clone());
    let eight = Quick::up(eight_at, place.path("files/store-8.conf"));
    reaches(&in_seven, IN_LAN);
    pings(seven_at, "fd00:2::1", 1);
    assert_eq!(office.state("store-7"), "current");

    // The office moves to another address. The old files work until the new ones are used.
    let notes = office.moves("fd00:2::1", "moved.tar");
    assert!(notes.contains(": 21."), "{notes}");
    let moved = place.path("moved");
    fs::create_dir(&moved).unwrap();
    let unpack = place
        .home
        .command("tar")
        .arg("-xpf")
        .arg(place.path("moved.tar"));
    unpack
        .arg("-C")
        .arg(&moved)
        .exit()
        .unwrap()
        .success()
        .unwrap();
    let modes = fs::read_dir(&moved)
        .unwrap()
        .map(|it| it.unwrap().metadata().unwrap().permissions().mode());
    assert_eq!(modes.map(|it| it & 0o777).collect::<Vec<_>>(), [0o600; 21]);
    let text = fs::read_to_string(place.path("moved/store-7.conf")).unwrap();
    assert!(text.contains("Endpoint = [fd00:2::1]:51820\n"), "{text}");
    office.reload(&process);
    for name in ["store-7", "store-8", "phone"] {
        assert_eq!(office.state(name), "pending");
    }
    reaches(&in_seven, IN_LAN);
    drop(seven);
    let seven = Quick::up(seven_at, place.path("moved/store-7.conf"));
    reaches(&in_seven, IN_LAN);
    reaches(&place.home, "192.168.7.2");
    let keys = || {
        fs::read_to_string(&office.path)
            .unwrap()
            .matches("#! Replaces = ")
            .count()
    };
    assert_eq!(keys(), 21);
    // The server's file still names both keys of branch 7.
    office.reload(&process);
    pings(&in_seven, IN_LAN, 3);
    // While the server is down, it knows of no use. The branch goes on with the file that it has, and then uses another.
    place.down(&office.path, process);
    let again = place.path("again").display().to_string();
    office.peer(&["reissue", "store-7", "--to", &again]);
    assert_eq!(keys(), 22);
    let process = place.up(&office.path, "is up");
    reaches(&in_seven, IN_LAN);
    assert_eq!(office.state("store-7"), "pending");
    assert_eq!(keys(), 21);
    drop(seven);
    let seven = Quick::up(seven_at, place.path("again/store-7.conf"));
    reaches(&in_seven, IN_LAN);
    assert_eq!(keys(), 21);
    office.reload(&process);
    pings(&in_seven, IN_LAN, 3);
    // The list settles it, once.
    assert_eq!(office.state("store-7"), "current");
    assert_eq!(keys(), 20);
    let settled = fs::metadata(&office.path).unwrap().modified().unwrap();
    assert_eq!(office.state("store-8"), "pending");
    let later = fs::metadata(&office.path).unwrap().modified().unwrap();
    assert_eq!(later, settled);
    office.reload(&process);
    pings(&in_seven, IN_LAN, 3);
    reaches(&place.home, "192.168.7.2");
    reaches(eight_at, IN_LAN);
    assert_eq!(office.state("store-7"), "current");
    drop(seven);
    let seven = Quick::up(seven_at, old);
    no_ping(&in_seven, IN_LAN);
    drop((seven, eight, phone));
    place.down(&office.path, process);
}

#[test]
fn a_table_of_openvpn_branches_is_added_and_moved_one_by_one() {
    if !ready(&["openvpn", "nft", "ip"]) {
        return;
    }
    let office = Office::new("openvpn");
    let place = &office.place;
    let process = place.up(&office.path, READY);
    let said = |text: &str| (process.stdout() + &process.stderr()).contains(text);
    let [seven_at, eight_at, _] = &place.clients[..] else {
        unreachable!()
    };
    let [in_seven, in_eight] = [behind(seven_at, 7), behind(eight_at, 8)];
    let to = place.path("files").display().to_string();
    let table = office.table(7..=9);
    office.peer(&["add", "--from", &table, "--to", &to, "--lan-only"]);
    office.has_route("192.168.9.0/24", true);
    let old = place.path("files/store-7.ovpn");
    let mut seven = openvpn(seven_at, &old);
    is_in(&mut seven);
    let mut eight = openvpn(eight_at, &place.path("files/store-8.ovpn"));
    is_in(&mut eight);
    reaches(&in_seven, "192.168.8.2");

    office.moves("fd00:2::1", "moved");
    for name in ["store-7", "store-8", "store-9"] {
        assert_eq!(office.state(name), "pending");
    }
    let text = fs::read_to_string(place.path("moved/store-7.ovpn")).unwrap();
    let text = text.replace("proto udp\n", "proto udp6\n");
    fs::write(place.path("moved/store-7.ovpn"), text).unwrap();
    pings(&in_seven, "192.168.8.2", 1);
    // The office has not noticed the end of the old session.
    seven.signal(Signal::SIGKILL).unwrap();
    until("the end", || seven.try_wait().unwrap().is_some());
    let mut seven = openvpn(seven_at, &place.path("moved/store-7.ovpn"));
    is_in(&mut seven);
    reaches(&in_seven, "192.168.8.2");
    reaches(&in_eight, "192.168.7.2");
    assert!(!said("its certificate is revoked"));
    // The list revokes the old certificate, whose session ends.
    assert_eq!(office.state("store-8"), "pending");
    let list = office.list();
    assert_eq!(
        list.matches("store-7").count(),
        1,
        "the old certificate is no client: {list}"
    );
    until("the end of the old session", || {
        said("its certificate is revoked")
    });
    pings(&in_seven, "192.168.8.2", 3);
    reaches(&in_eight, "192.168.7.2");
    seven.stop().unwrap();
    let again = openvpn(seven_at, &old);
    until("a refusal", || said("it is revoked (crl-verify)"));
    office.has_route("192.168.7.0/24", true);
    drop((again, eight));
    place.down(&office.path, process);
}
