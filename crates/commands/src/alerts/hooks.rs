//! Carries out hooks: each has a thread and a bounded queue, so that one that hangs delays no other.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use config::alerts::{Action, Hook};
use monitor::alerts::Alert;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::remains::Running;

/// Maximum number of events that wait for a hook.
pub(super) const QUEUE: usize = 32;

/// Time between two looks at a running program.
const STEP: Duration = Duration::from_millis(100);

/// Waits before a failed post is tried again: the uplink that has failed may carry it.
const RETRIES: [Duration; 4] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];

/// Where programs are looked for, by this process and by theirs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whether a program's output is seen.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Output {
    /// On standard error.
    Shown,
    /// Nowhere.
    Hidden,
}

/// Tells a hook's thread to end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    is_told: Mutex<bool>,
    bell: Condvar,
}

impl Ending {
    /// Makes the thread end, and kills its program.
    pub(super) fn tell(&self) {
        *self.is_told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_all();
    }

    /// Waits for a time. Returns early, and true, if the thread is to end.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let told = self.is_told.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.bell.wait_timeout_while(told, time, |told| !*told);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Why an action has failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// The reason, in words.
    pub(super) words: String,
    /// Whether another attempt would fail too.
    is_final: bool,
}

impl From<String> for Failure {
    fn from(words: String) -> Self {
        Self {
            words,
            is_final: false,
        }
    }
}

/// An event, and the number of earlier events that were dropped.
type Item = (Alert, usize);

/// A hook with its thread.
struct Runner {
    hook: Hook,
    queue: SyncSender<Item>,
    /// Number of events that found the queue full, or whose post failed for good.
    missed: Arc<AtomicUsize>,
    ending: Arc<Ending>,
    thread: JoinHandle<()>,
}

/// All hooks.
pub(super) struct Hooks {
    host: String,
    patience: Duration,
    runners: Vec<Runner>,
}

impl Hooks {
    /// No hooks, on a host of this name. Each event of a hook may take this time.
    pub(super) const fn new(host: String, patience: Duration) -> Self {
        Self {
            host,
            patience,
            runners: Vec::new(),
        }
    }

    /// Replaces the hooks. Unchanged hooks keep their queues; running programs of removed hooks are killed.
    pub(super) fn replace(&mut self, hooks: Vec<Hook>) -> io::Result<()> {
        let mut old = std::mem::take(&mut self.runners);
        for hook in hooks {
            let runner = match old.iter().position(|it| it.hook == hook) {
                Some(place) => old.swap_remove(place),
                None => self.start(hook)?,
            };
            self.runners.push(runner);
        }
        end(old);
        Ok(())
    }

    fn start(&self, hook: Hook) -> io::Result<Runner> {
        let (queue, alerts) = sync_channel(QUEUE);
        let ending = Arc::<Ending>::default();
        let (action, host, patience) = (hook.action.clone(), self.host.clone(), self.patience);
        let missed = Arc::<AtomicUsize>::default();
        let theirs = (Arc::clone(&ending), Arc::clone(&missed));
        let serve = move || serve(&action, &alerts, &host, patience, &theirs.0, &theirs.1);
        let thread = thread::Builder::new().name("hook".to_owned());
        Ok(Runner {
            hook,
            queue,
            missed,
            ending,
            thread: thread.spawn(serve)?,
        })
    }

    /// Tells the hooks that are for this event. Never waits.
    pub(super) fn tell(&mut self, alert: &Alert) {
        let takers = self.runners.iter_mut();
        for runner in takers.filter(|it| it.hook.takes(alert.kind, &alert.tunnel)) {
            let missed = runner.missed.swap(0, Ordering::Relaxed);
            if runner.queue.try_send((alert.clone(), missed)).is_err() {
                runner.missed.fetch_add(missed + 1, Ordering::Relaxed);
            }
        }
    }

    /// Ends all threads, and kills their programs.
    pub(super) fn end(self) {
        end(self.runners);
    }
}

fn end(runners: Vec<Runner>) {
    for runner in &runners {
        runner.ending.tell();
    }
    for runner in runners {
        drop(runner.queue);
        if runner.thread.join().is_err() {
            log::error!("{}: its thread has failed", runner.hook.action);
        }
    }
}

