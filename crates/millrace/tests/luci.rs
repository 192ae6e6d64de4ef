//! LuCI's pages in a real Chromium: the package's files, a stand-in for LuCI's own modules, and a web server that
//! answers like uhttpd and rpcd with the program's output.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "luci/looks.rs"]
mod looks;
#[path = "luci/router.rs"]
mod router;

use lab::acceptance::browser::{self, Browser, DESKTOP, PHONE};
use lab::acceptance::{Net, PROGRAM, until};
use lab::{Host, Process};
use router::{Router, drop_file, open, packaged, picture, public, with_browser, words};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use wireguard::amnezia;

const KEYS: [&str; 2] = [
    "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=",
    "6NWExpoPHRTK+kovv34fgcihc6tJwHmPEuGLIv2MFGg=",
];

/// A provider's profile.
const PROFILE: &str = concat!(
    "client\ndev tun\nremote 192.0.2.1 1194\n<ca>\n",
    include_str!("../../config/tests/openvpn/keys/ca.crt"),
    "</ca>\nauth-user-pass\nfast-io\n"
);

fn office() -> (&'static str, Value) {
    (
        "config interface 'office'\n\toption proto 'millrace'\n",
        json!({
            "wan": {".type": "interface", ".name": "wan", "proto": "dhcp"},
            "office": {".type": "interface", ".name": "office", "proto": "millrace"},
        }),
    )
}

fn sections(browser: &Browser<'_>) -> Vec<Value> {
    let state = browser.script("return Object.values(uciOf('network'))");
    state.as_array().unwrap().clone()
}

/// The page turns a `wg-quick` file into options and peers for UCI; it sets nothing before "Use it".
#[test]
fn a_file_of_wireguard_becomes_options() {
    if !browser::ready() {
        return;
    }
    let host = Host::private("router").unwrap();
    let router = Router::new(&host);
    let (text, state) = office();
    router.network(text, &state);
    let file = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.8.0.2/32\nDNS = 10.8.0.1\nMTU = 1380\nPostUp = reboot\n\n[Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = vpn.example.org:51820\nPersistentKeepalive = 25\n",
        KEYS[0],
        public(KEYS[1])
    );
    with_browser(&router, |browser| {
        open(browser, &router, "interface=office");
        browser.click(".millrace-open");
        browser.wait_for(".millrace-text");
        drop_file(browser, "provider.conf", file.as_bytes());
        browser.wait_for(".millrace-use");
        let shown = words(browser, ".millrace-report");
        assert!(
            shown.contains("WireGuard: 8 lines honoured, 0 ignored, 1 refused"),
            "{shown}"
        );
        assert!(shown.contains("PostUp"), "{shown}");
        assert_eq!(sections(browser).len(), 2, "nothing is set yet");
        picture(browser, "import.png");
        browser.click(".millrace-use");
        until("the form is saved", || {
            browser.script("return map.saved") == 1
        });
        let sections = sections(browser);
        let office = sections.iter().find(|it| it[".name"] == "office").unwrap();
        assert_eq!(office["private_key"], KEYS[0]);
        assert_eq!(office["addresses"], json!(["10.8.0.2/32"]));
        assert_eq!(
            (&office["mtu"], &office["dns"]),
            (&json!("1380"), &json!(["10.8.0.1"]))
        );
        let peer = sections
            .iter()
            .find(|it| it[".type"] == "millrace_office")
            .unwrap();
        assert_eq!(peer["public_key"], public(KEYS[1]));
        assert_eq!(peer["allowed_ips"], json!(["0.0.0.0/0", "::/0"]));
        assert_eq!(
            (&peer["endpoint_host"], &peer["endpoint_port"]),
            (&json!("vpn.example.org"), &json!("51820"))
        );
        assert_eq!(
            (&peer["route_allowed_ips"], &peer["description"]),
            (&json!("1"), &json!("provider"))
        );
        let key = words(browser, "[data-name=_public_key] output");
        assert_eq!(key, public(KEYS[0]));
        browser.click("[data-show=peers]");
        browser.wait_for("[data-name=endpoint_host]");
        browser.click("[data-show=uplinks]");
        browser.wait_for("[data-name=mode]");
        assert!(words(browser, "[data-name=uplink]").contains("wan"));
        // The `only_through` field lists the other interfaces, and accepts device names.
        assert!(words(browser, "[data-name=only_through]").contains("wan"));
        browser.fill("[data-name=only_through] textarea", "lan br-guest");
        // Waits until the form is shown again.
        browser.script("return map.save(null, true)");
        let only_through = || {
            let sections = self::sections(browser);
            let office = sections.iter().find(|it| it[".name"] == "office").unwrap();
            office["only_through"].clone()
        };
        until("a list that is saved", || {
            only_through() == json!(["lan", "br-guest"])
        });
        // The page at phone size, and pasted text from a QR code.
        browser.size(PHONE);
        browser.click("[data-show=general]");
        browser.click(".millrace-open");
        browser.fill(".millrace-text", &file);
        browser.click(".millrace-check");
        browser.wait_for(".millrace-use");
        assert!(
            browser
                .text(".millrace-report")
                .contains("replaces this interface")
        );
        fits_a_phone(browser);
    });
}

