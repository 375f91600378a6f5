//! Ports of our own. A port is held by a bound socket while the server that shall listen on it starts: asking for a free
//! port and letting go of it would let another run take it in between.
//!
//! Not every server can share a port with its holder. For those it is let go of at the last moment, and they may stop and
//! start again on it; that is why ports are below those that the system gives to whoever asks for any.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// No system gives these to who connects or listens on any port.
const OURS: std::ops::Range<u16> = 12_000..32_000;

/// A port of the loopback address that only a server with port sharing (`SO_REUSEPORT`) of the same user can listen on.
pub struct HeldPort {
    number: u16,
    _socket: OwnedFd,
}

impl HeldPort {
    /// Any free port.
    pub fn any() -> Result<Self> {
        // Runs side by side begin at different ones.
        let begin = (RandomState::new().hash_one(()) % OURS.len() as u64) as usize;
        let mut numbers = OURS.cycle().skip(begin).take(OURS.len());
        let held = numbers.find_map(Self::free);
        held.context("cannot reserve a free port on 127.0.0.1: every one that was tried is taken")
    }

    /// This very port, or a sentence that says who has it.
    pub fn exactly(number: u16) -> Result<Self> {
        // Port sharing would let us in beside another of our own clusters; a plain bind tells whether anyone is there.
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, number)) {
            let why = match error.kind() {
                ErrorKind::AddrInUse => "is taken by another process: free it".to_owned(),
                ErrorKind::PermissionDenied => "is only for root: choose one above 1023".to_owned(),
                _ => format!("cannot be used ({error}): choose another"),
            };
            bail!("port {number} on 127.0.0.1 {why}, or leave the port out to use any free one");
        }
        // Shared at once: connections of an earlier server may still be there for a minute.
        let held = socket().and_then(|socket| {
            sockopt::set_socket_reuseport(&socket, true)?;
            bind(&socket, &at(number))?;
            Ok(Self { number, _socket: socket })
        });
        held.with_context(|| format!("cannot reserve port {number} on 127.0.0.1"))
    }

    /// None: it is taken.
    fn free(number: u16) -> Option<Self> {
        let socket = socket().ok()?;
        bind(&socket, &at(number)).ok()?;
        // Only now: with port sharing, another holder of ours would be let in.
        sockopt::set_socket_reuseport(&socket, true).ok()?;
        Some(Self { number, _socket: socket })
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

fn at(number: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, number)
}

#[cfg(test)]
mod tests {
    use rustix::net::listen;

    use super::*;

    #[test]
    fn a_held_port_is_nobody_elses() {
        let held: Vec<_> = (0..200).map(|_| HeldPort::any().unwrap()).collect();
        let mut numbers: Vec<_> = held.iter().map(HeldPort::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), held.len(), "two holders must never get the same port");
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, held[0].number())).is_err());
        let message = HeldPort::exactly(held[0].number()).err().unwrap().to_string();
        assert!(message.contains("is taken by another process"), "{message}");
    }
    #[test]
    fn a_server_that_shares_ports_listens_on_a_held_one() {
        let held = HeldPort::any().unwrap();
        let server = socket().unwrap();
        sockopt::set_socket_reuseport(&server, true).unwrap();
        bind(&server, &at(held.number())).unwrap();
        listen(&server, 1).unwrap();
    }
}
