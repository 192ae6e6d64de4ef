//! `millrace check` and `up` agree: a file starts exactly if `check` finds no fault.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;

use lab::Host;
use lab::acceptance::openvpn::credentials;
use lab::acceptance::{Directory, Net, PATIENCE, PROGRAM, ready, until};
use lab::openvpn::KeyKind;
use lab::peer::Keys;
use nix::sys::signal::Signal;

/// All permissions, so that only the files themselves are judged.
const PERMITTED: [&str; 2] = ["--allow-scripts", "--allow-insecure-ciphers"];

/// A file: its name, its text, and a word from the expected fault, or `None` if it yields a tunnel.
struct Row {
    name: &'static str,
    text: String,
    fault: Option<&'static str>,
}

/// Starts a tunnel from this file. Returns whether it got as far as its first socket or interface, and its output.
fn starts(host: &Host, path: &Path) -> (bool, String) {
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let command = host.command(PROGRAM).arg("-v").arg("up").args(PERMITTED);
    let mut process = command.arg(path).spawn().unwrap();
    let (mut started, mut ended) = (false, false);
    until("the start or its end", || {
        let said = process.stdout() + &process.stderr();
        started = said.contains("link remote: ")
            || said.contains("link local (bound)")
            || host.has_interface(&name).unwrap();
        ended = process.try_wait().unwrap().is_some();
        started || ended
    });
    if !ended {
        process.signal(Signal::SIGTERM).unwrap();
    }
    let exit = process.wait_at_most(PATIENCE).unwrap();
    (started, exit.stdout + &exit.stderr)
}

fn agree(host: &Host, directory: &Directory, rows: impl IntoIterator<Item = Row>) {
    for Row { name, text, fault } in rows {
        let path = directory.file(name, &text);
        let command = host.command(PROGRAM).arg("check").args(PERMITTED);
        let check = command.arg(&path).spawn().unwrap();
        let check = check.wait_at_most(PATIENCE).unwrap();
        let told = format!("{text}\n{}{}", check.stdout, check.stderr);
        assert_eq!(check.status.success(), fault.is_none(), "{told}");
        let (started, said) = starts(host, &path);
        assert_eq!(started, fault.is_none(), "{told}\nthe start: {said}");
        if let Some(word) = fault {
            assert!(told.contains(word), "{told}: {word}");
            assert!(said.contains(word), "{told}\nthe start: {said}: {word}");
        }
    }
}

/// The lines in the report are those of the user's file, as a refused file is not kept.
#[test]
fn an_import_names_the_file_that_it_was_given() {
    if !ready() {
        return;
    }
    let (host, directory) = (Host::private("import").unwrap(), Directory::new());
    let path = directory.file("given.conf", "[Interface]\nPrivateKey = short\n");
    let to = directory.path().join("kept");
    let command = host
        .command(PROGRAM)
        .arg("import")
        .arg(&path)
        .arg("--to")
        .arg(&to);
    let exit = command.spawn().unwrap().wait_at_most(PATIENCE).unwrap();
    let said = format!("{}{}", exit.stdout, exit.stderr);
    assert!(!exit.status.success(), "{said}");
    assert!(said.contains(&format!("{}:2: ", path.display())), "{said}");
    assert!(!said.contains("kept/"), "{said}");
}

