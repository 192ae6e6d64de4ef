//! The page itself.

/// The page, compressed by gzip (RFC 1952), which every browser reads. There is no uncompressed form.
pub const PAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/page.html.gz"));

/// The page's Content-Security-Policy: it may run its own script and style, and ask its own server.
pub const POLICY: &str = include_str!(concat!(env!("OUT_DIR"), "/policy.txt"));

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn page_is_small_and_whole() {
        let source = include_str!("../page/page.html");
        assert!(source.len() < 60_000, "{}", source.len());
        let mut text = String::new();
        let mut reader = flate2::read::GzDecoder::new(PAGE);
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, source);
    }

    /// The policy would refuse it, and a router may have no Internet access.
    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        let source = include_str!("../page/page.html");
        for (place, _) in source.match_indices("http") {
            let address = source[place..].split('"').next().unwrap();
            assert_eq!(address, "http://www.w3.org/2000/svg");
        }
        assert!(!source.contains("style=") && !source.contains("onclick="));
        assert!(!source.contains("innerHTML"));
        assert_eq!(POLICY.matches("'sha256-").count(), 2, "{POLICY}");
    }

    /// A reason without words would appear under its name in the status document.
    #[test]
    fn each_reason_for_drops_has_words() {
        let page = include_str!("../page/page.html");
        let reasons = include_str!("../../../docs/status.md");
        let (_, reasons) = reasons.split_once("## Drops and refusals").unwrap();
        let (reasons, _) = reasons.split_once("`refused` counts").unwrap();
        let (_, page) = page.split_once("const DROPS = {").unwrap();
        let (page, _) = page.split_once("};").unwrap();
        let is_name = |it: &&str| it.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
        let names = reasons.split('`').skip(1).step_by(2).filter(is_name);
        let names: Vec<&str> = names.filter(|it| *it != "shaper").collect();
        assert!(names.len() > 30, "{names:?}");
        for name in names {
            assert!(page.contains(&format!(" {name}: \"")), "{name}");
        }
    }
}
