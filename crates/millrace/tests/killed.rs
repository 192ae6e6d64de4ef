//! Kills `up` at many moments; the next start restores the machine: routes, rules, addresses, name servers, settings
//! and files.
//!
//! `MILLRACE_TEST_KILLS` sets the number of moments (8 if unset). They are the same in every run, as far as a machine
//! can repeat them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lab::acceptance::openvpn::{credentials, millrace};
use lab::acceptance::world::World;
use lab::acceptance::{Directory, PATIENCE, PROGRAM, inhabitants, run_files, until};
use lab::openvpn::{KeyKind, OpenVpn, Setup};
use lab::peer::Keys;
use lab::{Host, HostCommand, Process};
use nix::sys::signal::Signal;

/// Number of tests, each of which kills one end.
const ENDS: usize = 4;

/// Moments for each end.
fn kills() -> usize {
    let wanted = std::env::var("MILLRACE_TEST_KILLS").ok();
    wanted
        .and_then(|it| it.parse().ok())
        .unwrap_or(8_usize)
        .div_ceil(ENDS)
}

/// Reproducible moments: SplitMix64 (Steele, Lea, Flood 2014).
struct Moments(u64);

impl Moments {
    /// A duration between zero and `most`, evenly distributed.
    fn next(&mut self, most: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        most.mul_f64((z >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

/// One end of a tunnel, started from a file, killed, and started again.
struct End<'h> {
    host: &'h Host,
    file: PathBuf,
    ifname: &'static str,
    /// Holds the file, the tunnel's files, and the input that `resolvconf` got.
    directory: Directory,
}

impl<'h> End<'h> {
    fn new(host: &'h Host, ifname: &'static str) -> Self {
        let directory = Directory::new();
        let path = directory.path().display();
        // Keeps a record for each interface, as the real program does.
        let text = format!(
            "#!/bin/sh\ncase \"$1\" in\n-a) cat > {path}/dns.$2.new && mv {path}/dns.$2.new {path}/dns.$2;;\n\
             -d) rm -f {path}/dns.$2;;\nesac\n"
        );
        let program = directory.file("resolvconf", &text);
        fs::set_permissions(program, fs::Permissions::from_mode(0o700)).unwrap();
        Self {
            host,
            file: PathBuf::new(),
            ifname,
            directory,
        }
    }

    fn command(&self, words: &[&str]) -> HostCommand<'_> {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.directory.path().display());
        self.host.command(PROGRAM).args(words).env("PATH", path)
    }

    fn start(&self) -> Process {
        let command = self.command(&["up", "--allow-files"]);
        command.arg(&self.file).spawn().unwrap()
    }

    fn up(&self) -> Process {
        let mut process = self.start();
        process
            .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
            .unwrap();
        process
    }

    /// Ends the tunnel in order, and waits until everything of it is gone.
    fn down(&self, process: Process) {
        process.signal(Signal::SIGTERM).unwrap();
        let exit = process.wait_at_most(PATIENCE).unwrap();
        assert!(exit.status.success(), "{exit:?}");
        until("the end of the interface", || {
            !self.host.has_interface(self.ifname).unwrap()
        });
    }

    fn kill(&self, process: Process) {
        // The process may have ended by itself.
        let _ = process.signal(Signal::SIGKILL);
        process.wait_at_most(PATIENCE).unwrap();
        // Programs that the tunnel started outlive it for a while.
        until("the end of all processes", || {
            inhabitants(self.host).is_empty()
        });
        until("the end of the interface", || {
            !self.host.has_interface(self.ifname).unwrap()
        });
    }

    /// Everything that could be left behind, as text to compare.
    fn state(&self) -> String {
        let show = |words: &[&str]| self.host.output("ip", words).unwrap();
        let all = [
            show(&["-4", "route", "show", "table", "all"]),
            show(&["-6", "route", "show", "table", "all"]),
            show(&["-4", "rule"]),
            show(&["-6", "rule"]),
            show(&["-brief", "address"]),
        ]
        .concat();
        let setting = || fs::read_to_string("/proc/sys/net/ipv4/conf/all/src_valid_mark");
        let mut lines: Vec<String> = all
            .lines()
            // Routes learned by the kernel have a changing age; the kernel creates address routes with a delay.
            .filter(|line| !line.contains("expires") && !line.contains("proto kernel"))
            .map(str::to_owned)
            .collect();
        lines.push(self.host.run(setting).unwrap().unwrap());
        lines.extend(run_files(self.host));
        lines.extend(contents(self.directory.path()));
        lines.sort();
        lines.join("\n")
    }
}

/// Lists the files of a directory, with the content of configurations and of `resolvconf`'s input.
fn contents(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let describe = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        let content = match name.starts_with("dns.") || name.ends_with(".conf") {
            true => fs::read_to_string(entry.path()).unwrap(),
            false => String::new(),
        };
        format!("{name} {mode:o} {content}")
    };
    entries.map(describe).collect()
}

/// Kills the process at moments between its start and shortly after it is up, and during shutdown. After each kill a
/// start and an orderly end must restore the state.
fn survives(end: &End<'_>, seed: u64) {
    let fresh = end.state();
    // The first run creates files that stay, such as the status.
    let begin = Instant::now();
    let process = end.up();
    let coming = begin.elapsed().mul_f64(1.3);
    let with_tunnel = end.state();
    let begin = Instant::now();
    end.down(process);
    let going = begin.elapsed();
    let before = end.state();
    assert_ne!(with_tunnel, before);
    // The host's own state is unchanged.
    let of_host = |state: &str| {
        let host = |line: &&str| !line.starts_with("status") && !line.starts_with("leases");
        state
            .lines()
            .filter(host)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(of_host(&before), of_host(&fresh));

    let mut moments = Moments(seed);
    let mut left_something = 0;
    for number in 0..kills() {
        let way_down = number % 2 == 1;
        let moment = moments.next(if way_down { going } else { coming });
        let process = match way_down {
            true => {
                let process = end.up();
                process.signal(Signal::SIGTERM).unwrap();
                process
            }
            false => end.start(),
        };
        thread::sleep(moment);
        end.kill(process);
        left_something += usize::from(end.state() != before);
        end.down(end.up());
        let what = format!(
            "killed {moment:?} after {}",
            if way_down { "SIGTERM" } else { "the start" }
        );
        assert_eq!(end.state(), before, "{what}");
    }
    // With few kills, all may have come too early or too late.
    assert!(
        kills() < 20 || left_something > 0,
        "no kill left anything for the next start"
    );
}

fn wireguard(host: &Host, lines: &str, peer: &str) -> (String, Keys) {
    let (own, other) = (Keys::generate(host).unwrap(), Keys::generate(host).unwrap());
    let text = format!(
        "[Interface]\nPrivateKey = {}\n{lines}\n[Peer]\nPublicKey = {}\n{peer}\n",
        own.private, other.public
    );
    (text, other)
}

#[test]
fn a_killed_wireguard_client_leaves_nothing_to_the_next_but_one() {
    if !lab::acceptance::ready() {
        return;
    }
    let world = World::new();
    let mut end = End::new(&world.client, "up0");
    let (text, _) = wireguard(
        &world.client,
        "Address = 10.0.0.1/24, fd01::1/64\nDNS = 10.0.0.9, corp.example",
        "Endpoint = 192.168.2.2:51820\nAllowedIPs = 0.0.0.0/0, ::/0",
    );
    end.file = end.directory.file("up0.conf", &text);
    survives(&end, 1);
}

#[test]
fn a_killed_wireguard_server_leaves_nothing_to_the_next_but_one() {
    if !lab::acceptance::ready() {
        return;
    }
    let world = World::new();
    let mut end = End::new(&world.server, "up0");
    let (text, _) = wireguard(
        &world.server,
        "ListenPort = 51820\nAddress = 10.0.0.2/24, fd01::2/64\nTable = 77\nSaveConfig = true",
        "AllowedIPs = 10.0.0.1/32, 10.77.0.0/16, fd77::/64",
    );
    end.file = end.directory.file("up0.conf", &text);
    // The first run writes the file in its final form.
    end.down(end.up());
    survives(&end, 2);
}

#[test]
fn a_killed_openvpn_client_leaves_nothing_to_the_next_but_one() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let world = World::new();
    let mut setup = Setup::default();
    for option in [
        "redirect-gateway def1 ipv6 block-local",
        "route 192.168.50.0 255.255.255.0",
        "route 192.168.60.0 255.255.255.0 net_gateway",
        "dhcp-option DNS 192.0.2.53",
        "dhcp-option DOMAIN example.com",
        "block-ipv6",
    ] {
        setup.server.words("push", [option]);
    }
    let keys = credentials(KeyKind::Ecdsa);
    let at = world.outside.b4();
    let file = setup.server_file(&millrace(), keys, at).unwrap();
    let _server = millrace().start(&world.server, &file).unwrap();
    let mut end = End::new(&world.client, "ovpn0");
    let directory = end.directory.path().display().to_string();
    setup
        .client
        .line(&format!("status {directory}/status 1"))
        .line(&format!("writepid {directory}/pid"))
        .line(&format!("management {directory}/socket unix"));
    let file = setup.client_file(&millrace(), keys, at).unwrap();
    end.file = end.directory.file("client.ovpn", &file.to_string());
    survives(&end, 3);
    // Without another start, the tunnel's name or file is enough. The killed process's own files stay.
    let state = || {
        let own = ["/run/", "pid ", "socket "];
        let state = end.state();
        let lines = state
            .lines()
            .filter(|it| !own.iter().any(|own| it.starts_with(own)));
        lines.collect::<Vec<_>>().join("\n")
    };
    let before = state();
    for name in ["client", end.file.to_str().unwrap()] {
        end.kill(end.up());
        assert_ne!(state(), before);
        let exit = end.command(&["down", name]).exit().unwrap();
        assert!(exit.status.success(), "{name}: {exit:?}");
        assert_eq!(state(), before, "{name}");
    }
}

#[test]
fn a_killed_openvpn_server_leaves_nothing_to_the_next_but_one() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let world = World::new();
    let mut end = End::new(&world.server, "ovpn0");
    let directory = end.directory.path().display().to_string();
    let mut setup = Setup::default();
    setup
        .server
        .line("route 10.99.0.0 255.255.0.0")
        .line(&format!("status {directory}/status 1"))
        .line(&format!("writepid {directory}/pid"))
        .line(&format!("ifconfig-pool-persist {directory}/leases 1"))
        .line(&format!("management {directory}/socket unix"));
    let keys = credentials(KeyKind::Ecdsa);
    let at = world.outside.b4();
    let file = setup.server_file(&millrace(), keys, at).unwrap();
    end.file = end.directory.file("server.ovpn", &file.to_string());
    survives(&end, 4);
}
