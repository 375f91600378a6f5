//! The images of the Python servers: Llama Stack and Dynamo. Both consist of a shared base, with the Python of this machine and
//! the shared libraries that the packages need, and of a layer with the packages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use steersman_plan::oci::ImageReference;
use steersman_testkit::real_node::scenario::{DYNAMO_IMAGE, LLAMA_STACK_IMAGE};

use super::model;
use crate::image::{Compression, Entry, Image, ImageConfig, Layer, shared_libraries};
use crate::python::{Packages, Python};

/// The version of llama-stack that the image has: that of the distributions of this release.
pub const LLAMA_STACK_VERSION: &str = "0.7.1";

/// Users of the images, with the ids of the images that they stand for.
const LLAMA_STACK_USER: u32 = 1001;
const DYNAMO_USER: u32 = 1000;

/// Folder of the packages in the images.
const PACKAGES: &str = "/opt/packages";

/// Folder of modules that the servers import and that no package has, or only a very large one.
const STAND_INS: &str = "/opt/stand-ins";

/// The same folders of this repository.
const LLAMA_STACK_STAND_INS: &str = "crates/plan/tests/llamastack-real/stand-ins";
const DYNAMO_STAND_INS: &str = "crates/operator/tests/dynamo-real/stand-ins";

/// Parts of the standard library that no server needs.
const OMITTED: [&str; 8] =
    ["test", "idlelib", "lib2to3", "ensurepip", "turtledemo", "tkinter", "site-packages", "dist-packages"];

/// pip writes scripts with the path of the interpreter of this machine, so the image has its own.
const UVICORN: &str = "#!/bin/sh\nexec python3 -m uvicorn \"$@\"\n";

const ACCOUNTS: &str = "root:x:0:0::/:/bin/sh\ndynamo:x:1000:1000::/tmp:/bin/sh\nllama:x:1001:1001::/:/bin/sh\n";

/// Parts of Python, as the interpreter reports them.
#[derive(Deserialize)]
struct Interpreter {
    executable: PathBuf,
    stdlib: PathBuf,
}

/// Writes both images. `store` gets the layers.
pub fn build(python: &Python, llama: &Packages, dynamo: &Path, store: &Path) -> Result<[Image; 2]> {
    let interpreter = interpreter(python)?;
    let server = llama.server(LLAMA_STACK_VERSION);
    let shared = llama.shared();
    let base = layer(base(&interpreter, &[&shared, &server, dynamo])?, store)?;

    let mut packages = folder(&Path::new(PACKAGES).join("shared"), &shared)?;
    packages.extend(folder(&Path::new(PACKAGES).join("server"), &server)?);
    packages.extend(stand_ins(LLAMA_STACK_STAND_INS)?);
    let tokenizers = format!("{PACKAGES}/shared/litellm/litellm_core_utils/tokenizers");
    let settings = config(
        LLAMA_STACK_USER,
        &[
            ("PYTHONPATH", &format!("{STAND_INS}:{PACKAGES}/shared:{PACKAGES}/server")),
            ("TIKTOKEN_CACHE_DIR", &tokenizers),
            // The storage of a server is mounted at `/.llama`.
            ("HOME", "/"),
        ],
    );
    let llama = image(LLAMA_STACK_IMAGE, &settings, vec![base.clone(), layer(packages, store)?])?;

    let mut packages = folder(Path::new(PACKAGES), dynamo)?;
    packages.extend(stand_ins(DYNAMO_STAND_INS)?);
    packages.extend(model::entries());
    let settings = config(
        DYNAMO_USER,
        &[("PYTHONPATH", &format!("{STAND_INS}:{PACKAGES}")), ("HF_HOME", model::HUB_HOME), ("HOME", "/tmp")],
    );
    let dynamo = image(DYNAMO_IMAGE, &settings, vec![base, layer(packages, store)?])?;
    Ok([llama, dynamo])
}

