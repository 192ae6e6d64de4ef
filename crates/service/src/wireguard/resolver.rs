//! Looking names up, each on a thread of its own: who asks waits.

use super::effect::LookUp;
use crate::names::{self, Asker};
use config::lines::Lines;
use netio::poll::Waker;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 64;

/// Bytes of a look-up's stack: the C library's resolver needs more than its own buffers.
const STACK: usize = 256 << 10;

/// A look-up that has ended.
pub(crate) type Answer = (LookUp, Result<Vec<SocketAddr>, String>);

/// Looks names up without anything waiting for it.
pub(crate) struct Resolver {
    sender: Sender<Answer>,
    answers: Receiver<Answer>,
    wake: Arc<Waker>,
    /// The host's name servers, as they were when nothing led them into the tunnel.
    servers: Vec<IpAddr>,
    lines: Lines,
}

impl Resolver {
    /// `wake` is rung when an answer is there.
    pub(crate) fn new(wake: Arc<Waker>, lines: &Lines) -> Self {
        let (sender, answers) = mpsc::channel();
        Self {
            sender,
            answers,
            wake,
            servers: Vec::new(),
            lines: lines.clone(),
        }
    }

    /// Begins a look-up. Returns its end, if it cannot begin.
    pub(crate) fn begin(&mut self, lookup: LookUp) -> Option<Answer> {
        // With a mark, what others send goes into the tunnel, and so do the questions of the host's resolver.
        if lookup.mark == 0 || self.servers.is_empty() {
            self.servers = names::of_host();
        }
        let asker = Asker::new(&self.servers, lookup.mark, &self.lines);
        let (sender, wake) = (self.sender.clone(), Arc::clone(&self.wake));
        let asked = lookup.clone();
        let thread = thread::Builder::new()
            .name("resolve".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                host::privileges::confine_this_thread();
                let found = look_up(&asked.host, asked.endpoint.port, &asker);
                // The interface may be gone.
                let _ = sender.send((asked, found.map_err(|e| e.to_string())));
                wake.wake();
            });
        Some((lookup, Err(thread.err()?.to_string())))
    }

    /// The end of a look-up, if one has come.
    pub(crate) fn next(&mut self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

/// The addresses of a name, each once.
fn look_up(host: &str, port: u16, asker: &Asker) -> io::Result<Vec<SocketAddr>> {
    let mut found: Vec<SocketAddr> = Vec::new();
    let all: Vec<SocketAddr> = match host.contains('%') {
        // A zone is a part of the address.
        true => (host, port).to_socket_addrs()?.collect(),
        false => {
            let all = asker.look_up(host)?.into_iter();
            all.map(|ip| SocketAddr::new(ip, port)).collect()
        }
    };
    for addr in all {
        if !found.contains(&addr) && found.len() < ADDRESSES_MAX {
            found.push(addr);
        }
    }
    Ok(found)
}
