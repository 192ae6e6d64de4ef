//! The page of `millrace monitor` in a real browser: every view at the size of a desk and of a phone, while a tunnel fails,
//! comes back and is held, with a thousand peers, and against other pages.
//!
//! With `MILLRACE_PICTURES=DIRECTORY` what is seen is written there: the pictures of docs/monitor.md.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;

use acceptance::browser::{self, Browser, DESKTOP, PHONE};
use acceptance::web::{Monitor, PASSWORD};
use acceptance::{A4, B4, PATIENCE, PORT_A, PORT_B, PROGRAM, TwoLines, reaches, ready, until};
use lab::peer::Keys;
use lab::{Host, Process, tools};

const PAGE: &str = "http://127.0.0.1:8470/";

const LINES: &str = "#! [Lines]\n#! Mode = failover\n#! Hold = 1\n\
    #! [Line]\n#! Name = dsl\n#! Interface = dsl\n\
    #! [Line]\n#! Name = lte\n#! Interface = lte\n#! Priority = 20\n";

/// Writes what is seen, where pictures are wanted.
fn picture(browser: &Browser<'_>, name: &str) {
    if let Some(directory) = std::env::var_os("MILLRACE_PICTURES").map(PathBuf::from) {
        browser.screenshot(directory.join(format!("{name}.webp")));
    }
}

