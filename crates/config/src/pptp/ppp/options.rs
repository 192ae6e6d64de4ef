//! Treatment of each pppd option.

use zeroize::Zeroizing;

use super::wanted::{
    Common, HONOURED, Judged, OfClient, OfServer, honoured, ignored, put, refused,
};
use crate::pptp::{Auth, values};
use crate::report::Verdict;
use crate::types::{decimal, is_ifname};

/// Treatment of an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// The option has its effect.
    Taken(Taken),
    /// The option's argument is a file with further options.
    File,
    /// The option's argument is a file with further options in the directory of client files.
    Call,
    /// The option has no effect here, which is harmless for this reason.
    Nothing(&'static str),
    /// The option requests something unsupported.
    Refused(&'static str),
}

/// Effect of an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// Settings of both ends.
    Both(fn(&mut Common, &str) -> Judged),
    /// Settings of a client only.
    Client(SetClient),
    /// Settings of a server only.
    Server(SetServer),
    /// Settings that differ between client and server.
    Each(SetClient, SetServer),
}

type SetClient = fn(&mut OfClient, &str) -> Judged;
type SetServer = fn(&mut OfServer, &str) -> Judged;

/// An option: name, number of values, treatment.
type Row = (&'static str, usize, Meaning);

use Meaning::{Call, File, Nothing, Refused};

const fn both(set: fn(&mut Common, &str) -> Judged) -> Meaning {
    Meaning::Taken(Taken::Both(set))
}

const fn client(set: SetClient) -> Meaning {
    Meaning::Taken(Taken::Client(set))
}

const fn server(set: SetServer) -> Meaning {
    Meaning::Taken(Taken::Server(set))
}

const fn each(client: SetClient, server: SetServer) -> Meaning {
    Meaning::Taken(Taken::Each(client, server))
}

const WINDOWS: &str = "WINS name servers are not supported";
const ONE_LINK: &str = "PPTP uses a single link";
const HEADERS: &str = "headers are shortened only if both ends agree";
const BACKGROUND: &str = "use --daemon to run in the background";
const HOST: &str = "the kernel's settings are not changed";
const NEVER_LOGGED: &str = "passwords are never logged";
const LINE: &str = "PPTP uses no serial line";
const FRAMES: &str = "not needed: GRE carries whole frames";
const COMPRESSION: &str = "packets are never compressed";
const ROUTES: &str = "not needed: a default route is set as two half-routes, which take precedence over other default \
                      routes";
const FIRST: &str = "the client always sends first, as servers expect";
const IPV4: &str = "the tunnel carries only IPv4";
const LOGS: &str = "set logging with -v and --log FILE";
const LASTING: &str = "the tunnel always reconnects until it is stopped, after pauses of 1 to 30 s";
const TIMES: &str = "requests use the timers of RFC 1661, echoes those that PPTP servers expect";
const SCRIPTS: &str = "scripts of /etc/ppp do not run";
const ADDRESSES: &str = "the server assigns the addresses";
const COMMAND: &str = "it runs another program; remove the line, or keep using pppd";
const PROVES: &str =
    "MS-CHAPv2 always makes the server prove that it knows the password; write noauth instead";

/// A login method other than MS-CHAPv2.
const LOGIN: Meaning = each(
    |_, _| refused(PROVES),
    |_, _| refused("clients must log in with MS-CHAPv2; write require-mschap-v2"),
);

fn text(slot: &mut Option<String>, value: &str) -> Judged {
    *slot = Some(value.to_owned());
    HONOURED
}

const fn set(flag: &mut bool, on: bool) -> Judged {
    *flag = on;
    HONOURED
}

fn bits(common: &mut Common, bits: u8) -> Judged {
    common.bits.push(bits);
    HONOURED
}

fn refuse(common: &mut Common, auth: Auth) -> Judged {
    common.refused.push(auth);
    HONOURED
}

/// All known options.
const OPTIONS: &[Row] = &[
    ("pty", 1, client(OfClient::set_pty)),
    (
        "plugin",
        1,
        client(|_, v| match v.rsplit('/').next() {
            Some("pptp.so") => HONOURED,
            _ => refused("plugins of pppd do not run here; remove the line, or keep using pppd"),
        }),
    ),
    (
        "pptp_server",
        1,
        client(|it, v| put(&mut it.host, values::server(v).map(Some))),
    ),
    (
        "name",
        1,
        each(|it, v| text(&mut it.name, v), |it, v| text(&mut it.name, v)),
    ),
    ("user", 1, client(|it, v| text(&mut it.user, v))),
    ("remotename", 1, client(|it, v| text(&mut it.remote, v))),
    (
        "password",
        1,
        client(|it, v| {
            it.password = Some(Zeroizing::new(v.to_owned()));
            HONOURED
        }),
    ),
    ("file", 1, File),
    ("call", 1, Call),
    (
        "require-mppe",
        0,
        both(|it, _| {
            it.required = true;
            honoured("with 128-bit keys")
        }),
    ),
    ("mppe", 1, both(Common::set_mppe)),
    ("require-mppe-40", 0, both(|it, _| bits(it, 40))),
    ("require-mppe-128", 0, both(|it, _| bits(it, 128))),
    ("nomppe", 0, both(|it, _| set(&mut it.none, true))),
    (
        "nomppe-40",
        0,
        both(|it, _| {
            it.bits.retain(|&bits| bits != 40);
            HONOURED
        }),
    ),
    (
        "nomppe-128",
        0,
        both(|_, _| {
            refused("only 40-bit keys would be left, which are quickly broken; remove the line")
        }),
    ),
    (
        "nomppe-stateful",
        0,
        both(|it, _| set(&mut it.stateful, false)),
    ),
    (
        "mppe-stateful",
        0,
        both(|it, _| set(&mut it.stateful, true)),
    ),
    ("refuse-pap", 0, both(|it, _| refuse(it, Auth::Pap))),
    ("refuse-chap", 0, both(|it, _| refuse(it, Auth::Chap))),
    ("refuse-mschap", 0, both(|_, _| HONOURED)),
    (
        "refuse-mschap-v2",
        0,
        both(|it, _| refuse(it, Auth::MsChapV2)),
    ),
    ("refuse-eap", 0, both(|_, _| HONOURED)),
    ("require-pap", 0, LOGIN),
    ("require-chap", 0, LOGIN),
    ("require-mschap", 0, LOGIN),
    (
        "require-mschap-v2",
        0,
        each(|_, _| refused(PROVES), |_, _| HONOURED),
    ),
    ("require-eap", 0, LOGIN),
    ("auth", 0, each(|_, _| refused(PROVES), |_, _| HONOURED)),
    (
        "noauth",
        0,
        each(
            |_, _| honoured("MS-CHAPv2 makes the server prove that it knows the password anyway"),
            |_, _| {
                refused("clients must log in, as their keys come from the login; remove the line")
            },
        ),
    ),
    ("mtu", 1, both(Common::set_mtu)),
    ("mru", 1, both(Common::set_mtu)),
    (
        "defaultroute",
        0,
        client(|it, _| set(&mut it.default_route, true)),
    ),
    (
        "nodefaultroute",
        0,
        each(|it, _| set(&mut it.default_route, false), |_, _| HONOURED),
    ),
    (
        "replacedefaultroute",
        0,
        client(|it, _| set(&mut it.default_route, true)),
    ),
    ("usepeerdns", 0, client(|it, _| set(&mut it.dns, true))),
    (
        "ms-dns",
        1,
        server(|it, v| match values::ipv4(v) {
            Ok(server) => {
                it.dns.push(server);
                HONOURED
            }
            Err(fault) => (Verdict::Refused, fault.into()),
        }),
    ),
    (
        "unit",
        1,
        both(|it, v| {
            let number = decimal(v).filter(|it| *it < 10_000);
            it.set_interface(number.map(|_| format!("ppp{v}")))
        }),
    ),
    (
        "ifname",
        1,
        both(|it, v| it.set_interface(is_ifname(v).then(|| v.to_owned()))),
    ),
    ("noccp", 0, both(|it, _| set(&mut it.no_ccp, true))),
    (
        "proxyarp",
        0,
        server(|_, _| {
            ignored(
                "Millrace does not answer ARP for clients; if their addresses are in the LAN's network, switch on \
                 net.ipv4.conf.LAN.proxy_arp, else remove the line",
            )
        }),
    ),
    ("ms-wins", 1, Nothing(WINDOWS)),
    (
        "noproxyarp",
        0,
        Nothing("Millrace never answers ARP for the other end"),
    ),
    ("noreplacedefaultroute", 0, Nothing(ROUTES)),
    ("defaultroute-metric", 1, Nothing(ROUTES)),
    ("defaultroute6", 0, Nothing(IPV4)),
    ("nodefaultroute6", 0, Nothing(IPV4)),
    ("ipv6cp-use-ipaddr", 0, Nothing(IPV4)),
    ("ipv6cp-use-persistent", 0, Nothing(IPV4)),
    ("ipv6cp-accept-local", 0, Nothing(IPV4)),
    ("ipv6cp-accept-remote", 0, Nothing(IPV4)),
    ("ipv6cp-noremote", 0, Nothing(IPV4)),
    ("ipv6cp-nosend", 0, Nothing(IPV4)),
    ("ipv6cp-restart", 1, Nothing(IPV4)),
    ("ipv6cp-max-configure", 1, Nothing(IPV4)),
    ("ipv6cp-max-failure", 1, Nothing(IPV4)),
    ("ipv6cp-max-terminate", 1, Nothing(IPV4)),
    ("silent", 0, Nothing(FIRST)),
    ("passive", 0, Nothing(FIRST)),
    ("connect-delay", 1, Nothing(LINE)),
    ("cdtrcts", 0, Nothing(LINE)),
    ("nodtrcts", 0, Nothing(LINE)),
    ("stop-bits", 1, Nothing(LINE)),
    ("notty", 0, Nothing(LINE)),
    ("noendpoint", 0, Nothing(ONE_LINK)),
    ("nompshortseq", 0, Nothing(ONE_LINK)),
    ("usepeerwins", 0, Nothing(WINDOWS)),
    ("remotenumber", 1, Nothing(SCRIPTS)),
    ("ktune", 0, Nothing(HOST)),
    ("noktune", 0, Nothing(HOST)),
    ("up_sdnotify", 0, Nothing("a supervisor is always notified")),
    ("pap-timeout", 1, Nothing(TIMES)),
    ("pap-restart", 1, Nothing(TIMES)),
    ("pap-max-authreq", 1, Nothing(TIMES)),
    ("chap-timeout", 1, Nothing(TIMES)),
    ("lcp-rtt-file", 1, Nothing(LOGS)),
    ("ipcp-max-failure", 1, Nothing(TIMES)),
    ("ipcp-max-terminate", 1, Nothing(TIMES)),
    ("ccp-restart", 1, Nothing(TIMES)),
    ("ccp-max-configure", 1, Nothing(TIMES)),
    ("ccp-max-terminate", 1, Nothing(TIMES)),
    ("persist", 0, Nothing(LASTING)),
    ("nopersist", 0, Nothing(LASTING)),
    ("maxfail", 1, Nothing(LASTING)),
    ("holdoff", 1, Nothing(LASTING)),
    ("demand", 0, Nothing("the tunnel always connects at once")),
    ("idle", 1, Nothing(LASTING)),
    ("maxconnect", 1, Nothing(LASTING)),
    ("child-timeout", 1, Nothing(LASTING)),
    ("ipparam", 1, Nothing(SCRIPTS)),
    (
        "linkname",
        1,
        Nothing("not needed: the status shows the interface's name"),
    ),
    ("ip-up-script", 1, Refused(COMMAND)),
    ("ip-down-script", 1, Refused(COMMAND)),
    ("connect", 1, Refused(COMMAND)),
    ("disconnect", 1, Refused(COMMAND)),
    ("init", 1, Refused(COMMAND)),
    ("welcome", 1, Refused(COMMAND)),
    ("lock", 0, Nothing(LINE)),
    ("nolock", 0, Nothing(LINE)),
    ("asyncmap", 1, Nothing(FRAMES)),
    ("default-asyncmap", 0, Nothing(FRAMES)),
    ("escape", 1, Nothing(FRAMES)),
    ("receive-all", 0, Nothing(FRAMES)),
    ("sync", 0, Nothing(FRAMES)),
    ("crtscts", 0, Nothing(LINE)),
    ("nocrtscts", 0, Nothing(LINE)),
    ("xonxoff", 0, Nothing(LINE)),
    ("modem", 0, Nothing(LINE)),
    ("local", 0, Nothing(LINE)),
    ("noaccomp", 0, Nothing(HEADERS)),
    ("nopcomp", 0, Nothing(HEADERS)),
    (
        "default-mru",
        0,
        Nothing("both ends always negotiate the size"),
    ),
    ("nomagic", 0, Nothing("looped links are always detected")),
    ("novj", 0, Nothing(COMPRESSION)),
    ("novjccomp", 0, Nothing(COMPRESSION)),
    ("vj-max-slots", 1, Nothing(COMPRESSION)),
    ("nobsdcomp", 0, Nothing(COMPRESSION)),
    ("bsdcomp", 1, Nothing(COMPRESSION)),
    ("nodeflate", 0, Nothing(COMPRESSION)),
    ("deflate", 1, Nothing(COMPRESSION)),
    ("nopredictor1", 0, Nothing(COMPRESSION)),
    ("predictor1", 0, Nothing(COMPRESSION)),
    ("nomppc", 0, Nothing(COMPRESSION)),
    ("noipv6", 0, Nothing(IPV4)),
    ("ipv6", 1, Nothing(IPV4)),
    ("+ipv6", 0, Nothing(IPV4)),
    ("noipx", 0, Nothing(IPV4)),
    (
        "noip",
        0,
        Refused("the tunnel carries only IPv4; remove the line"),
    ),
    ("noipdefault", 0, Nothing(ADDRESSES)),
    ("ipcp-accept-local", 0, Nothing(ADDRESSES)),
    ("ipcp-accept-remote", 0, Nothing(ADDRESSES)),
    ("noremoteip", 0, Nothing(ADDRESSES)),
    ("nomultilink", 0, Nothing(ONE_LINK)),
    ("nomp", 0, Nothing(ONE_LINK)),
    (
        "multilink",
        0,
        Refused("PPTP uses a single link; remove the line"),
    ),
    ("lcp-echo-interval", 1, Nothing(TIMES)),
    ("lcp-echo-failure", 1, Nothing(TIMES)),
    ("lcp-echo-adaptive", 0, Nothing(TIMES)),
    ("lcp-restart", 1, Nothing(TIMES)),
    ("lcp-max-configure", 1, Nothing(TIMES)),
    ("lcp-max-failure", 1, Nothing(TIMES)),
    ("lcp-max-terminate", 1, Nothing(TIMES)),
    ("ipcp-restart", 1, Nothing(TIMES)),
    ("ipcp-max-configure", 1, Nothing(TIMES)),
    ("chap-restart", 1, Nothing(TIMES)),
    ("chap-interval", 1, Nothing(TIMES)),
    ("chap-max-challenge", 1, Nothing(TIMES)),
    ("debug", 0, Nothing(LOGS)),
    ("kdebug", 1, Nothing(LOGS)),
    ("dump", 0, Nothing(LOGS)),
    ("dryrun", 0, Refused("use `millrace check` instead")),
    ("logfd", 1, Nothing(LOGS)),
    ("nologfd", 0, Nothing(LOGS)),
    ("logfile", 1, Nothing(LOGS)),
    ("hide-password", 0, Nothing(NEVER_LOGGED)),
    ("show-password", 0, Nothing(NEVER_LOGGED)),
    ("nodetach", 0, Nothing(BACKGROUND)),
    ("updetach", 0, Nothing(BACKGROUND)),
    (
        "login",
        0,
        Refused("users come from chap-secrets; remove the line"),
    ),
    (
        "allow-ip",
        1,
        Nothing("clients may use only the addresses that the server assigns"),
    ),
    (
        "chapms-strip-domain",
        0,
        Nothing("a domain before a user's name is always ignored"),
    ),
    (
        "netmask",
        1,
        Nothing("not needed: a point-to-point link has no netmask"),
    ),
    ("set", 1, Nothing(SCRIPTS)),
    ("unset", 1, Nothing(SCRIPTS)),
];

/// Other spellings, each with the usual one.
const SPELLINGS: &[(&str, &str)] = &[
    ("+mppe", "require-mppe"),
    ("+mppe-40", "require-mppe-40"),
    ("+mppe-128", "require-mppe-128"),
    ("-mppe", "nomppe"),
    ("-pap", "refuse-pap"),
    ("-chap", "refuse-chap"),
    ("-mschap", "refuse-mschap"),
    ("-mschap-v2", "refuse-mschap-v2"),
    ("+pap", "require-pap"),
    ("+chap", "require-chap"),
    ("+mschap", "require-mschap"),
    ("+mschap-v2", "require-mschap-v2"),
    ("-detach", "nodetach"),
    ("-vj", "novj"),
    ("-vjccomp", "novjccomp"),
    ("-bsdcomp", "nobsdcomp"),
    ("-ccp", "noccp"),
    ("-defaultroute", "nodefaultroute"),
    ("-ip", "noip"),
    ("default-asyncmap", "default-asyncmap"),
    ("interface", "ifname"),
];

/// Finds an option by any of its spellings.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    let usual = SPELLINGS.iter().find(|(other, _)| *other == name);
    let name = usual.map_or(name, |(_, usual)| usual);
    OPTIONS.iter().find(|(known, ..)| *known == name)
}

/// Options that weaken security. Hints never name them; a user who wants one must know its name.
pub(super) const WEAKENING: &[&str] = &[
    "nomppe",
    "nomppe-128",
    "require-mppe-40",
    "mppe-stateful",
    "noccp",
    "noauth",
    "require-pap",
    "require-chap",
    "require-mschap",
    "refuse-mschap-v2",
    "login",
    "show-password",
];

/// The names that a hint may suggest.
pub(super) fn names() -> Vec<&'static str> {
    let names = OPTIONS.iter().map(|(name, ..)| *name);
    names.filter(|name| !WEAKENING.contains(name)).collect()
}
