//! Environment of a script: names and values, sanitised when set.
//!
//! As in stock, scripts do not inherit the program's own environment. A client can trigger scripts, and they must not
//! see variables exported for the daemon.

use std::fmt;

use config::openvpn::ScriptSecurity;
use zeroize::Zeroizing;

use crate::scripts::names;

/// Name prefix of variables that hold passwords: scripts see them only from `script-security 3` on.
const PASSWORD: &str = "password";

/// Maximum length in bytes, and number, of lines of peer information: a peer must not fill memory.
#[cfg(feature = "server")]
const PEER_INFO_LINE_MAX: usize = 256;
#[cfg(feature = "server")]
const PEER_INFO_LINES_MAX: usize = 128;

/// Variables for a script, in the order of their names. Values are wiped when dropped.
///
/// A server keeps some thirty variables per client and seldom reads them. So they are one text with a line for each,
/// rebuilt on each change.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Environment {
    /// Lines of `name=value`. Names contain no `=`, and printable values no newline.
    text: Zeroizing<String>,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.all().map(|(name, value)| {
            let value = if is_secret(name) { "hidden" } else { value };
            (name, value)
        });
        f.debug_map().entries(shown).finish()
    }
}

fn is_secret(name: &str) -> bool {
    name.starts_with(PASSWORD) || name == "auth_token" || name == "crresponse"
}

impl Environment {
    /// Sets a variable; unprintable characters in the value become underscores.
    pub fn set(&mut self, name: &str, value: impl fmt::Display) {
        let value = Zeroizing::new(value.to_string());
        let value = Zeroizing::new(names::value(&value));
        self.put(&names::variable(name), Some(&value));
    }

    /// Sets or removes a variable, and wipes the old value.
    fn put(&mut self, name: &str, value: Option<&str>) {
        let len = |value: &str| name.len() + value.len() + 2;
        let before = self.all().find(|(other, _)| *other == name);
        let before = before.map_or(0, |(_, value)| len(value));
        let room = self.text.len() - before + value.map_or(0, len);
        let mut text = Zeroizing::new(String::with_capacity(room));
        let smaller = self.all().filter(|(other, _)| *other < name);
        let larger = self.all().filter(|(other, _)| *other > name);
        for (name, value) in smaller.chain(value.map(|it| (name, it))).chain(larger) {
            for part in [name, "=", value, "\n"] {
                text.push_str(part);
            }
        }
        self.text = text;
    }

    /// Returns all variables.
    fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.text.split_terminator('\n');
        lines.filter_map(|line| line.split_once('='))
    }

    /// Sets a variable, or removes it if the value is `None`.
    pub(crate) fn set_or_remove(&mut self, name: &str, value: Option<impl fmt::Display>) {
        match value {
            Some(value) => self.set(name, value),
            None => self.remove(name),
        }
    }

    /// Sets a variable from the server's `setenv-safe`, prefixed with `OPENVPN_` so that it cannot be `LD_PRELOAD`.
    pub fn set_safe(&mut self, name: &str, value: &str) {
        self.set(&format!("OPENVPN_{name}"), value);
    }

    /// Returns these variables, and those of `below` that are not set here.
    #[cfg(feature = "server")]
    pub(crate) fn over(&self, below: &Self) -> Self {
        let mut both = self.clone();
        for (name, value) in below.all() {
            if both.value(name).is_none() {
                both.put(name, Some(value));
            }
        }
        both
    }

    /// Removes a variable, if set.
    pub(crate) fn remove(&mut self, name: &str) {
        if self.all().any(|(other, _)| other == name) {
            self.put(name, None);
        }
    }

    /// Removes every variable whose name has this prefix.
    pub(crate) fn remove_all(&mut self, prefix: &str) {
        let gone = self.all().map(|(name, _)| name);
        let gone: Vec<String> = gone
            .filter(|name| name.starts_with(prefix))
            .map(str::to_owned)
            .collect();
        for name in gone {
            self.put(&name, None);
        }
    }

    /// Returns a variable's value.
    #[cfg(any(test, feature = "server"))]
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let mut all = self.all();
        all.find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }

    /// Sets the peer's own information: its lines `IV_…=…`, `UV_…=…` and `ID…=…`. Other lines, and values that are no
    /// plain word to a shell, are dropped.
    #[cfg(feature = "server")]
    pub fn set_peer_info(&mut self, text: &str) {
        for line in text.lines().take(PEER_INFO_LINES_MAX) {
            if let Some((name, value)) = peer_info(line) {
                self.set(name, &value);
            }
        }
    }

    /// Returns the variables that a script may see at this `script-security` level.
    pub(crate) fn visible(&self, security: ScriptSecurity) -> impl Iterator<Item = (&str, &str)> {
        let passwords = security >= ScriptSecurity::Passwords;
        self.all()
            .filter(move |(name, _)| passwords || !name.starts_with(PASSWORD))
    }
}

