//! The thread that talks to netifd: its state machine decides, and this does the I/O. The thread also watches the
//! tunnel's device, and asks netifd to set it up anew when another program has disturbed it, or when netifd lists faults
//! that are mended and no packets arrive.

use super::code;
use super::device::{Device, Seen};
use host::privileges;
use netio::poll::{Poller, Waker};
use openwrt::device_name;
use openwrt::socket;
use openwrt::teller::{Effect, Event, Fault, Teller};
use openwrt::ubus::{self, Client};
use openwrt::update::{METHOD, OBJECT, STATUS, Update, object_of};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WAKE: u64 = 0;
const DAEMON: u64 = 1;
const NEWS: u64 = 2;

/// How long the last messages may take.
const LAST: Duration = Duration::from_secs(1);

/// How long the device may need to be set up as netifd wants it, before a new program takes over.
const SETTLE: Duration = Duration::from_secs(3);

/// How long a new program may take to bring the tunnel up. Then the settings of the program before it are given up: its
/// routes may be in the way of the connection.
const COMES_UP: Duration = Duration::from_secs(30);

/// The least time between the repair of a fault and a link that goes down for it. The repair may begin a restart of the
/// tunnel, which clears netifd's list as well.
const SOON: Duration = Duration::from_secs(3);

/// The least time between two times that the link goes down because netifd lists mended faults.
const CLEARED: Duration = Duration::from_secs(60);

/// The parts of the program that find faults. Each reports all its faults at once.
pub(super) mod source {
    /// The configuration in use, or the one that the tunnel waits for.
    pub(in crate::netifd) const CONFIG: &str = "config";
    /// A changed configuration that is not used.
    pub(in crate::netifd) const REFUSED: &str = "refused";
    /// The uplinks that are left out.
    pub(in crate::netifd) const UPLINKS: &str = "uplinks";
    /// The guard.
    pub(in crate::netifd) const GUARD: &str = "guard";
    /// The answers of the other ends.
    pub(in crate::netifd) const ANSWERS: &str = "answers";
    /// The tunnel's device, from which another program takes settings.
    pub(in crate::netifd) const DEVICE: &str = "device";
    /// The last end of the tunnel.
    pub(in crate::netifd) const END: &str = "end";
}

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

    /// Reports all present faults of one [`source`], in place of those before; without faults, that they are mended.
    pub(super) fn faults(&self, source: &'static str, list: Vec<Fault>) {
        self.put(Order::Tell(Event::Faults(source, list)));
    }
}

