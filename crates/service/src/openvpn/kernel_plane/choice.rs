//! The choice between the kernel's data plane and this program's, and its reason.
//!
//! `dataplane.kind = "auto"` takes the kernel for a client whose configuration it can serve as well, on a machine where
//! `millrace tune` found it better. When the kernel refuses a session or a key, the client keeps to user space until it
//! starts again.
//!
//! A client for which `auto` chose the kernel, or that has a management port, can be moved to the kernel and back while
//! it runs ([`kernelspace::movable`]): the [wish](Wish) is this choice's. Its interface is a TUN from the start.

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
    std::cell::Cell,
    std::sync::Arc,
};

/// Which data plane moves a tunnel's packets.
#[cfg(feature = "kernel")]
pub(in crate::openvpn) struct Choice {
    /// The interface is the kernel's own.
    kernel: Cell<bool>,
    /// The kernel moves the packets at the start.
    begins: bool,
    /// The reason, if the setting leaves the choice to this program.
    why: Option<String>,
    /// The wanted data plane of a tunnel that can be moved.
    wish: Option<Arc<Wish>>,
}

#[cfg(feature = "kernel")]
impl Choice {
    /// Chooses for this configuration, and logs the reason.
    pub(in crate::openvpn) fn of(config: &OpenVpn, settings: &DataplaneSettings) -> Self {
        let is_asked = config.service.management.is_some() && can_move(config);
        if settings.kind != Kind::Auto {
            let kernel = is_wanted(settings);
            let wish = (kernel && is_asked).then(|| Wish::required("dataplane.kind=kernel"));
            return Self {
                kernel: Cell::new(kernel && wish.is_none()),
                begins: kernel,
                why: None,
                wish: wish.map(Arc::new),
            };
        }
        let measured = compared::measured();
        let choice = Self::by(judge(config, &measured), is_asked);
        // Most machines have no profile, and their users did not ask for a choice.
        let level = match measured.is_empty() {
            true => Level::Debug,
            false => Level::Info,
        };
        let mover = match choice.begins {
            true => "the kernel",
            false => "this program",
        };
        let why = choice.why.as_deref().unwrap_or_default();
        log::log!(level, "Data plane: {mover} moves the packets ({why})");
        choice
    }

    /// The choice of `auto`: the reason for the kernel, or the reason against it. A tunnel in user space can be moved if
    /// somebody can [ask](Self::wish_for) for it.
    pub(in crate::openvpn) fn by(judged: Result<String, String>, is_asked: bool) -> Self {
        let begins = judged.is_ok();
        let why = judged.unwrap_or_else(|why| why);
        let wish = (begins || is_asked).then(|| Arc::new(Wish::new(begins, &why)));
        Self {
            kernel: Cell::new(false),
            begins,
            why: Some(why),
            wish,
        }
    }

    /// The wish, if the tunnel can be moved.
    pub(in crate::openvpn) fn wish(&self) -> Option<&Arc<Wish>> {
        self.wish.as_ref().filter(|_| !self.kernel())
    }

    /// Whether the tunnel can be moved.
    pub(in crate::openvpn) fn can_move(&self) -> bool {
        self.wish().is_some()
    }

    /// Gives up the wish for the kernel, for this reason, unless the kernel is required.
    pub(in crate::openvpn) fn refuse_move(&self, why: &str) {
        if let Some(wish) = self.wish() {
            wish.refuse(why);
        }
    }

