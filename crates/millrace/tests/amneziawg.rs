//! AmneziaWG with other programs and with Millrace itself, over the generations: handshakes in both directions, pings,
//! and TCP and UDP with their content compared.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "amneziawg/changes.rs"]
mod changes;
#[path = "amneziawg/mtu.rs"]
mod mtu;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use config::permissions::Permissions;
use config::uapi::{DeviceState, write_get};
use config::wgquick;
use lab::Host;
use lab::acceptance::web::Monitor;
use lab::acceptance::{
    A4, A6, B4, B6, Directory, Net, PATIENCE, PROGRAM, Setup, Site, Tunnel, WG, drops, ip, no_ping,
    pings, reaches, ready, status_of, tcp_both_ways, uapi, uapi_at, udp_both_ways, until,
};
use lab::load::{PingOptions, ping};
use lab::peer::{AmneziaWg, RunningPeer, WireGuardPeer};
use nix::sys::signal::Signal;

const V10: &str =
    "jc=3\njmin=50\njmax=100\ns1=30\ns2=40\nh1=111111\nh2=222222\nh3=333333\nh4=444444\n";

const V15: &str = "jc=3\njmin=50\njmax=100\ns1=30\ns2=40\nh1=111111\nh2=222222\nh3=333333\nh4=444444\n\
    i1=<b 0xc0ffee><t><r 16>\ni2=<b 0xaa><c>\n";

const V20: &str = "jc=3\njmin=50\njmax=100\ns1=30\ns2=40\ns3=25\ns4=17\nh1=100000-200000\n\
    h2=300000-400000\nh3=500000-600000\nh4=700000-800000\ni1=<b 0xc0ffee><t><r 16><rc 8><rd 4>\n";

const V31: &str = "jc=3\njmin=50\njmax=100\ns1=30\ns2=40\ns3=25\ns4=16\nh1=1\nh2=2\nh3=3\nh4=4\n\
    i1=<b 0xc0ffee><t><r 16><rc 8><rd 4>\n\
    header_protection_key=404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f\n\
    content_padding_addition=10-100\nrekey_after_time=100-120\nrekey_timeout=3-7\n\
    reject_after_time=150-180\nkeepalive_timeout=5-15\nmax_handshake_attempts=15-20\n\
    random_trailers=1\ndisable_cookies=1\n";

/// Types that are most of all numbers, with trailers: a data packet looks like a handshake message as well, more often
/// than not.
const WIDE: &str = "s1=30\ns2=40\ns3=25\ns4=16\nh1=5-1500000000\nh2=1500000001-2500000000\n\
    h3=2500000001-3000000000\nh4=3000000001-4294967295\nrandom_trailers=1\n";

#[track_caller]
fn set(at: &RunningPeer<'_>, settings: &str) {
    let answer = uapi(at.host(), WG, &format!("set=1\n{settings}\n"));
    assert_eq!(answer, "errno=0\n\n", "{settings}");
}

/// A tunnel whose ends have these settings.
fn tunnel<'h>(net: &'h Net, setup: &Setup, settings: &str) -> Tunnel<'h> {
    let tunnel = Tunnel::new(net, setup);
    for end in [&tunnel.a, &tunnel.b] {
        set(end, settings);
    }
    tunnel
}

/// Sends everything a tunnel carries, with each side initiating once, over both families.
#[track_caller]
fn interoperates(other: AmneziaWg, settings: &str) {
    if !ready() || lab::require(other.available()).is_none() {
        return;
    }
    for (millrace_calls, v6) in [(true, false), (false, true)] {
        let net = Net::new();
        let mut setup = Setup {
            b: Box::new(other),
            v6,
            mtu: 1400,
            preshared: true,
            ..Setup::default()
        };
        if !millrace_calls {
            std::mem::swap(&mut setup.a, &mut setup.b);
        }
        let tunnel = tunnel(&net, &setup, settings);
        if other == AmneziaWg::V31 {
            // Its first packet in each direction is lost: it was laid out before S4 was set.
            reaches(&net.a, B4);
            reaches(&net.b, A4);
        }
        pings(&net.a, B4, 3);
        pings(&net.b, A6, 3);
        let seen = tunnel.at_b().endpoint.unwrap();
        assert_eq!(seen.is_ipv6(), v6, "{seen}");
        tcp_both_ways(&net.a, &net.b, B4, 20_000_000);
        tcp_both_ways(&net.b, &net.a, A6, 3_000_000);
        udp_both_ways(&net.a, &net.b, B4, 300, 1372);
        udp_both_ways(&net.b, &net.a, A4, 300, 1372);
    }
}

#[test]
fn generation_1_0() {
    interoperates(AmneziaWg::V10, V10);
}

#[test]
fn generation_1_5() {
    interoperates(AmneziaWg::V15, V15);
}

