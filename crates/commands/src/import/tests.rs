use super::*;
use crate::blocks::CA;

const WIREGUARD: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn import(&self, source: &Path, name: Option<&str>) -> Result<PathBuf, String> {
        let to = self.0.path().join("kept");
        let matches = command().get_matches_from(["import", "x"]);
        let result = import(source, name, &to, &matches);
        let result = result.map(|it| it.0).map_err(|it| it.to_string());
        // No attempt leaves a temporary file behind.
        for entry in fs::read_dir(&to).into_iter().flatten().flatten() {
            assert!(!entry.file_name().to_string_lossy().starts_with('.'));
        }
        result
    }
}

#[test]
fn a_file_is_kept_under_its_name_and_not_over_another() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::new();
    let source = bench.file("office7.conf", WIREGUARD);
    let kept = bench.import(&source, None).unwrap();
    assert!(kept.ends_with("kept/office7.conf"));
    assert_eq!(fs::read_to_string(&kept).unwrap(), WIREGUARD);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&kept), 0o600);
    assert_eq!(mode(kept.parent().unwrap()), 0o700);
    let again = bench.import(&source, None).unwrap_err();
    assert!(again.contains("a tunnel of this name exists"), "{again}");
    let second = bench.import(&source, Some("office8")).unwrap();
    assert!(second.ends_with("kept/office8.conf"));
}

#[test]
fn a_file_is_kept_without_the_lines_that_are_refused() {
    let bench = Bench::new();
    let text = &format!(
        "client\ndev tun\nremote 192.0.2.1\nauth-user-pass /etc/shadow\nscript-security 2\nup /a\n\
        socks-proxy a 1 /etc/shadow\nmanagement 0.0.0.0 7506\nproto tcp-client\ndown /a\n{CA}"
    );
    let source = bench.file("away.ovpn", text);
    let matches = command().get_matches_from(["import", "x"]);
    let to = bench.0.path().join("kept");
    let (kept, counts, _) = import(&source, None, &to, &matches).unwrap();
    let written = fs::read_to_string(&kept).unwrap();
    assert_eq!(counts[2], 5, "{written}");
    for word in ["/etc/shadow", "/a\n", "7506"] {
        assert!(!written.contains(word), "{written}");
    }
    let expected = text
        .replace("auth-user-pass /etc/shadow", "auth-user-pass")
        .replace("socks-proxy a 1 /etc/shadow", "socks-proxy a 1 stdin ");
    for (number, (there, line)) in (1..).zip(written.lines().zip(expected.lines())) {
        let left_out = there.starts_with("# removed because it was refused: ");
        assert_eq!(left_out, [6, 8, 10].contains(&number), "{written}");
        assert!(left_out || there == line, "{written}");
    }
    let said = end("F", "away", counts, None);
    assert!(said.contains("5 lines refused"), "{said}");
    let said = end("F", "away", [7, 1, 0], None);
    assert!(said.starts_with("kept as F: 7 lines honoured, 1 line without effect"));
    assert!(said.ends_with("`millrace up away` brings it up"), "{said}");

    // Lines that the user permits stay.
    let permitted = format!(
        "client\ndev tun\nremote 192.0.2.1\nauth-user-pass\nscript-security 2\nup /bin/true\n{CA}"
    );
    let source = bench.file("own.ovpn", &permitted);
    let matches = command().get_matches_from(["import", "x", "--allow-scripts"]);
    let (kept, counts, _) = import(&source, Some("own"), &to, &matches).unwrap();
    assert_eq!(counts[2], 0);
    assert_eq!(fs::read_to_string(&kept).unwrap(), permitted);
    let scripts = format!("{WIREGUARD}PostUp = touch /x\nMTU = 1300\n");
    let kept = bench
        .import(&bench.file("wg7.conf", &scripts), None)
        .unwrap();
    let written = fs::read_to_string(kept).unwrap();
    assert!(!written.contains("touch") && written.contains("MTU = 1300"));
}

/// A line that decides is told; the others of the report would only be left out.
#[test]
fn the_lines_that_decide_are_named() {
    let bench = Bench::new();
    let text =
        format!("client\ndev tun\nremote 192.0.2.1\nup /a\nfoo bar\ndown /a\n{CA}auth-user-pass\n");
    for (name, text, words) in [
        (
            "a.ovpn",
            text.clone(),
            "from this file: line 5: foo: Unrecognized option",
        ),
        (
            "b.ovpn",
            text.replace("remote 192.0.2.1\n", ""),
            "from this file: ",
        ),
        (
            "c.ovpn",
            "client\nx1 y\nx2 y\nx3 y\nx4 y\nx5 y\n".to_owned(),
            " more",
        ),
    ] {
        let error = bench.import(&bench.file(name, &text), None).unwrap_err();
        assert!(
            error.starts_with("not kept: ") && error.contains(words),
            "{error}"
        );
        assert!(name != "a.ovpn" || !error.contains("line 4"), "{error}");
        assert!(!error.contains("kept/"), "{error}");
    }
}

