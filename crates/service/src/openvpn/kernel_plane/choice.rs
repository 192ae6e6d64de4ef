//! The choice between the kernel's data plane and this program's, and its reason.
//!
//! `dataplane.kind = "auto"` takes the kernel for a client whose configuration it can serve as well, on a machine where
//! `millrace tune` found it better. The choice holds for the interface: when the kernel refuses it, a session or a key,
//! the client makes an interface in user space instead, and keeps to that until it starts again.
//!
//! A client that `auto` leaves in user space, and that has a management port, can be moved to the kernel and back while
//! it runs ([`kernelspace::movable`]): the [wish](Wish) is this choice's.

#[cfg(feature = "kernel")]
use super::is_wanted;
use crate::openvpn::device::DeviceError;
use config::openvpn::OpenVpn;
use config::settings::DataplaneSettings;
#[cfg(feature = "kernel")]
use {
    super::{needs_mssfix, unfit},
    crate::openvpn::compared::{self, Compared},
    config::settings::Kind,
    kernelspace::Wish,
    log::Level,
    openvpn_host::terms,
    std::cell::{Cell, RefCell},
    std::sync::Arc,
};

/// Which data plane moves a tunnel's packets.
#[cfg(feature = "kernel")]
pub(in crate::openvpn) struct Choice {
    kernel: Cell<bool>,
    /// The reason, if the setting leaves the choice to this program.
    why: Option<RefCell<String>>,
    /// The wanted data plane of a tunnel that can be moved.
    wish: Option<Arc<Wish>>,
}

#[cfg(feature = "kernel")]
impl Choice {
    /// Chooses for this configuration, and logs the reason.
    pub(in crate::openvpn) fn of(config: &OpenVpn, settings: &DataplaneSettings) -> Self {
        if settings.kind != Kind::Auto {
            return Self {
                kernel: Cell::new(is_wanted(settings)),
                why: None,
                wish: None,
            };
        }
        let measured = compared::measured();
        let mut choice = Self::by(judge(config, &measured));
        if !choice.kernel() && config.service.management.is_some() && can_move(config) {
            let why = choice.why.as_ref().map(|it| it.borrow().clone());
            choice.wish = Some(Arc::new(Wish::user_space(&why.unwrap_or_default())));
        }
        // Most machines have no profile, and their users did not ask for a choice.
        choice.log(match measured.is_empty() {
            true => Level::Debug,
            false => Level::Info,
        });
        choice
    }

    /// The choice of `auto`: the reason for the kernel, or the reason against it.
    pub(in crate::openvpn) fn by(judged: Result<String, String>) -> Self {
        Self {
            kernel: Cell::new(judged.is_ok()),
            why: Some(RefCell::new(judged.unwrap_or_else(|why| why))),
            wish: None,
        }
    }

    /// The wish, if the tunnel can be moved.
    pub(in crate::openvpn) fn wish(&self) -> Option<&Arc<Wish>> {
        self.wish.as_ref()
    }

    /// Whether the tunnel can be moved.
    pub(in crate::openvpn) const fn can_move(&self) -> bool {
        self.wish.is_some()
    }

    /// Gives up the wish to move the tunnel to the kernel, for this reason. Returns whether the tunnel can be moved.
    pub(in crate::openvpn) fn refuse_move(&self, why: &str) -> bool {
        let Some(wish) = &self.wish else {
            return false;
        };
        wish.refuse(why);
        true
    }