/// Parses a line of peer information that scripts and the management port may see: its name, and its value without
/// shell metacharacters.
#[cfg(feature = "server")]
pub(crate) fn peer_info(line: &str) -> Option<(&str, String)> {
    if line.len() >= PEER_INFO_LINE_MAX {
        return None;
    }
    let (name, value) = line.split_once('=')?;
    let known = ["IV_", "UV_", "ID"].iter().any(|p| name.starts_with(p));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !known || !name.chars().all(plain) {
        return None;
    }
    let harmless = |c: char| c.is_ascii_graphic() && !"$(`".contains(c);
    let value = value
        .chars()
        .map(|c| if harmless(c) { c } else { '_' })
        .collect();
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_made_printable() {
        let mut environment = Environment::default();
        environment.set("a.b", "x\ny");
        environment.set_safe("LD_PRELOAD", "evil.so");
        assert_eq!(environment.value("a_b"), Some("x_y"));
        assert_eq!(environment.value("LD_PRELOAD"), None);
        assert_eq!(environment.value("OPENVPN_LD_PRELOAD"), Some("evil.so"));
    }

    #[test]
    fn passwords_are_seen_only_by_trusted_scripts_and_never_printed() {
        let mut environment = Environment::default();
        environment.set("password", "sesame");
        environment.set("username", "ali");
        let names =
            |level| -> Vec<&str> { environment.visible(level).map(|(name, _)| name).collect() };
        assert_eq!(names(ScriptSecurity::Scripts), ["username"]);
        assert_eq!(names(ScriptSecurity::Passwords), ["password", "username"]);
        let printed = format!("{environment:?}");
        assert!(!printed.contains("sesame") && printed.contains("ali"));
    }

    #[cfg(feature = "server")]
    #[test]
    fn peer_information_is_disarmed() {
        let mut environment = Environment::default();
        environment.set_peer_info(
            "IV_VER=2.6.14\nUV_X=$(reboot) `x`\nPATH=/evil\nIV bad=1\nID=7\nIV_NOTHING\n",
        );
        assert_eq!(environment.value("IV_VER"), Some("2.6.14"));
        assert_eq!(environment.value("UV_X"), Some("__reboot)__x_"));
        assert_eq!(environment.value("PATH"), None);
        assert_eq!(environment.value("ID"), Some("7"));
        assert_eq!(environment.visible(ScriptSecurity::None).count(), 3);
    }

    proptest! {
        #[test]
        fn the_text_is_a_map(changes in prop::collection::vec(("[a-c=._]{0,3}", prop::option::of(".*")), 0..24)) {
            let mut environment = Environment::default();
            let mut map = std::collections::BTreeMap::new();
            for (name, value) in changes {
                environment.set_or_remove(&name, value.as_ref());
                match value {
                    Some(value) => map.insert(names::variable(&name), names::value(&value)),
                    None => map.remove(&name),
                };
                let all = environment.visible(ScriptSecurity::Passwords);
                prop_assert!(all.eq(map.iter().map(|(name, value)| (name.as_str(), value.as_str()))));
                prop_assert_eq!(environment.text.capacity(), environment.text.len());
            }
            environment.remove_all("a");
            map.retain(|name, _| !name.starts_with('a'));
            let all = environment.visible(ScriptSecurity::Passwords);
            prop_assert!(all.eq(map.iter().map(|(name, value)| (name.as_str(), value.as_str()))));
        }

        #[cfg(feature = "server")]
        #[test]
        fn no_peer_sets_a_foreign_variable(text in ".*") {
            let mut environment = Environment::default();
            environment.set_peer_info(&text);
            for (name, value) in environment.visible(ScriptSecurity::Passwords) {
                prop_assert!(name.starts_with("IV_") || name.starts_with("UV_") || name.starts_with("ID"));
                prop_assert!(value.chars().all(|c| c.is_ascii_graphic()));
            }
        }
    }
}
