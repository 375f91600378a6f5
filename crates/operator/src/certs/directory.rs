//! Serves the certificate in a folder that another program keeps up to date, such as cert-manager through a mounted Secret.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use steersman_runtime::serve::health::Readiness;
use tokio::time;

use crate::certs::CERTIFICATE;
use crate::certs::check::certified_key;
use crate::certs::generation::CertificatePair;
use crate::certs::served::ServedCertificate;

/// Poll interval. A mounted Secret changes by a swap of links, which watches on single files miss.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Loads each changed certificate. The condition [`CERTIFICATE`] is met with the first usable one.
pub async fn follow(folder: &Path, served: Arc<ServedCertificate>, readiness: Readiness) -> Infallible {
    let mut known: Option<CertificatePair> = None;
    let mut logged = String::new();
    loop {
        match read(folder).await {
            Ok(pair) if known.as_ref() != Some(&pair) => match certified_key(&pair) {
                Ok(key) => {
                    served.set(key);
                    tracing::info!(folder = %folder.display(), "loaded the webhook certificate from the folder");
                    readiness.has(CERTIFICATE);
                    logged.clear();
                    known = Some(pair);
                }
                Err(why) => log_once(&mut logged, format!("{}: {why}", folder.join("tls.crt").display())),
            },
            Ok(_) => logged.clear(),
            Err(why) => log_once(&mut logged, why),
        }
        time::sleep(POLL_INTERVAL).await;
    }
}

/// Logs a new problem. The last usable certificate is still served: the folder may be read in the middle of a change.
fn log_once(logged: &mut String, why: String) {
    if *logged != why {
        tracing::warn!(
            cause = why,
            "cannot load a certificate from the folder of --webhook-certificate-directory; retrying every 2 s"
        );
        *logged = why;
    }
}

async fn read(folder: &Path) -> Result<CertificatePair, String> {
    let folder = folder.to_owned();
    let texts = move || {
        let text = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        Ok(CertificatePair { certificate: text("tls.crt")?, key: text("tls.key")? })
    };
    tokio::task::spawn_blocking(texts).await.map_err(|error| error.to_string())?
}
