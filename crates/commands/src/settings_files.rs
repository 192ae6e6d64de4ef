//! Settings files of the guard, the policy, forwarded ports and alerts, with their mistakes, for `doctor` and the page.

use std::io::ErrorKind;
use std::path::Path;

use config::guard::{DEFAULT_PATH as GUARD, Guard};
#[cfg(any(feature = "monitor", feature = "policy"))]
use config::policy::DEFAULT_PATH as POLICY;
use config::policy::Policy;
use config::settings::SettingsError;

/// A mistake in a file.
pub(crate) struct Mistake {
    /// The service that reads the file, such as `policy`.
    pub(crate) of: &'static str,
    pub(crate) path: &'static str,
    /// A sentence, with path and line where there is a line.
    pub(crate) words: String,
    /// The remedy, as a command or an instruction.
    pub(crate) remedy: &'static str,
}

/// The remedy for a faulty file of a service that is on.
const CORRECT: &str = "correct the file; the earlier settings stay in force meanwhile";

/// The remedy where only the service itself knows whether it uses earlier settings.
#[cfg(any(feature = "monitor", feature = "policy"))]
const EARLIER: &str =
    "correct the file; the earlier settings stay in force meanwhile, if there were any";

/// The remedy for a policy that has been changed since it was applied.
#[cfg(any(feature = "monitor", feature = "policy"))]
pub(crate) const APPLY: &str = "run `millrace policy on`";

/// A sentence if the settings of the file are not those in force.
#[cfg(any(feature = "monitor", feature = "policy"))]
pub(crate) fn unapplied(policy: &Policy, in_force: &Policy, path: &Path) -> Option<String> {
    let path = path.display();
    (policy != in_force).then(|| format!("{path} has been changed since it was applied"))
}

/// Reads all files. Returns the settings of the guard and of the policy, and the mistakes, among them a policy that has
/// been changed since it was applied.
pub(crate) fn read() -> (Option<Guard>, Option<Policy>, Vec<Mistake>) {
    let mut mistakes = Vec::new();
    let guard_on = correct(steer::guard::in_force().is_some());
    let guard = valid("guard", GUARD, Guard::read, guard_on, &mut mistakes);
    #[cfg(any(feature = "monitor", feature = "policy"))]
    let policy = policy(&mut mistakes);
    #[cfg(not(any(feature = "monitor", feature = "policy")))]
    let policy = None;
    #[cfg(feature = "policy")]
    {
        use config::forward::{DEFAULT_PATH, read};
        let _ = valid("forward", DEFAULT_PATH, read, EARLIER, &mut mistakes);
    }
    #[cfg(feature = "monitor")]
    {
        use config::alerts::DEFAULT_PATH;
        // Web addresses and arguments may be secrets.
        let read = |path: &Path| {
            config::alerts::read(path).map_err(|mut error| {
                if let SettingsError::Value { found, .. } = &mut error {
                    "this value".clone_into(found);
                }
                error
            })
        };
        let _ = valid("alerts", DEFAULT_PATH, read, EARLIER, &mut mistakes);
    }
    (guard, policy, mistakes)
}

/// The remedy for a faulty file of a service.
const fn correct(is_on: bool) -> &'static str {
    if is_on { CORRECT } else { "correct the file" }
}

/// The settings of the policy.
#[cfg(any(feature = "monitor", feature = "policy"))]
fn policy(mistakes: &mut Vec<Mistake>) -> Option<Policy> {
    let in_force = steer::policy::in_force();
    let is_on = correct(in_force.is_some());
    let read = |path: &Path| Policy::read(path).map(|it| it.0);
    let policy = valid("policy", POLICY, read, is_on, mistakes)?;
    // The line of such a fault is not known.
    let (words, remedy) = match policy.fault() {
        Some(fault) => (Some(format!("{POLICY}: {fault}")), is_on),
        None => (
            in_force.and_then(|it| unapplied(&policy, &it, Path::new(POLICY))),
            APPLY,
        ),
    };
    mistakes.extend(words.map(|words| Mistake {
        of: "policy",
        path: POLICY,
        words,
        remedy,
    }));
    Some(policy)
}

/// The settings of a file, if it exists. A faulty file is a mistake.
fn valid<T>(
    of: &'static str,
    path: &'static str,
    read: impl Fn(&Path) -> Result<T, SettingsError>,
    remedy: &'static str,
    mistakes: &mut Vec<Mistake>,
) -> Option<T> {
    match read(Path::new(path)) {
        Ok(settings) => return Some(settings),
        Err(SettingsError::Read { error, .. }) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => mistakes.push(Mistake {
            of,
            path,
            words: error.to_string(),
            remedy,
        }),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faulty_file_is_told_and_a_missing_one_is_not() {
        let mut mistakes = Vec::new();
        let read = |_: &Path| Guard::read(Path::new("/nonexistent/guard.toml"));
        assert!(
            valid("guard", GUARD, read, CORRECT, &mut mistakes).is_none() && mistakes.is_empty()
        );
        let read = |path: &Path| Guard::from_toml("\nlan = 7\n", path);
        assert!(valid("guard", GUARD, read, CORRECT, &mut mistakes).is_none());
        let [Mistake { of, words, .. }] = &mistakes[..] else {
            panic!("not one mistake");
        };
        assert!(*of == "guard" && words.contains("guard.toml:2"), "{words}");
    }
}