#[test]
fn generation_2_0() {
    interoperates(AmneziaWg::V20, V20);
}

#[test]
fn generation_2_0_with_a_program_of_3_1() {
    interoperates(AmneziaWg::V31, V20);
}

#[test]
fn generation_3_1() {
    interoperates(AmneziaWg::V31, V31);
}

/// Settings that `millrace server init` draws, as the configuration protocol writes them.
fn drawn(host: &Host, generation: &str, look: &str) -> String {
    let directory = Directory::new();
    let to = directory.path().to_str().unwrap();
    let wanted = ["server", "init", "--amneziawg", generation, "--look", look];
    let place = [
        "--endpoint",
        "192.0.2.1",
        "--subnet",
        "10.99.0.0/24",
        "--to",
        to,
    ];
    host.output(PROGRAM, wanted.into_iter().chain(place))
        .unwrap();
    let import = wgquick::read(&directory.path().join("home.conf"), Permissions::NONE);
    let (server, _) = import.unwrap().into_tunnel().unwrap();
    let device = DeviceState {
        amnezia: server.interface.amnezia,
        ..DeviceState::default()
    };
    let mut answer = Vec::new();
    write_get(&mut answer, &device, []).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    // Programs of 2.0 refuse the names of switches that came later, and that are off.
    let lines = (answer.lines()).filter(|it| !it.is_empty() && !it.ends_with("=0"));
    lines.map(|it| format!("{it}\n")).collect()
}

/// Another program as client of a server with drawn values.
#[track_caller]
fn takes_drawn_values(other: AmneziaWg, generation: &str) {
    if !ready() || lab::require(other.available()).is_none() {
        return;
    }
    for look in ["dns", "stun", "quic"] {
        let net = Net::new();
        let setup = Setup {
            a: Box::new(other),
            mtu: 1400,
            ..Setup::default()
        };
        let settings = drawn(&net.b, generation, look);
        assert!(settings.contains("\ni1=<"), "{settings}");
        let _tunnel = tunnel(&net, &setup, &settings);
        reaches(&net.a, B4);
        reaches(&net.b, A4);
        pings(&net.a, B4, 3);
        tcp_both_ways(&net.a, &net.b, B4, 3_000_000);
        udp_both_ways(&net.b, &net.a, A4, 100, 1372);
    }
}

#[test]
fn drawn_values_of_2_0() {
    takes_drawn_values(AmneziaWg::V20, "2.0");
}

#[test]
fn drawn_values_of_3_1() {
    takes_drawn_values(AmneziaWg::V31, "3.1");
}

#[test]
fn plain_wireguard_with_a_program_of_3_1() {
    interoperates(AmneziaWg::V31, "");
}

#[test]
fn millrace_with_itself() {
    if !ready() {
        return;
    }
    for (v6, settings) in [(false, V10), (true, V20), (false, V31), (true, V31)] {
        let net = Net::new();
        let setup = Setup {
            v6,
            mtu: 1400,
            ..Setup::default()
        };
        let _tunnel = tunnel(&net, &setup, settings);
        pings(&net.a, B4, 3);
        pings(&net.b, A6, 3);
        tcp_both_ways(&net.a, &net.b, B4, 8_000_000);
        tcp_both_ways(&net.b, &net.a, A6, 8_000_000);
        udp_both_ways(&net.a, &net.b, B6, 500, 1352);
    }
}

/// Full-size packets of which most look like handshake messages too: none is lost.
#[test]
fn wide_types_with_trailers_lose_nothing() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let setup = Setup {
        mtu: 1400,
        ..Setup::default()
    };
    let _tunnel = tunnel(&net, &setup, WIDE);
    pings(&net.a, B4, 1);
    let options = PingOptions {
        size: 1372,
        interval: Some(Duration::from_millis(2)),
        ..PingOptions::count(1000)
    };
    let report = ping(&net.a, ip(B4), &options).unwrap();
    assert_eq!(report.received, 1000, "{report:?}");
    assert_eq!(drops(&net.b, "no_session"), 0);
}

/// A change of the settings that both ends share ends the session; the first packet after it arrives. Other ends that
/// differ in one value hear nothing.
#[test]
fn settings_change_while_the_tunnel_runs() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = tunnel(&net, &Setup::default(), "");
    pings(&net.a, B4, 1);
    for settings in [V10, V20, "s4=40\n", V31] {
        for end in [&tunnel.b, &tunnel.a] {
            set(end, settings);
        }
        pings(&net.a, B4, 1);
    }
    let answer = uapi_at(&net.a, "/var/run/amneziawg", WG, "get=1\n\n");
    assert!(answer.contains("\njc=3\njmin=50\n"), "{answer}");
    assert!(answer.contains("\nrandom_trailers=1\n"), "{answer}");
    let refused = uapi(&net.a, WG, "set=1\nh1=2\nlisten_port=77\n\n");
    assert_eq!(refused, "errno=-22\n\n");
    assert!(!uapi(&net.a, WG, "get=1\n\n").contains("listen_port=77"));
    set(&tunnel.a, "s2=41\n");
    no_ping(&net.a, B4);
}