#[test]
fn openvpn() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let keys = credentials(KeyKind::Ecdsa);
    directory.file("ca.crt", keys.pki.ca());
    directory.file("login", "user\nsecret\n");
    directory.file("empty", "");
    directory.file("name", "user\n");
    directory.file("server.crt", &keys.pki.server().certificate);
    directory.file("server.key", &keys.pki.server().key);
    let remote = net.link.b4().to_string();
    let client = format!(
        "client\ndev-type tun\ndev check0\nremote {remote}\nnobind\nca ca.crt\nremote-cert-tls server\n\
         auth-user-pass login\nconnect-retry 1 1\nverb 3\n"
    );
    let server = "server 10.8.0.0 255.255.255.0\ntopology subnet\ndev-type tun\ndev check0\nca ca.crt\ncert server.crt\n\
        key server.key\ndh none\nverb 3\n";
    let row = |base: &str, more: &str, fault| Row {
        name: "check0.ovpn",
        text: format!("{base}{more}"),
        fault,
    };
    let without = |directive: &str, instead: &str| {
        let lines = client.lines().filter(|line| !line.starts_with(directive));
        let rest: Vec<&str> = lines.collect();
        format!("{}\n{instead}", rest.join("\n"))
    };
    let of_client = [
        ("", None),
        ("verb 32\n", None),
        ("connect-retry 100000\n", None),
        ("data-ciphers-fallback BF-CBC\nkeysize 128\n", None),
        (
            "data-ciphers-fallback BF-CBC\nkeysize 256\n",
            Some("keysize"),
        ),
        ("cipher BF-CBC\nkeysize 64\n", Some("keysize")),
        ("<tls-auth>\n</tls-auth>\n", Some("tls-auth")),
        ("<tls-crypt>\n\n</tls-crypt>\n", Some("tls-crypt")),
        (
            "<tls-crypt-v2>\nabc\n</tls-crypt-v2>\n",
            Some("tls-crypt-v2"),
        ),
        ("tls-auth empty 1\n", Some("tls-auth")),
        ("<crl-verify>\n</crl-verify>\n", Some("crl-verify")),
        ("<cert>\nx\n</cert>\n<key>\ny\n</key>\n", Some("cert")),
        ("auth-user-pass empty\n", Some("auth-user-pass")),
        ("auth-user-pass name\n", Some("auth-user-pass")),
        ("auth-user-pass /proc\n", Some("auth-user-pass")),
        ("user no-such-user\n", Some("no-such-user")),
        ("status /nonexistent/status\n", Some("status")),
        ("writepid /proc\n", Some("writepid")),
        ("management 127.0.0.1 0 /nonexistent\n", Some("management")),
        ("management 127.0.0.1 0 empty\n", Some("management")),
        ("script-security 2\nup /nonexistent\n", Some("up")),
        ("tls-verify /bin/true\n", Some("tls-verify")),
        (
            "#! [Uplinks]\n#! Mode = duplicate\n#! Hold = 5\n#! [Uplink]\n#! Name = a\n#! Interface = eth0\n",
            None,
        ),
    ];
    let of_server = [
        ("", None),
        ("auth-gen-token\n", None),
        (
            "auth-gen-token-secret empty\nauth-gen-token\n",
            Some("auth-gen-token-secret"),
        ),
        ("<tls-crypt-v2>\n</tls-crypt-v2>\n", Some("tls-crypt-v2")),
        (
            "auth-user-pass-file /nonexistent\n",
            Some("auth-user-pass-file"),
        ),
        (
            "client-config-dir /nonexistent\n",
            Some("client-config-dir"),
        ),
        (
            "ifconfig-pool-persist /proc\n",
            Some("ifconfig-pool-persist"),
        ),
        ("group no-such-group\n", Some("no-such-group")),
    ];
    let rows = of_client.map(|(more, fault)| row(&client, more, fault));
    let rows = rows.into_iter();
    let rows = rows.chain(of_server.map(|(more, fault)| row(server, more, fault)));
    let others = [
        (
            without("remote ", "remote 203.0.113.1:1194\n"),
            Some("separate the port with a space: `203.0.113.1 1194`"),
        ),
        (without("ca ", "<ca>\n</ca>\n"), Some("ca")),
        (without("ca ", "ca login\n"), Some("ca")),
        (
            without("auth-user-pass", "auth-user-pass /nonexistent\n"),
            Some("auth-user-pass"),
        ),
    ];
    let rows = rows.chain(others.map(|(text, fault)| row(&text, "", fault)));
    agree(&net.a, &directory, rows);
}

#[test]
fn wireguard() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let keys = Keys::generate(&net.a).unwrap();
    let interface = format!("[Interface]\nPrivateKey = {}\n", keys.private);
    let peer = format!(
        "[Peer]\nPublicKey = {}\n",
        Keys::generate(&net.a).unwrap().public
    );
    let row = |interface_more: &str, peer_more: &str, fault| Row {
        name: "check0.conf",
        text: format!("{interface}{interface_more}{peer}{peer_more}"),
        fault,
    };
    // wg-easy and WGDashboard write these lines.
    let empty = "Address = 10.66.0.1/24\nDNS = \nMTU = \nTable =\nPreUp = \nPostUp = # none\nPreDown =\nPostDown = \n";
    let rows = [
        row("", "", None),
        row(empty, "AllowedIPs =\n", None),
        row("", "Endpoint = fd00:1::2:51820\n", None),
        row("ListenPort =\n", "", Some("ListenPort")),
        row("", "Endpoint =\n", Some("Endpoint")),
        row("", "PresharedKey =\n", Some("PresharedKey")),
        row("", "PersistentKeepalive =\n", Some("PersistentKeepalive")),
        row("", "Endpoint = fd00:1::2\n", Some("Endpoint")),
        row("#! [Server]\n#! Masquerade = no\n", "", None),
    ];
    agree(&net.a, &directory, rows);
}

#[cfg(feature = "pptp")]
#[test]
fn pptp() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    directory.file("empty.password", "\n");
    directory.file("check0.password", "secret\n");
    let text = |password: &str| {
        let path = directory.path().join(password);
        format!(
            "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"{}\"\nusername = \"alice\"\npassword-file = {path:?}\n",
            net.link.b4()
        )
    };
    let row = |password: &str, fault| Row {
        name: "check0.toml",
        text: text(password),
        fault,
    };
    let rows = [
        row("check0.password", None),
        row("empty.password", Some("password-file")),
        row("none.password", Some("password-file")),
    ];
    agree(&net.a, &directory, rows);
}
