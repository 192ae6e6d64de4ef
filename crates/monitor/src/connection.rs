//! One connection: reads a request, sends an answer, each within its time limit, and closes.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::answer::Answer;
use crate::http::{BODY_MAX, Bad, HEAD_MAX, Head};
use crate::places::Place;

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for the whole request, however slowly it comes.
    pub request: Duration,
    /// Time for the whole answer, however slowly it is taken.
    pub answer: Duration,
    /// Maximum number of connections at once.
    pub connections: usize,
    /// Maximum number of connections of one network at once.
    pub of_network: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(5),
            answer: Duration::from_secs(15),
            connections: 24,
            of_network: 8,
        }
    }
}

/// Why no request could be read.
enum Unread {
    Bad(Bad),
    /// The request did not come in time.
    Late,
    /// The client is gone, so no answer can be sent.
    Gone,
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Late,
            _ => Self::Gone,
        }
    }
}

/// Reads the request, has it answered, and sends the answer. `has_session` checks a request with a long body before this
/// body is read.
pub fn serve(
    stream: &TcpStream,
    place: &Place,
    limits: &Limits,
    has_session: impl FnOnce(&Head) -> bool,
    answer: impl FnOnce(&Head, &[u8]) -> Answer,
) {
    let answer = match request(stream, Instant::now() + limits.request, has_session) {
        // The connection gave way to another one while its last bytes came.
        Ok(_) if !place.begin_work() => return,
        Ok((head, body)) => answer(&head, &body),
        Err(Unread::Bad(bad)) => Answer::error(bad.status(), &bad.to_string()),
        Err(Unread::Late) => Answer::error(408, "the request took too long"),
        Err(Unread::Gone) => return,
    };
    if answer.is_of_session() {
        place.trust();
    }
    place.begin_sending();
    if send(stream, &answer, limits.answer) {
        place.end_sending();
        await_close(stream);
    }
}

/// Turns a connection away.
pub fn refuse(stream: &TcpStream) {
    let busy = Answer::error(503, "too many connections at once").with("Retry-After", "2");
    // The answer fits into the socket's buffer.
    let _ = stream.set_nonblocking(true);
    let _ = (&*stream).write_all(&busy.to_bytes());
}

fn request(
    stream: &TcpStream,
    end: Instant,
    has_session: impl FnOnce(&Head) -> bool,
) -> Result<(Head, Vec<u8>), Unread> {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        if let Some(found) = Head::parse(&bytes).map_err(Unread::Bad)? {
            break found;
        }
        read(stream, &mut bytes, HEAD_MAX + BODY_MAX, end)?;
    };
    if head.is_long() && !has_session(&head) {
        return Err(Unread::Bad(Bad::Body));
    }
    let mut body = bytes.split_off(length);
    while body.len() < head.length {
        read(stream, &mut body, head.length, end)?;
    }
    body.truncate(head.length);
    Ok((head, body))
}

/// Reads more bytes, up to `most` in all.
fn read(
    mut stream: &TcpStream,
    bytes: &mut Vec<u8>,
    most: usize,
    end: Instant,
) -> Result<(), Unread> {
    let mut buffer = [0; 2048];
    let room = most.saturating_sub(bytes.len()).min(buffer.len());
    stream.set_read_timeout(Some(left(end).ok_or(Unread::Late)?))?;
    match stream.read(&mut buffer[..room])? {
        0 => Err(Unread::Gone),
        count => {
            bytes.extend_from_slice(&buffer[..count]);
            Ok(())
        }
    }
}

/// The time until `end`; `None` if it has passed.
fn left(end: Instant) -> Option<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

/// Sends the answer; false if the client did not take all of it in time.
fn send(mut stream: &TcpStream, answer: &Answer, within: Duration) -> bool {
    let end = Instant::now() + within;
    let bytes = answer.to_bytes();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let Some(left) = left(end) else { return false };
        let taken = stream
            .set_write_timeout(Some(left))
            .and_then(|()| stream.write(rest));
        match taken {
            Ok(count) if count > 0 => rest = &rest[count..],
            _ => return false,
        }
    }
    true
}

