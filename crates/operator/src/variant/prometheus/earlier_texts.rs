//! Errors about files for Prometheus that stay word for word as in the workload variant autoscaler. The tests of
//! `client` have the texts about missing and invalid files.

use steersman_plan::variant::config::prometheus::CaCertificates;

use super::*;

#[test]
fn unreadable_files_keep_error_texts() {
    // A folder exists and cannot be read as a file, even by root.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let base = Settings { base_url: "https://prom".to_owned(), ..Settings::default() };
    for (settings, text) in [
        (Settings { ca: Some(CaCertificates::File(path.clone())), ..base.clone() }, "CA certificate"),
        (Settings { token_path: Some(path.clone()), ..base }, "bearer token"),
    ] {
        let error = Connection::new(&settings).unwrap().session().err();
        assert_eq!(error, Some(format!("failed to read {text} from {path}: Is a directory (os error 21)")));
    }
}
