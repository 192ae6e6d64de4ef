//! Files over HTTP/1.1, like a small web server and `ab -k`: blocking sockets, one thread each.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Times;
use crate::random::Random;
use crate::{Host, LabError};

/// Length of the pattern that files repeat. As a prime it divides no packet, page or buffer size, so missing, doubled
/// or swapped bytes show.
const PATTERN_SIZE: usize = 65_521;
/// Maximum number of connections that the server holds at the same time.
const CONNECTIONS_MAX: usize = 256;
/// Longest line that client or server reads.
const LINE_MAX: u64 = 8 * 1024;
/// How long client or server waits for data before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server of generated files: it answers `GET /N` with N bytes.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// The connections' streams, to close when the server stops.
    streams: Mutex<Vec<TcpStream>>,
    requests: AtomicU64,
}

impl HttpServer {
    /// Starts a server in `host`.
    ///
    /// # Errors
    /// [`LabError::Load`] if the port is taken.
    pub fn start(host: &Host, address: SocketAddr) -> Result<Self, LabError> {
        let listener = host
            .run(|| TcpListener::bind(address))?
            .map_err(LabError::load(format!("serve HTTP at {address}")))?;
        let address = listener
            .local_addr()
            .map_err(LabError::load("find the server's own address"))?;
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        let acceptor = host.spawn("http", move || accept(&listener, &served))?;
        Ok(Self {
            address,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of file requests so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let streams = self.shared.streams.lock();
        for stream in streams.unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// Accepts connections until the server must stop. New threads inherit the host of this thread.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) -> io::Result<()> {
    // A blocking accept could not be woken, so this loop polls.
    listener.set_nonblocking(true)?;
    let pattern = Arc::new(pattern());
    let mut workers: Vec<JoinHandle<()>> = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        workers.retain(|worker| !worker.is_finished());
        let stream = match listener.accept() {
            Ok((stream, _)) if workers.len() < CONNECTIONS_MAX => stream,
            // Too many connections: dropping this one closes it.
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(2));
                continue;
            }
            Err(error) => return Err(error),
        };
        stream.set_nonblocking(false)?;
        {
            let mut streams = shared
                .streams
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            streams.retain(|stream| stream.peer_addr().is_ok());
            streams.push(stream.try_clone()?);
        }
        let (shared, pattern) = (Arc::clone(shared), Arc::clone(&pattern));
        let worker = thread::Builder::new().name("http".to_owned());
        workers.push(worker.spawn(move || {
            // A client that disconnects is not an error of the server.
            let _ = serve(&stream, &shared, &pattern);
            let _ = stream.shutdown(Shutdown::Both);
        })?);
    }
    for worker in workers {
        let _ = worker.join();
    }
    Ok(())
}

/// Answers requests on one connection until it ends.
fn serve(stream: &TcpStream, shared: &Shared, pattern: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let head = read_head(&mut reader)?;
        let Some(request) = head.first() else {
            return Ok(());
        };
        let size = request
            .strip_prefix("GET /")
            .and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        let keep = !head
            .iter()
            .any(|line| is_header(line, "connection", "close"));
        let Some(size) = size else {
            let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return writer.write_all(answer.as_bytes());
        };
        let ending = if keep { "keep-alive" } else { "close" };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
             Content-Length: {size}\r\nConnection: {ending}\r\n\r\n"
        );
        // Count before answering: a client that has its file must find the request counted.
        shared.requests.fetch_add(1, Ordering::Relaxed);
        // Small files share a packet with their header.
        let mut first = answer.into_bytes();
        let with_head = usize::try_from(size)
            .unwrap_or(usize::MAX)
            .min(PATTERN_SIZE);
        first.extend_from_slice(&pattern[..with_head]);
        writer.write_all(&first)?;
        let mut left = size - with_head as u64;
        while left > 0 {
            let part = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(PATTERN_SIZE);
            writer.write_all(&pattern[..part])?;
            left -= part as u64;
        }
        if !keep {
            return Ok(());
        }
    }
}