/// A value for each setting of AmneziaWG.
const AMNEZIA: &str = "Jc = 4\nJmin = 40\nJmax = 70\nS1 = 30\nS2 = 40\nS3 = 25\nS4 = 16\nH1 = 100-200\nH2 = 300\nH3 = 400\n\
    H4 = 500-600\nI1 = <b 0xc0ffee><t><r 16>\nI2 = <c>\nI3 = it's <r 7>\nI4 = <rc 8>\nI5 = <rd 9>\nJ1 = <c>\nJ2 = <r 2>\n\
    J3 = <r 3>\nItime = 60\nHeaderProtectionKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
    ContentPaddingAddition = 10-100\nRekeyAfterTime = 100-120\nRekeyTimeout = 3-7\nRejectAfterTime = 150-180\n\
    KeepaliveTimeout = 5-15\nMaxHandshakeAttempts = 15-20\nRandomTrailers = on\nDisableCookies = on\n";

/// The form has a field for each setting of AmneziaWG. A file fills all of them, and a plain file empties them.
#[test]
fn a_file_of_amneziawg_fills_the_form() {
    if !browser::ready() {
        return;
    }
    let host = Host::private("router").unwrap();
    let router = Router::new(&host);
    let (text, state) = office();
    router.network(text, &state);
    let file = |lines: &str| {
        let key = public(KEYS[1]);
        format!(
            "[Interface]\nPrivateKey = {}\n{lines}[Peer]\nPublicKey = {key}\n",
            KEYS[0]
        )
    };
    let import = |browser: &Browser<'_>, file: &str| {
        let saved = browser.script("return map.saved").as_u64().unwrap();
        browser.click("[data-show=general]");
        drop_file(browser, "provider.conf", file.as_bytes());
        browser.wait_for(".millrace-use");
        browser.click(".millrace-use");
        until("the form is saved", || {
            browser.script("return map.saved") == saved + 1
        });
        let sections = sections(browser);
        let office = sections.into_iter().find(|it| it[".name"] == "office");
        office.unwrap()
    };
    with_browser(&router, |browser| {
        open(browser, &router, "interface=office");
        let office = import(browser, &file(AMNEZIA));
        let fields = browser.script(
            "return [...document.querySelectorAll('[data-tab=amneziawg] [data-name]')] \
             .map(it => [it.dataset.name, it.querySelector('label').textContent])",
        );
        let fields: Vec<[String; 2]> = serde_json::from_value(fields).unwrap();
        let titles: Vec<&str> = fields.iter().map(|it| it[1].as_str()).collect();
        assert_eq!(titles, amnezia::KEYS);
        for ([option, _], line) in fields.iter().zip(AMNEZIA.lines()) {
            let (_, value) = line.split_once(" = ").unwrap();
            let value = if value == "on" { "1" } else { value };
            assert_eq!(office[option], value, "{line}");
        }
        let kind =
            "return document.querySelector('[data-name=awg_header_protection_key] input').type";
        assert_eq!(browser.script(kind), "password");
        // Values that no tunnel could have are not saved.
        browser.click("[data-show=amneziawg]");
        for (option, value, words) in [
            ("awg_h1", "550", "H1 to H4 must not overlap"),
            ("awg_h1", "9-8", "Not a number or a range"),
            ("awg_h1", "7", ""),
            ("awg_s4", "9", "S1 to S4 must be at least 12"),
            ("awg_s4", "16", ""),
            ("awg_i1", "<q>", "Not made of tags"),
        ] {
            browser.fill(&format!("[data-name={option}] input"), value);
            if !words.is_empty() {
                browser.click("#save");
                browser.wait_for_text("#notes", words);
            }
        }
        let office = import(browser, &file(""));
        let left: Vec<&String> = office.as_object().unwrap().keys().collect();
        assert!(left.iter().all(|it| !it.starts_with("awg_")), "{left:?}");
    });
}