/// Waits a short time for the client to close.
fn await_close(mut stream: &TcpStream) {
    // The kernel would discard the answer if the browser's bytes stayed unread.
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let mut buffer = [0; 2048];
    for _ in 0..8 {
        if !matches!(stream.read(&mut buffer), Ok(count) if count > 0) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{COOKIE, HOME};
    use crate::places::Places;
    use plane::SourceNetwork;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread;

    const QUICK: Limits = Limits {
        request: Duration::from_millis(300),
        answer: Duration::from_millis(300),
        connections: 3,
        of_network: 2,
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn place() -> Place {
        let all = Places::new(QUICK.connections, QUICK.of_network);
        all.admit(SourceNetwork::of([10, 0, 0, 1].into()), None)
            .unwrap()
    }

    fn answer_to(pieces: &[&[u8]]) -> String {
        let (mut client, server) = pair();
        let serving = thread::spawn(move || {
            let has_session = |head: &Head| head.cookie(COOKIE) == Some("valid");
            serve(&server, &place(), &QUICK, has_session, |head, body| {
                let text = format!("{} {}", head.path, String::from_utf8_lossy(body));
                Answer::of("text/plain", text.into_bytes())
            });
        });
        for piece in pieces {
            client.write_all(piece).unwrap();
        }
        let mut text = String::new();
        // The kernel resets the connection where the client had sent more.
        let _ = client.read_to_string(&mut text);
        drop(client);
        serving.join().unwrap();
        text
    }

    #[test]
    fn a_request_may_come_in_pieces() {
        let text = answer_to(&[
            b"POST /x HT",
            b"TP/1.1\r\nContent-Le",
            b"ngth: 4\r\n\r\nbo",
            b"dy",
        ]);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\n/x body"), "{text}");
        assert!(
            text.contains("Cache-Control: no-store\r\n")
                && text.contains("X-Frame-Options: DENY\r\n")
        );
    }

    #[test]
    fn what_is_no_request_gets_a_reason() {
        for (sent, status) in [
            (&b"nonsense\r\n\r\n"[..], "400"),
            (b"DELETE / HTTP/1.1\r\n\r\n", "405"),
            (b"POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n", "413"),
            // Incomplete requests.
            (b"GET / HTTP/1.1\r\n", "408"),
            (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc", "408"),
        ] {
            let text = answer_to(&[sent]);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        }
        let long = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &[b'a'; HEAD_MAX]].concat();
        assert!(answer_to(&[&long]).starts_with("HTTP/1.1 431 "));
    }

    /// The body of a stranger's long request is not read: each would take 64 KiB of memory.
    #[test]
    fn only_a_session_sends_a_long_body() {
        let head = |cookie: &str| {
            format!(
                "POST {HOME} HTTP/1.1\r\nContent-Length: 5000\r\nCookie: {COOKIE}={cookie}\r\n\r\n"
            )
        };
        let text = answer_to(&[head("guessed").as_bytes()]);
        assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
        let text = answer_to(&[head("valid").as_bytes(), &[b'a'; 5000]]);
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    }

    /// Each byte comes soon after the one before, but the whole request takes too long.
    #[test]
    fn a_slow_client_is_not_waited_for() {
        let (client, server) = pair();
        let slow = thread::spawn(move || {
            // Ends when the server has closed.
            while (&client)
                .write_all(b"GET / HTTP/1.1\r\nA: a\r\n".get(..1).unwrap())
                .is_ok()
            {
                thread::sleep(Duration::from_millis(20));
            }
        });
        serve(
            &server,
            &place(),
            &QUICK,
            |_| false,
            |_, _| unreachable!("no request came"),
        );
        drop(server);
        slow.join().unwrap();
    }

    #[test]
    fn a_client_that_takes_nothing_is_not_waited_for() {
        let (mut client, server) = pair();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        serve(
            &server,
            &place(),
            &QUICK,
            |_| false,
            |_, _| Answer::of("text/plain", vec![0; 64 << 20]),
        );
        drop(client);
    }

    #[test]
    fn a_connection_that_gives_way_ends_at_once() {
        const PATIENT: Limits = Limits {
            request: Duration::from_secs(600),
            ..QUICK
        };
        let all = Places::new(1, 1);
        let [attacker, owner] = [1, 2].map(|it| SourceNetwork::of([10, 0, 0, it].into()));
        let (_client, server) = pair();
        let server = Arc::new(server);
        let place = all.admit(attacker, Some(Arc::clone(&server))).unwrap();
        let serving = thread::spawn(move || {
            serve(
                &server,
                &place,
                &PATIENT,
                |_| false,
                |_, _| unreachable!("no request came"),
            );
        });
        let _own = all.admit(owner, None).unwrap();
        serving.join().unwrap();
    }
}
