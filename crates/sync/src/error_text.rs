//! The texts of errors.

/// The texts of an error, by variant; and that it is one. The fields of a variant stand in its text
/// by name. For the crates here whose users are to build no procedural macro.
///
/// ```
/// #[derive(Debug)]
/// enum PlaceError {
///     Taken { place: usize },
///     Closed,
/// }
/// inflight_sync::error_text!(PlaceError {
///     Self::Taken { place } => "place {place} is taken",
///     Self::Closed => "nobody gets a place any more",
/// });
/// assert_eq!(PlaceError::Taken { place: 3 }.to_string(), "place 3 is taken");
/// let error: Box<dyn std::error::Error> = PlaceError::Closed.into();
/// assert_eq!(error.to_string(), "nobody gets a place any more");
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
