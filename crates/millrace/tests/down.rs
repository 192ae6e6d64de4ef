//! `millrace down`, and tunnels that are addressed by name.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use lab::acceptance::openvpn::{credentials, millrace};
use lab::acceptance::{
    A4, Directory, Net, PATIENCE, PROGRAM, WG, inhabitants, ready, run_files, until,
};
use lab::openvpn::{KeyKind, Setup};
use lab::peer::Keys;
use lab::{Exit, Host};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn run(host: &Host, words: &[&str]) -> Exit {
    let process = host.command(PROGRAM).args(words).spawn().unwrap();
    process.wait_at_most(PATIENCE).unwrap()
}

fn file(net: &Net, directory: &Directory, name: &str) -> PathBuf {
    let keys = Keys::generate(&net.a).unwrap();
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = {A4}/24\n",
        keys.private
    );
    directory.file(&format!("{name}.conf"), &text)
}

#[test]
fn a_tunnel_in_the_background_is_ended_by_its_name() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let path = file(&net, &directory, WG);
    let path = path.to_str().unwrap();
    for name in [WG, path] {
        assert!(run(&net.a, &["up", "--daemon", path]).status.success());
        assert!(net.a.has_interface(WG).unwrap());
        let exit = run(&net.a, &["up", path]);
        assert!(exit.stderr.contains("millrace down wg0"), "{exit:?}");
        let exit = run(&net.a, &["down", name]);
        assert!(exit.status.success(), "{exit:?}");
        // Nothing is left when `down` returns.
        assert!(!net.a.has_interface(WG).unwrap());
        assert_eq!(run_files(&net.a), Vec::<String>::new());
        assert!(inhabitants(&net.a).is_empty());
    }
    let exit = run(&net.a, &["down", WG]);
    assert!(
        exit.status.code() == Some(1) && exit.stderr.contains("no tunnel of this name"),
        "{exit:?}"
    );

    // An interface configured by `wg`.
    assert!(run(&net.a, &["wireguard", WG]).status.success());
    assert!(run(&net.a, &["down", WG]).status.success());
    until("its end", || inhabitants(&net.a).is_empty());
    assert!(!net.a.has_interface(WG).unwrap());
}

/// A tunnel started with OpenVPN's own command line, as units do, is known by its file's name too.
#[test]
fn a_tunnel_of_openvpns_command_line_is_ended_by_its_name() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let (setup, keys) = (Setup::default(), credentials(KeyKind::Ecdsa));
    let client = setup.client_file(&millrace(), keys, net.link.b4()).unwrap();
    let path = directory.file("office.conf", &client.to_string());
    for words in [["--config"].as_slice(), &["--daemon", "--config"]] {
        let command = net.a.command(PROGRAM).arg("openvpn").args(words);
        let process = command.arg(&path).spawn().unwrap();
        until("its name in the list", || {
            let list = net.a.output(PROGRAM, ["list", "--json"]).unwrap();
            let list: serde_json::Value = serde_json::from_str(&list).unwrap();
            list[0]["name"] == "office" && list[0]["state"] != "down"
        });
        let exit = run(&net.a, &["up", path.to_str().unwrap()]);
        assert!(
            exit.stderr.contains("has this profile up already"),
            "{exit:?}"
        );
        let exit = run(&net.a, &["down", "office"]);
        assert!(exit.status.success(), "{exit:?}");
        process.wait_at_most(PATIENCE).unwrap();
        until("its end", || inhabitants(&net.a).is_empty());
        assert_eq!(run_files(&net.a), Vec::<String>::new());
    }
}

/// A stopped process cannot end: `down` says what it waits for, and `status` says that the tunnel does not answer.
#[test]
fn a_tunnel_that_hangs_is_told_by_status_and_by_down() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let path = file(&net, &directory, WG);
    assert!(
        run(&net.a, &["up", "--daemon", path.to_str().unwrap()])
            .status
            .success()
    );
    let list = net.a.output(PROGRAM, ["list", "--json"]).unwrap();
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let all = list.as_array().unwrap().iter();
    let pid = all.filter_map(|it| it["pid"].as_i64()).next().unwrap();
    let pid = Pid::from_raw(pid.try_into().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    let exit = run(&net.a, &["status"]);
    assert!(exit.stderr.contains("wg0 does not answer"), "{exit:?}");
    let mut down = net.a.command(PROGRAM).args(["down", WG]).spawn().unwrap();
    let told = |line: &str| line.contains("which is stopped");
    down.wait_for_line("the process that it waits for", PATIENCE, told)
        .unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    let exit = down.wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    assert!(!net.a.has_interface(WG).unwrap());
}

