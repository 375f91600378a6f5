//! Reserves ports. A bound socket holds a port until its server has started, so that no other run takes the port in
//! between.
//!
//! Some servers cannot share a port with its holder. Their port is released right before they start, and they may restart
//! on it. Ports are therefore chosen below the ephemeral range of the system.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// Ports below the ephemeral range of any system.
const PORT_RANGE: std::ops::Range<u16> = 12_000..32_000;

/// A port of the loopback address that only a server with port sharing (`SO_REUSEPORT`) of the same user can listen on.
pub struct ReservedPort {
    number: u16,
    _socket: OwnedFd,
}

impl ReservedPort {
    /// Any free port.
    pub fn any_free() -> Result<Self> {
        // Concurrent runs start their search at different ports.
        let start = (RandomState::new().hash_one(()) % PORT_RANGE.len() as u64) as usize;
        let mut numbers = PORT_RANGE.cycle().skip(start).take(PORT_RANGE.len());
        let held = numbers.find_map(Self::try_hold);
        held.context("cannot reserve a free port on 127.0.0.1: every one that was tried is taken")
    }

    /// The port `number`, or an error that says why it is not available.
    pub fn with_number(number: u16) -> Result<Self> {
        // With port sharing, the bind would succeed even if another of our clusters uses the port. A plain bind fails.
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, number)) {
            let why = match error.kind() {
                ErrorKind::AddrInUse => "is taken by another process: free it".to_owned(),
                ErrorKind::PermissionDenied => "is only for root: choose one above 1023".to_owned(),
                _ => format!("cannot be used ({error}): choose another"),
            };
            bail!("port {number} on 127.0.0.1 {why}, or leave the port out to use any free one");
        }
        // Port sharing is set before the bind, because connections of an earlier server may linger for a minute.
        let held = socket().and_then(|socket| {
            sockopt::set_socket_reuseport(&socket, true)?;
            bind(&socket, &loopback(number))?;
            Ok(Self { number, _socket: socket })
        });
        held.with_context(|| format!("cannot reserve port {number} on 127.0.0.1"))
    }

    /// `None` if the port is taken.
    fn try_hold(number: u16) -> Option<Self> {
        let socket = socket().ok()?;
        bind(&socket, &loopback(number)).ok()?;
        // Port sharing is set after the bind; otherwise two of our holders could bind the same port.
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

fn loopback(number: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, number)
}

#[cfg(test)]
mod tests {
    use rustix::net::listen;

    use super::*;

    #[test]
    fn held_port_is_exclusive() {
        let held: Vec<_> = (0..200).map(|_| ReservedPort::any_free().unwrap()).collect();
        let mut numbers: Vec<_> = held.iter().map(ReservedPort::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), held.len(), "two holders must never get the same port");
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, held[0].number())).is_err());
        let message = ReservedPort::with_number(held[0].number()).err().unwrap().to_string();
        assert!(message.contains("is taken by another process"), "{message}");
    }
    #[test]
    fn port_sharing_server_listens_on_held_port() {
        let held = ReservedPort::any_free().unwrap();
        let server = socket().unwrap();
        sockopt::set_socket_reuseport(&server, true).unwrap();
        bind(&server, &loopback(held.number())).unwrap();
        listen(&server, 1).unwrap();
    }
}
