//! What is asked on other threads before a client comes in.

use super::super::policy::auth_script::{self, Answer, AuthScriptError, Credentials, Verdict};
use super::super::policy::connect_script::{ConnectScriptError, Connected};
use super::super::policy::htpasswd::PasswordFile;
use super::super::policy::scripts::{Invocation, ScriptError};
use config::openvpn::PasswordMethod;
use openvpn::session::AuthId;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was done on another thread.
pub(super) enum Done {
    /// The scripts and files that judge a login have spoken.
    Judged(AuthId, Judged),
    /// A client's script has made its settings.
    Settled(Result<Connected, ConnectScriptError>),
    /// A script was told of an answer to its question.
    Answered(AuthId, Result<(), AuthScriptError>),
    /// A script that was only told something.
    Told(Result<(), ScriptError>),
}

/// What was said of a login.
pub(super) struct Judged {
    /// The scripts found nothing wrong with the certificate (`tls-verify`).
    pub(super) certificate: bool,
    pub(super) answer: Result<Answer, AuthScriptError>,
}

/// What must be asked before a client comes in, in this order.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) first: Vec<Invocation>,
    pub(super) metadata: Option<(Invocation, Vec<u8>)>,
    pub(super) file: Option<(Arc<PasswordFile>, Credentials)>,
    pub(super) login: Option<(Invocation, Credentials, PasswordMethod)>,
    pub(super) directory: PathBuf,
}

impl Jobs {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty()
            && self.metadata.is_none()
            && self.file.is_none()
            && self.login.is_none()
    }

    pub(super) fn run(self) -> Judged {
        let mut certificate = false;
        let answer = self.ask(&mut certificate);
        Judged {
            certificate,
            answer,
        }
    }

    fn ask(self, certificate: &mut bool) -> Result<Answer, AuthScriptError> {
        let answer = |verdict| Answer {
            verdict,
            pending: None,
            files: None,
        };
        for script in &self.first {
            if !script.run()?.success() {
                return Ok(answer(Verdict::Refused(None)));
            }
        }
        *certificate = true;
        if let Some((script, metadata)) = &self.metadata
            && !metadata_is_good(script, metadata, &self.directory)?
        {
            return Ok(answer(Verdict::Refused(None)));
        }
        if let Some((file, login)) = &self.file
            && !file.check(&login.username, &login.password)
        {
            return Ok(answer(Verdict::Refused(None)));
        }
        match self.login {
            Some((script, login, method)) => {
                auth_script::verify(script, &login, method, &self.directory)
            }
            None => Ok(answer(Verdict::Accepted)),
        }
    }
}

/// Whether a `tls-crypt-v2-verify` script accepts the metadata of a client's key.
fn metadata_is_good(
    script: &Invocation,
    metadata: &[u8],
    directory: &Path,
) -> Result<bool, AuthScriptError> {
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(metadata)?;
        Ok(file.into_temp_path())
    };
    let file = write().map_err(|error| AuthScriptError::File {
        directory: directory.to_owned(),
        error,
    })?;
    let script = script
        .clone()
        .with("metadata_file", &file.to_string_lossy());
    Ok(script.run()?.success())
}
