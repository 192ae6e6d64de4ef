//! `millrace status` and `millrace check`: their output and exit codes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::{
    B4, Directory, Net, PORT_A, PROGRAM, Setup, Tunnel, WG, pings, ready, status_of, until,
};
use lab::{Exit, Host};
use nix::sys::signal::Signal;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

fn run(host: &Host, words: &[&str]) -> Exit {
    host.command(PROGRAM).args(words).exit().unwrap()
}

#[test]
fn document_says_what_wg_says_and_more() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 10);
    tunnel.settled();
    let status = status_of(&net.a, WG);
    let seen = tunnel.at_a();
    assert_eq!(status["interface"], WG);
    assert_eq!(status["protocol"], "wireguard");
    assert_eq!(status["public_key"], tunnel.keys_a.public);
    assert_eq!(status["listen_port"], PORT_A);
    assert_eq!(status["mtu"], 1420);
    assert!(status["workers"].as_u64().unwrap() >= 1);
    let peer = &status["peers"][0];
    assert_eq!(peer["public_key"], tunnel.keys_b.public);
    assert_eq!(peer["endpoint"], seen.endpoint.unwrap().to_string());
    assert_eq!(peer["rx_bytes"], seen.received);
    assert_eq!(peer["tx_bytes"], seen.sent);
    assert_eq!(peer["allowed_ips"].as_array().unwrap().len(), 2);
    assert!(peer["last_handshake_unix"].as_u64().is_some());
    let plane = &status["dataplane"];
    assert_eq!(plane["cipher"], "chacha20-poly1305");
    let measured = plane["measured"].as_array().unwrap();
    assert!(
        measured
            .iter()
            .any(|of| of["kind"] == plane["crypto_backend"]
                && of["batch_ns"].as_u64().is_some_and(|ns| ns > 0)),
        "{plane}"
    );
    // Counts all ten pings, including those that waited for the session. The counter rises only after a packet was
    // sent, so its answer may be here first.
    until("ten pings are counted", || {
        status_of(&net.a, WG)["dataplane"]["outbound"]["packets"]
            .as_u64()
            .is_some_and(|packets| packets >= 10)
    });
    assert!(
        plane["inbound"]["packets"].as_u64().unwrap() >= 10,
        "{plane}"
    );
    for rung in [
        "tun-gso", "tun-uso", "tun-gro", "udp-gso", "udp-gro", "mmsg",
    ] {
        let state = plane["rungs"][rung].as_str().unwrap();
        assert!(
            state == "on" || state.starts_with("off ("),
            "{rung}: {state}"
        );
    }
    let drops = plane["drops"].as_object().unwrap();
    assert!(drops.len() > 10 && drops["not_authentic"] == 0, "{plane}");
    // A single sample shows no limit, so the status names none.
    assert_eq!(plane["limits"], "");
    assert!(status["refused"].as_object().unwrap().len() > 5, "{status}");
}

/// The limit describes the last second: an idle tunnel has none, whatever happened before.
#[test]
fn limit_is_of_the_last_second() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let _tunnel = Tunnel::new(&net, &Setup::default());
    let status = || -> serde_json::Value {
        let exit = run(&net.a, &["status", WG, "--json"]);
        serde_json::from_str::<serde_json::Value>(&exit.stdout).unwrap()[0].clone()
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flood = || {
                let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
                while !stop.load(Ordering::Relaxed) {
                    // The far end's port is closed, so sends may fail with "connection refused".
                    let _ = socket.send_to(&[0; 100], (B4, 9));
                }
            };
            net.a.run(flood).unwrap();
        });
        let seen = std::panic::catch_unwind(AssertUnwindSafe(|| {
            until("traffic worth a word", || {
                let status = status();
                let outbound = &status["dataplane"]["outbound"];
                let rate = outbound["packet_rate"].as_u64().unwrap();
                let limits = status["dataplane"]["limits"].as_str().unwrap();
                assert!(rate > 1000 || limits.is_empty(), "{status}");
                !limits.is_empty()
            });
        }));
        stop.store(true, Ordering::Relaxed);
        seen.unwrap();
    });
    until("an idle tunnel", || status()["dataplane"]["limits"] == "");
}

/// Refused handshakes are counted by reason, before any costly computation.
#[test]
fn refused_handshakes_are_counted() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let _tunnel = Tunnel::new(&net, &Setup::default());
    let mut initiation = vec![0; 148];
    initiation[0] = 1;
    net.b
        .run(|| {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
            socket.send_to(&initiation, (net.link.a4(), PORT_A))?;
            std::io::Result::Ok(())
        })
        .unwrap()
        .unwrap();
    until("one message without a MAC", || {
        status_of(&net.a, WG)["refused"]["mac1"] == 1
    });
}

