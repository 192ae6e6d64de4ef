//! The requests of one connection, with bounded memory.

use std::io::{self, Read};

use zeroize::Zeroizing;

use super::{EINVAL, EIO, EPROTO, LINE_MAX, Request, SetParser, UapiError};

/// The requests of one connection.
///
/// The buffer is of fixed size and overwritten when dropped: private keys pass through it.
#[derive(Debug)]
pub struct Requests<R> {
    source: R,
    buffer: Zeroizing<Vec<u8>>,
    start: usize,
    end: usize,
}

/// A line as [`Requests::line`] finds it.
enum Line<'a> {
    Text(&'a str),
    NotText,
    TooLong,
    End,
}

impl<R: Read> Requests<R> {
    /// Reads from `source`, which needs no buffer of its own but should have a read timeout.
    pub fn new(source: R) -> Self {
        Self {
            source,
            buffer: Zeroizing::new(vec![0; 4 * LINE_MAX]),
            start: 0,
            end: 0,
        }
    }

    /// Returns the next request, `None` at the end of the connection.
    ///
    /// After a faulty request, its lines have been read to the end. So the answer reaches a client that is still
    /// writing, and the next request can follow.
    ///
    /// # Errors
    /// The outer error is the connection's and ends it. The inner error is the client's fault, to be answered with
    /// [`write_errno`](super::write_errno). After an [`UapiError::errno`] of `EPROTO` at line 1, close the
    /// connection: the start of the next request is unknown.
    pub fn next_request(&mut self) -> io::Result<Option<Result<Request, UapiError>>> {
        let operation = match self.line()? {
            Line::End => return Ok(None),
            Line::Text("get=1") => Some(false),
            Line::Text("set=1") => Some(true),
            _ => None,
        };
        let Some(set) = operation else {
            return Ok(Some(Err(UapiError {
                errno: EPROTO,
                line: 1,
                message: "a request begins with get=1 or set=1".to_owned(),
            })));
        };
        let mut parser = SetParser {
            line: 1,
            ..SetParser::default()
        };
        let mut fault = None;
        loop {
            let outcome = match self.line()? {
                Line::Text("") => break,
                // `wg` always writes the empty line; without it the request may be incomplete.
                Line::End => {
                    let why = "the connection ended within the request".to_owned();
                    fault.get_or_insert_with(|| parser.error(EIO, why));
                    break;
                }
                _ if fault.is_some() => continue,
                Line::Text(_) if !set => {
                    parser.line += 1;
                    Err(parser.error(EINVAL, "nothing may follow get=1".to_owned()))
                }
                Line::Text(line) => parser.line(line),
                Line::TooLong => {
                    parser.line += 1;
                    Err(parser.error(EINVAL, format!("longer than {LINE_MAX} bytes")))
                }
                Line::NotText => {
                    parser.line += 1;
                    Err(parser.error(EINVAL, "not UTF-8".to_owned()))
                }
            };
            fault = outcome.err();
        }
        Ok(Some(match fault {
            Some(fault) => Err(fault),
            None if set => Ok(Request::Set(parser.finish())),
            None => Ok(Request::Get),
        }))
    }

    /// Returns the next line without its line feed. Skips a line longer than [`LINE_MAX`].
    fn line(&mut self) -> io::Result<Line<'_>> {
        let mut too_long = false;
        loop {
            let held = &self.buffer[self.start..self.end];
            if let Some(length) = held.iter().position(|&byte| byte == b'\n') {
                let line = self.start..self.start + length;
                self.start += length + 1;
                if too_long || line.len() > LINE_MAX {
                    return Ok(Line::TooLong);
                }
                return Ok(match std::str::from_utf8(&self.buffer[line]) {
                    Ok(text) => Line::Text(text),
                    Err(_) => Line::NotText,
                });
            }
            if held.len() > LINE_MAX {
                too_long = true;
                self.start = self.end;
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            // The buffer has room: it holds at most LINE_MAX bytes, a quarter of its size.
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(Line::End),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
