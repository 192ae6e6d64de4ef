use super::*;
use crate::pptp::{Auth, Client, Mppe, MppeMode, Password, Pptp, Role, Server, values};
use std::collections::BTreeMap;

const ALLOWED: &str = "#! allow-insecure = pptp\n";
const PEER: &str = "pty \"pptp vpn.example --nolaunchpppd\"\nname 'DOMAIN\\\\alice'\nremotename office\nrequire-mppe-128\n";
const DAEMON: &str = "option /etc/ppp/pptpd-options\nlocalip 192.168.0.1\nremoteip 192.168.0.234-238,192.168.0.245\n";
const OPTIONS: &str = "name pptpd\nrefuse-pap\nrefuse-chap\nrefuse-mschap\nrequire-mschap-v2\nrequire-mppe-128\nproxyarp\n\
    lock\nnobsdcomp\nnovj\nnovjccomp\nnologfd\nms-dns 10.0.0.1\nms-dns 10.0.0.2\n";
const USERS: &str = "# client server secret addresses\nDOMAIN\\\\alice office \"open sesame\"\nbob pptpd word *\n\
    carol pptpd 'it''s' 192.168.0.234\ndave * x *\nerin other y *\n";

/// Parses a text, with these files as those of the host.
fn imported(text: &str, files: &[(&str, &str)]) -> Import {
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    let read = |path: &Path| match path.to_str().and_then(|path| files.get(path)) {
        Some(text) => Ok(Zeroizing::new(text.as_bytes().to_vec())),
        None => Err("no such file".to_owned()),
    };
    parse(text, Path::new("/etc/ppp/peers/office"), true, &read)
}

fn peer(more: &str) -> Import {
    imported(&format!("{ALLOWED}{PEER}{more}"), &[(SECRETS, USERS)])
}

fn client_of(import: Import) -> (Pptp, Client) {
    let model = import.into_model().unwrap();
    match model.role.clone() {
        Role::Client(client) => (model, client),
        Role::Server(server) => panic!("{server:?}"),
    }
}

fn daemon(text: &str, options: &str, users: &str) -> Import {
    let files = [("/etc/ppp/pptpd-options", options), (SECRETS, users)];
    imported(&format!("{ALLOWED}{text}"), &files)
}

fn server_of(import: Import) -> (Pptp, Server) {
    let model = import.into_model().unwrap();
    match model.role.clone() {
        Role::Server(server) => (model, server),
        Role::Client(client) => panic!("{client:?}"),
    }
}

/// Files that may hold passwords if the first one is read.
fn secrets_among(files: &[(&str, &str)]) -> Vec<PathBuf> {
    let read = |path: &Path| {
        let found = files.iter().find(|(name, _)| path == Path::new(name));
        let (_, text) = found.ok_or("no such file")?;
        Ok(Zeroizing::new(text.as_bytes().to_vec()))
    };
    secrets_of(Path::new(files[0].0), files[0].1.as_bytes(), &read)
}

/// NetworkManager calls pptp with these options.
#[test]
fn options_of_pptp_with_a_word_behind_them_are_known() {
    let call = "pty \"pptp 198.51.100.9 --nolaunchpppd --loglevel 0 --logstring nm\"\n";
    let peer = PEER.split_once('\n').unwrap().1;
    let import = imported(&format!("{ALLOWED}{call}{peer}"), &[(SECRETS, USERS)]);
    assert_eq!(client_of(import).1.host, "198.51.100.9");
}

/// The verdict on an option, and the reason.
fn verdict<'i>(import: &'i Import, key: &str) -> (Verdict, &'i str) {
    let entry = import.report.entries.iter().find(|entry| entry.key == key);
    let entry = entry.unwrap_or_else(|| panic!("nothing of {key}: {:?}", import.report));
    (entry.verdict, &entry.reason)
}

