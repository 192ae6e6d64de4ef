//! A package as Debian expects it: a control file, and maintainer scripts that tell systemd about the package's units
//! (as debhelper's do, deb-systemd-helper(1p)).

use crate::packages::ipk::Content;
use crate::packages::stanza::Stanza;
use crate::packages::tree::{Kind, TreeError};
use crate::packages::{Package, script_lines};

/// Shell condition: systemd runs, and dpkg installs into the running system and not into another root.
const BOOTED: &str = "[ -z \"${DPKG_ROOT-}\" ] && [ -d /run/systemd/system ]";

/// Directory of systemd units.
const UNITS: &str = "lib/systemd/system/";

/// The package's file name.
#[must_use]
pub fn name(package: &Package) -> String {
    format!(
        "{}_{}_{}.deb",
        package.name,
        package.version,
        package.architecture_or("all")
    )
}

/// Builds the content of a deb.
///
/// # Errors
/// When a configuration file's path cannot be listed.
pub fn deb(package: &Package) -> Result<Content, TreeError> {
    let stanza = Stanza::default()
        .with("Package", &package.name)
        .with("Version", &package.version)
        .with("Architecture", package.architecture_or("all"))
        .with("Maintainer", &package.maintainer)
        .with("Installed-Size", installed_kilobytes(package))
        .with("Depends", package.depends.join(", "))
        .with("Recommends", package.recommends.join(", "))
        .with("Conflicts", package.conflicts.join(", "))
        .with("Replaces", package.conflicts.join(", "))
        .with("Provides", package.provides.join(", "))
        .with("Section", &package.section)
        .with("Priority", "optional")
        .with("Homepage", &package.url)
        .with("Description", package.full_description());
    let mut content = package.content(&stanza, package.tree.clone())?;
    let scripts = [
        (
            "postinst",
            script_lines(&package.postinst) + &postinst(package),
        ),
        ("prerm", script_lines(&package.prerm) + &prerm(package)),
        ("postrm", postrm(package)),
    ];
    for (name, script) in scripts {
        if !script.is_empty() {
            let script = format!("#!/bin/sh\nset -e\n{script}");
            content.control.file(name, 0o755, script.as_bytes())?;
        }
    }
    Ok(content)
}

/// Size as dpkg-gencontrol counts it: files rounded up, and 1 for each directory and link.
fn installed_kilobytes(package: &Package) -> u64 {
    let sizes = package.tree.iter().map(|(_, entry)| match &entry.kind {
        Kind::File(content) => (content.len() as u64).div_ceil(1024),
        _ => 1,
    });
    sizes.sum()
}

/// The package's units, without templates, which have no state of their own.
fn units(package: &Package) -> Vec<(&str, &str)> {
    let units = package.tree.iter().filter_map(|(path, entry)| {
        let name = path.strip_prefix(UNITS)?;
        let text = str::from_utf8(entry.content()).ok()?;
        (!name.contains(['/', '@'])).then_some((name, text))
    });
    units.collect()
}

/// The package's templates that can be enabled, up to their `@`.
fn templates(package: &Package) -> Vec<&str> {
    let templates = package.tree.iter().filter_map(|(path, entry)| {
        let name = path.strip_prefix(UNITS)?.strip_suffix("@.service")?;
        let text = str::from_utf8(entry.content()).ok()?;
        (!name.contains('/') && text.contains("[Install]")).then_some(name)
    });
    templates.collect()
}

/// The units that stop with the package: its own units, and the instances of its templates.
fn stopped(package: &Package) -> String {
    let names = package
        .tree
        .iter()
        .filter_map(|(path, _)| path.strip_prefix(UNITS));
    let names = names.filter(|it| !it.contains('/'));
    let names: Vec<String> = names
        .map(|it| format!("'{}'", it.replace('@', "@*")))
        .collect();
    names.join(" ")
}

fn postinst(package: &Package) -> String {
    let stopped = stopped(package);
    if stopped.is_empty() {
        return String::new();
    }
    let mut script =
        "case $1 in\nconfigure | abort-upgrade | abort-deconfigure | abort-remove)\n".to_owned();
    for (unit, text) in units(package) {
        if text.contains("[Install]") {
            script += &format!(
                "    deb-systemd-helper unmask '{unit}' >/dev/null || true\n\
                 \x20   if deb-systemd-helper --quiet was-enabled '{unit}'; then\n\
                 \x20       deb-systemd-helper enable '{unit}' >/dev/null || true\n\
                 \x20   else\n\
                 \x20       deb-systemd-helper update-state '{unit}' >/dev/null || true\n\
                 \x20   fi\n"
            );
        }
    }
    // The script starts no unit that the user has not started. Tunnels that are up restart with the new program.
    // Other units, such as the one that blocks traffic outside tunnels, keep running.
    let tunnels: Vec<&str> = stopped.split(' ').filter(|it| it.contains('@')).collect();
    let restart = match tunnels.as_slice() {
        [] => String::new(),
        names => format!(
            "        [ -z \"$2\" ] || systemctl try-restart {} >/dev/null || true\n{}",
            names.join(" "),
            // Tunnels that were brought up by hand restart too, in a scope of their own so that they outlive the
            // upgrade.
            match names.iter().any(|it| it.starts_with("'millrace@")) {
                true =>
                    "        [ -z \"$2\" ] || systemd-run --quiet --scope millrace restart --daemons || true\n",
                false => "",
            }
        ),
    };
    script += &format!(
        "    if {BOOTED}; then\n\
         \x20       systemctl --system daemon-reload >/dev/null || true\n\
         {restart}\
         \x20   fi\n\
         \x20   ;;\n\
         esac\n"
    );
    script
}

