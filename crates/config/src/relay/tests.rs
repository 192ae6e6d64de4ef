use super::*;
use crate::kind::Kind;

const A: &str = "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=";
const B: &str = "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=";

fn refused(text: &str) -> Vec<String> {
    let import = parse(text, "r");
    let report = &import.report;
    let all = report.with(Verdict::Refused);
    let all: Vec<String> = all.map(|it| report.describe(it)).collect();
    assert_eq!(import.is_usable(), all.is_empty());
    all
}

#[test]
fn a_file_is_read() {
    let text = format!(
        "# a relay\n[relay]\nListen = 51821 # a port\ntarget = vpn.example.com:51820\n[Client]\nName = branch\nKey = {A}\n\
         Rate = 50M\n[Client]\nName = home\nKey = {B}\nPackets = 7\n"
    );
    let model = parse(&text, "r").into_model().unwrap();
    let listen = Listen {
        address: None,
        port: 51821,
    };
    assert_eq!(model.listen, listen);
    assert_eq!(model.target.to_string(), "vpn.example.com:51820");
    let rates: Vec<_> = model
        .clients
        .iter()
        .map(|it| (it.rate, it.packets))
        .collect();
    assert_eq!(rates, [(50_000_000, 25_000), (RATE_DEFAULT, 7)]);
    assert_eq!(model.clients[0].name, "branch");
    assert_eq!(model.clients[1].key, Key32::new([b'b'; 32]));
    assert!(!format!("{model:?}").contains("98, 98"), "{model:?}");
}

#[test]
fn a_relay_listens_on_a_port_or_on_an_address() {
    let at = |text: &str| listen(text).map(|it| (it.address, it.port));
    assert_eq!(at("5"), Ok((None, 5)));
    assert_eq!(at("0.0.0.0:5"), Ok((None, 5)));
    assert_eq!(at("192.0.2.1:5"), Ok((Some([192, 0, 2, 1].into()), 5)));
    assert_eq!(at("[2001:db8::1]:5").unwrap().1, 5);
    for text in [
        "",
        "0",
        "65536",
        "-1",
        "+1",
        "name:5",
        "192.0.2.1",
        "192.0.2.1:0",
        "2001:db8::1:5",
    ] {
        assert!(at(text).is_err(), "{text}");
    }
}

#[test]
fn faults_have_their_lines_and_say_nothing_of_keys() {
    let relay = "[Relay]\nListen = 5\nTarget = 192.0.2.1:5\n";
    let client = format!("[Client]\nName = a\nKey = {A}\n");
    assert_eq!(refused(&format!("{relay}{client}")), [""; 0]);
    for (text, place, words) in [
        (client.clone(), "r", "no [Relay]"),
        (relay.to_owned(), "r", "no [Client]"),
        (format!("[Relay]\n{client}"), "r:1: Listen", "is missing"),
        (format!("[Relay]\n{client}"), "r:1: Target", "is missing"),
        (format!("{relay}{relay}{client}"), "r:4", "a second [Relay]"),
        (
            format!("{relay}Listen = 6\n{client}"),
            "r:4: Listen",
            "twice",
        ),
        (
            format!("{relay}Port = 6\n{client}"),
            "r:4: Port",
            "known are",
        ),
        (format!("{relay}words\n{client}"), "r:4", "Key = Value"),
        (
            format!("{relay}[Clients]\n{client}"),
            "r:4",
            "did you mean `[Client]`?",
        ),
        (format!("a = b\n{relay}{client}"), "r:1: a", "before any"),
        (
            format!("{relay}{client}[Client]\nName = a\nKey = {B}\n"),
            "r:7: Name",
            "line 4",
        ),
        (
            format!("{relay}{client}[Client]\nName = b\nKey = {A}\n"),
            "r:7: Key",
            "line 4",
        ),
        (
            format!("{relay}[Client]\nKey = {A}\n"),
            "r:4: Name",
            "is missing",
        ),
        (
            format!("{relay}[Client]\nName = a\n"),
            "r:4: Key",
            "is missing",
        ),
        (format!("{relay}{client}Key = {A}A\n"), "r:7: Key", "45"),
        (
            format!("{relay}{client}Rate = fast\n"),
            "r:7: Rate",
            "bits a second",
        ),
        (
            format!("{relay}{client}Packets = 0\n"),
            "r:7: Packets",
            "datagrams",
        ),
        (
            format!("{relay}{client}[Client]\nName = a b\nKey = {B}\n"),
            "r:8: Name",
            "letters",
        ),
        (
            relay.replace("1:5", "1") + &client,
            "r:3: Target",
            "HOST:PORT",
        ),
    ] {
        let faults = refused(&text);
        let found = |it: &String| it.starts_with(&format!("{place}: ")) && it.contains(words);
        assert!(faults.iter().any(found), "{text}: {faults:?}");
        assert!(!faults.iter().any(|it| it.contains("YWFhYW")), "{faults:?}");
    }
    // The report names the key once, and does not also call it missing.
    let wrong = format!("{relay}[Client]\nName = a\nKey = abc\n");
    assert_eq!(refused(&wrong).len(), 1, "{:?}", refused(&wrong));
}

#[test]
fn there_are_no_more_clients_than_sockets() {
    let clients: String = (0..=CLIENTS_MAX)
        .map(|at| {
            let mut key = [1; 32];
            key[..8].copy_from_slice(&(at as u64).to_le_bytes());
            let key = Key32::new(key).to_base64();
            format!("[Client]\nName = c{at}\nKey = {}\n", key.as_str())
        })
        .collect();
    let faults = refused(&format!(
        "[Relay]\nListen = 5\nTarget = 192.0.2.1:5\n{clients}"
    ));
    assert!(
        faults.len() == 1 && faults[0].contains("more than 256"),
        "{faults:?}"
    );
}

#[test]
fn relays_are_known_by_their_first_head() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.conf");
    for (text, is) in [
        ("# [Interface]\n [relay] # here\n", true),
        ("\u{feff}[Client]\n", true),
        ("[Interface]\n[Relay]\n", false),
        ("client\nremote a\n", false),
        ("", false),
    ] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(Kind::at(&path) == Kind::Relay, is, "{text}");
    }
    assert!(read(&directory.path().join("none")).is_err());
}
