//! The guard and DNS: queries of the router's `dnsmasq` leave through the tunnel's device or not at all, whatever
//! happens to the tunnel. The test counts queries where they would leave the WAN.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::dns::query;
use lab::acceptance::named::{INNER, Named, PLAIN, Queries, ROUTER, SECRET, fresh};
use lab::acceptance::{Directory, PATIENCE, PROGRAM, ip, until};
use lab::{Process, tools};
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use serde_json::Value;
use std::io;

/// Queries for protected names to send in each state.
const SOME: u64 = 200;

fn ready() -> bool {
    let root = match Uid::current().is_root() {
        true => Ok(()),
        false => Err(io::Error::other("overlays need root")),
    };
    let found = ["nft", "dnsmasq"].map(tools::find);
    lab::acceptance::ready()
        && lab::require(root).is_some()
        && found.into_iter().all(|it| lab::require(it).is_some())
}

fn guard(named: &Named, words: &[&str]) -> String {
    let command = named.world.router.command(PROGRAM).arg("guard");
    command.args(words).output().unwrap()
}

fn status(named: &Named) -> Value {
    let command = named.world.router.command(PROGRAM);
    let exit = command.args(["guard", "status", "--json"]).exit().unwrap();
    serde_json::from_str(&exit.stdout).unwrap()
}

fn watch(named: &Named) -> Process {
    let command = named.world.router.command(PROGRAM);
    let mut watch = command.args(["guard", "watch"]).spawn().unwrap();
    let told = |line: &str| line.contains("guard:");
    watch
        .wait_for_line("its first look", PATIENCE, told)
        .unwrap();
    watch
}

fn kill(process: Process) {
    process.signal(Signal::SIGKILL).unwrap();
    process.wait_at_most(PATIENCE).unwrap();
}

const ON: [&str; 9] = [
    "on", "--lan", "br-lan", "--lan", "br-guest", "--dns", INNER[0], "--dns", INNER[1],
];

/// Returns whether the router answers a fresh protected name with an address.
fn answers(named: &Named) -> bool {
    let asked = query(&named.world.pc, ip(ROUTER[0]), &fresh(), false);
    asked.is_some_and(|(verdict, records)| verdict == 0 && records > 0)
}

/// The tunnel comes, is killed, returns with another device number and ends; other devices come and go. Protected names
/// resolve while it is up and are refused otherwise; no query for one ever leaves through the WAN.
#[test]
fn protected_names_leave_by_the_tunnel_or_not_at_all() {
    if !ready() {
        return;
    }
    let named = Named::new();
    let world = &named.world;
    let directory = Directory::new();
    let routers = ROUTER.map(ip);
    {
        let _queries = Queries::start(&world.pc, &routers);
        until("they leave before the guard is on", || named.clear().1 > 0);
    }
    guard(&named, &[&ON[..], &["--dns-name", SECRET]].concat());
    // The restart of `dnsmasq` has ended its earlier queries.
    let (_, before) = named.clear();
    let leaked = |when: &str| assert_eq!(named.clear().1, before, "{when}");
    let watching = watch(&named);
    assert_eq!(status(&named)["dnsmasq"], "in place");
    let queries = Queries::start(&world.pc, &routers);
    let first = queries.sent();
    queries.wait(SOME);
    leaked("no tunnel was there yet");
    let asked = |name: &str| query(&world.pc, routers[0], name, false);
    until("a refusal", || asked(&fresh()) == Some((5, 0)));
    until("others are asked as before", || {
        asked(PLAIN) == Some((0, 1))
    });

    let _far = world.far_end(&directory);
    let _inner = named.inner();
    for round in 0..3 {
        let tunnel = world.tunnel(&directory, "mr-real");
        until("protected names are answered", || answers(&named));
        let came = named.tunnelled();
        until("by the tunnel", || named.tunnelled() > came + 20);
        leaked("the tunnel is up");
        if round == 1 {
            assert!(tunnel.stop().unwrap().status.success());
        } else {
            kill(tunnel);
        }
        queries.wait(SOME);
        until("a refusal", || asked(&fresh()) == Some((5, 0)));
        leaked("the tunnel has ended");
    }
    for _ in 0..5 {
        world.ip("tuntap add mr-plain mode tun\naddress add 10.99.0.2/32 dev mr-plain\nlink set mr-plain up");
        queries.wait(SOME / 4);
        world.ip("link delete mr-plain");
        queries.wait(SOME / 4);
    }
    leaked("devices came and went");

    // From here on nothing restores the guard.
    kill(watching);
    let tunnel = world.tunnel(&directory, "mr-real");
    queries.wait(SOME);
    kill(tunnel);
    world
        .router
        .output("/etc/init.d/dnsmasq", ["restart"])
        .unwrap();
    queries.wait(SOME);
    leaked("nobody was there");
    println!(
        "0 of {} queries for protected names left by the WAN; {} by a tunnel",
        queries.sent() - first,
        named.tunnelled()
    );
    guard(&named, &["off"]);
    until("they leave after the guard is off", || {
        named.clear().1 > before
    });
    assert_eq!(named.file("millrace.guard.conf"), None);
}

/// With all names guarded, the router's `dnsmasq` answers queries to other servers, DNS over TLS is refused, and the
/// guard reports the owner's additional servers.
#[test]
fn all_names_of_the_lan_are_asked_by_the_tunnel() {
    if !ready() {
        return;
    }
    let named = Named::new();
    let world = &named.world;
    let directory = Directory::new();
    let far = lab::acceptance::guarded::FAR.map(ip);
    let all = [ip(ROUTER[0]), ip(ROUTER[1]), far[0], far[1]];
    guard(
        &named,
        &[&ON[..], &["--dns-redirect", "--dns-block-tls"]].concat(),
    );
    let (before, _) = named.clear();
    let _watch = watch(&named);
    assert_eq!(status(&named)["dns_redirect"], "in place");
    let pc = Queries::start(&world.pc, &all);
    let phone = Queries::start(&world.phone, &far);
    pc.wait(SOME);
    // Queries of the router itself are covered too.
    let own = || query(&world.router, ip("127.0.0.1"), PLAIN, false);
    until("a refusal", || own() == Some((5, 0)));
    let _far = world.far_end(&directory);
    let _inner = named.inner();
    for _ in 0..2 {
        let tunnel = world.tunnel(&directory, "mr-real");
        until("names are answered", || answers(&named));
        until("whatever server is asked", || {
            far.iter()
                .all(|server| query(&world.pc, *server, PLAIN, false) == Some((0, 1)))
        });
        until("what the router asks", || own() == Some((0, 1)));
        kill(tunnel);
        pc.wait(SOME);
        phone.wait(SOME);
    }
    assert_eq!(named.clear().0, before, "queries that left by the WAN");
    let told = world.pc.run(|| {
        let at = std::net::SocketAddr::new(far[0], 853);
        std::net::TcpStream::connect_timeout(&at, PATIENCE).is_err()
    });
    assert!(told.unwrap(), "DNS over TLS");
    let chain = world
        .router
        .output("nft", ["list", "chain", "inet", "millrace", "guard"])
        .unwrap();
    assert!(chain.contains("dport 853"), "{chain}");
    named.own_file("own.conf", "server=192.168.3.2\n");
    let notes = status(&named)["notes"].to_string();
    assert!(notes.contains("dnsmasq asks 192.168.3.2"), "{notes}");
    println!("0 of {} queries left by the WAN", pc.sent() + phone.sent());
}