    /// Wishes for a data plane, if one is named. Returns the one that moves the packets at present.
    ///
    /// # Errors
    /// The tunnel cannot be moved.
    pub(in crate::openvpn) fn wish_for(
        &self,
        wanted: Option<Kind>,
    ) -> Result<&'static str, String> {
        let Some(wish) = &self.wish else {
            return match wanted {
                None => Ok(if self.kernel() { "kernel" } else { "user" }),
                Some(_) => Err(
                    "only a tunnel that dataplane.kind=auto has started in this program can be moved, and only \
                     without user, group, static-challenge, auth-nocache and options that the kernel lacks"
                        .to_owned(),
                ),
            };
        };
        match wanted {
            None => {}
            Some(Kind::Auto) => {
                let why = self.why.as_ref().map(|it| it.borrow().clone());
                wish.set(false, &why.unwrap_or_default());
            }
            Some(kind) => wish.set(kind == Kind::Kernel, "a management client asked for it"),
        }
        Ok(if wish.is_in_kernel() {
            "kernel"
        } else {
            "user"
        })
    }

    /// Whether the kernel moves the packets of the next session, or is to do so. It lacks some formats.
    pub(in crate::openvpn) fn is_for_kernel(&self) -> bool {
        self.kernel() || self.wish.as_ref().is_some_and(|it| it.is_for_kernel())
    }

    /// Whether the kernel moves the packets of the next interface.
    pub(in crate::openvpn) fn kernel(&self) -> bool {
        self.kernel.get()
    }

    /// Calls `start` for the chosen data plane, the kernel's if true. After any error of the kernel's that `auto` chose,
    /// calls it again for user space.
    pub(in crate::openvpn) fn start<T>(
        &self,
        start: impl Fn(bool) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        match start(self.kernel()) {
            Err(error) if self.leave_kernel(&error.to_string()) => start(false),
            started => started,
        }
    }

    /// Leaves the kernel for user space for this reason. Returns whether `auto` had chosen the kernel; otherwise nothing
    /// changes.
    pub(in crate::openvpn) fn leave_kernel(&self, reason: &str) -> bool {
        let Some(why) = self.why.as_ref().filter(|_| self.kernel.get()) else {
            return false;
        };
        self.kernel.set(false);
        // The remedy in the reason is for `kind = "kernel"`.
        let reason = reason.split(';').next().unwrap_or_default();
        why.replace(reason.to_owned());
        self.log(Level::Info);
        true
    }

    /// Whether `auto` has chosen the kernel, and may leave it.
    pub(in crate::openvpn) fn may_leave_kernel(&self) -> bool {
        self.kernel.get() && self.why.is_some()
    }

    /// The name and state of the choice in the status; `None` if a setting made the choice.
    pub(in crate::openvpn) fn rung(&self) -> Option<(&'static str, String)> {
        if let Some(wish) = &self.wish {
            let state = if wish.is_in_kernel() { "on" } else { "off" };
            return Some((kernelspace::RUNG, format!("{state} (auto: {})", wish.why())));
        }
        let why = self.why.as_ref()?.borrow();
        let state = if self.kernel.get() { "on" } else { "off" };
        Some((kernelspace::RUNG, format!("{state} (auto: {why})")))
    }

    fn log(&self, level: Level) {
        let mover = match self.kernel.get() {
            true => "the kernel",
            false => "this program",
        };
        if let Some(why) = &self.why {
            log::log!(
                level,
                "Data plane: {mover} moves the packets ({})",
                why.borrow()
            );
        }
    }
}

/// Whether a client's tunnel can be moved to the kernel while it runs. The MTU, on which `mssfix` depends, is known
/// later.
#[cfg(feature = "kernel")]
fn can_move(config: &OpenVpn) -> bool {
    config.client().is_some() && hindrance(config).is_none()
}

