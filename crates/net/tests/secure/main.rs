//! Connections over real sockets: who is let in, who is not, and what is said to either.

mod good;
mod hostile;
mod storm;
mod support;
