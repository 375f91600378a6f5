//! Reads the body of a request within bounds of size and time; all bodies in memory count against one budget.
//!
//! A body counts once its bytes arrive: a client that only announces a large body, or sends none, takes nothing from others.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::http::header::CONTENT_LENGTH;
use futures::StreamExt;
use steersman_runtime::serve::Peer;
use tokio::time::{self, Instant};

use super::budget::{FairBudget, Share};

/// Largest body in bytes: clients read lists in chunks of 500, here of objects of 64 KiB each.
pub const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// Bodies up to this size have a budget of their own, so that large ones block only each other.
const MAX_SMALL_BYTES: usize = 256 * 1024;

/// Budget for all large bodies, and the part of one address, in KiB: two of the largest, and one.
const LARGE_BUDGET_KIB: u32 = 2 * LARGE_PER_ADDRESS_KIB;
const LARGE_PER_ADDRESS_KIB: u32 = (MAX_BODY_BYTES / 1024) as u32;

/// Budget for all small bodies, and the part of one address, in KiB.
const SMALL_BUDGET_KIB: u32 = 32 * 1024;
const SMALL_PER_ADDRESS_KIB: u32 = SMALL_BUDGET_KIB / 2;

/// Longest wait for the budget. API servers give up after 10 s, or 30 s for conversion.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(8);

/// Time for a body of any size to arrive, and the rate at which a larger one must arrive: 11 s for the largest.
const BASE_SENDING_TIME: Duration = Duration::from_secs(3);
const MIN_BYTES_PER_SECOND: usize = 4 * 1024 * 1024;

/// Bytes to search for the uid of the review: API servers write it before everything that is large.
const HEAD_BYTES: usize = 4096;

/// Budget for all bodies in memory.
#[derive(Clone, Debug)]
pub struct BodyBudget {
    small: Arc<FairBudget>,
    large: Arc<FairBudget>,
    queue_time: Duration,
    sending_time: Duration,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self {
            small: Arc::new(FairBudget::new(SMALL_BUDGET_KIB, SMALL_PER_ADDRESS_KIB)),
            large: Arc::new(FairBudget::new(LARGE_BUDGET_KIB, LARGE_PER_ADDRESS_KIB)),
            queue_time: MAX_QUEUE_TIME,
            sending_time: BASE_SENDING_TIME,
        }
    }
}

/// Bytes that count against the budget until they are dropped.
#[derive(Debug)]
pub struct BudgetedBody {
    pub bytes: Vec<u8>,
    _room: Option<Share>,
}

impl BudgetedBody {
    /// The uid of the review, found without parsing the body. Empty: not found.
    pub fn uid(&self) -> String {
        uid(&self.bytes)
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error(
        "the review is larger than {} MiB, the limit of this webhook; read fewer objects at a time, for example with \
         kubectl --chunk-size=100", limit / 1024 / 1024
    )]
    TooLarge { uid: String, limit: usize },
    #[error("this webhook is busy with other large reviews; try again")]
    Busy,
    #[error(
        "the review did not arrive in time: a body must arrive within {} s, plus one second for each {} MiB",
        BASE_SENDING_TIME.as_secs(), MIN_BYTES_PER_SECOND / 1024 / 1024
    )]
    TooSlow,
    #[error("the review did not arrive completely: {0}")]
    Broken(String),
}

impl BodyError {
    pub fn uid(&self) -> &str {
        match self {
            Self::TooLarge { uid, .. } => uid,
            Self::Busy | Self::TooSlow | Self::Broken(_) => "",
        }
    }

    pub fn code(&self) -> u16 {
        match self {
            Self::TooLarge { .. } => 413,
            Self::Busy => 429,
            Self::TooSlow => 408,
            Self::Broken(_) => 400,
        }
    }
}

