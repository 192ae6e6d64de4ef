//! Imports wg-quick files through the public interface: accepted lines, messages about all other lines, and lossless
//! saving.

// Clippy does not treat test helpers as tests.
#![allow(clippy::unwrap_used)]

mod round_trip;

use std::io::Write as _;
use std::path::Path;

use config::error::ImportError;
use config::lines::Lines;
use config::permissions::Permissions;
use config::report::{Report, Verdict};
use config::tunnel::*;
use config::types::Key32;
use config::wgquick::*;

const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const PUBLIC: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
const OTHER: &str = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=";

fn import(text: &str) -> Import {
    parse(text, "wg0.conf", Permissions::NONE)
}

/// Parses a file whose `[Interface]` section has these extra lines.
fn interface(lines: &str) -> Import {
    import(&format!("[Interface]\nPrivateKey = {PRIVATE}\n{lines}\n"))
}

/// Parses a file with one peer that has these extra lines.
fn peer(lines: &str) -> Import {
    interface(&format!("[Peer]\nPublicKey = {PUBLIC}\n{lines}"))
}

fn tunnel(import: Import) -> Tunnel {
    import.into_tunnel().unwrap().0
}

/// Returns the refused lines, whether or not the file yields a tunnel.
fn fault(import: Import) -> String {
    let refused = |report: &Report| -> Vec<String> {
        let entries = report.entries.iter();
        let refused = entries.filter(|entry| entry.verdict == Verdict::Refused);
        refused.map(|entry| report.describe(entry)).collect()
    };
    match import.into_tunnel() {
        Err(error) => error.to_string(),
        Ok((_, report)) => refused(&report).join("\n"),
    }
}

#[test]
fn lines_that_can_be_left_out_leave_a_tunnel_without_them() {
    let lines = "MTU = many\nNoSuchKey = 1\nEndpoint = 1.2.3.4:5\nAddress = 10.0.0.2/24\n\
        ListenPort = 70000\nDNS = a$b\nSaveConfig = yes";
    let import = interface(lines);
    let refused = |it: &&config::report::Entry| it.verdict == Verdict::Refused;
    assert_eq!(import.report.entries.iter().filter(refused).count(), 6);
    assert!(!import.report.is_clean());
    let found = tunnel(import).interface;
    assert_eq!((found.mtu, found.listen_port), (None, None));
    assert_eq!(found.addresses.len(), 1);
    assert!(!found.save_config && found.dns.is_empty());
    // A file whose line was ignored would describe a different tunnel, so it is refused.
    for lines in [
        "Address = 10.0.0.300",
        "Table = blue",
        "S1 = x",
        "FwMark = x",
    ] {
        assert!(!interface(lines).is_usable(), "{lines}");
    }
    for lines in [
        "AllowedIPs = 10.0.0.0/40",
        "Endpoint = 1.2.3.4",
        "PresharedKey = x",
    ] {
        assert!(!peer(lines).is_usable(), "{lines}");
    }
}

/// wg-easy and WGDashboard write such files, and `wg-quick` reads them.
#[test]
fn keys_that_wg_quick_takes_without_a_value_count_as_not_written() {
    for key in [
        "Address", "DNS", "MTU", "Table", "PreUp", "PostUp", "PreDown", "PostDown",
    ] {
        let import = interface(&format!("{key} = \n"));
        let [private, empty] = &import.report.entries[..] else {
            panic!("{key}: {:?}", import.report.entries);
        };
        assert_eq!(
            (private.verdict, empty.verdict),
            (Verdict::Honoured, Verdict::Ignored),
            "{key}"
        );
        assert_eq!(empty.key, key);
        assert_eq!(tunnel(import), tunnel(interface("")), "{key}");
    }
    for key in ["PrivateKey", "ListenPort", "FwMark", "SaveConfig"] {
        let fault = fault(interface(&format!("{key} =")));
        assert!(fault.contains(&format!("{key}: has no value")), "{fault}");
    }
    for key in [
        "PublicKey",
        "PresharedKey",
        "Endpoint",
        "PersistentKeepalive",
    ] {
        let fault = fault(peer(&format!("{key} =")));
        assert!(fault.contains(&format!("{key}: has no value")), "{fault}");
    }
    // The last of several lines counts, and may be empty.
    let import =
        interface("MTU = 1300\nMTU =\nTable = off\nTable = # as usual\nDNS = 10.0.0.1\nDNS =");
    assert!(import.report.is_clean());
    let verdicts: Vec<_> = import.report.entries.iter().map(|it| it.verdict).collect();
    let [honoured, ignored] = [Verdict::Honoured, Verdict::Ignored];
    assert_eq!(
        verdicts,
        [
            honoured, ignored, ignored, ignored, ignored, honoured, ignored
        ]
    );
    let read = tunnel(import).interface;
    assert_eq!(
        (read.mtu, read.table, read.dns.len()),
        (None, Table::Auto, 1)
    );
}

