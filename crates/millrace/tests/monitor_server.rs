//! Servers at home on the page of `millrace monitor`, in a real browser. The page makes servers, and adds, renames and
//! revokes clients; no other page can, and no key is left behind.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use lab::Host;
use lab::acceptance::browser::{self, Browser};
use lab::acceptance::page::{PAGE, goes_to, logs_in, look};
use lab::acceptance::web::{Monitor, PASSWORD};
use lab::acceptance::{Directory, PATIENCE, PROGRAM, ready, until};

/// Mounts a copy of /etc without any tunnel's file.
fn no_servers(host: &Host, directory: &Directory) {
    let copy = directory.path().join("etc");
    host.output("cp", [Path::new("-a"), Path::new("/etc"), &copy])
        .unwrap();
    for name in ["millrace", "wireguard", "openvpn"] {
        let _ = fs::remove_dir_all(copy.join(name));
    }
    fs::create_dir(copy.join("wireguard")).unwrap();
    let words = [Path::new("--bind"), &copy, Path::new("/etc")];
    host.output("mount", words).unwrap();
}

/// The page plans and makes a server at home for both protocols; the result matches the plan.
#[test]
fn a_server_at_home_is_made_on_the_page() {
    if !ready() || !browser::ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let directory = Directory::new();
    no_servers(&host, &directory);
    let etc = directory.path().join("etc/millrace");
    let _monitor = Monitor::start(&host, true, &[]);
    let browser = Browser::start(&host);
    browser.open(PAGE);
    logs_in(&browser);
    goes_to(&browser, "clients");
    browser.wait_for("#init");
    browser.fill("#endpoint", "home.example");
    browser.fill("#homes", "192.168.1.0/24, nonsense");
    browser.click("#init button");
    browser.wait_for_text("#unmade", "nonsense");
    browser.fill("#homes", "192.168.1.0/24, 192.168.2.0/24");
    browser.click("#init button");
    let planned = |words: &str| {
        browser.wait_for("#make");
        browser.wait_for_text("#planned", words);
        assert_eq!(browser.text("#unmade"), "");
        assert!(!browser.shows("#init"));
        // The network chosen for clients.
        let text = browser.text("#planned");
        let (_, rest) = text.split_once("get addresses from ").unwrap();
        rest.split(['.', ',', '/'])
            .take(3)
            .collect::<Vec<_>>()
            .join(".")
    };
    planned("/etc/millrace/home.conf is written");
    look(&browser, "planned");
    // The page makes nothing before confirmation, and the user can go back.
    assert!(!etc.exists());
    browser.click("#unplan");
    browser.wait_for("#init");
    look(&browser, "server");
    browser.click("#init button");
    let network = planned("Networks at home: 192.168.1.0/24, 192.168.2.0/24;");
    browser.click("#make");
    browser.wait_for_text("#made", "millrace up home --daemon");
    look(&browser, "made");
    let file = fs::read_to_string(etc.join("home.conf")).unwrap();
    for line in [
        &format!("Address = {network}."),
        "#! Endpoint = home.example:51820",
        "#! LAN = 192.168.1.0/24",
    ] {
        assert!(file.contains(line), "{line}: {file}");
    }
    let mode = fs::metadata(etc.join("home.conf"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // A branch: its network is set, refused for another client, and taken away.
    browser.fill("#newname", "store-7");
    browser.fill("#behind", "192.168.7.0/24, fd00:7::/64");
    browser.click("#add button");
    browser.wait_for_text("#handedname", "store-7");
    browser.click("#done");
    let branch = "[data-client=store-7]";
    browser.wait_for_text(branch, "behind it: 192.168.7.0/24, fd00:7::/64");
    browser.fill("#newname", "store-8");
    browser.fill("#behind", "192.168.7.128/25");
    browser.click("#add button");
    browser.wait_for_text("#said", "behind store-7");
    assert!(!browser.shows("[data-client=store-8]"));
    for (networks, said) in [
        ("192.168.9.0/24", "Behind store-7 now: 192.168.9.0/24."),
        ("nonsense", "nonsense"),
        ("", "No network is behind store-7 now."),
    ] {
        browser.script(&format!("window.prompt = () => '{networks}'"));
        browser.click(&format!("{branch} button[aria-label^=Networks]"));
        browser.wait_for_text("#said", said);
    }
    browser.script("window.confirm = () => true");
    browser.click(&format!("{branch} button[aria-label^=Revoke]"));
    until("no branch", || !browser.shows(branch));
    // The new server accepts clients at once.
    browser.fill("#newname", "phone");
    browser.click("#add button");
    browser.wait_for("#qr svg");
    browser.click("#done");

    #[cfg(feature = "server")]
    {
        fs::remove_file(etc.join("home.conf")).unwrap();
        browser.open(PAGE);
        browser.wait_for("#overview");
        goes_to(&browser, "clients");
        browser.wait_for("#init");
        browser.script("document.querySelector('#kind').value = 'openvpn'");
        browser.fill("#endpoint", "home.example:1195");
        browser.click("#init button");
        let network = planned("/etc/millrace/home.ovpn is written");
        browser.click("#make");
        browser.wait_for_text("#made", "clients connect to home.example:1195");
        let file = fs::read_to_string(etc.join("home.ovpn")).unwrap();
        assert!(file.contains(&format!("server {network}.")), "{file}");
    }
    let errors = browser.errors();
    assert!(
        errors
            .iter()
            .all(|it| it.contains("401") || it.contains("409")),
        "{errors:?}"
    );
}

/// An empty router: the first screen takes a file, without the lines that are refused, and a rule for a device. The
/// manual is behind the password.
#[test]
fn an_empty_router_gets_a_tunnel_and_a_rule_on_the_page() {
    if !ready() || !browser::ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let directory = Directory::new();
    no_servers(&host, &directory);
    let etc = directory.path().join("etc/millrace");
    host.output("ip", ["link", "add", "br-lan", "type", "bridge"])
        .unwrap();
    host.add_address("br-lan", [192, 168, 77, 1].into(), 24)
        .unwrap();
    let leases = directory.file("leases", "1 02:00:5e:10:00:01 192.168.77.10 Laptop *\n");
    let _monitor = Monitor::start(&host, true, &[]);
    let browser = Browser::start(&host);
    browser.open(PAGE);
    browser.wait_for("#login");
    let help = format!("return (await fetch('{PAGE}help/uplinks')).status");
    assert_eq!(browser.script_async(&help), 401);
    logs_in(&browser);
    assert_eq!(browser.script_async(&help), 200);
    let words = format!("return await (await fetch('{PAGE}help/uplinks')).text()");
    let words = browser.script_async(&words);
    assert!(words.as_str().unwrap().contains("\n# "), "{words}");

    browser.wait_for("#start");
    look(&browser, "empty");
    let import = |name: &str, text: &str| {
        browser.fill("#importname", name);
        let text = serde_json::json!(text);
        browser.script(&format!(
            "document.querySelector('#importtext').value = {text}"
        ));
        browser.click("#import button");
    };
    import("broken", "[Interface]\nPrivateKey = short\n");
    browser.wait_for_text("#importsaid", "No tunnel can be made");
    assert!(!browser.shows("#importkeep"));
    // Length of an OpenVPN profile with its keys.
    let key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    let comment = "# comment\n".repeat(2000);
    let text = format!(
        "{comment}[Interface]\nPrivateKey = {key}\nAddress = 10.8.0.2/32\nTable = off\nPostUp = touch /x\n\
         [Peer]\nPublicKey = {key}\nEndpoint = 192.0.2.1:51820\nAllowedIPs = 0.0.0.0/0\n"
    );
    import("away", &text);
    browser.wait_for_text("#importrefused", "PostUp");
    browser.wait_for("#importkeep");
    look(&browser, "import");
    assert!(!etc.join("away.conf").exists());
    browser.click("#importkeep");
    browser.wait_for_text("#importstart", "millrace");
    browser.wait_for_text("#importsaid", "Kept as /etc/millrace/away.conf");
    let kept = fs::read_to_string(etc.join("away.conf")).unwrap();
    assert!(kept.contains(key) && !kept.contains("touch /x"));
    let mode = fs::metadata(etc.join("away.conf")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    browser.wait_for("[data-tunnel=away]");
    import("away", &text);
    browser.wait_for_text("#importsaid", "a tunnel of this name exists");

    #[cfg(feature = "policy")]
    {
        let policy = etc.join("policy.toml");
        let text = format!("lan = [\"br-lan\"]\nleases = {leases:?}\n");
        fs::write(&policy, &text).unwrap();
        browser.wait_for_text("#warnings", "policy: its file exists, but it is off");
        goes_to(&browser, "devices");
        // The file's key does not stay in a view that was left.
        let left = "return document.querySelector('#importtext').value";
        assert_eq!(browser.script(left), "");
        browser.wait_for_text("#devicerows", "Laptop");
        browser.wait_for_text("#devicerows", "02:00:5e:10:00:01");
        let choose = |id: &str, words: &str| {
            let options = format!("[...document.querySelector('{id}').options]");
            let chosen = format!("{options}.findIndex((it) => it.text.includes('{words}'))");
            browser.script(&format!(
                "document.querySelector('{id}').selectedIndex = {chosen}"
            ));
        };
        // A tunnel is a way only while it is up: before, nobody knows its device.
        let ways = "return [...document.querySelector('#ruleway').options].map((it) => it.value)";
        assert_eq!(browser.script(ways), serde_json::json!([""]));
        let file = etc.join("away.conf");
        let mut tunnel = host.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
        let told = |line: &str| line.contains("is up");
        tunnel.wait_for_line("the tunnel", PATIENCE, told).unwrap();
        browser.wait_for_text("#ruleway", "away");
        choose("#ruledevice", "Laptop");
        choose("#ruleway", "away");
        browser.click("#rule button");
        browser.wait_for_text("#ruletext", "through = \"away\"");
        browser.wait_for_text("#rulesaid", "Names will be looked up outside the tunnel");
        browser.fill("#ruledns", "10.8.0.1");
        browser.click("#rule button");
        browser.wait_for_text("#ruletext", "dns = \"10.8.0.1\"");
        assert_eq!(fs::read_to_string(&policy).unwrap(), text);
        look(&browser, "rule");
        browser.click("#ruleadd");
        browser.wait_for_text("#rulesaid", "Written to /etc/millrace/policy.toml");
        let entry = "[[entry]]\nname = \"Laptop\"\nwho = \"02:00:5e:10:00:01\"\nthrough = \"away\"\n\
                     dns = \"10.8.0.1\"\n";
        assert_eq!(
            fs::read_to_string(&policy).unwrap(),
            format!("{text}\n{entry}")
        );
        browser.click("#rule button");
        browser.wait_for_text("#rulesaid", "decides about 02:00:5e:10:00:01 already");
    }
    // Nothing of the session stays in the page.
    browser.click("#leave");
    browser.wait_for("#login");
    let left = "return document.querySelector('#views').textContent";
    let left = browser.script(left);
    for words in ["Laptop", "02:00:5e:10:00:01", "PostUp", "away"] {
        assert!(!left.as_str().unwrap().contains(words), "{words}: {left}");
    }
    let errors = browser.errors();
    let is_meant = |it: &String| ["401", "409"].iter().any(|code| it.contains(code));
    assert!(errors.iter().all(is_meant), "{errors:?}");
}

/// The page adds a client with a QR code, renames and revokes it; another page cannot.
#[test]
fn clients_come_and_go_by_the_page_and_not_by_another() {
    if !ready() || !browser::ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let directory = Directory::new();
    no_servers(&host, &directory);
    let init = [
        "server",
        "init",
        "--to",
        "/etc/wireguard",
        "--endpoint",
        "home.example",
        "--dns",
        "192.168.1.1",
        "--lan",
        "192.168.1.0/24",
    ];
    host.output(PROGRAM, init).unwrap();
    let _monitor = Monitor::start(&host, true, &[]);
    let browser = Browser::start(&host);
    browser.open(PAGE);
    logs_in(&browser);
    goes_to(&browser, "clients");
    browser.wait_for("#add");
    browser.script(COUNT);
    browser.fill("#newname", "phone");
    browser.click("#add button");
    browser.wait_for("#qr svg");
    let file = browser.text("#file");
    assert!(file.contains("Endpoint = home.example:51820"), "{file}");
    let path = browser.script("return document.querySelector('#qr path').getAttribute('d')");
    assert_eq!(read_code(path.as_str().unwrap()).trim(), file.trim());
    look(&browser, "clients");
    browser.click("#done");
    browser.wait_for("[data-client=phone]");
    leaves_nothing(&browser, "Done");
    keys_are_forgotten(&browser);

    // The request comes from an element of a foreign page, with this server's host name and cookie.
    let elsewhere = host
        .run(|| TcpListener::bind("127.0.0.2:9000"))
        .unwrap()
        .unwrap();
    std::thread::spawn(move || {
        for stream in elsewhere.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let _ = lines.find(String::is_empty);
            let _ = write!(
                &stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\nConnection: close\r\n\r\nhey"
            );
        }
    });
    browser.open("http://127.0.0.2:9000/");
    let body = "{\"method\":\"peer_revoke\",\"given\":{\"server\":\"/etc/wireguard/home.conf\",\"name\":\"phone\"}}";
    for kind in ["application/json", "text/plain"] {
        let attack = format!(
            "try {{ const answer = await fetch('{PAGE}api/home', {{method: 'POST', mode: 'no-cors', credentials: 'include', \
             headers: {{'Content-Type': '{kind}'}}, body: '{body}'}}); return answer.type; }} catch {{ return 'refused'; }}"
        );
        browser.script_async(&attack);
    }
    let read = format!(
        "try {{ return await (await fetch('{PAGE}api/state', {{credentials: 'include'}})).text() }} catch {{ return 'refused' }}"
    );
    assert_eq!(browser.script_async(&read), "refused");
    let framed = format!(
        "const it = document.createElement('iframe'); it.src = '{PAGE}'; document.body.append(it); \
         await new Promise((done) => it.addEventListener('load', done)); \
         try {{ return it.contentDocument ? 'read' : 'closed' }} catch {{ return 'closed' }}"
    );
    assert_eq!(browser.script_async(&framed), "closed");
    let _ = browser.errors();

    browser.open(PAGE);
    browser.wait_for("#overview");
    goes_to(&browser, "clients");
    browser.wait_for("[data-client=phone]");
    browser.script("window.prompt = () => 'tablet'; window.confirm = () => true");
    browser.click("[data-client=phone] button[aria-label^=Rename]");
    browser.wait_for("[data-client=tablet]");
    browser.click("[data-client=tablet] button[aria-label^=Revoke]");
    until("no client", || !browser.shows("[data-client=tablet]"));
    let list = host
        .output(
            PROGRAM,
            ["peer", "list", "--server", "/etc/wireguard/home.conf"],
        )
        .unwrap();
    assert_eq!(list, "home: no clients\n");

    // A client that another program has added has no name.
    let add = || {
        let path = "/etc/wireguard/home.conf";
        let peer = "\n[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nAllowedIPs = 192.0.2.9/32\n";
        fs::write(path, fs::read_to_string(path)? + peer)
    };
    host.run(add).unwrap().unwrap();
    browser.open(PAGE);
    browser.wait_for("#overview");
    goes_to(&browser, "clients");
    browser.wait_for("[data-client='-']");
    browser.script("window.prompt = () => 'desk'; window.confirm = () => true");
    browser.click("[data-client='-'] button[aria-label^=Rename]");
    browser.wait_for("[data-client=desk]");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// With many clients, the page shows those that need a look, finds the others, and makes a new file for one.
#[test]
fn a_client_among_many_is_found_and_gets_a_new_file() {
    if !ready() || !browser::ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let directory = Directory::new();
    no_servers(&host, &directory);
    let server = "/etc/wireguard/home.conf";
    let init = [
        "server",
        "init",
        "--to",
        "/etc/wireguard",
        "--dns",
        "192.168.1.1",
    ];
    let more = ["--endpoint", "home.example", "--lan", "192.168.1.0/24"];
    host.output(PROGRAM, [&init[..], &more].concat()).unwrap();
    let rows = (1..=30).map(|n| format!("store-{n},192.168.{}.0/24,Row {n}.\n", 100 + n));
    let table = directory.file(
        "branches.csv",
        &("name,networks,note\n".to_owned() + &rows.collect::<String>()),
    );
    let to = directory.path().join("files");
    let add = [
        "peer",
        "add",
        "--server",
        server,
        "--from",
        table.to_str().unwrap(),
        "--to",
        to.to_str().unwrap(),
    ];
    host.output(PROGRAM, add).unwrap();
    let _monitor = Monitor::start(&host, true, &[]);
    let browser = Browser::start(&host);
    browser.open(PAGE);
    logs_in(&browser);
    goes_to(&browser, "clients");
    let _ = browser.errors();
    browser.wait_for_text("#called", "30 clients; no “millrace up” runs home now");
    let shown = "return document.querySelectorAll('[data-client]').length";
    assert_eq!(browser.script(shown), 20);
    let _up = host.command(PROGRAM).args(["up", server]).spawn().unwrap();
    browser.wait_for_text("#called", "0 in, 0 out, 30 never in");
    browser.wait_for_text("[data-client=store-1]", "never in");
    look(&browser, "callers");
    for (sought, name) in [
        ("STORE-27", "store-27"),
        ("192.168.128.", "store-28"),
        ("row 29", "store-29"),
    ] {
        browser.fill("#caller", sought);
        browser.wait_for(&format!("[data-client={name}]"));
        assert_eq!(browser.script(shown), 1, "{sought}");
    }
    let old = fs::read_to_string(to.join("store-29.conf")).unwrap();
    browser.script("window.confirm = () => true");
    browser.click("[data-client=store-29] button[aria-label^=New]");
    browser.wait_for_text("#said", "its old one is good until the new one is used");
    browser.wait_for("#qr svg");
    let new = browser.text("#file");
    assert!(
        new.contains("PrivateKey") && new.trim() != old.trim(),
        "{new}"
    );
    browser.click("#done");
    browser.wait_for_text("[data-client=store-29]", "its new file is not in use yet");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// However a user leaves a client's file, none of its text stays in the page.
fn keys_are_forgotten(browser: &Browser<'_>) {
    let add = |name: &str| {
        browser.fill("#newname", name);
        browser.click("#add button");
        browser.wait_for_text("#handedname", name);
        assert!(browser.text("#file").contains("PrivateKey"));
        assert_eq!(browser.script("return live.size"), 1);
    };
    let revoke = |name: &str| {
        browser.script("window.confirm = () => true");
        browser.click(&format!("[data-client={name}] button[aria-label^=Revoke]"));
        until("no client", || {
            !browser.shows(&format!("[data-client={name}]"))
        });
    };
    add("left");
    goes_to(browser, "overview");
    leaves_nothing(browser, "another view");
    goes_to(browser, "clients");
    browser.wait_for("[data-client=left]");
    revoke("left");

    add("late");
    // Moves the clock to five minutes after the file was shown.
    browser.script(
        "const now = performance.now.bind(performance); performance.now = () => now() + 300000",
    );
    until("the time limit", || !browser.shows("#handed"));
    browser.script("delete performance.now");
    leaves_nothing(browser, "the time limit");
    revoke("late");

    add("out");
    browser.click("#leave");
    browser.wait_for("#login");
    leaves_nothing(browser, "logging out");
    browser.fill("#password", PASSWORD);
    browser.click("#login button");
    browser.wait_for("[data-client=out]");
    revoke("out");

    // The answer arrives after the user has left the view.
    browser.script(
        "window.asked = window.fetch; window.fetch = async (path, options) => { \
         const answer = await window.asked(path, options); \
         if (path === '/api/home' && options.body.includes('peer_add')) { location.hash = '#overview'; await new Promise((done) => addEventListener('hashchange', done)); } \
         return answer; }",
    );
    browser.fill("#newname", "lost");
    browser.click("#add button");
    browser.wait_for("#overview");
    browser.script("window.fetch = window.asked");
    goes_to(browser, "clients");
    browser.wait_for_text("#said", "its file was not shown");
    leaves_nothing(browser, "a view that was left before");
    browser.wait_for("[data-client=lost]");
    revoke("lost");
}

/// Tracks `blob:` URLs that are not revoked: the page's policy lets no script read their content.
const COUNT: &str = "
    window.live = new Set();
    const [make, end] = [URL.createObjectURL, URL.revokeObjectURL];
    URL.createObjectURL = (it) => { const url = make.call(URL, it); live.add(url); return url; };
    URL.revokeObjectURL = (url) => { live.delete(url); end.call(URL, url); }";

/// Checks that the page neither contains a key nor links to one.
fn leaves_nothing(browser: &Browser<'_>, way: &str) {
    assert!(!browser.shows("#handed"), "{way}");
    let left = browser.script(
        "const html = document.documentElement.outerHTML; \
         const link = document.querySelector('#save'); \
         return [html.includes('PrivateKey'), link.hasAttribute('href'), link.hasAttribute('download'), \
                 !!document.querySelector('#qr path'), document.querySelector('#file').textContent]",
    );
    assert_eq!(
        left,
        serde_json::json!([false, false, false, false, ""]),
        "{way}"
    );
    assert_eq!(browser.script("return live.size"), 0, "{way}");
}

/// Decodes the QR code from the drawn path.
fn read_code(path: &str) -> String {
    const SCALE: usize = 4;
    let dots: Vec<(usize, usize)> = path
        .split('M')
        .filter_map(|it| it.split_once('h'))
        .filter_map(|(place, _)| place.split_once(' '))
        .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
        .collect();
    let size = (dots.iter().map(|it| it.0).max().unwrap() + 5) * SCALE;
    let dark = |x: usize, y: usize| dots.contains(&(x / SCALE, y / SCALE));
    let mut image =
        rqrr::PreparedImage::prepare_from_greyscale(
            size,
            size,
            |x, y| if dark(x, y) { 0 } else { 255 },
        );
    image.detect_grids()[0].decode().unwrap().1
}