impl BodyBudget {
    /// Reads the body if it has at most `limit` bytes.
    pub async fn read(&self, request: Request<Body>, limit: usize) -> Result<BudgetedBody, BodyError> {
        let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let announced: usize = announced.unwrap_or_default();
        let mut room = Room::new(self, peer_address(&request));
        let (mut bytes, mut stream) = (Vec::new(), request.into_body().into_data_stream());
        let (mut seen, mut is_too_large, began) = (0usize, announced > limit, Instant::now());
        loop {
            let expected = announced.max(seen).min(limit);
            let sending = self.sending_time + Duration::from_secs_f64(expected as f64 / MIN_BYTES_PER_SECOND as f64);
            let deadline = began + room.queued + sending;
            let next = time::timeout_at(deadline, stream.next()).await.map_err(|_| BodyError::TooSlow)?;
            let Some(part) = next else { break };
            let part = part.map_err(|error| BodyError::Broken(error.to_string()))?;
            seen = seen.saturating_add(part.len());
            is_too_large |= seen > limit;
            // A body that is too large is read to its end, because a client that still sends reads no response; its head is
            // kept for the uid.
            if is_too_large {
                room.release();
                bytes.extend_from_slice(&part[..part.len().min(HEAD_BYTES)]);
                bytes.truncate(HEAD_BYTES);
                bytes.shrink_to_fit();
                continue;
            }
            room.grow(seen, announced).await?;
            bytes.extend_from_slice(&part);
        }
        if is_too_large {
            return Err(BodyError::TooLarge { uid: uid(&bytes), limit });
        }
        Ok(BudgetedBody { bytes, _room: room.share })
    }
}

/// The address of the client. Only tests have requests without one.
pub fn peer_address(request: &Request<Body>) -> IpAddr {
    request.extensions().get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address)
}

/// The part of the budget that one body holds while it arrives.
struct Room<'a> {
    budget: &'a BodyBudget,
    address: IpAddr,
    share: Option<Share>,
    kib: u32,
    is_large: bool,
    /// Time that was spent waiting for the budget, which is not the client's fault.
    queued: Duration,
}

impl<'a> Room<'a> {
    fn new(budget: &'a BodyBudget, address: IpAddr) -> Self {
        Self { budget, address, share: None, kib: 0, is_large: false, queued: Duration::ZERO }
    }

    fn release(&mut self) {
        (self.share, self.kib, self.is_large) = (None, 0, false);
    }

    /// Makes room for the bytes that have arrived. An announced size counts as a whole once the body is known to be of its
    /// class, so that bodies of API servers do not wait for each other half-way.
    async fn grow(&mut self, seen: usize, announced: usize) -> Result<(), BodyError> {
        let is_large = seen > MAX_SMALL_BYTES;
        let is_announced = announced >= seen && (is_large || announced <= MAX_SMALL_BYTES);
        let kib = kibibytes(if is_announced { announced } else { seen });
        if is_large == self.is_large && kib <= self.kib {
            return Ok(());
        }
        let moves = is_large && !self.is_large;
        let budget = if is_large { &self.budget.large } else { &self.budget.small };
        let missing = if moves { kib } else { kib - self.kib };
        let began = Instant::now();
        let left = self.budget.queue_time.saturating_sub(self.queued);
        let more = time::timeout(left, budget.acquire(self.address, missing)).await;
        self.queued += began.elapsed();
        let more = more.ok().flatten().ok_or(BodyError::Busy)?;
        match &mut self.share {
            Some(share) if !moves => share.merge(more),
            share => *share = Some(more),
        }
        (self.kib, self.is_large) = (kib, is_large);
        Ok(())
    }
}

fn kibibytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(LARGE_PER_ADDRESS_KIB).clamp(1, LARGE_PER_ADDRESS_KIB)
}

