//! AmneziaWG's settings in files and in the configuration protocol. Their values are `wireguard`'s to read; a key is base64
//! in files and hexadecimal in the protocol.

pub mod draw;
pub mod link;

use std::io::{self, Write};
use std::sync::LazyLock;

use wireguard::amnezia::{KEYS, Settings};
use zeroize::Zeroizing;

use crate::keys::{Texts, Verdicted, key, texts, write_texts};
use crate::types::Key32;

/// Options of OpenWrt's protocol `amneziawg`, each with its key in files: `awg_jc` for `Jc`.
pub static OPTIONS: LazyLock<[(String, &'static str); KEYS.len()]> =
    LazyLock::new(|| KEYS.map(|name| (format!("awg_{}", protocol_name(name)), name)));

/// The key whose value is secret.
const SECRET: &str = "HeaderProtectionKey";

/// Sets the value of a key, in the spelling of files. Returns a remark, which may be empty.
///
/// # Errors
/// Words about the value, which they do not quote.
pub fn set(settings: &mut Settings, name: &str, value: &str) -> Verdicted {
    let hex = (name == SECRET)
        .then(|| key(value).map(|key| key.to_hex()))
        .transpose()?;
    let set = settings.set(name, hex.as_ref().map_or(value, |hex| hex.as_str()));
    set.map_err(|fault| fault.to_string())?;
    Ok(match name.strip_prefix(['I', 'J']).map(str::len) {
        Some(1) if value.contains("<wt") => "its pause `wt` is left out".to_owned(),
        _ => String::new(),
    })
}

/// The value for a file's line; none for a default.
pub(crate) fn show(settings: &Settings, name: &str) -> Texts {
    match name {
        SECRET => header_key(settings).iter().map(Key32::to_base64).collect(),
        _ => texts(settings.show(name)),
    }
}

fn header_key(settings: &Settings) -> Option<Key32> {
    let key = settings.header_key.as_ref();
    key.map(|key| Key32::new(*key.as_bytes()))
}

/// The value in the configuration protocol; `None` for a default.
fn value(settings: &Settings, name: &str) -> Option<Zeroizing<String>> {
    match name {
        SECRET => header_key(settings).as_ref().map(Key32::to_hex),
        _ => settings.show(name).map(Zeroizing::new),
    }
}

/// The lines of a file for the other end, which has the same values; empty for plain WireGuard.
#[must_use]
pub fn lines(settings: &Settings) -> Zeroizing<String> {
    // A text that grows would leave copies of the key behind.
    let mut out = Zeroizing::new(String::with_capacity(size(settings)));
    for name in KEYS {
        write_texts("", name, show(settings, name), &mut out);
    }
    out
}

/// Values of the [`OPTIONS`] that differ from the defaults. Switches are UCI's `1`.
pub fn options(
    settings: &Settings,
) -> impl Iterator<Item = (&'static str, Zeroizing<String>)> + use<'_> {
    OPTIONS.iter().flat_map(move |(option, name)| {
        let values = show(settings, name).into_iter();
        values.map(move |value| match value.as_str() {
            "on" => (option.as_str(), "1".to_owned().into()),
            _ => (option.as_str(), value),
        })
    })
}

/// Upper bound of the bytes of all lines.
pub(crate) fn size(settings: &Settings) -> usize {
    let values = KEYS.iter().filter_map(|name| value(settings, name));
    values.map(|value| value.len() + 32).sum()
}

/// The name of a key in the configuration protocol: `header_protection_key`.
fn protocol_name(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for (at, letter) in name.char_indices() {
        if at > 0 && letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Changes of a request to AmneziaWG's settings.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Change {
    /// Whether keys that are not named get their defaults.
    whole: bool,
    /// Values by their names in files, in the spelling of the protocol.
    values: Vec<(&'static str, Zeroizing<String>)>,
}

impl Change {
    /// The change to these settings, whatever they are before.
    #[must_use]
    pub fn whole(settings: &Settings) -> Self {
        let value = |name: &&'static str| Some((*name, value(settings, name)?));
        Self {
            whole: true,
            values: KEYS.iter().filter_map(value).collect(),
        }
    }

    /// Whether the request says nothing about these settings.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.whole && self.values.is_empty()
    }

    /// Takes a line of a request. Returns whether the key is one of these settings.
    pub(crate) fn takes(&mut self, key: &str, value: &str) -> Result<bool, String> {
        let Some(name) = KEYS.iter().find(|name| protocol_name(name) == key) else {
            return Ok(false);
        };
        let fault = Settings::default().set(name, value).err();
        fault.map_or(Ok(()), |fault| Err(format!("{key}: {fault}")))?;
        self.values.push((name, Zeroizing::new(value.to_owned())));
        Ok(true)
    }

    /// The settings after the change.
    ///
    /// # Errors
    /// Words about values that do not go together.
    pub fn apply(&self, current: &Settings) -> Result<Settings, String> {
        let mut settings = match self.whole {
            true => Settings::default(),
            false => current.clone(),
        };
        let mut values = self.values.iter();
        let set = values.try_for_each(|(name, value)| settings.set(name, value));
        let checked = set.and_then(|()| settings.check());
        checked
            .map(|()| settings)
            .map_err(|fault| fault.to_string())
    }
}

impl core::fmt::Debug for Change {
    /// Names without values, of which one is secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list()
            .entries(self.values.iter().map(|(name, _)| name))
            .finish()
    }
}

/// Writes the settings into the answer to `get=1`, in the order that `awg` expects; nothing for plain WireGuard.
pub(crate) fn write(out: &mut impl Write, settings: &Settings) -> io::Result<()> {
    if settings.is_plain() {
        return Ok(());
    }
    for name in KEYS {
        let value = value(settings, name);
        let value = match (value.as_ref().map(|value| value.as_str()), name) {
            (Some("on"), _) => "1",
            (Some(value), _) => value,
            (None, "H1" | "H2" | "H3" | "H4") => &name[1..],
            (None, "RandomTrailers" | "DisableCookies") => "0",
            (None, _) => continue,
        };
        writeln!(out, "{}={value}", protocol_name(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::Permissions;
    use crate::uapi::{DeviceState, Request, Requests, write_get};
    use crate::wgquick;

    const FILE: &str = "[Interface]\n\
        PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
        Jc = 4\nJmin = 40\nJmax = 70\nS1 = 30\nS2 = 40\nS3 = 25\nS4 = 16\n\
        H1 = 100-200\nH2 = 300\nH3 = 400\nH4 = 500-600\nI1 = <b 0xc0ffee><t><r 16>\nJ1 = <c>\nItime = 60\n\
        HeaderProtectionKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
        ContentPaddingAddition = 10-100\nRekeyAfterTime = 100-120\nRekeyTimeout = 3-7\n\
        RejectAfterTime = 150-180\nKeepaliveTimeout = 5-15\nMaxHandshakeAttempts = 15-20\n\
        RandomTrailers = on\nDisableCookies = on\n";

    fn read(text: &str) -> wgquick::Import {
        wgquick::parse(text, "wg0.conf", Permissions::NONE)
    }

    #[test]
    fn files_and_the_protocol_carry_every_value() {
        let (tunnel, report) = read(FILE).into_tunnel().unwrap();
        assert!(report.is_clean());
        let text = tunnel.to_conf();
        assert_eq!(*text, FILE);
        let given = tunnel.interface.amnezia;
        let device = DeviceState {
            amnezia: given.clone(),
            ..DeviceState::default()
        };
        let mut answer = Vec::new();
        write_get(&mut answer, &device, []).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let set = format!("set=1\n{}", answer.replace("errno=0\n", ""));
        let request = Requests::new(set.as_bytes())
            .next_request()
            .unwrap()
            .unwrap();
        let Ok(Request::Set(set)) = request else {
            panic!("{set}: {request:?}");
        };
        assert_eq!(set.amnezia.apply(&Settings::default()), Ok(given.clone()));
        assert_eq!(Change::whole(&given).apply(&Settings::default()), Ok(given));
        assert!(!format!("{set:?}").contains("c53201"));
    }

    #[test]
    fn the_protocol_keeps_what_is_not_named_and_refuses_what_does_not_fit() {
        let mut change = Change::default();
        assert_eq!(change.takes("jc", "7"), Ok(true));
        assert_eq!(change.takes("i1", ""), Ok(true));
        assert_eq!(change.takes("listen_port", "7"), Ok(false));
        assert!(change.takes("h1", "x").is_err());
        let mut current = Settings::default();
        current.set("S1", "9").unwrap();
        current.set("I1", "<r 1>").unwrap();
        let after = change.apply(&current).unwrap();
        assert_eq!(
            (after.show("Jc").as_deref(), after.show("I1")),
            (Some("7"), None)
        );
        assert_eq!(after.show("S1").as_deref(), Some("9"));
        change.takes("h2", "1-5").unwrap();
        assert!(
            change
                .apply(&current)
                .unwrap_err()
                .contains("H1 and H2 overlap")
        );
        let mut answer = Vec::new();
        write(&mut answer, &current).unwrap();
        let expected =
            "s1=9\nh1=1\nh2=2\nh3=3\nh4=4\ni1=<r 1>\nrandom_trailers=0\ndisable_cookies=0\n";
        assert_eq!(String::from_utf8(answer).unwrap(), expected);
    }

    #[test]
    fn files_of_other_programs_are_understood_or_refused_with_a_remedy() {
        let head = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";
        for line in ["I2 =", "jc = 3", "randomtrailers = true", " I1 = <b 0xABC>"] {
            let import = read(&format!("{head}{line}\n"));
            assert!(import.is_usable(), "{line}");
        }
        for (line, words) in [
            ("Jc = 4-8", "must be a number from 0 to 128"),
            ("H1 = 2", "wg0.conf:1: H1 and H2 overlap"),
            ("RekeyTimeout = 3-70000", "must be a number or a range"),
            ("I1 = <q>", "unknown tag; use <b 0xHEX>"),
            (
                "HeaderProtectionKey = 40",
                "wg0.conf:3: HeaderProtectionKey",
            ),
            ("Jmin = 9", "Jmin is above Jmax"),
        ] {
            let fault = read(&format!("{head}{line}\n")).into_tunnel().unwrap_err();
            assert!(fault.to_string().contains(words), "{line}: {fault}");
        }
    }
}