#[test]
fn an_endpoint_may_be_an_ipv6_address_without_brackets() {
    let import = peer("Endpoint = 2001:db8::1:51820");
    let entry = import.report.entries.last().unwrap().clone();
    assert_eq!(entry.verdict, Verdict::Honoured);
    assert!(
        entry.reason.contains("[2001:db8::1]:51820"),
        "{}",
        entry.reason
    );
    let endpoint = tunnel(import).peers[0].endpoint.clone().unwrap();
    assert_eq!(endpoint.to_string(), "[2001:db8::1]:51820");
}

#[test]
fn a_private_key_in_a_peer_is_none_of_the_interface() {
    let text = format!(
        "[Interface]\nAddress = 10.0.0.1/24\n[Peer]\nPublicKey = {PUBLIC}\nPrivateKey = {PRIVATE}\n"
    );
    let import = parse(&text, "wg0.conf", Permissions::NONE);
    assert!(!import.is_usable(), "{:?}", import.report);
}

/// A provider's file makes this host connect to a peer; a server's own file makes it wait for peers. A server that
/// connects to another site still counts as a server, because its own clients connect to it.
#[test]
fn a_server_at_home_that_calls_a_site_is_a_server() {
    let text = |server: &str, ranges: &str| {
        format!(
            "{server}[Interface]\nPrivateKey = {PRIVATE}\nListenPort = 51820\n[Peer]\nPublicKey = {PUBLIC}\n\
             AllowedIPs = {ranges}\nEndpoint = 192.0.2.1:51820\n"
        )
    };
    let site = "10.9.0.0/16";
    let phone = format!("10.8.0.2/32\n[Peer]\nPublicKey = {PRIVATE}\nAllowedIPs = {site}");
    for (server, ranges, is_server) in [
        ("#! [Server]\n", site, true),
        // A client that listens, and a client that sends everything through the tunnel.
        ("", site, false),
        ("", &phone, true),
        ("#! [Server]\n", "0.0.0.0/0", false),
    ] {
        let options = Permissions::NONE.with_forwarding(true);
        let import = parse(&text(server, ranges), "wg0.conf", options);
        assert_eq!(tunnel(import).is_server(), is_server, "{server}{ranges}");
    }
}

#[test]
fn a_file_that_calls_a_peer_makes_no_router_without_permission() {
    let file = |options: Permissions, endpoint: &str| {
        let text = format!(
            "#! [Server]\n#! Masquerade = yes\n[Interface]\nPrivateKey = {PRIVATE}\n[Peer]\nPublicKey = {PUBLIC}\n{endpoint}"
        );
        parse(&text, "wg0.conf", options)
    };
    let verdicts = |import: &Import| {
        let entries = import.report.entries.iter().take(2);
        entries
            .map(|it| (it.key.clone(), it.verdict))
            .collect::<Vec<_>>()
    };
    let of = |head, key| {
        vec![
            ("[Server]".to_owned(), head),
            ("Masquerade".to_owned(), key),
        ]
    };
    let called = "Endpoint = 192.0.2.1:51820\n";
    let import = file(Permissions::NONE, called);
    assert_eq!(verdicts(&import), of(Verdict::Refused, Verdict::Ignored));
    assert!(fault(import.clone()).contains("--allow-forwarding"));
    assert_eq!(tunnel(import).home, None);
    let permitted = Permissions::NONE.with_forwarding(true);
    for import in [file(permitted, called), file(Permissions::NONE, "")] {
        assert_eq!(verdicts(&import), of(Verdict::Honoured, Verdict::Honoured));
        // The report says what the section does.
        assert!(import.report.entries[0].reason.contains("forwards"));
        assert!(tunnel(import).home.is_some());
    }
}

