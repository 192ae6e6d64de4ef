//! Checks whether the files that a configuration names can be used.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::report::CONCEALED;
use super::table::{self, Support};
use super::{Command, Crl, Import, OpenVpn, Prompted, Proxy, SharedWrap, Source};
use crate::file;
use crate::report::Verdict;

impl Import {
    /// Checks every file and directory that the model reads, its programs, and the directories of the files that it
    /// writes. Refuses the lines that fail.
    pub fn check_files(&mut self) {
        let Some(model) = &self.model else { return };
        let mut failed: Vec<(&'static str, String)> = Vec::new();
        for (name, path) in files(model) {
            let path = model.path(&path);
            if let Err(error) = readable(&path) {
                let reason = format!("{}: cannot be read: {error}", path.display());
                failed.push((name, reason));
            }
        }
        for (name, path) in written(model) {
            let path = model.path(path);
            if path.is_dir() {
                let reason = format!("{}: is a directory; name a file", path.display());
                failed.push((name, reason));
            }
            let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
            if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
                let reason = format!(
                    "{}: the directory {} does not exist; make it, or name another file",
                    path.display(),
                    parent.display()
                );
                failed.push((name, reason));
            }
        }
        for (name, command) in programs(model) {
            if let Some(reason) = cannot_run(model, &command) {
                failed.push((name, reason));
            }
        }
        for (name, reason) in failed {
            self.fail(name, &reason);
        }
    }

    /// Refuses every line that names a file to read, for a configuration that comes without other files.
    pub fn refuse_files(&mut self) {
        let Some(model) = &self.model else { return };
        let named: Vec<&'static str> = files(model).into_iter().map(|it| it.0).collect();
        for name in named {
            let reason = format!("put the file's content into this one, as <{name}> … </{name}>");
            self.fail(name, &reason);
        }
    }

    /// Warns of files with keys and passwords that other users can read, including the configuration itself if it
    /// holds any.
    pub fn check_secrecy(&mut self) {
        let Some(model) = &self.model else { return };
        let secret = |name: &str| table::find(name).is_some_and(|it| it.has(table::SECRET));
        let named = files(model).into_iter().filter(|(name, _)| secret(name));
        let mut paths: Vec<PathBuf> = named.map(|(_, path)| model.path(&path)).collect();
        if self.holds_secrets {
            paths.push(PathBuf::from(&self.report.file));
        }
        self.warnings
            .extend(paths.iter().filter_map(|path| file::exposed(path)));
    }

    fn fail(&mut self, name: &str, reason: &str) {
        let same = |entry: &&mut crate::report::Entry| {
            entry.key == name && entry.verdict == Verdict::Honoured
        };
        let known = self.model.as_ref().and_then(|model| model.named(name));
        let (place, included) = known.unwrap_or((&self.report.file, false));
        let reason = if included { CONCEALED } else { reason };
        let fault = format!("{place}: {name}: {reason}");
        if let Some(entry) = self.report.entries.iter_mut().rev().find(same) {
            entry.verdict = Verdict::Refused;
            entry.reason = match entry.line {
                0 => format!("{place}: {reason}"),
                _ => reason.to_owned(),
            };
        }
        self.faults.0.push(fault);
        self.faults.1 += 1;
    }
}

/// Whether a file or directory can be read.
fn readable(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_dir() {
        true => fs::read_dir(path).map(drop),
        // An inherited pipe can be read only once, so that it is not opened here.
        false if file::is_handed_over(path) => Ok(()),
        false => file::open(path).map(drop),
    }
}