fn stand_ins(repository_folder: &str) -> Result<Vec<Entry>> {
    folder(Path::new(STAND_INS), &crate::root().join(repository_folder))
}

fn image(name: &str, settings: &ImageConfig, layers: Vec<Layer>) -> Result<Image> {
    let name = ImageReference::parse(name).with_context(|| format!("{name} is not the name of an image"))?;
    Image::new(name, settings, layers)
}

fn layer(entries: Vec<Entry>, store: &Path) -> Result<Layer> {
    // Uncompressed: the archive is imported on the same machine.
    Layer::from_entries(entries, Compression::Uncompressed, store)
}

fn config(user: u32, variables: &[(&str, &str)]) -> ImageConfig {
    let common = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("PYTHONDONTWRITEBYTECODE", "1"), ("HF_HUB_OFFLINE", "1")];
    let environment: BTreeMap<String, String> =
        common.iter().chain(variables).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    ImageConfig { user: format!("{user}:{user}"), environment, ..ImageConfig::default() }
}

fn interpreter(python: &Python) -> Result<Interpreter> {
    let script = "import json, os, sys, sysconfig; print(json.dumps({'executable': os.path.realpath(sys.executable), \
                  'stdlib': os.path.realpath(sysconfig.get_path('stdlib'))}))";
    let output = Command::new(python.program()).args(["-I", "-c", script]).output();
    let output = output.with_context(|| format!("cannot run {}", python.program().display()))?;
    ensure!(output.status.success(), "{} cannot report its paths", python.program().display());
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("cannot read the paths of {}", python.program().display()))
}

/// Python at the paths of this machine, a shell, and the shared libraries that these and the packages need.
fn base(interpreter: &Interpreter, packages: &[&Path]) -> Result<Vec<Entry>> {
    let shell = fs::canonicalize("/bin/sh").context("this machine has no /bin/sh")?;
    let mut entries = vec![
        Entry::host_file("/bin/sh", &shell)?,
        Entry::host_file(&interpreter.executable, &interpreter.executable)?,
        Entry::bytes("/usr/local/bin/uvicorn", 0o755, UVICORN),
        Entry::bytes("/etc/passwd", 0o644, ACCOUNTS),
        Entry::bytes("/etc/nsswitch.conf", 0o644, "hosts: files dns\n"),
        Entry::folder("/tmp", 0o1777),
    ];
    entries.extend(
        ["python", "python3"]
            .map(|name| Entry::symbolic_link(format!("/usr/local/bin/{name}"), &interpreter.executable)),
    );
    entries.extend(folder(&interpreter.stdlib, &interpreter.stdlib)?);

    let mut programs = vec![shell, interpreter.executable.clone()];
    for root in packages.iter().copied().chain([interpreter.stdlib.as_path()]) {
        collect_programs(root, &mut programs)?;
    }
    let mut libraries = BTreeSet::new();
    for program in &programs {
        // An extension whose libraries this machine does not have cannot be imported here either.
        libraries.extend(shared_libraries(program).unwrap_or_default());
    }
    let is_elsewhere =
        |path: &PathBuf| !packages.iter().chain([&interpreter.stdlib.as_path()]).any(|root| path.starts_with(root));
    for library in libraries.into_iter().filter(is_elsewhere) {
        entries.push(Entry::host_file(&library, &library)?);
    }
    Ok(entries)
}

/// Adds all shared libraries below a folder.
fn collect_programs(folder: &Path, programs: &mut Vec<PathBuf>) -> Result<()> {
    for (path, kind) in list(folder)? {
        if kind.is_dir() {
            collect_programs(&path, programs)?;
        } else if kind.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so")) {
            let mut magic = [0; 4];
            let read = File::open(&path).and_then(|mut file| file.read_exact(&mut magic));
            if read.is_ok() && magic == *b"\x7fELF" {
                programs.push(path);
            }
        }
    }
    Ok(())
}

