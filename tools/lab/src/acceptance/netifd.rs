//! A double of OpenWrt's netifd and of the ubus daemon, for one interface, in a host.
//!
//! The double speaks the wire protocol and changes the host as netifd does. At its start it flushes every rule. It
//! takes the device down and clears it when it first sees it. An update changes only what differs from the previous
//! one, and with `keep` removes nothing. When the link is lost, it removes everything that it configured. While it
//! takes the interface down, it answers "permission denied". It restarts a process that ended by itself.
//!
//! It keeps errors as netifd does: each report is one more entry, the handler's `lasterror` keeps only the last, and the
//! list is cleared when the interface comes up and when the process is started.

mod apply;
mod bus;

use crate::acceptance::{PATIENCE, PROGRAM, until};
use crate::{Host, Process};
use apply::Has;
pub use bus::{Bus, States};
use nix::sys::signal::Signal;
use openwrt::blob::Value;
use openwrt::device_name;
use openwrt::ubus::Status;
use openwrt::update::{METHOD, OBJECT};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Machine {
    #[default]
    Down,
    Setup,
    Up,
    Teardown,
}

/// The double's state of the interface.
#[derive(Default)]
struct State {
    machine: Machine,
    has: Has,
    /// Faults that the process reported: code and text.
    faults: Vec<Vec<String>>,
    /// Whether the handler asks for the last fault only.
    last_only: bool,
    no_autostart: bool,
    /// How often the double claimed a device, and the updates that it got, as text.
    taken: usize,
    refused: usize,
    /// Deviations from netifd's expectations.
    complaints: Vec<String>,
    /// Whether the process has read the list of faults since the interface came up.
    is_read: bool,
    /// Whether processes of an earlier netifd may still send their updates.
    has_orphans: bool,
    netlink: Option<netio::netlink::Netlink>,
    /// Whether netifd has not connected to the ubus daemon.
    is_away: bool,
    /// Interfaces with their devices, besides the tested interface.
    lines: Vec<(String, String)>,
}

/// The netifd double, with one interface.
pub struct Netifd<'h> {
    host: &'h Host,
    /// The interface's name.
    pub interface: String,
    directory: PathBuf,
    /// The program that the protocol handler starts.
    pub program: PathBuf,
    state: Arc<Mutex<State>>,
    bus: Option<Bus>,
    process: Option<Process>,
    /// Processes that an earlier netifd started.
    orphans: Vec<Process>,
    said: String,
    /// Number of times that the process was started.
    pub starts: usize,
    /// The exit code of the last process that ended by itself.
    pub ended: Option<i32>,
}

impl<'h> Netifd<'h> {
    /// Starts the double. `directory` holds UCI's files, and gets the ubus socket.
    pub fn start(host: &'h Host, interface: &str, directory: &Path) -> Self {
        let mut netifd = Self {
            host,
            interface: interface.to_owned(),
            directory: directory.to_owned(),
            program: PROGRAM.into(),
            state: Arc::default(),
            bus: None,
            process: None,
            orphans: Vec::new(),
            said: String::new(),
            starts: 0,
            ended: None,
        };
        netifd.begin();
        netifd
    }

    fn begin(&mut self) {
        let state = State {
            netlink: Some(self.host.netlink().unwrap()),
            last_only: keeps_last_only(),
            ..State::default()
        };
        *self.state.lock().unwrap() = state;
        for family in ["-4", "-6"] {
            let flush = [family, "rule", "flush"];
            self.host.output("ip", flush).unwrap();
            for (table, priority) in [("main", "32766"), ("default", "32767")] {
                let add = [family, "rule", "add", "lookup", table, "pref", priority];
                // The kernel's flush leaves some rules in place, and IPv6 has no rule for the default table.
                let _ = self.host.output("ip", add);
            }
        }
        if self.bus.is_none() {
            self.open_bus();
        }
    }

