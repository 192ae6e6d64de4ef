//! The tunnel's device as netifd has set it up: notices what other programs take from it, sees whether packets arrive, and
//! holds up packets while netifd takes the link down.

use host::masked;
use netio::netlink::{
    Event, Link, Monitor, Netlink, NetlinkError, Route, RouteKind, TABLE_LOCAL, Watch,
};
use netio::poll::Poller;
use netio::tun::{Tun, TunOptions};
use openwrt::update::Update;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The least time between two looks at the kernel's state.
const SETTLE: Duration = Duration::from_millis(300);

/// The time after which a missing setting counts: netifd changes settings in steps.
const CONFIRM: Duration = Duration::from_millis(600);

/// A tunnel through which nothing has arrived for this long is not in use.
const IDLE: Duration = Duration::from_secs(2);

/// How often to see whether packets arrive.
const LOOK: Duration = Duration::from_millis(500);

/// How often the link may go down within [`PERIOD`] because other programs disturb it: they may do so without end.
const REPAIRS_MAX: usize = 6;
const PERIOD: Duration = Duration::from_secs(30);

/// A setting that is missing again this soon after a repair, so many times in turn, is given up.
const AGAIN: Duration = Duration::from_secs(10);
const AGAIN_MAX: usize = 3;

/// Name of the shield's device. Not `mr-…`: for the guard that would be a tunnel.
const SHIELD: &str = "mrshield%d";

/// Metric of the shield's routes, by which every other route to the same network goes before them.
const WORST: u32 = u32::MAX - 1;

/// A network: its address, and the bits of its prefix.
type Network = (IpAddr, u8);

/// Settings that a device has, or is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Has {
    up: bool,
    addresses: BTreeSet<Network>,
    routes: BTreeSet<Network>,
}

impl Has {
    fn of(told: &Update) -> Self {
        let addresses = told.addresses.iter().map(|it| (it.0, it.1));
        let routes = told.routes.iter().map(|it| (it.target, it.prefix));
        // The kernel adds a route to the network of an address, or to the other end.
        let direct = told.addresses.iter();
        let direct = direct.map(|it| (masked(it.2.unwrap_or(it.0), it.1), it.1));
        Self {
            up: true,
            addresses: addresses.collect(),
            routes: routes.chain(direct).collect(),
        }
    }

    /// The settings that both have.
    fn and(&self, other: &Self) -> Self {
        Self {
            up: self.up && other.up,
            addresses: &self.addresses & &other.addresses,
            routes: &self.routes & &other.routes,
        }
    }

    /// The settings that `other` lacks.
    fn without(&self, other: &Self) -> Self {
        Self {
            up: self.up && !other.up,
            addresses: &self.addresses - &other.addresses,
            routes: &self.routes - &other.routes,
        }
    }

    fn is_empty(&self) -> bool {
        !self.up && self.addresses.is_empty() && self.routes.is_empty()
    }

    /// How another program has taken these settings, as the end of a sentence.
    fn taken(&self) -> String {
        let settings: Vec<_> = self.addresses.iter().chain(&self.routes).collect();
        match (self.up, &settings[..]) {
            (true, _) => "taken this interface down".to_owned(),
            (false, [(address, prefix)]) => {
                format!("removed {address}/{prefix} from this interface")
            }
            _ => "removed addresses or routes of this interface".to_owned(),
        }
    }

    /// The settings that either has.
    fn or(&self, other: &Self) -> Self {
        Self {
            up: self.up || other.up,
            addresses: &self.addresses | &other.addresses,
            routes: &self.routes | &other.routes,
        }
    }
}

/// The result of a look at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// All is as netifd has set it, or it is too early to say.
    Calm,
    /// Another program has taken settings, which netifd is to set again.
    Disturbed,
    /// Another program takes settings again and again: they are given up. See [`Device::given_up`].
    GivenUp,
}

/// The device of one interface; see the module.
#[derive(Debug)]
pub(super) struct Device {
    name: String,
    netlink: Netlink,
    monitor: Monitor,
    /// Whether netifd has set up the device, and is not about to do so again.
    is_set: bool,
    /// The device's settings after netifd's last change. A setting that the kernel refused is not among them.
    had: Has,
    /// The networks of netifd's own routes.
    routed: BTreeSet<Network>,
    /// Networks of the device's routes after that change, with the routing tables.
    led: BTreeSet<(Network, u32)>,
    /// Networks for which netifd has routes that refuse packets.
    refused: BTreeSet<Network>,
    look_at: Option<Instant>,
    looked: Option<Instant>,
    /// Whether a setting was missing at the last look.
    missed: bool,
    /// Times at which a disturbed link went down.
    repairs: VecDeque<Instant>,
    /// Settings that were missing again soon after each of so many repairs in turn.
    again: (Has, usize),
    given_up: Has,
    /// The packets received so far, and when that number was last another one.
    received: Option<(u64, Instant)>,
    shield: Option<Tun>,
}

