//! Name servers through the programs that manage them, as Debian packages them: set while the tunnel is up; restored
//! after an orderly end, and by the start after a kill.
//!
//! `scripts/resolvers` unpacks the packages; the tests lay them over the host's `/usr` and `/etc`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io;
use std::path::{Path, PathBuf};

use lab::acceptance::{Directory, PATIENCE, PROGRAM, until};
use lab::{Host, Process};
use nix::sys::signal::Signal;
use nix::unistd::Uid;

/// The tunnel's name server and domain.
const TUNNEL: &str = "10.0.0.9";

/// The host's own name server.
const OWN: &str = "192.0.2.9";

/// Lays the packages `$2`, `$3`… over the host's file system; `$1` is a directory for the overlay.
const STAGE: &str = r#"
mount -t tmpfs tmpfs "$1"
scratch=$1
shift
mkdir -p "$scratch/usr/lib" "$scratch/usr/sbin" "$scratch/etc" "$scratch/upper" "$scratch/work"
for package; do
    for part in lib sbin; do
        [ ! -d "$package/$part" ] || cp -a "$package/$part/." "$scratch/usr/$part/"
    done
    [ ! -d "$package/usr" ] || cp -a "$package/usr/." "$scratch/usr/"
    [ ! -d "$package/etc" ] || cp -a "$package/etc/." "$scratch/etc/"
done
mount -t overlay overlay -o "lowerdir=$scratch/usr:/usr" /usr
mount -t overlay overlay \
    -o "lowerdir=$scratch/etc:/etc,upperdir=$scratch/upper,workdir=$scratch/work" /etc
mount -t tmpfs tmpfs /run
rm -f /etc/resolv.conf
echo "nameserver 192.0.2.9" > /etc/resolv.conf
"#;

/// Libraries that a small system may lack, and the bus' configuration.
const LIBRARIES: [&str; 15] = [
    "dbus-system-bus-common",
    "libip4tc2",
    "libkmod2",
    "libsystemd-shared",
    "libdbus-1-3",
    "libapparmor1",
    "libcap-ng0",
    "libexpat1",
    "libgmp10",
    "libhogweed6",
    "libidn2-0",
    "libnetfilter-conntrack3",
    "libnettle8",
    "libnfnetlink0",
    "libunistring2",
];

/// The directory of an unpacked package.
fn unpacked(package: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    target.join("resolvers").join(package)
}

/// Makes a host that has these packages, if possible.
#[track_caller]
fn host(packages: &[&str]) -> Option<(Host, Directory)> {
    if !lab::acceptance::ready() {
        return None;
    }
    for package in packages {
        let found = match unpacked(package).is_dir() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "{package}: run scripts/resolvers"
            ))),
        };
        lab::require(found)?;
    }
    // `resolved` switches to its own user, and the overlay covers the machine's file system.
    let root = match Uid::current().is_root() {
        true => Ok(()),
        false => Err(io::Error::other("overlays need root")),
    };
    lab::require(root)?;
    let host = Host::private("resolving").unwrap();
    let directory = Directory::new();
    let all = packages.iter().chain(&LIBRARIES).map(|it| unpacked(it));
    host.command("sh")
        .args(["-euc", STAGE, "stage"])
        .arg(directory.path())
        .args(all.filter(|path| path.is_dir()))
        .output()
        .unwrap();
    Some((host, directory))
}

fn shell(host: &Host, text: &str) -> String {
    host.output("sh", ["-euc", text]).unwrap()
}

/// Writes a file that sets the name server, in the directory of the packages.
fn profile(directory: &Directory, dns: &str) -> PathBuf {
    let text = format!(
        "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
         Address = 10.0.0.1/24\nDNS = {dns}\n[Peer]\n\
         PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
         Endpoint = 127.0.0.1:5555\nAllowedIPs = 10.0.0.0/24\n"
    );
    directory.file("up0.conf", &text)
}

fn up(host: &Host, file: &Path) -> Process {
    let mut process = host.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
    process
        .wait_for_line("the tunnel", PATIENCE, |line| line.contains("is up"))
        .unwrap();
    process
}

fn ends(host: &Host, process: Process, signal: Signal) {
    process.signal(signal).unwrap();
    let exit = process.wait_at_most(PATIENCE).unwrap();
    assert_eq!(exit.status.success(), signal == Signal::SIGTERM, "{exit:?}");
    until("the end of the interface", || {
        !host.has_interface("up0").unwrap()
    });
}

/// Checks that `shown`, the host's name servers, contains `wanted` while the tunnel is up and is restored afterwards.
fn set_and_undone(host: &Host, file: &Path, shown: &dyn Fn() -> String, wanted: &str) {
    let before = shown();
    assert!(!before.contains(wanted), "{before}");
    let process = up(host, file);
    until("the tunnel's name server", || shown().contains(wanted));
    ends(host, process, Signal::SIGTERM);
    until("the host's own name servers", || shown() == before);
    let process = up(host, file);
    ends(host, process, Signal::SIGKILL);
    let process = up(host, file);
    until("the tunnel's name server", || shown().contains(wanted));
    ends(host, process, Signal::SIGTERM);
    until("the host's own name servers", || shown() == before);
}

#[test]
fn openresolv_is_told_and_untold() {
    let Some((host, _scratch)) = host(&["openresolv"]) else {
        return;
    };
    shell(
        &host,
        &format!("echo nameserver {OWN} | resolvconf -a eth0"),
    );
    let files = Directory::new();
    let file = profile(&files, &format!("{TUNNEL}, corp.example"));
    let shown = || shell(&host, "cat /etc/resolv.conf");
    set_and_undone(&host, &file, &shown, &format!("nameserver {TUNNEL}"));
}

