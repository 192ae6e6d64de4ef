use super::*;

fn parse(text: &str) -> (Vec<Directive>, Vec<Misread>) {
    let mut misread = Vec::new();
    let source = Source {
        file: "a.ovpn".into(),
        included: false,
    };
    let directives = parse_text(text, &source, &mut misread, &mut Budget::default());
    (directives, misread)
}

fn top() -> Source {
    Source {
        file: "top".into(),
        included: false,
    }
}

fn whole(text: &str) -> Text<'_> {
    Text::Whole(text)
}

#[test]
fn lines_and_blocks() {
    let text = "\u{feff}client\r\n--dev tun\n<ca>\n-----BEGIN\n # kept\n </ca> # rest\nverb 3\n";
    let (directives, misread) = parse(text);
    assert!(misread.is_empty());
    let names: Vec<_> = directives
        .iter()
        .map(|d| (d.name.as_str(), d.origin.line))
        .collect();
    assert_eq!(names, [("client", 1), ("dev", 2), ("ca", 3), ("verb", 7)]);
    let block = directives[2].inline.as_ref().unwrap();
    assert_eq!(block.expose(), "-----BEGIN\n # kept\n");
}

#[test]
fn what_stands_behind_the_end_of_a_block_is_told() {
    let text =
        "<ca>\nx\n</ca>dev mr-away\n<connection>\n<x>\n</x> y\n</connection>nobind\nverb 3\n";
    let (directives, misread) = parse(text);
    let names: Vec<_> = directives.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["ca", "connection", "verb"]);
    let told: Vec<_> = misread
        .iter()
        .map(|it| (it.name.as_str(), it.origin.line))
        .collect();
    assert_eq!(told, [("dev", 3), ("nobind", 7), ("y", 6)]);
    assert!(misread[0].reason.contains("`</ca>`"));
}

#[test]
fn connections_keep_their_line_numbers() {
    let (directives, misread) =
        parse("dev tun\n<connection>\nremote a\n\nproto 'x\n</connection>\n");
    assert_eq!(directives[1].block[0].origin.line, 3);
    assert_eq!(misread[0].origin.describe(), "a.ovpn:5");
    assert_eq!(misread[0].name, "proto");
}

#[test]
fn a_block_without_end_is_named() {
    let (directives, misread) = parse("<ca>\nx\n");
    assert!(directives.is_empty());
    assert!(misread[0].reason.contains("`</ca>`"));
}

#[test]
fn config_and_cd_act_in_order_and_loops_end() {
    let mut asked = Vec::new();
    let mut read = |path: &Path| {
        asked.push(path.display().to_string());
        Ok(zeroize::Zeroizing::new(b"config self\nverb 1\n".to_vec()))
    };
    let mut collector = Collector::new(&mut read, Permissions::ALL);
    collector
        .text(&whole("config a\ncd /etc\ncd vpn\nconfig b\n"), &top(), 1)
        .unwrap();
    assert_eq!(collector.misread.len(), 2);
    assert_eq!(collector.directory, Some(PathBuf::from("/etc/vpn")));
    assert_eq!(asked[0], "a");
    assert!(asked.contains(&"/etc/vpn/b".to_owned()));
    assert_eq!(asked.len(), 2 * (DEPTH_MAX - 1));
}

#[test]
fn setenv_opt_is_the_option_itself() {
    let mut read = |_: &Path| unreachable!();
    let mut collector = Collector::new(&mut read, Permissions::ALL);
    collector
        .text(
            &whole("setenv opt block-outside-dns\nsetenv a b\n"),
            &top(),
            1,
        )
        .unwrap();
    assert_eq!(collector.directives[0].name, "block-outside-dns");
    assert!(collector.directives[0].optional);
    assert_eq!(collector.directives[1].name, "setenv");
}

fn names(arguments: &[&str]) -> (Vec<String>, usize) {
    let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
    let mut read = |_: &Path| Ok(zeroize::Zeroizing::new(b"verb 4\n".to_vec()));
    let mut collector = Collector::new(&mut read, Permissions::ALL);
    collector.arguments(&arguments).unwrap();
    let shown = |d: &Directive| format!("{} {}", d.name, d.values.join(" "));
    let names = collector.directives.iter().map(shown).collect();
    (names, collector.misread.len())
}

#[test]
fn options_take_words_up_to_the_next_option() {
    let (names, faults) = names(&["--dev", "tun", "--remote", "a", "1", "udp", "--nobind"]);
    assert_eq!(names, ["dev tun", "remote a 1 udp", "nobind "]);
    assert_eq!(faults, 0);
}

#[test]
fn only_a_file_or_as_an_option() {
    assert_eq!(names(&["a.ovpn"]).0, ["config a.ovpn", "verb 4"]);
    let (names, _) = names(&["--config", "a.ovpn", "--verb", "1"]);
    assert_eq!(names, ["config a.ovpn", "verb 4", "verb 1"]);
}

#[test]
fn words_without_an_option_are_faults() {
    assert_eq!(
        names(&["dev", "tun", "--verb", "1"]),
        (vec!["verb 1".to_owned()], 1)
    );
    let many: Vec<&str> = std::iter::once("--up").chain([".."; 20]).collect();
    assert_eq!(names(&many).1, 1);
}
