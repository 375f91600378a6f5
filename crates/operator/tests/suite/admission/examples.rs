//! The examples with kubectl: those to be refused are refused with their text, the others are accepted.

use std::path::PathBuf;

use super::Court;

fn examples(folder: &str) -> Vec<PathBuf> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../examples/llamastack", folder].iter().collect();
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files
}

#[tokio::test]
async fn every_example_is_judged_as_it_says() {
    let Some(court) = Court::open("examples", &[]).await else { return };
    let (valid, invalid) = (examples(""), examples("invalid"));
    assert!(valid.len() >= 2 && invalid.len() >= 15, "{} valid and {} invalid examples", valid.len(), invalid.len());
    for file in valid {
        court.kubectl(&["apply", "-f", file.to_str().unwrap()]).await.ok();
    }
    let mut wrong = Vec::new();
    for file in invalid {
        let text = std::fs::read_to_string(&file).unwrap();
        let refused = text.lines().next().unwrap().strip_prefix("# refused: ").expect("the first line says the text");
        let said = court.kubectl(&["apply", "-f", file.to_str().unwrap()]).await;
        if said.is_ok() || !said.stderr.contains(refused) {
            wrong.push(format!("{}: expected {refused:?} in {:?}", file.display(), said.stderr));
        }
        assert!(!said.stderr.contains("not-a-real-key"), "a value is nobody's business: {}", said.stderr);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    court.operator.assert_log_is_json();
    assert!(!court.operator.log().contains("not-a-real-key"));
}
