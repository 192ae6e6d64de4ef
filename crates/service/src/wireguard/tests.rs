//! Two interfaces over loopback, without a device or privileges, controlled by their configuration sockets.

use super::control;
use super::interface::Interface;
use super::machine::Machine;
use super::server::{Server, lock};
use super::sockets::SocketPlan;
use crate::inbox::Inbox;
use crate::socket::{Listener, SocketError};
use crate::status::Status;
use ::wireguard::WireGuard;
use config::lines::{Line, LineMode, Lines};
use config::settings::DataplaneSettings;
use engine::TunnelOptions;
use lines::names::Resolver;
use netio::poll::{Poller, Waker};
use netio::tun::Tun;
use plane::Now;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Timeout for something that normally takes a fraction of this.
const PATIENCE: Duration = Duration::from_secs(30);

const INBOX: u64 = 0;
const WAKE: u64 = 1;
const UAPI: u64 = 2;
const STATUS: u64 = 3;

/// An interface and its two sockets, served by whichever thread calls [`End::serve`].
struct End {
    interface: Arc<Mutex<Option<Interface>>>,
    inbox: Arc<Inbox>,
    wake: Arc<Waker>,
    server: Server,
    uapi: Listener,
    status: Listener,
    started: Instant,
    paths: [PathBuf; 2],
}

impl End {
    fn new(directory: &Path, name: &str, lines: &Lines) -> Self {
        let inbox = Arc::new(Inbox::new(control::INBOX).unwrap());
        let wake = Arc::new(Waker::new().unwrap());
        let options = TunnelOptions {
            workers: 1,
            parallel: false,
            coalescing: true,
            mtu: 1420,
            gso_max_segs: usize::MAX,
            backpressure: false,
        };
        let protocol = WireGuard::new();
        let tun = Tun::null().unwrap();
        let plane = userspace::wireguard(tun, protocol.clone(), inbox.clone(), &options).unwrap();
        let mut plan = SocketPlan::new(&DataplaneSettings::default(), None);
        plan.address = Some(Ipv4Addr::LOCALHOST.into());
        let mut machine = Machine::new(Now::read(), 1);
        machine.set_lines(lines);
        let resolver = Resolver::new(Arc::clone(&wake), lines, None);
        let of_lines = (plan, lines.clone());
        let mut interface = Interface::new(machine, (plane, protocol), of_lines, resolver);
        interface.start().unwrap();
        let interface = Arc::new(Mutex::new(Some(interface)));
        let paths = ["sock", "status"].map(|kind| directory.join(format!("{name}.{kind}")));
        let [uapi, status] = [0, 1].map(|at: usize| Listener::open(&paths[at]).unwrap());
        for listener in [&uapi, &status] {
            listener.socket.set_nonblocking(true).unwrap();
        }
        let server = Server::new(Arc::clone(&interface), Arc::clone(&wake));
        Self {
            interface,
            inbox,
            wake,
            server,
            uapi,
            status,
            started: Instant::now(),
            paths,
        }
    }

    /// Runs the daemon's loop, without signals and kernel notifications.
    fn serve(&self, done: &AtomicBool) {
        let poller = Poller::new().unwrap();
        poller.add(&*self.inbox, INBOX).unwrap();
        poller.add(&*self.wake, WAKE).unwrap();
        poller.add(&self.uapi.socket, UAPI).unwrap();
        poller.add(&self.status.socket, STATUS).unwrap();
        while !done.load(Ordering::Acquire) {
            let idle = lock(&self.interface).as_ref().and_then(Interface::idle_for);
            let ready = poller.wait(idle).unwrap();
            for token in ready.iter() {
                match token {
                    INBOX => self.inbox.waker.clear(),
                    WAKE => self.wake.clear(),
                    UAPI => self.server.accept_uapi(&self.uapi).unwrap(),
                    _ => {
                        let accepted = self.server.accept_status(&self.status, self.started);
                        accepted.unwrap();
                    }
                }
            }
            let mut interface = lock(&self.interface);
            let interface = interface.as_mut().unwrap();
            while interface.serve(&self.inbox) {}
            interface.expire();
        }
    }