/// The first value of a field `uid` near the beginning, if it has the form of one. After the first `metadata` it would be
/// that of an object.
fn uid(bytes: &[u8]) -> String {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD_BYTES)]);
    let own = head.split("\"metadata\"").next().unwrap_or_default();
    let after = own.split_once("\"uid\"").map_or("", |(_, after)| after.trim_start());
    let value = after.strip_prefix(':').map_or("", str::trim_start).strip_prefix('"').unwrap_or("");
    let fits =
        |uid: &&str| uid.len() <= 64 && uid.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    value.split_once('"').map(|(uid, _)| uid).filter(fits).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_is_found_in_partial_review() {
        for (text, expected) in [
            (
                r#"{"kind":"X","request":{"uid":"705ab4f5-6393","objects":[{"metadata":{"uid":"other"}}]}}"#,
                "705ab4f5-6393",
            ),
            (r#"{"request": { "uid" : "a1" , "obj"#, "a1"),
            (r#"{"request":{"objects":[{"metadata":{"uid":"other"}}],"uid":"a1"}}"#, ""),
            (r#"{"request":{"uid":"a1"#, ""),
            (r#"{"request":{"uid":7}}"#, ""),
            (r#"{"request":{"uid":"<script>"}}"#, ""),
            ("", ""),
        ] {
            assert_eq!(uid(text.as_bytes()), expected, "{text}");
        }
    }

    fn sent(bytes: Vec<u8>, length: Option<usize>) -> Request<Body> {
        let mut request = Request::builder();
        if let Some(length) = length {
            request = request.header(CONTENT_LENGTH, length);
        }
        request.body(Body::from(bytes)).unwrap()
    }

    #[tokio::test]
    async fn large_body_is_refused_with_its_uid() {
        let budget = BodyBudget::default();
        let mut large = br#"{"request":{"uid":"a1","objects":["#.to_vec();
        large.resize(20_000, b' ');
        for length in [None, Some(20_000), Some(10)] {
            let refused = budget.read(sent(large.clone(), length), 16 * 1024).await.unwrap_err();
            assert_eq!(refused, BodyError::TooLarge { uid: "a1".into(), limit: 16 * 1024 }, "{length:?}");
        }
        let held = budget.read(sent(large.clone(), None), 20_000).await.unwrap();
        assert_eq!(held.bytes, large);
        assert_eq!(budget.small.free(), SMALL_BUDGET_KIB as usize - 20, "a body in memory counts");
        drop(held);
        assert_eq!(budget.small.free(), SMALL_BUDGET_KIB as usize);
    }

    /// A body that sends `parts` of 64 KiB each and then nothing.
    fn stalled(parts: usize, length: Option<usize>) -> Request<Body> {
        let parts = futures::stream::iter((0..parts).map(|_| Ok::<_, std::io::Error>(vec![b' '; 64 * 1024])));
        let body = Body::from_stream(parts.chain(futures::stream::pending()));
        let mut request = Request::builder();
        if let Some(length) = length {
            request = request.header(CONTENT_LENGTH, length);
        }
        request.body(body).unwrap()
    }

    fn from(address: [u8; 4], mut request: Request<Body>) -> Request<Body> {
        request.extensions_mut().insert(Peer { address: address.into() });
        request
    }

    #[tokio::test]
    async fn stalled_body_takes_what_it_has_sent() {
        let large = LARGE_BUDGET_KIB as usize;
        for (parts, length, small_kib, large_kib) in [
            (0, None, 0, 0),
            (0, Some(MAX_BODY_BYTES), 0, 0),
            (2, None, 128, 0),
            (2, Some(MAX_BODY_BYTES), 128, 0),
            (8, None, 0, 512),
            (8, Some(1024 * 1024), 0, 1024),
        ] {
            let budget = BodyBudget::default();
            let reading = budget.clone();
            let reader = tokio::spawn(async move { reading.read(stalled(parts, length), MAX_BODY_BYTES).await });
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let taken = (SMALL_BUDGET_KIB as usize - budget.small.free(), large - budget.large.free());
            assert_eq!(taken, (small_kib, large_kib), "{parts} parts, {length:?}");
            reader.abort();
            assert!(reader.await.is_err());
            assert_eq!((budget.small.free(), budget.large.free()), (SMALL_BUDGET_KIB as usize, large));
        }
    }

    #[tokio::test]
    async fn slow_body_is_refused() {
        let budget = BodyBudget { sending_time: Duration::from_millis(10), ..BodyBudget::default() };
        for length in [None, Some(100), Some(300 * 1024)] {
            assert_eq!(
                budget.read(stalled(1, length), 1024 * 1024).await.unwrap_err(),
                BodyError::TooSlow,
                "{length:?}"
            );
        }
    }

    #[tokio::test]
    async fn one_address_cannot_take_whole_budget() {
        let budget = BodyBudget { queue_time: Duration::from_millis(10), ..BodyBudget::default() };
        let (attacker, other) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let largest = |length| sent(vec![b' '; MAX_BODY_BYTES], length);
        let held = budget.read(from(attacker, largest(None)), MAX_BODY_BYTES).await.unwrap();
        let large = || sent(vec![b' '; MAX_SMALL_BYTES + 1], Some(MAX_SMALL_BYTES + 1));
        assert_eq!(budget.read(from(attacker, large()), MAX_BODY_BYTES).await.unwrap_err(), BodyError::Busy);
        let small = sent(vec![b' '; MAX_SMALL_BYTES], Some(MAX_SMALL_BYTES));
        assert!(budget.read(from(attacker, small), MAX_BODY_BYTES).await.is_ok(), "small bodies have their own budget");
        assert!(budget.read(from(other, largest(Some(MAX_BODY_BYTES))), MAX_BODY_BYTES).await.is_ok());
        drop(held);
        assert!(budget.read(from(attacker, large()), MAX_BODY_BYTES).await.is_ok());
    }
}
