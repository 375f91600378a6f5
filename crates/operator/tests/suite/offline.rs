//! `steersman convert`, `validate` and `render` as a user meets them: files in, streams and exit status out.

mod convert;
mod files;
mod render;
mod validate;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::command;

/// A folder with files in it, and the binary run there without any cluster or variable.
struct Desk {
    folder: tempfile::TempDir,
}

/// What came of a run.
#[derive(Debug)]
struct Ran {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Desk {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self { folder }
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.fed(args, "")
    }

    fn fed(&self, args: &[&str], input: &str) -> Ran {
        let mut child = command::steersman(args)
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that reads no input may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Ran {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    #[track_caller]
    fn fine(&self) -> &Self {
        assert_eq!(self.status, Some(0), "{}", self.err);
        self
    }

    /// Ended with this status, said this, and printed nothing.
    #[track_caller]
    fn refused(&self, status: i32, said: &str) {
        assert_eq!((self.status, self.out.as_str()), (Some(status), ""), "{}", self.err);
        assert!(self.err.contains(said), "{said:?} is not in:\n{}", self.err);
    }

    fn documents(&self) -> Vec<Value> {
        serde_saphyr::from_multiple(&self.out).unwrap_or_else(|error| panic!("{error}\n{}", self.out))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}\n{}", self.out))
    }
}

/// With a file `cr.yaml` of this text.
fn on(text: &str, args: &[&str]) -> Ran {
    Desk::with(&[("cr.yaml", text)]).run(&[args, &["-f", "cr.yaml"]].concat())
}

/// The manifests that the tests of the API keep, `llamastack/valid` and so on.
fn fixtures(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/fixtures").join(folder)
}

fn files_of(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(fixtures(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder}");
    files
}

const OLD: &str = "\
apiVersion: llamastack.io/v1alpha1
kind: LlamaStackDistribution
metadata:
  name: old
spec:
  replicas: 2
  server:
    distribution:
      name: starter
    containerSpec:
      name: mine
      port: 9000
";

const NEW: &str = "\
apiVersion: llamastack.io/v1alpha2
kind: LlamaStackDistribution
metadata:
  name: new
  namespace: team-a
spec:
  distribution:
    name: starter
  providers:
    inference:
      id: primary
      provider: vllm
      endpoint: http://vllm:8000/v1
      apiKey:
        secretKeyRef: {name: vllm, key: token}
  resources:
    models: [llama]
";

const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata:
  name: beside
spec:
  clusterIP: None
";
