//! Messages and exit codes of the guard's commands where `only_through` lists are missing, faulty or refused.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::guarded::Guarded;
use lab::acceptance::{Directory, PROGRAM};
use lab::tools;

fn ready() -> bool {
    lab::acceptance::ready() && lab::require(tools::find("nft")).is_some()
}

/// A router with UCI files.
struct Router {
    world: Guarded,
    uci: Directory,
}

impl Router {
    fn new() -> Self {
        Self {
            world: Guarded::new(),
            uci: Directory::new(),
        }
    }

    /// Writes `network` with a tunnel that has these lines.
    fn write(&self, lines: &str) {
        let text = format!(
            "config interface 'lan'\n\toption device 'br-lan'\n\toption proto 'static'\n\
             config interface 'wan'\n\toption device 'wan'\n\toption proto 'dhcp'\n\
             config interface 'office'\n\toption proto 'millrace'\n{lines}"
        );
        self.uci.file("network", &text);
    }

    /// Runs `millrace guard`; returns its output and exit code.
    fn guard(&self, words: &[&str]) -> (String, Option<i32>) {
        let command = self.world.router.command(PROGRAM).arg("guard").args(words);
        let exit = command.arg("--uci").arg(self.uci.path()).exit().unwrap();
        (exit.stdout + &exit.stderr, exit.status.code())
    }

    fn off(&self) {
        self.world.router.output(PROGRAM, ["guard", "off"]).unwrap();
    }
}

const LISTED: &str = "\tlist only_through 'lan'\n";

/// LANs that no list names any more stay released after a later mistake in `network`.
#[test]
fn lists_that_were_taken_away_do_not_come_back() {
    if !ready() {
        return;
    }
    let router = Router::new();
    for by_hand in [false, true] {
        router.write(LISTED);
        assert_eq!(router.guard(&["on"]).1, Some(0));
        if by_hand {
            assert_eq!(router.guard(&["on", "--lan", "br-guest"]).1, Some(0));
        }
        router.write("");
        let (text, code) = router.guard(&["reload"]);
        assert_eq!(code, Some(if by_hand { 0 } else { 4 }), "{text}");
        router.write("config interface 'home\n");
        let (text, code) = router.guard(&["reload"]);
        assert_eq!(code, Some(if by_hand { 1 } else { 4 }), "{text}");
        let (text, _) = router.guard(&["status"]);
        assert!(!text.contains("br-lan"), "{text}");
        router.off();
    }
}

/// An unterminated quote at boot leaves the last valid list in force.
#[test]
fn a_mistake_at_boot_holds_what_was_listed() {
    if !ready() {
        return;
    }
    let router = Router::new();
    router.write(LISTED);
    assert_eq!(router.guard(&["on", "--if-asked"]).1, Some(0));
    let shell = "nft delete table inet millrace; rm /run/millrace/guard@*.toml";
    router.world.router.output("sh", ["-c", shell]).unwrap();
    router.world.flush_rules();
    router.uci.file("network", "config interface 'lan\n");
    let (text, code) = router.guard(&["on", "--if-asked"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("guarded: br-lan"), "{text}");
    assert_eq!(router.guard(&["reload"]).1, Some(1));
}

/// If the guard refuses every entry, it says which ones, and that no device is guarded.
#[test]
fn a_list_of_which_nothing_can_be_held_is_told() {
    if !ready() {
        return;
    }
    let router = Router::new();
    assert_eq!(router.guard(&["on"]).1, Some(4));
    let (text, code) = router.guard(&["on", "--if-asked"]);
    assert_eq!((text.as_str(), code), ("", Some(4)));
    router.write("\tlist only_through 'wan'\n");
    for words in [["on"].as_slice(), &["reload"], &["on", "--if-asked"]] {
        let (text, code) = router.guard(words);
        assert_eq!(code, Some(4), "{text}");
        assert!(text.contains("interface wan has protocol dhcp"), "{text}");
    }
    let (text, code) = router.guard(&["status"]);
    assert_eq!(code, Some(1), "{text}");
    router.write("\tlist only_through 'wan'\n\tlist only_through 'lan'\n");
    for word in ["on", "reload"] {
        let (text, code) = router.guard(&[word]);
        assert_eq!(code, Some(1), "not all of it is held: {text}");
    }
}

/// The init scripts make a blocking chain when nothing could be set at boot. Setting the guard or the policy refills
/// it, and `off` removes it.
#[test]
fn what_init_scripts_drop_is_let_go() {
    if !ready() {
        return;
    }
    let router = Router::new();
    let sh = |text: &str| router.world.router.output("sh", ["-c", text]);
    let scripts = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/openwrt/millrace/etc/init.d/millrace"
    );
    let drop_all = |name: &str, chain: &str| {
        sh(&format!(
            "logger() {{ :; }}; . {scripts}-{name}; drop_all; is_held"
        ))
        .unwrap();
        let text = sh(&format!("nft list chain inet {chain}")).unwrap();
        assert!(text.contains("packets 0 bytes 0 drop"), "{text}");
    };
    router.write(LISTED);
    drop_all("guard", "millrace guard");
    assert_eq!(router.guard(&["on", "--if-asked"]).1, Some(0));
    assert_eq!(router.guard(&["status"]).1, Some(0));
    let settings =
        "lan = [\"br-lan\"]\n[[entry]]\nwho = \"02:00:5e:10:00:01\"\nthrough = \"mr-us\"\n";
    let settings = router
        .uci
        .file("policy.toml", settings)
        .display()
        .to_string();
    drop_all("policy", "millrace_policy forward");
    let policy = |word| sh(&format!("{PROGRAM} policy {word} --settings {settings}"));
    policy("on").unwrap();
    policy("status").unwrap();
    for (name, chain) in [
        ("guard", "millrace guard"),
        ("policy", "millrace_policy forward"),
    ] {
        let off = || sh(&format!("{PROGRAM} {name} off")).unwrap();
        off();
        drop_all(name, chain);
        off();
        assert!(
            sh(&format!("nft list chain inet {chain}")).is_err(),
            "{name}"
        );
    }
}

/// Settings that were never valid still count as a request to block.
#[test]
fn a_mistake_in_the_first_settings_is_not_taken_for_nothing() {
    if !ready() {
        return;
    }
    let router = Router::new();
    router.write("");
    let settings = router
        .uci
        .file("guard.toml", "lan = [")
        .display()
        .to_string();
    let words = ["on", "--if-asked", "--settings", &settings];
    let (text, code) = router.guard(&words);
    assert_eq!(code, Some(1), "{text}");
}
