//! The command line of `openvpn`: `--name value…`, or only the name of a file.

use super::directive::{Collector, Directive, Misread, Origin};
use super::lexer::{WORDS_MAX, shown};
use crate::error::ImportError;

/// Collects the directives of the arguments, in order; a file's directives stand in the place of its argument.
pub(crate) fn collect(
    arguments: &[String],
    collector: &mut Collector<'_, '_>,
) -> Result<(), ImportError> {
    if let [file] = arguments
        && !file.starts_with("--")
    {
        return collector.directive(directive(1, "config".to_owned(), vec![file.clone()]), 0);
    }
    let mut index = 0;
    while index < arguments.len() {
        let place = index + 1;
        let argument = &arguments[index];
        index += 1;
        let rest = &arguments[index..];
        let count = rest
            .iter()
            .take_while(|word| !word.starts_with("--"))
            .count();
        index += count;
        let Some(name) = argument.strip_prefix("--") else {
            misread(
                collector,
                place,
                String::new(),
                format!(
                    "`{}` stands where an option was expected; options begin with `--`",
                    shown(argument)
                ),
            );
            continue;
        };
        if count >= WORDS_MAX {
            let reason = format!("more than {} values", WORDS_MAX - 1);
            misread(collector, place, name.to_owned(), reason);
            continue;
        }
        collector.directive(directive(place, name.to_owned(), rest[..count].to_vec()), 0)?;
    }
    Ok(())
}

fn directive(line: usize, name: String, values: Vec<String>) -> Directive {
    Directive {
        origin: Origin::of_argument(line),
        name,
        values,
        inline: None,
        block: Vec::new(),
        optional: false,
    }
}

fn misread(collector: &mut Collector<'_, '_>, line: usize, name: String, reason: String) {
    collector.misread.push(Misread {
        origin: Origin::of_argument(line),
        name,
        reason,
    });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use zeroize::Zeroizing;

    use super::*;
    use crate::permissions::Permissions;

    fn names(arguments: &[&str]) -> (Vec<String>, usize) {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        let mut read = |_: &Path| Ok(Zeroizing::new(b"verb 4\n".to_vec()));
        let mut collector = Collector::new(&mut read, Permissions::ALL);
        collect(&arguments, &mut collector).unwrap();
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
}
