//! `millrace doctor --report`: figures of this machine, and nothing that tells whose machine it is.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::ffi::OsStr;
use std::fs;

use lab::acceptance::{
    A4, B4, Directory, Net, PATIENCE, PROGRAM, Site, WG, inhabitants, ready, run_files,
};
use lab::peer::Keys;
use lab::{Exit, Host};
use serde_json::Value;

fn run(host: &Host, program: impl AsRef<OsStr>, words: &[&str]) -> Exit {
    let process = host.command(program).args(words).spawn().unwrap();
    process.wait_at_most(2 * PATIENCE).unwrap()
}

#[test]
fn a_tunnel_between_private_namespaces_is_measured_and_leaves_nothing() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let keys = Keys::generate(&net.a).unwrap();
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = {A4}/24\n",
        keys.private
    );
    let file = directory.file(&format!("{WG}.conf"), &text);
    let up = run(&net.a, PROGRAM, &["up", "--daemon", file.to_str().unwrap()]);
    assert!(up.status.success(), "{up:?}");
    let (devices, files) = (links(&net.a), run_files(&net.a));
    let processes = inhabitants(&net.a);
    // Settings with which no tunnel starts: the measured tunnels have their own.
    let settings = "[dataplane]\nworkers = 0\n";
    let written = net
        .a
        .run(|| fs::write("/etc/millrace/millrace.toml", settings));
    written.unwrap().unwrap();

    let path = directory.path().join("report.json");
    let words = ["doctor", "--report", path.to_str().unwrap()];
    let exit = run(&net.a, PROGRAM, &words);
    assert!(exit.status.success(), "{exit:?}");
    let text = fs::read_to_string(&path).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    let rate = &report["loopback"]["kilobits_per_second"];
    assert!(rate.as_u64().is_some_and(|it| it > 0), "{exit:?} {text}");
    assert_eq!(report["no_loopback"], Value::Null);
    assert_eq!(report["ciphers"][0]["side"], "cpu");

    // The user's tunnel is undisturbed, and the measured ones are gone.
    assert_eq!((links(&net.a), run_files(&net.a)), (devices.clone(), files));
    assert_eq!(inhabitants(&net.a), processes);
    // Only words, versions and the digest are texts: no name, address or key.
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let macs = devices
        .split_whitespace()
        .filter(|it| it.matches(':').count() == 5);
    let secrets = macs.chain([A4, &keys.private, &keys.public, WG, "veth", "/"]);
    for secret in secrets
        .chain([host.trim()])
        .filter(|it| it.len() > 1 || *it == "/")
    {
        // A module of the kernel has the name of its devices.
        let told = text.replace("\"veth\"", "");
        assert!(!told.contains(secret), "{secret}: {text}");
    }
    assert!(run(&net.a, PROGRAM, &["down", WG]).status.success());
}

/// Pings through a running tunnel, and refuses an address outside all tunnels.
#[test]
fn a_running_tunnel_is_measured_by_echoes_of_its_peer() {
    if !ready() {
        return;
    }
    let site = Site::new();
    let _server = site.server(&[], &[]);
    let (a, outside) = (&site.net.a, site.net.link.b4().to_string());
    let inside = format!("Address = {A4}/24");
    let file = site.file(WG, &inside, &outside, "10.0.0.0/24", "");
    let up = run(a, PROGRAM, &["up", "--daemon", file.to_str().unwrap()]);
    assert!(up.status.success(), "{up:?}");
    let exit = run(a, PROGRAM, &["doctor", "--report", "--with-peer", B4]);
    assert!(exit.status.success(), "{exit:?}");
    let report: Value = serde_json::from_str(&exit.stdout).unwrap();
    let peer = &report["peer"];
    assert_eq!(peer["protocol"], "wireguard");
    assert!(peer["kilobits_per_second"].as_u64() > Some(0), "{exit:?}");
    assert!(peer["microseconds"].as_u64() > Some(0), "{exit:?}");
    assert!(!exit.stdout.contains(B4), "{exit:?}");
    let exit = run(a, PROGRAM, &["doctor", "--report", "--with-peer", &outside]);
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(exit.stderr.contains("no running tunnel"), "{exit:?}");
    assert!(run(a, PROGRAM, &["down", WG]).status.success());
}

fn links(host: &Host) -> String {
    let listed = run(host, "ip", &["-br", "link"]);
    listed.stdout
}

/// Without permission for namespaces, the rest is reported.
#[test]
fn without_privileges_the_report_says_why_no_tunnel_was_measured() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let program = PROGRAM.to_string();
    let drop = ["--bounding-set=-all", "--inh-caps=-all", &program];
    let words = [drop.as_slice(), &["doctor", "--report"]].concat();
    let exit = run(&net.a, "setpriv", &words);
    assert!(exit.status.success(), "{exit:?}");
    let report: Value = serde_json::from_str(&exit.stdout).unwrap();
    assert_eq!(report["no_loopback"], "no-namespaces");
    assert_eq!(report["loopback"], Value::Null);
    assert!(
        exit.stderr.contains("private network namespaces"),
        "{exit:?}"
    );
}
