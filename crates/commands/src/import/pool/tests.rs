use super::*;
use crate::blocks::CA;
use std::process::Command as Program;

const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const KEYS: [&str; 3] = [
    "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
    "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=",
    "gN65BkIKy1eCE9pP1wdc8ROUtkHLF2PfAqYdyYBz6EA=",
];

/// A directory of files, and a place where they are unpacked.
struct Bench {
    directory: tempfile::TempDir,
    scratch: tempfile::TempDir,
}

impl Bench {
    fn new(files: &[(&str, &str)]) -> Self {
        let [directory, scratch] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fs::create_dir(directory.path().join("files")).unwrap();
        let bench = Self { directory, scratch };
        for (name, text) in files {
            fs::write(bench.files().join(name), text).unwrap();
        }
        bench
    }

    /// The usual files of a provider.
    fn wireguard() -> Self {
        let bench = Self::new(&[("README.txt", "hello")]);
        for (at, name) in ["nl-ams-001", "nl-ams-002", "se-sto-001"]
            .iter()
            .enumerate()
        {
            let file = format!("{name}.conf");
            fs::write(bench.files().join(file), server(at, "")).unwrap();
        }
        bench
    }

    fn files(&self) -> PathBuf {
        self.directory.path().join("files")
    }

    fn gather(&self, source: &Path, only: &[&str], choose: Choose) -> Result<Gathered, String> {
        let choice = Choice {
            only: only.iter().map(|it| (*it).to_owned()).collect(),
            choose,
        };
        let gathered = gather(source, &choice, self.scratch.path());
        let left = fs::read_dir(self.scratch.path()).unwrap().count();
        assert_eq!(left, 0, "keys are left behind");
        let gathered = gathered.map_err(|error| error.to_string())?;
        gathered.ok_or_else(|| "a single file".to_owned())
    }

    fn of_files(&self) -> Result<Gathered, String> {
        self.gather(&self.files(), &[], Choose::Order)
    }

    /// Packs the files in the directory by this program; `None` if it is missing.
    fn pack(&self, name: &str, program: &str, words: &[&str]) -> Option<PathBuf> {
        let path = self.directory.path().join(name);
        let mut command = Program::new(program);
        command.args(words).arg(&path).arg(".");
        let packed = command.current_dir(self.files()).output();
        let packed = lab_free(packed)?;
        assert!(packed.status.success(), "{packed:?}");
        Some(path)
    }
}

/// A missing program is no failure of this test: the interoperation tests require both.
fn lab_free<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        result => Some(result.unwrap()),
    }
}

fn server(at: usize, more: &str) -> String {
    let key = KEYS[at];
    format!(
        "[Interface]\nPrivateKey = {PRIVATE}\nAddress = 10.2.0.2/32\nDNS = 10.2.0.1\n{more}[Peer]\nPublicKey = {key}\n\
        AllowedIPs = 0.0.0.0/0\nEndpoint = 192.0.2.{at}:51820\n"
    )
}

fn tunnel(gathered: &Gathered) -> Tunnel {
    let import = wgquick::parse(&gathered.text, "away.conf", Permissions::NONE);
    assert!(import.report.is_clean(), "{:?}", import.report);
    import.into_tunnel().unwrap().0
}

#[test]
fn a_directory_becomes_one_pool() {
    let bench = Bench::wireguard();
    let gathered = bench.of_files().unwrap();
    assert_eq!(
        gathered.summary,
        "3 servers of 2 countries (nl 2, se 1), nl-ams-001 first"
    );
    assert!(gathered.text.ends_with(&server(0, "")));
    let names = |tunnel: &Tunnel| tunnel.servers().into_iter().map(|it| it.name);
    let all: Vec<String> = names(&tunnel(&gathered)).collect();
    assert_eq!(all, ["nl-ams-001", "nl-ams-002", "se-sto-001"]);

    // Servers left out stay in the file, for `millrace pool`.
    let some = bench.gather(&bench.files(), &["se", "*-002"], Choose::Fastest);
    let some = some.unwrap();
    assert_eq!(
        some.summary,
        "2 servers of 2 countries (nl 1, se 1), the fastest first"
    );
    let made = tunnel(&some);
    assert_eq!(made.pool.as_ref().unwrap().servers.len(), 3);
    assert!(names(&made).eq(["nl-ams-002", "se-sto-001"].map(str::to_owned)));
    assert_eq!(made.peers[0].public_key.to_base64().as_str(), KEYS[1]);
    let none = bench.gather(&bench.files(), &["us"], Choose::Order);
    assert!(none.err().unwrap().contains("fits --only us"));
}

