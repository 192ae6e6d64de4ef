//! The page of `millrace monitor` in a real browser: every view at desktop and phone size, while a tunnel fails and
//! returns, while the guard blocks devices, and with a thousand peers.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fmt::Write as _;

use lab::acceptance::browser::{self, Browser};
use lab::acceptance::page::{PAGE, fits, goes_to, look};
use lab::acceptance::web::{Monitor, PASSWORD};
use lab::acceptance::{A4, B4, PATIENCE, PORT_A, PORT_B, PROGRAM, TwoLines, reaches, ready, until};
use lab::peer::Keys;
use lab::{Host, Process, tools};

const LINES: &str = "#! [Uplinks]\n#! Mode = failover\n#! Hold = 1\n\
    #! [Uplink]\n#! Name = dsl\n#! Interface = dsl\n\
    #! [Uplink]\n#! Name = lte\n#! Interface = lte\n#! Priority = 20\n";

/// Waits until the tunnel's badge shows this word.
fn is(browser: &Browser<'_>, state: &str) {
    browser.wait_for_text("[data-tunnel=wg0] .chip", state);
}

/// Host A with two lines to B, and a tunnel.
struct World {
    net: TwoLines,
    keys: [Keys; 2],
    directory: lab::acceptance::Directory,
}

impl World {
    fn new() -> Self {
        let net = TwoLines::new();
        let keys = [&net.a, &net.b].map(|host| Keys::generate(host).unwrap());
        Self {
            net,
            keys,
            directory: lab::acceptance::Directory::new(),
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

/// A policy on host A, with two leases in its LAN, and an entry for a device without one.
struct Policed<'w>(&'w World);

impl<'w> Policed<'w> {
    fn new(world: &'w World) -> Self {
        let (host, directory) = (&world.net.a, &world.directory);
        let leases = "1 02:00:5e:10:00:01 192.168.77.10 television *\n\
                      1 02:00:5e:10:00:02 192.168.77.11 Laptop *\n";
        let leases = directory.file("leases", leases);
        let text = format!(
            "lan = [\"br-lan\"]\nleases = {leases:?}\n\
             [[entry]]\nname = \"radio\"\nwho = \"Laptop\"\nto = \"203.0.113.0/24\"\nway = \"block\"\n\
             [[entry]]\nname = \"films\"\nwho = [\"television\", \"console\"]\nthrough = \"wg0\"\n"
        );
        directory.file("policy.toml", &text);
        host.add_address("br-lan", [192, 168, 77, 1].into(), 24)
            .unwrap();
        for name in ["br-lan", "lan0"] {
            host.output("ip", ["link", "set", name, "up"]).unwrap();
        }
        let it = Self(world);
        // The LAN's addresses come one by one, and each changes the rules.
        until("the policy", || it.run("on"));
        it
    }

    fn off(self) {
        assert!(self.run("off"));
    }

    fn run(&self, what: &str) -> bool {
        let file = self.0.directory.path().join("policy.toml");
        let command = self.0.net.a.command(PROGRAM);
        let command = command.args(["policy", what, "--settings"]).arg(file);
        command.exit().unwrap().success().is_ok()
    }
}

/// Each view shows its content at both sizes while the tunnel fails, ends and returns, and while the guard blocks.
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
    browser.wait_for_text("#refused", "wrong password");
    assert!(!browser.shows("#views"));
    browser.fill("#password", PASSWORD);
    browser.click("#login button");
    browser.wait_for("#overview");
    is(&browser, "up");
    // The browser's log may contain only 401 and 403, which the page provokes on purpose.
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
    // No peer has this address of the tunnel's network.
    let (network, _) = A4.rsplit_once('.').unwrap();
    let astray = ["-c", "1", "-W", "1", &format!("{network}.77")];
    let _ = world.net.a.command("ping").args(astray).exit();
    browser.wait_for_text(
        "[data-tunnel=wg0] .more",
        "dropped: no route to the destination (1)",
    );
    // The limit depends on how busy the testing machine is.
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
    goes_to(&browser, "uplinks");
    browser.wait_for_text("#linerows", "wg0: dsl (in use)");
    world.net.cables[0].cut(true);
    browser.wait_for_text("#linerows tr:first-child .chip", "down");
    browser.wait_for_text("#linerows tr:nth-child(2)", "wg0: lte (in use)");
    look(&browser, "uplinks");
    goes_to(&browser, "overview");
    browser.wait_for_text("[data-tunnel=wg0] .words", "uplink dsl is down");

    world.net.cables[1].cut(true);
    is(&browser, "silent");
    look(&browser, "failed");
    for cable in &world.net.cables {
        cable.cut(false);
    }
    is(&browser, "up");

    // A killed client reports nothing more itself.
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
    goes_to(&browser, "devices");
    browser.wait_for_text("#guardrows", "packet filter");
    browser.wait_for_text("#devicerows tr:last-child .chip", "held");
    let policy = Policed::new(&world);
    browser.wait_for_text("#policystate .chip", "on");
    for (row, state, path) in [
        (1, "Laptop", "held"),
        (2, "to 203.0.113.0/24", "blocked"),
        (3, "television", "through a tunnel"),
        (4, "All others of br-lan", "held"),
    ] {
        browser.wait_for_text(&format!("#devicerows tr:nth-child({row})"), state);
        browser.wait_for_text(&format!("#devicerows tr:nth-child({row})"), path);
    }
    look(&browser, "guard");
    goes_to(&browser, "overview");
    browser.wait_for_text("#warnings", "console has no lease");
    look(&browser, "warned");
    policy.off();
    goes_to(&browser, "devices");
    browser.wait_for_text("#policystate .chip", "off");
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
    until("no warning", || !browser.shows("#warn"));

    goes_to(&browser, "events");
    for said in [
        "wg0: uplink dsl is down",
        "wg0 is silent: no uplink reaches it",
        "wg0 has ended",
        "wg0 is up",
        "the guard blocks the LAN's traffic",
        "the guard lets the LAN's traffic through a tunnel",
        "the guard is off",
    ] {
        browser.wait_for_text("#all", said);
    }
    look(&browser, "events");
    assert_eq!(browser.errors(), Vec::<String>::new());

    // The server goes away: the page says so, and reconnects.
    drop(monitor);
    browser.wait_for_text("#live", "No answer");
    let _monitor = Monitor::start(&world.net.a, true, &[]);
    browser.wait_for("#login");
}

/// In the strip of an uplink, seconds without data are gaps; it shows at most 300 seconds, and ends with the uplink.
#[test]
fn strips_have_gaps_and_an_end() {
    if !ready() || !browser::ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let monitor = Monitor::start(&host, false, &[]);
    let browser = Browser::start(&host);
    browser.open(PAGE);
    browser.wait_for("#overview");
    // From now on the page gets its news from this test.
    drop(monitor);
    browser.wait_for_text("#live", "No answer");
    // Moment, whether it is the page's first news, and the letters since the news before; none without a tunnel.
    let news = "[[100, true, 'uuu'], [102, false, 'ud'], [107, false, 'dd'], [108, false, ''], [110, false, null],
        [111, false, 'u'], [111, false, ''], [410, false, 's'.repeat(299)], [411, false, 'd'], [721, false, null],
        [722, false, 'g'], [800, true, 'uu']]";
    let script = format!(
        "return {news}.map(([moment, first, strip]) => {{
            const line = {{peer: 'key', status: {{name: 'dsl'}}, strip}};
            const tunnels = strip == null ? [] : [{{name: 'wg0', lines: [line]}}];
            take({{moment, first, tunnels, rates: {{}}, events: []}});
            return strips['wg0 key dsl'] ?? null;
        }})"
    );
    let wanted = [
        Some("uuu".to_owned()),
        Some("uuuud".to_owned()),
        // The router sent two letters for five seconds.
        Some("uuuud...dd".to_owned()),
        Some("uuuud...dd.".to_owned()),
        // The tunnel is down.
        Some("uuuud...dd...".to_owned()),
        Some("uuuud...dd...u".to_owned()),
        // No second has passed.
        Some("uuuud...dd...u".to_owned()),
        Some(format!("u{}", "s".repeat(299))),
        Some(format!("{}d", "s".repeat(299))),
        // Only gaps are left.
        None,
        Some("g".to_owned()),
        Some("uu".to_owned()),
    ];
    assert_eq!(browser.script(&script), serde_json::json!(wanted));
}

/// With a thousand peers the page loads little, shows some at a time, and finds a given peer.
#[test]
fn a_thousand_peers_are_shown_some_at_a_time() {
    if !ready() || !browser::ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let directory = lab::acceptance::Directory::new();
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
    // Each key press sends a query; at most one query is pending.
    let overlaps = "const asked = performance.getEntriesByType('resource').filter((it) => it.name.includes('/api/peers')); \
                    return asked.filter((it, nth) => nth && it.startTime < asked[nth - 1].responseEnd).length";
    assert_eq!(browser.script(overlaps), 0, "questions at the same time");
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
