//! New files of clients, and the directory or archive that many of them go to.

use super::file::{self, Record};
use super::{PeerError, qr, tar};
use crate::arguments;
use crate::server::place;
use clap::{Arg, ArgGroup, ArgMatches, Command};
use config::home::HomeServer;
use config::kind::Kind;
use config::types::{AllowedIp, Endpoint};
use host::written_file;
use std::cell::{Cell, RefCell};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A new client.
#[derive(Clone, Copy)]
pub(crate) struct New<'a> {
    pub(crate) name: &'a str,
    /// The networks behind it.
    pub(crate) behind: &'a [AllowedIp],
    /// A note about it, one line.
    pub(crate) note: Option<&'a str>,
    /// Seconds between packets of the server to an idle client (WireGuard).
    pub(crate) keepalive: Option<u16>,
}

/// The part of a client's file that the administrator chooses.
#[derive(Clone, Default)]
pub(crate) struct Terms {
    /// The client sends only what goes to the networks at home and behind branches.
    pub(crate) lan_only: bool,
    /// The server's address, if it is not that of the server's file.
    pub(crate) endpoint: Option<Endpoint>,
}

impl Terms {
    /// The endpoint that the client connects to.
    pub(super) fn endpoint(
        &self,
        home: Option<&HomeServer>,
        path: &Path,
    ) -> Result<Endpoint, PeerError> {
        let common = || home.and_then(|home| home.endpoint.clone());
        let none = || PeerError::NoEndpoint(path.to_owned());
        self.endpoint.clone().or_else(common).ok_or_else(none)
    }

    /// Warns if clients shall reach the networks at home, and the server's file names none.
    pub(super) fn look_for_lan(&self, home: Option<&HomeServer>, path: &Path) {
        if self.lan_only && home.is_none_or(|home| home.lan.is_empty()) {
            host::terminal::note(format_args!(
                "{}: no line `#! LAN = PREFIX` names a network at home, so --lan-only clients reach only the server and \
                 its other clients",
                path.display()
            ));
        }
    }
}

/// The clients that get new files.
pub(crate) struct Chosen {
    which: Which,
    /// The files' [`Terms::lan_only`], if it is not that of the clients' old files.
    lan_only: Option<bool>,
}

/// The clients of a list that get new files.
pub(super) struct Picked<'a, T> {
    /// The clients, each with its name.
    pub(super) clients: Vec<(&'a T, &'a str)>,
    /// Names of clients that are left out, because the server does not know their files.
    pub(super) left: Vec<String>,
}

enum Which {
    Named(Vec<String>),
    /// All clients with outdated files.
    Outdated,
    /// All clients whose files have a record.
    All,
}

/// The command-line definition of `peer reissue`, but for the server.
pub(super) fn command(reissue: Command) -> Command {
    reissue
        .about("Make new files for clients, whose old ones work until a new one is used")
        .arg(Arg::new("NAME").num_args(1..).help("The clients' names"))
        .arg(arguments::flag(
            "outdated",
            "All clients whose files are outdated",
        ))
        .arg(arguments::flag(
            "all",
            "All clients whose files this program made",
        ))
        .arg(arguments::flag(
            "full-tunnel",
            "Make files that route all traffic through the server",
        ))
        .arg(
            arguments::flag("lan-only", "Make files only for the networks at home")
                .conflicts_with("full-tunnel"),
        )
        .arg(arguments::flag(
            "json",
            "Print the files' names as one JSON document",
        ))
        .args(options().map(|it| match it.get_id() == "to" {
            true => it.required(true),
            false => it,
        }))
        .group(
            ArgGroup::new("which")
                .args(["NAME", "outdated", "all"])
                .required(true),
        )
}

impl Chosen {
    /// All clients with outdated files.
    pub(crate) const OUTDATED: Self = Self {
        which: Which::Outdated,
        lan_only: None,
    };

    /// One client, with the terms of its old file.
    #[cfg(any(feature = "monitor", feature = "openwrt"))]
    pub(crate) fn one(name: &str) -> Self {
        Self {
            which: Which::Named(vec![name.to_owned()]),
            lan_only: None,
        }
    }

