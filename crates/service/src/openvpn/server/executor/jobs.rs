//! Background jobs, run on other threads.

use crate::openvpn::server::machine::{Done, Job, Login, LoginChecks};
use openvpn_host::scripts::auth_script::{self, Answer, AuthFiles, Verdict, temporary};
use openvpn_host::scripts::connect_script::{self, ConnectFiles, Connected};
use openvpn_host::scripts::{Invocation, ScriptError};
use std::path::Path;

/// Result of a job, and the files in which its script answers later.
pub(super) struct Finished {
    pub(super) done: Done,
    pub(super) files: Option<Files>,
}

/// Files of a script that answers later. Dropping this removes them.
pub(super) enum Files {
    /// Files for a login's verdict.
    Login(AuthFiles),
    /// Files for a client's settings.
    Settings(ConnectFiles),
}

/// Runs a job and waits for its scripts.
pub(super) fn run(job: Job) -> Finished {
    match job {
        Job::Login(auth, checks) => {
            let mut certificate = false;
            let (answer, files) = match check(checks, &mut certificate) {
                Ok(answer) => {
                    let later = answer.verdict == Verdict::Deferred;
                    let files = answer.files.filter(|_| later).map(Files::Login);
                    (Ok((answer.verdict, answer.pending)), files)
                }
                Err(error) => (Err(error.to_string()), None),
            };
            let login = Login {
                certificate,
                answer,
            };
            Finished {
                done: Done::Login(auth, login),
                files,
            }
        }
        Job::Settings(script, directory) => {
            let (settings, files) = settings(connect_script::run(script, &directory));
            Finished {
                done: Done::Settings(settings),
                files,
            }
        }
        Job::Respond {
            auth,
            script,
            response,
            directory,
            ..
        } => {
            let told = auth_script::tell_response(script, &response, &directory);
            let told = told.map_err(|error| error.to_string());
            Finished {
                done: Done::Responded(auth, told),
                files: None,
            }
        }
        Job::Tell(script) => {
            let told = script.run_well().map_err(|error| error.to_string());
            Finished {
                done: Done::Told(told),
                files: None,
            }
        }
    }
}

/// Returns the settings that a script made, or its files if they come later.
pub(super) fn settings(
    outcome: Result<Connected, ScriptError>,
) -> (Result<Option<String>, String>, Option<Files>) {
    match outcome {
        Ok(Connected::Settings(text)) => (Ok(Some(text)), None),
        Ok(Connected::Deferred(files)) => (Ok(None), Some(Files::Settings(files))),
        Err(error) => (Err(error.to_string()), None),
    }
}

fn check(checks: LoginChecks, certificate: &mut bool) -> Result<Answer, ScriptError> {
    let answer = |verdict| Answer {
        verdict,
        pending: None,
        files: None,
    };
    for script in &checks.certificates {
        if !script.run()?.success() {
            return Ok(answer(Verdict::Refused(None)));
        }
    }
    *certificate = true;
    if let Some((script, metadata)) = &checks.metadata
        && !metadata_is_good(script, metadata, &checks.directory)?
    {
        return Ok(answer(Verdict::Refused(None)));
    }
    if let Some((file, login)) = &checks.file
        && !file.check(&login.username, &login.password)
    {
        return Ok(answer(Verdict::Refused(None)));
    }
    match checks.login {
        Some((script, login, method)) => {
            auth_script::verify(script, &login, method, &checks.directory)
        }
        None => Ok(answer(Verdict::Accepted)),
    }
}

/// Whether a `tls-crypt-v2-verify` script accepts the metadata of a client's key.
fn metadata_is_good(
    script: &Invocation,
    metadata: &[u8],
    directory: &Path,
) -> Result<bool, ScriptError> {
    let file = temporary(directory, "tls_crypt_v2_metadata", metadata)?;
    let script = script
        .clone()
        .with("metadata_file", &file.to_string_lossy());
    Ok(script.run()?.success())
}
