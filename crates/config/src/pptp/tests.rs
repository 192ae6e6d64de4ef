use super::*;
use crate::lines::LineMode;

const CLIENT: &str = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"vpn.example\"\nusername = \"a\\\\b\"\n\
    password = \"secret\"\n";
const SERVER: &str = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nlisten = \"0.0.0.0\"\naddress = \"10.0.0.1/24\"\n";
const USERS: &str = "[users]\nalice = \"secret\"\nbob = \"word\"\n";

fn imported(text: &str) -> Import {
    parse(text, Path::new("/etc/office.toml"), Permissions::FILES)
}

fn refused(text: &str) -> String {
    imported(text).into_model().unwrap_err().to_string()
}

fn client_of(text: &str) -> (Pptp, Client) {
    let model = imported(text).into_model().unwrap();
    match model.role.clone() {
        Role::Client(client) => (model, client),
        Role::Server(_) => panic!("{model:?}"),
    }
}

fn server_of(text: &str) -> Server {
    match imported(text).into_model().unwrap().role {
        Role::Server(server) => server,
        Role::Client(client) => panic!("{client:?}"),
    }
}

#[test]
fn a_client_has_the_strongest_that_there_is_unless_told_otherwise() {
    let (model, client) = client_of(CLIENT);
    assert_eq!(model.interface, "office");
    assert_eq!(model.mppe, values::strongest());
    assert_eq!(model.auth, [Auth::MsChapV2]);
    assert_eq!((client.host.as_str(), client.port), ("vpn.example", 1723));
    assert_eq!(client.username, "a\\b");
    assert!(!client.default_route && !client.dns && client.routes.is_empty());
    let more = format!(
        "{CLIENT}interface = \"ppp7\"\nmppe = \"required,40,128,stateful\"\nmtu = 1300\nroutes = [\"10.1.0.0/16\", \"10.2.3.4\"]\n\
         default-route = true\nreorder = false\n"
    );
    let (model, client) = client_of(&more);
    let bits = vec![40, 128];
    let mode = MppeMode::Stateful;
    assert_eq!(model.mppe, Mppe::Required { bits, mode });
    assert_eq!((model.interface.as_str(), model.mtu), ("ppp7", Some(1300)));
    assert_eq!(model.reorder, Some(false));
    let routes: Vec<String> = client.routes.iter().map(ToString::to_string).collect();
    assert_eq!(routes, ["10.1.0.0/16", "10.2.3.4/32"]);
    assert!(client.default_route);
}

#[test]
fn a_password_file_lies_beside_the_file() {
    let text = CLIENT.replace("password =", "password-file =");
    let (_, client) = client_of(&text);
    assert!(matches!(client.password, Password::File(path) if path == Path::new("/etc/secret")));
    let both = format!("{CLIENT}password-file = \"x\"\n");
    assert!(refused(&both).contains("twice"));
}

#[test]
fn a_file_from_elsewhere_has_no_other_tunnels_password_sent() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("office.toml");
    let judged = |named: &str, permissions| {
        let text = CLIENT.replace(
            "password = \"secret\"",
            &format!("password-file = \"{named}\""),
        );
        std::fs::write(&path, text).unwrap();
        read(&path, permissions).unwrap()
    };
    for named in [
        "/etc/shadow",
        "../etc/shadow",
        "other.password",
        "office.toml",
        "x/../office.pw",
    ] {
        let error = judged(named, Permissions::NONE)
            .into_model()
            .unwrap_err()
            .to_string();
        let told = ["password-file", "office.password", "--allow-files"];
        assert!(told.iter().all(|it| error.contains(it)), "{named}: {error}");
        assert!(!error.contains("other fault"), "{error}");
        assert!(judged(named, Permissions::FILES).is_usable(), "{named}");
    }
    for named in ["office.password", "office.pw"] {
        assert!(judged(named, Permissions::NONE).is_usable(), "{named}");
    }
    std::os::unix::fs::symlink("/etc/shadow", directory.path().join("office.pw")).unwrap();
    assert!(!judged("office.pw", Permissions::NONE).is_usable());
}

/// Files of pppd and pptpd get their permissions only where these programs look for them.
#[test]
fn options_from_elsewhere_name_no_file_and_use_no_password_of_the_machine() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("office");
    let named = directory.path().join("more");
    std::fs::write(&named, "root:$6$salt$hash:1:2\nnomppe\n").unwrap();
    let peer =
        "#! allow-insecure = pptp\npty \"pptp vpn.example --nolaunchpppd\"\nname root\nnomppe\n";
    let daemon = "#! allow-insecure = pptp\nlocalip 10.0.0.1\nremoteip 10.0.0.2\n";
    let more = named.display();
    for (text, key) in [
        (format!("{peer}password x\nfile {more}\n"), "file"),
        (format!("{peer}password x\ncall office\n"), "call"),
        (format!("{peer}remotename office\n"), "password"),
        (format!("{daemon}option {more}\n"), "option"),
        (daemon.to_owned(), "users"),
    ] {
        std::fs::write(&path, &text).unwrap();
        let import = read(&path, Permissions::NONE).unwrap();
        let entry = import.report.entries.iter().find(|it| it.key == key);
        let entry = entry.unwrap_or_else(|| panic!("{text}: {:?}", import.report));
        assert_eq!(entry.verdict, crate::report::Verdict::Refused, "{text}");
        assert!(entry.reason.contains("--allow-files"), "{}", entry.reason);
        assert_eq!(
            secrets_of(&path, Permissions::NONE).len(),
            usize::from(text.contains("password x"))
        );
    }
    // A permitted file is not quoted either.
    std::fs::write(&path, format!("{peer}password x\nfile {more}\n")).unwrap();
    let import = read(&path, Permissions::FILES).unwrap();
    let said = format!("{:?}", import.report);
    assert!(
        said.contains("line 1") && !said.contains("hash") && !said.contains("--allow-files"),
        "{said}"
    );
}

