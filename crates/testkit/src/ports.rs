//! Ports of our own. A port is held by a bound socket while the server that shall listen on it starts: asking for a free
//! port and letting go of it would let another run take it in between.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

/// A port of the loopback address that only a server with port sharing (`SO_REUSEPORT`) of the same user can listen on.
pub struct HeldPort {
    number: u16,
    _socket: OwnedFd,
}

impl HeldPort {
    /// Any free port.
    pub fn any() -> Result<Self> {
        Self::hold(0).context("cannot reserve a free port on 127.0.0.1")
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
        Self::hold(number).with_context(|| format!("cannot reserve port {number} on 127.0.0.1"))
    }

    fn hold(number: u16) -> Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, number))?;
        let bound = SocketAddrV4::try_from(getsockname(&socket)?)?;
        Ok(Self { number: bound.port(), _socket: socket })
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
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
}
