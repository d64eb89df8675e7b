//! A split as a stream of the futures crates.

use super::Split;
use crate::error::AllocError;
use crate::tag::Tag;
use futures_core::Stream;
use futures_core::stream::FusedStream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The tags of its pieces. The stream ends after the last piece, and after an error, such as that
/// of a closed set.
///
/// ```
/// # use inflight_tags::TagSet;
/// use futures_core::Stream;
/// use std::{future::poll_fn, pin::Pin};
/// /// As `StreamExt::count`.
/// async fn count(mut stream: impl Stream + Unpin) -> usize {
///     let mut n = 0;
///     while poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await.is_some() {
///         n += 1;
///     }
///     n
/// }
/// let set = TagSet::builder().depth(4).build(|_, _| ())?;
/// let split = set.add_tenant("sda")?.split(9);
/// assert_eq!(inflight_sync::block_on(count(split)), 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<T: Send + 'static> Stream for Split<T> {
    type Item = Result<Tag<T>, AllocError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Split::poll_next(&mut self, cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let most = if self.has_ended() {
            0
        } else {
            self.remaining()
        };
        // An error may be the next item, and the last.
        (most.min(1), Some(most))
    }
}

impl<T: Send + 'static> FusedStream for Split<T> {
    fn is_terminated(&self) -> bool {
        self.has_ended()
    }
}
