//! A router with a `dnsmasq` as OpenWrt starts it, a provider's name server, a name server behind a tunnel, and
//! steady queries: for tests of which device carries which query.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Host;
use serde_json::Value;

use super::dns::{NameServer, question};
use super::guarded::Guarded;
use super::{Directory, ip, until};

/// A domain whose names must be resolved only through the tunnel. Every query has a label of eight letters before it.
pub const SECRET: &str = "secret.example";

/// A name outside that domain.
pub const PLAIN: &str = "aaaaaaaa.plain.example";

/// The provider's name server, on the WAN.
pub const PROVIDER: &str = "192.168.3.2";
/// The name servers behind the tunnel.
pub const INNER: [&str; 2] = ["10.8.0.1", "fd08::1"];

/// The router's own `dnsmasq`, in each family of the LAN.
pub const ROUTER: [&str; 2] = ["192.168.1.2", "fd00:1::2"];

/// Counters at the server: all queries that arrive through the WAN, those among them for [`SECRET`], and queries that
/// arrive through tunnels. The second counter matches the second label, after the headers of UDP and DNS and the first
/// label.
const COUNTING: &str = "table inet queries {\n counter every { }\n counter secret { }\n counter tunnelled { }\n\
    chain prerouting {\n type filter hook prerouting priority -400;\n\
    iifname \"eth0\" meta l4proto { tcp, udp } th dport 53 counter name every\n\
    iifname \"eth0\" udp dport 53 @th,232,56 0x06736563726574 counter name secret\n\
    iifname { \"wg0\", \"ovpn0\" } udp dport 53 counter name tunnelled\n }\n }\n";

/// Sets up the router's `dnsmasq` with its files in `$1`. A lock keeps the init script from running twice at once, as
/// procd does: a script started by a killed watch may still run when the test starts its own.
const STAGE: &str = r#"
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/names.d"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" /etc
mkdir -p /etc/init.d "$1/var/etc"
mount --bind "$1/var" /var
ln -s /run /var/run
touch /etc/openwrt_release
echo "nameserver 127.0.0.1" > /etc/resolv.conf
echo "nameserver 192.168.3.2" > "$1/resolv.auto"
cat > /var/etc/dnsmasq.conf.cfg01411c <<END
conf-dir=$1/names.d
resolv-file=$1/resolv.auto
dns-forward-max=10000
user=root
no-hosts
cache-size=0
END
cat > /etc/init.d/dnsmasq <<END
#!/bin/sh
exec 9>$1/lock
flock 9
if [ -e $1/pid ] && read -r pid < $1/pid; then
    kill "\$pid" 2>/dev/null
    while [ -e /proc/\$pid ] && ! grep -q "^State:.Z" /proc/\$pid/status 2>/dev/null; do sleep 0.02; done
fi
[ "\${1-}" != stop ] || exit 0
dnsmasq --conf-file=/var/etc/dnsmasq.conf.cfg01411c --pid-file=$1/pid 9>&-
END
chmod 755 /etc/init.d/dnsmasq
/etc/init.d/dnsmasq start
"#;

/// A [`Guarded`] set-up with name servers.
pub struct Named {
    /// The devices, the router and the server outside.
    pub world: Guarded,
    /// The provider's name server.
    pub provider: NameServer,
    scratch: Directory,
}

impl Default for Named {
    fn default() -> Self {
        Self::new()
    }
}

impl Named {
    /// Starts everything; the router's `dnsmasq` asks the provider's server.
    pub fn new() -> Self {
        let world = Guarded::new();
        let scratch = Directory::new();
        world.server.nft(COUNTING).unwrap();
        let provider = NameServer::start(&world.server, ip(PROVIDER));
        answer(&provider);
        let stage = world.router.command("sh").args(["-euc", STAGE, "stage"]);
        stage.arg(scratch.path()).output().unwrap();
        Self {
            world,
            provider,
            scratch,
        }
    }

    /// Starts name servers behind the tunnel, whose far end must be up.
    pub fn inner(&self) -> [NameServer; 2] {
        INNER.map(|at| {
            let server = NameServer::start(&self.world.server, ip(at));
            answer(&server);
            server
        })
    }

    /// The text of a file that the router's `dnsmasq` reads, if the file exists.
    pub fn file(&self, name: &str) -> Option<String> {
        let path = self.scratch.path().join("names.d").join(name);
        let read = || std::fs::read_to_string(path);
        self.world.router.run(read).unwrap().ok()
    }

    /// Adds a configuration file of the router's owner.
    pub fn own_file(&self, name: &str, text: &str) {
        let path = self.scratch.path().join("names.d").join(name);
        let write = || std::fs::write(path, text);
        self.world.router.run(write).unwrap().unwrap();
    }

    /// Queries that reached the server through the WAN: all, and those for [`SECRET`].
    pub fn clear(&self) -> (u64, u64) {
        (
            counter(&self.world.server, "every"),
            counter(&self.world.server, "secret"),
        )
    }

    /// Queries that reached the server through a tunnel.
    pub fn tunnelled(&self) -> u64 {
        counter(&self.world.server, "tunnelled")
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // `dnsmasq` has gone into the background; its init script stops it.
        let _ = self.world.router.output("/etc/init.d/dnsmasq", ["stop"]);
    }
}

fn answer(server: &NameServer) {
    let addresses = [ip("198.51.100.80"), ip("2001:db8:80::1")];
    server.set(&format!("*.{SECRET}"), &addresses);
    server.set(PLAIN, &addresses);
}

fn counter(host: &Host, name: &str) -> u64 {
    let words = ["-j", "list", "counter", "inet", "queries", name];
    let all: Value = serde_json::from_str(&host.output("nft", words).unwrap()).unwrap();
    let mut entries = all["nftables"].as_array().unwrap().iter();
    entries
        .find_map(|it| it["counter"]["packets"].as_u64())
        .unwrap()
}

/// Returns an unused name below [`SECRET`].
pub fn fresh() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!(
        "q{:07}.{SECRET}",
        NUMBER.fetch_add(1, Ordering::Relaxed) % 10_000_000
    )
}

/// Steady queries from a device to these servers, over both families, for unused names and both kinds of addresses.
pub struct Queries {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Queries {
    /// Starts the queries.
    pub fn start(host: &Host, servers: &[IpAddr]) -> Self {
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (theirs, count, servers) = (Arc::clone(&stop), Arc::clone(&sent), servers.to_vec());
        let work = move || -> io::Result<()> {
            let sockets = [
                UdpSocket::bind((ip("0.0.0.0"), 0))?,
                UdpSocket::bind((ip("::"), 0))?,
            ];
            while !theirs.load(Ordering::Relaxed) {
                for server in &servers {
                    for v6 in [false, true] {
                        let socket = &sockets[usize::from(server.is_ipv6())];
                        // An ICMP error about the previous query may surface here.
                        let query = question(&fresh(), v6);
                        if socket.send_to(&query, (*server, 53)).is_ok() {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let thread = Some(host.spawn("queries", work).unwrap());
        Self { stop, sent, thread }
    }

    /// Waits until this many more queries have been sent.
    pub fn wait(&self, queries: u64) {
        let end = self.sent() + queries;
        until("queries that are sent", || self.sent() >= end);
    }

    /// Number of queries sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Queries {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}
