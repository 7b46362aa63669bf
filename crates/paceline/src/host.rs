//! Where a session's slots are: in a cluster of this process, or in the one whose slot this process is.

use crate::embedded::Status;
use paceline_proto::LeaseId;
use rustix::fd::OwnedFd;
use std::io;

pub(crate) trait Host: Send {
    /// A data connection for a lease.
    fn connect(&self, lease: LeaseId) -> io::Result<OwnedFd>;

    fn status(&self) -> Status;

    /// Begin to end, without waiting. What slots still print comes over the control link, then its end.
    fn close(&self);

    /// End whatever was started for it. Harmless when repeated.
    fn shutdown(&mut self);
}
