//! Programs that run in a host, and are gone with their value.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::{LabError, signals};

/// How much of a stream is kept: the last of it.
const KEPT_BYTES: usize = 4 << 20;
/// A line that does not end is cut here.
const LINE_BYTES: u64 = 1 << 20;
/// How often a condition is looked at again.
const POLL: Duration = Duration::from_millis(3);
/// How long the output of a program that has ended is waited for: what it has left behind in the
/// background may hold the other end of the pipe forever.
const DRAIN: Duration = Duration::from_secs(2);
/// The time in which a program may end by itself after SIGTERM.
const GRACE: Duration = Duration::from_secs(40);

/// A program in a host. Dropping it kills it and all that it started.
#[derive(Debug)]
pub struct Process {
    child: Child,
    label: String,
    host: String,
    output: Arc<Output>,
    status: Option<ExitStatus>,
}

/// How a program ended.
#[derive(Debug, Clone)]
pub struct Exit {
    /// Its status.
    pub status: ExitStatus,
    /// Its standard output, the last 4 MiB at most.
    pub stdout: String,
    /// Its standard error, the last 4 MiB at most.
    pub stderr: String,
    label: String,
    host: String,
}

impl Exit {
    /// The standard output of a program that ended well.
    ///
    /// # Errors
    /// [`LabError::Failed`] if it did not.
    pub fn success(self) -> Result<String, LabError> {
        if self.status.success() {
            return Ok(self.stdout);
        }
        let said = if self.stderr.trim().is_empty() {
            &self.stdout
        } else {
            &self.stderr
        };
        Err(LabError::Failed {
            output: said.trim().to_owned(),
            program: self.label,
            host: self.host,
            status: self.status.to_string(),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

/// The lines of both streams, bounded.
#[derive(Debug, Default)]
struct Output {
    kept: Mutex<Kept>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<(Stream, String)>,
    bytes: usize,
    /// Lines that were dropped from the front.
    forgotten: usize,
    /// Streams that have not ended.
    open: usize,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // The lines stay whole whichever thread panics.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, stream: Stream, line: String) {
        let mut kept = self.lock();
        kept.bytes += line.len();
        kept.lines.push_back((stream, line));
        while kept.bytes > KEPT_BYTES {
            let Some((_, old)) = kept.lines.pop_front() else {
                break;
            };
            kept.bytes -= old.len();
            kept.forgotten += 1;
        }
        drop(kept);
        self.news.notify_all();
    }

    /// Waits until both streams have ended, but not forever.
    fn drain(&self) {
        let kept = self.lock();
        let open = |kept: &mut Kept| kept.open > 0;
        // Whether it was in time shows in the text.
        let _ = self.news.wait_timeout_while(kept, DRAIN, open);
    }

    fn text(&self, stream: Stream) -> String {
        let kept = self.lock();
        let lines = kept.lines.iter().filter(|(from, _)| *from == stream);
        lines.map(|(_, line)| line.as_str()).collect()
    }

    /// The last lines of both, for error messages.
    fn tail(&self) -> String {
        let kept = self.lock();
        let skip = kept.lines.len().saturating_sub(20);
        let lines = kept.lines.iter().skip(skip);
        let text: String = lines.map(|(_, line)| line.as_str()).collect();
        if text.trim().is_empty() {
            "it said nothing".to_owned()
        } else {
            text.trim().to_owned()
        }
    }
}

impl Process {
    /// Takes over a child that is the leader of its own process group.
    pub(crate) fn adopt(mut child: Child, label: String, host: String) -> Self {
        signals::remember(child.id());
        let output = Arc::new(Output::default());
        if let Some(pipe) = child.stdout.take() {
            read_lines(pipe, Stream::Stdout, &output);
        }
        if let Some(pipe) = child.stderr.take() {
            read_lines(pipe, Stream::Stderr, &output);
        }
        Self {
            child,
            label,
            host,
            output,
            status: None,
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The program with its arguments.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        self.output.text(Stream::Stdout)
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.output.text(Stream::Stderr)
    }

    /// Writes all of its standard input and closes it.
    pub(crate) fn write_input(&mut self, input: &str) -> Result<(), LabError> {
        let Some(mut pipe) = self.child.stdin.take() else {
            return Ok(());
        };
        match pipe.write_all(input.as_bytes()) {
            // It ended without reading everything, and its status says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other
                .map_err(|error| LabError::host(&self.host, format!("feed {}", self.label), error)),
        }
    }

    /// Its status, if it has ended.
    ///
    /// # Errors
    /// [`LabError::Host`] if the system does not tell.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, LabError> {
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(|error| {
                LabError::host(&self.host, format!("wait for {}", self.label), error)
            })?;
            if self.status.is_some() {
                signals::forget(self.child.id());
            }
        }
        Ok(self.status)
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// [`LabError::Host`] if the system does not tell.
    pub fn wait(mut self) -> Result<Exit, LabError> {
        let status = match self.status {
            Some(status) => status,
            None => self.child.wait().map_err(|error| {
                LabError::host(&self.host, format!("wait for {}", self.label), error)
            })?,
        };
        self.status = Some(status);
        signals::forget(self.child.id());
        Ok(self.exit(status))
    }

    /// Waits until it ends, at most for `deadline`; a program that takes longer is killed. What a
    /// program that ends by itself has left in the background lives on, until its host is dropped.
    ///
    /// # Errors
    /// [`LabError::Timeout`].
    pub fn wait_at_most(mut self, deadline: Duration) -> Result<Exit, LabError> {
        let end = Instant::now() + deadline;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(self.exit(status));
            }
            if Instant::now() >= end {
                return Err(self.timeout("its end", deadline));
            }
            thread::sleep(POLL);
        }
    }

    fn exit(&self, status: ExitStatus) -> Exit {
        self.output.drain();
        Exit {
            status,
            stdout: self.output.text(Stream::Stdout),
            stderr: self.output.text(Stream::Stderr),
            label: self.label.clone(),
            host: self.host.clone(),
        }
    }

    /// Waits until `condition` is true, looking every few milliseconds.
    ///
    /// # Errors
    /// [`LabError::Timeout`] if it is not in time, [`LabError::Failed`] if the program ends first.
    pub fn wait_until(
        &mut self,
        what: &str,
        deadline: Duration,
        mut condition: impl FnMut() -> bool,
    ) -> Result<(), LabError> {
        let end = Instant::now() + deadline;
        while !condition() {
            self.still_running()?;
            if Instant::now() >= end {
                return Err(self.timeout(what, deadline));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits until it has written a line to either stream for which `wanted` is true, and returns that
    /// line.
    ///
    /// # Errors
    /// The errors of [`Process::wait_until`].
    pub fn wait_for_line(
        &mut self,
        what: &str,
        deadline: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String, LabError> {
        let end = Instant::now() + deadline;
        let mut seen = 0;
        loop {
            {
                let output = Arc::clone(&self.output);
                let kept = output.lock();
                let skip = usize::saturating_sub(seen, kept.forgotten);
                let mut fresh = kept.lines.iter().skip(skip);
                if let Some((_, line)) = fresh.find(|(_, line)| wanted(line.trim_end())) {
                    return Ok(line.trim_end().to_owned());
                }
                seen = kept.forgotten + kept.lines.len();
                drop(output.news.wait_timeout(kept, POLL));
            }
            self.still_running()?;
            if Instant::now() >= end {
                return Err(self.timeout(what, deadline));
            }
        }
    }

    /// Waits until so many lines, of both streams together, have been written for which `wanted` is true.
    /// Lines that were forgotten count no more.
    ///
    /// # Errors
    /// The errors of [`Process::wait_until`].
    pub fn wait_for_lines(
        &mut self,
        what: &str,
        count: usize,
        deadline: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), LabError> {
        let output = Arc::clone(&self.output);
        self.wait_until(what, deadline, || {
            let kept = output.lock();
            let lines = kept.lines.iter().map(|(_, line)| line.trim_end());
            lines.filter(|line| wanted(line)).count() >= count
        })
    }

    fn still_running(&mut self) -> Result<(), LabError> {
        match self.try_wait()? {
            None => Ok(()),
            Some(status) => Err(LabError::Failed {
                program: self.label.clone(),
                host: self.host.clone(),
                status: status.to_string(),
                output: self.output.tail(),
            }),
        }
    }

    fn timeout(&self, what: &str, deadline: Duration) -> LabError {
        LabError::Timeout {
            program: self.label.clone(),
            host: self.host.clone(),
            what: what.to_owned(),
            deadline,
            output: self.output.tail(),
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// [`LabError::Host`] if it is gone already.
    pub fn signal(&self, signal: Signal) -> Result<(), LabError> {
        nix::sys::signal::kill(self.pid(), signal)
            .map_err(|error| LabError::host(&self.host, format!("signal {self}"), error.into()))
    }

    /// Asks it to end with SIGTERM, and kills it if it does not in time.
    ///
    /// # Errors
    /// [`LabError::Timeout`] if it had to be killed.
    pub fn stop(self) -> Result<Exit, LabError> {
        if self.status.is_none() {
            let _ = self.signal(Signal::SIGTERM);
        }
        self.wait_at_most(GRACE)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn kill_group(&self, signal: Signal) {
        // An empty group is what we want.
        let _ = killpg(self.pid(), signal);
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.label, self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.kill_group(Signal::SIGKILL);
            let _ = self.child.wait();
            signals::forget(self.child.id());
            self.output.drain();
        }
    }
}

/// Keeps what comes out of `pipe`, in a thread. Without a thread it is not kept, and the program gets
/// to know that nothing listens.
fn read_lines(pipe: impl Read + Send + 'static, stream: Stream, output: &Arc<Output>) {
    output.lock().open += 1;
    let theirs = Arc::clone(output);
    let read = move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut pipe).take(LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => theirs.push(stream, String::from_utf8_lossy(&line).into_owned()),
            }
        }
        drop(pipe);
        theirs.lock().open -= 1;
        theirs.news.notify_all();
    };
    let thread = thread::Builder::new().name("output".to_owned());
    if let Err(error) = thread.spawn(read) {
        log::warn!("the output of a program is lost: {error}");
        output.lock().open -= 1;
    }
}
