//! A name server for tests: a few names with addresses that may change.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Host;

/// How often the server checks whether to stop.
const LOOK: Duration = Duration::from_millis(20);

const A: u16 = 1;
const AAAA: u16 = 28;

#[derive(Default)]
struct Shared {
    names: Mutex<HashMap<String, Vec<IpAddr>>>,
    asked: AtomicUsize,
    ended: AtomicBool,
}

/// A name server that answers in a host until it is dropped.
pub struct NameServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Serves on an address of `host`.
    pub fn start(host: &Host, address: IpAddr) -> Self {
        let socket = host
            .run(|| UdpSocket::bind(SocketAddr::new(address, 53)))
            .unwrap()
            .unwrap();
        socket.set_read_timeout(Some(LOOK)).unwrap();
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut query = [0; 512];
            while !served.ended.load(Ordering::Relaxed) {
                if let Ok((count, from)) = socket.recv_from(&mut query) {
                    served.asked.fetch_add(1, Ordering::Relaxed);
                    if let Some(answer) = served.answer(&query[..count]) {
                        let _ = socket.send_to(&answer, from);
                    }
                }
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Sets the addresses of a name; without any the name does not exist.
    pub fn set(&self, name: &str, addresses: &[IpAddr]) {
        let mut names = self.shared.names.lock().unwrap();
        names.insert(name.to_owned(), addresses.to_vec());
    }

    /// Number of queries so far.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes a private host use this server in its resolv.conf.
pub fn ask(host: &Host, server: IpAddr) {
    let text = format!("nameserver {server}\noptions timeout:1 attempts:1\n");
    host.run(|| fs::write("/etc/resolv.conf", text))
        .unwrap()
        .unwrap();
}

/// The response code of an answer (RCODE; RFC 1035, section 4.1.1), and its number of records.
pub type Verdict = (u8, u8);

/// Asks a server once for the IPv4 or IPv6 addresses of a name; `None` if no answer comes.
pub fn query(host: &Host, server: IpAddr, name: &str, v6: bool) -> Option<Verdict> {
    let exchange = || -> io::Result<Verdict> {
        let any: IpAddr = if server.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        socket.connect((server, 53))?;
        socket.send(&question(name, v6))?;
        let mut answer = [0; 512];
        socket.recv(&mut answer)?;
        Ok((answer[3] & 15, answer[7]))
    };
    host.run(exchange).unwrap().ok()
}

/// Builds a query for the addresses of a name.
pub fn question(name: &str, v6: bool) -> Vec<u8> {
    let mut query = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label.bytes());
    }
    query.push(0);
    query.extend(if v6 { AAAA } else { A }.to_be_bytes());
    query.extend([0, 1]);
    query
}

impl Shared {
    /// Builds an answer by RFC 1035, section 4: header, question, and the addresses of the requested family.
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let (mut at, mut labels) = (12, Vec::new());
        while *query.get(at)? != 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8_lossy(query.get(at + 1..end)?).into_owned());
            at = end;
        }
        let question = query.get(12..at + 5)?;
        let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
        let names = self.names.lock().unwrap();
        let name = labels.join(".").to_ascii_lowercase();
        // A name that begins with `*.` covers all names below it.
        let below = name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let found = names.get(&name).or_else(|| names.get(&below?));
        let fits = |ip: &&IpAddr| kind == if ip.is_ipv4() { A } else { AAAA };
        let addresses: Vec<&IpAddr> = found.into_iter().flatten().filter(fits).collect();
        let exists = found.is_some_and(|all| !all.is_empty());

        let mut answer = query[..2].to_vec();
        answer.extend([0x81, if exists { 0x80 } else { 0x83 }, 0, 1, 0]);
        answer.push(u8::try_from(addresses.len()).ok()?);
        answer.extend([0; 4]);
        answer.extend(question);
        for ip in addresses {
            answer.extend([0xc0, 12]);
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1, 0, 0, 0, 0]);
            let bytes = match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            answer.extend([0, u8::try_from(bytes.len()).ok()?]);
            answer.extend(bytes);
        }
        Some(answer)
    }
}
