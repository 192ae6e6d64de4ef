//! The process without privileges: listens, samples the host regularly, and serves the page.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::connection::{Limits, refuse, serve};
use crate::day::Day;
use crate::figures::Figures;
use crate::http::Head;
use crate::link::Link;
use crate::overview::Overview;
use crate::places::Places;
use crate::question::{Begin, Question};
use crate::sample::Sample;
use crate::site::{Settings, Site};
use plane::SourceNetwork;

/// Bytes of each thread's stack; data that can grow is on the heap.
const STACK: usize = 256 << 10;

/// The pause after accepting a connection has failed, as without free descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// How often the sampling thread checks whether a sample is due.
const SLICE: Duration = Duration::from_millis(250);

/// Serves the listeners' connections until the process at the other end of `link` is gone.
///
/// # Errors
/// A thread cannot be started, or the other process was gone at once.
pub fn run(listeners: Vec<TcpListener>, settings: Settings, link: UnixStream) -> io::Result<()> {
    let link = Link::new(link)?;
    let begin: Begin = link.ask(&Question::Begin)?;
    let overview = Overview::new(Instant::now(), Day::from_text(&begin.day));
    let site = Arc::new(Site::new(settings, overview, link, begin.password));
    look(&site)?;
    let limits = Limits::default();
    let places = Places::new(limits.connections, limits.of_network);
    for listener in listeners {
        let (site, places) = (Arc::clone(&site), places.clone());
        thread("listen", move || accept(&listener, &site, &places, limits))?;
    }
    loop {
        let begin = Instant::now();
        // A page that opens meanwhile shortens the pause.
        loop {
            let pause = site
                .overview
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pause(Instant::now());
            let left = pause.saturating_sub(begin.elapsed());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(SLICE));
        }
        if look(&site).is_err() {
            return Ok(());
        }
    }
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder.stack_size(STACK).spawn(work).map(drop)
}

/// Samples the host once.
fn look(site: &Site) -> io::Result<()> {
    let sample: Sample = site.ask(&Question::Sample)?;
    let figures = Figures::read(Path::new("/"));
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    let unix = unix.map_or(0, |it| it.as_secs());
    let day = {
        let mut overview = site.overview.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = overview.observe(sample, figures, Instant::now(), unix);
        ended.then(|| overview.day.to_text())
    };
    match day {
        Some(day) => site.ask(&Question::Keep(day)),
        None => Ok(()),
    }
}

fn accept(listener: &TcpListener, site: &Arc<Site>, places: &Places, limits: Limits) {
    loop {
        match listener.accept() {
            Ok((stream, address)) => admit(stream, address, site, places, limits),
            Err(_) => thread::sleep(BREATH),
        }
    }
}

fn admit(
    stream: TcpStream,
    address: SocketAddr,
    site: &Arc<Site>,
    places: &Places,
    limits: Limits,
) {
    let stream = Arc::new(stream);
    let from = address.ip();
    let Some(place) = places.admit(SourceNetwork::of(from), Some(Arc::clone(&stream))) else {
        return refuse(&stream);
    };
    let site = Arc::clone(site);
    let served = thread("connection", move || {
        let has_session = |head: &Head| site.has_session(head);
        serve(&stream, &place, &limits, has_session, |head, body| {
            site.answer(head, body, from)
        });
    });
    if let Err(error) = served {
        log::warn!("cannot serve a connection: {error}");
    }
}
