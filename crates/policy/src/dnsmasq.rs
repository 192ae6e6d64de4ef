//! What `dnsmasq` is told: to put the addresses of names into sets, by a file of its own.
//!
//! Of several lines that fit a name `dnsmasq` takes only the one that fits best. So there is one line for each name, and the
//! line of a name that is below another has the sets of both. A line that it does not take would keep it from starting, and
//! DHCP with it: it is asked beforehand.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use config::policy::Policy;
use guard::record;

use crate::PolicyError;
use crate::table::{TABLE, set_of};

/// What the file is called.
const FILE: &str = "millrace-policy.conf";

/// While it is written: `dnsmasq` reads no file whose name begins so.
const NEW: &str = ".millrace-policy.conf.new";

/// Debian's directory.
const DEBIAN: &str = "/etc/dnsmasq.d";

/// Every OpenWrt has it.
const RELEASE: &str = "/etc/openwrt_release";

/// Where OpenWrt has the running configurations, named `dnsmasq.conf.SECTION`.
const CONFIGURATIONS: &str = "/var/etc";

const SCRIPT: &str = "/etc/init.d/dnsmasq";

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(30);

/// The lines for the names of entries; `None` without any.
#[must_use]
pub fn lines(policy: &Policy) -> Option<String> {
    let domains = policy.domains();
    if domains.is_empty() {
        return None;
    }
    let mut text =
        "# Made by `millrace policy` of its settings; changes here are lost.\n".to_owned();
    for domain in &domains {
        let above = domains.iter().filter(|it| domain.is_within(it));
        let sets: Vec<String> = above
            .flat_map(|it| {
                [4, 6].map(|family| format!("{family}#inet#{TABLE}#{}", set_of(it, family)))
            })
            .collect();
        text += &format!("nftset=/{domain}/{}\n", sets.join(","));
    }
    Some(text)
}

/// Has `dnsmasq` know the names of entries, and nothing of others. Whether anything had to be changed.
///
/// # Errors
/// When there is no `dnsmasq` that can, when it refuses the lines, or cannot be told.
pub(crate) fn set(policy: &Policy) -> Result<bool, PolicyError> {
    let Some(text) = lines(policy) else {
        return unset(policy);
    };
    let directory = directory(policy);
    let path = directory.as_ref().map(|it| it.join(FILE));
    if let Some(path) = &path
        && fs::read_to_string(path).is_ok_and(|it| it == text)
    {
        return Ok(false);
    }
    let version = said(&["--version"])?.1;
    if !knows_sets(&version) {
        return Err(PolicyError::NoNftset);
    }
    let (Some(directory), Some(path)) = (directory, path) else {
        return Err(PolicyError::NoDirectory);
    };
    let failed = |error| PolicyError::File {
        path: path.clone(),
        error,
    };
    let trial = record::path_of(Path::new(record::DIRECTORY), "policy", "dnsmasq");
    let written = fs::write(&trial, &text).map_err(failed);
    let asked =
        written.and_then(|()| said(&["--test", &format!("--conf-file={}", trial.display())]));
    let _ = fs::remove_file(&trial);
    match asked? {
        (true, _) => {}
        (false, words) => return Err(PolicyError::Refused(words)),
    }
    let new = directory.join(NEW);
    let put = || {
        fs::write(&new, &text)?;
        // `dnsmasq` reads it as a user of its own.
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
        fs::rename(&new, &path)
    };
    put().map_err(failed)?;
    // What was not read is written and told again.
    restart(policy).inspect_err(|_| drop(fs::remove_file(&path)))?;
    Ok(true)
}

/// Has it know no names. Whether anything had to be changed.
///
/// # Errors
/// When the file cannot be removed, or `dnsmasq` not be told.
pub(crate) fn unset(policy: &Policy) -> Result<bool, PolicyError> {
    let Some(directory) = directory(policy) else {
        return Ok(false);
    };
    let path = directory.join(FILE);
    match fs::remove_file(&path) {
        Ok(()) => restart(policy).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(PolicyError::File { path, error }),
    }
}

/// Whether the file is as it should be.
pub(crate) fn is_set(policy: &Policy) -> bool {
    let there = directory(policy).and_then(|it| fs::read_to_string(it.join(FILE)).ok());
    there == lines(policy)
}