#[test]
fn nothing_starts_unless_it_is_allowed_and_the_reason_is_said() {
    for text in [
        CLIENT.replace("allow-insecure = \"pptp\"\n", ""),
        CLIENT.replace("allow-insecure = \"pptp\"", "allow-insecure = \"yes\""),
        CLIENT.replace("allow-insecure = \"pptp\"", "allow-insecure = true"),
    ] {
        let error = refused(&text);
        assert!(error.contains("allow-insecure"), "{error}");
    }
    let error = refused(&CLIENT.replace("allow-insecure = \"pptp\"\n", ""));
    assert!(error.contains("Use WireGuard"), "{error}");
}

#[test]
fn encryption_is_none_or_required_and_never_optional() {
    let with = |words: &str| imported(&format!("{CLIENT}{words}\n"));
    let mppe = |words: &str| with(words).into_model().map(|it| it.mppe).ok();
    assert_eq!(mppe("mppe = \"none\""), Some(Mppe::None));
    assert_eq!(mppe("mppe = \"optional\""), None);
    assert_eq!(mppe("mppe = \"128,none\""), None);
    assert_eq!(mppe("auth = \"mschapv2,pap\""), None);
    assert!(mppe("auth = \"mschapv2,chap,pap\"\nmppe = \"none\"").is_some());
    let mode = MppeMode::Either;
    let bits = vec![128];
    let expected = Mppe::Required { bits, mode };
    assert_eq!(mppe("mppe = \"stateful, stateless\""), Some(expected));
    // OpenWrt's spelling.
    let openwrt = "mppe = \"required,no40,no56,stateless\"";
    assert_eq!(mppe(openwrt), Some(values::strongest()));
    assert_eq!(mppe("mppe = \"no128,no56,no40\""), None);
}

#[test]
fn a_server_asks_for_no_password_that_can_be_read() {
    for (auth, usable) in [("mschapv2", true), ("pap", false), ("mschapv2,chap", false)] {
        let text = format!("{SERVER}mppe = \"none\"\nauth = \"{auth}\"\n{USERS}");
        assert_eq!(imported(&text).is_usable(), usable, "{auth}");
    }
}

/// A replaced character would change the password.
#[test]
fn what_is_no_utf8_is_refused_outside_comments() {
    let text = exact_text(b"\xef\xbb\xbfname a\n# \xe9\n").unwrap();
    assert_eq!(*text, "name a\n# \u{fffd}\n");
    assert_eq!(exact_text(b"name a\npassword caf\xe9\n"), Err(2));
}

#[test]
fn a_server_gives_addresses_of_its_network() {
    let server = server_of(&format!("{SERVER}{USERS}"));
    assert_eq!(server.listen.to_string(), "0.0.0.0:1723");
    assert_eq!(server.pool.len(), 253);
    assert_eq!(server.pool[0].to_string(), "10.0.0.2");
    assert_eq!(server.users.len(), 2);
    let pool = |text: &str| imported(&format!("{SERVER}pool = \"{text}\"\n{USERS}"));
    let some = pool("10.0.0.1-10.0.0.3").into_model().unwrap();
    assert!(matches!(some.role, Role::Server(server) if server.pool.len() == 2));
    for wrong in [
        "10.0.1.1-10.0.1.3",
        "10.0.0.9-10.0.0.3",
        "10.0.0.1-10.0.0.1",
        "10.0.0.0-10.0.0.5",
        "x",
    ] {
        assert!(!pool(wrong).is_usable(), "{wrong}");
    }
    for wrong in [
        "address = \"10.0.0.0/24\"",
        "address = \"10.0.0.1/31\"",
        "address = \"10.0.0.1\"",
    ] {
        let text = SERVER.replace("address = \"10.0.0.1/24\"", wrong);
        assert!(!imported(&format!("{text}{USERS}")).is_usable(), "{wrong}");
    }
    let large = SERVER.replace("/24", "/8");
    assert_eq!(server_of(&format!("{large}{USERS}")).pool.len(), POOL_MAX);
}