/// What is wrong with what is seen: wider than the window, without a name for those who hear it, or hard to read.
const FAULTS: &str = "
    const faults = [];
    const seen = (it) => it.checkVisibility();
    if (document.documentElement.scrollWidth > innerWidth) faults.push('wider than the window');
    for (const it of document.querySelectorAll('input, select')) {
      if (seen(it) && !it.labels.length) faults.push('no label: ' + it.id);
    }
    for (const it of document.querySelectorAll('button, a, svg[role=img]')) {
      if (seen(it) && !(it.textContent.trim() || it.ariaLabel)) faults.push('no name: ' + it.outerHTML);
    }
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => {
      const [r, g, b] = parts(colour).map((it) => it / 255).map((it) => it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (it) => {
      for (; it; it = it.parentElement) {
        const colour = getComputedStyle(it).backgroundColor;
        if (parts(colour)[3] !== 0) return colour;
      }
      return 'rgb(255, 255, 255)';
    };
    for (const it of document.querySelectorAll('body *')) {
      const own = [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
      if (!own || !seen(it) || it.closest('svg') || it.disabled) continue;
      const [a, b] = [light(getComputedStyle(it).color), light(behind(it))];
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (contrast < 4.5) faults.push('contrast ' + contrast.toFixed(2) + ': ' + it.outerHTML.slice(0, 80));
    }
    return faults";

/// Looks at what is seen at both sizes, dark and light.
fn look(browser: &Browser<'_>, name: &str) {
    fits(browser, name, true);
}

/// The same, with pictures or without.
fn fits(browser: &Browser<'_>, name: &str, pictures: bool) {
    for (size, size_name) in [(DESKTOP, "desk"), (PHONE, "phone")] {
        browser.size(size);
        for dark in [false, true] {
            browser.dark(dark);
            let faults = browser.script(FAULTS);
            assert_eq!(
                faults,
                serde_json::json!([]),
                "{name}, {size_name}, dark: {dark}"
            );
        }
        let is_phone = size == PHONE;
        browser.dark(is_phone);
        if pictures {
            picture(browser, &format!("{name}-{size_name}"));
        }
    }
    browser.size(DESKTOP);
    browser.dark(false);
}

fn goes_to(browser: &Browser<'_>, view: &str) {
    browser.click(&format!("#nav a[href='#{view}']"));
    browser.wait_for(&format!("#{view}"));
}

/// The chip of the tunnel has this word.
fn is(browser: &Browser<'_>, state: &str) {
    browser.wait_for_text("[data-tunnel=wg0] .chip", state);
}

/// Host A with two lines to B, and a tunnel.
struct World {
    net: TwoLines,
    keys: [Keys; 2],
    directory: acceptance::Directory,
}

impl World {
    fn new() -> Self {
        let net = TwoLines::new();
        let keys = [&net.a, &net.b].map(|host| Keys::generate(host).unwrap());
        Self {
            net,
            keys,
            directory: acceptance::Directory::new(),
        }
    }

    fn up(&self, host: &Host, text: &str) -> Process {
        let file = self
            .directory
            .file(&format!("{}/wg0.conf", host.name()), text);
        let mut process = host.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
        process
            .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
            .unwrap();
        process
    }

    fn server(&self) -> Process {
        let [a, b] = &self.keys;
        self.up(
            &self.net.b,
            &format!(
                "[Interface]\nPrivateKey = {}\nListenPort = {PORT_B}\nAddress = {B4}/24\n\
                 [Peer]\nPublicKey = {}\nAllowedIPs = {A4}/32\n",
                b.private, a.public
            ),
        )
    }

    fn client(&self) -> Process {
        let [a, b] = &self.keys;
        self.up(
            &self.net.a,
            &format!(
                "{LINES}[Interface]\nPrivateKey = {}\nListenPort = {PORT_A}\nAddress = {A4}/24\n\
                 [Peer]\nPublicKey = {}\nEndpoint = {}:{PORT_B}\nAllowedIPs = {B4}/32\nPersistentKeepalive = 1\n",
                a.private,
                b.public,
                TwoLines::SERVER
            ),
        )
    }
}

/// Each view shows what it is for, at both sizes, while the tunnel fails, ends, comes back, and the guard holds.
#[test]
fn a_tunnel_that_fails_comes_back_and_is_held_is_seen_in_every_view() {
    if !ready() || !browser::ready() || lab::require(tools::find("nft")).is_none() {
        return;
    }
    let world = World::new();
    for host in [&world.net.a, &world.net.b] {
        std::fs::create_dir_all(world.directory.path().join(host.name())).unwrap();
    }
    let _server = world.server();
    let client = world.client();
    reaches(&world.net.a, B4);
    let monitor = Monitor::start(&world.net.a, true, &[]);
    let browser = Browser::start(&world.net.a);

    browser.open(PAGE);
    browser.wait_for("#login");
    look(&browser, "login");
    browser.fill("#password", "not the password");
    browser.click("#login button");
    browser.wait_for_text("#refused", "that is not the password");
    assert!(!browser.shows("#views"));
    browser.fill("#password", PASSWORD);
    browser.click("#login button");
    browser.wait_for("#overview");
    is(&browser, "up");
    // Where a browser says so itself: not found, and not let in, which the page asks for on purpose.
    let errors = browser.errors();
    assert!(
        errors
            .iter()
            .all(|it| it.contains("401") || it.contains("403")),
        "{errors:?}"
    );

    reaches(&world.net.a, B4);
    until("a rate that is drawn", || {
        browser.script(
            "return document.querySelector('[data-tunnel=wg0] path.in').getAttribute('d').length",
        ) != 0
    });
    // Which limit depends on how busy the machine is that tests.
    until("a limit", || !browser.text("#limits").is_empty());
    look(&browser, "overview");
    browser.click("#day");
    browser.wait_for_text("[data-tunnel=wg0] .axis", "a day ago");
    browser.click("#minutes");

    goes_to(&browser, "peers");
    browser.wait_for_text("#rows", &world.keys[1].public);
    browser.wait_for_text("#count", "1\u{2013}1 of 1");
    look(&browser, "peers");
    goes_to(&browser, "box");
    browser.wait_for_text("#cores", "Core 0");
    look(&browser, "box");
    goes_to(&browser, "lines");
    browser.wait_for_text("#linerows", "wg0: dsl (in use)");
    world.net.cables[0].cut(true);
    browser.wait_for_text("#linerows tr:first-child .chip", "down");
    browser.wait_for_text("#linerows tr:nth-child(2)", "wg0: lte (in use)");
    look(&browser, "lines");
    goes_to(&browser, "overview");
    browser.wait_for_text("[data-tunnel=wg0] .words", "line dsl is down");

    world.net.cables[1].cut(true);
    is(&browser, "silent");
    look(&browser, "failed");
    for cable in &world.net.cables {
        cable.cut(false);
    }
    is(&browser, "up");

    // Killed: it says nothing more itself.
    client.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
    drop(client);
    is(&browser, "ended");
    look(&browser, "ended");
    let _client = world.client();
    is(&browser, "up");

    let guard = |words: &[&str]| {
        let words = [&["guard"], words].concat();
        world.net.a.command(PROGRAM).args(words).exit().unwrap()
    };
    world
        .net
        .a
        .output(
            "ip",
            [
                "link", "add", "br-lan", "type", "veth", "peer", "name", "lan0",
            ],
        )
        .unwrap();
    let _ = guard(&[
        "on",
        "--lan",
        "br-lan",
        "--tunnel",
        "wg0",
        "--no-lead",
        "--settings",
        "/dev/null",
    ]);
    browser.wait_for_text("#held", "Guard: held: ");
    goes_to(&browser, "guard");
    browser.wait_for_text("#guardrows", "packet filter");
    look(&browser, "guard");
    world
        .net
        .a
        .output(
            "ip",
            ["route", "add", "default", "dev", "wg0", "table", "77"],
        )
        .unwrap();
    browser.wait_for_text("#guardstate .chip", "through");
    assert!(guard(&["off"]).success().is_ok());
    browser.wait_for_text("#guardstate .chip", "off");

    goes_to(&browser, "events");
    for said in [
        "wg0: line dsl is down",
        "wg0: no line reaches the peer",
        "wg0 has ended",
        "wg0 is up",
        "the guard holds what leaves the LAN",
        "the guard lets the LAN through a tunnel",
        "the guard is off",
    ] {
        browser.wait_for_text("#all", said);
    }
    look(&browser, "events");
    assert_eq!(browser.errors(), Vec::<String>::new());

    // The server goes: the page says so, and finds its way back.
    drop(monitor);
    browser.wait_for_text("#live", "No answer");
    let _monitor = Monitor::start(&world.net.a, true, &[]);
    browser.wait_for("#login");
}

/// A thousand peers: little is loaded, some are shown at a time, and one is found.
#[test]
fn a_thousand_peers_are_shown_some_at_a_time() {
    if !ready() || !browser::ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let directory = acceptance::Directory::new();
    let mut text = format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {PORT_A}\nAddress = 10.0.0.1/16\n",
        Keys::generate(&host).unwrap().private
    );
    let mut keys = Vec::new();
    for number in 1..=1000 {
        let key = crypto::x25519::PrivateKey::generate().public();
        let key = base64(key.as_bytes());
        let (high, low) = (number / 250 + 1, number % 250);
        writeln!(
            text,
            "[Peer]\nPublicKey = {key}\nAllowedIPs = 10.0.{high}.{low}/32"
        )
        .unwrap();
        keys.push(key);
    }
    let file = directory.file("wg0.conf", &text);
    let mut tunnel = host.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
    let told = |line: &str| line.contains("is up");
    tunnel.wait_for_line("the tunnel", PATIENCE, told).unwrap();
    let _monitor = Monitor::start(&host, false, &[]);
    let browser = Browser::start(&host);
    browser.open(PAGE);
    is(&browser, "idle");
    let bytes = browser.transferred();
    assert!(bytes < 100_000, "{bytes} bytes for the first paint");
    goes_to(&browser, "peers");
    browser.wait_for_text("#count", "1\u{2013}50 of 1000");
    fits(&browser, "thousand", false);
    browser.click("#after");
    browser.wait_for_text("#count", "51\u{2013}100 of 1000");
    browser.fill("#find", "10.0.3.7/");
    browser.wait_for_text("#count", "1\u{2013}1 of 1 found, of 1000");
    browser.wait_for_text("#rows", &keys[506]);
    look(&browser, "thousand");
    browser.fill("#find", &keys[3][..20]);
    browser.wait_for_text("#rows", &keys[3]);
    assert_eq!(browser.errors(), Vec::<String>::new());
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let three = |it: &[u8]| {
        let bits =
            it.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - it.len()));
        let letter = |place: usize| match place <= it.len() {
            true => char::from(LETTERS[(bits >> (18 - 6 * place)) as usize & 63]),
            false => '=',
        };
        [0, 1, 2, 3].map(letter)
    };
    bytes.chunks(3).flat_map(three).collect()
}