#[test]
fn a_file_of_the_manual_page_of_pptp_is_a_client() {
    let import = peer(
        "file /etc/ppp/options.pptp\nipparam office\ndefaultroute\nusepeerdns\npersist\nmaxfail 0\nholdoff 5\nunit 7\n",
    );
    assert_eq!(
        verdict(&import, "file").0,
        Verdict::Refused,
        "it is not there"
    );
    let options = "lock noauth nobsdcomp nodeflate nomppe-stateful\nrefuse-eap refuse-pap refuse-chap\nmtu 1400 mru 1380\n";
    let text = format!(
        "{ALLOWED}{PEER}file /etc/ppp/options.pptp\ndefaultroute\nusepeerdns\npersist\nunit 7\n"
    );
    let files = [(SECRETS, USERS), ("/etc/ppp/options.pptp", options)];
    let import = imported(&text, &files);
    assert_eq!(verdict(&import, "persist").0, Verdict::Ignored);
    let (found, reason) = verdict(&import, "mtu");
    assert_eq!(
        (found, reason),
        (Verdict::Honoured, "in /etc/ppp/options.pptp, line 3")
    );
    let entry = import
        .report
        .entries
        .iter()
        .find(|entry| entry.key == "mtu");
    assert_eq!(entry.unwrap().line, 6, "that of the file that names it");
    let (model, client) = client_of(import);
    assert_eq!((client.host.as_str(), client.port), ("vpn.example", 1723));
    assert_eq!(client.username, "DOMAIN\\alice");
    assert!(matches!(client.password, Password::Given(it) if *it == "open sesame"));
    assert!(client.default_route && client.dns);
    assert_eq!((model.interface.as_str(), model.mtu), ("ppp7", Some(1380)));
    assert_eq!(model.mppe, values::strongest());
    assert_eq!(model.auth, [Auth::MsChapV2]);
}

#[test]
fn what_is_insecure_is_allowed_by_a_comment_and_by_nothing_else() {
    for text in [
        PEER.to_owned(),
        format!("# allow-insecure = pptp\n{PEER}"),
        format!("#! allow-insecure = yes\n{PEER}"),
    ] {
        let import = imported(&text, &[(SECRETS, USERS)]);
        let (found, reason) = verdict(&import, "allow-insecure");
        assert_eq!(found, Verdict::Refused, "{text}");
        assert!(
            reason.contains("Use WireGuard") && reason.contains("#! allow-insecure = pptp"),
            "{reason}"
        );
    }
    for comment in ["#!allow-insecure=pptp", "  #! allow-insecure = \"pptp\""] {
        assert!(imported(&format!("{PEER}{comment}\n"), &[(SECRETS, USERS)]).is_usable());
    }
    let read = |_: &Path| Ok(Zeroizing::new(USERS.as_bytes().to_vec()));
    assert!(
        parse(PEER, Path::new("office"), false, &read).is_usable(),
        "to leave it"
    );
}

#[test]
fn encryption_is_said_and_never_optional() {
    let mppe = |words: &str| {
        let text = format!("{ALLOWED}{}{words}\n", PEER.replace("require-mppe-128", ""));
        imported(&text, &[(SECRETS, USERS)])
    };
    let required = |bits: &[u8], mode| {
        let bits = bits.to_vec();
        Some(Mppe::Required { bits, mode })
    };
    for (words, expected) in [
        ("", None),
        ("require-mppe", required(&[128], MppeMode::Stateless)),
        (
            "require-mppe-40 require-mppe",
            required(&[128, 40], MppeMode::Stateless),
        ),
        (
            "+mppe-128 mppe-stateful",
            required(&[128], MppeMode::Either),
        ),
        ("require-mppe-40", required(&[40], MppeMode::Stateless)),
        (
            "mppe required,no40,no56,stateless",
            required(&[128], MppeMode::Stateless),
        ),
        ("mppe required", required(&[128], MppeMode::Stateless)),
        ("mppe optional", required(&[128], MppeMode::Stateless)),
        (
            "mppe required,no40,no56,stateful",
            required(&[128], MppeMode::Either),
        ),
        (
            "mppe required,no128,no40",
            required(&[56], MppeMode::Stateless),
        ),
        ("mppe required,no128,no56,no40", None),
        ("mppe required,sometimes", None),
        ("mppe required nomppe", None),
        ("nomppe", Some(Mppe::None)),
        ("nomppe require-mppe", None),
        ("require-mppe noccp", None),
        ("require-mppe nomppe-128", None),
        ("require-mppe refuse-mschap-v2", None),
    ] {
        assert_eq!(
            mppe(words).into_model().ok().map(|it| it.mppe),
            expected,
            "{words}"
        );
    }
    let plain = mppe("nomppe refuse-pap noccp").into_model().unwrap();
    assert_eq!(plain.auth, [Auth::MsChapV2, Auth::Chap]);
}