    /// Wishes for a data plane for this reason, if one is named. Returns the one that moves the packets at present.
    ///
    /// # Errors
    /// The tunnel cannot be moved.
    pub(in crate::openvpn) fn wish_for(
        &self,
        wanted: Option<Kind>,
        why: &str,
    ) -> Result<&'static str, String> {
        let Some(wish) = self.wish() else {
            return match wanted {
                None => Ok(if self.kernel() { "kernel" } else { "user" }),
                Some(_) => Err(
                    "only a client that dataplane.kind=auto or kernel has started can be moved, and only without \
                     user, group, static-challenge, auth-nocache and options that the kernel lacks"
                        .to_owned(),
                ),
            };
        };
        match wanted {
            None => {}
            Some(Kind::Auto) => {
                let first = self.why.as_deref();
                wish.set(self.begins, first.unwrap_or("dataplane.kind=kernel"));
            }
            Some(kind) => wish.set(kind == Kind::Kernel, why),
        }
        Ok(if wish.is_in_kernel() {
            "kernel"
        } else {
            "user"
        })
    }

    /// Whether the kernel moves the packets of the next session, or is to do so. It lacks some formats.
    pub(in crate::openvpn) fn is_for_kernel(&self) -> bool {
        self.kernel() || self.wish().is_some_and(|it| it.is_for_kernel())
    }

    /// Whether the next interface is the kernel's own.
    pub(in crate::openvpn) fn kernel(&self) -> bool {
        self.kernel.get()
    }

    /// Calls `start` for the interface, the kernel's own if true. If the kernel is required, and cannot move the packets
    /// of a TUN, calls it again for its own interface; the tunnel can no longer be moved then.
    pub(in crate::openvpn) fn start<T>(
        &self,
        start: impl Fn(bool) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let is_required = self.wish().is_some_and(|it| it.is_required());
        match start(self.kernel()) {
            Err(error) if is_required => {
                log::info!("Data plane: this tunnel cannot be moved while it runs ({error})");
                self.kernel.set(true);
                start(true)
            }
            started => started,
        }
    }

    /// The name and state of the choice in the status; `None` for an interface that a setting chose.
    pub(in crate::openvpn) fn rung(&self) -> Option<(&'static str, String)> {
        let auto = if self.why.is_some() { "auto: " } else { "" };
        let (state, why) = match (self.wish(), &self.why) {
            (Some(wish), _) => (wish.is_in_kernel(), wish.why()),
            (None, why) => (false, why.clone()?),
        };
        let state = if state { "on" } else { "off" };
        Some((kernelspace::RUNG, format!("{state} ({auto}{why})")))
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
            assert_eq!(
                choice.wish_for(Some(Kind::Kernel), "asked for").is_ok(),
                moves
            );
            assert_eq!(choice.is_for_kernel(), moves);
            // The interface is a TUN all the same, until packets are moved.
            assert!(!choice.kernel() && choice.wish_for(None, "asked for") == Ok("user"));
            let (_, state) = choice.rung().unwrap();
            assert!(state.starts_with("off (auto: "), "{state}");
            // The server pushes an option that the kernel lacks.
            choice.refuse_move("pushed");
            assert!(!choice.is_for_kernel());
            assert_eq!(
                choice.wish_for(Some(Kind::Auto), "asked for").is_ok(),
                moves
            );
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

    fn set(kind: Kind, more: &str) -> Choice {
        let settings = DataplaneSettings {
            kind,
            ..DataplaneSettings::default()
        };
        Choice::of(&config(CLIENT, more), &settings)
    }

    #[test]
    fn a_required_kernel_is_left_by_request_only() {
        let choice = set(Kind::Kernel, "management 127.0.0.1 7505");
        assert!(choice.can_move() && !choice.kernel() && choice.is_for_kernel());
        choice.refuse_move("pushed");
        assert!(choice.is_for_kernel());
        choice.wish_for(Some(Kind::User), "asked for").unwrap();
        assert!(!choice.is_for_kernel());
        let off = "off (asked for)".to_owned();
        assert_eq!(choice.rung(), Some(("kernel-data-plane", off)));
        choice.wish_for(Some(Kind::Auto), "asked for").unwrap();
        assert!(choice.is_for_kernel());
        // Another user could not make a second socket.
        let choice = set(Kind::Kernel, "management 127.0.0.1 7505\nuser nobody");
        assert!(!choice.can_move() && choice.kernel());
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
    fn a_kernel_that_cannot_move_a_tun_gets_its_own_interface() {
        let refused = || DeviceError::Kernel(kernelspace::StartError::NoModule);
        let asked = Cell::new(0);
        let start = |kernel| {
            asked.set(asked.get() + 1);
            if kernel { Ok("tun0") } else { Err(refused()) }
        };
        let choice = set(Kind::Kernel, "management 127.0.0.1 7505");
        for calls in [2, 3] {
            assert_eq!(choice.start(start).unwrap(), "tun0");
            assert_eq!(asked.get(), calls);
            assert!(choice.kernel() && !choice.can_move() && choice.is_for_kernel());
            assert!(choice.wish_for(Some(Kind::User), "asked for").is_err());
        }
        // Its error is final, and any error of a TUN that nobody requires the kernel for.
        assert!(
            choice
                .start(|_| Err::<(), _>(refused()))
                .unwrap_err()
                .lasts()
        );
        let auto = Choice::by(Ok("faster".to_owned()), false);
        assert!(auto.start(start).is_err());
        assert!(!auto.kernel());
    }

    #[test]
    fn only_auto_leaves_the_kernel() {
        let auto = Choice::by(Ok("faster".to_owned()), false);
        assert!(auto.is_for_kernel() && !auto.kernel() && auto.can_move());
        auto.refuse_move("no such cipher; set dataplane.kind=user");
        assert!(!auto.is_for_kernel());
        let off = ("kernel-data-plane", "off (auto: no such cipher)".to_owned());
        assert_eq!(auto.rung(), Some(off));
        auto.wish_for(Some(Kind::Auto), "asked for").unwrap();
        assert!(auto.is_for_kernel());
        let kernel = set(Kind::Kernel, FITS);
        kernel.refuse_move("no");
        assert!(kernel.kernel() && kernel.rung().is_none());
        let user = set(Kind::User, FITS);
        assert!(!user.is_for_kernel() && user.rung().is_none());
        // This process has no profile.
        let auto = set(Kind::Auto, FITS);
        assert!(!auto.is_for_kernel() && auto.rung().is_some());
    }
}