    /// Sends one request, and returns its answer without the empty line.
    fn ask(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.paths[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{request}\n\n").unwrap();
        let mut answer = String::new();
        for line in BufReader::new(stream).lines() {
            match line.unwrap() {
                line if line.is_empty() => break,
                line => answer += &format!("{line}\n"),
            }
        }
        answer
    }

    fn status(&self) -> Status {
        let mut stream = UnixStream::connect(&self.paths[1]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn public_key(&self) -> String {
        let interface = lock(&self.interface);
        let device = &interface.as_ref().unwrap().machine.device;
        let key = device.public_key().unwrap();
        key.as_bytes()
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect()
    }
}

/// Serves both ends while `test` runs.
fn with(ends: [&End; 2], test: impl FnOnce()) {
    struct Done<'a>(&'a AtomicBool, [&'a End; 2]);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
            for end in self.1 {
                end.wake.wake();
            }
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for end in ends {
            scope.spawn(|| end.serve(&done));
        }
        let _done = Done(&done, ends);
        test();
    });
}

/// Calls `look` until it returns something.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it has not happened");
        thread::yield_now();
    }
}

/// Configures the called end, on a port that the kernel chooses, and the caller, which sends keepalives.
fn configure(called: &End, caller: &End, endpoint: impl FnOnce(u16) -> String) {
    introduce(called, caller, |port| {
        format!("{}persistent_keepalive_interval=1\n", endpoint(port))
    });
}

/// Gives both ends keys and makes them peers; `at_caller` returns more lines for the caller's peer.
fn introduce(called: &End, caller: &End, at_caller: impl FnOnce(u16) -> String) {
    let key = |byte: &str| byte.repeat(32);
    assert_eq!(
        called.ask(&format!("set=1\nprivate_key={}", key("11"))),
        "errno=0\n"
    );
    assert_eq!(
        caller.ask(&format!("set=1\nprivate_key={}", key("22"))),
        "errno=0\n"
    );
    let answer = called.ask("get=1");
    let port = answer
        .lines()
        .find_map(|line| line.strip_prefix("listen_port="));
    let more = at_caller(port.unwrap().parse().unwrap());
    let peer = |of: &End| format!("public_key={}\nreplace_allowed_ips=true", of.public_key());
    let set = format!("set=1\n{}\nallowed_ip=10.0.0.2/32", peer(caller));
    assert_eq!(called.ask(&set), "errno=0\n");
    let set = format!("set=1\n{}\n{more}allowed_ip=10.0.0.1/32", peer(called));
    assert_eq!(caller.ask(&set), "errno=0\n");
}

#[test]
fn two_interfaces_find_each_other_and_say_how_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let none = Lines::default();
    let called = End::new(directory.path(), "called", &none);
    let caller = End::new(directory.path(), "caller", &none);
    with([&called, &caller], || {
        configure(&called, &caller, |port| {
            format!("endpoint=127.0.0.1:{port}\n")
        });
        let status = wait_for(|| {
            let status = called.status();
            let heard = status.peers[0].latest_handshake_age.is_some();
            (heard && status.peers[0].rx_bytes > 0).then_some(status)
        });
        assert_eq!(status.protocol, "wireguard");
        assert_eq!(status.dataplane.cipher, "chacha20-poly1305");
        let peer = &status.peers[0];
        assert_eq!(peer.allowed_ips, ["10.0.0.2/32"]);
        assert!(peer.endpoint.as_ref().unwrap().starts_with("127.0.0.1:"));
        assert_eq!((peer.keepalive, peer.lines.len()), (None, 0));
        assert!(peer.order.is_none());
        let ours = caller.status().peers.remove(0);
        assert_eq!(ours.keepalive, Some(1));
        let got = caller.ask("get=1");
        assert!(
            got.contains(&format!("public_key={}\n", called.public_key())),
            "{got}"
        );
        assert!(got.contains("persistent_keepalive_interval=1\n"), "{got}");
        assert!(got.ends_with("errno=0\n"), "{got}");
    });
}

