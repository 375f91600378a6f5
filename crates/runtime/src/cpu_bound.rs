//! CPU-bound work on the input of tenants, such as parsing, validating and planning.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work` on the current thread after moving the thread's other tasks to another one, so that they do not wait for
/// it. On a single-threaded runtime, `work` runs in place.
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_meanwhile() {
        let (send, receive) = mpsc::channel();
        let blocked = tokio::spawn(async move { super::run(|| receive.recv().unwrap()) });
        // The only worker thread is blocked until another task of it has run.
        tokio::spawn(async move { send.send("done") }).await.unwrap().unwrap();
        assert_eq!(blocked.await.unwrap(), "done");
    }

    #[tokio::test]
    async fn single_thread_runs_it_directly() {
        assert_eq!(super::run(|| 1), 1);
    }
}
