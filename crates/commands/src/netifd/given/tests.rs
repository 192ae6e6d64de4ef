use super::*;
use crate::blocks::{CA, SERVER as KEYS};
use std::fs;

/// A server's file without refused lines.
fn server() -> String {
    format!("server 10.8.0.0 255.255.255.0\ndev tun\ndh none\n{CA}{KEYS}")
}

/// A client's file, without a login.
fn client() -> String {
    format!("client\ndev tun\nremote 192.0.2.1\n{CA}")
}

const LOGIN: &str = "<auth-user-pass>\nuser\nword\n</auth-user-pass>\n";

/// The command line, with a setting of the program.
pub(in crate::netifd) fn matches(setting: &str) -> ArgMatches {
    let set = (!setting.is_empty()).then(|| format!("--set={setting}"));
    let words = ["netifd", "office"].into_iter().map(str::to_owned);
    crate::netifd::command().get_matches_from(words.chain(set))
}

/// Reads an interface that is made from a file of this name and text, with these extra lines in its section.
fn read(name: &str, text: &str, more: &str) -> Result<Given, Vec<Fault>> {
    read_with("", name, text, more)
}

/// Reads an interface with a setting of the program.
fn read_with(setting: &str, name: &str, text: &str, more: &str) -> Result<Given, Vec<Fault>> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(name);
    fs::write(&file, text).unwrap();
    let section = format!(
        "config interface 'office'\n option proto millrace\n option config_file '{}'\n{more}\n",
        file.display()
    );
    fs::write(directory.path().join("network"), section).unwrap();
    Given::read(&At {
        interface: "office".to_owned(),
        uci: directory.path().to_owned(),
        ubus: Some(directory.path().join("none")),
        program: Program::running(),
        matches: matches(setting),
    })
}

fn fault(outcome: Result<Given, Vec<Fault>>) -> String {
    let faults = outcome.unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0].code, code::CONFIG_FAULT);
    faults[0].words.clone()
}

#[test]
fn a_server_is_taken_but_for_what_it_cannot_be_without() {
    let given = read("office.ovpn", &server(), " option mode duplicate").unwrap();
    assert!(matches!(given.kind, Kind::OpenVpn(_)));
    // netifd itself does the work of scripts that only report.
    let told = format!(
        "{}script-security 2\nclient-disconnect /bin/true\nup /bin/true\n",
        server()
    );
    let given = read("office.ovpn", &told, "").unwrap();
    let notes = given.notes.join("\n");
    assert!(
        notes.contains("client-disconnect") && notes.contains("up"),
        "{notes}"
    );
    for script in [
        "auth-user-pass-verify /bin/false via-file",
        "client-connect /bin/false",
        "tls-verify /bin/false",
        "learn-address /bin/false",
    ] {
        let text = format!("{}script-security 2\n{script}\n", server());
        let words = fault(read("office.ovpn", &text, ""));
        assert!(
            words.contains("decides which clients may log in"),
            "{words}"
        );
    }
}

#[test]
fn a_client_is_not_taken_without_the_script_that_judges_the_server() {
    let with = |script: &str| format!("script-security 2\n{script}\n{}{LOGIN}", client());
    let given = read("away.ovpn", &with("up /bin/true"), "").unwrap();
    assert!(
        given.notes.iter().any(|it| it.contains("up")),
        "{:?}",
        given.notes
    );
    let words = fault(read("away.ovpn", &with("tls-verify /bin/false"), ""));
    assert!(
        words.contains(
            "line 2: `tls-verify` decides which clients may log in or which server is trusted"
        ),
        "{words}"
    );
}

#[test]
fn a_server_has_no_lines() {
    let words = fault(read("office.ovpn", &server(), " list uplink wan"));
    assert!(
        words.contains("office.uplink: a server has no uplinks"),
        "{words}"
    );
}

/// A tunnel goes on when its changed settings ask the kernel for what it cannot do.
#[test]
fn what_the_kernel_cannot_do_is_a_fault_of_the_configuration() {
    let fits = format!("{}{LOGIN}", client());
    for (more, option) in [("shaper 100000", ""), ("", " list uplink wan\n")] {
        let text = format!("{fits}{more}\n");
        assert!(read("away.ovpn", &text, option).is_ok(), "{more}");
        let kernel = format!("{option} option dataplane kernel");
        let of_file = read_with("dataplane.kind=kernel", "away.ovpn", &text, option);
        for read in [read("away.ovpn", &text, &kernel), of_file] {
            let words = fault(read);
            assert!(words.contains("kernel's data plane"), "{words}");
        }
        let user = format!("{option} option dataplane user");
        assert!(read_with("dataplane.kind=kernel", "away.ovpn", &text, &user).is_ok());
    }
    let fitting = read("away.ovpn", &fits, " option dataplane kernel");
    assert_eq!(fitting.is_ok(), cfg!(feature = "kernel"));
}

