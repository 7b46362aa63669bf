//! What the kernel knows of a TCP connection whose peer may have gone without a word.
//!
//! * TC-1: a peer that answers nothing is noticed though nothing is said: by probes of the kernel while nothing is on its
//!   way, and by looking whether anything arrives while something is. Neither costs a call anything.

use rustix::fd::{AsFd, AsRawFd};
use rustix::net::sockopt;
use std::io;
use std::time::Duration;

/// So many probes without an answer end the connection.
const PROBES: u32 = 3;

/// Where the two numbers are in what Linux tells of a connection, which only ever grows at its end.
const UNACKED: usize = 24;
const ACKED: usize = 120;

/// How far what was sent has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Segments that are on their way. A peer that does not read leaves none there.
    pub unacked: u32,
    /// Bytes that have ever arrived.
    pub acked: u64,
}

/// End the connection when its peer has not answered for three heartbeats and a bit, though nothing is said.
pub fn notice_silence(socket: impl AsFd, heartbeat: Duration) -> io::Result<()> {
    let seconds = Duration::from_secs(heartbeat.as_secs_f64().ceil().max(1.0) as u64);
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, seconds)?;
    sockopt::set_tcp_keepintvl(&socket, seconds)?;
    Ok(sockopt::set_tcp_keepcnt(&socket, PROBES)?)
}

/// How far what was sent has come; none if the kernel does not say, or this is no TCP.
pub fn progress(socket: impl AsFd) -> Option<Progress> {
    let mut info = [0u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes no more than `length` bytes, which is the size of `info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 || (length as usize) < ACKED + 8 {
        return None;
    }
    let unacked = u32::from_ne_bytes(info[UNACKED..UNACKED + 4].try_into().expect("four bytes"));
    let acked = u64::from_ne_bytes(info[ACKED..ACKED + 8].try_into().expect("eight bytes"));
    Some(Progress { unacked, acked })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_arrives_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        notice_silence(&near, Duration::from_millis(300)).unwrap();
        let before = progress(&near).unwrap();
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        far.write_all(&[1]).unwrap();
        near.read_exact(&mut [0]).unwrap();
        let after = progress(&near).unwrap();
        assert_eq!((after.acked - before.acked, after.unacked), (1000, 0), "TC-1");
    }

    #[test]
    fn other_sockets_have_none() {
        let (near, _far) = crate::fds::pair().unwrap();
        assert_eq!(progress(&near), None);
    }
}
