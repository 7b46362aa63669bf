//! Waiting for a time of [`crate::clock`] under tokio.

use crate::clock;
use std::time::Duration;

/// Return when the clock shows `at` nanoseconds; never, if there is no such time.
pub async fn reached(at: Option<u64>) {
    match at {
        Some(at) => tokio::time::sleep(Duration::from_nanos(at.saturating_sub(clock::now()))).await,
        None => std::future::pending().await,
    }
}