/// Lines of a file with the settings of [`V31`].
const FILE: &str = "Jc = 3\nJmin = 50\nJmax = 100\nS1 = 30\nS2 = 40\nS3 = 25\nS4 = 16\n\
    H1 = 1\nH2 = 2\nI1 = <b 0xc0ffee><t><r 16><rc 8><rd 4>\nI2 =\n\
    HeaderProtectionKey = QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=\n\
    ContentPaddingAddition = 10-100\nRekeyTimeout = 3-7\nRandomTrailers = on\nDisableCookies = on\n";

/// The file of a new client has the values of its server's.
#[test]
fn clients_of_a_server_at_home_get_its_values() {
    let directory = Directory::new();
    let key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    let text = format!(
        "[Interface]\nPrivateKey = {key}\nAddress = 10.7.0.1/24\nListenPort = 7\n{FILE}\
         #! [Server]\n#! Endpoint = home.example:7\n"
    );
    let server = directory.file("home.conf", &text);
    let client = directory.path().join("phone.conf");
    let made = Command::new(PROGRAM)
        .args(["peer", "add"])
        .args([Path::new("phone"), Path::new("--server"), &server])
        .args([Path::new("--file"), &client])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let again = directory.path().join("again");
    let made = Command::new(PROGRAM)
        .args(["peer", "reissue", "phone"])
        .args([Path::new("--server"), &server, Path::new("--to"), &again])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    for client in [client, again.join("phone.conf")] {
        let client = fs::read_to_string(client).unwrap();
        for line in FILE
            .lines()
            .filter(|line| !line.starts_with("H") && !line.ends_with('='))
        {
            assert!(client.contains(&format!("{line}\n")), "{line}: {client}");
        }
        assert!(client.contains("\nHeaderProtectionKey = QEFC"), "{client}");
    }
}

/// The page and the status name the generation and have no key.
fn tells_the_generation_but_no_key(a: &Host) {
    let monitor = Monitor::start(a, false, &[]);
    let ask = "GET /api/state HTTP/1.1\r\nHost: 127.0.0.1:8470\r\n\r\n";
    let page = || monitor.request(ask).text();
    until("the tunnel on the page", || {
        page().contains("AmneziaWG 3.1")
    });
    let status = |more: &str| a.output(PROGRAM, ["status", more, "--no-rate"]).unwrap();
    let [text, json] = [status("-v"), status("--json")];
    assert!(text.contains("\n  amneziawg: 3.1\n"), "{text}");
    assert_eq!(status_of(a, WG)["amnezia"], "3.1");
    for text in [page(), text, json] {
        let key = ["QEFCQ0RF", "40414243"].map(|it| text.contains(it));
        assert_eq!(key, [false; 2], "{text}");
    }
}

#[test]
fn a_file_comes_up_and_is_read_again() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let server = site.server(&[], &[]);
    set(&server, V31);
    let (a, to) = (&site.net.a, site.net.link.b4().to_string());
    let file = |lines: &str| {
        let lines = format!("Address = {A4}/24\n{lines}");
        site.file(WG, &lines, &to, "10.0.0.0/24", "")
    };
    let path = file("S1 = 4\nS2 = 60\nH1 = 2\n");
    let refused = a
        .command(PROGRAM)
        .arg("up")
        .arg(&path)
        .spawn()
        .unwrap()
        .wait_at_most(PATIENCE)
        .unwrap();
    assert!(refused.stderr.contains("H1 and H2 overlap"), "{refused:?}");
    let path = file("S1 = 4\nS2 = 60\n");
    let checked = a
        .command(PROGRAM)
        .arg("check")
        .arg(&path)
        .spawn()
        .unwrap()
        .wait_at_most(PATIENCE)
        .unwrap();
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(
        said.contains("initiation and response datagrams have the same length"),
        "{said}"
    );
    assert!(said.contains("filters see WireGuard"), "{said}");

    let path = file(FILE);
    let up = a.command(PROGRAM).arg("up").arg(&path).spawn().unwrap();
    reaches(a, B4);
    let mtu = || status_of(a, WG)["mtu"].as_u64();
    assert_eq!(mtu(), Some(1500 - 80 - 16));
    tells_the_generation_but_no_key(a);
    set(&server, "s4=20\n");
    file(&(FILE.replace("S4 = 16", "S4 = 20") + "I3 = <b 0x01>\n"));
    up.signal(Signal::SIGHUP).unwrap();
    reaches(a, B4);
    until("an MTU that leaves room", || mtu() == Some(1500 - 80 - 20));
    let doctor = a.command(PROGRAM).args(["doctor", "--json"]).spawn();
    let doctor = doctor.unwrap().wait_at_most(PATIENCE).unwrap();
    let constant = "\"AmneziaWG: I3 is the same each time, which filters can learn\"";
    assert!(doctor.stdout.contains(constant), "{doctor:?}");
    file("");
    set(
        &server,
        "s1=0\ns2=0\ns3=0\ns4=0\nrandom_trailers=0\n\
        header_protection_key=0000000000000000000000000000000000000000000000000000000000000000\n",
    );
    up.signal(Signal::SIGHUP).unwrap();
    reaches(a, B4);
}

