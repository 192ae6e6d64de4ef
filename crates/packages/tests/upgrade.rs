//! The init scripts of guard and policy, with stand-ins for procd and the program, where OpenWrt starts it behind an upgrade.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// The call that `/etc/rc.common` makes.
const START: &str = r#"
. "$INIT"
PROG=program
SETTINGS=$FILE
program() {
    echo "$*" >>"$LOG"
    case "$2" in
    status | reload) return "$STATUS" ;;
    on) return "$ON" ;;
    esac
}
start() {
    start_service
    [ "$RELOADED" -ne 4 ] || echo start >>"$LOG"
}
procd_open_instance() { echo instance >>"$LOG"; }
procd_set_param() { :; }
procd_close_instance() { :; }
"$CALL"
"#;

/// The calls of a script, `guard` or `policy`, that has settings, where its `status` ends with that code.
fn called(script: &str, upgrade: Option<&str>, status: u8) -> Vec<String> {
    called_with(script, upgrade, status, ("start_service", 0))
}

/// The calls of a function of the script, where `on` ends with that code.
fn called_with(
    script: &str,
    upgrade: Option<&str>,
    status: u8,
    (call, on): (&str, u8),
) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join("log");
    let file = scratch.path().join("settings");
    fs::write(&file, "lan").unwrap();
    fs::write(&log, "").unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-uc", START])
        .env(
            "INIT",
            root.join(format!(
                "packaging/openwrt/millrace/etc/init.d/millrace-{script}"
            )),
        )
        .env("LOG", &log)
        .env("FILE", &file)
        .env("CALL", call)
        .env("ON", on.to_string())
        .env("STATUS", status.to_string())
        .env_remove("PKG_UPGRADE");
    if let Some(upgrade) = upgrade {
        shell.env("PKG_UPGRADE", upgrade);
    }
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(log).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn an_upgrade_does_not_set_a_guard_that_is_off() {
    assert_eq!(called("guard", Some("1"), 3), ["guard status"]);
    assert_eq!(called("policy", Some("1"), 3), ["policy status"]);
}

#[test]
fn an_upgrade_goes_on_with_a_guard_that_is_on_in_part_or_unknown() {
    for status in [0, 1, 127] {
        let all = ["guard status", "guard on --if-asked", "instance"];
        assert_eq!(called("guard", Some("1"), status), all, "{status}");
        let all = ["policy status", "policy on", "instance"];
        assert_eq!(called("policy", Some("1"), status), all, "{status}");
    }
}

/// The script reads no file: any content is left to the program.
#[test]
fn the_program_decides_whether_there_is_something_to_watch() {
    let guard = |call, code| called_with("guard", None, code, (call, code));
    for code in [0, 1] {
        let start = ["guard on --if-asked", "instance"];
        assert_eq!(guard("start_service", code), start, "{code}");
        // Once: what was on by hand stays in force.
        let reload = ["guard reload", "instance"];
        assert_eq!(guard("reload_service", code), reload, "{code}");
    }
    // Nothing is asked for: what runs ends, and nothing is started again and again.
    assert_eq!(guard("start_service", 4), ["guard on --if-asked"]);
    assert_eq!(guard("reload_service", 4), ["guard reload", "start"]);
    // Let go by hand.
    assert_eq!(guard("reload_service", 3), ["guard reload"]);
}

#[test]
fn a_start_of_the_user_or_at_boot_sets_it() {
    // opkg says 0 where it installs.
    for upgrade in [None, Some(""), Some("0")] {
        for script in ["guard", "policy"] {
            let how = if script == "guard" { " --if-asked" } else { "" };
            let all = [format!("{script} on{how}"), "instance".to_owned()];
            assert_eq!(called(script, upgrade, 3), all, "{upgrade:?}");
        }
    }
}