#[test]
fn text_for_people_and_exit_codes() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 2);
    // With rates, which take a second to measure, and without.
    for words in [&["status"][..], &["status", WG, "--no-rate"]] {
        let exit = run(&net.a, words);
        assert_eq!(exit.status.code(), Some(0), "{exit:?}");
        for wanted in [WG, &tunnel.keys_b.public, "10.0.0.2/32", "chacha20"] {
            assert!(
                exit.stdout.to_lowercase().contains(&wanted.to_lowercase()),
                "{wanted}: {exit:?}"
            );
        }
        assert!(!exit.stdout.contains('\x1b'), "colours without a terminal");
        assert!(!exit.stdout.contains(&tunnel.keys_a.private));
    }
    let exit = run(&net.a, &["status", "wg9"]);
    assert_eq!(exit.status.code(), Some(1));
    assert!(exit.stderr.contains("wg9"), "{exit:?}");
    assert_eq!(run(&net.a, &["status", "--no-such"]).status.code(), Some(2));
    let exit = run(&net.a, &["status", "../../etc/passwd"]);
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
}

#[test]
fn no_tunnels_is_an_answer() {
    if !ready() {
        return;
    }
    let host = Host::private("host").unwrap();
    let exit = run(&host, &["status", "--json"]);
    assert_eq!((exit.status.code(), exit.stdout.trim()), (Some(0), "[]"));
    assert_eq!(run(&host, &["status"]).status.code(), Some(0));
}

/// A socket left by a killed program does not count as a tunnel.
#[test]
fn dead_tunnel_is_not_shown() {
    if !ready() {
        return;
    }
    use lab::peer::WireGuardPeer;
    let host = Host::private("host").unwrap();
    let options = lab::peer::PeerOptions::default();
    let program = lab::acceptance::millrace()
        .start(&host, WG, &options)
        .unwrap();
    drop(program);
    assert_eq!(
        run(&host, &["status", "--json", "--no-rate"]).stdout.trim(),
        "[]"
    );
    assert_eq!(run(&host, &["status", WG]).status.code(), Some(1));
}

const GOOD: &str = "[Interface]\n\
    PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
    Address = 10.0.0.1/24\n\n\
    [Peer]\n\
    PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
    AllowedIPs = 10.0.0.0/24\n\
    Endpoint = 192.0.2.1:51820\n";

