//! Reads metrics in Prometheus' text format.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Scrapes `/metrics` at this host and port. `None` if that fails.
pub async fn scrape(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    // With HTTP/1.0, the server closes the connection after the response and does not use chunks.
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}

/// The series of a metric that have all of `labels`, with their labels and values.
pub fn find_series(text: &str, metric: &str, labels: &[(&str, &str)]) -> Vec<(String, f64)> {
    let parse = |line: &str| {
        let (found, value) = line.strip_prefix(metric)?.rsplit_once(' ')?;
        let is_whole_name = found.is_empty() || found.starts_with('{');
        let has_label = |(name, value): &(&str, &str)| found.contains(&format!("{name}=\"{value}\""));
        (is_whole_name && labels.iter().all(has_label)).then(|| Some((found.to_owned(), value.parse().ok()?)))?
    };
    text.lines().filter_map(parse).collect()
}

/// Sum of all series that begin with `series`.
pub fn sum_series(text: &str, series: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(series));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_match_by_name_and_labels() {
        let text = "# HELP a_total b\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"2\",y=\"2\"} 4\na_total_more 5\nb 0.5\n";
        assert_eq!(find_series(text, "a_total", &[("x", "1")]), [("{x=\"1\",y=\"2\"}".to_owned(), 3.0)]);
        assert_eq!(find_series(text, "a_total", &[("y", "2")]).len(), 2);
        assert_eq!(find_series(text, "b", &[]), [(String::new(), 0.5)]);
        assert_eq!((sum_series(text, "a_total{"), sum_series(text, "b"), sum_series(text, "c")), (7.0, 0.5, 0.0));
    }
}