/// The page keeps other files where only root can read them, and names them in `config_file`.
#[test]
fn other_files_are_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    if !browser::ready() {
        return;
    }
    let host = Host::private("router").unwrap();
    let router = Router::new(&host);
    let (text, state) = office();
    router.network(text, &state);
    let kept = router.path("millrace/office.ovpn");
    with_browser(&router, |browser| {
        for (round, profile) in (1..).zip([PROFILE.to_owned(), format!("{PROFILE}verb 3\n")]) {
            open(browser, &router, "interface=office");
            drop_file(browser, "provider.ovpn", profile.as_bytes());
            browser.wait_for(".millrace-use");
            assert!(words(browser, ".millrace-report").contains("OpenVPN"));
            browser.click(".millrace-use");
            if round == 2 {
                // A file with this name exists; the page asks before it replaces it.
                browser.wait_for(".millrace-replace");
                assert_eq!(fs::read_to_string(&kept).unwrap(), PROFILE);
                browser.click(".millrace-replace");
            }
            until("the form is saved", || {
                browser.script("return map.saved") == 1
            });
            assert_eq!(fs::read_to_string(&kept).unwrap(), profile);
            let mode = fs::metadata(&kept).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let sections = sections(browser);
            let office = sections.iter().find(|it| it[".name"] == "office").unwrap();
            assert_eq!(office["config_file"], kept.to_str().unwrap());
            assert!(
                !browser.shows("[data-name=private_key]"),
                "a file has its own keys"
            );
        }
    });
}

/// The page reports damaged files and keeps nothing; it undoes reversible steps on request.
#[test]
fn damaged_files_are_told_and_not_kept() {
    if !browser::ready() {
        return;
    }
    let host = Host::private("router").unwrap();
    let router = Router::new(&host);
    let (text, state) = office();
    router.network(text, &state);
    let wide: Vec<u8> = format!("\u{feff}{PROFILE}")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let windows = PROFILE.replace('\n', "\r\n").into_bytes();
    let marked = format!("\u{feff}{PROFILE}").into_bytes();
    let page = b"<!DOCTYPE html><script>stubErrors.push('run')</script>".to_vec();
    with_browser(&router, |browser| {
        open(browser, &router, "interface=office");
        for (bytes, told, mends) in [
            (&windows, "CRLF", true),
            (&marked, "byte order mark", true),
            (&wide, "UTF-16", true),
            (&page, "web page", false),
            (&vec![0, 1, 2], "not a text file", false),
        ] {
            drop_file(browser, "provider.ovpn", bytes);
            browser.wait_for(".millrace-damage");
            assert!(words(browser, ".millrace-damage").contains(told), "{told}");
            assert!(!browser.shows(".millrace-use"));
            assert_eq!(browser.shows(".millrace-mend"), mends, "{told}");
            if told == "CRLF" {
                picture(browser, "damaged.png");
            }
            if mends {
                browser.click(".millrace-mend");
                browser.wait_for(".millrace-use");
            }
        }
        // File content is shown as text, even if it looks like HTML.
        drop_file(
            browser,
            "a.conf",
            b"[Interface]\n<img/src=x/onerror=stubErrors.push(1)> = 1\n",
        );
        browser.wait_for_text(".millrace-report", "No tunnel can be made");
        assert!(!browser.shows(".millrace-report img"));
        let large = vec![b'#'; 50_000];
        drop_file(browser, "large.conf", &large);
        browser.wait_for_text(".millrace-found", "50000 bytes");
        assert_eq!(sections(browser).len(), 2);
    });
    assert_eq!(fs::read_dir(router.path("millrace")).unwrap().count(), 0);
}

