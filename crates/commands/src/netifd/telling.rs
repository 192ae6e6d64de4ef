//! The thread that talks to netifd: its state machine decides, and this does the I/O.

use netio::poll::{Poller, Waker};
use openwrt::socket;
use openwrt::teller::{Effect, Event, Fault, Teller};
use openwrt::ubus::{self, Client};
use openwrt::update::{METHOD, OBJECT, Update};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WAKE: u64 = 0;
const DAEMON: u64 = 1;

/// How long the last messages may take.
const LAST: Duration = Duration::from_secs(1);

enum Order {
    Tell(Event),
    /// Reports through the channel when netifd has all messages.
    Flush(Sender<()>),
}

/// Sends orders to the thread; any thread may have a copy.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    sender: Sender<Order>,
    wake: Arc<Waker>,
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Order")
    }
}

impl Orders {
    fn put(&self, order: Order) {
        // This thread outlives all senders.
        let _ = self.sender.send(order);
        self.wake.wake();
    }

    /// Reports that the tunnel is up, with these settings.
    pub(super) fn up(&self, update: Update) {
        self.put(Order::Tell(Event::Up(update)));
    }

    /// Reports that the tunnel is down.
    pub(super) fn lost(&self) {
        self.put(Order::Tell(Event::Lost));
    }

    /// Reports a fault.
    pub(super) fn fault(&self, code: &'static str, words: &str) {
        let words = words.to_owned();
        let fault = Event::Fault(Fault { code, words });
        self.put(Order::Tell(fault));
    }
}

/// A running thread that talks to netifd.
pub(super) struct Telling {
    orders: Orders,
    thread: JoinHandle<()>,
}

impl Telling {
    /// Starts the thread. It sends nothing once `ending` is true. Then netifd expects no more, or a newer process
    /// already reports while this one still says goodbye to its clients.
    pub(super) fn start(
        interface: &str,
        ubus: Option<&Path>,
        ending: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let wake = Arc::new(Waker::new()?);
        let poller = Poller::new()?;
        poller.add(&*wake, WAKE)?;
        let talk = Talk {
            interface: interface.to_owned(),
            ubus: ubus.map(Path::to_owned),
            teller: Teller::new(interface, Instant::now()),
            poller,
            daemon: None,
            events: VecDeque::from([Event::Start]),
            ending,
            flushed: Vec::new(),
        };
        let woken = Arc::clone(&wake);
        let thread = std::thread::Builder::new()
            .name("ubus".to_owned())
            .spawn(move || talk.serve(&receiver, &woken))?;
        let orders = Orders { sender, wake };
        Ok(Self { orders, thread })
    }

    /// A sender for other threads.
    pub(super) fn teller(&self) -> Orders {
        self.orders.clone()
    }

    /// Reports a fault.
    pub(super) fn fault(&self, code: &'static str, words: &str) {
        self.orders.fault(code, words);
    }

    /// Tells netifd not to restart the interface by itself.
    pub(super) fn block(&self) {
        self.orders.put(Order::Tell(Event::Block));
    }

    /// Waits up to [`LAST`] until netifd has all messages.
    pub(super) fn flush(&self) {
        let (sender, receiver) = mpsc::channel();
        self.orders.put(Order::Flush(sender));
        let _ = receiver.recv_timeout(LAST);
    }

    /// Ends the thread.
    pub(super) fn end(self) {
        self.orders.put(Order::Tell(Event::End));
        let _ = self.thread.join();
    }
}

/// The thread's own state.
struct Talk {
    interface: String,
    ubus: Option<PathBuf>,
    teller: Teller,
    poller: Poller,
    daemon: Option<(UnixStream, Client)>,
    events: VecDeque<Event>,
    ending: Arc<AtomicBool>,
    flushed: Vec<Sender<()>>,
}

impl Talk {
    fn serve(mut self, orders: &Receiver<Order>, wake: &Waker) {
        let mut over = false;
        loop {
            wake.clear();
            if self.ending.load(Ordering::Relaxed) {
                self.events.push_front(Event::End);
            }
            for order in orders.try_iter() {
                match order {
                    Order::Tell(event) => {
                        over |= event == Event::End;
                        self.events.push_back(event);
                    }
                    Order::Flush(sender) => self.flushed.push(sender),
                }
            }
            self.talk();
            if over {
                return;
            }
            let timeout = self.teller.deadline();
            let timeout = timeout.map(|at| at.saturating_duration_since(Instant::now()));
            match self.poller.wait(timeout) {
                Ok(ready) => {
                    if ready.iter().any(|token| token == DAEMON) {
                        self.read();
                    }
                }
                Err(error) => log::warn!("{error}"),
            }
            if self
                .teller
                .deadline()
                .is_some_and(|at| at <= Instant::now())
            {
                self.events.push_back(Event::Deadline);
            }
        }
    }

    /// Passes new events to the state machine, and does what it asks.
    fn talk(&mut self) {
        let mut effects = Vec::new();
        while let Some(event) = self.events.pop_front() {
            self.teller.handle(event, Instant::now(), &mut effects);
            for effect in effects.drain(..) {
                self.perform(effect);
            }
            self.write();
        }
        if self.teller.is_done() {
            for waiting in self.flushed.drain(..) {
                let _ = waiting.send(());
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Connect => match self.connect() {
                Ok(stream) => self.daemon = Some((stream, Client::new())),
                Err(error) => {
                    log::debug!("ubus: {error}");
                    self.events.push_back(Event::Disconnected);
                }
            },
            Effect::Disconnect => self.disconnect(),
            Effect::Call(arguments) => {
                log::debug!("{}: sent to netifd: {arguments:?}", self.interface);
                if let Some((_, client)) = &mut self.daemon {
                    client.call(OBJECT, METHOD, arguments);
                }
            }
            Effect::Log(level, words) => log::log!(level, "{}: {words}", self.interface),
        }
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let stream = socket::connect(self.ubus.as_deref())?;
        stream.set_nonblocking(true)?;
        self.poller.add(&stream, DAEMON)?;
        Ok(stream)
    }

    fn disconnect(&mut self) {
        if let Some((stream, _)) = self.daemon.take() {
            let _ = self.poller.remove(&stream);
        }
    }

    /// Drops a broken connection.
    fn broken(&mut self) {
        self.disconnect();
        self.events.push_back(Event::Disconnected);
    }

    fn read(&mut self) {
        let Some((stream, client)) = &mut self.daemon else {
            return;
        };
        let mut bytes = [0; 4096];
        let whole = loop {
            match stream.read(&mut bytes) {
                Ok(0) => break false,
                Ok(count) => {
                    if let Err(error) = client.receive(&bytes[..count]) {
                        log::warn!("{error}");
                        break false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        while let Some(event) = client.event() {
            self.events.push_back(match event {
                ubus::Event::Greeted => Event::Connected,
                ubus::Event::Ended { status, .. } => Event::Answered(status),
            });
        }
        if !whole {
            return self.broken();
        }
        self.write();
    }

    /// Sends the client's buffer. The daemon takes about ten thousand bytes at a time, and messages are shorter.
    fn write(&mut self) {
        let Some((stream, client)) = &mut self.daemon else {
            return;
        };
        while !client.transmit().is_empty() {
            match stream.write(client.transmit()) {
                Ok(count) => client.transmitted(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let _ = self.poller.modify(&*stream, DAEMON, true);
                    return;
                }
                Err(_) => return self.broken(),
            }
        }
        let _ = self.poller.modify(&*stream, DAEMON, false);
    }
}
