//! `/etc/config/dhcp`: finds the directory from which `dnsmasq` will read further files, before it has been started.

use std::path::{Path, PathBuf};

use crate::uci::{FILE_MAX, Package, Section};

/// The directory of the first `dnsmasq` section, as the init script will create it. `None` without the file or the
/// section.
#[must_use]
pub fn directory_of(configuration: &Path) -> Option<PathBuf> {
    let text = config::file::read_text(&configuration.join("dhcp"), FILE_MAX).ok()?;
    // Faults in other sections do not matter.
    directory(&Package::parse(&text).ok()?)
}

/// The directory of the first `dnsmasq` section: its option `confdir`, or the default, named after the section.
#[must_use]
pub fn directory(package: &Package) -> Option<PathBuf> {
    let mut all = package.sections.iter().enumerate();
    let (place, section) = all.find(|(_, it)| it.kind == "dnsmasq")?;
    let directory = match section.text("confdir") {
        Some(text) => text.split(',').next().unwrap_or_default().to_owned(),
        None => format!("/tmp/dnsmasq.{}.d", name_of(section, place)),
    };
    directory.starts_with('/').then(|| directory.into())
}

/// The name that libuci gives an anonymous section: its position among all sections, from 1, and a digest of its
/// type.
fn name_of(section: &Section, place: usize) -> String {
    match &section.name {
        Some(name) => name.clone(),
        None => {
            let digest = section.kind.bytes().fold(5381_u32, |sum, byte| {
                sum.wrapping_mul(33).wrapping_add(u32::from(byte))
            });
            format!("cfg{:02x}{:04x}", place + 1, digest & 0xffff)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(directory_of(Path::new("/nowhere")), None);
    }
}
