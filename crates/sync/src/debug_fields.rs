//! `Debug` by some fields.

/// Implements `Debug` for a type by the fields that are named, or by none: its other fields cannot
/// be printed, or say nothing.
///
/// ```
/// struct Queue<T> { ids: Vec<T>, wake: fn(T) }
/// inflight_sync::debug_fields!([T] Queue<T>: |this| ids = this.ids.len());
/// assert_eq!(format!("{:?}", Queue { ids: vec![7], wake: drop }), "Queue { ids: 1, .. }");
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! debug_fields {
    (
        $([$($generics:tt)*])? $name:ident $(<$($arg:tt),+>)?
        $(: |$this:ident| $($field:ident = $value:expr),+)?
    ) => {
        impl $(<$($generics)*>)? ::std::fmt::Debug for $name $(<$($arg),+>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                $(
                    let $this = self;
                    // Before anything is written: a value may have taken a lock.
                    $(let $field = &$value;)+
                )?
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), $field))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}
