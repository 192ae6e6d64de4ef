//! The places of the protocol where AmneziaWG differs from WireGuard. `plain.rs` stands in for this file in a program
//! without the feature `amnezia`.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crypto::header_key::{MASK_LEN, NONCE_LEN};
use plane::{Class, SessionName};

pub(crate) use crate::amnezia::{Draws, Junk, Timings};
use crate::amnezia::{Kind, Message, Profile, Settings, TRIED_LEN_MAX};
use crate::cookie::{Checker, Jar};
use crate::data::{DATA_HEADER_LEN, DATA_MIN_LEN};
use crate::device::Device;
use crate::message::{TYPE_COOKIE_REPLY, TYPE_INITIATION, TYPE_RESPONSE, kind};
use crate::output::{Datagram, Output};

/// The form of datagrams that a device sends and receives, and its times.
#[derive(Debug, Default)]
pub(crate) struct Disguise {
    profile: Option<Arc<Profile>>,
    pub(crate) timings: Timings,
}

impl Disguise {
    /// Whether a source under load gets a cookie.
    pub(crate) fn sends_cookies(&self) -> bool {
        let no_cookies = |profile: &Arc<Profile>| profile.settings().no_cookies;
        !self.profile.as_ref().is_some_and(no_cookies)
    }

    /// Signs a handshake message and makes its datagram.
    pub(crate) fn signed<const N: usize>(
        &self,
        mut message: [u8; N],
        jar: &mut Jar,
        now: Instant,
    ) -> Datagram {
        let plain = message;
        let kind = self.put_type(&mut message);
        jar.sign(&mut message, now);
        self.dressed(plain, &message, kind)
    }

    /// Makes the datagram of a message without MACs.
    pub(crate) fn unsigned<const N: usize>(&self, mut message: [u8; N]) -> Datagram {
        let plain = message;
        let kind = self.put_type(&mut message);
        self.dressed(plain, &message, kind)
    }

    /// Puts the drawn type into a message. Returns the message's kind.
    fn put_type(&self, message: &mut [u8]) -> Kind {
        let kind = match kind(message) {
            Some(TYPE_INITIATION) => Kind::Initiation,
            Some(TYPE_RESPONSE) => Kind::Response,
            _ => Kind::Cookie,
        };
        if let (Some(profile), Some(front)) = (&self.profile, message.first_chunk_mut()) {
            *front = profile.draw(kind).to_le_bytes();
        }
        kind
    }

    fn dressed<const N: usize>(&self, plain: [u8; N], message: &[u8; N], kind: Kind) -> Datagram {
        match &self.profile {
            None => (*message).into(),
            Some(profile) => Datagram::dressed(plain.into(), profile.dress(kind, message)),
        }
    }

    /// Puts junk before an initiation.
    pub(crate) fn precede(
        &self,
        datagram: Datagram,
        junk: &mut Junk,
        now: Instant,
        wall: SystemTime,
    ) -> Datagram {
        let Some(profile) = &self.profile else {
            return datagram;
        };
        let unix = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        datagram.after(junk.next(profile.settings(), now, unix.as_secs()))
    }

    /// The message in a datagram that is not a data packet, with WireGuard's type, and the bytes that its MACs cover.
    /// If several types fit, the one whose mac1 is right counts, or else a cookie reply, which has none.
    pub(crate) fn message(&self, datagram: &[u8], checker: Option<&Checker>) -> Option<Undressed> {
        let profile = self.profile.as_ref()?;
        let fits = profile.fits(datagram);
        let mut found = None;
        for kind in Kind::HANDSHAKE.into_iter().filter(|kind| fits.has(*kind)) {
            let Some(signed) = profile.undress(kind, datagram) else {
                continue;
            };
            let plain = match kind {
                Kind::Initiation => TYPE_INITIATION,
                Kind::Response => TYPE_RESPONSE,
                Kind::Cookie | Kind::Data => TYPE_COOKIE_REPLY,
            };
            let mac1_valid =
                kind != Kind::Cookie && checker.is_some_and(|it| it.mac1_valid(signed.as_bytes()));
            if mac1_valid || found.is_none() || kind == Kind::Cookie {
                found = Some(Undressed {
                    message: signed.with_type(plain),
                    is_exact: datagram.len() == profile.prefix(kind) + signed.as_bytes().len(),
                    signed,
                    mac1_valid,
                });
            }
            if mac1_valid {
                break;
            }
        }
        found
    }

