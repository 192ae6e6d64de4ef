//! `millrace monitor` accepts valid requests and rejects others, tested with an HTTP client that sends requests no
//! browser would.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use lab::Host;
use lab::acceptance::web::{Monitor, PASSWORD, Reply};
use lab::acceptance::{
    Directory, Net, PROGRAM, Setup, Tunnel, WG, inhabitants, pings, ready, until,
};
use nix::sys::signal::Signal;

const HERE: &str = "Host: 127.0.0.1:8470\r\n";
const JSON: &str = "Content-Type: application/json\r\n";
const OWN: &str = "Origin: http://127.0.0.1:8470\r\n";

fn get(monitor: &Monitor<'_>, path: &str, fields: &str) -> Reply {
    monitor.request(&format!("GET {path} HTTP/1.1\r\n{HERE}{fields}\r\n"))
}

fn post(monitor: &Monitor<'_>, path: &str, fields: &str, body: &str) -> Reply {
    let length = body.len();
    monitor.request(&format!(
        "POST {path} HTTP/1.1\r\n{HERE}{fields}Content-Length: {length}\r\n\r\n{body}"
    ))
}

/// Logs in and returns the session's cookie.
fn login(monitor: &Monitor<'_>) -> String {
    let body = format!("{{\"password\":\"{PASSWORD}\"}}");
    let reply = post(monitor, "/api/login", &format!("{OWN}{JSON}"), &body);
    assert_eq!(reply.status, 200, "{reply:?}");
    let cookie = reply.field("set-cookie").unwrap().to_owned();
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    format!("Cookie: {}\r\n", cookie.split(';').next().unwrap())
}

#[test]
fn only_the_password_opens_and_only_our_page_asks() {
    if !ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let monitor = Monitor::start(&host, true, &[]);
    let page = get(&monitor, "/", "");
    assert_eq!(
        (page.status, page.field("content-encoding")),
        (200, Some("gzip"))
    );
    let policy = page.field("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-"),
        "{policy}"
    );
    for path in ["/api/state", "/api/day", "/api/peers?tunnel=x", "/nothing"] {
        assert_eq!(get(&monitor, path, "").status, 401, "{path}");
    }
    let fields = format!("{OWN}{JSON}");
    let list = "{\"method\":\"peers\"}";
    assert_eq!(post(&monitor, "/api/home", &fields, list).status, 401);
    let wrong = post(
        &monitor,
        "/api/login",
        &fields,
        "{\"password\":\"not the password\"}",
    );
    assert_eq!((wrong.status, wrong.field("set-cookie")), (403, None));
    let cookie = login(&monitor);
    assert_eq!(get(&monitor, "/api/state", &cookie).status, 200);
    assert_eq!(
        get(&monitor, "/api/state", "Cookie: millrace-monitor=guess\r\n").status,
        401
    );
    // Requests with a valid session from another page.
    let body = "{\"method\":\"peer_revoke\",\"given\":{\"server\":\"home\",\"name\":\"a\"}}";
    for from in [
        "",
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: http://127.0.0.1:8470\r\nSec-Fetch-Site: cross-site\r\n",
    ] {
        let refused = post(
            &monitor,
            "/api/home",
            &format!("{cookie}{from}{JSON}"),
            body,
        );
        assert_eq!(refused.status, 403, "{from}: {refused:?}");
    }
    let form = format!("{cookie}{OWN}Content-Type: text/plain\r\n");
    assert_eq!(post(&monitor, "/api/home", &form, body).status, 415);
    let absent = post(&monitor, "/api/home", &format!("{cookie}{OWN}{JSON}"), body);
    assert_eq!(absent.status, 409, "{absent:?}");
    // A host name that an attacker points at this server (DNS rebinding).
    let named = |name: &str| {
        monitor.request(&format!(
            "GET /api/state HTTP/1.1\r\nHost: {name}\r\n{cookie}\r\n"
        ))
    };
    assert_eq!(named("evil.example:8470").status, 421);
    assert_eq!(named("localhost:8470").status, 200);
    let left = post(
        &monitor,
        "/api/logout",
        &format!("{cookie}{OWN}{JSON}"),
        "{}",
    );
    assert_eq!(left.status, 200);
    assert_eq!(get(&monitor, "/api/state", &cookie).status, 401);
}

/// Builds a login request.
fn attempt(password: &str, fields: &str) -> String {
    let body = format!("{{\"password\":\"{password}\"}}");
    let length = body.len();
    format!(
        "POST /api/login HTTP/1.1\r\n{HERE}{OWN}{JSON}{fields}Content-Length: {length}\r\n\r\n{body}"
    )
}

