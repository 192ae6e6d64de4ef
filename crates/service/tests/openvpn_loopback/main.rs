//! Complete clients and servers in this process, over loopback and without an interface, so that no privileges are
//! needed.
//!
//! The tests control each end through its management port, which connects to the test (`management-client`). They wait
//! only for messages from there.

// Every function serves tests only.
#![allow(clippy::unwrap_used)]

mod arrivals;
mod ends;

use ends::{Running, client, clients, exclusive, free_port, pki, server};
use lab::openvpn::{Directory, Role};
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_client_comes_in_over_udp_and_everything_is_asked_of_both() {
    let _one = exclusive();
    let Some(pki) = pki() else { return };
    let directory = Directory::new().unwrap();
    let port = free_port("udp4");
    let config = server(&pki, "udp4", port, &directory);
    let mut server = Running::start(&directory, "server", &config);
    server.wait_for_state("CONNECTED");
    let mut client = Running::start(&directory, "client", &client(&pki, "udp4", port));
    let line = client.wait_for_state("CONNECTED");
    assert!(line.contains(",SUCCESS,"), "{line}");

    let there = clients(&mut server);
    assert_eq!(there.len(), 1);
    assert!(there[0].contains("\tclient\t"), "{}", there[0]);
    assert!(there[0].contains("\t10.8.0.2\t"), "{}", there[0]);
    for command in [
        "version",
        "pid",
        "help",
        "log 20",
        "state all",
        "verb",
        "mute",
        "echo all",
    ] {
        client.command(command);
        server.command(command);
    }
    assert!(server.command("load-stats")[0].contains("nclients=1"));
    let status = client.command("status");
    assert!(status.iter().any(|it| it.starts_with("TUN/TAP read bytes")));
    server.command("bytecount 1");
    assert!(server.management.wait_for(">BYTECOUNT_CLI:").is_ok());
    client.command("bytecount 1");
    assert!(client.management.wait_for(">BYTECOUNT:").is_ok());
    server.command("signal SIGUSR2");
    client.command("signal SIGUSR2");

    // The server disconnects the client, which reconnects, and then reconnects once more on request.
    server.command("kill client");
    client.wait_for_state("CONNECTED");
    client.command("signal SIGUSR1");
    client.wait_for_state("RECONNECTING");
    client.wait_for_state("CONNECTED");
    // After SIGHUP the client starts again with the reloaded configuration.
    client.command("signal SIGHUP");
    client.comes_back();
    client.wait_for_state("CONNECTED");
    assert!(fs::metadata(directory.join("server.status")).is_ok());
    client.end();
    server.end();
    assert!(fs::metadata(directory.join("server.pid")).is_err());
}

