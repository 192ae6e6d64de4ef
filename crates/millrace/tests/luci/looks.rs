//! How the pages look: each page in each language, at the size of a desktop and of a phone, in light and dark colours.

use super::*;
use std::collections::BTreeSet;

/// OpenWrt's firewall, which rejects GRE from the Internet.
const FIREWALL: &str = "config zone\n\toption name 'wan'\n\toption input 'REJECT'\n";

/// A language that brackets each text that can be translated.
const PSEUDO: &str = "pseudo";

/// Words of a page that are names or data.
const DATA: &str = "WireGuard AmneziaWG OpenVPN PPTP MTU IPv4 IPv6 office other old mr br lan none wan eth0 fibre house conf phone b Berlin \
                    FUTURE home vpn example org";

/// A PPTP client whose server does not answer.
fn pptp(net: &Net) -> String {
    format!(
        "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"{}\"\nusername = \"a\"\npassword = \"b\"\n",
        net.link.b4()
    )
}

/// A router that has everything that the pages show, with the programs that run on it.
fn world<'h>(net: &'h Net) -> (Router<'h>, Vec<Process>) {
    let router = Router::new(&net.a);
    let key = public(KEYS[1]);
    let interface =
        |name: &str| format!("config interface '{name}'\n\toption proto 'millrace'\n\n");
    let peer = format!(
        "config millrace_office\n\toption public_key '{key}'\n\toption description '<b>Berlin</b>'\n"
    );
    let text = interface("office") + &interface("old") + &interface("other") + &peer;
    router.network(&text, &office().1);
    fs::write(router.path("config/firewall"), FIREWALL).unwrap();
    let faults = ["CONFIG_FAULT", "PEER_FAULT", "FUTURE"];
    let faults = faults.map(
        |it| json!({"subsystem": "millrace", "code": it, "data": ["network:5: `x` is unknown"]}),
    );
    let state = json!({"up": false, "pending": true, "errors": faults});
    router.states.lock().unwrap().insert("other".into(), state);
    let start = |name: &str, text: &str| {
        let path = router.directory.path().join(name);
        fs::write(&path, text).unwrap();
        net.a.command(PROGRAM).arg("up").arg(path).spawn().unwrap()
    };
    let office = format!(
        "#! [Uplinks]\n#! Mode = failover\n#! [Uplink]\n#! Name = fibre\n#! Interface = eth0\n[Interface]\n\
         PrivateKey = {}\nAddress = 10.8.0.2/24\n[Peer]\nPublicKey = {key}\nEndpoint = {}:51\n\
         AllowedIPs = 10.8.0.1/32\nPersistentKeepalive = 1\n",
        KEYS[0],
        net.link.b4()
    );
    let old = format!("{}interface = \"mr-old\"\n", pptp(net));
    let programs = vec![start("mr-office.conf", &office), start("old.toml", &old)];
    net.a
        .command(PROGRAM)
        .args(["guard", "on", "--lan", "br-lan", "--tunnel", "mr-none"])
        .exit()
        .unwrap();
    let call = |method: &str, arguments: &Value| {
        let answer = router.rpcd(&["call", method], &arguments.to_string());
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["error"], Value::Null);
    };
    let lan = "192.168.9.0/24";
    call(
        "server_init",
        &json!({"name": "house", "endpoint": "home.example.org", "lan": lan}),
    );
    let server = router.path("millrace/house.conf");
    call(
        "peer_add",
        &json!({"server": server, "name": "phone", "behind": "192.168.7.0/24"}),
    );
    (router, programs)
}

/// Presses a button, which polls replace, and waits for its window.
fn press(browser: &Browser<'_>, button: &str) {
    until("a window", || {
        let click = "const it = document.querySelector(arguments[0]); if (it) it.click()";
        browser.script_with(click, &[button.into()]);
        browser.shows(".modal")
    });
}