fn prerm(package: &Package) -> String {
    let stopped = stopped(package);
    if stopped.is_empty() {
        return String::new();
    }
    format!(
        "if [ \"$1\" = remove ] && {BOOTED}; then\n\
         \x20   systemctl stop {stopped} >/dev/null || true\n\
         fi\n"
    )
}

fn postrm(package: &Package) -> String {
    let mut script = String::new();
    let units = units(package);
    let installed: Vec<String> = units
        .iter()
        .filter(|(_, text)| text.contains("[Install]"))
        .map(|(unit, _)| format!("'{unit}'"))
        .collect();
    if !stopped(package).is_empty() {
        script += &format!(
            "if [ \"$1\" = remove ] && {BOOTED}; then\n\
             \x20   systemctl --system daemon-reload >/dev/null || true\n\
             fi\n"
        );
    }
    if !installed.is_empty() {
        let names = installed.join(" ");
        script += &format!(
            "if [ \"$1\" = purge ] && [ -x /usr/bin/deb-systemd-helper ]; then\n\
             \x20   deb-systemd-helper purge {names} >/dev/null || true\n\
             \x20   deb-systemd-helper unmask {names} >/dev/null || true\n\
             fi\n"
        );
    }
    // deb-systemd-helper ignores instances. Links stay if another package, or the user, now has a template of that
    // name.
    for name in templates(package) {
        script += &format!(
            "if [ \"$1\" = purge ] && [ ! -e \"$DPKG_ROOT/lib/systemd/system/{name}@.service\" ] &&\n\
             \x20   [ ! -e \"$DPKG_ROOT/usr/lib/systemd/system/{name}@.service\" ] &&\n\
             \x20   [ ! -e \"$DPKG_ROOT/etc/systemd/system/{name}@.service\" ]; then\n\
             \x20   for link in \"$DPKG_ROOT\"/etc/systemd/system/*.wants/{name}@?*.service \\\n\
             \x20       \"$DPKG_ROOT\"/etc/systemd/system/*.requires/{name}@?*.service; do\n\
             \x20       [ -L \"$link\" ] || continue\n\
             \x20       rm -f \"$link\"\n\
             \x20       rmdir \"${{link%/*}}\" 2>/dev/null || true\n\
             \x20   done\n\
             fi\n"
        );
    }
    // Directories that the user and the program have filled.
    let kept: Vec<&str> = package.kept().filter(|it| it.ends_with('/')).collect();
    if !kept.is_empty() {
        let paths = kept
            .iter()
            .map(|it| format!("\"$DPKG_ROOT{}\"", it.trim_end_matches('/')));
        let paths = paths.collect::<Vec<_>>().join(" ");
        script += &format!("if [ \"$1\" = purge ]; then\n    rm -rf {paths}\nfi\n");
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::tree::Tree;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    fn package() -> Package {
        let mut tree = Tree::default();
        for (name, install) in [
            ("millrace@.service", true),
            ("millrace-guard.service", true),
            ("millrace.target", false),
        ] {
            let text = if install {
                "[Unit]\n[Install]\n"
            } else {
                "[Unit]\n"
            };
            tree.file(&format!("{UNITS}{name}"), 0o644, text.as_bytes())
                .unwrap();
        }
        Package {
            name: "millrace".to_owned(),
            architecture: "armhf".to_owned(),
            version: "1.2.3-1".to_owned(),
            conffiles: vec!["/etc/millrace/".to_owned()],
            conflicts: vec!["openvpn".to_owned()],
            tree,
            ..Package::default()
        }
    }

    #[test]
    fn scripts_are_valid_and_name_what_the_package_brings() {
        let content = deb(&package()).unwrap();
        for (name, words) in [
            (
                "postinst",
                vec![
                    "was-enabled 'millrace-guard.service'",
                    "try-restart 'millrace@*.service'",
                    "[ -z \"$2\" ] || systemd-run --quiet --scope millrace restart --daemons",
                ],
            ),
            (
                "prerm",
                vec!["stop 'millrace-guard.service' 'millrace.target' 'millrace@*.service'"],
            ),
            (
                "postrm",
                vec![
                    "purge 'millrace-guard.service'",
                    "/etc/systemd/system/*.wants/millrace@?*.service",
                    "rm -rf \"$DPKG_ROOT/etc/millrace\"",
                ],
            ),
        ] {
            let script = content.control.content(name).unwrap();
            let text = String::from_utf8_lossy(script);
            for word in words {
                assert!(text.contains(word), "{name}: {word}: {text}");
            }
            assert!(
                text.contains(BOOTED),
                "{name} would tell the systemd of a machine that it does not install on"
            );
            let mut shell = Command::new("sh")
                .arg("-n")
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            shell.stdin.take().unwrap().write_all(script).unwrap();
            assert!(shell.wait().unwrap().success(), "{text}");
        }
        let empty = deb(&Package::default()).unwrap();
        let paths: Vec<&str> = empty.control.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["control"], "no units, no scripts");
    }
}
