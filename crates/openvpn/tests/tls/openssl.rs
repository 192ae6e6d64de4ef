//! Tests our TLS against OpenSSL's, over a loopback socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use openvpn::role::Role;
use openvpn::tls::{TlsSession, TlsVersion};

use crate::verdict::asking;
use crate::{options, session};

/// A process that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Carries TLS over a socket until one end fails; returns our error message.
fn refuse(tls: &mut TlsSession, socket: &mut TcpStream) -> String {
    let mut buffer = [0; 4096];
    loop {
        socket.write_all(&tls.take_tls()).expect("to send");
        assert!(tls.is_handshaking(), "the handshake succeeded");
        let len = socket.read(&mut buffer).expect("to receive");
        assert_ne!(len, 0, "the peer closed without a word");
        if let Err(error) = tls.read_tls(&buffer[..len]) {
            return error.to_string();
        }
    }
}

/// Carries TLS over a socket until `done` or the peer closes.
fn carry(tls: &mut TlsSession, socket: &mut TcpStream, done: impl Fn(&mut TlsSession) -> bool) {
    let mut buffer = [0; 4096];
    loop {
        socket.write_all(&tls.take_tls()).expect("to send");
        if done(tls) {
            return;
        }
        let len = socket.read(&mut buffer).expect("to receive");
        assert_ne!(len, 0, "the peer closed");
        tls.read_tls(&buffer[..len]).expect("good TLS");
    }
}

fn path(name: &str) -> String {
    format!("{}/tests/certs/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// With OpenSSL as the client, both ends must export the same keys.
#[test]
fn openssl_exports_the_same_keys() {
    if lab::require(Command::new("openssl").arg("version").output()).is_none() {
        return;
    }
    for (kind, version, flag) in [
        ("p256", TlsVersion::V1_2, "-tls1_2"),
        ("p256", TlsVersion::V1_3, "-tls1_3"),
        ("rsa2048", TlsVersion::V1_2, "-tls1_2"),
        ("ed25519", TlsVersion::V1_3, "-tls1_3"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let child = Command::new("openssl")
            .args(["s_client", flag, "-connect"])
            .arg(listener.local_addr().expect("an address").to_string())
            .args([
                "-CAfile",
                &path(&format!("{kind}/ca.crt")),
                "-verify_return_error",
            ])
            .args(["-cert", &path(&format!("{kind}/client.crt"))])
            .args(["-key", &path(&format!("{kind}/client.key"))])
            .args([
                "-keymatexport",
                "EXPORTER-OpenVPN-datakeys",
                "-keymatexportlen",
                "256",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl starts");
        let mut child = Running(child);
        let (mut socket, _) = listener.accept().expect("openssl connects");
        let mut server = options(kind, Role::Server);
        (server.version_min, server.version_max) = (version, version);
        let mut server = session(server);
        carry(&mut server, &mut socket, |tls| !tls.is_handshaking());
        assert_eq!(
            server.peer().map(|peer| peer.common_name.as_str()),
            Some("client")
        );

        let mut ours = [0; 256];
        server
            .export(b"EXPORTER-OpenVPN-datakeys", &mut ours)
            .expect("keys");
        let ours: String = ours.iter().map(|byte| format!("{byte:02X}")).collect();
        let output = BufReader::new(child.0.stdout.take().expect("piped"));
        let theirs = output.lines().map_while(Result::ok).find_map(|line| {
            line.trim()
                .strip_prefix("Keying material: ")
                .map(str::to_owned)
        });
        assert_eq!(theirs.as_deref(), Some(ours.as_str()), "{kind} {flag}");
    }
}

/// OpenSSL imitates obsolete servers; the client refuses each with a remedy.
#[test]
fn servers_of_former_times_are_refused_with_a_remedy() {
    if lab::require(Command::new("openssl").arg("version").output()).is_none() {
        return;
    }
    let (p256, rsa) = ("p256/server.key", "rsa2048/server.key");
    let weak = "ALL:@SECLEVEL=0";
    for (cert, key, flags, says) in [
        ("odd/version-1.crt", p256, vec![], "of version 1"),
        (
            "odd/rsa1024.crt",
            "odd/rsa1024.key",
            vec!["-cipher", weak],
            "1024 bits",
        ),
        (
            "rsa2048/server.crt",
            rsa,
            vec!["-tls1_2", "-cipher", "DHE-RSA-AES256-SHA"],
            "allow there ECDHE",
        ),
        (
            "rsa2048/server.crt",
            rsa,
            vec!["-tls1_2", "-cipher", "AES256-SHA"],
            "allow there ECDHE",
        ),
        (
            "rsa2048/server.crt",
            rsa,
            vec!["-tls1_1", "-cipher", weak],
            "TLS 1.2",
        ),
    ] {
        let child = Command::new("openssl")
            .args([
                "s_server",
                "-accept",
                "127.0.0.1:0",
                "-cert",
                &path(cert),
                "-key",
                &path(key),
            ])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl starts");
        let mut child = Running(child);
        let address = BufReader::new(child.0.stdout.take().expect("piped"))
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned))
            .expect("a port");
        let mut socket = TcpStream::connect(address).expect("to connect");
        let mut client = session(options("p256", Role::Client));
        let said = refuse(&mut client, &mut socket);
        assert!(said.contains(says), "{cert}: {said}");
    }
}

/// An OpenSSL client that waits for the verdict learns of a refusal at once.
#[test]
fn openssl_understands_the_alert_of_a_refusal() {
    if lab::require(Command::new("openssl").arg("version").output()).is_none() {
        return;
    }
    for flag in ["-tls1_2", "-tls1_3"] {
        let child = Command::new("openssl")
            .args(["s_server", flag, "-accept", "127.0.0.1:0", "-naccept", "1"])
            .args(["-cert", &path("p256/server.crt")])
            .args(["-key", &path("p256/server.key")])
            .args(["-CAfile", &path("p256/ca.crt"), "-Verify", "1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl starts");
        let mut child = Running(child);
        let mut output = BufReader::new(child.0.stdout.take().expect("piped"));
        let address = output
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned))
            .expect("a port");
        let mut socket = TcpStream::connect(address).expect("to connect");
        let mut client = asking(options("p256", Role::Client));
        carry(&mut client, &mut socket, |tls| tls.question().is_some());
        assert!(client.judged(Err("not today".into())).is_err());
        socket.write_all(&client.take_tls()).expect("to send");
        let mut said = String::new();
        let mut errors = child.0.stderr.take().expect("piped");
        errors.read_to_string(&mut said).expect("text");
        assert!(said.contains("alert access denied"), "{flag}: {said}");
    }
}
