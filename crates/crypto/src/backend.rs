//! The origin of the code that computes a cipher.

/// A kind of code for a cipher.
///
/// [`select`](crate::select) decides which candidate of a kind runs, and which kind if the caller asks for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// Plain instructions, in constant time: the code for chips without vector registers, and the reference for the
    /// others.
    Portable,
    /// The CPU's vector registers or cipher instructions.
    Simd,
    /// An accelerator beside the CPU, through the kernel.
    Accelerator,
}

/// The name is not that of a back end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no crypto back end: choose auto, portable, simd or accelerator")]
pub struct UnknownBackend(pub String);

impl Backend {
    /// All back ends.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Simd, Self::Accelerator];

    /// Its name in reports and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Simd => "simd",
            Self::Accelerator => "accelerator",
        }
    }

    /// The back end of a setting: a name, or `auto` for the fastest, which is `None`.
    ///
    /// # Errors
    /// [`UnknownBackend`].
    pub fn from_setting(setting: &str) -> Result<Option<Self>, UnknownBackend> {
        match setting {
            "auto" => Ok(None),
            name => name.parse().map(Some),
        }
    }
}

impl core::str::FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        Self::ALL
            .into_iter()
            .find(|backend| backend.name() == name)
            .ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}

impl core::fmt::Display for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for backend in Backend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
            assert_eq!(Backend::from_setting(backend.name()), Ok(Some(backend)));
        }
        assert_eq!(Backend::from_setting("auto"), Ok(None));
        let unknown = Backend::from_setting("fast").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "fast is no crypto back end: choose auto, portable, simd or accelerator"
        );
    }
}
