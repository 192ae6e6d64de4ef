//! OpenWrt's init scripts after an upgrade, with stand-ins for procd and the program, and `/etc/config/millrace` after
//! an installation.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Calls the script as `/etc/rc.common` does.
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
# Whether there is a chain that holds, and what is made in its place.
nft() {
    case "$1" in
    list) return "$HELD" ;;
    *) grep drop >>"$LOG" ;;
    esac
}
logger() { :; }
sleep() { echo sleep >>"$LOG"; }
start() {
    start_service
    [ "$RELOADED" -ne 4 ] || echo start >>"$LOG"
}
procd_open_instance() { echo instance >>"$LOG"; }
procd_set_param() { :; }
procd_close_instance() { :; }
"$CALL"
"#;

/// The calls made by the script `guard` or `policy` with settings present, if `status` exits with `status`.
fn called(script: &str, upgrade: Option<&str>, status: u8) -> Vec<String> {
    called_with(script, upgrade, status, ("start_service", 0))
}

/// The calls made by a function of the script, if the command in `call` exits with the given code.
fn called_with(script: &str, upgrade: Option<&str>, status: u8, call: (&str, u8)) -> Vec<String> {
    called_where(script, upgrade, status, call, true)
}

/// The calls made by a function, with or without the blocking chain.
fn called_where(
    script: &str,
    upgrade: Option<&str>,
    status: u8,
    (call, on): (&str, u8),
    held: bool,
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
        .env("HELD", u8::from(!held).to_string())
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

/// The script reads no file, and the program judges any content.
#[test]
fn the_program_decides_whether_there_is_something_to_watch() {
    let guard = |call, code| called_with("guard", None, code, (call, code));
    for code in [0, 1] {
        let start = ["guard on --if-asked", "instance"];
        assert_eq!(guard("start_service", code), start, "{code}");
        // Reload calls the program once: a guard switched on by hand stays on.
        let reload = ["guard reload", "instance"];
        assert_eq!(guard("reload_service", code), reload, "{code}");
    }
    // No settings exist: a running instance ends, and procd does not restart it again and again.
    assert_eq!(guard("start_service", 4), ["guard on --if-asked"]);
    assert_eq!(guard("reload_service", 4), ["guard reload", "start"]);
    // The guard was switched off by hand.
    assert_eq!(guard("reload_service", 3), ["guard reload"]);
}

#[test]
fn a_start_of_the_user_or_at_boot_sets_it() {
    // opkg sets 0 for a fresh installation.
    for upgrade in [None, Some(""), Some("0")] {
        for script in ["guard", "policy"] {
            let how = if script == "guard" { " --if-asked" } else { "" };
            let all = [format!("{script} on{how}"), "instance".to_owned()];
            assert_eq!(called(script, upgrade, 3), all, "{upgrade:?}");
        }
    }
}

/// Starts a service as OpenWrt does after an upgrade, or reloads it, and prints what procd compares with the instance
/// before: it starts an instance anew if the command or a listed file differs. With a `reload_signal` it never does.
const COMPARED: &str = r#"
. "$INIT"
PROG=$PWD/program
SETTINGS=$PWD/settings
config_load() { :; }
config_get_bool() { enabled=1; }
config_list_foreach() { :; }
start() { start_service; }
procd_open_instance() {
    files=
    signal=
}
procd_set_param() {
    case "$1" in
    file)
        shift
        files=$*
        ;;
    reload_signal) signal=$2 ;;
    esac
}
procd_close_instance() { [ -n "$signal" ] || cat $files 2>/dev/null | md5sum; }
procd_send_signal() { echo "$*"; }
printf '#!/bin/sh\n# %s\n' "$VERSION" >"$PROG"
chmod 755 "$PROG"
echo "$CONTENT" >"$SETTINGS"
"$CALL"
"#;

/// What procd compares, and signals, of the service of a script.
fn compared(script: &Path, call: &str, version: &str, settings: &str) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-uc", COMPARED]).current_dir(&scratch);
    shell.env("INIT", fs::canonicalize(script).unwrap());
    shell.env("CALL", call).env("PKG_UPGRADE", "1");
    let output = shell.env("VERSION", version).env("CONTENT", settings);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_upgrade_restarts_every_service() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = root.join("packaging/openwrt/millrace/etc/init.d");
    let scripts = fs::read_dir(&directory).unwrap();
    let scripts = scripts.map(|it| it.unwrap().path());
    let services = scripts.filter(|it| fs::read_to_string(it).unwrap().contains("instance"));
    let services: Vec<_> = services.collect();
    assert_eq!(services.len(), 5);
    for script in services {
        let start = |version| compared(&script, "start_service", version, "settings");
        assert_eq!(start("1"), start("1"), "{}", script.display());
        assert_ne!(start("1"), start("2"), "{}", script.display());
    }
    // Alerts read changed settings in place.
    let alerts = directory.join("millrace-alerts");
    let start = compared(&alerts, "start_service", "1", "settings");
    let reload = compared(&alerts, "reload_service", "1", "changed");
    assert_eq!(reload, format!("millrace-alerts * HUP\n{start}"));
}

/// Starts the script that renews interfaces, with one interface of another protocol.
const RENEWED: &str = r#"
. "$INIT"
config_load() { :; }
config_foreach() {
    for name in office wan home; do
        "$1" "$name"
    done
}
config_get() {
    case "$2" in
    wan) eval "$1=dhcp" ;;
    *) eval "$1=millrace" ;;
    esac
}
ubus() { echo "$*" >>calls; }
touch calls
start_service
cat calls
"#;