#[cfg(feature = "policy")]
#[test]
fn lines_have_the_numbers_of_the_user_s_file() {
    let bench = Bench::new();
    let text = format!("client\ndev tun\nremote 192.0.2.1\nup /a\nfoo bar\n{CA}auth-user-pass\n");
    let source = bench.file("away.ovpn", &text);
    let matches = command().get_matches_from(["import", "x", "--for-policy"]);
    let to = bench.0.path().join("kept");
    let error = import(&source, None, &to, &matches)
        .unwrap_err()
        .to_string();
    assert!(error.contains(": line 5: foo"), "{error}");
}

#[cfg(feature = "policy")]
#[test]
fn a_tunnel_with_a_name_of_the_guard_s_has_a_device_of_that_name() {
    let bench = Bench::new();
    let text = format!("client\ndev tun\nremote 192.0.2.1\nup /a\n{CA}auth-user-pass login.txt\n");
    let source = bench.file("nl1.ovpn", &text);
    for (name, device) in [
        ("mr-guard", "dev mr-guard\ndev-type tun\n"),
        ("guard", "dev tun\n"),
    ] {
        let kept = bench.import(&source, Some(name)).unwrap();
        let written = fs::read_to_string(&kept).unwrap();
        assert!(written.contains(device), "{written}");
        // The login's file was refused, so the tunnel asks.
        assert!(is_asking(&kept, &written), "{written}");
    }
}

#[test]
fn a_block_goes_as_a_whole() {
    let text = "a\n<b>\nx\n</b>\nc\n<d>\ne\n</d>\n";
    let mut report = Report::default();
    for (line, key) in [(2, "b"), (7, "e")] {
        report.entries.push(config::report::Entry {
            line,
            key: key.to_owned(),
            verdict: Verdict::Refused,
            reason: String::new(),
        });
    }
    let refused = "# removed because it was refused:";
    let expected = format!("a\n{refused} b\n#\n#\nc\n<d>\n{refused} e\n</d>\n");
    assert_eq!(without_refused(text, &report).as_str(), expected);
}

#[test]
fn a_profile_that_asks_for_a_password_is_told_from_one_that_has_it() {
    let ovpn = Path::new("away.ovpn");
    let asks = "client\nauth-user-pass\n";
    assert!(is_asking(ovpn, asks));
    assert!(!is_asking(Path::new("away.conf"), asks));
    let has = "client\nauth-user-pass\n<auth-user-pass>\na\nb\n</auth-user-pass>\n";
    assert!(!is_asking(ovpn, has));
    assert!(!is_asking(ovpn, "client\nauth-user-pass login\n"));
}

#[test]
fn what_has_no_known_ending_is_known_by_what_is_in_it() {
    let bench = Bench::new();
    let profile = &format!("client\ndev tun\nremote 192.0.2.1\n{CA}auth-user-pass\n");
    let kept = bench.import(&bench.file("provider.txt", profile), None);
    assert!(kept.unwrap().ends_with("kept/provider.ovpn"));
    let kept = bench.import(&bench.file("other.txt", WIREGUARD), None);
    assert!(kept.unwrap().ends_with("kept/other.conf"));
    let pptp = "# the office\nprotocol = \"pptp\"\nserver = \"192.0.2.1\"\nusername = \"a\"\npassword = \"b\"\n\
        allow-insecure = \"pptp\"\n";
    let kept = bench.import(&bench.file("old.txt", pptp), None);
    match cfg!(feature = "pptp") {
        true => assert!(kept.unwrap().ends_with("kept/old.toml")),
        false => assert!(kept.unwrap_err().contains("not kept")),
    }
}

#[test]
fn a_password_that_lies_there_goes_to_no_new_file() {
    let bench = Bench::new();
    let source = bench.file("office7.conf", WIREGUARD);
    fs::create_dir(bench.0.path().join("kept")).unwrap();
    for (name, password) in [
        ("office7", "office7.password"),
        ("office8", "office8.pw"),
        ("monitor", "monitor.password"),
    ] {
        let lying = bench.file(&format!("kept/{password}"), "of another tunnel");
        let error = bench.import(&source, Some(name)).unwrap_err();
        assert!(
            error.contains(password) && error.contains("--name"),
            "{error}"
        );
        fs::remove_file(lying).unwrap();
        bench.import(&source, Some(name)).unwrap();
    }
}

#[test]
#[cfg(feature = "server")]
fn a_directory_has_its_name_however_it_is_called() {
    let bench = Bench::new();
    let below = bench.0.path().join("office9/below");
    fs::create_dir_all(&below).unwrap();
    let text = format!(
        "{WIREGUARD}[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nEndpoint = 192.0.2.1:1\n"
    );
    bench.file("office9/nl-1.conf", &text);
    let kept = bench.import(&below.join(".."), None).unwrap();
    assert!(kept.ends_with("kept/office9.conf"), "{}", kept.display());
}

