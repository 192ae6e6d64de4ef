//! Whether the files that a configuration names can be read.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::{Crl, Import, OpenVpn, Prompted, Proxy, SharedWrap, Source};
use crate::report::Verdict;

impl Import {
    /// Tries to open every file and directory that the model reads, and refuses the lines of
    /// those that cannot be opened. Programs are not tried.
    pub fn check_files(&mut self) {
        let Some(model) = &self.model else { return };
        let named = files(model);
        for (name, path) in named {
            let path = model.path(&path);
            let Err(error) = File::open(&path) else {
                continue;
            };
            let reason = format!("{}: cannot be read: {error}", path.display());
            let same = |entry: &&mut crate::report::Entry| {
                entry.key == name && entry.verdict == Verdict::Honoured
            };
            if let Some(entry) = self.report.entries.iter_mut().find(same) {
                entry.verdict = Verdict::Refused;
                entry.reason.clone_from(&reason);
            }
            let first = || (format!("{}: {name}: {reason}", self.report.file), 0);
            self.fault.get_or_insert_with(first).1 += 1;
        }
    }
}

/// Directives and their files.
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