    pub(crate) const fn is_plain(&self) -> bool {
        self.profile.is_none()
    }

    pub(crate) const fn profile(&self) -> Option<&Arc<Profile>> {
        self.profile.as_ref()
    }

    /// Whether handshake messages have trailers.
    pub(crate) fn has_trailers(&self) -> bool {
        let profile = self.profile.as_ref();
        profile.is_some_and(|profile| profile.settings().trailers)
    }
}

/// A handshake message that a datagram held.
pub(crate) struct Undressed {
    /// The message with WireGuard's type.
    pub(crate) message: Message,
    /// The message with the type that was sent.
    pub(crate) signed: Message,
    /// The datagram ends where the message ends.
    pub(crate) is_exact: bool,
    /// Whether its mac1 is right; a cookie reply has none.
    pub(crate) mac1_valid: bool,
}

impl Device {
    /// Speaks AmneziaWG by this profile from now on, or plain WireGuard.
    ///
    /// Sessions end if the datagrams of before and after differ, and begin anew where there were keys or a handshake.
    pub fn set_profile(
        &mut self,
        profile: Option<Arc<Profile>>,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let settings = |profile: &Option<Arc<Profile>>| {
            let settings = profile.as_ref().map(|profile| profile.settings().clone());
            settings.unwrap_or_default()
        };
        let (old, new) = (settings(&self.disguise.profile), settings(&profile));
        let timings = Timings::new(&new);
        self.disguise = Disguise { profile, timings };
        if !old.same_wire(&new) {
            self.begin_anew(now, out);
        }
    }

    /// The settings of the device's profile; the default without one.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let profile = self.disguise.profile.as_ref();
        profile.map(|it| it.settings().clone()).unwrap_or_default()
    }
}

/// The form of one key's data packets, or of the datagrams that come in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Form(Option<Arc<Profile>>);

impl Form {
    /// Bytes in front of the header of a data packet.
    #[inline]
    pub(crate) fn prefix(&self) -> usize {
        self.0
            .as_ref()
            .map_or(0, |profile| profile.prefix(Kind::Data))
    }

    /// Whether packets look as WireGuard's do.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.0.is_none()
    }

    /// Writes the bytes before the sealed part of data packets. Does nothing in the plain form.
    pub(crate) fn write_heads(&self, memory: &mut [u8], receiver: u32, packets: &[plane::Packet]) {
        if let Some(profile) = &self.0 {
            profile.write_heads(memory, receiver, packets);
        }
    }

    /// The padded length of an inner packet; `None` if it is padded as in WireGuard.
    #[inline]
    pub(crate) fn padded(&self, len: usize, mtu: usize) -> Option<usize> {
        self.0.as_ref()?.padded(len, mtu)
    }

    /// The class of a datagram, whose header is hidden under `mask` if that is known; `None` in the plain form.
    #[inline]
    fn classify(
        &self,
        forms: &Forms,
        datagram: &[u8],
        mask: Option<&[u8; MASK_LEN]>,
    ) -> Option<Class> {
        let profile = self.0.as_ref()?;
        let fits = profile.fits_under(datagram, mask);
        Some(if fits.has(Kind::Data) {
            let (receiver, counter, header) = profile.data(datagram, &fits);
            Class::Data {
                session: SessionName::Index(receiver),
                counter,
                header,
                or_control: fits.handshake(),
            }
        } else if fits.handshake() {
            Class::Control
        } else if let Some((receiver, counter)) = profile.bare_keepalive(datagram) {
            forms.bare.store(receiver, Ordering::Relaxed);
            Class::Data {
                session: SessionName::Index(receiver),
                counter,
                header: DATA_HEADER_LEN,
                or_control: false,
            }
        } else {
            forms.rejected(datagram)
        })
    }

    /// Whether the datagram may be a data packet for the session `receiver`; `None` in the plain form.
    pub(crate) fn is_data_for(&self, datagram: &[u8], receiver: u32) -> Option<bool> {
        let profile = self.0.as_ref()?;
        let fits = profile.fits(datagram);
        Some(fits.has(Kind::Data) && profile.data(datagram, &fits).0 == receiver)
    }
}

