//! A package as OpenWrt expects it: its control file or description, lists of files, and scripts that call the
//! firmware's functions.

use crate::packages::apk::{Apk, ApkError, Info};
use crate::packages::ipk::Content;
use crate::packages::stanza::Stanza;
use crate::packages::tree::{Kind, TreeError};
use crate::packages::{Package, hash, script_lines};
use std::collections::BTreeMap;

/// Where sysupgrade finds lists of files to keep, besides configuration files.
const KEEP: &str = "lib/upgrade/keep.d";
/// Directory of apk's lists of files, which sysupgrade and the firmware's functions read.
const LISTS: &str = "lib/apk/packages";

/// The ipk's file name.
#[must_use]
pub fn ipk_name(package: &Package) -> String {
    format!(
        "{}_{}_{}.ipk",
        package.name,
        package.version,
        package.architecture_or("all")
    )
}

/// The apk's file name, which apk derives from the index.
#[must_use]
pub fn apk_name(package: &Package) -> String {
    format!("{}-{}.apk", package.name, package.version)
}

/// Builds the content of an ipk.
///
/// # Errors
/// When the package itself contains a list that this function makes.
pub fn ipk(package: &Package) -> Result<Content, TreeError> {
    let stanza = Stanza::default()
        .with("Package", &package.name)
        .with("Version", &package.version)
        .with("Depends", package.depends.join(", "))
        .with("Conflicts", package.conflicts.join(", "))
        .with("Provides", package.provides.join(", "))
        .with("Source", format!("feeds/millrace/{}", package.name))
        .with("License", &package.license)
        .with("Section", &package.section)
        .with("URL", &package.url)
        .with("Maintainer", &package.maintainer)
        .with("Architecture", package.architecture_or("all"))
        .with("Installed-Size", package.tree.size())
        .with("Description", package.full_description());
    let mut content = package.content(&stanza, with_keep_list(package)?.tree)?;
    let control = &mut content.control;
    for (name, function, own) in [
        ("postinst", "default_postinst", &package.postinst),
        ("prerm", "default_prerm", &package.prerm),
    ] {
        let script = script(&[], &format!("{function} \"$0\" \"$@\""));
        control.file(name, 0o755, script.as_bytes())?;
        // The firmware's function runs this script.
        if !own.is_empty() {
            control.file(&format!("{name}-pkg"), 0o755, own.as_bytes())?;
        }
    }
    Ok(content)
}

/// Builds the content of an apk.
///
/// # Errors
/// When the package itself contains a list that this function makes.
pub fn apk(package: &Package, date: u64) -> Result<Apk, ApkError> {
    let Package { name, version, .. } = package;
    let mut tree = with_keep_list(package)?.tree;
    let conffiles: String = package
        .conffiles
        .iter()
        .map(|it| format!("{it}\n"))
        .collect();
    if !conffiles.is_empty() {
        tree.file(
            &format!("{LISTS}/{name}.conffiles"),
            0o644,
            conffiles.as_bytes(),
        )?;
        let own = package.own_conffiles().filter_map(|path| {
            let content = package.tree.content(path.trim_start_matches('/'))?;
            Some(format!("{path} {}\n", hash::hex(&hash::sha256(content))))
        });
        let own: String = own.collect();
        if !own.is_empty() {
            let path = format!("{LISTS}/{name}.conffiles_static");
            tree.file(&path, 0o644, own.as_bytes())?;
        }
    }
    let files = tree
        .iter()
        .filter(|(_, entry)| entry.kind != Kind::Directory);
    let list: String = files.map(|(path, _)| format!("/{path}\n")).collect();
    tree.file(&format!("{LISTS}/{name}.list"), 0o644, list.as_bytes())?;
    // apk only lets a package replace another if it provides that name with a version.
    let provides = package.provides.iter().map(|it| format!("{it}={version}"));
    let conflicts = package.conflicts.iter().map(|it| format!("!{it}"));
    let info = Info {
        name: name.clone(),
        version: version.clone(),
        description: package.summary.clone(),
        architecture: package.architecture.clone(),
        license: package.license.clone(),
        // Packages of the same origin may overwrite each other's files, so each gets its own origin.
        origin: format!("feeds/millrace/{name}"),
        maintainer: package.maintainer.clone(),
        url: package.url.clone(),
        date,
        depends: package.depends.iter().cloned().chain(conflicts).collect(),
        provides: provides.collect(),
        ..Info::default()
    };
    let root = "export root=\"${IPKG_INSTROOT}\"".to_owned();
    let named = format!("export pkgname={name}");
    let exports = [root, named];
    let install =
        script(&exports, "add_group_and_user\ndefault_postinst") + &script_lines(&package.postinst);
    // On an upgrade, the function restarts running services and leaves disabled ones disabled.
    let upgrade = install.replacen('\n', "\nexport PKG_UPGRADE=1\n", 1);
    let remove = script(&exports, "default_prerm") + &script_lines(&package.prerm);
    let scripts = [
        ("post-install", install),
        ("post-upgrade", upgrade),
        ("pre-deinstall", remove),
    ];
    let scripts = scripts.map(|(name, script)| (name.to_owned(), script.into_bytes()));
    Ok(Apk {
        info,
        scripts: BTreeMap::from(scripts),
        tree,
    })
}

