//! Finds the shared libraries that a program needs, by asking the dynamic loader.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result, bail, ensure};
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

/// Lookup function for DNS. The C library has it itself since glibc 2.34; before, it loaded `libnss_dns.so.2` at run time.
const DNS_LOOKUP: &[u8] = b"_nss_dns_gethostbyname4_r";

/// Libraries that an older C library loads at run time to resolve names, next to itself.
const NAME_SERVICES: [&str; 2] = ["libnss_files.so.2", "libnss_dns.so.2"];

/// The dynamic loader and all shared libraries that a program needs, directly or not, at the paths where the loader finds
/// them, sorted. The libraries that an older C library loads to resolve names are included. Empty for a static program.
///
/// `program` may be a shared library. An image needs the content of each path at the same path; the paths may be links. The
/// loader of this machine is run, so that the program must have its architecture; the program itself is not run. Libraries
/// that a program opens at run time (`dlopen`) are not found: call this for them too.
pub fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let mut libraries = closure(program)?;
    let c_library = libraries.iter().find(|path| path.file_name() == Some(OsStr::new("libc.so.6"))).cloned();
    if let Some(c_library) = c_library
        && !defines(&c_library, DNS_LOOKUP)?
    {
        for name in NAME_SERVICES {
            let service = c_library.with_file_name(name);
            ensure!(
                service.is_file(),
                "{} is missing, so that programs in the image could not resolve names; install the C library completely",
                service.display()
            );
            libraries.extend(closure(&service)?);
            libraries.insert(service);
        }
    }
    Ok(libraries.into_iter().collect())
}

fn closure(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let dynamic = Dynamic::read(program)?;
    let loader = match dynamic.loader {
        Some(loader) => loader,
        // A shared library names no loader; that of this program has the same architecture.
        None if dynamic.has_needs => own_loader()?,
        None => return Ok(BTreeSet::new()),
    };
    let mut command = Command::new(&loader);
    // Without LD_LIBRARY_PATH and LD_PRELOAD, which the image does not have.
    command.env_clear().arg("--list").arg(program);
    let output = command.output().with_context(|| format!("cannot run the dynamic loader {}", loader.display()))?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!(
            "the dynamic loader {} cannot load {}: {}",
            loader.display(),
            program.display(),
            errors.lines().chain(listed.lines()).next().unwrap_or("no output").trim()
        );
    }
    let mut libraries = BTreeSet::from([loader]);
    for line in listed.lines() {
        match parse(line) {
            Listed::Library(path) => {
                libraries.insert(path);
            }
            Listed::Missing(name) => bail!(
                "{} needs the library {name}, which is not installed; install the package that has it and run this again",
                program.display()
            ),
            Listed::Other => {}
        }
    }
    Ok(libraries)
}

/// A line of `ld.so --list`, which has the format of `ldd`.
#[derive(Debug, PartialEq, Eq)]
enum Listed {
    Library(PathBuf),
    /// Name of a library that the loader does not find.
    Missing(String),
    /// The kernel's own library, or a note.
    Other,
}

fn parse(line: &str) -> Listed {
    let line = line.trim();
    let (name, found) = line.split_once(" => ").unwrap_or(("", line));
    if found == "not found" {
        return Listed::Missing(name.to_owned());
    }
    match found.rsplit_once(" (0x") {
        Some((path, _)) if path.starts_with('/') => Listed::Library(PathBuf::from(path)),
        _ => Listed::Other,
    }
}

/// Parts of an ELF file that matter for its libraries.
struct Dynamic {
    loader: Option<PathBuf>,
    /// Whether it names libraries that it needs.
    has_needs: bool,
}

impl Dynamic {
    fn read(program: &Path) -> Result<Self> {
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let not_elf = || format!("{} is not a program or library of a 64-bit Linux (ELF)", program.display());
        let header = FileHeader64::<Endianness>::parse(bytes.as_slice()).with_context(not_elf)?;
        let endian = header.endian().with_context(not_elf)?;
        let mut read = Self { loader: None, has_needs: false };
        for segment in header.program_headers(endian, bytes.as_slice()).with_context(not_elf)? {
            if let Some(path) = segment.interpreter(endian, bytes.as_slice()).with_context(not_elf)? {
                read.loader = Some(PathBuf::from(OsStr::from_bytes(path)));
            }
            if let Some(entries) = segment.dynamic(endian, bytes.as_slice()).with_context(not_elf)? {
                read.has_needs = entries.iter().any(|entry| entry.tag(endian) == DT_NEEDED);
            }
        }
        Ok(read)
    }
}

