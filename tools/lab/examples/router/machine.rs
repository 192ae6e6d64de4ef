//! The emulated router: starts, is read, and ends when its value is dropped.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::{Host, LabError, Process};

/// The device's and the router's address behind the router.
pub(crate) const DEVICE: &str = "10.91.0.2";
const ROUTER_LAN: &str = "10.91.0.1";
/// The router's and the far end's address in front of it.
const ROUTER_WAN: &str = "10.92.0.1";
pub(crate) const FAR: &str = "10.92.0.2";
/// The far end inside the tunnel.
pub(crate) const FAR_INSIDE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 93, 0, 1));
/// The MTU behind the router and of the tunnel, in bytes: 1500 less the largest overhead, that of CBC with an HMAC, so
/// that no datagram is fragmented anywhere.
pub(crate) const MTU: u16 = 1400;

/// Minimum number of segments that TCP sends at once, at both ends.
pub(crate) const SEGMENTS: u32 = 16;

/// How long the machine gets to answer at its console.
const ANSWERED: Duration = Duration::from_secs(120);
/// How long qemu gets to open its interfaces.
const OPENED: Duration = Duration::from_secs(30);

/// The parts of a machine: a directory with `kernel`, `image` and `count.so`, and a place for its output.
pub(crate) struct Parts {
    pub(crate) directory: PathBuf,
    /// qemu's name of the processor.
    pub(crate) cpu: String,
}

/// A file in the machine.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
}

/// The router.
pub(crate) struct Machine {
    process: Process,
    directory: PathBuf,
}

/// The instructions executed so far.
#[derive(Clone, Copy)]
pub(crate) struct Executed {
    pub(crate) user: u64,
    pub(crate) kernel: u64,
}

/// The machine's facts about itself.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) kernel: String,
    /// The code that computes the cipher, where the program says it.
    pub(crate) backend: Option<String>,
    /// The packets of the tunnel's interface, a super-packet counting once: from the kernel to the program, and back.
    /// The kernel's own WireGuard counts packets.
    pub(crate) tunnel: [u64; 2],
    /// The memory that the processes of a VPN hold (VmRSS), in KiB; 0 where it is the kernel's.
    pub(crate) resident: u64,
}

