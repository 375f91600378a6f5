//! Measurements in Prometheus' text format.
//! Comes in: the address of whoever serves them; goes out: their text, and values in it.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What Prometheus would scrape at this host and port; None while nobody answers.
pub async fn scrape(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    // The oldest version closes when it has said everything, in one piece.
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}

/// Values of a metric, with all labels of each, where those hold all of `labels`.
pub fn find(text: &str, metric: &str, labels: &[(&str, &str)]) -> Vec<(String, f64)> {
    let of = |line: &str| {
        let (found, value) = line.strip_prefix(metric)?.rsplit_once(' ')?;
        let whole = found.is_empty() || found.starts_with('{');
        let has = |(name, value): &(&str, &str)| found.contains(&format!("{name}=\"{value}\""));
        (whole && labels.iter().all(has)).then(|| Some((found.to_owned(), value.parse().ok()?)))?
    };
    text.lines().filter_map(of).collect()
}

/// Of all series that begin so.
pub fn sum(text: &str, series: &str) -> f64 {
    let of = text.lines().filter(|line| line.starts_with(series));
    of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_the_whole_name_and_by_labels() {
        let text = "# HELP a_total b\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"2\",y=\"2\"} 4\na_total_more 5\nb 0.5\n";
        assert_eq!(find(text, "a_total", &[("x", "1")]), [("{x=\"1\",y=\"2\"}".to_owned(), 3.0)]);
        assert_eq!(find(text, "a_total", &[("y", "2")]).len(), 2);
        assert_eq!(find(text, "b", &[]), [(String::new(), 0.5)]);
        assert_eq!((sum(text, "a_total{"), sum(text, "b"), sum(text, "c")), (7.0, 0.5, 0.0));
    }
}
