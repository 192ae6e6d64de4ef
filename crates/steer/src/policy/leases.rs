//! Names of devices that have leases: from `dnsmasq`'s lease files, and from OpenWrt's static leases.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use config::forward::To;
use config::policy::{Mac, Policy, Who};

/// Lease files on OpenWrt and on Debian.
const FILES: [&str; 2] = ["/tmp/dhcp.leases", "/var/lib/misc/dnsmasq.leases"];

/// The UCI file with OpenWrt's static leases.
const FIXED: &str = "/etc/config/dhcp";

/// Largest file that is read, in bytes: a lease is about 80.
const FILE_MAX: u64 = 1 << 20;

/// Hardware addresses under one name that are kept for good: a laptop has one for the cable and one without.
const MACS_KEPT: usize = 8;

/// Maximum number of hardware addresses under one name, present leases included. A device can request any name, with
/// one invented address after another. Each needs an address of the pool, and most networks' pools are smaller than
/// this.
const MACS_MAX: usize = 512;

/// Longest name that is shown, in characters: that of a label in DNS.
const NAME_MAX: usize = 63;

/// Maximum number of lines in the file that outlives a boot.
const KEPT_MAX: usize = 513;

/// Hardware addresses by name, in lower case.
pub(crate) type Names = BTreeMap<String, Vec<Mac>>;

/// Finds the hardware addresses of the entries' names, from present leases and earlier knowledge. A lease ends while
/// its device sleeps, and another device may then take its name.
pub(crate) fn names(policy: &Policy, before: &Names) -> Names {
    let mut found = Names::new();
    let who = policy.entries.iter().flat_map(|it| &it.who);
    let wanted = who.filter_map(|it| match it {
        Who::Lease(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    let wanted: Vec<String> = wanted.collect();
    if wanted.is_empty() {
        return found;
    }
    // Any device can request a lease under any name. So the owner's static leases come first, then the first known
    // ones, then present leases, then past ones. The last group cannot push out the first three.
    let mut all: Vec<(String, Mac)> = fixed(&text_of(Path::new(FIXED)));
    let known = |most: usize| {
        let of = move |(name, macs): (&String, &Vec<Mac>)| {
            let pair = |mac: &Mac| (name.clone(), *mac);
            macs.iter().take(most).map(pair).collect::<Vec<_>>()
        };
        before.iter().flat_map(of)
    };
    all.extend(known(MACS_KEPT));
    for text in texts(policy) {
        all.extend(leases(&text));
    }
    all.extend(known(usize::MAX));
    for (name, mac) in all.into_iter().filter(|(name, _)| wanted.contains(name)) {
        let macs = found.entry(name).or_default();
        if !macs.contains(&mac) && macs.len() < MACS_MAX {
            macs.push(mac);
        }
    }
    found
}

/// A note if more devices share a name than one owner has; `None` for fewer.
pub(crate) fn crowd(name: &str, names: &Names) -> Option<String> {
    let count = names.get(&name.to_ascii_lowercase()).map_or(0, Vec::len);
    (count > MACS_KEPT).then(|| {
        let refused = match count < MACS_MAX {
            true => "",
            false => "; further ones are ignored",
        };
        format!(
            "{count} devices have claimed the name {name}, as any device can{refused}; name yours by its hardware \
             address"
        )
    })
}

/// The contents of the lease files.
fn texts(policy: &Policy) -> Vec<String> {
    match &policy.leases {
        Some(path) => vec![text_of(path)],
        None => FILES.iter().map(|it| text_of(Path::new(it))).collect(),
    }
}

/// A present lease of IPv4.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Lease {
    pub(crate) mac: Mac,
    pub(crate) address: IpAddr,
    /// The name that the device chose; empty if it chose none.
    pub(crate) name: String,
}

impl Lease {
    /// Reads a line: `EXPIRY MAC ADDRESS NAME CLIENT`.
    fn new(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mac = Mac::new(words.nth(1)?)?;
        let address = words.next()?.parse().ok()?;
        let name = words.next().filter(|it| *it != "*").unwrap_or_default();
        let name = name.chars().filter(|it| !it.is_control());
        Some(Self {
            mac,
            address,
            name: name.take(NAME_MAX).collect(),
        })
    }
}

/// The present leases, at most `most`.
pub(crate) fn all(policy: &Policy, most: usize) -> Vec<Lease> {
    let texts = texts(policy);
    let lines = texts.iter().flat_map(|it| it.lines());
    lines.filter_map(Lease::new).take(most).collect()
}

/// The IPv4 addresses of leases.
pub(crate) fn addresses(policy: &Policy) -> Vec<(Mac, IpAddr)> {
    let all = all(policy, usize::MAX).into_iter();
    all.map(|it| (it.mac, it.address)).collect()
}

/// The IPv4 address of a device that has a lease, or why it is not known.
pub(crate) fn lease_of(to: &To) -> Result<Ipv4Addr, String> {
    let texts = FILES.map(|it| text_of(Path::new(it)));
    lease_in(&texts, to)
}

fn lease_in(texts: &[String], to: &To) -> Result<Ipv4Addr, String> {
    let found = |line: &str| {
        let lease = Lease::new(line)?;
        let IpAddr::V4(address) = lease.address else {
            return None;
        };
        let is_it = match to {
            To::Address(ip) => *ip == address,
            To::Mac(it) => *it == lease.mac,
            To::Lease(name) => lease.name.eq_ignore_ascii_case(name),
        };
        is_it.then_some((lease.mac, address))
    };
    let mut all = texts.iter().flat_map(|it| it.lines()).filter_map(found);
    let (mac, address) = all.next().ok_or("the device has no lease")?;
    // Any device can request a lease under any name.
    match all.all(|it| it.0 == mac) {
        true => Ok(address),
        false => Err(
            "several devices have leases of this name; name one by its hardware address".to_owned(),
        ),
    }
}

/// Reads the names that were kept over a boot, from a file beside the settings.
pub(crate) fn kept(path: &Path) -> Names {
    of_lines(text_of(path).lines().take(KEPT_MAX))
}

/// Reads names from lines as [`lines`] makes them.
pub(crate) fn of_lines<'t>(lines: impl Iterator<Item = &'t str>) -> Names {
    let named = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().filter(|it| !it.starts_with('#'))?;
        let macs: Vec<Mac> = words.filter_map(Mac::new).take(MACS_MAX).collect();
        (!macs.is_empty()).then(|| (name.to_ascii_lowercase(), macs))
    };
    lines.filter_map(named).collect()
}

