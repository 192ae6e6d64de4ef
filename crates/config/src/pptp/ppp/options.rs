//! Treatment of each pppd option.

/// Treatment of an option.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Meaning {
    /// The importer uses the option.
    Taken,
    /// The option has no effect here, which is harmless for this reason.
    Nothing(&'static str),
    /// The option asks for something unsupported.
    Refused(&'static str),
}

/// An option: name, number of values, treatment.
type Row = (&'static str, usize, Meaning);

use Meaning::{Nothing, Refused, Taken};

const LINE: &str = "there is no serial line";
const FRAMES: &str = "GRE carries whole frames";
const COMPRESSION: &str = "packets are never compressed";
const ROUTES: &str = "a default route leads into the tunnel in two halves, whatever else there is";
const FIRST: &str = "the client speaks first, as servers expect";
const IPV4: &str = "the tunnel carries IPv4 only";
const LOGS: &str = "what is logged is said by -v and --log FILE";
const LASTING: &str =
    "the tunnel is called again until it is told to end, after pauses of 1 to 30 s";
const TIMES: &str = "requests have the times of RFC 1661, echoes those that PPTP's servers expect";
const SCRIPTS: &str = "no scripts of /etc/ppp run";
const ADDRESSES: &str = "the server says which addresses there are";
const COMMAND: &str = "it runs another program: leave it out, or stay with pppd";
const PROVES: &str = "with MS-CHAPv2 the server proves that it knows the password, always; ask for nothing else: noauth";

/// All known options.
const OPTIONS: &[Row] = &[
    ("pty", 1, Taken),
    ("plugin", 1, Taken),
    ("pptp_server", 1, Taken),
    ("name", 1, Taken),
    ("user", 1, Taken),
    ("remotename", 1, Taken),
    ("password", 1, Taken),
    ("file", 1, Taken),
    ("call", 1, Taken),
    ("require-mppe", 0, Taken),
    ("mppe", 1, Taken),
    ("require-mppe-40", 0, Taken),
    ("require-mppe-128", 0, Taken),
    ("nomppe", 0, Taken),
    ("nomppe-40", 0, Taken),
    ("nomppe-128", 0, Taken),
    ("nomppe-stateful", 0, Taken),
    ("mppe-stateful", 0, Taken),
    ("refuse-pap", 0, Taken),
    ("refuse-chap", 0, Taken),
    ("refuse-mschap", 0, Taken),
    ("refuse-mschap-v2", 0, Taken),
    ("refuse-eap", 0, Taken),
    ("require-pap", 0, Taken),
    ("require-chap", 0, Taken),
    ("require-mschap", 0, Taken),
    ("require-mschap-v2", 0, Taken),
    ("require-eap", 0, Taken),
    ("auth", 0, Taken),
    ("noauth", 0, Taken),
    ("mtu", 1, Taken),
    ("mru", 1, Taken),
    ("defaultroute", 0, Taken),
    ("nodefaultroute", 0, Taken),
    ("replacedefaultroute", 0, Taken),
    ("usepeerdns", 0, Taken),
    ("ms-dns", 1, Taken),
    ("unit", 1, Taken),
    ("ifname", 1, Taken),
    ("noccp", 0, Taken),
    ("proxyarp", 0, Taken),
    (
        "ms-wins",
        1,
        Nothing("no names of Windows before 2000 are served"),
    ),
    (
        "noproxyarp",
        0,
        Nothing("nothing is answered for the other end"),
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
    ("noendpoint", 0, Nothing("there is one link")),
    ("nompshortseq", 0, Nothing("there is one link")),
    (
        "usepeerwins",
        0,
        Nothing("no names of Windows before 2000 are served"),
    ),
    ("remotenumber", 1, Nothing(SCRIPTS)),
    ("ktune", 0, Nothing("the host's settings stay as they are")),
    (
        "noktune",
        0,
        Nothing("the host's settings stay as they are"),
    ),
    ("up_sdnotify", 0, Nothing("a supervisor is always told")),
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
    ("demand", 0, Nothing("the server is called at once")),
    ("idle", 1, Nothing(LASTING)),
    ("maxconnect", 1, Nothing(LASTING)),
    ("child-timeout", 1, Nothing(LASTING)),
    ("ipparam", 1, Nothing(SCRIPTS)),
    (
        "linkname",
        1,
        Nothing("the status has the interface's name"),
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
    (
        "noaccomp",
        0,
        Nothing("headers of LCP are shortened only where both ends agree"),
    ),
    (
        "nopcomp",
        0,
        Nothing("headers of LCP are shortened only where both ends agree"),
    ),
    ("default-mru", 0, Nothing("both ends agree on what fits")),
    (
        "nomagic",
        0,
        Nothing("a link that is its own other end is always looked for"),
    ),
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
        Refused("without IPv4 there would be nothing to carry"),
    ),
    ("noipdefault", 0, Nothing(ADDRESSES)),
    ("ipcp-accept-local", 0, Nothing(ADDRESSES)),
    ("ipcp-accept-remote", 0, Nothing(ADDRESSES)),
    ("noremoteip", 0, Nothing(ADDRESSES)),
    ("nomultilink", 0, Nothing("there is one link")),
    ("nomp", 0, Nothing("there is one link")),
    ("multilink", 0, Refused("there is one link: leave it out")),
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
    ("dryrun", 0, Refused("that is what millrace check does")),
    ("logfd", 1, Nothing(LOGS)),
    ("nologfd", 0, Nothing(LOGS)),
    ("logfile", 1, Nothing(LOGS)),
    ("hide-password", 0, Nothing("passwords are never logged")),
    ("show-password", 0, Nothing("passwords are never logged")),
    (
        "nodetach",
        0,
        Nothing("it goes into the background with --daemon"),
    ),
    (
        "updetach",
        0,
        Nothing("it goes into the background with --daemon"),
    ),
    (
        "login",
        0,
        Refused("users are those of chap-secrets: leave it out"),
    ),
    (
        "allow-ip",
        1,
        Nothing("clients have the addresses that they are given"),
    ),
    (
        "chapms-strip-domain",
        0,
        Nothing("a domain before the name of a user is passed over"),
    ),
    ("netmask", 1, Nothing("a link has two ends")),
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

/// The error for a client that asks the server to authenticate itself.
pub(super) const ASKS_SERVER: &str = PROVES;