/// A client of a server at home is added with a code, renamed and revoked; another page can do none of it.
#[test]
fn clients_come_and_go_by_the_page_and_not_by_another() {
    if !ready() || !browser::ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    // Where its files are looked for, and nothing of this machine's.
    if !require::require_that(
        std::path::Path::new("/etc/wireguard").is_dir(),
        "/etc/wireguard, of wireguard-tools",
    ) {
        return;
    }
    let mount = ["-t", "tmpfs", "none", "/etc/wireguard"];
    host.output("mount", mount).unwrap();
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
    browser.wait_for("#login");
    browser.fill("#password", PASSWORD);
    browser.click("#login button");
    browser.wait_for("#overview");
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

    // What asks is an element of a page elsewhere; the name and the cookie of ours are there.
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
    let body = "{\"server\":\"/etc/wireguard/home.conf\",\"name\":\"phone\",\"do\":\"revoke\"}";
    for kind in ["application/json", "text/plain"] {
        let attack = format!(
            "try {{ const answer = await fetch('{PAGE}api/clients', {{method: 'POST', mode: 'no-cors', credentials: 'include', \
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
    assert_eq!(list, "");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

/// Whatever way a client's file is left, nothing of it stays in the page.
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
    // As when it was shown five minutes ago.
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

    // The answer comes when the view was left already.
    browser.script(
        "window.asked = window.fetch; window.fetch = async (path, options) => { \
         const answer = await window.asked(path, options); \
         if (path === '/api/clients') { location.hash = '#overview'; await new Promise((done) => addEventListener('hashchange', done)); } \
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

/// Counts the addresses of files that lead somewhere: a page's policy lets no script read what is there.
const COUNT: &str = "
    window.live = new Set();
    const [make, end] = [URL.createObjectURL, URL.revokeObjectURL];
    URL.createObjectURL = (it) => { const url = make.call(URL, it); live.add(url); return url; };
    URL.revokeObjectURL = (url) => { live.delete(url); end.call(URL, url); }";

/// Nothing in the page has a key, nor leads to one.
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

/// What a camera reads from the path that is drawn.
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
