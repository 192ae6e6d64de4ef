//! `millrace server renew`: renews a server's certificate and its list of revoked certificates, while clients stay.

use super::place::{self, PlaceError, Waits};
use crate::arguments::{self, flag, option};
use crate::peer::openvpn::Store;
use crate::peer::{self, PeerError};
use crate::profile::DIRECTORY;
use crate::{Outcome, print_json};
use clap::{ArgMatches, Command, value_parser};
use config::error::ImportError;
use config::kind::Kind;
use config::openvpn::{Crl, OpenVpn, Options, Source};
use config::permissions::Permissions;
use serde::Serialize;
use service::openvpn::authority::{self, Ending, IdentityError, RenewalError, Renewed, Renewer};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use thiserror::Error;
use zeroize::Zeroizing;

/// The command-line definition of `server renew`.
pub(super) fn command() -> Command {
    let days = option("days", "N", "Days until they end")
        .value_parser(value_parser!(u32).range(1..=36_500))
        .default_value("825");
    Command::new("renew")
        .about("Renew the certificate of an OpenVPN server and its revocation list; clients stay")
        .arg(option("server", "SERVER", "The server's name or file").default_value(super::NAME))
        .arg(arguments::path(
            "authority",
            "FILE",
            "The authority's key; without, NAME.d/authority.key, or ca.key beside ca",
        ))
        .arg(days)
        .arg(flag("json", "Print a JSON document"))
}

