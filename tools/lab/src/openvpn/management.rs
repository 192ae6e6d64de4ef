//! A client of OpenVPN's management interface.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use super::running::PATIENCE;
use crate::LabError;

/// A connection to a program's management socket.
#[derive(Debug)]
pub struct Management {
    stream: BufReader<UnixStream>,
    news: Vec<String>,
}

impl Management {
    /// Name of the socket in a program's directory.
    pub const SOCKET: &'static str = "management.sock";
    /// The directive that makes a program listen on that socket.
    pub const DIRECTIVE: &'static str = "management management.sock unix";

    pub(super) fn connect(path: &Path) -> Result<Self, LabError> {
        let open = || {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        Self::of(open().map_err(LabError::load(format!("call {}", path.display())))?)
    }

    /// Accepts the connection of a program that has `management-client`.
    ///
    /// # Errors
    /// [`LabError::Load`] if the program sends no greeting.
    pub fn accept(listener: &UnixListener) -> Result<Self, LabError> {
        let open = || {
            let (stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        Self::of(open().map_err(LabError::load("wait for a call".to_owned()))?)
    }

    fn of(stream: UnixStream) -> Result<Self, LabError> {
        let mut management = Self {
            stream: BufReader::new(stream),
            news: Vec::new(),
        };
        management.wait_for(">INFO:")?;
        Ok(management)
    }

    /// Sends a command and returns the answer: the lines before `END`, or the single line with SUCCESS.
    ///
    /// # Errors
    /// [`LabError::Load`] with the program's message if it answers ERROR, or if no answer comes.
    pub fn command(&mut self, command: &str) -> Result<Vec<String>, LabError> {
        let failed = |error| LabError::load(format!("management command {command:?}"))(error);
        self.stream
            .get_mut()
            .write_all(format!("{command}\n").as_bytes())
            .map_err(failed)?;
        let mut lines = Vec::new();
        loop {
            let line = self.line().map_err(failed)?;
            if line.starts_with('>') {
                self.news.push(line);
            } else if line == "END" {
                return Ok(lines);
            } else if line.starts_with("SUCCESS:") {
                lines.push(line);
                return Ok(lines);
            } else if line.starts_with("ERROR:") {
                return Err(failed(io::Error::other(line)));
            } else {
                lines.push(line);
            }
        }
    }

    /// Waits for a notification that begins with `start`, and returns the whole line.
    ///
    /// # Errors
    /// [`LabError::Load`] if no such notification comes.
    pub fn wait_for(&mut self, start: &str) -> Result<String, LabError> {
        if let Some(place) = self.news.iter().position(|line| line.starts_with(start)) {
            return Ok(self.news.remove(place));
        }
        loop {
            let line = self
                .line()
                .map_err(LabError::load(format!("wait for {start:?}")))?;
            if line.starts_with(start) {
                return Ok(line);
            }
            self.news.push(line);
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}
