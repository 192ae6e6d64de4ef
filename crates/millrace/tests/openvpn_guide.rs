//! The office and its branches of docs/openvpn-server.md, word by word: the test runs the page's blocks.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::openvpn::ready;
use lab::acceptance::{Net, PROGRAM, pings, reaches, status_of, until};
use lab::{Host, Process};
use std::time::Duration;

/// Maximum time that a program may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

const PAGE: &str = include_str!("../../../docs/openvpn-server.md");

/// The first indented block after `after`, as a reader would copy it.
fn block(after: &str) -> String {
    let (_, rest) = PAGE
        .split_once(after)
        .unwrap_or_else(|| panic!("no {after:?}"));
    let lines = rest.lines().skip_while(|line| !line.starts_with("    "));
    let mut text = String::new();
    for line in lines.take_while(|line| line.is_empty() || line.starts_with("    ")) {
        text.push_str(line.strip_prefix("    ").unwrap_or(line));
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

/// Two routers, each with its own `/etc/openvpn` and with `millrace` in its path.
struct World {
    net: Net,
    _bin: tempfile::TempDir,
    path: String,
}

impl World {
    fn new() -> Self {
        let net = Net::new();
        let bin = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(PROGRAM, bin.path().join("millrace")).unwrap();
        let path = format!(
            "{}:{}",
            bin.path().display(),
            std::env::var("PATH").unwrap()
        );
        let world = Self {
            net,
            _bin: bin,
            path,
        };
        for (host, addresses) in [
            (
                world.branch(),
                ["203.0.113.2/24 dev eth0", "192.168.50.1/24 dev lo"],
            ),
            (
                world.office(),
                ["203.0.113.1/24 dev eth0", "192.168.1.1/24 dev lo"],
            ),
        ] {
            world.shell(host, "mount -t tmpfs tmpfs /etc/openvpn");
            // The lab's own addresses overlap 192.168.1.0/24, which the page uses.
            world.shell(host, "ip -4 address flush dev eth0");
            for address in addresses {
                world.shell(host, &format!("ip address add {address}"));
            }
        }
        world
    }

    fn branch(&self) -> &Host {
        &self.net.a
    }

    fn office(&self) -> &Host {
        &self.net.b
    }

    /// Runs the reader's commands, and fails if one of them fails.
    fn shell(&self, host: &Host, script: &str) -> String {
        let command = host.command("sh").args(["-e", "-c", script]);
        let exit = command.env("PATH", &self.path).exit().unwrap();
        assert!(exit.status.success(), "{script}\n{exit:?}");
        exit.stdout
    }

    fn write(&self, host: &Host, name: &str, text: &str) {
        let script = format!("mkdir -p \"$(dirname '{name}')\"; cat > '{name}'");
        let command = host.command("sh").args(["-e", "-c", &script]);
        command.output_with_input(text).unwrap();
    }

    /// Starts the last command of a block after running the others.
    fn start(&self, host: &Host, script: &str) -> Process {
        let (before, last) = script
            .trim_end()
            .rsplit_once('\n')
            .unwrap_or_else(|| ("", script.trim_end()));
        self.shell(host, before);
        let command = host.command("sh").args(["-c", &format!("exec {last}")]);
        command.env("PATH", &self.path).spawn().unwrap()
    }

    /// Copies a profile from the office to the branch, and starts it there.
    fn join(&self, profile: &str) -> Process {
        let text = self.shell(self.office(), &format!("cat /etc/openvpn/{profile}"));
        self.write(self.branch(), "/etc/openvpn/office.ovpn", &text);
        self.start(
            self.branch(),
            &block("the branch as `/etc/openvpn/office.ovpn`"),
        )
    }

    /// Names of the clients connected to the office.
    fn clients(&self) -> Vec<String> {
        let status = status_of(self.office(), "tun0");
        let peers = status["peers"].as_array().cloned().unwrap_or_default();
        let name = |peer: &serde_json::Value| peer["name"].as_str().map(str::to_owned);
        peers.iter().filter_map(name).collect()
    }

    fn serves(&self, name: &str) {
        until(&format!("{name} at the office"), || {
            self.clients() == [name]
        });
    }
}

fn works(world: &World, network: &str) {
    reaches(world.branch(), "192.168.1.1");
    pings(world.office(), network, 2);
}

#[test]
fn office_and_branches_are_set_up_and_changed_as_the_page_says() {
    if !ready() {
        return;
    }
    let world = World::new();
    let (office, branch) = (world.office(), world.branch());
    let etc = |name: &str| format!("/etc/openvpn/{name}");

    // Makes the keys.
    world.shell(
        office,
        &block("An authority, a server and a branch, with `openssl`"),
    );
    world.write(office, &etc("sign"), &block("This script, `sign`,"));
    world.write(
        office,
        &etc("ca.cnf"),
        &block("The list of revoked certificates needs `ca.cnf`"),
    );
    let sign = block("make an empty list:");
    world.shell(office, &format!("cd /etc/openvpn\n{sign}"));

    // Configures the office and the branch.
    world.write(
        office,
        &etc("office.conf"),
        &block("`/etc/openvpn/office.conf`:"),
    );
    world.write(
        office,
        &etc("ccd/branch1"),
        &block("`/etc/openvpn/ccd/branch1`"),
    );
    let mut server = world.start(office, &block("and let the router forward"));
    server
        .wait_for_line("a server that is up", PATIENCE, |line| {
            line.ends_with("Initialization Sequence Completed")
        })
        .unwrap();
    world.write(
        office,
        &etc("profile"),
        &block("with this script, `profile`"),
    );
    world.shell(office, &block("Make the branch's profile:"));
    let first = world.join("branch1.ovpn");
    world.serves("branch1");
    works(&world, "192.168.50.1");

    // A second branch on the same host; the reload does not disturb the first.
    let before = status_of(office, "tun0")["peers"][0]["connected_unix"].clone();
    world.shell(office, &block("## Another branch"));
    until("the second branch's route", || {
        !world
            .shell(office, "ip route show 192.168.60.0/24")
            .is_empty()
    });
    assert_eq!(
        status_of(office, "tun0")["peers"][0]["connected_unix"],
        before
    );
    first.stop().unwrap();
    world.shell(branch, "ip address add 192.168.60.1/24 dev lo");
    let second = world.join("branch2.ovpn");
    world.serves("branch2");
    works(&world, "192.168.60.1");

    // Bans branch2: its session ends, and it cannot open another.
    world.shell(office, &block("## A branch that is to stay out"));
    until("an office without clients", || world.clients().is_empty());
    // A revoked certificate also keeps the branch out by itself.
    drop(second);
    world.shell(office, "rm /etc/openvpn/ccd/branch2");
    let third = world.join("branch2.ovpn");
    until("a certificate that is refused", || {
        server.stdout().contains("it is revoked (crl-verify)")
    });
    assert!(world.clients().is_empty());
    drop(third);

    // Revocation through a directory: the page's shell command names the file.
    let serial = world.shell(
        office,
        "cd /etc/openvpn; openssl x509 -in branch2.crt -noout -serial",
    );
    let serial = u64::from_str_radix(serial.trim().strip_prefix("serial=").unwrap(), 16).unwrap();
    let touch = block("the shell converts it");
    world.shell(office, &format!("cd /etc/openvpn\n{touch}"));
    assert_eq!(
        world.shell(office, "ls /etc/openvpn/revoked").trim(),
        serial.to_string()
    );

    // Renames the first branch.
    world.shell(office, &block("## Renaming a branch"));
    let renamed = world.join("berlin.ovpn");
    world.serves("berlin");
    works(&world, "192.168.50.1");
    world.shell(office, &block("revoke the old certificate:"));
    until("two revoked certificates", || {
        let list = world.shell(office, "openssl crl -in /etc/openvpn/crl.pem -noout -text");
        list.matches("Serial Number:").count() == 2
    });
    works(&world, "192.168.50.1");

    // The office moves. A branch started after the move does not wait for the timeout.
    let told = block("## Moving the office");
    world.shell(branch, &told);
    drop(renamed);
    world.serves("berlin");
    world.shell(
        office,
        "ip address flush dev eth0 to 203.0.113.0/24; ip address add 198.51.100.1/24 dev eth0",
    );
    world.shell(branch, "ip address add 198.51.100.2/24 dev eth0");
    world.shell(branch, "millrace down office");
    world.shell(branch, told.trim_end().rsplit('\n').next().unwrap());
    let server_of = status_of(branch, "tun0")["peers"][0]["endpoint"].clone();
    assert_eq!(server_of, "198.51.100.1:1194");
    works(&world, "192.168.50.1");
    world.shell(branch, "millrace down office");
    server.stop().unwrap();
}