/// Starts two ends of a tunnel, of which the first has the name that netifd would give it.
fn tunnel(net: &Net, directory: &Path) -> [Process; 2] {
    let file = |host: &Host, name: &str, own: usize, address: &str, rest: &str| {
        let path = directory.join(name);
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = {address}/24\nListenPort = 5{own}\n[Peer]\nPublicKey = {}\n{rest}",
            KEYS[own],
            public(KEYS[1 - own])
        );
        fs::write(&path, text).unwrap();
        host.command(PROGRAM).arg("up").arg(path).spawn().unwrap()
    };
    let b = file(
        &net.b,
        "b.conf",
        1,
        "10.8.0.1",
        "AllowedIPs = 10.8.0.2/32\n",
    );
    let there = format!(
        "Endpoint = {}:51\nAllowedIPs = 10.8.0.1/32\nPersistentKeepalive = 1\n",
        net.link.b4()
    );
    [file(&net.a, "mr-office.conf", 0, "10.8.0.2", &there), b]
}

/// The status page and the overview box show running and failed tunnels and the guard; the server at home adds clients.
#[test]
fn tunnels_guard_and_clients_are_shown() {
    if !lab::acceptance::ready() || !browser::ready() {
        return;
    }
    let net = Net::new();
    let router = Router::new(&net.a);
    let key = public(KEYS[1]);
    router.network(
        &format!(
            "config interface 'office'\n\toption proto 'millrace'\n\nconfig millrace_office\n\toption public_key '{key}'\n\toption description '<b>Berlin</b>'\n\nconfig interface 'other'\n\toption proto 'millrace'\n"
        ),
        &json!({}),
    );
    let ends = tunnel(&net, router.directory.path());
    with_browser(&router, |browser| {
        open(browser, &router, "page=status");
        browser.wait_for_text(".millrace-tunnel h3", "1 of 1 peers connected");
        let shown = words(browser, ".millrace-tunnel");
        assert!(
            shown.contains("office") && shown.contains("<b>Berlin</b>"),
            "{shown}"
        );
        assert!(words(browser, "#millrace-live").contains("It is not running."));
        reads_rates(browser);
        // The page draws rates between two samples.
        until("a line of two points", || {
            browser.script("return document.querySelector('polyline').points.length > 1") == true
        });
        net.a
            .command(PROGRAM)
            .args(["guard", "on", "--lan", "br-lan", "--tunnel", "mr-none"])
            .exit()
            .unwrap();
        browser.wait_for_text(".millrace-guard", "Held: no tunnel is up");
        let guard = words(browser, ".millrace-guard");
        assert!(
            guard.contains("mr-none") && guard.contains("millrace guard off"),
            "{guard}"
        );
        assert!(!guard.contains('`'), "{guard}");
        // The page shows a server's plan before it makes the server. Its name is free.
        makes_a_server(browser, &router);
        // Adds a client and shows its QR code.
        browser.click("#millrace-home .cbi-button-add");
        browser.fill("#millrace-peer-name", "a b");
        browser.click(".modal .cbi-button-positive");
        browser.wait_for_text(".modal .alert-message", "is not a valid name");
        browser.fill("#millrace-peer-name", "phone");
        browser.click(".modal .cbi-button-positive");
        browser.wait_for(".millrace-code");
        assert!(scanned(browser).contains("Endpoint = home.example.org:51820"));
        browser.click(".modal .btn:last-child");
        browser.wait_for_text("#millrace-home", "phone");
        picture(browser, "status.png");
        has_cards(browser);
        browser.click("#millrace-home .millrace-rename");
        browser.fill("#millrace-peer-to", "a b");
        browser.click(".modal .cbi-button-positive");
        browser.wait_for_text(".modal .alert-message", "is not a valid name");
        browser.fill("#millrace-peer-to", "tablet");
        browser.click(".modal .cbi-button-positive");
        until("the new name", || {
            words(browser, "#millrace-home").contains("tablet")
        });
        browser.click("#millrace-home .cbi-button-negative");
        browser.click(".modal .cbi-button-negative");
        until("the client is gone", || {
            !words(browser, "#millrace-home").contains("tablet")
        });
        open(browser, &router, "page=overview");
        browser.wait_for_text(".millrace-overview", "1 of 1 peers connected");
        assert!(words(browser, ".millrace-overview").contains("held"));
        picture(browser, "overview.png");
        fits_a_phone(browser);
        // A tunnel that ends is no longer shown as up.
        drop(ends);
        until("the tunnel is down", || {
            !words(browser, ".millrace-overview").contains("peers connected")
        });
        net.a
            .command(PROGRAM)
            .args(["guard", "off"])
            .exit()
            .unwrap();
    });
}

