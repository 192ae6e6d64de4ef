//! Names that a peer chose, made safe to stand in an environment, a log line or a file name.
//!
//! Whatever is outside the permitted characters becomes an underscore, as the manual of OpenVPN
//! sets out in "String Types and Remapping"; scripts in use rely on the result.

/// What replaces a character that is not permitted.
const REPLACEMENT: char = '_';

fn remap(text: &str, permitted: impl Fn(char) -> bool) -> String {
    // A character of several bytes becomes several underscores, as where bytes are remapped.
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

fn is_printable(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic()
}

/// A common name, or a user's name: letters, digits, `_`, `-`, `.` and `@`.
pub(crate) fn common_name(text: &str) -> String {
    remap(text, |c| c.is_ascii_alphanumeric() || "_-.@".contains(c))
}

/// A password: everything printable.
pub(crate) fn password(text: &str) -> zeroize::Zeroizing<String> {
    zeroize::Zeroizing::new(remap(text, is_printable))
}

/// A certificate's subject: as a common name, and `:`, `/` and `=`, and the space and comma that
/// separate its parts.
pub(crate) fn subject(text: &str) -> String {
    remap(text, |c| {
        c.is_ascii_alphanumeric() || "_-.@:/= ,".contains(c)
    })
}

/// The name of an environment variable: letters, digits and `_`.
pub(crate) fn variable(text: &str) -> String {
    remap(text, |c| c.is_ascii_alphanumeric() || c == '_')
}

/// The value of an environment variable: everything printable.
pub(crate) fn value(text: &str) -> String {
    remap(text, is_printable)
}

/// The file of a client in the client configuration directory; none where the name is empty or
/// means a directory. Never has a separator in it, so no path leaves the directory.
pub(crate) fn file(common_name: &str) -> Option<String> {
    let name = self::common_name(common_name);
    (!matches!(name.as_str(), "" | "." | "..")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn characters_outside_the_class_become_underscores() {
        assert_eq!(common_name("a b/c@d.e-f_g\n"), "a_b_c@d.e-f_g_");
        assert_eq!(common_name("Jürgen"), "J__rgen");
        assert_eq!(subject("C=DE, CN=a;b"), "C=DE, CN=a_b");
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
        assert_eq!(file("branch 1").as_deref(), Some("branch_1"));
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
