//! The files of `examples/llamastack` applied with kubectl: invalid ones are refused with the text in their first line.

use std::path::PathBuf;

use super::AdmissionEnv;

fn examples(folder: &str) -> Vec<PathBuf> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../examples/llamastack", folder].iter().collect();
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files
}

#[tokio::test]
async fn examples_are_accepted_or_refused_as_documented() {
    let Some(env) = AdmissionEnv::start("examples", &[]).await else { return };
    let (valid, invalid) = (examples(""), examples("invalid"));
    assert!(valid.len() >= 2 && invalid.len() >= 15, "{} valid and {} invalid examples", valid.len(), invalid.len());
    for file in valid {
        env.kubectl(&["apply", "-f", file.to_str().unwrap()]).await.ok();
    }
    let mut wrong = Vec::new();
    for file in invalid {
        let text = std::fs::read_to_string(&file).unwrap();
        let refused = text
            .lines()
            .next()
            .unwrap()
            .strip_prefix("# refused: ")
            .expect("the first line of an invalid example holds the expected message");
        let output = env.kubectl(&["apply", "-f", file.to_str().unwrap()]).await;
        if output.is_ok() || !output.stderr.contains(refused) {
            wrong.push(format!("{}: expected {refused:?} in {:?}", file.display(), output.stderr));
        }
        assert!(!output.stderr.contains("not-a-real-key"), "a secret value is in the message: {}", output.stderr);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    env.operator.assert_log_is_json();
    assert!(!env.operator.log().contains("not-a-real-key"));
}
