//! Settings from every source, and the errors for wrong ones.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Settings, SettingsError> {
    Settings::from_toml(text, Path::new("m.toml"))
}

#[test]
fn every_key_is_read() {
    let text = "[dataplane]\nkind = \"kernel\"\nworkers = 2\ntun-gso = \"off\"\ntun-uso = \"off\"\n\
        tun-gro = \"off\"\nudp-gso = \"off\"\nudp-gro = \"off\"\nmmsg = \"off\"\naqm = \"off\"\ncoalescing = \"off\"\n\
        mtu-disc = \"yes\"\nmtu-probe = \"10.0.0.1\"\nmss-clamp = \"off\"\nparallel = \"on\"\nsocket-buffer = 1048576\ngso-max-segs = 40\n\
        cookie-v4-prefix = 24\ncrypto-backend = \"portable\"\n";
    let expected = DataplaneSettings {
        kind: Kind::Kernel,
        workers: Some(2),
        tun_gso: Rung::Off,
        tun_uso: Rung::Off,
        tun_gro: Rung::Off,
        udp_gso: Rung::Off,
        udp_gro: Rung::Off,
        mmsg: Rung::Off,
        aqm: Rung::Off,
        coalescing: Rung::Off,
        mtu_disc: MtuDiscovery::Yes,
        mtu_probe: MtuProbe::Address([10, 0, 0, 1].into()),
        mss_clamp: Rung::Off,
        parallel: Parallel::On,
        socket_buffer: Some(1 << 20),
        gso_max_segs: Some(40),
        cookie_v4_prefix: Some(24),
        crypto_backend: CryptoBackend::Portable,
    };
    assert_eq!(parse(text).unwrap().dataplane, expected);
    for (key, ..) in DATAPLANE {
        assert!(text.contains(key), "{key} is missing from this test");
    }
    assert_eq!(parse("").unwrap(), Settings::default());
    assert_eq!(
        parse("[dataplane]\nworkers = \"auto\"").unwrap(),
        Settings::default()
    );
}

#[test]
fn later_sources_win() {
    let overrides = ["dataplane.workers=3".to_owned()];
    let environment = "dataplane.workers=2, dataplane.udp-gso=off,";
    let settings =
        Settings::load(Some(Path::new("/dev/null")), Some(environment), &overrides).unwrap();
    assert_eq!(settings.dataplane.workers, Some(3));
    assert_eq!(settings.dataplane.udp_gso, Rung::Off);
}

#[test]
fn errors_say_where_what_and_what_to_do() {
    let cases = [
        (
            "[dataplane]\n\nudp-gos = \"off\"",
            "m.toml:3: unknown setting `udp-gos`; did you mean `udp-gso`?",
        ),
        (
            "[dataplan]\nworkers = 1",
            "m.toml:1: unknown setting `dataplan`; did you mean `dataplane`?",
        ),
        (
            "[dataplane]\nworkers = 0",
            "m.toml:2: dataplane.workers cannot be `0`; write \"auto\" or a number from 1 to 64",
        ),
        (
            "[dataplane]\nmmsg = true",
            "m.toml:2: dataplane.mmsg cannot be of this kind; write \"auto\" or \"off\"",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(parse(text).unwrap_err().to_string(), message);
    }
    let syntax = parse("[dataplane]\nworkers = = 1").unwrap_err().to_string();
    assert!(syntax.starts_with("m.toml:2: not valid TOML"), "{syntax}");
    let missing = Settings::load(Some(Path::new("/nonexistent/m.toml")), None, &[]);
    assert!(matches!(missing, Err(SettingsError::Read { .. })));
    let mut settings = Settings::default();
    let error = settings.set("udp-gso", Origin::CommandLine).unwrap_err();
    assert!(matches!(error, SettingsError::Assignment { .. }));
    let error = settings.set("dataplane.udp-gso=on", Origin::Environment);
    assert_eq!(
        error.unwrap_err().to_string(),
        "MILLRACE_SET: dataplane.udp-gso cannot be `on`; write \"auto\" or \"off\""
    );
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,60}", toml in "(\\[dataplane\\]\n)?[a-z-]{1,9} = \\PC{0,20}") {
        let _ = parse(&toml);
        let _ = parse(&text);
        let _ = Settings::default().set(&text, Origin::CommandLine);
    }
}

#[test]
fn lines_are_taken_from_the_file_or_refused_with_their_place() {
    let text = "[dataplane]\nworkers = 2\n[uplinks]\nmode = \"duplicate\"\n[[uplink]]\nname = \"a\"\ninterface = \"eth1\"\n";
    let settings = parse(text).unwrap();
    let given = settings.lines.unwrap().fit(true, 1);
    assert_eq!(given.lines.lines.len(), 1);
    assert_eq!(given.origin.as_deref(), Some("duplicate on a, from m.toml"));
    assert_eq!(given.warnings, [""; 0]);
    for (text, expected) in [
        (
            "[[uplink]]\nname = \"a\"\n",
            "m.toml:1: this [[uplink]] has no interface",
        ),
        (
            "[[uplink]]\nname = \"a\"\ninterfac = \"eth1\"\n",
            "m.toml:3: interfac: unknown key; did you mean `interface`?",
        ),
        (
            "[uplinkss]\n",
            "m.toml:1: unknown setting `uplinkss`; did you mean `uplinks`?",
        ),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let word = Settings::load(None, None, &["uplinks.mode=single".to_owned()]);
    assert!(word.unwrap_err().to_string().contains("dataplane"));
}