/// Read once: this program is large, and an image can have hundreds of libraries.
fn own_loader() -> Result<PathBuf> {
    static OWN: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
        let read = || {
            let own = std::env::current_exe().context("cannot find the path of this program")?;
            Dynamic::read(&own)?.loader.context("this program is static, so that no dynamic loader is known")
        };
        read().map_err(|error: anyhow::Error| format!("{error:#}"))
    });
    OWN.clone().map_err(anyhow::Error::msg)
}

fn defines(library: &Path, symbol: &[u8]) -> Result<bool> {
    let bytes = fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let file = object::File::parse(bytes.as_slice()).with_context(|| format!("cannot parse {}", library.display()))?;
    Ok(file.dynamic_symbols().any(|found| found.is_definition() && found.name_bytes() == Ok(symbol)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that a file requires, as they are recorded in it.
    fn required(file: &Path) -> Vec<String> {
        let bytes = fs::read(file).unwrap();
        let header = FileHeader64::<Endianness>::parse(bytes.as_slice()).unwrap();
        let endian = header.endian().unwrap();
        let sections = header.sections(endian, bytes.as_slice()).unwrap();
        let table = sections.dynamic_table(endian, bytes.as_slice()).unwrap();
        let needed = table.iter().filter(|entry| entry.tag == DT_NEEDED);
        needed.map(|entry| String::from_utf8(table.string(entry).unwrap().to_vec()).unwrap()).collect()
    }

    #[test]
    fn closure_has_every_required_library() {
        let own = std::env::current_exe().unwrap();
        let libraries = shared_libraries(&own).unwrap();
        let names: Vec<_> = libraries.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert!(names.contains(&"libc.so.6") && names.iter().any(|name| name.starts_with("ld-linux")), "{names:?}");
        let mut checked = 0;
        for file in libraries.iter().chain([&own]) {
            for name in required(file) {
                assert!(names.contains(&name.as_str()), "{} needs {name}, which is not in {names:?}", file.display());
                checked += 1;
            }
        }
        assert!(checked > 2, "{checked}");
        assert!(libraries.is_sorted());
    }

    #[test]
    fn closure_of_library_needs_no_program() {
        let own = shared_libraries(&std::env::current_exe().unwrap()).unwrap();
        let gcc = own.iter().find(|path| path.ends_with("libgcc_s.so.1")).unwrap();
        let libraries = shared_libraries(gcc).unwrap();
        assert!(libraries.iter().any(|path| path.ends_with("libc.so.6")), "{libraries:?}");
        assert!(!libraries.contains(gcc), "{libraries:?}");
    }

    #[test]
    fn c_library_or_its_services_resolve_names() {
        let libraries = shared_libraries(&std::env::current_exe().unwrap()).unwrap();
        let with_lookup = libraries.iter().filter(|path| defines(path, DNS_LOOKUP).unwrap()).count();
        assert_eq!(with_lookup, 1, "{libraries:?}");
    }

    #[test]
    fn loader_lines_are_parsed() {
        for (line, expected) in [
            ("\tlibc.so.6 => /lib/libc.so.6 (0x00007f)", Listed::Library("/lib/libc.so.6".into())),
            ("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)", Listed::Library("/lib64/ld-linux-x86-64.so.2".into())),
            ("\tlibz.so.1 => /opt/with space/libz.so.1 (0x0)", Listed::Library("/opt/with space/libz.so.1".into())),
            ("\tlibmissing.so => not found", Listed::Missing("libmissing.so".to_owned())),
            ("\tlinux-vdso.so.1 (0x00007f)", Listed::Other),
            ("\tstatically linked", Listed::Other),
        ] {
            assert_eq!(parse(line), expected, "{line}");
        }
    }

    #[test]
    fn other_files_are_rejected() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = shared_libraries(&manifest).unwrap_err().to_string();
        assert!(error.ends_with("Cargo.toml is not a program or library of a 64-bit Linux (ELF)"), "{error}");
    }
}