/// Reads lines up to the first empty one; returns none at the end of the connection.
fn read_head(reader: &mut impl BufRead) -> io::Result<Vec<String>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.take(LINE_MAX).read_line(&mut line)? == 0 {
            return if head.is_empty() {
                Ok(head)
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(head);
        }
        if head.len() == 100 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "endless head"));
        }
        head.push(line.to_owned());
    }
}

fn is_header(line: &str, name: &str, value: &str) -> bool {
    line.split_once(':').is_some_and(|(key, found)| {
        key.trim().eq_ignore_ascii_case(name) && found.trim().eq_ignore_ascii_case(value)
    })
}

fn pattern() -> Vec<u8> {
    let mut random = Random::new(1);
    (0..PATTERN_SIZE).map(|_| random.next() as u8).collect()
}

/// Many requests for the same file on a few connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLoad {
    /// Where the server listens.
    pub server: SocketAddr,
    /// Bytes of the file.
    pub size: u64,
    /// Requests in all.
    pub requests: u64,
    /// Connections at the same time.
    pub connections: u16,
    /// Whether to reuse connections (`ab -k`).
    pub keep_alive: bool,
    /// Whether to compare every byte with the expected content. Costs some processor time.
    pub verify: bool,
    /// How long a request may receive nothing before it fails.
    pub patience: Duration,
}

impl HttpLoad {
    /// A load like `ab -k -c 8 -n requests` for a file of `size` bytes.
    pub fn new(server: (IpAddr, u16), size: u64, requests: u64) -> Self {
        Self {
            server: server.into(),
            size,
            requests,
            connections: 8,
            keep_alive: true,
            verify: true,
            patience: PATIENCE,
        }
    }
}

/// A running load, as another thread sees it.
#[derive(Debug, Default)]
pub struct HttpWatch {
    stop: AtomicBool,
    abandoned: AtomicBool,
    /// The connections' streams, to close when the load is abandoned.
    streams: Mutex<Vec<TcpStream>>,
    bytes: AtomicU64,
    requests: AtomicU64,
}