    /// The clients of the command line.
    pub(super) fn of(matches: &ArgMatches) -> Self {
        let flag = |id| matches.get_flag(id);
        let names = || arguments::values(matches, "NAME").unwrap_or_default();
        Self {
            which: match (flag("outdated"), flag("all")) {
                (true, _) => Which::Outdated,
                (_, true) => Which::All,
                _ => Which::Named(names()),
            },
            lan_only: (flag("lan-only") || flag("full-tunnel")).then(|| flag("lan-only")),
        }
    }

    /// Picks clients of a list, each with its name and the state of its file.
    pub(super) fn pick<'a, T>(
        &self,
        clients: Vec<(&'a T, Option<&'a str>, &'static str)>,
    ) -> Result<Picked<'a, T>, PeerError> {
        let is_known = |state: &str| state != file::UNKNOWN;
        if let Which::Named(names) = &self.which {
            let mut picked: Vec<(&T, &str)> = Vec::new();
            for wanted in names {
                let mut clients = clients.iter();
                let found = clients.find(|(_, name, _)| *name == Some(wanted));
                let (client, name, _) = found.ok_or_else(|| PeerError::Absent(wanted.clone()))?;
                let name = name.unwrap_or_default();
                if picked.iter().all(|(_, it)| *it != name) {
                    picked.push((client, name));
                }
            }
            return Ok(Picked {
                clients: picked,
                left: Vec::new(),
            });
        }
        let left = clients.iter().filter(|(_, _, state)| !is_known(state));
        let left = left.map(|(_, name, _)| name.unwrap_or("one without a name").to_owned());
        let left = left.collect();
        let is_wanted = |state: &str| match self.which {
            Which::Outdated => state == file::OUTDATED,
            _ => is_known(state),
        };
        let wanted = clients.into_iter().filter(|(_, _, state)| is_wanted(state));
        let (named, nameless): (Vec<_>, Vec<_>) = wanted.partition(|(_, name, _)| name.is_some());
        if !nameless.is_empty() {
            host::terminal::note(format_args!(
                "left out, as they have no name: {}. `peer list` shows their keys; give each a name with `peer rename KEY \
                 NAME`",
                nameless.len()
            ));
        }
        let named = named.into_iter();
        let named = named.filter_map(|(client, name, _)| Some((client, name?)));
        Ok(Picked {
            clients: named.collect(),
            left,
        })
    }

    /// The terms of a client's new file: those of the old one, if the command line does not say.
    pub(super) fn terms(&self, name: &str, old: Option<Record<'_>>) -> Result<Terms, PeerError> {
        let lan_only = self.lan_only.or_else(|| old.as_ref().map(|it| it.lan_only));
        let endpoint = old.and_then(|it| it.endpoint).map(str::parse);
        Ok(Terms {
            lan_only: lan_only.ok_or_else(|| PeerError::Unknown(name.to_owned()))?,
            endpoint: endpoint.and_then(Result::ok),
        })
    }
}

/// A client's new file.
pub(crate) struct Issued {
    /// The client's name.
    pub(crate) name: String,
    /// The file's text, with keys.
    pub(crate) text: Zeroizing<String>,
}

#[cfg(feature = "amnezia")]
impl Issued {
    /// The link for the file, which the app AmneziaVPN shows by the client's name.
    pub(super) fn link(&self) -> Result<Zeroizing<String>, PeerError> {
        let Self { name, text } = self;
        config::amnezia::link::write(text, name).ok_or(PeerError::TooLong(text.len()))
    }
}

/// Says which unused files have ended, because their clients got others.
pub(super) fn tell_ended(files: &[String]) {
    if !files.is_empty() {
        host::terminal::note(format_args!(
            "a client may have four files that it has not used; of these clients the oldest one is no longer valid: {}. Give \
             them a newer one",
            files.join(", ")
        ));
    }
}

/// Gets clients' files.
pub(crate) trait Recipient {
    /// Checks that files of these clients of a server can be taken, before any is made.
    fn check(&self, server: Kind, names: &mut dyn Iterator<Item = &str>) -> Result<(), PeerError>;

    /// Takes the files. An error leaves none of them, and the server admits none of the clients.
    fn take(&self, files: &[Issued]) -> Result<(), PeerError>;