/// A line for each name, with its hardware addresses.
pub(crate) fn lines(names: &Names) -> impl Iterator<Item = String> {
    names.iter().map(|(name, macs)| {
        let macs: Vec<String> = macs.iter().map(ToString::to_string).collect();
        format!("{name} {}", macs.join(" "))
    })
}

/// Writes the names to the file. Unchanged names are not written, to spare the flash.
pub(crate) fn keep(names: &Names, path: &Path) -> io::Result<()> {
    if kept(path) == *names {
        return Ok(());
    }
    let mut text = "# Names of leases that entries have, with hardware addresses.\n".to_owned();
    for line in lines(names).take(KEPT_MAX - 1) {
        text += &format!("{line}\n");
    }
    host::written_file::replace(path, text.as_bytes(), 0o600)
}

fn text_of(path: &Path) -> String {
    let bytes = config::file::read(path, FILE_MAX).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads the IPv4 leases, which have hardware addresses: `EXPIRY MAC ADDRESS NAME CLIENT`.
fn leases(text: &str) -> Vec<(String, Mac)> {
    let lease = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let mac = Mac::new(words.nth(1)?)?;
        let name = words.nth(1).filter(|it| *it != "*")?;
        Some((name.to_ascii_lowercase(), mac))
    };
    text.lines().filter_map(lease).collect()
}

