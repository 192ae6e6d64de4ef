//! `auth-user-pass-verify`: a script judges a name and a password, at once or later.
//!
//! A deferring script exits with 2 and later writes its verdict to `auth_control_file`, which [`AuthFiles::verdict`]
//! reads. Meanwhile it may request another step from the user in `auth_pending_file`. It may leave the reason for a
//! refusal in `auth_failed_reason_file`.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use config::openvpn::PasswordMethod;
use tempfile::TempPath;
use zeroize::Zeroizing;

use crate::scripts::names;
use crate::scripts::{Invocation, ScriptError};

/// Longest script file that is read, in bytes.
const FILE_MAX: u64 = 4096;

/// Exit code of a script that will give its verdict later.
const DEFERRED: i32 = 2;

/// Name and password for the script.
#[derive(Clone)]
pub struct Credentials {
    /// The user's name.
    pub username: String,
    /// The password.
    pub password: Zeroizing<String>,
}

/// A further authentication step for the user.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PendingAuth {
    /// Time limit in seconds.
    pub timeout: u32,
    /// Method that the client must list in its `IV_SSO`.
    pub method: String,
    /// Text that the server sends to the client in `INFO_PRE`.
    pub extra: String,
}

/// Decision of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The script admits the client.
    Accepted,
    /// The script refuses the client, with a reason for `AUTH_FAILED` if it gave one.
    Refused(Option<String>),
    /// The script has not decided.
    Deferred,
}

/// Result of a script, and the files for its later answers.
#[derive(Debug)]
pub struct Answer {
    /// The verdict so far.
    pub verdict: Verdict,
    /// Further step that the script requests of the user meanwhile.
    pub pending: Option<PendingAuth>,
    /// Files to poll after [`Verdict::Deferred`]; dropping them removes them.
    pub files: Option<AuthFiles>,
}

/// Files between a script and the daemon. Dropping this removes them.
#[derive(Debug)]
pub struct AuthFiles {
    control: TempPath,
    pending: TempPath,
    reason: TempPath,
}

impl AuthFiles {
    fn new(directory: &Path) -> Result<Self, ScriptError> {
        Ok(Self {
            control: temporary(directory, "acf", b"")?,
            pending: temporary(directory, "apf", b"")?,
            reason: temporary(directory, "afr", b"")?,
        })
    }

    /// Adds the files' paths to a script's environment.
    pub fn name_to(&self, script: Invocation) -> Invocation {
        script
            .with("auth_control_file", &self.control.to_string_lossy())
            .with("auth_pending_file", &self.pending.to_string_lossy())
            .with("auth_failed_reason_file", &self.reason.to_string_lossy())
    }

    /// Returns the script's verdict so far. Reads one byte of a file, so polling once a second is cheap.
    pub fn verdict(&self) -> Verdict {
        match read(&self.control).unwrap_or_default().first() {
            Some(b'1') => Verdict::Accepted,
            Some(b'0') => Verdict::Refused(self.reason()),
            _ => Verdict::Deferred,
        }
    }

    fn reason(&self) -> Option<String> {
        let bytes = read(&self.reason).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let text = names::value(text.trim_end_matches(['\r', '\n']));
        (!text.is_empty()).then_some(text)
    }

    fn pending(&self) -> Result<Option<PendingAuth>, ScriptError> {
        let bytes = read(&self.pending).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines().map(str::trim_end);
        let (Some(timeout), Some(method), Some(extra)) = (lines.next(), lines.next(), lines.next())
        else {
            return Err(ScriptError::Pending);
        };
        let timeout = timeout.trim().parse().ok().filter(|&seconds| seconds > 0);
        Ok(Some(PendingAuth {
            timeout: timeout.ok_or(ScriptError::Pending)?,
            method: method.to_owned(),
            extra: extra.to_owned(),
        }))
    }
}

