//! A foreign profile changes no file of the machine that runs it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use lab::acceptance::openvpn::{credentials, millrace, ready};
use lab::acceptance::{Directory, Net, PATIENCE, PROGRAM};
use lab::openvpn::{KeyKind, OpenVpn, Setup, StockOpenVpn};
use nix::sys::signal::Signal;

#[test]
fn files_that_a_profile_names_are_as_they_were() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let directory = Directory::new();
    let victim = directory.file("victim", "kept");
    let before = fs::metadata(&victim).unwrap();
    let ca = credentials(KeyKind::Ecdsa).pki.ca().to_owned();
    for line in ["log", "log-append", "writepid", "status", "management"] {
        let rest = if line == "management" { "unix" } else { "" };
        // No server answers, and the client gives up.
        let text = format!(
            "client\ndev tun\nremote {} 1194 udp\nremote-cert-tls server\nconnect-retry 1\n\
             connect-retry-max 1\nhand-window 1\nuser nobody\n\
             <auth-user-pass>\na\nb\n</auth-user-pass>\n<ca>\n{ca}</ca>\n{line} {} {rest}\n",
            net.link.b4(),
            victim.display(),
        );
        let profile = directory.file("foreign.ovpn", &text);
        let exit = net
            .a
            .command(PROGRAM)
            .args(["up", "-v", "--ignore-refused"])
            .arg(&profile)
            .spawn()
            .unwrap()
            .wait_at_most(PATIENCE)
            .unwrap();
        assert!(
            exit.stderr.contains("connect-retry-max"),
            "{line}: {exit:?}"
        );
        assert!(exit.stderr.contains("--allow-files"), "{line}: {exit:?}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept", "{line}");
        let after = fs::metadata(&victim).unwrap();
        assert_eq!(
            (after.ino(), after.uid(), after.mode()),
            (before.ino(), before.uid(), before.mode()),
            "{line}"
        );
    }
}

/// Even with files permitted, the client removes only the socket of a dead daemon.
#[test]
fn a_management_socket_takes_no_files_place() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let directory = Directory::new();
    let victim = directory.file("victim", "kept");
    let ca = credentials(KeyKind::Ecdsa).pki.ca().to_owned();
    let text = format!(
        "client\ndev tun\nremote {} 1194 udp\nremote-cert-tls server\nauth-user-pass\n\
         <ca>\n{ca}</ca>\nmanagement {} unix\n",
        net.link.b4(),
        victim.display(),
    );
    let profile = directory.file("foreign.ovpn", &text);
    for command in [&["up", "--allow-files"][..], &["openvpn"]] {
        let process = net.a.command(PROGRAM).args(command).arg(&profile).spawn();
        let exit = process.unwrap().wait_at_most(PATIENCE).unwrap();
        assert_eq!(exit.status.code(), Some(1), "{exit:?}");
        assert!(format!("{exit:?}").contains("not a socket"), "{exit:?}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    }
}

/// With scripts permitted, `tls-verify` decides about the server.
#[test]
fn a_client_runs_tls_verify() {
    if !ready() {
        return;
    }
    let net = Net::new();
    let directory = Directory::new();
    let keys = credentials(KeyKind::Ecdsa);
    let mut setup = Setup::default();
    let file = setup.server_file(&StockOpenVpn, keys, net.link.b4());
    let _server = StockOpenVpn.start(&net.b, &file.unwrap()).unwrap();
    let log = directory.path().join("asked");
    for accepted in [true, false] {
        let text = format!(
            "#!/bin/sh\necho \"$1 $2 $script_type $X509_0_CN\" >> {}\n[ $1 = 1 ] || {accepted}\n",
            log.display()
        );
        let script = directory.file("judge", &text);
        fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
        setup.client.remove("script-security").remove("tls-verify");
        setup
            .client
            .line("script-security 2")
            .line("tls-exit")
            .line(&format!("tls-verify {}", script.display()));
        let file = setup.client_file(&millrace(), keys, net.link.b4()).unwrap();
        let profile = directory.file("office.ovpn", &file.to_string());
        let mut process = net
            .a
            .command(PROGRAM)
            .args(["up", "--allow-scripts"])
            .arg(&profile)
            .spawn()
            .unwrap();
        if accepted {
            process
                .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
                .unwrap();
            let asked = fs::read_to_string(&log).unwrap();
            let asked: Vec<&str> = asked.lines().collect();
            assert!(
                asked[0].starts_with("1 ") && asked[1].starts_with("0 "),
                "{asked:?}"
            );
            assert!(asked[1].contains("tls-verify server"), "{asked:?}");
            process.signal(Signal::SIGTERM).unwrap();
            process.wait_at_most(PATIENCE).unwrap();
        } else {
            let exit = process.wait_at_most(PATIENCE).unwrap();
            assert!(!exit.status.success());
            assert!(exit.stderr.contains("tls-verify"), "{exit:?}");
        }
    }
}