#[test]
fn a_name_is_looked_up_and_each_line_is_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let line = Line {
        name: "loop".to_owned(),
        interface: Some("lo".to_owned()),
        source: Some(Ipv4Addr::LOCALHOST.into()),
        ..Line::default()
    };
    let lines = Lines {
        mode: LineMode::Duplicate,
        reorder: true,
        lines: vec![line],
        ..Lines::default()
    };
    let theirs = Lines {
        lines: Vec::new(),
        ..lines.clone()
    };
    let called = End::new(directory.path(), "called", &theirs);
    let caller = End::new(directory.path(), "caller", &lines);
    with([&called, &caller], || {
        let mut port = 0;
        configure(&called, &caller, |it| {
            port = it;
            String::new()
        });
        let host = config::types::Host::Name("localhost".to_owned());
        let key = lock(&called.interface)
            .as_ref()
            .unwrap()
            .machine
            .device
            .public_key();
        let key = config::types::Key32::new(*key.unwrap().as_bytes());
        let name = config::types::Endpoint { host, port };
        if let Some(interface) = lock(&caller.interface).as_mut() {
            interface.set_endpoint(&key, &name);
        }
        caller.wake.wake();
        let ours = wait_for(|| {
            let peer = caller.status().peers.remove(0);
            let up = peer.lines.first().is_some_and(|line| line.state == "up");
            up.then_some(peer)
        });
        let line = &ours.lines[0];
        assert_eq!((&*line.name, line.in_use), ("loop", true));
        assert!(line.round_trip_ms.is_some() && ours.order.is_some());
        let named = lock(&caller.interface).as_ref().unwrap().names();
        assert_eq!(named.len(), 1, "{named:?}");
        // The other end sees the address.
        let theirs = wait_for(|| {
            let peer = called.status().peers.remove(0);
            let up = peer.lines.first().is_some_and(|line| line.state == "up");
            up.then_some(peer)
        });
        assert!(theirs.lines[0].name.starts_with("127.0.0.1:"));
        assert!(
            theirs.lines[0].reason.contains("arrived on it"),
            "{:?}",
            theirs.lines
        );
    });
}

/// The answers of an end that has two uplinks may leave by the wrong one.
#[test]
fn a_peer_that_hears_no_answer_does_not_count_as_heard() {
    let directory = tempfile::tempdir().unwrap();
    let none = Lines::default();
    let called = End::new(directory.path(), "called", &none);
    let caller = End::new(directory.path(), "caller", &none);
    let between = UdpSocket::bind("127.0.0.1:0").unwrap();
    between.set_read_timeout(Some(PATIENCE)).unwrap();
    with([&called, &caller], || {
        let mut to = None;
        configure(&called, &caller, |port| {
            to = Some((Ipv4Addr::LOCALHOST, port));
            format!("endpoint={}\n", between.local_addr().unwrap())
        });
        let mut initiation = [0; 2048];
        let len = between.recv(&mut initiation).unwrap();
        between.send_to(&initiation[..len], to.unwrap()).unwrap();
        let peer = wait_for(|| {
            let peer = called.status().peers.remove(0);
            (peer.rx_bytes > 0).then_some(peer)
        });
        assert!(peer.endpoint.is_some());
        assert_eq!(
            (peer.last_heard_age, peer.latest_handshake_age),
            (None, None)
        );
    });
}

#[test]
fn peers_are_named_in_the_status_until_they_are_renamed() {
    let directory = tempfile::tempdir().unwrap();
    let none = Lines::default();
    let ends = ["a", "b"].map(|name| End::new(directory.path(), name, &none));
    with([&ends[0], &ends[1]], || {
        configure(&ends[0], &ends[1], |_| String::new());
        let (_, peers) = lock(&ends[0].interface).as_ref().unwrap().get();
        let key = &peers[0].public_key;
        for name in [Some("store-7"), Some("store-8"), None] {
            if let Some(interface) = lock(&ends[0].interface).as_mut() {
                interface.tell_names([(key.clone(), name.map(Box::from))]);
            }
            let peer = ends[0].status().peers.remove(0);
            assert_eq!(peer.name.as_deref(), name);
            assert_eq!(peer.public_key, *key.to_base64());
        }
    });
}