/// Waits for rates and sizes other than zero, which have at most three digits.
fn reads_rates(browser: &Browser<'_>) {
    let mut rates = String::new();
    until("rates", || {
        rates = words(browser, ".millrace-rates");
        rates.contains(|it| matches!(it, '1'..='9'))
    });
    let text = rates + &words(browser, ".millrace-tunnel");
    for unit in ["bit/s", "B"] {
        let figures = text.split_whitespace().zip(text.split_whitespace().skip(1));
        let figures: Vec<&str> = figures
            .filter(|(_, word)| word.trim_start_matches(['k', 'K', 'i', 'M']) == unit)
            .map(|(figure, _)| figure)
            .collect();
        assert!(!figures.is_empty(), "{unit}: {text}");
        for figure in figures {
            assert!(figure.len() <= 4, "{figure} {unit}");
        }
    }
    assert!(!text.contains("0h 0m"), "{text}");
}

/// No element is wider than a phone.
fn fits_a_phone(browser: &Browser<'_>) {
    browser.size(PHONE);
    let wide = "return [...document.querySelectorAll('body *')].filter(it => it.getBoundingClientRect().right > arguments[0]) \
        .map(it => it.tagName + ' ' + it.innerText)";
    let wide = browser.script_with(wide, &[PHONE.0.into()]);
    assert_eq!(wide, json!([]));
}

/// Tunnels, interfaces that do not run, and the guard have cards with the most important facts. The other facts unfold, and
/// fit into a phone's width.
fn has_cards(browser: &Browser<'_>) {
    browser.size(PHONE);
    picture(browser, "status-phone.png");
    let unfold = "document.querySelectorAll('#millrace-live details').forEach(it => it.open = true); \
        return document.querySelectorAll('#millrace-live details').length";
    assert!(browser.script(unfold).as_u64().unwrap() > 0);
    browser.wait_for_text(".millrace-tunnel", "dataplane.rungs.");
    fits_a_phone(browser);
    let cards = "return [...document.querySelectorAll('.millrace-cards > *')].map(it => it.innerText.split('\\n')[0])";
    let cards = browser.script(cards);
    let cards = cards.as_array().unwrap().iter();
    let cards: Vec<&str> = cards.map(|it| it.as_str().unwrap()).collect();
    let expected = ["office 1 of 1 peers connected", "other down", "Guard held"];
    assert_eq!(cards, expected);
    // A part stays as it is over polls.
    let fold = "document.querySelectorAll('#millrace-live details').forEach(it => it.open = false)";
    browser.script(fold);
    until("folded parts", || {
        !browser.shows("#millrace-live details[open]")
    });
    browser.script("document.querySelector('.millrace-cards').classList.add('old')");
    browser.wait_for(".millrace-cards:not(.old)");
    assert!(!browser.shows("#millrace-live details[open]"));
    let height = "return document.querySelector('.millrace-tunnel').offsetHeight";
    assert!(browser.script(height).as_u64().unwrap() < 450);
    browser.size(DESKTOP);
}

/// A PPTP tunnel has no handshakes: the page says when its other end was last heard. It is not "connected" while its server
/// is silent.
#[test]
fn a_tunnel_of_pptp_is_shown() {
    if !lab::acceptance::ready() || !browser::ready() {
        return;
    }
    let net = Net::new();
    let router = Router::new(&net.a);
    let (text, state) = office();
    router.network(text, &state);
    let start = |host: &Host, name: &str, text: &str| {
        let path = router.directory.path().join(name);
        let allowed = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\n";
        fs::write(&path, format!("{allowed}{text}")).unwrap();
        host.command(PROGRAM).arg("up").arg(path).spawn().unwrap()
    };
    let server = "listen = \"0.0.0.0\"\naddress = \"10.9.0.1/24\"\ninterface = \"pptp0\"\n[users]\nalice = \"horse\"\n";
    let server = start(&net.b, "server.toml", server);
    let client = format!(
        "server = \"{}\"\nusername = \"alice\"\npassword = \"horse\"\ninterface = \"mr-office\"\n",
        net.link.b4()
    );
    let _client = start(&net.a, "client.toml", &client);
    with_browser(&router, |browser| {
        open(browser, &router, "page=status");
        browser.wait_for_text(".millrace-tunnel .label", "connected");
        let shown = words(browser, ".millrace-tunnel");
        assert!(!shown.contains("never"), "{shown}");
        assert!(shown.contains("Last heard"), "{shown}");
        net.a.output("ip", ["link", "set", "eth0", "down"]).unwrap();
        browser.wait_for_text(".millrace-tunnel .label", "no carrier");
        assert!(!browser.shows(".millrace-tunnel .label.success"));
        drop(server);
    });
}

