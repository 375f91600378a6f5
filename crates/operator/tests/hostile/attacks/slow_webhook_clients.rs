//! The attacker reaches the port of the webhooks: with connections that send nothing, or a byte now and then, and with
//! bodies that never end.

use std::io::{self, Read, Write};
use std::iter;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use steersman_testkit::wait;

use crate::tenants::HostileCase;
use crate::webhook_port::{Attack, TlsStream, WebhookPort};

/// Connections without a TLS handshake.
const SILENT_CLIENTS: usize = 300;
/// Connections that send a byte of a head now and then.
const SLOW_CLIENTS: usize = 40;
/// Bodies at a time that never end.
const ENDLESS_BODIES: usize = 12;

const PAUSE: Duration = Duration::from_millis(500);

/// Whether the server has closed the connection. It sends nothing to a client that has sent nothing.
fn is_closed(mut stream: &TcpStream) -> bool {
    let is_open = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    stream.set_nonblocking(true).is_err() || !stream.read(&mut [0]).is_err_and(|error| is_open(&error))
}

/// Keeps connections open that send nothing, and replaces those that the server closes.
fn stay_silent(target: &WebhookPort, open: &mut Vec<TcpStream>) {
    open.retain(|stream| !is_closed(stream));
    let missing = SILENT_CLIENTS - open.len();
    open.extend(iter::repeat_with(|| target.connect()).map_while(Result::ok).take(missing));
    thread::sleep(PAUSE);
}

/// Sends a byte on each connection, and replaces those that the server has closed.
fn send_slowly(target: &WebhookPort, open: &mut Vec<TlsStream>) {
    open.retain_mut(|stream| stream.write_all(b"a").and_then(|()| stream.flush()).is_ok());
    let missing = SLOW_CLIENTS - open.len();
    let head = "POST /validate/llsd HTTP/1.1\r\n";
    open.extend(iter::repeat_with(|| target.send(head)).map_while(Result::ok).take(missing));
    thread::sleep(PAUSE);
}

/// Sends a chunked body until the server closes the connection.
fn send_endless_body(target: &WebhookPort, path: &str) -> io::Result<()> {
    let headers = "host: webhook\r\ncontent-type: application/json\r\ntransfer-encoding: chunked";
    let mut stream = target.send(&format!("POST {path} HTTP/1.1\r\n{headers}\r\n\r\n"))?;
    let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
    while stream.write_all(chunk.as_bytes()).is_ok() {
        thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// The API server's reviews are answered in time, and the attacker's bodies are cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_webhook_clients_delay_no_review() {
    let Some(case) = HostileCase::open("webhook").await else { return };
    let target = WebhookPort::find(&case).await;
    let (bodies, mut attack) = (Arc::new(AtomicUsize::new(0)), Attack::default());
    attack.repeat(&target, stay_silent);
    attack.repeat(&target, send_slowly);
    for number in 0..ENDLESS_BODIES {
        let path = if number % 2 == 0 { "/validate/llsd" } else { "/convert" };
        let ended = bodies.clone();
        attack.repeat(&target, move |target, _: &mut ()| {
            if send_endless_body(target, path).is_ok() {
                ended.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let is_cut_off = async || (bodies.load(Ordering::Relaxed) > 0).then_some(());
    wait::eventually("the operator cuts off a body without end", is_cut_off).await.unwrap();

    case.expect_victim_served().await;
    let slowest = case.slowest_review().await;
    println!("the slowest review took {slowest:?}; {} bodies were cut off", bodies.load(Ordering::Relaxed));
    // The API server gives up after 10 seconds, so that only an answer in time admits an object.
    assert!(slowest < Duration::from_secs(5), "a review took {slowest:?}");
}