impl Facts {
    /// Lines of "fact NAME VALUE" among others.
    fn read(said: &str) -> Self {
        let value = |name: &str| {
            let found = said.lines().rev().find_map(|line| {
                let (_, fact) = line.split_once("fact ")?;
                fact.trim().strip_prefix(name)?.strip_prefix(' ')
            });
            found.map(str::trim).filter(|value| !value.is_empty())
        };
        let number = |name| value(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        Self {
            kernel: value("kernel").unwrap_or_default().to_owned(),
            backend: value("backend").map(str::to_owned),
            tunnel: [number("tx"), number("rx")],
            resident: number("resident"),
        }
    }
}

/// Network cards of routers check and make checksums; they do not cut or join segments.
const CARD: &str = "romfile=,csum=on,guest_csum=on,gso=off,mrg_rxbuf=on,\
    host_tso4=off,host_tso6=off,host_ufo=off,host_ecn=off,\
    guest_tso4=off,guest_tso6=off,guest_ufo=off,guest_ecn=off";

impl Machine {
    /// Boots the machine with `overlay` over its image: `/vpn`, which starts the VPN, and the files that it reads.
    pub(crate) fn start(
        parts: &Parts,
        overlay: &[File],
        device: &Host,
        far: &Host,
    ) -> Result<Self, LabError> {
        let directory = parts.directory.clone();
        let at = |name: &str| directory.join(name).display().to_string();
        image(&directory, overlay).map_err(failed("make the machine's image"))?;
        let counts = at("counts");
        let _ = fs::remove_file(&counts);
        let network = |name: &str| {
            format!("tap,id={name},ifname={name},script=no,downscript=no,vnet_hdr=on,vhost=off")
        };
        // The machine's timers follow its instructions: a billion of them are a second. When idle, it sleeps in real
        // time, as the hosts around it live in real time.
        // At a lower priority than the load and the far end: the router must be the bottleneck, as slow routers are.
        let process = device
            .command("nice")
            .args(["-n", "5", "qemu-system-arm"])
            .args(["-M", "virt,highmem=off", "-cpu", &parts.cpu, "-smp", "1"])
            .args(["-m", "512", "-nodefaults", "-display", "none", "-no-reboot"])
            .args(["-icount", "shift=0,sleep=on"])
            .args([
                "-chardev",
                &format!(
                    "socket,id=console,path={},server=on,wait=off,logfile={},logappend=off",
                    at("console.socket"),
                    at("console")
                ),
            ])
            .args(["-serial", "chardev:console"])
            .args(["-kernel", &at("kernel"), "-initrd", &at("machine.image")])
            .args(["-append", "console=ttyAMA0 quiet panic=-1 norandmaps"])
            .args([
                "-plugin",
                &format!(
                    "{},counts={counts},profile={}",
                    at("count.so"),
                    at("profile")
                ),
            ])
            .args(["-netdev", &network("lan0")])
            .args(["-device", &format!("virtio-net-pci,netdev=lan0,{CARD}")])
            .args(["-netdev", &network("wan0")])
            .args(["-device", &format!("virtio-net-pci,netdev=wan0,{CARD}")])
            .spawn()?;
        let mut machine = Self { process, directory };
        let begun = Instant::now();
        while !(device.has_interface("lan0")? && device.has_interface("wan0")?) {
            machine.still_running()?;
            if begun.elapsed() > OPENED {
                return Err(machine.failure("no network interfaces"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // To move an interface to another host, the command names a process there.
        let there = far.command("sleep").arg("60").spawn()?;
        device.output(
            "ip",
            ["link", "set", "wan0", "netns", &there.id().to_string()],
        )?;
        for (host, interface, address, mtu) in [
            (device, "lan0", DEVICE, MTU.to_string()),
            (far, "wan0", FAR, "1500".to_owned()),
        ] {
            let address = format!("{address}/24");
            host.output("ip", ["address", "add", &address, "dev", interface])?;
            host.output("ip", ["link", "set", interface, "mtu", &mtu, "up"])?;
        }
        device.output("ip", ["route", "add", "default", "via", ROUTER_LAN])?;
        for host in [device, far] {
            // How many segments TCP sends at once depends on how fast it believes the line to be, and what a packet
            // costs depends on how many come together: without this, repetitions differ by a tenth.
            host.sysctl("net/ipv4/tcp_min_tso_segs", &SEGMENTS.to_string())?;
        }
        Ok(machine)
    }

    /// Returns the number of executed instructions.
    pub(crate) fn executed(&self) -> Executed {
        let bytes = fs::read(self.directory.join("counts")).unwrap_or_default();
        let word = |at: usize| {
            let word = bytes.get(at * 8..at * 8 + 8)?;
            Some(u64::from_le_bytes(word.try_into().ok()?))
        };
        Executed {
            user: word(0).unwrap_or(0),
            kernel: word(1).unwrap_or(0),
        }
    }

    /// Resets the execution counts of the code's blocks.
    pub(crate) fn begin_profile(&self) {
        self.end_profile("before");
    }

    /// Writes the execution counts of the code's blocks to `profile.NAME` in the directory.
    pub(crate) fn end_profile(&self, name: &str) {
        let path = self.directory.join("profile");
        let _ = fs::remove_file(&path);
        // A failure is ignored: the counts do not need the profile, and its reader notices that it is missing.
        let _ = self.process.signal(nix::sys::signal::Signal::SIGUSR1);
        let begun = Instant::now();
        let mut before = 0;
        while begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(100));
            let now = fs::metadata(&path).map_or(0, |file| file.len());
            if now > 0 && now == before {
                break;
            }
            before = now;
        }
        let _ = fs::rename(path, self.directory.join(format!("profile.{name}")));
    }

    /// Returns an error if the machine has ended.
    pub(crate) fn still_running(&mut self) -> Result<(), LabError> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.failure(&format!("the machine ended: {status}"))),
        }
    }

