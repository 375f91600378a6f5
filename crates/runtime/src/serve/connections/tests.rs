use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::{Serving, Transport, start_with};
use super::*;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);
const LIMITS: ConnectionLimits = ConnectionLimits { connections: 100, head: LONG, idle: LONG, response: LONG };
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

async fn serve(limits: ConnectionLimits) -> (Serving, SocketAddr) {
    let routes = Router::new()
        .route("/", get(|| async { "ok" }))
        .route("/large", get(|| async { vec![b'x'; 64 * 1024 * 1024] }))
        .route(
            "/body",
            post(|body: axum::body::Body| async { body.collect().await.map(|_| "ok").unwrap_or("broken") }),
        );
    let serving = start_with("test", "127.0.0.1:0".parse().unwrap(), Transport::Plain, routes, limits).unwrap();
    let address = serving.handle.listening().await.unwrap();
    (serving, address)
}

async fn connect_from(source: &str, server: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
    socket.connect(server).await.unwrap()
}

/// Whether the server answers a request on this connection.
async fn is_served(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 15];
    stream.write_all(GET).await.is_ok() && stream.read_exact(&mut answer).await.is_ok() && &answer == b"HTTP/1.1 200 OK"
}

/// Whether the server has closed this connection.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_millis(100), stream.read_to_end(&mut rest)).await;
    read.is_ok()
}

fn address(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

#[test]
fn full_server_evicts_from_largest_address() {
    let mut all = OpenConnections::default();
    let attacker: Vec<_> = (0..6).map(|_| all.add(address(1), 6).unwrap()).collect();
    assert!(all.add(address(1), 6).is_none(), "an address does not evict its own connections");
    // The oldest connection is busy, so the next one makes way.
    attacker[0].1.is_busy.store(true, Ordering::Relaxed);
    for (count, evicted) in [(1, 1), (2, 2), (3, 3)] {
        assert!(all.add(address(2), 6).is_some(), "connection {count}");
        assert!(attacker[evicted].1.evicted.is_cancelled(), "connection {evicted}");
    }
    assert!(!attacker[0].1.evicted.is_cancelled());
    assert!(all.add(address(2), 6).is_none(), "each address has half");
    assert!(all.add(address(3), 6).is_some());
    assert_eq!(all.open.len(), 6);
}

#[test]
fn busy_connection_is_evicted_last() {
    let mut all = OpenConnections::default();
    let attacker: Vec<_> = (0..3).map(|_| all.add(address(1), 3).unwrap().1).collect();
    for connection in &attacker {
        connection.is_busy.store(true, Ordering::Relaxed);
    }
    assert!(all.add(address(2), 3).is_some());
    assert!(attacker[0].evicted.is_cancelled());
}

#[tokio::test]
async fn many_connections_leave_room_for_others() {
    let (serving, server) = serve(ConnectionLimits { connections: 8, ..LIMITS }).await;
    let mut attacker = Vec::new();
    for _ in 0..50 {
        attacker.push(connect_from("127.0.0.2", server).await);
    }
    let mut other = connect_from("127.0.0.3", server).await;
    assert!(is_served(&mut other).await);
    let mut closed = 0;
    for stream in &mut attacker {
        closed += usize::from(is_closed(stream).await);
    }
    assert_eq!(closed, 43, "7 of 50 stay open");
    // A closed connection frees its place, once the server has noticed it.
    drop(attacker);
    let began = Instant::now();
    while !is_served(&mut connect_from("127.0.0.2", server).await).await {
        assert!(began.elapsed() < LONG, "no place became free");
    }
    serving.stop(SHORT).await;
}

#[tokio::test]
async fn slow_head_closes_the_connection() {
    let (serving, server) = serve(ConnectionLimits { head: SHORT, ..LIMITS }).await;
    // One byte at a time never completes a head in time.
    let mut slow = connect_from("127.0.0.2", server).await;
    let began = Instant::now();
    while began.elapsed() < LONG && slow.write_all(b"G").await.is_ok() {
        if is_closed(&mut slow).await {
            break;
        }
    }
    assert!(began.elapsed() >= SHORT && began.elapsed() < LONG);
    let mut silent = connect_from("127.0.0.2", server).await;
    assert_eq!(silent.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0, "a silent client");
    serving.stop(SHORT).await;
}

#[tokio::test]
async fn idle_connection_outlives_the_head_limit() {
    let (serving, server) = serve(ConnectionLimits { head: SHORT, idle: 4 * SHORT, ..LIMITS }).await;
    let mut stream = connect_from("127.0.0.2", server).await;
    assert!(is_served(&mut stream).await);
    let mut rest = vec![0; 1024];
    let _ = tokio::time::timeout(2 * SHORT, async { while stream.read(&mut rest).await.unwrap() > 0 {} }).await;
    assert!(is_served(&mut stream).await, "idle for longer than a head may take");
    let closed = async { while stream.read(&mut rest).await.unwrap_or(0) > 0 {} };
    tokio::time::timeout(LONG, closed).await.expect("the idle timeout closes the connection");
    serving.stop(SHORT).await;
}

#[tokio::test]
async fn body_may_take_longer_than_head() {
    let (serving, server) = serve(ConnectionLimits { head: SHORT, ..LIMITS }).await;
    let mut stream = connect_from("127.0.0.2", server).await;
    stream.write_all(b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n").await.unwrap();
    for _ in 0..4 {
        tokio::time::sleep(SHORT / 2).await;
        stream.write_all(b"x").await.unwrap();
    }
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    serving.stop(SHORT).await;
}

#[tokio::test]
async fn unread_response_closes_the_connection() {
    let (serving, server) = serve(ConnectionLimits { response: SHORT, ..LIMITS }).await;
    let mut stream = connect_from("127.0.0.2", server).await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    // Reads a little at a time, far below the size of the response.
    let (began, mut read) = (Instant::now(), 0);
    let mut part = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => break,
            Ok(count) => read += count,
        }
        if began.elapsed() < 4 * SHORT {
            tokio::time::sleep(SHORT / 10).await;
        }
    }
    assert!(read < 64 * 1024 * 1024, "{read}");
    serving.stop(SHORT).await;
}