/// Password guesses from one address lock out neither another address nor a browser that has logged in before.
#[test]
fn tries_of_the_password_are_few() {
    if !ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let monitor = Monitor::start(&host, true, &[]);
    let [attacker, owner]: [IpAddr; 2] = ["127.0.0.66", "127.0.0.7"].map(|it| it.parse().unwrap());
    let before = monitor.request_from(attacker, &attempt(PASSWORD, ""));
    let known = before
        .fields("set-cookie")
        .find(|it| it.starts_with("millrace-known="))
        .unwrap();
    assert!(
        known.contains("; Path=/api/login; Max-Age=")
            && known.contains("; HttpOnly; SameSite=Strict"),
        "{known}"
    );
    let known = format!("Cookie: {}\r\n", known.split(';').next().unwrap());
    let guess = |fields: &str| monitor.request_from(attacker, &attempt("a guess of many", fields));
    until("a refusal", || guess("").status == 429);
    let right = monitor.request_from(attacker, &attempt(PASSWORD, ""));
    assert_eq!(right.status, 429);
    assert!(right.field("retry-after").unwrap().parse::<u32>().unwrap() <= 10);
    let forged = "Cookie: millrace-known=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n";
    assert_eq!(guess(forged).status, 429);
    assert_eq!(
        monitor
            .request_from(attacker, &attempt(PASSWORD, &known))
            .status,
        200
    );
    assert_eq!(
        monitor.request_from(owner, &attempt(PASSWORD, "")).status,
        200
    );
    // A browser with a known cookie may try as often as an address; the cookie itself grants no access.
    assert_eq!(get(&monitor, "/api/state", &known).status, 401);
    until("a refusal", || guess(&known).status == 429);
    // The log contains wrong passwords from both sources, distinguishable.
    let log = monitor.process.stderr();
    let wrong: Vec<&str> = log
        .lines()
        .filter(|it| it.contains("wrong password from 127.0.0.66"))
        .collect();
    let of_known = wrong
        .iter()
        .filter(|it| it.contains("a browser that has logged in before"));
    let of_known = of_known.count();
    assert!(0 < of_known && of_known < wrong.len(), "{log}");
}

