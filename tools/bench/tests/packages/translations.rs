//! Translations of LuCI's pages: the template lists the pages' texts, each language is complete, and LuCI finds each text
//! in the packages. `MILLRACE_WRITE=1` writes the template anew.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tools::packages::lmo::{self, Lmo};
use tools::packages::manifest::Manifest;
use tools::packages::po::{Catalog, Message};
use tools::packages::{apk, ipk, openwrt};

const TEMPLATE: &str = "templates/millrace.pot";

fn packaging() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::canonicalize(root.join("packaging")).unwrap()
}

fn translations() -> PathBuf {
    packaging().join("openwrt/luci-proto-millrace.po")
}

fn catalog(path: &str) -> Catalog {
    let text = fs::read_to_string(translations().join(path)).unwrap();
    Catalog::parse(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The languages that are packed, each with its file.
fn languages() -> BTreeMap<String, Catalog> {
    let manifest = Manifest::read(&packaging()).unwrap();
    let packages = manifest.openwrt.package.into_iter();
    let languages = packages.flat_map(|it| it.translations.into_keys());
    languages
        .map(|it| (it.clone(), catalog(&format!("{it}/millrace.po"))))
        .collect()
}

/// Files below a directory, by their paths in it.
fn files(directory: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
        match path.is_dir() {
            true => files(&path, &format!("{name}/"), found),
            false => drop(found.insert(name, fs::read_to_string(path).unwrap())),
        }
    }
}

/// A text in quotes at the beginning of `code`, and the code after it.
fn quoted(code: &str) -> Option<(String, &str)> {
    let code = code.trim_start();
    let quote = code.chars().next().filter(|it| ['\'', '"'].contains(it))?;
    let (mut text, mut is_escaped) = (String::new(), false);
    for (at, letter) in code.char_indices().skip(1) {
        match letter {
            '\\' if !is_escaped => is_escaped = true,
            it if it == quote && !is_escaped => return Some((text, &code[at + 1..])),
            it => {
                text.push(it);
                is_escaped = false;
            }
        }
    }
    None
}

/// The texts of a page: arguments of `_` and `N_`, which are functions of LuCI.
fn texts_of_code(code: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    for (at, call) in code.match_indices("_(") {
        let before = code[..at].trim_end_matches('N');
        if before.ends_with(|it: char| it.is_alphanumeric() || ['_', '.', '$'].contains(&it)) {
            continue;
        }
        let arguments = &code[at + call.len()..];
        let context: String = arguments.chars().take(60).collect();
        if before.len() == at {
            let (text, rest) = quoted(arguments).unwrap_or_else(|| panic!("no text: {context}"));
            assert!(rest.starts_with(')'), "more than a text: {context}");
            found.push((text, None));
        } else {
            let (_, forms) = arguments.split_once(',').unwrap();
            let (one, rest) = quoted(forms).unwrap_or_else(|| panic!("no text: {context}"));
            let (many, rest) = quoted(rest.strip_prefix(',').unwrap()).unwrap();
            assert!(rest.starts_with(')'), "more than two texts: {context}");
            found.push((one, Some(many)));
        }
    }
    found
}

/// The texts of a menu, or of a list of rights, which LuCI translates.
fn texts_of_json(text: &str) -> Vec<(String, Option<String>)> {
    let keys = ["\"title\":", "\"description\":"];
    let texts = keys.iter().flat_map(|key| text.match_indices(key));
    texts
        .map(|(at, key)| (quoted(&text[at + key.len()..]).unwrap().0, None))
        .collect()
}

/// The template for all texts of the package, in the order of the texts.
fn expected() -> Catalog {
    let mut sources = BTreeMap::new();
    files(
        &packaging().join("openwrt/luci-proto-millrace"),
        "",
        &mut sources,
    );
    let mut messages: BTreeMap<String, Message> = BTreeMap::new();
    for (place, text) in sources {
        let texts = match place.rsplit_once('.') {
            Some((_, "js")) => texts_of_code(&text),
            Some((_, "json")) => texts_of_json(&text),
            _ => continue,
        };
        for (id, plural) in texts {
            let forms = if plural.is_some() { 2 } else { 1 };
            let message = messages.entry(id.clone()).or_insert_with(|| Message {
                id: id.clone(),
                plural: plural.clone(),
                texts: vec![String::new(); forms],
                places: Vec::new(),
            });
            assert_eq!(message.plural, plural, "{id}");
            if !message.places.contains(&place) {
                message.places.push(place.clone());
            }
        }
    }
    Catalog {
        messages: messages.into_values().collect(),
        ..Catalog::default()
    }
}

/// The template as a file.
fn written(catalog: &Catalog) -> String {
    let quote = |it: &str| format!("\"{}\"", it.replace('\\', "\\\\").replace('"', "\\\""));
    let mut text =
        "msgid \"\"\nmsgstr \"\"\n\"Content-Type: text/plain; charset=UTF-8\\n\"\n".to_owned();
    for message in &catalog.messages {
        text.push('\n');
        for place in &message.places {
            text += &format!("#: {place}\n");
        }
        text += &format!("msgid {}\n", quote(&message.id));
        text += &match &message.plural {
            Some(plural) => {
                let plural = quote(plural);
                format!("msgid_plural {plural}\nmsgstr[0] \"\"\nmsgstr[1] \"\"\n")
            }
            None => "msgstr \"\"\n".to_owned(),
        };
    }
    text
}

#[test]
fn the_template_lists_the_texts_of_the_pages() {
    let expected = expected();
    assert!(expected.messages.len() > 100);
    let path = translations().join(TEMPLATE);
    let text = written(&expected);
    if std::env::var_os("MILLRACE_WRITE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(Catalog::parse(&text).unwrap(), expected);
    assert_eq!(
        fs::read_to_string(path).unwrap(),
        text,
        "run this with MILLRACE_WRITE=1"
    );
}

/// The places where LuCI puts values into a text, in their order, which it cannot change.
fn placeholders(text: &str) -> Vec<&str> {
    let kinds = |it: char| it.is_ascii_alphabetic() || it == '%';
    let found = text.match_indices('%').filter_map(|(at, _)| {
        let rest = &text[at + 1..];
        Some(&rest[..=rest.find(kinds)?])
    });
    found.collect()
}

/// The number of forms of a language, and the form for a number of things.
fn form(language: &str, number: u32) -> usize {
    match language {
        "de" => usize::from(number != 1),
        "ru" if number % 10 == 1 && number % 100 != 11 => 0,
        "ru" if (2..=4).contains(&(number % 10)) && !(12..=14).contains(&(number % 100)) => 1,
        "ru" => 2,
        _ => panic!("{language}: describe its plural forms here"),
    }
}

#[test]
fn each_language_is_complete() {
    let template = catalog(TEMPLATE);
    let languages = languages();
    assert!(languages.contains_key("de") && languages.contains_key("ru"));
    for (language, catalog) in languages {
        let ids = |it: &Catalog| -> Vec<_> {
            let messages = it.messages.iter().cloned();
            messages.map(|it| (it.id, it.plural, it.places)).collect()
        };
        assert_eq!(ids(&catalog), ids(&template), "{language}");
        let forms = 1 + (0..200).map(|it| form(&language, it)).max().unwrap();
        let stated = format!("nplurals={forms}; plural=");
        assert!(catalog.plural_forms.starts_with(&stated), "{language}");
        assert!(catalog.plural_forms.ends_with(';'), "LuCI runs it as code");
        for message in catalog.messages {
            let wanted = message.plural.as_ref().map_or(1, |_| forms);
            assert_eq!(message.texts.len(), wanted, "{language}: {}", message.id);
            for text in &message.texts {
                assert_eq!(
                    placeholders(text),
                    placeholders(&message.id),
                    "{language}: {text}"
                );
                let ends = |it: &str| it.ends_with([':', '?', '.']).then(|| it.chars().last());
                assert_eq!(ends(text), ends(&message.id), "{language}: {text}");
                assert_eq!(text.trim(), text, "{language}");
                assert!(
                    !text.is_empty() && !text.contains("  "),
                    "{language}: {text}"
                );
            }
        }
    }
}

/// Hashes that LuCI's own function in the browser gives, for each length modulo 4, and for signed bytes.
#[test]
fn luci_finds_each_text() {
    for (id, form, hash) in [
        ("Peers", None, 0xf58e_eafb),
        ("Peer", None, 0xca92_dc7e),
        ("Month", None, 0xfa98_3587),
        ("Tunnel", None, 0x527a_4509),
        ("Set", None, 0x6bfb_e368),
        ("Checking…", None, 0x155a_07ec),
        ("%d day", Some(0), 0x68c2_05c8),
        ("Network » Interfaces", None, 0x1a3e_8f29),
        ("“”", None, 0x4796_20f1),
        ("abcé", None, 0xe8f6_f75e),
        ("ж!", None, 0xa1f3_5afa),
        ("ж", None, 0x4a63_baf9),
    ] {
        let message = Message {
            id: id.to_owned(),
            plural: form.map(|_: usize| "many".to_owned()),
            texts: vec!["text".to_owned()],
            ..Message::default()
        };
        let catalog = Catalog {
            messages: vec![message],
            ..Catalog::default()
        };
        let bytes = lmo::write(&catalog).unwrap();
        let index = [hash, 1, 0, 4, 4].map(u32::to_be_bytes).concat();
        assert_eq!(bytes, [b"text".as_slice(), &index].concat(), "{id}");
        assert_eq!(Lmo::read(&bytes).unwrap().find(id, form), Some("text"));
    }
    for (language, catalog) in languages() {
        let bytes = lmo::write(&catalog).unwrap();
        let found = Lmo::read(&bytes).unwrap();
        assert_eq!(found.plural_forms(), Some(catalog.plural_forms.as_str()));
        for Message {
            id, plural, texts, ..
        } in &catalog.messages
        {
            for (form, text) in texts.iter().enumerate() {
                let found = found.find(id, plural.as_ref().map(|_| form));
                // LuCI shows the message itself if there is no other text.
                assert_eq!(found.unwrap_or(id), text, "{language}");
            }
        }
        assert_eq!(found.find("a text of another package", None), None);
    }
}

#[test]
fn damaged_translations_are_refused() {
    let bytes = lmo::write(&languages()["de"]).unwrap();
    let index = bytes.len() - 4 - 16;
    for length in [0, 3, 4, bytes.len() / 2, bytes.len() - 1] {
        assert!(Lmo::read(&bytes[..length]).is_err(), "{length}");
    }
    for at in [bytes.len() - 4, index, index + 8, index + 12] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x80;
        // The highest hash may become a low one; other words lead outside the file.
        assert!(Lmo::read(&damaged).is_err(), "{at}");
    }
}

/// Each language is a package, as LuCI's feed makes it, for opkg and for apk.
#[test]
fn each_language_is_a_package() {
    let manifest = Manifest::read(&packaging()).unwrap();
    let mut packages = manifest.openwrt.package.iter();
    let luci = packages
        .find(|it| it.name == "luci-proto-millrace")
        .unwrap();
    let made = manifest.translations(luci, &packaging().join("openwrt"), "1.2.3-r1");
    let made = made.unwrap();
    assert_eq!(made.len(), languages().len());
    for package in made {
        let language = package.name.strip_prefix("luci-i18n-millrace-").unwrap();
        assert_eq!(package.depends, ["luci-proto-millrace"]);
        let path = format!("usr/lib/lua/luci/i18n/millrace.{language}.lmo");
        let opkg = ipk::write(&openwrt::ipk(&package).unwrap(), 0).unwrap();
        let apk = apk::write(&openwrt::apk(&package, 0).unwrap()).unwrap();
        for tree in [
            ipk::read(&opkg).unwrap().data,
            apk::read(&apk).unwrap().tree,
        ] {
            let found = Lmo::read(tree.content(&path).unwrap()).unwrap();
            assert_ne!(found.find("Cancel", None), None);
            let offer = format!("etc/uci-defaults/luci-i18n-millrace-{language}");
            let offer = String::from_utf8(tree.content(&offer).unwrap().to_vec()).unwrap();
            let title = &luci.translations[language];
            let expected =
                format!("uci set luci.languages.{language}='{title}'; uci commit luci\n");
            assert_eq!(offer, expected);
        }
        assert_eq!(
            openwrt::ipk_name(&package),
            format!("luci-i18n-millrace-{language}_1.2.3-r1_all.ipk")
        );
        assert_eq!(
            openwrt::apk_name(&package),
            format!("luci-i18n-millrace-{language}-1.2.3-r1.apk")
        );
    }
}