#[test]
fn what_asks_for_something_else_is_refused_with_its_line() {
    for (words, key) in [
        ("auth", "auth"),
        ("connect /bin/chat", "connect"),
        ("plugin radius.so", "plugin"),
        ("multilink", "multilink"),
        ("mtu 100", "mtu"),
        ("call ../../passwd", "call"),
        ("defaultrout", "defaultrout"),
        ("10.0.0.1:10.0.0.2", "addresses"),
        ("password", "password"),
        ("ms-dns 10.0.0.1", "ms-dns"),
    ] {
        let import = peer(words);
        assert_eq!(verdict(&import, key).0, Verdict::Refused, "{words}");
        let entry = import.report.with(Verdict::Refused).next().unwrap();
        assert_eq!(entry.line, 6, "{words}");
    }
    assert!(
        verdict(&peer("defaultrout"), "defaultrout")
            .1
            .contains("defaultroute")
    );
    assert!(peer("mtu 1490").into_model().unwrap().mtu.is_none());
    for command in [
        "ssh host pppd",
        "pptp",
        "pptp a b",
        "pptp $HOST",
        "pptp a:0",
    ] {
        let text = format!(
            "{ALLOWED}{}",
            PEER.replace("pptp vpn.example --nolaunchpppd", command)
        );
        assert!(
            !imported(&text, &[(SECRETS, USERS)]).is_usable(),
            "{command}"
        );
    }
}

/// Options of OpenWrt's /etc/ppp/options.pptp, and of newer pppd versions.
#[test]
fn options_of_other_programs_get_one_message_a_line() {
    for (words, expected) in [
        ("noproxyarp", Verdict::Ignored),
        ("silent", Verdict::Ignored),
        ("connect-delay 5000", Verdict::Ignored),
        ("pap-timeout 10", Verdict::Ignored),
        ("nodefaultroute6", Verdict::Ignored),
        ("ipv6cp-use-ipaddr", Verdict::Ignored),
        ("defaultroute-metric 100", Verdict::Ignored),
        ("mppe required,no40", Verdict::Honoured),
        ("mppe sometimes", Verdict::Refused),
        ("no-such-option 5000 a b", Verdict::Refused),
        ("\"no such\" 5000", Verdict::Refused),
    ] {
        let import = peer(words);
        let entries = import.report.entries.iter().filter(|it| it.line == 6);
        let found: Vec<Verdict> = entries.map(|it| it.verdict).collect();
        assert_eq!(found, [expected], "{words}");
    }
    let import = peer("no-such-option 5000 nomppe-40 lock");
    let of_line = import.report.entries.iter().filter(|it| it.line == 6);
    assert_eq!(of_line.count(), 3, "known options are judged");
}

#[test]
fn no_hint_weakens_what_protects() {
    let without = |word: &str| {
        let text = format!("{ALLOWED}{}{word}\n", PEER.replace("require-mppe-128", ""));
        imported(&text, &[(SECRETS, USERS)])
    };
    for word in [
        "",
        "mppe",
        "mppe x",
        "nompe",
        "mppe-40",
        "mppe-128",
        "nomppe-128",
        "require-mppe-4",
        "mppe-statefull",
        "nocp",
        "noath",
        "require-papp",
        "require-chp",
        "refuse-mschap-v3",
        "require-mppe noccp",
        "require-mppe nomppe",
    ] {
        for import in [without(word), daemon(DAEMON, word, USERS)] {
            for entry in &import.report.entries {
                let hint = &entry.reason;
                for weak in options::WEAKENING {
                    let named = [format!("`{weak}`"), format!("write {weak}")];
                    assert!(!named.iter().any(|it| hint.contains(it)), "{word}: {hint}");
                }
            }
        }
    }
}

#[test]
fn files_that_name_themselves_end() {
    let text = format!("{ALLOWED}{PEER}{}", "file /x\n".repeat(20));
    let import = imported(&text, &[(SECRETS, USERS), ("/x", "file /x\nfile /x\n")]);
    assert!(!import.is_usable() && import.report.entries.len() < 200);
}

