use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Package {
    Package::parse(text).unwrap()
}

fn faults(text: &str) -> Vec<(usize, String)> {
    let faults = Package::parse(text).unwrap_err().into_iter();
    faults.map(|it| (it.line, it.words)).collect()
}

fn values(section: &Section, name: &str) -> Vec<String> {
    let setting = section.setting(name).unwrap();
    setting.values().map(str::to_owned).collect()
}

#[test]
fn sections_options_and_lists_are_read_with_their_lines() {
    let package = parse(
        "package network\n\nconfig interface 'office'\n\toption proto 'millrace' # by hand\n\
         \tlist addresses '10.8.0.2/32'\n\tlist addresses \"fd00::2/128\"\n\
         config millrace_office\n\toption public_key abc=; option endpoint_port 51820\n\
         c millrace_office 'second'\n o description 'it'\\''s'\"  \\\"here\\\"\"\n",
    );
    let office = package.section("office").unwrap();
    assert_eq!(
        (office.kind.as_str(), office.line, office.text("proto")),
        ("interface", 3, Some("millrace"))
    );
    assert_eq!(
        values(office, "addresses"),
        ["10.8.0.2/32", "fd00::2/128"].map(str::to_owned)
    );
    assert_eq!(office.setting("addresses").unwrap().line, 6);
    let peer = package.section("@millrace_office[0]").unwrap();
    assert_eq!((peer.name.as_ref(), peer.line), (None, 7));
    assert_eq!(peer.text("public_key"), Some("abc="));
    assert_eq!(peer.text("endpoint_port"), Some("51820"));
    let second = package.section("@millrace_office[-1]").unwrap();
    assert_eq!(second.text("description"), Some("it's  \"here\""));
    assert_eq!(package.section("second"), Some(second));
    for nothing in [
        "@millrace_office[2]",
        "@millrace_office[-3]",
        "@x[0]",
        "@millrace_office[0",
        "third",
    ] {
        assert_eq!(package.section(nothing), None, "{nothing}");
    }
}

#[test]
fn quotes_span_lines_and_a_backslash_joins_them() {
    let package = parse("config a\n option x 'one\ntwo'\n option \\\n y z\n option w a\\ b#c\n");
    let a = &package.sections[0];
    assert_eq!(a.text("x"), Some("one\ntwo"));
    assert_eq!(a.text("y"), Some("z"));
    assert_eq!(a.text("w"), Some("a b"));
}

#[test]
fn what_is_said_twice_counts_as_with_libuci() {
    let package = parse(
        "config a x\n option n 1\n option n 2\n option l 1\n list l 2\n option e 1\n option e ''\n\
         config b\nconfig a x\n option m 3\n",
    );
    assert_eq!(package.sections.len(), 2);
    let x = package.section("x").unwrap();
    assert_eq!(
        (x.text("n"), x.text("m"), x.text("e")),
        (Some("2"), Some("3"), None)
    );
    assert_eq!(values(x, "l"), ["1", "2"].map(str::to_owned));
    // A missing value equals an empty one.
    let package = parse("config a\n option n 1\n option n\n option m\n list l\n");
    let a = &package.sections[0];
    assert_eq!((a.text("n"), a.text("m")), (None, None));
    assert_eq!(values(a, "l"), [String::new()]);
    // An option with several words equals a list.
    let package = parse("config a\n option l '1  2'\n");
    assert_eq!(
        values(&package.sections[0], "l"),
        ["1", "2"].map(str::to_owned)
    );
}

#[test]
fn every_fault_is_told_with_its_line_and_without_the_value() {
    let found = faults(
        "option a b\nconfig\nconfig x y z\nconfig a b-c\noption k v\nconfig i ok\n option a b c\n\
         secretword\n option a-b c\nconfig j ok\n option last 'x\n",
    );
    let lines: Vec<usize> = found.iter().map(|it| it.0).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]);
    assert!(found.iter().all(|it| !it.1.contains("secretword")));
    assert!(found[9].1.contains("quote"));
    assert_eq!(faults(&"x\n".repeat(1000)).len(), FAULTS_MAX);
    let secret = parse("config a\n option private_key s3cret\n list k s3cret\n");
    assert!(!format!("{secret:?}").contains("s3cret"));
}

