//! The settings of alerts: programs to run, and web addresses to post to, when something happens.
//!
//! ```toml
//! [[on-event]]
//! events = ["uplink-down", "uplink-up"]       # left out: all
//! tunnels = ["mr-*"]                          # left out: all
//! run = ["/etc/millrace/alert.sh", "argument"]
//!
//! [[on-event]]
//! post = "https://ntfy.example/topic"
//! ```

use std::fmt;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use crate::guard::{PATTERNS, Pattern};
use crate::settings::reader::{
    TomlRow, list, parsed, places, put, set_toml, tables, text_of, unknown, word, words,
};
use crate::settings::tables::check_owner;
use crate::settings::{Origin, SettingsError};
use crate::text::suggest;

/// Default path of the settings.
pub const DEFAULT_PATH: &str = "/etc/millrace/alerts.toml";

/// Maximum number of hooks.
pub const HOOKS_MAX: usize = 8;

/// Maximum number of patterns of one hook.
const PATTERNS_MAX: usize = 16;

/// Maximum number of words of a command.
const WORDS_MAX: usize = 16;

/// Maximum length of an unknown event in a message, in bytes.
const SHOWN_MAX: usize = 32;

/// Maximum length of a web address, in bytes.
const URL_MAX: usize = 2048;

/// Declares the kinds with their names.
macro_rules! kinds {
    (
        $($(#[doc = $what:literal])+ $kind:ident = $name:literal;)+
        by hand: $(#[doc = $hand_what:literal])+ $hand:ident = $hand_name:literal
    ) => {
        /// The kind of an event.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Kind {
            $($(#[doc = $what])+ $kind,)+
            $(#[doc = $hand_what])+
            $hand,
        }

        impl Kind {
            /// The kinds that settings may name.
            const ALL: &[Self] = &[$(Self::$kind),+];

            /// Name of the kind in settings and in events.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                    Self::$hand => $hand_name,
                }
            }
        }

        const KINDS: &str = concat!("a list of kinds of events", $(", ", $name),+);
    };
}

kinds! {
    /// A tunnel carries packets again.
    TunnelUp = "tunnel-up";
    /// A tunnel has ended, or its other end is not reached.
    TunnelDown = "tunnel-down";
    /// Clients of a server have connected, or peers answer again.
    PeerUp = "peer-up";
    /// Clients of a server have left, or peers no longer answer.
    PeerDown = "peer-down";
    /// An uplink works again.
    UplinkUp = "uplink-up";
    /// An uplink is down or degraded.
    UplinkDown = "uplink-down";
    /// A tenth of an uplink's allowance is left.
    CapNearing = "cap-nearing";
    /// An uplink's allowance is used up.
    CapReached = "cap-reached";
    /// A certificate or a revocation list ends in 30, 7 or 1 days, or has ended.
    EndsSoon = "ends-soon";
    /// Guard or policy have refused packets.
    LeakRefused = "leak-refused";
    /// The guard blocks devices.
    GuardHeld = "guard-held";
    /// The guard lets devices through a tunnel.
    GuardThrough = "guard-through";
    /// The guard is off.
    GuardOff = "guard-off";
    /// A provider forwards a port.
    PortForwarded = "port-forwarded";
    /// A provider no longer forwards a port.
    PortLost = "port-lost";
    by hand:
    /// `millrace alerts test`, which all hooks get.
    Test = "test"
}

impl Kind {
    fn new(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.name() == name)
    }

    /// Why `name` is not the name of an event, and what to write instead; `None` if settings may name this kind.
    #[must_use]
    pub fn fault(name: &str) -> Option<String> {
        let known: Vec<&str> = Self::ALL.iter().map(|it| it.name()).collect();
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-_".contains(&it);
        // Another text may be a web address, which may be a secret.
        let shown = match name.len() <= SHOWN_MAX && name.bytes().all(is_plain) {
            true => format!(" `{name}`"),
            false => String::new(),
        };
        (!known.contains(&name)).then(|| format!("unknown event{shown}; {}", suggest(name, &known)))
    }
}

/// The action of a hook.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Runs a program: its absolute path and its arguments.
    Run(Vec<String>),
    /// Posts the event to a web address.
    Post(String),
}

impl fmt::Display for Action {
    /// Describes the action for logs, without arguments, paths and passwords of web addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(words) => write!(f, "run {}", words.first().map_or("", String::as_str)),
            Self::Post(url) => write!(f, "post to {}", host_of(url).unwrap_or_default()),
        }
    }
}

/// An action, and the events that it is for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hook {
    /// Kinds of events; empty for all.
    pub events: Vec<Kind>,
    /// Tunnels; empty for all, and for events of no tunnel.
    pub tunnels: Vec<Pattern>,
    /// The action.
    pub action: Action,
}