/// Reads sections `config host` with `option name` and `option mac` or `list mac`, with several addresses in one.
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
    use std::fs;

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
    fn a_device_is_found_by_its_lease_unless_two_claim_its_name() {
        let text = "1 02:00:5e:10:00:01 192.168.1.7 Television *\n1 02:00:5e:10:00:02 192.168.1.8 pc *\n\
             1 02:00:5e:10:00:03 192.168.1.9 PC *\nduid 00:01\n1 12345 2001:db8::7 television 00:01\n";
        let texts = [String::new(), text.to_owned()];
        for (to, wanted) in [
            (
                To::Lease("television".to_owned()),
                Ok([192, 168, 1, 7].into()),
            ),
            (To::Mac(mac(3)), Ok([192, 168, 1, 9].into())),
            (To::Lease("pc".to_owned()), Err("several devices")),
            (
                To::Lease("phone".to_owned()),
                Err("the device has no lease"),
            ),
            (To::Mac(mac(9)), Err("the device has no lease")),
        ] {
            let found = lease_in(&texts, &to);
            match wanted {
                Ok(address) => assert_eq!(found, Ok(address)),
                Err(why) => assert!(found.unwrap_err().starts_with(why)),
            }
        }
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
        // Another device requests the name: it joins, and the first one keeps its entry.
        fs::write(&path, "1 02:00:5e:10:00:02 192.168.1.8 television *\n").unwrap();
        assert_eq!(names(&policy, &known)["television"], [mac(1), mac(2)]);
        assert_eq!(addresses(&policy).len(), 1);
    }

    #[test]
    fn invented_devices_push_none_out_and_are_told() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("leases");
        let text = format!(
            "leases = {path:?}\nlan = [\"a\"]\n[[entry]]\nwho = \"television\"\nway = \"block\"\n"
        );
        let policy = Policy::from_toml(&text, Path::new("policy.toml")).unwrap();
        let invented = |from: u8| -> String {
            let line =
                |it| format!("1 02:00:5e:ff:{from:02x}:{it:02x} 192.168.1.{it} television *\n");
            (0..250).map(line).collect()
        };
        // Once before the device has its first lease, and once while it has one.
        fs::write(&path, invented(0)).unwrap();
        let mut known = names(&policy, &Names::new());
        assert!(crowd("Television", &known).unwrap().contains("250 devices"));
        for round in 1..9 {
            let own = "1 02:00:5e:10:00:01 192.168.1.251 television *\n";
            fs::write(&path, invented(round) + own).unwrap();
            known = names(&policy, &known);
            assert!(known["television"].contains(&mac(1)), "{round}");
            assert!(known["television"].len() <= MACS_MAX);
        }
        assert!(
            crowd("television", &known)
                .unwrap()
                .contains("further ones are ignored")
        );
        // One of the first devices keeps the name while it sleeps.
        let first: Names = [("television".to_owned(), vec![mac(1)])].into();
        assert_eq!(names(&policy, &first)["television"][0], mac(1));
        assert_eq!(crowd("television", &first), None);
    }

    /// Opening a FIFO would block.
    #[test]
    fn only_regular_files_have_leases() {
        let place = tempfile::tempdir().unwrap();
        let fifo = place.path().join("leases");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        assert!(kept(&fifo).is_empty());
    }

    #[test]
    fn names_outlive_a_boot_and_are_written_when_they_change() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("policy.toml.leases");
        let known: Names = [("television".to_owned(), vec![mac(1), mac(2)])].into();
        assert!(kept(&path).is_empty());
        keep(&known, &path).unwrap();
        assert_eq!(kept(&path), known);
        // An unchanged file is not written again: the mark is still there.
        let marked = fs::read_to_string(&path).unwrap() + "# mark\n";
        fs::write(&path, &marked).unwrap();
        keep(&known, &path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), marked);
        keep(&Names::new(), &path).unwrap();
        assert!(kept(&path).is_empty());
        // Damaged lines give no name, and reading stops at the maximum size.
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
