//! An HTTP port that keeps answering probes and scrapers while other clients hold connections.
//!
//! A connection serves one request: its header must arrive within [`HEADER_TIMEOUT`], and the
//! answer must be computed and read within [`ANSWER_TIMEOUT`]. At most [`MAX_CONNECTIONS`] are
//! open; one more closes the oldest one without a complete header, or else the oldest one. Request
//! bodies are never read.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::http::server::{self, MAX_HEADER_BYTES, Slot};

/// The maximum number of open connections of a port. The clients are two kubelets, a few scrapers
/// and people.
const MAX_CONNECTIONS: usize = 64;
/// The time that a client has to send the header of its request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// The time from the header until the answer is read. Computing it takes up to 3 s if the API
/// server is asked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The grace period for answers in flight when the port is closed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves requests until `stop` is cancelled.
pub(super) async fn serve(router: Router, listener: TcpListener, stop: CancellationToken) {
    let answer = |stream, slot| answer(stream, slot, router.clone(), stop.clone());
    server::serve(listener, MAX_CONNECTIONS, &stop, SHUTDOWN_TIMEOUT, answer).await;
}

async fn answer(stream: TcpStream, slot: Slot, router: Router, stop: CancellationToken) {
    let asked = Arc::new(Notify::new());
    let service = service_fn(|request| {
        slot.set_busy(true);
        asked.notify_one();
        router.clone().oneshot(request)
    });
    let mut http = http1::Builder::new();
    let connection = http
        .keep_alive(false)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let timed_out = async {
        tokio::select! {
            // A header that has come counts, even if this task runs late.
            biased;
            () = asked.notified() => sleep(ANSWER_TIMEOUT).await,
            () = sleep(HEADER_TIMEOUT) => {}
            () = stop.cancelled() => {}
        }
    };
    tokio::select! {
        biased;
        // Errors of a connection are the client's concern.
        _ = connection => {}
        () = timed_out => {}
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        task::JoinSet,
        time::{Instant, timeout},
    };

    use super::*;

    /// A size that the buffers of a connection cannot hold.
    const LARGE_ANSWER_BYTES: usize = 64 << 20;

    struct Served {
        address: std::net::SocketAddr,
        stop: CancellationToken,
        end: JoinSet<()>,
    }

    async fn served() -> Served {
        let router = Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/large", get(async || vec![b'x'; LARGE_ANSWER_BYTES]));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let mut end = JoinSet::new();
        end.spawn(serve(router, listener, stop.clone()));
        Served { address, stop, end }
    }

    impl Served {
        /// Returns a connection on which this text was sent.
        async fn open(&self, text: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream
        }
    }

    /// Reads until the connection is closed.
    async fn rest(mut stream: TcpStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset counts as a close.
        let _ = stream.read_to_end(&mut bytes).await;
        bytes
    }

    const HALF: &str = "GET /livez HTTP/1.1\r\nHost: a\r\nX-Slow: ";
    const WHOLE: &str = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";

    #[tokio::test]
    async fn a_request_is_answered_and_the_connection_closed() {
        let served = served().await;
        let answer = String::from_utf8(rest(served.open(WHOLE).await).await).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"),
            "{answer}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_header_is_waited_for_five_seconds() {
        let served = served().await;
        for text in ["", HALF] {
            let (stream, start) = (served.open(text).await, Instant::now());
            assert_eq!(rest(stream).await, b"");
            let took = start.elapsed().as_secs_f64();
            assert!((4.9..6.0).contains(&took), "{took}");
        }
    }

    #[tokio::test]
    async fn held_connections_do_not_keep_a_probe_out() {
        let served = served().await;
        let mut held = Vec::new();
        for _ in 0..4 * MAX_CONNECTIONS {
            held.push(served.open(HALF).await);
        }
        let answer = rest(served.open(WHOLE).await).await;
        assert!(answer.ends_with(b"ok\n"), "{}", String::from_utf8_lossy(&answer));
        // The oldest ones were closed for the newer ones, before their timeout.
        let mut closed = 0;
        for stream in held {
            closed += usize::from(timeout(Duration::from_millis(20), rest(stream)).await.is_ok());
            if closed > 2 * MAX_CONNECTIONS {
                return;
            }
        }
        panic!("{closed} of {} were closed", 4 * MAX_CONNECTIONS);
    }

    #[tokio::test]
    async fn clients_that_do_not_read_do_not_block_a_probe() {
        let served = served().await;
        let mut held = Vec::new();
        for _ in 0..=MAX_CONNECTIONS {
            held.push(served.open("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await);
        }
        let answer = rest(served.open(WHOLE).await).await;
        assert!(answer.ends_with(b"ok\n"), "{}", String::from_utf8_lossy(&answer));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_its_answer_is_disconnected() {
        let served = served().await;
        let stream = served.open("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
        sleep(HEADER_TIMEOUT + ANSWER_TIMEOUT + Duration::from_secs(1)).await;
        assert!(rest(stream).await.len() < LARGE_ANSWER_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_delays_the_end() {
        let mut served = served().await;
        let _idle = served.open("").await;
        let _half = served.open(HALF).await;
        let _large = served.open("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
        // By then, the server has read what was sent before.
        assert!(rest(served.open(WHOLE).await).await.ends_with(b"ok\n"));
        let start = Instant::now();
        served.stop.cancel();
        served.end.join_next().await.unwrap().unwrap();
        assert!(
            start.elapsed() <= SHUTDOWN_TIMEOUT + Duration::from_millis(10),
            "{:?}",
            start.elapsed()
        );
    }
}