#[test]
fn a_statement_of_others_that_is_wrong_takes_nothing_with_it() {
    let read = |text: &str| {
        let ours = |it: &Section| it.name.as_deref() == Some("office");
        Package::parse_for(text, ours)
    };
    let (package, odd) = read(
        "config interface lan\n option a-b c\n option proto static\n\
         config interface office\n option proto millrace\n\
         config x y z\n option proto none\nconfig interface wan\n secretword\n option proto dhcp\n",
    )
    .unwrap();
    let lines: Vec<usize> = odd.iter().map(|it| it.line).collect();
    assert_eq!(lines, [2, 6, 7, 9]);
    for (name, proto) in [("lan", "static"), ("office", "millrace"), ("wan", "dhcp")] {
        assert_eq!(package.section(name).unwrap().text("proto"), Some(proto));
    }
    // A fault in our section, a quote that hides the rest of the file, and a file that is not UCI.
    for text in [
        "config interface office\n option proto millrace\n option a-b c\n",
        "config interface office\nconfig interface lan\n option x 'y\n",
        &"x\n".repeat(1000),
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

fn name() -> impl Strategy<Value = String> {
    "[a-z_][a-z0-9_]{0,8}"
}

fn quoted(value: &str, how: u8) -> String {
    match how % 3 {
        0 => format!("'{}'", value.replace('\'', r"'\''")),
        1 => format!("\"{}\"", value.replace('\\', r"\\").replace('"', "\\\"")),
        _ => {
            let escape = |it: char| match it {
                '\n' => "'\n'".to_owned(),
                it => format!("\\{it}"),
            };
            value.chars().map(escape).collect()
        }
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read_again(
        sections in prop::collection::vec(
            (name(), prop::collection::vec((name(), "[ -~\n\u{e4}]{1,12}", any::<u8>(), any::<bool>()), 0..6)),
            0..6,
        )
    ) {
        let mut text = String::new();
        let mut wanted = Vec::new();
        for (kind, settings) in sections {
            text += &format!("config {kind}\n");
            let mut section: Vec<(String, Vec<String>)> = Vec::new();
            for (name, value, how, list) in settings {
                let word = if list { "list" } else { "option" };
                text += &format!("\t{word} {name} {} # c\n", quoted(&value, how));
                match section.iter_mut().find(|it| it.0 == name) {
                    Some(it) if list => it.1.push(value),
                    Some(it) => it.1 = vec![value],
                    None => section.push((name, vec![value])),
                }
            }
            wanted.push((kind, section));
        }
        let package = parse(&text);
        let read: Vec<_> = package.sections.iter().map(|it| {
            let values = |it: &Setting| match &it.value {
                Value::Text(text) => vec![text.to_string()],
                Value::List(list) => list.iter().map(|it| it.to_string()).collect(),
            };
            let settings = it.settings.iter().map(|it| (it.name.clone(), values(it)));
            (it.kind.clone(), settings.collect::<Vec<_>>())
        }).collect();
        prop_assert_eq!(read, wanted);
    }

    #[test]
    fn no_text_does_harm(text in "[ -~\n\t\u{0}]{0,200}", word in "[@a-z0-9\\[\\]-]{0,12}") {
        if let Ok(package) = Package::parse(&text) {
            let _ = package.section(&word);
        }
    }
}

#[test]
fn the_directory_is_the_sections() {
    let of = |text: &str| directory(&Package::parse(text).unwrap());
    // The name on every OpenWrt.
    let usual = "config dnsmasq\n\toption domainneeded '1'\nconfig dhcp 'lan'\n";
    assert_eq!(of(usual), Some("/tmp/dnsmasq.cfg01411c.d".into()));
    let second = "config dhcp 'lan'\nconfig dnsmasq\n";
    assert_eq!(of(second), Some("/tmp/dnsmasq.cfg02411c.d".into()));
    let named = "config dnsmasq 'main'\n";
    assert_eq!(of(named), Some("/tmp/dnsmasq.main.d".into()));
    let said = "config dnsmasq\n\toption confdir '/tmp/names,*.conf'\n";
    assert_eq!(of(said), Some("/tmp/names".into()));
    assert_eq!(of("config dhcp 'lan'\n"), None);
    assert_eq!(dnsmasq_directory(Path::new("/nowhere")), None);
}
