//! Introductions: the first thing of variable length that is read, and only of one that has proved who it is.

use super::introduction::{Introduction, LONGEST};
use super::proof::Proved;
use super::talk::{Socket, Talk};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;

pub(crate) async fn tell<S: Socket, T: Serialize>(talk: &mut Talk<S>, what: &T) -> io::Result<()> {
    let body = rmp_serde::to_vec_named(what).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(4 + body.len());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&body);
    talk.send(&bytes).await
}

pub(crate) async fn hear<S: Socket, T: DeserializeOwned>(
    talk: &mut Talk<S>,
    _proof: &Proved,
) -> io::Result<T> {
    let length = u32::from_le_bytes(talk.receive().await?) as usize;
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the introduction is too long"));
    }
    let mut body = vec![0; length];
    talk.receive_into(&mut body).await?;
    rmp_serde::from_slice(&body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Whether they came for what they are.
pub(crate) fn is_plausible(them: &Introduction) -> bool {
    them.name.len() <= 1024 && them.paceline.len() <= 256
}