impl Device {
    /// Begins to watch the device, which may not exist yet. `poller` gets the watch under this token. With `inherits`,
    /// netifd has set up the device for the program before this one.
    ///
    /// # Errors
    /// There are no descriptors or no netlink.
    pub(super) fn new(
        name: String,
        poller: &Poller,
        token: u64,
        inherits: bool,
    ) -> io::Result<Self> {
        let watch = Watch {
            rules: false,
            ..Watch::ALL
        };
        let monitor = Monitor::open(watch).map_err(io::Error::other)?;
        poller.add(&monitor, token)?;
        let mut device = Self {
            name,
            netlink: Netlink::open().map_err(io::Error::other)?,
            monitor,
            is_set: false,
            had: Has::default(),
            routed: BTreeSet::new(),
            led: BTreeSet::new(),
            refused: BTreeSet::new(),
            look_at: None,
            looked: None,
            missed: false,
            repairs: VecDeque::new(),
            again: (Has::default(), 0),
            given_up: Has::default(),
            received: None,
            shield: None,
        };
        if inherits {
            // A setting that another program removes before the first `set` counts as missing then.
            match device.read() {
                Ok(present) => (device.had, device.led) = present,
                Err(error) => log::warn!("{}: {error}", device.name),
            }
        }
        Ok(device)
    }

    /// netifd has given the device these settings, or has removed them.
    pub(super) fn set(&mut self, told: Option<&Update>, now: Instant) {
        (self.look_at, self.missed, self.received) = (None, false, None);
        self.is_set = told.is_some();
        let Some(told) = told else {
            return;
        };
        let refused = told.routes.iter().filter(|it| it.unreachable);
        self.refused = refused.map(|it| (it.target, it.prefix)).collect();
        let routed = told.routes.iter().map(|it| (it.target, it.prefix));
        let routed = routed.collect();
        // A route of netifd replaces the kernel's to the same network, and takes it along when netifd removes it.
        self.had.routes = &self.had.routes - &(&self.routed - &routed);
        self.routed = routed;
        let told = Has::of(told);
        self.given_up = self.given_up.and(&told);
        // Settings of before may be missing already.
        self.had = self.had.and(&told);
        self.led.retain(|it| told.routes.contains(&it.0));
        self.look_at = Some(now + SETTLE);
        match self.read() {
            Ok((has, led)) => {
                self.had = has.or(&self.had).and(&told).without(&self.given_up);
                self.led.extend(led);
            }
            Err(error) => log::warn!("{}: {error}", self.name),
        }
    }

    /// The settings that the device has, and the networks of its routes.
    fn read(&mut self) -> Result<(Has, BTreeSet<(Network, u32)>), NetlinkError> {
        let link = self.netlink.link(&self.name)?;
        let addresses = self.netlink.addresses(Some(link.index))?;
        let routes = self.routes(&link)?;
        let has = Has {
            up: link.up,
            addresses: addresses.iter().map(|it| (it.ip, it.prefix)).collect(),
            routes: routes.iter().map(|it| (it.dst, it.prefix)).collect(),
        };
        let led = routes.iter().map(|it| ((it.dst, it.prefix), it.table));
        Ok((has, led.collect()))
    }

    /// The routes through the device, and those of netifd that refuse packets.
    fn routes(&mut self, link: &Link) -> Result<Vec<Route>, NetlinkError> {
        let mut routes = self.netlink.routes(None)?;
        routes.retain(|it| match it.kind {
            RouteKind::Unreachable => self.refused.contains(&(it.dst, it.prefix)),
            _ => it.dev == Some(link.index) && it.table != TABLE_LOCAL,
        });
        Ok(routes)
    }

    /// Reads the kernel's news.
    pub(super) fn hear(&mut self, now: Instant) {
        let mut news = false;
        loop {
            match self.monitor.next() {
                Ok(None) => break,
                Ok(Some(Event::LinkChanged { name, .. })) => news |= name == self.name,
                Ok(Some(_)) => news = true,
                Err(error) => {
                    log::warn!("{}: {error}", self.name);
                    break;
                }
            }
        }
        if news && self.is_set {
            let soon = self.looked.map_or(now, |at| now.max(at + SETTLE));
            self.look_at.get_or_insert(soon);
        }
    }

