//! The texts of errors.

/// Implements `Display` and `Error` for an error type, with a text for each variant. A text names
/// the fields of its variant. For the crates whose users should not have to build a procedural
/// macro.
///
/// ```
/// #[derive(Debug)]
/// enum PlaceError { Taken { place: usize } }
/// inflight_sync::error_text!(PlaceError {
///     Self::Taken { place } => "place {place} is taken",
/// });
/// let error: Box<dyn std::error::Error> = PlaceError::Taken { place: 3 }.into();
/// assert_eq!(error.to_string(), "place 3 is taken");
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! error_text {
    ($error:ty { $($variant:pat => $text:literal),+ $(,)? }) => {
        impl ::std::fmt::Display for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $($variant => ::std::write!(f, $text),)+
                }
            }
        }

        impl ::std::error::Error for $error {}
    };
}