/// A file that cannot start is a configuration fault: another attempt would not help.
#[test]
fn a_file_that_cannot_start_is_a_fault_of_the_configuration() {
    let with = |more: &str| format!("{}{more}\n", client());
    assert!(read("away.ovpn", &with(LOGIN), "").is_ok());
    assert!(
        read(
            "away.ovpn",
            &with("auth-user-pass\nmanagement 127.0.0.1 7505\nmanagement-query-passwords"),
            " option allow_files 1"
        )
        .is_ok()
    );
    let asked = format!("{LOGIN}static-challenge code 1");
    let bad = format!("{LOGIN}<tls-crypt>\nabc\n</tls-crypt>");
    let typed = format!("{LOGIN}management 127.0.0.1 7505 stdin");
    let named = "<auth-user-pass>\nuser\n</auth-user-pass>";
    let table = [
        ("no-such-directive", "no-such-directive"),
        (
            "auth-user-pass",
            "auth-user-pass: nobody is there to enter it",
        ),
        (
            "auth-user-pass /etc/shadow",
            "auth-user-pass: nobody is there to enter it",
        ),
        (named, "auth-user-pass: nobody is there to enter it"),
        (&asked, "static-challenge: nobody is there to enter it"),
        (&bad, "tls-crypt"),
        (&typed, "management: nobody is there to enter it"),
        ("pkcs12 /nonexistent", "pkcs12"),
        ("auth-user-pass\ndev null", "null"),
    ];
    for (more, words) in table {
        let found = fault(read("away.ovpn", &with(more), ""));
        assert!(found.contains(words), "{more}: {found}");
    }
    let file = format!("{}auth-user-pass login\n", client());
    let found = fault(read("away.ovpn", &file, " option allow_files 1"));
    assert!(found.contains("auth-user-pass: "), "{found}");
    let empty = "server 10.8.0.0 255.255.255.0\ndev tun\ndh none\n<ca>\n</ca>\n<cert>\n</cert>\n<key>\n</key>\n";
    fault(read("home.ovpn", empty, ""));
    fault(read(
        "office.conf",
        "[Interface]\nAddress = 10.8.0.1/24\n",
        "",
    ));
    #[cfg(feature = "pptp")]
    fault(read(
        "office.toml",
        "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"a\"\n",
        "",
    ));
}

#[cfg(feature = "pptp")]
#[test]
fn a_server_of_pptp_is_taken_and_has_no_lines_either() {
    let text = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nlisten = \"0.0.0.0\"\naddress = \"10.9.0.1/24\"\n\
                [users]\nalice = \"correct horse\"\n";
    assert!(matches!(
        read("office.toml", text, "").unwrap().kind,
        Kind::Pptp(_)
    ));
    let words = fault(read("office.toml", text, " list uplink wan"));
    assert!(words.contains("a server has no uplinks"), "{words}");
}

#[test]
fn what_a_server_at_home_wants_of_the_host_is_the_firewalls() {
    let key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    let home = "#! [Server]\n#! LAN = 192.168.1.0/24\n#! Masquerade = yes\n";
    let wireguard = format!("{home}[Interface]\nPrivateKey = {key}\nAddress = 10.8.0.1/24\n");
    let given = read("home.conf", &wireguard, "").unwrap();
    assert!(given.notes.iter().any(|it| it == NOT_FORWARDED));
    let given = read("home.ovpn", &format!("{home}{}", server()), "").unwrap();
    assert!(given.notes.iter().any(|it| it == NOT_FORWARDED));
}

#[test]
fn an_interface_is_found_by_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let (file, network) = (
        directory.path().join("home.ovpn"),
        directory.path().join("network"),
    );
    fs::write(&file, "").unwrap();
    let text = format!(
        "config interface lan\n option proto static\n\
         config interface home\n option proto millrace\n option config_file '{}'\n",
        file.display()
    );
    fs::write(&network, text).unwrap();
    let found = fs::canonicalize(&file).unwrap();
    assert_eq!(file_in(&network, "home"), Some(found));
    assert_eq!(file_in(&network, "lan"), None);
    assert_eq!(file_in(&network, "none"), None);
    assert_eq!(file_of(Path::new("/etc/openvpn/home.ovpn")), None);
}