/// The forms that an interface's wire and its device share.
pub(crate) type SharedForms = Arc<Forms>;

/// The form of an interface's datagrams, which all clones of a protocol share.
#[derive(Debug, Default)]
pub(crate) struct Forms {
    generation: AtomicU32,
    /// Bytes in front of a data packet.
    prefix: AtomicUsize,
    form: RwLock<Form>,
    /// Number of rejected datagrams that control still wants to try.
    samples: AtomicU32,
    /// The session that the last keepalive without `S4` named; 0 for none. Not authenticated.
    bare: AtomicU32,
}

impl Forms {
    pub(crate) fn current(&self) -> Form {
        let form = self.form.read().unwrap_or_else(PoisonError::into_inner);
        form.clone()
    }

    fn set(&self, profile: Option<Arc<Profile>>) {
        let mut form = self.form.write().unwrap_or_else(PoisonError::into_inner);
        form.0 = profile;
        self.prefix.store(form.prefix(), Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Bytes in front of a data packet.
    pub(crate) fn prefix(&self) -> usize {
        self.prefix.load(Ordering::Relaxed)
    }

    /// The class of a datagram that is none of this form: control tries some to see how the sender's settings differ.
    #[cold]
    pub(crate) fn rejected(&self, datagram: &[u8]) -> Class {
        let is_tried = (DATA_MIN_LEN..=TRIED_LEN_MAX).contains(&datagram.len());
        let take = || {
            let (order, less) = (Ordering::Relaxed, |left: u32| left.checked_sub(1));
            self.samples.fetch_update(order, order, less).is_ok()
        };
        if is_tried && take() {
            Class::Control
        } else {
            Class::Malformed
        }
    }

    /// Whether the form was ever set.
    #[inline]
    pub(crate) fn were_set(&self) -> bool {
        self.generation.load(Ordering::Relaxed) > 0
    }
}

/// Datagrams of a receive whose masks are computed at once; those of further ones are computed singly.
const AHEAD_MAX: usize = 256;

/// A worker's copy of the form, read anew only when the form has changed; and the masks of a receive's datagrams.
#[derive(Debug, Default)]
pub struct Reader {
    generation: u32,
    form: Form,
    /// The first bytes of the datagrams, and the masks of their headers.
    nonces: Vec<[u8; NONCE_LEN]>,
    masks: Vec<[u8; MASK_LEN]>,
    /// The next datagram's place among them.
    next: Cell<usize>,
}

impl Reader {
    #[inline]
    pub(crate) fn read(&mut self, forms: &Forms) {
        let generation = forms.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.form = forms.current();
        }
    }

    /// Computes the masks of datagrams, which are classified in this order. Does nothing without a key.
    #[inline]
    pub(crate) fn look_ahead<'a>(&mut self, datagrams: impl Iterator<Item = &'a [u8]>) {
        self.nonces.clear();
        let Some(key) = self.form.0.as_ref().and_then(|profile| profile.header()) else {
            return;
        };
        let nonces = datagrams.filter_map(|datagram| datagram.first_chunk().copied());
        self.nonces.extend(nonces.take(AHEAD_MAX));
        self.masks.resize(self.nonces.len(), [0; MASK_LEN]);
        key.masks(&self.nonces, &mut self.masks);
        self.next.set(0);
    }