/// Has it read its settings anew; what it has in memory of names is gone then, so that their addresses come to the sets.
pub(crate) fn restart(policy: &Policy) -> Result<(), PolicyError> {
    let words: Vec<&str> = match policy.restart.as_slice() {
        [] if Path::new(RELEASE).exists() && Path::new(SCRIPT).exists() => {
            vec![SCRIPT, "restart"]
        }
        [] if Path::new("/run/systemd/system").exists() => {
            vec!["systemctl", "--no-block", "try-restart", "dnsmasq.service"]
        }
        [] => vec![SCRIPT, "restart"],
        words => words.iter().map(String::as_str).collect(),
    };
    let failed = |reason: String| PolicyError::Restart {
        command: words.join(" "),
        reason,
    };
    // What it starts may keep its output open.
    let child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|error| failed(error.to_string()))?;
    let end = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(failed(status.to_string())),
            Err(error) => return Err(failed(error.to_string())),
            Ok(None) if Instant::now() >= end => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!(
                    "did not end in {} seconds",
                    LIMIT.as_secs()
                )));
            }
            Ok(None) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The directory that it reads.
fn directory(policy: &Policy) -> Option<PathBuf> {
    if let Some(directory) = &policy.dnsmasq {
        return Some(directory.clone());
    }
    let found = match Path::new(RELEASE).exists() {
        true => openwrt(),
        false => Some(PathBuf::from(DEBIAN)),
    };
    found.filter(|it| it.is_dir())
}

/// The one that the first instance was told of, which is the one that the router itself asks.
fn openwrt() -> Option<PathBuf> {
    let entries = fs::read_dir(CONFIGURATIONS).ok()?.flatten();
    let named = entries.filter(|it| it.file_name().to_string_lossy().starts_with("dnsmasq.conf"));
    let mut paths: Vec<PathBuf> = named.map(|it| it.path()).collect();
    paths.sort();
    let mut texts = paths
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts.find_map(|text| conf_dir(&text))
}

/// `conf-dir=/tmp/dnsmasq.d,*.conf`: the first word.
fn conf_dir(text: &str) -> Option<PathBuf> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("conf-dir="))?;
    let directory = value.split(',').next()?.trim();
    directory.starts_with('/').then(|| directory.into())
}

/// Whether its options of compilation, which it tells with its version, have sets of nftables.
fn knows_sets(version: &str) -> bool {
    version
        .split_ascii_whitespace()
        .any(|word| word == "nftset")
}

/// Whether it ended well, and what it said.
fn said(words: &[&str]) -> Result<(bool, String), PolicyError> {
    let output = Command::new("dnsmasq")
        .args(words)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => PolicyError::NoDnsmasq,
        _ => PolicyError::Refused(error.to_string()),
    })?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    text += complaint
        .lines()
        .find(|it| !it.trim().is_empty())
        .unwrap_or_default();
    Ok((output.status.success(), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::policy;

    fn of(text: &str) -> Policy {
        Policy::from_toml(text, Path::new("policy.toml")).unwrap()
    }

    #[test]
    fn each_name_has_one_line_with_the_sets_of_those_above_it() {
        let text = lines(&policy()).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let sets = |line: &str| line.matches("#inet#millrace_policy#d").count();
        assert!(lines[0].starts_with("nftset=/bank.example/4#inet#millrace_policy#d"));
        assert_eq!(
            lines.iter().map(|it| sets(it)).collect::<Vec<_>>(),
            [2, 2, 4]
        );
        assert!(lines[2].starts_with("nftset=/www.example.org/"));
        assert_eq!(super::lines(&of("")), None);
    }

    #[test]
    fn the_longest_line_is_one_that_dnsmasq_reads() {
        let label = "a".repeat(60);
        let names: Vec<String> = (1..=8)
            .map(|count| match count {
                // Each below the one before, the last as long as a name may be.
                8 => format!("{0}.{0}.{0}.{1}.b.b.b.b.b.b.org", label, "c".repeat(50)),
                _ => format!("{}org", "b.".repeat(count - 1)),
            })
            .collect();
        let text = format!(
            "lan = [\"a\"]\n[[entry]]\nto = {:?}\nway = \"around\"\n",
            &names[1..]
        );
        let policy = of(&text);
        assert_eq!(policy.fault(), None);
        let longest = lines(&policy).unwrap().lines().map(str::len).max().unwrap();
        assert!((800..1024).contains(&longest), "{longest}");
        let text = format!("lan = [\"a\"]\n[[entry]]\nto = {names:?}\nway = \"around\"\n");
        assert!(of(&text).fault().unwrap().contains("other names"));
    }

    #[test]
    fn a_dnsmasq_without_sets_is_known_by_its_options() {
        assert!(knows_sets("Compile time options: IPv6 ipset nftset auth"));
        assert!(!knows_sets(
            "Compile time options: IPv6 ipset no-nftset auth"
        ));
        assert!(!knows_sets("Compile time options: IPv6 no-ipset auth"));
    }

    #[test]
    fn the_directory_is_the_running_configurations() {
        let text = "# auto-generated\nport=53\nconf-dir=/tmp/dnsmasq.cfg01411c.d,*.conf\n";
        assert_eq!(conf_dir(text), Some("/tmp/dnsmasq.cfg01411c.d".into()));
        assert_eq!(conf_dir("port=53\n"), None);
    }
}