#[test]
fn what_is_missing_unknown_or_of_another_kind_is_named_with_its_line() {
    for (text, words) in [
        ("", "protocol"),
        ("protocol = \"wireguard\"\n", ".conf"),
        ("protocol = \n", "office.toml:1: not valid TOML"),
        (SERVER, "[users]"),
        (&format!("{CLIENT}listen = \"0.0.0.0\"\n"), "not of both"),
        (
            &format!("{CLIENT}usrname = \"x\"\n"),
            "office.toml:6: usrname: there is no such key here; did you mean `username`?",
        ),
        (&format!("{CLIENT}mtu = 99\n"), "576 to 1456"),
        (&format!("{CLIENT}mtu = 0x500\n"), "576 to 1456"),
        (&format!("{CLIENT}dns = \"yes\"\n"), "true or false"),
        (&format!("{CLIENT}routes = [\"::/0\"]\n"), "IPv4 only"),
        (
            &format!("{CLIENT}routes = \"0.0.0.0/0\"\n"),
            "default-route",
        ),
        (&CLIENT.replace("vpn.example", "[::1]:5"), "no IPv6"),
        (&CLIENT.replace("username", "# "), "username"),
        (&CLIENT.replace("password", "# "), "password"),
        (&format!("{SERVER}[users]\nx = 5\n"), "quotes"),
    ] {
        let error = refused(text);
        assert!(error.contains(words), "{text}: {error}");
    }
    let nameless = parse(
        CLIENT,
        Path::new("a name that is too long.toml"),
        Permissions::NONE,
    );
    assert!(!nameless.is_usable());
}

#[test]
fn no_value_is_ever_in_a_report() {
    for text in [
        CLIENT.replace("\"secret\"", "\"secret"),
        format!("{CLIENT}password = \"secret\"\n"),
        CLIENT.replace("\"secret\"", "[\"secret\"]"),
        format!("{SERVER}[users]\nx = [\"secret\"]\n"),
    ] {
        let import = imported(&text);
        assert!(!import.is_usable());
        assert!(
            !format!("{:?}", import.report).contains("secret"),
            "{import:?}"
        );
    }
}

#[test]
fn lines_are_read_and_what_pptp_does_not_have_is_refused() {
    let client = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"s\"\nusername = \"u\"\npassword = \"p\"\n";
    let server = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nlisten = \"0.0.0.0\"\naddress = \"10.9.0.1/24\"\n";
    let users = "[users]\nu = \"p\"\n";
    let read = |text: &str| parse(text, Path::new("x.toml"), Permissions::NONE);
    let two = "[uplinks]\nmode = \"duplicate\"\n[[uplink]]\nname = \"a\"\ninterface = \"eth1\"\n[[uplink]]\nname = \"b\"\n";
    let text = format!("{client}{two}source = \"192.0.2.1\"\n");
    let model = read(&text).into_model().unwrap();
    assert_eq!(model.lines.mode, LineMode::Duplicate);
    assert_eq!(model.lines.lines.len(), 2);
    let text = format!("{server}{users}[uplinks]\nmode = \"duplicate\"\n");
    let model = read(&text).into_model().unwrap();
    assert!(!model.lines.is_default() && model.lines.lines.is_empty());
    let refused = |text: &str| read(text).into_model().is_err();
    assert!(refused(&format!("{client}{two}source = \"2001:db8::1\"\n")));
    assert!(refused(&format!(
        "{server}{users}{two}interface = \"eth2\"\n"
    )));
    let shaped = two.replace(
        "[[uplink]]\nname",
        "shape = true\n[[uplink]]\nrate = \"5M\"\nname",
    );
    assert!(refused(&format!("{client}{shaped}interface = \"eth2\"\n")));
    let relayed = "relay = \"r:1\"\nrelay-key = \"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=\"\n";
    assert!(refused(&format!("{client}{two}{relayed}")));
    assert!(refused(&format!(
        "{client}{two}interface = \"eth2\"\ncap = \"1G\"\n"
    )));
}

#[test]
fn the_order_of_packets_may_be_written_among_the_lines() {
    let line = "[[uplink]]\nname = \"a\"\ninterface = \"eth1\"\n";
    for value in [false, true] {
        let text = format!("{CLIENT}[uplinks]\nreorder = {value}\n{line}");
        let (model, _) = client_of(&text);
        assert_eq!(model.reorder, Some(value));
        let text = format!("{SERVER}{USERS}[uplinks]\nmode = \"duplicate\"\nreorder = {value}\n");
        let model = imported(&text).into_model().unwrap();
        assert_eq!(model.reorder, Some(value));
        assert!(!model.lines.is_default());
    }
    // This setting does not control the answers to clients.
    let text = format!("{SERVER}{USERS}[uplinks]\nreorder = true\n");
    let model = imported(&text).into_model().unwrap();
    assert_eq!(
        (model.reorder, model.lines.is_default()),
        (Some(true), true)
    );
    let text = format!("{CLIENT}reorder = true\n[uplinks]\nreorder = true\n{line}");
    assert!(refused(&text).contains("written twice"));
}
