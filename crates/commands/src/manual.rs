//! `millrace man` and `millrace completions`: make the files that an installation adds, from the commands' definitions.

use crate::Outcome;
use crate::arguments::{file, text};
use crate::table::{ENTRIES, Group};
use clap::{Arg, ArgMatches, Command, ValueHint, value_parser};
use clap_complete::{Shell, generate};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The command-line definition of `man`.
pub(crate) fn man_command() -> Command {
    Command::new("man")
        .about("Write the manual pages into a directory")
        .arg(
            Arg::new("DIRECTORY")
                .value_parser(value_parser!(PathBuf))
                .help("Such as /usr/local/share/man/man1 [default: print the page of `millrace` itself]"),
        )
}

/// The command-line definition of `completions`.
pub(crate) fn completions_command() -> Command {
    Command::new("completions")
        .about("Print a completion script for a shell")
        .arg(
            Arg::new("SHELL")
                .required(true)
                .value_parser(["bash", "zsh", "fish"]),
        )
}

/// Runs `man`.
pub(crate) fn man(matches: &ArgMatches) -> Outcome {
    match file(matches, "DIRECTORY") {
        Some(directory) => {
            pages(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        None => {
            let mut cli = crate::cli();
            cli.build();
            let mut page = Vec::new();
            clap_mangen::Man::new(cli).render(&mut page)?;
            host::terminal::text(String::from_utf8_lossy(&page));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn pages(directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(crate::cli(), directory)
}

/// Runs `completions`.
pub(crate) fn completions(matches: &ArgMatches) -> Outcome {
    host::terminal::text(script(match text(matches, "SHELL") {
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::Bash,
    }));
    Ok(ExitCode::SUCCESS)
}

/// Commands that take the name of a tunnel as their argument.
const NAMED: [&str; 7] = ["up", "start", "down", "restart", "reload", "logs", "check"];

/// A command line for shells that prints the names of all tunnels, one a line.
const NAMES: &str = "millrace list 2>/dev/null | sed -n 's|  .*  /.*||p'";

/// The script of a shell. `clap_complete` makes it for commands and options; names of tunnels are added here.
fn script(shell: Shell) -> String {
    // A hint that no argument has: its function in the script of zsh is replaced by the one for names.
    let hinted = |command: Command| {
        command.mut_args(|it| match it.get_id().as_str() {
            "NAME" | "FILE" => it.value_hint(ValueHint::Hostname),
            _ => it,
        })
    };
    let named = |cli: Command, name: &&str| match cli.find_subcommand(name).is_some() {
        true => cli.mut_subcommand(*name, hinted),
        false => cli,
    };
    let shown = ENTRIES.iter().filter(|it| it.0 != Group::Internal);
    let mut cli = NAMED
        .iter()
        .filter(|it| **it != "start")
        .fold(crate::cli_of(shown), named);
    let mut script = Vec::new();
    generate(shell, &mut cli, "millrace", &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Zsh => {
            let names = format!(
                "_millrace_names() {{\n    local -a names\n    names=(${{(f)\"$({NAMES})\"}})\n    \
                 _describe -t names tunnel names || _files\n}}\n\n_millrace() {{"
            );
            let script = script.replacen("_millrace() {", &names, 1);
            script.replace(":_hosts'", ":_millrace_names'")
        }
        Shell::Fish => {
            let named = NAMED.join(" ");
            let condition = format!("__fish_millrace_using_subcommand {named}");
            format!("{script}complete -c millrace -n \"{condition}\" -a \"({NAMES})\" -d tunnel\n")
        }
        _ => {
            let named = NAMED.join("|");
            format!(
                "{script}\n_millrace_names() {{\n    _millrace \"$@\"\n    case \"${{COMP_WORDS[1]}}\" in\n        \
                 {named}) [[ $2 == -* || $3 == -* ]] || COMPREPLY+=($(compgen -W \"$({NAMES})\" -- \"$2\")) ;;\n    \
                 esac\n}}\ncomplete -F _millrace_names -o bashdefault -o default millrace\n"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_its_page() {
        let directory = tempfile::tempdir().unwrap();
        pages(directory.path()).unwrap();
        let cli = crate::cli();
        let commands = cli.get_subcommands().filter(|it| !it.is_hide_set());
        for command in commands {
            let name = format!("millrace-{}.1", command.get_name());
            let page = std::fs::read_to_string(directory.path().join(&name)).unwrap();
            assert!(page.starts_with(".ie") || page.contains(".TH"), "{name}");
        }
        let page = std::fs::read_to_string(directory.path().join("millrace-up.1")).unwrap();
        assert!(page.contains("allow\\-scripts"), "{page}");
    }

    #[test]
    fn shells_complete_commands_options_and_names() {
        for (shell, names) in [
            (Shell::Bash, "COMPREPLY+=($(compgen -W \"$(millrace list"),
            (Shell::Zsh, ":_millrace_names' "),
            (
                Shell::Fish,
                "up start down restart reload logs check\" -a \"(millrace list",
            ),
        ] {
            let script = script(shell);
            for word in ["genkey", "allow-scripts", "completions", names] {
                assert!(script.contains(word), "{shell}: {word}");
            }
            for word in ["_hosts", "netifd", "rpcd"] {
                assert!(!script.contains(word), "{shell}: {word}");
            }
        }
    }

    /// The script of bash with another `millrace`, whose list is this.
    #[test]
    fn bash_completes_names_of_tunnels() {
        let list = "office  down  OpenVPN    /etc/millrace/office.ovpn\\nother   up    WireGuard  /a b/other.conf\\n";
        let complete = |words: &str, word: &str, before: &str| {
            let count = words.split(' ').count() - 1;
            let script = format!(
                "millrace() {{ printf '{list}'; }}\n{}\nCOMP_WORDS=({words}); COMP_CWORD={count}\n\
                 _millrace_names millrace '{word}' '{before}'\nprintf '%s,' \"${{COMPREPLY[@]}}\"",
                script(Shell::Bash)
            );
            // The script is too long for an argument.
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), script).unwrap();
            let output = std::process::Command::new("bash").arg(file.path()).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        assert!(complete("millrace down ''", "", "down").ends_with("office,other,"));
        assert_eq!(complete("millrace reload of", "of", "reload"), "office,");
        assert_eq!(complete("millrace genk", "genk", "millrace"), "genkey,");
        assert_eq!(complete("millrace status of", "of", "status"), ",");
    }
}