    /// Removes the files again, as the server could not admit the clients.
    fn give_back(&self);
}

/// The form of clients' files in a directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Format {
    /// The file for programs.
    File,
    /// A QR code as text.
    Qr,
    /// A link for the app AmneziaVPN.
    #[cfg(feature = "amnezia")]
    Link,
    /// Commands for `uci batch`.
    #[cfg(feature = "openwrt")]
    Uci,
}

impl Format {
    const ALL: &[(&str, Self)] = &[
        ("file", Self::File),
        ("qr", Self::Qr),
        #[cfg(feature = "amnezia")]
        ("link", Self::Link),
        #[cfg(feature = "openwrt")]
        ("uci", Self::Uci),
    ];

    /// The option `--format`.
    fn option() -> Arg {
        let of = |built: bool, words: &'static str| if built { words } else { "" };
        let help = format!(
            "file (the default); qr, for a camera{}{}",
            of(cfg!(feature = "amnezia"), "; link, for the app AmneziaVPN"),
            of(
                cfg!(feature = "openwrt"),
                "; uci, for OpenWrt's `uci batch`"
            ),
        );
        let names = Self::ALL.iter().map(|(name, _)| *name);
        arguments::option("format", "FORMAT", "")
            .help(help)
            .value_parser(names.collect::<Vec<_>>())
            .requires("to")
    }

    /// The end of a file's name.
    fn ending(self, kind: Kind) -> &'static str {
        match self {
            Self::File if kind == Kind::OpenVpn => "ovpn",
            Self::File => "conf",
            Self::Qr => "txt",
            #[cfg(feature = "amnezia")]
            Self::Link => "vpn",
            #[cfg(feature = "openwrt")]
            Self::Uci => "uci",
        }
    }
}

/// The options that choose a directory and the form of the files in it.
pub(crate) fn options() -> [Arg; 2] {
    [
        arguments::path(
            "to",
            "DIRECTORY",
            "Write the clients' files here, or into an archive FILE.tar; none may exist yet",
        ),
        Format::option(),
    ]
}

/// A directory or an archive for clients' files, each named after its client.
pub(crate) struct Directory<'a> {
    path: &'a Path,
    format: Format,
    /// The server's file.
    server: &'a Path,
    /// Whether this command has made the directory.
    is_made: Cell<bool>,
    /// The files that this command has written, each with its client's name.
    written: RefCell<Vec<(String, PathBuf)>>,
    /// The clients whose files are too long for a camera, and are written as [`Format::File`].
    uncoded: RefCell<Vec<String>>,
}

/// A client's file in a form.
struct Content<'a> {
    /// The client's name.
    name: &'a str,
    format: Format,
    text: Zeroizing<String>,
}

impl<'a> Directory<'a> {
    /// The directory of the command line, whose [`options`] are given.
    pub(crate) fn of(matches: &'a ArgMatches, server: &'a Path) -> Self {
        let format = arguments::text(matches, "format");
        let mut all = Format::ALL.iter();
        let format = all.find(|(name, _)| Some(*name) == format);
        Self {
            path: arguments::file(matches, "to").unwrap_or_else(|| Path::new(".")),
            format: format.map_or(Format::File, |(_, it)| *it),
            server,
            is_made: Cell::new(false),
            written: RefCell::default(),
            uncoded: RefCell::default(),
        }
    }

    /// The directory's path.
    pub(crate) const fn path(&self) -> &Path {
        self.path
    }

    /// The written files, each with its client's name.
    pub(crate) fn written(&self) -> Vec<(String, PathBuf)> {
        self.written.borrow().clone()
    }

    /// The clients whose files are too long for a QR code, and are written as files.
    pub(crate) fn uncoded(&self) -> Vec<String> {
        self.uncoded.borrow().clone()
    }