/// Carries out an action for each event.
fn serve(
    action: &Action,
    alerts: &Receiver<Item>,
    host: &str,
    patience: Duration,
    ending: &Ending,
    missed: &AtomicUsize,
) {
    let waits = match action {
        Action::Run(_) => &[][..],
        Action::Post(_) => &RETRIES[..],
    };
    for (mut alert, earlier) in alerts {
        match earlier {
            0 => {}
            1 => alert.text += " (1 earlier event was not told)",
            _ => alert.text += &format!(" ({earlier} earlier events were dropped)"),
        }
        let mut waits = waits.iter();
        loop {
            let done = carry_out(action, &alert, host, patience, ending, Output::Hidden);
            let Err(failure) = done else { break };
            if ending.wait(Duration::ZERO) {
                return;
            }
            let (event, why) = (alert.kind.name(), failure.words);
            match waits.next().filter(|_| !failure.is_final) {
                None => {
                    log::warn!("{action}: event {event}: {why}");
                    // A program may fail after it has told the event.
                    if matches!(action, Action::Post(_)) {
                        missed.fetch_add(earlier + 1, Ordering::Relaxed);
                    }
                    break;
                }
                Some(wait) => {
                    log::info!("{action}: event {event}: {why}; trying again");
                    if ending.wait(*wait) {
                        return;
                    }
                }
            }
        }
        if ending.wait(Duration::ZERO) {
            return;
        }
    }
}

/// Carries out an action once. Kills a program that takes longer than `patience`, with its children.
pub(super) fn carry_out(
    action: &Action,
    alert: &Alert,
    host: &str,
    patience: Duration,
    ending: &Ending,
    output: Output,
) -> Result<(), Failure> {
    let line = alert.to_json(host);
    let Call {
        mut command,
        input,
        tells_code,
    } = match action {
        Action::Run(words) => program(words, alert, &line),
        Action::Post(url) => client(PATH, url, &line)?,
    };
    let shown = || match output {
        Output::Shown => Stdio::from(io::stderr()),
        Output::Hidden => Stdio::null(),
    };
    command
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(if tells_code { Stdio::piped() } else { shown() })
        .stderr(shown());
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let _running = Running::note(child.id());
    if let Some(mut pipe) = child.stdin.take() {
        // The pipe has room for it. A program need not read it.
        let _ = pipe.write_all(input.as_bytes());
    }
    wait(&mut child, patience, ending)?;
    match child.stdout {
        Some(pipe) => judge(pipe),
        None => Ok(()),
    }
}

/// Reads the code of a web server's answer, and judges it.
fn judge(code: impl io::Read) -> Result<(), Failure> {
    let mut text = String::new();
    let _ = code.take(16).read_to_string(&mut text);
    let failed = |is_final, remedy: &str| {
        let words = format!("the server answered {}{remedy}", text.trim());
        Err(Failure { words, is_final })
    };
    match text.trim().parse::<u16>() {
        Ok(200..300) => Ok(()),
        Ok(300..400) => failed(true, "; write the address that it redirects to"),
        Ok(408 | 429) => failed(false, ""),
        Ok(400..500) => failed(true, ""),
        _ => failed(false, ""),
    }
}

fn wait(child: &mut Child, patience: Duration, ending: &Ending) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("failed: {status}")),
            Ok(None) => {}
            Err(error) => return Err(error.to_string()),
        }
        let is_late = begin.elapsed() >= patience;
        if is_late || ending.wait(STEP) {
            // The group's number is the child's, which was not waited for and so belongs to no other process.
            let group = Pid::from_raw(child.id().cast_signed());
            let _ = killpg(group, Signal::SIGKILL);
            let _ = child.wait();
            return Err(match is_late {
                true => format!("killed, as it took longer than {} s", patience.as_secs()),
                false => "killed at the end of this process".to_owned(),
            });
        }
    }
}

/// A program to start.
struct Call {
    command: Command,
    /// Its standard input.
    input: String,
    /// Whether its output is the code of a web server's answer.
    tells_code: bool,
}

/// The owner's program. Its environment has nothing but the event and a path.
fn program(words: &[String], alert: &Alert, line: &str) -> Call {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("", String::as_str));
    command.args(words).env_clear().env("PATH", PATH);
    let port = alert.port.map_or_else(String::new, |it| it.to_string());
    for (name, value) in [
        ("EVENT", alert.kind.name()),
        ("TUNNEL", &alert.tunnel),
        ("NAME", &alert.name),
        ("TEXT", &alert.text),
        ("TIME", &alert.time.to_string()),
        ("PORT", &port),
    ] {
        command.env(format!("MILLRACE_{name}"), value);
    }
    Call {
        command,
        input: format!("{line}\n"),
        tells_code: false,
    }
}

