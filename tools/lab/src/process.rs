//! Programs that run in a host and end when their value is dropped.

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

/// Bytes of a stream that are kept: its last ones.
const KEPT_BYTES: usize = 4 << 20;
/// Longer lines are cut after this many bytes.
const LINE_BYTES: u64 = 1 << 20;
/// Interval between two checks of a condition.
const POLL: Duration = Duration::from_millis(3);
/// How long to wait for the rest of an ended program's output. A process that it left in the background may hold the
/// pipe open forever.
const DRAIN: Duration = Duration::from_secs(2);
/// The time in which a program may end by itself after SIGTERM.
const GRACE: Duration = Duration::from_secs(40);

/// A program in a host. Dropping the value kills the program and all that it started.
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
    /// The program's exit status.
    pub status: ExitStatus,
    /// The program's standard output, the last 4 MiB at most.
    pub stdout: String,
    /// The program's standard error, the last 4 MiB at most.
    pub stderr: String,
    label: String,
    host: String,
}

impl Exit {
    /// Returns the standard output of a program that ended with status 0.
    ///
    /// # Errors
    /// [`LabError::Failed`] if the status is not 0.
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

/// The last lines of both streams.
#[derive(Debug, Default)]
struct Output {
    kept: Mutex<Kept>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<(Stream, String)>,
    bytes: usize,
    /// Number of lines that were dropped from the front.
    forgotten: usize,
    /// Number of streams that have not ended.
    open: usize,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // A panic of another thread cannot damage the lines.
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

    /// Waits until both streams have ended, [`DRAIN`] at most.
    fn drain(&self) {
        let kept = self.lock();
        let open = |kept: &mut Kept| kept.open > 0;
        // The caller sees from the text whether the streams ended in time.
        let _ = self.news.wait_timeout_while(kept, DRAIN, open);
    }

    fn text(&self, stream: Stream) -> String {
        let kept = self.lock();
        let lines = kept.lines.iter().filter(|(from, _)| *from == stream);
        lines.map(|(_, line)| line.as_str()).collect()
    }

    /// Returns the last lines of both streams, for error messages.
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

    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The program with its arguments.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The program's standard output so far.
    pub fn stdout(&self) -> String {
        self.output.text(Stream::Stdout)
    }

    /// The program's standard error so far.
    pub fn stderr(&self) -> String {
        self.output.text(Stream::Stderr)
    }

    /// Writes all of the program's standard input and closes it.
    pub(crate) fn write_input(&mut self, input: &str) -> Result<(), LabError> {
        let Some(mut pipe) = self.child.stdin.take() else {
            return Ok(());
        };
        match pipe.write_all(input.as_bytes()) {
            // The program ended without reading everything; its status says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other
                .map_err(|error| LabError::host(&self.host, format!("feed {}", self.label), error)),
        }
    }

    /// Returns the program's status if it has ended.
    ///
    /// # Errors
    /// [`LabError::Host`] if the kernel does not return the status.
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

    /// Waits until the program ends.
    ///
    /// # Errors
    /// [`LabError::Host`] if the kernel does not return the status.
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

    /// Waits until the program ends, and kills it after `deadline`. If it ends by itself, processes that it left in
    /// the background run on until the host is dropped.
    ///
    /// # Errors
    /// [`LabError::Timeout`] if the program was killed.
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

    /// Waits until `condition` is true, checking every few milliseconds.
    ///
    /// # Errors
    /// [`LabError::Timeout`] if it does not become true in time, [`LabError::Failed`] if the program ends first.
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

    /// Waits until the program has written a line, to either stream, for which `wanted` is true, and returns that
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

    /// Waits until both streams together have this many lines for which `wanted` is true. Lines dropped from the front
    /// no longer count.
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

    /// Sends the program a signal.
    ///
    /// # Errors
    /// [`LabError::Host`] if the program is gone already.
    pub fn signal(&self, signal: Signal) -> Result<(), LabError> {
        nix::sys::signal::kill(self.pid(), signal)
            .map_err(|error| LabError::host(&self.host, format!("signal {self}"), error.into()))
    }

    /// Sends SIGTERM, and kills the program if it does not end in time.
    ///
    /// # Errors
    /// [`LabError::Timeout`] if the program had to be killed.
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
        // The group may be empty, which is the goal.
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

/// Starts a thread that keeps the lines from `pipe`. If no thread can be started, the pipe closes, which the program
/// notices.
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