    /// A client's file in the chosen form.
    fn content<'f>(&self, file: &'f Issued) -> Result<Content<'f>, PeerError> {
        let name = &*file.name;
        let plain = || Content {
            name,
            format: Format::File,
            text: file.text.clone(),
        };
        let text = match self.format {
            Format::File => return Ok(plain()),
            Format::Qr => match qr::code(&file.text, false) {
                Err(PeerError::TooLong(_)) => return Ok(plain()),
                code => code?,
            },
            #[cfg(feature = "amnezia")]
            Format::Link => file.link()?,
            #[cfg(feature = "openwrt")]
            Format::Uci => {
                // UCI's names have only letters, digits and `_`.
                let server = service::running::name_of(self.server);
                let server = server.replace(|it: char| !it.is_ascii_alphanumeric(), "_");
                let text = crate::rpcd::batch(&file.text, &server);
                text.ok_or_else(|| PeerError::Format {
                    name: name.to_owned(),
                    why: "OpenWrt's options cannot express it".to_owned(),
                })?
            }
        };
        let format = self.format;
        Ok(Content { name, format, text })
    }

    /// The name of a client's file in a form.
    fn file_name(&self, name: &str, format: Format) -> String {
        let ending = format.ending(Kind::at(self.server));
        format!("{name}.{ending}")
    }

    /// Whether all files go into one archive.
    fn is_archive(&self) -> bool {
        self.path.extension().is_some_and(|it| it == "tar")
    }

    /// Writes clients' files.
    fn write(&self, contents: &[Content<'_>]) -> Result<(), PeerError> {
        if self.is_archive() {
            let names = contents.iter();
            let names: Vec<String> = names.map(|it| self.file_name(it.name, it.format)).collect();
            let files = names.iter().zip(contents);
            let files: Vec<(&str, &str)> = files.map(|(name, it)| (&**name, &**it.text)).collect();
            written_file::write_new(self.path, &tar::archive(&files))
                .map_err(place::failed(self.path))?;
            let names = contents.iter().map(|it| it.name.to_owned());
            let written = names.map(|it| (it, self.path.to_owned())).collect();
            self.written.replace(written);
            return Ok(());
        }
        if !self.path.is_dir() {
            let made = DirBuilder::new().mode(0o700).create(self.path);
            made.map_err(place::failed(self.path))?;
            self.is_made.set(true);
        }
        for Content { name, format, text } in contents {
            let path = self.path.join(self.file_name(name, *format));
            place::write_new(&path, text)?;
            let written = ((*name).to_owned(), path);
            self.written.borrow_mut().push(written);
        }
        Ok(())
    }
}

impl Recipient for Directory<'_> {
    fn check(&self, server: Kind, names: &mut dyn Iterator<Item = &str>) -> Result<(), PeerError> {
        match self.format {
            Format::Qr if server == Kind::OpenVpn => return Err(PeerError::OpenVpnCode),
            #[cfg(feature = "amnezia")]
            Format::Link if server == Kind::OpenVpn => return Err(PeerError::OpenVpnLink),
            #[cfg(feature = "openwrt")]
            Format::Uci if server == Kind::OpenVpn => return Err(PeerError::OpenVpnOptions),
            _ => {}
        }
        let is_compressed = |it: &str| ["gz", "tgz", "xz", "zip"].contains(&it);
        let end = self.path.extension().and_then(|it| it.to_str());
        if end.is_some_and(is_compressed) {
            return Err(PeerError::Archive(self.path.to_owned()));
        }
        let mut files = names.map(|name| match self.is_archive() {
            true => self.path.to_owned(),
            false => self.path.join(self.file_name(name, self.format)),
        });
        match files.find(|it| it.symlink_metadata().is_ok()) {
            Some(file) => Err(PeerError::Exists(file)),
            None => Ok(()),
        }
    }

    fn take(&self, files: &[Issued]) -> Result<(), PeerError> {
        let contents: Vec<Content<'_>> = files
            .iter()
            .map(|it| self.content(it))
            .collect::<Result<_, _>>()?;
        let other = contents.iter().filter(|it| it.format != self.format);
        self.uncoded
            .replace(other.map(|it| it.name.to_owned()).collect());
        self.write(&contents).inspect_err(|_| self.give_back())
    }

    fn give_back(&self) {
        for (_, path) in self.written.take() {
            let _ = fs::remove_file(path);
        }
        if self.is_made.take() {
            let _ = fs::remove_dir(self.path);
        }
    }
}