impl Hook {
    /// Whether the hook is for this event. `tunnel` is empty for events of no tunnel.
    #[must_use]
    pub fn takes(&self, kind: Kind, tunnel: &str) -> bool {
        let named = self.tunnels.is_empty() || self.tunnels.iter().any(|it| it.matches(tunnel));
        kind == Kind::Test || named && (self.events.is_empty() || self.events.contains(&kind))
    }
}

const COMMAND: &str = "the absolute path of a program and its arguments, at most 16 words, such as \
                       [\"/etc/millrace/alert.sh\"]";
const URL: &str =
    "a web address such as \"https://ntfy.example/topic\", without spaces, quotes and backslashes";

const ROWS: &[TomlRow<Draft>] = &[
    ("events", KINDS, |it, v| {
        put(&mut it.events, list(v, Kind::ALL.len(), Kind::new))
    }),
    ("tunnels", PATTERNS, |it, v| {
        put(&mut it.tunnels, list(v, PATTERNS_MAX, Pattern::new))
    }),
    ("run", COMMAND, |it, v| {
        put(&mut it.run, command(v).map(Some))
    }),
    ("post", URL, |it, v| put(&mut it.post, url(v).map(Some))),
];

/// A hook while its table is read.
#[derive(Default)]
struct Draft {
    events: Vec<Kind>,
    tunnels: Vec<Pattern>,
    run: Option<Action>,
    post: Option<Action>,
}

/// Reads the hooks of a file.
///
/// # Errors
/// [`SettingsError::Read`], also if users other than its owner can change the file; [`SettingsError::TooLarge`]; the
/// errors of [`from_toml`].
pub fn read(path: &Path) -> Result<Vec<Hook>, SettingsError> {
    check_owner(path)?;
    from_toml(&text_of(path)?, path)
}

/// Reads hooks from TOML text; `path` only names it in errors.
///
/// # Errors
/// [`SettingsError::Syntax`], [`SettingsError::Unknown`], [`SettingsError::Value`] or [`SettingsError::Entry`], each
/// with the line.
pub fn from_toml(text: &str, path: &Path) -> Result<Vec<Hook>, SettingsError> {
    let hooks = listed(text, path)?;
    match hooks.is_empty() {
        true => Err(SettingsError::Entry {
            origin: places(text, path)(0),
            words: "there is no hook; begin one with [[on-event]]".to_owned(),
        }),
        false => Ok(hooks),
    }
}

/// Reads the settings like [`from_toml`]; the text may have no hook.
///
/// # Errors
/// The errors of [`from_toml`], except for an empty list.
pub fn listed(text: &str, path: &Path) -> Result<Vec<Hook>, SettingsError> {
    let place = places(text, path);
    let root = parsed(text, &place)?;
    let mut hooks = Vec::new();
    for (key, value) in root.get_ref() {
        let (name, origin) = (key.get_ref().as_ref(), place(key.span().start));
        let Some(tables) = tables(value.get_ref()).filter(|_| name == "on-event") else {
            return Err(unknown(name, &["[[on-event]]"], origin));
        };
        for (begin, table) in tables {
            let hook = finished(read_table(table, &place)?, hooks.len());
            let origin = place(begin);
            hooks.push(hook.map_err(|words| SettingsError::Entry { origin, words })?);
        }
    }
    Ok(hooks)
}

fn read_table(
    table: &DeTable<'_>,
    place: &dyn Fn(usize) -> Origin,
) -> Result<Draft, SettingsError> {
    let mut draft = Draft::default();
    for (key, value) in table {
        let origin = place(key.span().start);
        if key.get_ref() == "events"
            && let Some(names) = words(value.get_ref(), usize::MAX)
            && let Some(words) = names.into_iter().find_map(Kind::fault)
        {
            return Err(SettingsError::Entry { origin, words });
        }
        set_toml(ROWS, &mut draft, key.get_ref(), value.get_ref(), origin)?;
    }
    Ok(draft)
}

fn finished(draft: Draft, before: usize) -> Result<Hook, String> {
    if before >= HOOKS_MAX {
        return Err(format!("more than {HOOKS_MAX} hooks; remove some"));
    }
    let ((Some(action), None) | (None, Some(action))) = (draft.run, draft.post) else {
        return Err("a hook needs either `run` or `post`".to_owned());
    };
    Ok(Hook {
        events: draft.events,
        tunnels: draft.tunnels,
        action,
    })
}

fn command(value: &DeValue<'_>) -> Option<Action> {
    let words = words(value, WORDS_MAX)?;
    let is_plain = words.first()?.starts_with('/') && !words.iter().any(|it| it.contains('\0'));
    is_plain.then(|| Action::Run(words.into_iter().map(str::to_owned).collect()))
}

fn url(value: &DeValue<'_>) -> Option<Action> {
    let url = word(value).filter(|it| it.len() <= URL_MAX && host_of(it).is_some())?;
    // The address goes into a line of `curl`'s settings.
    let is_plain = |it: char| !it.is_control() && !it.is_whitespace() && !"\"\\".contains(it);
    let is_plain = url.chars().all(is_plain);
    is_plain.then(|| Action::Post(url.to_owned()))
}