/// A folder of this machine as a folder of the image.
fn folder(image_path: &Path, host: &Path) -> Result<Vec<Entry>> {
    let mut entries = vec![Entry::folder(image_path, 0o755)];
    for (path, kind) in list(host)? {
        let name = path.file_name().unwrap_or_default();
        let image_path = image_path.join(name);
        if kind.is_dir() {
            let text = name.to_string_lossy();
            // The omitted names are those of parts of the standard library, beside its module `os`.
            if !(host.join("os.py").is_file() && (OMITTED.contains(&text.as_ref()) || text.starts_with("config-"))) {
                entries.extend(folder(&image_path, &path)?);
            }
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).with_context(|| format!("cannot read {}", path.display()))?;
            entries.push(Entry::symbolic_link(image_path, target));
        } else if kind.is_file() {
            entries.push(match compiled(&path)? {
                Some(bytes) => Entry::bytes(image_path, 0o644, bytes),
                None => Entry::host_file(image_path, path)?,
            });
        }
    }
    Ok(entries)
}

/// A compiled module, changed so that Python does not compare it with its source: files of a layer have no time of change,
/// and Python would compile every module again at every start.
fn compiled(path: &Path) -> Result<Option<Vec<u8>>> {
    if path.extension().is_none_or(|extension| extension != "pyc") {
        return Ok(None);
    }
    let mut bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    // After the magic number: flags (1: by hash, which is not checked), then eight bytes that are a hash or a time and a size.
    ensure!(bytes.len() > 16, "{} is not a compiled module", path.display());
    bytes[4..8].copy_from_slice(&1_u32.to_le_bytes());
    bytes[8..16].fill(0);
    Ok(Some(bytes))
}

fn list(folder: &Path) -> Result<Vec<(PathBuf, fs::FileType)>> {
    let cannot_read = || format!("cannot read {}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(cannot_read)? {
        let entry = entry.with_context(cannot_read)?;
        found.push((entry.path(), entry.file_type().with_context(cannot_read)?));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_modules_are_not_compared_with_sources() {
        let folder = tempfile::tempdir().unwrap();
        let (source, cache) = (folder.path().join("answer.py"), folder.path().join("answer.pyc"));
        fs::write(&source, "VALUE = 42\n").unwrap();
        assert_eq!(compiled(&source).unwrap(), None);
        let Some(python) = crate::python::find() else {
            steersman_testkit::skip::skip(
                "compiled_modules_are_not_compared_with_sources",
                "Python 3.12 was not found",
            );
            return;
        };
        let run = |script: &str| {
            let output = Command::new(python.program()).args(["-I", "-c", script]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        run(&format!("import py_compile; py_compile.compile({source:?}, cfile={cache:?}, doraise=True)"));
        fs::write(&cache, compiled(&cache).unwrap().unwrap()).unwrap();
        fs::remove_file(&source).unwrap();
        assert_eq!(
            run(&format!("import sys; sys.path.insert(0, {:?}); import answer; print(answer.VALUE)", folder.path())),
            "42\n"
        );
        let header = fs::read(&cache).unwrap();
        assert_eq!((&header[4..8], &header[8..16]), (&[1, 0, 0, 0][..], &[0; 8][..]));
        fs::write(&cache, "short").unwrap();
        assert!(compiled(&cache).unwrap_err().to_string().ends_with("is not a compiled module"));
    }

    #[test]
    fn standard_library_has_no_tests() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["stdlib/test", "stdlib/json", "packages/test"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("__init__.py"), "").unwrap();
        }
        fs::write(folder.path().join("stdlib/os.py"), "").unwrap();
        let count = |name: &str| {
            super::folder(Path::new("/lib"), &folder.path().join(name))
                .unwrap()
                .iter()
                .filter(|entry| entry.is_file())
                .count()
        };
        assert_eq!((count("stdlib"), count("packages")), (2, 1));
    }
}