#[test]
fn debians_resolvconf_is_told_and_untold() {
    let Some((host, _scratch)) = host(&["resolvconf"]) else {
        return;
    };
    let begin = format!(
        "mkdir -p /run/resolvconf/interface\nln -sf /run/resolvconf/resolv.conf /etc/resolv.conf\n\
         resolvconf --enable-updates\necho nameserver {OWN} | resolvconf -a eth0"
    );
    shell(&host, &begin);
    let files = Directory::new();
    let file = profile(&files, &format!("{TUNNEL}, corp.example"));
    let shown = || shell(&host, "cat /etc/resolv.conf");
    set_and_undone(&host, &file, &shown, &format!("nameserver {TUNNEL}"));
}

#[test]
fn systemd_resolved_is_told_and_untold() {
    let Some((host, _scratch)) = host(&["systemd-resolved", "dbus-daemon"]) else {
        return;
    };
    shell(
        &host,
        "echo 'systemd-resolve:x:991:991::/:/bin/false' >> /etc/passwd\n\
         echo 'systemd-resolve:x:991:' >> /etc/group\n\
         grep -q ^messagebus: /etc/passwd || echo 'messagebus:x:990:990::/:/bin/false' >> /etc/passwd\n\
         mkdir -p /run/dbus /run/systemd/resolve\nchown 991:991 /run/systemd/resolve",
    );
    let bus = host
        .command("dbus-daemon")
        .args(["--system", "--nofork", "--nopidfile"]);
    let _bus = bus.spawn().unwrap();
    until("the bus", || {
        !shell(
            &host,
            "test -S /run/dbus/system_bus_socket && echo there || true",
        )
        .is_empty()
    });
    let _resolved = host
        .command("/lib/systemd/systemd-resolved")
        .spawn()
        .unwrap();
    until("systemd-resolved", || {
        !shell(
            &host,
            "resolvectl status > /dev/null 2>&1 && echo there || true",
        )
        .is_empty()
    });
    let files = Directory::new();
    let file = profile(&files, &format!("{TUNNEL}, corp.example"));
    let shown = || shell(&host, "resolvectl dns; resolvectl domain");
    set_and_undone(&host, &file, &shown, TUNNEL);
}

/// Kills the daemons that went into the background when it is dropped.
struct Daemons<'h>(&'h Host);

impl Drop for Daemons<'_> {
    fn drop(&mut self) {
        let text = "kill $(cat /run/dnsmasq.pid /run/upstream*.pid)";
        let _ = self.0.output("sh", ["-c", text]);
    }
}

/// dnsmasq as OpenWrt runs it: a script starts it with a configuration that names a directory. While the tunnel is up
/// it asks only the tunnel's server, through the tunnel's device, where no server answers here. `guard_dns.rs` tests a
/// tunnel that answers.
#[test]
fn dnsmasq_asks_the_tunnels_server_and_the_hosts_own_again() {
    let Some((host, _scratch)) = host(&["dnsmasq-base"]) else {
        return;
    };
    // Two dnsmasq processes: the router's, and the upstream server that it asks before and after.
    let begin = r#"
mkdir -p /run/dnsmasq.d /run/etc /etc/init.d
mount --bind /run/etc /var/etc 2>/dev/null || { mount -t tmpfs tmpfs /var; mkdir /var/etc; }
[ -e /var/run ] || ln -s /run /var/run
touch /etc/openwrt_release
printf "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n" > /etc/resolv.conf
echo nameserver 127.0.0.2 > /run/own.conf
printf 'conf-dir=/run/dnsmasq.d,*.conf\nresolv-file=/run/own.conf\n' > /var/etc/dnsmasq.conf.cfg
cat > /etc/init.d/dnsmasq <<'END'
#!/bin/sh
if [ -e /run/dnsmasq.pid ] && read -r pid < /run/dnsmasq.pid; then
    kill "$pid" 2>/dev/null
    while [ -e /proc/$pid ] && ! grep -q "^State:.Z" /proc/$pid/status 2>/dev/null; do sleep 0.02; done
fi
exec dnsmasq --user=root --conf-file=/var/etc/dnsmasq.conf.cfg --pid-file=/run/dnsmasq.pid \
    --listen-address=127.0.0.1 --bind-interfaces --no-hosts
END
chmod 755 /etc/init.d/dnsmasq
for number in 2; do
    dnsmasq --user=root --conf-file=/dev/null --pid-file="/run/upstream$number.pid" --no-hosts --no-resolv \
        --listen-address="127.0.0.$number" --bind-interfaces --address="/host.example/198.51.100.$number"
done
/etc/init.d/dnsmasq restart
"#;
    let _daemons = Daemons(&host);
    shell(&host, begin);
    let files = Directory::new();
    let file = profile(&files, "127.0.0.3");
    let ask = "getent hosts host.example | head -n 1 || true";
    let shown = || {
        let (own, files) = (
            shell(&host, ask),
            "cat /run/dnsmasq.d/* 2>/dev/null || true",
        );
        format!("{own}{}", shell(&host, files))
    };
    until("the host's own answer", || shown().contains("198.51.100.2"));
    set_and_undone(&host, &file, &shown, "no-resolv\nserver=127.0.0.3@up0\n");
}