#[test]
fn what_cannot_be_set_is_refused_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let none = Lines::default();
    let ends = ["a", "b"].map(|name| End::new(directory.path(), name, &none));
    with([&ends[0], &ends[1]], || {
        for wrong in [
            "set=1\nprivate_key=12",
            "set=1\nlisten_port=70000",
            "set=1\nno_such_key=1",
            "set=1\npublic_key=11",
            "neither",
        ] {
            let answer = ends[0].ask(wrong);
            let errno = answer.trim().strip_prefix("errno=");
            assert!(errno.is_some_and(|it| it != "0"), "{wrong}: {answer}");
        }
        let status = ends[0].status();
        assert!(status.peers.is_empty() && status.public_key.is_none());
        // The listener does not remove a file that another program has put there.
        let in_use = Listener::open(&ends[0].paths[0]);
        assert!(matches!(in_use, Err(SocketError::InUse(_))));
    });
    let paths = ends.each_ref().map(|end| end.paths[0].clone());
    assert!(!ends[1].uapi.is_removed());
    std::fs::remove_file(&paths[1]).unwrap();
    assert!(ends[1].uapi.is_removed());
    std::fs::write(&paths[1], "").unwrap();
    drop(ends);
    assert_eq!(paths.map(|path| path.exists()), [false, true]);
}

#[test]
fn wg_changes_peers_as_it_does_with_the_kernel() {
    let directory = tempfile::tempdir().unwrap();
    let none = Lines::default();
    let ends = ["a", "b"].map(|name| End::new(directory.path(), name, &none));
    let [end, _] = &ends;
    with([&ends[0], &ends[1]], || {
        let set = |lines: &str| assert_eq!(end.ask(&format!("set=1\n{lines}")), "errno=0\n");
        let [first, second] = ["33", "44"].map(|byte| format!("public_key={}", byte.repeat(32)));
        set(&format!("private_key={}", "11".repeat(32)));
        set(&format!(
            "{first}\nallowed_ip=10.1.0.0/24\nallowed_ip=10.2.0.0/24"
        ));
        // Peers that are only to be changed, and the interface itself.
        set(&format!(
            "{second}\nupdate_only=true\nallowed_ip=10.3.0.0/24"
        ));
        set(&format!(
            "public_key={}\nallowed_ip=10.4.0.0/24",
            end.public_key()
        ));
        let ranges = || {
            let peers = end.status().peers.into_iter();
            peers.map(|it| it.allowed_ips).collect::<Vec<_>>()
        };
        assert_eq!(ranges(), [["10.1.0.0/24", "10.2.0.0/24"]]);
        set(&format!("{first}\nallowed_ip=-10.1.0.0/24"));
        assert_eq!(ranges(), [["10.2.0.0/24"]]);
        // A range has one owner, the last.
        set(&format!("{second}\nallowed_ip=10.2.0.0/24"));
        let owners: Vec<usize> = ranges().iter().map(Vec::len).collect();
        assert_eq!(owners, [0, 1]);
        set(&format!(
            "{second}\nreplace_allowed_ips=true\nallowed_ip=10.5.0.0/24"
        ));
        assert_eq!(ranges()[1], ["10.5.0.0/24"]);
        set(&format!("{second}\nremove=true"));
        set(&format!("{second}\nremove=true"));
        assert_eq!(ranges().len(), 1);

        // A port that another program has: the interface stays where it was.
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let before = end.status().listen_port;
        let answer = end.ask(&format!("set=1\nlisten_port={port}"));
        assert_eq!(answer, format!("errno=-{}\n", nix::libc::EADDRINUSE));
        assert_eq!(end.status().listen_port, before);
    });
}

#[test]
fn a_peer_is_called_although_no_packet_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let none = Lines::default();
    let called = End::new(directory.path(), "called", &none);
    let caller = End::new(directory.path(), "caller", &none);
    with([&called, &caller], || {
        introduce(&called, &caller, |port| {
            format!("endpoint=127.0.0.1:{port}\n")
        });
        let key = |end: &End| {
            let interface = lock(&end.interface);
            let key = interface.as_ref().unwrap().machine.device.public_key();
            config::types::Key32::new(*key.unwrap().as_bytes())
        };
        let (caller_key, called_key) = (key(&caller), key(&called));
        let is_answered = |end: &End| {
            let interface = lock(&end.interface);
            let heard = interface.as_ref().unwrap().heard();
            heard.first.is_some()
        };
        let are_answered = || is_answered(&caller) || is_answered(&called);
        assert!(!are_answered(), "neither calls by itself");
        if let Some(interface) = lock(&caller.interface).as_mut() {
            // The second key is nobody's.
            interface.call([called_key, caller_key]);
        }
        caller.wake.wake();
        wait_for(|| (is_answered(&caller) && is_answered(&called)).then_some(()));
    });
}
