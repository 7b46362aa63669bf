//! Sockets and descriptors: everything below the messages.
