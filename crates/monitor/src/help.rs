//! Pages of the manual that the page links to. Packages contain no other pages.

/// Each page's name, and its text, compressed by gzip.
pub const PAGES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/help.rs"));

/// The page of this name.
#[must_use]
pub fn page(name: &str) -> Option<&'static [u8]> {
    let mut pages = PAGES.iter();
    pages.find(|it| it.0 == name).map(|it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each link leads to a page of the manual, and each page has a link.
    #[test]
    fn links_lead_to_pages() {
        let source = include_str!("../page/page.html");
        let links = source.split("href=\"/help/").skip(1);
        let mut links: Vec<&str> = links.filter_map(|it| it.split('"').next()).collect();
        links.sort_unstable();
        let mut names: Vec<&str> = PAGES.iter().map(|it| it.0).collect();
        names.sort_unstable();
        assert_eq!(links, names);
        let size: usize = PAGES.iter().map(|it| it.1.len()).sum();
        assert!(size < 12_000, "{size}");
        assert!(!source.contains("docs/"), "packages have no docs/");
        assert!(page("uplinks").is_some() && page("../page").is_none());
    }
}
