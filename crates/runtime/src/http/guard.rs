//! Decides which addresses the operator connects to when others than its administrator choose them.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

use super::inside::Inside;

/// Servers that a client may reach.
#[derive(Clone, Debug, Default)]
pub enum Reach {
    /// Every server. Only for addresses that the administrator of the operator sets.
    #[default]
    Configured,
    /// Services and pods of this cluster.
    Inside(Inside),
    /// Servers that users name, such as registries: no address of the operator's machine or of a metadata service.
    UserNamed,
}

/// Network of an address. The order is that of trust: a limit allows the smaller networks too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Network {
    Public,
    /// Networks of the cluster, the company or the cloud account.
    Private,
}

/// Metadata services of clouds outside the link-local range: Alibaba, Azure, Oracle, and AWS over IPv6.
const METADATA_SERVICES: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// The network of an address. `None` for addresses that no user may make the operator connect to: its own machine, its
/// links, metadata services, and addresses of several hosts.
pub(super) fn network(address: IpAddr) -> Option<Network> {
    let address = embedded(address);
    if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
        return None;
    }
    if METADATA_SERVICES.contains(&address) {
        return None;
    }
    match address {
        IpAddr::V4(address) => network_v4(address),
        IpAddr::V6(address) if address.is_unicast_link_local() => None,
        // fec0::/10 was the range of private addresses before fc00::/7.
        IpAddr::V6(address) if address.is_unique_local() || address.segments()[0] & 0xffc0 == 0xfec0 => {
            Some(Network::Private)
        }
        IpAddr::V6(_) => Some(Network::Public),
    }
}

fn network_v4(address: Ipv4Addr) -> Option<Network> {
    match address.octets() {
        [0, ..] | [255, 255, 255, 255] => None,
        [169, 254, ..] => None,
        // Carrier-grade NAT, protocol assignments, benchmarks and reserved addresses: clusters use them for pods and nodes.
        [100, 64..128, ..] | [192, 0, 0, _] | [198, 18 | 19, ..] | [240..=255, ..] => Some(Network::Private),
        _ if address.is_private() => Some(Network::Private),
        _ => Some(Network::Public),
    }
}

/// The IPv4 address that an IPv6 address stands for (mapped, compatible, or translated by NAT64), else the address itself.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        // The unspecified and the loopback address have this form too, and stay as they are.
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) != (0, 0) && (high, low) != (0, 1) => from_halves(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => from_halves(high, low),
        _ => v6.to_canonical(),
    }
}

fn from_halves(high: u16, low: u16) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
}

/// The address in a URL whose host is no name.
pub(super) fn literal(url: &Uri) -> Option<IpAddr> {
    url.host()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Reason why an address is refused: it is local, or private and only public ones are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RefusedAddress {
    #[error("its address belongs to this machine or to a metadata service")]
    Local,
    #[error("its address is private")]
    Private,
}

/// Checks an address against the largest network that is allowed.
pub(super) fn check(address: IpAddr, limit: Network) -> Result<(), RefusedAddress> {
    match network(address) {
        None => Err(RefusedAddress::Local),
        Some(network) if network > limit => Err(RefusedAddress::Private),
        Some(_) => Ok(()),
    }
}

/// Resolves names, and drops the addresses that the limit does not allow. The check is made here, because a name may have
/// another address at each lookup.
#[derive(Clone)]
pub(super) struct GuardedResolver {
    inner: GaiResolver,
    /// `None` allows every address.
    limit: Option<Network>,
}

impl GuardedResolver {
    pub fn new(limit: Option<Network>) -> Self {
        Self { inner: GaiResolver::new(), limit }
    }
}

impl Service<Name> for GuardedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (resolved, limit) = (self.inner.call(name), self.limit);
        Box::pin(async move {
            let mut allowed = Vec::new();
            let mut refused = None;
            for address in resolved.await? {
                match limit.map_or(Ok(()), |limit| check(address.ip(), limit)) {
                    Ok(()) => allowed.push(address),
                    Err(why) => refused = Some(why),
                }
            }
            match refused.filter(|_| allowed.is_empty()) {
                Some(why) => Err(io::Error::other(why)),
                None => Ok(allowed.into_iter()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sorted_into_networks() {
        use Network::{Private, Public};
        for (address, expected) in [
            ("127.0.0.1", None),
            ("127.9.9.9", None),
            ("0.0.0.0", None),
            ("0.1.2.3", None),
            ("169.254.169.254", None),
            ("255.255.255.255", None),
            ("224.0.0.1", None),
            ("100.100.100.200", None),
            ("168.63.129.16", None),
            ("::", None),
            ("::1", None),
            ("::127.0.0.1", None),
            ("::ffff:127.0.0.1", None),
            ("::ffff:169.254.169.254", None),
            ("64:ff9b::169.254.169.254", None),
            ("fe80::1", None),
            ("ff02::1", None),
            ("fd00:ec2::254", None),
            ("10.0.0.1", Some(Private)),
            ("172.31.0.1", Some(Private)),
            ("192.168.1.1", Some(Private)),
            ("100.64.0.1", Some(Private)),
            ("198.18.0.1", Some(Private)),
            ("240.0.0.1", Some(Private)),
            ("::ffff:10.0.0.1", Some(Private)),
            ("64:ff9b::10.0.0.1", Some(Private)),
            ("fd00::7", Some(Private)),
            ("fec0::1", Some(Private)),
            ("1.1.1.1", Some(Public)),
            ("172.32.0.1", Some(Public)),
            ("100.128.0.1", Some(Public)),
            ("2606:4700::1", Some(Public)),
            ("64:ff9b::1.1.1.1", Some(Public)),
        ] {
            assert_eq!(network(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn limit_allows_smaller_networks() {
        let check = |address: &str, limit| check(address.parse().unwrap(), limit);
        assert_eq!(check("1.1.1.1", Network::Public), Ok(()));
        assert_eq!(check("1.1.1.1", Network::Private), Ok(()));
        assert_eq!(check("10.0.0.1", Network::Private), Ok(()));
        assert_eq!(check("10.0.0.1", Network::Public), Err(RefusedAddress::Private));
        assert_eq!(check("127.0.0.1", Network::Private), Err(RefusedAddress::Local));
    }

    #[tokio::test]
    async fn local_name_is_resolved_without_limit_only() {
        let lookup = async |limit| GuardedResolver::new(limit).call("localhost".parse().unwrap()).await;
        assert!(lookup(None).await.unwrap().len() > 0);
        for limit in [Network::Public, Network::Private] {
            let error = lookup(Some(limit)).await.unwrap_err();
            let refused = error.get_ref().and_then(|error| error.downcast_ref::<RefusedAddress>());
            assert_eq!(refused, Some(&RefusedAddress::Local));
        }
    }
}