/// Codes of the table of faults in docs/openwrt.md.
fn codes() -> Vec<String> {
    let page = include_str!("../../../docs/openwrt.md");
    let (_, faults) = page.split_once("## Faults").unwrap();
    let (faults, _) = faults.split_once("\n## ").unwrap();
    let rows = faults.lines().filter_map(|it| it.strip_prefix("| `"));
    let codes = rows.filter_map(|it| it.split_once('`'));
    codes.map(|it| it.0.to_owned()).collect()
}

/// LuCI's page of interfaces knows the codes of faults; the status page shows the program's words and a remedy.
#[test]
fn faults_have_words_and_a_remedy() {
    if !browser::ready() {
        return;
    }
    let host = Host::private("router").unwrap();
    let router = Router::new(&host);
    let (text, state) = office();
    let other = "\nconfig interface 'other'\n\toption proto 'millrace'\n";
    router.network(&format!("{text}{other}"), &state);
    let set = |name: &str, state: Value| router.states.lock().unwrap().insert(name.into(), state);
    let (codes, words) = (codes(), "network:5: `alow_files` <b>is</b> unknown");
    assert!(codes.len() > 5, "{codes:?}");
    let errors = codes
        .iter()
        .map(|code| json!({"subsystem": "millrace", "code": code, "data": [words]}));
    let errors: Vec<Value> = errors.collect();
    let fault =
        |code: &str, words: &str| json!([{"subsystem": "millrace", "code": code, "data": [words]}]);
    set(
        "office",
        json!({"up": false, "pending": true, "errors": errors}),
    );
    set("other", json!({"up": true, "errors": [], "data": {}}));
    with_browser(&router, |browser| {
        open(browser, &router, "page=interfaces");
        let shown = self::words(browser, "[data-interface=office]");
        assert!(!shown.contains("Unknown error"), "{shown}");
        assert_eq!(shown.matches("Status » Millrace").count(), codes.len());
        open(browser, &router, "page=status");
        for code in &codes {
            let fault = self::words(browser, &format!("[data-fault={code}]"));
            assert!(fault.contains("alow_files <b>is</b> unknown"), "{fault}");
            // A title, the words and a remedy, which is a sentence.
            assert_eq!(fault.lines().count(), 2, "{fault}");
            assert!(fault.ends_with('.') && !fault.starts_with(code), "{fault}");
        }
        // Codes of later programs are shown as they are.
        set(
            "office",
            json!({"up": true, "errors": fault("FUTURE", "a"), "data": {"faults": []}}),
        );
        browser.wait_for("[data-interface=mr-office]:not(:has([data-fault]))");
        let listed = json!({"faults": [["FUTURE", "its words"], "other", []]});
        set("office", json!({"up": true, "errors": [], "data": listed}));
        browser.wait_for_text("[data-fault=FUTURE]", "FUTURE: its words");
        set(
            "office",
            json!({"up": true, "errors": fault("NO_ANSWER", "b")}),
        );
        browser.wait_for_text("[data-fault=NO_ANSWER]", "b");
        // netifd does not know it.
        router.states.lock().unwrap().clear();
        browser.wait_for("[data-interface=mr-office]:not(:has([data-fault]))");
        assert!(!browser.shows("#millrace-live > .alert-message"));
    });
}

