//! Tests `--daemon`, and output whose reader has gone away.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use lab::acceptance::openvpn::{credentials, millrace};
use lab::acceptance::{
    A4, B4, Directory, Net, PATIENCE, PORT_B, PROGRAM, inhabitants, ready, run_files, until,
};
use lab::openvpn::{KeyKind, OpenVpn as _, Setup};
use lab::peer::Keys;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Writes a file with these lines for an interface with this name.
fn file(net: &Net, directory: &Directory, ifname: &str, lines: &str) -> std::path::PathBuf {
    let keys = Keys::generate(&net.a).unwrap();
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = {A4}/24\n{lines}\n[Peer]\nPublicKey = {}\nAllowedIPs = 10.0.0.0/24\n",
        keys.private, keys.public,
    );
    directory.file(&format!("{ifname}.conf"), &text)
}

/// Ends every process in the host and checks that nothing is left.
fn ends(net: &Net) {
    for process in inhabitants(&net.a) {
        let _ = kill(Pid::from_raw(process.cast_signed()), Signal::SIGTERM);
    }
    until("the end of all processes", || {
        inhabitants(&net.a).is_empty()
    });
    assert_eq!(run_files(&net.a), Vec::<String>::new());
}

#[test]
fn a_script_that_prints_does_not_keep_a_tunnel_from_the_background() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let directory = Directory::new();
    let lines =
        "PreUp = echo before; echo ready\nPostUp = echo up; seq 100000\nPostDown = echo down";
    let file = file(&net, &directory, "up0", lines);
    let exit = net
        .a
        .command(PROGRAM)
        .args(["up", "--daemon", "--allow-scripts"])
        .arg(&file)
        .spawn()
        .unwrap()
        .wait_at_most(PATIENCE)
        .unwrap();
    assert!(exit.status.success(), "{exit:?}");
    assert!(exit.stdout.contains("before") && exit.stdout.contains("100000"));
    assert!(net.a.has_interface("up0").unwrap());
    ends(&net);
    assert!(!net.a.has_interface("up0").unwrap());
}

#[test]
fn a_script_may_bring_up_a_tunnel_of_its_own() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let directory = Directory::new();
    let inner = file(&net, &directory, "up1", "");
    let seen = directory.path().join("seen");
    // Scripts do not inherit the daemon's arguments and environment.
    let lines = format!(
        "PostUp = env > {}; ls -l /proc/self/fd | grep -c pipe >> {0}; {PROGRAM} up --daemon {}",
        seen.display(),
        inner.display()
    );
    let outer = file(&net, &directory, "up0", &lines);
    for switches in [&["--daemon"][..], &[]] {
        let mut process = net
            .a
            .command(PROGRAM)
            .args(["up", "--allow-scripts"])
            .args(switches)
            .arg(&outer)
            .spawn()
            .unwrap();
        if switches.is_empty() {
            process
                .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
                .unwrap();
        } else {
            let exit = process.wait_at_most(PATIENCE).unwrap();
            assert!(exit.status.success(), "{exit:?}");
        }
        for name in ["up0", "up1"] {
            assert!(net.a.has_interface(name).unwrap(), "{name}");
        }
        let seen = fs::read_to_string(&seen).unwrap();
        assert!(!seen.contains("MILLRACE_IN_BACKGROUND"), "{seen}");
        ends(&net);
    }
}

#[test]
fn what_cannot_start_says_so_and_leaves_nothing() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let directory = Directory::new();
    let file = file(&net, &directory, "up0", "PostUp = echo said; false");
    let log = directory.file("up0.log", "");
    let log = log.to_str().unwrap();
    for more in [&[][..], &["--log", log]] {
        let exit = net
            .a
            .command(PROGRAM)
            .args(["up", "--daemon", "--allow-scripts"])
            .args(more)
            .arg(&file)
            .spawn()
            .unwrap()
            .wait_at_most(PATIENCE)
            .unwrap();
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        assert!(exit.stderr.contains("false"), "{exit:?}");
        ends(&net);
    }
    assert!(fs::read_to_string(log).unwrap().contains("false"));
}

#[test]
fn nothing_panics_where_the_reader_has_gone() {
    let directory = Directory::new();
    let file = directory.file("wg0.conf", "[Interface]\nPrivateKey = x\n");
    let file = file.to_str().unwrap();
    for arguments in [
        &["--help"][..],
        &["check", file],
        &["openvpn", "--show-ciphers"],
        &["openvpn", "--show-tls"],
        &["openvpn", "--version"],
        &["openvpn", "--help"],
        &["openvpn", "--no-such-option"],
        &["openvpn", "--genkey", "secret"],
        &["speed", "--quick", "aes-256-gcm"],
        &["status"],
        &["up", "/nowhere.conf"],
    ] {
        let mut child = Command::new(PROGRAM)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The reader closes standard output before the program writes to it.
        drop(child.stdout.take());
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        let status = child.wait().unwrap();
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        assert!(
            status.code().is_some_and(|code| code < 100),
            "{arguments:?}: {status}"
        );

        // Standard error behaves in the same way.
        let mut child = Command::new(PROGRAM)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stderr.take());
        let status = child.wait().unwrap();
        assert!(
            status.code().is_some_and(|code| code < 100),
            "{arguments:?}: {status}"
        );
    }
}