/// Runs the script and waits for it: call it on a thread of `Background`.
///
/// # Errors
/// The script could not be asked: the client is refused, and the error goes to the log.
pub fn verify(
    script: Invocation,
    credentials: &Credentials,
    method: PasswordMethod,
    directory: &Path,
) -> Result<Answer, ScriptError> {
    let files = AuthFiles::new(directory)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut script = files.name_to(script);
    let username = names::name(&credentials.username);
    let password = names::password(&credentials.password);
    // Kept until the script has ended.
    let mut handed_over = None;
    match method {
        PasswordMethod::Environment => {
            script = script
                .with("username", &username)
                .with("password", &password);
        }
        PasswordMethod::File => {
            let lines = Zeroizing::new(format!("{username}\n{}\n", password.as_str()));
            let path = temporary(directory, "up", lines.as_bytes())?;
            script = script.with("username", &username).argument(text(&path));
            handed_over = Some(path);
        }
    }
    let status = script.run()?;
    drop(handed_over);
    let refused = |files: &AuthFiles| Answer {
        verdict: Verdict::Refused(files.reason()),
        pending: None,
        files: None,
    };
    match status.code() {
        Some(0) => Ok(Answer {
            verdict: Verdict::Accepted,
            pending: None,
            files: None,
        }),
        Some(DEFERRED) => Ok(Answer {
            pending: files.pending()?,
            // The script may have written its verdict already.
            verdict: files.verdict(),
            files: Some(files),
        }),
        _ => Ok(refused(&files)),
    }
}

/// Runs `client-crresponse` with a client's answer to its challenge; the last argument is the path of a file with it.
/// Waits for the script.
///
/// # Errors
/// The script could not be run, or failed.
pub fn tell_response(
    script: Invocation,
    response: &str,
    directory: &Path,
) -> Result<(), ScriptError> {
    let path = temporary(directory, "cr", response.as_bytes())?;
    let script = script.argument(path.to_string_lossy().into_owned());
    script.run_well()
}

/// Makes a file of these bytes with an unguessable name that only this user can read.
///
/// # Errors
/// [`ScriptError::File`].
pub fn temporary(directory: &Path, kind: &str, bytes: &[u8]) -> Result<TempPath, ScriptError> {
    let made = tempfile::Builder::new()
        .prefix(&format!("openvpn_{kind}_"))
        .suffix(".tmp")
        .rand_bytes(16)
        .tempfile_in(directory);
    let written = made.and_then(|mut file| file.write_all(bytes).map(|()| file.into_temp_path()));
    written.map_err(|error| ScriptError::File {
        directory: directory.to_owned(),
        error,
    })
}