    fn open_bus(&mut self) {
        let (state, interface) = (Arc::clone(&self.state), self.interface.clone());
        let (lines, own) = (Arc::clone(&self.state), interface.clone());
        let known = move |path: &str| {
            let line = path.strip_prefix("network.interface.");
            let lines = lines.lock().unwrap();
            let known = |line| line == own || lines.lines.iter().any(|it| it.0 == line);
            !lines.is_away && (path == OBJECT || line.is_some_and(known))
        };
        let answer = move |path: &str, method: &str, arguments: &[(String, Value)]| {
            let mut state = state.lock().unwrap();
            match method {
                METHOD if path == OBJECT => (state.notified(&interface, arguments), None),
                "status" if path == format!("{OBJECT}.{interface}") => {
                    state.is_read = true;
                    (Status::Ok, Some(state.status()))
                }
                "status" => {
                    let line = path.rsplit('.').next();
                    let mut lines = state.lines.iter();
                    let found = lines.find(|it| Some(it.0.as_str()) == line);
                    let data = found.map(|it| vec![("l3_device".to_owned(), Value::text(&it.1))]);
                    (Status::Ok, data)
                }
                _ => (Status::MethodNotFound, None),
            }
        };
        let bus = Bus::start(&self.socket(), Arc::new(known), Arc::new(answer));
        self.bus = Some(bus);
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("ubus.sock")
    }

    /// Pretends that another interface of netifd uses this device.
    pub fn has_line(&self, interface: &str, device: &str) {
        let line = (interface.to_owned(), device.to_owned());
        self.state.lock().unwrap().lines.push(line);
    }

    /// `ifup`: runs the protocol handler's `setup`.
    pub fn if_up(&mut self) {
        self.state.lock().unwrap().no_autostart = false;
        self.set_up();
    }

    fn set_up(&mut self) {
        let mut state = self.state.lock().unwrap();
        state.machine = Machine::Setup;
        state.faults.clear();
        drop(state);
        let command = self.host.command(&self.program).arg("netifd");
        let command = command.arg(&self.interface).arg("--uci");
        let command = command.arg(&self.directory).arg("--ubus");
        let process = command.arg(self.socket()).spawn().unwrap();
        self.process = Some(process);
        self.starts += 1;
    }

    /// `renew`: sends the process SIGHUP.
    pub fn renew(&self) {
        let process = self.process.as_ref().unwrap();
        process.signal(Signal::SIGHUP).unwrap();
    }

    /// `ifdown`: ends the process with SIGTERM and asserts success. netifd kills it after five seconds. The double
    /// waits longer, because removing a device waits for every processor, which on a busy machine takes time.
    pub fn if_down(&mut self) {
        self.state.lock().unwrap().machine = Machine::Teardown;
        if let Some(process) = self.process.take() {
            process.signal(Signal::SIGTERM).unwrap();
            self.said += &(process.stdout() + &process.stderr());
            let exit = process.wait_at_most(PATIENCE).unwrap();
            assert!(exit.status.success(), "{exit:?}");
        }
        self.down();
    }

    fn down(&self) {
        let mut state = self.state.lock().unwrap();
        state.flush();
        state.machine = Machine::Down;
    }

    /// Checks whether the process has ended, and restarts it as netifd does.
    pub fn tick(&mut self) {
        self.orphans
            .retain_mut(|orphan| orphan.try_wait().unwrap().is_none());
        self.state.lock().unwrap().has_orphans = !self.orphans.is_empty();
        let Some(process) = &mut self.process else {
            return;
        };
        let Some(status) = process.try_wait().unwrap() else {
            return;
        };
        self.ended = status.code();
        self.said += &(process.stdout() + &process.stderr());
        self.process = None;
        self.down();
        if !self.state.lock().unwrap().no_autostart {
            self.set_up();
        }
    }

    /// Kills the process.
    pub fn kill(&self) {
        let process = self.process.as_ref().unwrap();
        process.signal(Signal::SIGKILL).unwrap();
    }

