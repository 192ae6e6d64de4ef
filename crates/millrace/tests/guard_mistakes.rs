//! The guard with faulty settings or a faulty record: no packet leaves in clear.

use lab::acceptance::guarded::Guarded;
use lab::acceptance::{Directory, PATIENCE, PROGRAM};
use lab::tools;
use nix::sys::signal::Signal;

fn ready() -> bool {
    lab::acceptance::ready() && lab::require(tools::find("nft")).is_some()
}

/// A faulty file leaves the settings in force; if it is faulty at the start, no packet leaves. Without a directory for
/// the record both layers are still set.
#[test]
fn mistakes_and_a_lost_record_let_nothing_go() {
    if !ready() {
        return;
    }
    let world = Guarded::new();
    let directory = Directory::new();
    let path = directory.path().join("guard.toml");
    let file = path.to_str().unwrap();
    let run = |words: &[&str]| {
        let command = world.router.command(PROGRAM).arg("guard").args(words);
        let exit = command.exit().unwrap();
        (exit.status.code(), exit.stdout + &exit.stderr)
    };
    let state = |text: &str| text.contains("guard: held\n");
    let shell = |script: &str| world.router.output("sh", ["-c", script]).unwrap();
    directory.file("guard.toml", "lan = [\"br-lan\"]\ntable = 78\n");
    assert_eq!(run(&["on", "--settings", file]).0, Some(0));
    // With another table, the guard removes its own route from the first one.
    world.ip("route add 0.0.0.0/0 dev lo table 78 metric 9000");
    directory.file("guard.toml", "lan = [\"br-lan\"]\n");
    assert_eq!(run(&["on", "--settings", file]).0, Some(0));
    let routes = || {
        let words = ["route", "show", "table", "all"];
        world.router.output("ip", words).unwrap()
    };
    assert!(!routes().contains("table 78"), "{}", routes());

    directory.file("guard.toml", "lan = [\"br-lan\"\n");
    let (code, text) = run(&["on", "--settings", file]);
    assert!(code == Some(1) && state(&text), "{text}");
    assert!(
        text.contains("not valid TOML") && text.contains("keeps the settings"),
        "{text}"
    );
    let mut watching = world
        .router
        .command(PROGRAM)
        .args(["guard", "watch", "--settings", file])
        .spawn()
        .unwrap();
    let told = |line: &str| line.contains("guard: held");
    watching
        .wait_for_line("its first look", PATIENCE, told)
        .unwrap();
    watching.signal(Signal::SIGKILL).unwrap();
    watching.wait_at_most(PATIENCE).unwrap();

    // The next start finds no record, no layer, and a file that is still faulty.
    world.flush_rules();
    shell("nft delete table inet millrace; rm -r /run/millrace");
    let (code, text) = run(&["on", "--settings", file]);
    assert!(code == Some(1) && state(&text), "{text}");
    assert!(text.contains("guard.toml.valid"), "{text}");
    assert_eq!(run(&["status"]).0, Some(0));

    // A narrowed copy does not count as the guard's rule. (The protocol is a number: small systems have no
    // /etc/protocols.)
    let narrow = "ip rule del pref 981 && ip rule add pref 981 iif br-lan ipproto 6 unreachable";
    shell(narrow);
    assert_eq!(run(&["status"]).0, Some(1));
    assert_eq!(run(&["refresh"]).0, Some(0));
    assert_eq!(run(&["status"]).0, Some(0));
    assert!(
        !world
            .router
            .output("ip", ["rule"])
            .unwrap()
            .contains("ipproto")
    );

    // The directory of the record does not exist.
    assert_eq!(run(&["off"]).0, Some(0));
    shell("rm -r /run/millrace && touch /run/millrace");
    let (code, text) = run(&["on", "--lan", "br-lan"]);
    assert!(code == Some(1) && state(&text), "{text}");
    assert!(
        text.contains("/run/millrace/guard@") && text.contains("packet filter: in place"),
        "{text}"
    );
    assert!(text.contains("rules 900 to 981: in place"), "{text}");
    // A guard without a record can still be lifted.
    assert_eq!(run(&["off"]).0, Some(1));
    assert!(!world.router.output("ip", ["rule"]).unwrap().contains("981"));

    // Devices that do not exist.
    shell("rm /run/millrace");
    let (code, text) = run(&["on", "--lan", "br-none"]);
    let headline = "guard: nothing is blocked: there is no device br-none\n";
    assert!(code == Some(1) && text.contains(headline), "{text}");
    // At boot the device may come later.
    let (code, text) = run(&["on", "--lan", "br-none", "--if-asked"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = run(&["status"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("there is no device br-none"), "{text}");
    // A watch follows a guard that was switched on by hand, as the page says, and finds no fault.
    assert_eq!(run(&["on", "--lan", "br-lan"]).0, Some(0));
    let watch = world.router.command(PROGRAM).args(["guard", "watch"]);
    let mut watch = watch.spawn().unwrap();
    watch
        .wait_for_line("its first look", PATIENCE, told)
        .unwrap();
    watch.signal(Signal::SIGTERM).unwrap();
    let said = watch.wait_at_most(PATIENCE).unwrap().stderr;
    assert!(!said.contains("no LAN device is named"), "{said}");
    let entry = "[[entry]]\nwho = \"02:00:5e:10:00:01\"\nway = \"block\"\n";
    for (lan, wanted) in [("br-none", Some(1)), ("br-lan", Some(0))] {
        let file = directory.file("policy.toml", &format!("lan = [\"{lan}\"]\n{entry}"));
        for word in ["on", "status"] {
            let command = world.router.command(PROGRAM);
            let command = command.args(["policy", word, "--settings"]).arg(&file);
            let exit = command.exit().unwrap();
            assert_eq!(exit.status.code(), wanted, "{word}: {}", exit.stdout);
            let is_told = exit.stdout.contains("there is no device br-none");
            assert_eq!(is_told, lan == "br-none", "{word}: {}", exit.stdout);
        }
    }
}

/// A faulty first file, with no valid one before it, neither ends `watch` nor fills the log: a supervisor would restart
/// `watch`, which would log the same again.
#[test]
fn a_mistake_in_the_first_settings_is_told_once_and_waited_out() {
    if !ready() {
        return;
    }
    let world = Guarded::new();
    let directory = Directory::new();
    let (wrong, other) = ("lan = [\"br-lan\"\n", "lan = 7\n");
    let entry = "[[entry]]\nwho = \"br-lan\"\nthrough = \"mr-us\"\n";
    for (name, more) in [("guard", ""), ("policy", entry)] {
        let file = directory.path().join(format!("{name}.toml"));
        let write = |text: &str| directory.file(&format!("{name}.toml"), &format!("{text}{more}"));
        write(wrong);
        let words = [name, "watch", "--settings", file.to_str().unwrap()];
        let mut watch = world.router.command(PROGRAM).args(words).spawn().unwrap();
        let mut wait = |wanted: &str| {
            let told = |line: &str| line.contains(wanted);
            watch.wait_for_line(wanted, PATIENCE, told).unwrap();
        };
        wait("not valid TOML");
        write(other);
        wait("lan cannot be");
        write("lan = [\"br-lan\"]\n");
        wait(" held");
        watch.signal(Signal::SIGTERM).unwrap();
        let exit = watch.wait_at_most(PATIENCE).unwrap();
        let mistakes = exit.stderr.matches("cannot watch yet").count();
        assert_eq!(mistakes, 2, "{exit:?}");
    }
}
