//! Parses the address of Redis. The server takes host and port only, and builds `redis://{host}:{port}`.

const PORT: u16 = 6379;

pub(super) struct Address {
    user: String,
    host: String,
    pub port: u16,
}

impl Address {
    /// User and password become part of the `host` key, because the server has no key for them.
    pub fn host(&self, password: Option<&str>) -> String {
        match password {
            Some(password) => format!("{}:{password}@{}", self.user, self.host),
            None if self.user.is_empty() => self.host.clone(),
            None => format!("{}@{}", self.user, self.host),
        }
    }
}

/// Errors quote nothing of the address, which may hold a password.
pub(super) fn parse(endpoint: &str) -> Result<Address, String> {
    let endpoint = endpoint.trim();
    let rest = match endpoint.split_once("://") {
        None => endpoint,
        Some(("redis", rest)) => rest,
        Some(("rediss", _)) => {
            return Err("the Llama Stack server does not support TLS to Redis, so rediss:// cannot be used".to_owned());
        }
        Some(_) => return Err("endpoint is not an address of Redis: it must begin with redis://".to_owned()),
    };
    let (user, rest) = match rest.rsplit_once('@') {
        None => ("", rest),
        Some((user, _)) if user.contains(':') => {
            return Err("endpoint contains a password, which would be readable in the ConfigMap".to_owned());
        }
        Some((user, rest)) => (user, rest),
    };
    let (address, database) = rest.split_once('/').unwrap_or((rest, ""));
    if !["", "0"].contains(&database) || address.contains('?') {
        return Err(
            "endpoint has a database or options; the Llama Stack server supports only database 0, without options"
                .to_owned(),
        );
    }
    let (host, port) = split_port(address)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:[]".contains(c);
    if host.is_empty() || !host.chars().all(plain) || !user.chars().all(plain) {
        return Err("endpoint has no valid host".to_owned());
    }
    Ok(Address { user: user.to_owned(), host: host.to_owned(), port })
}

fn split_port(address: &str) -> Result<(&str, u16), String> {
    let colon = address.rfind(':').filter(|colon| address.rfind(']').is_none_or(|bracket| bracket < *colon));
    let Some(colon) = colon else { return Ok((address, PORT)) };
    let (host, port) = (&address[..colon], &address[colon + 1..]);
    if host.contains(':') && !host.starts_with('[') {
        return Err("endpoint has more than one colon; write IPv6 addresses in brackets".to_owned());
    }
    match port.parse() {
        Ok(port) if port > 0 => Ok((host, port)),
        _ => Err("the port of endpoint is not a number from 1 to 65535".to_owned()),
    }
}