/// Directives that name files to write, and these files.
fn written(model: &OpenVpn) -> Vec<(&'static str, &Path)> {
    let service = &model.service;
    let mut files: Vec<(&'static str, &Path)> = Vec::new();
    if let Some(status) = &service.status {
        files.push(("status", &status.path));
    }
    if let Some(path) = &service.pid_file {
        files.push(("writepid", path));
    }
    if let Some(log) = &service.log {
        let name = if log.append { "log-append" } else { "log" };
        files.push((name, &log.path));
    }
    if let Some(persist) = model.server().and_then(|it| it.pool_persist.as_ref()) {
        files.push(("ifconfig-pool-persist", &persist.path));
    }
    files
}

/// Directives that name programs, each with its program.
fn programs(model: &OpenVpn) -> Vec<(&'static str, Command)> {
    let mut scripts = model.scripts.clone();
    let programs = table::all().filter_map(|entry| match entry.support {
        Support::Script(place, _) => Some((entry.name, place(&mut scripts).take()?)),
        _ => None,
    });
    programs.collect()
}

/// Why a program cannot be run. A name without a directory is searched for later, and passes.
fn cannot_run(model: &OpenVpn, command: &Command) -> Option<String> {
    let program = command.words.first().filter(|word| word.contains('/'))?;
    match fs::metadata(model.path(Path::new(program))) {
        Err(error) => Some(format!("{program}: cannot be run: {error}")),
        Ok(data) if data.is_dir() => Some(format!("{program}: is a directory; name a program")),
        Ok(data) if data.permissions().mode() & 0o111 == 0 => Some(format!(
            "{program}: cannot be run: it is not executable; chmod +x {program}"
        )),
        Ok(_) => None,
    }
}

/// Directives that name files to read, and these files.
fn files(model: &OpenVpn) -> Vec<(&'static str, PathBuf)> {
    let mut files: Vec<(&'static str, PathBuf)> = Vec::new();
    let mut file = |name: &'static str, path: &Path| {
        let pair = (name, path.to_owned());
        if !files.contains(&pair) {
            files.push(pair);
        }
    };
    let tls = &model.tls;
    let sources = [
        ("ca", &tls.ca),
        ("cert", &tls.cert),
        ("key", &tls.key),
        ("pkcs12", &tls.pkcs12),
        ("extra-certs", &tls.extra_certs),
    ];
    for (name, source) in sources {
        if let Some(Source::File(path)) = source {
            file(name, path);
        }
    }
    if let Some(Crl::List(Source::File(path)) | Crl::Directory(path)) = &tls.crl {
        file("crl-verify", path);
    }
    let mut prompted = |name: &'static str, prompted: Option<&Prompted>| {
        if let Some(Prompted::From(Source::File(path))) = prompted {
            file(name, path);
        }
    };
    prompted("askpass", tls.askpass.as_ref());
    let management = model.service.management.as_ref();
    prompted("management", management.and_then(|it| it.password.as_ref()));
    if let Some(client) = model.client() {
        prompted("auth-user-pass", client.auth_user_pass.as_ref());
    }
    for connection in &model.connections {
        match &connection.proxy {
            Some(Proxy::Http(http)) => prompted("http-proxy", http.credentials.as_ref()),
            Some(Proxy::Socks { credentials, .. }) => prompted("socks-proxy", credentials.as_ref()),
            None => {}
        }
    }
    for connection in &model.connections {
        match &connection.wrap.shared {
            SharedWrap::TlsAuth {
                key: Source::File(path),
                ..
            } => file("tls-auth", path),
            SharedWrap::TlsCrypt {
                key: Source::File(path),
            } => file("tls-crypt", path),
            _ => {}
        }
        if let Some(Source::File(path)) = &connection.wrap.tls_crypt_v2 {
            file("tls-crypt-v2", path);
        }
    }
    if let Some(directory) = &model.scripts.tmp_dir {
        file("tmp-dir", directory);
    }
    if let Some(server) = model.server() {
        if let Some(directory) = &server.client_config_dir {
            file("client-config-dir", directory);
        }
        if let Some(path) = &server.password_file {
            file("auth-user-pass-file", path);
        }
        let secret = server
            .auth_token
            .as_ref()
            .and_then(|token| token.secret.as_ref());
        if let Some(Source::File(path)) = secret {
            file("auth-gen-token-secret", path);
        }
    }
    files
}