/// Adds the list of files that sysupgrade keeps besides configuration files.
fn with_keep_list(package: &Package) -> Result<Package, TreeError> {
    let mut package = package.clone();
    let list: String = package.kept().map(|it| format!("{it}\n")).collect();
    if !list.is_empty() {
        let path = format!("{KEEP}/{}", package.name);
        package.tree.file(&path, 0o644, list.as_bytes())?;
    }
    Ok(package)
}

/// Writes a script that calls a function of the firmware. It does nothing where the firmware lacks the function, or
/// the image builder runs its own scripts.
fn script(exports: &[String], call: &str) -> String {
    let exports: String = exports.iter().map(|it| format!("{it}\n")).collect();
    format!(
        "#!/bin/sh\n\
         [ \"${{IPKG_NO_SCRIPT}}\" != 1 ] || exit 0\n\
         functions=\"${{IPKG_INSTROOT}}/lib/functions.sh\"\n\
         [ -s \"$functions\" ] || exit 0\n\
         . \"$functions\"\n\
         {exports}{call}\n"
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::packages::tree::{Entry, Tree};
    use std::process::Command;

    pub(crate) fn package() -> Package {
        let mut tree = Tree::default();
        tree.file("usr/sbin/millrace", 0o755, b"program").unwrap();
        tree.file("etc/config/millrace", 0o600, b"config\n")
            .unwrap();
        tree.add("etc/millrace", Entry::directory(0o700)).unwrap();
        Package {
            name: "millrace".to_owned(),
            version: "1.2.3-r1".to_owned(),
            architecture: "arm_cortex-a7_neon-vfpv4".to_owned(),
            summary: "A VPN".to_owned(),
            description: "Of two\n\nlines.".to_owned(),
            license: "Apache-2.0".to_owned(),
            depends: vec!["kmod-tun".to_owned()],
            provides: vec!["vpn".to_owned()],
            conflicts: vec!["other".to_owned()],
            conffiles: vec![
                "/etc/config/millrace".to_owned(),
                "/etc/millrace/".to_owned(),
            ],
            postinst: "#!/bin/sh\necho own\n".to_owned(),
            tree,
            ..Package::default()
        }
    }

    #[test]
    fn an_ipk_says_what_opkg_asks_for() {
        let content = ipk(&package()).unwrap();
        let control =
            String::from_utf8(content.control.content("control").unwrap().to_vec()).unwrap();
        for line in [
            "Package: millrace",
            "Version: 1.2.3-r1",
            "Depends: kmod-tun",
            "Conflicts: other",
            "Provides: vpn",
            "Architecture: arm_cortex-a7_neon-vfpv4",
            "Installed-Size: 14",
            "Description: A VPN\n Of two\n .\n lines.",
        ] {
            assert!(control.contains(&format!("{line}\n")), "{line}: {control}");
        }
        let text = |path| content.control.content(path).map(String::from_utf8_lossy);
        assert_eq!(text("conffiles").unwrap(), "/etc/config/millrace\n");
        assert!(
            text("postinst")
                .unwrap()
                .contains("default_postinst \"$0\" \"$@\"\n")
        );
        assert_eq!(text("postinst-pkg").unwrap(), "#!/bin/sh\necho own\n");
        assert_eq!(text("prerm-pkg"), None);
        let keep = content.data.content("lib/upgrade/keep.d/millrace").unwrap();
        assert_eq!(keep, b"/etc/millrace/\n");
    }

    #[test]
    fn an_apk_brings_the_lists_that_the_firmware_reads() {
        let apk = apk(&package(), 7).unwrap();
        let text =
            |path: &str| String::from_utf8(apk.tree.content(path).unwrap().to_vec()).unwrap();
        let list = text("lib/apk/packages/millrace.list");
        assert_eq!(
            list,
            "/etc/config/millrace\n/lib/apk/packages/millrace.conffiles\n\
             /lib/apk/packages/millrace.conffiles_static\n/lib/upgrade/keep.d/millrace\n/usr/sbin/millrace\n"
        );
        let digest = hash::hex(&hash::sha256(b"config\n"));
        let conffiles = text("lib/apk/packages/millrace.conffiles_static");
        assert_eq!(conffiles, format!("/etc/config/millrace {digest}\n"));
        assert_eq!(apk.info.depends, ["kmod-tun", "!other"]);
        assert_eq!(apk.info.provides, ["vpn=1.2.3-r1"]);
        let upgrade = String::from_utf8_lossy(&apk.scripts["post-upgrade"]).into_owned();
        assert!(
            upgrade.starts_with("#!/bin/sh\nexport PKG_UPGRADE=1\n"),
            "{upgrade}"
        );
        assert!(
            upgrade.ends_with("default_postinst\necho own\n"),
            "{upgrade}"
        );
    }

    /// Replaces the firmware's library by functions that only report their calls.
    #[test]
    fn scripts_call_the_firmware_where_there_is_one() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let run = |script: &[u8], no_script: &str| {
            let output = Command::new("sh")
                .args([
                    "-euc",
                    &String::from_utf8_lossy(script),
                    "millrace.postinst",
                    "configure",
                ])
                .env("IPKG_INSTROOT", root)
                .env("IPKG_NO_SCRIPT", no_script)
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let content = ipk(&package()).unwrap();
        let postinst = content.control.content("postinst").unwrap();
        assert_eq!(run(postinst, ""), "", "no firmware");
        std::fs::create_dir(root.join("lib")).unwrap();
        let functions = "for it in add_group_and_user default_postinst default_prerm; do\n\
             eval \"$it() { echo $it \\\"\\$@\\\" \\\"\\${pkgname-}\\\" \\\"\\${PKG_UPGRADE-}\\\"; }\"\ndone\n";
        std::fs::write(root.join("lib/functions.sh"), functions).unwrap();
        assert_eq!(run(postinst, "1"), "");
        assert_eq!(
            run(postinst, ""),
            "default_postinst millrace.postinst configure  \n"
        );
        let apk = apk(&package(), 7).unwrap();
        let called = run(&apk.scripts["post-upgrade"], "");
        assert_eq!(
            called,
            "add_group_and_user millrace 1\ndefault_postinst millrace 1\nown\n"
        );
        assert_eq!(
            run(&apk.scripts["pre-deinstall"], ""),
            "default_prerm millrace \n"
        );
    }
}