#[test]
fn an_upgrade_renews_the_interfaces() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = fs::canonicalize(root.join("packaging/openwrt/millrace/etc/init.d/millrace"));
    let calls = |upgrade: &[(&str, &str)]| {
        let scratch = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-uc", RENEWED]).current_dir(&scratch);
        shell
            .env("INIT", script.as_ref().unwrap())
            .env_remove("PKG_UPGRADE");
        let output = shell.envs(upgrade.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let renew = |name| format!("call network.interface.{name} renew\n");
    let all = ["office", "home"].map(renew).concat();
    assert_eq!(calls(&[("PKG_UPGRADE", "1")]), all);
    // At boot and at an installation, netifd starts them.
    assert_eq!(calls(&[]), "");
    assert_eq!(calls(&[("PKG_UPGRADE", "0")]), "");
}

/// Installs the configuration file and runs the package's script, then changes the file as a user does. `reload_config`
/// announces files whose sum differs from that of its last run, so a file that is new to it is not announced.
const CHANGE: &str = r#"
uci() { cat "config/$2"; }
reload_config() {
    mkdir check
    for file in config/*; do
        uci show "${file##*/}" >"$PWD/check/${file##*/}"
    done
    if [ -f config.md5 ]; then
        md5sum -c config.md5 2>/dev/null | grep FAILED | cut -d: -f1 | xargs -rn1 basename
    fi
    md5sum "$PWD"/check/* >config.md5
    rm -r check
}
mkdir config
echo 1 >config/network
[ "$BOOT" = no ] || reload_config
if [ -e "$PACKAGE/etc/config/millrace" ]; then
    cp "$PACKAGE/etc/config/millrace" config/
fi
eval "$POSTINST"
eval "$POSTINST"
echo "config monitor 'monitor'" >>config/millrace
reload_config
echo "option enabled '1'" >>config/millrace
reload_config
"#;

#[test]
fn the_first_change_of_the_settings_is_announced() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packaging = fs::canonicalize(root.join("packaging/openwrt")).unwrap();
    let announced = |boot: &str| {
        let scratch = tempfile::tempdir().unwrap();
        let here = scratch.path().to_str().unwrap();
        let script = fs::read_to_string(packaging.join("millrace.postinst")).unwrap();
        let script = script.replace("/var/run/config.check", &format!("{here}/check"));
        let output = Command::new("sh")
            .args(["-c", CHANGE])
            .current_dir(scratch.path())
            .env("PACKAGE", packaging.join("millrace"))
            .env("POSTINST", script.replace("/var/run", here))
            .env("BOOT", boot)
            .env_remove("IPKG_INSTROOT")
            .env_remove("PKG_UPGRADE")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(announced("yes"), "millrace\nmillrace\n");
    // Before its first run at boot `reload_config` knows of no file, and procd starts every service afterwards.
    assert_eq!(announced("no"), "millrace\n");
}

#[test]
fn shipped_settings_start_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let settings = root.join("packaging/openwrt/millrace/etc/config/millrace");
    let settings = fs::read_to_string(settings).unwrap();
    let lines = settings.lines().map(str::trim);
    let lines: Vec<&str> = lines
        .filter(|it| !it.is_empty() && !it.starts_with('#'))
        .collect();
    assert_eq!(lines, ["config monitor 'monitor'", "option enabled '0'"]);
}

/// The network starts next without waiting: if required protection fails, nothing is forwarded.
#[test]
fn what_cannot_be_set_at_boot_forwards_nothing() {
    let start = |script, code, held| called_where(script, None, 3, ("start_service", code), held);
    for (script, on) in [("guard", "guard on --if-asked"), ("policy", "policy on")] {
        // The kernel refused, the program crashed, or it is missing.
        for code in [1, 134, 127] {
            let chain = match script {
                "guard" => "millrace guard",
                _ => "millrace_policy forward",
            };
            let told = start(script, code, false);
            let (last, before) = told.split_last().unwrap();
            assert_eq!(last, "instance");
            let (dropped, tries) = before.split_last().unwrap();
            assert_eq!(
                dropped.trim(),
                format!("add rule inet {chain} counter drop")
            );
            assert_eq!(tries, [on, "sleep", on, "sleep", on], "{code}");
            // Part of the protection is in force.
            assert_eq!(start(script, code, true), [on, "instance"], "{code}");
        }
        assert_eq!(start(script, 0, false), [on, "instance"]);
    }
    assert_eq!(start("guard", 4, false), ["guard on --if-asked"]);
}

/// systemd starts the units ordered after a failed unit anyway, so only a unit that keeps running delays the network.
#[test]
fn a_program_that_crashes_holds_the_network_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for name in ["guard", "policy"] {
        let unit = root.join(format!(
            "packaging/debian/millrace/lib/systemd/system/millrace-{name}.service"
        ));
        let unit = fs::read_to_string(unit).unwrap();
        let line = unit.lines().find_map(|it| it.strip_prefix("ExecStartPre="));
        let script = line.unwrap().strip_prefix("/bin/sh -c '").unwrap();
        let script = script.strip_suffix('\'').unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let calls = scratch.path().join("calls");
        // Killed twice by a signal, then successful.
        let program = "sleep() { :; }; millrace() { echo \"$*\" >>\"$CALLS\"; [ \"$(wc -l <\"$CALLS\")\" -gt 2 ] || return 134; }";
        let script = format!(
            "{program}; {}",
            script.replace("/usr/sbin/millrace", "millrace")
        );
        let status = Command::new("sh")
            .args(["-uc", &script])
            .env("CALLS", &calls)
            .status()
            .unwrap();
        assert!(status.success());
        let calls = fs::read_to_string(calls).unwrap();
        assert_eq!(calls, format!("{name} on --wait\n").repeat(3));
    }
}
