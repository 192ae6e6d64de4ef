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
        host::terminal::note(format_args!("nothing ends within {days} days"));
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

/// Renews all that ends within this many days. The flag tells whether the server has to read its files again; it reads
/// a list in a file by itself.
fn renew(
    path: &Path,
    key: Option<&Path>,
    now: SystemTime,
    days: u32,
) -> Result<(Vec<Row>, bool), RenewError> {
    let unfit = |why| RenewError::Unfit {
        path: path.to_owned(),
        why,
    };
    if !host::machine::clock_is_set(now) {
        return Err(RenewError::Clock);
    }
    if Kind::at(path) != Kind::OpenVpn {
        return Err(unfit("only certificates end, which OpenVPN servers have"));
    }
    let config = configuration(path)?;
    let tls = &config.tls;
    if config.server().is_none() {
        return Err(unfit("this is no server's file"));
    }
    let (Some(ca), Some(cert)) = (&tls.ca, &tls.cert) else {
        return Err(unfit(
            "without ca and cert there is no authority that could renew its certificate",
        ));
    };
    let load = |source: &Source| {
        let loaded = source.load(config.directory.as_deref());
        loaded.map_err(place::failed(&place_of(source, &config, path)))
    };
    let (authorities, certificate) = (load(ca)?, load(cert)?);
    let list = match &tls.crl {
        Some(Crl::List(list)) => Some((list, load(list)?)),
        _ => None,
    };
    let ends = authority::ends(&certificate, &[], list.as_ref().map_or(&[], |it| &it.1));
    let soon = now + Duration::from_secs(u64::from(days) * 86_400);
    let is_due = |of| ends.iter().any(|it| it.of == of && it.at < soon);
    let list = list.filter(|_| is_due(Ending::List));
    if list.is_none() && !is_due(Ending::Certificate) {
        return Ok((Vec::new(), false));
    }

    let key = match key {
        Some(key) => key.to_owned(),
        None => find_key(path, &place_of(ca, &config, path))?,
    };
    let failed = |path: &Path| {
        let path = path.to_owned();
        |error| RenewError::Renewal { path, error }
    };
    let renewer = renewer(&key, &authorities)?.map_err(failed(&key))?;
    // Everything is signed before anything is written.
    let mut new: Vec<(&str, &str, &Source, Renewed)> = Vec::new();
    if let Some((source, old)) = &list {
        let renewed = renewer.list(old, now, days).map_err(failed(path))?;
        new.push(("revocation list", "crl-verify", source, renewed));
    }
    if is_due(Ending::Certificate) {
        let renewed = renewer.certificate(&certificate, now, days);
        let mut renewed = renewed.map_err(failed(path))?;
        renewed.text += after_first(&certificate);
        new.push(("server's certificate", "cert", cert, renewed));
    }
    let reload = new
        .iter()
        .any(|(what, .., source, _)| *what != "revocation list" || source.is_inline());
    let mut rows = Vec::new();
    for (what, tag, source, Renewed { text, ends }) in new {
        let file = place_of(source, &config, path);
        match source {
            Source::File(_) => place::replace(&file, &text)?,
            Source::Inline(_) => {
                let whole = place::read(path)?;
                let whole = with_block(&whole, tag, &text);
                place::replace(path, &whole.ok_or_else(|| unfit("a block has no end"))?)?;
            }
        }
        let since = ends.duration_since(SystemTime::UNIX_EPOCH);
        rows.push(Row {
            what,
            file: file.display().to_string(),
            ends_unix: since.unwrap_or_default().as_secs(),
        });
    }
    Ok((rows, reload))
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

/// The certificates after the first one, which complete its chain.
fn after_first(certificates: &[u8]) -> &str {
    let text = std::str::from_utf8(certificates).unwrap_or_default();
    let end = text.split_once("-----END ").map_or("", |(_, rest)| rest);
    end.split_once('\n').map_or("", |(_, rest)| rest)
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
