//! Tells whether one network owns a domain, so that names in it may have private addresses.

/// Top-level names that the Internet never delegates, and that private networks use.
const PRIVATE: [&str; 10] = [
    "corp",
    "home",
    "internal",
    "intra",
    "intranet",
    "lan",
    "local",
    "localdomain",
    "localnet",
    "private",
];

/// Labels below a country's domain under which its registry sells domains to everybody, as in `co.uk` and `com.au`.
/// Names of cities and regions (`tokyo.jp`) are left out: a complete list has 10,000 entries.
const REGISTRIES: [&str; 33] = [
    "ac", "asso", "biz", "cci", "co", "com", "ed", "edu", "firm", "gen", "go", "gob", "gouv",
    "gov", "govt", "gv", "ind", "info", "int", "ltd", "mil", "ne", "net", "nom", "nome", "or",
    "org", "plc", "police", "prd", "publ", "sch", "tm",
];

/// Countries in which networks own names of up to three letters, as in `abc.de`. Elsewhere such a name belongs to a
/// registry (`me.uk`, `adv.br`, `mi.it`, `ca.us`), or is too likely to.
const DIRECT: [&str; 15] = [
    "at", "be", "ch", "cz", "de", "dk", "es", "eu", "fi", "fr", "ie", "io", "lu", "nl", "pt",
];

/// Whether one network owns the domain. Anybody can register names under `com` or `co.uk`; such names must not lead
/// browsers of the LAN to addresses of the LAN (DNS rebinding).
pub(super) fn is_of_one_network(domain: &str) -> bool {
    let domain = domain.trim_end_matches('.').to_ascii_lowercase();
    let labels: Vec<&str> = domain.split('.').collect();
    let is_label = |label: &&str| {
        let fits = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_');
        !label.is_empty() && label.bytes().all(fits)
    };
    if !labels.iter().all(is_label) {
        return false;
    }
    match labels.as_slice() {
        [] => false,
        [.., top] if PRIVATE.contains(top) => true,
        [_] => false,
        [second, top] if top.len() == 2 => {
            !REGISTRIES.contains(second) && (second.len() > 3 || DIRECT.contains(top))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_under_which_everybody_has_names_are_no_networks_own() {
        for domain in [
            "corp.example",
            "Example.COM.",
            "example.co.uk",
            "abc.de",
            "lan",
            "corp",
            "office.local",
            "home.arpa",
            "10.in-addr.arpa",
            "_tcp.example.org",
        ] {
            assert!(is_of_one_network(domain), "{domain}");
        }
        for domain in [
            "",
            ".",
            "..",
            "com",
            "org.",
            "DE",
            "co.uk",
            "COM.au",
            "or.jp",
            "gouv.fr",
            ".com",
            "a..b",
            "a/b.c",
            "*.com",
            "me.uk",
            "nhs.uk",
            "adv.br",
            "id.au",
            "gv.at",
            "police.uk",
        ] {
            assert!(!is_of_one_network(domain), "{domain}");
        }
    }
}