/// Visits each state of each page in one language, and calls `look` with its name.
fn visit(
    browser: &Browser<'_>,
    router: &Router<'_>,
    net: &Net,
    language: &str,
    look: &dyn Fn(&str),
) {
    let open = |query: &str| open(browser, router, &format!("{query}&lang={language}"));
    let unfold = "document.querySelectorAll('details').forEach(it => it.open = true)";
    open("page=status");
    until("all tunnels", || {
        let shown = "return document.querySelectorAll('.millrace-tunnel').length";
        browser.script(shown) == 2
    });
    browser.wait_for(".millrace-guard");
    look("status");
    browser.script(unfold);
    until("all figures", || {
        let shown = "return document.querySelectorAll('.millrace-tunnel details table').length";
        browser.script(shown).as_u64() >= Some(4)
    });
    look("status-unfolded");
    for (button, name) in [
        (".millrace-add-rule", "rule"),
        (".millrace-init", "server"),
        (".millrace-networks", "networks"),
        (".millrace-rename", "rename"),
        ("#millrace-home .cbi-button-negative", "revoke"),
        ("#millrace-home .cbi-button-add", "add"),
    ] {
        press(browser, button);
        look(name);
        match name {
            "server" => {
                browser.fill("#millrace-server-name", "second");
                browser.fill("#millrace-server-endpoint", "home.example.org");
                browser.fill("#millrace-server-lan", "192.168.9.0/24");
                browser.click(".modal .cbi-button-positive");
                browser.wait_for(".millrace-plan");
                look("plan");
            }
            "add" => {
                browser.click(".modal .cbi-button-positive");
                browser.wait_for(".modal .alert-message");
                look("add-refused");
                browser.fill("#millrace-peer-name", &format!("phone-{language}"));
                browser.click(".modal .cbi-button-positive");
                browser.wait_for(".millrace-code");
                look("added");
            }
            _ => {}
        }
        browser.script("modules.ui.hideModal()");
    }
    open("page=overview");
    browser.wait_for(".millrace-overview");
    look("overview");
    open("page=interfaces");
    look("interfaces");
    let pptp = pptp(net);
    let key = public(KEYS[1]);
    let wireguard = format!(
        "[Interface]\nPrivateKey = {}\nPostUp = reboot\n[Peer]\nPublicKey = {key}\n",
        KEYS[0]
    );
    for (file, text, wanted) in [
        ("a.conf", wireguard.as_str(), ".millrace-use"),
        ("a.toml", &pptp, ".millrace-rule"),
        ("a.ovpn", "client\ndev tun\n", ".millrace-report"),
        ("a.ovpn", "client\r\n", ".millrace-damage"),
    ] {
        open("interface=office");
        browser.click(".millrace-open");
        drop_file(browser, file, text.as_bytes());
        browser.wait_for(wanted);
        look(&wanted[1..]);
        if wanted == ".millrace-use" {
            browser.click(wanted);
            until("the form is saved", || {
                browser.script("return map.saved") == 1
            });
            for tab in ["peers", "uplinks", "amneziawg", "advanced"] {
                browser.click(&format!("[data-show={tab}]"));
                look(tab);
            }
        }
    }
}

/// Contents that are wider than the window, and texts and lines that are hard to see on their background.
const FAULTS: &str = r"
const parts = (colour) => { const [ r, g, b, a = 1 ] = colour.match(/[\d.]+/g).map(Number); return { rgb: [ r, g, b ], a }; };
const over = (top, below) => top.rgb.map((it, i) => it * top.a + below[i] * (1 - top.a));
const light = (rgb) => rgb.map((it) => it / 255).map((it) => (it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4))
    .reduce((sum, it, i) => sum + it * [ 0.2126, 0.7152, 0.0722 ][i], 0);