/// The host of a web address, without user name and password.
fn host_of(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://");
    let rest = rest.or_else(|| url.strip_prefix("http://"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn hooks(text: &str) -> Result<Vec<Hook>, String> {
        from_toml(text, Path::new("a.toml")).map_err(|it| it.to_string())
    }

    #[test]
    fn a_hook_is_for_its_events_and_tunnels() {
        let found = hooks(
            "[[on-event]]\nevents = [\"uplink-down\"]\ntunnels = [\"mr-*\"]\nrun = [\"/bin/x\", \"a b\"]\n\
             [[on-event]]\npost = \"https://me:secret@ntfy.example/topic?auth=1\"\n",
        )
        .unwrap();
        let [run, post] = &found[..] else {
            panic!("{found:?}")
        };
        for (kind, tunnel, takes) in [
            (Kind::UplinkDown, "mr-us", true),
            (Kind::UplinkDown, "office", false),
            (Kind::UplinkDown, "", false),
            (Kind::UplinkUp, "mr-us", false),
            (Kind::Test, "", true),
        ] {
            assert_eq!(run.takes(kind, tunnel), takes, "{kind:?} {tunnel}");
            assert!(post.takes(kind, tunnel));
        }
        assert_eq!(run.action.to_string(), "run /bin/x");
        assert_eq!(post.action.to_string(), "post to ntfy.example");
        assert_eq!(
            hooks("[[on-event]]\nrun = \"/bin/x\"\n").unwrap()[0].action,
            Action::Run(vec!["/bin/x".to_owned()])
        );
    }

    #[test]
    fn each_fault_is_told_with_its_line_and_remedy() {
        let long = format!("[[on-event]]\nevents = [\"{}\"]\n", "x".repeat(9999));
        let many = "[[on-event]]\nrun = \"/x\"\n".repeat(HOOKS_MAX + 1);
        for (text, wanted) in [
            (
                "",
                "a.toml:1: there is no hook; begin one with [[on-event]]",
            ),
            (
                "[on-event]\nrun = \"/x\"\n",
                "a.toml:1: unknown setting `on-event`",
            ),
            (
                "[[on-event]]\n",
                "a.toml:1: a hook needs either `run` or `post`",
            ),
            (
                "[[on-event]]\nrun = \"/x\"\npost = \"http://a\"\n",
                "a.toml:1: a hook needs either `run` or `post`",
            ),
            ("[[on-event]]\nrun = \"x\"\n", "a.toml:2: run cannot be"),
            ("[[on-event]]\nrun = []\n", "a.toml:2: run cannot be"),
            (
                "[[on-event]]\nrnu = \"/x\"\n",
                "a.toml:2: unknown setting `rnu`",
            ),
            (
                "[[on-event]]\npost = \"ftp://a\"\n",
                "a.toml:2: post cannot be",
            ),
            (
                "[[on-event]]\npost = \"http://\"\n",
                "a.toml:2: post cannot be",
            ),
            (
                "[[on-event]]\npost = \"http://u@/\"\n",
                "a.toml:2: post cannot be",
            ),
            (
                "[[on-event]]\npost = \"http://a/\\\"\"\n",
                "a.toml:2: post cannot be",
            ),
            (
                "[[on-event]]\npost = \"http://a/\\nurl\"\n",
                "a.toml:2: post cannot be",
            ),
            (
                "[[on-event]]\nevents = [\"tunnel-up\", \"uplink-dwon\"]\n",
                "a.toml:2: unknown event `uplink-dwon`; did you mean `uplink-down`?",
            ),
            (
                "[[on-event]]\nevents = [\"test\"]\n",
                "a.toml:2: unknown event `test`; known are: tunnel-up, tunnel-down, ",
            ),
            (
                "[[on-event]]\nevents = \"https://ntfy.example/my-secret-topic\"\n",
                "a.toml:2: unknown event; known are: tunnel-up, ",
            ),
            (&long, "a.toml:2: unknown event; known are: tunnel-up, "),
            (
                "[[on-event]]\nevents = [\"\\u001b[1m\"]\n",
                "a.toml:2: unknown event; ",
            ),
            ("[[on-event]]\nevents = [7]\n", "a.toml:2: events cannot be"),
            (
                "[[on-event]]\ntunnels = [\"*\"]\n",
                "a.toml:2: tunnels cannot be",
            ),
            (&many, "a.toml:17: more than 8 hooks; remove some"),
        ] {
            let error = hooks(text).unwrap_err();
            assert!(error.starts_with(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_that_others_can_change_runs_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("alerts.toml");
        fs::write(&path, "[[on-event]]\nrun = \"/x\"\n").unwrap();
        for (mode, good) in [(0o600, true), (0o644, true), (0o666, false), (0o602, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path).is_ok(), good, "{mode:o}");
        }
    }
}
