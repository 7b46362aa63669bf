//! A data link whose other end sends descriptors that no message needs.

use paceline_net::link::{Link, Received};
use paceline_net::{fds, poll};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::io::ErrorKind;
use std::time::Duration;

/// Whether the other end of a pipe is open in this process.
fn is_open(read: &OwnedFd) -> bool {
    let mut sources = [PollFd::new(read, PollFlags::empty())];
    poll::wait(&mut sources, Some(Duration::ZERO)).unwrap();
    !sources[0].revents().contains(PollFlags::HUP)
}

#[test]
fn link_that_gets_several_descriptors_at_once_fails_and_keeps_none() {
    for count in 2..=fds::MAX_DESCRIPTORS {
        let (ours, theirs) = fds::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut link = Link::new(ours);
        fds::send_with_fds(&theirs, b"P", &vec![write.as_fd(); count]).unwrap();
        drop(write);
        assert_eq!(link.receive().unwrap_err().kind(), ErrorKind::InvalidData, "{count}");
        drop(link);
        assert!(!is_open(&read), "{count}");
    }
}

#[test]
fn link_that_gets_descriptors_nobody_names_fails_before_there_are_many() {
    let (ours, theirs) = fds::pair().unwrap();
    let (read, write) = rustix::pipe::pipe().unwrap();
    let mut link = Link::new(ours);
    let failed = (0..200).find(|_| {
        fds::send_with_fds(&theirs, b"P", &[write.as_fd()]).unwrap();
        !matches!(link.receive(), Ok(Received::More | Received::All))
    });
    assert!(failed.is_some_and(|count| count <= 64), "{failed:?}");
    drop((link, write));
    assert!(!is_open(&read));
}