/// However many addresses guess at once, an owner at another address logs in at the first try, and a logged-in owner
/// sees everything.
#[test]
fn an_owner_logs_in_while_many_addresses_guess() {
    const ATTACKERS: u8 = 30;
    if !ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let monitor = Monitor::start(&host, true, &[]);
    let cookie = login(&monitor);
    let ended = AtomicBool::new(false);
    let failed = AtomicU8::new(0);
    let guess = attempt("a guess of many", "");
    std::thread::scope(|scope| {
        for number in 1..=ATTACKERS {
            let (monitor, guess, ended, failed) = (&monitor, &guess, &ended, &failed);
            scope.spawn(move || {
                let from = IpAddr::from([127, 0, 1, number]);
                let mut is_first = true;
                while !ended.load(Ordering::Relaxed) {
                    let reply = monitor.request_from(from, guess);
                    if reply.status == 403 && is_first {
                        is_first = false;
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // Ends the attackers even if an assertion fails.
        let end = End(&ended);
        // The monitor checks one password after the other.
        for number in 1..=ATTACKERS {
            until(&format!("attacker {number} has failed"), || {
                failed.load(Ordering::Relaxed) >= number
            });
        }
        for owner in 1..=5 {
            let owner = IpAddr::from([127, 0, 2, owner]);
            let reply = monitor.request_from(owner, &attempt(PASSWORD, ""));
            assert_eq!(reply.status, 200, "{reply:?}");
            assert_eq!(get(&monitor, "/api/state", &cookie).status, 200);
        }
        drop(end);
    });
}

/// Ends the attackers when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn metrics_are_for_those_with_the_password_or_the_token() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, lab::acceptance::B4, 3);
    let monitor = Monitor::start(&net.a, true, &[]);
    let refused = get(&monitor, "/metrics", "");
    assert_eq!(refused.status, 401);
    assert!(
        refused
            .field("www-authenticate")
            .unwrap()
            .starts_with("Basic")
    );
    let with = |value: &str| get(&monitor, "/metrics", &format!("Authorization: {value}\r\n"));
    assert_eq!(with("Bearer guess").status, 403);
    assert_eq!(with("Basic eDpndWVzcyBhZ2Fpbg==").status, 403);
    let reply = with(&format!("Bearer {}", lab::acceptance::web::TOKEN));
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.field("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let text = reply.text();
    let peer = format!(
        "millrace_peer_receive_bytes_total{{tunnel=\"{WG}\",peer=\"{key}\",client=\"\",key=\"{key}\"}} ",
        key = tunnel.keys_b.public
    );
    let line = text
        .lines()
        .find(|it| it.starts_with(&peer))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(line[peer.len()..].parse::<u64>().unwrap() > 0);
    let up = format!("millrace_tunnel_up{{tunnel=\"{WG}\",protocol=\"wireguard\",role=\"\"}} 1\n");
    assert!(text.contains(&up), "{text}");
    assert_eq!(
        with(&format!("Basic {}", lab::acceptance::web::BASIC)).status,
        200
    );
}

/// Without a password this host may see everything and change nothing; other hosts are refused.
#[test]
fn without_a_password_it_stays_on_the_loopback() {
    if !ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let directory = Directory::new();
    let none = directory.path().join("none").display().to_string();
    let words = [
        "monitor",
        "--password",
        &none,
        "--token",
        &none,
        "--listen",
        "0.0.0.0",
    ];
    let exit = host.command(PROGRAM).args(words).exit().unwrap();
    let said = exit.success().unwrap_err().to_string();
    assert!(said.contains("without a password"), "{said}");
    let monitor = Monitor::start(&host, false, &[]);
    assert_eq!(get(&monitor, "/api/state", "").status, 200);
    assert_eq!(get(&monitor, "/metrics", "").status, 200);
    assert_eq!(
        get(&monitor, "/api/state", "Sec-Fetch-Site: cross-site\r\n").status,
        403
    );
    let body = "{\"method\":\"peer_revoke\",\"given\":{\"server\":\"home\",\"name\":\"a\"}}";
    assert_eq!(
        post(&monitor, "/api/home", &format!("{OWN}{JSON}"), body).status,
        403
    );
}

/// The password's file does not reveal the password, and only its owner can read it.
#[test]
fn a_password_is_set() {
    if !ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    let directory = Directory::new();
    let path: PathBuf = directory.path().join("new/monitor.password");
    let set = |text: &str| {
        let words = ["monitor", "password", "--password", path.to_str().unwrap()];
        host.command(PROGRAM).args(words).output_with_input(text)
    };
    assert!(
        set("short\n")
            .unwrap_err()
            .to_string()
            .contains("the minimum is 8")
    );
    assert!(!path.exists());
    set("a good password\n").unwrap();
    let first = fs::read_to_string(&path).unwrap();
    assert!(
        first.starts_with("pbkdf2-sha256 ") && !first.contains("good"),
        "{first}"
    );
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    set("a better password\n").unwrap();
    assert_ne!(fs::read_to_string(&path).unwrap(), first);
}

/// Silent clients block no other client, neither at the same address nor elsewhere, however many IPv6 addresses a
/// device has.
#[test]
fn slow_clients_and_many_leave_room() {
    if !ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    for number in 1..=5 {
        let address = format!("fd00:7::{number}/64");
        let words = ["addr", "add", &address, "dev", "lo", "nodad"];
        host.output("ip", words).unwrap();
    }
    let monitor = Monitor::start(
        &host,
        true,
        &["--listen", "[fd00:7::1]:8470", "--listen", "127.0.0.1:8470"],
    );
    let here: SocketAddr = (Ipv4Addr::LOCALHOST, 8470).into();
    let there: SocketAddr = "[fd00:7::1]:8470".parse().unwrap();
    let mut idle = Vec::new();
    for number in 0..60 {
        let from = format!("fd00:7::{}", number % 5 + 1).parse().unwrap();
        idle.push(monitor.connect_from(from, there));
        assert_eq!(get(&monitor, "/", "").status, 200, "{number}");
    }
    for number in 0..30 {
        idle.push(monitor.connect(here));
        assert_eq!(get(&monitor, "/", "").status, 200, "{number}");
    }
    // The silent clients come from as many addresses as the server has slots.
    for number in 1..=30 {
        let from = IpAddr::from([127, 0, 1, number]);
        idle.push(monitor.connect_from(from, here));
        assert_eq!(get(&monitor, "/", "").status, 200, "{number}");
    }
    drop(idle);
}

/// The process that reads requests runs as another user; if either process is killed, both end.
#[test]
fn two_processes_and_one_end() {
    if !ready() {
        return;
    }
    let host = Host::private("a").unwrap();
    for (which, signal) in [
        (0, Signal::SIGTERM),
        (0, Signal::SIGKILL),
        (1, Signal::SIGKILL),
    ] {
        let monitor = Monitor::start(&host, true, &[]);
        let back = monitor.process.id();
        let front = inhabitants(&host)
            .into_iter()
            .find(|it| *it != back)
            .unwrap();
        let status = fs::read_to_string(format!("/proc/{front}/status")).unwrap();
        let line = |name: &str| {
            status
                .lines()
                .find_map(|it| it.strip_prefix(name))
                .unwrap()
                .trim()
                .to_owned()
        };
        assert!(
            !line("Uid:").split_whitespace().any(|it| it == "0"),
            "{status}"
        );
        assert_eq!(line("CapEff:"), "0000000000000000");
        assert_eq!(line("CapPrm:"), "0000000000000000");
        assert_eq!(line("NoNewPrivs:"), "1");
        let process = [back, front][which].cast_signed();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), signal).unwrap();
        until("both are gone", || {
            inhabitants(&host).is_empty() || !monitor.is_there()
        });
        let exit = monitor.process.wait().unwrap();
        assert_eq!(exit.status.success(), signal == Signal::SIGTERM, "{exit:?}");
        until("all processes have ended", || inhabitants(&host).is_empty());
    }
}