#[test]
fn what_gives_no_tunnel_is_not_kept() {
    let bench = Bench::new();
    let broken = bench.file("broken.conf", "[Interface]\nPrivateKey = short\n");
    assert!(bench.import(&broken, None).is_err());
    let beside = bench.file(
        "beside.ovpn",
        "client\ndev tun\nremote a.example\nca ca.crt\nauth-user-pass\n",
    );
    let authority = CA.replace("<ca>\n", "").replace("</ca>\n", "");
    bench.file("ca.crt", &authority);
    let error = bench.import(&beside, None).unwrap_err();
    assert!(error.contains("files in its own directory"), "{error}");
    assert!(!bench.0.path().join("kept").exists());
}

/// The import removes the line `up /x` and stores the rest.
#[test]
fn a_file_is_not_kept_without_lines_that_decide() {
    let bench = Bench::new();
    let client = format!("client\ndev tun\nremote 192.0.2.1\n{CA}auth-user-pass\n");
    for (name, line, kept) in [
        ("a.ovpn", "tls-verify /x\n", false),
        ("c.ovpn", "config /etc/more\n", false),
        ("b.ovpn", "up /x\n", true),
    ] {
        let file = bench.file(name, &format!("{client}script-security 2\n{line}"));
        assert_eq!(bench.import(&file, None).is_ok(), kept, "{line}");
    }
}

#[cfg(feature = "policy")]
#[test]
fn name_servers_in_a_comment_are_told() {
    let text = "[Interface]\n# about DNS = no\n# DNS = 10.2.0.1, fd00::1\n";
    assert_eq!(left_out(text), "10.2.0.1, fd00::1");
    assert_eq!(left_out("[Interface]\nDNS = 10.2.0.1\n"), "");
    let text = "client\n# dhcp-option DNS 10.8.0.1\n# dhcp-option DNS6 fd08::1\n# dhcp-option DOMAIN a.example\n# dhcp-option NTP 192.0.2.7\n\
        # dns server 1 address 10.8.0.2 fd08::2\n# dns search-domains a.example\ndhcp-option DNS 10.8.0.3\n";
    assert_eq!(left_out(text), "10.8.0.1, fd08::1, 10.8.0.2, fd08::2");
}

#[test]
fn names_that_no_interface_can_have_are_refused() {
    let bench = Bench::new();
    let source = bench.file("a provider's file.conf", WIREGUARD);
    assert!(bench.import(&source, None).unwrap_err().contains("--name"));
    for name in ["../x", "us.ny", ""] {
        assert!(bench.import(&source, Some(name)).is_err(), "{name}");
    }
    let input = Path::new(STANDARD_INPUT);
    assert!(bench.import(input, None).unwrap_err().contains("--name"));
    let large = bench.file("large.conf", &"#".repeat(SIZE_MAX as usize + 1));
    assert!(bench.import(&large, None).unwrap_err().contains("larger"));
}

#[cfg(feature = "amnezia")]
#[test]
fn a_link_is_kept_as_a_file_and_never_quoted() {
    use config::amnezia::link;
    let bench = Bench::new();
    let text = format!(
        "{WIREGUARD}Address = 10.7.0.2/32\nJc = 4\nJmin = 40\nJmax = 70\nS1 = 20\nPostUp = touch /x\n\n[Peer]\n\
         PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nAllowedIPs = 0.0.0.0/0\n\
         Endpoint = 192.0.2.1:7\n"
    );
    let link = link::write(&text, "phone").unwrap();
    let codes = link::series(&link).unwrap();
    let codes: Vec<&str> = codes.iter().map(|it| it.as_str()).collect();
    let expected = text.replace(
        "PostUp = touch /x",
        "# removed because it was refused: PostUp",
    );
    for (source, name) in [
        (bench.file("mr-a.vpn", &link), None),
        (bench.file("codes.txt", &codes.join("\n")), Some("mr-b")),
        (PathBuf::from(link.as_str()), Some("mr-c")),
    ] {
        let kept = bench.import(&source, name).unwrap();
        assert_eq!(kept.extension().unwrap(), "conf");
        assert_eq!(fs::read_to_string(&kept).unwrap(), expected);
    }
    let nameless = bench.import(Path::new(link.as_str()), None).unwrap_err();
    assert!(nameless.contains("--name NAME"), "{nameless}");
    for (cut, words) in [
        (&link[..link.len() - 8], "copy it again"),
        ("vpn://e30", "has no connection"),
    ] {
        let error = bench.import(Path::new(cut), Some("mr-d")).unwrap_err();
        assert!(error.contains(words) && !error.contains(cut), "{error}");
    }
}