/// Why nothing was renewed.
#[derive(Debug, Error)]
enum RenewError {
    #[error("the clock is not set: set it first (date -s), as the new dates depend on it")]
    Clock,
    #[error("{}: {why}", .path.display())]
    Unfit { path: PathBuf, why: &'static str },
    #[error("{}: another program has changed it meanwhile: run the command again", .0.display())]
    Changed(PathBuf),
    #[error("the authority's key is needed to sign, and is not at {}: give --authority FILE", .0.display())]
    NoKey(PathBuf),
    #[error("{}: {error}", .path.display())]
    Renewal { path: PathBuf, error: RenewalError },
    #[error(transparent)]
    Passphrase(#[from] std::io::Error),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Peer(#[from] PeerError),
}

/// The JSON document.
#[derive(Debug, Default, Serialize)]
struct Document {
    /// Renewed certificates and lists.
    renewed: Vec<Row>,
    /// Whether the running server was told to reload its files, or no reload was needed.
    told: bool,
}

/// A renewed certificate or list.
#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    file: String,
    /// Seconds since 1970.
    ends_unix: u64,
}

/// Runs the command.
pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let name = arguments::text(matches, "server").unwrap_or_default();
    let path = place::find(name, Path::new(DIRECTORY))?;
    let lock = peer::lock(&path, Waits::Long)?;
    let now = SystemTime::now();
    let days = matches.get_one::<u32>("days").copied().unwrap_or_default();
    let key = arguments::file(matches, "authority");
    let (renewed, reload) = renew(&path, key, now, days)?;
    drop(lock);
    let told = !reload || peer::tell(&path, false)?;
    let document = Document { renewed, told };
    if matches.get_flag("json") {
        print_json(&document)?;
        return Ok(ExitCode::SUCCESS);
    }
    for Row {
        what,
        file,
        ends_unix,
    } in &document.renewed
    {
        let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(*ends_unix);
        let ends = netio::time::local(ends);
        host::terminal::line(format_args!("{file}: the {what} ends on {ends}"));
    }
    if document.renewed.is_empty() {
        host::terminal::note(format_args!(
            "all is current: nothing would get a tenth of {days} days more"
        ));
    } else if !told {
        host::terminal::note(peer::not_up(&path));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a server's or client's file for its certificates: no script runs, and no cipher is used. Relative paths start
/// at the file's directory, unless it names another.
pub(crate) fn configuration(path: &Path) -> Result<OpenVpn, ImportError> {
    let options = Options {
        allow_insecure_ciphers: true,
        permissions: Permissions::ALL,
    };
    let (mut config, _) = config::openvpn::read(path, options)?.into_model()?;
    if config.directory.is_none() {
        config.directory = path.parent().map(Path::to_owned);
    }
    Ok(config)
}

/// A thing that is signed and not written yet.
struct New<'a> {
    what: &'static str,
    tag: &'static str,
    source: &'a Source,
    /// Content of the source when it was read.
    old: Zeroizing<Vec<u8>>,
    /// The PEM blocks that replace those of the same kind.
    text: String,
    ends: SystemTime,
}

/// Renews all that gets a later end with this many days. The flag tells whether the server has to read its files again;
/// it reads a list in a file by itself.
fn renew(
    path: &Path,
    key: Option<&Path>,
    now: SystemTime,
    days: u32,
) -> Result<(Vec<Row>, bool), RenewError> {
    let attempt = || {
        let config = configuration(path)?;
        let new = sign(&config, path, key, now, days)?;
        write(&config, path, new)
    };
    if !host::machine::clock_is_set(now) {
        return Err(RenewError::Clock);
    }
    if Kind::at(path) != Kind::OpenVpn {
        return Err(RenewError::Unfit {
            path: path.to_owned(),
            why: "only certificates end, which OpenVPN servers have",
        });
    }
    again_if_changed(attempt)
}

/// Starts over once if another program has changed a file meanwhile.
fn again_if_changed<T>(attempt: impl Fn() -> Result<T, RenewError>) -> Result<T, RenewError> {
    match attempt() {
        Err(RenewError::Changed(_)) => attempt(),
        other => other,
    }
}

/// Signs all that gets a later end; writes nothing.
fn sign<'a>(
    config: &'a OpenVpn,
    path: &Path,
    key: Option<&Path>,
    now: SystemTime,
    days: u32,
) -> Result<Vec<New<'a>>, RenewError> {
    let unfit = |why| RenewError::Unfit {
        path: path.to_owned(),
        why,
    };
    let tls = &config.tls;
    if config.server().is_none() {
        return Err(unfit("this is not the file of a server"));
    }
    let (Some(ca), Some(cert)) = (&tls.ca, &tls.cert) else {
        return Err(unfit(
            "without ca and cert there is no authority that could renew its certificate",
        ));
    };
    let (authorities, certificate) = (load(ca, config, path)?, load(cert, config, path)?);
    let list = match &tls.crl {
        Some(Crl::List(list)) => Some((list, load(list, config, path)?)),
        _ => None,
    };
    let ends = authority::ends(&certificate, &[], list.as_ref().map_or(&[], |it| &it.1));
    let soon = now + Duration::from_secs(u64::from(days) * 86_400);
    let is_due = |of, new| {
        let mut ends = ends.iter().filter(|it| it.of == of);
        ends.any(|it| is_worth_it(it.at, new, now))
    };
    let list = list.filter(|_| is_due(Ending::List, soon));
    if list.is_none() && !is_due(Ending::Certificate, soon) {
        return Ok(Vec::new());
    }

    let key = match key {
        Some(key) => key.to_owned(),
        None => find_key(path, &place_of(ca, config, path))?,
    };
    let failed = |path: &Path| {
        let path = path.to_owned();
        |error| RenewError::Renewal { path, error }
    };
    let renewer = renewer(&key, &authorities)?.map_err(failed(&key))?;
    let mut new = Vec::new();
    if let Some((source, old)) = list {
        let Renewed { text, ends } = renewer.list(&old, now, days).map_err(failed(path))?;
        new.push(New {
            what: "revocation list",
            tag: "crl-verify",
            source,
            old,
            text,
            ends,
        });
    }
    if is_due(Ending::Certificate, soon) {
        let renewed = renewer.certificate(&certificate, now, days);
        let Renewed { text, ends } = renewed.map_err(failed(path))?;
        // The authority's own end may be too near.
        if is_due(Ending::Certificate, ends) {
            new.push(New {
                what: "server's certificate",
                tag: "cert",
                source: cert,
                text,
                old: certificate,
                ends,
            });
        }
    }
    Ok(new)
}

