//! Names of devices that have leases: files of `dnsmasq`, and what OpenWrt's settings fix.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use config::policy::{Mac, Policy, Who};

/// Where leases are, on OpenWrt and on Debian.
const FILES: [&str; 2] = ["/tmp/dhcp.leases", "/var/lib/misc/dnsmasq.leases"];

/// Where OpenWrt has fixed leases.
const FIXED: &str = "/etc/config/dhcp";

/// Largest file that is read, in bytes: a lease is about 80.
const FILE_MAX: u64 = 1 << 20;

/// Most hardware addresses under one name: a laptop has one for the cable and one without.
const MACS_MAX: usize = 8;

/// Most lines of the file that outlives a boot.
const KEPT_MAX: usize = 513;

/// Hardware addresses by names, in small letters.
pub(crate) type Names = BTreeMap<String, Vec<Mac>>;

/// The names that entries have, by leases of now and by what was known before: a lease ends while its device sleeps, and
/// another device may take its name.
pub(crate) fn names(policy: &Policy, before: &Names) -> Names {
    let mut found = Names::new();
    let mut wanted: Vec<String> = Vec::new();
    for who in policy.entries.iter().flat_map(|it| &it.who) {
        if let Who::Lease(name) = who {
            wanted.push(name.to_ascii_lowercase());
        }
    }
    if wanted.is_empty() {
        return found;
    }
    // Any device can ask for a lease by any name: those that the owner has written down come first, then those that were known,
    // so that none loses its entry to another.
    let mut all: Vec<(String, Mac)> = fixed(&text_of(Path::new(FIXED))).into_iter().collect();
    let known = |(name, macs): (&String, &Vec<Mac>)| {
        macs.iter()
            .map(|mac| (name.clone(), *mac))
            .collect::<Vec<_>>()
    };
    all.extend(before.iter().flat_map(known));
    match &policy.leases {
        Some(path) => all.extend(leases(&text_of(path))),
        None => FILES
            .iter()
            .for_each(|it| all.extend(leases(&text_of(Path::new(it))))),
    }
    for (name, mac) in all.into_iter().filter(|(name, _)| wanted.contains(name)) {
        let macs = found.entry(name).or_default();
        if !macs.contains(&mac) && macs.len() < MACS_MAX {
            macs.push(mac);
        }
    }
    for macs in found.values_mut() {
        macs.sort_unstable();
    }
    found
}

/// The names that were kept over a boot, of a file beside the settings.
pub(crate) fn kept(path: &Path) -> Names {
    let mut all = Names::new();
    for line in text_of(path).lines().take(KEPT_MAX) {
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next().filter(|it| !it.starts_with('#')) else {
            continue;
        };
        let macs: Vec<Mac> = words.filter_map(Mac::new).take(MACS_MAX).collect();
        if !macs.is_empty() {
            all.insert(name.to_ascii_lowercase(), macs);
        }
    }
    all
}

/// Keeps them. Nothing is written where nothing has changed: it is flash.
pub(crate) fn keep(names: &Names, path: &Path) -> io::Result<()> {
    if kept(path) == *names {
        return Ok(());
    }
    let mut text = "# Names of leases that entries have, with hardware addresses.\n".to_owned();
    for (name, macs) in names.iter().take(KEPT_MAX - 1) {
        let macs: Vec<String> = macs.iter().map(ToString::to_string).collect();
        text += &format!("{name} {}\n", macs.join(" "));
    }
    host::written_file::replace(path, text.as_bytes(), 0o600)
}

fn text_of(path: &Path) -> String {
    let is_small = fs::metadata(path).is_ok_and(|it| it.len() <= FILE_MAX);
    is_small
        .then(|| fs::read(path).ok())
        .flatten()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// The leases of IPv4, which have hardware addresses: `EXPIRY MAC ADDRESS NAME CLIENT`.
fn leases(text: &str) -> Vec<(String, Mac)> {
    let lease = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let mac = Mac::new(words.nth(1)?)?;
        let name = words.nth(1).filter(|it| *it != "*")?;
        Some((name.to_ascii_lowercase(), mac))
    };
    text.lines().filter_map(lease).collect()
}

