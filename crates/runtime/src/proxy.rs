//! Decides whether a server is reached without a proxy. kube's client reads the proxy variables except `NO_PROXY`.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

/// `list` is `NO_PROXY` as every program reads it: hosts, domains, addresses, ranges of addresses or `*`. This machine is
/// never reached through a proxy, as in kubectl.
pub fn is_bypassed(server: &Uri, list: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let loopback = host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    let any_proxy = Matcher::builder().all("http://proxy.invalid").no(list).build();
    loopback || host == "localhost" || any_proxy.intercept(server).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_list_is_respected() {
        for (server, list, bypassed) in [
            ("https://127.0.0.1:6443", "", true),
            ("https://localhost:6443", "other", true),
            ("https://[::1]:6443", "", true),
            ("https://10.96.0.1", "10.0.0.0/8", true),
            ("https://10.96.0.1:6443", "other, 10.96.0.1", true),
            ("https://api.example.com", "example.com", true),
            ("https://api.example.com", ".example.com", true),
            ("https://anything", "*", true),
            ("https://10.96.0.1", "", false),
            ("https://11.0.0.1", "10.0.0.0/8", false),
            ("https://badexample.com", "example.com", false),
        ] {
            assert_eq!(is_bypassed(&server.parse().unwrap(), list), bypassed, "{server} with NO_PROXY={list:?}");
        }
    }
}