#[test]
fn scripts_passwords_and_files_of_clients_decide_over_tcp() {
    let _one = exclusive();
    let Some(pki) = pki() else { return };
    let directory = Directory::new().unwrap();
    let port = free_port("tcp");
    let script = |name: &str, body: &str| {
        let log = directory.join(format!("{name}.ran"));
        let text = format!(
            "#!/bin/sh\necho \"$script_type $common_name $*\" >>{}\n{body}\n",
            log.display()
        );
        let path = directory.file(&format!("{name}.sh"), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
        path.display().to_string()
    };
    // Waits for the file that a script writes, because the server does not wait for `learn-address` and similar
    // scripts.
    let ran = |name: &str, wanted: &str| {
        let file = directory.join(format!("{name}.ran"));
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let noted = fs::read_to_string(&file).unwrap_or_default();
            if noted.contains(wanted) || Instant::now() >= end {
                return noted;
            }
            thread::sleep(Duration::from_millis(5));
        }
    };
    fs::create_dir(directory.join("ccd")).unwrap();
    directory
        .file(
            "ccd/client",
            "ifconfig-push 10.8.0.77 255.255.255.0\niroute 192.168.99.0 255.255.255.0\n",
        )
        .unwrap();
    let mut config = server(&pki, "tcp4-server", port, &directory);
    write!(
        config,
        "script-security 3\nauth-user-pass-verify {verify} via-file\nclient-connect {connect}\n\
         client-disconnect {disconnect}\nlearn-address {learn}\ntls-verify {tls}\n\
         client-config-dir {ccd}\nroute 192.168.99.0 255.255.255.0\nauth-gen-token\nmax-clients 5\n\
         ifconfig-pool-persist {pool} 1\n",
        verify = script("verify", "grep -q '^secret$' \"$1\""),
        connect = script(
            "connect",
            "echo 'push \"route 192.168.8.0 255.255.255.0\"' >\"$1\""
        ),
        disconnect = script("disconnect", ""),
        learn = script("learn", ""),
        tls = script("tls", ""),
        ccd = directory.join("ccd").display(),
        pool = directory.join("pool").display(),
    )
    .unwrap();
    let mut server = Running::start(&directory, "server", &config);
    server.wait_for_state("CONNECTED");

    let with_password = |password: &str| {
        let login = directory.file(&format!("{password}.login"), format!("user\n{password}\n"));
        let login = login.unwrap().display().to_string();
        format!(
            "{}auth-user-pass {login}\nauth-retry none\n",
            client(&pki, "tcp4-server", port)
        )
    };
    let mut welcome = Running::start(&directory, "welcome", &with_password("secret"));
    welcome.wait_for_state("CONNECTED");
    let there = clients(&mut server);
    assert!(
        there.iter().any(|it| it.contains("\t10.8.0.77\t")),
        "{there:?}"
    );
    let status = server.command("status 3");
    assert!(
        status.iter().any(|it| it.contains("192.168.99.0")),
        "{status:?}"
    );
    welcome.end();
    for (name, wanted) in [
        ("verify", "user-pass-verify client"),
        ("connect", "client-connect client"),
        ("learn", "learn-address"),
        ("tls", "tls-verify"),
    ] {
        let noted = ran(name, wanted);
        assert!(noted.contains(wanted), "{name}: {noted}");
    }

    let mut refused = Running::start(&directory, "refused", &with_password("wrong"));
    let said = refused.management.wait_for(">PASSWORD:Verification Failed");
    assert!(said.is_ok());
    drop(refused.management);
    assert_eq!(
        refused.thread.join().unwrap(),
        format!("{:?}", ExitCode::SUCCESS)
    );

    // The server reports its clients' departure before it ends.
    server.end();
    let wanted = "client-disconnect client";
    assert!(ran("disconnect", wanted).contains(wanted));
}

#[test]
fn a_server_that_reads_again_keeps_its_clients_where_it_can() {
    let _one = exclusive();
    let Some(pki) = pki() else { return };
    let directory = Directory::new().unwrap();
    let port = free_port("udp4");
    let list = directory.file("crl.pem", pki.revoke(&[]).unwrap()).unwrap();
    let config = format!(
        "{}crl-verify {}\n",
        server(&pki, "udp4", port, &directory),
        list.display()
    );
    let mut server = Running::start(&directory, "server", &config);
    server.wait_for_state("CONNECTED");
    let second = pki.issue("second", Role::Client).unwrap();
    let of_second = format!(
        "client\ndev null\nproto udp4\nremote 127.0.0.1 {port}\nnobind\nverb 3\nconnect-retry 1 1\n\
         explicit-exit-notify 1\n<ca>\n{}</ca>\n<cert>\n{}</cert>\n<key>\n{}</key>\n",
        pki.ca(),
        second.certificate,
        second.key
    );
    let mut first = Running::start(&directory, "first", &client(&pki, "udp4", port));
    let mut second_client = Running::start(&directory, "second", &of_second);
    first.wait_for_state("CONNECTED");
    second_client.wait_for_state("CONNECTED");
    assert_eq!(clients(&mut server).len(), 2);

    // An additional route makes no client reconnect.
    let socket = directory.join("server.sock");
    let more = format!(
        "{config}route 192.168.50.0 255.255.255.0\nmanagement {} unix\nmanagement-client\nmanagement-hold\n",
        socket.display()
    );
    directory.file("server.conf", more).unwrap();
    server.command("signal SIGHUP");
    assert_eq!(clients(&mut server).len(), 2);

    // After revocation the client can no longer connect.
    directory
        .file("crl.pem", pki.revoke(&[&second]).unwrap())
        .unwrap();
    server.command("kill second");
    second_client.wait_for_state("RECONNECTING");
    second_client.command("signal SIGTERM");
    drop(second_client.management);
    second_client.thread.join().unwrap();
    assert_eq!(clients(&mut server).len(), 1);
    first.end();
    server.end();
}