/// A running thread that talks to netifd.
pub(super) struct Telling {
    orders: Orders,
    /// Whether netifd lists faults that are mended.
    stale: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Telling {
    /// Starts the thread. It sends nothing once `ending` is true. Then netifd expects no more, or a newer process
    /// already reports while this one still says goodbye to its clients. With `inherits`, netifd may list faults that
    /// the program before this one has found: they count as mended only if this one has not found them within
    /// [`CLEARED`].
    pub(super) fn start(
        interface: &str,
        ubus: Option<&Path>,
        ending: Arc<AtomicBool>,
        inherits: bool,
    ) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let wake = Arc::new(Waker::new()?);
        let poller = Poller::new()?;
        poller.add(&*wake, WAKE)?;
        let stale = Arc::new(AtomicBool::new(false));
        let talk = Talk {
            device: Device::new(device_name(interface), &poller, NEWS, inherits)?,
            stale: Arc::clone(&stale),
            clear_at: inherits.then(|| Instant::now() + CLEARED),
            give_up_at: inherits.then(|| Instant::now() + COMES_UP),
            given_up: None,
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
        let ready = Arc::new(Barrier::new(2));
        let began = Arc::clone(&ready);
        let serve = move || {
            // For the shield. The thread reads only root's daemon and the kernel.
            privileges::keep_network_in_this_thread();
            began.wait();
            talk.serve(&receiver, &woken);
        };
        let thread = std::thread::Builder::new().name("ubus".to_owned());
        let thread = thread.spawn(serve)?;
        ready.wait();
        let orders = Orders { sender, wake };
        Ok(Self {
            orders,
            stale,
            thread,
        })
    }

    /// A sender for other threads.
    pub(super) fn teller(&self) -> Orders {
        self.orders.clone()
    }

    /// Reports all present faults of one [`source`].
    pub(super) fn faults(&self, source: &'static str, list: Vec<Fault>) {
        self.orders.faults(source, list);
    }

    /// Whether netifd lists faults that are mended, once it has all messages. Before the interface is up, only another
    /// process begins with an empty list.
    pub(super) fn is_stale(&self) -> bool {
        self.flush();
        self.stale.load(Ordering::Relaxed)
    }

    /// Tells netifd not to restart the interface by itself.
    pub(super) fn block(&self) {
        self.orders.put(Order::Tell(Event::Block));
    }

    /// Waits up to [`LAST`] until netifd has all messages.
    pub(super) fn flush(&self) {
        self.flush_within(LAST);
    }

    /// Waits up to [`SETTLE`] until the device has all that netifd has set, so that it needs no shield.
    pub(super) fn settle(&self) {
        self.flush_within(SETTLE);
    }

    fn flush_within(&self, patience: Duration) {
        let (sender, receiver) = mpsc::channel();
        self.orders.put(Order::Flush(sender));
        let _ = receiver.recv_timeout(patience);
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
    device: Device,
    stale: Arc<AtomicBool>,
    /// When to see whether the link may go down so that netifd clears its list.
    clear_at: Option<Instant>,
    /// When the settings of an inherited device are given up, unless the tunnel is up before.
    give_up_at: Option<Instant>,
    /// The settings of the device that were reported as given up.
    given_up: Option<String>,
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
            let due = [
                self.teller.deadline(),
                self.device.look_at(),
                self.clear_at,
                self.give_up_at,
            ];
            let timeout = due.into_iter().flatten().min();
            let timeout = timeout.map(|at| at.saturating_duration_since(Instant::now()));
            match self.poller.wait(timeout) {
                Ok(ready) => {
                    for token in ready.iter() {
                        match token {
                            DAEMON => self.read(),
                            NEWS => self.device.hear(Instant::now()),
                            _ => {}
                        }
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
            self.look();
        }
    }

    /// Has netifd take the link down and up, if that helps.
    fn look(&mut self) {
        let now = Instant::now();
        if self.give_up_at.take_if(|at| *at <= now).is_some() {
            self.give_up();
        }
        match self.device.look(self.teller.is_busy(), now) {
            Seen::Calm => {}
            Seen::Disturbed => self.events.push_back(Event::Anew),
            Seen::GivenUp => {
                if let Some(words) = self.device.given_up() {
                    log::error!("{}: {words}", self.interface);
                }
            }
        }
        self.tell_of_device();
        if self.clear_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let clears = self.teller.is_stale() && self.teller.set().is_some();
        self.clear_at = match self.device.is_idle(now) {
            _ if !clears => None,
            // Entries in a list are not worth packets outside the tunnel.
            Ok(()) if !self.device.shield() => {
                self.device.unshield();
                Some(now + CLEARED)
            }
            Ok(()) => {
                log::info!(
                    "{}: netifd takes the link down to clear mended faults",
                    self.interface
                );
                self.events.push_back(Event::Anew);
                Some(now + CLEARED)
            }
            Err(again) => Some(again),
        };
    }

    /// Has netifd remove what the program before this one has left, and removes its routes past the tunnel.
    fn give_up(&mut self) {
        log::warn!(
            "{}: no connection for {} s since the upgrade; netifd removes the tunnel's routes until there is one",
            self.interface,
            COMES_UP.as_secs()
        );
        netio::tun::settle_inherited();
        if let Err(error) = host::recover(&device_name(&self.interface)) {
            log::warn!("{}: {error}", self.interface);
        }
        self.events.push_back(Event::GiveUp);
    }

    /// Reports settings of the device that were given up.
    fn tell_of_device(&mut self) {
        let given_up = self.device.given_up();
        if self.given_up != given_up {
            let fault = |words: &String| Fault {
                code: code::DISTURBED.to_owned(),
                words: words.clone(),
            };
            let list = given_up.iter().map(fault).collect();
            self.events.push_back(Event::Faults(source::DEVICE, list));
            self.given_up = given_up;
        }
    }

    /// Passes new events to the state machine, and does what it asks.
    fn talk(&mut self) {
        let mut effects = Vec::new();
        while let Some(event) = self.events.pop_front() {
            if matches!(event, Event::Up(_)) {
                self.give_up_at = None;
                netio::tun::settle_inherited();
            }
            self.teller.handle(event, Instant::now(), &mut effects);
            for effect in effects.drain(..) {
                self.perform(effect);
            }
            self.write();
        }
        if !self.teller.needs_shield() {
            self.device.unshield();
        }
        let stale = self.teller.is_stale();
        self.stale.store(stale, Ordering::Relaxed);
        if stale && self.teller.set().is_some() {
            self.clear_at.get_or_insert_with(|| Instant::now() + SOON);
        }
        if self.teller.is_done() && !self.device.is_missed() {
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
            Effect::Ask => {
                if let Some((_, client)) = &mut self.daemon {
                    client.call(&object_of(&self.interface), STATUS, Vec::new());
                }
            }
            Effect::Shield(true) => {
                self.device.shield();
            }
            Effect::Shield(false) => self.device.unshield(),
            Effect::Set => self.device.set(self.teller.set(), Instant::now()),
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
                ubus::Event::Ended { status, data, .. } => Event::Answered(status, data),
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