/// Sections `config host` with `option name` and `option mac` or `list mac`, which may have several in one.
fn fixed(text: &str) -> Vec<(String, Mac)> {
    let (mut all, mut name, mut macs, mut is_host) = (Vec::new(), None, Vec::new(), false);
    let plain = |word: &str| word.trim_matches(['\'', '"']).to_owned();
    // A section ends where the next begins, the last with the file.
    for line in text.lines().chain(["config"]) {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next()) {
            (Some("config"), kind) => {
                if let Some(name) = name.take() {
                    let own = |mac: Mac| (String::clone(&name), mac);
                    all.extend(macs.drain(..).map(own));
                }
                macs.clear();
                is_host = kind.map(plain).as_deref() == Some("host");
            }
            (Some("option" | "list"), Some(key)) if is_host => match plain(key).as_str() {
                "name" => name = words.next().map(|it| plain(it).to_ascii_lowercase()),
                "mac" => macs.extend(words.filter_map(|it| Mac::new(&plain(it)))),
                _ => {}
            },
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mac(last: u8) -> Mac {
        Mac([2, 0, 0x5e, 0x10, 0, last])
    }

    #[test]
    fn names_are_those_of_leases_and_of_fixed_ones() {
        let text = "1700000000 02:00:5e:10:00:01 192.168.1.7 Television 01:02:00:5e:10:00:01\n\
             1700000000 02:00:5e:10:00:02 192.168.1.8 * *\nduid 00:01:00:01\n\
             1700000000 12345 2001:db8::7 television 00:01\n";
        assert_eq!(leases(text), [("television".to_owned(), mac(1))]);
        let text = "config dhcp 'lan'\n\toption name 'no'\n\toption mac '02:00:5e:10:00:09'\n\
             config host\n\toption name 'Console'\n\tlist mac '02:00:5e:10:00:03'\n\tlist mac '02:00:5E:10:00:04'\n\
             config host\n\toption mac '02:00:5e:10:00:05 02:00:5e:10:00:06'\n\toption name \"desk\"\n";
        let all = fixed(text);
        let names: Vec<&str> = all.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(names, ["console", "console", "desk", "desk"]);
        assert_eq!(all[3].1, mac(6));
    }

    #[test]
    fn a_name_is_known_when_its_lease_has_ended() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("leases");
        let text = format!(
            "leases = {path:?}\nlan = [\"a\"]\n[[entry]]\nwho = \"Television\"\nway = \"block\"\n"
        );
        let policy = Policy::from_toml(&text, Path::new("policy.toml")).unwrap();
        assert!(names(&policy, &Names::new()).is_empty());
        fs::write(&path, "1 02:00:5e:10:00:01 192.168.1.7 television *\n").unwrap();
        let known = names(&policy, &Names::new());
        assert_eq!(known["television"], [mac(1)]);
        fs::write(&path, "").unwrap();
        assert_eq!(names(&policy, &known), known);
        // Another device asks for the name: it joins, and the first one keeps its entry.
        fs::write(&path, "1 02:00:5e:10:00:02 192.168.1.8 television *\n").unwrap();
        assert_eq!(names(&policy, &known)["television"], [mac(1), mac(2)]);
    }

    #[test]
    fn names_outlive_a_boot_and_are_written_when_they_change() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("policy.toml.leases");
        let known: Names = [("television".to_owned(), vec![mac(1), mac(2)])].into();
        assert!(kept(&path).is_empty());
        keep(&known, &path).unwrap();
        assert_eq!(kept(&path), known);
        // It is not written again: this is still there.
        let marked = fs::read_to_string(&path).unwrap() + "# mark\n";
        fs::write(&path, &marked).unwrap();
        keep(&known, &path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), marked);
        keep(&Names::new(), &path).unwrap();
        assert!(kept(&path).is_empty());
        // Damage is no name, and one file is not read without end.
        fs::write(
            &path,
            format!("a\n\u{fffd} x\n{}", "b 02:00:5e:10:00:01\n".repeat(9999)),
        )
        .unwrap();
        assert_eq!(kept(&path).len(), 1);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            leases(&text);
            fixed(&text);
        }
    }
}