const contrast = (a, b) => { const [ low, high ] = [ light(a), light(b) ].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
const behind = (it) => !it ? [ 255, 255, 255 ] : over(parts(getComputedStyle(it).backgroundColor), behind(it.parentElement));
const found = [];
const check = (it, colour, least) => {
    const back = behind(it), found_ = contrast(over(parts(colour), back), back);
    if (found_ < least)
        found.push('contrast ' + found_.toFixed(1) + ': ' + it.outerHTML.slice(0, 200));
};
const page = document.documentElement;
if (page.scrollWidth > page.clientWidth)
    found.push('scrolls: ' + page.scrollWidth);
const scrolls = (it) => it && (getComputedStyle(it).overflowX != 'visible' || scrolls(it.parentElement));
for (const it of document.querySelectorAll('body *')) {
    if (!it.checkVisibility())
        continue;
    const { right, left } = it.getBoundingClientRect();
    if ((right > page.clientWidth + 0.5 || left < -0.5) && !scrolls(it.parentElement))
        found.push('wide: ' + it.outerHTML.slice(0, 200));
    if ([ ...it.childNodes ].some((child) => child.nodeType == 3 && child.data.trim()))
        check(it, getComputedStyle(it).color, 4.5);
    if (it.tagName == 'polyline')
        check(it, getComputedStyle(it).stroke, 3);
    if (it.style && it.style.borderBottom)
        check(it, getComputedStyle(it).borderBottomColor, 3);
}
return found;
";

/// Words that are neither translated, nor data, nor the program's, which says so by `lang`.
const UNTRANSLATED: &str = r"
const rest = (text) => {
    for (let last; last != text; last = last, text = text.replace(/⟦[^⟦⟧]*⟧/gu, ' '))
        last = text;
    return text;
};
const found = [];
const take = (text) => found.push(...rest(text).replace(/\/\S+|phone\S*/gu, ' ').split(/[^\p{L}\p{N}]+/u).filter((it) => /\p{L}/u.test(it)));
const skipped = 'script, style, code, pre, textarea, option:empty, output, [lang=en], [data-luci]';
for (const it of document.querySelectorAll('body *')) {
    if (it.closest(skipped))
        continue;
    for (const child of it.childNodes)
        if (child.nodeType == 3)
            take(child.data);
    for (const name of [ 'title', 'aria-label', 'alt', 'data-title', 'placeholder' ])
        take(it.getAttribute(name) || '');
}
return found;
";

/// Looks at all pages in a language.
fn pages_fit(language: &str) {
    if !lab::acceptance::ready() || !browser::ready() {
        return;
    }
    let net = Net::new();
    let (router, programs) = world(&net);
    with_browser(&router, |browser| {
        visit(browser, &router, &net, language, &|name| {
            for (size, is_dark) in [
                (PHONE, true),
                (PHONE, false),
                (DESKTOP, true),
                (DESKTOP, false),
            ] {
                browser.size(size);
                browser.dark(is_dark);
                let shade = if is_dark { "dark" } else { "light" };
                let view = format!("{name}-{language}-{}-{shade}", size.0);
                if let Some(directory) = std::env::var_os("MILLRACE_LOOKS") {
                    browser.screenshot(Path::new(&directory).join(format!("{view}.png")));
                }
                assert_eq!(browser.script(FAULTS), json!([]), "{view}");
            }
            if language == PSEUDO {
                let words = browser.script(UNTRANSLATED);
                let words = words.as_array().unwrap().iter();
                let words = words.map(|it| it.as_str().unwrap());
                let words: BTreeSet<&str> = words
                    .filter(|it| {
                        DATA.split(' ')
                            .chain(amnezia::KEYS)
                            .all(|known| known != *it)
                    })
                    .collect();
                assert!(words.is_empty(), "{name}: {words:?}");
            }
        });
    });
    drop(programs);
    let off = net.a.command(PROGRAM).args(["guard", "off"]).exit();
    off.unwrap();
}

#[test]
fn pages_fit_in_english() {
    pages_fit("en");
}

#[test]
fn pages_fit_in_german() {
    pages_fit("de");
}

#[test]
fn pages_fit_in_russian() {
    pages_fit("ru");
}

#[test]
fn pages_have_no_text_without_translation() {
    pages_fit(PSEUDO);
}

/// The rule for GRE that the pages offer is shown, added only when asked for, and then is not offered again.
#[test]
fn the_rule_for_gre_is_offered_until_it_is_there() {
    if !lab::acceptance::ready() || !browser::ready() {
        return;
    }
    let net = Net::new();
    let (router, programs) = world(&net);
    let rights = packaged("usr/share/rpcd/acl.d/luci-proto-millrace.json");
    let rights: Value = serde_json::from_slice(&fs::read(rights).unwrap()).unwrap();
    for group in ["read", "write"] {
        // LuCI writes the section, and reads the package before and afterwards.
        assert_eq!(
            rights["luci-proto-millrace"][group]["uci"],
            json!(["firewall"])
        );
    }
    let saved = |browser: &Browser<'_>| browser.script("return modules.uci.saved.firewall || null");
    with_browser(&router, |browser| {
        open(browser, &router, "page=status");
        press(browser, ".millrace-add-rule");
        let shown = browser.text(".modal pre");
        assert_eq!(
            saved(browser),
            Value::Null,
            "nothing is set before the user agrees"
        );
        browser.click(".modal .cbi-button-positive");
        // LuCI's window of changes.
        browser.wait_for(".modal .changes");
        let rule = saved(browser)["millrace_pptp_gre"].clone();
        assert_eq!(
            (&rule[".type"], &rule["target"]),
            (&json!("rule"), &json!("ACCEPT"))
        );
        // The form saves the rule with the interface, and not before.
        open(browser, &router, "interface=office");
        browser.click(".millrace-open");
        drop_file(browser, "provider.toml", pptp(&net).as_bytes());
        browser.wait_for(".millrace-rule");
        assert_eq!(browser.text(".millrace-rule pre"), shown);
        browser.click(".millrace-add-rule");
        browser.wait_for(".millrace-rule em");
        assert_eq!(saved(browser), Value::Null);
        browser.click(".millrace-use");
        until("the form is saved", || {
            browser.script("return map.saved") == 1
        });
        assert_eq!(saved(browser)["millrace_pptp_gre"], rule);
        // Files of other protocols need no rule.
        drop_file(browser, "provider.ovpn", PROFILE.as_bytes());
        browser.wait_for(".millrace-report");
        assert!(!browser.shows(".millrace-rule"));
        // With the rule that the page showed, nothing is offered.
        fs::write(
            router.path("config/firewall"),
            format!("{FIREWALL}{shown}\n"),
        )
        .unwrap();
        open(browser, &router, "page=status");
        browser.wait_for("[data-interface=mr-old]");
        assert!(!browser.shows(".millrace-rule"));
    });
    drop(programs);
    net.a
        .command(PROGRAM)
        .args(["guard", "off"])
        .exit()
        .unwrap();
}