    /// Restarts the ubus daemon.
    pub fn restart_bus(&mut self) {
        self.bus = None;
        self.open_bus();
    }

    /// Restarts the ubus daemon, to which netifd does not connect again, as happens.
    pub fn restart_bus_alone(&mut self) {
        self.state.lock().unwrap().is_away = true;
        self.restart_bus();
    }

    /// Kills and restarts netifd, which then knows of no earlier process.
    pub fn crash(&mut self) {
        let lines = std::mem::take(&mut self.state.lock().unwrap().lines);
        self.orphans.extend(self.process.take());
        self.bus = None;
        self.begin();
        let mut state = self.state.lock().unwrap();
        (state.lines, state.has_orphans) = (lines, true);
        drop(state);
        self.set_up();
    }

    /// Another program changes the device by `ip`, in which `DEV` stands for its name, once the process knows that the
    /// device is set up. netifd does not notice.
    pub fn others(&mut self, words: &str) {
        until("a process that has seen its device", || {
            self.tick();
            self.state.lock().unwrap().is_read
        });
        let words = words.replace("DEV", &self.device());
        self.host.output("ip", words.split(' ')).unwrap();
    }

    /// Waits until the interface is up with exactly these addresses and routes, in the notation of `ip`, and the kernel
    /// has them.
    pub fn until_has(&mut self, addresses: &[&str], routes: &[&str]) {
        self.until_whole(Some(addresses), routes);
    }

    /// Waits as [`Netifd::until_has`] does, for an interface whose addresses the other end chooses.
    pub fn until_has_routes(&mut self, routes: &[&str]) {
        self.until_whole(None, routes);
    }