/// A killed process cleans nothing up; `status` reports what it left, and `down` with the interface's name cleans up.
#[test]
fn what_a_killed_tunnel_has_left_is_told_and_undone() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let path = file(&net, &directory, WG);
    let text = fs::read_to_string(&path).unwrap();
    let home = "#! [Server]\n#! LAN = 192.168.1.0/24\n#! Masquerade = yes\n";
    fs::write(&path, format!("{home}{text}")).unwrap();
    net.a.sysctl("net/ipv4/ip_forward", "0").unwrap();
    let forwards = || {
        let read = || fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
        net.a.run(read).unwrap().trim() == "1"
    };
    let path = path.to_str().unwrap();
    let mut process = net.a.command(PROGRAM).args(["up", path]).spawn().unwrap();
    until("the server", || {
        net.a.has_interface(WG).unwrap() && forwards()
    });
    let doctor = || run(&net.a, &["doctor"]).stdout;
    assert!(!doctor().contains("left:"), "{}", doctor());
    process.signal(Signal::SIGKILL).unwrap();
    until("the end", || process.try_wait().unwrap().is_some());
    until("its interface's", || !net.a.has_interface(WG).unwrap());
    assert!(forwards());
    let told = doctor();
    assert!(
        told.contains("left:") && told.contains("millrace down wg0"),
        "{told}"
    );
    let exit = run(&net.a, &["down", WG]);
    assert!(exit.status.success(), "{exit:?}");
    assert!(!exit.stderr.contains("No such file"), "{exit:?}");
    assert!(!forwards());
    assert!(!doctor().contains("left:"));
    assert_eq!(run(&net.a, &["down", WG]).status.code(), Some(1));
}

/// An interface name means its file in /etc/wireguard, even beside a directory with that name.
#[test]
fn a_name_is_the_file_of_an_interface_and_not_a_directory() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let here = directory.path();
    fs::create_dir(here.join(WG)).unwrap();
    for command in ["up", "check"] {
        let script = format!("cd {} && exec {PROGRAM} {command} {WG}", here.display());
        let shell = net.a.command("sh").args(["-c", &script]).spawn().unwrap();
        let exit = shell.wait_at_most(PATIENCE).unwrap();
        // The file probably does not exist; the message shows where the program looked for it.
        let said = format!("{}{}", exit.stdout, exit.stderr);
        assert!(said.contains("/etc/wireguard/wg0.conf"), "{said}");
    }
}

#[test]
fn keys_are_those_of_wg() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let a = &net.a;
    let private = a.output(PROGRAM, ["genkey"]).unwrap();
    let public = |program: &OsStr| {
        let command = a.command(program).args(["pubkey"]);
        command.output_with_input(&private).unwrap()
    };
    assert_eq!(public(PROGRAM.as_ref()), public("wg".as_ref()));
    let preshared = a.output(PROGRAM, ["genpsk"]).unwrap();
    assert_eq!(preshared.len(), private.len());
    assert_ne!(preshared, a.output(PROGRAM, ["genpsk"]).unwrap());
    for wrong in ["", "short", &format!("{private}{private}")] {
        let command = a.command(PROGRAM).args(["pubkey"]);
        assert!(command.output_with_input(wrong).is_err(), "{wrong}");
    }
    let directory = Directory::new();
    for (mask, warns) in [("022", true), ("077", false)] {
        let out = directory.path().join(mask);
        let script = format!("umask {mask}; {PROGRAM} genkey > {}", out.display());
        let exit = a.command("sh").args(["-c", &script]).spawn().unwrap();
        let exit = exit.wait_at_most(PATIENCE).unwrap();
        assert_eq!(
            exit.stderr.contains("everybody can read"),
            warns,
            "{exit:?}"
        );
    }
}
