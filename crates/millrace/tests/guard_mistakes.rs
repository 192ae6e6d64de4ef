//! The guard where its settings or its record are not as they should be: nothing is let go.

use acceptance::guarded::Guarded;
use acceptance::{Directory, PATIENCE, PROGRAM};
use lab::tools;
use nix::sys::signal::Signal;

fn ready() -> bool {
    acceptance::ready() && lab::require(tools::find("nft")).is_some()
}

/// Settings in force stay so with a mistake in the file, and a mistake at the start lets nothing go; without a place
/// for the record both layers are set all the same.
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
    // Another table: the route that the guard has made in the first one goes.
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
        text.contains("not valid TOML") && text.contains("still in force"),
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

    // The next start finds this: no record, no layer, and the file still wrong.
    world.flush_rules();
    shell("nft delete table inet millrace; rm -r /run/millrace");
    let (code, text) = run(&["on", "--settings", file]);
    assert!(code == Some(1) && state(&text), "{text}");
    assert!(text.contains("guard.toml.valid"), "{text}");
    assert_eq!(run(&["status"]).0, Some(0));

    // A rule of the guard's that was made narrower is not taken for it. (The protocol by number: a small system has no
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

    // No place for the record.
    assert_eq!(run(&["off"]).0, Some(0));
    shell("rm -r /run/millrace && touch /run/millrace");
    let (code, text) = run(&["on", "--lan", "br-lan"]);
    assert!(code == Some(1) && state(&text), "{text}");
    assert!(
        text.contains("/run/millrace/guard@") && text.contains("packet filter: in place"),
        "{text}"
    );
    assert!(text.contains("rules 900 to 981: in place"), "{text}");
    // A guard that cannot be recorded can be lifted.
    assert_eq!(run(&["off"]).0, Some(1));
    assert!(!world.router.output("ip", ["rule"]).unwrap().contains("981"));

    // Devices that are not there.
    shell("rm /run/millrace");
    assert_eq!(run(&["on", "--lan", "br-none"]).0, Some(0));
    let (code, text) = run(&["status"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("there is no device br-none"), "{text}");
}

/// A mistake in the first settings, where none were good before, neither ends the watch nor fills the log: whatever starts it
/// again each time would have it log the same each time.
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
        let mistakes = exit.stderr.matches("it is not watched yet").count();
        assert_eq!(mistakes, 2, "{exit:?}");
    }
}
