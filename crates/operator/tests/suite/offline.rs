//! `steersman convert`, `validate` and `render` run on files: their output streams and exit status.

mod agreement;
mod convert;
mod files;
mod render;
mod validate;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::command;

/// A folder with files in which the binary runs without a cluster and without environment variables.
struct Workspace {
    folder: tempfile::TempDir,
}

#[derive(Debug)]
struct CommandRun {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Workspace {
    fn with_files(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self { folder }
    }

    fn run(&self, args: &[&str]) -> CommandRun {
        self.run_with_input(args, "")
    }

    fn run_with_input(&self, args: &[&str], input: &str) -> CommandRun {
        let mut child = command::steersman(args)
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that reads no input may have ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        CommandRun {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl CommandRun {
    #[track_caller]
    fn assert_success(&self) -> &Self {
        assert_eq!(self.status, Some(0), "{}", self.err);
        self
    }

    /// Asserts that the run ended with `status`, printed `message` to standard error, and nothing to standard output.
    #[track_caller]
    fn assert_refused(&self, status: i32, message: &str) {
        assert_eq!((self.status, self.out.as_str()), (Some(status), ""), "{}", self.err);
        assert!(self.err.contains(message), "{message:?} is not in:\n{}", self.err);
    }

    fn documents(&self) -> Vec<Value> {
        serde_saphyr::from_multiple(&self.out).unwrap_or_else(|error| panic!("{error}\n{}", self.out))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}\n{}", self.out))
    }
}

/// Runs the command on a file `cr.yaml` with this text.
fn run_on(text: &str, args: &[&str]) -> CommandRun {
    Workspace::with_files(&[("cr.yaml", text)]).run(&[args, &["-f", "cr.yaml"]].concat())
}

/// A folder of manifests in the tests of the `api` crate, such as `llamastack/valid`.
fn fixtures(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/fixtures").join(folder)
}

fn fixture_files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(fixtures(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder}");
    files
}

const OLD_STACK: &str = "\
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

const NEW_STACK: &str = "\
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

const OTHER_KIND: &str = "\
apiVersion: v1
kind: Service
metadata:
  name: beside
spec:
  clusterIP: None
";