/// The option that keeps a client's tunnel out of the kernel, or from leaving it later.
#[cfg(feature = "kernel")]
fn hindrance(config: &OpenVpn) -> Option<String> {
    if let Some(why) = unfit(config) {
        return Some(why.split(';').next().unwrap_or_default().to_owned());
    }
    let service = &config.service;
    let asks = (config.client()).is_some_and(|it| it.static_challenge.is_some());
    let why = if service.user.is_some() || service.group.is_some() {
        // Another user could not make the interface in user space, nor open a second socket of the port.
        "user: after a change of user, the client could not go back to this program's data plane"
    } else if asks {
        // Leaving or entering the kernel takes a handshake, for which a password of one use is no longer valid.
        "static-challenge: leaving the kernel would need a second answer"
    } else if service.auth_nocache {
        "auth-nocache: leaving the kernel would need the password again"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// Judges whether `auto` takes the kernel. Returns the reason for it, or the reason against it.
#[cfg(feature = "kernel")]
fn judge(config: &OpenVpn, measured: &[Compared]) -> Result<String, String> {
    if config.server().is_some() {
        return Err("servers stay in this program".to_owned());
    }
    if measured.is_empty() {
        return Err("not measured yet: run `millrace tune` as root".to_owned());
    }
    if let Some(why) = hindrance(config) {
        return Err(why);
    }
    if (config.connections.iter()).any(|it| needs_mssfix(it, terms::tun_mtu(it))) {
        return Err(super::NO_MSSFIX.to_owned());
    }
    let mut reason = None;
    for cipher in &config.data.ciphers {
        let Some(found) = compared::of(*cipher, measured) else {
            return Err(format!("not measured with {}", cipher.name()));
        };
        if !found.prefers_kernel() {
            return Err(found.words());
        }
        reason.get_or_insert_with(|| found.words());
    }
    reason.ok_or_else(|| "data-ciphers: no cipher to measure".to_owned())
}

/// Which data plane moves a tunnel's packets: in this build always this program.
#[cfg(not(feature = "kernel"))]
pub(in crate::openvpn) struct Choice;

#[cfg(not(feature = "kernel"))]
impl Choice {
    pub(in crate::openvpn) const fn of(_: &OpenVpn, _: &DataplaneSettings) -> Self {
        Self
    }

    pub(in crate::openvpn) const fn kernel(&self) -> bool {
        false
    }

    pub(in crate::openvpn) const fn is_for_kernel(&self) -> bool {
        false
    }

    pub(in crate::openvpn) const fn can_move(&self) -> bool {
        false
    }

    pub(in crate::openvpn) fn start<T>(
        &self,
        start: impl Fn(bool) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        start(false)
    }
}

#[cfg(all(test, feature = "kernel"))]
mod tests {
    use super::super::tests::{CLIENT, SERVER, config};
    use super::*;
    use crate::openvpn::compared::Speed;

    /// Measurements in which the kernel is better or worse, for both ciphers.
    fn measured(aes: bool, chacha: bool) -> Vec<Compared> {
        let ciphers = compared::MEASURED.into_iter().zip([aes, chacha]);
        let of = |(cipher, better): (config::openvpn::Cipher, bool)| {
            let speed = |single| Speed { bulk: 1000, single };
            Compared {
                cipher: cipher.name().to_owned(),
                user: speed(1000),
                kernel: speed(if better { 2000 } else { 900 }),
            }
        };
        ciphers.map(of).collect()
    }

    const FITS: &str = "tun-mtu 1420";

    #[test]
    fn a_client_with_a_management_port_can_be_moved() {
        let auto = DataplaneSettings::default();
        let port = "management 127.0.0.1 7505";
        for (role, lines, moves) in [
            (CLIENT, "", true),
            (CLIENT, "remote 192.0.2.2 1194 tcp", false),
            (CLIENT, "shaper 100000", false),
            (CLIENT, "user nobody", false),
            (CLIENT, "auth-nocache", false),
            (CLIENT, "auth-user-pass\nstatic-challenge Code 1", false),
            (SERVER, "", false),
        ] {
            let it = config(role, &format!("{port}\n{lines}"));
            let choice = Choice::of(&it, &auto);
            assert_eq!(choice.can_move(), moves, "{lines}");
            assert_eq!(choice.wish_for(Some(Kind::Kernel)).is_ok(), moves);
            assert_eq!(choice.is_for_kernel(), moves);
            // The interface is a TUN all the same, until packets are moved.
            assert!(!choice.kernel() && choice.wish_for(None) == Ok("user"));
            let (_, state) = choice.rung().unwrap();
            assert!(state.starts_with("off (auto: "), "{state}");
            // The server pushes an option that the kernel lacks.
            assert_eq!(choice.refuse_move("pushed"), moves);
            assert!(!choice.is_for_kernel());
            assert_eq!(choice.wish_for(Some(Kind::Auto)).is_ok(), moves);
            assert!(!choice.is_for_kernel());
        }
        let alone = config(CLIENT, "");
        assert!(!Choice::of(&alone, &auto).can_move());
        let user = DataplaneSettings {
            kind: Kind::User,
            ..auto
        };
        let client = config(CLIENT, port);
        assert!(!Choice::of(&client, &user).can_move());
    }

    #[test]
    fn the_kernel_is_taken_where_it_was_measured_to_be_better() {
        let client = config(CLIENT, FITS);
        let why = judge(&client, &measured(true, true)).unwrap();
        assert!(
            why.starts_with("with AES-256-GCM the kernel has 100 % of"),
            "{why}"
        );
        for (aes, chacha, slow) in [
            (false, true, "with AES-256-GCM"),
            (true, false, "with CHACHA20-POLY1305"),
        ] {
            let why = judge(&client, &measured(aes, chacha)).unwrap_err();
            assert!(why.starts_with(slow), "{why}");
        }
        // A cipher that cannot be negotiated does not matter.
        let only = config(CLIENT, "tun-mtu 1420\ndata-ciphers AES-128-GCM");
        assert!(judge(&only, &measured(true, false)).is_ok());
        let why = judge(&client, &[]).unwrap_err();
        assert!(why.starts_with("not measured"), "{why}");
        assert!(judge(&client, &measured(true, true)[..1]).is_err());
    }

    #[test]
    fn the_configuration_decides_first() {
        let best = measured(true, true);
        for (role, lines, reason) in [
            (SERVER, "", "servers stay in this program"),
            (CLIENT, "", "mssfix: "),
            (CLIENT, "tun-mtu 1420\nmssfix 1300", "mssfix: "),
            (CLIENT, "tun-mtu 1420\nuser nobody", "user: "),
            (
                CLIENT,
                "tun-mtu 1420\nauth-user-pass\nstatic-challenge Code 1",
                "static-challenge: ",
            ),
            (
                CLIENT,
                "tun-mtu 1420\nauth-user-pass\nauth-nocache",
                "auth-nocache: ",
            ),
            (CLIENT, "tun-mtu 1420\nfragment 1300", "fragment: "),
            (CLIENT, "tun-mtu 1420\nshaper 100000", "shaper: "),
            (CLIENT, "tun-mtu 1420\ncomp-lzo no", "comp-lzo: "),
            (CLIENT, "tun-mtu 1420\nremote 192.0.2.2 1194 tcp", "proto: "),
            (CLIENT, "tun-mtu 1420\nbind-dev eth0", "bind-dev: "),
            (
                CLIENT,
                "tun-mtu 1420\ndata-ciphers AES-256-GCM:AES-256-CBC",
                "data-ciphers: ",
            ),
        ] {
            let why = judge(&config(role, lines), &best).unwrap_err();
            assert!(why.starts_with(reason), "{lines}: {why}");
            assert!(!why.contains("dataplane.kind"), "no remedy: {why}");
        }
        for lines in [FITS, "mssfix 0", "tun-mtu 1420\nmssfix 1420 fixed"] {
            assert!(judge(&config(CLIENT, lines), &best).is_ok(), "{lines}");
        }
    }

    #[test]
    fn an_interface_that_the_kernel_refuses_is_made_in_user_space() {
        let no_module = || DeviceError::Kernel(kernelspace::StartError::NoModule);
        let no_thread = || DeviceError::Io {
            what: "thread",
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        let refusals: [(&dyn Fn() -> DeviceError, &str); 2] = [
            (&no_module, "off (auto: this kernel has no OpenVPN"),
            (&no_thread, "off (auto: thread: "),
        ];
        for (refusal, reason) in refusals {
            let asked = RefCell::new(Vec::new());
            let start = |kernel| {
                asked.borrow_mut().push(kernel);
                if kernel { Err(refusal()) } else { Ok("tun0") }
            };
            let auto = Choice::by(Ok("faster".to_owned()));
            assert_eq!(auto.start(start).unwrap(), "tun0");
            // The next interface is made in user space at once.
            assert_eq!(auto.start(start).unwrap(), "tun0");
            assert_eq!(asked.take(), [true, false, false]);
            let (_, why) = auto.rung().unwrap();
            assert!(why.starts_with(reason), "{why}");
        }
        let settings = DataplaneSettings {
            kind: Kind::Kernel,
            ..DataplaneSettings::default()
        };
        let kernel = Choice::of(&config(CLIENT, FITS), &settings);
        let asked = Cell::new(0);
        let start = |_| {
            asked.set(asked.get() + 1);
            Err::<(), _>(no_module())
        };
        assert!(kernel.start(start).unwrap_err().lasts());
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn only_auto_leaves_the_kernel_and_only_once() {
        let auto = Choice::by(Ok("faster".to_owned()));
        assert!(auto.kernel() && auto.may_leave_kernel());
        let on = ("kernel-data-plane", "on (auto: faster)".to_owned());
        assert_eq!(auto.rung(), Some(on));
        assert!(auto.leave_kernel("no such cipher; set dataplane.kind=user"));
        assert!(!auto.kernel() && !auto.leave_kernel("again"));
        let off = ("kernel-data-plane", "off (auto: no such cipher)".to_owned());
        assert_eq!(auto.rung(), Some(off));
        let set = |kind| {
            let settings = DataplaneSettings {
                kind,
                ..DataplaneSettings::default()
            };
            Choice::of(&config(CLIENT, FITS), &settings)
        };
        let kernel = set(Kind::Kernel);
        assert!(kernel.kernel() && !kernel.leave_kernel("no"));
        assert!(kernel.kernel() && kernel.rung().is_none());
        assert!(!set(Kind::User).kernel() && set(Kind::User).rung().is_none());
        // This process has no profile.
        assert!(!set(Kind::Auto).kernel() && set(Kind::Auto).rung().is_some());
    }
}