#[test]
fn a_password_is_that_of_the_client_and_the_server() {
    let with = |secrets: &str, more: &str| {
        let text = format!("{ALLOWED}pty 'pptp h'\nuser a\nrequire-mppe\n{more}\n");
        let (_, client) = match imported(&text, &[(SECRETS, secrets)]).into_model() {
            Ok(model) => match model.role {
                Role::Client(client) => ((), client),
                Role::Server(_) => return None,
            },
            Err(_) => return None,
        };
        match client.password {
            Password::Given(password) => Some(password.to_string()),
            Password::File(_) => None,
        }
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(with("a s one\n* s two\n", "remotename s"), some("one"));
    assert_eq!(with("a * one\na s two\n", "remotename s"), some("two"));
    assert_eq!(with("* * one\n", "remotename s"), some("one"));
    assert_eq!(with("a t one\n", "remotename s"), None);
    assert_eq!(with("a t one\n", ""), some("one"));
    assert_eq!(with("a t one\na s two\n", ""), None, "it could be either");
    assert_eq!(with("a s @/etc/secret\n", ""), None);
    assert_eq!(with("", "password \"in it\""), some("in it"));
    assert_eq!(with("a \"s one\n", ""), None);
}

#[test]
fn a_file_of_pptpd_is_a_server() {
    let import = daemon(DAEMON, OPTIONS, USERS);
    assert_eq!(verdict(&import, "proxyarp").0, Verdict::Ignored);
    let (model, server) = server_of(import);
    assert_eq!(model.interface, "office");
    assert_eq!(server.listen.to_string(), "0.0.0.0:1723");
    assert_eq!(server.address, ([192, 168, 0, 1].into(), 24));
    assert_eq!(server.pool.len(), 6);
    let routes: Vec<String> = server.routes.iter().map(ToString::to_string).collect();
    assert_eq!(
        routes,
        [
            "192.168.0.234/31",
            "192.168.0.236/31",
            "192.168.0.238/32",
            "192.168.0.245/32"
        ]
    );
    assert_eq!(server.dns.len(), 2);
    let names: Vec<&str> = server.users.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["bob", "carol", "dave"]);
    assert_eq!(*server.users[1].1, "its");
    let more = format!("{DAEMON}listen 192.0.2.1\nconnections 2\nstimeout 10\nlogwtmp\n");
    let (_, server) = server_of(daemon(&more, OPTIONS, USERS));
    assert_eq!(server.listen.to_string(), "192.0.2.1:1723");
    assert_eq!(server.pool.len(), 2);
}

#[test]
fn users_that_pppd_gives_no_address_are_shut_out() {
    let users = "bob pptpd word *\nof-this-host pptpd x\nshut pptpd x -\nshut-2 pptpd x - *\noptions pptpd x -- mtu 1400\n\
        some pptpd x !192.168.0.234\n\
        twice * x *\ntwice pptpd y\nlater * x\nlater pptpd y *\nagain pptpd x -\nagain pptpd y *\n";
    let import = daemon(DAEMON, OPTIONS, users);
    let of = |line: usize| {
        let place = format!("{SECRETS}, line {line}");
        let mut entries = import.report.entries.iter();
        let entry = entries.find(|it| it.reason.split(": ").next() == Some(&place));
        entry.unwrap_or_else(|| panic!("{line}: {:?}", import.report))
    };
    for line in [2, 3, 4, 5, 8, 11] {
        assert_eq!(of(line).verdict, Verdict::Ignored, "{line}");
        assert!(of(line).reason.contains("no address; write `*`"), "{line}");
    }
    assert!(of(6).reason.contains("write `*`"));
    assert!(of(7).reason.contains("line 8 is used for this user"));
    let (_, server) = server_of(import);
    let found: Vec<(&str, &str)> = server
        .users
        .iter()
        .map(|(name, password)| (name.as_str(), password.as_str()))
        .collect();
    assert_eq!(found, [("bob", "word"), ("later", "y")]);
    assert!(!daemon(DAEMON, OPTIONS, "bob pptpd word\n").is_usable());
}

#[test]
fn clients_log_in_at_a_server_by_ms_chap_v2_only() {
    for options in [
        "nomppe\n",
        "nomppe\nrequire-mschap-v2\n",
        "nomppe\nrefuse-pap\n",
        "require-mppe\n",
    ] {
        let (model, _) = server_of(daemon(DAEMON, options, USERS));
        assert_eq!(model.auth, [Auth::MsChapV2], "{options}");
    }
    let import = daemon(DAEMON, "nomppe\nrefuse-mschap-v2\n", USERS);
    let mut refused = import.report.with(Verdict::Refused);
    assert!(refused.any(|it| it.reason.contains("with MS-CHAPv2")));
}

