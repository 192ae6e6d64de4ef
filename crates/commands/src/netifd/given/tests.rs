use super::*;
use std::fs;

const SERVER: &str = "server 10.8.0.0 255.255.255.0\ndev tun\ndh none\n<ca>\n</ca>\n<cert>\n</cert>\n<key>\n</key>\n";

/// Reads an interface that is made from a file of this name and text, with these lines more in its section.
fn read(name: &str, text: &str, more: &str) -> Result<Given, Vec<Fault>> {
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
    let given = read("office.ovpn", SERVER, " option mode duplicate").unwrap();
    assert!(matches!(given.kind, Kind::OpenVpn(_)));
    // What scripts are for that only tell, netifd does.
    let told = format!("{SERVER}script-security 2\nclient-disconnect /bin/true\nup /bin/true\n");
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
        let text = format!("{SERVER}script-security 2\n{script}\n");
        let words = fault(read("office.ovpn", &text, ""));
        assert!(words.contains("a say in who is let in"), "{words}");
    }
}

#[test]
fn a_client_is_not_taken_without_the_script_that_judges_the_server() {
    const CLIENT: &str =
        "client\ndev tun\nremote 192.0.2.1\nauth-user-pass\n<ca>\n</ca>\nscript-security 2\n";
    let given = read("away.ovpn", &format!("{CLIENT}up /bin/true\n"), "").unwrap();
    assert!(
        given.notes.iter().any(|it| it.contains("up")),
        "{:?}",
        given.notes
    );
    let text = format!("{CLIENT}tls-verify /bin/false\n");
    let words = fault(read("away.ovpn", &text, ""));
    assert!(
        words
            .contains("line 8: `tls-verify` has a say in who is let in or which server is trusted"),
        "{words}"
    );
}

#[test]
fn a_server_has_no_lines() {
    let words = fault(read("office.ovpn", SERVER, " list line wan"));
    assert!(
        words.contains("office.line: a server has no lines"),
        "{words}"
    );
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
    let words = fault(read("office.toml", text, " list line wan"));
    assert!(words.contains("a server has no lines"), "{words}");
}

#[test]
fn what_a_server_at_home_wants_of_the_host_is_the_firewalls() {
    let key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    let home = "#! [Server]\n#! LAN = 192.168.1.0/24\n#! Masquerade = yes\n";
    let wireguard = format!("{home}[Interface]\nPrivateKey = {key}\nAddress = 10.8.0.1/24\n");
    let given = read("home.conf", &wireguard, "").unwrap();
    assert!(given.notes.iter().any(|it| it == NOT_FORWARDED));
    {
        let given = read("home.ovpn", &format!("{home}{SERVER}"), "").unwrap();
        assert!(given.notes.iter().any(|it| it == NOT_FORWARDED));
    }
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