/// Ranges of types, with trailers.
const TRAILERS: &str = "s1=30\ns2=40\ns3=25\ns4=16\nh1=100000-200000\nh2=300000-400000\nh3=500000-600000\n\
    h4=700000-800000\nrandom_trailers=1\n";

/// Ends of which one has a value of its own. Millrace, as the client or as the server, names it in the status, until both
/// have the same, and once in the log.
#[track_caller]
fn names(other: AmneziaWg, calls: bool, [ours, theirs]: [&str; 2], expected: &str) {
    if !ready() || lab::require(other.available()).is_none() {
        return;
    }
    let net = Net::new();
    let mut setup = Setup {
        b: Box::new(other),
        mtu: 1400,
        ..Setup::default()
    };
    setup.options_a.arguments.push("-v".to_owned());
    if !calls {
        std::mem::swap(&mut setup.a, &mut setup.b);
        std::mem::swap(&mut setup.options_a, &mut setup.options_b);
    }
    let tunnel = Tunnel::new(&net, &setup);
    let (own, at_other) = match calls {
        true => (&tunnel.a, &tunnel.b),
        false => (&tunnel.b, &tunnel.a),
    };
    set(own, ours);
    set(at_other, theirs);
    let reason = || {
        let status = status_of(own.host(), WG);
        status["peers"][0]["reason"].as_str().map(str::to_owned)
    };
    until(expected, || {
        // A packet that has no session has the client call the server.
        let options = PingOptions::count(1);
        let report = ping(&net.a, ip(B4), &options).unwrap();
        assert_eq!(report.received, 0, "{report:?}");
        reason().is_some_and(|it| it.starts_with(expected))
    });
    let remedy = "; give both ends the same values";
    let words = reason().unwrap();
    assert!(words.ends_with(remedy), "{words}");
    let text = own.host().output(PROGRAM, ["status", "--no-rate"]).unwrap();
    assert!(
        text.contains(&format!("state: silent: {expected}")),
        "{text}"
    );
    let told = |text: &str| text.matches("has other AmneziaWG settings: ").count();
    until("a log line", || told(&own.process.stderr()) > 0);
    assert_eq!(told(&own.process.stderr()), 1);
    set(at_other, ours);
    if other == AmneziaWg::V31 {
        reaches(&net.a, B4);
    }
    reaches(&net.a, B4);
    reaches(&net.b, A4);
    assert_eq!(reason(), None);
}

#[test]
fn an_answer_with_another_s2_or_h2_is_named_by_the_client() {
    let [size, number] = [("s2=40", "s2=44"), ("h2=300000-400000", "h2=7")];
    let differs = |base: &str, (ours, theirs)| base.replace(ours, theirs);
    let words = "S2 is 44 at the other end, 40 here";
    names(AmneziaWg::V20, true, [V20, &differs(V20, size)], words);
    names(AmneziaWg::V31, true, [V31, &differs(V31, size)], words);
    let words = "H2 includes 7 at the other end, is 300000-400000 here";
    names(AmneziaWg::V20, true, [V20, &differs(V20, number)], words);
}

#[test]
fn a_plain_client_is_named_by_the_server() {
    let words = "the other end speaks plain WireGuard, this end AmneziaWG";
    names(AmneziaWg::V20, false, [V20, ""], words);
    names(AmneziaWg::V31, false, [V31, ""], words);
}

#[test]
fn data_with_another_s4_is_named_by_the_server() {
    let theirs = V20.replace("s4=17", "s4=40");
    let words = "S4 is 40 at the other end, 17 here";
    names(AmneziaWg::V20, false, [V20, &theirs], words);
}

#[test]
fn trailers_at_one_end_are_named_by_client_and_server() {
    let without = TRAILERS.replace("trailers=1", "trailers=0");
    let words = "RandomTrailers is on at the other end, off here";
    names(AmneziaWg::V31, true, [&without, TRAILERS], words);
    let words = "RandomTrailers is off at the other end, on here";
    names(AmneziaWg::V31, false, [TRAILERS, &without], words);
}
