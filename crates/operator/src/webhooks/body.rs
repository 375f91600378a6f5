//! Reads the body of a request within bounds of size and time; all bodies in memory count against one budget.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::http::header::CONTENT_LENGTH;
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time;

/// Largest body in bytes, and the assumed size of a body without a Content-Length: clients read lists in chunks of 500, here
/// of objects of 64 KiB each.
pub const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// Bodies up to this size have a budget of their own, so that large ones, or announced ones, block only each other.
const MAX_SMALL_BYTES: usize = 256 * 1024;

/// Budget for all large bodies, in KiB: one of the largest. They are rare, and the allocator keeps their memory for long.
const LARGE_BUDGET_KIB: u32 = (MAX_BODY_BYTES / 1024) as u32;

/// Budget for all small bodies, in KiB.
const SMALL_BUDGET_KIB: u32 = 32 * 1024;

/// Longest wait for the budget, and for the body. API servers give up after 10 s, or 30 s for conversion.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(8);
const MAX_SENDING_TIME: Duration = Duration::from_secs(10);

/// Bytes to search for the uid of the review: API servers write it before everything that is large.
const HEAD_BYTES: usize = 4096;

/// Budget for all bodies in memory.
#[derive(Clone, Debug)]
pub struct BodyBudget {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    room: Duration,
    sending: Duration,
}

impl Default for BodyBudget {
    fn default() -> Self {
        let budget = |kib: u32| Arc::new(Semaphore::new(kib as usize));
        Self {
            small: budget(SMALL_BUDGET_KIB),
            large: budget(LARGE_BUDGET_KIB),
            room: MAX_QUEUE_TIME,
            sending: MAX_SENDING_TIME,
        }
    }
}

/// Bytes that count against the budget until they are dropped.
#[derive(Debug)]
pub struct BudgetedBody {
    pub bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
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
    #[error("the review did not arrive within {} s", MAX_SENDING_TIME.as_secs())]
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
        let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let expected = length.unwrap_or(limit).min(limit);
        let room = self.room(expected).await?;
        let reading = read(request.into_body(), length, limit);
        let bytes = time::timeout(self.sending, reading).await.map_err(|_| BodyError::TooSlow)??;
        Ok(BudgetedBody { bytes, _room: room })
    }

    async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, BodyError> {
        let budget = if bytes <= MAX_SMALL_BYTES { &self.small } else { &self.large };
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(LARGE_BUDGET_KIB).clamp(1, LARGE_BUDGET_KIB);
        let room = time::timeout(self.room, budget.clone().acquire_many_owned(kib)).await;
        // The inner error cannot happen: the semaphore is never closed.
        room.ok().and_then(Result::ok).ok_or(BodyError::Busy)
    }
}

async fn read(body: Body, length: Option<usize>, limit: usize) -> Result<Vec<u8>, BodyError> {
    let mut bytes = Vec::with_capacity(length.filter(|length| *length <= limit).unwrap_or_default());
    let mut stream = body.into_data_stream();
    let mut seen = 0usize;
    while let Some(part) = stream.next().await {
        let part = part.map_err(|error| BodyError::Broken(error.to_string()))?;
        seen = seen.saturating_add(part.len());
        let fits = length.unwrap_or_default() <= limit && seen <= limit;
        // A body that is too large is read to its end, because a client that still sends reads no response; its head is kept
        // for the uid.
        if fits || bytes.len() < HEAD_BYTES {
            bytes.extend_from_slice(&part);
        } else if bytes.len() > HEAD_BYTES {
            bytes = bytes[..HEAD_BYTES].to_vec();
        }
    }
    if length.unwrap_or(seen).max(seen) > limit {
        return Err(BodyError::TooLarge { uid: uid(&bytes), limit });
    }
    Ok(bytes)
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
        assert_eq!(budget.small.available_permits(), SMALL_BUDGET_KIB as usize - 20, "a body in memory counts");
        drop(held);
        assert_eq!(budget.small.available_permits(), SMALL_BUDGET_KIB as usize);
    }

    #[tokio::test]
    async fn full_budget_refuses_only_large_bodies() {
        let budget = BodyBudget::default();
        let moment = Duration::from_millis(10);
        let hasty = BodyBudget { room: moment, sending: moment, ..budget.clone() };
        let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let slow = Request::builder().header(CONTENT_LENGTH, 100).body(never).unwrap();
        assert_eq!(hasty.read(slow, 1000).await.unwrap_err(), BodyError::TooSlow);
        let all = budget.large.clone().acquire_many_owned(LARGE_BUDGET_KIB).await.unwrap();
        let large = || sent(vec![b' '; MAX_SMALL_BYTES + 1], Some(MAX_SMALL_BYTES + 1));
        assert_eq!(hasty.read(large(), MAX_BODY_BYTES).await.unwrap_err(), BodyError::Busy);
        assert!(budget.read(sent(vec![b' '; MAX_SMALL_BYTES], Some(MAX_SMALL_BYTES)), MAX_BODY_BYTES).await.is_ok());
        drop(all);
        assert!(budget.read(large(), MAX_BODY_BYTES).await.is_ok());
    }
}
