//! A machine whose clock is wrong when the tunnel starts, and is set later.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use lab::acceptance::{
    A4, A6, B4, B6, Directory, Net, PORT_A, PORT_B, WG, interface, ip, millrace, peer, pings,
    reaches, ready, until,
};
use lab::load::{PingOptions, ping};
use lab::peer::{Keys, PeerOptions, WgPeer, WireGuardPeer};
use lab::tools;

/// The file that keeps the time across restarts.
const FLOOR: &str = "/var/lib/millrace/clock";

/// A clock for one program, with an offset in seconds.
struct Clock {
    directory: Directory,
    library: PathBuf,
}

impl Clock {
    fn new() -> Self {
        let directory = Directory::new();
        let source = directory.file("clock.c", include_str!("data/clock.c"));
        let library = directory.path().join("clock.so");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(made.success());
        let clock = Self { directory, library };
        clock.set(0);
        clock
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("seconds")
    }

    fn set(&self, seconds: i64) {
        // Replaces the file atomically, because a program may be reading it.
        let new = self.directory.file("new", &seconds.to_string());
        fs::rename(new, self.file()).unwrap();
    }

    fn options(&self) -> PeerOptions {
        let pair = |name: &str, path: PathBuf| (name.to_owned(), path.display().to_string());
        PeerOptions {
            environment: vec![
                pair("LD_PRELOAD", self.library.clone()),
                pair("TEST_CLOCK", self.file()),
            ],
            ..PeerOptions::default()
        }
    }
}

/// A router without a battery-backed clock starts its tunnel before it knows the time. With the time it keeps on disk,
/// its peer accepts it at once. Without that, the peer takes its handshakes for replays, and the tunnel comes up by
/// itself once the clock is right.
#[test]
fn a_tunnel_that_starts_before_its_clock_is_set_comes_up() {
    if !ready() {
        return;
    }
    if lab::require(tools::find("cc")).is_none() {
        return;
    }
    let (net, clock) = (Net::new(), Clock::new());
    let (keys_a, keys_b) = (
        Keys::generate(&net.a).unwrap(),
        Keys::generate(&net.b).unwrap(),
    );
    let b = millrace()
        .start(&net.b, WG, &PeerOptions::default())
        .unwrap();
    let a_of_b = WgPeer::new(&keys_a.public).allow(ip(A4), 32);
    b.configure(&interface(&keys_b, PORT_B, vec![a_of_b]))
        .unwrap();
    b.bring_up(&[(ip(B4), 24), (ip(B6), 64)], 1420).unwrap();
    let start = || {
        let a = millrace().start(&net.a, WG, &clock.options()).unwrap();
        let b_of_a = WgPeer::new(&keys_b.public)
            .at((net.link.b4(), PORT_B).into())
            .allow(ip(B4), 32);
        a.configure(&interface(&keys_a, PORT_A, vec![b_of_a]))
            .unwrap();
        a.bring_up(&[(ip(A4), 24), (ip(A6), 64)], 1420).unwrap();
        a
    };
    let a = start();
    reaches(&net.a, B4);
    a.stop().unwrap();

    clock.set(-1_000_000_000);
    let a = start();
    reaches(&net.a, B4);
    a.stop().unwrap();

    net.a.run(|| fs::remove_file(FLOOR)).unwrap().unwrap();
    let a = start();
    until("two initiations", || {
        ping(&net.a, ip(B4), &PingOptions::count(1)).unwrap();
        peer(&a, &keys_b).sent >= 2 * 148
    });
    assert_eq!(peer(&a, &keys_b).received, 0);

    clock.set(0);
    reaches(&net.a, B4);
    pings(&net.a, B4, 2);
    // The status shows people the corrected time.
    let shaken = peer(&a, &keys_b).latest_handshake.unwrap();
    assert!(shaken.elapsed().unwrap().as_secs() < 1_000);
}
