//! Notes after a change of a server's clients.

use super::{file, list, place};
use config::kind::Kind;
use service::running;
use std::path::Path;

/// A note on how the other clients learn of changed networks; `None` if none has to. The change is made already, so an
/// error is a note, too. A server that is not up gets a note of its own.
pub(crate) fn others(path: &Path) -> Option<String> {
    if Kind::at(path) == Kind::OpenVpn {
        super::process(path).ok().flatten()?;
        let words = "the server tells the other clients at once: those that are in reconnect within seconds";
        return Some(words.to_owned());
    }
    outdated(path)
}

/// A note on clients whose files say something else than new ones would; `None` if there are none. An error is a note.
pub(crate) fn outdated(path: &Path) -> Option<String> {
    let rows = match list(path, false) {
        Ok(rows) => rows,
        Err(error) => {
            return Some(format!(
                "cannot tell which client files are outdated: {error}"
            ));
        }
    };
    let rows = rows.iter().filter(|it| !it.revoked);
    let count = |state| rows.clone().filter(|it| it.file == state).count();
    let (outdated, unknown) = (count(file::OUTDATED), count(file::UNKNOWN));
    let server = place::option(path);
    let known = format!(
        "client files that are outdated, as they lack this change or an earlier one: {outdated} (`millrace peer \
         list --outdated{server}`). Make new ones with `millrace peer reissue --outdated --to DIRECTORY{server}`"
    );
    let rest = format!(
        "client files that this server does not know, and that may be outdated: {unknown} (`millrace peer \
         list{server}`). Make new ones with `millrace peer reissue NAME --lan-only --to DIRECTORY{server}`, or with \
         `--full-tunnel`"
    );
    match (outdated, unknown) {
        (0, 0) => None,
        (_, 0) => Some(known),
        (0, _) => Some(rest),
        _ => Some(format!("{known}\n{rest}")),
    }
}

/// The note if an OpenVPN server is up and does not answer: clients that are in stay in. `None` otherwise.
pub(crate) fn hung(path: &Path) -> Option<String> {
    let found = super::process(path).ok().flatten()?;
    let error = crate::status::of_process(found.pid, false).err()?;
    let name = running::name_of(path);
    Some(format!(
        "{name} is up and does not answer ({error}): it does not act on this change. Run `millrace restart {name}`"
    ))
}

/// The note if no server runs.
pub(crate) fn not_up(path: &Path) -> String {
    let name = running::name_of(path);
    format!(
        "{}; the change takes effect at the next start",
        not_running(&name)
    )
}

/// The words for a server without a running process.
pub(super) fn not_running(name: &str) -> String {
    format!("no `millrace up` runs {name} now: it was not started, or it has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_count_of_outdated_files_is_a_note() {
        let note = others(Path::new("/nowhere/office.conf")).unwrap();
        assert!(
            note.contains("cannot tell which client files are outdated: /nowhere/office.conf"),
            "{note}"
        );
    }
}