#[test]
fn archives_become_the_same_pool() {
    let bench = Bench::wireguard();
    fs::create_dir(bench.files().join("deeper")).unwrap();
    let deeper = bench.files().join("deeper/us-nyc-001.conf");
    fs::write(deeper, server(2, "")).unwrap();
    let archives = [
        bench.pack("a.zip", "zip", &["-qr"]),
        bench.pack("a.tar.gz", "tar", &["-czf"]),
        bench.pack("a.tar", "tar", &["-cf"]),
    ];
    for archive in archives.into_iter().flatten() {
        let gathered = bench.gather(&archive, &[], Choose::Random);
        let gathered = gathered.unwrap_or_else(|error| panic!("{}: {error}", archive.display()));
        assert_eq!(
            gathered.summary,
            "4 servers of 3 countries (nl 2, se 1, us 1), in any order"
        );
        assert_eq!(tunnel(&gathered).servers().len(), 4);
    }
}

/// An entry of a crafted archive: its name, and its text or the target of a link.
enum Entry {
    File(String, String),
    Symbolic(&'static str, String),
    /// Only in a tar archive.
    Hard(&'static str, String),
}

impl Entry {
    fn file(name: &str, text: &str) -> Self {
        Self::File(name.to_owned(), text.to_owned())
    }
}

/// A tar archive with these entries.
fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in entries {
        let (kind, name, target, body) = match entry {
            Entry::File(name, text) => (b'0', name.as_str(), "", text.as_str()),
            Entry::Hard(name, target) => (b'1', *name, target.as_str(), ""),
            Entry::Symbolic(name, target) => (b'2', *name, target.as_str(), ""),
        };
        let mut header = [0; 512];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, name);
        put(100, "0000644\x000000000\x000000000\x00");
        put(124, &format!("{:011o}\0{:011o}\0        ", body.len(), 0));
        put(157, target);
        put(257, "ustar\x0000");
        header[156] = kind;
        let sum: u32 = header.iter().map(|it| u32::from(*it)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend(header);
        out.extend(body.as_bytes());
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

/// A zip archive with these entries, not compressed.
fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut out, mut directory, mut count) = (Vec::new(), Vec::new(), 0u16);
    for entry in entries {
        let (mode, name, body) = match entry {
            Entry::File(name, text) => (0o100_644_u32, name.as_str(), text.as_str()),
            Entry::Symbolic(name, target) => (0o120_777, *name, target.as_str()),
            Entry::Hard(..) => continue,
        };
        let (offset, size) = (out.len() as u32, body.len() as u32);
        let mut common = Vec::new();
        common.extend([20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0]);
        common.extend(crc(body.as_bytes()).to_le_bytes());
        common.extend([size.to_le_bytes(), size.to_le_bytes()].concat());
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend([name.as_bytes(), body.as_bytes()].concat());
        // Made by Unix, so that the attributes hold the mode.
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        directory.extend([0; 6]);
        directory.extend((mode << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
        count += 1;
    }
    let (offset, size) = (out.len() as u32, directory.len() as u32);
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    out.extend([size.to_le_bytes(), offset.to_le_bytes()].concat());
    out.extend([0, 0]);
    out
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = !0;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Archives that a stranger made reach nothing outside: links, paths that lead elsewhere, names like options, large files
/// and many files.
#[test]
fn hostile_archives_reach_nothing() {
    let bench = Bench::new(&[]);
    let victim = bench.directory.path().join("victim");
    fs::create_dir(&victim).unwrap();
    let secret = bench.directory.path().join("secret.conf");
    fs::write(&secret, server(2, "")).unwrap();
    let path = |it: &Path| it.to_str().unwrap().to_owned();
    let good = || Entry::file("nl-1.conf", &server(0, ""));
    let option = format!(
        "--checkpoint-action=exec=touch {}.conf",
        victim.join("x").display()
    );
    let many = (0..1300).map(|at| Entry::file(&format!("a{at}.conf"), ""));
    let long = "x".repeat(85);
    let long = |at: usize| Entry::file(&format!("{at}{long}.conf"), &server(0, ""));
    let padded = server(0, &format!("{}\n", "#".repeat(60_000)));
    let padded = |at: usize| Entry::file(&format!("a{at}.conf"), &padded);
    let stories: [(&str, Vec<Entry>, Option<&str>); 12] = [
        ("good", vec![good()], Some("")),
        (
            "up",
            vec![good(), Entry::file("../escaped.conf", &server(1, ""))],
            None,
        ),
        (
            "link",
            vec![good(), Entry::Symbolic("us-1.conf", path(&secret))],
            Some(""),
        ),
        (
            "hard",
            vec![good(), Entry::Hard("us-1.conf", path(&secret))],
            None,
        ),
        (
            "through",
            vec![
                good(),
                Entry::Symbolic("dir.conf", path(&victim)),
                Entry::file("dir.conf/x.conf", &server(1, "")),
            ],
            None,
        ),
        (
            "option",
            vec![good(), Entry::File(option, server(1, ""))],
            None,
        ),
        (
            "large",
            vec![
                good(),
                Entry::file("b.conf", &server(1, &"#".repeat(2 << 20))),
            ],
            Some("larger than 64 KiB"),
        ),
        ("many", many.collect(), Some("more than 1000 files")),
        (
            "many long names",
            (0..1300).map(long).collect(),
            Some("more than 1000 files"),
        ),
        ("long names", (0..900).map(long).collect(), Some("")),
        (
            "big",
            (0..200).map(padded).collect(),
            Some("more than 8 MiB"),
        ),
        (
            "twice",
            vec![
                Entry::file("udp/nl-1.conf", &server(0, "")),
                Entry::file("tcp/nl-1.conf", &server(1, "")),
            ],
            Some("two files give this name"),
        ),
    ];
    for (story, entries, expected) in stories {
        for (ending, bytes, program) in [
            ("tar", tar(&entries), "tar"),
            ("zip", zip(&entries), "unzip"),
        ] {
            if lab_free(Program::new(program).arg("--help").output()).is_none() {
                continue;
            }
            let archive = bench.directory.path().join(format!("{story}.{ending}"));
            fs::write(&archive, bytes).unwrap();
            let gathered = bench.gather(&archive, &[], Choose::Order);
            let outcome = gathered.as_ref().err().cloned().unwrap_or_default();
            if let Some(words) = expected {
                assert!(
                    outcome.contains(words) && outcome.is_empty() == words.is_empty(),
                    "{story} {ending}: {outcome}"
                );
            }
            if let Ok(gathered) = gathered {
                let names = tunnel(&gathered).servers().into_iter().map(|it| it.name);
                let names: Vec<String> = names.collect();
                assert!(
                    !names.iter().any(|it| it == "us-1"),
                    "{story} {ending}: {names:?}"
                );
            }
            assert_eq!(
                fs::read_dir(&victim).unwrap().count(),
                0,
                "{story} {ending}"
            );
        }
    }
    for ending in ["tar.gz", "tar", "zip"] {
        let damaged = bench.directory.path().join(format!("damaged.{ending}"));
        fs::write(&damaged, [0x1f, 0x8b, 8, 0, 0]).unwrap();
        let outcome = bench.gather(&damaged, &[], Choose::Order).err().unwrap();
        assert!(
            outcome.contains("damaged") || outcome.contains("is missing"),
            "{ending}: {outcome}"
        );
    }
    // Links in a directory are not followed, either.
    std::os::unix::fs::symlink(&secret, bench.files().join("us-1.conf")).unwrap();
    fs::hard_link(&secret, bench.files().join("us-2.conf")).unwrap();
    assert!(bench.of_files().err().unwrap().contains("no file in it"));
}

/// A killed import leaves keys behind, until the next one.
#[test]
fn keys_of_a_killed_import_are_removed() {
    let bench = Bench::new(&[]);
    let archive = bench.directory.path().join("a.tar");
    fs::write(&archive, tar(&[Entry::file("nl-1.conf", &server(0, ""))])).unwrap();
    let mut ended = Program::new("true").spawn().unwrap();
    ended.wait().unwrap();
    // The second had the number of this process.
    for pid in [ended.id(), std::process::id()] {
        let left = bench.scratch.path().join(format!("import-{pid}"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("se-1.conf"), server(1, "")).unwrap();
    }
    bench.gather(&archive, &[], Choose::Order).unwrap();
    let running = bench.scratch.path().join("import-1");
    fs::create_dir(&running).unwrap();
    gather(&archive, &Choice::default(), bench.scratch.path()).unwrap();
    assert!(running.exists());
}

#[test]
fn files_of_openvpn_are_joined() {
    let profile = |remotes: &str, more: &str| {
        format!("# a comment\nclient\ndev tun\n{remotes}\nauth-user-pass\n{more}{CA}")
    };
    let one = profile(
        "proto udp\nremote nl1.example 1194\nremote nl1.example 443 tcp",
        "",
    );
    let two = profile("remote se1.example 1195 # of Sweden\nport 7\nproto udp", "");
    let bench = Bench::new(&[("nl1.example.ovpn", &one), ("se1.example.ovpn", &two)]);
    let gathered = bench.of_files().unwrap();
    assert_eq!(
        gathered.summary,
        "2 servers of 2 countries (nl 1, se 1), nl1.example first"
    );
    let lines: Vec<&str> = gathered.text.lines().take(8).collect();
    assert_eq!(
        lines,
        [
            "# a comment",
            "client",
            "dev tun",
            "remote nl1.example 1194 udp",
            "remote nl1.example 443 tcp",
            "remote se1.example 1195 udp",
            "server-poll-timeout 10",
            "auth-user-pass"
        ]
    );
    let random = bench
        .gather(&bench.files(), &["se"], Choose::Random)
        .unwrap();
    assert!(
        random
            .text
            .contains("remote se1.example 1195 udp\nremote-random\n")
    );
    assert!(!random.text.contains("nl1") && !random.text.contains("server-poll-timeout"));
    // A time of the file's own stays.
    let files = [("a.ovpn", 1), ("b.ovpn", 2)];
    let files = files.map(|(name, at)| {
        (
            name,
            profile(&format!("remote nl{at}.example"), "connect-timeout 7\n"),
        )
    });
    let own = Bench::new(&[(files[0].0, &files[0].1), (files[1].0, &files[1].1)]);
    let own = own.of_files().unwrap().text;
    assert!(own.contains("connect-timeout 7") && !own.contains("server-poll-timeout"));
    let fastest = bench.gather(&bench.files(), &[], Choose::Fastest);
    assert!(fastest.err().unwrap().contains("for WireGuard"));
    for (more, what) in [
        ("verify-x509-name se1 name\n", "`verify-x509-name`"),
        (
            "<tls-auth>\n0123abcdEF\n</tls-auth>\n",
            "differ in <tls-auth>,",
        ),
    ] {
        let other = profile("remote se2.example 1", more);
        fs::write(bench.files().join("se2.ovpn"), other).unwrap();
        let error = bench.of_files().err().unwrap();
        assert!(error.contains(what), "{error}");
    }
    let blocks = profile("<connection>\nremote a 1\n</connection>", "");
    fs::write(bench.files().join("se2.ovpn"), blocks).unwrap();
    let error = bench.of_files().err().unwrap();
    assert!(error.contains("<connection>"), "{error}");
}

/// Words of a login may look like directives, comments or tags; no message quotes them, and the pool keeps them.
#[test]
fn a_login_is_never_quoted_and_stays_whole() {
    let block = |name: &str, password: &str| {
        format!("<auth-user-pass>\n{name}\n{password}\n</auth-user-pass>\n")
    };
    let profile =
        |at: usize, more: &str| format!("client\ndev tun\nremote nl{at}.example 1194\n{more}{CA}");
    let both = |one: &str, two: &str| {
        let files = [("a.ovpn", one), ("b.ovpn", two)];
        Bench::new(&files).of_files()
    };
    for secret in [
        "other",
        "jim",
        "hunter2",
        "remote",
        "port 7",
        "verify-x509-name",
        "#secret",
        "<secret>",
        "</secret>",
        "Hunter2-TopSecret",
    ] {
        let own = profile(1, &block("joe", "first"));
        for (what, other) in [
            ("<auth-user-pass>", block("joe", secret)),
            ("<auth-user-pass>", block(secret, "first")),
            (
                "no known directive",
                format!("{}x{secret}y z\n", block("joe", "first")),
            ),
            (
                "no known directive",
                format!("<x{secret}>\na\n</x{secret}>\n{}", block("joe", "first")),
            ),
        ] {
            let error = both(&own, &profile(2, &other)).err().unwrap();
            assert!(error.contains(what), "{secret}: {error}");
            for word in ["joe", "first", secret] {
                assert!(!error.contains(word), "{secret}: {error}");
            }
        }
        let login = block("joe", secret);
        let joined = both(&profile(1, &login), &profile(2, &login)).unwrap();
        let servers =
            "remote nl1.example 1194 udp\nremote nl2.example 1194 udp\nserver-poll-timeout 10\n";
        assert!(
            joined.text.contains(&format!("{servers}{login}")),
            "{secret}"
        );
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let other_key = server(1, "").replace(PRIVATE, "SGkTHqOcwLnJkFGhNjgP4LeG2hJ1HQ3Q8oIbI1wz0nA=");
    let openvpn = format!("client\ndev tun\nremote a\n{CA}");
    let large = server(1, &"#".repeat(2 << 20));
    for (name, text, words) in [
        ("b.conf", other_key.as_str(), "differ in PrivateKey"),
        (
            "b.conf",
            &server(1, "").replace("10.2.0.2", "10.2.0.3"),
            "differ in Address",
        ),
        (
            "b.conf",
            &server(1, "").replace("10.2.0.1", "10.2.0.9"),
            "differ in DNS",
        ),
        (
            "b.conf",
            &server(1, "MTU = 1300\n"),
            "differ in their [Interface]",
        ),
        (
            "b.conf",
            &server(1, "").replace("0.0.0.0/0", "::/0"),
            "differ in AllowedIPs",
        ),
        (
            "b.conf",
            &server(1, "#! [Uplinks]\n#! Reorder = yes\n"),
            "`#!` comments",
        ),
        (
            "b.conf",
            &server(1, "").replace("Endpoint", "# "),
            "no Endpoint",
        ),
        ("b.conf", "[Interface]\n", "b.conf"),
        ("b.ovpn", &openvpn, "is for openvpn"),
        ("b.conf", &large, "larger than 64 KiB"),
        ("a.ovpn", &server(1, ""), "two files"),
    ] {
        let bench = Bench::new(&[("a.conf", &server(0, "")), (name, text)]);
        let error = bench.of_files().err().unwrap();
        assert!(error.contains(words), "{words}: {error}");
    }
    let bench = Bench::new(&[("README.txt", "hello")]);
    assert!(bench.of_files().err().unwrap().contains("no file in it"));
    let one = bench.files().join("README.txt");
    assert_eq!(
        bench.gather(&one, &[], Choose::Order).err().unwrap(),
        "a single file"
    );
    let error = bench.gather(&one, &["nl"], Choose::Order).err().unwrap();
    assert!(error.contains("--only and --choose"), "{error}");
}

#[test]
fn names_of_files_become_names_of_servers() {
    for (stem, name) in [
        ("nl-ams-001", "nl-ams-001"),
        ("NL#12 (fast)", "NL-12--fast-"),
        ("-x", "server-x"),
        ("", "server"),
    ] {
        assert_eq!(name_of(stem), name);
    }
    let long = name_of(&"é".repeat(100));
    assert!(is_name(&long), "{long}");
}