#[test]
fn keys_are_made_and_passwords_are_asked_of_the_management_client() {
    let _one = exclusive();
    let Some(pki) = pki() else { return };
    let directory = Directory::new().unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    let main = |arguments: &[&str]| {
        let arguments: Vec<_> = arguments.iter().map(|&it| it.to_owned()).collect();
        format!("{:?}", service::openvpn::main(&arguments))
    };
    let (done, failed) = (
        format!("{:?}", ExitCode::SUCCESS),
        format!("{:?}", ExitCode::FAILURE),
    );
    for list in [
        "--show-ciphers",
        "--show-digests",
        "--show-tls",
        "--show-groups",
    ] {
        assert_eq!(main(&[list]), done, "{list}");
    }
    for other in ["--help", "--version", "--no-such-option"] {
        assert_eq!(main(&[other]), failed, "{other}");
    }
    let (of_server, of_client) = (path("v2.server"), path("v2.client"));
    assert_eq!(main(&["--genkey", "tls-crypt-v2-server", &of_server]), done);
    let wrapped = [
        "--tls-crypt-v2",
        &of_server,
        "--genkey",
        "tls-crypt-v2-client",
        &of_client,
    ];
    assert_eq!(main(&wrapped), done);
    assert_eq!(main(&["--genkey", "secret", &path("static")]), done);
    assert_eq!(main(&["--genkey", "auth-token", &path("token")]), done);
    // An existing file is kept.
    assert_eq!(main(&["--genkey", "secret", &of_server]), failed);

    let port = free_port("udp4");
    let verify =
        "#!/bin/sh\ntest \"$username\" = user && grep -q '^SCRV1:' <<EOF\n$password\nEOF\n";
    let verify = directory.file("verify.sh", verify).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&verify, mode).unwrap();
    let config = format!(
        "{}tls-crypt-v2 {of_server}\nscript-security 3\nauth-user-pass-verify {} via-env\n\
         auth-gen-token 3600\nauth-gen-token-secret {}\ndata-ciphers CHACHA20-POLY1305\n\
         verify-client-cert require\n",
        server(&pki, "udp4", port, &directory),
        verify.display(),
        path("token"),
    );
    let mut server = Running::start(&directory, "server", &config);
    server.wait_for_state("CONNECTED");
    let key = pki.encrypted_key(pki.client(), "of the key").unwrap();
    let config = format!(
        "client\ndev null\nproto udp4\nremote 127.0.0.1 {port}\nnobind\nverb 4\n\
         remote-cert-tls server\nverify-x509-name server name\nauth-user-pass\n\
         static-challenge \"Which number?\" 1\nmanagement-query-passwords\n\
         tls-crypt-v2 {of_client}\n<ca>\n{}</ca>\n<cert>\n{}</cert>\n<key>\n{key}</key>\n",
        pki.ca(),
        pki.client().certificate,
    );
    let mut client = Running::start(&directory, "client", &config);
    let asked = client.management.wait_for(">PASSWORD:Need 'Private Key'");
    assert!(asked.is_ok());
    client.command("password \"Private Key\" \"of the key\"");
    let asked = client.management.wait_for(">PASSWORD:Need 'Auth'").unwrap();
    assert!(asked.contains("SC:1,Which number?"), "{asked}");
    client.command("username \"Auth\" user");
    // base64 of "secret" and "42", as a management client must send them.
    client.command("password \"Auth\" \"SCRV1:c2VjcmV0:NDI=\"");
    client.wait_for_state("CONNECTED");
    let there = clients(&mut server);
    assert!(there[0].contains("CHACHA20-POLY1305"), "{there:?}");
    // With a token the client does not prompt again.
    client.command("signal SIGUSR1");
    client.wait_for_state("RECONNECTING");
    client.wait_for_state("CONNECTED");
    client.end();
    server.end();
}