#[test]
fn every_key_is_read() {
    let text = format!(
        "# made by hand\n[interface]\nprivatekey={PRIVATE}\nListenPort = 51820 # usual\n\
         FwMark = 0xca6c\nAddress = 10.0.0.2/24, fd00::2/64\nAddress=10.0.1.2\n\
         DNS = 1.1.1.1, 2606:4700:4700::1111, corp.example\nMTU = 1412\nTable = 1234\n\
         SaveConfig = true\n\n[PEER]\r\nPublicKey = {PUBLIC}\r\nPresharedKey = {OTHER}\r\n\
         AllowedIPs = 10.0.0.0/24,fd00::/64\nAllowedIPs = 192.168.1.7/24\n\
         Endpoint = [2001:db8::1]:51820\nPersistentKeepalive = 25\n\
         [Peer]\nPublicKey = {OTHER}\nEndpoint=vpn.example.com:1\nPersistentKeepalive=off\n"
    );
    let import = import(&text);
    assert!(import.report.is_clean(), "{:?}", import.report);
    let found = tunnel(import);
    let addresses = ["10.0.0.2/24", "fd00::2/64", "10.0.1.2/32"];
    let ranges = ["10.0.0.0/24", "fd00::/64", "192.168.1.0/24"];
    let expected = Tunnel {
        interface: Interface {
            #[cfg(feature = "amnezia")]
            amnezia: Default::default(),
            private_key: Some(Key32::from_base64(PRIVATE).unwrap()),
            listen_port: Some(51820),
            fwmark: Some(0xca6c),
            addresses: addresses.map(|text| text.parse().unwrap()).to_vec(),
            dns: ["1.1.1.1", "2606:4700:4700::1111"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            dns_search: vec!["corp.example".to_owned()],
            mtu: Some(1412),
            table: Table::Id(1234),
            save_config: true,
            scripts: Scripts::default(),
        },
        peers: vec![
            Peer {
                name: None,
                public_key: Key32::from_base64(PUBLIC).unwrap(),
                preshared_key: Some(Key32::from_base64(OTHER).unwrap()),
                allowed_ips: ranges.map(|text| text.parse().unwrap()).to_vec(),
                endpoint: Some("[2001:db8::1]:51820".parse().unwrap()),
                persistent_keepalive: Some(25),
                ..Peer::default()
            },
            Peer {
                name: None,
                public_key: Key32::from_base64(OTHER).unwrap(),
                preshared_key: None,
                allowed_ips: vec![],
                endpoint: Some("vpn.example.com:1".parse().unwrap()),
                persistent_keepalive: Some(0),
                ..Peer::default()
            },
        ],
        home: None,
        pool: None,
        lines: Lines::default(),
    };
    assert_eq!(found, expected);
}

#[test]
fn comments_name_peers() {
    let named = |comments: &str| {
        let text = format!(
            "[Interface]\n#! Name = none\nPrivateKey={PRIVATE}\n[Peer]\nPublicKey={PUBLIC}\n{comments}\n"
        );
        tunnel(import(&text)).peers[0]
            .name
            .as_deref()
            .map(str::to_owned)
    };
    for (comments, name) in [
        ("#! Name = store-7", Some("store-7")),
        ("  #!name=a\n#! Name = b\n#! Name = not a name", Some("b")),
        ("# Name = a", None),
        ("#! Names = a", None),
        ("#! Name = \x1b[2J", None),
        (
            "#! [Uplink]\n#! Name = fibre\n#! Source = 192.0.2.1\n#! Mark = 7",
            None,
        ),
        ("#! Name = a\n#! [Server]\n#! Masquerade = no", Some("a")),
    ] {
        assert_eq!(named(comments).as_deref(), name, "{comments}");
    }
}

#[test]
fn a_comment_names_the_key_that_a_peer_replaces() {
    let replaces = |comments: &str| {
        let text = format!(
            "[Interface]\n#! Replaces = {OTHER}\nPrivateKey={PRIVATE}\n[Peer]\nPublicKey={PUBLIC}\n{comments}\n"
        );
        tunnel(import(&text)).peers[0].replaces.is_some()
    };
    for (comments, wanted) in [
        (format!("#! Replaces = {OTHER}"), true),
        (format!(" #!replaces={OTHER}"), true),
        (format!("# Replaces = {OTHER}"), false),
        (format!("#! Name = {OTHER}"), false),
        ("#! Replaces = a".to_owned(), false),
    ] {
        assert_eq!(replaces(&comments), wanted, "{comments}");
    }
}

#[test]
fn lines_stand_in_comments() {
    let file = |lines: &str, ranges: &str| {
        import(&format!(
            "#!shebang\n{lines}\n[Interface]\n#! no line\nPrivateKey={PRIVATE}\n[Peer]\nPublicKey={PUBLIC}\n\
             AllowedIPs={ranges}"
        ))
    };
    let line = "#! [Uplink]\n  #! Name = a # no comment\n#! Interface = eth0\n#! Priority = 300";
    let found = fault(file(line, ""));
    // The other two faults are the invalid Priority and the missing Name.
    for words in [
        "wg0.conf:3: Name: must be at most 32 letters",
        "2 other faults",
    ] {
        assert!(found.contains(words), "{found}");
    }
    let line = "#! [Uplink]\n#!Name=a\n#! Source = 192.0.2.1\n#! Mark = 7";
    let found = tunnel(file(line, "10.0.0.0/8"));
    assert_eq!((found.lines.lines.len(), found.peers.len()), (1, 1));
    // The last entry is a range that contains the endpoint.
    for ranges in [
        "0.0.0.0/0",
        "0.0.0.0/1, 128.0.0.0/1",
        "192.0.2.0/24\nEndpoint=192.0.2.7:51820",
    ] {
        let found = fault(file(line, ranges));
        assert!(found.contains("wg0.conf:2: without Interface"), "{found}");
    }
    assert_eq!(tunnel(file("", "")).lines, Lines::default());
}

#[test]
fn faults_name_the_line_and_the_remedy() {
    let cases = [
        (
            "ListenPrt = 1",
            "wg0.conf:3: ListenPrt: unknown key; did you mean `ListenPort`?",
        ),
        (
            "ListenPort = 65536",
            "wg0.conf:3: ListenPort: must be a number from 0 to 65535",
        ),
        (
            "FwMark = 0x100000000",
            "FwMark: must be `off` or a number up to 0xffffffff",
        ),
        ("FwMark = 0x", "FwMark: must be"),
        (
            "Address = 10.0.0.300",
            "Address: `10.0.0.300`: not an IP address",
        ),
        (
            "Address = 10.0.0.3/40",
            "Address: `10.0.0.3/40`: the prefix length",
        ),
        ("DNS = 1.1.1", "DNS: `1.1.1` is not a name server address"),
        ("DNS = a$b", "DNS: `a$b` is neither"),
        (
            "MTU = 67",
            "MTU: must be a number of bytes from 68 to 65535",
        ),
        ("Table = blue", "Table: must be `auto`, `off` or the number"),
        ("Table = 0", "Table: must be"),
        ("SaveConfig = yes", "SaveConfig: must be `true` or `false`"),
        (
            "PrivateKey = abc",
            "PrivateKey: a key needs 44 characters here, but this has 3",
        ),
        ("Endpoint = 1.2.3.4:5", "Endpoint: belongs in [Peer]"),
        ("ListenPort =", "ListenPort: has no value"),
        (
            "MTU",
            "wg0.conf:3: the line is not of the form `Key = Value`",
        ),
        ("; a comment", "wg0.conf:3: a comment begins with `#`"),
        (
            "[Pear]",
            "wg0.conf:3: unknown section; did you mean `[Peer]`?",
        ),
        (
            "[Interface]",
            "wg0.conf:3: a second [Interface], after that of line 1",
        ),
        ("[Peer]", "wg0.conf:3: this [Peer] has no PublicKey"),
        ("Jc = x", "wg0.conf:3: Jc: must be a number"),
        ("H1 = 4", "wg0.conf:1: H1 and H4 overlap"),
    ];
    for (lines, message) in cases {
        let found = fault(interface(lines));
        assert!(found.contains(message), "{lines}: {found}");
    }
    let cases = [
        (
            "Endpoint = 1.2.3.4",
            "wg0.conf:5: Endpoint: `1.2.3.4`: the port is missing",
        ),
        ("Endpoint = fd00:1:1", "write an IPv6 address in brackets"),
        (
            "AllowedIPs = +10.0.0.0/8",
            "`+` and `-` change a running interface",
        ),
        ("AllowedIPs = 10.0.0.0/8,", "an empty entry between commas"),
        (
            "AllowedIPs = 10.0.0.0/",
            "the prefix length must be a number from 0 to 32",
        ),
        (
            "PersistentKeepalive = 65536",
            "must be `off`, seconds up to 65535, or a range",
        ),
        ("PersistentKeepalive = 30-22", "or a range such as"),
        ("PersistentKeepalive = 0-22", "or a range such as"),
        ("PersistentKeepalive = off-5", "or a range such as"),
        ("MTU = 1420", "MTU: belongs in [Interface]"),
    ];
    for (lines, message) in cases {
        let found = fault(peer(lines));
        assert!(found.contains(message), "{lines}: {found}");
    }
    assert!(fault(import("MTU = 1")).contains("comes before any [Interface]"));
    assert!(fault(import("")).contains("wg0.conf: has no [Interface] section"));
    assert!(fault(import("[Interface]")).contains("PrivateKey: is missing"));
    let twice = peer(&format!("[Peer]\nPublicKey = {PUBLIC}"));
    assert!(fault(twice).contains("the same key as that of the [Peer] at line 3"));
}

#[test]
fn all_faults_are_reported_and_the_first_is_the_error() {
    let import = interface("FwMark = x\nTable = y\nListenPort = 1");
    assert_eq!(import.report.with(Verdict::Refused).count(), 2);
    assert_eq!(import.report.with(Verdict::Honoured).count(), 2);
    let found = fault(import);
    assert!(found.starts_with("wg0.conf:3: FwMark"), "{found}");
    assert!(found.ends_with("(and 1 other fault; `millrace check` lists all)"));
}

#[test]
fn no_message_repeats_a_secret() {
    let bad = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBm*=";
    for text in [
        format!("[Interface]\nPrivateKey = {bad}"),
        format!("[Interface]\nPrivateKey = {PRIVATE}\n[Peer]\nPresharedKey = {bad}"),
    ] {
        let import = import(&text);
        let shown = format!("{:?} {:?}", import.report, import);
        assert!(!shown.contains("yAnz5TF"), "{shown}");
    }
    let shown = format!("{:?}", tunnel(interface("")));
    assert!(!shown.contains("yAnz5TF"), "{shown}");
}

#[test]
fn words_of_the_file_cannot_drive_the_terminal() {
    let import = interface("\u{1b}[2J\u{7} = 1");
    assert!(!format!("{:?}", import.report).contains('\u{1b}'));
    assert!(!fault(import).contains('\u{1b}'));
}

#[test]
fn scripts_wait_for_permission_but_are_kept() {
    let text = format!(
        "[Interface]\nPrivateKey = {PRIVATE}\nPostUp = echo %i = up; true # why\nPreDown = false\n"
    );
    let import = import(&text);
    assert!(import.is_usable() && !import.report.is_clean());
    assert_eq!(import.report.with(Verdict::Refused).count(), 2);
    let scripts = tunnel(import).interface.scripts;
    assert_eq!(scripts.post_up, ["echo %i = up; true"]);
    assert_eq!(scripts.pre_down, ["false"]);
    let allowed = Permissions::ALL;
    assert!(parse(&text, "wg0.conf", allowed).report.is_clean());
    let keyless = "[Interface]\nPostUp = wg set %i private-key /key\n";
    assert!(parse(keyless, "wg0.conf", allowed).is_usable());
    assert!(!parse(keyless, "wg0.conf", Permissions::NONE).is_usable());
}

#[test]
fn later_lines_replace_earlier_ones_and_the_report_says_so() {
    let import = interface("MTU = 1400\nMTU = 1300");
    let ignored: Vec<_> = import.report.with(Verdict::Ignored).collect();
    assert_eq!((ignored[0].line, ignored[0].key.as_str()), (3, "MTU"));
    assert_eq!(ignored[0].reason, "overridden at line 4");
    assert_eq!(tunnel(import).interface.mtu, Some(1300));
}

#[test]
fn a_range_goes_to_the_last_peer_that_names_it() {
    let import = peer(&format!(
        "AllowedIPs = 10.0.0.0/8, 10.1.0.0/16, 10.0.0.0/8\n[Peer]\nPublicKey = {OTHER}\n\
         AllowedIPs = 10.0.0.0/8"
    ));
    let ignored: Vec<_> = import.report.with(Verdict::Ignored).collect();
    assert_eq!(ignored.len(), 1);
    assert_eq!(ignored[0].line, 5);
    assert_eq!(
        ignored[0].reason,
        "10.0.0.0/8 is assigned to the peer that lists it at line 8"
    );
    let found = tunnel(import);
    let ranges = |index: usize| {
        found.peers[index]
            .allowed_ips
            .iter()
            .map(ToString::to_string)
    };
    assert_eq!(ranges(0).collect::<Vec<_>>(), ["10.1.0.0/16"]);
    assert_eq!(ranges(1).collect::<Vec<_>>(), ["10.0.0.0/8"]);
}

#[test]
fn white_space_and_marks_of_other_editors_do_no_harm() {
    let text = format!("\u{feff}[Interface]\r\n\t PrivateKey\t=\t{PRIVATE}\r\n\r\n");
    assert!(import(&text).is_usable());
    let spaced = peer("AllowedIPs = 10.0.0.0 / 8 ,fd00:: /64\nEndpoint = [fd00::1] :1");
    assert_eq!(tunnel(spaced).peers[0].allowed_ips.len(), 2);
    assert!(import(&format!("[Interface]\nPrivateKey={PRIVATE}")).is_usable());
    assert!(peer("AllowedIPs =").is_usable());
    assert!(interface("ExcludedApplications = a.b").report.is_clean());
}

#[test]
fn files_are_read_within_limits() {
    let path = std::env::temp_dir().join(format!("millrace-config-{}.conf", std::process::id()));
    let read_back = |bytes: &[u8]| {
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(bytes).unwrap();
        read(&path, Permissions::NONE)
    };
    let text = format!("[Interface]\nPrivateKey = {PRIVATE}\n");
    let good = read_back(text.as_bytes());
    let large = read_back(&vec![b'#'; usize::try_from(FILE_MAX).unwrap() + 1]);
    let binary = read_back(b"[Interface]\n\nPrivateKey = \xff\0\n");
    let commented = read_back(&[b"# caf\xe9\n", text.as_bytes()].concat());
    let damaged = read_back(b"[Interface]\n\nPrivateKey = \xff\n");
    std::fs::remove_file(&path).unwrap();
    assert!(good.unwrap().is_usable());
    assert!(matches!(large, Err(ImportError::TooLarge { .. })));
    assert!(matches!(binary, Err(ImportError::NotText { line: 3, .. })));
    assert!(commented.unwrap().is_usable());
    assert!(fault(damaged.unwrap()).contains(":3: is not valid UTF-8"));
    assert!(matches!(
        read(&path, Permissions::NONE),
        Err(ImportError::Read { .. })
    ));
    let long = interface(&format!("Address = {}", "1".repeat(LINE_MAX)));
    assert!(fault(long).contains("longer than"));
}

#[test]
fn ten_thousand_peers_load() {
    let mut text = format!("[Interface]\nPrivateKey = {PRIVATE}\n");
    for n in 1..=10_000u32 {
        let mut bytes = [7; 32];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        let key = Key32::new(bytes);
        let key = key.to_base64();
        text += &format!(
            "\n[Peer]\nPublicKey = {0}\nPresharedKey = {0}\nAllowedIPs = 10.{1}.{2}.0/24, fd00:{n:x}::/64\n\
             Endpoint = [2001:db8:aaaa:bbbb:cccc:dddd:eeee:{n:x}]:51820\nPersistentKeepalive = 25\n",
            key.as_str(),
            n / 256,
            n % 256
        );
    }
    assert!((text.len() as u64) < FILE_MAX);
    let found = tunnel(import(&text));
    assert_eq!(found.peers.len(), 10_000);
    assert_eq!(tunnel(import(&found.to_conf())), found);
}

#[test]
fn faults_without_number_take_no_memory_without_number() {
    let import = interface(&"[Peer]\n".repeat(PEERS_MAX + 10));
    assert!(import.report.entries.len() < FAULTS_MAX + 10);
}

#[test]
fn the_interface_is_named_by_the_file() {
    let name = |path: &str| interface_name(Path::new(path)).ok();
    assert_eq!(name("/etc/wireguard/wg0.conf").as_deref(), Some("wg0"));
    for path in [
        "wg0",
        "/etc/.conf",
        "a b.conf",
        "sixteen-letters-.conf",
        "wg0.toml",
    ] {
        assert_eq!(name(path), None, "{path}");
    }
}

#[test]
fn a_file_becomes_what_wg_setconf_sends() {
    let device = tunnel(peer("AllowedIPs = 10.0.0.0/8")).to_set_device();
    assert!(device.replace_peers && device.peers[0].replace_allowed_ips);
    assert_eq!((device.listen_port, device.fwmark), (Some(0), Some(0)));
}