    /// The class of a datagram; `None` in the plain form.
    #[inline]
    pub(crate) fn classify(&self, forms: &Forms, datagram: &[u8]) -> Option<Class> {
        let at = self.next.get();
        let mask = match (self.nonces.get(at), datagram.first_chunk()) {
            (Some(expected), Some(nonce)) if expected == nonce => {
                self.next.set(at + 1);
                self.masks.get(at)
            }
            // The profile computes the mask of this datagram.
            _ => None,
        };
        self.form.classify(forms, datagram, mask)
    }
}

impl crate::WireGuard {
    /// Gives data packets this form from the next session on, and takes in datagrams of this form from now on. Tell
    /// the [`Device`] first: its sessions end by that.
    pub fn set_profile(&self, profile: Option<Arc<Profile>>) {
        self.forms().set(profile);
    }

    /// Classifies up to `count` rejected datagrams as messages from now on, for [`Device::diagnose`].
    pub fn sample(&self, count: u32) {
        self.forms().samples.store(count, Ordering::Relaxed);
    }

    /// Takes our index of the session that a keepalive without `S4` named since the last call. Anyone may have sent it.
    pub fn take_bare_keepalive(&self) -> Option<u32> {
        let bare = &self.forms().bare;
        if bare.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(bare.swap(0, Ordering::Relaxed)).filter(|index| *index != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataHeader;
    use crate::message::INITIATION_LEN;
    use proptest::prelude::*;

    const KEY: (&str, &str) = (
        "HeaderProtectionKey",
        "4041424344454647484950515253545556575859606162636465666768697071",
    );
    const SIZES: [(&str, &str); 4] = [("S1", "30"), ("S2", "40"), ("S3", "25"), ("S4", "17")];
    const TYPES: [(&str, &str); 4] = [
        ("H1", "5-1500000000"),
        ("H2", "1500000001-2500000000"),
        ("H3", "2500000001-3000000000"),
        ("H4", "3000000001-4294967295"),
    ];

    fn profile(lines: &[&[(&str, &str)]]) -> Arc<Profile> {
        let mut settings = Settings::default();
        for (name, value) in lines.concat() {
            settings.set(name, value).unwrap();
        }
        Profile::new(settings).unwrap().unwrap()
    }

    fn classify(profile: &Arc<Profile>, datagram: &[u8]) -> Class {
        let form = Form(Some(Arc::clone(profile)));
        form.classify(&Forms::default(), datagram, None).unwrap()
    }

    #[test]
    fn a_keepalive_without_s4_is_one_unless_a_key_hides_headers() {
        let header = DataHeader {
            receiver: 7,
            counter: 1 << 40,
        };
        let keepalive = [&header.emit()[..], &[9; 16]].concat();
        let expected = Class::Data {
            session: SessionName::Index(7),
            counter: 1 << 40,
            header: DATA_HEADER_LEN,
            or_control: false,
        };
        assert_eq!(classify(&profile(&[&SIZES]), &keepalive), expected);
        let longer = [&keepalive[..], &[0]].concat();
        for (profile, bytes) in [
            (profile(&[&SIZES]), &longer),
            (profile(&[&SIZES, &[KEY]]), &keepalive),
            (profile(&[&SIZES, &TYPES]), &keepalive),
        ] {
            assert_eq!(classify(&profile, bytes), Class::Malformed);
        }
    }

    #[test]
    fn plain_datagrams_are_nothing_to_an_interface_with_settings() {
        let profile = profile(&[&SIZES]);
        for (kind, len) in [(1, 148), (2, 92), (3, 64), (4, 48)] {
            let mut datagram = vec![0; len];
            datagram[0] = kind;
            assert_eq!(classify(&profile, &datagram), Class::Malformed);
        }
    }

    #[test]
    fn datagrams_of_a_receive_have_the_classes_that_each_has_alone() {
        let profile = profile(&[&SIZES, &[KEY]]);
        let count = AHEAD_MAX + 10;
        let (len, receiver) = (17 + DATA_HEADER_LEN + 20, 7);
        let mut memory = vec![0; count * len];
        let packets = (0..count).map(|at| plane::Packet {
            start: (at * len + 17 + DATA_HEADER_LEN) as u32,
            counter: at as u64,
            ..plane::Packet::default()
        });
        profile.write_heads(&mut memory, receiver, &packets.collect::<Vec<_>>());
        let mut datagrams: Vec<&[u8]> = memory.chunks(len).collect();
        for (at, counter) in [(0, 0), (100, 100), (count - 1, count as u64 - 1)] {
            let expected = Class::Data {
                session: SessionName::Index(receiver),
                counter,
                header: 17 + DATA_HEADER_LEN,
                or_control: false,
            };
            assert_eq!(classify(&profile, datagrams[at]), expected);
        }
        // Datagrams too short for a nonce, or for any message.
        datagrams.insert(5, &[1, 2, 3]);
        datagrams.insert(9, &[4; 20]);
        let mut reader = Reader {
            form: Form(Some(Arc::clone(&profile))),
            ..Reader::default()
        };
        reader.look_ahead(datagrams.iter().copied());
        for datagram in &datagrams {
            assert_eq!(
                reader.classify(&Forms::default(), datagram),
                Some(classify(&profile, datagram))
            );
        }
        assert_eq!(reader.next.get(), AHEAD_MAX, "the masks were used");
        // Other datagrams than those that were announced.
        reader.look_ahead(datagrams.iter().copied());
        for datagram in datagrams.iter().rev() {
            assert_eq!(
                reader.classify(&Forms::default(), datagram),
                Some(classify(&profile, datagram))
            );
        }
    }

    #[test]
    fn a_handshake_reaches_control_whatever_else_it_looks_like() {
        let profile = profile(&[&SIZES, &TYPES, &[("RandomTrailers", "on")]]);
        let mut both = 0;
        for _ in 0..200 {
            let mut message = [0; INITIATION_LEN];
            message[..4].copy_from_slice(&profile.draw(Kind::Initiation).to_le_bytes());
            let datagram = profile.dress(Kind::Initiation, &message);
            match classify(&profile, &datagram) {
                Class::Control => {}
                Class::Data { or_control, .. } => {
                    assert!(or_control);
                    both += 1;
                }
                Class::Malformed => panic!("{datagram:?}"),
            }
        }
        assert!(both > 0);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_class(bytes in prop::collection::vec(any::<u8>(), 0..300), key: bool) {
            let key: &[_] = if key { &[KEY] } else { &[] };
            let profile = profile(&[&SIZES, &TYPES, key, &[("RandomTrailers", "on")]]);
            if let Class::Data { header, .. } = classify(&profile, &bytes) {
                prop_assert!(header + 16 <= bytes.len());
            }
        }

        #[test]
        fn messages_come_out_as_they_went_in(at in 0..3_usize, byte: u8, key: bool, trailers: bool) {
            let key: &[_] = if key { &[KEY] } else { &[] };
            let on: &[_] = if trailers { &[("RandomTrailers", "on")] } else { &[] };
            let profile = profile(&[&SIZES, &TYPES, key, on]);
            let kind = Kind::HANDSHAKE[at];
            let mut message = vec![byte; [148, 92, 64][at]];
            message[..4].copy_from_slice(&profile.draw(kind).to_le_bytes());
            let datagram = profile.dress(kind, &message);
            prop_assert!(profile.fits(&datagram).has(kind));
            let undressed = profile.undress(kind, &datagram).unwrap();
            prop_assert_eq!(undressed.as_bytes(), message);
        }
    }
}
