//! A profile from elsewhere does nothing to the files of the machine that it is tried on.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use common::openvpn::{credentials, ready};
use common::{Directory, Net, PATIENCE, PROGRAM};
use lab::openvpn::KeyKind;

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
        // Nobody answers there, and it gives up.
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
            .args(["up", "--ignore-refused"])
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

/// Also where files are permitted: what is no socket of a dead daemon is not removed.
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
        assert!(format!("{exit:?}").contains("no socket"), "{exit:?}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    }
}
