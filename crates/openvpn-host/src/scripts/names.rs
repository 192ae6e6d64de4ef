//! Names from a peer, sanitised for environments, log lines and file names.
//!
//! Control characters become underscores. OpenVPN's manual names narrower classes for common names and users, but
//! release 2.5 dropped them. A space in a name stays, because scripts and client files in use rely on it.

/// Replacement for a forbidden character.
const REPLACEMENT: char = '_';

fn remap(text: &str, permitted: impl Fn(char) -> bool) -> String {
    // One underscore per byte, as in stock.
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if permitted(c) {
            out.push(c);
        } else {
            out.extend(std::iter::repeat_n(REPLACEMENT, c.len_utf8()));
        }
    }
    out
}

/// Accepts every character but control characters, as stock OpenVPN does, which also accepts U+0080 to U+009F.
fn is_printable(c: char) -> bool {
    !c.is_control()
}

/// Sanitises a common name, a user's name or a certificate's subject.
pub fn name(text: &str) -> String {
    remap(text, is_printable)
}

/// Sanitises a password.
#[cfg(feature = "server")]
pub(crate) fn password(text: &str) -> zeroize::Zeroizing<String> {
    zeroize::Zeroizing::new(remap(text, is_printable))
}

/// Sanitises a variable's name to letters, digits and `_`.
pub(crate) fn variable(text: &str) -> String {
    remap(text, |c| c.is_ascii_alphanumeric() || c == '_')
}

/// Sanitises a variable's value to printable characters.
pub(crate) fn value(text: &str) -> String {
    remap(text, is_printable)
}

/// Returns a client's file name in the client configuration directory; `None` if the name is empty or means a
/// directory. It contains no separator, so it cannot leave the directory.
#[cfg(feature = "server")]
pub(crate) fn file(common_name: &str) -> Option<String> {
    let name = remap(common_name, |c| is_printable(c) && c != '/');
    (!matches!(name.as_str(), "" | "." | "..")).then_some(name)
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn characters_outside_the_class_become_underscores() {
        assert_eq!(name("a b/c\n"), "a b/c_");
        assert_eq!(name("Jürgen"), "Jürgen");
        assert_eq!(variable("IV_PLAT.VER"), "IV_PLAT_VER");
        assert_eq!(value("a\tb c"), "a_b c");
        assert_eq!(password("p w\r\n").as_str(), "p w__");
    }

    #[test]
    fn a_file_name_is_never_a_path() {
        assert_eq!(
            file("../../etc/passwd").as_deref(),
            Some(".._.._etc_passwd")
        );
        assert_eq!(file(".."), None);
        assert_eq!(file("."), None);
        assert_eq!(file(""), None);
        assert_eq!(file("branch 1").as_deref(), Some("branch 1"));
    }

    proptest! {
        #[test]
        fn no_name_leaves_the_directory(name in ".*") {
            if let Some(file) = file(&name) {
                let path = std::path::Path::new("ccd").join(&file);
                prop_assert_eq!(path.parent(), Some(std::path::Path::new("ccd")));
                prop_assert_eq!(path.components().count(), 2);
            }
        }
    }
}