/// Reads the start of a script's file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts::environment::Environment;
    use crate::scripts::{Hook, testing::shell};
    use config::openvpn::ScriptSecurity;
    use std::fs;

    struct Fixture {
        directory: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                directory: tempfile::tempdir().unwrap(),
            }
        }

        fn ask(&self, text: &str, method: PasswordMethod) -> Result<Answer, ScriptError> {
            let security = match method {
                PasswordMethod::Environment => ScriptSecurity::Passwords,
                PasswordMethod::File => ScriptSecurity::Scripts,
            };
            let script = Invocation::new(
                Hook::AuthUserPassVerify,
                &shell(text),
                [],
                &Environment::default(),
                security,
            )?;
            let credentials = Credentials {
                username: "ali baba".to_owned(),
                password: Zeroizing::new("open \"sesame\"".to_owned()),
            };
            verify(script, &credentials, method, self.directory.path())
        }

        fn is_clean(&self) -> bool {
            fs::read_dir(self.directory.path()).unwrap().count() == 0
        }
    }

    #[test]
    fn a_second_script_gets_the_answer_and_decides() {
        let fixture = Fixture::new();
        let answer = fixture.ask("exit 2", PasswordMethod::File).unwrap();
        let files = answer.files.unwrap();
        assert_eq!(files.verdict(), Verdict::Deferred);
        let respond = |response: &str| {
            let text = "test $(cat \"$1\") = MTIz && echo 1 > $auth_control_file";
            let (hook, environment) = (Hook::ClientCrResponse, Environment::default());
            let script = Invocation::new(
                hook,
                &shell(text),
                [],
                &environment,
                ScriptSecurity::Scripts,
            )
            .unwrap();
            tell_response(files.name_to(script), response, fixture.directory.path())
        };
        assert!(respond("AAAA").is_err());
        assert_eq!(files.verdict(), Verdict::Deferred);
        respond("MTIz").unwrap();
        assert_eq!(files.verdict(), Verdict::Accepted);
        drop(files);
        assert!(fixture.is_clean());
    }

    #[test]
    fn both_ways_hand_over_name_and_password() {
        let fixture = Fixture::new();
        let by_env = "test \"$username\" = 'ali baba' && test \"$password\" = 'open \"sesame\"' && \
                      test $script_type = user-pass-verify";
        let answer = fixture.ask(by_env, PasswordMethod::Environment).unwrap();
        assert_eq!(answer.verdict, Verdict::Accepted);
        let by_file = "{ read -r user; read -r pass; } < $1; test \"$user\" = 'ali baba' && \
                       test \"$pass\" = 'open \"sesame\"' && test -z \"$password\" && \
                       test \"$(stat -c %a $1)\" = 600";
        let answer = fixture.ask(by_file, PasswordMethod::File).unwrap();
        assert_eq!(answer.verdict, Verdict::Accepted);
        assert!(fixture.is_clean());
    }

    #[test]
    fn a_refusal_has_the_scripts_reason() {
        let fixture = Fixture::new();
        let ask = |text| fixture.ask(text, PasswordMethod::File).unwrap().verdict;
        assert_eq!(ask("exit 1"), Verdict::Refused(None));
        let text = "echo 'TEMP[backoff 42]: full' > $auth_failed_reason_file; exit 1";
        let reason = "TEMP[backoff 42]: full".to_owned();
        assert_eq!(ask(text), Verdict::Refused(Some(reason)));
        assert_eq!(ask("kill -9 $$"), Verdict::Refused(None));
        assert!(fixture.is_clean());
    }

    #[test]
    fn a_verdict_may_come_later() {
        let fixture = Fixture::new();
        let text = "printf '60\\nwebauth\\nWEB_AUTH::https://x\\n' > $auth_pending_file; exit 2";
        let answer = fixture.ask(text, PasswordMethod::File).unwrap();
        assert_eq!(answer.verdict, Verdict::Deferred);
        assert_eq!(
            answer.pending,
            Some(PendingAuth {
                timeout: 60,
                method: "webauth".to_owned(),
                extra: "WEB_AUTH::https://x".to_owned(),
            })
        );
        let files = answer.files.unwrap();
        assert_eq!(files.verdict(), Verdict::Deferred);
        fs::write(&files.reason, "late\n").unwrap();
        fs::write(&files.control, "0").unwrap();
        assert_eq!(files.verdict(), Verdict::Refused(Some("late".to_owned())));
        fs::write(&files.control, "1").unwrap();
        assert_eq!(files.verdict(), Verdict::Accepted);
        drop(files);
        assert!(fixture.is_clean());
    }

    #[test]
    fn nonsense_from_a_script_is_a_refusal() {
        let fixture = Fixture::new();
        for text in ["echo 60", "printf '0\\na\\nb\\n'", "printf 'x\\na\\nb\\n'"] {
            let text = format!("{text} > $auth_pending_file; exit 2");
            let error = fixture.ask(&text, PasswordMethod::File).unwrap_err();
            assert!(matches!(error, ScriptError::Pending), "{error}");
        }
        assert!(fixture.is_clean());
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let script = Invocation::new(
            Hook::AuthUserPassVerify,
            &shell(":"),
            [],
            &Environment::default(),
            ScriptSecurity::Scripts,
        );
        let credentials = Credentials {
            username: String::new(),
            password: Zeroizing::default(),
        };
        let missing = Path::new("/nonexistent/tmp");
        let error = verify(script.unwrap(), &credentials, PasswordMethod::File, missing);
        assert!(error.unwrap_err().to_string().contains("/nonexistent/tmp"));
    }
}
