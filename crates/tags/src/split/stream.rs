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
