//! The tunnel's device as netifd has set it up: notices what other programs take from it, sees whether packets arrive, and
//! holds up packets while netifd takes the link down.

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

/// The pause before the kernel's state is read after a change, and before it is read again: netifd changes it in steps.
const SETTLE: Duration = Duration::from_millis(300);

/// A tunnel through which nothing has arrived for this long is not in use.
const IDLE: Duration = Duration::from_secs(2);

/// How often to see whether packets arrive.
const LOOK: Duration = Duration::from_millis(500);

/// How often the link may go down within [`PERIOD`] because other programs disturb it: they may do so without end.
const REPAIRS_MAX: usize = 6;
const PERIOD: Duration = Duration::from_secs(30);

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
        Self {
            up: true,
            addresses: addresses.collect(),
            routes: routes.collect(),
        }
    }

    fn includes(&self, other: &Self) -> bool {
        self.up >= other.up
            && self.addresses.is_superset(&other.addresses)
            && self.routes.is_superset(&other.routes)
    }

    /// The settings that both have.
    fn and(&self, other: &Self) -> Self {
        Self {
            up: self.up && other.up,
            addresses: &self.addresses & &other.addresses,
            routes: &self.routes & &other.routes,
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

/// The device of one interface; see the module.
#[derive(Debug)]
pub(super) struct Device {
    name: String,
    netlink: Netlink,
    monitor: Monitor,
    /// The device's settings after netifd's last change. A setting that the kernel refused is not among them.
    had: Option<Has>,
    /// Networks for which netifd has routes that refuse packets.
    refused: BTreeSet<Network>,
    look_at: Option<Instant>,
    /// Whether a setting was missing at the last look.
    missed: bool,
    /// Times at which a disturbed link went down.
    repairs: VecDeque<Instant>,
    /// The packets received so far, and when that number was last another one.
    received: Option<(u64, Instant)>,
    shield: Option<Tun>,
}

impl Device {
    /// Begins to watch the device, which may not exist yet. `poller` gets the watch under this token.
    ///
    /// # Errors
    /// There are no descriptors or no netlink.
    pub(super) fn new(name: String, poller: &Poller, token: u64) -> io::Result<Self> {
        let watch = Watch {
            rules: false,
            ..Watch::ALL
        };
        let monitor = Monitor::open(watch).map_err(io::Error::other)?;
        poller.add(&monitor, token)?;
        Ok(Self {
            name,
            netlink: Netlink::open().map_err(io::Error::other)?,
            monitor,
            had: None,
            refused: BTreeSet::new(),
            look_at: None,
            missed: false,
            repairs: VecDeque::new(),
            received: None,
            shield: None,
        })
    }

    /// netifd has given the device these settings, or has removed them.
    pub(super) fn set(&mut self, told: Option<&Update>, now: Instant) {
        let before = self.had.take().unwrap_or_default();
        (self.look_at, self.missed, self.received) = (None, false, None);
        if let Some(told) = told {
            let refused = told.routes.iter().filter(|it| it.unreachable);
            self.refused = refused.map(|it| (it.target, it.prefix)).collect();
        }
        if let (Some(told), Ok(has)) = (told.map(Has::of), self.read()) {
            // A setting of before may be missing already.
            self.had = Some(has.or(&before).and(&told));
            self.look_at = Some(now + SETTLE);
        }
    }

    fn read(&mut self) -> Result<Has, NetlinkError> {
        let link = self.netlink.link(&self.name)?;
        let addresses = self.netlink.addresses(Some(link.index))?;
        let routes = self.routes(&link)?;
        Ok(Has {
            up: link.up,
            addresses: addresses.iter().map(|it| (it.ip, it.prefix)).collect(),
            routes: routes.iter().map(|it| (it.dst, it.prefix)).collect(),
        })
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
        if news && self.had.is_some() {
            self.look_at.get_or_insert(now + SETTLE);
        }
    }

    /// When to call [`is_disturbed`](Self::is_disturbed).
    pub(super) const fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Whether another program has taken down the link or removed a setting of netifd, at two looks in turn.
    pub(super) fn is_disturbed(&mut self, now: Instant) -> bool {
        if self.look_at.take_if(|at| *at <= now).is_none() {
            return false;
        }
        let has = self.read().ok();
        // A device that is gone is its tunnel's business.
        let (Some(had), Some(has)) = (&self.had, has) else {
            return false;
        };
        if has.includes(had) {
            self.missed = false;
            return false;
        }
        if !std::mem::replace(&mut self.missed, true) {
            self.look_at = Some(now + SETTLE);
            return false;
        }
        self.repairs.retain(|at| now < *at + PERIOD);
        let first = self.repairs.front();
        if let Some(first) = first.filter(|_| self.repairs.len() == REPAIRS_MAX) {
            self.look_at = Some(*first + PERIOD);
            return false;
        }
        self.repairs.push_back(now);
        let what = match has.up {
            true => "removed addresses or routes of this interface",
            false => "taken this interface down",
        };
        let name = &self.name;
        log::warn!("{name}: another program has {what}; netifd sets it up again");
        true
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

    /// Leads packets for the tunnel into a device that nobody reads, as soon as netifd removes the device's routes; or
    /// removes that device. The kernel removes it too if this process is killed.
    pub(super) fn shield(&mut self, wanted: bool) {
        self.shield = None;
        if wanted && let Err(error) = self.raise() {
            log::warn!(
                "{}: packets may leave outside the tunnel: {error}",
                self.name
            );
        }
    }

    fn raise(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let link = self.netlink.link(&self.name)?;
        let routes = self.routes(&link)?;
        let shield = Tun::create(SHIELD, TunOptions::PLAIN)?;
        let index = self.netlink.index_of(shield.name())?;
        let _ = self.netlink.set_no_link_local(index);
        self.netlink.set_up(index)?;
        self.shield = Some(shield);
        let mut outcome = Ok(());
        for route in routes {
            let instead = Route {
                metric: Some(WORST),
                ..Route::new(route.dst, route.prefix)
                    .dev(index)
                    .table(route.table)
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