/// Writes what is signed, unless another program has changed one of the sources.
fn write(config: &OpenVpn, path: &Path, new: Vec<New<'_>>) -> Result<(Vec<Row>, bool), RenewError> {
    let unfit = |why| RenewError::Unfit {
        path: path.to_owned(),
        why,
    };
    for it in &new {
        if load(it.source, config, path)? != it.old {
            return Err(RenewError::Changed(place_of(it.source, config, path)));
        }
    }
    let mut reload = false;
    let mut rows = Vec::new();
    for it in new {
        let file = place_of(it.source, config, path);
        reload |= it.tag == "cert" || it.source.is_inline();
        // Read once more: certificate and list may be in one file.
        let text = with_blocks(&load(it.source, config, path)?, it.text.as_bytes());
        match it.source {
            Source::File(_) => place::replace(&file, &text)?,
            Source::Inline(_) => {
                let whole = place::read(path)?;
                let text = std::str::from_utf8(&text).map_err(|_| unfit("it is not UTF-8"))?;
                let whole = with_block(&whole, it.tag, text);
                place::replace(path, &whole.ok_or_else(|| unfit("a block has no end"))?)?;
            }
        }
        let since = it.ends.duration_since(SystemTime::UNIX_EPOCH);
        rows.push(Row {
            what: it.what,
            file: file.display().to_string(),
            ends_unix: since.unwrap_or_default().as_secs(),
        });
    }
    Ok((rows, reload))
}

/// Whether the new end adds a tenth or more to what is left then. Otherwise each run would renew again.
fn is_worth_it(end: SystemTime, new: SystemTime, now: SystemTime) -> bool {
    let left = new.duration_since(now).unwrap_or_default();
    new.duration_since(end).is_ok_and(|more| more * 10 >= left)
}

fn load(source: &Source, config: &OpenVpn, path: &Path) -> Result<Zeroizing<Vec<u8>>, RenewError> {
    let loaded = source.load(config.directory.as_deref());
    Ok(loaded.map_err(place::failed(&place_of(source, config, path)))?)
}

/// The file that has a source's text.
fn place_of(source: &Source, config: &OpenVpn, path: &Path) -> PathBuf {
    match source {
        Source::File(file) => config.path(file),
        Source::Inline(_) => path.to_owned(),
    }
}

/// The authority's key: of a server that `millrace server init` made, or beside the authority's certificate, as on the
/// page about servers and with easy-rsa.
fn find_key(path: &Path, ca: &Path) -> Result<PathBuf, RenewError> {
    let store = Store::of(path).key();
    let beside = |name| ca.with_file_name(name);
    let usual = beside("ca.key");
    let all = [store, usual.clone(), beside("private/ca.key")];
    let found = all.into_iter().find(|it| it.is_file());
    found.ok_or(RenewError::NoKey(usual))
}

/// Opens the authority; asks for the passphrase if its key needs one.
fn renewer(key: &Path, ca: &[u8]) -> Result<Result<Renewer, RenewalError>, RenewError> {
    let text = place::read(key)?;
    let open = |passphrase| Renewer::read(text.as_bytes(), ca, passphrase);
    Ok(match open(None) {
        Err(RenewalError::File(IdentityError::PassphraseNeeded(_))) => {
            let prompt = format!("Passphrase of {}: ", key.display());
            let passphrase = service::openvpn::ask_at_terminal(&prompt)?;
            open(Some(passphrase.as_bytes()))
        }
        other => other,
    })
}

/// The file with the blocks of `new` in place of its first blocks of their kind. All else stays: a key, other
/// certificates, and text. A file in DER becomes `new`.
fn with_blocks(file: &[u8], new: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut by = blocks(new).into_iter().peekable();
    let kind = by.peek().map(|(label, _)| *label);
    let old = blocks(file).into_iter();
    let old = old.filter(|(label, _)| Some(*label) == kind);
    let pairs: Vec<_> = old.zip(by).collect();
    let mut all = Zeroizing::new(Vec::with_capacity(file.len() + new.len()));
    if pairs.is_empty() {
        all.extend_from_slice(new);
        return all;
    }
    let mut done = 0;
    for ((_, old), (_, by)) in pairs {
        all.extend_from_slice(&file[done..old.start]);
        all.extend_from_slice(&new[by]);
        done = old.end;
    }
    all.extend_from_slice(&file[done..]);
    all
}

