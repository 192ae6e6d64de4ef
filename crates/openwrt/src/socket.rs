//! A ubus client that blocks until it has the answer.

use crate::blob::Value;
use crate::ubus::{Client, Event, SOCKETS, Status};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connects to ubusd: at `path`, or where it usually listens.
///
/// # Errors
/// The daemon does not listen there.
pub fn connect(path: Option<&Path>) -> io::Result<UnixStream> {
    if let Some(path) = path {
        return UnixStream::connect(path);
    }
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for path in SOCKETS {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(why) => error = why,
        }
    }
    Err(error)
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The daemon is not running, or does not answer in time.
    #[error("ubus: {0}")]
    Io(#[from] io::Error),
    /// The object returned this status.
    #[error("ubus: {0}")]
    Status(Status),
}

/// Calls a method over a new connection, and waits for the result up to the time limit.
///
/// # Errors
/// See [`CallError`].
pub fn call(
    socket: Option<&Path>,
    path: &str,
    method: &str,
    arguments: Vec<(String, Value)>,
    patience: Duration,
) -> Result<Value, CallError> {
    let end = Instant::now() + patience;
    let mut stream = connect(socket)?;
    let mut client = Client::new();
    client.call(path, method, arguments);
    let mut bytes = [0; 4096];
    loop {
        while let Some(event) = client.event() {
            if let Event::Ended { status, data, .. } = event {
                return match status {
                    Status::Ok => Ok(data),
                    status => Err(CallError::Status(status)),
                };
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        stream.set_write_timeout(Some(left))?;
        stream.set_read_timeout(Some(left))?;
        stream.write_all(client.transmit())?;
        client.transmitted(usize::MAX);
        let count = stream.read(&mut bytes)?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let received = client.receive(&bytes[..count]);
        received.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    }
}