    fn until_whole(&mut self, addresses: Option<&[&str]>, routes: &[&str]) {
        let sorted = |words: &[&str]| {
            let mut words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            words.sort();
            words
        };
        let wanted = (addresses.map(sorted), sorted(routes));
        let end = Instant::now() + PATIENCE;
        loop {
            self.tick();
            let mut state = self.state.lock().unwrap();
            let has = (state.has.address_words(), state.has.all_route_words());
            let (up, machine) = (state.machine == Machine::Up, state.machine);
            let missing = state.missing();
            drop(state);
            let is_it = wanted.0.as_ref().is_none_or(|it| *it == has.0) && has.1 == wanted.1;
            if up && self.orphans.is_empty() && is_it && missing.is_empty() {
                return;
            }
            let late = Instant::now() > end;
            assert!(
                !late,
                "{machine:?} {has:?}, not {wanted:?}; the kernel lacks {missing:?}\n{}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the interface is up, and returns its addresses and routes.
    pub fn until_up(&mut self) -> (Vec<String>, Vec<String>) {
        until("an interface that is up", || {
            self.tick();
            self.state.lock().unwrap().machine == Machine::Up
        });
        let state = self.state.lock().unwrap();
        (state.has.address_words(), state.has.all_route_words())
    }

    /// Waits until the process writes these words to standard error.
    pub fn until_said(&mut self, words: &str) {
        until(words, || {
            self.tick();
            self.said().contains(words)
        });
    }

    /// Waits for a fault with this code, and returns its text.
    pub fn until_fault(&mut self, code: &str) -> String {
        crate::acceptance::until_some(code, || {
            self.tick();
            let state = self.state.lock().unwrap();
            let mut faults = state.faults.iter();
            faults.find(|it| it[0] == code).map(|it| it[1..].join(" "))
        })
    }

    /// Waits until the stored faults are exactly those with these words in their text, each once.
    pub fn until_faults(&mut self, words: &[&str]) {
        let is_it = |faults: &[String]| {
            let has = |word: &&str| faults.iter().any(|it| it.contains(*word));
            faults.len() == words.len() && words.iter().all(has)
        };
        let end = Instant::now() + PATIENCE;
        while !is_it(&self.faults()) {
            self.tick();
            let late = Instant::now() > end;
            assert!(!late, "{:?}, not {words:?}\n{}", self.faults(), self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The stored faults, as text.
    pub fn faults(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.faults.iter().map(|it| it.join(" ")).collect()
    }

    /// All output of the processes so far.
    pub fn said(&self) -> String {
        let now = self.process.as_ref();
        let now = now.map(|it| it.stdout() + &it.stderr());
        self.said.clone() + &now.unwrap_or_default()
    }

    /// How often netifd claimed the device, which clears it: once for each process that came up.
    pub fn taken(&self) -> usize {
        self.state.lock().unwrap().taken
    }

    /// How often netifd answered "permission denied".
    pub fn refused(&self) -> usize {
        self.state.lock().unwrap().refused
    }

    /// The name servers that netifd was given.
    pub fn dns(&self) -> Vec<String> {
        self.state.lock().unwrap().has.dns.clone()
    }

    /// The prefixes that netifd may delegate.
    pub fn prefixes(&self) -> Vec<String> {
        self.state.lock().unwrap().has.prefixes.clone()
    }

    /// The changes since the last call: `+` marks an addition, `-` a removal.
    pub fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().has.changes)
    }

    /// Deviations from netifd's expectations, such as an interface that is not bare when it appears.
    pub fn complaints(&self) -> Vec<String> {
        self.state.lock().unwrap().complaints.clone()
    }

    /// The interface's network device.
    pub fn device(&self) -> String {
        device_name(&self.interface)
    }

    /// Waits until the process runs as root with only the capabilities for networking: `CAP_NET_ADMIN`, `CAP_NET_RAW`
    /// and `CAP_NET_BIND_SERVICE`. None of its threads has others.
    pub fn has_few_privileges(&self) {
        const NETWORK: u64 = 0x3400;
        let path = PathBuf::from(format!("/proc/{}", self.process()));
        // A thread may end meanwhile.
        let status =
            |path: PathBuf| std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let caps = |status: &str| {
            let mut lines = status.lines();
            let line = lines.find_map(|it| it.strip_prefix("CapPrm:"));
            line.map_or(0, |it| u64::from_str_radix(it.trim(), 16).unwrap())
        };
        until("few privileges", || {
            let first = status(path.clone());
            let has = |line: &str| first.lines().any(|it| it == line);
            let threads = std::fs::read_dir(path.join("task")).unwrap();
            let mut threads = threads.map(|it| caps(&status(it.unwrap().path())));
            caps(&first) == NETWORK
                && threads.all(|it| it & !NETWORK == 0)
                && has("NoNewPrivs:\t1")
                && has("Uid:\t0\t0\t0\t0")
        });
    }

    /// The id of the process.
    pub fn process(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }
}

impl State {
    fn missing(&mut self) -> Vec<String> {
        let netlink = self.netlink.as_mut();
        netlink.map_or_else(Vec::new, |it| self.has.missing(it))
    }

    /// Handles `notify_proto`.
    fn notified(&mut self, interface: &str, arguments: &[(String, Value)]) -> Status {
        let all = Value::Table(arguments.to_vec());
        let number = |name: &str| all.field(name).and_then(Value::as_number);
        if all.field("interface").and_then(Value::as_text) != Some(interface) {
            return Status::NotFound;
        }
        match number("action") {
            Some(0) => match (self.machine, number("link-up")) {
                (Machine::Teardown | Machine::Down, _) => {
                    self.refused += 1;
                    Status::PermissionDenied
                }
                (_, None) => Status::InvalidArgument,
                (_, Some(0)) => {
                    if let (Some(device), Some(netlink)) = (self.has.device, &mut self.netlink) {
                        // netifd releases the device, which takes it down.
                        let _ = netlink.set_down(device);
                    }
                    self.flush();
                    self.machine = Machine::Setup;
                    Status::Ok
                }
                _ => self.update(&all, number("keep") == Some(1)),
            },
            Some(3) => {
                let words = all.field("error").map(Value::items).unwrap_or_default();
                let words = words.iter().filter_map(Value::as_text).map(str::to_owned);
                let words: Vec<String> = words.collect();
                if words.is_empty() {
                    return Status::InvalidArgument;
                }
                if self.last_only {
                    self.faults.clear();
                }
                self.faults.push(words);
                Status::Ok
            }
            Some(4) => {
                self.no_autostart = true;
                Status::Ok
            }
            _ => Status::InvalidArgument,
        }
    }

    /// The answer to `status`, as far as the program reads it.
    fn status(&self) -> Vec<(String, Value)> {
        let field = |name: &str, value| (name.to_owned(), value);
        let error = |words: &Vec<String>| {
            let data = words[1..].iter().map(Value::text).collect();
            Value::Table(vec![
                field("subsystem", Value::text("millrace")),
                field("code", Value::text(&words[0])),
                field("data", Value::Array(data)),
            ])
        };
        let errors = self.faults.iter().map(error).collect();
        vec![
            field("up", Value::flag(self.machine == Machine::Up)),
            field("pending", Value::flag(self.machine == Machine::Setup)),
            field("errors", Value::Array(errors)),
        ]
    }

    fn update(&mut self, all: &Value, keep: bool) -> Status {
        let Some(netlink) = &mut self.netlink else {
            return Status::UnknownError;
        };
        // netifd ignores `keep` for an interface that is not up.
        let keep = keep && self.machine == Machine::Up;
        if !keep {
            let device = all.field("ifname").and_then(Value::as_text);
            let Some(device) = device.and_then(|it| netlink.link(it).ok()) else {
                return Status::InvalidArgument;
            };
            if self.has.device != Some(device.index) {
                let found = netlink.addresses(Some(device.index)).unwrap();
                if (device.up || !found.is_empty()) && !self.has_orphans {
                    let words = format!("not bare: up {}, {found:?}", device.up);
                    self.complaints.push(words);
                }
                let bared = netlink.set_down(device.index);
                if bared
                    .and_then(|()| netlink.flush_addresses(device.index))
                    .is_err()
                {
                    return Status::InvalidArgument;
                }
                self.has = Has {
                    device: Some(device.index),
                    changes: std::mem::take(&mut self.has.changes),
                    ..Has::default()
                };
                self.taken += 1;
            }
            // The device may vanish with an earlier netifd's process.
            if netlink.set_up(device.index).is_err() {
                return Status::InvalidArgument;
            }
        }
        match self.has.become_as(all, keep, netlink) {
            Ok(()) => {
                if self.machine != Machine::Up {
                    self.faults.clear();
                    self.is_read = false;
                }
                self.machine = Machine::Up;
                Status::Ok
            }
            // The device may vanish with an earlier netifd's process, at any moment.
            Err(_) if self.has.is_lost(netlink) => Status::InvalidArgument,
            Err(why) => {
                self.complaints.push(why);
                Status::UnknownError
            }
        }
    }

    /// Removes everything that the process configured on the interface.
    fn flush(&mut self) {
        let changes = std::mem::take(&mut self.has.changes);
        if let Some(netlink) = &mut self.netlink {
            // The device may have vanished with its process.
            let _ = self.has.become_as(&Value::Null, false, netlink);
        }
        self.has = Has {
            changes,
            ..Has::default()
        };
    }
}

/// Whether the protocol handler asks netifd to keep only the last error.
fn keeps_last_only() -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/openwrt/millrace");
    let script = format!(
        "INCLUDE_ONLY=1; . {}; lasterror=0\n\
         for kind in string array boolean int; do eval \"proto_config_add_$kind() {{ :; }}\"; done\n\
         proto_millrace_init_config; echo $lasterror",
        root.join("lib/netifd/proto/millrace.sh").display()
    );
    let output = Command::new("sh").args(["-euc", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout == b"1\n"
}

impl Drop for Netifd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
    }
}