/// `--wait` bounds the time that `up` waits for a silent server. The tunnel keeps trying and comes up when the server
/// does.
#[test]
fn a_server_that_does_not_answer_is_waited_for_in_the_background() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let (setup, keys, at) = (Setup::default(), credentials(KeyKind::Ecdsa), net.link.b4());
    let program = millrace();
    let server_file = setup.server_file(&program, keys, at).unwrap();
    let mut client_file = setup.client_file(&program, keys, at).unwrap();
    client_file
        .line("connect-retry 1 1")
        .line("server-poll-timeout 3");
    let file = directory.file("office.ovpn", &client_file.to_string());
    let file = file.to_str().unwrap();
    let run = |words: &[&str]| {
        let process = net.a.command(PROGRAM).args(words).spawn().unwrap();
        process.wait_at_most(PATIENCE).unwrap()
    };
    let exit = run(&["up", "--daemon", "--wait", "1", file]);
    assert_eq!(exit.status.code(), Some(3), "{exit:?}");
    for words in [
        "connecting to ",
        "not up after 1 s; it goes on trying in the background",
    ] {
        assert!(exit.stderr.contains(words), "{words}: {exit:?}");
    }
    let server = program.start(&net.b, &server_file).unwrap();
    lab::acceptance::reaches(&net.a, "10.8.0.1");
    let exit = run(&["restart", "office"]);
    assert!(matches!(exit.status.code(), Some(0 | 3)), "{exit:?}");
    lab::acceptance::reaches(&net.a, "10.8.0.1");
    // `restart` leaves a tunnel with a broken file alone: the file could not be repaired remotely once that tunnel was
    // down.
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text.replace("remote ", "remot ")).unwrap();
    for words in [["restart", "office"], ["restart", "--daemons"]] {
        let exit = run(&words);
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        assert!(exit.stderr.contains("keeps running unchanged"), "{exit:?}");
    }
    lab::acceptance::reaches(&net.a, "10.8.0.1");
    fs::write(file, text).unwrap();
    drop(server);
    let exit = run(&["restart", "office"]);
    assert_eq!(exit.status.code(), Some(3), "{exit:?}");
    ends(&net);

    // In the foreground, `up` explains possible causes of the silence.
    let mut process = net.a.command(PROGRAM).args(["up", file]).spawn().unwrap();
    for words in ["connecting to ", "a firewall may drop the packets"] {
        process
            .wait_for_line(words, PATIENCE, |line| line.contains(words))
            .unwrap();
    }
    // `ends` sends SIGTERM instead of SIGKILL, so that the process removes its own files.
    ends(&net);
    drop(process);

    let text = format!(
        "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"{at}\"\nusername = \"alice\"\npassword = \"correct horse\"\n"
    );
    let file = directory.file("old.toml", &text);
    let exit = run(&["up", "--daemon", "--wait", "1", file.to_str().unwrap()]);
    assert_eq!(exit.status.code(), Some(3), "{exit:?}");
    assert!(exit.stderr.contains("not up after 1 s"), "{exit:?}");
    let exit = run(&["reload", "old"]);
    assert_eq!(exit.status.code(), Some(1), "{exit:?}");
    assert!(exit.stderr.contains("millrace restart"), "{exit:?}");
    ends(&net);

    // `up` also starts a handshake with a WireGuard peer that has an endpoint, although there is no data to send.
    let keys = Keys::generate(&net.a).unwrap();
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = {A4}/24\n[Peer]\nPublicKey = {}\nEndpoint = {at}:{PORT_B}\n\
         AllowedIPs = 10.0.0.0/24\n",
        keys.private, keys.public
    );
    let file = directory.file("branch.conf", &text);
    let exit = run(&["up", "--daemon", "--wait", "1", file.to_str().unwrap()]);
    assert_eq!(exit.status.code(), Some(3), "{exit:?}");
    for words in [&format!("connecting to {at}:{PORT_B}"), "not up after 1 s"] {
        assert!(exit.stderr.contains(words), "{words}: {exit:?}");
    }
    ends(&net);
}

/// An office that restarts starts handshakes with its branches, so that no branch waits to notice its lost session.
/// This branch sends no data and no keepalives.
#[test]
fn an_office_that_starts_again_calls_its_branches() {
    if !ready() {
        return;
    }
    let (net, directory) = (Net::new(), Directory::new());
    let (office, branch) = (
        Keys::generate(&net.b).unwrap(),
        Keys::generate(&net.a).unwrap(),
    );
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = {B4}/24\nListenPort = {PORT_B}\n[Peer]\nPublicKey = {}\n\
         AllowedIPs = {A4}/32\n",
        office.private, branch.public
    );
    let office_file = directory.file("office.conf", &text);
    let text = format!(
        "[Interface]\nPrivateKey = {}\nAddress = {A4}/24\n[Peer]\nPublicKey = {}\nEndpoint = {}:{PORT_B}\n\
         AllowedIPs = {B4}/32\n",
        branch.private,
        office.public,
        net.link.b4()
    );
    let branch_file = directory.file("branch.conf", &text);
    for (host, file) in [(&net.b, &office_file), (&net.a, &branch_file)] {
        let command = host.command(PROGRAM).args(["up", "--daemon"]).arg(file);
        let exit = command.spawn().unwrap().wait_at_most(PATIENCE).unwrap();
        assert!(exit.status.success(), "{exit:?}");
    }
    lab::acceptance::reaches(&net.a, B4);
    let process = net.b.command(PROGRAM).args(["restart", "office"]).spawn();
    let exit = process.unwrap().wait_at_most(PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit:?}");
    until("a session of the branch", || {
        let status = lab::acceptance::status_of(&net.b, "office");
        status["peers"][0]["latest_handshake_age"].is_u64()
    });
    for host in [&net.a, &net.b] {
        for process in inhabitants(host) {
            let _ = kill(Pid::from_raw(process.cast_signed()), Signal::SIGTERM);
        }
        until("the end of all processes", || inhabitants(host).is_empty());
    }
}