    /// Reads the facts at the machine's console. The machine executes nothing for that before this call.
    pub(crate) fn facts(&self) -> Result<Facts, LabError> {
        let path = self.directory.join("console");
        let console = || fs::read(&path).map_err(failed("read the machine's console"));
        let before = console()?.len();
        // Connected for this question only: unread output would block the machine.
        let mut keyboard = UnixStream::connect(self.directory.join("console.socket"))
            .map_err(failed("connect to the machine's console"))?;
        keyboard
            .write_all(b"\n")
            .map_err(failed("write to the machine's console"))?;
        let begun = Instant::now();
        loop {
            let said = console()?;
            let said = String::from_utf8_lossy(said.get(before..).unwrap_or_default()).into_owned();
            if said.contains("fact end") {
                return Ok(Facts::read(&said));
            }
            if begun.elapsed() > ANSWERED {
                return Err(self.failure("no answer at the console"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// An error with the end of the console's output.
    pub(crate) fn failure(&self, what: &str) -> LabError {
        let console = fs::read(self.directory.join("console")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let from = console
            .char_indices()
            .rev()
            .nth(2000)
            .map_or(0, |(at, _)| at);
        failed(what.to_owned())(std::io::Error::other(format!(
            "{}\n{}",
            self.process.stderr(),
            &console[from..]
        )))
    }
}

/// The base image with an archive of the overlay behind it: the kernel unpacks both, one after the other.
fn image(directory: &Path, overlay: &[File]) -> std::io::Result<()> {
    let root = directory.join("overlay");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root)?;
    let mut names = String::new();
    let main = File {
        path: "main".to_owned(),
        content: main_script().into_bytes(),
    };
    let facts = File {
        path: "facts".to_owned(),
        content: FACTS.into(),
    };
    for file in overlay.iter().chain([&main, &facts]) {
        fs::write(root.join(&file.path), &file.content)?;
        names += &format!("{}\n", file.path);
    }
    let mut cpio = Command::new("cpio")
        .args(["--quiet", "-o", "-H", "newc", "-R", "0:0"])
        .current_dir(&root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = cpio.stdin.take() {
        input.write_all(names.as_bytes())?;
    }
    let archive = cpio.wait_with_output()?;
    let mut image = fs::read(directory.join("image"))?;
    // Archives begin at multiples of four bytes.
    image.resize(image.len().next_multiple_of(4), 0);
    image.extend(archive.stdout);
    fs::write(directory.join("machine.image"), image)
}

/// The machine's script once it has booted.
fn main_script() -> String {
    // Certificates have dates, and the machine has no clock of its own.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    format!(
        "date -s @{now} >/dev/null\n\
         echo 1 >/proc/sys/net/ipv4/ip_forward\n\
         ip addr add {ROUTER_LAN}/24 dev eth0\n\
         ip link set eth0 mtu {MTU} up\n\
         ip addr add {ROUTER_WAN}/24 dev eth1\n\
         ip link set eth1 up\n\
         mkdir -p /dev/net /var/run /etc\n\
         [ -c /dev/net/tun ] || mknod /dev/net/tun c 10 200\n\
         sh /vpn\n\
         while read -r question; do sh /facts; done\n\
         while :; do sleep 3600; done\n"
    )
}

/// The machine's answer to a request: a line for each fact.
const FACTS: &str = r#"
echo "fact kernel $(uname -r)"
for name in wg0 tun0 ppp0; do
    counters=/sys/class/net/$name/statistics
    [ ! -e "$counters" ] || for way in tx rx; do echo "fact $way $(cat "$counters/${way}_packets")"; done
done
resident=0
for process in $(pidof millrace openvpn wireguard-go pppd pptp); do
    pages=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$process/status")
    resident=$((resident + ${pages:-0}))
done
echo "fact resident $resident"
said=$(grep -h 'Data Channel: cipher' /tmp/vpn.log 2>/dev/null | tail -n 1)
# Stock says no code here, but the peer-id.
case $said in *"', peer-id"*) ;; *"', "*) echo "fact backend ${said#*"', "}" ;; esac
if pidof millrace >/dev/null && [ -e /sys/class/net/wg0 ]; then
    said=$(millrace status wg0 --json --no-rate | grep -o '"backend": *"[^"]*"' | head -n 1)
    said=${said%\"}
    echo "fact backend ${said##*\"}"
fi
echo "fact end"
"#;

/// Converts an I/O error of this program into an error of the lab.
pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> LabError {
    let what = what.into();
    move |error| LabError::Load { what, error }
}
