//! An HTTP port that keeps answering probes and scrapers while other clients hold connections.
//!
//! A connection serves one request: its header must arrive within [`HEADER_TIMEOUT`], and the
//! answer must be computed and read within [`ANSWER_TIMEOUT`]. At most [`MAX_CONNECTIONS`] are
//! open; one more closes the oldest one without a complete header, or else the oldest one, so that
//! idle clients lose their connections to clients that send requests. Request bodies are never
//! read.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::warn;

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
/// The maximum length of a request's header, in bytes.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// The delay after a failed accept, which is mostly due to a lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The connections that are open, the oldest first.
#[derive(Debug, Default)]
struct Open(Mutex<Vec<Connection>>);

#[derive(Debug, Clone, Default)]
struct Connection {
    /// Notified when the header of its request has come.
    asked: Arc<Notify>,
    has_asked: bool,
    /// Cancelled when its slot is needed for another connection.
    over: CancellationToken,
    number: u64,
}

/// The slot of an open connection, freed when dropped.
struct Admitted {
    open: Arc<Open>,
    connection: Connection,
}

/// Serves requests until `stop` is cancelled.
pub(super) async fn serve(
    router: Router,
    listener: TcpListener,
    stop: CancellationToken,
) -> io::Result<()> {
    let (open, mut answers, mut number) = (Arc::new(Open::default()), JoinSet::new(), 0);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            // The connection was closed, by the client or by the host.
            Some(_) = answers.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                number += 1;
                let admitted = open.enter(number);
                answers.spawn(answer(stream, router.clone(), admitted, stop.clone()));
            }
            Err(error) => {
                warn!(%error, "a connection is not accepted");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    drop(listener);
    while answers.join_next().await.is_some() {}
    Ok(())
}

async fn answer(stream: TcpStream, router: Router, admitted: Admitted, stop: CancellationToken) {
    let service = service_fn(|request| {
        admitted.ask();
        router.clone().oneshot(request)
    });
    let mut http = http1::Builder::new();
    let connection = http
        .keep_alive(false)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // Errors of a connection are the client's concern.
        _ = connection => {}
        () = admitted.connection.over.cancelled() => {}
        () = admitted.time(&stop) => {}
    }
}

// === impl Open ===

impl Open {
    /// Admits a connection, and closes another one if all slots are taken.
    fn enter(self: &Arc<Self>, number: u64) -> Admitted {
        let connection = Connection { number, ..Connection::default() };
        let mut open = self.0.lock();
        if open.len() >= MAX_CONNECTIONS {
            let oldest = open.iter().position(|held| !held.has_asked).unwrap_or(0);
            open.remove(oldest).over.cancel();
        }
        open.push(connection.clone());
        Admitted { open: Arc::clone(self), connection }
    }
}

// === impl Admitted ===

impl Admitted {
    /// Records that the header of the request has come.
    fn ask(&self) {
        let mut open = self.open.0.lock();
        if let Some(held) = open.iter_mut().find(|held| held.number == self.connection.number) {
            held.has_asked = true;
        }
        self.connection.asked.notify_one();
    }

    /// Waits for the timeout of the connection.
    async fn time(&self, stop: &CancellationToken) {
        tokio::select! {
            () = self.connection.asked.notified() => {}
            () = sleep(HEADER_TIMEOUT) => return,
            () = stop.cancelled() => return,
        }
        let stopped = async {
            stop.cancelled().await;
            sleep(SHUTDOWN_TIMEOUT).await;
        };
        tokio::select! {
            () = sleep(ANSWER_TIMEOUT) => {}
            () = stopped => {}
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.open.0.lock().retain(|held| held.number != self.connection.number);
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::{Instant, timeout},
    };

    use super::*;

    /// A size that the buffers of a connection cannot hold.
    const LARGE_ANSWER_BYTES: usize = 64 << 20;

    struct Served {
        address: std::net::SocketAddr,
        stop: CancellationToken,
        end: JoinSet<io::Result<()>>,
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
    async fn those_that_do_not_read_do_not_keep_a_probe_out() {
        let served = served().await;
        let mut held = Vec::new();
        for _ in 0..=MAX_CONNECTIONS {
            held.push(served.open("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await);
        }
        let answer = rest(served.open(WHOLE).await).await;
        assert!(answer.ends_with(b"ok\n"), "{}", String::from_utf8_lossy(&answer));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_the_answer_is_left() {
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
        served.end.join_next().await.unwrap().unwrap().unwrap();
        assert!(
            start.elapsed() <= SHUTDOWN_TIMEOUT + Duration::from_millis(10),
            "{:?}",
            start.elapsed()
        );
    }
}