    /// When to call [`look`](Self::look).
    pub(super) const fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Sees whether another program has taken down the link or removed a setting of netifd. From the first time that a
    /// setting is missing, packets are held up.
    pub(super) fn look(&mut self, is_busy: bool, now: Instant) -> Seen {
        if self.look_at.take_if(|at| *at <= now).is_none() {
            return Seen::Calm;
        }
        if is_busy {
            // netifd changes the device.
            self.look_at = Some(now + SETTLE);
            return Seen::Calm;
        }
        self.looked = Some(now);
        let has = match self.read() {
            Ok((has, _)) => has,
            // A device that is gone is its tunnel's business.
            Err(error) if error.is_not_found() => return Seen::Calm,
            Err(error) => {
                log::warn!("{}: {error}", self.name);
                self.look_at = Some(now + AGAIN);
                return Seen::Calm;
            }
        };
        let missing = self.had.without(&has);
        if missing.is_empty() {
            self.missed = false;
            return Seen::Calm;
        }
        if !std::mem::replace(&mut self.missed, true) {
            self.shield();
            self.look_at = Some(now + CONFIRM);
            return Seen::Calm;
        }
        self.judge(&missing, now)
    }

    /// Decides about settings that are missing at two looks in turn.
    fn judge(&mut self, missing: &Has, now: Instant) -> Seen {
        let soon = self.repairs.back().is_some_and(|at| now < *at + AGAIN);
        let same = self.again.0.and(missing);
        self.again = match soon && !same.is_empty() {
            true => (same, self.again.1 + 1),
            false => (missing.clone(), 0),
        };
        if self.again.1 == AGAIN_MAX {
            let (given_up, _) = std::mem::take(&mut self.again);
            self.had = self.had.without(&given_up);
            self.given_up = self.given_up.or(&given_up);
            self.missed = false;
            self.look_at = Some(now + SETTLE);
            return Seen::GivenUp;
        }
        self.repairs.retain(|at| now < *at + PERIOD);
        let first = self.repairs.front();
        if let Some(first) = first.filter(|_| self.repairs.len() == REPAIRS_MAX) {
            self.look_at = Some(*first + PERIOD);
            return Seen::Calm;
        }
        self.repairs.push_back(now);
        self.is_set = false;
        log::warn!(
            "{}: another program has {}; netifd sets it up again",
            self.name,
            missing.taken()
        );
        Seen::Disturbed
    }

    /// Whether a setting was missing at the last look, so that the shield is needed.
    pub(super) const fn is_missed(&self) -> bool {
        self.missed
    }

    /// A fault in words, if settings are given up.
    pub(super) fn given_up(&self) -> Option<String> {
        (!self.given_up.is_empty()).then(|| {
            format!(
                "another program has {} again and again, so it stays so and packets may leave outside the tunnel; stop \
                 that program, then run `ifup`",
                self.given_up.taken()
            )
        })
    }

    /// Whether nothing has arrived through the tunnel for [`IDLE`], and when to ask again if something has.
    pub(super) fn is_idle(&mut self, now: Instant) -> Result<(), Instant> {
        let link = self.netlink.link(&self.name);
        let packets = link.map_or(0, |it| it.counters.rx_packets);
        match self.received {
            Some((before, since)) if before == packets && now >= since + IDLE => return Ok(()),
            Some((before, _)) if before == packets => {}
            _ => self.received = Some((packets, now)),
        }
        Err(now + LOOK)
    }

    /// Leads packets for the tunnel into a device that nobody reads, as soon as the tunnel's device has no routes.
    /// Returns whether it leads all. The kernel removes that device if this process is killed.
    pub(super) fn shield(&mut self) -> bool {
        if self.shield.is_some() {
            return true;
        }
        let raised = self.raise();
        if let Err(error) = &raised {
            log::warn!(
                "{}: packets may leave outside the tunnel: {error}",
                self.name
            );
        }
        raised.is_ok()
    }

    /// Removes the shield, unless a setting was missing at the last look.
    pub(super) fn unshield(&mut self) {
        if !self.missed {
            self.shield = None;
        }
    }

    fn raise(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let mut led = self.led.clone();
        // The device may have routes since, or may be down.
        if let Ok((_, present)) = self.read() {
            led.extend(present);
        }
        let shield = Tun::create(SHIELD, TunOptions::PLAIN)?;
        let index = self.netlink.index_of(shield.name())?;
        let _ = self.netlink.set_no_link_local(index);
        self.netlink.set_up(index)?;
        self.shield = Some(shield);
        let mut outcome = Ok(());
        for ((dst, prefix), table) in led {
            let instead = Route {
                metric: Some(WORST),
                ..Route::new(dst, prefix).dev(index).table(table)
            };
            match self.netlink.add_route(&instead) {
                // Several routes of the device may lead to one network.
                Err(error) if !error.is_exists() => outcome = Err(error.into()),
                _ => {}
            }
        }
        outcome
    }
}
