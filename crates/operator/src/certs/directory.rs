//! Serves the certificate in a folder that another program keeps up to date, such as cert-manager through a mounted Secret.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use steersman_runtime::serve::health::Readiness;
use tokio::time;

use crate::certs::CERTIFICATE;
use crate::certs::check::certified;
use crate::certs::generation::Pair;
use crate::certs::served::Served;

/// Poll interval. A mounted Secret changes by a swap of links, which watches on single files miss.
const LOOK: Duration = Duration::from_secs(2);

/// Loads each changed certificate. The condition [`CERTIFICATE`] is met with the first usable one.
pub async fn follow(folder: &Path, served: Arc<Served>, readiness: Readiness) -> Infallible {
    let mut known: Option<Pair> = None;
    let mut said = String::new();
    loop {
        match read(folder).await {
            Ok(pair) if known.as_ref() != Some(&pair) => match certified(&pair) {
                Ok(key) => {
                    served.put(key);
                    tracing::info!(folder = %folder.display(), "serving the webhook with the certificate of the folder");
                    readiness.has(CERTIFICATE);
                    said.clear();
                    known = Some(pair);
                }
                Err(why) => complain(&mut said, format!("{}: {why}", folder.join("tls.crt").display())),
            },
            Ok(_) => said.clear(),
            Err(why) => complain(&mut said, why),
        }
        time::sleep(LOOK).await;
    }
}

/// Logs a new problem. The last usable certificate is still served: a change may be read half-way.
fn complain(said: &mut String, why: String) {
    if *said != why {
        tracing::warn!(cause = why, "the folder of --webhook-certificate-directory has no certificate to serve");
        *said = why;
    }
}

async fn read(folder: &Path) -> Result<Pair, String> {
    let folder = folder.to_owned();
    let texts = move || {
        let text = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        Ok(Pair { certificate: text("tls.crt")?, key: text("tls.key")? })
    };
    tokio::task::spawn_blocking(texts).await.map_err(|error| error.to_string())?
}