#[test]
fn check_judges_every_line() {
    // Checking a file needs no privileges.
    let directory = Directory::new();
    let check = |name: &str, text: &str, more: &[&str]| {
        let file = directory.file(name, text);
        let output = std::process::Command::new(PROGRAM)
            .arg("check")
            .args(more)
            .arg(file)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, text) = check("wg0.conf", GOOD, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("5 honoured, 0 ignored, 0 refused"), "{text}");

    let scripts = GOOD.replace("Address", "PostUp = true\nAddress");
    let (code, text) = check("wg0.conf", &scripts, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("wg0.conf:3: refused PostUp"), "{text}");
    assert_eq!(check("wg0.conf", &scripts, &["--allow-scripts"]).0, Some(0));

    let wrong = GOOD.replace("10.0.0.0/24", "10.0.0.0/33");
    let (code, text) = check("wg0.conf", &wrong, &["--json"]);
    assert_eq!(code, Some(1));
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["refused"], 1, "{text}");
    assert!(document["usable"].is_boolean());

    assert_eq!(check("not a name.conf", GOOD, &[]).0, Some(1));
    let missing = std::process::Command::new(PROGRAM)
        .args(["check", "/nonexistent/wg0.conf"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nonexistent/wg0.conf"));
    let usage = std::process::Command::new(PROGRAM)
        .arg("check")
        .output()
        .unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

/// An ordinary user is told that `status` needs root, not that no tunnel runs.
#[test]
fn who_may_not_look_is_told_so() {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    if !ready() {
        return;
    }
    let net = Net::new();
    let directory = Directory::new();
    // A directory that all users may read.
    let program = directory.path().join("millrace");
    fs::copy(PROGRAM, &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let unprivileged = |words: &[&str]| {
        let all = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let command = net.a.command("setpriv").args(all).args(words);
        command.exit().unwrap()
    };
    let able = unprivileged(&["true"]).status.success();
    if !lab::require_that(able, "setpriv, and a user beside root") {
        return;
    }
    let program = program.to_str().unwrap();
    let exit = unprivileged(&[program, "status"]);
    assert!(
        exit.status.success() && exit.stdout.contains("No Millrace tunnel"),
        "{exit:?}"
    );
    let tunnel = Tunnel::new(&net, &Setup::default());
    for words in [
        &[program, "status", WG][..],
        &[program, "status"],
        &[program, "down", WG],
    ] {
        let exit = unprivileged(words);
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        assert!(
            exit.stderr.contains("this user may not") && exit.stderr.contains("as root"),
            "{exit:?}"
        );
        assert!(!exit.stdout.contains("No Millrace tunnel"), "{exit:?}");
    }
    tunnel.settled();
}

/// The status shows an unplugged cable at once, and a frozen peer once it has failed to answer a packet in time.
#[test]
fn a_peer_that_cannot_be_heard_is_told() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let tunnel = Tunnel::new(&net, &Setup::default());
    let stands = |wanted: Option<&str>| {
        until("the state", || {
            let status = status_of(&net.a, WG);
            status["state"].as_str() == wanted && status["peers"][0]["state"].as_str() == wanted
        });
        status_of(&net.a, WG)["peers"][0].clone()
    };
    pings(&net.a, B4, 1);
    let peer = stands(None);
    assert!(peer["last_heard_age"].as_u64().is_some(), "{peer}");
    net.b.set_up("eth0", false).unwrap();
    let peer = stands(Some("no carrier"));
    let reason = "eth0 has no carrier";
    assert_eq!(peer["reason"], reason, "{peer}");
    net.b.set_up("eth0", true).unwrap();
    stands(None);
    tunnel.b.process.signal(Signal::SIGSTOP).unwrap();
    lab::acceptance::no_ping(&net.a, B4);
    let peer = stands(Some("silent"));
    let reason = peer["reason"].as_str().unwrap();
    assert!(reason.starts_with("no answer to "), "{peer}");
    tunnel.b.process.signal(Signal::SIGCONT).unwrap();
    lab::acceptance::reaches(&net.a, B4);
    stands(None);
}

/// Exit codes distinguish an answer from a failure.
#[test]
fn what_cannot_be_told_ends_with_an_error() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let tunnel = Tunnel::new(&net, &Setup::default());
    pings(&net.a, B4, 1);
    for command in [
        "status --watch",
        "status --json",
        "logs wg0",
        "--help",
        "--version",
        "help up",
        "up --help",
        "tune --no-profile --milliseconds 1",
    ] {
        let script = format!("{PROGRAM} {command} > /dev/full");
        // A host without any log says so, and the command fails.
        let exit = net.a.command("sh").args(["-c", &script]).exit().unwrap();
        assert_eq!(exit.status.code(), Some(1), "{command}: {exit:?}");
        assert!(!exit.stderr.is_empty(), "{command}");
    }
    drop(tunnel);
    assert_eq!(run(&net.a, &["logs", "nosuch"]).status.code(), Some(1));
    let faulty = directory.file("wg0.conf", "[Interface]\nPostUp = true\n");
    let exit = run(&net.a, &["check", "--json", faulty.to_str().unwrap()]);
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    let report: serde_json::Value = serde_json::from_str(&exit.stdout).unwrap();
    assert_eq!(report["usable"], false, "{report}");
}

/// A user without permission is told so, instead of seeing an empty list.
#[test]
fn a_user_who_may_not_look_is_told_so() {
    if !ready() {
        return;
    }
    let net = Net::new();
    // Without the capabilities to bypass file permissions and to change the network.
    let alone = |words: &str| {
        let script = format!(
            "mount -t tmpfs none /etc/wireguard 2>/dev/null || {{ mkdir -p /tmp; mount -t tmpfs none /etc; mkdir /etc/wireguard; }}; \
             chmod 000 /etc/wireguard; \
             mount -t tmpfs none /run; mkdir /run/millrace; (umask 777; touch /run/millrace/office-0.up); \
             exec setpriv --bounding-set=-all --inh-caps=-all {PROGRAM} {words}"
        );
        net.a.command("sh").args(["-c", &script]).exit().unwrap()
    };
    for words in [
        "list",
        "up office",
        "guard status",
        "guard on --lan eth0",
        "policy status",
        "peer list --server office",
        "down office",
        "restart office",
        "reload office",
        "doctor",
    ] {
        let exit = alone(words);
        assert_eq!(exit.status.code(), Some(1), "{words}: {exit:?}");
        assert!(
            exit.stderr.contains("run this as root"),
            "{words}: {exit:?}"
        );
        for wrong in ["no tunnels", "down", "policy:", "load the module"] {
            assert!(!exit.stdout.contains(wrong), "{words}: {exit:?}");
        }
    }
}