/// A program that posts. Millrace has no certificates of authorities, which HTTPS needs. `curl` gets address and event on
/// its standard input, where no other user sees them; the others take arguments only.
fn client(path: &str, url: &str, line: &str) -> Result<Call, String> {
    let found = |name: &str| -> Option<PathBuf> {
        let places = path.split(':').map(|it| Path::new(it).join(name));
        places.into_iter().find(|it| it.is_file())
    };
    if let Some(program) = found("curl") {
        let mut command = Command::new(program);
        command.args(["-q", "--config", "-"]);
        let body = line.replace('\\', "\\\\").replace('"', "\\\"");
        let input = format!(
            "url = \"{url}\"\ngloboff\nsilent\nshow-error\nmax-time = 25\noutput = \"/dev/null\"\n\
             write-out = \"%{{http_code}}\"\nheader = \"Content-Type: application/json\"\ndata-binary = \"{body}\"\n"
        );
        return Ok(Call {
            command,
            input,
            tells_code: true,
        });
    }
    for name in ["uclient-fetch", "wget"] {
        let Some(program) = found(name) else { continue };
        let mut command = Command::new(program);
        command.args(["-q", "-O", "/dev/null", "-T", "25"]);
        command.arg(format!("--post-data={line}")).arg(url);
        return Ok(Call {
            command,
            input: String::new(),
            tells_code: false,
        });
    }
    Err("none of curl, uclient-fetch and wget is installed; install one".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use config::alerts::Kind;
    use tempfile::TempDir;

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(600);

    fn alert(text: &str) -> Alert {
        Alert::new(Kind::UplinkDown, "mr-us", "dsl", text, 7)
    }

    fn shell(script: &str) -> Hook {
        let words = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        Hook {
            events: Vec::new(),
            tunnels: Vec::new(),
            action: Action::Run(words),
        }
    }

    fn hooks(patience: Duration, hooks: Vec<Hook>) -> Hooks {
        let mut all = Hooks::new("router".to_owned(), patience);
        all.replace(hooks).unwrap();
        all
    }

    fn lines(directory: &TempDir, name: &str) -> Vec<String> {
        let text = fs::read_to_string(directory.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + LONG;
        while !condition() {
            assert!(Instant::now() < end, "{what}: never came true");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether a process has ended, even if nothing has waited for it.
    fn has_ended(pid: &str) -> bool {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"));
        text.is_err()
            || text.is_ok_and(|it| it.rsplit(") ").next().is_some_and(|it| it.starts_with('Z')))
    }

    #[test]
    fn a_hook_that_hangs_is_killed_with_its_children_and_delays_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().display().to_string();
        let hangs = format!("sleep 1000 & echo $! >> {place}/pids; echo $$ >> {place}/pids; wait");
        let other = format!("echo told >> {place}/other");
        let mut all = hooks(Duration::from_secs(1), vec![shell(&hangs), shell(&other)]);
        all.tell(&alert("one"));
        until("the other hook", || lines(&directory, "other").len() == 1);
        until("a hook that hangs", || lines(&directory, "pids").len() == 2);
        for pid in lines(&directory, "pids") {
            until("the end of the group", || has_ended(&pid));
        }
        // The next event starts it again, and the end of the process kills it.
        all.tell(&alert("two"));
        until("the next event", || lines(&directory, "pids").len() == 4);
        all.end();
        for pid in lines(&directory, "pids") {
            until("the end of the group", || has_ended(&pid));
        }
    }

    #[test]
    fn events_beyond_the_queue_are_counted_and_told_with_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().display().to_string();
        let waits = format!("cat >> {place}/out; while [ ! -e {place}/go ]; do sleep 0.02; done");
        let mut all = hooks(LONG, vec![shell(&waits)]);
        let count = || lines(&directory, "out").len();
        all.tell(&alert("first"));
        until("the first event", || count() == 1);
        for number in 0..QUEUE + 7 {
            all.tell(&alert(&number.to_string()));
        }
        fs::write(directory.path().join("go"), "").unwrap();
        until("the queue", || count() == 1 + QUEUE);
        all.tell(&alert("last"));
        until("the last event", || count() == 2 + QUEUE);
        let last = lines(&directory, "out").pop().unwrap();
        assert!(
            last.contains("\"last (7 earlier events were dropped)\""),
            "{last}"
        );
        all.tell(&alert("again"));
        until("one more", || count() == 3 + QUEUE);
        assert!(
            lines(&directory, "out")
                .pop()
                .unwrap()
                .contains("\"again\"")
        );
        all.end();
    }

    #[test]
    fn a_program_gets_the_event_and_nothing_else_of_the_environment() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().display().to_string();
        let ending = Ending::default();
        let run = |script: &str| {
            let action = shell(script).action;
            carry_out(
                &action,
                &alert("dsl is down"),
                "router",
                LONG,
                &ending,
                Output::Hidden,
            )
        };
        run(&format!("env > {place}/env; cat > {place}/input")).unwrap();
        let mut found = lines(&directory, "env");
        found.retain(|it| {
            !["PWD=", "SHLVL=", "_=", "OLDPWD="]
                .iter()
                .any(|own| it.starts_with(own))
        });
        found.sort();
        let path = format!("PATH={PATH}");
        assert_eq!(
            found,
            [
                "MILLRACE_EVENT=uplink-down",
                "MILLRACE_NAME=dsl",
                "MILLRACE_PORT=",
                "MILLRACE_TEXT=dsl is down",
                "MILLRACE_TIME=7",
                "MILLRACE_TUNNEL=mr-us",
                &path,
            ]
        );
        let input = lines(&directory, "input");
        let document: serde_json::Value = serde_json::from_str(&input[0]).unwrap();
        assert_eq!(input.len(), 1);
        assert_eq!(document["text"], "dsl is down");
        assert_eq!(document["host"], "router");
        // Neither an unread input nor a missing program stops anything.
        run("exec <&-; true").unwrap();
        assert_eq!(run("exit 3").unwrap_err().words, "failed: exit status: 3");
        let missing = Action::Run(vec!["/nonexistent".to_owned()]);
        let error = carry_out(&missing, &alert(""), "", LONG, &ending, Output::Hidden);
        assert!(error.unwrap_err().words.starts_with("cannot be started: "));
    }

    #[test]
    fn hooks_that_stay_keep_their_queue_when_the_file_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().display().to_string();
        let waits = format!("cat >> {place}/out; while [ ! -e {place}/go ]; do sleep 0.02; done");
        let other = shell("true");
        let mut all = hooks(LONG, vec![shell(&waits), other]);
        all.tell(&alert("one"));
        all.tell(&alert("two"));
        all.replace(vec![shell(&waits)]).unwrap();
        assert_eq!(all.runners.len(), 1);
        fs::write(directory.path().join("go"), "").unwrap();
        until("both events", || lines(&directory, "out").len() == 2);
        all.end();
    }

    #[test]
    fn answers_of_web_servers_are_judged() {
        for (code, words, is_final) in [
            ("200", "", false),
            ("204", "", false),
            (
                "301",
                "the server answered 301; write the address that it redirects to",
                true,
            ),
            ("404", "the server answered 404", true),
            ("408", "the server answered 408", false),
            ("413", "the server answered 413", true),
            ("429", "the server answered 429", false),
            ("503", "the server answered 503", false),
            ("000", "the server answered 000", false),
        ] {
            match judge(code.as_bytes()) {
                Ok(()) => assert_eq!(words, "", "{code}"),
                Err(it) => assert_eq!((it.words.as_str(), it.is_final), (words, is_final)),
            }
        }
    }

    /// Answers posts with these codes, one after the other, and returns their texts.
    fn answer(listener: &TcpListener, codes: &[u16]) -> Vec<String> {
        let one = |code: &u16| {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).unwrap();
                let last = head.lines().last().unwrap().to_ascii_lowercase();
                if let Some(value) = last.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = format!("HTTP/1.1 {code} X\r\nContent-Length: 0\r\n\r\n");
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            body["text"].as_str().unwrap().to_owned()
        };
        codes.iter().map(one).collect()
    }

    #[test]
    fn a_post_that_fails_for_good_is_not_repeated_but_counted() {
        if !Path::new("/usr/bin/curl").exists() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let post = Hook {
            events: Vec::new(),
            tunnels: Vec::new(),
            action: Action::Post(format!("http://{}/", listener.local_addr().unwrap())),
        };
        let mut all = hooks(LONG, vec![post]);
        let missed = Arc::clone(&all.runners[0].missed);
        for (codes, texts, count) in [
            (&[404][..], &["a"][..], 1),
            (&[301], &["b (1 earlier event was not told)"], 2),
            (&[200], &["c (2 earlier events were dropped)"], 0),
        ] {
            all.tell(&alert(&texts[0][..1]));
            assert_eq!(answer(&listener, codes), texts);
            until("the count", || missed.load(Ordering::Relaxed) == count);
        }
        all.end();
    }

    #[test]
    fn web_addresses_are_posted_to_by_the_program_that_hides_them_best() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display().to_string();
        let client = || client(&path, "https://a/secret", "{\"a\":\"\\\\\"}");
        assert!(client().err().unwrap().contains("install one"));
        for (name, hidden) in [("wget", false), ("uclient-fetch", false), ("curl", true)] {
            fs::write(directory.path().join(name), "").unwrap();
            let Call { command, input, .. } = client().unwrap();
            assert_eq!(
                command.get_program(),
                directory.path().join(name).as_os_str()
            );
            let words: Vec<_> = command.get_args().map(|it| it.to_string_lossy()).collect();
            assert_eq!(
                !words.iter().any(|it| it.contains("secret")),
                hidden,
                "{name}"
            );
            assert_eq!(
                input.contains("data-binary = \"{\\\"a\\\":\\\"\\\\\\\\\\\"}\"\n"),
                hidden
            );
        }
    }
}
