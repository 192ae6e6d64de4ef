//! Removal of OpenWrt's package and the handler's exits, with a stand-in for netifd, which has no pause between two
//! starts: it runs `teardown` when a process ends, and `setup` at once, unless the handler or `ifdown` forbade that.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Starts after which the stand-in gives up: a loop without end.
const MANY: usize = 50;

/// Runs a function of the handler, as netifd does, with stand-ins for netifd's own functions.
const HANDLER: &str = r#"
INCLUDE_ONLY=1
sleep() { echo "sleep $1"; }
proto_notify_error() { echo "fault $2"; }
proto_block_restart() { echo block; }
proto_kill_command() { :; }
# netifd reads the exit code alone, which is 0 after a signal.
proto_run_command() {
    shift
    "$@" 2>/dev/null
    code=$?
    [ "$code" -lt 128 ] || code=0
    echo "ended $code"
}
. ./millrace.sh
"$@"
"#;

/// netifd's and the system's programs for the script of the removal. Interfaces are files; `down` removes one, and its
/// process ends later.
const PROGRAMS: [(&str, &str); 4] = [
    (
        "ubus",
        r#"case "$2 $3" in
        "network.interface dump") echo dump ;;
        network.interface.*" down") echo "$3 ${2##*.}" >>log; rm "interfaces/${2##*.}" ;;
        *) exit 2 ;;
        esac"#,
    ),
    (
        "jsonfilter",
        r#"read -r words && [ "$words" = dump ] || exit 1
        [ "$*" = "-e @.interface[@.proto='millrace'].interface" ] || exit 2
        ls interfaces"#,
    ),
    (
        "pgrep",
        r#"[ "$*" = "-f ^$PWD/millrace netifd " ] || exit 2
        [ "$(grep -c sleep log)" -lt "$ENDS" ]"#,
    ),
    ("sleep", "echo sleep >>log"),
];

struct Router {
    directory: TempDir,
}

/// The life of an interface until its handler blocks it, or the stand-in gives up.
#[derive(Debug, Default)]
struct Life {
    starts: usize,
    pauses: usize,
    faults: Vec<String>,
}

impl Router {
    /// Installs handler and program, which runs these words of shell.
    fn new(program: &str) -> Self {
        let router = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        router.copy("millrace/lib/netifd/proto/millrace.sh", "millrace.sh");
        router.copy("millrace.prerm", "prerm");
        router.program("millrace", program);
        for (name, words) in PROGRAMS {
            router.program(&format!("bin/{name}"), words);
        }
        router
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Copies a file of the package, with the program's path in this directory.
    fn copy(&self, from: &str, to: &str) {
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/openwrt");
        let text = fs::read_to_string(packaging.join(from)).unwrap();
        let program = self.path("millrace");
        let text = text.replace("/usr/sbin/millrace", program.to_str().unwrap());
        fs::write(self.path(to), text).unwrap();
    }

    /// Writes an executable file. A shell does, because a child of another test would inherit this process's file, and
    /// Linux executes no file that somebody has open for writing.
    fn program(&self, name: &str, words: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", write, "sh"]).arg(path).arg(words);
        assert!(shell.status().unwrap().success());
    }

    fn shell(&self, script: &str, arguments: &[&str], ends: usize, error: Option<&str>) -> String {
        let path = format!(
            "{}:{}",
            self.path("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).args(arguments);
        shell.current_dir(self.directory.path()).env("PATH", path);
        shell.env("ENDS", ends.to_string());
        shell.env_remove("ERROR").env_remove("IPKG_INSTROOT");
        if let Some(error) = error {
            shell.env("ERROR", error);
        }
        String::from_utf8(shell.output().unwrap().stdout).unwrap()
    }

    /// `teardown` after the process ended with a code, or by `ifdown`.
    fn teardown(&self, error: Option<&str>) -> String {
        let words = ["proto_millrace_teardown", "office"];
        self.shell(HANDLER, &words, 0, error)
    }

    /// Starts the interface until it is blocked.
    fn live(&self) -> Life {
        let mut life = Life::default();
        while life.starts < MANY {
            life.starts += 1;
            let said = self.shell(HANDLER, &["proto_millrace_setup", "office"], 0, None);
            let error = said.lines().find_map(|it| it.strip_prefix("ended "));
            let said = said.clone() + &self.teardown(error);
            life.pauses += said.lines().filter(|it| it.starts_with("sleep")).count();
            let faults = said.lines().filter_map(|it| it.strip_prefix("fault "));
            life.faults.extend(faults.map(str::to_owned));
            if said.lines().any(|it| it == "block") {
                break;
            }
        }
        life
    }

    /// Removes the package with interfaces whose processes end after some seconds, and returns the calls.
    fn remove(&self, script: &str, ends: usize) -> Vec<String> {
        for interface in ["office", "home"] {
            let path = self.path("interfaces").join(interface);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::write(self.path("log"), "").unwrap();
        self.shell(script, &[], ends, None);
        let log = fs::read_to_string(self.path("log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }

    /// Starts by netifd in the time after the package was removed.
    fn starts_after_removal(&self) -> usize {
        for file in ["millrace.sh", "millrace"] {
            fs::remove_file(self.path(file)).unwrap();
        }
        let left = fs::read_dir(self.path("interfaces")).unwrap();
        left.map(|_| self.live().starts).sum()
    }
}

/// Calls of the firmware's functions: opkg sources the script with its own arguments after the script's name; apk runs
/// the lines with the version.
const REMOVALS: [&str; 2] = [
    "f() { ( . ./prerm ); }; f /usr/lib/opkg/info/millrace.prerm remove",
    "set -- 0.1.0-r1; . ./prerm",
];

#[test]
fn a_removal_takes_interfaces_down_first() {
    for script in REMOVALS {
        let router = Router::new("echo \"$*\" >>log");
        let all = ["down home", "down office", "sleep", "sleep"];
        let off = ["guard off", "policy off"];
        assert_eq!(router.remove(script, 2), [&all[..], &off].concat());
        assert_eq!(router.starts_after_removal(), 0, "{script}");
    }
    // A process that never ends: netifd kills it after five seconds.
    let router = Router::new("echo \"$*\" >>log");
    let called = router.remove(REMOVALS[0], 1000);
    let pauses = called.iter().filter(|it| *it == "sleep").count();
    assert!((5..10).contains(&pauses), "{called:?}");
    assert_eq!(called.last().unwrap(), "policy off");
}

#[test]
fn an_upgrade_keeps_interfaces_up() {
    let router = Router::new("echo \"$*\" >>log");
    let script = "f() { ( . ./prerm ); }; f /usr/lib/opkg/info/millrace.prerm upgrade 0.2.0-r1";
    assert_eq!(router.remove(script, 0), [""; 0]);
}

#[test]
fn a_missing_program_is_a_fault_and_not_a_loop() {
    let router = Router::new("");
    fs::remove_file(router.path("millrace")).unwrap();
    let life = router.live();
    assert_eq!(
        (life.starts, life.faults),
        (1, vec!["NO_PROGRAM".to_owned()])
    );
}

#[test]
fn a_program_that_ends_at_once_is_started_once_a_second() {
    // `panic = "abort"` ends the program by a signal, whose exit code is 0 for netifd.
    for program in ["exit 1", "exit 0", "kill -ABRT $$"] {
        let life = Router::new(program).live();
        assert_eq!((life.starts, life.pauses), (MANY, MANY), "{program}");
    }
    let router = Router::new("");
    assert_eq!(router.teardown(None), "", "ifdown does not wait");
    assert_eq!(router.teardown(Some("19")), "", "blocked by the program");
}