#[test]
fn a_server_that_is_not_understood_is_refused() {
    for (text, options, users) in [
        (DAEMON, OPTIONS, ""),
        (DAEMON, OPTIONS, "bob other x\n"),
        (DAEMON, "", USERS),
        (DAEMON, "require-mppe noauth\n", USERS),
        (DAEMON, "require-mppe require-pap\n", USERS),
        (DAEMON, "require-mppe plugin radius.so\n", USERS),
        (&DAEMON.replace("localip 192.168.0.1", ""), OPTIONS, USERS),
        (
            &DAEMON.replace("192.168.0.234-238", "192.168.0.9-3"),
            OPTIONS,
            USERS,
        ),
        (
            &DAEMON.replace("192.168.0.234-238", "10.0.0.0-10.9.0.0"),
            OPTIONS,
            USERS,
        ),
        (&format!("{DAEMON}bcrelay eth0\n"), OPTIONS, USERS),
        (&format!("{DAEMON}listn 1.2.3.4\n"), OPTIONS, USERS),
        ("localip 10.0.0.1\nremoteip 10.0.0.1\n", OPTIONS, USERS),
    ] {
        assert!(
            !daemon(text, options, users).is_usable(),
            "{text}{options}{users}"
        );
    }
}

#[test]
fn no_secret_is_ever_in_a_report() {
    for import in [
        peer("password hunter2"),
        peer("password \"hunter2"),
        peer("hunter2="),
        peer("password my hunter2"),
        imported(
            &format!("{ALLOWED}{PEER}"),
            &[(SECRETS, "a b \"hunter2\nx")],
        ),
        daemon(DAEMON, OPTIONS, "bob pptpd @hunter2\n"),
        daemon(&format!("{DAEMON}x hunter2\n"), OPTIONS, USERS),
    ] {
        let shown = format!("{:?}", import.report);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let stray = peer("password my hunter2");
    let told = stray.report.with(Verdict::Refused).next().unwrap();
    assert_eq!((told.line, told.key.as_str()), (6, ""));
}

#[test]
fn each_file_that_a_password_is_read_from_is_known() {
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let office = "/etc/ppp/peers/office";
    let secrets = (SECRETS, USERS);
    let own = format!("{PEER}# a comment\npassword hunter2\n");
    assert_eq!(secrets_among(&[(office, &own), secrets]), paths(&[office]));
    assert_eq!(
        secrets_among(&[(office, PEER), secrets]),
        paths(&[SECRETS]),
        "the options of it tell nothing"
    );
    let named = format!("{PEER}file /a\ncall b\nfile /a\n");
    let (a, b) = ("password \"hunter 2\"\n", "lock password hunter2\n");
    let files = [
        (office, named.as_str()),
        ("/a", a),
        ("/etc/ppp/peers/b", b),
        secrets,
    ];
    assert_eq!(secrets_among(&files), paths(&["/a", "/etc/ppp/peers/b"]));
    let options = ("/etc/ppp/pptpd-options", OPTIONS);
    let files = [("/etc/pptpd.conf", DAEMON), options, secrets];
    assert_eq!(secrets_among(&files), paths(&[SECRETS]));
    let broken = format!("{PEER}password \"hunter2\n");
    assert_eq!(secrets_among(&[(office, &broken)]), paths(&[office]));
}

#[test]
fn other_files_are_not_taken_for_these() {
    for (text, expected) in [
        (PEER, Some(Kind::Peer)),
        ("plugin /usr/lib/pptp.so pptp_server h\n", Some(Kind::Peer)),
        (DAEMON, Some(Kind::Daemon)),
        ("[Interface]\nlocalip 1\n", None),
        ("remote vpn.example\ndev tun\n", None),
        ("pty \"ssh host\"\n", None),
        ("localip\n", None),
        ("\"", None),
    ] {
        assert_eq!(kind(text), expected, "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_judged(text in "[a-z0-9 \n\"'#.\\\\:-]{0,200}") {
        for text in [text.clone(), format!("{PEER}{text}"), format!("{DAEMON}{text}")] {
            let import = parse_alone(&text);
            proptest::prop_assert!(import.is_usable() <= import.report.is_clean());
        }
    }
}