/// The label and the place of each PEM block, with whole lines.
fn blocks(file: &[u8]) -> Vec<(&[u8], Range<usize>)> {
    fn marker<'a>(line: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
        let label = line.trim_ascii().strip_prefix(start)?;
        let label = label.strip_suffix(b"-----")?;
        // The older name of the same.
        Some(match label {
            b"X509 CERTIFICATE" => b"CERTIFICATE",
            other => other,
        })
    }
    let (mut found, mut open, mut at) = (Vec::new(), None, 0);
    for line in file.split_inclusive(|byte| *byte == b'\n') {
        let from = at;
        at += line.len();
        match open {
            None => open = marker(line, b"-----BEGIN ").map(|label| (label, from)),
            Some((label, from)) if marker(line, b"-----END ") == Some(label) => {
                found.push((label, from..at));
                open = None;
            }
            Some(_) => {}
        }
    }
    found
}

/// The text with other content in the block `<tag>`; `None` without such a block.
fn with_block(text: &str, tag: &str, content: &str) -> Option<Zeroizing<String>> {
    let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut at = 0;
    let mut range = (None, None);
    for line in text.split_inclusive('\n') {
        if line.trim() == begin {
            range.0 = Some(at + line.len());
        } else if line.trim() == end {
            range.1 = Some(at);
        }
        at += line.len();
    }
    let (from, to) = (range.0?, range.1?);
    Some(peer::secret(&[text.get(..from)?, content, text.get(to..)?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use service::openvpn::authority::{Authority, Purpose};
    use std::cell::Cell;
    use std::fs;

    const DAY: Duration = Duration::from_secs(86_400);

    /// Files of a server with an authority of ours.
    struct Files {
        directory: tempfile::TempDir,
        now: SystemTime,
    }

    impl Files {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let (authority, own) = Authority::create("Office CA").unwrap();
            let server = authority.issue("server", Purpose::Server).unwrap();
            let files = Self {
                directory,
                now: SystemTime::now(),
            };
            files.write("ca.crt", &own.certificate);
            files.write("ca.key", &own.key);
            files.write("server.key", &server.key);
            let renewer = Renewer::read(own.key.as_bytes(), own.certificate.as_bytes(), None);
            let short = renewer
                .unwrap()
                .certificate(server.certificate.as_bytes(), files.now, 20);
            files.write(
                "server.crt",
                &format!(
                    "Certificate: text\n{}{}",
                    short.unwrap().text,
                    own.certificate
                ),
            );
            files.configure("cert server.crt\n");
            files
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
        }

        fn configure(&self, lines: &str) {
            self.write(
                "office.conf",
                &format!("dev tun\nserver 10.8.0.0 255.255.255.0\nca ca.crt\nkey server.key\ndh none\n{lines}"),
            );
        }

        fn renew(&self, days: u32) -> Result<(Vec<Row>, bool), RenewError> {
            renew(&self.path("office.conf"), None, self.now, days)
        }

        fn refused(&self) -> String {
            self.renew(825).unwrap_err().to_string()
        }
    }

    #[test]
    fn a_certificate_in_a_file_is_renewed_and_its_chain_stays() {
        let files = Files::new();
        assert!(files.renew(10).unwrap().0.is_empty(), "it has 20 days");
        let (rows, reload) = files.renew(825).unwrap();
        assert!(reload);
        let document = Document {
            renewed: rows,
            told: true,
        };
        let json = serde_json::to_value(&document).unwrap();
        crate::tests::assert_documented("server renew", &[json]);
        assert!(document.renewed[0].file.ends_with("/server.crt"));
        let text = fs::read(files.path("server.crt")).unwrap();
        let ends = authority::ends(&text, &[], &[]);
        let own = ends.iter().find(|it| it.of == Ending::Certificate).unwrap();
        assert!(own.at > files.now + 824 * DAY && own.at < files.now + 826 * DAY);
        assert_eq!(ends.len(), 2, "{ends:?}");
    }

    #[test]
    fn a_certificate_in_the_server_s_file_is_renewed_there() {
        let files = Files::new();
        let text = fs::read_to_string(files.path("server.crt")).unwrap();
        files.configure(&format!("<cert>\n{text}</cert>\nverb 3\n"));
        assert!(files.renew(825).unwrap().0[0].file.ends_with("office.conf"));
        let text = fs::read_to_string(files.path("office.conf")).unwrap();
        assert!(
            text.ends_with("</cert>\nverb 3\n") && text.starts_with("dev tun\n"),
            "{text}"
        );
        assert!(files.renew(800).unwrap().0.is_empty());
    }

    #[test]
    fn all_but_the_first_certificate_of_a_file_stays() {
        let files = Files::new();
        let key = fs::read_to_string(files.path("server.key")).unwrap();
        let certificates = fs::read_to_string(files.path("server.crt")).unwrap();
        let first = certificates.find("-----BEGIN").unwrap();
        let second = certificates.rfind("-----BEGIN").unwrap();
        let (first, chain) = (&certificates[first..second], &certificates[second..]);
        for (before, after) in [
            (format!("{key}\u{fc}\r\n"), chain.to_owned()),
            ("Certificate: text\n".to_owned(), format!("{chain}{key}")),
        ] {
            // Names in such texts need not be UTF-8.
            let latin = |text: &str| -> Vec<u8> {
                let bytes = text.chars().map(|it| u8::try_from(u32::from(it)));
                bytes.collect::<Result<_, _>>().unwrap()
            };
            fs::write(
                files.path("server.pem"),
                latin(&format!("{before}{first}{after}")),
            )
            .unwrap();
            files.configure("cert server.pem\n");
            assert_eq!(files.renew(825).unwrap().0.len(), 1);
            let text = fs::read(files.path("server.pem")).unwrap();
            assert!(text.starts_with(&latin(&before)) && text.ends_with(&latin(&after)));
            assert!(authority::ends(&text, &[], &[])[0].at > files.now + 824 * DAY);
        }
    }

    #[test]
    fn lists_are_replaced_in_their_order() {
        let block = |kind: &str, text: &str| {
            format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
        };
        let list = |text| block("X509 CRL", text);
        let ca = block("CERTIFICATE", "ca");
        let file = format!("text\n{}{ca}{}end", list("1"), list("2"));
        let new = list("3") + &list("4");
        let expected = format!("text\n{}{ca}{}end", list("3"), list("4"));
        assert_eq!(
            with_blocks(file.as_bytes(), new.as_bytes())[..],
            *expected.as_bytes()
        );
        assert_eq!(with_blocks(b"0DER", new.as_bytes())[..], *new.as_bytes());
    }

    #[test]
    fn what_another_program_writes_meanwhile_is_not_lost() {
        let files = Files::new();
        let path = files.path("office.conf");
        let config = configuration(&path).unwrap();
        let new = sign(&config, &path, None, files.now, 825).unwrap();
        files.write("server.crt", "new");
        let error = write(&config, &path, new).unwrap_err().to_string();
        assert!(error.contains("server.crt: another program"), "{error}");
        assert_eq!(fs::read(files.path("server.crt")).unwrap(), b"new");

        let (calls, changes) = (Cell::new(0), Cell::new(1));
        let attempt = || {
            calls.set(calls.get() + 1);
            match calls.get() > changes.get() {
                true => Ok(()),
                false => Err(RenewError::Changed(path.clone())),
            }
        };
        assert!(again_if_changed(attempt).is_ok());
        changes.set(9);
        assert!(again_if_changed(attempt).is_err());
        assert_eq!(calls.get(), 4);
    }

    #[test]
    fn a_run_each_day_renews_only_what_gets_much_longer() {
        let files = Files::new();
        let days = |days| {
            let renewed = renew(
                &files.path("office.conf"),
                None,
                files.now + days * DAY,
                825,
            );
            renewed.unwrap().0.len()
        };
        assert_eq!([0, 1, 82, 84, 85].map(days), [1, 0, 0, 1, 0]);
        let ends = |end, new| is_worth_it(files.now + end * DAY, files.now + new * DAY, files.now);
        assert!(ends(1, 10), "the authority ends soon");
        assert!(!ends(10, 10));
        assert!(!ends(11, 10));
    }

    #[test]
    fn refusals_tell_the_remedy() {
        let files = Files::new();
        fs::rename(files.path("ca.key"), files.path("other")).unwrap();
        assert!(files.refused().contains("--authority FILE"));
        let server = "dev tun\nserver 10.8.0.0 255.255.255.0\ndh none\n";
        files.write("office.conf", &format!("{server}pkcs12 server.p12\n"));
        assert!(files.refused().contains("no authority"));
        files.write("office.conf", "[Interface]\n");
        assert!(files.refused().contains("OpenVPN"));
        let early = renew(&files.path("office.conf"), None, SystemTime::UNIX_EPOCH, 1);
        assert!(early.unwrap_err().to_string().contains("date -s"));
    }
}