/// Plans a server on the page, and makes it.
fn makes_a_server(browser: &Browser<'_>, router: &Router<'_>) {
    let path = router.path("millrace/house.conf");
    browser.click("#millrace-home .millrace-init");
    browser.fill("#millrace-server-name", "house");
    browser.fill("#millrace-server-endpoint", "home.example.org");
    browser.fill("#millrace-server-lan", "nonsense");
    browser.click(".modal .cbi-button-positive");
    browser.wait_for_text(".modal .alert-message", "nonsense");
    browser.fill("#millrace-server-lan", "192.168.9.0/24, 192.168.8.0/24");
    browser.click(".modal .cbi-button-positive");
    browser.wait_for_text(".millrace-plan", "house.conf is written");
    let plan = words(browser, ".millrace-plan");
    assert!(!path.exists(), "nothing is made before it is said to be");
    browser.click(".modal .cbi-button-positive");
    browser.wait_for_text(".millrace-made", "house.conf is written");
    let choices = |text: &str| {
        let (_, rest) = text.split_once("clients connect to").unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    assert_eq!(choices(&words(browser, ".millrace-made")), choices(&plan));
    let file = fs::read_to_string(&path).unwrap();
    assert!(file.contains("#! LAN = 192.168.9.0/24"), "{file}");
    browser.click(".modal .btn");
    // The page refuses to overwrite an existing server, with a message that fits the page.
    browser.click("#millrace-home .millrace-init");
    browser.fill("#millrace-server-name", "house");
    browser.click(".modal .cbi-button-positive");
    browser.wait_for_text(".modal .alert-message", "another name");
    assert!(!words(browser, ".modal").contains("--"));
    browser.click(".modal .btn");
}

/// Decodes the QR code on the page.
fn scanned(browser: &Browser<'_>) -> String {
    let script = "const path = document.querySelector('.millrace-code path').getAttribute('d'); \
        return [document.querySelector('.millrace-code rect').getAttribute('width'), path]";
    let shown = browser.script(script);
    let size: usize = shown[0].as_str().unwrap().parse().unwrap();
    let squares = shown[1].as_str().unwrap().split('M').skip(1).map(|it| {
        let place = it.split('h').next().unwrap();
        let (x, y) = place.split_once(' ').unwrap();
        (x.parse().unwrap(), y.parse().unwrap())
    });
    let dark: std::collections::HashSet<(usize, usize)> = squares.collect();
    const SCALE: usize = 4;
    let mut image =
        rqrr::PreparedImage::prepare_from_greyscale(size * SCALE, size * SCALE, |x, y| {
            if dark.contains(&(x / SCALE, y / SCALE)) {
                0
            } else {
                255
            }
        });
    image.detect_grids()[0].decode().unwrap().1
}

/// The plugin hands over to the program; users get rights to exactly the program's methods.
#[test]
fn rights_are_those_of_the_methods() {
    let plugin = fs::read_to_string(packaged("usr/libexec/rpcd/luci.millrace")).unwrap();
    let plugin = plugin.replace("/usr/sbin/millrace", PROGRAM.path().to_str().unwrap());
    let run = |word: &str| {
        let command = Command::new("sh")
            .args(["-c", &plugin, "luci.millrace", word])
            .output();
        String::from_utf8(command.unwrap().stdout).unwrap()
    };
    let listed: Value = serde_json::from_str(&run("list")).unwrap();
    let methods: Vec<&String> = listed.as_object().unwrap().keys().collect();
    if !lab::may_enter() {
        return;
    }
    let host = Host::private("router").unwrap();
    let router = Router::new(&host);
    let mut rights: Vec<&String> = router.rights.iter().collect();
    rights.sort();
    assert_eq!(methods, rights);
    assert_eq!(run("other"), "");
    // Any input gets an object as the answer.
    for input in ["", "{}", "[1]", "{\"name\": 1}", "x", &"x".repeat(200_000)] {
        for method in methods.iter().map(|it| it.as_str()).chain(["none"]) {
            let answer = router.rpcd(&["call", method], input);
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert!(answer.is_object(), "{method}");
        }
    }
}

/// Every page file of the package is JavaScript, refers to no external address, and its text can be translated.
#[test]
fn pages_are_whole_by_themselves() {
    let mut directories = vec![packaged("www")];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            files += 1;
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("'use strict';\n"), "{}", path.display());
            let [svg, links] = ["http://www.w3.org/2000/svg", "vpn://"];
            let addresses = text.replace(svg, "").replace(links, "");
            assert!(!addresses.contains("://"), "{}", path.display());
            assert!(!text.contains("innerHTML"), "{}", path.display());
        }
    }
    assert_eq!(files, 4);
}