impl HttpWatch {
    /// Ends every connection after its current request.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends every connection now; a connection attempt ends by its patience. Unfinished requests do not count as
    /// errors.
    pub fn abandon(&self) {
        self.stop();
        let mut streams = self.streams();
        self.abandoned.store(true, Ordering::Relaxed);
        for stream in streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn streams(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection, to close it when the load is abandoned.
    fn add(&self, stream: &TcpStream) -> io::Result<()> {
        let mut streams = self.streams();
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        streams.push(stream.try_clone()?);
        Ok(())
    }

    /// Forgets a connection, which closes with its last descriptor.
    fn close(&self, connection: &mut Option<BufReader<TcpStream>>) {
        if let Some(reader) = connection.take() {
            let own = reader.get_ref().local_addr().ok();
            let is_other = |stream: &TcpStream| stream.local_addr().ok() != own;
            self.streams().retain(is_other);
        }
    }

    /// Bytes of content received so far, those of unfinished files too.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Correctly answered requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// The results of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpReport {
    /// Correctly answered requests.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The first failure.
    pub first_error: Option<String>,
    /// Bytes of content received.
    pub bytes: u64,
    /// Time from the start to the last answer.
    pub elapsed: Duration,
    /// Time of each request.
    pub times: Times,
}

impl HttpReport {
    /// Bits of content per second.
    pub fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Requests per second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl HttpLoad {
    /// Runs the load from `host`.
    ///
    /// # Errors
    /// [`LabError::Host`] if the threads cannot be started. Failed requests are in the report.
    pub fn run(&self, host: &Host) -> Result<HttpReport, LabError> {
        self.run_watched(host, &HttpWatch::default())
    }

    /// Runs as [`HttpLoad::run`] does, while another thread watches and may stop the load.
    ///
    /// # Errors
    /// The errors of [`HttpLoad::run`].
    pub fn run_watched(&self, host: &Host, watch: &HttpWatch) -> Result<HttpReport, LabError> {
        let left = AtomicU64::new(self.requests);
        let pattern = pattern();
        let start = Instant::now();
        let done = host.run(|| {
            thread::scope(|scope| {
                let clients: Vec<_> = (0..self.connections.max(1))
                    .map(|_| scope.spawn(|| self.client(&left, &pattern, watch)))
                    .collect();
                clients
                    .into_iter()
                    .map(|client| client.join().unwrap_or_default())
                    .collect::<Vec<Tally>>()
            })
        })?;
        let elapsed = start.elapsed();
        let mut report = HttpReport {
            requests: 0,
            errors: 0,
            first_error: None,
            bytes: 0,
            elapsed,
            times: Times::default(),
        };
        let mut times = Vec::new();
        for tally in done {
            report.requests += tally.times.len() as u64;
            report.bytes += tally.times.len() as u64 * self.size;
            report.errors += tally.errors;
            report.first_error = report.first_error.or(tally.first_error);
            times.extend(tally.times);
        }
        report.times = Times::new(times);
        Ok(report)
    }

    /// Runs one connection: takes requests until none are left.
    fn client(&self, left: &AtomicU64, pattern: &[u8], watch: &HttpWatch) -> Tally {
        let mut tally = Tally::default();
        let mut connection = None;
        let mut buffer = vec![0; PATTERN_SIZE];
        while !watch.stop.load(Ordering::Relaxed)
            && left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_ok()
        {
            let start = Instant::now();
            match self.request(&mut connection, pattern, &mut buffer, watch) {
                Ok(()) => {
                    watch.requests.fetch_add(1, Ordering::Relaxed);
                    tally.times.push(start.elapsed());
                }
                Err(_) if watch.abandoned.load(Ordering::Relaxed) => {}
                Err(error) => {
                    tally.errors += 1;
                    tally.first_error.get_or_insert_with(|| error.to_string());
                    watch.close(&mut connection);
                }
            }
            if !self.keep_alive {
                watch.close(&mut connection);
            }
        }
        watch.close(&mut connection);
        tally
    }

    fn request(
        &self,
        connection: &mut Option<BufReader<TcpStream>>,
        pattern: &[u8],
        buffer: &mut [u8],
        watch: &HttpWatch,
    ) -> io::Result<()> {
        let reader = match connection {
            Some(reader) => reader,
            None => connection.insert(self.connect(watch)?),
        };
        let keep = if self.keep_alive {
            "keep-alive"
        } else {
            "close"
        };
        let request = format!(
            "GET /{} HTTP/1.1\r\nHost: {}\r\nConnection: {keep}\r\n\r\n",
            self.size, self.server
        );
        reader.get_mut().write_all(request.as_bytes())?;
        let head = read_head(reader)?;
        let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if !head
            .first()
            .is_some_and(|line| line.starts_with("HTTP/1.1 200"))
        {
            return Err(broken("the answer is not 200 OK"));
        }
        let length = self.size.to_string();
        if !head
            .iter()
            .any(|line| is_header(line, "content-length", &length))
        {
            return Err(broken("the answer has another length"));
        }
        let mut left = self.size;
        while left > 0 {
            let part = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(PATTERN_SIZE);
            reader.read_exact(&mut buffer[..part])?;
            if self.verify && buffer[..part] != pattern[..part] {
                return Err(broken("the content is not what was sent"));
            }
            watch.bytes.fetch_add(part as u64, Ordering::Relaxed);
            left -= part as u64;
        }
        Ok(())
    }

    fn connect(&self, watch: &HttpWatch) -> io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.server, self.patience)?;
        watch.add(&stream)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.patience))?;
        Ok(BufReader::with_capacity(64 * 1024, stream))
    }
}

#[derive(Debug, Default)]
struct Tally {
    times: Vec<Duration>,
    errors: u64,
    first_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_bounded_and_read_to_the_empty_line() {
        let head =
            read_head(&mut &b"GET /5 HTTP/1.1\r\nConnection: Close\r\n\r\nrest"[..]).unwrap();
        assert_eq!(head[0], "GET /5 HTTP/1.1");
        assert!(is_header(&head[1], "connection", "close"));
        assert!(read_head(&mut &b""[..]).unwrap().is_empty());
        assert!(read_head(&mut &b"GET"[..]).is_err());
        assert!(read_head(&mut "a\n".repeat(200).as_bytes()).is_err());
    }
}
